"""Strips of threads on the CPU that meet at an element: one addition of a sum where it is the same for all, additions in turn elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.codegen import host_source
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Kernel
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.source import SourceFile
from gpuad.testing import check_gradient

THREAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
GUARD = f"{THREAD} if (i >= n) return;"
LOOP = "for (int k = 0; k < m; ++k)"
TOTAL, IN_TURN, BESIDE = "a sum for the strip", "in turn", "side by side"
BODIES = {
    "a sum an iteration": (TOTAL, f"{GUARD} {LOOP} atomicAdd(&y[k], x[i] * x[k]);"),
    "two sums an iteration": (TOTAL, f"{GUARD} {LOOP} {{ atomicAdd(&y[k], x[i + k]); atomicAdd(&y[k + 1], x[i] * x[k]); }}"),
    "a sum at the end": (TOTAL, f"{GUARD} float s = 0; {LOOP} s += x[k] * x[i]; atomicAdd(&y[p[3]], s);"),
    "a sum behind a branch": (TOTAL, f"{GUARD} {LOOP} if (x[i + k] > 0.5f) atomicAdd(&y[k], x[i]); else atomicAdd(&z[0], x[k]);"),
    "a sum, and rows of what is much to compute": (TOTAL, f"{GUARD} {LOOP} {{ z[i * m + k] += expf(x[k]); atomicAdd(&y[k], x[i]); }}"),
    "a sum, and short rows": (TOTAL, f"{GUARD} for (int k = 0; k < 6; ++k) {{ z[i * 6 + k] += x[k]; atomicAdd(&y[k], x[i]); }}"),
    "a sum of doubles": (TOTAL, f"{GUARD} {LOOP} atomicAdd(&q[k], (double)x[i] * k);"),
    "a sum of whole numbers": (TOTAL, f"{GUARD} {LOOP} atomicAdd(&c[p[k]], x[i] > 0.4f ? k : 1);"),
    "the same sum twice": (TOTAL, f"{GUARD} {LOOP} {{ atomicAdd(&y[k], x[i]); atomicAdd(&y[k], x[i]); }}"),
    "a sum that nobody adds to": (TOTAL, f"""{GUARD} {LOOP} {{ int far = 100000000 * (k + 1);
        if (x[i] > 2.0f) atomicAdd(&y[far], x[i]); z[i] = k; }}"""),
    "elements side by side": (BESIDE, f"{GUARD} {LOOP} atomicAdd(&y[i + k], x[k] * x[i]);"),
    "neighbours that both add": (BESIDE, f"""{GUARD} {LOOP} {{ atomicAdd(&y[i], x[k]);
        atomicAdd(&y[i + 1], x[i]); atomicAdd(&y[i + 2], x[i]); }}"""),
    "elements in between": (IN_TURN, f"{GUARD} {LOOP} atomicAdd(&y[2 * i + k], x[k] * x[i]);"),
    "elements that data choose": (IN_TURN, f"""{GUARD} {LOOP} {{ float t = x[k] * x[i];
        atomicAdd(&y[p[i]], t); atomicAdd(&y[p[i + k]], t * t); }}"""),
    "the place of the greatest": (IN_TURN, f"""{GUARD} int at = 0; float best = -1;
        {LOOP} if (x[i * 3 + k] > best) {{ best = x[i * 3 + k]; at = k; }}
        atomicAdd(&y[at], best); atomicAdd(&y[at + p[i]], 1.0f);"""),
    "a branch of its own": (IN_TURN, f"{GUARD} {LOOP} if (x[i] > 0.3f) {{ if (p[i] > k) atomicAdd(&y[p[i] - k], x[k]); }}"),
    "a loop of its own": (IN_TURN, f"{GUARD} {LOOP} z[i] += x[k]; for (int j = 0; j < p[i]; ++j) atomicAdd(&y[j], x[i]);"),
    "a sum that a thread reads": (IN_TURN, f"{THREAD} if (i != 70) return; {LOOP} {{ atomicAdd(&y[k], x[k]); z[k] = y[k]; }}"),
    "an index that changes": (IN_TURN, f"{GUARD} int j = p[i]; {LOOP} {{ atomicAdd(&y[j], x[k]); j = (j * 3 + k) % 11; }}"),
}  # fmt: skip
ALONE = {
    "a result that is used": f"{GUARD} {LOOP} z[i] += x[k]; int t = atomicAdd(&c[0], 1); q[i] = t >= 0;",
    "halves, which have to be rounded": f"{GUARD} {LOOP} atomicAdd(&h[k], __float2half(x[i] * 0.01f));",
    "rows that threads write": f"{GUARD} {LOOP} {{ z[i * m + k] += x[k]; atomicAdd(&y[k], x[i]); }}",
    "no loop": f"{GUARD} atomicAdd(&y[p[i]], x[i]);",
}
N = 150
HOST = Host()


def made(body: str, name: str = "k") -> Kernel:
    head = "const float* x, float* y, float* z, double* q, int* c, __half* h, const int* p, int n, int m"
    text = f'#include <cuda_fp16.h>\nextern "C" __global__ void {name}({head}) {{\n{body}\n}}'
    return primal_of(parse(SourceFile("meetings.cu", text)).kernel(name))


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    found = {name: replace(made(body), name=f"k{k}") for k, (name, body) in enumerate({k: b for k, (_, b) in BODIES.items()}.items())}
    HOST.prepare(found.values())
    return found


def result(executor: Any, kernel: Kernel, n: int, block: int, change: float | None = None) -> list[Any]:
    random = np.random.default_rng(1)
    x, y, z = (random.uniform(0, 1, 8 * N).astype(np.float32) for _ in range(3))
    if change is not None:
        x[66] = change
    arrays = [
        x,
        y,
        z,
        random.uniform(0, 1, 8 * N),
        np.zeros(N, np.int32),
        np.zeros(N, np.float16),
        random.integers(0, 9, 2 * N).astype(np.int32),
    ]
    executor.launch(kernel, (-(-N // block), 1, 1), (block, 1, 1), [*map(Memory, arrays), np.int32(n), np.int32(6)])
    return arrays[1:6]


def assert_close(found: list[Any], wanted: list[Any], what: str) -> None:
    """Sums are formed in another order, halves rounded less often."""
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol={2: 2e-2, 4: 2e-5, 8: 1e-12}[b.itemsize], err_msg=what)


@pytest.mark.parametrize("name", BODIES)
def test_results(name: str, kernels: dict[str, Kernel]) -> None:
    """In full strips, and in such that are not."""
    for n, block in ((N, 64), (N, 50), (101, 64), (1, 32), (64, 64)):
        wanted = result(Reference(), kernels[name], n, block)
        assert_close(result(HOST, kernels[name], n, block), wanted, f"{n}, {block}")


@pytest.mark.parametrize("name", BODIES)
def test_how_lanes_add(name: str) -> None:
    way, body = BODIES[name]
    text = host_source([made(body)])
    strip = text[text.index("void gpuad_strip_k") : text.index("void gpuad_strips_k")]
    assert (TOTAL in way) == ("GPUAD_SUMS(total" in strip)
    if way == BESIDE:
        marked = re.findall(r"GPUAD_\w+\n +for \(long long gpuad_k.*\n(?:.*\n)*? +atomicAdd", strip)
        assert len(marked) == strip.count("atomicAdd")
        assert not re.search(r"(atomicAdd.*\n +)\1", strip), "two in one loop"
    if way == IN_TURN:
        before = [strip[: m.start()].rsplit("for (long long gpuad_k", 1)[0] for m in re.finditer("atomicAdd", strip)]
        assert not any(re.search(r"GPUAD_\w+\n *$", text) for text in before)


@pytest.mark.parametrize("name", ALONE)
def test_threads_that_run_alone(name: str) -> None:
    assert "gpuad_strips_" not in host_source([made(ALONE[name])])


def test_what_is_added_in_turn_is_computed_for_all_at_once() -> None:
    text = host_source([made(BODIES["elements that data choose"][1])])
    assert re.search(
        r"GPUAD_FLOATS\n.*\n(?:.*\n)* +ready_3\[gpuad_k\] = t\[gpuad_k\] \* t\[gpuad_k\];\n +}\n +for .*\n +atomicAdd.*\n +atomicAdd", text
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_reaches_the_sum(value: float, kernels: dict[str, Kernel]) -> None:
    y = result(HOST, kernels["a sum an iteration"], N, 64, value)[0]
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(result(Reference(), kernels["a sum an iteration"], N, 64, value)[0]))
    assert not np.isfinite(y[:6]).any()


@pytest.mark.parametrize("name", ["a sum an iteration", "neighbours that both add", "elements that data choose"])
def test_workers_that_meet(name: str, kernels: dict[str, Kernel]) -> None:
    for _ in range(3):
        assert_close(result(Host(workers=3), kernels[name], N, 50), result(Reference(), kernels[name], N, 50), name)


GRADIENTS = {
    "polynomial": "T s = 0; for (int j = 7; j >= 0; --j) s = s * x[i] + w[j]; y[i] = s;",
    "convolution": "T s = 0; for (int j = 0; j < m; ++j) if (i + j >= 2) s += w[j] * x[i + j]; y[i] = s * s;",
    "cross entropy": """T big = x[i * 5]; for (int j = 1; j < 5; ++j) big = max(big, x[i * 5 + j]); T s = 0;
        for (int j = 0; j < m; ++j) s += exp(x[i * 5 + j] - big); y[i] = log(s) + big - x[i * 5 + p[i] % 5];""",
    "early ends": "T s = 0; for (int j = 0; j < m; ++j) { if (p[i] == j) break; s += w[j] * x[p[i]] * x[j]; } y[i] = s;",
    "gathers": "T s = 0; for (int j = 0; j < m; ++j) s += w[p[j]] * x[p[i + j]] * x[p[i + j]]; y[i] = s;",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    text = 'extern "C" __global__ void k(const double* x, const double* w, double* y, const int* p, int n, int m) {'
    k = gpuad.kernel(f"{text} {GUARD} {GRADIENTS[name].replace('T ', 'double ')} }}", "k")
    random = np.random.default_rng(2)
    for n, block in ((70, 64), (33, 8)):
        x, w, y = random.normal(size=6 * n + 9), random.normal(size=20), random.normal(size=n)
        p = random.integers(0, 9, n + 9).astype(np.int32)
        with pipeline.executor_for_tests(HOST):
            check_gradient(
                k, (Duplicated(x), Duplicated(w), Duplicated(y), p, np.int32(n), np.int32(6)), grid=(-(-n // block),), block=(block,)
            )


def test_runs_of_atomic_additions_may_differ_by_their_order() -> None:
    """The check of a gradient allows the primal what sums in any order may differ by, and others rounding alone."""
    text = 'extern "C" __global__ void k(const double* x, double* y, int n) {{ int i = threadIdx.x; if (i < n) {} }}'
    for body, allowed in (("atomicAdd(&y[i % 2], x[i]);", 1e-12), ("y[i] += x[i];", 2.3e-14)):
        args = np.linspace(1, 2, 30), np.zeros(30), 30
        checks = check_gradient(gpuad.kernel(text.format(body), "k"), args, grid=1, block=32).checks
        assert {c.tolerance for c in checks if c.name.startswith("primal")} == {allowed}

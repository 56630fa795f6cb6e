"""Strips of threads on the CPU whose loops leave values for the reverse: bit for bit what threads leave one after the other."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from launch_tools import compiled
from nightly import share

import gpuad
from gpuad import Const, Duplicated, pipeline
from gpuad.codegen.cpu import lane_text
from gpuad.runtime import host
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.testing import check_gradient

INDEX = "blockIdx.x * blockDim.x + threadIdx.x"
THREAD = f"int i = {INDEX};"
GUARD = f"{THREAD} if (i >= n) return;"
LOOP = "for (int t = 0; t < m; ++t)"
HEAD = 'extern "C" __global__ void k(const float* x, float* y, double* z, const int* p, float a, int n, int m) {'
STEP = "s = s * (x[t * 4 + i] - 0.3f) + a; u += s * s;"
IN_STEP = {
    "a push an iteration": f"{GUARD} float s = y[i], u = 0; {LOOP} {{ {STEP} }} y[i] = u;",
    "a guard that stays": f"{THREAD} float s = 1, u = 0; if (i < n) {{ s = y[i]; {LOOP} {{ {STEP} }} y[i] = u; z[i] = s; }}",
    "an early return": f"{GUARD} if (i < 2) return; if (m < 3) return; float s = y[i], u = 0; {LOOP} {{ {STEP} }} y[i] = u * s;",
    "two loops": f"{GUARD} float s = y[i], u = 0; {LOOP} {{ {STEP} }} for (int t = m; t > 1; --t) {{ u = u * s; s = u * 0.1f; }} y[i] = u;",
    "loops in loops": f"""{GUARD} float s = y[i], u = 1; {LOOP} {{ u = sqrtf(1 + u * u); for (int j = t; j < m; j += 2) {{ {STEP} }}
        s = s * u * 0.2f; }} y[i] = u * s;""",
    "two types": f"""{GUARD} float s = y[i]; double u = z[i]; {LOOP} {{ s = s * x[t] * a + (float)u; u = u * u * 0.01 + s; }}
        y[i] = s; z[i] = u;""",
    "doubles": f"{GUARD} double u = z[i]; {LOOP} u = u * u * x[t + i] * 0.1 + 0.1; z[i] = u;",
    "a choice": f"""{GUARD} float s = y[i]; {LOOP} {{ if (s * x[t + i] > 0.2f) s = s * s;
        else s = s * s + 0.3f * (s - 0.2f / x[t + i]); }} y[i] = s;""",
    "no iteration": f"{GUARD} float s = y[i], u = 0; for (int t = 20; t < m; ++t) {{ {STEP} }} y[i] = s + u;",
    "a bound from memory": f"{GUARD} float s = y[i], u = 0; for (int t = p[0]; t < p[1]; ++t) {{ {STEP} }} y[i] = u;",
    "rows of threads": f"""int b = blockIdx.y, j = {INDEX}, i = j + 50 * b; if (j >= 50 || 50 * b >= n) return; float s = y[i], u = 0;
        for (int t = b; t < m; ++t) {{ {STEP} }} y[i] = u;""",
    "a walk in memory": f"{GUARD} float s = y[i]; {LOOP} s = s * s * x[i * 9 + t] * 0.2f + 0.5f; y[i] = s;",
}
ALONE = {
    "a guard that is no bound": f"""int i = blockIdx.y * 40 + threadIdx.x; if (threadIdx.x >= 40 || i >= n) return; float s = y[i], u = 0;
        {LOOP} {{ {STEP} }} y[i] = u;""",
    "counts of their own": f"{GUARD} float s = y[i], u = 0; for (int t = 0; t < p[i]; ++t) {{ {STEP} }} y[i] = u;",
    "a break": f"{GUARD} float s = y[i], u = 0; {LOOP} {{ {STEP} if (u > 0.9f) break; }} y[i] = u * s;",
    "its own end": f"{GUARD} float s = y[i]; while (s < 3.0f) s += s * s * x[i] + 0.1f; y[i] = s;",
    "some threads push": f"""{GUARD} float s = y[i], u = 0; {LOOP} {{ float w = s * x[t + i]; if (w > 0.3f) {{ float q = w;
        for (int j = 0; j < p[t]; ++j) q = q * q * 0.5f + a; u += q * s; }} s = s * w + a; }} y[i] = u;""",
}
N = 150
_texts = itertools.count()


@contextmanager
def one_by_one() -> Iterator[None]:
    """Within it no threads are run in strips."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_text, "lanes", lambda *_: None)
        yield


def given(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    x = rng.uniform(0.1, 1, 12 * N).astype(np.float32)
    y, z = rng.uniform(0.2, 0.9, N).astype(np.float32), rng.uniform(0.2, 0.9, N)
    p = rng.integers(0, 9, N).astype(np.int32)
    p[:2] = 1, 8
    pairs = (Duplicated(v, rng.normal(size=v.size).astype(v.dtype)) for v in (y, z))
    return (Const(x), *pairs, p, np.float32(0.25), np.int32(n), np.int32(11))


def grid_of(name: str) -> tuple[int, ...]:
    return (1, 3) if name in ("rows of threads", "a guard that is no bound") else (3,)


def gradient(executor: Any, name: str, n: int = N, comment: str = "") -> list[Any]:
    args = given(n)
    text = f"{HEAD}\n{(IN_STEP | ALONE)[name]}\n}}{comment}"
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(compiled(text, "k"), grid_of(name), (64,), args)
    return [v for a in args[1:3] for v in (a.primal, a.shadow)]


def texts_of(name: str) -> list[str]:
    """The C++ that is made for the gradient."""
    texts: list[str] = []

    def noted(*args: Any, **keywords: Any) -> str:
        texts.append(made(*args, **keywords))
        return texts[-1]

    with pytest.MonkeyPatch.context() as patch:
        made = host.host_source
        patch.setattr(host, "host_source", noted)
        gradient(Host(workers=2), name, comment=f" // {next(_texts)}")  # a text that no kernel was made of before
    return texts


def reverse_of(name: str) -> str:
    (text,) = (t for t in texts_of(name) if "gpuad_row<" in t)
    return text


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", share([*IN_STEP, *ALONE], 4))
def test_same_bits_as_thread_by_thread(name: str) -> None:
    """In full strips and in such that are not."""
    for n in (N, 64, 101, 1):
        found = gradient(Host(workers=2), name, n)
        with one_by_one():
            wanted = gradient(Host(workers=2), name, n)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(found, gradient(Reference(), name, n), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", share([*ALONE, *IN_STEP][1:], 3))
def test_gradients_are_right(name: str) -> None:
    x, y, z, *rest = given(N)
    values = x.primal.astype(np.float64)
    with pipeline.executor_for_tests(Host()):
        text = f"{HEAD}\n{(IN_STEP | ALONE)[name]}\n}}"
        doubles = [Duplicated(v.primal.astype(np.float64)) for v in (y, z)]
        k = compiled(text.replace("float", "double").replace("sqrtf", "sqrt"), "k")
        check_gradient(k, (Const(values), *doubles, rest[0], np.float64(0.25), *rest[2:]), grid=grid_of(name), block=(64,), directions=1)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", IN_STEP)
def test_lanes_keep_their_values_side_by_side(name: str) -> None:
    text = reverse_of(name)
    assert "gpuad_strips_k_reverse" in text
    assert len(re.findall(r"\* const \w+_here = \w+\.shelf\(\w+_top, gpuad_lanes\);", text)) >= 2
    assert not re.search(r"_saved\[\w+_top", text)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ALONE)
def test_threads_that_run_alone(name: str) -> None:
    assert "gpuad_strips_k_reverse" not in reverse_of(name)


def test_strips_are_narrower_where_threads_leave_much() -> None:
    """A million numbers each of 70 threads; in strips of 4 threads."""
    text = 'extern "C" __global__ void k(float* y, int n, int m) { int i = threadIdx.x; if (i >= n) return; float s = y[i];'
    k = compiled(f"{text} for (int t = 0; t < m; ++t) s = s * (1.0f - 1e-6f * s); y[i] = s; }}", "k")
    found = []
    for context in (one_by_one(), None):
        y = Duplicated(np.linspace(0.1, 0.9, 70).astype(np.float32), np.ones(70, np.float32))
        with pipeline.executor_for_tests(Host(workers=1)):
            if context is None:
                gpuad.autodiff(k, (1,), (128,), (y, 70, 500_000))
            else:
                with context:
                    gpuad.autodiff(k, (1,), (128,), (y, 70, 500_000))
        found.append(y.shadow)
    np.testing.assert_array_equal(*found)


LIMITED = """
import resource, sys
import numpy as np
import gpuad
from gpuad import Duplicated

k = gpuad.kernel(sys.argv[1], "deep")

with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
limit = used + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
X = Duplicated(np.full(256, 0.5), np.ones(256))
gpuad.autodiff(k, 2, 128, (X, np.full(256, 500, np.int32), 256))
print(X.shadow[0].hex(), len(np.ones(1 << 24)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc for what a process has")
def test_rows_leave_addresses_to_others_where_a_process_has_few() -> None:
    """Under `ulimit -v`: three rows, of which each would have 4 GiB."""
    text = r"""
    extern "C" __global__ void deep(double* x, const int* times, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        double s = x[i], r = 1.0, q = 0.5;
        for (int j = 0; j < times[i]; ++j) { s = sin(s) * r + 0.1; r = cos(q) * s; q = q * exp(-s) + 0.2; }
        x[i] = s + r + q;
    }"""
    X = Duplicated(np.full(256, 0.5), np.ones(256))
    gpuad.autodiff(compiled(text, "deep"), 2, 128, (X, np.full(256, 500, np.int32), 256))
    found = subprocess.run([sys.executable, "-c", LIMITED, text], capture_output=True, text=True, timeout=120, check=False)
    assert found.stdout.split() == [X.shadow[0].hex(), str(1 << 24)], found.stderr

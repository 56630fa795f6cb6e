"""Strips of threads on the CPU: loops that the threads of a strip run in step stand outside of the loop over its lanes. Bit for bit the
result of thread after thread."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gather_tools import is_gathered, reverse
from launch_tools import CASES, arguments, running, shipped
from nightly import cases
from random_kernels import SIZE, SLOTS, RandomKernel

from gpuad.codegen import host_source
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Kernel
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.source import SourceFile

THREAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
LOOP = "for (int k = 0; k < m; ++k)"
IN_STEP = {
    "a sum": f"{THREAD} if (i >= n) return; float s = 0; {LOOP} s += x[k] * x[i]; y[i] = s;",
    "a guard that stays": f"{THREAD} float s = 1; if (i < n) {{ {LOOP} s += x[k] * x[i]; y[i] = s; }} z[i] = s;",
    "sides that both loop": f"""{THREAD} float s = 1; if (x[i] < 0.5f) {{ {LOOP} s += x[k] * x[i]; }}
        else {{ s = 2; for (int k = 3; k < 7; ++k) s -= x[k + i]; }} y[i] = s;""",
    "guards in guards": f"""{THREAD} float s = 1; if (x[i] < 0.7f) {{ s = 3; if (x[i + 1] < 0.5f) {{ {LOOP} s += x[k]; }}
        y[i] = s; }} z[i] = s;""",
    "guards at both ends": f"""{THREAD} float s = 1; if (i >= 3 && i + 5 <= n) {{ {LOOP} s += x[k] * x[i]; }}
        else if (i != 0) {{ {LOOP} s -= x[k + i]; }} y[i] = s;""",
    "loads that stay the same": f"{THREAD} float s = 1; {LOOP} {{ float t = x[3 * i + 1]; s += x[k] * t; }} y[i] = s;",
    "an index that changes": f"{THREAD} float s = 1; int j = i; {LOOP} {{ float t = x[j]; s += x[k] * t; j = (j + 7) % n; }} y[i] = s;",
    "a load never made": f"{THREAD} float s = 1; for (int k = 12; k < m; ++k) {{ float t = x[1000000 * i]; s += t; }} y[i] = s;",
    "memory of its own": f"{THREAD} float s = 0; for (int k = 2; k < n / 9; ++k) s += x[i * 7 + k] * x[k + 4 * i + 1]; y[i] = s;",
    "memory that another load names": f"""{THREAD} float s = 0; const float* own = x + 30 * p[i];
        for (int k = 0; k < n / 9; ++k) s += own[k]; y[i] = s;""",
    "memory of its own, not always": f"""{THREAD} float s = 0; for (int k = 0; k < n / 9; ++k) {{
        if (k * i < 90) s += x[i * 9 + k]; s += k > i ? x[i * 5 + k] : 1; }} y[i] = s;""",
    "memory of its own behind a guard": f"""{THREAD} float s = 1; if (x[i] > 0.5f)
        for (int k = 1; k < n / 9; ++k) {{ float t = x[i * 9 + k]; s += x[i * 8 + k] * t; if (t > 0.9f) s -= 3; }} y[i] = s;""",
    "memory of its own that it writes": f"""{THREAD} for (int k = 0; k < n / 9; ++k)
        z[i * 4] += z[i * 4 + k % 4] + x[i * 4 + k]; y[i] = z[4 * i];""",
    "memory of its own that moves": f"""{THREAD} float s = 0; int o = i; {LOOP} {{ int base = o * 7; o = o + p[k];
        for (int j = 0; j < n / 9; ++j) s += x[base + j]; }} y[i] = s + o;""",
    "loads behind a branch": f"""{THREAD} float s = 0; {LOOP} {{ int j = i + k - m / 2; if (j >= 0 && j < n) s += x[k] * x[j];
        else if (p[k] > 3) s -= x[k + 1]; else {{ s *= x[2]; if (k > i) s = x[k]; }} }} y[i] = s;""",
    "a load that no thread makes": f"{THREAD} float s = 0; {LOOP} {{ if (x[i] * k > 1e9f) s += x[k * 100000000]; s += k; }} y[i] = s;",
    "a branch taken by all": f"{THREAD} float s = 1; if (n > 3) {{ {LOOP} s += x[k] * i; }} else s = 9; y[i] = s;",
    "rows of what waits for the value before": f"{THREAD} float s = x[i]; if (i * m < n) {LOOP} z[i * m + k] = s = 3.7f * s * (1 - s);",
    "rows of what is much to compute": f"{THREAD} if (i * m < n) {LOOP} z[i * m + k] = x[i * m + k] / (x[k] + 1.0f);",
    "loops in loops": f"{THREAD} float s = 0; {LOOP} {{ s *= 0.5f; for (int j = k; j < m; j += 2) s += x[j + i]; }} y[i] = s;",
    "a loop of its own inside": f"{THREAD} float s = 0; {LOOP} s += x[k] * i; for (int k = 0; k < i % 5; ++k) s += x[k]; y[i] = s;",
    "a number that all compute": f"{THREAD} float t = 0, s = 0; while (t < 3.0f) {{ s += x[i] * t; t += 0.7f; }} y[i] = s + t;",
    "a parameter that changes": f"{THREAD} float s = 0; while (a < 3.0f) {{ s += x[i] * a; a += 0.7f; }} y[i] = s + a;",
    "a parameter that lanes change": f"{THREAD} {LOOP} a = a * x[i] + x[k]; y[i] = a;",
    "a parameter that lanes change alone": f"{THREAD} {LOOP} z[i] += x[k]; for (int k = 0; k < 2; ++k) a = 0.6f * a + sinf(a); y[i] = a;",
    "values that change places": f"{THREAD} float s = x[i], t = 1; {LOOP} {{ float o = s; s = t; t = o + x[k]; }} y[i] = s + 2 * t;",
    "backwards": f"{THREAD} float s = 0; for (int k = m - 1; k >= 0; --k) s = 0.5f * s + x[k] * x[i]; y[i] = s;",
    "a step that is no number": f"{THREAD} float s = 0; for (int k = 0; k < m; k += n - 250) s += x[k + i]; y[i] = s;",
    "memory in between": f"{THREAD} y[i] = x[i]; {LOOP} {{ y[i] = y[i] * x[k]; if (x[i] > 0.5f) z[i] += y[i]; }}",
    "rows": "int i = blockIdx.y * 50 + threadIdx.x; float s = 0; for (int k = blockIdx.y; k < m; ++k) s += x[k] * x[i]; y[i] += s;",
    "a bound from memory": f"{THREAD} float s = 0; for (int k = p[2]; k < p[3]; ++k) s += x[k] * i; y[i] = s;",
    "a jump": f"{THREAD} float s = 0; {LOOP} {{ if (x[i + k] > 0.5f) continue; s += x[i + k]; }} y[i] = s;",
    "integers": f"{THREAD} unsigned h = i; {LOOP} h = h * 16777619u ^ p[k]; y[i] = h % 1000u; int j = i * 3 / 2; z[i] = x[j % n];",
    "an unsigned index below zero": f"{THREAD} float s = 0; unsigned j = i + p[i] - 20u; {LOOP} s += x[k] * x[j + 20]; y[i] = s;",
    "much that waits for a root": f"""{THREAD} float s = 0, t = 1; {LOOP} {{ float d = x[k] - x[i], r = 1.0f / sqrtf(d * d + 0.1f);
        float c = d * r * r * r, e = d * d * x[i] + c; s += c * e + d * r * c + x[i + 1] * r + c * c * e + d * e; t -= s * c * d * e + r; }}
        y[i] = s; z[i] = t;""",
    "doubles": f"{THREAD} double s = 0; {LOOP} s += sqrt((double)x[k] + x[i]); y[i] = s;",
}
ARRAYS = {
    "an array of its own": f"""{THREAD} float q[8]; for (int k = 0; k < 8; ++k) q[k] = x[i + k]; float s = 0; {LOOP} s += q[k % 8] * x[k];
        y[i] = s;""",
    "an array whose elements data choose": f"""{THREAD} float q[9]; for (int k = 0; k < 9; ++k) q[k] = 0;
        {LOOP} {{ q[p[i + k]] += x[k]; q[p[k]] *= 0.5f; }} {LOOP} y[i] += q[k % 9] * x[i];""",
    "an array that each iteration has": f"""{THREAD} float s = 0; {LOOP} {{ float q[3]; for (int j = 0; j < 3; ++j) q[j] = x[i + j * k];
        q[p[i] % 3] = s; for (int j = 0; j < n % 7; ++j) s += q[j % 3]; }} y[i] = s;""",
    "an array behind a guard": f"""{THREAD} if (x[i] > 0.3f) {{ int q[6]; for (int j = 0; j < 6; ++j) q[j] = p[i + j];
        {LOOP} y[i] += x[q[(k + i) % 6] + k]; }} else y[i] = -1;""",
    "doubles in an array": f"""{THREAD} double q[4]; for (int k = 0; k < 4; ++k) q[k] = x[i * k]; {LOOP} {{ double t = q[k % 4];
        q[(k + 1) % 4] = t * x[k]; q[k % 4] += q[(k + i) % 4]; }} y[i] = q[m % 4];""",
}
IN_STEP |= ARRAYS
ALONE = {
    "a long array of its own": f"""{THREAD} float q[1030]; {LOOP} q[k * 90] = x[i + k]; float s = 0;
        {LOOP} s += q[k * 90] * x[k]; y[i] = s;""",
    "rows of its own": f"{THREAD} float r = x[i]; if (i * m < n) {LOOP} z[i * m + k] = x[i * m + k] * r * x[k];",
    "its own bounds": f"{THREAD} float s = 0; for (int k = 0; k < i; ++k) s += x[k]; y[i] = s;",
    "a bound that changes": f"{THREAD} float s = 0; for (int k = 0; k < (int)z[0]; ++k) s += x[k]; if (i > 0) z[i] = y[i] = s;",
    "a function without vectors": f"{THREAD} float s = 0; {LOOP} s += sinf(x[k] * x[i]); y[i] = s;",
    "its own end": f"{THREAD} float s = 0; while (s < 3.0f) s += x[i] + 0.1f; y[i] = s;",
}
N = 300


def made(body: str, name: str = "k") -> Kernel:
    text = f'extern "C" __global__ void {name}(const float* x, float* y, float* z, const int* p, float a, int n, int m) {{\n{body}\n}}'
    return primal_of(parse(SourceFile("lanes.cu", text)).kernel(name))


def result(executor: Any, kernel: Kernel, grid: tuple[int, int], block: int) -> list[Any]:
    random = np.random.default_rng(1)
    x, y, z = (random.uniform(0, 1, 8 * N).astype(np.float32) for _ in range(3))
    p = random.integers(0, 9, N).astype(np.int32)
    p[2:4] = 1, 8
    arrays = [x, y, z, p]
    executor.launch(kernel, (*grid, 1), (block, 1, 1), [*map(Memory, arrays), np.float32(0.25), np.int32(N // 2 + 102), np.int32(11)])
    return arrays[1:3]


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    found = {name: replace(made(body), name=f"k{k}") for k, (name, body) in enumerate((IN_STEP | ALONE).items())}
    HOST.prepare(found.values())
    return found


HOST = Host(workers=2)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", IN_STEP)
def test_threads_of_a_strip_run_a_loop_in_step(name: str, kernels: dict[str, Kernel]) -> None:
    """Full strips, and strips that are not: of 1, 36 and 63 threads."""
    assert "gpuad_strips_" in host_source([kernels[name]])
    grids = [((1, 3), 50), ((1, 1), 64)] if name == "rows" else [((2, 1), 50), ((1, 1), 64), ((1, 1), 1), ((1, 1), 63), ((3, 1), 65)]
    for grid, block in grids:
        for a, b in zip(result(HOST, kernels[name], grid, block), result(Reference(), kernels[name], grid, block), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{grid}, {block}")


def test_what_waits_for_a_root_is_in_a_loop_of_its_own() -> None:
    """If it is much; else the root stays where it is."""
    text = host_source([made(IN_STEP["much that waits for a root"])])
    assert re.search(r" r\[64\];", text)
    assert re.search(r"r\[gpuad_k\] = 1\.0f / sqrtf\(.*\);\n +}\n +GPUAD_FLOATS", text)
    little = f"{THREAD} float s = 0; {LOOP} {{ float r = 1.0f / sqrtf(x[k] + x[i]); s += r * r; }} y[i] = s;"
    assert " r[64];" not in host_source([made(little)])


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("numbers", "threads"), [(3, 64), (7, 64), (8, 128), (30, 128), (40, 32), (150, 16)])
def test_strips_are_as_wide_as_what_they_hold_allows(numbers: int, threads: int) -> None:
    """With one sum more: in registers, in the first cache, or few threads at once."""
    held = " ".join(f"float a{j} = x[i + {j}];" for j in range(numbers))
    uses = " ".join(f"s += a{j} * x[k + {j}];" for j in range(numbers))
    text = host_source([made(f"{THREAD} float s = 0; {held} {LOOP} {{ {uses} }} y[i] = s;")])
    assert re.findall(r"float \w+\[(\d+)\];", text) == [str(threads)] * (numbers + 1)


@pytest.mark.parametrize("name", ARRAYS)
def test_every_lane_has_an_element_of_each(name: str, kernels: dict[str, Kernel]) -> None:
    text = host_source([kernels[name]])
    assert re.search(r" q\[\d\]\[\d+\];", text)
    assert re.search(r" q\[.*\]\[gpuad_k\]", text)


def test_memory_of_its_own_is_loaded_in_tiles(kernels: dict[str, Kernel]) -> None:
    tiles = {name: len(re.findall(r" gpuad_tile\d+\[16\]", host_source([kernels[name]]))) for name in IN_STEP}
    assert {name: count for name, count in tiles.items() if count} == {
        "memory of its own": 2,
        "memory that another load names": 1,
        "memory of its own behind a guard": 2,
        "memory of its own that it writes": 1,
        "memory of its own that moves": 1,
        "rows of what is much to compute": 1,
    }


@pytest.mark.parametrize("name", ALONE)
def test_threads_that_run_alone(name: str, kernels: dict[str, Kernel]) -> None:
    assert "gpuad_strips_" not in host_source([kernels[name]])
    for a, b in zip(result(HOST, kernels[name], (2, 1), 50), result(Reference(), kernels[name], (2, 1), 50), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize(("name", "alone"), [("softsplat", True), ("correlation", False), ("separable", False)])
def test_gathers_that_read_where_data_say_behind_a_branch(name: str, alone: bool) -> None:
    """No vector holds what some lanes read, each at a place of its own, and others do not; and nobody waits for a sum."""
    grid, block, _ = CASES[name].geometry({})
    with running("host"):
        gathers = reverse(shipped(name), grid, block, arguments(name))[:1]
    assert is_gathered(gathers) and ("gpuad_strips_" not in host_source(gathers)) is alone


def test_arguments_that_overlap_are_run_thread_by_thread() -> None:
    assert "gpuad_strips_" not in host_source([made(IN_STEP["a sum"])], no_alias=False)


def outcome(executor: Any, kernel: Kernel, seed: int, block: int) -> list[Any]:
    random = np.random.default_rng(seed)
    f = random.normal(size=SIZE).astype(np.float32)
    f[:3] = 0, np.nan, -0.0
    p, r = random.normal(size=SLOTS * SIZE).astype(np.float32), random.normal(size=SLOTS * SIZE)
    g, q = (random.integers(-20, 100, n).astype(np.int32) for n in (SIZE, SLOTS * SIZE))
    arrays = [f, g, p, q, r, np.zeros(4, np.int32), np.zeros(4)]
    executor.launch(kernel, (SIZE // block, 1, 1), (block, 1, 1), [*map(Memory, arrays), np.int32(37)])
    return arrays


def test_random_kernels_agree_bit_for_bit() -> None:
    """In full strips and in strips of 21 threads."""
    kernels = {seed: RandomKernel(seed, alone=True).kernel for seed in range(cases(10, 24))}
    kernels = {seed: k for seed, k in kernels.items() if "gpuad_strips_" in host_source([k])}
    assert len(kernels) > cases(5, 12)
    HOST.prepare(kernels.values())
    for seed, k in kernels.items():
        for block in (64, 21):
            expected = outcome(Reference(check=False), k, seed, block)
            for param, a, b in zip(k.params, expected, outcome(HOST, k, seed, block), strict=False):
                np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}, block {block}: {param.name}")

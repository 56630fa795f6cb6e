"""Grid-stride loops on the CPU: run as loops over elements where the iterations are independent, and only there; sums over threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import api, fusion, pipeline
from gpuad.codegen.cpu.grid_stride import flatten
from gpuad.codegen.cpu.iteration_domain import merge_axes
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Kernel
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.source import SourceFile

N = 500
LOOP = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
TWO = "const int first = blockDim.x * blockIdx.x + threadIdx.x, stride = blockDim.x * gridDim.x;\nfor (int i = first; i < n; i += stride)"
FLAT = {
    "saxpy": f"{LOOP} y[i] += 2.0f * x[i];",
    "own step": f"{TWO} y[i] = x[i] * i;",
    "gather": f"{LOOP} y[i] = x[index[i]];",
    "scatter": f"{LOOP} atomicAdd(&y[index[i]], x[i]);",
    "shifted": f"{LOOP} {{ if (i + 3 < n) y[i + 3] = y[i + 3] * x[i] + x[n - 1 - i]; }}",
    "structures": f"{LOOP} {{ if (3 * i + 2 < n) {{ y[3 * i] = y[3 * i + 2]; y[3 * i + 2] = x[i]; y[1 + i * 3] += 1.0f; }} }}",
    "inner loop": f"{LOOP} {{ float s = 0.0f; for (int k = 0; k < 5; ++k) s += x[index[(i + k) % n]]; y[i] = s; }}",
    "own array": f"{LOOP} {{ float t[3]; for (int k = 0; k < 3; ++k) t[k] = x[i] * k; y[i] = t[0] + t[1] * t[2]; }}",
    "64 bits": LOOP.replace("int i", "long long i") + " y[i] += x[i];",
    "a read before": f"const float a = x[3]; {LOOP} y[i] += a * x[i];",
    "unsigned": LOOP.replace("int i", "unsigned int i") + " y[i] += x[i];",
}
KEPT = {
    "the element before": f"{LOOP} {{ if (i > 0) y[i] = y[i - 1] + x[i]; }}",
    "the element of the iteration before": f"{LOOP} {{ int s = gridDim.x * blockDim.x; if (i >= s) y[i] += y[i - s]; }}",
    "a place of the thread's own": f"{LOOP} y[i % (gridDim.x * blockDim.x)] += x[i];",
    "a place found by division": f"{LOOP} y[i / 2 * 2] += 1.0f;",
    "a scatter without atomics": f"{LOOP} y[index[i]] = x[i];",
    "structures that overlap": f"{LOOP} {{ if (2 * i + 2 < n) y[2 * i] = y[2 * i + 2] + 1.0f; }}",
    "a carried value": f"float s = 0.0f; {LOOP} {{ s = 0.5f * s + x[i]; y[i] = s; }}",
    "a sum that is used": f"float s = 0.0f; {LOOP} {{ s += x[i]; y[i] = s; }}",
    "its thread": f"int me = blockIdx.x * blockDim.x + threadIdx.x; {LOOP} y[i] = me;",
    "another start": LOOP.replace("threadIdx.x;", "threadIdx.x + 1;") + " y[i] = x[i];",
    "another step": LOOP.replace("gridDim.x * blockDim.x", "blockDim.x") + " { if (blockIdx.x == 0) y[i] = x[i]; }",
    "a read of its thread before": f"const float a = x[blockIdx.x * blockDim.x + threadIdx.x]; {LOOP} y[i] += a;",
    "a read before of what is written": f"const float a = y[0]; {LOOP} {{ if (i > 0) y[i] += a; }}",
    "counts": f"int k = 0; {LOOP} {{ y[i] = k; ++k; }}",
    "atomics that are read": f"{LOOP} {{ atomicAdd(&y[index[i]], x[i]); x[i] = y[i]; }}",
}


def made(body: str) -> Kernel:
    text = f'extern "C" __global__ void k(float* x, float* y, const int* index, int n) {{\n{body}\n}}'
    return primal_of(parse(SourceFile("stride.cu", text)).kernel("k"))


def flat(kernel: Kernel) -> bool:
    return flatten(merge_axes(kernel).kernel).stop is not None


def result(executor: Any, kernel: Kernel, grid: int, block: int) -> Any:
    random = np.random.default_rng(1)
    x, y = random.integers(1, 9, N).astype(np.float32), random.integers(1, 9, N).astype(np.float32)
    index = random.integers(0, N, N).astype(np.int32)
    executor.launch(kernel, (grid, 1, 1), (block, 1, 1), [Memory(x), Memory(y), Memory(index), np.int32(N)])
    return np.concatenate([x, y])


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    found = {name: replace(made(body), name=f"k{k}") for k, (name, body) in enumerate((FLAT | KEPT).items())}
    for host in HOSTS:
        host.prepare(found.values())
    return found


HOSTS = (Host(), Host(workers=3))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", FLAT | KEPT)
def test_which_loops_become_loops_over_elements(name: str, kernels: dict[str, Kernel]) -> None:
    assert flat(kernels[name]) == (name in FLAT)


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize(("grid", "block"), [(1, 1), (3, 32), (40, 64)])
def test_results_are_those_of_the_reference(name: str, grid: int, block: int, kernels: dict[str, Kernel]) -> None:
    expected = result(Reference(check=False), kernels[name], grid, block)
    for host in HOSTS[: 1 if name == "scatter" else 2]:
        np.testing.assert_array_equal(result(host, kernels[name], grid, block), expected)


@pytest.mark.parametrize("name", KEPT)
def test_one_thread_keeps_its_order(name: str, kernels: dict[str, Kernel]) -> None:
    expected = result(Reference(check=False), kernels[name], 1, 1)
    np.testing.assert_array_equal(result(HOSTS[0], kernels[name], 1, 1), expected)


def test_arrays_that_overlap_keep_the_order_of_each_thread(kernels: dict[str, Kernel]) -> None:
    found = []
    for executor in (Reference(check=False), HOSTS[0]):
        y = np.arange(1, N + 1, dtype=np.float32)
        args = [Memory(y), Memory(y, 1), Memory(np.zeros(N, np.int32)), np.int32(N - 1)]
        executor.launch(kernels["saxpy"], (1, 1, 1), (1, 1, 1), args)
        found.append(y)
    np.testing.assert_array_equal(*found)


def test_no_iterations(kernels: dict[str, Kernel]) -> None:
    x = np.ones(4, np.float32)
    for n in (0, -5):
        HOSTS[0].launch(kernels["saxpy"], (2, 1, 1), (4, 1, 1), [Memory(x), Memory(x.copy()), None, np.int32(n)])
    np.testing.assert_array_equal(x, 1)


# --- sums over threads -----------------------------------------------------------------------------------------------------------------

SUMMED = {
    "guard": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i] + b;",
    "two guards": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { if (x[i] > 0.5f) y[i] += a * x[i]; else y[i] -= b * b; }",
    "early return": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 3 || i >= n - 2) return; y[i] = a * x[i] * b;",
    "two statements": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] *= a; if (i < n / 2) y[i] *= a * b;",
    "all threads": "int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = expf(a * x[i]) + b;",
    "threads of a block": "int i = threadIdx.x + 32 * blockIdx.x; if (threadIdx.x < 32 && i < n) y[i] += a * x[i] + b;",
    "inner loop": "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) for (int k = 0; k < 4; ++k) y[i] += a * x[i] + b * k;",
    "grid stride": f"{LOOP} y[i] += a * x[i] + b;",
    "grid stride, branches": f"{LOOP} {{ if (x[i] > 0.5f) y[i] += a * x[i] + b; else if (x[i] > 0.2f) y[i] *= a; }}",
    "grid stride, inner loop": f"{LOOP} {{ float s = 0.0f; for (int k = 0; k < 4; ++k) s += a * x[i] * k; y[i] = s * b; }}",
    "grid stride, chain": f"{TWO} {{ float d = x[i] - a; y[i] = d * d * b + sinf(a); }}",
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", SUMMED)
def test_sums_over_threads_agree_with_the_reference(name: str) -> None:
    text = f'extern "C" __global__ void summed(float* y, const float* x, float a, float b, int n) {{ {SUMMED[name]} }}'
    kernel, found = gpuad.kernel(text, "summed"), []
    for executor in (Reference(check=False), Host(workers=1), Host(workers=3)):
        random = np.random.default_rng(3)
        y, x, dy, dx = (random.random(370, np.float32) for _ in range(4))
        da, db = np.full((), 0.25), np.zeros(())
        args = (gpuad.Duplicated(y, dy), gpuad.Duplicated(x, dx), gpuad.Active(1.5, da), gpuad.Active(0.75, db), 300)
        with pipeline.executor_for_tests(executor):
            gpuad.autodiff(kernel, 10, 37, args)
        found.append((dy, dx, da, db))
    for other in found[1:]:
        for expected, value in zip(found[0], other, strict=True):
            np.testing.assert_allclose(value, expected, rtol=3e-6, atol=1e-6)
    assert found[0][2] != 0.25


def test_a_loop_over_elements_is_not_fused_with_one_that_is_none() -> None:
    """The primal ends in an atomic addition, so its threads go their own ways; the reverse need not."""
    text = f'extern "C" __global__ void k(const float* x, float* s, int n) {{ float t = 0.0f; {LOOP} t += x[i] * x[i]; atomicAdd(s, t); }}'
    kernel = api.kernel(text, "k")
    args = gpuad.Duplicated(np.ones(N, np.float32)), gpuad.Duplicated(np.zeros(1, np.float32), np.ones(1, np.float32)), N
    call = kernel.bind((2,), (32,), args, 0, None)
    adjoint = kernel.reverse_for(api.pattern_of(kernel, call), call)
    stages = pipeline.stages(adjoint, call)
    assert [flat(s.kernel) for s in stages] == [True] and not flat(kernel.primal())
    assert fusion.fusing(kernel.primal(), adjoint, call, stages) is None
    gpuad.autodiff(kernel, (2,), (32,), args)
    assert np.array_equal(args[0].shadow, 2 * args[0].primal) and args[1].primal[0] == N

"""Shared memory and barriers: gradients of kernels whose threads exchange values, and what is refused.

The reference executor watches every barrier interval of every generated kernel for conflicts, and every barrier for threads that miss it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running
from nightly import NIGHTLY, share
from shared_cases import SHARED, WARPS, active

import gpuad
from gpuad import Const, Duplicated, api
from gpuad.codegen.cuda import cuda_source
from gpuad.errors import LaunchError, UnsupportedError
from gpuad.ir import folding as b
from gpuad.ir.nodes import Barrier, If, Kernel, LaunchIndex
from gpuad.ir.types import U32
from gpuad.runtime import nvrtc
from gpuad.runtime.reference import BarrierError, RaceError
from gpuad.testing import check_gradient

KERNELS = {**SHARED, **{f"warp {name}": case for name, case in WARPS.items()}}
WAYS = {"usual": (True, True), "all_recorded": (False, True), "all_atomic": (True, False)}


def ways(number: int) -> list[str]:
    """The usual way, and for every fourth kernel one of the others, in turns; nightly all."""
    first, *others = WAYS
    return [first, *(others if NIGHTLY else others[number // 4 % len(others) :][: number % 4 == 3])]


@pytest.mark.one_of(6)
@pytest.mark.parametrize(("name", "way"), [(name, way) for number, name in enumerate(KERNELS) for way in ways(number)])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_gradient(name: str, executor: str, way: str) -> None:
    case = KERNELS[name]
    with running(executor, *WAYS[way]):
        check_gradient(
            compiled(case.text, "k"), case.make(np.random.default_rng(0)), grid=case.grid, block=case.block,
            directions=2 if way == "usual" and NIGHTLY else 1, race_check=True,
        )  # fmt: skip


@pytest.mark.one_of(6)
@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", share(list(KERNELS), 2))
def test_generated_text_compiles(name: str) -> None:
    kernel, case = compiled(KERNELS[name].text, "k"), KERNELS[name]
    args = case.make(np.random.default_rng(0))
    text = kernel.adjoint(*[type(a) if isinstance(a, Duplicated) else Const for a in args])
    assert set(nvrtc.resources(nvrtc.compile_cuda(text.source, "sm_75"))) == set(text.kernels)
    assert set(nvrtc.resources(nvrtc.compile_cuda(cuda_source([kernel.primal()]), "sm_75"))) == {"k"}


def gradient(text: str, args: tuple[object, ...], grid: int, block: int, shared_mem: int = 0) -> None:
    gpuad.autodiff(compiled(text, "k"), grid, block, args, shared_mem=shared_mem)


def test_structs_in_dynamic_shared_memory() -> None:
    """Of two types of numbers, each in memory of its own; an array of another type is the same bytes, and refused."""
    text = """struct Item { int from; double w; };
    extern "C" __global__ void k(const double* x, double* y) {
        extern __shared__ Item s[];
        s[threadIdx.x].from = blockDim.x - 1 - threadIdx.x; s[threadIdx.x].w = x[threadIdx.x] * x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = s[s[threadIdx.x].from].w; } """
    x, dx, dy = np.arange(1.0, 9.0), np.zeros(8), np.arange(8.0)
    check_gradient(compiled(text, "k"), (x.copy(), np.zeros(8)), grid=1, block=8, shared_mem=128)
    gradient(text, (Duplicated(x, dx), Duplicated(np.zeros(8), dy.copy())), 1, 8, 128)
    assert np.allclose(dx, 2 * x * dy[::-1])
    other = text.replace("y[threadIdx.x] =", "extern __shared__ double w[]; y[threadIdx.x] = w[0] *")
    with pytest.raises(UnsupportedError, match="'w' is dynamic shared memory, which is also used as int32 and float64"):
        gradient(other, (Duplicated(x, dx), Duplicated(np.zeros(8), dy)), 1, 8, 128)


# --- closed forms --------------------------------------------------------------------------------------------------------------------

MIRROR = """extern "C" __global__ void k(const double* x, double* y, int n) {
    __shared__ double s[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    s[threadIdx.x] = x[i] * x[i];
    __syncthreads();
    y[i] = s[threadIdx.x / 2];
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_early_return_before_a_barrier(executor: str) -> None:
    """CASE 29: n is no multiple of the block."""
    x, dx = np.arange(1.0, 14.0), np.zeros(13)
    with running(executor):
        gradient(MIRROR, (Duplicated(x, dx), Duplicated(np.zeros(13), np.ones(13)), np.int32(13)), 2, 8)
    expected = np.zeros(13)
    for i in range(13):
        source = i // 8 * 8 + i % 8 // 2
        expected[source] += 2 * x[source]
    np.testing.assert_allclose(dx, expected, rtol=1e-14)


LOCAL_ARRAYS = {
    "array": ("double v[2]; v[0] = x[i]; v[1] = 2;", "v[0] * v[1]"),
    "zeros": ("double v[2] = {}; v[0] = x[i];", "(2 + v[1]) * v[0]"),
    "of a loop": ("double v[2]; for (int j = 0; j < 2; ++j) { v[j] = x[i]; __syncthreads(); }", "(v[0] + v[1])"),
    "in a loop": ("double v = 0; for (int j = 0; j < 2; ++j) { double w[2]; w[j] = x[i]; __syncthreads(); v += w[j]; }", "v"),
    "under a condition": (
        "bool set[2]; double v[2]; for (int j = 0; j < 2; ++j) { v[j] = x[i]; set[j] = j == n % 2; }",
        "(set[1] ? 2 * v[1] : 0)",
    ),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", LOCAL_ARRAYS)
def test_local_array_of_those_that_have_not_returned_before_a_barrier(name: str, executor: str) -> None:
    before, value = LOCAL_ARRAYS[name]
    text = MIRROR.replace("s[threadIdx.x] =", before + " s[threadIdx.x] =").replace("y[i] =", f"y[i] = {value} *")
    x, dx = np.arange(1.0, 14.0), np.zeros(13)
    with running(executor):
        gradient(text, (Duplicated(x, dx), Duplicated(np.zeros(13), np.ones(13)), np.int32(13)), 2, 8)
    expected = np.zeros(13)
    for i in range(13):
        source = i // 8 * 8 + i % 8 // 2
        expected[i] += 2 * x[source] ** 2
        expected[source] += 4 * x[i] * x[source]
    np.testing.assert_allclose(dx, expected, rtol=1e-14)


LARGEST = """extern "C" __global__ void k(const double* x, double* y) {
    __shared__ double s[8];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 4; d > 0; d >>= 1) {
        if (t < d) s[t] = fmax(s[t], s[t + d]);
        __syncthreads();
    }
    if (t == 0) y[0] = s[0];
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_tree_maximum_is_one_hot(executor: str) -> None:
    """CASE 31: of equal values the first in the order of the comparisons."""
    x, dx, dy = np.array([1.0, 7, 3, 7, 0, 2, 7, 7]), np.zeros(8), np.ones(1)
    with running(executor):
        gradient(LARGEST, (Duplicated(x, dx), Duplicated(np.zeros(1), dy)), 1, 8)
    assert dx.tolist() == [0, 0, 0, 0, 0, 0, 1, 0]  # 6 comes to 2, then to 0, where it wins from 1
    assert dy[0] == 0


DYNAMIC = """extern __shared__ double s[];
__device__ double opposite(int t) { return s[blockDim.x - 1 - t]; }
extern "C" __global__ void k(const double* x, double* y) {
    __shared__ double scale;
    double* squares = s + blockDim.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = x[i];
    squares[threadIdx.x] = x[i] * x[i];
    if (threadIdx.x == 3) scale = x[i];
    __syncthreads();
    y[i] = opposite(threadIdx.x) * squares[(threadIdx.x + 1) % blockDim.x] * scale;
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("block", [16, 32])
def test_dynamic_shared_memory(executor: str, block: int) -> None:
    r = np.random.default_rng(1)
    with running(executor):
        args = (active(r.normal(size=64)), active(r.normal(size=64)))
        check_gradient(compiled(DYNAMIC, "k"), args, grid=64 // block, block=block, shared_mem=16 * block, race_check=True)


def test_dynamic_shared_memory_needs_its_bytes() -> None:
    with pytest.raises(LaunchError, match="uses dynamic shared memory: pass its bytes as shared_mem="):
        gradient(DYNAMIC, (active(np.ones(8)), active(np.ones(8))), 1, 8)
    with pytest.raises(LaunchError, match="shared_mem="):
        compiled(DYNAMIC, "k").adjoint(Duplicated, Duplicated)


def test_a_shadow_of_a_variable_of_the_module_beside_dynamic_shared_memory() -> None:
    """The kernels for a number of bytes belong to one set of shadows."""
    text = """__device__ double w[2];
extern "C" __global__ void k(double* x) {
    extern __shared__ double s[];
    s[threadIdx.x] = x[threadIdx.x] * w[0];
    __syncthreads();
    x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}"""
    kernel, x, dw = gpuad.kernel(text, "k"), np.arange(1.0, 9), np.zeros(2)
    with running("reference"):
        kernel.get_global("w")[...] = 3
        kernel(1, 8, (x.copy(),), shared_mem=64)
        gpuad.autodiff(kernel.with_shadow("w", dw), 1, 8, (Duplicated(x.copy(), np.ones(8)),), shared_mem=64)
    assert dw.tolist() == [36, 0]


# --- refusals ------------------------------------------------------------------------------------------------------------------------

PARTED = {
    "if": "if (threadIdx.x < 3) { s[0] = x[0]; __syncthreads(); }",
    "loop": "for (int j = 0; j < threadIdx.x; ++j) { s[j] = x[j]; __syncthreads(); }",
    "while": "int j = x[threadIdx.x] > 0; while (j < 3) { j++; __syncthreads(); }",
    "continue": "for (int j = 0; j < 3; ++j) { if (threadIdx.x == j) continue; s[j] = x[j]; __syncthreads(); }",
    "return in a loop": "for (int j = 0; j < 3; ++j) { if (threadIdx.x == j) return; s[j] = x[j]; __syncthreads(); }",
    "both sides": "if (threadIdx.x < 3) { __syncthreads(); return; } s[0] = x[0]; __syncthreads(); x[0] = s[0];",
    "shared condition that varies": "s[threadIdx.x] = x[0]; __syncthreads(); if (s[threadIdx.x] > 0) { __syncthreads(); x[0] = s[0]; }",
}


@pytest.mark.parametrize("name", PARTED)
def test_a_barrier_that_threads_may_miss_is_refused(name: str) -> None:
    text = f'extern "C" __global__ void k(float* x, int n) {{\n  __shared__ float s[32];\n  {PARTED[name]}\n  x[threadIdx.x] = s[0];\n}}'
    with pytest.raises(UnsupportedError, match=r"__syncthreads\(\) inside a (condition|loop).*each of them has to reach it") as caught:
        gpuad.kernel(text, "k")
    assert caught.value.line == 3


def test_a_helper_that_returns_before_its_barrier_is_refused() -> None:
    text = """__device__ void wait(int t) { if (t > 3) return; __syncthreads(); }
extern "C" __global__ void k(float* x) { wait(threadIdx.x); x[threadIdx.x] = 1; }"""
    with pytest.raises(UnsupportedError, match="each of them has to reach it"):
        gpuad.kernel(text, "k")


def test_an_exchange_whose_winner_is_needed_is_refused() -> None:
    text = """extern "C" __global__ void k(double* x, double* y) {
    __shared__ int last;
    atomicExch(&last, threadIdx.x);
    __syncthreads();
    for (int j = 0; j < 2; ++j) y[threadIdx.x] = sin(y[threadIdx.x] * x[last]);
}"""
    with pytest.raises(UnsupportedError, match="needs the value of 'last' read here") as caught:
        gpuad.kernel(text, "k").adjoint(Duplicated, Duplicated)
    assert caught.value.line == 5


# --- faulty kernels --------------------------------------------------------------------------------------------------------------------

HEAD = 'extern "C" __global__ void k(double* x, double* y, int n) {\n  __shared__ double s[16];\n  int t = threadIdx.x;\n'
RACES = {
    "no barrier": "s[t] = x[t]; y[t] = s[15 - t];",
    "barrier too early": "__syncthreads(); s[t] = x[t]; y[t] = s[(t + 1) % 16];",
    "no second barrier in a loop": "for (int j = 0; j < 3; ++j) { s[t] = x[t] * j; __syncthreads(); y[t] += s[15 - t]; }",
    "tree without barrier": "s[t] = x[t]; __syncthreads(); for (int d = 8; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; } y[t] = s[0];",
    "two writers": "s[t / 2] = x[t]; __syncthreads(); y[t] = s[t / 2];",
    "sum without atomics": "if (t == 0) s[0] = 0; __syncthreads(); s[0] += x[t]; __syncthreads(); y[t] = s[0];",
    "in place": "s[t] = x[t]; __syncthreads(); s[t] = s[t] + s[(t + 1) % 16]; __syncthreads(); y[t] = s[t];",
    "halo": "s[t] = x[t]; if (t < 15) s[t + 1] = 2 * x[t]; __syncthreads(); y[t] = s[t];",
    "global memory": "x[t] = 2 * y[t]; y[t] = x[15 - t];",
    "between blocks": "x[blockIdx.x * 16 + t] = y[t]; __syncthreads(); y[blockIdx.x * 16 + t] = x[t];",
    "atomic and plain": "if (t < 2) s[t] = 0; __syncthreads(); atomicAdd(&s[t % 2], x[t]); if (t == 5) s[0] = 1; y[t] = 2;",
}


@pytest.mark.parametrize("name", RACES)
def test_a_seeded_race_is_caught(name: str) -> None:
    kernel = compiled(f"{HEAD}  {RACES[name]}\n}}", "k")
    with pytest.raises(RaceError), running("reference"):
        kernel(2 if name == "between blocks" else 1, 16, (np.arange(32.0), np.ones(32), np.int32(16)))


def test_a_barrier_that_threads_miss_is_caught() -> None:
    """The reference executor sees it also where no analysis has looked."""
    body = (If(b.compare("<", LaunchIndex("threadIdx", "x"), b.const(3, U32)), (Barrier(),)),)
    with pytest.raises(BarrierError):
        EXECUTORS["reference"].launch(Kernel("k", (), body), (1, 1, 1), (8, 1, 1), [])


# --- tiles that a loop fills anew ------------------------------------------------------------------------------------------------------

LOOP = """extern "C" __global__ void k(const double* x, double* y, int n) {{
    __shared__ double s[16];
    int t = threadIdx.x;
    double acc = 1;
    for (int m = 0; m < n / 16; ++m) {{
        {}
    }}
    y[t] = acc;
}}"""
USE = "__syncthreads(); acc = sin(acc * s[15 - t]) + s[t] * s[0]; __syncthreads();"
REFILLED = {
    "whole": f"s[t] = x[m * 16 + t] * acc; {USE}",
    "in strides": f"for (int j = t; j < 16; j += 4) if (t < 4) s[j] = x[m * 16 + j]; {USE}",
    "barrier first": "__syncthreads(); s[t] = x[m * 16 + t] * acc; __syncthreads(); for (int j = 0; j < 16; ++j) acc += s[j] * s[j] / 99;",
    "half is enough": "if (t < 8) s[t] = x[m * 16 + t] * acc; __syncthreads(); acc = sin(acc * s[7 - t % 8]); __syncthreads();",
    "changed in between": f"s[t] = x[m * 16 + t]; __syncthreads(); if (t < 8) s[t] += s[t + 8] * acc; {USE}",
    "written twice": f"s[t] = x[m * 16 + t]; __syncthreads(); double a = s[15 - t]; __syncthreads(); s[t] = a * a; {USE}",
}
KEPT = {
    "every second time": f"if (m % 2 == 0) s[t] = x[m * 16 + t] * acc; {USE}",
    "half of it": f"if (m == 0 || t < 8) s[t] = x[m * 16 + t] * acc; {USE}",
    "read first": "if (m > 0) acc += s[(t + 1) % 16] * s[t]; __syncthreads(); s[t] = x[m * 16 + t] * acc; __syncthreads();",
    "where memory says": f"if (m == 0 || x[m * 16 + t] > 0.7) s[t] = x[m * 16 + t] * acc; {USE}",
}


def adjoints_of(kernel: Any) -> dict[Any, Any]:
    """The adjoints that a kernel has made, by their patterns."""
    return {key[1]: found for key, found in api.kernel(kernel).specializations.items() if key[0] == "reverse"}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", [*REFILLED, *KEPT])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_tiles(name: str, executor: str) -> None:
    """A tile that each iteration fills before it reads it is filled again in reverse; else what was read is recorded."""
    kernel, r = gpuad.kernel(LOOP.format({**REFILLED, **KEPT}[name]), "k"), np.random.default_rng(0)
    with running(executor):
        args = (active(r.uniform(0.5, 1, 64)), active(r.normal(size=16)), np.int32(64))
        check_gradient(kernel, args, grid=1, block=16, race_check=True)
    adjoints = adjoints_of(kernel)
    made = [adjoint for pattern, adjoint in adjoints.items() if pattern.optimistic is (name in REFILLED)]
    assert made and len(adjoints) == (1 if name in REFILLED else 2)
    assert any(s.name.startswith("s_saved") for scratch in made[0].layout.scratch for s in scratch.fields) is (name in KEPT)


def test_a_tile_is_judged_by_the_block_of_the_launch() -> None:
    """Blocks of 8 threads fill half of the tile only, which the loop then keeps."""
    text = LOOP.format(f"if (m == 0) s[(t + 8) % 16] = x[t]; __syncthreads(); s[t] = x[m * 16 + t] * acc; {USE}")
    kernel, r = gpuad.kernel(text, "k"), np.random.default_rng(0)
    with running("reference"):
        args = (active(r.uniform(0.5, 1, 64)), active(r.normal(size=16)), np.int32(64))
        check_gradient(kernel, args, grid=1, block=8, race_check=True)
    assert len(adjoints_of(kernel)) == 2

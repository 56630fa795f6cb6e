"""Faults planted in printed texts are found: by an access or a race that the interpreter of PTX sees, or by a wrong result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gpu_checks
import numpy as np
import ptx_cupy
import pytest
from launch_tools import EXECUTORS
from ptx import machine, nvrtc
from ptx.faults import Diverged, OutOfBounds, PtxError, Race, Uninitialised
from test_ptx_kernels import run, tolerance

import gpuad
from gpuad import Duplicated, pipeline

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")


class Fault(NamedTuple):
    """In the texts of a case `right` is replaced by `wrong`, the first time that it occurs in a text. `found`: the exception, or None where
    the results differ."""

    name: str
    case: str
    right: str
    wrong: str
    found: type[PtxError] | tuple[type[PtxError], ...] | None


DIFFUSE = "shared_stencil-diffuse"

# fmt: off
FAULTS = [
    Fault("a missing barrier", "block_softmax", "s[threadIdx.x] = largest;\n    __syncthreads();", "s[threadIdx.x] = largest;", Race),
    Fault("a missing barrier in a sum over the block", "saxpy",
          "partial[thread / 32] = value;\n    __syncthreads();", "partial[thread / 32] = value;", Race),
    Fault("a barrier that some threads do not reach", DIFFUSE,
          "atomicAdd(&du[i], ds_2);", "atomicAdd(&du[i], ds_2); __syncthreads();", Diverged),
    Fault("a shared array one element short", DIFFUSE, "__shared__ float s[36];", "__shared__ float s[35];", OutOfBounds),
    Fault("a shuffle's mask one bit short", DIFFUSE, "0xffffffffu", "0x7fffffffu", Diverged),
    Fault("the mask of a tile one bit short", "tile_softmax", "255u <<", "127u <<", Diverged),
    Fault("an atomic addition of the wrong width", DIFFUSE,
          "atomicAdd(&du[i], ds_2)", "atomicAdd((double*)&du[i], (double)ds_2)", PtxError),
    Fault("an atomic addition of the wrong type", DIFFUSE, "atomicAdd(&du[i], ds_2)", "atomicAdd((int*)&du[i], (int)ds_2)", None),
    Fault("swapped operands", "block_softmax", "expf(x_2 - result)", "expf(result - x_2)", None),
    Fault("a guard that lets one thread too many in", DIFFUSE,
          "if (i < n) {\n        float sum", "if (i <= n) {\n        float sum", OutOfBounds),
    Fault("a loop that goes one too far", "block_softmax", "k_2 < n;", "k_2 <= n;", OutOfBounds),
    Fault("a conversion too many", DIFFUSE, "(T)value", "(T)(int)value", None),
    Fault("shared memory that is not cleared", DIFFUSE, "ds[k] = 0;", ";", Uninitialised),
    Fault("an index one off", DIFFUSE, "s[t + 34]", "s[t + 33]", (Race, Uninitialised)),
    Fault("an addition that is not atomic", DIFFUSE, "atomicAdd(&ds[t + 2 + k_2], dsum_3);", "ds[t + 2 + k_2] += dsum_3;", Race),
]
# fmt: on


class Changing:
    """Replaces text on its way to NVRTC, and counts how often."""

    def __init__(self, right: str, wrong: str) -> None:
        self.right, self.wrong, self.texts = right, wrong, 0
        self.compiled = ptx_cupy.compiled

    def __call__(self, code: str, options: tuple[str, ...], names: tuple[str, ...] = ()) -> Any:
        self.texts += self.right in code
        return self.compiled(code.replace(self.right, self.wrong, 1), options, names)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in for CuPy that executes PTX; texts that are changed are not known again."""
    ptx_cupy._shared_library.cache_clear()
    with ptx_cupy.installed(monkeypatch) as module:
        yield module
    ptx_cupy._shared_library.cache_clear()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(cupy: Any, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    changing = Changing(fault.right, fault.wrong)
    monkeypatch.setattr(ptx_cupy, "compiled", changing)
    if fault.found is not None:
        with pytest.raises(fault.found):
            run(fault.case, "reverse", cupy)
    else:
        found = run(fault.case, "reverse", cupy)
        with pipeline.executor_for_tests(EXECUTORS["reference"]):
            expected = run(fault.case, "reverse", np)
        with pytest.raises(AssertionError, match=r"e[-+]|nan"):
            gpu_checks.close(found, expected, tolerance(expected))
    assert changing.texts, f"no text of {fault.case} has {fault.right}"


TENTH = """extern "C" __global__ void tenth(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] * 0.1f;
}"""
FAR = """extern "C" __global__ void far(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long k = (i + 1) * 3000000001LL;
    y[i] = sin(x[k % n]);
}"""
HALVES = """extern "C" __global__ void halves(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * rint(x[i]) / 7;
}"""
OWN = {"tenth": TENTH, "far": FAR, "halves": HALVES}


def gradient(library: Any, name: str) -> Any:
    x = np.linspace(-3, 3, 41)
    dx, seed = library.zeros(41), library.asarray(np.cos(np.arange(41.0)))
    y = Duplicated(library.zeros(41), seed)
    gpuad.autodiff(gpuad.kernel(OWN[name], name), (1,), (64,), (Duplicated(library.asarray(x), dx), y, 41))
    return [gpu_checks.on_host(array) for array in (y.primal, dx)]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("tenth", "0.10000000149011612", "0.1"),  # the literal of the user is a float
        ("tenth", "2.0 *", "2.0f * (float)"),
        ("far", "long long k", "int k"),
        ("far", "3000000001LL", "(int)3000000001LL"),
        ("halves", "rint(", "trunc("),
    ],
    ids=["a literal that lost its f", "a product in float", "an index of 32 bits", "a product of 32 bits", "another rounding"],
)
def test_a_planted_fault_changes_results(cupy: Any, monkeypatch: pytest.MonkeyPatch, name: str, right: str, wrong: str) -> None:
    with pipeline.executor_for_tests(EXECUTORS["reference"]):
        expected = gradient(np, name)
    for found, value in zip(gradient(cupy, name), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-14, atol=1e-300)
    changing = Changing(right, wrong)
    monkeypatch.setattr(ptx_cupy, "compiled", changing)
    ptx_cupy._shared_library.cache_clear()
    pipeline._cuda.cache_clear()
    try:
        found = gradient(cupy, name)
    except OutOfBounds:
        return
    assert changing.texts
    assert any(np.abs(a - b).max() > 1e-10 * np.abs(b).max() for a, b in zip(found, expected, strict=True))


WAITING = """extern "C" __global__ void wait(int* flag, double* x) {
    if (threadIdx.x == 0) { while (*(volatile int*)flag == 0); x[1] = *(volatile double*)x; }
    if (threadIdx.x == 32) { x[0] = 2; __threadfence(); atomicExch(flag, 1); }
}"""


@pytest.mark.parametrize("text", [WAITING, WAITING.replace("volatile int", "int")], ids=["volatile", "a missing volatile"])
def test_a_load_that_the_compiler_takes_out_of_a_loop(cupy: Any, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """It is read once, so that the loop never ends (or, in a compiler's view, may not exist): either is found."""
    monkeypatch.setattr(machine, "STEPS", 200_000)
    monkeypatch.setattr(machine, "PATIENCE", 1000)
    flag, x = cupy.zeros(1, np.int32), cupy.zeros(2)
    kernel = cupy.RawKernel(text, "wait")
    if text == WAITING:
        kernel((1,), (64,), (flag, x))
        assert x.get().tolist() == [2, 2]
        return
    try:
        kernel((1,), (64,), (flag, x))
    except PtxError:
        return
    assert x.get().tolist() != [2, 2]

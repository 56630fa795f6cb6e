"""More shared memory than a kernel may declare: asked for at the launch, and what the device does not have moved to global memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import fake_cupy
import numpy as np
import pytest
from gpu_checks import LARGE
from launch_tools import compiled
from shared_cases import SHARED

import gpuad.codegen.cuda
from gpuad import Active, Duplicated, pipeline
from gpuad.accumulate.shared_memory_spill import spilled
from gpuad.errors import LaunchError
from gpuad.ir.nodes import Kernel
from gpuad.ir.shared import DECLARED_BYTES, OWN_BYTES, dynamic_bytes, shared_arrays, shared_bytes
from gpuad.ir.types import F64
from gpuad.ir.verify import verify
from gpuad.pipeline.pattern import Pattern
from gpuad.runtime import nvrtc
from gpuad.runtime.base import Argument, Dim3, Memory
from gpuad.runtime.reference import Reference
from gpuad.testing import check_gradient


def reverse() -> Kernel:
    return compiled(LARGE, "k").reverse(Pattern((F64, F64))).kernel()


class Small(Reference):
    """A device whose shared memory holds `limit` bytes; what is not initialised in global memory is NaN."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit_bytes = limit
        self.moved: set[str] = set()
        self.fitting: dict[int, Any] = {}

    def launch(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0, stream: Any = None) -> None:
        fitting, _ = self.fitting.setdefault(id(kernel), (spilled(kernel, self.limit_bytes), kernel))
        verify(fitting.kernel)
        self.moved |= {array.name for array in fitting.moved}
        sizes = [(math.prod(grid) * (array.length or 0), np.dtype(str(array.element))) for array in fitting.moved]
        rows = [Memory(np.full(n, np.nan if dtype.kind == "f" else 77, dtype)) for n, dtype in sizes]
        super().launch(fitting.kernel, grid, block, [*args, *rows], shared_mem=shared_mem, stream=stream)


@pytest.mark.one_of(12)
@pytest.mark.parametrize("name", SHARED)
def test_kernels_without_any_shared_memory(name: str) -> None:
    case, device = SHARED[name], Small(0)
    with pipeline.executor_for_tests(device):
        args = case.make(np.random.default_rng(0))
        check_gradient(compiled(case.text, "k"), args, grid=case.grid, block=case.block, directions=1, race_check=True)
    assert bool(device.moved) is ("__shared__" in case.text)


@pytest.mark.parametrize("limit", [0, 16, 32768, 32800, 65536 + 16])
def test_as_much_stays_as_fits(limit: int) -> None:
    kernel = reverse()
    assert {a.name: a.length for a in shared_arrays(kernel)} == {"s": 4096, "ds": 4096, "last": 1}
    fitting = spilled(kernel, limit)
    verify(fitting.kernel)
    expected = {0: {"s", "ds", "last"}, 16: {"s", "ds"}, 32768: {"s", "ds"}, 32800: {"s"}, 65536 + 16: set()}[limit]
    assert {a.name for a in fitting.moved} == expected
    assert shared_bytes(fitting.kernel) <= limit
    assert (fitting.kernel is kernel) is not expected


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_what_is_launched_fits_the_device(arch: str) -> None:
    """As it is where 64 KB and more are to be had, else with an array moved."""
    kernel = reverse()
    limit = nvrtc.limits(arch).opted_bytes - OWN_BYTES
    fitting = spilled(kernel, limit)
    assert [a.name for a in fitting.moved] == (["s"] if arch == "sm_75" else [])
    for each in (kernel, fitting.kernel):
        needs = nvrtc.resources(nvrtc.compile_cuda(gpuad.codegen.cuda.cuda_source([each]), arch))[each.name]
        assert nvrtc.launchable(needs, 128, arch, dynamic_bytes(each)) is (each is fitting.kernel or arch != "sm_75")


def test_the_text_says_what_it_needs() -> None:
    text = compiled(LARGE, "k").adjoint(Duplicated, Duplicated).source
    assert "It needs 65552 bytes of dynamic shared memory: set cudaFuncAttributeMaxDynamicSharedMemorySize to it." in text
    assert "extern __shared__ __align__(16) unsigned char gpuad_shared[];" in text
    assert "double* ds = (double*)(gpuad_shared + " in text


def test_up_to_what_may_be_declared_nothing_changes() -> None:
    for length in (DECLARED_BYTES // 8, DECLARED_BYTES // 8 + 1):
        kernel = compiled(LARGE.replace("4096", str(length)).replace("__shared__ int last;", "int last = 9;"), "k")
        text = gpuad.codegen.cuda.cuda_source([kernel.primal()])
        assert ("extern" in text.partition("{")[2]) is (length > DECLARED_BYTES // 8)


SUMS = """extern "C" __global__ void k(float* y, float a, double b) {
    __shared__ float s[LENGTH];
    int t = threadIdx.x;
    for (int i = t; i < LENGTH; i += blockDim.x) s[i] = y[i] * a;
    __syncthreads();
    y[t] = s[t] * s[LENGTH - 1 - t] * (float)b * a;
}"""


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
def test_sums_of_two_types_have_room_beside_what_is_declared() -> None:
    """The sums over a block for `a`, a float, and for `b`, a double, declare memory of their own each."""
    declared = []
    for length in range(6040, 6120, 12):
        text = compiled(SUMS.replace("LENGTH", str(length)), "k").adjoint(y=Duplicated, a=Active, b=Active).source
        assert text.count("    gpuad_block_sum(") == 2
        needs = nvrtc.resources(nvrtc.compile_cuda(text))["k_reverse"]
        assert needs.shared_bytes <= 48 * 1024
        declared.append(needs.shared_bytes > OWN_BYTES)
    assert declared == sorted(declared, reverse=True) and len(set(declared)) == 2


# --- on CuPy arrays ----------------------------------------------------------------------------------------------------------------------


def gradient(cupy: Any) -> Any:
    r = np.random.default_rng(0)
    x, dx = cupy.asarray(r.uniform(0.5, 1, 32)), cupy.asarray(np.zeros(32))
    y, dy = cupy.asarray(np.zeros(32)), cupy.asarray(r.normal(size=32))
    gpuad.autodiff(gpuad.kernel(LARGE, "k"), 2, 16, (Duplicated(x, dx), Duplicated(y, dy)))
    return dx.get()


@pytest.mark.parametrize("kibibytes", [227, 64, 48])
def test_gradient_with_much_and_with_little_shared_memory(cupy: Any, monkeypatch: pytest.MonkeyPatch, kibibytes: int) -> None:
    r = np.random.default_rng(0)
    x, dx, dy = r.uniform(0.5, 1, 32), np.zeros(32), r.normal(size=32)
    with pipeline.executor_for_tests(Reference()):
        gpuad.autodiff(compiled(LARGE, "k"), 2, 16, (Duplicated(x, dx), Duplicated(np.zeros(32), dy)))
    monkeypatch.setitem(fake_cupy.Device.attributes, "MaxSharedMemoryPerBlockOptin", kibibytes * 1024)
    np.testing.assert_allclose(gradient(cupy), dx, rtol=1e-12, atol=1e-13)


def test_no_room_for_what_was_moved(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fake_cupy.Device.attributes, "MaxSharedMemoryPerBlockOptin", 48 * 1024)
    monkeypatch.setattr(cupy, "empty", lambda *_: (_ for _ in ()).throw(fake_cupy.OutOfMemoryError()))
    with pytest.raises(LaunchError, match="the device has no room for `s`, which its shared memory does not hold"):
        gradient(cupy)


def test_what_was_moved_is_made_on_the_stream_of_the_launch(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a launch that is like an earlier one."""
    monkeypatch.setitem(fake_cupy.Device.attributes, "MaxSharedMemoryPerBlockOptin", 48 * 1024)
    kernel = gpuad.kernel(
        """extern "C" __global__ void k(const double* x, double* y) {
            __shared__ double s[8000];
            for (int j = threadIdx.x; j < 8000; j += 32) s[j] = x[threadIdx.x] * j;
            __syncthreads();
            y[threadIdx.x] = s[7999 - threadIdx.x];
        }""",
        "k",
    )
    stream, x, y = cupy.cuda.Stream(non_blocking=True), cupy.asarray(np.arange(32.0)), cupy.zeros(32)
    t = np.arange(32)
    stream.wait_event(cupy.cuda.get_current_stream().record())
    for _ in range(3):
        kernel(1, 32, (x, y), stream=stream)
        stream.synchronize()
        np.testing.assert_array_equal(y.get(), (31 - t) * (7999.0 - t))  # as 7999 - t is 31 - t modulo 32

"""`gpuad.kernel(..., bounds=True)`: every access is looked at before anything is launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated
from gpuad.runtime.reference import BoundsError

HEAD = 'extern "C" __global__ void k(const double* x, double* y, const int* at, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; '
OUTSIDE = {
    "read by data": "if (i < n) y[i] = x[at[i]];",
    "write by data": "if (i < n) y[at[i]] = x[i];",
    "loop over the grid": "for (int j = i; j < n; j += gridDim.x * blockDim.x) y[j] = x[j] * x[at[j] + j / 8];",
    "pointer": "const double* p = x; p += at[i % n]; if (i < n) y[i] = *p;",
    "local": "double s[8] = {1, 2, 3, 4}; if (i < n) y[i] = s[at[i] & 15] * x[i];",
    "shared": "__shared__ double s[8]; if (threadIdx.x < 8) s[threadIdx.x] = x[i]; __syncthreads(); if (i < n) y[i] = s[at[i] & 15];",
    "atomic": "if (i < n) atomicAdd(&y[at[i]], x[i]);",
}


def arrays(index: int) -> tuple[Any, ...]:
    at = np.arange(8, dtype=np.int32)
    at[5] = index
    return Duplicated(np.arange(8.0)), Duplicated(np.zeros(8), np.ones(8)), at, 8


def launch(k: Any, args: Any) -> None:
    k[1, 8](*args)


def recorded(k: Any, args: Any) -> None:
    with gpuad.Tape() as tape:
        k[1, 8](*args)
    tape.reverse({args[1]: np.ones(8)}, allow_unused=True)


def differentiated(k: Any, args: Any) -> None:
    gpuad.autodiff(k, 1, 8, args)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("call", [launch, recorded, differentiated])
@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("index", [8 + 7, -1, 2**30])
def test_an_access_outside_is_refused_with_its_place(name: str, call: Callable[..., None], index: int) -> None:
    k = gpuad.kernel(HEAD + OUTSIDE[name] + " }", "k", bounds=True)
    call(k, arrays(5))
    args = arrays(index)
    before = [np.array(a) for a in (args[0].primal, args[1].primal, args[1].shadow, args[2])]
    if (name, index) in (("local", 2**30), ("shared", 2**30)):  # which is element 0
        call(k, args)
        return
    with pytest.raises(BoundsError, match=r"^<source>:1:\d+: error: .*thread \(5, 0, 0\).* outside") as found:
        call(k, args)
    assert found.value.span is not None and found.value.buffer in ("x", "y", "s")
    for old, new in zip(before, (args[0].primal, args[1].primal, args[1].shadow, args[2]), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_call_that_is_known_is_looked_at_again() -> None:
    k = gpuad.kernel(HEAD + OUTSIDE["read by data"] + " }", "k", bounds=True)
    tape = gpuad.Tape()
    args = arrays(5)
    for index in (5, 5, 5, -1):
        args[2][5] = index
        if index < 0:
            for call in (launch, differentiated):
                with pytest.raises(BoundsError):
                    call(k, args)
            with pytest.raises(BoundsError), tape:
                k[1, 8](*args)
            return
        launch(k, args)
        differentiated(k, args)
        with tape:
            k[1, 8](*args)
        tape.reverse({args[1]: np.ones(8)})


def test_what_it_gives_is_what_the_kernel_gives() -> None:
    found = []
    for bounds in (False, True):
        k = gpuad.kernel(HEAD + "if (i < n) y[i] += x[at[i]] * x[i]; }", "k", bounds=bounds)
        args = arrays(2)
        k[2, 4](*args)
        gpuad.autodiff(k, 2, 4, args)
        tangents = Duplicated(np.ones(8), np.zeros(8)), Duplicated(np.zeros(8), np.zeros(8)), None, None
        gpuad.hvp(k, 2, 4, args, tangents)
        text = k.adjoint(grid=2, block=4, args=args).source
        found.append([*(a.copy() for a in (args[0].shadow, args[1].primal, tangents[0].shadow)), text])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_arrays_that_overlap_do_so_in_the_copies() -> None:
    """A race that only the overlap makes is seen; an access through a view into the array behind it is inside."""
    k = gpuad.kernel(HEAD + "if (i < n) y[i] = x[i]; }", "k", bounds=True)
    u = np.arange(9.0)
    with pytest.raises(gpuad.GpuadError, match="race"):
        k[1, 8](u[:8], u[1:], None, 8)
    k[1, 8](u[:1], np.zeros(8), None, 8)


def test_kernels_with_barriers_of_the_grid_and_lists() -> None:
    parts = gpuad.kernel(
        "#include <cooperative_groups.h>\n"
        'extern "C" __global__ void k(double* y, const double* x, const int* at, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; '
        "if (i < n) y[i] = x[i]; cooperative_groups::this_grid().sync(); if (i < n) y[at[i]] *= 2.0; }",
        "k",
        bounds=True,
    )
    x, y, at, n = arrays(5)
    parts(2, 4, (y, x, at, n))
    at[3] = 11
    with pytest.raises(BoundsError):
        parts(2, 4, (y, x, at, n))


def test_what_cannot_be_looked_at() -> None:
    counter = '__device__ int c[1]; extern "C" __global__ void k(double* y) { c[0] = 1; y[0] = 2; }'
    with pytest.raises(gpuad.LaunchError, match="writes `c` of its module"):
        gpuad.kernel(counter, "k", bounds=True)
    with pytest.raises(gpuad.GpuadError, match="`bounds` is True or False"):
        gpuad.kernel(counter, "k", bounds=1)
    with pytest.raises(gpuad.LaunchError, match="no kernel of CUDA text"):
        gpuad.kernel(gpuad.ElementwiseKernel("T x", "T y", "y = x * x", "square"), bounds=True)

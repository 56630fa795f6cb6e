"""What more published kernels are written with: parameters that are references, shared memory that several arrays have in common."""

from __future__ import annotations

import numpy as np
import pytest

import gpuad
from gpuad import Const, Duplicated, UnsupportedError
from gpuad.testing import check_gradient

rng = np.random.default_rng(11)


def _plain(body: str, before: str = "", std: int = 17) -> gpuad.Kernel:
    guard = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    return gpuad.kernel(
        f'{before}\nextern "C" __global__ void k(const double* x, double* y, int n) {{ {guard}\n{body}\n}}',
        "k",
        options=(f"-std=c++{std}",),
    )


def _rows(n: int = 16) -> tuple[np.ndarray, np.ndarray, int]:
    return rng.uniform(0.5, 1.5, n), rng.normal(size=n), n


# --- parameters that are references ---------------------------------------------------------------------------------------------------

NEURON = """
extern "C" __global__ void step(const double* x, double* v, double* spikes, const double& rate, const double & limit, double& total,
                                const int& n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    v[i] += (x[i] - v[i]) * rate;
    if (v[i] > limit) { spikes[i] = 1; v[i] -= limit; }
    atomicAdd(&total, v[i] * rate);
}"""


def _neurons(n: int = 12) -> list[np.ndarray]:
    one = (np.array([0.3]), np.array(0.5), np.zeros(1), np.array([n], dtype=np.int32))
    return [rng.normal(size=n), rng.normal(size=n), np.zeros(n), *one]


def test_parameters_that_are_references() -> None:
    """Where such a parameter is, the caller passes the address of one number."""
    check_gradient(gpuad.kernel(NEURON, "step"), _neurons(), grid=(2,), block=(8,))


def test_gradient_of_a_reference_by_hand() -> None:
    x, v, spikes, rate, _, total, n = _neurons()
    limit, old = np.array(100.0), v.copy()
    drate, dtotal = np.zeros(1), np.ones(1)
    pairs = Duplicated(v, np.zeros(12)), Const(spikes), Duplicated(rate, drate), Const(limit), Duplicated(total, dtotal), n
    gpuad.autodiff(gpuad.kernel(NEURON, "step"), (2,), (8,), (Duplicated(x, np.zeros(12)), *pairs))
    assert np.allclose(total, 0.3 * v.sum()) and np.allclose(drate, v.sum() + 0.3 * (x - old).sum())


def test_reference_to_a_struct_and_in_a_template() -> None:
    text = """
    struct Wave { double height; int steps; };
    template <class T> __global__ void k(const Wave& w, T& shift, T* y, const int n) {
        if (threadIdx.x < n) y[threadIdx.x] = w.height * (w.steps + y[threadIdx.x]) * shift;
        if (threadIdx.x == 0) shift = 7;
    }"""
    wave = np.array([(1.5, 3)], dtype=np.dtype([("height", "f8"), ("steps", "i4")], align=True))
    check_gradient(gpuad.kernel(text, "k<double>"), [wave, np.array([0.7]), rng.normal(size=1), 1], grid=(1,), block=(4,))


def test_number_where_a_reference_is() -> None:
    x, v, spikes, *others = _neurons()
    others[1] = 0.5  # type: ignore[call-overload]
    with pytest.raises(gpuad.LaunchError, match=r"`const double\* limit` of `step`"):
        gpuad.kernel(NEURON, "step")((2,), (8,), (x, v, spikes, *others))


def test_reference_to_a_temporary_value_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="make it const and &") as caught:
        gpuad.kernel('extern "C" __global__ void k(double* y,\n  const double&& a) { y[0] = a; }', "k").adjoint(y=Duplicated)
    assert caught.value.line == 2


# --- what C++11 and C++14 name ------------------------------------------------------------------------------------------------------------

PAIR = "struct Pair { double a, b; __device__ Pair(double u, double v) : a(u), b(v) {} __device__ Pair operator+(const Pair& o) const"
TEMPORARIES = [
    ("", "double2 p = make_double2(x[i], 3); const double2 q = p; y[i] = p.x * q.y * q.x;"),
    (PAIR + " { return Pair(a + o.a, b + o.b); } };", "Pair p = Pair(x[i], 2) + Pair(1, x[i]); Pair q = p; y[i] = q.a * p.b;"),
    ("struct T { double a[2]; }; __device__ T two(double v) { T t = {{v, 2 * v}}; return t; }", "T t = two(x[i]); y[i] = t.a[0] * t.a[1];"),
    ("#include <cupy/complex.cuh>", "complex<double> z = complex<double>(x[i], 2) * complex<double>(0, x[i]); y[i] = z.real() * z.imag();"),
    ("#include <curand_kernel.h>", "curandState s; curand_init(1, i, 0, &s); float2 g = curand_normal2(&s); y[i] = g.x * x[i] + g.y;"),
    ("#include <cooperative_groups.h>", "auto b = cooperative_groups::this_thread_block(); y[i] = x[b.thread_rank()] * x[i];"),
]  # fmt: skip


@pytest.mark.one_of(6)
@pytest.mark.parametrize("std", [11, 14, 17])
@pytest.mark.parametrize(("before", "body"), TEMPORARIES)
def test_copies_of_temporary_values(before: str, body: str, std: int) -> None:
    """Before C++17 such a copy is there in name; nobody makes it."""
    check_gradient(_plain(body, before, std), _rows(8), grid=(1,), block=(8,))

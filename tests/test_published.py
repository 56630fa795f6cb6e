"""What more published kernels are written with: parameters that are references, shared memory that several arrays have in common."""

from __future__ import annotations

import numpy as np
import pytest

import gpuad
from gpuad import Const, Duplicated, UnsupportedError
from gpuad.testing import check_gradient

rng = np.random.default_rng(11)

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

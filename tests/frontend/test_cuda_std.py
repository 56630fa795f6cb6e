"""Names of cuda::std and cuda: mathematics, complex numbers, function objects, references to memory that is changed atomically."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import CompileError, Duplicated, pipeline
from gpuad.testing import check_gradient

HEAD = """#include <cuda/std/complex>
#include <cuda/std/cmath>
#include <cuda/std/algorithm>
#include <cuda/std/cstdint>
#include <cuda/functional>
#include <cuda/atomic>
#include <thrust/complex.h>
namespace cs = cuda::std;
"""
N = 8
BODIES: dict[str, tuple[str, Callable[[np.ndarray], Any]]] = {
    "mathematics": (
        "cs::int32_t two = 2; y[i] = cuda::std::sqrt(x[i]) * cs::exp(cs::sin(x[i])) + cs::pow(x[i], two); "
        "y[i] += cs::max(x[i], 0.9) + cs::fabs(x[i]);",
        lambda x: np.sqrt(x) * np.exp(np.sin(x)) + x**2 + np.maximum(x, 0.9) + x,
    ),
    "complex numbers": (
        "cs::complex<double> z(x[i], 0.5), s; s += z * z; z = cs::exp(s) / z; y[i] = cs::norm(z) + s.real() * cs::arg(z) + cs::sqrt(x[i]);",
        lambda x: abs(w := np.exp((x + 0.5j) ** 2) / (x + 0.5j)) ** 2 + (x * x - 0.25) * np.angle(w) + np.sqrt(x),
    ),
    "beside thrust's": (
        "thrust::complex<double> z(x[i], 0.5); cuda::std::complex<double> w(z.imag(), z.real()); y[i] = thrust::abs(z * z) * cs::norm(w);",
        lambda x: (x * x + 0.25) ** 2,
    ),
    "function objects": (
        "y[i] = cuda::maximum<>()(x[i], 0.9) * cs::plus<double>()(x[i], 2.0); "
        "y[i] -= cuda::minimum<double>()(x[i], cs::multiplies<>()(x[i], 0.5));",
        lambda x: np.maximum(x, 0.9) * (x + 2) - 0.5 * x,
    ),
}


def _kernel(body: str) -> gpuad.Kernel:
    head = f'{HEAD}extern "C" __global__ void k(const double* x, double* y, int n)'
    return gpuad.kernel(f"{head} {{ int i = threadIdx.x; if (i >= n) return; {body} }}", "k")


def _x() -> np.ndarray:
    return np.random.default_rng(2).uniform(0.6, 1.4, N)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", BODIES)
def test_values_and_gradients(name: str, executor: Any) -> None:
    body, expected = BODIES[name]
    x, y = _x(), np.zeros(N)
    with pipeline.executor_for_tests(executor):
        _kernel(body)[1, N](x, y, N)
    np.testing.assert_allclose(y, expected(x), rtol=1e-13)
    check_gradient(_kernel(body), (x, y, N), grid=1, block=N)


ATOMICS = [
    "cuda::atomic_ref<double, cuda::thread_scope_device> a(y[i % 3]); a.fetch_add(x[i] * x[i], cuda::memory_order_relaxed); "
    "a += x[i]; a.fetch_sub(2 * x[i], cs::memory_order_relaxed);",
    "auto at = cuda::atomic_ref<double>(y[i % 3]); at.fetch_add(x[i] * x[i] - x[i]);",
    "cuda::atomic_ref<double, cuda::thread_scope_block>{y[i % 3]} -= x[i] - x[i] * x[i];",
]


@pytest.mark.parametrize("body", ATOMICS)
def test_sums_by_references(body: str, executor: Any) -> None:
    x, y, dx, dy = _x(), np.zeros(3), np.zeros(N), np.array([1.0, 10, 100])
    seeds = dy.copy()
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(_kernel(body), 1, N, (Duplicated(x, dx), Duplicated(y, dy), N))
    np.testing.assert_allclose(y, [(x * x - x)[k::3].sum() for k in range(3)])
    np.testing.assert_allclose(dx, (2 * x - 1) * seeds[np.arange(N) % 3])


def test_places_by_references(executor: Any) -> None:
    """A counter gives each thread a place of its own; which one, is recorded."""
    body = "y[cuda::atomic_ref<int>(*next)++] = x[i] * x[i];"
    text = f'{HEAD}extern "C" __global__ void k(const double* x, double* y, int* next) {{ int i = threadIdx.x; {body} }}'
    x, y, dx, following = _x(), np.zeros(N), np.zeros(N), np.zeros(1, np.int32)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, N, (Duplicated(x, dx), Duplicated(y, np.ones(N)), following))
    assert following[0] == N
    np.testing.assert_allclose(sorted(y), sorted(x * x))
    np.testing.assert_allclose(dx, 2 * x)


def test_what_there_is_not() -> None:
    with pytest.raises(CompileError, match="no matching function for call to 'atomicMax'"):
        _kernel("cuda::atomic_ref<double>(y[0]).fetch_max(x[i]);")

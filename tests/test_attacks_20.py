"""Kernels with which random ones, compared with a model in plain C++, found what was wrong."""

from __future__ import annotations

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated

HASHED = r"""
extern "C" __global__ void f(const double* u, double* v, unsigned m, int n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned q = %s;
    if (q < n) v[i] += u[q] * u[q];
}"""


@pytest.mark.parametrize(
    ("index", "factors"),
    [("i * 32768u * 32768u * 4u + i", (32768, 32768, 4)), ("i * 43691u * m", (43691, 3 << 16)), ("i * i * 65535u", ("i", 65535))],
)
def test_an_unsigned_product_that_wraps_into_an_array(index: str, factors: tuple[int | str, ...]) -> None:
    """The subscript is what is left of it in 32 bits."""
    n, m = 100_000, 3 << 16
    i = np.arange(n, dtype=np.uint32)
    q = i.copy()
    for factor in factors:
        q = q * (i if factor == "i" else np.uint32(factor))
    q = q + i if "+ i" in index else q
    inside = q < n
    u, v, du, dv = np.linspace(1, 2, n), np.zeros(n), np.zeros(n), np.linspace(-1, 1, n)
    expected = np.zeros(n)
    np.add.at(expected, q[inside], (2 * u[q % n] * dv)[inside])
    gpuad.autodiff(gpuad.kernel(HASHED % index, "f"), (-(-n // 256),), (256,), (Duplicated(u, du), Duplicated(v, dv), m, n))
    np.testing.assert_array_equal(v, np.where(inside, u[q % n] ** 2, 0))
    np.testing.assert_allclose(du, expected)

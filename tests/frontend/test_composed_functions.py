"""Functions that are made of others, against exact arithmetic and the C library, on both executors; their gradients against differences."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS

import gpuad
from gpuad import pipeline
from gpuad.testing import check_gradient

NUMBERS = [0.7, -0.7, 1.3, 5.5, -9.25, 1e10, 123456.789, -2.5, 3.5, 1e-310, 0.0, -0.0, 2.0**1000, 1e308]
DIVISORS = [0.3, -0.3, 1.0, 2.0, -1.5, 7.0, 0.1, 1.0, -1.0, 1e-300, 3.0, 2.0, 3.0, -1e308]
COMPLEX = "#include <cupy/complex.cuh>\n"


def run(executor: str, text: str, *arrays: Any) -> None:
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        gpuad.kernel(text, "k")((1,), (len(arrays[0]),), arrays)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_remquo(executor: str) -> None:
    """The rest of the nearest quotient, of which the last three bits and the sign come with it."""
    x, y = np.array(NUMBERS), np.array(DIVISORS)
    rest, quotient = np.zeros_like(x), np.zeros(len(x), np.int32)
    text = """extern "C" __global__ void k(const double* x, const double* y, double* r, int* q)
    { int i = threadIdx.x; r[i] = remquo(x[i], y[i], &q[i]); }"""
    run(executor, text, x, y, rest, quotient)
    for a, b, r, q in zip(x.tolist(), y.tolist(), rest, quotient, strict=True):
        whole = round(Fraction(a) / Fraction(b))
        assert r == math.remainder(a, b)
        assert q == (abs(whole) % 8) * (1 if (a < 0) == (b < 0) else -1), (a, b)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_exponents(executor: str) -> None:
    x = np.array([*NUMBERS, np.inf, np.nan])
    exponents, powers, moved = np.zeros(len(x), np.int32), np.resize(np.array([3, -2, 2**40, -(2**40)]), len(x)), np.zeros_like(x)
    text = """extern "C" __global__ void k(const double* x, int* e, const long* p, double* y)
    { int i = threadIdx.x; e[i] = ilogb(x[i]); y[i] = scalbln(x[i], p[i]); }"""
    run(executor, text, x, exponents, powers, moved)
    least, most = -(2**31), 2**31 - 1
    for a, e, p, y in zip(x.tolist(), exponents, powers.tolist(), moved, strict=True):
        assert e == (least if a == 0 or math.isnan(a) else most if math.isinf(a) else math.frexp(a)[1] - 1)
        with np.errstate(over="ignore"):
            np.testing.assert_equal(y, np.ldexp(a, max(min(p, 5000), -5000)))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_orders(executor: str) -> None:
    """An order below 0 has no value in CUDA."""
    n, x = np.array([0, 1, 5, -1], np.int32), np.array([1.0, 2.0, 3.0, 1.0])
    j, y = np.zeros_like(x), np.zeros_like(x)
    text = """extern "C" __global__ void k(const int* n, const double* x, double* j, double* y)
    { int i = threadIdx.x; j[i] = jn(n[i], x[i]); y[i] = yn(n[i], x[i]); }"""
    run(executor, text, n, x, j, y)
    np.testing.assert_allclose(j, [0.76519768655796655, 0.57672480775687339, 0.043028434877047584, np.nan], rtol=1e-14)
    np.testing.assert_allclose(y, [0.088256964215676958, -0.10703243154093755, -1.9059459538286737, np.nan], rtol=1e-14)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_proj(executor: str) -> None:
    z = np.array([1 + 2j, complex(np.inf, -3), complex(np.nan, -np.inf), complex(0, np.inf)])
    text = COMPLEX + 'extern "C" __global__ void k(complex<double>* z) { z[threadIdx.x] = proj(z[threadIdx.x]); }'
    run(executor, text, z)
    np.testing.assert_array_equal(z.real, [1, np.inf, np.inf, np.inf])
    np.testing.assert_array_equal(np.copysign(1, z.imag), [1, -1, -1, 1])


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "statement",
    [
        "int q; a[i] = remquo(a[i], 0.3, &q) * a[i] + q;",
        "a[i] = scalbln(a[i], 3L) + ilogb(a[i]);",
        "a[i] = jn(i, a[i]) * yn(2, a[i]) + cyl_bessel_i0(a[i]) / cyl_bessel_i1(a[i]);",
        "a[i] = nextafter(a[i], 9.0) * a[i];",
        "z[i] = proj(z[i]) * thrust::polar<double>(a[i], a[i] * 2) + thrust::polar(a[i]);",
        "z[i].real(a[i] * z[i].imag()); z[i].imag(z[i].real() * 2);",
    ],
)
def test_gradients(statement: str) -> None:
    text = f'{COMPLEX}extern "C" __global__ void k(complex<double>* z, double* a) {{ int i = threadIdx.x; {statement} }}'
    rng = np.random.default_rng(2)
    z, a = rng.uniform(0.5, 1.4, 6) + 1j * rng.uniform(0.5, 1.4, 6), rng.uniform(0.5, 1.4, 6)
    check_gradient(gpuad.kernel(text, "k"), (z, a), grid=(1,), block=(6,))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_averages_and_shifts(executor: str) -> None:
    a = np.array([7, -8, 2**31 - 1, -(2**31), 3, -(2**31)], np.int32)
    b = np.array([4, -3, 2**31 - 1, 2**31 - 1, -9, -1], np.int32)
    signed, unsigned = np.zeros((3, 6), np.int32), np.zeros((7, 6), np.uint32)
    text = """extern "C" __global__ void k(const int* a, const int* b, int* s, unsigned* u) {
      int i = threadIdx.x;
      s[i] = __hadd(a[i], b[i]); s[6 + i] = __rhadd(a[i], b[i]); s[12 + i] = (int)__sad(a[i], b[i], 5u);
      unsigned x = a[i], y = b[i], by = i * 9;
      u[i] = __uhadd(x, y); u[6 + i] = __urhadd(x, y); u[12 + i] = __usad(x, y, 5u); u[18 + i] = __funnelshift_l(x, y, by);
      u[24 + i] = __funnelshift_r(x, y, by); u[30 + i] = __funnelshift_lc(x, y, by); u[36 + i] = __funnelshift_rc(x, y, by);
    }"""
    run(executor, text, a, b, signed, unsigned)
    for i, (p, q) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        assert signed[:, i].tolist() == [(p + q) >> 1, (p + q + 1) >> 1, (abs(p - q) + 5 + 2**31) % 2**32 - 2**31]
        x, y, by = p % 2**32, q % 2**32, 9 * i
        wide, most = y << 32 | x, min(by, 32)
        shifted = [(wide << by % 32) >> 32, wide >> by % 32, (wide << most) >> 32, wide >> most]
        assert unsigned[:, i].tolist() == [(x + y) >> 1, (x + y + 1) >> 1, (abs(x - y) + 5) % 2**32, *(w % 2**32 for w in shifted)]


def test_names_of_the_library() -> None:
    """What <cmath> has in std, at both types; a norm of an array, and the quick tanh."""
    text = """#include <cmath>
    extern "C" __global__ void k(double* x, float* y) {
      int i = threadIdx.x, q; double whole;
      if (i < 4) x[i] *= std::remquo(x[i], 0.3, &q) + std::frexp(x[i + 4], &q) + norm(3, x + 4) + std::modf(x[i], &whole);
      if (i < 4) y[i] = std::nextafter(y[i], 2.0f) * rnormf(2, y + 5) + __tanhf(y[i]) + std::scalbln(y[i], 2L) + std::ilogb(y[i]);
    }"""
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0.6, 0.9, 8), rng.uniform(0.6, 0.9, 8).astype(np.float32)
    check_gradient(gpuad.kernel(text, "k"), (x, y), grid=(1,), block=(8,))

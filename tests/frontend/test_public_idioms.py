"""Idioms of the host's C++ that public kernels are written with, each beside the same written out; NVRTC reads the text as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nightly import share
from ptx import nvrtc
from ptx_tools import cuda

import gpuad
from gpuad import Duplicated, UnsupportedError, pipeline
from gpuad.frontend.cuda.fence import LAMBDA, MUTABLE, STRUCTURED
from gpuad.testing import check_gradient

N = 12
HELPERS = """
struct Pair { double a, b; };
struct Nest { Pair p; double c; int k; };
__device__ Pair both(double u, double v) { return {u * v, u + v}; }
__device__ double square(double a) { return a * a; }
__device__ double cube(double a) { return a * a * a; }
__device__ void each(double op(double), double* y, int i) { y[i] = op(y[i]); }
__device__ double twice(double op(double), double a, double other(double) = cube) { return op(op(a)) + other(a); }
template <class T> __device__ double chosen(T op(T), T a) { return op(a) * a; }
template <class T> __device__ T total(const T* x, int n) { T s = T(); for (int j = 0; j < n; j++) s += x[j]; return s + T(); }
template <class... T> __device__ double mean(T... a) { return (a + ...) / sizeof...(T); }
template <class... T> __device__ int count(const T&...) { double v[sizeof...(T) + 1] = {1}; return v[0] * sizeof...(T); }
template <class F> __device__ double by_value(F f, double a) { return f(a) + f(a); }
template <class F> __device__ double by_reference(F& f, double a) { return f(a) + f(a); }
"""
BODIES: dict[str, tuple[str, str]] = {
    "a function's type": ("each(square, y, i); y[i] += chosen<double>(cube, x[i]);", "y[i] = y[i] * y[i] + x[i] * x[i] * x[i] * x[i];"),
    "functions' types by default": (
        "y[i] = twice(square, x[i]) + twice(&cube, y[i], square);",
        "y[i] = square(square(x[i])) + cube(x[i]) + cube(cube(y[i])) + square(y[i]);",
    ),
    "values of a type": (
        "y[i] = total(x, i) * x[i] + double() + int() + square(double()); double s = double(); s += x[i]; y[i] *= s;",
        "double s = 0; for (int j = 0; j < i; j++) s += x[j]; y[i] = s * x[i] * x[i];",
    ),
    "sizes of packs": (
        "y[i] = mean(x[i], y[i], 2.0f) * count(x, y) + mean(x[i]) * count();",
        "y[i] = (x[i] + y[i] + 2) / 3 * 2;",
    ),
    "parts of a struct": ("auto [p, q] = both(x[i], y[i]); p *= 2; y[i] = p * q;", "y[i] = 2 * x[i] * y[i] * (x[i] + y[i]);"),
    "parts by reference": (
        "Pair v = both(x[i], y[i]); auto& [p, q] = v; p *= q; const auto& [r, s] = both(v.a, 2.0); y[i] = r * s * q;",
        "double q = x[i] + y[i], p = x[i] * y[i] * q; y[i] = 2 * p * (p + 2) * q;",
    ),
    "parts of parts": (
        "Nest v = {both(x[i], y[i]), y[i], i}; auto&& [p, c, k] = v; auto [a, b] = p; p.a = 7; y[i] = a * b * c * k + v.p.a;",
        "y[i] = x[i] * y[i] * (x[i] + y[i]) * y[i] * i + 7;",
    ),
    "parts of arrays": (
        "double v[3] = {x[i], y[i], 3}; auto [a, b, c] = v; auto& [d, e, f] = v; d = 0; e *= 2; y[i] = a * b * c + v[0] + e * f;",
        "y[i] = x[i] * y[i] * 3 + 2 * y[i] * 3;",
    ),
    "parts of vectors": (
        "auto [a, b] = make_double2(x[i], y[i]); double4 v = make_double4(1, 2, 3, a); auto& [p, q, r, s] = v; s *= b; y[i] = v.w * r;",
        "y[i] = x[i] * y[i] * 3;",
    ),
    "parts in a loop": (
        "Pair v[2] = {both(x[i], y[i]), both(y[i], 2.0)}; double s = 0; for (auto [a, b] : v) s += a * b; for (auto& [a, b] : v) a = b; "
        "y[i] = s * v[0].a;",
        "double s = x[i] * y[i] * (x[i] + y[i]) + y[i] * 2 * (y[i] + 2); y[i] = s * (x[i] + y[i]);",
    ),
    "an if with an initialiser": (
        "if (double v = x[i] * y[i]; v > 0.2) y[i] = v * v; else if (int k = i % 3; k == 1) y[i] = v * k; else { y[i] = 2 * v; }",
        "double v = x[i] * y[i]; if (v > 0.2) y[i] = v * v; else if (i % 3 == 1) y[i] = v; else y[i] = 2 * v;",
    ),
    "an if that declares": (
        "if (int k = i % 3) y[i] = x[i] * k; else y[i] = x[i] + k; double w; if (w = x[i]; w > 1.0) y[i] *= w; "
        "if (const double* p = x) y[i] *= p[i];",
        "int k = i % 3; y[i] = k ? x[i] * k : x[i]; if (x[i] > 1.0) y[i] *= x[i]; y[i] *= x[i];",
    ),
    "an if with both": (
        "if (auto [p, q] = both(x[i], y[i]); int k = (int)(10 * p) % 2) y[i] = p * k; else y[i] = q;",
        "y[i] = (int)(10 * x[i] * y[i]) % 2 ? x[i] * y[i] * ((int)(10 * x[i] * y[i]) % 2) : x[i] + y[i];",
    ),
    "an if from a macro": (
        "double w; if (i % 2) CHOSEN(w = x[i]; w > 1.0, y[i] *= w) if constexpr (constexpr int k = 3; k > 2) y[i] += k * x[i];",
        "if (i % 2 && x[i] > 1.0) y[i] *= x[i]; y[i] += 3 * x[i];",
    ),
    "a while that declares": (
        "int left = i; while (int k = left--) { if (k == 2) continue; if (k == 7) break; y[i] += x[i] * k; }",
        "for (int k = i; k > 0 && k != 7; k--) if (k != 2) y[i] += x[i] * k;",
    ),
    "a switch that declares": (
        "switch (int k = i % 3) { case 0: y[i] = x[i]; break; default: y[i] *= x[i] * k; }",
        "y[i] = i % 3 ? y[i] * x[i] * (i % 3) : x[i];",
    ),
    "a table that nothing writes": (
        "static double w[3] = {1, 2, 3}; static int twice[2][2] = {{1, 2}, {3}}; const double* p = w; double s = 0; "
        "for (double u : w) s += u; "
        "y[i] = x[i] * w[twice[i % 2][1] % 3] * p[2] + s;",
        "y[i] = x[i] * (i % 2 ? 1 : 3) * 3 + 6;",
    ),
    "static numbers": (
        "static float half = 0.5f; static int one = 1; y[i] = x[i] * half * (one + 1) + total(&x[i], one);",
        "y[i] = 2 * x[i];",
    ),
    "lambdas passed to lambdas": (
        "auto apply = [&](auto f, double a) { return f(a) * a; }; y[i] = apply([=](double u) { return u * u + y[i]; }, x[i]); "
        "auto more = [&](double u) { return u * x[i]; }; y[i] += apply(more, 2.0) + apply(square, x[i]);",
        "y[i] = (x[i] * x[i] + y[i]) * x[i] + 4 * x[i] + cube(x[i]);",
    ),
    "lambdas through two": (
        "auto fold = [](auto op, double a, double b) { return op(a, b); }; "
        "auto both = [&](auto op, auto fold) { return fold(op, x[i], y[i]); };"
        "y[i] = both([](double a, double b) { return a * b; }, fold) + both([&](double a, double b) { return a + i * b; }, fold);",
        "y[i] = x[i] * y[i] + x[i] + i * y[i];",
    ),
    "lambdas for a loop": (
        "auto loop = [](int n, auto&& body) { for (int j = 0; j < n; j++) body(j); }; double s = 0; loop(3, [&](int j) { s += x[i] * j; "
        "loop(j, [&](int k) { s *= 1 + k * x[i]; }); }); y[i] = s;",
        "double s = 0; for (int j = 0; j < 3; j++) { s += x[i] * j; for (int k = 0; k < j; k++) s *= 1 + k * x[i]; } y[i] = s;",
    ),
    "mutable lambdas": (
        "double s = x[i]; auto add = [s](double v) mutable { s += v; return s; }; add(y[i]); s = 0; "
        "y[i] = add(x[i] * x[i]) * (1 + s) + by_reference(add, y[i]);",
        "double s = x[i] + y[i], a = s + x[i] * x[i], b = a + y[i]; y[i] = a + b + (b + y[i]);",
    ),
    "a mutable lambda in a loop": (
        "double s = 0; for (int j = 0; j < 3; j++) { auto next = [j]() mutable { return ++j * 1.0; }; s += x[i] * next() * next(); } "
        "y[i] = s + by_value([s](double a) mutable { s *= a; return s; }, x[i]);",
        "double s = 0; for (int j = 0; j < 3; j++) s += x[i] * (j + 1) * (j + 2); y[i] = s + s * x[i] + s * x[i] * x[i];",
    ),
}
BEFORE = f"#define CHOSEN(header, action) if (header) action;\n{HELPERS}"
SIGNATURE = 'extern "C" __global__ void k(const double* x, double* y, int n)'


def _text(body: str) -> str:
    return f"{BEFORE}{SIGNATURE} {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n{body} }}"


def _fields() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.uniform(0.6, 1.4, N), rng.uniform(0.3, 1.7, N)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", share(list(BODIES), 2))
def test_same_as_written_out(name: str, executor: Any) -> None:
    found = []
    for body in BODIES[name]:
        (x, y), dx, dy = _fields(), np.zeros(N), np.linspace(1, 2, N)
        with pipeline.executor_for_tests(executor):
            gpuad.autodiff(gpuad.kernel(_text(body), "k"), 2, 8, (Duplicated(x, dx), Duplicated(y, dy), N))
        found.append((y, dx, dy))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", BODIES)
def test_derivatives(name: str) -> None:
    check_gradient(gpuad.kernel(_text(BODIES[name][0]), "k"), (*_fields(), N), grid=2, block=8)


@pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", share(list(BODIES), 4))
def test_as_nvrtc_reads_it(name: str) -> None:
    (x, y), (_, expected) = _fields(), _fields()
    gpuad.kernel(_text(BODIES[name][0]), "k")[2, 8](x, expected, N)
    cuda(_text(BODIES[name][0]), "k", 2, 8, (x, y, np.int32(N)))
    np.testing.assert_allclose(y, expected, rtol=1e-13)


REFUSED = {
    "a written table": ("static double ^w[2] = {1, 2}; w[i % 2] = x[i]; y[i] = w[0];", "nothing writes them"),
    "a table behind a pointer": ("static double ^w[2] = {1, 2}; double* p = w; y[i] = p[i % 2];", "nothing writes them"),
    "a table by reference": ("static double ^w[2] = {1, 2}; for (double& u : w) u = x[i]; y[i] = w[0];", "nothing writes them"),
    "a counter": ("static int ^w = 1; y[i] = x[i] * w++;", "nothing writes them"),
    "a static without a value": ("static double ^w[2]; y[i] = w[0];", "nothing writes them"),
    "parts of a matrix": ("double m[2][2] = {{1, 2}, {3, 4}}; ^auto [p, q] = m; y[i] = p[0] * q[1];", STRUCTURED),
    "a copy of a mutable lambda": ("double s = 0; auto f = [s]() mutable { return ++s; }; auto ^g = f; y[i] = f() + g();", MUTABLE),
    "a mutable lambda by value": (
        "double s = 0; auto f = [s](double a) mutable { return s += a; }; y[i] = by_value(^f, x[i]) + f(1.0);",
        MUTABLE,
    ),
    "a lambda that calls itself": (
        "auto f = [](auto self, int k) -> double { return k < 2 ? 1.0 : k * ^self(self, k - 1); }; y[i] = f(f, i);",
        "recursion is not supported: this call of a lambda leads back to it; write a loop",
    ),
    "a lambda in a struct": ("auto f = [](double a) { return a; }; struct { decltype(f) g; } ^s = {f}; y[i] = s.g(x[i]);", LAMBDA),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, message = REFUSED[name]
    text = _text(body.replace("^", ""))
    with pytest.raises(UnsupportedError) as caught:
        gpuad.kernel(text, "k")
    assert message in str(caught.value) and caught.value.column == body.index("^") + 1


@pytest.mark.parametrize("header", ["thrust/complex.h", "type_traits", "cuda/std/type_traits"])
def test_questions_about_types(header: str) -> None:
    """`thrust/complex.h` brings them along."""
    before = f"""#include <{header}>
    template <class T> __device__ double f(T a) {{ if constexpr (std::is_same_v<T, double>) return a * a; else return a + 0.5; }}
    template <class T, std::enable_if_t<std::is_integral<T>::value && !std::is_const_v<T>, int> = 0> __device__ T g(T a) {{ return 2 * a; }}
    template <class T> std::enable_if_t<std::is_floating_point_v<T>, T> __device__ g(T a) {{ return a * a * a; }}"""
    body = "static_assert(std::is_convertible_v<int, double>); y[i] = f(x[i]) * f(2) * g(x[i]) + g(i);"
    kernel = gpuad.kernel(f"{before}\n{SIGNATURE} {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n{body} }}", "k")
    x, y = _fields()
    kernel[2, 8](x, y, N)
    np.testing.assert_allclose(y, 2.5 * x**5 + 2 * np.arange(N), rtol=1e-14)
    check_gradient(kernel, (x, y, N), grid=2, block=8)


def test_a_grid_with_a_zero() -> None:
    """As CuPy launches it: with a 1 in its place, of blocks and of threads."""
    text = f"{SIGNATURE} {{ for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] * x[i] * gridDim.x * blockDim.y; }}"
    for grid, block in (((0, 1, 1), (8,)), ((0, 0), (8, 0)), (0, 8), ((1, 0, 0), (0, 0, 0))):
        (x, y), dx = _fields(), np.zeros(N)
        gpuad.autodiff(gpuad.kernel(text, "k"), grid, block, (Duplicated(x, dx), Duplicated(y, np.ones(N)), N))
        np.testing.assert_array_equal((y, dx), (x * x, 2 * x))


def test_atomics_of_every_scope() -> None:
    text = f"""{SIGNATURE} {{ int i = threadIdx.x; if (i >= n) return;
    atomicAdd_block(y, x[i] * x[i]); atomicAdd_system(&y[1], x[i]); atomicAdd(&y[2], 2 * x[i]); }}"""
    (x, y), dx, dy = _fields(), np.zeros(N), np.zeros(N)
    dy[:3], first = (1, 10, 100), y[:3].copy()
    gpuad.autodiff(gpuad.kernel(text, "k"), 1, 16, (Duplicated(x, dx), Duplicated(y, dy), N))
    np.testing.assert_allclose(y[:3] - first, ((x**2).sum(), x.sum(), 2 * x.sum()))
    np.testing.assert_allclose(dx, 2 * x + 10 + 200)

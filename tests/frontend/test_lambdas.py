"""Lambdas in kernels: what they capture, how they are called, and which are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import CompileError, Duplicated, UnsupportedError
from gpuad.frontend.cuda.fence import LAMBDA
from gpuad.testing import check_gradient

rng = np.random.default_rng(7)
N = 12
PARAMETERS = "const double* x, double* y, const double* bias, int n"


def _kernel(body: str, before: str = "", head: str = 'extern "C" ', name: str = "k") -> gpuad.Kernel:
    guard = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    return gpuad.kernel(f"{before}\n{head}__global__ void k({PARAMETERS}) {{ {guard}\n{body}\n}}", name)


def _fields() -> tuple[np.ndarray, np.ndarray]:
    return rng.uniform(0.6, 2.4, N), rng.normal(size=N)


# Each with the same without a lambda.
BODIES = {
    "nothing captured": (
        "auto f = [](double u, double v) { if (u > 1.5) return u * v; return v * v * v; }; y[i] = f(x[i], x[0]) + f(x[0], y[i]);",
        "y[i] = (x[i] > 1.5 ? x[i] * x[0] : x[0] * x[0] * x[0]) + (x[0] > 1.5 ? x[0] * y[i] : y[i] * y[i] * y[i]);",
    ),
    "by reference": (
        "double s = x[i], t[2] = {1, 2}; int c = 0; auto f = [&](double u) { s *= u; t[c++] += s; }; f(x[0]); "
        "s += 1.0; f(y[i]); y[i] = t[0] * t[1] * c;",
        "double s = x[i] * x[0], t = 1 + s; s = (s + 1.0) * y[i]; y[i] = t * (2 + s) * 2;",
    ),
    "by copy": (
        "double s = x[i]; const auto f = [=](double u) { return s * u; }; s = s * s; y[i] = f(s) + s;",
        "double s = x[i]; y[i] = s * s * s + s * s;",
    ),
    "both": (
        "double s = x[i], t = y[i]; auto f = [s, &t](double u) { t += s * u; return t; }; s = 2; t = t * s; y[i] = f(t) * t;",
        "double s = x[i], t = 2 * y[i]; t += s * t; y[i] = t * t;",
    ),
    "both by default": (
        "double s = x[i], t = y[i]; auto f = [=, &t](double u) { t += s * u; }; s = 2; f(s); y[i] = t;",
        "y[i] += x[i] * 2;",
    ),
    "arrays": (
        "auto f = [&](int j) -> const double& { return x[(i + j) % n]; }; double s = 0; for (int j = 0; j < 3; "
        "j++) s += f(j) * f(2 * j); y[i] = s;",
        "double s = 0; for (int j = 0; j < 3; j++) s += x[(i + j) % n] * x[(i + 2 * j) % n]; y[i] = s;",
    ),
    "pointers moved": (
        "const double* p = x; auto next = [&] { return *p++; }; double s = 1; for (int j = 0; j <= i; j++) s += next() * j; y[i] = s * s;",
        "double s = 1; for (int j = 0; j <= i; j++) s += x[j] * j; y[i] = s * s;",
    ),
    "pointers copied": (
        "const double* p = x + i; auto f = [p, i](int j) { return p[j - i]; }; p = y; y[i] = f(0) * f(i);",
        "y[i] = x[0] * x[i];",
    ),
    "one in another": (
        "double s = x[i]; auto f = [&](double u) { s = s * u; return s; }; "
        "auto g = [&](double u) { return f(u) + f(s); }; y[i] = g(x[0]) * s;",
        "double a = x[i] * x[0], b = a * a; y[i] = (a + b) * b;",
    ),
    "copies in another": (
        "double s = x[i]; auto f = [=](double u) { return s * u; }; s = y[i]; "
        "auto g = [&](double u) { return f(u) * s; }; s *= 2; y[i] = g(x[0]);",
        "y[i] = x[i] * x[0] * y[i] * 2;",
    ),
    "within another": (
        "double s = 0; auto f = [&](double u) { auto g = [&](double v) { s += u * v; }; g(x[i]); g(u); }; f(x[0]); y[i] += s;",
        "y[i] += x[0] * x[i] + x[0] * x[0];",
    ),
    "called at once": (
        "const double s = [&] { if (i % 2) return x[i]; return x[i] * x[i]; }(); y[i] *= s; [=](double u) { y[i] += u * s; }(x[0]);",
        "double s = i % 2 ? x[i] : x[i] * x[i]; y[i] = y[i] * s + x[0] * s;",
    ),
    "of any type": (
        "auto square = [](auto u) { return u * u; }; y[i] = square(x[i]) * square(i) + square(2.0f);",
        "y[i] = x[i] * x[i] * (i * i) + 4.0f;",
    ),
    "in a loop": (
        "double s = 1; for (int j = 0; j < 4; j++) { double w = s * x[j]; auto f = [=](double u) { return u + w; }; "
        "w = 0; s = f(s * s) * 0.1; } y[i] = s;",
        "double s = 1; for (int j = 0; j < 4; j++) s = (s * s + s * x[j]) * 0.1; y[i] = s;",
    ),
    "the variable of a loop": (
        "double s = 0; auto odd = [&](int& k) { if (k % 2) ++k; }; for (int j = 0; j < n; j++) { odd(j); "
        "if (j < n) s += x[j] * j; } y[i] = s;",
        "double s = 0; for (int j = 0; j < n; j++) { if (j % 2) ++j; if (j < n) s += x[j] * j; } y[i] = s;",
    ),
    "a loop's end": (
        "double s = 0; int last = n; auto f = [&](int j) { if (x[j] > 2.0) last = j; s += x[j] * x[j]; }; "
        "for (int j = 0; j < last; j++) f(j); y[i] = s;",
        "double s = 0; int last = n; for (int j = 0; j < last; j++) { if (x[j] > 2.0) last = j; s += x[j] * x[j]; } y[i] = s;",
    ),
    "shared memory": (
        "__shared__ double s[8]; auto put = [&](double u) { s[threadIdx.x] = u; __syncwarp(); "
        "return s[threadIdx.x ^ 1]; }; y[i] = put(x[i] * x[i]);",
        "y[i] = x[i ^ 1] * x[i ^ 1];",
    ),
    "a constant without a capture": (
        "const int k = 3; auto f = [](double u) { return u * k; }; y[i] = f(x[i]) * k;",
        "y[i] = x[i] * 9;",
    ),
    "vectors": (
        "double2 v = make_double2(x[i], y[i]); "
        "auto turn = [&v](double c) { v = make_double2(c * v.x - v.y, v.x + c * v.y); }; turn(0.5); turn(x[0]); y[i] = v.x;",
        "double a = 0.5 * x[i] - y[i], b = x[i] + 0.5 * y[i]; y[i] = x[0] * a - b;",
    ),
}


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", BODIES)
def test_same_as_without(name: str) -> None:
    x, y = _fields()
    results = []
    for body in BODIES[name]:
        kernel, out, dx, dy = _kernel(body), y.copy(), np.zeros(N), np.linspace(1, 2, N)
        check_gradient(kernel, (x, y.copy(), None, N), grid=(2,), block=(8,))
        gpuad.autodiff(kernel, (2,), (8,), (Duplicated(x, dx), Duplicated(out, dy), None, N))
        results.append((out, dx, dy))
    for a, b in zip(*results, strict=True):
        assert np.allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize("given", [True, False])
def test_array_that_may_be_left_out(given: bool) -> None:
    """What is known of a pointer is known of it in the lambda too."""
    kernel = _kernel("auto b = [&] { return bias ? bias[i] * bias[i] : 0.0; }; y[i] = x[i] * b() + b();")
    x, y = _fields()
    bias = rng.normal(size=N) if given else None
    check_gradient(kernel, (x, y, bias, N), grid=(2,), block=(8,))
    kernel((2,), (8,), (x, y, bias, N))
    assert np.allclose(y, (x + 1) * bias**2 if bias is not None else 0)


def test_in_templates_and_helpers() -> None:
    before = """template <class T> __device__ T cubed(const T* p, int j) { auto f = [=](T u) { return u * u * p[j]; }; return f(p[j]); }
    struct S {
        double a;
        __device__ double twice(double u) const { double b = a; auto f = [&](double v) { return b * v; }; return f(u) * 2; }
    };"""
    body = "auto f = [&](T u) { T w = cubed<T>(x, i); return w * u; }; S s = {x[0]}; y[i] = f(T(2)) + s.twice(x[i]);"
    kernel = _kernel(body, before, "template <class T> ", "k<double>")
    x, y = _fields()
    check_gradient(kernel, (x, y, None, N), grid=(2,), block=(8,))
    kernel((2,), (8,), (x, y, None, N))
    assert np.allclose(y, 2 * x**3 + 2 * x[0] * x)


PASSING = """template <class F> __device__ double apply(F f, double u) { return f(u) + f(2 * u); }
    template <class F> __device__ double twice(const F& f, double u) { return apply(f, apply(f, u)); }
    template <class F> __device__ double forward(F&& f, double u) { auto g = f; return g(u); }
    template <class F, class G> __device__ double both(F f, G g, double u) { return apply([&](double t) { return f(g(t)); }, u); }
    template <class F> __device__ void each(int n, F f) { for (int j = 0; j < n; j++) f(j); }"""
PASSED = {
    "by name": ("auto f = [=](double t) { return x[i] * t * t; }; y[i] = apply(f, y[i]);", "y[i] = x[i] * y[i] * y[i] * 5;"),
    "on and on": ("double s = x[i]; auto f = [&](double t) { return s * t; }; y[i] = twice(f, 2.0);", "y[i] = 18 * x[i] * x[i];"),
    "made there": ("y[i] = apply([=](double t) { return x[i] * t; }, y[i]);", "y[i] = 3 * x[i] * y[i];"),
    "forwarded": (
        "double a = x[i]; y[i] = forward([a](double t) { return a * t; }, y[i]) + forward([&](double t) { return a + t; }, 2.0);",
        "y[i] = x[i] * y[i] + x[i] + 2;",
    ),
    "two, one by copy": (
        "double a = x[i]; y[i] = both([=](double t) { return a * t; }, [&](double t) { a *= t; return a; }, y[i]) + a;",
        "double a = x[i], b = a, u = y[i]; a *= u; double r = b * a; a *= 2 * u; y[i] = r + b * a + a;",
    ),
    "for each": ("double s = 1; each(3, [&](int j) { s *= x[(i + j) % n]; }); y[i] = s;", "y[i] = x[i] * x[(i + 1) % n] * x[(i + 2) % n];"),
    "made in a loop": (
        "double s = 0; for (int j = 0; j < 3; j++) { double w = x[j]; s += apply([=](double t) { return w * t; }, y[i]); } y[i] = s;",
        "double s = 0; for (int j = 0; j < 3; j++) s += x[j] * y[i] * 3; y[i] = s;",
    ),
    "in a condition": (
        "double a = x[i]; if (apply([=](double t) { return a * t; }, 1.0) > 0) y[i] = apply([&](double t) { return ++a * t; }, y[i]);",
        "double a = x[i], u = y[i]; y[i] = (a + 1) * u + (a + 2) * 2 * u;",
    ),
    "beside the declaration of what it copies": (
        "double a = x[i], b = apply([=](double t) { return a * t; }, 2.0); y[i] = b;",
        "y[i] = 6 * x[i];",
    ),
    "assigned to what it copies": (
        "double a = x[i]; a = apply([=](double t) { return a * t; }, 2.0); y[i] = a * y[i];",
        "y[i] = x[i] * 6 * y[i];",
    ),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", PASSED)
def test_passed_on(name: str) -> None:
    x, y = _fields()
    results = []
    for body in PASSED[name]:
        kernel, out, dx, dy = _kernel(body, PASSING), y.copy(), np.zeros(N), np.linspace(1, 2, N)
        check_gradient(kernel, (x, y.copy(), None, N), grid=(2,), block=(8,))
        gpuad.autodiff(kernel, (2,), (8,), (Duplicated(x, dx), Duplicated(out, dy), None, N))
        results.append((out, dx, dy))
    for a, b in zip(*results, strict=True):
        assert np.allclose(a, b, rtol=1e-13)


REFUSED: dict[str, tuple[str, Any]] = {
    "kept": ("auto f = [](double u) { return u; }; Kept<decltype(f)> ^s = {f}; y[i] = s.f(x[i]);", LAMBDA),
    "returned": ("y[i] = ^made()(x[i]);", LAMBDA),
    "copied before a change in the same condition": (
        "double a = x[i]; ^y[i] = ((a = 5) > 0 && apply([=](double t) { return a * t; }, a) > 0) ? x[i] : 0;",
        "a lambda that is made here copies a, which may change here; name the lambda before",
    ),
    "copied after a change by another name": (
        "double a = x[i]; double& other = a; ^y[i] = (other = 5) > 0 && apply([=](double t) { return a * t; }, 1) > 0;",
        "a lambda that is made here copies a, which may change here; name the lambda before",
    ),
    "copied in a choice": (
        "double a = x[i]; ^y[i] = a > 1 ? apply([=](double t) { return a * t; }, 2.0) : 0;",
        "a lambda that is made here copies a, which may change here; name the lambda before",
    ),
    "copied in the header of a loop": (
        "double a = 1; ^while (apply([=](double t) { return a * t; }, 2.0) < 100) a *= x[i] + 1; y[i] = a;",
        "a lambda that is made here copies a, which may change here; name the lambda before",
    ),
    "with an initialiser": (
        "auto f = ^[s = x[i]](double u) { return u * s; }; y[i] = f(x[i]);",
        "a lambda can capture variables by their names",
    ),
    "an array by copy": (
        "double t[2] = {1, 2}; auto f = ^[=](int j) { return t[j]; }; y[i] = f(1);",
        r"a lambda that captures an array \(t\) by copy is not supported; capture it by reference",
    ),
    "from a macro": ("auto f = ^SQUARE; y[i] = f(x[i]);", "a lambda, or what it captures, from a macro is not supported"),
    "a capture from a macro": (
        "double s = 1; auto f = ^[ALL] { s *= 2.0; }; f(); y[i] = s;",
        "a lambda can capture variables by their names",
    ),
    "this": ("S s = {x[i]}; y[i] = s.twice();", "a lambda can capture variables by their names"),
}


def test_a_copy_beside_a_change_is_unsequenced() -> None:
    with pytest.raises(CompileError, match="unsequenced modification and access to 'a'"):
        _kernel(
            "double a = x[i], b = a + apply([=](double t) { return a * t; }, a = 2); y[i] = b;",
            "template <class F> __device__ double apply(F f, double u) { return f(u); }",
        )


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, message = REFUSED[name]
    before = """template <class F> __device__ double apply(F f, double u) { return f(u); }
    #define SQUARE [](double u) { return u * u; }
    #define ALL &s
    template <class F> struct Kept { F f; }; __device__ auto made() { return [](double u) { return u; }; }
    struct S { double a; __device__ double twice() { auto f = [this] { return 2 * a; }; return f(); } };"""
    with pytest.raises(UnsupportedError, match=message if message is not LAMBDA else LAMBDA.replace("(", r"\(")) as caught:
        _kernel(body.replace("^", ""), before)
    if ("^" in body and message is not LAMBDA) or caught.value.line == 7:
        assert caught.value.line == 7
        assert caught.value.column == body.index("^") + 1

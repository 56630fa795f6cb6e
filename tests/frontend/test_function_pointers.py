"""Functions that are passed on: pointers to them, as arguments, template arguments and variables. Each beside the same written out."""

from __future__ import annotations

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated
from gpuad.errors import UnsupportedError
from gpuad.testing import check_gradient

HELPERS = """
typedef double (*Function)(double);
__device__ double square(double a) { return a * a; }
__device__ double cube(double a) { return a * a * a; }
__device__ double twice(Function f, double a) { return f(f(a)); }
__device__ double with_default(double a, Function f = cube) { return f(a) * 2; }
__device__ void each(int n, double* x, void (*f)(double*, int)) { for (int k = 0; k < n; k++) f(x, k); }
__device__ void weigh(double* x, int k) { x[k] *= k + 1.5; }
template <class F> __device__ double apply(F f, double a) { return f(a) * a; }
template <class F> __device__ double further(const F& f, double a) { return apply(f, a) + f(1); }
template <double (*F)(double)> __device__ double fixed(double a) { return F(a) + F(2); }
"""
BODIES = {
    "to a template": ("y[i] = apply(square, x[i]) + apply(&cube, y[i]);", "y[i] = square(x[i]) * x[i] + cube(y[i]) * y[i];"),
    "passed on": (
        "y[i] = further(square, x[i]) * further(cube, x[i]);",
        "y[i] = (square(x[i]) * x[i] + 1) * (cube(x[i]) * x[i] + 1);",
    ),
    "to a function": ("y[i] = twice(square, x[i]) + twice(cube, y[i]);", "y[i] = square(square(x[i])) + cube(cube(y[i]));"),
    "by default": ("y[i] = with_default(x[i]) + with_default(x[i], square);", "y[i] = 2 * (cube(x[i]) + square(x[i]));"),
    "template arguments": ("y[i] = fixed<square>(x[i]) * fixed<cube>(y[i]);", "y[i] = (square(x[i]) + 4) * (cube(y[i]) + 8);"),
    "functions of CUDA": (
        "y[i] = apply<Function>(sin, x[i]) + fixed<exp>(y[i]);",
        "y[i] = sin(x[i]) * x[i] + exp(y[i]) + exp(2.0);",
    ),
    "variables": (
        "double (*f)(double) = square; auto g = cube; auto& h = cube; y[i] = f(x[i]) + (*g)(y[i]) * h(x[i]) + apply(f, 3);",
        "y[i] = square(x[i]) + cube(y[i]) * cube(x[i]) + 27;",
    ),
    "in a lambda": (
        "Function f = square; auto g = [&](double a) { return f(a) * x[i]; }; y[i] = apply(g, y[i]);",
        "y[i] = square(y[i]) * x[i] * y[i];",
    ),
    "effects": (
        "double u[3] = {x[i], y[i], 2}; each(3, u, weigh); y[i] = u[0] * u[1] * u[2];",
        "y[i] = x[i] * 1.5 * y[i] * 2.5 * 7;",
    ),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("body", "written_out"), BODIES.values(), ids=BODIES)
def test_as_written_out(body: str, written_out: str) -> None:
    made = [
        gpuad.kernel(f'{HELPERS}extern "C" __global__ void k(const double* x, double* y) {{ int i = threadIdx.x; {text} }}', "k")
        for text in (body, written_out)
    ]
    found = []
    for kernel in made:
        x, y, dx, dy = np.linspace(0.5, 1.5, 8), np.linspace(1.5, 0.7, 8), np.zeros(8), np.ones(8)
        gpuad.autodiff(kernel, 1, 8, (Duplicated(x, dx), Duplicated(y, dy)))
        found.append((y, dx, dy))
    for own, other in zip(*found, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-14)
    check_gradient(made[0], (np.linspace(0.5, 1.5, 8), np.linspace(1.5, 0.7, 8)), grid=(1,), block=(8,), directions=1)


@pytest.mark.parametrize("call", ["choose(2)(x[i])", "(*choose(2))(x[i])", "Chooser{2}.chosen(1)(x[i])"])
def test_a_function_that_a_call_returns(call: str) -> None:
    """clang names the call within for the one around it, with other arguments."""
    chosen = """__device__ Function choose(double a) { return a > 1 ? square : cube; }
    struct Chooser { double a; __device__ Function chosen(double b) const { return square; } };"""
    text = f'{HELPERS}{chosen}extern "C" __global__ void k(double* x) {{ int i = threadIdx.x; x[i] = {call}; }}'
    with pytest.raises(UnsupportedError, match="a call of the function that another call returns is not supported") as error:
        gpuad.kernel(text, "k").adjoint()
    assert error.value.span is not None
    assert error.value.span.column == text.splitlines()[-1].index(call) + 1

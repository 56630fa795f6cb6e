"""Values that stay finite where an exponential in them overflows: sigmoids and kin, against derivatives in high precision.

The derivative there is a product of 0 and infinity as it is formed term by term. Witness: numerical derivatives with 350 digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from launch_tools import compiled, running

import gpuad
from gpuad import Duplicated

FUNCTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "sigmoid": ("1/(1 + exp(-x))", lambda x: 1 / (1 + mp.exp(-x))),
    "by a variable": ("real e = exp(-x); real d = 1 + e; r = 1/d", lambda x: 1 / (1 + mp.exp(-x))),
    "silu": ("x/(1 + exp(-x))", lambda x: x / (1 + mp.exp(-x))),
    "logistic": ("1/(1 + (2 + x/1000)*exp(-x))", lambda x: 1 / (1 + (2 + x / 1000) * mp.exp(-x))),
    "tanh": ("1 - 2/(1 + exp(2*x))", lambda x: 1 - 2 / (1 + mp.exp(2 * x))),
    "a square": ("real e = exp(x); r = 1/(1 + e*e)", lambda x: 1 / (1 + mp.exp(2 * x))),
    "mish": ("x*tanh(log(1 + exp(x)))", lambda x: x * mp.tanh(mp.log(1 + mp.exp(x)))),
    "gompertz": ("exp(-exp(x))", lambda x: mp.exp(-mp.exp(x))),
    "secant": ("1/cosh(x)", lambda x: mp.sech(x)),
    "angle": ("atan(exp(x))", lambda x: mp.atan(mp.exp(x))),
    "root": ("rsqrt(1 + exp(x))", lambda x: 1 / mp.sqrt(1 + mp.exp(x))),
    "power": ("1/(1 + pow((real)2, x))", lambda x: 1 / (1 + mp.power(2, x))),
    "a root of a sigmoid": ("sqrt(1/(1 + exp(x)))", lambda x: mp.sqrt(1 / (1 + mp.exp(x)))),
    "a root of a gompertz": ("sqrt(exp(-exp(x)))", lambda x: mp.exp(-mp.exp(x) / 2)),
    "an angle of a tanh": (
        "real t = x < 0 ? tanh(exp(x)) : (real)0; r = x < 0 ? asin(t) : acos(tanh(exp(x)))",
        lambda x: mp.asin(mp.tanh(mp.exp(x))) if x < 0 else mp.acos(mp.tanh(mp.exp(x))),
    ),
    "least": ("fmin(exp(x)*exp(x), (real)5)", lambda x: mp.exp(2 * x) if 2 * x < mp.log(5) else mp.mpf(5)),
    "a loop": (
        "real s = exp(x); for (int k = 0; k < 3; k++) s = s*s + 1; r = 1/s",
        lambda x: 1 / (((mp.exp(2 * x) + 1) ** 2 + 1) ** 2 + 1),
    ),
    "memory": ("y[i] = exp(x); y[i] = y[i]*y[i]; r = 1/(1 + y[i])", lambda x: 1 / (1 + mp.exp(2 * x))),
}
EXACT = ("sigmoid", "silu", "logistic")
TYPES = {"float": (np.float32, [0.5, 30, 60, 90, 100, 200], 1e-4), "double": (np.float64, [0.5, 480, 720, 1600], 1e-10)}


def kernel(body: str, real: str) -> Any:
    body = body if "r = " in body else f"r = {body}"
    head = f"typedef {real} real;\n" + 'extern "C" __global__ void k(const real* values, real* y) {\n'
    return compiled(head + f"    int i = threadIdx.x;\n    real x = values[i], r;\n    {body};\n    y[i] = r;\n}}", "k")


def points(real: str) -> np.ndarray[Any, Any]:
    dtype, sizes, _ = TYPES[real]
    return np.array([*(-s for s in reversed(sizes)), *sizes], dtype)


def derivative(function: Callable[[Any], Any], x: np.ndarray[Any, Any], order: int) -> np.ndarray[Any, Any]:
    with mp.workdps(350):
        return np.array([float(mp.diff(function, mp.mpf(float(v)), order)) for v in x])


def reverse(k: Any, x: np.ndarray[Any, Any], executor: str = "host") -> np.ndarray[Any, Any]:
    dx = np.zeros_like(x)
    with running(executor):
        gpuad.autodiff(k, 1, len(x), (Duplicated(x, dx), Duplicated(np.zeros_like(x), np.ones_like(x))))
    return dx


def forward(k: Any, x: np.ndarray[Any, Any], executor: str = "host") -> np.ndarray[Any, Any]:
    dy = np.zeros_like(x)
    with running(executor):
        gpuad.autodiff(k, 1, len(x), (Duplicated(x, np.ones_like(x)), Duplicated(np.zeros_like(x), dy)), mode=gpuad.Forward)
    return dy


def second(k: Any, x: np.ndarray[Any, Any], executor: str = "host") -> np.ndarray[Any, Any]:
    zeros = [np.zeros_like(x) for _ in range(5)]
    first = Duplicated(x, zeros[0]), Duplicated(zeros[1], np.ones_like(x))
    with running(executor):
        gpuad.hvp(k, 1, len(x), first, (Duplicated(np.ones_like(x), zeros[2]), Duplicated(zeros[3], zeros[4])))
    return zeros[2]


@pytest.mark.one_of(3)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_finite_values_have_finite_derivatives(name: str) -> None:
    """To the last digits where the exponential stands in the denominator, however small; of others, what is far below one may be lost."""
    text, function = FUNCTIONS[name]
    for real, (dtype, _, tolerance) in TYPES.items():
        k, x = kernel(text, real), points(real)
        want, curved = derivative(function, x, 1), derivative(function, x, 2)
        lost = 1e3 * float(np.finfo(dtype).tiny) if name in EXACT else tolerance**2
        for executor in ("host", "reference") if real == "float" else ("reference",):
            np.testing.assert_allclose(reverse(k, x, executor), want, tolerance, lost)
            np.testing.assert_allclose(forward(k, x, executor), want, tolerance, lost)
        np.testing.assert_allclose(second(k, x, "reference"), curved, 100 * tolerance, tolerance)


@pytest.mark.parametrize("real", TYPES)
def test_the_log_of_a_small_sigmoid(real: str) -> None:
    """The seed is as large as the quotient's slope is small: their product is one, the square of the quotient 0."""
    k = kernel("log(1/(1 + exp(-x)))", real)
    dtype, _, tolerance = TYPES[real]
    x = np.array([-60 if real == "float" else -480, -30, -1, 1], dtype)
    for executor in ("host", "reference"):
        np.testing.assert_allclose(reverse(k, x, executor), 1 / (1 + np.exp(x.astype(float))), tolerance)
        np.testing.assert_allclose(forward(k, x, executor), 1 / (1 + np.exp(x.astype(float))), tolerance)


@pytest.mark.parametrize("text", ["log(1/(1 + x*x))", "log(2/(x*x))", "log((1 + 1/x)/(x*x))"])
def test_the_log_of_a_small_quotient(text: str) -> None:
    x = np.array([3e5, 1e10, 1e11, 1e12, 1e18], np.float32)
    for executor in ("host", "reference"):
        np.testing.assert_allclose(reverse(kernel(text, "float"), x, executor), -2 / x, 1e-4)


@pytest.mark.one_of(3)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("log(1 + exp(x))", 1),
        ("log1p(exp(x))", 1),
        ("sqrt(1 + exp(x))", 1),
        ("pow(1 + exp(x), (real)0.5)", 1),
        ("cbrt(exp(x))", 1),
        ("asinh(exp(x))", 1),
        ("exp(x)", 1),
        ("exp(x)*exp(x)", 1),
        ("1/(1/(1 + exp(x)))", 1),
        ("log(1/(1 + exp(-x)))", -1),
    ],
)
def test_infinite_values_have_no_finite_derivatives(text: str, sign: int) -> None:
    for real in TYPES:
        x = sign * points(real)[-2:]
        assert not np.isfinite(reverse(kernel(text, real), x, "reference")).any()
        assert not np.isfinite(forward(kernel(text, real), x, "reference")).any()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_power_of_a_sigmoid() -> None:
    """Its second slope leaves the range of a float; the first is vertical at what an overflow has left."""
    k, x = kernel("pow(1/(1 + exp(x)), (real)0.3)", "double"), points("double")
    want = derivative(lambda x: mp.power(1 / (1 + mp.exp(x)), mp.mpf(0.3)), x, 1)
    for executor in ("host", "reference"):
        np.testing.assert_allclose(reverse(k, x, executor), want, 1e-10, 1e-90)
        np.testing.assert_allclose(forward(k, x, executor), want, 1e-10, 1e-90)


def test_what_is_no_number_stays_none() -> None:
    for text, _ in FUNCTIONS.values():
        if "fmin" not in text:
            assert np.isnan(reverse(kernel(text, "float"), np.array([np.nan], np.float32), "reference")).all()
            assert np.isnan(forward(kernel(text, "float"), np.array([np.nan], np.float32), "reference")).all()


def test_all_factors_of_what_overflows() -> None:
    """Of `a exp(-x)` in a denominator, `a` gets nothing where the exponential is infinite, and else what the closed form says."""
    text = """extern "C" __global__ void k(const double* x, const double* a, double* y) {
        int i = threadIdx.x;
        y[i] = 1/(1 + a[i]*exp(-x[i]));
    }"""
    x, a = np.array([-800.0, -500, 2, 700]), np.array([2.0, 3, 0.5, 1])
    for executor in ("host", "reference"):
        dx, da = np.zeros(4), np.zeros(4)
        with running(executor):
            gpuad.autodiff(compiled(text, "k"), 1, 4, (Duplicated(x, dx), Duplicated(a, da), Duplicated(np.zeros(4), np.ones(4))))
        e = np.exp(-x[1:])
        share = e / (1 + a[1:] * e)
        np.testing.assert_allclose(da, [0, *(-share / (1 + a[1:] * e))], 1e-12)
        np.testing.assert_allclose(dx, [0, *(a[1:] * share / (1 + a[1:] * e))], 1e-12)


def test_between_two_launches() -> None:
    """The exponential in one launch of a tape, the quotient in another."""
    first = compiled('extern "C" __global__ void e(const float* x, float* t) { int i = threadIdx.x; t[i] = expf(-x[i]); }', "e")
    then = compiled('extern "C" __global__ void s(const float* t, float* y) { int i = threadIdx.x; y[i] = 1/(1 + t[i]); }', "s")
    x = np.array([-200, -100, -1, 1, 100], np.float32)
    dx, t, y = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    inner, outer = Duplicated(t, np.zeros_like(x)), Duplicated(y, np.ones_like(x))
    with gpuad.Tape() as tape:
        first[1, 5](Duplicated(x, dx), inner)
        then[1, 5](inner, outer)
    tape.reverse()
    s = 1 / (1 + np.exp(-x.astype(float)))
    np.testing.assert_allclose(dx, s * (1 - s), 1e-5, 1e-30)


def test_signs_of_long_chains_are_found_in_one_pass() -> None:
    """Each of 40 sums has the one before it twice: whoever follows both sides of each takes 2^40 steps."""
    x, n = np.linspace(0.01, 0.02, 4), 40
    steps = " ".join("h = h + x[i] * h;" for _ in range(n))
    k = compiled(
        f'extern "C" __global__ void k(const double* x, double* y) {{ int i = threadIdx.x; double h = 1; {steps} y[i] = exp(-h); }}', "k"
    )
    dx = np.zeros_like(x)
    gpuad.autodiff(k, 1, 4, (Duplicated(x, dx), Duplicated(np.zeros_like(x), np.ones_like(x))))
    h = (1 + x) ** n
    np.testing.assert_allclose(dx, -np.exp(-h) * n * (1 + x) ** (n - 1), rtol=1e-12)

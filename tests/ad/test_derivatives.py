"""The table of partial derivatives against central differences of the functions themselves, and its conventions at kinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.ad.derivatives import RULES
from gpuad.ir.functions import FUNCTIONS
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference

DOMAINS = {
    "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atanh": (-0.9, 0.9), "acosh": (1.1, 3), "erfinv": (-0.9, 0.9), "erfcinv": (0.2, 1.8),
    "normcdfinv": (0.1, 0.9), "log1p": (-0.5, 2), "tan": (-1, 1), "__tanf": (-1, 1), "__saturatef": (0.1, 0.9),
    "sinh": (-2, 2), "cosh": (-2, 2),
}  # fmt: skip
POSITIVE = (
    "sqrt",
    "rsqrt",
    "cbrt",
    "rcbrt",
    "log",
    "log2",
    "log10",
    "pow",
    "__powf",
    "y0",
    "lgamma",
    "tgamma",
    "y1",
    "yn",
    "__logf",
    "__log2f",
    "__log10f",
    "hypot",
    "__fsqrt",
    "__dsqrt",
    "__frsqrt",
    "__frcp",
    "__drcp",
)
STEPS = {"float": 4e-3, "double": 1e-5}


def spelled(name: str) -> tuple[str, str]:
    """The C type in which a function exists, and its name there."""
    function = FUNCTIONS[name]
    return ("double", function.double) if function.double else ("float", str(function.single))


def kernel(name: str) -> tuple[gpuad.Kernel, type[Any]]:
    kind, word = spelled(name)
    arity = FUNCTIONS[name].arity
    params = ", ".join(f"const {kind}* x{i}" for i in range(arity))
    call = ", ".join("2" if i == FUNCTIONS[name].whole else f"x{i}[i]" for i in range(arity))
    text = f'extern "C" __global__ void f({params}, {kind}* y) {{ int i = threadIdx.x; y[i] = {word}({call}); }}'
    return gpuad.kernel(text, "f"), np.float64 if kind == "double" else np.float32


def gradient(name: str, inputs: list[Any], seed: float = 1.0) -> list[Any]:
    k, dtype = kernel(name)
    arrays = [np.asarray(x, dtype) for x in inputs]
    pairs = [Duplicated(a, np.zeros_like(a)) for a in arrays]
    out = np.zeros_like(arrays[0])
    with pipeline.executor_for_tests(Reference()):
        gpuad.autodiff(k, 1, len(out), (*pairs, Duplicated(out, np.full_like(out, seed))))
    return [p.shadow for p in pairs]


def value(name: str, inputs: list[Any]) -> Any:
    k, dtype = kernel(name)
    out = np.zeros(len(inputs[0]), dtype)
    with pipeline.executor_for_tests(Reference()):
        k(1, len(out), (*(np.asarray(x, dtype) for x in inputs), out))
    return out.astype(np.float64)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", [n for n in RULES if n in FUNCTIONS and not n.startswith("gpuad")])
def test_partials_agree_with_differences(name: str) -> None:
    low, high = DOMAINS.get(name, (0.3, 2.3) if name.startswith(POSITIVE) else (-2.2, 2.3))
    arity = FUNCTIONS[name].arity
    rng = np.random.default_rng(5)
    inputs = [rng.uniform(low, high, 24) for _ in range(arity)]
    if name in ("floor", "ceil", "trunc", "round", "rint", "nearbyint", "logb"):
        inputs = [np.round(inputs[0]) + 0.3]
    got = gradient(name, inputs)
    kind, _ = spelled(name)
    step, tolerance = STEPS[kind], 2e-2 if kind == "float" else 1e-7
    for i in FUNCTIONS[name].of_one_type(range(arity)):
        ahead, behind = ([x + sign * step * (i == j) for j, x in enumerate(inputs)] for sign in (1, -1))
        slope = (value(name, ahead) - value(name, behind)) / (2 * step)
        assert np.allclose(got[i], slope, rtol=tolerance, atol=tolerance), name


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("name", "at", "partials"),
    [
        ("fabs", (0.0,), (0.0,)),
        ("fmin", (1.0, 1.0), (1.0, 0.0)),
        ("fmax", (1.0, 1.0), (1.0, 0.0)),
        ("fmin", (np.nan, 1.0), (0.0, 1.0)),
        ("fmax", (1.0, np.nan), (1.0, 0.0)),
        ("pow", (-2.0, 3.0), (12.0, np.nan)),
        ("pow", (2.0, 0.0), (0.0, np.log(2.0))),
        ("pow", (0.0, 0.0), (0.0, 0.0)),
        ("pow", (0.0, 2.0), (0.0, 0.0)),
        ("hypot", (0.0, 0.0), (0.0, 0.0)),
        ("atan2", (0.0, 0.0), (0.0, 0.0)),
        ("atan2", (2e-170, 1e-170), (2e169, -4e169)),
        ("sqrt", (0.0,), (np.inf,)),
        ("fmod", (7.5, 2.0), (1.0, -3.0)),
        ("remainder", (7.5, 2.0), (1.0, -4.0)),
        ("floor", (1.0,), (0.0,)),
        ("round", (0.5,), (0.0,)),
        ("copysign", (-2.0, 3.0), (-1.0, 0.0)),
        ("fdim", (1.0, 1.0), (0.0, 0.0)),
        ("j1", (0.0,), (0.5,)),
        ("__saturatef", (0.0,), (1.0,)),
        ("__saturatef", (1.0,), (1.0,)),
        ("__saturatef", (1.5,), (0.0,)),
    ],
)
def test_convention(name: str, at: tuple[float, ...], partials: tuple[float, ...]) -> None:
    got = gradient(name, [[x] for x in at])
    for g, wanted in zip(got, partials, strict=True):
        assert np.allclose(g, wanted, equal_nan=True), (name, got)


@pytest.mark.parametrize(
    ("name", "at"), [("sqrt", (0.0,)), ("log", (0.0,)), ("rsqrt", (0.0,)), ("cbrt", (0.0,)), ("acos", (1.0,)), ("asin", (1.0,))]
)
def test_an_infinite_partial_that_nobody_asked_for_gives_zero(name: str, at: tuple[float, ...]) -> None:
    assert gradient(name, [[x] for x in at], seed=0.0)[0] == 0


def test_a_cast_to_an_integer_has_no_derivative() -> None:
    text = 'extern "C" __global__ void f(const double* x, double* y) { int i = threadIdx.x; y[i] = x[i] * (int)x[i]; }'
    x, dx = np.array([2.5]), np.zeros(1)
    with pipeline.executor_for_tests(Reference()):
        gpuad.autodiff(gpuad.kernel(text, "f"), 1, 1, (Duplicated(x, dx), Duplicated(np.zeros(1), np.ones(1))))
    assert dx == [2.0]


def test_every_function_has_an_entry_or_is_refused_by_name() -> None:
    without = {n for n, f in FUNCTIONS.items() if f.domain == "float" and n not in RULES}
    assert without == {"gpuad_chain", "gpuad_trigamma"}  # the first is differentiated as a product


def test_a_function_without_an_entry_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, "tgamma")
    text = 'extern "C" __global__ void f(const double* x, double* y) { y[threadIdx.x] = tgamma(x[threadIdx.x]); }'
    with pytest.raises(gpuad.UnsupportedError, match=r":1:\d+: error: the derivative of 'tgamma' is not known"):
        gpuad.kernel(text, "f").adjoint(x=Duplicated, y=Duplicated)


@pytest.mark.parametrize("made", [Host, Reference])
def test_the_gamma_function(made: Any) -> None:
    """Values of psi and psi' from their definitions at special points, and both derivatives of lgamma by the adjoint's adjoint."""
    text = 'extern "C" __global__ void f(const double* x, double* y) { y[threadIdx.x] = lgamma(x[threadIdx.x]); }'
    x = np.array([1.0, 0.5, 2.0, 30.0, -0.5, -3.25, 1e-3, 1.4616321449683623])
    gamma = 0.57721566490153286
    dx, out, seed = np.zeros(len(x)), np.zeros(len(x)), np.ones(len(x))
    x_dot, dx_dot = np.ones(len(x)), np.zeros(len(x))
    args = (Duplicated(x, dx), Duplicated(out, seed))
    with pipeline.executor_for_tests(made()):
        gpuad.hvp(gpuad.kernel(text, "f"), 1, len(x), args, (Duplicated(x_dot, dx_dot), Duplicated(np.zeros(len(x)), np.zeros(len(x)))))
    first = [-gamma, -gamma - 2 * np.log(2), 1 - gamma, 2 - gamma - 2 * np.log(2)]
    np.testing.assert_allclose(dx[[0, 1, 2, 4]], first, rtol=1e-14)
    np.testing.assert_allclose(dx_dot[[0, 1, 2, 4]], [np.pi**2 / 6, np.pi**2 / 2, np.pi**2 / 6 - 1, np.pi**2 / 2 + 4], rtol=1e-14)
    harmonic = sum(1 / k for k in range(1, 30))
    np.testing.assert_allclose(dx[3], harmonic - gamma, rtol=1e-14)
    np.testing.assert_allclose(dx_dot[3], np.pi**2 / 6 - sum(1 / k**2 for k in range(1, 30)), rtol=1e-13)
    np.testing.assert_allclose(dx[6], -1000 - gamma + np.pi**2 / 6 * 1e-3 - 1.2020569031595943e-6, rtol=1e-11)
    assert abs(dx[7]) < 1e-14  # where the gamma function has its minimum
    assert np.isfinite(dx).all() and np.isfinite(dx_dot).all()

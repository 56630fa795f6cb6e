"""How many digits of second derivatives are right, of functions in the table and both types, as `test_derivatives_digits` says of
the first: in units of rounding times what the second derivative is conditioned by, with the same arguments (tiny, huge, near special
points)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS
from test_derivatives_digits import EXACT, arguments, error, mp, percentage_point

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.ir.functions import FUNCTIONS

BOUND = 32.0  # four times that of a first derivative: two terms of two factors each
STEP = mp.mpf(10) ** -30  # relative; with 120 digits, arguments of 1e-25 and more leave 35 of a curvature that vanishes with them
LEAST = 1e-25

BEYOND = {"erfcx": 600.0}  # below 5 the first derivative is a difference, whose own derivative loses two digits more
STEPS = {"fmod", "remainder"}  # their slopes are constant


# Second derivatives in closed form, where differences with 120 digits of the first take long.
CLOSED: dict[str, Callable[[Any], Any]] = {
    "erf": lambda x: -2 * x * EXACT["erf"].partials[0](x),
    "erfc": lambda x: -2 * x * EXACT["erfc"].partials[0](x),
    "normcdf": lambda x: -x * EXACT["normcdf"].partials[0](x),
    "erfinv": lambda x: 2 * (-percentage_point((1 + x) / 2) / mp.sqrt(2)) * EXACT["erfinv"].partials[0](x) ** 2,
    "erfcinv": lambda x: 2 * (percentage_point(x / 2) / mp.sqrt(2)) * EXACT["erfcinv"].partials[0](x) ** 2,
    "normcdfinv": lambda x: -percentage_point(x) * EXACT["normcdfinv"].partials[0](x) ** 2,
    "j0": lambda x: (mp.besselj(2, x) - mp.besselj(0, x)) / 2,
    "jn": lambda x: (mp.besselj(1, x) - 2 * mp.besselj(3, x) + mp.besselj(5, x)) / 4,
    "y0": lambda x: (mp.bessely(2, x) - mp.bessely(0, x)) / 2,
    "y1": lambda x: (mp.bessely(3, x) - 3 * mp.bessely(1, x)) / 4,
    "yn": lambda x: (mp.bessely(1, x) - 2 * mp.bessely(3, x) + mp.bessely(5, x)) / 4,
    "cyl_bessel_i0": lambda x: (mp.besseli(0, x) + mp.besseli(2, x)) / 2,
    "lgamma": lambda x: mp.psi(1, x),
    "tgamma": lambda x: mp.gamma(x) * (mp.digamma(x) ** 2 + mp.psi(1, x)),
}


def curvatures(name: str, columns: Sequence[Any]) -> list[list[Any]]:
    """The second derivatives by the arguments: [i][j] is that of the first derivative j along argument i."""
    function, dtype = FUNCTIONS[name], columns[0].dtype
    kind, word = ("float", function.single) if dtype == np.float32 else ("double", function.double)
    values = [f"x{i}[i]" for i in range(len(columns))]
    if function.whole is not None:
        values.insert(function.whole, str(EXACT[name].whole))
    parameters = ", ".join(f"const {kind}* x{i}" for i in range(len(columns)))
    text = f"""extern "C" __global__ void f({parameters}, {kind}* y)
    {{ int i = threadIdx.x; y[i] = {word}({", ".join(values)}); }}"""
    k, n, found = gpuad.kernel(text, "f"), len(columns[0]), []
    for along in range(len(columns)):
        pairs = [*(Duplicated(c, np.zeros_like(c)) for c in columns), Duplicated(np.zeros(n, dtype), np.ones(n, dtype))]
        dots = [Duplicated(np.full(n, i == along, dtype), np.zeros(n, dtype)) for i in range(len(columns))]
        with pipeline.executor_for_tests(EXECUTORS["reference"]), np.errstate(all="ignore"):
            gpuad.hvp(k, 1, n, tuple(pairs), (*dots, Duplicated(np.zeros(n, dtype), np.zeros(n, dtype))))
        found.append([d.shadow for d in dots])
    return found


def derivative(partial: Callable[..., Any], axis: int) -> Callable[..., Any]:
    def slope(*at: Any) -> Any:
        ends = [partial(*(x * (1 + s * STEP) if i == axis else x for i, x in enumerate(at))) for s in (1, -1)]
        return (ends[0] - ends[1]) / (2 * STEP * at[axis])

    return slope


@pytest.mark.one_of(9)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [n for n in EXACT if n not in STEPS])
def test_digits_of_second_derivatives(name: str, dtype: Any) -> None:
    case, rng = EXACT[name], np.random.default_rng(3)
    columns = [rng.permutation(arguments(case, dtype, rng)) for _ in case.partials]
    columns = [c[(abs(c) >= LEAST) & ~((c <= 0) & (c == np.rint(c)))] for c in columns]  # at whole numbers the gamma function has poles
    count = min(map(len, columns))
    columns = [c[:count] for c in columns]
    info, bound = np.finfo(dtype), BEYOND.get(name, BOUND * case.ulps / 8)
    points = [[mp.mpf(float(c[k])) for c in columns] for k in range(count)]
    for along, row in enumerate(curvatures(name, columns)):
        for partial, got in zip(case.partials, row, strict=True):
            exact = CLOSED.get(name, derivative(partial, along))
            with mp.workdps(50 if name in CLOSED else 120):
                errors = [error(exact, at, float(g), info) for at, g in zip(points, got, strict=True)]
            worst = max(range(count), key=errors.__getitem__)
            at = [c[worst] for c in columns]
            assert errors[worst] <= bound, f"{name} at {at}: {got[worst]}, {float(exact(*points[worst]))}, {float(errors[worst]):.3g}"


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("expression", "x", "curvature"),
    [
        ("hypot(x[i], 1.0)", 1e9, 1e-27),
        ("hypot(1e-12, x[i])", -3.0, 1e-24 / 27),
        ("hypot(x[i], 1e-200)", 1e-200, 2**-1.5 * 1e200),
        ("hypot(x[i], 1e-200)", 1e200, 0.0),
        ("hypot(x[i], 0.0)", -5.0, 0.0),
        ("hypot(x[i], 0.0)", 0.0, 0.0),
        ("hypot(x[i], 2.0 * x[i])", 3.0, 0.0),
        ("sqrt(hypot(x[i], 1.0))", 1e9, -0.25 * 1e9**-1.5),
        ("atan2(x[i], 2.0 * x[i])", 3.0, 0.0),
        ("atan2(x[i], 2.0 * x[i])", 1e-150, 0.0),
    ],
)
def test_curvatures_of_two_arguments(executor: str, expression: str, x: float, curvature: float) -> None:
    text = f'extern "C" __global__ void f(const double* x, double* y) {{ int i = threadIdx.x; y[i] = {expression}; }}'
    X, Y, X_dot, Y_dot = (Duplicated(np.array([v]), np.array([d])) for v, d in ((x, 0.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0)))
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        gpuad.hvp(gpuad.kernel(text, "f"), 1, 1, (X, Y), (X_dot, Y_dot))
    np.testing.assert_allclose(X_dot.shadow, curvature, rtol=1e-13, atol=1e-15 / abs(x) if x and not curvature else 0.0)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_exponent_of_zero(executor: str) -> None:
    """The slope in the base is 0 there by convention, its own slope in the exponent is 1 / x: along both arguments the same."""
    k = gpuad.kernel('extern "C" __global__ void f(const double* x, const double* y, double* z) { *z = pow(*x, *y); }', "f")
    for x, y, expected in ((2.0, 0.0, 0.5), (0.5, -0.0, 2.0), (1e-300, 0.0, 1e300), (0.0, 0.0, 0.0)):
        for along in (0, 1):
            pairs = [Duplicated(np.array([v]), np.zeros(1)) for v in (x, y, 0.0)]
            pairs[2].shadow[...] = 1.0
            dots = [Duplicated(np.array([float(i == along)]), np.zeros(1)) for i in range(3)]
            with pipeline.executor_for_tests(EXECUTORS[executor]):
                gpuad.hvp(k, 1, 1, pairs, dots)
            assert np.isclose(dots[1 - along].shadow[0], expected)
            assert pairs[0].shadow[0] == 0.0

"""How many digits of second derivatives are right, of functions in the table and both types, as `test_derivatives_digits` says of
the first: in units of rounding times what the second derivative is conditioned by, with the same arguments (tiny, huge, near special
points)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS
from test_derivatives_digits import EXACT, arguments, error, mp

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.ir.functions import FUNCTIONS

BOUND = 32.0  # four times that of a first derivative: two terms of two factors each
STEP = mp.mpf(10) ** -30  # relative; with 120 digits, arguments of 1e-25 and more leave 35 of a curvature that vanishes with them
LEAST = 1e-25

BEYOND = {"erfcx": 600.0}  # below 5 the first derivative is a difference, whose own derivative loses two digits more
# hypot is left out: its curvature along the longer argument, `(1 - (x / r)^2) / r`, is lost where the other is less than 1e-4 (1e-8) of it
OTHERS = {
    "hypot", "fmod", "remainder", "erf", "erfc", "erfinv", "erfcinv", "normcdf", "normcdfinv", "j0", "jn", "y0", "y1", "yn",
    "cyl_bessel_i0", "lgamma", "tgamma",
}  # of fmod and kin slopes are constant; the rest of these are not compared, as differences with 120 digits take long  # fmt: skip


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [n for n in EXACT if n not in OTHERS])
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
            exact = derivative(partial, along)
            with mp.workdps(120):
                errors = [error(exact, at, float(g), info) for at, g in zip(points, got, strict=True)]
            worst = max(range(count), key=errors.__getitem__)
            at = [c[worst] for c in columns]
            assert errors[worst] <= bound, f"{name} at {at}: {got[worst]}, {float(exact(*points[worst]))}, {float(errors[worst]):.3g}"

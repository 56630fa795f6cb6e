"""Derivatives in both modes and second derivatives of values that an exponential in them, which overflows or nearly does, leaves finite:
functions that decay like a power, and what stands in denominators. Witness: numerical derivatives with 400 digits.

Where the exponential has overflowed so far that the value itself is exactly 0 (or what the other argument alone makes of it), so are the
derivatives. Else they agree to the digits that a rounded argument of the exponential leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated, api

mp = mpmath.mp.clone()
mp.dps = 400
Function = Callable[[Any, Any], Any]

POINTS = {"float": [1.0, 30.0, 43.5, 60.0, 80.0, 100.0, 200.0], "double": [1.0, 200.0, 345.0, 600.0, 720.0, 1600.0]}
TOLERANCES = {"float": 1e-4, "double": 1e-10}  # an argument of 100 with 24 digits, of 720 with 53, and some roundings more
OF_TWO: dict[str, tuple[str, Function]] = {
    "inverse of a norm": ("rhypot(exp(x), y)", lambda x, y: 1 / mp.hypot(mp.exp(x), y)),
    "quotient by a norm": ("1 / hypot(exp(x), y)", lambda x, y: 1 / mp.hypot(mp.exp(x), y)),
    "angle": ("atan2(y, exp(x))", lambda x, y: mp.atan2(y, mp.exp(x))),
    "angle from the other axis": ("atan2(exp(x), y)", lambda x, y: mp.atan2(mp.exp(x), y)),
    "angle of one argument": ("atan(exp(x) * y)", lambda x, y: mp.atan(mp.exp(x) * y)),
    "power of an exponential": ("pow(1 + exp(x), -y)", lambda x, y: (1 + mp.exp(x)) ** -y),
    "exponential as exponent": ("pow(y / 4, exp(x))", lambda x, y: (y / 4) ** mp.exp(x)),
    "Hill function": ("1 / (1 + pow(exp(x), y))", lambda x, y: 1 / (1 + mp.exp(x * y))),
    "remainder": ("fmod(y, exp(x))", lambda x, y: y),
    "nearest remainder": ("remainder(y, exp(x))", lambda x, y: y - mp.nint(y * mp.exp(-x)) * mp.exp(x)),
    "fma in a denominator": ("1 / fma(y, exp(x), (real)1)", lambda x, y: 1 / (1 + y * mp.exp(x))),
}
OF_ONE: dict[str, tuple[str, Function]] = {
    "root": ("rsqrt(1 + exp(x))", lambda x, y: 1 / mp.sqrt(1 + mp.exp(x))),
    "cube root": ("rcbrt(1 + exp(x))", lambda x, y: 1 / mp.cbrt(1 + mp.exp(x))),
    "quotient by a root": ("1 / sqrt(1 + exp(x))", lambda x, y: 1 / mp.sqrt(1 + mp.exp(x))),
    "power": ("pow(exp(x), (real)-0.5)", lambda x, y: mp.exp(-x / 2)),
    "quotient by a power": ("1 / pow(1 + exp(x), (real)3)", lambda x, y: (1 + mp.exp(x)) ** -3),
    "fma": ("1 / fma(exp(x), (real)2, (real)1)", lambda x, y: 1 / (1 + 2 * mp.exp(x))),
    "double in between": ("(real)(1.0 / (1.0 + exp(x)))", lambda x, y: 1 / (1 + mp.exp(x))),
    "modified Bessel function": ("1 / cyl_bessel_i0(x)", lambda x, y: 1 / mp.besseli(0, x)),
    "the other one": ("1 / cyl_bessel_i1(x)", lambda x, y: 1 / mp.besseli(1, x)),
}
OF_FLOATS: dict[str, tuple[str, Function]] = {
    "fast division": ("__fdividef(1.f, 1.f + __expf(x))", lambda x, y: 1 / (1 + mp.exp(x))),
    "rounded reciprocal": ("__frcp_rn(1.f + expf(x))", lambda x, y: 1 / (1 + mp.exp(x))),
    "rounded quotient": ("__fdiv_rn(y, __fmaf_rn(expf(x), 2.f, 1.f))", lambda x, y: y / (1 + 2 * mp.exp(x))),
    "rounded root": ("__frsqrt_rn(1.f + expf(x))", lambda x, y: 1 / mp.sqrt(1 + mp.exp(x))),
    "fast power": ("__powf(1.f + expf(x), -2.f)", lambda x, y: (1 + mp.exp(x)) ** -2),
    "rounded product": ("1.f / __fmul_rn(expf(x), y)", lambda x, y: mp.exp(-x) / y),
    "an exponential of floats": ("1.0 / (1.0 + expf(x))", lambda x, y: 1 / (1 + mp.exp(x))),
}
CASES = [(real, *case) for table in (OF_ONE, OF_TWO) for case in table.values() for real in POINTS] + [
    ("float", *case) for case in OF_FLOATS.values()
]


def kernel(expression: str, real: str) -> api.Kernel:
    head = f'typedef {real} real; extern "C" __global__ void k(const real* xs, const real* ys, real* out) {{ int i = threadIdx.x; '
    return compiled(head + f"real x = xs[i], y = ys[i]; out[i] = {expression}; }}", "k")


def derivatives(k: api.Kernel, x: Any, y: Any) -> dict[str, Any]:
    """Value, first derivatives in both modes ('r' and 'f') and second derivatives ('h'), for each argument."""
    n, dtype = len(x), x.dtype
    found: dict[str, Any] = {}

    def pairs(*shadows: Any) -> tuple[Duplicated, ...]:
        return tuple(Duplicated(a, s) for a, s in zip((x, y, np.zeros(n, dtype)), shadows, strict=True))

    def zeros() -> Any:
        return np.zeros(n, dtype)

    ones = np.ones(n, dtype)
    reverse = pairs(zeros(), zeros(), ones.copy())
    gpuad.autodiff(k, 1, n, reverse)
    found.update(value=reverse[2].primal, rx=reverse[0].shadow, ry=reverse[1].shadow)
    for axis, name in enumerate("xy"):
        forward = pairs(*(ones if axis == a else zeros() for a in range(2)), zeros())
        gpuad.autodiff(k, 1, n, forward, mode=gpuad.Forward)
        found[f"f{name}"] = forward[2].shadow
        tangents = [Duplicated(ones if axis == a else zeros(), zeros()) for a in range(2)]
        gpuad.hvp(k, 1, n, pairs(zeros(), zeros(), ones.copy()), (*tangents, Duplicated(zeros(), zeros())))
        found[f"h{name}x"], found[f"h{name}y"] = (t.shadow for t in tangents)
    return found


def exact(function: Function, at: tuple[float, float]) -> dict[str, Any]:
    """The same in high precision, by differences."""
    x, y = map(mp.mpf, at)
    h = mp.mpf(10) ** -120
    v = {(i, j): function(x + i * h, y + j * h) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    dx, dy = (v[1, 0] - v[-1, 0]) / (2 * h), (v[0, 1] - v[0, -1]) / (2 * h)
    both = (v[1, 1] - v[1, -1] - v[-1, 1] + v[-1, -1]) / (4 * h * h)
    dxx, dyy = (v[1, 0] - 2 * v[0, 0] + v[-1, 0]) / h**2, (v[0, 1] - 2 * v[0, 0] + v[0, -1]) / h**2
    found = {"value": v[0, 0], "rx": dx, "fx": dx, "ry": dy, "fy": dy, "hxx": dxx, "hxy": both, "hyx": both, "hyy": dyy}
    return {name: number if abs(number) > mp.mpf(10) ** -140 else mp.zero for name, number in found.items()}


@pytest.mark.one_of(6)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("real", "expression", "function"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_the_limit(executor: str, real: str, expression: str, function: Function) -> None:
    dtype, tolerance = np.dtype(np.float32 if real == "float" else np.float64), TOLERANCES[real]
    lost = 8 * float(np.finfo(dtype).tiny) if real == "float" else 1e-130  # differences with 400 digits find no less
    x, y = (a.ravel() for a in np.meshgrid(np.array(POINTS[real], dtype), np.array([0.75, 1.5], dtype)))
    with running(executor):
        found = derivatives(kernel(expression, real), x, y)
    assert sum(map(np.size, found.values())) == 9 * len(x)
    for i, at in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        wanted = exact(function, at)
        value = found["value"][i]
        overflowed = value == 0 != wanted["value"] or abs(value - wanted["value"]) > tolerance * abs(wanted["value"]) + lost
        for name, numbers in found.items():
            got = float(numbers[i])
            if overflowed:  # the value is what the other argument leaves of it
                assert got == 0, (name, at, got)
            else:
                assert np.isfinite(got), (name, at, got)
                assert abs(got - wanted[name]) <= tolerance * abs(wanted[name]) + lost, (name, at, got, float(wanted[name]))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("x", [2.0, 20.0, 100.0, 170.0, 171.0])
def test_a_quotient_by_the_gamma_function(executor: str, x: float) -> None:
    """To where the derivatives of the gamma function leave the range of the type before the function does."""
    k = compiled('extern "C" __global__ void k(const double* x, const double* y, double* r) { r[0] = 1 / tgamma(x[0]); }', "k")
    with running(executor):
        found = derivatives(k, np.array([x]), np.ones(1))
    slope, curve = -mp.digamma(x) * mp.rgamma(x), (mp.digamma(x) ** 2 - mp.psi(1, x)) * mp.rgamma(x)
    np.testing.assert_allclose([found["rx"][0], found["fx"][0], found["hxx"][0]], [*map(float, (slope, slope, curve))], 1e-12)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("real", "x"), [("float", 1e-30), ("float", 1e-3), ("float", 3.0), ("double", 1e-200), ("double", 0.5)])
def test_a_power_of_itself(executor: str, real: str, x: float) -> None:
    at = np.array([x], np.float32 if real == "float" else np.float64)
    with running(executor):
        found = derivatives(kernel("pow(x, x)", real), at, np.ones_like(at))
    exact_x = mp.mpf(float(at[0]))
    slope = exact_x**exact_x * (1 + mp.log(exact_x))
    curve = exact_x**exact_x * ((1 + mp.log(exact_x)) ** 2 + 1 / exact_x)
    got = [found[name][0] for name in ("rx", "fx", "hxx")]
    np.testing.assert_allclose(got, [*map(float, (slope, slope, curve))], 2e-6 if real == "float" else 1e-14)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("x", [1.0, 44.0, 44.74, 44.9, 45.1, 80.0, 100.0])
def test_the_curvature_of_a_tangent_that_is_one(executor: str, x: float) -> None:
    """The square of the hyperbolic cosine leaves the range of a float on the way."""
    at = np.array([x], np.float32)
    with running(executor):
        found = derivatives(kernel("tanh(x)", "float"), at, np.ones_like(at))
    exact_x = mp.mpf(float(at[0]))
    wanted = float(-2 * mp.tanh(exact_x) * mp.sech(exact_x) ** 2)
    np.testing.assert_allclose(found["hxx"], wanted, 1e-5, 1e-37)

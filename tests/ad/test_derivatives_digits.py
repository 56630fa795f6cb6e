"""How many digits of each partial derivative are right: the table against formulas of its own at 50 digits, over wide random arguments.

A derivative can be no better than what a rounded argument makes of it, so an error is counted in units of the last place times what the
derivative is conditioned by: `1 + |x f''(x) / f'(x)|`. A form that cancels is off by far more than that somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
from launch_tools import EXECUTORS

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.ad.derivatives import RULES
from gpuad.ir.functions import FUNCTIONS
from gpuad.runtime.reference.special import digamma, trigamma

mp = mpmath.mp.clone()
mp.dps = 50
DERIVATIVE_OF_ERF = 2 / mp.sqrt(mp.pi)


@dataclass(frozen=True)
class Exact:
    """The partial derivatives of a function, and where its arguments may lie. `near`: points that arguments come close to. `most`:
    arguments of greater size are left out. `ulps`: how far a partial may be off, in the unit above: more than 8 where it hangs on the
    rounded result itself, as the exponential of its square far out in a tail, or on a difference from which a few digits are lost.
    `whole`: what an argument is that is an integer."""

    partials: tuple[Callable[..., Any], ...]
    low: float = -np.inf
    high: float = np.inf
    near: tuple[float, ...] = (0.0,)
    most: float = np.inf
    ulps: float = 8.0
    whole: str | None = None


def one(partial: Callable[..., Any], **where: Any) -> Exact:
    return Exact((partial,), **where)


def normal(x: Any) -> Any:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def percentage_point(tail: Any) -> Any:
    """The x beyond which a share `tail` of the normal distribution lies: Newton's method on the logarithm, which is nearly a parabola."""
    if tail > 0.5:
        return -percentage_point(1 - tail)
    x = mp.sqrt(-2 * mp.log(2 * tail)) if tail < 0.5 else mp.mpf(0)
    for _ in range(100):
        share = mp.erfc(x / mp.sqrt(2)) / 2
        step = (mp.log(share) - mp.log(tail)) * share / normal(x)
        x += step
        if abs(step) <= mp.mpf(10) ** -45 * (1 + abs(x)):
            break
    return x


EXACT: dict[str, Exact] = {
    "sqrt": one(lambda x: 1 / (2 * mp.sqrt(x)), low=0),
    "rsqrt": one(lambda x: -1 / (2 * x * mp.sqrt(x)), low=0),
    "cbrt": one(lambda x: 1 / (3 * mp.cbrt(abs(x)) ** 2)),
    "rcbrt": one(lambda x: -1 / (3 * mp.cbrt(abs(x)) * abs(x))),
    "exp": one(mp.exp, most=1000),
    "exp2": one(lambda x: mp.log(2) * mp.mpf(2) ** x, most=1200),
    "exp10": one(lambda x: mp.log(10) * mp.mpf(10) ** x, most=400),
    "expm1": one(mp.exp, most=1000),
    "log": one(lambda x: 1 / x, low=0),
    "log2": one(lambda x: 1 / (x * mp.log(2)), low=0),
    "log10": one(lambda x: 1 / (x * mp.log(10)), low=0),
    "log1p": one(lambda x: 1 / (1 + x), low=-1, near=(0.0, -1.0)),
    "sin": one(mp.cos, near=(0.0, np.pi / 2), most=1e5),
    "cos": one(lambda x: -mp.sin(x), near=(0.0, np.pi), most=1e5),
    "tan": one(lambda x: mp.sec(x) ** 2, near=(0.0, np.pi / 2), most=1e5),
    "sinpi": one(lambda x: mp.pi * mp.cospi(x), near=(0.0, 0.5, 1.0), most=1e5),
    "cospi": one(lambda x: -mp.pi * mp.sinpi(x), near=(0.0, 0.5, 1.0), most=1e5),
    "asin": one(lambda x: 1 / mp.sqrt((1 - x) * (1 + x)), low=-1, high=1, near=(0.0, 1.0, -1.0)),
    "acos": one(lambda x: -1 / mp.sqrt((1 - x) * (1 + x)), low=-1, high=1, near=(0.0, 1.0, -1.0)),
    "atan": one(lambda x: 1 / (1 + x * x)),
    "sinh": one(mp.cosh, most=1000),
    "cosh": one(mp.sinh, most=1000),
    "tanh": one(lambda x: mp.sech(x) ** 2, most=1000),
    "asinh": one(lambda x: 1 / mp.sqrt(1 + x * x)),
    "acosh": one(lambda x: 1 / mp.sqrt((x - 1) * (x + 1)), low=1, near=(1.0,)),
    "atanh": one(lambda x: 1 / ((1 - x) * (1 + x)), low=-1, high=1, near=(0.0, 1.0, -1.0)),
    "erf": one(lambda x: DERIVATIVE_OF_ERF * mp.exp(-x * x), most=40),
    "erfc": one(lambda x: -DERIVATIVE_OF_ERF * mp.exp(-x * x), most=40),
    "erfinv": one(lambda x: mp.exp(percentage_point((1 - abs(x)) / 2) ** 2 / 2) / DERIVATIVE_OF_ERF, low=-1, high=1, near=(0.0, 1.0)),
    "erfcinv": one(lambda x: -mp.exp(percentage_point(x / 2) ** 2 / 2) / DERIVATIVE_OF_ERF, low=0, high=2, near=(0.0, 1.0, 2.0), ulps=1000),
    "normcdfinv": one(lambda x: 1 / normal(percentage_point(x)), low=0, high=1, near=(0.0, 0.5, 1.0), ulps=1000),
    "normcdf": one(normal, most=40),
    "erfcx": one(lambda x: 2 * x * mp.exp(x * x) * mp.erfc(x) - DERIVATIVE_OF_ERF, low=-25, most=1e4, ulps=20),
    "j0": one(lambda x: -mp.besselj(1, x), most=30),
    "j1": one(lambda x: (mp.besselj(0, x) - mp.besselj(2, x)) / 2, most=30),
    "y0": one(lambda x: -mp.bessely(1, x), low=0, most=30),
    "y1": one(lambda x: (mp.bessely(0, x) - mp.bessely(2, x)) / 2, low=0, most=30),
    "cyl_bessel_i0": one(lambda x: mp.besseli(1, x), most=700),
    "cyl_bessel_i1": one(lambda x: (mp.besseli(0, x) + mp.besseli(2, x)) / 2, most=700),
    "jn": one(lambda x: (mp.besselj(2, x) - mp.besselj(4, x)) / 2, most=30, whole="3"),
    "yn": one(lambda x: (mp.bessely(2, x) - mp.bessely(4, x)) / 2, low=0, most=30, whole="3"),
    "lgamma": one(mp.digamma, near=(0.0, -1.0, -3.0, 1.0), most=1e5),
    "tgamma": one(lambda x: mp.gamma(x) * mp.digamma(x), near=(0.0, -1.0, -3.0, 1.0), most=100),
    "hypot": Exact((lambda x, y: x / mp.hypot(x, y), lambda x, y: y / mp.hypot(x, y))),
    "rhypot": Exact((lambda x, y: -x / mp.hypot(x, y) ** 3, lambda x, y: -y / mp.hypot(x, y) ** 3), most=1e80),
    "atan2": Exact((lambda y, x: x / (x * x + y * y), lambda y, x: -y / (x * x + y * y)), most=1e307),
    "pow": Exact((lambda x, y: y * x ** (y - 1), lambda x, y: x**y * mp.log(x)), low=0, near=(0.0, 1.0)),
    "fmod": Exact((lambda x, y: mp.mpf(1), lambda x, y: -truncated(x, y))),
    "remainder": Exact((lambda x, y: mp.mpf(1), lambda x, y: -nearest(x, y))),
}  # fmt: skip


PLAIN = (
    "fabs",
    "fmin",
    "fmax",
    "fdim",
    "copysign",
    "fma",
    "ldexp",
    "nextafter",
    "floor",
    "ceil",
    "trunc",
    "round",
    "rint",
    "nearbyint",
    "logb",
    "gpuad_half",
    "gpuad_bfloat16",
    "__dadd_rn",
    "__dsub_rn",
    "__dmul_rn",
    "__ddiv_rn",
    "__dsqrt_rn",
    "__drcp_rn",
    "__fma_rn",
    "gpuad_digamma",
)  # nothing that could cancel
COUNT = 16


def quotient(x: Any, y: Any) -> Any:
    """x / y without rounding: numbers of the machine differ by powers of 2 up to 2^2100."""
    with mp.workprec(4400):
        return x / y


def truncated(x: Any, y: Any) -> Any:
    with mp.workprec(4400):
        n = mp.floor(abs(quotient(x, y)))
    return n * mp.sign(x) * mp.sign(y)


def nearest(x: Any, y: Any) -> Any:
    with mp.workprec(4400):
        return mp.nint(quotient(x, y))


def arguments(exact: Exact, dtype: Any, rng: np.random.Generator) -> Any:
    """Numbers of a type where the function is defined: of all sizes, of everyday size, and close to its points."""
    info = np.finfo(dtype)
    most = min(exact.most, float(info.max) / 4)
    sizes = np.exp(rng.uniform(np.log(float(info.tiny) * 4), np.log(most), COUNT)) * rng.choice([-1, 1], COUNT)
    everyday = rng.uniform(-10, 10, 2 * COUNT)
    close = np.concatenate([p + rng.choice([-1, 1], COUNT) * 10.0 ** rng.uniform(-17, 0, COUNT) for p in exact.near])
    found = np.concatenate([sizes, everyday, close]).astype(dtype)
    return found[(found > exact.low) & (found < exact.high) & (abs(found) <= most) & (found != 0)]


def conditioned(partial: Callable[..., Any], at: list[Any], value: Any) -> Any:
    """By how much relative changes of the arguments change a partial, relatively."""
    step = mp.mpf(10) ** -24
    moved = [[x * (1 + s * step * (i == k)) for k, x in enumerate(at)] for i in range(len(at)) for s in (1, -1)]
    ends = [partial(*m) for m in moved]
    return sum(abs(a - b) for a, b in zip(ends[::2], ends[1::2], strict=True)) / (2 * step * abs(value))


def gradients(name: str, columns: Sequence[Any]) -> list[Any]:
    function, single = FUNCTIONS[name], columns[0].dtype == np.float32
    kind, word = ("float", function.single) if single else ("double", function.double)
    parameters = ", ".join(f"const {kind}* x{i}" for i in range(len(columns)))
    values = [f"x{i}[i]" for i in range(len(columns))]
    if function.whole is not None:
        values.insert(function.whole, str(EXACT[name].whole))
    text = f"""extern "C" __global__ void f({parameters}, {kind}* y, int n)
    {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = {word}({", ".join(values)}); }}"""
    pairs = [Duplicated(a, np.zeros_like(a)) for a in columns]
    count, out = len(columns[0]), np.zeros_like(columns[0])
    with pipeline.executor_for_tests(EXECUTORS["reference"]), np.errstate(all="ignore"):
        gpuad.autodiff(gpuad.kernel(text, "f"), -(-count // 64), 64, (*pairs, Duplicated(out, np.ones_like(out)), count))
    return [p.shadow for p in pairs]


def error(partial: Callable[..., Any], at: list[Any], got: float, info: Any) -> Any:
    """How far a partial is off, in the unit above; nothing where it is not a normal number of the type."""
    try:
        value = partial(*at)
        if not info.tiny < abs(value) < info.max:
            return mp.zero
        return abs(got - value) / abs(value) / float(info.eps) / (1 + conditioned(partial, at, value)) if np.isfinite(got) else mp.inf
    except ValueError:  # a pole
        return mp.zero


@pytest.mark.one_of(4)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", EXACT)
def test_digits(name: str, dtype: Any) -> None:
    exact, rng = EXACT[name], np.random.default_rng(3)
    columns = [rng.permutation(arguments(exact, dtype, rng)) for _ in exact.partials]
    count = min(map(len, columns))
    columns = [c[:count] for c in columns]
    for partial, got in zip(exact.partials, gradients(name, columns), strict=True):
        points = [[mp.mpf(float(c[k])) for c in columns] for k in range(count)]
        errors = [error(partial, at, float(g), np.finfo(dtype)) for at, g in zip(points, got, strict=True)]
        worst = max(range(count), key=errors.__getitem__)
        assert errors[worst] <= exact.ulps, f"{name} at {[c[worst] for c in columns]}: {got[worst]}, off by {float(errors[worst]):.3g}"


def test_every_function_with_a_derivative_is_looked_at() -> None:
    wanted = {n for n, f in FUNCTIONS.items() if f.domain == "float" and f.double and n in RULES}
    assert wanted - set(EXACT) - set(PLAIN) == set()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("expression", "x", "slope"),
    [
        ("fmod(1.0, x[i])", 0.1, -9.0),  # 1 / 0.1 is rounded to 10
        ("remainder(1.0, x[i])", 0.18181818181818182, -5.0),  # 1 / x is rounded to 5.5
        ("expm1(x[i])", -40.0, np.exp(-40.0)),
        ("tanh(x[i])", 20.0, 4 * np.exp(-40.0)),
        ("erfcx(x[i])", 7.0, -0.011178406487371505),
        ("lgamma(x[i])", -1e-20, 1e20),
    ],
)
def test_digits_that_were_lost(executor: str, expression: str, x: float, slope: float) -> None:
    text = f'extern "C" __global__ void f(const double* x, double* y) {{ int i = threadIdx.x; y[i] = {expression}; }}'
    X, Y = Duplicated(np.array([x]), np.zeros(1)), Duplicated(np.zeros(1), np.ones(1))
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        gpuad.autodiff(gpuad.kernel(text, "f"), 1, 1, (X, Y))
    np.testing.assert_allclose(X.shadow, slope, rtol=1e-13)


def test_digits_of_the_second_derivative_of_lgamma() -> None:
    x = np.concatenate([k + np.array([-1e-9, -1e-3, 0.25, 1e-3, 1e-9]) for k in (-4, -1, 0, 1, 20)] + [[-1e-30, 1e-30, 1e30]])
    with np.errstate(divide="ignore"):
        found = ((digamma(x), 0), (trigamma(x), 1))
    for values, order in found:
        for at, got in zip(x, values, strict=True):
            exact = mp.mpf(float(at))
            assert error(lambda t, n=order: mp.psi(n, t), [exact], float(got), np.finfo(float)) <= 20, (order, at, got)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("operation", [False, True])
def test_digits_of_the_complex_tangent_that_were_lost(executor: str, operation: bool) -> None:
    z = np.array([20 + 0.5j, -17 - 1j, 9 + 2j, -1.5 + 0.3j, 1e3 + 1j, 0.3 + 1j])
    text = """#include <cupy/complex.cuh>
    extern "C" __global__ void f(const complex<double>* z, complex<double>* y) { int i = threadIdx.x; y[i] = tanh(z[i]); }"""
    Z, Y = Duplicated(z, np.zeros_like(z)), Duplicated(np.zeros_like(z), np.ones_like(z))
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        if operation:
            with gpuad.Tape() as tape:
                gpuad.ops.tanh(Z, out=Y)
            tape.reverse({Y: np.ones_like(z)})
        else:
            gpuad.autodiff(gpuad.kernel(text, "f"), 1, len(z), (Z, Y))
    exact = [complex(mp.sech(mp.mpc(complex(x))) ** 2).conjugate() for x in z]
    np.testing.assert_allclose(Z.shadow, exact, rtol=1e-13)
    np.testing.assert_allclose(Y.primal, np.tanh(z), rtol=1e-14)

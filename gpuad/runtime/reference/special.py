"""Mathematical functions that NumPy lacks, on float64 arrays: the C library's where it has them, else computed here.

In and out: float64 arrays, broadcast to one shape; outside of its domain a function gives NaN or an infinity. Computed here are, among
others, modified Bessel functions by series (Abramowitz and Stegun 9.6.10, 9.7.1), the inverse normal distribution by Wichura's algorithm AS
241, digamma by recurrence up to 12 and the asymptotic series (6.3.18 there), reflected for arguments up to 0, and trigamma by the
derivative of that. The C library is called for one element at a time."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Callable
from functools import cache

import numpy as np

from ...ir.dtypes import Array

_SQRT2 = 1.4142135623730951
_SQRT_PI = 1.7724538509055160273


@cache
def _library() -> ctypes.CDLL:
    if sys.platform == "win32":
        return ctypes.CDLL("ucrtbase")
    process = ctypes.CDLL(None)  # Python itself is linked with it nearly everywhere
    return process if hasattr(process, "erf") else ctypes.CDLL(ctypes.util.find_library("m"))


@cache
def libm(name: str, arity: int = 1) -> Callable[..., Array]:
    """The C library's double function of this name, element by element."""
    bessel = sys.platform == "win32" and name in ("j0", "j1", "y0", "y1")
    function = getattr(_library(), "_" + name if bessel else name)
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_double] * arity

    def apply(*arguments: Array) -> Array:
        columns = [a.ravel().tolist() for a in np.broadcast_arrays(*arguments)]
        shape = np.broadcast_shapes(*(a.shape for a in arguments))
        return np.fromiter(map(function, *columns), np.float64, len(columns[0])).reshape(shape)

    return apply


def round_half_away(x: Array) -> Array:
    """C's `round`: halves go away from zero."""
    whole = np.trunc(x)
    step = np.copysign((np.abs(x - whole) >= 0.5).astype(np.float64), x)
    return np.asarray(np.copysign(whole + step, x))


def logb(x: Array) -> Array:
    """The exponent of x, as a float."""
    exponent = np.frexp(x)[1] - 1.0
    return np.where(x == 0, -np.inf, np.where(np.isfinite(x), exponent, np.abs(x)))


def sinpi(x: Array) -> Array:
    """sin(pi x), exact at multiples of a half."""
    quadrant, rest = _quarters(x)
    return np.choose(quadrant, [np.sin(rest), np.cos(rest), -np.sin(rest), -np.cos(rest)])


def cospi(x: Array) -> Array:
    """cos(pi x), exact at multiples of a half."""
    quadrant, rest = _quarters(x)
    return np.choose(quadrant, [np.cos(rest), -np.sin(rest), -np.cos(rest), np.sin(rest)])


def _quarters(x: Array) -> tuple[Array, Array]:
    """x = quadrant/2 + rest/pi up to a multiple of 2, with |rest| <= pi/4."""
    reduced = np.fmod(x, 2.0)
    halves = np.rint(2 * reduced)
    quadrant = np.where(np.isfinite(halves), halves, 0).astype(np.int64) % 4
    return quadrant, np.pi * (reduced - halves / 2)


def normcdf(x: Array) -> Array:
    """The standard normal distribution function."""
    return 0.5 * libm("erfc")(-x / _SQRT2)


def erfcx(x: Array) -> Array:
    """exp(x^2) erfc(x): directly below 10, by its asymptotic series beyond."""
    square = x * x
    upper = _leading(x)
    rest = (upper * upper - square) + 2 * upper * (x - upper) + (x - upper) ** 2  # square + rest is x^2 to twice the precision
    direct = np.exp(square) * (1 + np.where(np.isfinite(rest), rest, 0)) * libm("erfc")(x)
    total = np.ones_like(x)
    for n in range(16, 0, -1):
        total = 1 - total * (2 * n - 1) / (2 * square)
    return np.where(x < 10, direct, total / (x * _SQRT_PI))


def _leading(x: Array) -> Array:
    """The upper 26 bits of the significand."""
    return ((x.view(np.int64) >> 27) << 27).view(np.float64) if x.flags.c_contiguous else _leading(np.ascontiguousarray(x))


def fma(a: Array, b: Array, c: Array) -> Array:
    """a b + c with one rounding."""
    return libm("fma", 3)(a, b, c)


# --- Bessel functions ----------------------------------------------------------------------------------------------------------------

_SERIES_END = (
    20.0  # below it the power series, whose terms are all positive, above the asymptotic one (Abramowitz and Stegun 9.6.10, 9.7.1)
)


def cyl_bessel_i0(x: Array) -> Array:
    """The modified Bessel function of order 0."""
    return _modified_bessel(x, 0)


def cyl_bessel_i1(x: Array) -> Array:
    """The modified Bessel function of order 1."""
    return _modified_bessel(x, 1)


def _modified_bessel(x: Array, order: int) -> Array:
    size = np.abs(x)
    quarter = np.minimum(size, _SERIES_END) ** 2 / 4
    near = np.zeros_like(size)
    for k in range(60, 0, -1):
        near = (1 + near) * quarter / (k * (k + order))
    near = (1 + near) * (size / 2) ** order
    far = np.zeros_like(size)
    for k in range(30, 0, -1):
        far = (1 + far) * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k * np.maximum(size, _SERIES_END))
    root = np.exp(size / 2)  # twice, since the exponential of the whole leaves the range before the function does
    far = root * ((1 + far) / np.sqrt(2 * np.pi * size)) * root
    return np.where(size < _SERIES_END, near, far) * (np.sign(x) if order else 1)


def jn(order: Array, x: Array) -> Array:
    """The Bessel function of the first kind; NaN for a negative order, as in CUDA."""
    return np.where(order < 0, np.nan, _of_order("jn")(order, x))


def yn(order: Array, x: Array) -> Array:
    """The Bessel function of the second kind; NaN for a negative order, as in CUDA."""
    return np.where(order < 0, np.nan, _of_order("yn")(order, x))


@cache
def _of_order(name: str) -> Callable[[Array, Array], Array]:
    function = getattr(_library(), "_" + name if sys.platform == "win32" else name)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_double]
    return np.vectorize(lambda order, x: function(int(order), float(x)), otypes=[np.float64])


# --- inverse of the normal distribution ----------------------------------------------------------------------------------------------

# Wichura, M. J. (1988), Algorithm AS241: The Percentage Points of the Normal Distribution, Applied Statistics 37 (3), 477-484;
# numerator and denominator near the middle, in the tails and far out.
_MIDDLE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def erfinv(x: Array) -> Array:
    """The inverse of erf."""
    return _percentage_point(x / 2, (1 - np.abs(x)) / 2) / _SQRT2


def erfcinv(x: Array) -> Array:
    """The inverse of erfc."""
    return _percentage_point((1 - x) / 2, np.minimum(x, 2 - x) / 2) / _SQRT2


def normcdfinv(x: Array) -> Array:
    """The inverse of `normcdf`."""
    return _percentage_point(x - 0.5, np.minimum(x, 1 - x))


def _percentage_point(middle: Array, tail: Array) -> Array:
    """The percentage point of p, given as p - 1/2 and as min(p, 1 - p), each without cancellation."""
    far = np.sqrt(-np.log(tail))
    tails = np.copysign(np.where(far <= 5, _ratio(_TAIL, far - 1.6), _ratio(_FAR, far - 5)), middle)
    result = np.where(np.abs(middle) <= 0.425, middle * _ratio(_MIDDLE, 0.180625 - middle * middle), tails)
    return np.where(tail == 0, np.copysign(np.inf, middle), result)


def _ratio(table: tuple[tuple[float, ...], tuple[float, ...]], r: Array) -> Array:
    return np.polyval(table[0], r) / np.polyval(table[1], r)


# --- derivatives of the gamma function: the formulas of `codegen.spelling` ----------------------------------------------------------------


def digamma(x: Array) -> Array:
    """psi(x): NaN at 0, -1, -2, ..."""
    x = np.asarray(x, np.float64)
    negative = x <= 0
    total = np.where(negative, -np.pi / np.tan(np.pi * (x - np.rint(x))), 0.0)
    total = np.where(negative & (x == np.floor(x)), np.nan, total)
    x = np.where(negative, 1 - x, x)
    for _ in range(12):
        low = x < 12
        total, x = total - np.where(low, 1 / x, 0), np.where(low, x + 1, x)
    s = 1 / (x * x)
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12))))))
    return np.asarray(total + np.log(x) - 0.5 / x - series)


def trigamma(x: Array) -> Array:
    """psi'(x): infinite at 0, -1, -2, ..."""
    x = np.asarray(x, np.float64)
    negative = x <= 0
    sine = np.sin(np.pi * (x - np.rint(x)))
    total = np.where(negative, np.pi**2 / sine**2, 0.0)
    total = np.where(negative & (x == np.floor(x)), np.inf, total)
    sign = np.where(negative, -1.0, 1.0)
    x = np.where(negative, 1 - x, x)
    for _ in range(12):
        low = x < 12
        total, x = total + np.where(low, sign / (x * x), 0), np.where(low, x + 1, x)
    s = 1 / (x * x)
    series = s * (1 / 6 - s * (1 / 30 - s * (1 / 42 - s * (1 / 30 - s * (5 / 66 - s * (691 / 2730 - s * 7 / 6))))))
    return np.asarray(total + sign / x * (1 + 0.5 / x + series))

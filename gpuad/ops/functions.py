"""The elementwise operations under NumPy's names.

In: arrays, annotated or not, and numbers, broadcast to one shape; `out`, if it is given, has that shape. Out: `out`, or a new array of the
dtype that NumPy gives, as a pair inside of a tape if an operand carries a gradient; `fill`, `copyto` and `axpy` change an array in place.
Each calls `elementwise.apply`, which runs and records a generated kernel; where a derivative is a convention (ties, kinks, poles), the
docstring of the function states it.

Raises TypeError for what is no array, TapeError for a pair outside of a tape, ShadowError for a pair of integers, ValueError and TypeError
as NumPy does for shapes and types."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments.annotations import Active, BatchDuplicated, Duplicated
from ..arguments.arrays import namespace
from ..errors import ArgumentTypeError
from ..public_calls import named
from .elementwise import apply, are_disjoint, check_into
from .layout import array_of, primal_of
from .special import SPECIAL
from .temporaries import carried, new_array, paired
from .views import real, transpose


def fill(x: Any, value: Any) -> None:
    """Sets every element of `x`, an array of any shape, to a number; its shadow is taken."""
    array_of("fill", x)
    apply("copyto", value, out=x)


def copyto(x: Any, source: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """`x[...] = source`, broadcast to x's shape and converted to its dtype; with `where` only these elements. ValueError where shapes do
    not fit, TypeError where the rule `casting` forbids a conversion."""
    target = array_of("copyto", x)
    if isinstance(source, list | tuple) and not any(isinstance(part, Duplicated | Active) for part in source):
        source = namespace(target).asarray(source)
    if casting == "unsafe":
        source = real_part(source, target.dtype)
    elif casting != "same_kind" and hasattr(source, "dtype") and not np.can_cast(source.dtype, target.dtype, casting):
        raise ArgumentTypeError(f"copyto: cannot cast from {source.dtype} to {target.dtype} by the rule {casting!r}")
    apply("copyto", source if where is True else apply("where", where, source, x), out=x)


def assign(x: Any, source: Any) -> None:
    """`x[...] = source`, which converts whatever it is given, as NumPy's assignment does."""
    copyto(x, source, "unsafe")


def copy(x: Any, order: str = "C", subok: bool = False) -> Any:
    """A copy of an array, of its shape and dtype, as a temporary."""
    return astype(x, array_of("copy", x).dtype, order)


def astype(x: Any, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True) -> Any:
    """A copy of an array in another dtype, as a temporary; with `copy` False the array itself where it has that dtype and order. Of a pair
    as integers or bools, whose derivative is 0, a plain array. Of complex numbers as real ones the real parts, with NumPy's warning."""
    like, dtype = array_of("astype", x), np.dtype(dtype)
    if not np.can_cast(like.dtype, dtype, casting):
        raise ArgumentTypeError(f"astype: cannot cast from {like.dtype} to {dtype} by the rule {casting!r}")
    upright = order == "F" or (order in "AK" and like.flags.f_contiguous and not like.flags.c_contiguous)
    fits = order in "AK" or (like.flags.f_contiguous if upright else like.flags.c_contiguous)
    if not copy and like.dtype == dtype and fits:
        return x
    if upright and like.ndim > 1:
        return transpose(astype(transpose(x), dtype, "C"))
    if isinstance(x, Duplicated | BatchDuplicated) and dtype.kind in "biu":
        return like.astype(dtype)
    x = real_part(x, dtype)
    array = new_array(like, like.shape, dtype, active=carried((x,)))
    return apply("copyto", x, out=paired(array, (x,)))


def real_part(x: Any, dtype: Any) -> Any:
    """What of `x` a conversion to a dtype keeps: of complex numbers in a real one the real parts, with NumPy's ComplexWarning."""
    if getattr(primal_of(x), "dtype", dtype).kind != "c" or dtype.kind not in "fiu":
        return x
    warnings.warn("casting complex values to real discards the imaginary part", np.exceptions.ComplexWarning, stacklevel=2)
    return real(x)


def add(x: Any, y: Any, out: Any = None) -> Any:
    """x + y."""
    return apply("add", x, y, out=out)


def subtract(x: Any, y: Any, out: Any = None) -> Any:
    """x - y."""
    return apply("subtract", x, y, out=out)


def multiply(x: Any, y: Any, out: Any = None) -> Any:
    """x * y."""
    return apply("multiply", x, y, out=out)


def divide(x: Any, y: Any, out: Any = None) -> Any:
    """x / y."""
    return apply("divide", x, y, out=out)


true_divide = divide


def power(x: Any, y: Any, out: Any = None) -> Any:
    """x ** y; the exponents 2, 1/2 and -1 as numbers are the square, root and reciprocal."""
    simple = {2: "square", 0.5: "sqrt", -1: "reciprocal"}.get(y) if type(y) in (int, float) else None  # NumPy's numbers are strong
    return apply(simple, x, out=out) if simple else apply("power", x, y, out=out)


def maximum(x: Any, y: Any, out: Any = None) -> Any:
    """The greater element; NaN if there is one. Of equal ones the first gets the gradient."""
    return apply("maximum", x, y, out=out)


def minimum(x: Any, y: Any, out: Any = None) -> Any:
    """The lesser element; NaN if there is one. Of equal ones the first gets the gradient."""
    return apply("minimum", x, y, out=out)


def where(condition: Any, x: Any = None, y: Any = None, out: Any = None) -> Any:
    """x where the condition (an array of bool, no gradient) holds, else y; the gradient goes to the one that was taken. Of the condition
    alone the places where it holds, as `numpy.nonzero`."""
    if x is None and y is None and out is None:
        return array_of("where", condition).nonzero()
    if x is None or y is None:
        raise ArgumentTypeError("where takes x and y, or neither, and `out` only with both")
    return apply("where", condition, x, y, out=out)


def clip(x: Any, low: Any, high: Any, out: Any = None) -> Any:
    """x, not below `low` nor above `high`; None for no bound. `out` may be, or overlap, each of them."""
    if high is None:
        return positive(x, out) if low is None else maximum(x, low, out=out)
    if low is not None:
        if out is not None:  # `high` is looked at, and read, after `out` is written
            check_into("minimum", (out, high), out)
            high = are_disjoint(high, primal_of(out))
        x = maximum(x, low, out=out)
        out = x if out is None and isinstance(high, int | float) and x.dtype.kind == "f" else out
    return minimum(x, high, out=out)


def axpy(a: Any, x: Any, y: Any) -> Any:
    """y += a * x, in place, in y's dtype; `a` is a number, an Active, or an array, `x` an array, both of shapes that broadcast to y's."""
    array_of("axpy", y)
    return apply("axpy", a, x, out=y)


def positive(x: Any, out: Any = None) -> Any:
    """A copy."""
    return copy(x) if out is None else apply("copyto", x, out=out)


def negative(x: Any, out: Any = None) -> Any:
    """-x."""
    return apply("negative", x, out=out)


def absolute(x: Any, out: Any = None) -> Any:
    """|x|; its gradient at 0 is 0. Of complex numbers the magnitude, which is real."""
    return apply("absolute", x, out=out)


abs = absolute


def square(x: Any, out: Any = None) -> Any:
    """x * x."""
    return apply("square", x, out=out)


def reciprocal(x: Any, out: Any = None) -> Any:
    """1 / x."""
    return apply("reciprocal", x, out=out)


def exp(x: Any, out: Any = None) -> Any:
    """Exponential."""
    return apply("exp", x, out=out)


def expm1(x: Any, out: Any = None) -> Any:
    """exp(x) - 1."""
    return apply("expm1", x, out=out)


def log(x: Any, out: Any = None) -> Any:
    """Natural logarithm; at 0 its slope is infinite, and not formed where the seed is 0."""
    return apply("log", x, out=out)


def log1p(x: Any, out: Any = None) -> Any:
    """log(1 + x)."""
    return apply("log1p", x, out=out)


def sqrt(x: Any, out: Any = None) -> Any:
    """Square root; at 0 its slope is infinite, and not formed where the seed is 0."""
    return apply("sqrt", x, out=out)


def sin(x: Any, out: Any = None) -> Any:
    """Sine of x in radians."""
    return apply("sin", x, out=out)


def cos(x: Any, out: Any = None) -> Any:
    """Cosine of x in radians."""
    return apply("cos", x, out=out)


def tan(x: Any, out: Any = None) -> Any:
    """Tangent of x in radians."""
    return apply("tan", x, out=out)


def tanh(x: Any, out: Any = None) -> Any:
    """Hyperbolic tangent."""
    return apply("tanh", x, out=out)


def sinh(x: Any, out: Any = None) -> Any:
    """Hyperbolic sine."""
    return apply("sinh", x, out=out)


def cosh(x: Any, out: Any = None) -> Any:
    """Hyperbolic cosine."""
    return apply("cosh", x, out=out)


def exp2(x: Any, out: Any = None) -> Any:
    """2 ** x."""
    return apply("exp2", x, out=out)


def log2(x: Any, out: Any = None) -> Any:
    """Logarithm to base 2."""
    return apply("log2", x, out=out)


def log10(x: Any, out: Any = None) -> Any:
    """Logarithm to base 10."""
    return apply("log10", x, out=out)


def cbrt(x: Any, out: Any = None) -> Any:
    """Cube root."""
    return apply("cbrt", x, out=out)


def arcsin(x: Any, out: Any = None) -> Any:
    """Inverse sine, in radians, in [-pi/2, pi/2]; NaN beyond [-1, 1], where its slope is infinite at the ends."""
    return apply("arcsin", x, out=out)


def arccos(x: Any, out: Any = None) -> Any:
    """Inverse cosine, in radians, in [0, pi]; NaN beyond [-1, 1], where its slope is infinite at the ends."""
    return apply("arccos", x, out=out)


def arctan(x: Any, out: Any = None) -> Any:
    """Inverse tangent, in radians, in [-pi/2, pi/2]."""
    return apply("arctan", x, out=out)


def arcsinh(x: Any, out: Any = None) -> Any:
    """Inverse hyperbolic sine."""
    return apply("arcsinh", x, out=out)


def arccosh(x: Any, out: Any = None) -> Any:
    """Inverse hyperbolic cosine."""
    return apply("arccosh", x, out=out)


def arctanh(x: Any, out: Any = None) -> Any:
    """Inverse hyperbolic tangent."""
    return apply("arctanh", x, out=out)


def floor(x: Any, out: Any = None) -> Any:
    """The integer at or below x; its gradient is 0."""
    return apply("floor", x, out=out)


def ceil(x: Any, out: Any = None) -> Any:
    """The integer at or above x; its gradient is 0."""
    return apply("ceil", x, out=out)


def trunc(x: Any, out: Any = None) -> Any:
    """The integer towards 0; its gradient is 0."""
    return apply("trunc", x, out=out)


def rint(x: Any, out: Any = None) -> Any:
    """The nearest integer, the even one of two; its gradient is 0."""
    return apply("rint", x, out=out)


def sign(x: Any, out: Any = None) -> Any:
    """-1, 0 or 1; its gradient is 0."""
    return apply("sign", x, out=out)


def conjugate(x: Any, out: Any = None) -> Any:
    """The complex conjugate; of a real array a copy."""
    return apply("conjugate", x, out=out)


def arctan2(y: Any, x: Any, out: Any = None) -> Any:
    """The angle of the point (y, x), in radians, in [-pi, pi]; at (0, 0) the gradient is 0."""
    return apply("arctan2", y, x, out=out)


def hypot(x: Any, y: Any, out: Any = None) -> Any:
    """sqrt(x * x + y * y), without overflow; at (0, 0) the gradient is 0."""
    return apply("hypot", x, y, out=out)


def fmax(x: Any, y: Any, out: Any = None) -> Any:
    """The greater element; a number rather than NaN. Of equal ones the first gets the gradient, a NaN none."""
    return apply("fmax", x, y, out=out)


def fmin(x: Any, y: Any, out: Any = None) -> Any:
    """The lesser element; a number rather than NaN. Of equal ones the first gets the gradient, a NaN none."""
    return apply("fmin", x, y, out=out)


def fmod(x: Any, y: Any, out: Any = None) -> Any:
    """The remainder x - n y of a division, with the sign of x; its gradients are 1 and -n."""
    return apply("fmod", x, y, out=out)


def remainder(x: Any, y: Any, out: Any = None) -> Any:
    """The remainder of a division, with the sign of y: x % y."""
    return apply("remainder", x, y, out=out)


def copysign(x: Any, y: Any, out: Any = None) -> Any:
    """x with the sign of y; the gradient with respect to y is 0."""
    return apply("copysign", x, y, out=out)


conj = conjugate
mod = remainder


def _of_numbers(name: str, count: int, text: str) -> Callable[..., Any]:
    def one(x: Any, out: Any = None) -> Any:
        return apply(name, x, out=out)

    def two(x: Any, y: Any, out: Any = None) -> Any:
        return apply(name, x, y, out=out)

    function = one if count == 1 else two
    return named(function, name, text)


MORE = {
    name: _of_numbers(name, count, text)
    for name, count, text in (
        ("fabs", 1, "|x| of real numbers, in floats; its gradient at 0 is 0."),
        ("float_power", 2, "x ** y in float64."),
        ("deg2rad", 1, "Degrees as radians."),
        ("rad2deg", 1, "Radians as degrees."),
        ("heaviside", 2, "0 below 0, 1 above it, y at 0; the gradient with respect to x is 0."),
        ("logaddexp", 2, "log(exp(x) + exp(y)), without overflow."),
        ("logaddexp2", 2, "log2(2 ** x + 2 ** y), without overflow."),
        ("sinc", 1, "sin(pi x) / (pi x), 1 at 0."),
        ("i0", 1, "The modified Bessel function of the first kind, of order 0."),
        *((name, 2 if "{1}" in expression else 1, text) for name, expression, text in SPECIAL),
    )
}
MORE |= {"degrees": MORE["rad2deg"], "radians": MORE["deg2rad"], "fix": trunc, "permute_dims": transpose} | {
    alias: MORE.get(name) or globals()[name]
    for alias, name in {
        "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atan2": "arctan2",
        "atanh": "arctanh", "pow": "power",
    }.items()
}  # fmt: skip

"""The elementwise operations under NumPy's names.

In: arrays, annotated or not, and numbers, broadcast to one shape; `out`, if it is given, has that shape. Out: `out`, or a new array of the
dtype that NumPy gives, as a pair inside of a tape if an operand carries a gradient; `fill`, `copyto` and `axpy` change an array in place.
Each calls `elementwise.apply`, which runs and records a generated kernel; where a derivative is a convention (ties, kinks, poles), the
docstring of the function states it.

Raises TypeError for what is no array, TapeError for a pair outside of a tape, ShadowError for a pair of integers, ValueError and TypeError
as NumPy does for shapes and types."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments.annotations import BatchDuplicated, Duplicated
from ..errors import ShadowError
from .elementwise import apply, are_disjoint, check_into
from .layout import array_of, primal_of
from .temporaries import carried, new_array, paired


def fill(x: Any, value: Any) -> None:
    """Sets every element of `x`, an array of any shape, to a number; its shadow is taken."""
    array_of("fill", x)
    apply("copyto", value, out=x)


def copyto(x: Any, source: Any) -> None:
    """`x[...] = source`, broadcast to x's shape and converted to its dtype; ValueError where shapes do not fit."""
    array_of("copyto", x)
    apply("copyto", source, out=x)


def copy(x: Any) -> Any:
    """A copy of an array, of its shape and dtype, as a temporary."""
    return astype(x, array_of("copy", x).dtype)


def astype(x: Any, dtype: Any) -> Any:
    """A copy of an array in another dtype, as a temporary. ShadowError for a pair and a dtype without a gradient (integers, bool)."""
    like = array_of("astype", x)
    if isinstance(x, Duplicated | BatchDuplicated) and np.dtype(dtype).kind in "biu":
        raise ShadowError(
            f"gpuad.ops.astype: an array of {np.dtype(dtype)} carries no gradient; take x.primal.astype({np.dtype(dtype).name!r})"
        )
    array = new_array(like, like.shape, dtype, active=carried((x,)))
    return apply("copyto", x, out=paired(array, (x,)))


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


def where(condition: Any, x: Any, y: Any, out: Any = None) -> Any:
    """x where the condition (an array of bool, no gradient) holds, else y; the gradient goes to the one that was taken."""
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

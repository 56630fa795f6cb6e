"""Array operations that a tape records, with NumPy's names: in place with `out=`, or with a new array as result.

Operands are pairs (`Duplicated`), plain arrays (inactive), `Active` and plain numbers; shapes broadcast and types promote as in NumPy,
whose scalars are strong and Python's weak. A result is a pair if an operand carries a gradient: a temporary, whose gradient is `.shadow`,
with a dtype of its own. Inside of a tape every operation is recorded; outside of one a `Duplicated` is refused (TapeError).
"""

from __future__ import annotations

from typing import Any

from .. import annotations as _annotations
from . import elementwise as _elementwise
from .fourier import fft, ifft
from .indexing import getitem as _getitem
from .indexing import put, scatter_add, take
from .indexing import setitem as _setitem
from .joining import concatenate, roll, stack
from .layout import primal_of as _primal_of
from .linear import einsum, gemm, matmul, solve_triangular
from .reductions import cumsum, mean, sort, sum
from .temporaries import new_array as _new_array
from .temporaries import temporary as _temporary


def fill(x: Any, value: Any) -> None:
    """Sets every element of `x` to a number."""
    _elementwise.apply("copyto", value, out=x)


def copyto(x: Any, source: Any) -> None:
    """`x[...] = source`, broadcast and converted to x's type."""
    _elementwise.apply("copyto", source, out=x)


def copy(x: Any) -> Any:
    """A copy of an array, as a temporary."""
    return astype(x, x.dtype)


def astype(x: Any, dtype: Any) -> Any:
    """A copy of an array in another type."""
    array = _new_array(_primal_of(x), x.shape, dtype)
    return _elementwise.apply("copyto", x, out=_temporary(array) if isinstance(x, _annotations.Duplicated) else array)


def add(x: Any, y: Any, out: Any = None) -> Any:
    """x + y."""
    return _elementwise.apply("add", x, y, out=out)


def subtract(x: Any, y: Any, out: Any = None) -> Any:
    """x - y."""
    return _elementwise.apply("subtract", x, y, out=out)


def multiply(x: Any, y: Any, out: Any = None) -> Any:
    """x * y."""
    return _elementwise.apply("multiply", x, y, out=out)


def divide(x: Any, y: Any, out: Any = None) -> Any:
    """x / y."""
    return _elementwise.apply("divide", x, y, out=out)


true_divide = divide


def power(x: Any, y: Any, out: Any = None) -> Any:
    """x ** y; the exponents 2, 1/2 and -1 as numbers are the square, root and reciprocal."""
    simple = {2: "square", 0.5: "sqrt", -1: "reciprocal"}.get(y) if isinstance(y, int | float) else None
    return _elementwise.apply(simple, x, out=out) if simple else _elementwise.apply("power", x, y, out=out)


def maximum(x: Any, y: Any, out: Any = None) -> Any:
    """The greater element; NaN if there is one. Of equal ones the first gets the gradient."""
    return _elementwise.apply("maximum", x, y, out=out)


def minimum(x: Any, y: Any, out: Any = None) -> Any:
    """The lesser element; NaN if there is one. Of equal ones the first gets the gradient."""
    return _elementwise.apply("minimum", x, y, out=out)


def where(condition: Any, x: Any, y: Any, out: Any = None) -> Any:
    """x where the condition holds, else y."""
    return _elementwise.apply("where", condition, x, y, out=out)


def clip(x: Any, low: Any, high: Any, out: Any = None) -> Any:
    """x, not below `low` nor above `high`; None for no bound."""
    if low is not None:
        x = out = maximum(x, low, out=out)
    return minimum(x, high, out=out) if high is not None else x


def axpy(a: Any, x: Any, y: Any) -> Any:
    """y += a * x, in place; `a` is a number, an Active, or an array."""
    return _elementwise.apply("axpy", a, x, out=y)


def positive(x: Any, out: Any = None) -> Any:
    """A copy."""
    return copy(x) if out is None else _elementwise.apply("copyto", x, out=out)


def negative(x: Any, out: Any = None) -> Any:
    """-x."""
    return _elementwise.apply("negative", x, out=out)


def absolute(x: Any, out: Any = None) -> Any:
    """|x|."""
    return _elementwise.apply("absolute", x, out=out)


abs = absolute


def square(x: Any, out: Any = None) -> Any:
    """x * x."""
    return _elementwise.apply("square", x, out=out)


def reciprocal(x: Any, out: Any = None) -> Any:
    """1 / x."""
    return _elementwise.apply("reciprocal", x, out=out)


def exp(x: Any, out: Any = None) -> Any:
    """Exponential."""
    return _elementwise.apply("exp", x, out=out)


def expm1(x: Any, out: Any = None) -> Any:
    """exp(x) - 1."""
    return _elementwise.apply("expm1", x, out=out)


def log(x: Any, out: Any = None) -> Any:
    """Natural logarithm."""
    return _elementwise.apply("log", x, out=out)


def log1p(x: Any, out: Any = None) -> Any:
    """log(1 + x)."""
    return _elementwise.apply("log1p", x, out=out)


def sqrt(x: Any, out: Any = None) -> Any:
    """Square root."""
    return _elementwise.apply("sqrt", x, out=out)


def sin(x: Any, out: Any = None) -> Any:
    """Sine."""
    return _elementwise.apply("sin", x, out=out)


def cos(x: Any, out: Any = None) -> Any:
    """Cosine."""
    return _elementwise.apply("cos", x, out=out)


def tan(x: Any, out: Any = None) -> Any:
    """Tangent."""
    return _elementwise.apply("tan", x, out=out)


def tanh(x: Any, out: Any = None) -> Any:
    """Hyperbolic tangent."""
    return _elementwise.apply("tanh", x, out=out)


def sinh(x: Any, out: Any = None) -> Any:
    """Hyperbolic sine."""
    return _elementwise.apply("sinh", x, out=out)


def cosh(x: Any, out: Any = None) -> Any:
    """Hyperbolic cosine."""
    return _elementwise.apply("cosh", x, out=out)


__all__ = [
    "abs", "absolute", "add", "astype", "axpy", "clip", "concatenate", "copy", "copyto", "cos", "cosh", "cumsum", "divide", "einsum",
    "exp", "expm1", "fft", "fill", "gemm", "ifft", "log", "log1p", "matmul", "maximum", "mean", "minimum", "multiply", "negative",
    "positive", "power", "put", "reciprocal", "roll", "scatter_add", "sin", "sinh", "solve_triangular", "sort", "sqrt", "square",
    "stack", "subtract", "sum", "take", "tan", "tanh", "true_divide", "where",
]  # fmt: skip

_annotations.provide({name: globals()[name] for name in __all__} | {"getitem": _getitem, "setitem": _setitem})

"""Functions of numbers: those of cupy, numpy and math by name, casts, and calls of known values.

In: a Python callable and the values that it is called with. Out: a number of the type that CuPy's rules give, as a `MathCall` of C's
function, an operator, or a call of a helper function; of constants only, the value that Python computes. `cast` converts: `int` is int64,
`float` float64, and a complex number loses its imaginary part, as in CuPy.

Functions of floats take integers as the float that `typing_rules.floating` names. Raises UnsupportedError for a function that is not
listed, and for functions of `math` that give ints in Python; CompileError, at the call, for what Python raises."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...ir.surface import Binary, Cast, Conditional, Expr, MathCall
from ...ir.types import BOOL, F64, I8, I32, I64, Complex
from ...source import Span
from ..cuda.types import constant
from . import complexes, fence, operators
from .context import Context
from .signature import number_of
from .typing_rules import as_type, common, floating, is_narrow, promoted, type_of
from .values import Any_, Static, Value

_SAME = (
    "sqrt", "rsqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin",
    "acos", "atan", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "erfcinv", "erfcx", "lgamma", "j0", "j1", "y0", "y1", "floor",
    "ceil", "trunc", "rint", "fabs", "fmod", "hypot", "copysign", "atan2", "fmin", "fmax", "exp10", "sinpi", "cospi",
)  # fmt: skip
_ALIASES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arctan2": "atan2",
    "gammaln": "lgamma", "gamma": "tgamma",
}  # fmt: skip
MATH = {**{name: name for name in _SAME}, **_ALIASES}
_OPERATORS: dict[str, type[ast.AST]] = {
    "add": ast.Add, "subtract": ast.Sub, "multiply": ast.Mult, "divide": ast.Div, "true_divide": ast.Div, "floor_divide": ast.FloorDiv,
    "remainder": ast.Mod, "mod": ast.Mod, "power": ast.Pow, "less": ast.Lt, "less_equal": ast.LtE, "greater": ast.Gt,
    "greater_equal": ast.GtE, "equal": ast.Eq, "not_equal": ast.NotEq, "logical_and": ast.And, "logical_or": ast.Or,
    "bitwise_and": ast.BitAnd, "bitwise_or": ast.BitOr, "bitwise_xor": ast.BitXor, "left_shift": ast.LShift, "right_shift": ast.RShift,
}  # fmt: skip
_UNARY: dict[str, type[ast.AST]] = {"negative": ast.USub, "invert": ast.Invert, "logical_not": ast.Not, "positive": ast.UAdd}
_PREDICATES = ("isnan", "isinf", "isfinite", "signbit")
_INT_IN_PYTHON = ("floor", "ceil", "trunc")


def is_cast(function: Callable[..., object]) -> bool:
    """True if calling it converts a number: int, float, complex, bool, and the types of numpy and cupy."""
    return isinstance(function, type) and issubclass(function, bool | int | float | complex | np.generic)


def is_of_cupy(function: Callable[..., object]) -> bool:
    """True if a function is one of arrays on the GPU, be it guarded; of constants the kernel computes it."""
    return type(getattr(function, "__wrapped__", function)).__module__.partition(".")[0] == "cupy"


def cast(ctx: Context, function: Any, values: tuple[Any_, ...], node: ast.Call) -> Any_:
    """`int(x)` (int64), `float(x)` (float64), `numpy.float32(x)`."""
    if len(values) != 1:
        ctx.mistake(node, f"{function.__name__} takes one number")
    if isinstance(values[0], Static):
        return Static(_evaluated(ctx, function, values, node))
    type_ = {bool: BOOL, int: I64, float: F64}.get(function) or number_of(np.dtype(function))
    if isinstance(type_, Complex):
        return Value(complexes.as_complex(values[0], type_, ctx.span(node)))
    if isinstance(values[0], Value) and complexes.is_complex(values[0]) and type_ not in (None, BOOL):
        values = (complexes.part(values[0], "real", ctx.span(node)),)  # as CuPy does, which warns
    if type_ is None:
        ctx.refuse(node, f"numbers of type {np.dtype(function)} in jit functions come in a later release")
    return Value(as_type(values[0], type_, ctx.span(node)))


def known(ctx: Context, function: Callable[..., object], values: tuple[Any_, ...], node: ast.Call) -> Any_:
    """A call whose arguments are all constants, made now."""
    return Static(_evaluated(ctx, function, values, node))


def _evaluated(ctx: Context, function: Callable[..., object], values: tuple[Any_, ...], node: ast.Call) -> Any:
    try:
        return function(*(v.value for v in values if isinstance(v, Static)))
    except Exception as error:  # whatever Python raises for these constants is the user's mistake at this place
        ctx.mistake(node, f"{type(error).__name__}: {error}")


def name_of(function: Callable[..., object]) -> str | None:
    """The name of a function of cupy, numpy or math; None for anything else."""
    module = str(getattr(function, "__module__", None) or type(function).__module__).partition(".")[0]
    if not isinstance(function, np.ufunc) and module not in ("math", "cupy", "cupyx", "numpy"):
        return None
    name = getattr(function, "__name__", None) or getattr(function, "name", None)
    return str(name).removeprefix("cupy_").removeprefix("cupyx_scipy_special_") if name else None


def function(ctx: Context, callee: Callable[..., object], values: tuple[Any_, ...], node: ast.Call) -> Any_:
    """A call of a function of cupy, numpy or math."""
    name, span = name_of(callee), ctx.span(node)
    if name is None:
        ctx.refuse(
            node, f"{getattr(callee, '__name__', callee)!r} cannot be called in a kernel; decorate it with jit.rawkernel(device=True)"
        )
    if getattr(callee, "__module__", "") == "math" and name in _INT_IN_PYTHON:
        ctx.refuse(node, fence.INT_MATH.format(name))
    if complexes.is_complex(*values):
        return _of_complex(ctx, name, values, node)
    handler = _handler(name, len(values))
    if handler is None:
        ctx.refuse(node, f"the function {name} of {len(values)} arguments is not supported in a kernel")
    return handler(ctx, values, span)


def _of_complex(ctx: Context, name: str, values: tuple[Any_, ...], node: ast.Call) -> Any_:
    span = ctx.span(node)
    if name in _OPERATORS and len(values) == 2:
        return operators.binary(ctx.program, _OPERATORS[name](), values[0], values[1], span)
    return complexes.function(MATH.get(name, name), values, span)


Handler = Callable[[Context, "tuple[Any_, ...]", Span], "Any_"]


def _handler(name: str, count: int) -> Handler | None:
    if name in _OPERATORS and count == 2:
        return lambda ctx, v, span: operators.binary(ctx.program, _OPERATORS[name](), v[0], v[1], span)
    if name in _UNARY and count == 1:
        return lambda ctx, v, span: operators.unary(_UNARY[name](), v[0], span)
    if name in _PREDICATES and count == 1:
        return lambda ctx, v, span: _predicate(name, v[0], span)
    if name in ("maximum", "minimum") and count == 2:
        return lambda ctx, v, span: operators.extreme(ctx.program, name == "maximum", v[0], v[1], span)
    if name in _WHOLE and count == _arity(name):
        return lambda ctx, v, span: _WHOLE[name](ctx, name, v, span)
    if name in MATH and _arity(MATH[name]) == count:
        return lambda ctx, v, span: operators.math(MATH[name], v, span)
    return _SPECIAL.get((name, count))


def _arity(name: str) -> int:
    return 2 if name in ("fmod", "hypot", "copysign", "atan2", "fmin", "fmax") else 1


def _whole(ctx: Context, name: str, values: tuple[Any_, ...], span: Span) -> Any_:
    """`floor`, `ceil`, `trunc`: of an integer the integer."""
    return values[0] if type_of(values[0], span).is_integer else operators.math(name, values, span)


def _extreme(ctx: Context, name: str, values: tuple[Any_, ...], span: Span) -> Any_:
    """`fmin` and `fmax`: an integer of integers."""
    if common(*(type_of(v, span) for v in values)).is_integer:
        return operators.extreme(ctx.program, name == "fmax", values[0], values[1], span)
    return operators.math(name, values, span)


def _rest(ctx: Context, name: str, values: tuple[Any_, ...], span: Span) -> Any_:
    """`fmod`: of integers C's remainder, 0 where it is divided by 0."""
    type_ = common(*(type_of(v, span) for v in values))
    if not type_.is_integer:
        return operators.math(name, values, span)

    def body(x: Expr, y: Expr) -> Expr:
        zero = constant(span, type_, 0)
        return Conditional(span, type_, Binary(span, BOOL, "==", y, zero), zero, Binary(span, type_, "%", x, y))

    return Value(operators.call(ctx.program, (name, type_), type_, tuple(as_type(v, type_, span) for v in values), body, span))


_WHOLE: dict[str, Callable[[Context, str, tuple[Any_, ...], Span], Any_]] = {
    "floor": _whole, "ceil": _whole, "trunc": _whole, "fmin": _extreme, "fmax": _extreme, "fmod": _rest,
}  # fmt: skip


def _predicate(name: str, value: Any_, span: Span) -> Any_:
    type_ = floating(type_of(value, span))
    return Value(MathCall(span, BOOL, name, (as_type(value, type_, span),)))


def absolute(ctx: Context, values: tuple[Any_, ...], span: Span) -> Any_:
    """`abs(x)`, of integers and complex numbers too."""
    if complexes.is_complex(*values):
        return complexes.function("abs", values, span)
    type_ = type_of(values[0], span)
    if type_.kind in ("uint", "bool"):
        return values[0]
    if is_narrow(type_):
        found = MathCall(span, I32, "abs", (promoted(values[0], type_, span),))
        return Value(Cast(span, type_, found, implicit=False))
    return Value(MathCall(span, type_, "fabs" if type_.is_float else "abs", (as_type(values[0], type_, span),)))


def _square(ctx: Context, values: tuple[Any_, ...], span: Span) -> Any_:
    type_ = type_of(values[0], span)
    type_ = I8 if type_ == BOOL else type_  # the first for which CuPy has it
    return Value(operators.call(
        ctx.program, ("square", type_), type_, (as_type(values[0], type_, span),), lambda x: Binary(span, type_, "*", x, x), span
    ))  # fmt: skip


def _power(ctx: Context, values: tuple[Any_, ...], span: Span) -> Any_:
    type_ = floating(common(*(type_of(v, span) for v in values)))
    return Value(MathCall(span, type_, "pow", tuple(as_type(v, type_, span) for v in values)))


def _float_power(ctx: Context, values: tuple[Any_, ...], span: Span) -> Any_:
    """In float64, whatever the numbers are."""
    return Value(MathCall(span, F64, "pow", tuple(as_type(v, F64, span) for v in values)))


def _reciprocal(ctx: Context, values: tuple[Any_, ...], span: Span) -> Any_:
    type_ = floating(type_of(values[0], span))
    if not type_of(values[0], span).is_float:
        raise UnsupportedError(fence.INT_RECIPROCAL, span)
    return Value(Binary(span, type_, "/", as_type(Static(1), type_, span), as_type(values[0], type_, span)))


_SPECIAL: dict[tuple[str, int], Handler] = {
    ("absolute", 1): absolute, ("abs", 1): absolute, ("square", 1): _square, ("pow", 2): _power, ("float_power", 2): _float_power,
    ("reciprocal", 1): _reciprocal,
}  # fmt: skip

__all__ = ["MATH", "absolute", "cast", "function", "is_cast", "known", "name_of"]

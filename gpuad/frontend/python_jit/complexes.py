"""Complex numbers. CuPy writes an operation of theirs as C++, with the functions of its complex.cuh; so each is read here from a line of
CUDA that says the same, and called.

An operation of a complex number and another is one of complex numbers: complex128 if one of them is, else complex64, of a float64 too.
"""

from __future__ import annotations

import ast
from functools import cache

import numpy as np

from ...errors import CompileError, UnsupportedError
from ...ir.surface import Assign, Evaluate, Expr, Function, HelperCall, Member, Record
from ...ir.types import BOOL, F32, F64, Complex
from ...source import SourceFile, Span
from ..cuda import parse
from ..cuda.types import constant
from .typing_rules import as_type, materialised
from .values import Any_, Number, Static, Value

C64, C128 = Complex(F32), Complex(F64)
_CUDA: dict[Number, str] = {BOOL: "bool", F32: "float", F64: "double", C64: "complex<float>", C128: "complex<double>"}
_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "a + b", ast.Sub: "a - b", ast.Mult: "a * b", ast.Div: "a / b", ast.Pow: "pow(a, b)",
}  # fmt: skip
_COMPARE: dict[type[ast.AST], str] = {
    ast.Eq: "a == b", ast.NotEq: "a != b", ast.Lt: "a < b", ast.LtE: "a <= b", ast.Gt: "a > b", ast.GtE: "a >= b",
}  # fmt: skip
_SAME = "exp log log10 sqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh conj"
_FUNCTIONS = {
    **{name: f"{name}(a)" for name in _SAME.split()}, "conjugate": "conj(a)", "square": "a * a", "negative": "-a", "positive": "a",
    "reciprocal": "complex<{T}>(1) / a",
}  # fmt: skip
_REAL = {"abs": "abs(a)", "absolute": "abs(a)", "angle": "arg(a)", "real": "a.real()", "imag": "a.imag()"}
NAMES = frozenset({*_FUNCTIONS, *_REAL})


def is_complex(*values: Any_) -> bool:
    """True if one of them is a complex number."""
    return any(
        (isinstance(v, Value) and isinstance(v.kind, Complex))
        or (isinstance(v, Static) and isinstance(v.value, complex | np.complexfloating))
        for v in values
    )


def kind_of(value: Any_, span: Span) -> Number:
    """The type of a number."""
    if isinstance(value, Static) and is_complex(value):
        return C128 if isinstance(value.value, np.complex128) else C64
    return materialised(value, span).kind


def number(value: Any_, span: Span) -> Value:
    """A number as the kernel computes it, complex constants too."""
    if isinstance(value, Static) and is_complex(value):
        return Value(as_complex(value, common(kind_of(value, span)), span))
    return materialised(value, span)


def common(*kinds: Number) -> Complex:
    """The type of an operation of numbers of which one is complex."""
    return C128 if C128 in kinds else C64


def as_complex(value: Any_, kind: Complex, span: Span) -> Expr:
    """A number as a complex one; constants exactly."""
    if isinstance(value, Static) and is_complex(value):
        parts = complex(value.value)
        return Record(span, kind, (constant(span, kind.element, parts.real), constant(span, kind.element, parts.imag)))
    if not is_complex(value):
        return Record(span, kind, (as_type(value, kind.element, span), constant(span, kind.element, 0)))
    assert isinstance(value, Value)
    return value.expr if value.kind == kind else _called(f"{_CUDA[kind]}(a)", kind, (value.kind,), (value.expr,), span).expr


def binary(op: ast.AST, left: Any_, right: Any_, span: Span) -> Value:
    """An operation of two numbers of which one is complex."""
    text = _BINARY.get(type(op)) or _COMPARE.get(type(op))
    if text is None:
        raise CompileError("this operator is not for complex numbers", span)
    kind = common(kind_of(left, span), kind_of(right, span))
    operands = as_complex(left, kind, span), as_complex(right, kind, span)
    return _called(text, BOOL if type(op) in _COMPARE else kind, (kind, kind), operands, span)


def unary(op: ast.AST, value: Value, span: Span) -> Value:
    """`-z`, `+z`, `not z`."""
    if isinstance(op, ast.Not):
        return _of_one("a.real() == 0 && a.imag() == 0", BOOL, value, span)
    if isinstance(op, ast.USub | ast.UAdd):
        return function("negative" if isinstance(op, ast.USub) else "positive", (value,), span)
    raise CompileError("this operator is not for complex numbers", span)


def function(name: str, values: tuple[Any_, ...], span: Span) -> Value:
    """A function of complex numbers. UnsupportedError for one that CuPy's header has not."""
    if name in ("pow", "power", "float_power") and len(values) == 2:
        return binary(ast.Pow(), *values, span)
    if len(values) != 1 or name not in NAMES:
        raise UnsupportedError(f"the function {name} of complex numbers is not supported in a kernel", span)
    (value,) = values
    kind = common(kind_of(value, span))
    number = Value(as_complex(value, kind, span))
    if name in _REAL:
        return _of_one(_REAL[name], kind.element, number, span)
    return _of_one(_FUNCTIONS[name].replace("{T}", _CUDA[kind.element]), kind, number, span)


def part(value: Value, name: str, span: Span) -> Value:
    """`z.real` or `z.imag`."""
    assert isinstance(value.kind, Complex)
    return Value(Member(span, value.kind.element, value.expr, {"real": "re", "imag": "im"}[name]))


def _of_one(text: str, result: Number, value: Value, span: Span) -> Value:
    return _called(text, result, (value.kind,), (value.expr,), span)


def _called(text: str, result: Number, kinds: tuple[Number, ...], operands: tuple[Expr, ...], span: Span) -> Value:
    return Value(HelperCall(span, result, _read(text, result, kinds), operands))


@cache
def _read(text: str, result: Number, kinds: tuple[Number, ...]) -> Function:
    """A function of `a` and `b` whose result is what the C++ expression says."""
    names = "ab"[: len(kinds)]
    parameters = ", ".join(f"{_CUDA[kind]} {name}" for kind, name in zip(kinds, names, strict=True))
    pointers = ", ".join(f"const {_CUDA[kind]}* {name}" for kind, name in zip(kinds, names, strict=True))
    source = f"""#include <cupy/complex.cuh>
__device__ {_CUDA[result]} complex_operation({parameters}) {{ return {text}; }}
extern "C" __global__ void kernel({_CUDA[result]}* r, {pointers}) {{ r[0] = complex_operation({", ".join(f"{n}[0]" for n in names)}); }}
"""
    (statement,) = parse(SourceFile("<complex numbers>", source)).kernel("kernel").body.body
    assert isinstance(statement, Evaluate) and isinstance(statement.value, Assign) and isinstance(statement.value.value, HelperCall)
    return statement.value.value.function


__all__ = ["C64", "C128", "NAMES", "as_complex", "binary", "common", "function", "is_complex", "kind_of", "number", "part", "unary"]

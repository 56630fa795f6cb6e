"""Operators: the type by CuPy's rules, the operation in that type.

In: an operator of Python's `ast` and operands, constants or numbers. Out: a constant that Python has computed, or a number in the type that
`typing_rules` gives; integers of less than 32 bits are computed as ints and converted when they are stored. What C lacks becomes a helper
function, so that each operand is evaluated once: `//` and `%`, which round downwards and give 0 for an integer divided by 0, as CuPy's;
`max` and `min`, which give NaN if there is one. Powers of integers are products, for constant exponents up to 8.

Raises CompileError for operators that a type does not have, or where Python raises; UnsupportedError for other powers of integers and for
arithmetic of two bools."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from ...errors import CompileError, UnsupportedError
from ...ir.surface import Binary, Cast, Conditional, Expr, Function, HelperCall, Logical, MathCall, Name, Return, Unary
from ...ir.surface import Block as BlockNode
from ...ir.types import BOOL, I32, Scalar
from ...source import Span
from ..cuda.types import constant
from . import complexes, fence
from .context import Program
from .typing_rules import as_type, common, compared, floating, is_narrow, materialised, promoted, quotient, truth, type_of
from .values import Any_, Static, Value

_PYTHON: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitOr: operator.or_, ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.Invert: operator.invert, ast.Not: operator.not_,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.And: lambda x, y: x and y, ast.Or: lambda x, y: x or y,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.AST], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_BITS: dict[type[ast.AST], str] = {ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^"}
_COMPARE: dict[type[ast.AST], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_MOST_PRODUCTS = 8


def unary(op: ast.AST, value: Any_, span: Span) -> Any_:
    """`-x`, `+x`, `~x`, `not x`."""
    if isinstance(value, Static):
        return Static(_folded(op, (value,), span))
    if isinstance(value, Value) and complexes.is_complex(value):
        return complexes.unary(op, value, span)
    type_ = type_of(value, span)
    if isinstance(op, ast.Not):
        return Value(Unary(span, BOOL, "!", truth(value, span)))
    if isinstance(op, ast.UAdd):
        return value
    if type_ == BOOL or (isinstance(op, ast.Invert) and type_.is_float):
        raise CompileError(f"this operator is not for {type_}", span)
    name = "-" if isinstance(op, ast.USub) else "~"
    if is_narrow(type_):
        return Value(Unary(span, I32, name, promoted(value, type_, span)), narrow=type_)
    return Value(Unary(span, type_, name, as_type(value, type_, span)))


def binary(program: Program, op: ast.AST, left: Any_, right: Any_, span: Span) -> Any_:
    """An operation of two numbers; of two constants its value."""
    if type(op) not in _PYTHON:
        raise UnsupportedError(fence.message(op), span)
    if isinstance(left, Static) and isinstance(right, Static):
        return Static(_folded(op, (left, right), span))
    if complexes.is_complex(left, right):
        return complexes.binary(op, left, right, span)
    types = type_of(left, span), type_of(right, span)
    if type(op) in _COMPARE:
        shared = compared(left, right, span)
        return Value(Binary(span, BOOL, _COMPARE[type(op)], as_type(left, shared, span), as_type(right, shared, span)))
    if isinstance(op, ast.And | ast.Or):
        return Value(Logical(span, BOOL, "&&" if isinstance(op, ast.And) else "||", truth(left, span), truth(right, span)))
    return _arithmetic(program, op, left, right, types, span)


def _folded(op: ast.AST, values: tuple[Static, ...], span: Span) -> Any:
    try:
        return _PYTHON[type(op)](*(v.value for v in values))
    except Exception as error:  # whatever Python raises for these constants is the user's mistake at this place
        raise CompileError(f"{type(error).__name__}: {error}", span) from None


def _arithmetic(program: Program, op: ast.AST, left: Any_, right: Any_, types: tuple[Scalar, Scalar], span: Span) -> Value:
    shared = quotient(*types) if isinstance(op, ast.Div) else common(*types)
    bits = type(op) in _BITS
    if bits and shared.is_float:
        raise CompileError(f"this operator is not for {shared}", span)
    if shared == BOOL and not isinstance(op, ast.BitOr | ast.BitAnd | ast.BitXor):
        raise UnsupportedError("arithmetic of two bools is not supported; convert one with int(...)", span)
    if shared == BOOL:
        return Value(_of_bools(_BITS[type(op)], as_type(left, BOOL, span), as_type(right, BOOL, span), span))
    if isinstance(op, ast.Pow):
        return Value(power(left, right, shared, span))
    if is_narrow(shared):
        return _of_narrow(program, op, (promoted(left, shared, span), promoted(right, shared, span)), shared, span)
    return Value(_operation(program, op, (as_type(left, shared, span), as_type(right, shared, span)), shared, span))


def _operation(program: Program, op: ast.AST, operands: tuple[Expr, Expr], type_: Scalar, span: Span) -> Expr:
    """Of two numbers of one type."""
    if isinstance(op, ast.FloorDiv | ast.Mod):
        return floor_divided(program, isinstance(op, ast.Mod), type_, operands, span)
    name = "/" if isinstance(op, ast.Div) else _ARITHMETIC.get(type(op)) or _BITS.get(type(op))
    if name is None:
        raise UnsupportedError(fence.message(op), span)
    return Binary(span, type_, name, *operands)


def _of_narrow(program: Program, op: ast.AST, operands: tuple[Expr, Expr], type_: Scalar, span: Span) -> Value:
    """Of two integers of less than 32 bits: an int, but for `%`, which CuPy writes as a function of their type."""
    found = _operation(program, op, operands, I32, span)
    return Value(Cast(span, type_, found, implicit=False)) if isinstance(op, ast.Mod) else Value(found, narrow=type_)


def _of_bools(op: str, left: Expr, right: Expr, span: Span) -> Expr:
    """`&`, `|`, `^` of two bools, of which both are evaluated: C++ makes ints of them, and a bool of the result."""
    return Cast(span, BOOL, Binary(span, I32, op, *(Cast(span, I32, side, implicit=False) for side in (left, right))), implicit=False)


def power(left: Any_, right: Any_, shared: Scalar, span: Span) -> Expr:
    """`x ** y`: pow for floats; products for an integer with a small constant exponent."""
    if shared.is_float:
        return MathCall(span, shared, "pow", (as_type(left, shared, span), as_type(right, shared, span)))
    exponent = right.value if isinstance(right, Static) else -1
    if not 0 <= exponent <= _MOST_PRODUCTS or not isinstance(left, Value):
        raise UnsupportedError(fence.INT_POWER, span)
    base = as_type(left, shared, span)
    result: Expr = constant(span, shared, 1)
    for number in range(int(exponent)):
        result = base if number == 0 else Binary(span, shared, "*", result, base)
    return result


# --- operations that C has no operator for, as functions -----------------------------------------------------------------------------


def floor_divided(program: Program, modulo: bool, type_: Scalar, operands: tuple[Expr, Expr], span: Span) -> Expr:
    """Python's `//` and `%`, which round downwards. Of integers by 0 they give 0, as CuPy's."""
    if type_.is_float:
        return _floor_of_floats(program, modulo, type_, operands, span)
    key = ("modulo" if modulo else "floor_divide", type_)
    return call(program, key, type_, operands, lambda x, y: _integers(modulo, type_, x, y, span), span)


def _floor_of_floats(program: Program, modulo: bool, type_: Scalar, operands: tuple[Expr, Expr], span: Span) -> Expr:
    def body(x: Expr, y: Expr) -> Expr:
        floor = MathCall(span, type_, "floor", (Binary(span, type_, "/", x, y),))
        return Binary(span, type_, "-", x, Binary(span, type_, "*", floor, y)) if modulo else floor

    return call(program, ("modulo" if modulo else "floor_divide", type_), type_, operands, body, span)


def _integers(modulo: bool, type_: Scalar, x: Expr, y: Expr, span: Span) -> Expr:
    """`q = x / y; q - (((x < 0) != (y < 0)) && q * y != x)`, and from it the rest."""
    zero = constant(span, type_, 0)
    q = Binary(span, type_, "/", x, y)
    floor: Expr = q
    if type_.is_signed:
        signs = Binary(span, BOOL, "!=", Binary(span, BOOL, "<", x, zero), Binary(span, BOOL, "<", y, zero))
        rest = Binary(span, BOOL, "!=", Binary(span, type_, "*", q, y), x)
        one = constant(span, type_, 1)
        floor = Conditional(span, type_, Logical(span, BOOL, "&&", signs, rest), Binary(span, type_, "-", q, one), q)
    found = Binary(span, type_, "-", x, Binary(span, type_, "*", floor, y)) if modulo else floor
    return Conditional(span, type_, Binary(span, BOOL, "==", y, zero), zero, found)


def extreme(program: Program, greatest: bool, left: Any_, right: Any_, span: Span) -> Any_:
    """`max` and `min` of two numbers; NaN if there is one, of equal ones the first."""
    if isinstance(left, Static) and isinstance(right, Static):
        return Static((max if greatest else min)(left.value, right.value))
    type_ = common(type_of(left, span), type_of(right, span))
    name = "max" if greatest else "min"
    if is_narrow(type_):
        return Value(MathCall(span, I32, name, (promoted(left, type_, span), promoted(right, type_, span))), narrow=type_)
    operands = as_type(left, type_, span), as_type(right, type_, span)
    if type_ == BOOL:
        return Value(_of_bools("|" if greatest else "&", *operands, span))
    if not type_.is_float:
        return Value(MathCall(span, type_, name, operands))

    def body(x: Expr, y: Expr) -> Expr:
        wins = Binary(span, BOOL, ">=" if greatest else "<=", x, y)
        first = Logical(span, BOOL, "||", wins, Binary(span, BOOL, "!=", x, x))
        return Conditional(span, type_, first, x, y)

    return Value(call(program, ("max" if greatest else "min", type_), type_, operands, body, span))


def call(program: Program, key: tuple[Any, ...], type_: Scalar, operands: tuple[Expr, ...], body: Callable[..., Expr], span: Span) -> Expr:
    """A call of a function of ours, whose body is an expression of its parameters; so each operand is evaluated once."""
    found = program.helpers.get(key)
    if found is None:
        parameters = tuple(program.declare(span, name, type_) for name in ("x", "y")[: len(operands)])
        value = body(*(Name(span, type_, p) for p in parameters))
        found = Function(span, str(key[0]), parameters, type_, BlockNode(span, (Return(span, value),)))
        program.helpers[key] = found
    return HelperCall(span, type_, found, operands)


def math(name: str, values: tuple[Any_, ...], span: Span) -> Value:
    """A function of floats, in the type that its arguments share."""
    type_ = floating(common(*(type_of(v, span) for v in values)))
    return Value(MathCall(span, type_, name, tuple(as_type(v, type_, span) for v in values)))


__all__ = ["binary", "call", "extreme", "floor_divided", "materialised", "math", "power", "unary"]

"""CuPy's rules of types in `mode='cuda'`: the type of an operation is the first, in this order, that both operands can be cast to.

So int32 with uint32 is uint32, an integer of any size with float32 is float32, `/` of two integers float64. A Python constant has the type
that a call would give it (float32 for 0.5), but takes the type of the operation without being rounded to its own first; it is rounded
where it is assigned or changes a target in place. Integers are compared as int64, and those of less than 32 bits are C++'s ints until they
are stored. float16 is a type
of these rules and of arrays: CuPy declares a float for such a number, and rounds it only where an array takes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import CompileError
from ...ir.surface import Cast, Expr
from ...ir.types import BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Scalar
from ...source import Span
from ..cuda.types import constant
from .signature import scalar_of_number
from .values import Any_, Static, Value

ORDER = (BOOL, I8, U8, I16, U16, I32, U32, I64, U64, F16, F32, F64)
_KINDS = {"bool": 0, "uint": 1, "int": 2, "float": 3}


def type_of(value: Any_, span: Span) -> Scalar:
    """The type of a number. CompileError for anything else."""
    if isinstance(value, Value):
        return value.type
    found = scalar_of_number(value.value) if isinstance(value, Static) else None
    if found is None:
        raise CompileError(f"a number is needed here, not {described(value)}", span)
    return found


def described(value: Any_) -> str:
    """What something is, for messages."""
    if isinstance(value, Static):
        return f"{type(value.value).__name__} {getattr(value.value, '__name__', value.value)!r}"
    return {"ArrayValue": "an array", "SharedValue": "an array", "Action": "nothing", "Items": "a tuple", "Range": "a range"}.get(
        type(value).__name__, "a number"
    )


def common(*types: Scalar) -> Scalar:
    """The first type that all can be cast to."""
    return max(types, key=ORDER.index)


def floating(type_: Scalar) -> Scalar:
    """The type in which a function of floats computes."""
    return type_ if type_.is_float else F32


def quotient(left: Scalar, right: Scalar) -> Scalar:
    """The type of `/`."""
    shared = common(left, right)
    return shared if shared.is_float else F64


def compared(left: Any_, right: Any_, span: Span) -> Scalar:
    """The type in which two numbers are compared: of integers as int64, so that a negative int32 is less than any uint32, and a uint64
    from 2**63 on is negative; in a type of 32 bits where that is the same."""
    shared = common(type_of(left, span), type_of(right, span))
    if is_narrow(shared):
        return I32
    for side in (left, right):
        if shared.is_integer and isinstance(side, Static) and type(side.value) is int and not -(1 << 63) <= side.value < 1 << 63:
            raise CompileError(f"integers are compared as int64, which has no {side.value}", span)
    if not shared.is_integer or shared.is_signed:
        return shared
    return I64 if shared == U64 or _may_be_negative(left) or _may_be_negative(right) else shared


def _may_be_negative(value: Any_) -> bool:
    if isinstance(value, Value):
        return isinstance(value.expr.type, Scalar) and value.expr.type.is_signed
    return isinstance(value, Static) and bool(value.value < 0)


def as_type(value: Any_, type_: Scalar, span: Span) -> Expr:
    """A number in a type; constants exactly."""
    if isinstance(value, Static) and scalar_of_number(value.value) is not None:
        return _constant(value.value, type_, span)
    type_of(value, span)
    assert isinstance(value, Value)
    return value.expr if value.expr.type == type_ else Cast(span, type_, value.expr, implicit=False, rounds=type_ != F16)


def _constant(number: Any, type_: Scalar, span: Span) -> Expr:
    if not type_.is_float and type_ != BOOL and isinstance(number, float | np.floating) and not np.isfinite(number):
        raise CompileError(f"{number} has no value as {type_}", span)
    if type_ == F16:  # CuPy writes such a constant with the digits of a half, as a float
        with np.errstate(over="ignore"):
            return constant(span, F16, float(np.float32(str(np.float16(number)))))
    return constant(span, type_, number.item() if isinstance(number, np.generic) else number)


def materialised(value: Any_, span: Span) -> Value:
    """A number as the kernel computes it; a constant in the type that it has by itself."""
    if isinstance(value, Value) and value.narrow is None:
        return value
    return Value(as_type(value, type_of(value, span), span))


def is_narrow(type_: Scalar) -> bool:
    """True if C++ makes an int of such an integer before it computes with it."""
    return type_.is_integer and type_.bits < 32


def promoted(value: Any_, type_: Scalar, span: Span) -> Expr:
    """An operand of a narrow type, as the int that C++ makes of it."""
    if isinstance(value, Value) and value.type == type_:
        return as_type(value, I32, span)
    return Cast(span, I32, as_type(value, type_, span), implicit=False)


def stored(value: Any_, type_: Scalar, what: str, span: Span) -> Expr:
    """A number for a variable or element of a type. CompileError where a float would become an integer."""
    source = type_of(value, span)
    if _KINDS[source.kind] == _KINDS["float"] and not type_.is_float:
        raise CompileError(f"{what} is {type_} and cannot take a {source}; convert it with int(...), or begin with a float", span)
    return as_type(value, type_, span)


def rounded(expr: Expr, span: Span) -> Expr:
    """What an atomic operation adds to memory of its type; a store rounds by itself."""
    return Cast(span, F16, Cast(span, F32, expr, implicit=False), implicit=False) if expr.type == F16 else expr


def truth(value: Any_, span: Span) -> Expr:
    """A number as a condition."""
    return as_type(value, BOOL, span)

"""C's conversions between types, made explicit."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

from ...errors import UnsupportedError
from ...ir.arithmetic import wrapped
from ...ir.records import alike
from ...ir.surface import DYNAMIC, Binary, Cast, Constant, Decay, Expr, MathCall
from ...ir.types import BOOL, F32, I32, Array, Pointer, Scalar, Type
from ...source import Span


def convert(value: Expr, target: Type, span: Span, *, implicit: bool) -> Expr:
    """`value` as a `target`; UnsupportedError for conversions that are none between numbers or of one kind of pointer."""
    source = value.type
    if source == target:
        return value
    if isinstance(source, Scalar) and isinstance(target, Scalar):
        return Cast(span, target, value, implicit)
    if isinstance(source, Array) and isinstance(target, Pointer) and source.element == target.element:
        return Decay(span, target, value)
    if isinstance(source, Array) and source.length == DYNAMIC and isinstance(target, Pointer):  # bytes that are only used as another type
        return Decay(span, Pointer(source.element), value)
    if isinstance(source, Pointer) and target == BOOL:
        return Binary(span, BOOL, "!=", value, Constant(span, source, 0))
    if isinstance(source, Pointer) and isinstance(target, Pointer):
        return _pointer(value, target, span, implicit)
    if isinstance(source, Pointer) or isinstance(target, Pointer):
        raise UnsupportedError(f"a conversion from {source} to {target} is not supported", span)
    raise UnsupportedError(f"a conversion from {source} to {target} is not supported", span)


def _pointer(value: Expr, target: Pointer, span: Span, implicit: bool) -> Expr:
    source = value.type
    if isinstance(source, Pointer) and (alike(source.element, target.element) or _same_size(source.element, target.element)):
        return Cast(span, target, value, implicit)
    raise UnsupportedError(f"a cast from {source} to {target} reinterprets memory, which a derivative cannot follow", span)


def _same_size(one: Type, other: Type) -> bool:
    """Whether elements of one type can be read as those of the other, bit for bit."""
    if not isinstance(one, Scalar) or not isinstance(other, Scalar) or one.bits != other.bits:
        return False
    return one.bits in (32, 64) or {one.kind, other.kind} == {"int", "uint"}


def explicit(value: Expr, target: Type, span: Span) -> Expr:
    """A value converted as the user asks: a conversion that clang put under a cast of the user is the user's."""
    if isinstance(value, Cast) and value.implicit and value.type == target:
        return replace(value, span=span, implicit=False)
    return convert(value, target, span, implicit=False)


def reinterpreted(value: Expr, target: Scalar, span: Span) -> Expr:
    """The bits of a number as another number of its size."""
    source = value.type
    if not isinstance(source, Scalar) or source.bits != target.bits or target.bits not in (32, 64):
        raise UnsupportedError(f"a bit cast from {source} to {target} is not supported", span)
    if source.is_float == target.is_float:
        return convert(value, target, span, implicit=False)
    wide = Scalar("int", 64) if 64 in (source.bits, target.bits) else None
    if wide is not None and source.is_integer:
        return MathCall(span, target, "bits", (convert(value, wide, span, implicit=False),))
    if wide is not None:
        return convert(MathCall(span, wide, "bits", (value,)), target, span, implicit=False)
    return MathCall(span, target, "bits", (value,))


def promoted(type_: Scalar) -> Scalar:
    """The type after C's integer promotions."""
    small = type_ == BOOL or (type_.is_integer and type_.bits < 32)
    return I32 if small else type_


def common(left: Scalar, right: Scalar) -> Scalar:
    """The type after C's usual arithmetic conversions."""
    left, right = promoted(left), promoted(right)
    if left.is_float or right.is_float:
        return max((t for t in (left, right) if t.is_float), key=lambda t: t.bits)
    if left.bits != right.bits:
        return left if left.bits > right.bits else right
    return left if left.kind == "uint" else right


def constant(span: Span, type_: Scalar, number: int | float) -> Constant:
    """A constant of `type_`, its value brought into the type's range as C does."""
    if type_.is_float:
        return Constant(span, type_, _rounded(float(number)) if type_ == F32 else float(number))
    if type_ == BOOL:
        return Constant(span, type_, bool(number))
    return Constant(span, type_, wrapped(int(number), type_))


def _rounded(number: float) -> float:
    """`number` as the nearest float32."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)

"""Bit-fields and unions: members that are bits of a number in memory, and those of a union that have another type than the number.

In: a `surface.Bits` lvalue, with shift and width in bits (width 0: all bits, in another type), and the number that the memory holds. Out of
`seen`: the member's value, by shift and mask, with the sign extended by an arithmetic shift for a signed member. Out of `with_value`: the
number with the member's bits replaced and all others as they were.

Computes in uint32, or uint64 for a number of 64 bits. Where bits lie is decided in the frontend. Raises UnsupportedError for a view of a
number as a type of another size (`memory.viewed`)."""

from __future__ import annotations

from ..ir import folding, surface
from ..ir.nodes import Constant, Expr
from ..ir.types import I32, I64, U32, U64, Scalar
from .memory import viewed

NO_PLACE = "a pointer or reference to a member that is bits of a number of another type is not supported; copy it into a variable"


def seen(e: surface.Bits, held: Expr) -> Expr:
    """The value of the member, where its memory holds a number."""
    assert isinstance(e.type, Scalar)
    if not e.width:
        value = viewed(held, e.type, e.span)
        assert isinstance(value, Expr)
        return value
    whole, size = _whole(held.type)
    number = folding.cast(held, whole)
    if not e.type.is_signed:
        number = folding.binary(">>", number, Constant(e.shift, I32), whole)
        return folding.cast(folding.binary("&", number, _mask(e.width, whole), whole), e.type)
    number = folding.binary("<<", number, Constant(size - e.shift - e.width, I32), whole)
    signed = folding.cast(number, I64 if size == 64 else I32)
    return folding.cast(folding.binary(">>", signed, Constant(size - e.width, I32), signed.type), e.type)


def with_value(e: surface.Bits, held: Expr, value: Expr) -> Expr:
    """What the memory, which holds a number, holds when the member is given a value of its type."""
    stored = e.lvalue.type
    assert isinstance(stored, Scalar)
    if not e.width:
        made = viewed(value, stored, e.span)
        assert isinstance(made, Expr)
        return made
    whole, size = _whole(stored)
    kept = folding.integer(((1 << size) - 1) ^ (((1 << e.width) - 1) << e.shift), whole)
    own = folding.binary("&", folding.cast(value, whole), _mask(e.width, whole), whole)
    moved = folding.binary("<<", own, Constant(e.shift, I32), whole)
    return folding.cast(folding.binary("|", folding.binary("&", folding.cast(held, whole), kept, whole), moved, whole), stored)


def _whole(stored: Scalar) -> tuple[Scalar, int]:
    """The unsigned type in which such a number is computed with, and its bits."""
    return (U64, 64) if stored.bits == 64 else (U32, 32)


def _mask(width: int, kind: Scalar) -> Expr:
    return folding.integer((1 << width) - 1, kind)

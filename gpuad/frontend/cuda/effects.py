"""Whether an expression of the surface tree does more than give a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ...ir.surface import AddressOf, AtomicCall, Conditional, Deref, Expr, HelperCall, IncDec, Index, Member, Name, ShuffleCall
from ...ir.surface import Assign as AssignNode
from ...ir.types import Array, Pointer, Scalar


def walk(value: Expr) -> Iterator[Expr]:
    """The expression and all within it; bodies of helpers are not entered."""
    yield value
    for child in children(value):
        yield from walk(child)


def children(value: Expr) -> Iterator[Expr]:
    """The operands of an expression."""
    for field in fields(value):
        content = getattr(value, field.name)
        if isinstance(content, Expr):
            yield content
        elif isinstance(content, tuple):
            yield from (item for item in content if isinstance(item, Expr))


def has_effects(value: Expr) -> bool:
    """True if evaluating it may change anything; a call of a helper may."""
    return any(isinstance(node, AssignNode | IncDec | AtomicCall | HelperCall | ShuffleCall) for node in walk(value))


def is_lvalue(value: Expr) -> bool:
    """True if it stands for a place in memory or a variable."""
    if isinstance(value, Member):
        return is_lvalue(value.record)
    if isinstance(value, HelperCall | IncDec):
        return value.function.reference if isinstance(value, HelperCall) else value.prefix
    return isinstance(value, Name | Index | Deref | AssignNode)


def chosen_place(value: Expr) -> Expr:
    """`c ? a[i] : b[j]` where it stands for one of two places: `*(c ? &a[i] : &b[j])`. Anything else as it is."""
    if not isinstance(value, Conditional) or isinstance(value.type, Pointer | Array):
        return value
    places = [chosen_place(side) for side in (value.then, value.otherwise)]
    if not all(map(is_lvalue, places)):
        return value
    pointer = Pointer(value.type)
    then, otherwise = (AddressOf(place.span, pointer, place) for place in places)
    return Deref(value.span, value.type, Conditional(value.span, pointer, value.condition, then, otherwise))


def reads_float(value: Expr) -> bool:
    """True if a floating-point variable or element occurs in it."""
    return any(
        isinstance(node, Name | Index | Deref | Member) and isinstance(node.type, Scalar) and node.type.is_float for node in walk(value)
    )

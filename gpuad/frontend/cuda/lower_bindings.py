"""Structured bindings: `auto [a, b] = pair(x);`, of a struct, a vector or an array.

What is bound is a variable without a name, or, of `auto&`, another name of what there is; each name stands for a part of it.
"""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind

from ...ir import surface
from ...ir.records import is_record, parts
from ...ir.types import I32, Array, Pointer, Struct
from .clang_c import children
from .context import Context
from .fence import STRUCTURED
from .types import is_const, is_reference, lower_type


def is_binding(cursor: Cursor) -> bool:
    """True if a declaration is one of structured bindings, for which the bindings have no name."""
    return bool(cursor.kind == CursorKind.UNEXPOSED_DECL and str(cursor.spelling).startswith("["))


def bind(ctx: Context, cursor: Cursor, value: surface.Expr | None = None) -> tuple[surface.Stmt, ...]:
    """The declarations of the variable that is bound and of its parts' names; `value`: what is bound, where the cursor has it not."""
    names = [child for child in children(cursor) if child.kind == CursorKind.UNEXPOSED_DECL]
    span, plain = ctx.span(cursor), cursor.type.get_canonical()
    const = is_const(plain.get_pointee() if is_reference(plain) else plain)
    value = _bound(ctx, cursor) if value is None else value
    refers = is_reference(plain) and surface.is_lvalue(value)
    type_ = lower_type(plain, span)
    whole = ctx.fresh(span, "bound", type_, reference=refers, const=const)
    copied = not refers and isinstance(value.type, Array)
    given = tuple(_element(value, number) for number in range(len(names))) if copied else value
    made: list[surface.Stmt] = [surface.Declare(span, whole, given)]
    places = _parts(surface.Name(span, type_, whole))
    if len(places) != len(names):
        ctx.refuse(cursor, STRUCTURED)
    for name, place in zip(names, places, strict=True):
        own = ctx.fresh(ctx.span(name), name.spelling, place.type, reference=True, const=const)
        made.append(surface.Declare(own.span, ctx.declare(name, own), place))
    return tuple(made)


def _bound(ctx: Context, cursor: Cursor) -> surface.Expr:
    start = children(cursor)[-1]
    if start.kind == CursorKind.UNEXPOSED_EXPR and len(inner := children(start)) > 1:  # the copy of an array, element by element
        start = inner[0]
    value = surface.chosen_place(ctx.expression(start))
    if isinstance(value.type, Array) and (
        not surface.is_lvalue(value) or isinstance(value.type.element, Array) or surface.has_effects(value)
    ):
        ctx.refuse(cursor, STRUCTURED)
    return value


def _parts(whole: surface.Expr) -> list[surface.Expr]:
    kind = whole.type
    if isinstance(kind, Array):
        return [_element(whole, number) for number in range(kind.length)]
    if not is_record(kind) or (isinstance(kind, Struct) and (kind.members or any(field.base for field in kind.fields))):
        return []
    return [surface.Member(whole.span, part.type, whole, part.name) for part in parts(kind)]


def _element(array: surface.Expr, number: int) -> surface.Expr:
    assert isinstance(array.type, Array)
    first = surface.Decay(array.span, Pointer(array.type.element), array)
    return surface.Index(array.span, array.type.element, first, surface.Constant(array.span, I32, number))

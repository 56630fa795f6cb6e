"""Initialisers of arrays. clang shows the list as it was written, without conversions and zeros; both are added here."""

from __future__ import annotations

from collections import deque

from clang.cindex import Cursor, CursorKind

from ...ir.surface import Expr
from ...ir.types import Array, Scalar, Type
from ...source import Span
from .clang_c import children
from .context import Context
from .conversions import constant, convert


def initial_values(ctx: Context, type_: Type, cursor: Cursor) -> tuple[Expr, ...]:
    """The values of all elements in memory order, of arrays of arrays too; what the list leaves out is 0."""
    if cursor.kind != CursorKind.INIT_LIST_EXPR or not isinstance(type_, Array):
        ctx.refuse(cursor, "an array can only be initialised by a list in braces")
    items = deque(children(cursor))
    values = _fill(ctx, type_, items, ctx.span(cursor))
    if items:
        ctx.refuse(items[0], "this initialiser is not supported")
    return tuple(values)


def _fill(ctx: Context, array: Array, items: deque[Cursor], span: Span) -> list[Expr]:
    """Takes from `items` what this array holds: a nested list fills one element, other items fill in order (braces may be left out)."""
    values: list[Expr] = []
    for _ in range(array.length):
        if isinstance(array.element, Array):
            nested = items and items[0].kind == CursorKind.INIT_LIST_EXPR
            values += initial_values(ctx, array.element, items.popleft()) if nested else _fill(ctx, array.element, items, span)
        else:
            values.append(_element(ctx, array.element, items, span))
    return values


def _element(ctx: Context, type_: Type, items: deque[Cursor], span: Span) -> Expr:
    if not isinstance(type_, Scalar):
        ctx.refuse(items[0], "arrays of pointers are not supported")
    if not items:
        return constant(span, type_, 0)
    return initial_scalar(ctx, type_, items.popleft())


def initial_scalar(ctx: Context, type_: Type, cursor: Cursor) -> Expr:
    """The value of `x`, `{x}` or `{}` as a `type_`."""
    if cursor.kind != CursorKind.INIT_LIST_EXPR:
        return convert(ctx.expression(cursor), type_, ctx.span(cursor), implicit=True)
    inner = children(cursor)
    if len(inner) > 1 or not isinstance(type_, Scalar):
        ctx.refuse(cursor, "this initialiser is not supported")
    return initial_scalar(ctx, type_, inner[0]) if inner else constant(ctx.span(cursor), type_, 0)

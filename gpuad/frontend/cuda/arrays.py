"""Initialisers of arrays. clang shows the list as it was written, without conversions and zeros; both are added here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from clang.cindex import Cursor, CursorKind

from ...ir.surface import Constant, Expr
from ...ir.types import Array, Scalar, Type
from ...source import Span
from .clang_c import children, evaluate
from .context import Context
from .conversions import constant, convert

Initial: TypeAlias = "Callable[[Context, Type, Cursor], Expr]"


def initial_numbers(ctx: Context, type_: Type, cursor: Cursor) -> tuple[bool | int | float, ...]:
    """The values of a number or of all elements of an array, as far as the compiler knows them."""
    values = initial_values(ctx, type_, cursor, _number) if isinstance(type_, Array) else (_number(ctx, type_, cursor),)
    return tuple(value.value for value in values if isinstance(value, Constant))


def _number(ctx: Context, type_: Type, cursor: Cursor) -> Expr:
    inner = children(cursor) if cursor.kind == CursorKind.INIT_LIST_EXPR else [cursor]
    number = evaluate(inner[0]) if len(inner) == 1 else 0 if not inner else None
    if number is None or not isinstance(type_, Scalar):
        ctx.refuse(cursor, "the initial value of a variable of the module has to be a constant")
    return constant(ctx.span(cursor), type_, number)


def initial_values(ctx: Context, type_: Type, cursor: Cursor, value: Initial | None = None) -> tuple[Expr, ...]:
    """The values of all elements in memory order, of arrays of arrays too; what the list leaves out is 0. `value` lowers one of them."""
    if cursor.kind != CursorKind.INIT_LIST_EXPR or not isinstance(type_, Array):
        ctx.refuse(cursor, "an array can only be initialised by a list in braces")
    items = deque(children(cursor))
    values = _fill(ctx, type_, items, ctx.span(cursor), value or initial_scalar)
    if items:
        ctx.refuse(items[0], "this initialiser is not supported")
    return tuple(values)


def _fill(ctx: Context, array: Array, items: deque[Cursor], span: Span, value: Initial) -> list[Expr]:
    """Takes from `items` what this array holds: a nested list fills one element, other items fill in order (braces may be left out)."""
    values: list[Expr] = []
    for _ in range(array.length):
        if isinstance(array.element, Array):
            nested = items and items[0].kind == CursorKind.INIT_LIST_EXPR
            inner = array.element
            values += initial_values(ctx, inner, items.popleft(), value) if nested else _fill(ctx, inner, items, span, value)
        else:
            values.append(_element(ctx, array.element, items, span, value))
    return values


def _element(ctx: Context, type_: Type, items: deque[Cursor], span: Span, value: Initial) -> Expr:
    if not isinstance(type_, Scalar):
        ctx.refuse(items[0], "arrays of pointers are not supported")
    if not items:
        return constant(span, type_, 0)
    return value(ctx, type_, items.popleft())


def initial_scalar(ctx: Context, type_: Type, cursor: Cursor) -> Expr:
    """The value of `x`, `{x}` or `{}` as a `type_`."""
    if cursor.kind != CursorKind.INIT_LIST_EXPR:
        return convert(ctx.expression(cursor), type_, ctx.span(cursor), implicit=True)
    inner = children(cursor)
    if len(inner) > 1 or not isinstance(type_, Scalar):
        ctx.refuse(cursor, "this initialiser is not supported")
    return initial_scalar(ctx, type_, inner[0]) if inner else constant(ctx.span(cursor), type_, 0)

"""Arrays of pointers that are filled after their declaration: `const float* p[3]; for (int j = 0; j < 3; j++) p[j] = x + j * n;`.

Each entry is a variable of its own. Which one is written has to be known: its number is a constant, or made of counters of loops from one
constant to another, whose iterations are then written one after the other. One that is read may have any number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clang.cindex import Cursor, CursorKind

from ...ir import surface
from ...ir.types import Pointer, Scalar
from .clang_c import binary_operator, children, descendants, evaluate, initializer, unary_operator
from .context import Context
from .initialisers import initial_value
from .types import constant, lower_type

ENTRY = (
    "an entry of an array of pointers can be set where its number is known: a constant, or made of the counters of loops from one constant "
    "to another without break and continue"
)
_MAX_ITERATIONS = 64
_PLAIN = (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR)
_LEAVES = (CursorKind.BREAK_STMT, CursorKind.CONTINUE_STMT, CursorKind.GOTO_STMT)
_STEPS = {"x++": 1, "++x": 1, "x--": -1, "--x": -1}
_CHOSEN: dict[str, Callable[[int, int], bool]] = {
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
    "!=": int.__ne__,
}
_COMPUTED: dict[str, Callable[[int, int], int]] = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def declare_entries(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """The variables for the entries of an array of pointers, with the values that it is given."""
    plain, start = cursor.type.get_canonical(), initializer(cursor)
    kind, span = lower_type(plain.element_type, ctx.span(cursor)), ctx.span(cursor)
    given = children(start) if start is not None and start.kind == CursorKind.INIT_LIST_EXPR else []
    values = [initial_value(ctx, kind, item) for item in given]
    own = tuple(ctx.fresh(span, f"{cursor.spelling}_{number}", kind) for number in range(plain.element_count))
    ctx.entries[cursor] = own
    return tuple(surface.Declare(span, entry, value) for entry, value in zip(own, [*values, *[None] * len(own)], strict=False))


def all_entries(ctx: Context, use: Cursor, own: Sequence[surface.Declaration]) -> surface.Expr:
    """The array as a pointer to its first entry."""
    span = ctx.span(use)
    names = tuple(surface.Name(span, entry.type, entry) for entry in own)
    return surface.Table(span, Pointer(own[0].type, const=True), names)


def entry(ctx: Context, cursor: Cursor) -> surface.Expr | None:
    """`p[j]` of such an array, where it is known which entry that is."""
    array, index = (_inner(child) for child in children(cursor))
    if array.kind != CursorKind.DECL_REF_EXPR or array.referenced is None or array.referenced not in ctx.entries:
        return None
    own, number = ctx.entries[array.referenced], _number(ctx, index)
    if number is None or not 0 <= number < len(own):
        return None
    return surface.Name(ctx.span(cursor), own[number].type, own[number])


def filling(ctx: Context, loop: Cursor, init: Cursor | None, condition: Cursor | None, step: Cursor | None) -> tuple[Cursor, range] | None:
    """The counter of a loop that sets entries by it, and its values; None for any other loop."""
    if init is None or condition is None or step is None or not any(_is_set(ctx, node) for node in descendants(loop)):
        return None
    declared = children(init) if init.kind == CursorKind.DECL_STMT else []
    inside = list(descendants(children(loop)[-1]))
    if len(declared) != 1 or any(node.kind in _LEAVES for node in inside) or condition.kind != CursorKind.BINARY_OPERATOR:
        return None
    (counter,) = declared
    start = initializer(counter)
    first = _number(ctx, start) if start is not None else None
    left, right = children(condition)
    last, holds, by = _number(ctx, right), _CHOSEN.get(binary_operator(condition)), _step(ctx, step, counter)
    if not _names(left, counter) or first is None or last is None or holds is None or not by or _writes(inside, counter):
        return None
    count = 0
    while holds(first + count * by, last):
        count += 1
        if count > _MAX_ITERATIONS:
            return None
    return counter, range(first, first + count * by, by)


def iterations(ctx: Context, counter: Cursor, values: range, body: Callable[[], surface.Stmt]) -> tuple[surface.Stmt, ...]:
    """The iterations of a loop one after the other, each with its counter as a constant."""
    made = list[surface.Stmt]()
    span, kind = ctx.span(counter), ctx.type(counter)
    assert isinstance(kind, Scalar)
    for value in values:
        own = ctx.declare(counter, ctx.fresh(span, counter.spelling, kind, const=True))
        ctx.counters[counter] = value
        made.append(surface.Block(span, (surface.Declare(span, own, constant(span, kind, value)), body())))
    ctx.counters.pop(counter, None)
    return tuple(made)


def _is_set(ctx: Context, node: Cursor) -> bool:
    assigns = node.kind == CursorKind.BINARY_OPERATOR and binary_operator(node) == "="
    steps = node.kind == CursorKind.UNARY_OPERATOR and unary_operator(node) in _STEPS
    if not assigns and not steps and node.kind != CursorKind.COMPOUND_ASSIGNMENT_OPERATOR:
        return False
    target = _inner(children(node)[0])
    array = _inner(children(target)[0]) if target.kind == CursorKind.ARRAY_SUBSCRIPT_EXPR else target
    return array.kind == CursorKind.DECL_REF_EXPR and array.referenced in ctx.entries


def _inner(cursor: Cursor) -> Cursor:
    while cursor.kind in _PLAIN and len(inner := children(cursor)) == 1:
        (cursor,) = inner
    return cursor


def _names(expression: Cursor, variable: Cursor) -> bool:
    inner = _inner(expression)
    return bool(inner.kind == CursorKind.DECL_REF_EXPR and inner.referenced == variable)


def _number(ctx: Context, expression: Cursor) -> int | None:
    """A whole number that is known where it stands."""
    expression = _inner(expression)
    known = evaluate(expression)
    if known is not None:
        return known if isinstance(known, int) else None
    if expression.kind == CursorKind.DECL_REF_EXPR and expression.referenced is not None:
        return ctx.counters.get(expression.referenced)
    if expression.kind != CursorKind.BINARY_OPERATOR or (computed := _COMPUTED.get(binary_operator(expression))) is None:
        return None
    left, right = (_number(ctx, side) for side in children(expression))
    return None if left is None or right is None else computed(left, right)


def _step(ctx: Context, step: Cursor, counter: Cursor) -> int | None:
    """By how much a loop's counter moves on."""
    target, *value = children(step)
    if not _names(target, counter):
        return None
    if step.kind == CursorKind.UNARY_OPERATOR:
        return _STEPS.get(unary_operator(step))
    by = _number(ctx, value[0]) if step.kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR else None
    return None if by is None else {"+=": by, "-=": -by}.get(binary_operator(step))


def _writes(nodes: Sequence[Cursor], counter: Cursor) -> bool:
    """True if any of the nodes does more with the counter than read its value."""
    return any(node.kind != CursorKind.UNEXPOSED_EXPR and any(_is(child, counter) for child in children(node)) for node in nodes)


def _is(cursor: Cursor, variable: Cursor) -> bool:
    named = cursor.referenced if cursor.kind == CursorKind.DECL_REF_EXPR else None
    return named is not None and bool(named == variable)

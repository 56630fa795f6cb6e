"""The headers of `for` and `if`, whose absent parts clang leaves out: what is there is told apart by where the semicolons are.

`for (;; ++i)` and `for (; !f;)` show the same children. Where the header is written out in the text, its two semicolons settle what each
child is. Where it comes from a macro there are no semicolons to see, and only a header with all parts is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from clang.cindex import Cursor, CursorKind, Token

from ...ir.surface import Binary, Block, Constant, Decay, Declare, Evaluate, Expr, For, IncDec, Index, Name, Stmt
from ...ir.types import BOOL, I32, Array, Pointer
from .clang_c import children, file_location
from .context import Context
from .conversions import convert
from .effects import is_lvalue
from .types import is_const, is_reference

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_FULL = 4


@dataclass(frozen=True)
class _Header:
    init: Cursor | None
    condition: Cursor | None
    step: Cursor | None


def for_loop(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`for (init; condition; step) body`."""
    *parts, body = children(cursor)
    header = _header(ctx, cursor, parts)
    init = _init(ctx, header.init) if header.init is not None else None
    condition = ctx.expression(header.condition) if header.condition is not None else None
    step = _step(ctx, header.step) if header.step is not None else None
    inner = ctx.statement(body)
    content = inner[0] if len(inner) == 1 else Block(ctx.span(body), inner)
    return (For(ctx.span(cursor), init, condition, step, content),)


def range_loop(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`for (float u : values)` over an array: a loop over its index, in which the variable is an element or a copy of one."""
    variable, values, body = children(cursor)
    over, span = ctx.expression(values), ctx.span(cursor)
    if not isinstance(over.type, Array) or not is_lvalue(over):
        ctx.refuse(cursor, "a range-based for is supported over an array with a name, and over nothing else; write a loop over an index")
    index = ctx.fresh(span, "k", I32)
    place = Name(span, I32, index)
    element = Index(ctx.span(values), over.type.element, Decay(over.span, Pointer(over.type.element), over), place)
    const, reference = is_const(variable.type), is_reference(variable.type)
    type_ = over.type.element if reference else ctx.type(variable)
    declaration = ctx.fresh(ctx.span(variable), variable.spelling, type_, reference=reference, const=const)
    value = element if reference else convert(element, type_, span, implicit=True)
    declared = Declare(declaration.span, ctx.declare(variable, declaration), value)
    content = Block(ctx.span(body), (declared, Block(ctx.span(body), ctx.statement(body))))
    condition = Binary(span, BOOL, "<", place, Constant(span, I32, over.type.length))
    return (For(span, Declare(span, index, Constant(span, I32, 0)), condition, IncDec(span, I32, place, "+", True), content),)


def _init(ctx: Context, cursor: Cursor) -> Stmt:
    if cursor.kind != CursorKind.DECL_STMT:
        value = ctx.expression(cursor)
        return Evaluate(value.span, value)
    body = ctx.statement(cursor)
    return body[0] if len(body) == 1 else Block(ctx.span(cursor), body)


def _step(ctx: Context, cursor: Cursor) -> Expr:
    return ctx.expression(cursor)


def _header(ctx: Context, cursor: Cursor, parts: list[Cursor]) -> _Header:
    if any(part.kind == CursorKind.VAR_DECL for part in parts) or len(parts) > _FULL - 1:
        ctx.refuse(cursor, "a declaration as the condition of a for is not supported")
    if len(parts) == _FULL - 1:
        return _Header(*parts)
    if not parts:
        return _Header(None, None, None)
    ends = _semicolons(cursor)
    if ends is None:
        ctx.refuse(cursor, "a for from a macro must have an initialiser, a condition and a step")
    slots: list[Cursor | None] = [None, None, None]
    for part in parts:
        offset = ctx.places.offset(part.extent.start)
        slots[sum(offset >= end for end in ends)] = part
    if sum(slot is not None for slot in slots) != len(parts):
        ctx.refuse(cursor, "the header of this for is not understood")
    return _Header(*slots)


def _semicolons(cursor: Cursor) -> tuple[int, int] | None:
    """Offsets of the two semicolons of a for that is written out, or None."""
    offsets = [_offset(token) for token in _header_tokens(cursor, "for") if token.spelling == ";"]
    return (offsets[0], offsets[1]) if len(offsets) == 2 else None


def has_initialiser(cursor: Cursor, keyword: str = "if") -> bool:
    """True if the parentheses of an `if` or `switch` hold an initialiser."""
    return any(token.spelling == ";" for token in _header_tokens(cursor, keyword))


def is_constexpr(cursor: Cursor) -> bool:
    """True for an `if constexpr` that is written out."""
    return [token.spelling for token in islice(cursor.get_tokens(), 2)] == ["if", "constexpr"]


def _header_tokens(cursor: Cursor, keyword: str) -> list[Token]:
    """The tokens between the parentheses after `keyword`, outside of inner brackets; none if a macro hides them."""
    tokens = iter(cursor.get_tokens())
    first = next(tokens, None)
    if first is None or first.spelling != keyword or _offset(first) != file_location(cursor.extent.start)[3]:
        return []
    found, depth = [], 0
    for token in tokens:
        if token.spelling in _CLOSING:
            depth -= 1
        if depth == 1:
            found.append(token)
        if token.spelling in _OPENING:
            depth += 1
        if depth == 0 and token.spelling not in ("constexpr",):
            break
    return found


def _offset(token: Token) -> int:
    return file_location(token.location)[3]

"""Initialisers and implicit constructors of variables: from what clang shows of one to the values of its elements.

clang shows the list as it was written, without conversions, zeros and left-out braces; all are added here. Of a struct whose members share
memory the numbers that its bytes come to are given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from clang.cindex import Cursor, CursorKind, TypeKind
from clang.cindex import Type as ClangType

from ...errors import UnsupportedError
from ...ir.records import is_record, member_of, parts
from ...ir.surface import Binary, Constant, Expr, Record, Table
from ...ir.types import I32, U64, Array, Member, Pointer, Scalar, Struct, Type, Vector
from ...source import Span
from .clang_c import children, descendants, evaluate
from .context import Context
from .overlaid import is_anonymous
from .types import (
    bases_of,
    constant,
    convert,
    default_value,
    definition_parts,
    lower_type,
    reinterpreted,
)

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
    while cursor.kind == CursorKind.UNEXPOSED_EXPR and len(children(cursor)) == 1:  # what cleans up temporary values of the list
        (cursor,) = children(cursor)
    if cursor.kind != CursorKind.INIT_LIST_EXPR or not isinstance(type_, Array):
        ctx.refuse(cursor, "an array can only be initialised by a list in braces")
    items = deque(children(cursor))
    values = _fill(ctx, type_, items, ctx.span(cursor), value or initial_value)
    _exhausted(ctx, items)
    return tuple(values)


def _exhausted(ctx: Context, items: deque[Cursor]) -> None:
    if items:
        ctx.refuse(items[0], "this initialiser is not supported")


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
    """The value of one element or field."""
    if isinstance(type_, Array):
        nested = bool(items) and items[0].kind == CursorKind.INIT_LIST_EXPR
        own = deque(children(items.popleft())) if nested else items
        values = tuple(_element(ctx, type_.element, own, span, value) for _ in range(type_.length))
        if nested:
            _exhausted(ctx, own)
        return Record(span, type_, values)
    if not items:
        return zero(ctx, type_, span)
    if isinstance(type_, Pointer) and items[0].kind == CursorKind.INIT_LIST_EXPR:
        ctx.refuse(items[0], "arrays of pointers are not supported")
    if isinstance(type_, Vector) and items[0].kind != CursorKind.INIT_LIST_EXPR and ctx.type(items[0]) != type_:
        return Record(span, type_, tuple(_element(ctx, part.type, items, span, value) for part in parts(type_)))
    return value(ctx, type_, items.popleft())


def zero(ctx: Context, type_: Type, span: Span) -> Expr:
    """The value of a type whose numbers are all 0."""
    if isinstance(type_, Scalar):
        return constant(span, type_, 0)
    if isinstance(type_, Pointer):
        return Constant(span, type_, 0)
    if isinstance(type_, Struct) and not type_.listed:
        raise UnsupportedError(f"the initialiser of {type_.name} is not supported; write its constructor", span)
    return Record(span, type_, tuple(zero(ctx, part.type, span) for part in parts(type_)))


def is_pointers(type_: ClangType) -> bool:
    """True if a type is that of an array of pointers."""
    plain = type_.get_canonical()
    return bool(plain.kind == TypeKind.CONSTANTARRAY and plain.element_type.get_canonical().kind == TypeKind.POINTER)


def initial_pointers(ctx: Context, cursor: Cursor, start: Cursor) -> Table:
    """The pointers of an array that is given all of them."""
    plain, items = cursor.type.get_canonical(), children(start)
    if len(items) != plain.element_count:
        ctx.refuse(cursor, "an array of pointers needs a value for each of them")
    nulls = (CursorKind.CXX_NULL_PTR_LITERAL_EXPR, CursorKind.GNU_NULL_EXPR)
    for item in items:
        if any(node.kind in nulls for node in (item, *descendants(item))):
            ctx.refuse(item, "an array of pointers of which one is null is not supported")
    element = lower_type(plain.element_type, ctx.span(cursor))
    return Table(ctx.span(start), Pointer(element, const=True), tuple(initial_value(ctx, element, item) for item in items))


def initial_value(ctx: Context, type_: Type, cursor: Cursor) -> Expr:
    """The value of `x`, `{x}` or `{}` as a `type_`, a number, pointer or record."""
    if cursor.kind != CursorKind.INIT_LIST_EXPR:
        return convert(ctx.expression(cursor), type_, ctx.span(cursor), implicit=True)
    inner = children(cursor)
    if is_record(type_):
        return _record(ctx, type_, deque(inner), cursor)
    if len(inner) > 1:
        ctx.refuse(cursor, "this initialiser is not supported")
    return initial_value(ctx, type_, inner[0]) if inner else zero(ctx, type_, ctx.span(cursor))


def _record(ctx: Context, type_: Type, items: deque[Cursor], cursor: Cursor) -> Expr:
    if len(items) == 1 and items[0].kind != CursorKind.INIT_LIST_EXPR and ctx.type(items[0]) == type_:
        return ctx.expression(items[0])
    if isinstance(type_, Struct) and not type_.listed:
        ctx.refuse(cursor, f"a list in braces for {type_.name} is not supported here; write its constructor")
    span = ctx.span(cursor)
    if isinstance(type_, Struct) and type_.members:
        return _overlaid(ctx, type_, items, cursor)
    values = tuple(_element(ctx, part.type, items, span, initial_value) for part in parts(type_))
    _exhausted(ctx, items)
    return Record(span, type_, values)


def _overlaid(ctx: Context, type_: Struct, items: deque[Cursor], cursor: Cursor) -> Expr:
    """A list for a struct whose members share memory: of a union it gives the first one."""
    span = ctx.span(cursor)
    numbers_at: dict[int, Expr] = {}
    for name, value in _listed_members(ctx, cursor.type.get_canonical(), items, span):
        member = member_of(type_, name)
        assert member is not None
        if member.width:
            own, known = value(member.type), numbers_at.get(member.offset)
            numbers_at[member.offset] = _packed(member, own, known)
            continue
        numbers_at |= dict(_scattered(ctx, member.type, value(member.type), member.offset, cursor))
    _exhausted(ctx, items)
    values = (numbers_at.get(part.offset) for part in parts(type_))
    return Record(
        span, type_, tuple(_as_held(v, p.type) if v else zero(ctx, p.type, span) for v, p in zip(values, parts(type_), strict=True))
    )


def _listed_members(ctx: Context, type_: ClangType, items: deque[Cursor], span: Span) -> Iterator[tuple[str, Callable[[Type], Expr]]]:
    """The members that a list gives values, with what makes them: all of a struct, the first of a union."""
    union = type_.get_declaration().kind == CursorKind.UNION_DECL
    for own in list(type_.get_fields())[: 1 if union else None]:
        inner = own.type.get_canonical()
        if not is_anonymous(own):
            yield own.spelling, lambda kind: _element(ctx, kind, items, span, initial_value)
        elif items and items[0].kind == CursorKind.INIT_LIST_EXPR:
            nested = deque(children(items.popleft()))
            yield from _listed_members(ctx, inner, nested, span)
            _exhausted(ctx, nested)
        else:
            yield from _listed_members(ctx, inner, items, span)


def _scattered(ctx: Context, type_: Type, value: Expr, offset: int, cursor: Cursor) -> Iterator[tuple[int, Expr]]:
    """The numbers of a value with the places where they come to lie."""
    if isinstance(type_, Scalar):
        yield offset, value
    elif isinstance(value, Record):
        for part, own in zip(parts(type_), value.values, strict=True):
            yield from _scattered(ctx, part.type, own, offset + part.offset, cursor)
    else:
        ctx.refuse(cursor, "a list in braces for members that share memory has to give numbers; give the members their values")


def _packed(member: Member, value: Expr, known: Expr | None) -> Expr:
    """The number in which a bit-field lies, with its value beside those of others."""
    span = value.span
    mask = Constant(span, U64, (1 << member.width) - 1)
    bits = Binary(span, U64, "&", convert(value, U64, span, implicit=False), mask)
    moved = Binary(span, U64, "<<", bits, Constant(span, I32, member.shift))
    return moved if known is None else Binary(span, U64, "|", known, moved)


def _as_held(value: Expr, held: Type) -> Expr:
    assert isinstance(held, Scalar)
    if isinstance(value.type, Scalar) and value.type.is_integer and held.is_integer:
        return convert(value, held, value.span, implicit=False)
    return value if value.type == held else reinterpreted(value, held, value.span)


def has_body(function: Cursor) -> bool:
    """True for a function that the user wrote, not the compiler: its own are where their struct is."""
    definition = function.get_definition()
    if function.is_default_method() or function.location == function.semantic_parent.location:
        return False
    return definition is not None and any(child.kind == CursorKind.COMPOUND_STMT for child in children(definition))


def is_undefined(start: Cursor) -> bool:
    """True for the initialiser that clang shows where there is none: `float4 v;`. Fields with values by default are an initialiser."""
    callee = start.referenced
    if start.kind != CursorKind.CALL_EXPR or callee is None or callee.kind != CursorKind.CONSTRUCTOR:
        return False
    return not has_body(callee) and not children(start) and not _has_defaults(callee.semantic_parent)


def _has_defaults(declaration: Cursor) -> bool:
    """True if a struct without a constructor is not left as it is: fields have values by default, or bases have them or constructors."""
    if any(map(default_value, declaration.type.get_fields())):
        return True
    bases = [base.get_declaration() for base in bases_of(declaration)]
    constructors = (part for base in bases for part in definition_parts(base) if part.kind == CursorKind.CONSTRUCTOR)
    return any(map(has_body, constructors)) or any(map(_has_defaults, bases))


def is_braced(start: Cursor) -> bool:
    """True where empty braces ask for the value of the type, zeros for the most part: `complex<float> z{}`, `complex<float> z = {}`."""
    return [token.spelling for token in start.get_tokens()][-2:] == ["{", "}"]


def is_elided(call: Cursor) -> bool:
    """True for the copy of a temporary value, which is elided: before C++17 it is there in name (`float2 v = make_float2(x, y);`)."""
    original = children(call)
    return not call.spelling and len(original) == 1 and _unqualified(original[0]) == _unqualified(call)


def _unqualified(value: Cursor) -> str:
    return str(value.type.get_canonical().spelling).removeprefix("const ")

"""Vectors, structs and their members: fields, `this`, construction and assignment, and what a member function needs to be a helper.

A member function is a helper whose first parameter is the object, by reference; a constructor is one that makes the object, fills it and
returns it.
"""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind

from ...ir.records import is_record, parts
from ...ir.surface import (
    AddressOf,
    Assign,
    Block,
    Declaration,
    Declare,
    Evaluate,
    Expr,
    Function,
    HelperCall,
    Member,
    Name,
    Record,
    Return,
    Stmt,
)
from ...ir.surface import LaunchIndex as LaunchIndexNode
from ...ir.types import Array, Pointer, Struct
from .clang_c import children
from .context import Context
from .lower_expressions import LAUNCH, dereferenced
from .translation_unit import is_ours
from .types import default_value, is_const
from .variables import initial_value, initial_values, zero

# --- members -----------------------------------------------------------------------------------------------------------------------------


def member(ctx: Context, cursor: Cursor) -> Expr:
    """`threadIdx.x`, `v.x`, `p->x`, and `x` inside a member function."""
    base, field = children(cursor), cursor.referenced
    if field is None or field.kind != CursorKind.FIELD_DECL:
        ctx.refuse(cursor, f"the member {cursor.spelling} is not supported here")
    bases = [child for child in base if child.kind.is_expression()]
    if bases and (index := launch_index(bases[0])):
        return LaunchIndexNode(ctx.span(bases[0]), ctx.type(cursor), index, cursor.spelling)
    record = ctx.expression(bases[0]) if bases else receiver(ctx, cursor)
    if isinstance(record.type, Pointer):
        record = dereferenced(record)
    if not any(part.name == cursor.spelling for part in parts(record.type)):
        ctx.refuse(cursor, f"the member {cursor.spelling} is not supported here")
    return Member(ctx.span(bases[0] if bases else cursor), ctx.type(cursor), record, cursor.spelling)


def launch_index(cursor: Cursor) -> str | None:
    """'threadIdx' and its kin, or None."""
    while cursor.kind == CursorKind.PAREN_EXPR:
        (cursor,) = children(cursor)
    variable = cursor.referenced if cursor.kind == CursorKind.DECL_REF_EXPR else None
    return str(variable.spelling) if variable is not None and variable.spelling in LAUNCH and is_ours(variable) else None


def receiver(ctx: Context, cursor: Cursor) -> Name:
    """The object of the member function that is being lowered."""
    known = ctx.receivers[-1] if ctx.receivers else None
    if known is None:
        ctx.refuse(cursor, "a member outside of a member function is not supported")
    return Name(ctx.span(cursor), known.type, known)


def this(ctx: Context, cursor: Cursor) -> Expr:
    """`this`."""
    known = receiver(ctx, cursor)
    return AddressOf(known.span, Pointer(known.type, is_const(cursor.type.get_canonical().get_pointee())), known)


# --- definitions -------------------------------------------------------------------------------------------------------------------------


def is_method(definition: Cursor) -> bool:
    """True for a function that is called on an object."""
    kinds = (CursorKind.CXX_METHOD, CursorKind.CONVERSION_FUNCTION)
    return definition.kind in kinds and not definition.is_static_method()


def is_constructor(definition: Cursor) -> bool:
    """True for a constructor."""
    return bool(definition.kind == CursorKind.CONSTRUCTOR)


def own_object(ctx: Context, definition: Cursor, reference: bool) -> Declaration:
    """The object that a member function is called on, or that a constructor makes."""
    span = ctx.span(definition)
    type_ = ctx.type(definition.semantic_parent)
    return ctx.fresh(span, str(definition.semantic_parent.spelling).lower(), type_, reference=reference)


def constructed(ctx: Context, definition: Cursor, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """A constructor's body between the making of its object and its return."""
    made = ctx.receivers[-1]
    assert made is not None
    span = ctx.span(definition)
    result = Return(span, Name(span, made.type, made))
    return (Declare(span, made, None), *_initialisers(ctx, definition), *body, result)


def _initialisers(ctx: Context, definition: Cursor) -> list[Stmt]:
    """The fields' values in the order of the fields: those that the constructor lists, else those that they have by default."""
    listed: dict[str, Cursor] = {}
    before: Cursor | None = None  # what an expression would be the value of
    for child in children(definition):
        if before is not None and child.kind.is_expression():
            if before.kind != CursorKind.MEMBER_REF:
                ctx.refuse(before, "constructors that call another constructor or that of a base class are not supported")
            listed[str(before.spelling)] = child
        before = child if child.kind.is_reference() else None
    fields = list(definition.semantic_parent.type.get_fields())
    values = [(f, listed.get(f.spelling) or default_value(f)) for f in fields]
    return [_set_field(ctx, definition, f, value) for f, value in values if value is not None]


def _set_field(ctx: Context, definition: Cursor, field: Cursor, value: Cursor) -> Stmt:
    span, made = ctx.span(value), ctx.receivers[-1]
    assert made is not None
    type_ = ctx.type(field)
    target = Member(span, type_, Name(span, made.type, made), str(field.spelling))
    if value.kind == CursorKind.UNEXPOSED_EXPR and not children(value):
        given: Expr = zero(ctx, type_, span)
    elif isinstance(type_, Array):
        given = Record(span, type_, initial_values(ctx, type_, value))
    else:
        given = initial_value(ctx, type_, value)
    return Evaluate(span, Assign(span, type_, target, given))


# --- values ------------------------------------------------------------------------------------------------------------------------------


def implicit_construction(ctx: Context, cursor: Cursor) -> Expr:
    """A copy, or `float4()`: what the compiler's own constructors make."""
    arguments = list(cursor.get_arguments())
    if len(arguments) == 1:
        return ctx.expression(arguments[0])
    type_ = ctx.type(cursor)
    if arguments or not is_record(type_):
        ctx.refuse(cursor, f"this way to make a {cursor.type.spelling} is not supported")
    if isinstance(type_, Struct) and not type_.listed:
        return _made_by_default(ctx, cursor, type_)
    return zero(ctx, type_, ctx.span(cursor))


def _made_by_default(ctx: Context, cursor: Cursor, type_: Struct) -> Expr:
    """A struct whose fields have values by default, as a call of the constructor that its user did not write."""
    constructor, span = cursor.referenced, ctx.span(cursor)
    ctx.receivers.append(own_object(ctx, constructor, reference=False))
    body = constructed(ctx, constructor, ())
    ctx.receivers.pop()
    return HelperCall(span, type_, Function(span, type_.name, (), type_, Block(span, body)), ())


def implicit_assignment(ctx: Context, cursor: Cursor) -> Expr:
    """`a = b` of whole records."""
    left, right = cursor.get_arguments()
    target, value = ctx.lvalue(left), ctx.expression(right)
    if value.type != target.type:
        ctx.refuse(cursor, f"an assignment of {value.type} to {target.type} is not supported")
    return Assign(ctx.span(cursor), target.type, target, value)

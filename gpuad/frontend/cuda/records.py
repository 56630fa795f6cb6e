"""Vectors, structs and their members: fields, `this`, construction and assignment, and what a member function needs to be a helper.

A member function is a helper whose first parameter is the object, by reference; a constructor is one that makes the object, fills it and
returns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from clang.cindex import Cursor, CursorKind
from clang.cindex import Type as ClangType

from ...errors import UnsupportedError
from ...ir import surface
from ...ir.records import is_record, leaves, member_of, parts
from ...ir.surface import LaunchIndex as LaunchIndexNode
from ...ir.types import Array, Pointer, Scalar, Struct, Type
from ...source import Span
from .clang_c import children, template_of
from .context import Context
from .initialisers import has_body, initial_value, initial_values, zero
from .lower_expressions import LAUNCH, dereferenced
from .overlaid import is_anonymous, named_members
from .translation_unit import is_ours
from .types import as_base, bases_of, convert, default_value, definition_parts, is_const, lower_type

# --- members -----------------------------------------------------------------------------------------------------------------------------


def member(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`threadIdx.x`, `v.x`, `p->x`, and `x` inside a member function."""
    base, field = children(cursor), cursor.referenced
    if field is None or field.kind != CursorKind.FIELD_DECL:
        ctx.refuse(cursor, f"the member {cursor.spelling} is not supported here")
    bases = _named_object([child for child in base if child.kind.is_expression()])
    if bases and (index := launch_index(bases[0])):
        return LaunchIndexNode(ctx.span(bases[0]), ctx.type(cursor), index, cursor.spelling)
    record = ctx.expression(bases[0]) if bases else receiver(ctx, cursor)
    if isinstance(record.type, Pointer):
        record = dereferenced(record)
    if isinstance(record.type, Struct) and any(part.base for part in record.type.fields):  # it may be one of a base
        record = convert(record, lower_type(field.semantic_parent.type, record.span), record.span, implicit=True)
    return member_place(ctx, cursor, record, cursor.spelling, ctx.span(bases[0] if bases else cursor))


def _named_object(base: list[Cursor]) -> list[Cursor]:
    """The object of which something is a member, without the anonymous members on the way; nothing within a member function."""
    while base and base[0].kind == CursorKind.MEMBER_REF_EXPR and base[0].referenced is not None and is_anonymous(base[0].referenced):
        base = [child for child in children(base[0]) if child.kind.is_expression()]
    return base


def member_place(ctx: Context, cursor: Cursor, record: surface.Expr, name: str, span: Span) -> surface.Expr:
    """A member of a record. Where members share memory, one of another type than the number that is there are the bits of that."""
    if (shared := member_of(record.type, name)) is not None:
        held = {part.offset: part.type for part in parts(record.type)}
        own = held.get(shared.offset, shared.type)
        if shared.width or (isinstance(shared.type, Scalar) and own != shared.type):
            return surface.Bits(span, shared.type, surface.Member(span, own, record, name), shared.shift, shared.width)
        for leaf in leaves(shared.type):
            if (known := held[shared.offset + leaf.offset]) != leaf.type:
                ctx.refuse(
                    cursor, f"the member {name} consists of {leaf.type}, where the memory holds {known}: only single numbers may differ"
                )
        return surface.Member(span, shared.type, record, name)
    if not any(part.name == name for part in parts(record.type)):
        ctx.refuse(cursor, f"the member {name} is not supported here")
    return surface.Member(span, ctx.type(cursor), record, name)


def launch_index(cursor: Cursor) -> str | None:
    """'threadIdx' and its kin, or None."""
    while cursor.kind == CursorKind.PAREN_EXPR:
        (cursor,) = children(cursor)
    variable = cursor.referenced if cursor.kind == CursorKind.DECL_REF_EXPR else None
    return str(variable.spelling) if variable is not None and variable.spelling in LAUNCH and is_ours(variable) else None


def receiver(ctx: Context, cursor: Cursor) -> surface.Name:
    """The object of the member function that is being lowered."""
    known = ctx.receivers[-1] if ctx.receivers else None
    if known is None:
        ctx.refuse(cursor, "a member outside of a member function is not supported")
    return surface.Name(ctx.span(cursor), known.type, known)


def this(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`this`."""
    known = receiver(ctx, cursor)
    return surface.AddressOf(known.span, Pointer(known.type, is_const(cursor.type.get_canonical().get_pointee())), known)


# --- definitions -------------------------------------------------------------------------------------------------------------------------


def is_method(definition: Cursor) -> bool:
    """True for a function that is called on an object."""
    kinds = (CursorKind.CXX_METHOD, CursorKind.CONVERSION_FUNCTION)
    return definition.kind in kinds and not definition.is_static_method()


def is_constructor(definition: Cursor) -> bool:
    """True for a constructor."""
    return bool(definition.kind == CursorKind.CONSTRUCTOR)


def own_object(ctx: Context, definition: Cursor, type_: Type | None) -> surface.Declaration:
    """The object that a member function is called on, a `type_`, or that a constructor makes."""
    if is_constructor(definition):
        return _new_object(ctx, ctx.span(definition), definition.semantic_parent)
    name = str(definition.semantic_parent.spelling).lower()
    return ctx.fresh(ctx.span(definition), name, type_ or ctx.type(definition.semantic_parent), reference=True)


def _new_object(ctx: Context, span: Span, declaration: Cursor) -> surface.Declaration:
    return ctx.fresh(span, str(declaration.spelling).lower(), ctx.type(declaration))


def constructed(ctx: Context, definition: Cursor, body: tuple[surface.Stmt, ...]) -> tuple[surface.Stmt, ...]:
    """A constructor's body between the making of its object and its return."""
    return _made(ctx, ctx.span(definition), definition.semantic_parent, _listed(definition), body)


def _made(
    ctx: Context, span: Span, declaration: Cursor, listed: Mapping[str, Cursor], body: tuple[surface.Stmt, ...]
) -> tuple[surface.Stmt, ...]:
    """The making of the object: its bases and fields in their order, each by what the constructor lists, else by what it has by default."""
    made = ctx.receivers[-1]
    assert made is not None
    target = surface.Name(span, made.type, made)
    if (whole := listed.get(str(declaration.type.get_canonical().spelling))) is not None:  # another constructor's
        return (surface.Declare(span, made, None), _set(ctx, target, whole), *body, surface.Return(span, target))
    found = [named.cursor for named in named_members(declaration.type.get_canonical())]
    values = [(f, listed.get(str(f.spelling)) or default_value(f)) for f in found]
    bases = (_set_base(ctx, target, base, listed.get(str(base.spelling))) for base in bases_of(declaration))
    fields = (_set(ctx, member_place(ctx, f, target, str(f.spelling), ctx.span(value)), value) for f, value in values if value is not None)
    return (surface.Declare(span, made, None), *(s for stmts in bases for s in stmts), *fields, *body, surface.Return(span, target))


def _listed(constructor: Cursor) -> dict[str, Cursor]:
    """What a constructor lists before its body: of fields by their names, of bases, or of the whole, by those of their types."""
    listed: dict[str, Cursor] = {}
    before: Cursor | None = None  # what an expression would be the value of
    for child in children(constructor):
        if before is not None and child.kind.is_expression():
            field = before.kind == CursorKind.MEMBER_REF
            listed[str(before.spelling if field else child.type.get_canonical().spelling)] = child
        before = child if child.kind.is_reference() else None
    return listed


def _set_base(ctx: Context, target: surface.Name, base: ClangType, listed: Cursor | None) -> tuple[surface.Stmt, ...]:
    """The making of a base, if it is not one of which nothing is said and which has no constructor."""
    span = ctx.span(listed) if listed is not None else target.span
    type_ = lower_type(base, span)
    if not parts(type_) or (listed is None and (not isinstance(type_, Struct) or type_.listed)):
        return ()
    place = as_base(replace(target, span=span), type_, span)
    if listed is not None:
        return (_set(ctx, place, listed),)
    return (surface.Evaluate(span, surface.Assign(span, type_, place, _by_default(ctx, span, base.get_declaration(), type_))),)


def _set(ctx: Context, place: surface.Expr, value: Cursor) -> surface.Stmt:
    """Gives a part of an object its first value."""
    span, type_ = ctx.span(value), place.type
    if value.kind == CursorKind.UNEXPOSED_EXPR and not children(value):
        given = zero(ctx, type_, span)
    elif isinstance(type_, Array):
        given = surface.Record(span, type_, initial_values(ctx, type_, value))
    else:
        given = initial_value(ctx, type_, value)
    return surface.Evaluate(span, surface.Assign(span, type_, place, given))


# --- values ------------------------------------------------------------------------------------------------------------------------------


def implicit_construction(ctx: Context, cursor: Cursor) -> surface.Expr:
    """A copy, or `float4()`: what the compiler's own constructors make."""
    arguments = list(cursor.get_arguments())
    type_ = ctx.type(cursor)
    if len(arguments) == 1:
        value = ctx.expression(arguments[0])
        return as_base(value, type_, value.span) if isinstance(value.type, Struct) and value.type != type_ else value
    if arguments or not is_record(type_):
        ctx.refuse(cursor, f"this way to make a {cursor.type.spelling} is not supported")
    if isinstance(type_, Struct) and not type_.listed:
        return _by_default(ctx, ctx.span(cursor), cursor.referenced.semantic_parent, type_)
    return zero(ctx, type_, ctx.span(cursor))


def _by_default(ctx: Context, span: Span, declaration: Cursor, type_: Type) -> surface.Expr:
    """A struct that nothing is given: by its constructor without arguments, or as a call of the one that its user did not write."""
    constructors = [c for c in definition_parts(declaration) if c.kind == CursorKind.CONSTRUCTOR and has_body(c)]
    plain = next((c for c in constructors if not list(c.get_arguments())), None)
    if constructors and (plain is None or template_of(declaration) is not None):
        raise UnsupportedError(f"list the constructor of the base {declaration.spelling} before the body", span)
    if plain is not None:
        return surface.HelperCall(span, type_, ctx.lower_function(ctx, plain.get_definition(), None), ())
    ctx.receivers.append(_new_object(ctx, span, declaration))
    body = _made(ctx, span, declaration, {}, ())
    ctx.receivers.pop()
    return surface.HelperCall(span, type_, surface.Function(span, str(declaration.spelling), (), type_, surface.Block(span, body)), ())


def implicit_assignment(ctx: Context, cursor: Cursor) -> surface.Expr:
    """`a = b` of whole records."""
    left, right = cursor.get_arguments()
    target = ctx.lvalue(left)
    value = convert(ctx.expression(right), target.type, ctx.span(cursor), implicit=True)
    return surface.Assign(ctx.span(cursor), target.type, target, value)

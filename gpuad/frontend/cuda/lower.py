"""From a function's cursor to its surface tree: the tables of handlers, put together here, and functions themselves."""

from __future__ import annotations

from collections.abc import Callable

from clang.cindex import Cursor, CursorKind, TypeKind

from ...ir import surface
from ...ir.records import is_record
from ...ir.surface import Block, Cast, Declaration, Declare, Deref, Name
from ...ir.types import Array, Pointer, Scalar, Type
from . import headers, lower_calls, lower_memory, lower_operators, lower_statements, lower_switch, records
from .clang_c import children, has_attribute
from .context import Context, ExpressionHandler, StatementHandler
from .globals import with_globals
from .lambdas import is_lambda, is_passed
from .places import Places, is_ours
from .types import is_const, is_reference, is_rvalue_reference, lower_parameter, lower_type

EXPRESSIONS: dict[CursorKind, ExpressionHandler] = {
    CursorKind.UNEXPOSED_EXPR: lower_operators.implicit,
    CursorKind.PAREN_EXPR: lower_operators.parenthesised,
    CursorKind.INTEGER_LITERAL: lower_memory.literal,
    CursorKind.FLOATING_LITERAL: lower_memory.literal,
    CursorKind.CHARACTER_LITERAL: lower_memory.literal,
    CursorKind.CXX_BOOL_LITERAL_EXPR: lower_memory.literal,
    CursorKind.CXX_UNARY_EXPR: lower_memory.literal,
    CursorKind.CXX_NULL_PTR_LITERAL_EXPR: lower_memory.null,
    CursorKind.DECL_REF_EXPR: lower_memory.name,
    CursorKind.MEMBER_REF_EXPR: records.member,
    CursorKind.CXX_THIS_EXPR: records.this,
    CursorKind.ARRAY_SUBSCRIPT_EXPR: lower_memory.subscript,
    CursorKind.UNARY_OPERATOR: lower_operators.unary,
    CursorKind.BINARY_OPERATOR: lower_operators.binary,
    CursorKind.COMPOUND_ASSIGNMENT_OPERATOR: lower_operators.compound,
    CursorKind.CONDITIONAL_OPERATOR: lower_operators.conditional,
    CursorKind.CSTYLE_CAST_EXPR: lower_operators.cast,
    CursorKind.CXX_STATIC_CAST_EXPR: lower_operators.cast,
    CursorKind.CXX_FUNCTIONAL_CAST_EXPR: lower_operators.cast,
    CursorKind.CXX_CONST_CAST_EXPR: lower_operators.cast,
    CursorKind.CXX_REINTERPRET_CAST_EXPR: lower_operators.cast,
    CursorKind.INIT_LIST_EXPR: lower_operators.braced,
    CursorKind.CALL_EXPR: lower_calls.call,
}

STATEMENTS: dict[CursorKind, StatementHandler] = {
    CursorKind.COMPOUND_STMT: lower_statements.block,
    CursorKind.DECL_STMT: lower_statements.declarations,
    CursorKind.IF_STMT: lower_statements.branch,
    CursorKind.SWITCH_STMT: lower_switch.switch,
    CursorKind.FOR_STMT: headers.for_loop,
    CursorKind.CXX_FOR_RANGE_STMT: headers.range_loop,
    CursorKind.WHILE_STMT: lower_statements.while_loop,
    CursorKind.DO_STMT: lower_statements.do_loop,
    CursorKind.BREAK_STMT: lower_statements.stop,
    CursorKind.CONTINUE_STMT: lower_statements.skip,
    CursorKind.RETURN_STMT: lower_statements.leave,
    CursorKind.NULL_STMT: lower_statements.nothing,
    CursorKind.UNEXPOSED_STMT: lower_statements.attributed,
    CursorKind.CALL_EXPR: lower_statements.evaluate,
}

NO_ELEMENT = "a kernel's pointer must point to numbers, structs, or arrays of these"


def lower_kernel(places: Places, definition: Cursor, check: Callable[[Cursor], None]) -> surface.Function:
    """The kernel's tree. `check` is called with each definition that it consists of, its own and those of the helpers that it reaches,
    before that is lowered: it raises where clang has found an error."""
    ctx = Context(places, EXPRESSIONS, STATEMENTS, lower_function, check)
    function = lower_function(ctx, definition)
    return with_globals(function, tuple(ctx.globals.values()))


def lower_function(ctx: Context, definition: Cursor) -> surface.Function:
    """A kernel or helper with its body. A member function has its object as first parameter, a constructor gives the object it makes."""
    ctx.check(definition)
    is_kernel = has_attribute(definition, CursorKind.CUDAGLOBAL_ATTR)
    ctx.active.append(definition)
    ctx.tables.append([])
    closure, constructor = is_lambda(definition), records.is_constructor(definition)
    method = records.is_method(definition) and not closure
    ctx.receivers.append(records.own_object(ctx, definition, reference=method) if method or constructor else None)
    receiver = (ctx.receivers[-1],) if method and ctx.receivers[-1] else ()
    parameters = tuple(_parameter(ctx, p, number, is_kernel) for number, p in enumerate(definition.get_arguments()) if not is_passed(p))
    result = ctx.receivers[-1].type if constructor and ctx.receivers[-1] else lower_type(definition.result_type, ctx.span(definition))
    body = _body(ctx, definition)
    ctx.active.pop()
    ctx.receivers.pop()
    reference = not constructor and is_reference(definition.result_type)
    name = "lambda" if closure else definition.spelling
    library = is_ours(definition)
    return surface.Function(
        ctx.span(definition), name, (*receiver, *parameters), result, body, is_kernel, reference, library, closure=closure
    )


def _body(ctx: Context, definition: Cursor) -> Block:
    """The statements, after the tables of the file that they read."""
    bodies = [child for child in children(definition) if child.kind == CursorKind.COMPOUND_STMT]
    if len(bodies) != 1:
        ctx.refuse(definition, f"the function {definition.spelling} has no plain body")
    (block,) = ctx.statement(bodies[0])
    assert isinstance(block, Block)
    statements = records.constructed(ctx, definition, block.body) if records.is_constructor(definition) else block.body
    return Block(block.span, (*ctx.tables.pop(), *statements))


def _parameter(ctx: Context, cursor: Cursor, number: int, is_kernel: bool) -> Declaration:
    reference = is_reference(cursor.type)
    if is_rvalue_reference(cursor.type):
        ctx.refuse(cursor, "a parameter that is a reference to a temporary value (&&) is not supported; make it const and &")
    if is_kernel and reference:
        return _referred(ctx, cursor)
    type_ = lower_parameter(cursor.type, ctx.span(cursor))
    if isinstance(type_, Pointer) and is_kernel:
        if isinstance(type_.element, Array):
            return _flat(ctx, cursor, type_)
        if not _is_element(type_.element):
            ctx.refuse(cursor, NO_ELEMENT)
    declared = cursor.type.get_canonical().get_pointee() if reference else cursor.type
    const = is_const(declared) and isinstance(type_, Pointer) == (declared.get_canonical().kind == TypeKind.POINTER)
    name = _parameter_name(cursor, number)
    return ctx.declare(cursor, ctx.fresh(ctx.span(cursor), name, type_, reference=reference, const=const))


def _flat(ctx: Context, cursor: Cursor, type_: Pointer) -> Declaration:
    """A kernel's parameter that points to arrays (`float (*x)[3]`, `float u[][N]`): it is passed as a pointer to their elements, and seen
    through a local one of the type that the user gave it."""
    element = type_.element
    while isinstance(element, Array):
        element = element.element
    if not _is_element(element):
        ctx.refuse(cursor, NO_ELEMENT)
    span = ctx.span(cursor)
    flat = ctx.fresh(span, cursor.spelling, Pointer(element, type_.const), const=True)
    seen = ctx.declare(cursor, ctx.fresh(span, cursor.spelling, type_))
    ctx.tables[-1].append(Declare(span, seen, Cast(span, type_, Name(span, flat.type, flat), True)))
    return flat


def _referred(ctx: Context, cursor: Cursor) -> Declaration:
    """A kernel's parameter that is a reference (`const float& rate`): what is passed is the address of one element, and the name stands for
    what is there."""
    span, pointee = ctx.span(cursor), cursor.type.get_canonical().get_pointee()
    element, const = lower_type(pointee, span), is_const(pointee)
    if not _is_element(element):
        ctx.refuse(cursor, "a kernel's reference must be one to a number or a struct")
    pointer = ctx.fresh(span, cursor.spelling, Pointer(element, const), const=True)
    seen = ctx.declare(cursor, ctx.fresh(span, cursor.spelling, element, reference=True, const=const))
    ctx.tables[-1].append(Declare(span, seen, Deref(span, element, Name(span, pointer.type, pointer))))
    return pointer


def _is_element(type_: Type) -> bool:
    return isinstance(type_, Scalar) or is_record(type_)


def _parameter_name(cursor: Cursor, number: int) -> str:
    """The parameter's own name; one of a parameter pack, which all have the same, is numbered."""
    names = [p.spelling for p in cursor.semantic_parent.get_arguments()]
    if not cursor.spelling:
        return f"unnamed{number}"
    return str(cursor.spelling) if names.count(cursor.spelling) == 1 else f"{cursor.spelling}_{number}"

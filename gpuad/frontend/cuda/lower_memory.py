"""Names, constants and memory: what an expression starts from."""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind

from ...errors import UnsupportedError
from ...ir.records import is_record
from ...ir.surface import AddressOf, Constant, Declare, Deref, Expr, Index, LaunchIndex, Name, Record
from ...ir.types import I32, I64, U32, Array, Pointer, Scalar, Type, Vector
from .clang_c import children, evaluate, initializer
from .context import Context
from .fence import FUNCTION_POINTER
from .translation_unit import is_ours
from .types import constant, is_const
from .variables import global_shared, initial_value, initial_values, is_shared, module_variable

LAUNCH = {"threadIdx", "blockIdx", "blockDim", "gridDim"}
_WARP_SIZE = 32


def literal(ctx: Context, cursor: Cursor) -> Expr:
    """A number, character, bool, `sizeof`, or a call that clang itself can compute."""
    value, type_ = evaluate(cursor), ctx.type(cursor)
    if value is None or not isinstance(type_, Scalar):
        ctx.refuse(cursor)
    return constant(ctx.span(cursor), type_, value)


def null(ctx: Context, cursor: Cursor) -> Expr:
    """`nullptr` on its own, as an integer 0; the conversion around it gives the pointer's type."""
    return Constant(ctx.span(cursor), I64, 0)


def name(ctx: Context, cursor: Cursor) -> Expr:
    """A variable, a parameter, an enumerator or a constant of the file."""
    declared = cursor.referenced
    if declared is None or declared.kind == CursorKind.UNEXPOSED_DECL:
        return _substituted(ctx, cursor)
    known = ctx.declarations.get(declared)
    if known is not None:
        return Name(ctx.span(cursor), known.type, known)
    if declared.kind == CursorKind.ENUM_CONSTANT_DECL:
        return constant(ctx.span(cursor), _scalar(ctx, cursor), declared.enum_value)
    if declared.kind == CursorKind.VAR_DECL:
        return _global(ctx, cursor, declared.get_definition() or declared)
    if declared.kind == CursorKind.FUNCTION_DECL:
        ctx.refuse(cursor, FUNCTION_POINTER)
    return ctx.refuse(cursor, f"the name {cursor.spelling} is not supported here")


def _substituted(ctx: Context, cursor: Cursor) -> Expr:
    """What an instance of a template has in the place of a parameter that is a number; or an instance of a template for a constant."""
    value = evaluate(cursor)
    if value is None:
        ctx.refuse(
            cursor, f"the name {cursor.spelling} is not supported here" if cursor.spelling else "this template argument is not supported"
        )
    return constant(ctx.span(cursor), _scalar(ctx, cursor), value)


def _scalar(ctx: Context, cursor: Cursor) -> Scalar:
    type_ = ctx.type(cursor)
    if not isinstance(type_, Scalar):
        ctx.refuse(cursor)
    return type_


def _global(ctx: Context, use: Cursor, variable: Cursor) -> Expr:
    if is_ours(variable) and variable.spelling == "warpSize":
        return Constant(ctx.span(use), I32, _WARP_SIZE)
    if is_ours(variable) and variable.spelling in LAUNCH:
        span = ctx.span(use)
        return Record(span, Vector(U32, 3), tuple(LaunchIndex(span, U32, variable.spelling, axis) for axis in "xyz"))
    if is_ours(variable):
        ctx.refuse(use, f"{variable.spelling} is not supported here")
    if is_shared(variable):
        shared = global_shared(ctx, variable)
        return Name(ctx.span(use), shared.type, shared)
    start = initializer(variable)
    if not is_const(variable.type) or start is None:
        return module_variable(ctx, use, variable)
    type_ = ctx.type(variable)
    return _table(ctx, use, variable, start) if isinstance(type_, Array) else _folded(ctx, use, variable, start, type_)


def _folded(ctx: Context, use: Cursor, variable: Cursor, start: Cursor, type_: Type) -> Expr:
    """The value of a constant of the file."""
    if is_record(type_) and start.kind == CursorKind.INIT_LIST_EXPR:
        return initial_value(ctx, type_, start)
    number = evaluate(start)
    if number is None or not isinstance(type_, Scalar):
        ctx.refuse(use, f"the value of {variable.spelling} is not known to the compiler")
    return constant(ctx.span(use), type_, number)


def _table(ctx: Context, use: Cursor, variable: Cursor, start: Cursor) -> Expr:
    """A table of numbers at file scope becomes a local array of each function that reads it."""
    for known in ctx.tables[-1]:
        if known.declaration.name == variable.spelling and known.span == ctx.span(variable):
            return Name(ctx.span(use), known.declaration.type, known.declaration)
    declaration = ctx.fresh(ctx.span(variable), variable.spelling, ctx.type(variable), const=True)
    ctx.tables[-1].append(Declare(declaration.span, declaration, initial_values(ctx, declaration.type, start)))
    return Name(ctx.span(use), declaration.type, declaration)


def subscript(ctx: Context, cursor: Cursor) -> Expr:
    """`a[i]`, or `i[a]`."""
    left, right = (ctx.expression(child) for child in children(cursor))
    pointer, index = (left, right) if isinstance(left.type, Pointer) else (right, left)
    if not isinstance(pointer.type, Pointer) or not isinstance(index.type, Scalar):
        ctx.refuse(cursor)
    return Index(ctx.span(cursor), pointer.type.element, pointer, index)


def dereferenced(pointer: Expr) -> Expr:
    """`*pointer`, written as the lvalue that it is where that is known."""
    if isinstance(pointer, AddressOf):
        return pointer.lvalue
    if not isinstance(pointer.type, Pointer):
        raise UnsupportedError("only a pointer can be dereferenced", pointer.span)
    return Deref(pointer.span, pointer.type.element, pointer)


def address(ctx: Context, cursor: Cursor) -> Expr:
    """`&x`."""
    (operand,) = children(cursor)
    lvalue = ctx.lvalue(operand)
    if isinstance(lvalue.type, Array):
        ctx.refuse(cursor, "the address of a whole array is not supported; an array's name is a pointer to its first element")
    if isinstance(lvalue.type, Pointer):
        ctx.refuse(cursor, "pointers to pointers are not supported")
    return AddressOf(ctx.span(cursor), ctx.type(cursor), lvalue)

"""Statements."""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind, StorageClass

from ...ir.surface import AddressOf, Barrier, Block, Break, Continue, Declare, DoWhile, Evaluate, Expr, If, Return, Stmt, While
from ...ir.surface import Assign as AssignNode
from ...ir.surface import MathCall as MathNode
from ...ir.surface import Name as NameNode
from ...ir.types import VOID, Array, Pointer
from . import lambdas
from .arrays import initial_value, initial_values, is_braced, is_undefined
from .builtins import SINCOS, constant_value
from .clang_c import binary_operator, children, initializer
from .clang_c import evaluate as evaluate_constant
from .context import Context
from .device_output import lower_output
from .effects import has_effects, is_lvalue, reads_float, walk
from .fence import TEMPORARY_ARRAY
from .headers import has_initialiser, is_constexpr
from .lambdas import lambda_of
from .lower_calls import builtin_name
from .lower_memory import dereferenced
from .shared import declare_shared, is_shared
from .types import is_const, is_reference, is_rvalue_reference, lower_variable

_IGNORED_DECLARATIONS = {
    *(CursorKind.TYPEDEF_DECL, CursorKind.TYPE_ALIAS_DECL, CursorKind.USING_DECLARATION, CursorKind.USING_DIRECTIVE),
    *(CursorKind.STATIC_ASSERT, CursorKind.ENUM_DECL, CursorKind.NAMESPACE_ALIAS),
    *(CursorKind.STRUCT_DECL, CursorKind.CLASS_DECL),
}
_WITHOUT_EFFECT = ("__builtin_assume", "__assume", "__builtin_unreachable")
_LOOPS = {CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.DO_STMT}


def block(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`{ ... }`."""
    return (Block(ctx.span(cursor), tuple(stmt for child in children(cursor) for stmt in ctx.statement(child))),)


def single(ctx: Context, cursor: Cursor) -> Stmt:
    """A statement as one node."""
    body = ctx.statement(cursor)
    return body[0] if len(body) == 1 else Block(ctx.span(cursor), body)


def declarations(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`float a = 1, b[3];`"""
    return tuple(stmt for child in children(cursor) if child.kind not in _IGNORED_DECLARATIONS for stmt in _declared(ctx, child))


def _declared(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    if cursor.kind != CursorKind.VAR_DECL or not lambdas.is_passed(cursor):
        return (_declare(ctx, cursor),)
    made = lambda_of(initializer(cursor))
    return lambdas.make(ctx, made) if made is not None else ()  # another name of one that is made


def _declare(ctx: Context, cursor: Cursor) -> Stmt:
    if cursor.kind != CursorKind.VAR_DECL:
        ctx.refuse(cursor)
    if is_shared(cursor):
        return declare_shared(ctx, cursor)
    start = initializer(cursor)
    if cursor.storage_class in (StorageClass.STATIC, StorageClass.EXTERN) and not (is_const(cursor.type) and start is not None):
        ctx.refuse(cursor, "static and extern variables in a kernel are not supported unless they are const")
    if is_reference(cursor.type):
        return _reference(ctx, cursor, start)
    type_ = lower_variable(cursor.type, ctx.span(cursor))
    value: Expr | tuple[Expr, ...] | None = None
    if start is not None and (
        is_braced(start) or not is_undefined(start)
    ):  # before the variable is declared: its own name is not yet known there
        value = initial_values(ctx, type_, start) if isinstance(type_, Array) else initial_value(ctx, type_, start)
    declaration = ctx.fresh(ctx.span(cursor), cursor.spelling, type_, const=is_const(cursor.type))
    return Declare(declaration.span, ctx.declare(cursor, declaration), value)


def _reference(ctx: Context, cursor: Cursor, start: Cursor | None) -> Stmt:
    """A reference; one that is bound to a temporary value is a const variable."""
    if start is None or is_rvalue_reference(cursor.type):
        ctx.refuse(cursor, "references to temporary values (&&) are not supported")
    const = is_const(cursor.type.get_canonical().get_pointee())
    value = ctx.expression(start) if const else ctx.lvalue(start)
    bound = is_lvalue(value)
    if isinstance(value.type, Array) and not bound:
        ctx.refuse(cursor, TEMPORARY_ARRAY)
    declaration = ctx.fresh(ctx.span(cursor), cursor.spelling, ctx.type(cursor), reference=bound, const=const)
    return Declare(declaration.span, ctx.declare(cursor, declaration), value)


def branch(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`if (condition) then else otherwise`. What `if constexpr` discards is not part of the program, whatever it contains."""
    parts = children(cursor)
    if parts[0].kind in (CursorKind.VAR_DECL, CursorKind.DECL_STMT) or len(parts) > 3 or has_initialiser(cursor):
        ctx.refuse(cursor, "declarations and initialisers in the header of an if are not supported")
    condition, then, *otherwise = parts
    if is_constexpr(cursor) and (known := evaluate_constant(condition)) is not None:
        chosen = then if known else otherwise[0] if otherwise else None
        return () if chosen is None else (Block(ctx.span(cursor), ctx.statement(chosen)),)
    value = ctx.expression(condition)
    return (If(ctx.span(cursor), value, single(ctx, then), single(ctx, otherwise[0]) if otherwise else None),)


def while_loop(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`while (condition) body`."""
    parts = children(cursor)
    if len(parts) != 2 or parts[0].kind == CursorKind.VAR_DECL:
        ctx.refuse(cursor, "a declaration in the header of a while is not supported")
    return (While(ctx.span(cursor), ctx.expression(parts[0]), single(ctx, parts[1])),)


def do_loop(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`do body while (condition);`"""
    body, condition = children(cursor)
    return (DoWhile(ctx.span(cursor), single(ctx, body), ctx.expression(condition)),)


def attributed(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """A loop under `#pragma unroll`, or any statement under an attribute that only advises the compiler."""
    inner = [child for child in children(cursor) if not child.kind.is_attribute()]
    if len(inner) != 1 or not (inner[0].kind in _LOOPS or inner[0].kind.is_statement()):
        ctx.refuse(cursor, "this statement is not supported")
    return ctx.statement(inner[0])


def leave(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`return`, with or without a value."""
    values = children(cursor)
    if not values and ctx.active[-1].kind == CursorKind.CONSTRUCTOR:
        ctx.refuse(cursor, "return in a constructor is not supported")
    if not values:
        return (Return(ctx.span(cursor), None),)
    if values[0].kind == CursorKind.INIT_LIST_EXPR:
        return (Return(ctx.span(cursor), initial_value(ctx, ctx.type(values[0]), values[0])),)
    value = ctx.expression(values[0])
    return (Evaluate(value.span, value), Return(ctx.span(cursor), None)) if value.type == VOID else (Return(ctx.span(cursor), value),)


def stop(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`break`."""
    return (Break(ctx.span(cursor)),)


def skip(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`continue`."""
    return (Continue(ctx.span(cursor)),)


def nothing(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`;`"""
    return ()


def evaluate(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """An expression as a statement."""
    cursor = _bare(cursor)
    if _is_void_cast(cursor):
        return _discarded(ctx, children(cursor)[-1])
    if cursor.kind == CursorKind.BINARY_OPERATOR and binary_operator(cursor) == ",":
        return tuple(stmt for child in children(cursor) for stmt in ctx.statement(child))
    name = builtin_name(cursor)
    if name in ("__syncthreads", "__syncwarp"):
        return (_barrier(ctx, cursor, name),)
    if name in ("printf", "gpuad_assert"):
        return lower_output(ctx, cursor, name)
    if name in _WITHOUT_EFFECT:
        return _left_out(ctx, cursor, str(name))
    if name is not None and SINCOS.fullmatch(name):
        return _sincos(ctx, cursor, name)
    return (Evaluate(ctx.span(cursor), ctx.expression(cursor)),)


def _barrier(ctx: Context, cursor: Cursor, name: str) -> Barrier:
    """`__syncthreads()`, or `__syncwarp(mask)`: without a mask, or with all its bits set, it stands for the whole warp."""
    if name == "__syncthreads":
        return Barrier(ctx.span(cursor))
    given = [ctx.expression(a) for a in cursor.get_arguments() if a.kind != CursorKind.UNEXPOSED_EXPR or children(a)]
    full = not given or constant_value(given[0]) in (-1, 0xFFFFFFFF)
    return Barrier(ctx.span(cursor), "warp", None if full else given[0])


def _bare(cursor: Cursor) -> Cursor:
    """The expression inside parentheses, and inside what clang adds at the end of a statement to clean up."""
    while cursor.kind in (CursorKind.PAREN_EXPR, CursorKind.UNEXPOSED_EXPR):
        inner = children(cursor)
        if len(inner) != 1 or inner[0].type != cursor.type:
            break
        cursor = inner[0]
    return cursor


def _is_void_cast(cursor: Cursor) -> bool:
    casts = (CursorKind.CSTYLE_CAST_EXPR, CursorKind.CXX_STATIC_CAST_EXPR, CursorKind.CXX_FUNCTIONAL_CAST_EXPR)
    return cursor.kind in casts and cursor.type.get_canonical().spelling == "void"


def _discarded(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """`(void)x`: an effect if x has one, else nothing."""
    if cursor.kind in (CursorKind.INTEGER_LITERAL, CursorKind.DECL_REF_EXPR):
        return ()
    value = ctx.expression(cursor)
    return (Evaluate(value.span, value),) if has_effects(value) else ()


def _left_out(ctx: Context, cursor: Cursor, name: str) -> tuple[Stmt, ...]:
    """Advice to the compiler has no effect on numbers: it is left out, if its arguments have none either."""
    if any(has_effects(ctx.expression(argument)) for argument in cursor.get_arguments()):
        ctx.refuse(cursor, f"{name} with arguments that have side effects is not supported")
    return ()


def _sincos(ctx: Context, cursor: Cursor, name: str) -> tuple[Stmt, ...]:
    """`sincosf(x, &s, &c)` as two assignments; `x` and the places are evaluated once, before either is written."""
    angle, sine, cosine = (ctx.expression(argument) for argument in cursor.get_arguments())
    span, before = ctx.span(cursor), []
    first = ctx.fresh(span, "angle", angle.type, const=True)
    before.append(Declare(span, first, angle))
    places = []
    for pointer, label in ((sine, "sine"), (cosine, "cosine")):
        place, declared = _place(ctx, pointer, label)
        places.append(place)
        before += declared
    value = NameNode(span, first.type, first)
    suffix, prefix = ("pi" if "pi" in name else ""), ("__" if name.startswith("__") else "")
    spellings = [f"{prefix}{f}{suffix}{'f' if prefix else ''}" for f in ("sin", "cos")]
    writes = [
        Evaluate(span, AssignNode(span, place.type, place, MathNode(span, place.type, f, (value,))))
        for place, f in zip(places, spellings, strict=True)
    ]
    return (Block(span, (*before, *writes)),)


def _place(ctx: Context, pointer: Expr, label: str) -> tuple[Expr, list[Declare]]:
    """Where to write: the lvalue itself if nothing that is written could change it, else through a pointer kept in a variable."""
    simple = isinstance(pointer, AddressOf | NameNode) and not has_effects(pointer)
    inner = pointer.lvalue if isinstance(pointer, AddressOf) else pointer
    if simple and not any(reads_float(part) for part in walk(inner) if part is not inner):
        return dereferenced(pointer), []
    assert isinstance(pointer.type, Pointer)
    kept = ctx.fresh(pointer.span, label, pointer.type, const=True)
    return dereferenced(NameNode(pointer.span, kept.type, kept)), [Declare(pointer.span, kept, pointer)]

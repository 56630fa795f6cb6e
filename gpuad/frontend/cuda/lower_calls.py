"""Calls: of CUDA's functions and of the user's `__device__` helpers."""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind

from ...ir import surface
from ...ir.surface import Binary, Conditional, Declaration, Expr, HelperCall
from ...ir.types import BOOL, Scalar
from .builtins import BUILTINS, Call
from .clang_c import children, evaluate, initializer
from .context import Context
from .conversions import constant, convert
from .effects import has_effects
from .fence import function_message
from .places import is_ours

_METHODS = {CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.CONVERSION_FUNCTION}


def call(ctx: Context, cursor: Cursor) -> Expr:
    """A call whose value counts."""
    callee = cursor.referenced
    if callee is None or callee.kind != CursorKind.FUNCTION_DECL:
        ctx.refuse(cursor, _callee_reason(callee))
    if callee.spelling.startswith("__builtin_") or (is_ours(callee) and callee.get_definition() is None):
        return _builtin(ctx, cursor, callee)
    if (value := evaluate(cursor)) is not None and isinstance(type_ := ctx.type(cursor), Scalar):  # of a constexpr function
        return constant(ctx.span(cursor), type_, value)
    return _helper(ctx, cursor, callee)


def _callee_reason(callee: Cursor | None) -> str:
    if callee is not None and callee.spelling == "operator()" and "(lambda" in callee.semantic_parent.type.spelling:
        return "lambdas are not supported; write a __device__ function"
    if callee is not None and callee.kind in _METHODS:
        return "structs and member functions come in a later release"
    return "calls through pointers are not supported"


def builtin_name(cursor: Cursor) -> str | None:
    """The name of the CUDA function that an expression calls, or None."""
    callee = cursor.referenced if cursor.kind == CursorKind.CALL_EXPR else None
    if callee is None or callee.kind != CursorKind.FUNCTION_DECL:
        return None
    if not is_ours(callee) and not callee.spelling.startswith("__builtin_"):  # clang places these where they are used
        return None
    return str(callee.spelling)


def _builtin(ctx: Context, cursor: Cursor, callee: Cursor) -> Expr:
    name, span = str(callee.spelling), ctx.span(cursor)
    if name.startswith("__builtin_") and (value := evaluate(cursor)) is not None and isinstance(type_ := ctx.type(cursor), Scalar):
        return constant(span, type_, value)
    if name in ("nan", "nanf"):
        return BUILTINS[name](Call(span, name, ctx.type(cursor), ()))
    handler = BUILTINS.get(name)
    if handler is None:
        ctx.refuse(cursor, function_message(name))
    arguments = tuple(ctx.expression(argument) for argument in cursor.get_arguments() if not _is_default(argument))
    if callee.semantic_parent.spelling == "std" and name in ("min", "max"):
        return _std_extreme(ctx, cursor, name, *arguments)
    return handler(Call(span, name, ctx.type(cursor), arguments))


def _std_extreme(ctx: Context, cursor: Cursor, name: str, left: Expr, right: Expr) -> Expr:
    """`std::max(a, b)` is `a < b ? b : a`, which differs from CUDA's `max` where one of them is NaN."""
    if has_effects(left) or has_effects(right):
        ctx.refuse(cursor, f"std::{name} with arguments that have side effects is not supported")
    span = ctx.span(cursor)
    less = Binary(span, BOOL, "<", left, right) if name == "max" else Binary(span, BOOL, "<", right, left)
    return Conditional(span, left.type, less, right, left)


def _helper(ctx: Context, cursor: Cursor, callee: Cursor) -> Expr:
    definition = callee.get_definition()
    if definition is None:
        ctx.refuse(cursor, f"the function {callee.spelling} has no body in this source")
    if definition in ctx.active:
        ctx.refuse(cursor, f"recursion is not supported: this call of {callee.spelling} leads back to it")
    function = _lowered(ctx, definition)
    parameters = list(callee.get_arguments())
    given = list(cursor.get_arguments())
    if len(given) != len(parameters):
        ctx.refuse(cursor, "functions with a variable number of arguments are not supported")
    arguments = tuple(_argument(ctx, g, p, d, cursor) for g, p, d in zip(given, parameters, function.parameters, strict=True))
    return HelperCall(ctx.span(cursor), function.result, function, arguments)


def _lowered(ctx: Context, definition: Cursor) -> surface.Function:
    """A helper is lowered once; all calls share the object."""
    if definition not in ctx.helpers:
        ctx.helpers[definition] = ctx.lower_function(ctx, definition)
    return ctx.helpers[definition]


def _argument(ctx: Context, given: Cursor, parameter: Cursor, declaration: Declaration, at: Cursor) -> Expr:
    """The argument; for a parameter that is a reference the lvalue, or a value that a const reference is bound to."""
    if _is_default(given):
        return _default(ctx, parameter, at)
    if declaration.reference and not declaration.const:
        return ctx.lvalue(given)
    return convert(ctx.expression(given), declaration.type, ctx.span(given), implicit=True)


def _is_default(given: Cursor) -> bool:
    """Whether an argument was not written."""
    return given.kind == CursorKind.UNEXPOSED_EXPR and not children(given)


def _default(ctx: Context, parameter: Cursor, at: Cursor) -> Expr:
    start = initializer(parameter)
    if start is None:
        ctx.refuse(at, f"the default of the argument {parameter.spelling} is not supported")
    return ctx.expression(start)

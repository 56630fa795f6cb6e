"""Lambdas: `auto f = [&](float u) { return u * a; };` and then `f(x)`, `apply(f, x)`, `apply([&] { ... }, x)`, or `[&] { ... }()`.

A lambda is a helper that sees the variables of the function that makes it. What it captures by reference are these variables. What it
captures by copy is copied where the lambda is made, and its body sees the copies. Its object holds nothing else, so it is no argument of
the functions that it is passed to: each lambda has a type, and an instance of the function template, of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from clang.cindex import Cursor, CursorKind

from ...ir.surface import Declaration, Declare, Function, Name, Stmt
from ...ir.types import Array
from .clang_c import children, descendants, file_location
from .context import Context
from .fence import LAMBDA
from .types import is_const, is_lambda_type

_CAPTURE = "a lambda can capture variables by their names, all of them by reference, or all by copy ([a, &b], [&], [=]), and nothing else"
_MACRO = "a lambda, or what it captures, from a macro is not supported"
_WRAPPERS = (CursorKind.UNEXPOSED_EXPR, CursorKind.CALL_EXPR, CursorKind.PAREN_EXPR)
_VARIABLES = (CursorKind.VAR_DECL, CursorKind.PARM_DECL)


def is_lambda(callee: Cursor) -> bool:
    """Whether a member function is the body of a lambda."""
    return bool(callee.spelling == "operator()" and "(lambda" in callee.semantic_parent.type.spelling)


def lambda_of(start: Cursor | None) -> Cursor | None:
    """The lambda that an expression is, or None."""
    while start is not None and start.kind in _WRAPPERS:
        inner = [child for child in children(start) if child.kind.is_expression()]
        start = inner[0] if len(inner) == 1 else None
    return start if start is not None and start.kind == CursorKind.LAMBDA_EXPR else None


def is_passed(parameter: Cursor) -> bool:
    """Whether what is declared is a lambda."""
    return is_lambda_type(parameter.type)


def passed(ctx: Context, given: Cursor) -> None:
    """A lambda as an argument: one that is made there takes its copies before the statement."""
    if (made := lambda_of(given)) is not None:
        copies = make(ctx, made)
        ctx.before.extend(zip(ctx.copies[made.type.get_declaration()], copies, strict=True))


def make(ctx: Context, cursor: Cursor) -> tuple[Stmt, ...]:
    """Where a lambda is made: the copies that it takes."""
    copies: dict[Cursor, Declaration] = {}
    made: list[Stmt] = []
    for variable in _copied(ctx, cursor):
        known, span = ctx.declarations[variable], ctx.span(cursor)
        if isinstance(known.type, Array):
            ctx.refuse(cursor, f"a lambda that captures an array ({variable.spelling}) by copy is not supported; capture it by reference")
        copies[variable] = ctx.fresh(span, variable.spelling, known.type, const=True)
        made.append(Declare(span, copies[variable], Name(span, known.type, known)))
    ctx.copies[cursor.type.get_declaration()] = copies
    return tuple(made)


def lowered(ctx: Context, cursor: Cursor, callee: Cursor) -> Function:
    """The body of the lambda that is called, as a helper that sees the variables around it."""
    definition, kind = callee.get_definition(), callee.semantic_parent
    if definition is None or (definition not in ctx.helpers and not _is_made(ctx, cursor, kind)):
        ctx.refuse(cursor, LAMBDA)
    if not callee.is_const_method():
        ctx.refuse(cursor, "mutable lambdas are not supported; capture by reference what changes")
    if definition not in ctx.helpers:
        copies = ctx.copies[kind]
        outer = {variable: ctx.declarations[variable] for variable in copies}
        ctx.declarations.update(copies)
        ctx.helpers[definition] = ctx.lower_function(ctx, definition)
        ctx.declarations.update(outer)
    return ctx.helpers[definition]


def _is_made(ctx: Context, cursor: Cursor, kind: Cursor) -> bool:
    """Whether a lambda has been met; one that is called at once needs no copies."""
    if kind not in ctx.copies and (at_once := lambda_of(children(cursor)[0])) is not None:
        _captures(ctx, at_once)
        ctx.copies[kind] = {}
    return kind in ctx.copies


def _copied(ctx: Context, cursor: Cursor) -> Iterator[Cursor]:
    """The variables around a lambda that it captures by copy."""
    by_copy, named = _captures(ctx, cursor)
    nodes = list(descendants(cursor))
    own = {node for node in nodes if node.kind in _VARIABLES}
    used = (node.referenced for node in nodes if node.kind == CursorKind.DECL_REF_EXPR and node.referenced is not None)
    for variable in dict.fromkeys(v for v in used if v not in own and v in ctx.declarations):
        if ctx.declarations[variable].space != "local":
            continue
        copied = named.get(variable.spelling, by_copy)
        if copied is None and not is_const(variable.type):  # a constant need not be captured
            ctx.refuse(cursor, _MACRO)
        if copied is not False:
            yield variable


def _captures(ctx: Context, cursor: Cursor) -> tuple[bool | None, dict[str, bool]]:
    """Whether a lambda captures by copy, None if it only does what it names, and the same of each variable that it names."""
    tokens = list(cursor.get_tokens())
    words = [token.spelling for token in tokens]
    if words[:1] != ["["] or file_location(tokens[0].location)[3] != file_location(cursor.extent.start)[3]:
        ctx.refuse(cursor, _MACRO)
    default, named = None, dict[str, bool]()
    for item in " ".join(words[1 : words.index("]")]).split(","):
        match item.split():
            case []:
                pass
            case ["&"] | ["="]:
                default = item.split() == ["="]
            case ["&", name] if _is_variable(ctx, name):
                named[name] = False
            case [name] if _is_variable(ctx, name):
                named[name] = True
            case _:
                ctx.refuse(cursor, _CAPTURE)
    return default, named


def _is_variable(ctx: Context, name: str) -> bool:
    return any(variable.spelling == name for variable in ctx.declarations)

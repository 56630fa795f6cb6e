"""Lowers clang's statements to the surface tree, by the kind of cursor; what no handler takes is refused at its place.

clang leaves absent parts of the headers of `for` and `if` out: `for (;; ++i)` and `for (; !f;)` have the same children. Where the header
is written out in the text, the places of its two semicolons identify each child; where it comes from a macro there are none to see, and
only a header with all parts is accepted.

Device printf and assert belong to the forward launch, and to no derivative. A call of printf that prints a string or an address, or whose
values are not those that its format requires, is left out: it changes no numbers.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import islice

from clang.cindex import Cursor, CursorKind, StorageClass, Token, TypeKind

from ...ir import surface
from ...ir.surface import Assign as AssignNode
from ...ir.surface import MathCall as MathNode
from ...ir.surface import Name as NameNode
from ...ir.types import BOOL, F64, I32, I64, U32, U64, VOID, Array, Pointer, Scalar
from .builtins import SINCOS, constant_value
from .clang_c import binary_operator, children, file_location, initializer, is_shared
from .clang_c import evaluate as evaluate_constant
from .context import Context
from .fence import TEMPORARY_ARRAY, kind_message
from .initialisers import initial_pointers, initial_value, initial_values, is_braced, is_pointers, is_undefined
from .lower_bindings import bind, is_binding
from .lower_calls import builtin_name, is_passed, lambda_of, make_lambda, named_again, pointed_to
from .lower_expressions import dereferenced
from .pointer_arrays import declare_entries, filling, iterations
from .types import convert, is_const, is_function_pointer, is_reference, is_rvalue_reference, lower_variable
from .variables import declare_shared, only_reads

_IGNORED_DECLARATIONS = {
    *(CursorKind.TYPEDEF_DECL, CursorKind.TYPE_ALIAS_DECL, CursorKind.USING_DECLARATION, CursorKind.USING_DIRECTIVE),
    *(CursorKind.STATIC_ASSERT, CursorKind.ENUM_DECL, CursorKind.NAMESPACE_ALIAS),
    *(CursorKind.STRUCT_DECL, CursorKind.CLASS_DECL, CursorKind.UNION_DECL),
}
_BARRIERS = {
    "__syncthreads": "block",
    "__syncwarp": "warp",
    "gpuad_sync_grid": "grid",
    "__threadfence": "fence",
    "__threadfence_system": "fence",
    "__threadfence_block": "step",
}
_WITHOUT_EFFECT = ("__builtin_assume", "__assume", "__builtin_unreachable")
_LOOPS = {CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.DO_STMT}


def block(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`{ ... }`."""
    body = tuple(stmt for child in children(cursor) for stmt in ctx.statement(child))
    return (surface.Block(ctx.span(cursor), body),)


def single(ctx: Context, cursor: Cursor) -> surface.Stmt:
    """A statement as one node."""
    body = ctx.statement(cursor)
    return body[0] if len(body) == 1 else surface.Block(ctx.span(cursor), body)


def declarations(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`float a = 1, b[3];`"""
    if any(child.kind == CursorKind.UNION_DECL and "(anonymous" in child.type.spelling for child in children(cursor)):
        ctx.refuse(cursor, kind_message(children(cursor)[0]))
    return tuple(
        stmt for child in children(cursor) if child.kind not in _IGNORED_DECLARATIONS for stmt in ctx.after_copies(child, _declared)
    )


def _declared(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    if is_binding(cursor):
        return bind(ctx, cursor)
    if cursor.kind == CursorKind.VAR_DECL and is_pointers(cursor.type) and not is_shared(cursor) and not only_reads(ctx.active[-1], cursor):
        return declare_entries(ctx, cursor)
    if cursor.kind != CursorKind.VAR_DECL or not is_passed(cursor):
        return (_declare(ctx, cursor),)
    start = initializer(cursor)
    if is_function_pointer(cursor):
        ctx.functions[cursor] = pointed_to(ctx, start if start is not None else cursor)
        return ()
    made = lambda_of(start)
    if made is None:  # another name of one that is made
        named_again(ctx, cursor, cursor)
    return make_lambda(ctx, made) if made is not None else ()


def _declare(ctx: Context, cursor: Cursor) -> surface.Stmt:
    if cursor.kind != CursorKind.VAR_DECL:
        ctx.refuse(cursor)
    if is_shared(cursor):
        return declare_shared(ctx, cursor)
    start = initializer(cursor)
    if cursor.storage_class in (StorageClass.STATIC, StorageClass.EXTERN) and not (start is not None and _is_constant(ctx, cursor)):
        ctx.refuse(cursor, "static and extern variables in a kernel are not supported unless they have a value and nothing writes them")
    if is_reference(cursor.type):
        return _reference(ctx, cursor, start)
    if start is not None and start.kind == CursorKind.INIT_LIST_EXPR and is_pointers(cursor.type):
        value = initial_pointers(ctx, cursor, start)
        table = ctx.fresh(ctx.span(cursor), cursor.spelling, value.type, const=True)
        return surface.Declare(table.span, ctx.declare(cursor, table), value)
    type_ = lower_variable(cursor.type, ctx.span(cursor))
    given: surface.Expr | tuple[surface.Expr, ...] | None = None
    if start is not None and (
        is_braced(start) or not is_undefined(start)
    ):  # before the variable is declared: its own name is not yet known there
        given = initial_values(ctx, type_, start) if isinstance(type_, Array) else initial_value(ctx, type_, start)
    declaration = ctx.fresh(ctx.span(cursor), cursor.spelling, type_, const=is_const(cursor.type))
    return surface.Declare(declaration.span, ctx.declare(cursor, declaration), given)


def _is_constant(ctx: Context, variable: Cursor) -> bool:
    return is_const(variable.type) or only_reads(ctx.active[-1], variable)


def _reference(ctx: Context, cursor: Cursor, start: Cursor | None) -> surface.Stmt:
    """A reference; one that is bound to a temporary value is a const variable."""
    if start is None or is_rvalue_reference(cursor.type):
        ctx.refuse(cursor, "references to temporary values (&&) are not supported")
    const = is_const(cursor.type.get_canonical().get_pointee())
    value = ctx.expression(start) if const else ctx.lvalue(start)
    bound = surface.is_lvalue(value)
    if isinstance(value.type, Array) and not bound:
        ctx.refuse(cursor, TEMPORARY_ARRAY)
    declaration = ctx.fresh(ctx.span(cursor), cursor.spelling, ctx.type(cursor), reference=bound, const=const)
    return surface.Declare(declaration.span, ctx.declare(cursor, declaration), value)


def branch(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`if (init; condition) then else otherwise`. What `if constexpr` discards is not part of the program, whatever it contains."""
    before, (condition, then, *otherwise) = header(ctx, cursor, "if")
    span = ctx.span(cursor)
    if is_constexpr(cursor) and (known := evaluate_constant(condition)) is not None:
        chosen = then if known else otherwise[0] if otherwise else None
        return () if chosen is None else (surface.Block(span, (*before, *ctx.statement(chosen))),)
    value = ctx.expression(condition)
    made = surface.If(span, value, single(ctx, then), single(ctx, otherwise[0]) if otherwise else None)
    return (surface.Block(span, (*before, made)),) if before else (made,)


def header(ctx: Context, cursor: Cursor, keyword: str) -> tuple[tuple[surface.Stmt, ...], list[Cursor]]:
    """What stands in the header of an `if`, `switch` or `while` before its condition, and the condition with what follows it. clang shows a
    variable that is declared as the condition before an initialiser, which comes first."""
    parts = children(cursor)
    variable = [parts.pop(0)] if parts[0].kind in (CursorKind.VAR_DECL, CursorKind.UNEXPOSED_DECL) else []
    wide = keyword == "if" and parts[0].type.get_canonical().kind not in (TypeKind.BOOL, TypeKind.INVALID)  # a condition is a bool
    first = [parts.pop(0)] if parts[0].kind == CursorKind.DECL_STMT or wide or has_initialiser(cursor, keyword) else []
    before = [statement for part in first for statement in ctx.statement(part)]
    return (*before, *(statement for part in variable for statement in ctx.after_copies(part, _declared))), parts


def while_loop(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`while (condition) body`. A variable that is declared as the condition is a new one in each iteration."""
    before, (condition, body) = header(ctx, cursor, "while")
    span, value, content = ctx.span(cursor), ctx.expression(condition), single(ctx, body)
    if not before:
        return (surface.While(span, value, content),)
    leaves = surface.If(span, value, surface.Block(span, ()), surface.Break(span))
    return (surface.While(span, surface.Constant(span, BOOL, True), surface.Block(span, (*before, leaves, content))),)


def do_loop(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`do body while (condition);`"""
    body, condition = children(cursor)
    return (surface.DoWhile(ctx.span(cursor), single(ctx, body), ctx.expression(condition)),)


def attributed(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """A loop under `#pragma unroll`, or any statement under an attribute that only advises the compiler."""
    inner = [child for child in children(cursor) if not child.kind.is_attribute()]
    if len(inner) != 1 or not (inner[0].kind in _LOOPS or inner[0].kind.is_statement()):
        ctx.refuse(cursor, "this statement is not supported")
    return ctx.statement(inner[0])


def leave(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`return`, with or without a value."""
    values = children(cursor)
    if not values and ctx.active[-1].kind == CursorKind.CONSTRUCTOR:
        ctx.refuse(cursor, "return in a constructor is not supported")
    if not values:
        return (surface.Return(ctx.span(cursor), None),)
    if values[0].kind == CursorKind.INIT_LIST_EXPR:
        return (surface.Return(ctx.span(cursor), initial_value(ctx, ctx.type(values[0]), values[0])),)
    value = ctx.expression(values[0])
    return (
        (surface.Evaluate(value.span, value), surface.Return(ctx.span(cursor), None))
        if value.type == VOID
        else (surface.Return(ctx.span(cursor), value),)
    )


def stop(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`break`."""
    return (surface.Break(ctx.span(cursor)),)


def skip(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`continue`."""
    return (surface.Continue(ctx.span(cursor)),)


def nothing(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`;`"""
    return ()


def evaluate(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """An expression as a statement."""
    cursor = _bare(cursor)
    if _is_void_cast(cursor):
        return _discarded(ctx, children(cursor)[-1])
    if cursor.kind == CursorKind.BINARY_OPERATOR and binary_operator(cursor) == ",":
        return tuple(stmt for child in children(cursor) for stmt in ctx.statement(child))
    name = builtin_name(cursor)
    if name in _BARRIERS:
        return (_barrier(ctx, cursor, name),)
    if name in ("printf", "gpuad_assert"):
        return lower_output(ctx, cursor, name)
    if name in _WITHOUT_EFFECT:
        return _left_out(ctx, cursor, str(name))
    if name is not None and SINCOS.fullmatch(name):
        return _sincos(ctx, cursor, name)
    return (surface.Evaluate(ctx.span(cursor), ctx.expression(cursor)),)


def _barrier(ctx: Context, cursor: Cursor, name: str) -> surface.Barrier:
    """A barrier, or `__syncwarp(mask)`: without a mask, or with all its bits set, it stands for the whole warp."""
    if name != "__syncwarp":
        return surface.Barrier(ctx.span(cursor), _BARRIERS[name])
    given = [ctx.expression(a) for a in cursor.get_arguments() if a.kind != CursorKind.UNEXPOSED_EXPR or children(a)]
    full = not given or constant_value(given[0]) in (-1, 0xFFFFFFFF)
    return surface.Barrier(ctx.span(cursor), "warp", None if full else given[0])


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


def _discarded(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`(void)x`: an effect if x has one, else nothing."""
    if cursor.kind in (CursorKind.INTEGER_LITERAL, CursorKind.DECL_REF_EXPR):
        return ()
    value = ctx.expression(cursor)
    return (surface.Evaluate(value.span, value),) if surface.has_effects(value) else ()


def _left_out(ctx: Context, cursor: Cursor, name: str) -> tuple[surface.Stmt, ...]:
    """Advice to the compiler has no effect on numbers: it is left out, if its arguments have none either."""
    if any(surface.has_effects(ctx.expression(argument)) for argument in cursor.get_arguments()):
        ctx.refuse(cursor, f"{name} with arguments that have side effects is not supported")
    return ()


def _sincos(ctx: Context, cursor: Cursor, name: str) -> tuple[surface.Stmt, ...]:
    """`sincosf(x, &s, &c)` as two assignments; `x` and the places are evaluated once, before either is written."""
    angle, sine, cosine = (ctx.expression(argument) for argument in cursor.get_arguments())
    span, before = ctx.span(cursor), []
    first = ctx.fresh(span, "angle", angle.type, const=True)
    before.append(surface.Declare(span, first, angle))
    places = []
    for pointer, label in ((sine, "sine"), (cosine, "cosine")):
        place, declared = _place(ctx, pointer, label)
        places.append(place)
        before += declared
    value = NameNode(span, first.type, first)
    suffix, prefix = ("pi" if "pi" in name else ""), ("__" if name.startswith("__") else "")
    spellings = [f"{prefix}{f}{suffix}{'f' if prefix else ''}" for f in ("sin", "cos")]
    writes = [
        surface.Evaluate(span, AssignNode(span, place.type, place, MathNode(span, place.type, f, (value,))))
        for place, f in zip(places, spellings, strict=True)
    ]
    return (surface.Block(span, (*before, *writes)),)


def _place(ctx: Context, pointer: surface.Expr, label: str) -> tuple[surface.Expr, list[surface.Declare]]:
    """Where to write: the lvalue itself if nothing that is written could change it, else through a pointer kept in a variable."""
    simple = isinstance(pointer, surface.AddressOf | NameNode) and not surface.has_effects(pointer)
    inner = pointer.lvalue if isinstance(pointer, surface.AddressOf) else pointer
    if simple and not any(surface.reads_float(part) for part in surface.subexpressions(inner) if part is not inner):
        return dereferenced(pointer), []
    assert isinstance(pointer.type, Pointer)
    kept = ctx.fresh(pointer.span, label, pointer.type, const=True)
    return dereferenced(NameNode(pointer.span, kept.type, kept)), [surface.Declare(pointer.span, kept, pointer)]


_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_FULL = 4


@dataclass(frozen=True)
class _Header:
    init: Cursor | None
    condition: Cursor | None
    step: Cursor | None


def for_loop(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`for (init; condition; step) body`."""
    *parts, body = children(cursor)
    header = _header(ctx, cursor, parts)
    if (counted := filling(ctx, cursor, header.init, header.condition, header.step)) is not None:
        return iterations(ctx, *counted, lambda: single(ctx, body))
    init = _init(ctx, header.init) if header.init is not None else None
    condition = ctx.expression(header.condition) if header.condition is not None else None
    step = _step(ctx, header.step) if header.step is not None else None
    inner = ctx.statement(body)
    content = inner[0] if len(inner) == 1 else surface.Block(ctx.span(body), inner)
    return (surface.For(ctx.span(cursor), init, condition, step, content),)


def range_loop(ctx: Context, cursor: Cursor) -> tuple[surface.Stmt, ...]:
    """`for (float u : values)` over an array: a loop over its index, in which the variable is an element or a copy of one."""
    variable, values, body = children(cursor)
    over, span = ctx.expression(values), ctx.span(cursor)
    if not isinstance(over.type, Array) or not surface.is_lvalue(over):
        ctx.refuse(cursor, "a range-based for is supported over an array with a name, and over nothing else; write a loop over an index")
    index = ctx.fresh(span, "k", I32)
    place = surface.Name(span, I32, index)
    element = surface.Index(ctx.span(values), over.type.element, surface.Decay(over.span, Pointer(over.type.element), over), place)
    content = surface.Block(ctx.span(body), (*_each(ctx, variable, element), surface.Block(ctx.span(body), ctx.statement(body))))
    condition = surface.Binary(span, BOOL, "<", place, surface.Constant(span, I32, over.type.length))
    return (
        surface.For(
            span,
            surface.Declare(span, index, surface.Constant(span, I32, 0)),
            condition,
            surface.IncDec(span, I32, place, "+", True),
            content,
        ),
    )


def _each(ctx: Context, variable: Cursor, element: surface.Expr) -> tuple[surface.Stmt, ...]:
    """The variable of a range-based for, or the names for the parts of an element."""
    if is_binding(variable):
        return bind(ctx, variable, element)
    const, reference = is_const(variable.type), is_reference(variable.type)
    type_ = ctx.type(variable)
    declaration = ctx.fresh(ctx.span(variable), variable.spelling, type_, reference=reference, const=const)
    value = element if reference else convert(element, type_, element.span, implicit=True)
    return (surface.Declare(declaration.span, ctx.declare(variable, declaration), value),)


def _init(ctx: Context, cursor: Cursor) -> surface.Stmt:
    if cursor.kind != CursorKind.DECL_STMT:
        value = ctx.expression(cursor)
        return surface.Evaluate(value.span, value)
    body = ctx.statement(cursor)
    return body[0] if len(body) == 1 else surface.Block(ctx.span(cursor), body)


def _step(ctx: Context, cursor: Cursor) -> surface.Expr:
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


_CONVERSION = re.compile(r"%([-+ #0]*\d*(?:\.\d*)?)(hh|h|ll|l|z|t|j|L)?([a-zA-Z%])")
_SIGNED, _UNSIGNED, _FLOATING = "dic", "ouxX", "fFeEgG"
_LONG = ("ll", "l", "z", "t", "j")


def lower_output(ctx: Context, cursor: Cursor, name: str) -> tuple[surface.Stmt, ...]:
    """The statements for a call of printf or assert, or none where it can be left out."""
    shown = name.removeprefix("gpuad_")
    arguments = list(cursor.get_arguments())
    values = [None if _is_text(argument) else ctx.expression(argument) for argument in arguments]
    if any(value is not None and surface.has_effects(value) for value in values):
        ctx.refuse(cursor, f"{shown} with arguments that have side effects is not supported")
    if name == "gpuad_assert" and values[0] is not None:
        return (_assertion(ctx, cursor, values[0]),)
    if name == "printf":
        return _printed(ctx, cursor, _text(arguments[0]), values[1:])
    return ()


def _is_text(argument: Cursor) -> bool:
    return argument.type.get_canonical().get_pointee().get_canonical().spelling in ("const char", "char")


def _assertion(ctx: Context, cursor: Cursor, condition: surface.Expr) -> surface.Stmt:
    span = ctx.span(cursor)
    text = f"{span.in_text}: {span.file.line(span.line)[span.column - 1 :].partition(';')[0].strip()}"
    return surface.If(span, convert(condition, BOOL, span, implicit=True), surface.Block(span, ()), surface.Tell(span, text, (), True))


def _text(argument: Cursor) -> str | None:
    """What a string literal says, or None where it is not one that is written here."""
    while argument.kind in (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR) and len(inner := children(argument)) == 1:
        (argument,) = inner
    if argument.kind != CursorKind.STRING_LITERAL or not argument.spelling.startswith('"'):
        return None
    try:
        return bytes(ast.literal_eval(f"b{argument.spelling}")).decode()
    except (SyntaxError, ValueError):
        return None


def _printed(ctx: Context, cursor: Cursor, text: str | None, values: list[surface.Expr | None]) -> tuple[surface.Stmt, ...]:
    found = list(_CONVERSION.finditer(text)) if text is not None else []
    asked = [m for m in found if m[3] != "%"]
    if text is None or _CONVERSION.sub("", text).count("%") or len(asked) != len(values):
        return ()
    span = ctx.span(cursor)
    wanted = [_type(m[3], m[2] or "") for m in asked]
    given = [v for v, t in zip(values, wanted, strict=True) if v is not None and t is not None and _fits(v, t)]
    if len(given) != len(values):
        return ()
    converted = tuple(convert(v, t, span, implicit=False) for v, t in zip(given, wanted, strict=True) if t is not None)
    return (surface.Tell(span, _CONVERSION.sub(_plain, text), converted),)


def _type(letter: str, length: str) -> Scalar | None:
    """What a conversion wants to have."""
    if letter in _FLOATING:
        return F64
    if letter in _SIGNED:
        return I64 if length in _LONG else I32
    return (U64 if length in _LONG else U32) if letter in _UNSIGNED else None


def _fits(value: surface.Expr, wanted: Scalar) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float == wanted.is_float


def _plain(match: re.Match[str]) -> str:
    """A conversion with `ll` for what has 64 bits, and without a length for the rest."""
    return f"%{match[1]}{'ll' if match[2] in _LONG and match[3] not in _FLOATING + '%' else ''}{match[3]}"

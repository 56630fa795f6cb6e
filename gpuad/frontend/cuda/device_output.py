"""Device printf and assert: they belong to the forward launch, and to no derivative.

What a kernel prints are numbers. A call that prints a string or an address, or whose values are not those that its text asks for, is left
out: it changes no numbers either.
"""

from __future__ import annotations

import ast
import re

from clang.cindex import Cursor, CursorKind

from ...ir.surface import Block, Expr, If, Stmt, Tell
from ...ir.types import BOOL, F64, I32, I64, U32, U64, Scalar
from .clang_c import children
from .context import Context
from .conversions import convert
from .effects import has_effects

_CONVERSION = re.compile(r"%([-+ #0]*\d*(?:\.\d*)?)(hh|h|ll|l|z|t|j|L)?([a-zA-Z%])")
_SIGNED, _UNSIGNED, _FLOATING = "dic", "ouxX", "fFeEgG"
_LONG = ("ll", "l", "z", "t", "j")


def lower_output(ctx: Context, cursor: Cursor, name: str) -> tuple[Stmt, ...]:
    """The statements for a call of printf or assert, or none where it can be left out."""
    shown = name.removeprefix("gpuad_")
    arguments = list(cursor.get_arguments())
    values = [None if _is_text(argument) else ctx.expression(argument) for argument in arguments]
    if any(value is not None and has_effects(value) for value in values):
        ctx.refuse(cursor, f"{shown} with arguments that have side effects is not supported")
    if name == "gpuad_assert" and values[0] is not None:
        return (_assertion(ctx, cursor, values[0]),)
    if name == "printf":
        return _printed(ctx, cursor, _text(arguments[0]), values[1:])
    return ()


def _is_text(argument: Cursor) -> bool:
    return argument.type.get_canonical().get_pointee().get_canonical().spelling in ("const char", "char")


def _assertion(ctx: Context, cursor: Cursor, condition: Expr) -> Stmt:
    span = ctx.span(cursor)
    text = f"{span}: {span.file.line(span.line)[span.column - 1 :].partition(';')[0].strip()}"
    return If(span, convert(condition, BOOL, span, implicit=True), Block(span, ()), Tell(span, text, (), True))


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


def _printed(ctx: Context, cursor: Cursor, text: str | None, values: list[Expr | None]) -> tuple[Stmt, ...]:
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
    return (Tell(span, _CONVERSION.sub(_plain, text), converted),)


def _type(letter: str, length: str) -> Scalar | None:
    """What a conversion wants to have."""
    if letter in _FLOATING:
        return F64
    if letter in _SIGNED:
        return I64 if length in _LONG else I32
    return (U64 if length in _LONG else U32) if letter in _UNSIGNED else None


def _fits(value: Expr, wanted: Scalar) -> bool:
    return isinstance(value.type, Scalar) and value.type.is_float == wanted.is_float


def _plain(match: re.Match[str]) -> str:
    """A conversion with `ll` for what has 64 bits, and without a length for the rest."""
    return f"%{match[1]}{'ll' if match[2] in _LONG and match[3] not in _FLOATING + '%' else ''}{match[3]}"

"""Inlines calls of the user's __device__ functions: arguments are bound by value, by reference or as pointers, and the body is lowered in a
frame of its own, so that a function may be entered again (a template that calls itself with another argument) without mixing up variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import UnsupportedError
from ..ir import surface
from ..ir.aliases import Origin
from ..ir.nodes import Block, Expr, Stmt
from ..ir.records import is_composite
from ..ir.rewrite import map_blocks
from ..ir.types import Array, Void
from ..source import Span
from . import expressions, memory, records
from .lowering import Frame, Lowering
from .pointers import UNDEFINED, Cell, Record, Reference, Undefined, Value, Whole

MAX_DEPTH = 64


def call(s: Lowering, e: surface.HelperCall) -> Value:
    """The value of a call (UNDEFINED if it has none), its effects emitted."""
    function = e.function
    if len(s.frames) > MAX_DEPTH or any(frame.function is function for frame in s.frames):
        raise UnsupportedError(f"'{function.name}' calls itself; recursion is not supported", e.span)
    if len(function.parameters) != len(e.arguments):
        raise UnsupportedError(f"'{function.name}' takes {len(function.parameters)} arguments, not {len(e.arguments)}", e.span)
    bound = [_argument(s, p, a) for p, a in zip(function.parameters, e.arguments, strict=True)]
    origins = [s.origin(a) for a in e.arguments]
    return _run(s, function, bound, origins, e.span)


def _run(s: Lowering, function: surface.Function, bound: list[Value], origins: list[Origin | None], span: Span) -> Value:
    before = dict(s.env)
    enter(s, function)
    for parameter, value, origin in zip(function.parameters, bound, origins, strict=True):
        _receive(s, parameter, value, span)
        s.began(parameter, origin)
    if function.library:
        s.out.extend(_said_at(s.capture(lambda: _in_library(s, function, span)), span))
    else:
        s.run(s, function.body.body)
    frame = s.frames.pop()
    result = s.env[frame.result]
    if isinstance(result, Whole):
        result = memory.read(s, frame.result, function.result, span, function.name)
    s.forget(before)
    if isinstance(result, Undefined) and not isinstance(function.result, Void):
        raise UnsupportedError(f"'{function.name}' returns no value", span)
    return result


def _in_library(s: Lowering, function: surface.Function, span: Span) -> None:
    """Runs a function that the user did not write: what is wrong in it is wrong with the call."""
    try:
        s.run(s, function.body.body)
    except UnsupportedError as error:
        raise UnsupportedError(error.message, span) from None


def _said_at(block: Iterable[Stmt], span: Span) -> Block:
    return tuple(replace(map_blocks(stmt, lambda inner: _said_at(inner, span)), span=span) for stmt in block)


def _receive(s: Lowering, parameter: surface.Declaration, value: Value, span: Span) -> None:
    cell = s.declare(parameter)
    if isinstance(value, Record):
        records.define(s, cell, UNDEFINED, span)
        memory.write(s, cell, parameter.type, value, span, None)
    else:
        s.env[cell] = value


def enter(s: Lowering, function: surface.Function) -> None:
    """Starts a frame."""
    result = s.cell(function.name, function.result)
    s.env[result] = UNDEFINED
    if is_composite(function.result) and not function.reference:
        records.define(s, result, UNDEFINED, function.span)
    s.frames.append(Frame(function, s.flag("returned"), result))


def _argument(s: Lowering, parameter: surface.Declaration, argument: surface.Expr) -> Value:
    if (isinstance(parameter.type, Array) and not parameter.reference) or parameter.space != "local":
        raise UnsupportedError(f"parameter '{parameter.name}' of type {parameter.type}", parameter.span)
    if parameter.reference:
        return bind(s, parameter, argument)
    if _is_undefined(s, argument):
        return UNDEFINED
    value = expressions.evaluate(s, argument, parameter.name)
    return s.let(parameter.name, value, argument.span) if isinstance(value, Expr) else value


def _is_undefined(s: Lowering, argument: surface.Expr) -> bool:
    """Whether a number without a value is passed on; that is no error as long as it is not used."""
    while isinstance(argument, surface.Cast) and argument.type == argument.operand.type:
        argument = argument.operand
    if not isinstance(argument, surface.Name) or is_composite(argument.type):
        return False
    at = expressions.place(s, argument)
    return isinstance(at, Cell) and isinstance(s.env.get(at), Undefined)


def bind(s: Lowering, declaration: surface.Declaration, to: surface.Expr) -> Reference:
    """What a reference stands for: the lvalue `to`, or a temporary that holds its value."""
    while isinstance(to, surface.Cast) and to.type == to.operand.type:
        to = to.operand
    if expressions.is_place(to):
        return Reference(expressions.place(s, to))
    value = expressions.evaluate(s, to, declaration.name)
    temporary = s.cell(declaration.name, declaration.type)
    if isinstance(value, Record):
        records.define(s, temporary, UNDEFINED, to.span)
        memory.write(s, temporary, declaration.type, value, to.span, None)
        return Reference(temporary)
    s.env[temporary] = s.let(declaration.name, value, to.span) if isinstance(value, Expr) else value
    return Reference(temporary)


def returned(s: Lowering, value: surface.Expr) -> Reference:
    """What a function returns by reference."""
    return Reference(expressions.place(s, value))

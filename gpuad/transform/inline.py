"""Inlines calls of the user's __device__ functions: arguments are bound by value, by reference or as pointers, and the body is lowered in a
frame of its own, so that a function may be entered again (a template that calls itself with another argument) without mixing up variables.
"""

from __future__ import annotations

from ..errors import UnsupportedError
from ..ir import surface
from ..ir.nodes import Expr
from ..ir.types import Array, Void
from ..source import Span
from . import expressions
from .lowering import Frame, Lowering
from .pointers import UNDEFINED, Reference, Undefined, Value

MAX_DEPTH = 64


def call(s: Lowering, e: surface.HelperCall) -> Value:
    """The value of a call (UNDEFINED if it has none), its effects emitted."""
    function = e.function
    if len(s.frames) > MAX_DEPTH or any(frame.function is function for frame in s.frames):
        raise UnsupportedError(f"'{function.name}' calls itself; recursion is not supported", e.span)
    if len(function.parameters) != len(e.arguments):
        raise UnsupportedError(f"'{function.name}' takes {len(function.parameters)} arguments, not {len(e.arguments)}", e.span)
    bound = [_argument(s, p, a) for p, a in zip(function.parameters, e.arguments, strict=True)]
    return _run(s, function, bound, e.span)


def _run(s: Lowering, function: surface.Function, bound: list[Value], span: Span) -> Value:
    before = dict(s.env)
    enter(s, function)
    for parameter, value in zip(function.parameters, bound, strict=True):
        s.env[s.declare(parameter)] = value
    s.run(s, function.body.body)
    frame = s.frames.pop()
    result = s.env[frame.result]
    s.forget(before)
    if isinstance(result, Undefined) and not isinstance(function.result, Void):
        raise UnsupportedError(f"'{function.name}' returns no value", span)
    return result


def enter(s: Lowering, function: surface.Function) -> None:
    """Starts a frame."""
    result = s.cell(function.name, function.result)
    s.env[result] = UNDEFINED
    s.frames.append(Frame(function, s.flag("returned"), result))


def _argument(s: Lowering, parameter: surface.Declaration, argument: surface.Expr) -> Value:
    if (isinstance(parameter.type, Array) and not parameter.reference) or parameter.space != "local":
        raise UnsupportedError(f"parameter '{parameter.name}' of type {parameter.type}", parameter.span)
    if parameter.reference:
        return bind(s, parameter, argument)
    value = expressions.evaluate(s, argument, parameter.name)
    return s.let(parameter.name, value, argument.span) if isinstance(value, Expr) else value


def bind(s: Lowering, declaration: surface.Declaration, to: surface.Expr) -> Reference:
    """What a reference stands for: the lvalue `to`, or a temporary that holds its value."""
    while isinstance(to, surface.Cast) and to.type == to.operand.type:
        to = to.operand
    if isinstance(to, (surface.Name, surface.Index, surface.Deref)):
        return Reference(expressions.place(s, to))
    value = expressions.evaluate(s, to, declaration.name)
    temporary = s.cell(declaration.name, declaration.type)
    s.env[temporary] = s.let(declaration.name, value, to.span) if isinstance(value, Expr) else value
    return Reference(temporary)

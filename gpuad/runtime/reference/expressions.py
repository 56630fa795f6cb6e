"""Expressions become closures over a frame, once for each kernel: one that computes the value, and one that computes its poison, which
runs only while a variable of the expression is poisoned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...errors import GpuadError
from ...ir.dtypes import Array
from ...ir.nodes import Binary, Buffer, Call, Cast, Constant, Expr, LaunchIndex, Select, Stack, Unary, Var
from ...ir.types import BOOL, Scalar
from .frame import Frame
from .functions import function
from .semantics import binary, cast, constant, unary

Value = Callable[[Frame], Array]
Poison = Callable[[Frame], "Array | None"]


@dataclass
class Names:
    """Numbers for the variables, buffers and stacks of a kernel, in the order in which they are met."""

    vars: dict[Var, int] = field(default_factory=dict)
    buffers: dict[Buffer, int] = field(default_factory=dict)
    stacks: dict[Stack, int] = field(default_factory=dict)

    def var(self, var: Var) -> int:
        return self.vars.setdefault(var, len(self.vars))

    def buffer(self, buffer: Buffer) -> int:
        return self.buffers.setdefault(buffer, len(self.buffers))

    def stack(self, stack: Stack) -> int:
        return self.stacks.setdefault(stack, len(self.stacks))


@dataclass(frozen=True, eq=False)
class Code:
    """A compiled expression. `slots` are the variables in it."""

    value: Value
    poison: Poison
    slots: frozenset[int]

    def taint(self, frame: Frame) -> Array | None:
        """The poison of the value, None if it is sound."""
        if not frame.poison or self.slots.isdisjoint(frame.poison):
            return None
        return self.poison(frame)


def expect(actual: Scalar, wanted: Scalar, what: str) -> None:
    """Raises GpuadError if types disagree: an executor that converted silently would hide a wrong pass."""
    if actual != wanted:
        raise GpuadError(f"malformed IR: {what} has type {actual}, not {wanted}")


def join(*poisons: Array | None) -> Array | None:
    """Poisoned where any is."""
    found = [p for p in poisons if p is not None]
    if len(found) < 2:
        return found[0] if found else None
    result = found[0]
    for other in found[1:]:
        result = np.maximum(result, other)
    return result


def compile_expr(expr: Expr, names: Names) -> Code:
    """The expression as closures. Raises GpuadError if it is malformed, UnsupportedError for a type that NumPy lacks."""
    match expr:
        case Constant(value=value):
            fixed = constant(value, expr.type)
            fixed.flags.writeable = False
            return Code(lambda frame: fixed, _sound, frozenset())
        case LaunchIndex(name=name, axis=axis):
            return Code(lambda frame: frame.launch_index(name, axis), _sound, frozenset())
        case Var():
            return _variable(expr, names.var(expr))
        case Select():
            return _select(expr, names)
        case Binary():
            return _binary(expr, names)
        case Unary(op=op, operand=operand):
            expect(operand.type, expr.type, f"the operand of `{op}`")
            return _apply(unary(op, expr.type), compile_expr(operand, names))
        case Cast(operand=operand):
            return _apply(cast(operand.type, expr.type), compile_expr(operand, names))
        case Call():
            return _call(expr, names)
    raise GpuadError(f"malformed IR: no expression: {type(expr).__name__}")


def _sound(frame: Frame) -> None:
    return None


def _variable(var: Var, slot: int) -> Code:
    def value(frame: Frame) -> Array:
        found = frame.env[slot]
        if found is None:
            raise GpuadError(f"malformed IR: `{var.name}` ({var.uid}) is used before its definition")
        return found

    return Code(value, lambda frame: frame.poison.get(slot), frozenset((slot,)))


def _apply(compute: Callable[..., Array], *operands: Code) -> Code:
    slots = frozenset[int]().union(*(o.slots for o in operands))

    def poison(frame: Frame) -> Array | None:
        return join(*(o.taint(frame) for o in operands))

    if len(operands) == 1:
        one = operands[0].value
        return Code(lambda frame: compute(one(frame)), poison, slots)
    if len(operands) == 2:
        left, right = operands[0].value, operands[1].value
        return Code(lambda frame: compute(left(frame), right(frame)), poison, slots)
    return Code(lambda frame: compute(*(o.value(frame) for o in operands)), poison, slots)


def _binary(expr: Binary, names: Names) -> Code:
    op, left, right = expr.op, expr.left, expr.right
    compute = binary(op, left.type)
    if op not in ("<<", ">>"):
        expect(right.type, left.type, f"the right operand of `{op}`")
    elif not right.type.is_integer:
        raise GpuadError(f"malformed IR: shift by {right.type}")
    expect(expr.type, BOOL if op in ("<", ">", "<=", ">=", "==", "!=") else left.type, f"the result of `{op}`")
    a, b = compile_expr(left, names), compile_expr(right, names)
    plain = _apply(compute, a, b)
    if op not in ("&&", "||"):
        return plain
    return Code(plain.value, lambda frame: _either(frame, a, b, op == "||"), plain.slots)


def _either(frame: Frame, a: Code, b: Code, decides: bool) -> Array | None:
    """Poison of && and ||: an operand that is sound and decides the result drops the other's."""
    left, right = a.taint(frame), b.taint(frame)
    zero = np.zeros(1, np.int32)
    if left is not None:
        left_decided = (b.value(frame) == decides) & ((zero if right is None else right) == 0)
    if right is not None:
        right_decided = (a.value(frame) == decides) & ((zero if left is None else left) == 0)
    return join(
        None if left is None else np.where(left_decided, 0, left),
        None if right is None else np.where(right_decided, 0, right),
    )


def _select(expr: Select, names: Names) -> Code:
    expect(expr.condition.type, BOOL, "the condition of a select")
    expect(expr.otherwise.type, expr.then.type, "the second value of a select")
    c, a, b = (compile_expr(e, names) for e in (expr.condition, expr.then, expr.otherwise))
    zero = np.zeros(1, np.int32)

    def poison(frame: Frame) -> Array | None:
        left, right = a.taint(frame), b.taint(frame)
        if left is None and right is None:
            return c.taint(frame)
        chosen = np.where(c.value(frame), zero if left is None else left, zero if right is None else right)
        return join(c.taint(frame), chosen)

    return Code(_apply(np.where, c, a, b).value, poison, c.slots | a.slots | b.slots)


def _call(expr: Call, names: Names) -> Code:
    compute = function(expr.function, expr.type, tuple(a.type for a in expr.arguments))
    operands = tuple(compile_expr(a, names) for a in expr.arguments)
    plain = _apply(compute, *operands)
    if expr.function != "gpuad_chain":
        return plain
    seed, partial = operands

    def poison(frame: Frame) -> Array | None:  # a seed of 0 drops the partial
        second = partial.taint(frame)
        return join(seed.taint(frame), None if second is None else np.where(seed.value(frame) == 0, 0, second))

    return Code(plain.value, poison, plain.slots)

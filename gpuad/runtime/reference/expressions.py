"""Expressions become closures over a frame, once for each kernel: one that computes the value, and one that computes its poison, which
runs only while a variable of the expression is poisoned.

Of integers that operators on bits make, it is known which bits are unsound. A bit-field is written by reading the number that it lies in
and putting its own bits beside the others': the first one written into memory that nothing has initialised makes a number of which only its
own bits are sound, and whoever reads the bit-field asks for no others. Any other operation makes all bits of its result unsound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
    codes: dict[int, tuple[Expr, Code]] = field(default_factory=dict)  # by the id of the expression, which passes share between statements

    def var(self, var: Var) -> int:
        return self.vars.setdefault(var, len(self.vars))

    def buffer(self, buffer: Buffer) -> int:
        return self.buffers.setdefault(buffer, len(self.buffers))

    def stack(self, stack: Stack) -> int:
        return self.stacks.setdefault(stack, len(self.stacks))


@dataclass(frozen=True, eq=False)
class Code:
    """A compiled expression. `slots` are the variables in it. `bits` computes which bits of an integer are unsound, a mask of its own type;
    None where they all are as soon as one is."""

    value: Value
    poison: Poison
    slots: frozenset[int]
    bits: Value | None = None

    def taint(self, frame: Frame) -> Array | None:
        """The poison of the value, None if it is sound."""
        if not frame.poison or self.slots.isdisjoint(frame.poison):
            return None
        return self.poison(frame)

    def unsound(self, frame: Frame) -> Array:
        """The unsound bits of an integer."""
        poison = self.taint(frame)
        value = self.value(frame)
        if poison is None:
            return np.zeros(1, value.dtype)
        return self.bits(frame) if self.bits is not None else all_bits(poison, value.dtype)


def all_bits(poison: Array, dtype: np.dtype[Any]) -> Array:
    """The mask of integers of which all bits are unsound where they are poisoned."""
    return np.asarray(np.where(poison != 0, ~dtype.type(0), dtype.type(0)))


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
    known = names.codes.get(id(expr))
    if known is None:
        known = names.codes[id(expr)] = expr, _compiled(expr, names)
    return known[1]


def _compiled(expr: Expr, names: Names) -> Code:
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
            return _cast(operand.type, expr.type, compile_expr(operand, names))
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

    def bits(frame: Frame) -> Array:
        found = frame.bits.get(slot)
        return all_bits(frame.poison[slot], value(frame).dtype) if found is None else found

    return Code(value, lambda frame: frame.poison.get(slot), frozenset((slot,)), bits if var.type.is_integer else None)


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
    if op in ("&", "|", "^", "<<", ">>") and left.type.is_integer:
        return _by_bits(plain, _binary_bits(op, compute, a, b))
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


def _binary_bits(op: str, compute: Callable[..., Array], a: Code, b: Code) -> Value:
    """The unsound bits of an operator's result: a sound 0 decides `&`, a sound 1 decides `|`, shifts take them along."""

    def bits(frame: Frame) -> Array:
        left, right = a.unsound(frame), b.unsound(frame)
        if op in ("<<", ">>"):
            moved = compute(left, b.value(frame))
            return np.where(right != 0, ~moved.dtype.type(0), moved)
        if op == "^":
            return left | right
        x, y = a.value(frame), b.value(frame)
        open_x, open_y = (x | left, y | right) if op == "&" else (~x | left, ~y | right)
        return (left & open_y) | (right & open_x)

    return bits


def _cast(source: Scalar, target: Scalar, operand: Code) -> Code:
    convert = cast(source, target)
    plain = _apply(convert, operand)
    if not (source.is_integer and target.is_integer):
        return plain
    return _by_bits(plain, lambda frame: convert(operand.unsound(frame)))


def _by_bits(plain: Code, bits: Value) -> Code:
    """The expression, whose value is sound where its bits are."""

    def poison(frame: Frame) -> Array | None:
        found = plain.poison(frame)
        return None if found is None else np.where(bits(frame) != 0, found, 0)

    return Code(plain.value, poison, plain.slots, bits)


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

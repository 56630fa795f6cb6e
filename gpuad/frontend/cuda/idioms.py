"""Recognises a helper that adds to memory by a loop around atomicCAS, as CUDA's guide has it for the types that atomicAdd lacked.

    T* bits = (T*)address;  T old = *bits, assumed;
    do { assumed = old; old = atomicCAS(bits, assumed, as_bits(value + as_number(assumed))); } while (assumed != old);
    return as_number(old);

Such a call is an atomic addition, and is differentiated as one. Every statement has to be one of these; a helper that does anything else
is no idiom, and is read as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.surface import (
    Assign,
    AtomicCall,
    Binary,
    Block,
    Cast,
    Declaration,
    Declare,
    Deref,
    DoWhile,
    Evaluate,
    Expr,
    Function,
    Index,
    MathCall,
    Name,
    Return,
    Stmt,
)
from ...ir.surface import Constant as ConstantNode
from ...ir.types import VOID, Pointer, Scalar
from ...source import Span

_COMBINES = {"fmin": "min", "fmax": "max"}


def atomic_idiom(function: Function, arguments: tuple[Expr, ...], span: Span) -> AtomicCall | None:
    """The atomic operation that a call of a helper is, or None."""
    pointers = [i for i, p in enumerate(function.parameters) if isinstance(p.type, Pointer)]
    if len(function.parameters) != 2 or len(pointers) != 1:
        return None
    (at,) = pointers
    address, value = function.parameters[at], function.parameters[1 - at]
    element = address.type.element if isinstance(address.type, Pointer) else None
    if not isinstance(element, Scalar) or not element.is_float or value.type != element or function.result not in (VOID, element):
        return None
    reading = _Reading({address}, value)
    if not all(reading.statement(s) for s in function.body.body) or not reading.op:
        return None
    if function.result != VOID and not reading.returned:
        return None
    return AtomicCall(span, element, reading.op, arguments[at], (arguments[1 - at],))


@dataclass
class _Reading:
    """Goes through the helper. `addresses`: what points to the memory, `contents`: what holds its old content."""

    addresses: set[Declaration]
    value: Declaration
    contents: set[Declaration] = field(default_factory=set)
    op: str = ""
    returned: bool = False

    def statement(self, stmt: Stmt) -> bool:
        """Whether the statement belongs to the idiom."""
        match stmt:
            case Declare(init=None):
                return not self.op
            case Declare(declaration=declared, init=Expr() as init):
                return self.define(declared, init)
            case Evaluate(value=Assign(target=Name(declaration=target), value=init, op=None)):
                return self.define(target, init)
            case DoWhile():
                return self.loop(stmt)
            case Return(value=value):
                self.returned = value is not None and self.is_content(value)
                return bool(self.op) and (value is None or self.returned)
        return False

    def define(self, target: Declaration, init: Expr) -> bool:
        if self.op or target == self.value or target in self.addresses:
            return False
        if self.is_address(init):
            self.addresses.add(target)
            return True
        self.contents.add(target)
        return self.is_content(init)

    def loop(self, stmt: DoWhile) -> bool:
        body = stmt.body.body if isinstance(stmt.body, Block) else ()
        if self.op or len(body) != 2:
            return False
        match body:
            case (
                Evaluate(value=Assign(target=Name(declaration=assumed), value=before, op=None)),
                Evaluate(value=Assign(target=Name(declaration=old), value=after, op=None)),
            ):
                swap = _number(after)
            case _:
                return False
        if (
            not isinstance(swap, AtomicCall)
            or swap.op != "cas"
            or old not in self.contents
            or _named(before) != old
            or assumed == old
            or not self.is_address(swap.pointer)
        ):
            return False
        condition, (expected, new) = stmt.condition, swap.operands
        if not isinstance(condition, Binary) or condition.op != "!=" or {_named(condition.left), _named(condition.right)} != {assumed, old}:
            return False
        self.op = self.combination(new, assumed) if _named(expected) == assumed else ""
        return bool(self.op)

    def combination(self, new: Expr, assumed: Declaration) -> str:
        """The operation that makes the new content of the value and the old."""
        new = _number(new)
        match new:
            case Binary(op="+", type=Scalar(kind="float"), left=a, right=b):  # of the numbers, not of their bits
                op, sides = "add", (a, b)
            case MathCall(function=("fmin" | "fmax") as name, arguments=(a, b)):
                op, sides = _COMBINES[name], (a, b)
            case _:
                return ""
        return op if {_named(_number(s)) for s in sides} == {assumed, self.value} else ""

    def is_address(self, expr: Expr) -> bool:
        expr = _without_casts(expr)
        return isinstance(expr, Name) and expr.declaration in self.addresses

    def is_content(self, expr: Expr) -> bool:
        expr = _number(expr)
        if isinstance(expr, Name):
            return expr.declaration in self.contents
        if isinstance(expr, Index) and isinstance(expr.index, ConstantNode) and expr.index.value == 0:
            return self.is_address(expr.pointer)
        return isinstance(expr, Deref) and self.is_address(expr.pointer)


def _without_casts(expr: Expr) -> Expr:
    while isinstance(expr, Cast):
        expr = expr.operand
    return expr


def _number(expr: Expr) -> Expr:
    """What an expression stands for, whether as a number or as its bits."""
    while True:
        if isinstance(expr, MathCall) and expr.function == "bits":
            (expr,) = expr.arguments
        elif isinstance(expr, Cast) and isinstance(expr.operand.type, Scalar) and _same_bits(expr, expr.operand):
            expr = expr.operand
        else:
            return expr


def _same_bits(one: Expr, other: Expr) -> bool:
    a, b = one.type, other.type
    return isinstance(a, Scalar) and isinstance(b, Scalar) and a.is_integer and b.is_integer and a.bits == b.bits


def _named(expr: Expr) -> Declaration | None:
    expr = _number(expr)
    return expr.declaration if isinstance(expr, Name) else None

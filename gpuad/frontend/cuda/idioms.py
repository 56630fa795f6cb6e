"""Recognises helpers that do an atomic operation by a loop around atomicCAS, as CUDA's guide has it for the types that atomicAdd lacked.

    T* bits = (T*)address;  T old = *bits, assumed;
    do { assumed = old; old = atomicCAS(bits, assumed, as_bits(value + as_number(assumed))); } while (assumed != old);
    return as_number(old);

Such a call is an atomic addition, maximum or minimum, and is differentiated as one. Every statement has to be one of these, or of the ways
to write the loop (`swaps`); a helper that does anything else is no idiom, and is read as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.surface import (
    Assign,
    AtomicCall,
    Block,
    Cast,
    Declaration,
    Declare,
    Deref,
    DoWhile,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    Index,
    Name,
    Return,
    Stmt,
    While,
)
from ...ir.surface import Constant as ConstantNode
from ...ir.types import VOID, Pointer, Scalar
from ...source import Span
from .swaps import Around, number, only, swap_of, tested, together


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
    return AtomicCall(span, element, reading.op, arguments[at], (arguments[1 - at],), reading.valued)


@dataclass
class _Reading:
    """Goes through the helper. `addresses`: what points to the memory, `contents`: what holds its old content; `test`: what a test before
    the loop lets pass; `valued`: what is returned is the old content."""

    addresses: set[Declaration]
    value: Declaration
    contents: set[Declaration] = field(default_factory=set)
    test: str = ""
    op: str = ""
    returned: bool = False
    valued: bool = True

    def statement(self, stmt: Stmt) -> bool:
        """Whether the statement belongs to the idiom."""
        match stmt:
            case Block(body=body):
                return all(self.statement(s) for s in body)
            case Declare(init=None):
                return not self.op
            case Declare(declaration=declared, init=Expr() as init):
                return self.define(declared, init)
            case Evaluate(value=Assign(target=Name(declaration=target), value=init, op=None)):
                return self.define(target, init)
            case If(condition=condition, then=then, otherwise=None) if not self.op and not self.test:
                return self.leaves(condition, only(then))
            case DoWhile() | While() | For():
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

    def leaves(self, condition: Expr, then: Stmt) -> bool:
        """Whether the helper returns early, where nothing is to be done."""
        found = tested(condition, False, self.value)
        if found is None or not isinstance(then, Return):
            return False
        self.test, content = found
        return self.is_content(content) and (then.value is None or self.is_content(then.value))

    def loop(self, stmt: DoWhile | While | For) -> bool:
        swap = None if self.op else swap_of(stmt, Around(self.value, frozenset(self.contents), self.is_address))
        if swap is None:
            return False
        self.op = together([swap.op, self.test]) if self.test else swap.op
        self.contents, self.addresses = {swap.old}, set()
        self.valued, self.returned = swap.valued, swap.returned
        return bool(self.op)

    def is_address(self, expr: Expr) -> bool:
        expr = _without_casts(expr)
        return isinstance(expr, Name) and expr.declaration in self.addresses

    def is_content(self, expr: Expr) -> bool:
        expr = number(expr)
        if isinstance(expr, Name):
            return expr.declaration in self.contents
        if isinstance(expr, Index) and isinstance(expr.index, ConstantNode) and expr.index.value == 0:
            return self.is_address(expr.pointer)
        return isinstance(expr, Deref) and self.is_address(expr.pointer)


def _without_casts(expr: Expr) -> Expr:
    while isinstance(expr, Cast):
        expr = expr.operand
    return expr

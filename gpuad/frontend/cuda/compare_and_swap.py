"""Loops around atomicCAS: recognises helpers that implement an atomic addition, maximum or minimum, as CUDA's guide has it for the types
that atomicAdd lacked.

    T* bits = (T*)address;  T old = *bits, assumed;
    do { assumed = old; old = atomicCAS(bits, assumed, as_bits(value + as_number(assumed))); } while (assumed != old);
    return as_number(old);

Such a call is differentiated as the atomic that it implements. The new content is the sum, the greater, or the less of the value and the
content, by itself or because of tests that leave the loop, as in

    while (value > old) { assumed = old;  if ((old = atomicCAS(bits, assumed, value)) == assumed) break; }

Every statement has to be one of these forms; a helper that does anything else is no idiom, and is read as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ...ir import surface
from ...ir.nodes import MIRRORED, NEGATED, ORDERINGS
from ...ir.surface import Constant as ConstantNode
from ...ir.types import VOID, Pointer, Scalar, Type
from ...source import Span


@dataclass(frozen=True)
class Around:
    """What the loop may refer to: the `value`, variables that hold the `contents`; whether an expression is the memory's address."""

    value: surface.Declaration
    contents: frozenset[surface.Declaration]
    is_address: Callable[[surface.Expr], bool]


@dataclass(frozen=True)
class Swap:
    """`op`: what the loop does to the memory; `old` holds the old content afterwards, if `valued`. `returned`: the loop returns it."""

    op: str
    old: surface.Declaration
    valued: bool
    returned: bool


def swap_of(stmt: surface.DoWhile | surface.While | surface.For, around: Around) -> Swap | None:
    """The operation that a loop is, or None."""
    if isinstance(stmt, surface.For) and (stmt.init is not None or stmt.step is not None):
        return None
    body = _Body(around)
    before = None if isinstance(stmt, surface.DoWhile) or is_true(stmt.condition) else stmt.condition
    if before is not None and not body.asked(before, True):
        return None
    if not all(body.statement(s) for s in _steps(stmt.body)) or body.assumed is None or body.new is None:
        return None
    if isinstance(stmt, surface.DoWhile) and not is_true(stmt.condition):
        body.done = body.done or body.compares(stmt.condition, "!=")
    op = body.operation()
    if not op or body.result != body.old or not (body.done or before is not None):
        return None
    if any(r not in (body.old, body.assumed) for r in body.returned):
        return None
    return Swap(op, body.old, body.done, bool(body.returned))


class _Body:
    """One iteration, statement by statement. `old`: the variable that holds the content at its start, and is given what the swap found;
    `assumed`: the one that the swap expects; `result`: the one that holds what the swap found; `done`: the loop is left if that was
    expected."""

    def __init__(self, around: Around) -> None:
        self.around = around
        self.old: surface.Declaration = around.value
        self.assumed: surface.Declaration | None = None
        self.result: surface.Declaration | None = None
        self.new: surface.Expr | None = None
        self.tests: list[tuple[str, surface.Expr]] = []
        self.names: dict[surface.Declaration, surface.Expr] = {}  # of what is computed from the content on the way
        self.done = False
        self.returned: list[surface.Declaration | None] = []

    def statement(self, stmt: surface.Stmt) -> bool:
        match stmt:
            case surface.Declare(init=None):
                return True
            case surface.Declare(declaration=target, init=surface.Expr() as value) if self.looks(value):
                self.names[target] = _resolved(value, self.names)
                return True
            case surface.Declare(declaration=target, init=surface.Expr() as value):
                return self.gives(target, value)
            case surface.Evaluate(value=surface.Assign(target=surface.Name(declaration=target), value=value, op=None)):
                return self.gives(target, value)
            case surface.If(condition=condition, then=then, otherwise=None) if self.leaves(only(then)):
                if self.new is None:
                    return self.asked(condition, False)
                self.done = self.compares(condition, "==")
                return self.done
        return False

    def leaves(self, stmt: surface.Stmt) -> bool:
        """True if a statement ends the loop, or the helper with the old content."""
        if isinstance(stmt, surface.Return) and stmt.value is not None:
            self.returned.append(named(stmt.value))
        return isinstance(stmt, surface.Break | surface.Return)

    def looks(self, value: surface.Expr) -> bool:
        """True if a new variable only holds what is computed from the content."""
        return self.assumed is not None and self.new is None and not isinstance(number(value), surface.AtomicCall)

    def gives(self, target: surface.Declaration, value: surface.Expr) -> bool:
        swap = number(value)
        if isinstance(swap, surface.AtomicCall):
            return self.swaps(target, swap)
        source = named(value)
        if source is None or target == self.around.value:
            return False
        if self.new is not None:  # the content becomes what the swap found
            found, self.result = self.result, target
            return source == found and target == self.old
        self.assumed, self.old = target, source
        return source in self.around.contents and target != source

    def swaps(self, target: surface.Declaration, swap: surface.AtomicCall) -> bool:
        expected, new = swap.operands if swap.op == "cas" else (swap, None)
        wanted = named(expected)
        if new is None or self.new is not None or wanted is None or not self.around.is_address(swap.pointer):
            return False
        if self.assumed is None and wanted in self.around.contents:  # without a copy of the content
            self.assumed = self.old = wanted
        self.new, self.result = new, target
        return wanted == self.assumed != target

    def asked(self, condition: surface.Expr, goes_on: bool) -> bool:
        """True if a condition is a test of the content, on which the iteration goes on if it `goes_on`."""
        found = tested(_resolved(condition, self.names), goes_on, self.around.value)
        if found is None:
            return False
        self.tests.append(found)
        return True

    def compares(self, condition: surface.Expr, op: str) -> bool:
        """True if the swap found what it expected."""
        if not isinstance(condition, surface.Binary) or condition.op != op or self.result is None:
            return False
        return {named(condition.left), named(condition.right)} == {self.assumed, self.result}

    def operation(self) -> str:
        """The operation that makes the new content of the value and the old."""
        assert self.new is not None
        if any(named(content) not in (self.old, self.assumed) for _, content in self.tests):
            return ""
        tests, value, new = [op for op, _ in self.tests], self.around.value, number(_resolved(self.new, self.names))
        match new:
            case surface.Name(declaration=declaration) if declaration == value:
                return together(tests)
            case surface.Binary(op="+", type=Scalar(kind="float"), left=a, right=b):  # of the numbers, not of their bits
                op, sides = "add" if not tests else "", (a, b)
            case surface.MathCall(function=("fmin" | "fmax") as name, arguments=(a, b)):
                op, sides = together([name, *tests]), (a, b)
            case surface.Conditional(condition=condition, then=a, otherwise=b):
                found = tested(condition, named(a) == value, value, equal=True)
                op, sides = together([found[0], *tests]) if found is not None and named(found[1]) == self.assumed else "", (a, b)
            case _:
                return ""
        return op if {named(s) for s in sides} == {self.assumed, value} else ""


def _steps(stmt: surface.Stmt) -> Iterator[surface.Stmt]:
    """The statements of a block in order, an assignment inside of a comparison before it."""
    match stmt:
        case surface.Block(body=body):
            for inner in body:
                yield from _steps(inner)
        case surface.If(condition=surface.Binary(left=left, right=right) as condition) if isinstance(number(left), surface.Assign):
            first = number(left)
            assert isinstance(first, surface.Assign)
            yield surface.Evaluate(stmt.span, first)
            yield surface.If(
                stmt.span, surface.Binary(condition.span, condition.type, condition.op, first.target, right), stmt.then, stmt.otherwise
            )
        case _:
            yield stmt


def _resolved(expr: surface.Expr, names: dict[surface.Declaration, surface.Expr]) -> surface.Expr:
    """The expression with variables replaced by what they stand for."""
    match expr:
        case surface.Name(declaration=declaration):
            return names.get(declaration, expr)
        case surface.Cast(operand=a) | surface.Unary(operand=a):
            return replace(expr, operand=_resolved(a, names))
        case surface.MathCall(arguments=arguments):
            return replace(expr, arguments=tuple(_resolved(a, names) for a in arguments))
        case surface.Binary(left=a, right=b):
            return replace(expr, left=_resolved(a, names), right=_resolved(b, names))
        case surface.Conditional(condition=c, then=a, otherwise=b):
            return replace(expr, condition=_resolved(c, names), then=_resolved(a, names), otherwise=_resolved(b, names))
    return expr


def tested(condition: surface.Expr, holds: bool, value: surface.Declaration, *, equal: bool = False) -> tuple[str, surface.Expr] | None:
    """If the value replaces a content where a comparison of the two is as `holds` says: the operation, and the content. `equal`: it may be
    replaced by what equals it."""
    while isinstance(condition, surface.Unary) and condition.op == "!":
        condition, holds = condition.operand, not holds
    if not isinstance(condition, surface.Binary) or condition.op not in ORDERINGS or not isinstance(condition.left.type, Scalar):
        return None
    op, first, second = condition.op, condition.left, condition.right
    if named(second) == value:
        op, first, second = MIRRORED[op], second, first
    if named(first) != value or named(second) == value:
        return None
    kept = _kept(condition.left.type, op, holds, equal)
    return (kept, second) if kept else None


def _kept(kind: Scalar, op: str, holds: bool, equal: bool) -> str:
    """The operation that replaces the content by a value where `value op content` is as `holds` says."""
    if kind.is_float and not holds:  # so it does if one of them is NaN
        return {"<": "nmax", "<=": "nmax", ">": "nmin", ">=": "nmin"}[op]
    op = op if holds else NEGATED[op]
    if op.endswith("=") and not equal:
        return ""
    order = "" if kind.is_float else "i" if kind.is_signed else "u"
    return order + ("max" if op[0] == ">" else "min")


def together(ops: list[str]) -> str:
    """The operation that replaces where all of them do; '' if that is none."""
    if not ops or len({op[-3:] for op in ops}) > 1:
        return ""
    kinds = {op[:-3] for op in ops}
    if kinds & {"i", "u"}:
        return ops[0] if len(kinds) == 1 else ""
    return next(kind for kind in ("", "f", "n") if kind in kinds) + ops[0][-3:]


# --- expressions -------------------------------------------------------------------------------------------------------------------------


def only(stmt: surface.Stmt) -> surface.Stmt:
    """The one statement in a block, or the statement itself."""
    while isinstance(stmt, surface.Block) and len(stmt.body) == 1:
        (stmt,) = stmt.body
    return stmt


def is_true(condition: surface.Expr | None) -> bool:
    """True if a loop's condition always holds."""
    while isinstance(condition, surface.Cast):
        condition = condition.operand
    return condition is None or (isinstance(condition, ConstantNode) and bool(condition.value))


def number(expr: surface.Expr) -> surface.Expr:
    """What an expression stands for, whether as a number or as its bits."""
    while True:
        if isinstance(expr, surface.MathCall) and expr.function == "bits":
            (expr,) = expr.arguments
        elif isinstance(expr, surface.Cast) and _same_bits(expr.type, expr.operand.type):
            expr = expr.operand
        else:
            return expr


def _same_bits(a: Type, b: Type) -> bool:
    return isinstance(a, Scalar) and isinstance(b, Scalar) and a.is_integer and b.is_integer and a.bits == b.bits


def named(expr: surface.Expr) -> surface.Declaration | None:
    """The variable that an expression stands for."""
    expr = number(expr)
    return expr.declaration if isinstance(expr, surface.Name) else None


def atomic_idiom(function: surface.Function, arguments: tuple[surface.Expr, ...], span: Span) -> surface.AtomicCall | None:
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
    return surface.AtomicCall(span, element, reading.op, arguments[at], (arguments[1 - at],), reading.valued)


@dataclass
class _Reading:
    """Goes through the helper. `addresses`: what points to the memory, `contents`: what holds its old content; `test`: what a test before
    the loop lets pass; `valued`: what is returned is the old content."""

    addresses: set[surface.Declaration]
    value: surface.Declaration
    contents: set[surface.Declaration] = field(default_factory=set)
    test: str = ""
    op: str = ""
    returned: bool = False
    valued: bool = True

    def statement(self, stmt: surface.Stmt) -> bool:
        """True if the statement belongs to the idiom."""
        match stmt:
            case surface.Block(body=body):
                return all(self.statement(s) for s in body)
            case surface.Declare(init=None):
                return not self.op
            case surface.Declare(declaration=declared, init=surface.Expr() as init):
                return self.define(declared, init)
            case surface.Evaluate(value=surface.Assign(target=surface.Name(declaration=target), value=init, op=None)):
                return self.define(target, init)
            case surface.If(condition=condition, then=then, otherwise=None) if not self.op and not self.test:
                return self.leaves(condition, only(then))
            case surface.DoWhile() | surface.While() | surface.For():
                return self.loop(stmt)
            case surface.Return(value=value):
                self.returned = value is not None and self.is_content(value)
                return bool(self.op) and (value is None or self.returned)
        return False

    def define(self, target: surface.Declaration, init: surface.Expr) -> bool:
        if self.op or target == self.value or target in self.addresses:
            return False
        if self.is_address(init):
            self.addresses.add(target)
            return True
        self.contents.add(target)
        return self.is_content(init)

    def leaves(self, condition: surface.Expr, then: surface.Stmt) -> bool:
        """True if the helper returns early, where nothing is to be done."""
        found = tested(condition, False, self.value)
        if found is None or not isinstance(then, surface.Return):
            return False
        self.test, content = found
        return self.is_content(content) and (then.value is None or self.is_content(then.value))

    def loop(self, stmt: surface.DoWhile | surface.While | surface.For) -> bool:
        swap = None if self.op else swap_of(stmt, Around(self.value, frozenset(self.contents), self.is_address))
        if swap is None:
            return False
        self.op = together([swap.op, self.test]) if self.test else swap.op
        self.contents, self.addresses = {swap.old}, set()
        self.valued, self.returned = swap.valued, swap.returned
        return bool(self.op)

    def is_address(self, expr: surface.Expr) -> bool:
        expr = surface.without_casts(expr)
        return isinstance(expr, surface.Name) and expr.declaration in self.addresses

    def is_content(self, expr: surface.Expr) -> bool:
        expr = number(expr)
        if isinstance(expr, surface.Name):
            return expr.declaration in self.contents
        if isinstance(expr, surface.Index) and isinstance(expr.index, ConstantNode) and expr.index.value == 0:
            return self.is_address(expr.pointer)
        return isinstance(expr, surface.Deref) and self.is_address(expr.pointer)

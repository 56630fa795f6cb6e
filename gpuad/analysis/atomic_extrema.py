"""Whether the adjoint of atomic maxima, minima and exchanges can be given.

Whose number an element holds in the end is found by comparing the end with what each thread put there (`ad.logs`). That is right
as long as all operations on an element keep numbers by one order, nothing else is written behind them, and no one looks at what the
element holds in between. An exchange is a store (and a load before it) where no two threads meet in an element; launches check that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..errors import UnsupportedError
from ..ir import nodes as ir
from ..ir.functions import EXTREMA
from ..ir.rewrite import walk_stmts
from ..ir.types import Space
from .activity import Activity
from .to_be_recorded import Access, Order


def check(kernel: ir.Kernel, facts: Activity, *, forward: bool = False) -> None:
    """UnsupportedError where an adjoint would not be right; or with `forward` tangents, which shared arrays get at each barrier."""
    for memory in _memories(kernel, facts):
        memory.run(last_only=not forward or memory.buffer.length is None)


def mixed(kernel: ir.Kernel, facts: Activity) -> dict[int, int]:
    """The atomic operations on arrays with shadows that would leave different things behind in a different order, if they met: by their
    ids, with a number that those which may meet share."""
    return {key: n for memory in _memories(kernel, facts) if memory.buffer.length is None for key, n in memory.mixed().items()}


def _memories(kernel: ir.Kernel, facts: Activity) -> Iterator[_Check]:
    if not any(_is_special(s) for s in walk_stmts(kernel.body)):
        return
    order = Order(kernel)
    lets = {s.var: s.value for s in walk_stmts(kernel.body) if isinstance(s, ir.Let)}
    for buffer in dict.fromkeys(a.buffer for a in order.accesses):
        accesses = [a for a in order.accesses if a.buffer == buffer]
        if facts.has_shadow(buffer) and any(_is_special(a.stmt) for a in accesses):
            yield _Check(order, facts, lets, buffer, accesses)


_SPOKEN = {"max": "maximum", "min": "minimum", "exch": "exchange", "add": "addition", "sub": "addition"}


def spoken(stmt: ir.Stmt) -> str:
    """What a user calls an atomic operation."""
    op = stmt.op if isinstance(stmt, ir.Atomic) else "add"
    return _SPOKEN.get(op[-3:] if op in EXTREMA else op, f"'{op}'")


def _is_special(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Atomic) and (stmt.op in EXTREMA or stmt.op == "exch")


def check_tangents(kernel: ir.Kernel, facts: Activity) -> None:
    """UnsupportedError where forward mode needs, within the launch, a tangent of memory that is known only after it."""
    if not any(isinstance(s, ir.Atomic) and s.op in EXTREMA for s in walk_stmts(kernel.body)):
        return
    order = Order(kernel)
    for access in order.accesses:
        if not isinstance(access.stmt, ir.Load) or access.stmt.var not in facts or access.buffer.length is not None:
            continue
        for other in order.accesses:
            if (
                other.buffer == access.buffer
                and isinstance(other.stmt, ir.Atomic)
                and other.stmt.op in EXTREMA
                and order.before(other, access)
            ):
                raise UnsupportedError(
                    f"forward mode: the tangent of '{access.buffer.name}' is read here after the atomic {spoken(other.stmt)} at "
                    f"{other.stmt.span}, but whose number stays is known only when the launch is over",
                    access.stmt.span,
                )


class _Check:
    """One memory's accesses."""

    def __init__(self, order: Order, facts: Activity, lets: Mapping[ir.Var, ir.Expr], buffer: ir.Buffer, accesses: list[Access]) -> None:
        self.order = order
        self.facts = facts
        self.lets = lets
        self.buffer = buffer
        self.accesses = accesses

    def run(self, last_only: bool) -> None:
        """`last_only`: of what the memory holds only the last is known."""
        self.together()
        for a in self.accesses:
            if _is_special(a.stmt):
                self.result(a)
        for a in self.accesses if last_only else ():
            if isinstance(a.stmt, ir.Store) or (isinstance(a.stmt, ir.Accumulate) and a.stmt.how is ir.How.PLAIN):
                self.store(a)
            elif isinstance(a.stmt, ir.Load) and a.stmt.var in self.facts:
                self.load(a)

    @property
    def extrema(self) -> Iterator[Access]:
        return (a for a in self.accesses if isinstance(a.stmt, ir.Atomic) and a.stmt.op in EXTREMA)

    @property
    def atomics(self) -> Iterator[Access]:
        return (
            a for a in self.accesses if isinstance(a.stmt, ir.Atomic) or (isinstance(a.stmt, ir.Accumulate) and a.stmt.how is ir.How.ATOMIC)
        )

    def kind(self, access: Access) -> str:
        """Operations of one kind may come in any order."""
        if not isinstance(access.stmt, ir.Atomic) or access.stmt.op in ("add", "sub"):
            return "add"
        op = access.stmt.op
        directions = {self.direction(a) for a in self.atomics if isinstance(a.stmt, ir.Atomic) and a.stmt.op == op}
        return (directions.pop() if len(directions) == 1 else "") or op

    def mixed(self) -> dict[int, int]:
        """Operations of different kinds that are not known to be apart, with the number of their kind."""
        accesses = list(self.atomics)
        kinds = {id(a): self.kind(a) for a in accesses}
        numbers = {kind: n for n, kind in enumerate(dict.fromkeys(kinds.values()))}
        meeting = (a for a in accesses if any(kinds[id(a)] != kinds[id(o)] and not self.order.are_distinct(a, o) for o in accesses))
        return {id(a.stmt): numbers[kinds[id(a)]] for a in meeting}

    def together(self) -> None:
        """On a shared array it is not checked whether operations of different kinds meet."""
        found = self.mixed()
        if found and self.buffer.length is not None:
            first, second = (
                [a.stmt for a in self.atomics if found.get(id(a.stmt)) == n] for n in (min(found.values()), max(found.values()))
            )
            raise UnsupportedError(
                f"an atomic {spoken(second[0])} on '{self.buffer.name}', which carries a gradient, and an atomic {spoken(first[0])} at "
                f"{first[0].span}: where both meet, what is left depends on the order of the threads",
                second[0].span,
            )

    def direction(self, access: Access) -> str:
        """'up' or 'down' if the operation keeps the greater or less number; '' if it is not known to: bits have the order of the numbers
        only for numbers that are not negative, and the opposite order for negative ones."""
        assert isinstance(access.stmt, ir.Atomic)
        op = access.stmt.op
        if op not in EXTREMA:
            return ""
        if op[0] not in "iu":
            return "up" if op.endswith("max") else "down"
        sign = self.sign(access, access.stmt.operands[0])
        if sign != ("negative" if op[0] == "u" else "positive"):
            return ""
        return "up" if op in ("imax", "umin") else "down"

    def sign(self, access: Access, value: ir.Expr) -> str:
        """What an If around the operation says of its number's sign."""
        for stmt, branch in reversed(access.path):
            if isinstance(stmt, ir.If):
                found = self.said(stmt.condition, value, branch == 0)
                if found:
                    return found
        return ""

    def said(self, condition: ir.Expr, value: ir.Expr, holds: bool) -> str:
        condition = self.named(condition)
        match condition:
            case ir.Unary(op="!", operand=inner):
                return self.said(inner, value, not holds)
            case ir.Cast(operand=inner) if inner.type.kind == "bool":
                return self.said(inner, value, holds)
            case ir.Call(function="signbit", arguments=(x,)) if self.same(x, value):
                return "negative" if holds else "positive"
            case ir.Binary(op=op, left=x, right=ir.Constant(value=0)) if self.same(x, value) or self.is_bits(x, value):
                if op in ("<", ">="):
                    return "negative" if holds == (op == "<") else "positive"
                if op == ">" and holds:
                    return "positive"
        return ""

    def same(self, x: ir.Expr, value: ir.Expr) -> bool:
        return self.named(x) == self.named(value)

    def is_bits(self, x: ir.Expr, value: ir.Expr) -> bool:
        x = self.named(x)
        return isinstance(x, ir.Call) and x.function == "bits" and x.type.is_signed and self.same(x.arguments[0], value)

    def named(self, expr: ir.Expr) -> ir.Expr:
        while isinstance(expr, ir.Var) and expr in self.lets:
            expr = self.lets[expr]
        return expr

    def result(self, access: Access) -> None:
        assert isinstance(access.stmt, ir.Atomic)
        name, op = self.buffer.name, access.stmt.op
        if op == "exch" and self.buffer.space is Space.SHARED:
            raise UnsupportedError(
                f"an atomic exchange on the shared array '{name}', which carries a gradient: its order is not recorded", access.stmt.span
            )
        if op in EXTREMA and access.stmt.var is not None and access.stmt.var in self.facts:
            raise UnsupportedError(
                f"the result of an atomic {spoken(access.stmt)} on '{name}' carries a gradient: whose number it was is not recorded",
                access.stmt.span,
            )

    def store(self, access: Access) -> None:
        for other in self.extrema:
            if self.order.before(other, access):
                raise UnsupportedError(
                    f"'{self.buffer.name}' is written here after the atomic {spoken(other.stmt)} at {other.stmt.span}, whose last content "
                    "the gradient needs",
                    access.stmt.span,
                )

    def load(self, access: Access) -> None:
        """What is read is either the content before all the operations, or that after all of them."""
        first = next((a for a in self.extrema if self.order.before(a, access)), None)
        later = next((a for a in self.extrema if self.order.after(a, access)), None)
        if first is not None and later is not None:
            raise UnsupportedError(
                f"'{self.buffer.name}' is read here between atomic operations ({first.stmt.span}, {later.stmt.span}): whose number it "
                "was at that time is not recorded",
                access.stmt.span,
            )

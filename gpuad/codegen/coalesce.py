"""Copy coalescing: which Vars share one C variable, as a loop's carried value and its start, next value and result, or a merge and its
inputs.

Two Vars may share if neither is defined while the other is still needed. Liveness is computed backwards over the structured body, loops to
their fixed point, and gives at each definition the Vars that it must not disturb. Only Vars of one name and type are joined, so that the
text keeps the user's names; a loop's `var` and `result` always are one variable.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.nodes import Assign, Block, Expr, For, If, Kernel, Let, Var, While, variables
from ..ir.rewrite import walk_stmts
from .folded import operands, targets


class Classes:
    """Disjoint sets of Vars; `find` gives the same representative for all Vars of one C variable."""

    def __init__(self, interference: dict[Var, set[Var]]) -> None:
        self.parent: dict[Var, Var] = {}
        self.members: dict[Var, set[Var]] = {}
        self.interference = interference

    def find(self, var: Var) -> Var:
        while var in self.parent:
            var = self.parent[var]
        return var

    def join(self, a: Var, b: Var) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        self.members[a] = self.of(a) | self.of(b)
        self.parent[b] = a

    def of(self, var: Var) -> set[Var]:
        """All Vars that share the C variable of `var`."""
        root = self.find(var)
        return self.members.get(root, {root})

    def join_if_free(self, a: Var, b: Var) -> None:
        """Joins the two unless that would disturb a value that is still needed."""
        if a.type != b.type or a.name != b.name:
            return
        others = self.of(b)
        if not any(self.interference.get(v, set()) & others for v in self.of(a)):
            self.join(a, b)


def coalesce(kernel: Kernel) -> Classes:
    """The C variables of a folded kernel."""
    liveness = _Liveness()
    liveness.block(kernel.body, set())
    liveness.disturb(kernel.scalars, set(kernel.scalars))
    classes = Classes(liveness.interference)
    loops = [s for s in walk_stmts(kernel.body) if isinstance(s, For | While)]
    for loop in loops:
        for c in loop.carried:
            classes.join(c.var, c.result)
    for stmt in walk_stmts(kernel.body):
        for a, b in _wishes(stmt):
            classes.join_if_free(a, b)
    return classes


def _wishes(stmt: object) -> Iterable[tuple[Var, Var]]:
    """Pairs that would be one variable in a text written by hand."""
    match stmt:
        case If(merges=merges):
            return [(m.var, v) for m in merges for e in (m.otherwise, m.then) for v in _heads(m.var, e)]
        case For(carried=carried) | While(carried=carried):
            return [(c.var, v) for c in carried for e in (c.next, c.init) for v in _heads(c.var, e)]
        case Let(var=var, value=value):
            return [(var, v) for v in _heads(var, value)]
    return []


def _heads(var: Var, expr: Expr) -> list[Var]:
    return [v for v in variables(expr) if v.name == var.name]


class _Liveness:
    """Walks backwards; `interference[v]` are the Vars that a definition of `v` (or of which a definition) would disturb."""

    def __init__(self) -> None:
        self.interference: dict[Var, set[Var]] = {}
        self.heads: dict[int, set[Var]] = {}  # what loops need at the end of their bodies, as far as that is known: it only grows

    def disturb(self, definitions: Iterable[Var], live: set[Var]) -> None:
        for v in definitions:
            for other in live - {v}:
                self.interference.setdefault(v, set()).add(other)
                self.interference.setdefault(other, set()).add(v)

    def block(self, block: Block, live: set[Var]) -> set[Var]:
        """The Vars needed before the block, given those needed after it."""
        for stmt in reversed(block):
            live = self.statement(stmt, live)
        return live

    def statement(self, stmt: object, live: set[Var]) -> set[Var]:
        match stmt:
            case If():
                return self.branches(stmt, live)
            case For() | While():
                return self.loop(stmt, live)
        assert not isinstance(stmt, tuple)
        given = set(targets(stmt))  # type: ignore[arg-type]
        source = stmt.value if isinstance(stmt, Let | Assign) else None
        self.disturb(given, live - {source} if isinstance(source, Var) else live)
        return (live - given) | _used(operands(stmt))  # type: ignore[arg-type]

    def branches(self, stmt: If, live: set[Var]) -> set[Var]:
        targets = {m.var for m in stmt.merges}
        self.disturb(targets, live | targets)
        live = live - targets
        then = self.block(stmt.then, live | _used(m.then for m in stmt.merges))
        otherwise = self.block(stmt.otherwise, live | _used(m.otherwise for m in stmt.merges))
        return then | otherwise | _used([stmt.condition])

    def loop(self, stmt: For | While, live: set[Var]) -> set[Var]:
        """What the loop's head needs is needed at the end of its body too."""
        state = {c.var for c in stmt.carried}
        held = (live - {c.result for c in stmt.carried}) | state
        if isinstance(stmt, For):
            held |= {stmt.var} | _used([stmt.start, stmt.stop, stmt.step])
        head = self.heads.setdefault(id(stmt), set())
        while True:
            end = (held | head) - state | _used(c.next for c in stmt.carried)
            again = self.iteration(stmt, end, held)
            if again <= head:
                break
            head |= again
        self.disturb(state, held | head)
        self.disturb([stmt.var] if isinstance(stmt, For) else [], held | head)
        outside = held | head
        outside -= state | ({stmt.var} if isinstance(stmt, For) else set())
        return outside | _used(operands(stmt))

    def iteration(self, stmt: For | While, end: set[Var], held: set[Var]) -> set[Var]:
        if isinstance(stmt, For):
            return self.block(stmt.body, end)
        before_body = self.block(stmt.body, end)
        return self.block(stmt.header, before_body | held | _used([stmt.condition]))


def _used(exprs: Iterable[Expr]) -> set[Var]:
    return {v for e in exprs for v in variables(e)}

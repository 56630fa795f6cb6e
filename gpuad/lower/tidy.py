"""Dead code elimination on a freshly lowered kernel: unused Lets and Loads, merges, carried values, arrays that are only written, empty
control flow; and the removal of printf and assert (`without_output`) for kernels that are differentiated.

A mark-and-sweep: Vars are live if an effect (a store, a condition, a bound) depends on them. Conditions of empty Ifs and bounds of empty
loops die with them, so the sweep is repeated until nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ..ir import folding
from ..ir import nodes as ir
from ..ir.nodes import Kernel, Tell
from ..ir.rewrite import edit, expressions, walk_stmts
from ..ir.types import Space
from .lowering import make_if


def eliminate_dead(body: ir.Block) -> ir.Block:
    """The block without dead statements; its effects on memory other than thread-local arrays are the same."""
    while True:
        swept = _Sweep(body).block(body)
        if swept == body:
            return swept
        body = swept


class _Sweep:
    """One mark-and-sweep over a block. `starts`: Lets that only say where a loop of the same name starts; they move into it."""

    def __init__(self, body: ir.Block) -> None:
        stmts = list(walk_stmts(body))
        uses = Counter(v for stmt in stmts for e in expressions(stmt) for v in ir.variables(e))
        lets = {stmt.var: stmt.value for stmt in stmts if isinstance(stmt, ir.Let)}
        first = [
            v
            for stmt in stmts
            if isinstance(stmt, ir.For)
            for v in (_plain(stmt.start),)
            if isinstance(v, ir.Var) and v.name == stmt.var.name
        ]
        self.starts: dict[ir.Expr, ir.Expr] = {v: lets[v] for v in first if v in lets and uses[v] == 1}
        self.live = _live(stmts)
        self.read = {s.buffer for s in stmts if isinstance(s, (ir.Load, ir.Take, ir.Atomic))}
        self.used = self.read | {s.buffer for s in stmts if isinstance(s, (ir.Store, ir.Accumulate))}

    def block(self, block: ir.Block) -> ir.Block:
        return tuple(new for stmt in block for new in self.stmt(stmt))

    def stmt(self, stmt: ir.Stmt) -> Iterable[ir.Stmt]:
        match stmt:
            case ir.Let(var=var) | ir.Load(var=var):
                return (stmt,) if var in self.live and var not in self.starts else ()
            case ir.Atomic(var=ir.Var() as var) if var not in self.live:
                return (_without_result(stmt),)
            case ir.Store(buffer=buffer) | ir.Accumulate(buffer=buffer):
                return () if self.is_write_only(buffer) else (stmt,)
            case ir.Alloc(buffer=buffer):
                return (stmt,) if buffer in self.used else ()
            case ir.If(condition=c, then=then, otherwise=otherwise, merges=merges):
                kept = tuple(m for m in merges if m.var in self.live)
                return make_if(c, self.block(then), self.block(otherwise), kept, stmt.span)
            case ir.For() | ir.While():
                return self.loop(stmt)
        return (stmt,)

    def is_write_only(self, buffer: ir.Buffer) -> bool:
        return buffer.space is Space.LOCAL and buffer not in self.read

    def loop(self, stmt: ir.For | ir.While) -> Iterable[ir.Stmt]:
        carried = tuple(c for c in stmt.carried if c.var in self.live or c.result in self.live)
        count = stmt.count if isinstance(stmt, ir.While) else None
        wanted = any(c.result in self.live for c in carried) or count in self.live
        if not wanted and not _has_effect(stmt.body):
            return ()
        if isinstance(stmt, ir.For):
            start = folding.cast(self.starts.get(_plain(stmt.start), _plain(stmt.start)), stmt.start.type)
            return (replace(stmt, start=start, body=self.block(stmt.body), carried=carried),)
        return (replace(stmt, header=self.block(stmt.header), body=self.block(stmt.body), carried=carried),)


def _plain(start: ir.Expr) -> ir.Expr:
    """What a loop starts from, without its conversion to the loop's type."""
    return start.operand if isinstance(start, ir.Cast) else start


def _without_result(stmt: ir.Atomic) -> ir.Stmt:
    """An atomic operation whose result is unused."""
    if stmt.op not in ("add", "sub"):
        return replace(stmt, var=None)
    added = stmt.operands[0] if stmt.op == "add" else folding.unary("-", stmt.operands[0])
    return ir.Accumulate(stmt.buffer, stmt.index, added, ir.How.ATOMIC, span=stmt.span, note=stmt.note)


def _has_effect(block: ir.Block) -> bool:
    return any(not isinstance(stmt, (ir.Let, ir.Load, ir.If, ir.For, ir.While)) for stmt in walk_stmts(block))


def _live(stmts: list[ir.Stmt]) -> set[ir.Expr | None]:
    """The Vars on which effects depend."""
    needs: dict[ir.Var, list[ir.Expr]] = {}
    pending: list[ir.Expr] = []
    for stmt in stmts:
        pending.extend(_roots(stmt, needs))
    live: set[ir.Expr | None] = set()
    while pending:
        for var in ir.variables(pending.pop()):
            if var not in live:
                live.add(var)
                pending.extend(needs.get(var, ()))
    return live


def _roots(stmt: ir.Stmt, needs: dict[ir.Var, list[ir.Expr]]) -> Iterable[ir.Expr]:
    """What a statement needs for its effects; what its Vars need goes to `needs`."""
    match stmt:
        case ir.Let(var=var) | ir.Load(var=var):
            needs.setdefault(var, []).extend(expressions(stmt))
            return ()
        case ir.If(condition=condition, merges=merges):
            for m in merges:
                needs.setdefault(m.var, []).extend((m.then, m.otherwise))
            return (condition,)
        case ir.For() | ir.While():
            for c in stmt.carried:
                needs.setdefault(c.var, []).extend((c.init, c.next))
                needs.setdefault(c.result, []).extend((c.init, c.next))
            return (stmt.start, stmt.stop, stmt.step) if isinstance(stmt, ir.For) else (stmt.condition,)
    return expressions(stmt)


def without_output(kernel: Kernel) -> Kernel:
    """The kernel without printf and assertions, and without what only they needed."""
    if not any(isinstance(s, Tell) for s in walk_stmts(kernel.body)):
        return kernel
    return replace(kernel, body=eliminate_dead(edit(kernel.body, lambda s: () if isinstance(s, Tell) else None)))

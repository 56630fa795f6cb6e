"""Removes what nobody needs from a lowered kernel: unused Lets and Loads, merges and carried values, arrays nobody reads, empty control
flow.

A mark-and-sweep: Vars are live if an effect (a store, a condition, a bound) depends on them. Conditions of empty Ifs and bounds of empty
loops die with them, so the sweep is repeated until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir.nodes import Accumulate, Alloc, Atomic, Block, Buffer, Expr, For, If, Let, Load, Stmt, Store, Take, Var, While, variables
from ..ir.rewrite import expressions, walk_stmts
from ..ir.types import Space
from .lowering import make_if


def tidy(body: Block) -> Block:
    """The block without dead statements; its effects on memory other than thread-local arrays are the same."""
    while True:
        swept = _Sweep(body).block(body)
        if swept == body:
            return swept
        body = swept


class _Sweep:
    """One mark-and-sweep over a block."""

    def __init__(self, body: Block) -> None:
        stmts = list(walk_stmts(body))
        self.live = _live(stmts)
        self.read = {s.buffer for s in stmts if isinstance(s, (Load, Take, Atomic))}
        self.used = self.read | {s.buffer for s in stmts if isinstance(s, (Store, Accumulate))}

    def block(self, block: Block) -> Block:
        return tuple(new for stmt in block for new in self.stmt(stmt))

    def stmt(self, stmt: Stmt) -> Iterable[Stmt]:
        match stmt:
            case Let(var=var) | Load(var=var):
                return (stmt,) if var in self.live else ()
            case Store(buffer=buffer) | Accumulate(buffer=buffer):
                return () if self.is_write_only(buffer) else (stmt,)
            case Alloc(buffer=buffer):
                return (stmt,) if buffer in self.used else ()
            case If(condition=c, then=then, otherwise=otherwise, merges=merges):
                kept = tuple(m for m in merges if m.var in self.live)
                return make_if(c, self.block(then), self.block(otherwise), kept, stmt.span)
            case For() | While():
                return self.loop(stmt)
        return (stmt,)

    def is_write_only(self, buffer: Buffer) -> bool:
        return buffer.space is Space.LOCAL and buffer not in self.read

    def loop(self, stmt: For | While) -> Iterable[Stmt]:
        carried = tuple(c for c in stmt.carried if c.var in self.live or c.result in self.live)
        count = stmt.count if isinstance(stmt, While) else None
        wanted = any(c.result in self.live for c in carried) or count in self.live
        if not wanted and not _has_effect(stmt.body):
            return ()
        if isinstance(stmt, For):
            return (replace(stmt, body=self.block(stmt.body), carried=carried),)
        return (replace(stmt, header=self.block(stmt.header), body=self.block(stmt.body), carried=carried),)


def _has_effect(block: Block) -> bool:
    return any(not isinstance(stmt, (Let, Load, If, For, While)) for stmt in walk_stmts(block))


def _live(stmts: list[Stmt]) -> set[Expr | None]:
    """The Vars on which effects depend."""
    needs: dict[Var, list[Expr]] = {}
    pending: list[Expr] = []
    for stmt in stmts:
        pending.extend(_roots(stmt, needs))
    live: set[Expr | None] = set()
    while pending:
        for var in variables(pending.pop()):
            if var not in live:
                live.add(var)
                pending.extend(needs.get(var, ()))
    return live


def _roots(stmt: Stmt, needs: dict[Var, list[Expr]]) -> Iterable[Expr]:
    """What a statement needs for its effects; what its Vars need goes to `needs`."""
    match stmt:
        case Let(var=var) | Load(var=var):
            needs.setdefault(var, []).extend(expressions(stmt))
            return ()
        case If(condition=condition, merges=merges):
            for m in merges:
                needs.setdefault(m.var, []).extend((m.then, m.otherwise))
            return (condition,)
        case For() | While():
            for c in stmt.carried:
                needs.setdefault(c.var, []).extend((c.init, c.next))
                needs.setdefault(c.result, []).extend((c.init, c.next))
            return (stmt.start, stmt.stop, stmt.step) if isinstance(stmt, For) else (stmt.condition,)
    return expressions(stmt)

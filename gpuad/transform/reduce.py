"""Adds in a register first what a thread adds to one element again and again, and over a block what all of its threads add to one element.

Of the atomic additions of an adjoint two kinds need not go to memory one by one. Where the index is made of parameters alone, all threads
of the launch meet in one element: each sums what it has for it, and the block's sum is added once at the kernel's end. Where a loop leaves
the index as it is, its sum is added once after it; if there is none, the element may be no element at all, and is left alone.

Assumes an adjoint with every accumulation decided; guarantees valid IR.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ..ir import build as b
from ..ir.nodes import Accumulate, Assign, Block, Buffer, Expr, For, How, If, LaunchIndex, Let, Stmt, Var, While, variables, walk
from ..ir.rewrite import blocks, defined, is_short, map_blocks, substitute, walk_stmts
from ..ir.types import F32, F64
from .names import Names


def reduced(body: Block, names: Names) -> Block:
    """The body with sums in registers, and over blocks."""
    sums = _Sums(names, _only_added_to(body))
    inside = sums.uniform(body, _lets(body), _varying(body))
    starts = tuple(Let(v, b.zero(v.type)) for v in sums.totals.values())
    ends = tuple(replace(sums.first[key], index=key[1], value=v, how=How.REDUCED) for key, v in sums.totals.items())
    return (*starts, *sums.lifted(inside), *ends)


def _only_added_to(body: Block) -> frozenset[Buffer]:
    """Arrays of floats of which nothing is read."""
    added = {s.buffer for s in walk_stmts(body) if isinstance(s, Accumulate) and s.buffer.length is None}
    others = {getattr(s, "buffer", None) for s in walk_stmts(body) if not isinstance(s, Accumulate)}
    return frozenset(buffer for buffer in added - others if buffer.element in (F32, F64))


def _lets(body: Block) -> dict[Var, Expr]:
    return {s.var: s.value for s in walk_stmts(body) if isinstance(s, Let) and s.var.type.is_integer}


def _varying(body: Block) -> frozenset[Var]:
    """The variables that the body defines, other than by a Let of integers."""
    found: set[Var] = {s.var for s in walk_stmts(body) if isinstance(s, Assign)}
    for stmt in walk_stmts(body):
        if not (isinstance(stmt, Let) and stmt.var.type.is_integer):
            found.update(defined(stmt))
        found |= _heads(stmt)
    return frozenset(found)


def _heads(stmt: Stmt) -> set[Var]:
    """The variables that a loop defines in its own body."""
    match stmt:
        case For(var=var, carried=carried):
            return {var, *(c.var for c in carried)}
        case While(counter=counter, carried=carried):
            return {c.var for c in carried} | ({counter} if counter is not None else set())
    return set()


@dataclass
class _Sums:
    names: Names
    shadows: Collection[Buffer]
    totals: dict[tuple[Buffer, Expr], Var] = field(default_factory=dict)
    first: dict[tuple[Buffer, Expr], Accumulate] = field(default_factory=dict)

    def is_atomic(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Accumulate) and stmt.how is How.ATOMIC and stmt.buffer in self.shadows

    # --- one element for all threads ---------------------------------------------------------------------------------------------

    def uniform(self, block: Block, lets: Mapping[Var, Expr], varying: Collection[Var]) -> Block:
        """The block with additions to elements that are the same for all threads going to `totals`."""
        out: list[Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, lambda inner: self.uniform(inner, lets, varying))
            index = _of_parameters(stmt.index, lets, varying) if isinstance(stmt, Accumulate) and self.is_atomic(stmt) else None
            if isinstance(stmt, Accumulate) and index is not None:
                key = stmt.buffer, index
                self.first.setdefault(key, stmt)
                total = self.totals.setdefault(key, self.names.var(stmt.buffer.name, stmt.value.type))
                stmt = Assign(total, b.add(total, stmt.value), span=stmt.span)
            out.append(stmt)
        return tuple(out)

    # --- one element for all iterations ------------------------------------------------------------------------------------------

    def lifted(self, block: Block) -> Block:
        """The block with additions that a loop makes to one element made after it."""
        out: list[Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, self.lifted)
            out += self.after(stmt) if isinstance(stmt, For | While) else [stmt]
        return tuple(out)

    def after(self, loop: For | While) -> list[Stmt]:
        inner = [s for block in blocks(loop) for s in walk_stmts(block)]
        own = {v for s in (loop, *inner) for v in (*defined(s), *_heads(s))} | {s.var for s in inner if isinstance(s, Assign)}
        totals: dict[tuple[Buffer, Expr], Var] = {}
        ends: list[Stmt] = []
        for stmt in inner:
            if isinstance(stmt, Accumulate) and self.is_atomic(stmt) and not own & set(variables(stmt.index)):
                key = stmt.buffer, stmt.index
                if key not in totals:
                    totals[key] = self.names.var(stmt.buffer.name, stmt.value.type)
                    ends.append(If(b.compare("!=", totals[key], b.zero(stmt.value.type)), (replace(stmt, value=totals[key]),)))
        if not totals:
            return [loop]
        return [*(Let(v, b.zero(v.type)) for v in totals.values()), map_blocks(loop, lambda block: _summed(block, totals)), *ends]


def _of_parameters(index: Expr, lets: Mapping[Var, Expr], varying: Collection[Var]) -> Expr | None:
    """The index in terms of parameters alone, if it can be had so."""
    full = index
    while any(v in lets for v in variables(full)):
        full = substitute(full, {v: lets[v] for v in variables(full) if v in lets})
        if not is_short(full):
            return None
    if any(v in varying for v in variables(full)) or any(isinstance(e, LaunchIndex) for e in walk(full)):
        return None
    return full


def _summed(block: Block, totals: Mapping[tuple[Buffer, Expr], Var]) -> Block:
    out: list[Stmt] = []
    for stmt in block:
        total = totals.get((stmt.buffer, stmt.index)) if isinstance(stmt, Accumulate) and stmt.how is How.ATOMIC else None
        if isinstance(stmt, Accumulate) and total is not None:
            out.append(Assign(total, b.add(total, stmt.value), span=stmt.span))
        else:
            out.append(map_blocks(stmt, lambda inner: _summed(inner, totals)))
    return tuple(out)

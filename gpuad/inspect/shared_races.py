"""Shared-race inspector: what a block of a kernel surely does to arrays in shared memory, as a kernel of its own.

Two threads of a block may come to one element of shared memory if a barrier lies between, of the block or of their warp; else nothing says
who is first. Which thread comes to which element between which barriers hangs, as a rule, on the launch's geometry and whole numbers
alone: then the first block can be asked, once for these numbers. What is left of the kernel is what computes indices, trip counts and
guards, the barriers, and the accesses; the reference executor finds the races in it.

What is found happens for certain. What data decide is left out: the accesses in such a branch or loop, and at such an index; barriers in
there stand as one, which is passed in any case. Two threads that store to one element have a race unless both make the value in one way of
the same elements (rule 10 of the contract), or it came from an exchange among threads, which may have given all the same. Reads beside
atomic operations count in arrays of floats.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from ..ad.stack_layout import thread_in_block
from ..analysis.uniformity import is_thread
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import defined, heads, map_blocks, map_expr, map_exprs, named, used_vars, walk_stmts
from ..ir.types import I64, U32, Space, value_type
from .barrier_phase import Slice
from .store_conflicts import hash_of


@dataclass(frozen=True)
class SharedRaceInspector:
    """The kernel, for one block, which computes nothing: whole numbers of the launch, then the extents of the grid (uint32)."""

    kernel: ir.Kernel
    scalars: tuple[ir.Var, ...]


def shared_race_inspector(kernel: ir.Kernel) -> SharedRaceInspector | None:
    """The kernel that does to shared memory what `kernel` surely does; None where that is nothing in which threads could meet."""
    shared = {s.buffer for s in walk_stmts(kernel.body) if isinstance(s, ir.Alloc) and s.buffer.space is Space.SHARED}
    if not shared:
        return None
    task = _Certain(kernel, tuple(sorted(shared, key=lambda x: x.uid)))
    body = _pruned(task.block(task.body, True))
    if not any(isinstance(s, ir.Store | ir.Atomic) for s in walk_stmts(body)):
        return None
    used = set(used_vars(body))
    scalars = tuple(v for v in kernel.scalars if v in used)
    return SharedRaceInspector(ir.Kernel(f"{kernel.name}_shared_races", (*scalars, *task.grid), body, kernel.span), scalars)


class _Certain(Slice):
    """Makes what is left. In the place of values arrays hold zeros; beside each whose length is known there is one for its stores alone, of
    numbers that tell values apart."""

    def __init__(self, kernel: ir.Kernel, shared: tuple[ir.Buffer, ...]) -> None:
        super().__init__(kernel, shared, frozenset())
        self.grid = tuple(self.names.var(f"grid_{axis}", U32) for axis in "xyz")
        extents = {ir.LaunchIndex("gridDim", axis): var for axis, var in zip("xyz", self.grid, strict=True)}
        self.body = map_exprs(kernel.body, partial(map_expr, f=lambda e: extents.get(e, e) if isinstance(e, ir.LaunchIndex) else e))
        self.known.update(self.grid)
        self.lets = {s.var: s.value for s in walk_stmts(self.body) if isinstance(s, ir.Let)}
        self.loads = {s.var: s for s in walk_stmts(self.body) if isinstance(s, ir.Load)}
        self.written = {s.buffer for s in walk_stmts(self.body) if isinstance(s, ir.Store | ir.Accumulate | ir.Atomic)}
        self.sources = _sources(self.body)
        self.counters = {v for s in walk_stmts(self.body) if isinstance(s, ir.For | ir.While) for v in heads(s)} - self.sources.keys()
        self.thread = thread_in_block()
        self.values = {x: self.names.buffer(x.name, I64, Space.SHARED, x.length) for x in shared if x.length is not None}

    # --- what is kept --------------------------------------------------------------------------------------------------------------

    def stmt(self, stmt: ir.Stmt, counted: bool) -> ir.Block:
        match stmt:
            case ir.Alloc(buffer=buffer) if buffer in self.shadows:
                values = (ir.Alloc(self.values[buffer], span=stmt.span),) if buffer in self.values else ()
                return (replace(stmt, zero=False), *values)
            case ir.Barrier(mask=mask):
                return (stmt if mask is None or self.is_known(mask) else replace(stmt, mask=None),)
        return super().stmt(stmt, counted)

    def is_known(self, expr: ir.Expr) -> bool:
        return all(not e.type.is_float and (not isinstance(e, ir.Var) or e in self.known) for e in ir.walk(expr))

    def access(self, stmt: ir.Load | ir.Store | ir.Take | ir.Accumulate | ir.Atomic, counted: bool) -> ir.Block:
        if not self.is_known(stmt.index):
            return ()
        buffer, kind = stmt.buffer, value_type(stmt.buffer.element)
        nothing, var = b.zero(kind), self.names.var("read", kind)
        match stmt:
            case ir.Load():
                return (replace(stmt, var=var),)
            case ir.Store():
                number = self.number_for(stmt.value) if buffer in self.values else None
                told = () if number is None else (replace(stmt, buffer=self.values[buffer], value=number),)
                return (replace(stmt, value=nothing), *told)
            case ir.Accumulate(how=ir.How.PLAIN):
                return ir.Load(var, buffer, stmt.index, span=stmt.span), ir.Store(buffer, stmt.index, nothing, span=stmt.span)
        if not buffer.element.is_float:
            return ()
        return (ir.Atomic("exch", None, buffer, stmt.index, (nothing,), span=stmt.span),)

    # --- what is stored ------------------------------------------------------------------------------------------------------------

    def number_for(self, value: ir.Expr) -> ir.Expr | None:
        """The number that stands for a value, the same for two threads if both make it in one way of the same elements; None where that is
        not known."""
        plain = value
        while isinstance(plain, ir.Var) and plain in self.lets:
            plain = self.lets[plain]
        load = self.loads.get(plain) if isinstance(plain, ir.Var) else None
        if load is not None and load.buffer not in self.written:
            return self.place(load)
        leaves = self.leaves(plain)
        if leaves is None:
            return None
        result: ir.Expr = b.const(hash_of(plain), I64)
        for leaf in leaves:
            result = _mixed(result, leaf)
        return result

    def place(self, load: ir.Load) -> ir.Expr | None:
        """A number for the element that is read."""
        return _mixed(b.const(load.buffer.uid, I64), load.index) if self.is_known(load.index) else None

    def leaves(self, value: ir.Expr) -> list[ir.Expr] | None:
        """The whole numbers that tell one thread's value from another's; None where nothing is known of what it is made of."""
        found: dict[ir.Expr, None] = {}
        seen: set[ir.Var] = set()
        waiting = [value]
        while waiting:
            e = waiting.pop()
            if self.is_known(e):
                found[e] = None
            elif not isinstance(e, ir.Var):
                waiting.extend(ir.children(e))
            elif e not in seen:
                seen.add(e)
                own = self.made_of(e)
                if own is None:
                    return None
                waiting.extend(own)
        return list(found)

    def made_of(self, var: ir.Var) -> list[ir.Expr] | None:
        """What a variable that is not known is made of. What branches and loops give is each thread's own if one of its sources is."""
        if var in self.lets:
            return [self.lets[var]]
        if var in self.loads:
            place = self.place(self.loads[var])
            return None if place is None else [place]
        if var in self.reverse.scalars:
            return []
        own = self.is_own(var)
        return None if own is None else [self.thread] if own else []

    def is_own(self, var: ir.Var) -> bool | None:
        """Whether the number of the thread takes part in a variable; None where an exchange among threads, or memory that is not known,
        does."""
        seen, waiting, own = {var}, [var], False
        while waiting:
            at = waiting.pop()
            if at not in self.sources:
                if at not in self.counters and at not in self.reverse.scalars:
                    return None
                continue
            for e in (part for source in self.sources[at] for part in ir.walk(source)):
                own = own or is_thread(e)
                if isinstance(e, ir.Var) and e not in seen:
                    seen.add(e)
                    waiting.append(e)
        return own

    # --- control -------------------------------------------------------------------------------------------------------------------

    def in_doubt(self, stmt: ir.Stmt, parts: tuple[ir.Block, ...]) -> ir.Block:
        """One barrier for those of a statement of which data decide whether they are passed."""
        found = [s for s in walk_stmts((stmt,)) if isinstance(s, ir.Barrier)]
        scope = "block" if any(s.scope == "block" for s in found) else "warp"
        return (ir.Barrier(scope, span=stmt.span),) if found else ()


def _mixed(number: ir.Expr, leaf: ir.Expr) -> ir.Expr:
    return ir.Binary("+", ir.Binary("*", number, b.const(_MIX, I64), I64), b.cast(leaf, I64), I64)


_MIX = 0x1E3779B97F4A7C15  # any large odd number


def _sources(block: ir.Block) -> dict[ir.Var, tuple[ir.Expr, ...]]:
    """What each variable is made of, and what decides that: of an element of global memory, and of one of shared memory, its index."""
    found: dict[ir.Var, tuple[ir.Expr, ...]] = {}
    for stmt in walk_stmts(block):
        match stmt:
            case ir.Let(var=var, value=value):
                found[var] = (value,)
            case ir.Load(var=var, index=index, buffer=buffer) if buffer.space is not Space.LOCAL:
                found[var] = (index,)
            case ir.If(condition=condition, merges=merges):
                found.update({m.var: (condition, m.then, m.otherwise) for m in merges})
            case ir.For(carried=carried, start=start, stop=stop, step=step):
                found.update({v: (c.init, c.next, start, stop, step) for c in carried for v in (c.var, c.result)})
            case ir.While(carried=carried, condition=condition):
                found.update({v: (c.init, c.next, condition) for c in carried for v in (c.var, c.result)})
    return found


def _pruned(block: ir.Block) -> ir.Block:
    """The block without what neither accesses memory nor waits, nor is used."""
    while True:
        used = {v for s in walk_stmts(block) for v in named(s)}
        smaller = _without_idle(block, used)
        if smaller == block:
            return block
        block = smaller


def _without_idle(block: ir.Block, used: Collection[ir.Var]) -> ir.Block:
    kept = []
    for stmt in block:
        works = any(isinstance(s, ir.Load | ir.Store | ir.Atomic | ir.Barrier | ir.Alloc | ir.Assign) for s in walk_stmts((stmt,)))
        if works or any(v in used for v in defined(stmt)):
            kept.append(map_blocks(stmt, lambda inner: _without_idle(inner, used)))
    return tuple(kept)


__all__ = ["SharedRaceInspector", "shared_race_inspector"]

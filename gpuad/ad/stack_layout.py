"""Lowers stacks to arrays: pushes and pops become stores and loads with a counter.

A stack whose depth is a number in the program text and small lies in a local array of each thread. Any other lies in scratch memory that
the caller allocates: threads are taken in groups of 32, a group's part is as deep as its deepest thread needs (rule 13 of the contract:
common depth for all would be quadratic on skewed work), and neighbours lie side by side: entry `top` of a thread is at `base[group] + 32 *
top + lane`. The depths come from a counting kernel: the primal without what only serves its results. Counting and pushing make the same
decisions because both are compiled without contraction of multiply-add (rule 12 of the contract), and a push beyond the counted depth is
not made but sets `gpuad_overflow`.

An executor that runs the threads of a launch one after the other, as on the CPU, needs no room for all of them: it has a row for each
field, in which an entry follows the one before it, which the next thread finds in the cache, and which grows, so that nothing is counted.
That is another text with the same parameters (`Layout.in_rows`).

Assumes: a pruned adjoint body. Guarantees: no Push or Pop is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..analysis.trip_counts import constant_trips
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, blocks, edit, walk_stmts
from ..ir.types import I32, I64, Space
from ..optimize.dead_code import eliminate_dead_code
from .forward_sweep import Owned, ScopeKey

Logs: TypeAlias = "Mapping[int, tuple[ir.Buffer, ir.Expr]]"

LOCAL_BYTES = 512  # a thread's local arrays for stacks may take this much

GROUP = 32


@dataclass(frozen=True)
class Scratch:
    """A stack in memory of the caller: parameters of the reverse kernel. `base`: int64[groups + 1], the first entry of each group's part,
    in entries; `fields`: arrays of `base[groups]` entries; `depths`: parameter of the counting kernel, int32[32 * groups], that receives
    each thread's depth."""

    base: ir.Buffer
    fields: tuple[ir.Buffer, ...]
    depths: ir.Buffer
    stack: int  # uid of the stack


@dataclass(frozen=True)
class Layout:
    """The body without stacks, what the caller must provide for it, and the counting kernel's body (empty without scratch)."""

    body: ir.Block
    scratch: tuple[Scratch, ...]
    overflow: ir.Buffer | None
    counting: ir.Block
    plan: _Plan = field(repr=False, compare=False)

    def in_rows(self, together: bool) -> ir.Block:
        """The body for an executor on which each field is as long as it has to be and belongs to one thread after the other, or, where the
        threads of a block run `together`, to one block after the other. It uses neither `base` nor `overflow`."""
        return _Lowering(self.plan, "block" if together else "thread").kernel()


def stack_layout(
    body: ir.Block, primal: ir.Kernel, saved: dict[ir.Buffer, ir.Buffer], stacks: dict[ScopeKey, Owned], logs: Logs, names: Names
) -> Layout:
    """Lays out all stacks of an adjoint body. `saved` maps primal buffers to their copies (the counting kernel may overwrite those),
    `logs` say what the primal has written down."""
    depths = _static_depths(body)
    used = {s.stack.uid: s.stack for s in walk_stmts(body) if isinstance(s, ir.Push)}
    plan = _Plan(names, body)
    for uid, stack in used.items():
        depth = depths.get(uid)
        if depth is not None and depth * sum(t.size for _, t in stack.fields) <= LOCAL_BYTES:
            plan.local(stack, depth)
        else:
            plan.scratch(stack)
    lowered = _Lowering(plan).kernel()
    if plan.scratches:
        plan.count(primal, saved, stacks, logs)
    return Layout(lowered, tuple(plan.scratches.values()), plan.overflow, plan.counted() if plan.scratches else (), plan)


def _static_depths(body: ir.Block) -> dict[int, int]:
    """Depths of the stacks whose loops all have constant trip counts, by uid."""
    pushes: dict[int, list[tuple[ir.Stmt, ...]]] = {}
    pops: dict[int, list[tuple[ir.Stmt, ...]]] = {}

    def visit(block: ir.Block, path: tuple[ir.Stmt, ...]) -> None:
        for stmt in block:
            if isinstance(stmt, ir.Push | ir.Pop):
                (pushes if isinstance(stmt, ir.Push) else pops).setdefault(stmt.stack.uid, []).append(path)
            for inner in blocks(stmt):
                visit(inner, (*path, stmt))

    visit(body, ())
    found: dict[int, int] = {}
    for uid, paths in pushes.items():
        depth: int | None = 0
        for path in paths:
            inside = [s for i, s in enumerate(path) if not all(i < len(q) and q[i] is s for q in pops.get(uid, []))]
            trips = [constant_trips(s) for s in inside if isinstance(s, ir.For | ir.While)]
            depth = None if depth is None or any(t is None for t in trips) else depth + _product([t or 0 for t in trips])
        if depth is not None:
            found[uid] = depth
    return found


def _product(numbers: list[int]) -> int:
    result = 1
    for n in numbers:
        result *= n
    return result


class _Plan:
    """Where each stack lies, and what counts it."""

    def __init__(self, names: Names, body: ir.Block) -> None:
        self.names = names
        self.body = body
        self.top: dict[int, ir.Var] = {}
        self.arrays: dict[int, tuple[ir.Buffer, ...]] = {}
        self.scratches: dict[int, Scratch] = {}
        self.overflow: ir.Buffer | None = None
        self.allocs: list[ir.Stmt] = []
        self.counts: ir.Block = ()
        self.deepest: dict[int, ir.Var] = {}
        self.copies: tuple[ir.Buffer, ...] = ()

    def local(self, stack: ir.Stack, depth: int) -> None:
        self.arrays[stack.uid] = tuple(self.names.buffer(f"{n}_saved", t, Space.LOCAL, max(depth, 1)) for n, t in stack.fields)
        self.allocs.extend(ir.Alloc(a) for a in self.arrays[stack.uid])
        self._counter(stack)

    def scratch(self, stack: ir.Stack) -> None:
        name = f"{stack.fields[0][0]}_saved"
        fields = tuple(self.names.buffer(f"{n}_saved", t) for n, t in stack.fields)
        self.scratches[stack.uid] = Scratch(
            self.names.buffer(f"{name}_base", I64), fields, self.names.buffer(f"{name}_depth", I32), stack.uid
        )
        self.arrays[stack.uid] = fields
        self.overflow = self.overflow or self.names.buffer("gpuad_overflow", I32)
        self._counter(stack)

    def _counter(self, stack: ir.Stack) -> None:
        self.top[stack.uid] = self.names.var(f"{stack.fields[0][0]}_top", I32)

    # --- counting ------------------------------------------------------------------------------------------------------------------

    def count(self, primal: ir.Kernel, saved: dict[ir.Buffer, ir.Buffer], stacks: dict[ScopeKey, Owned], logs: Logs) -> None:
        """Notes the primal's control flow with a counter for each scratch stack."""
        wanted = {key: owned for key, owned in stacks.items() if owned.stack.uid in self.scratches}
        counters = {o.stack.uid: self.names.var("depth", I32) for o in wanted.values()}
        self.deepest = {o.stack.uid: self.names.var("deepest", I32) for o in wanted.values()}
        body = _Count(saved, wanted, counters, self.deepest, logs).block(primal.body)
        starts = [ir.Let(v, b.const(0, I32)) for v in (*counters.values(), *self.deepest.values())]
        self.counts, self.copies = (*starts, *body), tuple(saved.values())

    def counted(self) -> ir.Block:
        """The counting kernel's body: depths are stored at the end."""
        thread = self.names.var("thread", I64)
        number = thread_lets(thread, self.names)
        ends = [ir.Store(self.scratches[uid].depths, thread, v) for uid, v in self.deepest.items()]
        return eliminate_dead_code((*self.counts, *number, *ends), private=self.copies)


class _Lowering:
    """Pushes and pops as stores and loads. `row`: of whom a field is a row, 'thread' or 'block'; None where it is the launch's."""

    def __init__(self, plan: _Plan, row: str | None = None) -> None:
        self.plan = plan
        self.names = plan.names
        self.row = row
        self.first: dict[int, ir.Var] = {}
        self.limit: dict[int, ir.Var] = {}

    def kernel(self) -> ir.Block:
        return (*self.prologue(), *self.block(self.plan.body))

    def prologue(self) -> ir.Block:
        out: list[ir.Stmt] = [*self.plan.allocs, *(ir.Let(top, b.const(0, I32)) for top in self.plan.top.values())]
        if not self.plan.scratches or self.row is not None:
            return tuple(out)
        thread = self.names.var("thread", I64)
        out.extend(thread_lets(thread, self.names))
        group, lane = ir.Binary("/", thread, b.const(GROUP, I64), I64), ir.Binary("%", thread, b.const(GROUP, I64), I64)
        for uid, scratch in self.plan.scratches.items():
            start, end = (self.names.var(f"{scratch.base.name}_{w}", I64) for w in ("start", "end"))
            out.append(ir.Load(start, scratch.base, group))
            out.append(ir.Load(end, scratch.base, ir.Binary("+", group, b.const(1, I64), I64)))
            self.first[uid] = self.names.var(f"{scratch.base.name}_lane", I64)
            out.append(ir.Let(self.first[uid], ir.Binary("+", start, lane, I64)))
            self.limit[uid] = end
        return tuple(out)

    def block(self, block: ir.Block) -> ir.Block:
        return edit(block, lambda s: self._push(s) if isinstance(s, ir.Push) else self._pop(s) if isinstance(s, ir.Pop) else None)

    def _index(self, stack: ir.Stack) -> ir.Expr:
        top = self.plan.top[stack.uid]
        if stack.uid not in self.plan.scratches:
            return top
        if self.row == "block":
            return ir.Binary("+", ir.Binary("*", b.cast(top, I64), threads_in_block(), I64), thread_in_block(), I64)
        if self.row is not None:
            return top
        return ir.Binary("+", self.first[stack.uid], ir.Binary("*", b.cast(top, I64), b.const(GROUP, I64), I64), I64)

    def _push(self, stmt: ir.Push) -> ir.Block:
        top, overflow = self.plan.top[stmt.stack.uid], self.plan.overflow
        stores: list[ir.Stmt] = []
        index = self._index(stmt.stack)
        arrays = self.plan.arrays[stmt.stack.uid]
        count = ir.Assign(top, ir.Binary("+", top, b.const(1, I32), I32), span=stmt.span)
        if stmt.stack.uid not in self.plan.scratches or self.row is not None:
            stores += [ir.Store(a, index, v, span=stmt.span) for a, v in zip(arrays, stmt.values, strict=True)]
            return (*stores, count)
        assert overflow is not None
        at = self.names.var(f"{stmt.stack.fields[0][0]}_at", I64)
        stores += [ir.Store(a, at, v, span=stmt.span) for a, v in zip(arrays, stmt.values, strict=True)]
        full = ir.Store(overflow, b.const(0, I32), b.const(1, I32), span=stmt.span)
        guard = ir.If(b.compare("<", at, self.limit[stmt.stack.uid]), tuple(stores), (full,), span=stmt.span)
        return (ir.Let(at, index, span=stmt.span), guard, count)

    def _pop(self, stmt: ir.Pop) -> ir.Block:
        top = self.plan.top[stmt.stack.uid]
        index = self._index(stmt.stack)
        arrays = self.plan.arrays[stmt.stack.uid]
        loads = tuple(ir.Load(v, a, index, span=stmt.span) for v, a in zip(stmt.vars, arrays, strict=True))
        return (ir.Assign(top, ir.Binary("-", top, b.const(1, I32), I32), span=stmt.span), *loads)


@dataclass(frozen=True)
class _Count:
    saved: dict[ir.Buffer, ir.Buffer]
    wanted: dict[ScopeKey, Owned]
    counters: dict[int, ir.Var]
    deepest: dict[int, ir.Var]
    logs: Logs

    def block(self, block: ir.Block) -> ir.Block:
        return tuple(s for stmt in block for s in self.stmt(stmt))

    def stmt(self, stmt: ir.Stmt) -> ir.Block:
        match stmt:
            case ir.Atomic(var=ir.Var() as var) if id(stmt) in self.logs:
                log, index = self.logs[id(stmt)]
                again = (replace(stmt, var=None),) if stmt.buffer.length is not None else ()
                return (*again, ir.Load(var, log, index, span=stmt.span))
            case ir.Let(var=var) if id(stmt) in self.logs:
                log, index = self.logs[id(stmt)]
                return (ir.Load(var, log, index, span=stmt.span),)
            case (
                ir.Load(buffer=buffer)
                | ir.Store(buffer=buffer)
                | ir.Accumulate(buffer=buffer)
                | ir.Take(buffer=buffer)
                | ir.Atomic(buffer=buffer)
            ):
                if isinstance(stmt, ir.Load) or buffer.length is not None or buffer in self.saved:
                    return (replace(stmt, buffer=self.saved.get(buffer, buffer)),)
                return ()
            case ir.If() | ir.For() | ir.While():
                return self.control(stmt)
        return (stmt,)

    def control(self, stmt: ir.If | ir.For | ir.While) -> ir.Block:
        if isinstance(stmt, ir.If):
            then, otherwise = (self.block(side) + self.count((id(stmt), i)) for i, side in enumerate((stmt.then, stmt.otherwise)))
            return (replace(stmt, then=then, otherwise=otherwise),)
        key = (id(stmt), 0)
        body = self.block(stmt.body) + self.count(key)
        loop = replace(stmt, body=body, header=self.block(stmt.header)) if isinstance(stmt, ir.While) else replace(stmt, body=body)
        if key not in self.wanted or self.wanted[key].lasting:
            return (loop,)
        counter = self.counters[self.wanted[key].stack.uid]
        return (ir.Assign(counter, b.const(0, I32)), loop)

    def count(self, key: ScopeKey) -> ir.Block:
        if key not in self.wanted:
            return ()
        uid = self.wanted[key].stack.uid
        counter, deepest = self.counters[uid], self.deepest[uid]
        more = ir.Assign(counter, ir.Binary("+", counter, b.const(1, I32), I32))
        return (more, ir.Assign(deepest, ir.Call("max", (deepest, counter), I32)))


def thread_lets(thread: ir.Var, names: Names) -> ir.Block:
    """Statements that give a variable the number of this thread."""
    block = names.var("block", I64)
    return ir.Let(block, block_number()), ir.Let(thread, thread_number(block))


def thread_number(block: ir.Expr | None = None) -> ir.Expr:
    """The number of this thread in the whole launch, int64; `block` is that of its block, if it has been computed."""
    block = block_number() if block is None else block
    return ir.Binary("+", ir.Binary("*", block, threads_in_block(), I64), thread_in_block(), I64)


def thread_place() -> ir.Expr:
    """Another number of this thread in the whole launch, int64: by its global indices, the one along x last. A kernel that uses nothing
    else does not know where its blocks end."""
    result: ir.Expr | None = None
    for axis in "zyx":
        index = ir.Binary("+", ir.Binary("*", _i64("blockIdx", axis), _i64("blockDim", axis), I64), _i64("threadIdx", axis), I64)
        width = ir.Binary("*", _i64("gridDim", axis), _i64("blockDim", axis), I64)
        result = index if result is None else ir.Binary("+", ir.Binary("*", result, width, I64), index, I64)
    assert result is not None
    return result


def block_number() -> ir.Expr:
    """The number of this block in the launch, int64."""
    return _linear("blockIdx", "gridDim")


def thread_in_block() -> ir.Expr:
    """The number of this thread in its block, int64."""
    return _linear("threadIdx", "blockDim")


def threads_in_block() -> ir.Expr:
    """How many threads a block has, int64."""
    size = _i64("blockDim", "x")
    for axis in "yz":
        size = ir.Binary("*", size, _i64("blockDim", axis), I64)
    return size


def _linear(index: str, extent: str) -> ir.Expr:
    result: ir.Expr = _i64(index, "z")
    for axis in "yx":
        result = ir.Binary("+", ir.Binary("*", result, _i64(extent, axis), I64), _i64(index, axis), I64)
    return result


def _i64(name: str, axis: str) -> ir.Expr:
    return b.cast(ir.LaunchIndex(name, axis), I64)

"""Injectivity inspector: a kernel that notes which threads of a launch touch which elements of a shadow.

Where an index is not affine in the thread, no proof tells whether two threads meet: a neighbour beyond a periodic edge, a transposed tile
that is swizzled, an order of bits reversed. But where such indices, and the guards around them, depend on the launch's whole numbers alone,
the launch itself can be asked, before it runs and once for these numbers. What is left of the reverse kernel then is what computes the
indices; each access to the shadow notes its thread's number. An access outside of the allocation, which a launch may not make but which
someone may ask about, notes nothing: the kernel that asks never writes outside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ..ad.stack_layout import thread_number
from ..analysis.trip_counts import constant_trips
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, assigned_vars, blocks, bound, edit, expressions, map_blocks, used_vars, walk_stmts, written_in
from ..ir.types import BOOL, I32, I64, Space
from ..optimize.dead_code import eliminate_dead_code

MOST = (1 << 31) - 2  # threads of a launch


@dataclass(frozen=True)
class InjectivityInspector:
    """The kernel: whole numbers of the launch that it uses, the first element of the shadow's allocation and that after its last (int64,
    counted from where the pointer points), then three int32 arrays, all 0, with an element for each of the shadow: the greatest of the
    numbers (from 1) of the threads that touch it, `MOST` less the least of them (from 0), how often it is touched. `touches`: how often a
    thread touches one, at least as far as the text says; `places`: how many it touches, if different indices are different elements.
    `certain`: what it notes is what happens; else it goes through both sides of branches that data decide, and notes what may happen."""

    kernel: ir.Kernel
    scalars: tuple[ir.Var, ...]
    touches: int
    places: int
    certain: bool


def injectivity_inspector(reverse: ir.Kernel, shadow: ir.Buffer) -> InjectivityInspector | None:
    """The kernel that asks; None where the accesses depend on memory or on real numbers, or threads wait for one another."""
    names = Names(reverse)
    begin, end = (names.var(f"{shadow.name}_{part}", I64) for part in ("begin", "end"))
    arrays = tuple(names.buffer(f"{shadow.name}_{part}", I32) for part in ("last", "first", "times"))
    scalars = tuple(v for v in reverse.scalars if v.type.is_integer)
    unknown = _unknown(reverse)
    for certain in (True, False):
        noted = _noting(reverse if certain else _either(reverse, unknown), shadow, (begin, end), arrays, names)
        body = eliminate_dead_code(noted, private=[x for x in reverse.buffers if x != shadow])
        used = set(used_vars(body))
        if _by_numbers(body, (*scalars, begin, end), arrays) and (certain or not used & unknown):
            scalars = tuple(v for v in scalars if v in used)
            kernel = ir.Kernel(f"{reverse.name}_injectivity", (*scalars, begin, end, *arrays), body, reverse.span)
            touches = tuple(_touches(reverse.body, shadow, 1))
            places = sum(dict(sorted(touches, key=lambda t: t[1])).values())
            return InjectivityInspector(kernel, scalars, sum(times for _, times in touches), places, certain)
    return None


def _noting(reverse: ir.Kernel, shadow: ir.Buffer, ends: tuple[ir.Var, ir.Var], arrays: tuple[ir.Buffer, ...], names: Names) -> ir.Block:
    """The reverse kernel with notes in place of what it does to the shadow."""
    thread, number = names.var("thread", I64), names.var("number", I32)
    last, first, times = arrays

    def note(index: ir.Expr) -> ir.Block:
        up, down = ir.Binary("+", number, b.const(1, I32), I32), ir.Binary("-", b.const(MOST, I32), number, I32)
        kept = ((last, "max", up), (first, "max", down), (times, "add", b.const(1, I32)))
        at = names.var("at", I64)
        inside = b.both(b.compare(">=", at, ends[0]), b.compare("<", at, ends[1]))
        assert inside is not None
        return ir.Let(at, b.cast(index, I64)), ir.If(inside, tuple(ir.Atomic(op, None, buffer, at, (value,)) for buffer, op, value in kept))

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if isinstance(stmt, ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic) and stmt.buffer == shadow:
            return note(stmt.index)
        return () if _ends_outside(stmt) else None

    return ir.Let(thread, thread_number()), ir.Let(number, b.cast(thread, I32)), *edit(reverse.body, change)


def _either(reverse: ir.Kernel, unknown: Collection[ir.Var]) -> ir.Kernel:
    """The reverse kernel with both sides of branches that more than whole numbers decide, one after the other. What is merged behind them
    is not defined any more."""

    def block(stmts: ir.Block) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in stmts:
            stmt = map_blocks(stmt, block)
            if isinstance(stmt, ir.If) and any(v in unknown for v in ir.variables(stmt.condition)):
                out += [ir.If(b.const(True, BOOL), side, span=stmt.span) for side in (stmt.then, stmt.otherwise) if side]
            else:
                out.append(stmt)
        return tuple(out)

    return replace(reverse, body=block(reverse.body))


def _unknown(reverse: ir.Kernel) -> set[ir.Var]:
    """The variables that depend on more than the launch's whole numbers: on what was read, or on what that has decided."""
    found: set[ir.Var] = {v for v in reverse.scalars if not v.type.is_integer}
    arrays: set[ir.Buffer] = set(reverse.buffers)  # of which it is not known what is in them
    before = -1
    while len(found) + len(arrays) != before:
        before = len(found) + len(arrays)
        for stmt in walk_stmts(reverse.body):
            memory = getattr(stmt, "buffer", None)
            sure = all(v not in found for e in expressions(stmt) for v in ir.variables(e))
            if isinstance(stmt, ir.Alloc) and memory is not None and memory.space is not Space.LOCAL:
                arrays.add(memory)
            if isinstance(stmt, ir.Take | ir.Atomic | ir.Shuffle | ir.Pop) or (isinstance(stmt, ir.Load) and memory in arrays) or not sure:
                found.update(bound(stmt))
            if not sure and isinstance(stmt, ir.Assign):
                found.add(stmt.var)
            if not sure and memory is not None:
                arrays.add(memory)
            if not sure and isinstance(stmt, ir.If | ir.For | ir.While):  # whether, or how often, is not known
                found |= assigned_vars((stmt,))
                arrays |= written_in((stmt,))
    return found


def _ends_outside(stmt: ir.Stmt) -> bool:
    """True if all that the statement does is an addition to memory of the launch."""
    return isinstance(stmt, ir.Accumulate | ir.Store) and stmt.buffer.length is None


def _by_numbers(body: ir.Block, given: Collection[ir.Var], arrays: Collection[ir.Buffer]) -> bool:
    """True if nothing is used but whole numbers and arrays of the thread's own."""
    stmts = list(walk_stmts(body))
    made = {v for s in stmts for v in bound(s)} | set(given)
    for stmt in stmts:
        memory = getattr(stmt, "buffer", None)
        if isinstance(stmt, ir.Barrier | ir.Shuffle) or (isinstance(stmt, ir.Load) and memory in arrays):
            return False
        if memory is not None and memory not in arrays and (memory.length is None or memory.space is not Space.LOCAL):
            return False
        if any(v not in made for e in expressions(stmt) for v in ir.variables(e)):
            return False
    return True


def _touches(block: ir.Block, shadow: ir.Buffer, times: int) -> Iterator[tuple[ir.Expr, int]]:
    """The indices of the shadow that a thread touches and how often, as far as the text says: a loop of unknown length counts once."""
    for stmt in block:
        if isinstance(stmt, ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic) and stmt.buffer == shadow:
            yield stmt.index, times
        for inner in blocks(stmt):
            trips = constant_trips(stmt) if isinstance(stmt, ir.For) else None
            yield from _touches(inner, shadow, times if trips is None else times * trips)

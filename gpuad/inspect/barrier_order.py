"""Barrier-order inspector: a kernel that finds out whether barriers order all threads that touch one element of global memory.

Threads of a block may write an element one after the other, or read what another one has written, if a barrier of the block lies between:
so an array is factored, sorted or transformed in place. The reverse pass mirrors the barriers and does right by them. Nothing orders two
blocks, and nothing two threads between one barrier and the next: such a launch is refused.

This slice of the primal runs once before the launch, with its barriers, and counts them. Each access to an array in question notes in four
cells of the element who makes it, as the greatest number so far: the interval between barriers, whether it is a write, and the thread, with
the greatest thread first and with the least; and the same of blocks, without intervals. What was there before tells of another thread, or
block, that has come to the element, if one of the two accesses is a write. Whichever of two comes later in a cell finds the other there: a
write hides reads only, which it has itself looked at, and of several threads the greatest and the least are seen. So the order in which
threads come does not matter to what is found.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ad.stack_layout import block_number, thread_in_block
from ..ir import folding as b
from ..ir.nodes import Accumulate, Alloc, Atomic, Barrier, Binary, Block, Buffer, Expr, How, If, Kernel, Let, Load, Stmt, Store, Var, While
from ..ir.rewrite import Names, walk_stmts
from ..ir.types import I32, I64, Space
from ..optimize.dead_code import holds_barrier
from .store_conflicts import Bounds, StoreConflictInspector, copies_of, inspecting

Access: TypeAlias = "Load | Store | Accumulate"

_CELLS = ("last", "first", "last_block", "first_block")
_THREAD_BITS = 11  # of a thread's number in its block, from 1 to 1024
_BLOCK_BITS = 61


@dataclass(frozen=True)
class BarrierOrderInspector(StoreConflictInspector):
    """The checking kernel; of its flag `meeting` tells what it has found. `accesses`: the statements that it watches."""

    accesses: tuple[Access, ...] = ()

    def meeting(self, flag: int) -> tuple[Access, bool]:
        """An access to an element that another thread comes to, and whether that is one of another block. `flag` is not 0."""
        number, across = divmod(flag - 1, 2)
        return self.accesses[number], bool(across)


def hindrance(kernel: Kernel, buffers: Collection[Buffer]) -> Stmt | None:
    """What stands in the way of turns in the buffers: an atomic operation on one of them, or a loop whose condition reads it. None also if
    there is nothing in the way, but no barrier either (see `may_be_ordered`)."""
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, While):
            for load in walk_stmts(stmt.header):
                if isinstance(load, Load) and load.buffer in buffers:
                    return load
        elif isinstance(stmt, Atomic | Accumulate) and stmt.buffer in buffers and _is_atomic(stmt):
            return stmt
    return None


def may_be_ordered(kernel: Kernel) -> bool:
    """True if the kernel has a barrier of a block."""
    return any(holds_barrier(s) for s in kernel.body)


def barrier_order_inspector(kernel: Kernel, buffers: Collection[Buffer]) -> BarrierOrderInspector:
    """The kernel that watches the accesses to `buffers`. Assumes that there is no `hindrance`, and that all threads of a block come to each
    barrier (`lower.barrier_hoisting`)."""
    names = Names(kernel)
    copies = copies_of(kernel, names)
    cells = {x: tuple(names.buffer(f"{x.name}_{cell}", I64) for cell in _CELLS) for x in kernel.buffers if x in buffers}
    watch = _Watch(cells, names.buffer("gpuad_meeting", I32), names, [])

    def watched(stmt: Stmt) -> tuple[Block, Block]:
        if isinstance(stmt, Barrier) and stmt.scope == "block":
            return (), watch.passed()
        return watch.access(stmt) if isinstance(stmt, Load | Store | Accumulate) and stmt.buffer in cells else (), ()

    bounds = Bounds.of(cells, watch.flag, names)
    body, copies = inspecting(kernel, copies, watch.start(), watched, bounds)
    params = (*kernel.params, *copies.values(), *(cell for made in cells.values() for cell in made), *bounds.params, watch.flag)
    return BarrierOrderInspector(
        replace(kernel, name=f"{kernel.name}_barrier_order", params=params, body=body),
        tuple(copies),
        tuple(x for x, made in cells.items() for _ in made),
        runs=1,
        bounded=tuple(cells),
        stores=tuple(bounds.stores),
        accesses=tuple(watch.accesses),
    )


def _is_atomic(stmt: Atomic | Accumulate) -> bool:
    return isinstance(stmt, Atomic) or stmt.how is not How.PLAIN


class _Watch:
    """Makes what stands before an access, and behind a barrier."""

    def __init__(self, cells: dict[Buffer, tuple[Buffer, ...]], flag: Buffer, names: Names, accesses: list[Access]) -> None:
        self.cells = cells
        self.flag = flag
        self.names = names
        self.accesses = accesses
        self.interval = names.buffer("interval", I64, Space.LOCAL, 1)
        self.thread = names.var("thread", I64)
        self.block = names.var("block", I64)

    def start(self) -> Block:
        return Alloc(self.interval, zero=True), Let(self.thread, thread_in_block()), Let(self.block, block_number())

    def passed(self) -> Block:
        """Counts a barrier."""
        number = self.names.var("interval", I64)
        return Load(number, self.interval, b.const(0, I32)), Store(self.interval, b.const(0, I32), _of("+", number, 1))

    def access(self, stmt: Access) -> Block:
        """Notes an access, and raises the flag if it meets another."""
        writes = not isinstance(stmt, Load)
        code = 2 * len(self.accesses) + 1
        self.accesses.append(stmt)
        passed, interval = self.names.var("interval", I64), self.names.var("interval", I64)
        last, first, last_block, first_block = self.cells[stmt.buffer]
        out: list[Stmt] = [Load(passed, self.interval, b.const(0, I32)), Let(interval, _of("+", passed, 1))]
        low = 1 << _THREAD_BITS
        base = _of("+", _of("*", interval, 2 * low), low if writes else 0)
        for cell, number in ((last, _of("+", self.thread, 1)), (first, _of("-", b.const(low - 1, I64), self.thread))):
            old, mine = self.noted(out, stmt, cell, _of("+", base, number))
            here = b.compare("==", _of(">>", old, _THREAD_BITS + 1), interval)
            self.report(out, stmt, code, old, mine, low, writes, here)
        top = 1 << _BLOCK_BITS
        base = b.const(top if writes else 0, I64)
        for cell, number in ((last_block, _of("+", self.block, 1)), (first_block, _of("-", b.const(top - 1, I64), self.block))):
            old, mine = self.noted(out, stmt, cell, _of("+", base, number))
            self.report(out, stmt, code + 1, old, mine, top, writes, b.compare("!=", old, b.const(0, I64)))
        return tuple(out)

    def noted(self, out: list[Stmt], stmt: Access, cell: Buffer, number: Expr) -> tuple[Var, Var]:
        """What was in the cell, and what this access puts there."""
        old, mine = self.names.var("old", I64), self.names.var("mine", I64)
        out += [Let(mine, number, span=stmt.span), Atomic("max", old, cell, stmt.index, (mine,), span=stmt.span)]
        return old, mine

    def report(self, out: list[Stmt], stmt: Access, code: int, old: Var, mine: Var, write: int, writes: bool, here: Expr) -> None:
        """Raises the flag where the number from before is another's, and one of the two accesses is a write. `write`: the bit that says so,
        above those that tell who it is."""
        other = b.compare("!=", _of("&", old, write - 1), _of("&", mine, write - 1))
        wrote = None if writes else b.compare("!=", _of("&", old, write), b.const(0, I64))
        meets = b.both(b.both(here, other), wrote)
        assert meets is not None
        out.append(If(meets, (Atomic("max", None, self.flag, b.const(0, I32), (b.const(code, I32),), span=stmt.span),), span=stmt.span))


def _of(op: str, left: Expr, right: Expr | int) -> Expr:
    return Binary(op, left, b.const(right, I64) if isinstance(right, int) else right, I64)


__all__ = ["Access", "BarrierOrderInspector", "barrier_order_inspector", "hindrance", "may_be_ordered"]

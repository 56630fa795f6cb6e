"""Spills shared arrays to global memory, a row for each block, for devices whose shared memory does not hold them all.

Barriers of a block order its accesses to global memory as they order those to shared memory, and no other block touches a block's row.

Assumes final IR. Guarantees valid IR, with a pointer after the parameters for each array that was moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ad.stack_layout import block_number, thread_in_block, threads_in_block
from ..ir import folding as b
from ..ir.nodes import Alloc, Barrier, Binary, Block, Buffer, For, Kernel, Let, Stmt, Store, Var
from ..ir.rewrite import Names, map_blocks
from ..ir.shared import shared_arrays, size
from ..ir.types import I64


@dataclass(frozen=True, eq=False)
class Spilled:
    """A kernel and the arrays whose rows it takes as its last parameters: each needs `length` elements a block."""

    kernel: Kernel
    moved: tuple[Buffer, ...]


def spilled(kernel: Kernel, limit: int) -> Spilled:
    """The kernel with so many of its shared arrays moved to global memory, the largest first, that the others take at most `limit` bytes;
    the same kernel where they all do."""
    moved: list[Buffer] = []
    staying = sum(size(array) for array in shared_arrays(kernel))
    for array in sorted(shared_arrays(kernel), key=size, reverse=True):
        if staying > limit:
            moved.append(array)
            staying -= size(array)
    return Spilled(_Spill(kernel, moved).kernel() if moved else kernel, tuple(moved))


class _Spill:
    def __init__(self, kernel: Kernel, moved: Sequence[Buffer]) -> None:
        self.old = kernel
        self.names = Names(kernel)
        self.rows = {array: self.names.buffer(f"{array.name}_rows", array.element) for array in moved}
        self.firsts: dict[Buffer, Var] = {array: self.names.var(f"{array.name}_row", I64) for array in moved}

    def kernel(self) -> Kernel:
        block = self.names.var("block", I64)
        starts = [Let(var, Binary("*", block, b.const(array.length or 0, I64), I64)) for array, var in self.firsts.items()]
        body = (Let(block, block_number()), *starts, *self.block(self.old.body))
        return replace(self.old, params=(*self.old.params, *self.rows.values()), body=body)

    def block(self, block: Block) -> Block:
        return tuple(new for stmt in block for new in self.statement(stmt))

    def statement(self, stmt: Stmt) -> Block:
        stmt = map_blocks(stmt, self.block)
        array = getattr(stmt, "buffer", None)
        if array not in self.rows:
            return (stmt,)
        if isinstance(stmt, Alloc):
            return self.cleared(array, stmt) if stmt.zero else ()
        index = Binary("+", self.firsts[array], b.cast(stmt.index, I64), I64)  # type: ignore[attr-defined]
        return (replace(stmt, buffer=self.rows[array], index=index),)  # type: ignore[call-arg]

    def cleared(self, array: Buffer, stmt: Alloc) -> Block:
        """All threads of the block clear its row together."""
        k = self.names.var("k", I64)
        store = Store(self.rows[array], Binary("+", self.firsts[array], k, I64), b.zero(array.element), span=stmt.span)
        loop = For(k, thread_in_block(), b.const(array.length or 0, I64), threads_in_block(), (store,), span=stmt.span)
        return loop, Barrier(span=stmt.span)

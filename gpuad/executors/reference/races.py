"""Who touched what since when: reader, writer and atomic sets of every element of a memory, and the conflicts among them.

For each element and each kind of access the tracker keeps one code: nobody, one thread (its number in the grid), several threads of one
block, or threads of several blocks. Two accesses of different threads conflict unless both are reads, both are atomic, or both store the
same bits; and unless a barrier of their block lies between them. Threads of different blocks are never ordered by a barrier. Codes join
upward, so that text order within an interval is no order.

Names of the two threads cost more than a code can hold. A conflict therefore only tells where it is (`Conflict`); the launch is repeated on
a fresh copy with that element watched, which gives the `RaceError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.nodes import Buffer, Stmt

Array = NDArray[Any]

NOBODY, BLOCKS = -1, -2  # codes >= 0 are threads; -(b + 3) are several threads of block b


class Kind(IntEnum):
    READ = 0
    WRITE = 1
    ATOMIC = 2


VERB = {Kind.READ: "reads", Kind.WRITE: "writes", Kind.ATOMIC: "updates atomically"}
_HOSTILE = {Kind.READ: (Kind.WRITE, Kind.ATOMIC), Kind.WRITE: (Kind.READ, Kind.ATOMIC), Kind.ATOMIC: (Kind.READ, Kind.WRITE)}


@dataclass(frozen=True, eq=False)
class Site:
    """A statement and the buffer through which it reaches memory."""

    stmt: Stmt
    buffer: Buffer


class Conflict(Exception):
    """A race at `cell` of the tracker."""

    def __init__(self, tracker: Tracker, cell: int) -> None:
        self.tracker = tracker
        self.cell = cell


@dataclass(frozen=True)
class Access:
    """One access to the watched element. `interval` counts the barriers that the thread's block had passed."""

    kind: Kind
    thread: int
    interval: int
    index: int
    site: Site
    content: object = None  # what a write writes, if it writes a value of its own


@dataclass(frozen=True)
class Batch:
    """Accesses of one statement, an entry a lane: cells of the memory, threads and barrier intervals, element indices as written.
    `number` is the number of cells that each access covers. `contents` are the bits that writes write, where one value may be written by
    all."""

    site: Site
    cells: Array
    threads: Array
    intervals: Array | None
    indices: Array
    number: int = 1
    contents: Array | None = None


@dataclass
class Tracker:
    """The sets of one memory of `size` cells. `threads_per_block` tells threads of one block; `watch` names a cell whose accesses are
    logged."""

    key: object
    size: int
    threads_per_block: int
    watch: int | None = None
    log: list[Access] = field(default_factory=list)
    codes: dict[Kind, Array] = field(default_factory=dict)
    epochs: dict[Kind, Array] = field(default_factory=dict)

    def access(self, kind: Kind, batch: Batch, differs: Array | None = None) -> None:
        """Records accesses of one kind. Raises Conflict if one conflicts with an earlier access of another thread. For writes, `differs`
        says which change the content."""
        if self.watch is not None:
            self._note(kind, batch)
        for hostile in _HOSTILE[kind]:
            self._check(hostile, batch, None)
        if kind is Kind.WRITE:
            self._check(kind, batch, differs)
        self._join(kind, batch)

    def clash(self, batch: Batch, wrong: Array) -> None:
        """Raises Conflict if any lane is wrong."""
        if wrong.any():
            raise Conflict(self, int(batch.cells[int(np.argmax(wrong))]))

    def _check(self, hostile: Kind, batch: Batch, relevant: Array | None) -> None:
        if hostile not in self.codes:
            return
        codes = self.codes[hostile][batch.cells]
        wrong = (codes != NOBODY) & (codes != batch.threads)
        if relevant is not None:
            wrong &= relevant
        if batch.intervals is not None and wrong.any():
            same = self._blocks(codes) == batch.threads // self.threads_per_block
            wrong &= ~same | (self.epochs[hostile][batch.cells] == batch.intervals)
        self.clash(batch, wrong)

    def _join(self, kind: Kind, batch: Batch) -> None:
        table = self.codes.setdefault(kind, np.full(self.size, NOBODY, np.int32)) if kind not in self.codes else self.codes[kind]
        old = table[batch.cells]
        codes = self._joined(kind, old, batch)
        table[batch.cells] = codes
        got = table[batch.cells]
        shared = got != codes
        if shared.any():
            self._merge(table, batch.cells[shared], got[shared], codes[shared])
        if batch.intervals is not None:
            self.epochs.setdefault(kind, np.zeros(self.size, np.int32))[batch.cells] = batch.intervals

    def _joined(self, kind: Kind, old: Array, batch: Batch) -> Array:
        """The code of each cell after one more access, as if the lanes' cells were distinct."""
        others = (old != NOBODY) & (old != batch.threads)
        if not others.any():
            return batch.threads
        blocks = batch.threads // self.threads_per_block
        same = self._blocks(old) == blocks
        if batch.intervals is not None:  # a barrier ends the sets of its own block
            fresh = same & (self.epochs[kind][batch.cells] != batch.intervals)
            others &= ~fresh
        return np.where(others, np.where(same, -(blocks + 3), BLOCKS), batch.threads).astype(np.int32)

    def _merge(self, table: Array, cells: Array, first: Array, second: Array) -> None:
        """Cells that several lanes of one statement share: the codes of both."""
        block = self._blocks(first)
        same = (block == self._blocks(second)) & (block >= 0)
        table[cells[same]] = -(block[same] + 3)
        table[cells[~same]] = BLOCKS

    def _blocks(self, codes: Array) -> Array:
        """The block of each code; -1 for several blocks, and for nobody -2."""
        return np.where(codes >= 0, codes // self.threads_per_block, -3 - codes)

    # --- the second run --------------------------------------------------------------------------------------------------------------

    def _note(self, kind: Kind, batch: Batch) -> None:
        for lane in np.flatnonzero(batch.cells == self.watch).tolist():
            interval = 0 if batch.intervals is None else int(batch.intervals[lane])
            item = lane // batch.number
            content = None if batch.contents is None else int(batch.contents[item])
            self.log.append(Access(kind, int(batch.threads[lane]), interval, int(batch.indices[item]), batch.site, content))

    def culprits(self) -> tuple[Access, Access]:
        """The two logged accesses that conflict, the later one as late as it was logged."""
        for position in range(len(self.log) - 1, 0, -1):
            for earlier in self.log[:position]:
                if self._conflicting(earlier, self.log[position]):
                    return earlier, self.log[position]
        return self.log[0], self.log[-1]

    def _conflicting(self, a: Access, b: Access) -> bool:
        if a.thread == b.thread or (a.kind is b.kind and (a.kind is not Kind.WRITE or a.content == b.content is not None)):
            return False
        same = a.thread // self.threads_per_block == b.thread // self.threads_per_block
        return not same or a.interval == b.interval

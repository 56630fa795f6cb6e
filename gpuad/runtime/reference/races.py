"""Who touched what since when: reader, writer and atomic sets of every element of a memory, and the conflicts among them.

For each element and each kind of access the tracker keeps one code: no thread, one thread (its number in the grid), several threads of one
warp or block, or threads of several blocks. Two accesses of different threads conflict unless both are reads, both are atomic, or both
store the same bits; and unless a barrier of their block or of their warp lies between them. Threads of different blocks are never ordered
by a barrier. Codes join upward, so that text order within an interval is no order.

Names of the two threads cost more than a code can hold. A conflict therefore only tells where it is (`Conflict`); the launch is repeated on
a fresh copy with that element watched, which gives the `RaceError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from ...ir.dtypes import Array
from ...ir.nodes import Buffer, Stmt

UNTOUCHED, BLOCKS = -1, -2  # codes >= 0 are threads; -(2 w + 3) are several threads of warp w, -(2 b + 4) of block b
WARP = 32


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
    warp_clock: Array | None = None  # the thread's row of `WarpClocks.at`


class WarpClocks:
    """Who is in step with whom within warps: a barrier of a warp orders the lanes that its mask names, and no others.

    The barriers of a warp are numbered from 1. `at` says of each thread how many there were, and for each lane of its warp behind which of
    them the thread knows all that the lane had done: an array (threads, 1 + 32).
    """

    def __init__(self, threads: int) -> None:
        self.at: Array = np.zeros((threads, 1 + WARP), np.int32)

    def pass_barrier(self, active: Array, members: Array, warps: Array) -> None:
        """The active threads pass a barrier. `members`, `warps`: for each thread the positions of the lanes that its mask names, and of all
        lanes of its warp; -1 where there is none. What one of the members knew, all know then."""
        rows = np.flatnonzero(active)
        with_whom, number = members[rows], self.at[rows, :1] + 1
        if ((with_whom >= 0) | (warps[rows] < 0)).all():
            self.at[rows, 1:] = number
        else:
            known = np.zeros((len(rows), WARP), np.int32)
            for other in with_whom.T:
                known = np.maximum(known, np.where((other >= 0)[:, None], self.at[other, 1:], 0))
            self.at[rows, 1:] = np.where(with_whom >= 0, number, known)
        touched = np.unique(warps[rows])
        self.at[touched[touched >= 0], 0] += 1


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
    warp_clocks: Array | None = None  # of `WarpClocks.at`, in a kernel with barriers of warps

    @property
    def has_barriers(self) -> bool:
        """True if threads of one block may be ordered. Where none are, several of them are as good as several of many blocks."""
        return self.intervals is not None or self.warp_clocks is not None


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
    warp_clocks: dict[Kind, Array] = field(default_factory=dict)
    lanes: dict[Kind, Array] = field(default_factory=dict)  # a bit for each lane, where the code is of one warp

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
        if np.count_nonzero(wrong):
            raise Conflict(self, int(batch.cells[int(np.argmax(wrong))]))

    def _check(self, hostile: Kind, batch: Batch, relevant: Array | None) -> None:
        if hostile not in self.codes:
            return
        codes = self.codes[hostile][batch.cells]
        wrong = (codes != UNTOUCHED) & (codes != batch.threads)
        if relevant is not None:
            wrong &= relevant
        if np.count_nonzero(wrong):
            wrong &= ~self._ordered(hostile, codes, batch)
            self.clash(batch, wrong)

    def _ordered(self, kind: Kind, codes: Array, batch: Batch) -> Array:
        """Where a barrier lies between what the codes stand for and the batch: of their block, or of their warp."""
        result = np.zeros(len(codes), np.bool_)
        if batch.intervals is not None:
            same = self._blocks(codes) == batch.threads // self.threads_per_block
            result |= same & (self.epochs[kind][batch.cells] != batch.intervals)
        if batch.warp_clocks is not None:
            result |= (self._warps(codes) == self._warps(batch.threads)) & self._known(kind, batch)
        return result

    def _known(self, kind: Kind, batch: Batch) -> Array:
        """Where each thread knows what the lanes of its warp had done to the cell."""
        assert batch.warp_clocks is not None
        behind = batch.warp_clocks[:, 1:] > self.warp_clocks[kind][batch.cells][:, None]
        known = np.packbits(behind, axis=1, bitorder="little").view("<u4")[:, 0] | self._bit(batch)
        return np.asarray(self.lanes[kind][batch.cells] & ~known == 0)

    def _bit(self, batch: Batch) -> Array:
        return np.uint32(1) << (batch.threads % self.threads_per_block % WARP).astype(np.uint32)

    def _join(self, kind: Kind, batch: Batch) -> None:
        table = self.codes.setdefault(kind, np.full(self.size, UNTOUCHED, np.int32)) if kind not in self.codes else self.codes[kind]
        old = table[batch.cells]
        codes = self._joined(kind, old, batch)
        if batch.warp_clocks is not None:
            self._join_lanes(kind, old, batch)
        table[batch.cells] = codes
        got = table[batch.cells]
        shared = got != codes
        if np.count_nonzero(shared):
            self._merge(table, batch, shared, got, codes)
        if batch.intervals is not None:
            self.epochs.setdefault(kind, np.zeros(self.size, np.int32))[batch.cells] = batch.intervals
        if batch.warp_clocks is not None:
            self.warp_clocks[kind][batch.cells] = batch.warp_clocks[:, 0]

    def _join_lanes(self, kind: Kind, old: Array, batch: Batch) -> None:
        """Adds the lanes to those that touched their cells and are not ordered with them."""
        table = self.lanes.setdefault(kind, np.zeros(self.size, np.uint32))
        self.warp_clocks.setdefault(kind, np.zeros(self.size, np.int32))
        lanes = self._bit(batch)
        if (old != UNTOUCHED).any():
            lanes |= np.where((old == UNTOUCHED) | self._ordered(kind, old, batch), np.uint32(0), table[batch.cells])
        table[batch.cells] = 0
        np.bitwise_or.at(table, batch.cells, lanes)

    def _joined(self, kind: Kind, old: Array, batch: Batch) -> Array:
        """The code of each cell after one more access, as if the lanes' cells were distinct."""
        others = (old != UNTOUCHED) & (old != batch.threads)
        if not np.count_nonzero(others):
            return batch.threads
        if not batch.has_barriers:
            return np.where(others, np.int32(BLOCKS), batch.threads)
        others &= ~self._ordered(kind, old, batch)  # a barrier ends the sets of its own block, or warp
        return np.where(others, self._union(old, batch.threads), batch.threads).astype(np.int32)

    def _union(self, first: Array, second: Array) -> Array:
        """The code of several threads, from two."""
        warps, blocks = self._warps(second), self._blocks(second)
        one_warp = (self._warps(first) == warps) & (warps >= 0)
        one_block = (self._blocks(first) == blocks) & (blocks >= 0)
        return np.where(one_warp, -(2 * warps + 3), np.where(one_block, -(2 * blocks + 4), BLOCKS))

    def _merge(self, table: Array, batch: Batch, shared: Array, first: Array, second: Array) -> None:
        """Cells that several lanes of one statement share: the codes of both."""
        cells = batch.cells[shared]
        if not batch.has_barriers:
            table[cells] = BLOCKS
            return
        joined = self._union(first[shared], second[shared])
        for kind in (joined % 2 != 0, joined % 2 == 0, joined == BLOCKS):  # of a warp, of a block, of several: the widest is written last
            table[cells[kind]] = joined[kind]

    def _blocks(self, codes: Array) -> Array:
        """The block of each code; -1 for several blocks, and for no thread -2."""
        ours = np.where(codes >= 0, codes // self.threads_per_block, (-4 - codes) // 2)
        within = self._warps(codes)
        of_warp = within // self._warps_per_block
        plural = np.where((codes <= -3) & (codes % 2 != 0), of_warp, ours)
        return np.where(codes >= 0, ours, np.where(codes == UNTOUCHED, -2, np.where(codes == BLOCKS, -1, plural)))

    @property
    def _warps_per_block(self) -> int:
        return -(-self.threads_per_block // WARP)

    def _warps(self, codes: Array) -> Array:
        """The warp of each code, counted through the grid; -1 where it is not one."""
        block, thread = codes // self.threads_per_block, codes % self.threads_per_block
        of_thread = block * self._warps_per_block + thread // WARP
        of_several = np.where((codes <= -3) & (codes % 2 != 0), (-3 - codes) // 2, -1)
        return np.where(codes >= 0, of_thread, of_several)

    # --- the second run --------------------------------------------------------------------------------------------------------------

    def _note(self, kind: Kind, batch: Batch) -> None:
        for lane in np.flatnonzero(batch.cells == self.watch).tolist():
            interval = 0 if batch.intervals is None else int(batch.intervals[lane])
            item = lane // batch.number
            content = None if batch.contents is None else int(batch.contents[item])
            warp_clock = None if batch.warp_clocks is None else batch.warp_clocks[lane].copy()
            self.log.append(Access(kind, int(batch.threads[lane]), interval, int(batch.indices[item]), batch.site, content, warp_clock))

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
        if a.thread // self.threads_per_block != b.thread // self.threads_per_block:
            return True
        warps = [t % self.threads_per_block // WARP for t in (a.thread, b.thread)]
        if a.interval != b.interval or warps[0] != warps[1] or a.warp_clock is None or b.warp_clock is None:
            return a.interval == b.interval
        return bool(b.warp_clock[1 + a.thread % self.threads_per_block % WARP] <= a.warp_clock[0])

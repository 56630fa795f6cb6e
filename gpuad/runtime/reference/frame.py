"""The state of a running kernel: which threads are active, what their variables hold, and the memory that they reach.

All threads of a chunk of whole blocks run in lockstep; a value is an array with an entry (a *lane*) for each thread, or of shape (1,) if it
is the same for all. Lanes that are not active hold garbage. A *poison* array runs beside a variable that depends on a read outside an
array or on memory never initialised: 0 where the lane is sound, else the number of the cause. Only a poisoned value that is used is an
error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import GpuadError, UnsupportedError
from ...ir.dtypes import Array
from ...ir.nodes import Buffer, Stmt
from ..base import Dim3
from .errors import BarrierError, BoundsError, RaceError, Thread
from .races import VERB, WARP, Batch, Site, Tracker, WarpClocks


class Mask:
    """The active threads: `bits`, or None for all. At least one: what no thread runs is skipped."""

    def __init__(self, bits: Array | None = None) -> None:
        self.bits = bits

    @cached_property
    def lanes(self) -> Any:
        """An index that picks the active lanes."""
        return slice(None) if self.bits is None else np.flatnonzero(self.bits)

    def count(self, width: int) -> int:
        return width if self.bits is None else len(self.lanes)

    def pick(self, value: Array, width: int) -> Array:
        """The value's active lanes, one entry each."""
        if len(value) == width:
            return value if self.bits is None else value[self.lanes]
        return np.broadcast_to(value, (self.count(width),))

    def narrow(self, condition: Array) -> Mask | None:
        """Those of the active threads for which the condition holds; None if there is none."""
        if len(condition) == 1:
            return self if condition[0] else None
        bits = condition if self.bits is None else condition & self.bits
        number = np.count_nonzero(bits)  # in one call, a fifth as long as `any` takes
        if number == len(bits):
            return ALL
        return Mask(bits) if number else None

    def blend(self, new: Array, old: Array) -> Array:
        """`new` in active lanes, `old` in the others."""
        return new if self.bits is None else np.where(self.bits, new, old)


ALL = Mask()


@dataclass(frozen=True)
class Geometry:
    """Grid and block of a launch."""

    grid: Dim3
    block: Dim3

    @cached_property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @cached_property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    def place(self, thread: int) -> Thread:
        """blockIdx and threadIdx of a thread's number in the grid."""
        return _unravel(thread // self.threads, self.grid), _unravel(thread % self.threads, self.block)


def _unravel(number: Any, shape: Dim3) -> Any:
    return number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])


@dataclass
class Storage:
    """Memory as a buffer sees it. `data` is flat; `rows` says who has a row of `length` elements there: 'launch', 'block' or 'lane'.
    `scale` is the number of tracker cells of an element. `poison` holds a cause for each element of a local or shared array that is not
    sound; of integers `bits` are those that are not sound."""

    buffer: Buffer
    data: Array
    offset: int
    length: int
    rows: str = "launch"
    tracker: Tracker | None = None
    scale: int = 1
    poison: Array | None = None
    bits: Array | None = None


@dataclass
class Stacks:
    """One stack: `depth` entries a lane, and for each field an array (capacity, lanes) of values and one of poison."""

    depth: Array
    values: list[Array]
    poison: list[Array]


@dataclass
class Frame:
    """A chunk of whole blocks. `threads` are the lanes' numbers in the grid, block by block; `intervals` counts barriers passed by each
    block of the chunk, `warp_clocks` those of warps; None in a kernel without such barriers."""

    geometry: Geometry
    threads: Array
    env: list[Array | None]
    storages: list[Storage | None]
    shared_mem: int
    check: bool
    limit: int
    causes: list[tuple[Stmt, Buffer, str]]
    steps: list[int] | None = None  # how many are left to the launch
    intervals: Array | None = None
    warp_clocks: WarpClocks | None = None
    watch: tuple[object, int] | None = None
    chunk: int = 0
    poison: dict[int, Array] = field(default_factory=dict)
    bits: dict[int, Array] = field(default_factory=dict)
    stacks: dict[int, Stacks] = field(default_factory=dict)
    indices: dict[tuple[str, str], Array] = field(default_factory=dict)

    @cached_property
    def width(self) -> int:
        return len(self.threads)

    @cached_property
    def rows(self) -> Array:
        """The block of each lane, counted within the chunk."""
        return np.arange(self.width, dtype=np.int64) // self.geometry.threads

    @cached_property
    def lanes(self) -> Array:
        return np.arange(self.width, dtype=np.int64)

    def launch_index(self, name: str, axis: str) -> Array:
        """threadIdx and kin."""
        key = (name, axis)
        if key not in self.indices:
            self.indices[key] = self._launch_index(name, "xyz".index(axis)).astype(np.uint32)
        return self.indices[key]

    def _launch_index(self, name: str, axis: int) -> Array:
        geometry = self.geometry
        if name in ("blockDim", "gridDim"):
            return np.array([(geometry.block if name == "blockDim" else geometry.grid)[axis]])
        shape = geometry.block if name == "threadIdx" else geometry.grid
        if shape[axis] == 1:
            return np.zeros(1)
        number = self.threads % geometry.threads if name == "threadIdx" else self.threads // geometry.threads
        return np.asarray(_unravel(number, shape)[axis])

    def step(self, stmt: Stmt) -> None:
        """Counts an iteration or an access. Raises UnsupportedError where the launch has had as many as it may."""
        if self.steps is not None:
            self.steps[0] -= 1
            if self.steps[0] < 0:
                raise UnsupportedError("the launch has more steps than it may", stmt.span)

    # --- variables -------------------------------------------------------------------------------------------------------------------

    def define(self, slot: int, value: Array, poison: Array | None = None, bits: Array | None = None) -> None:
        """Gives a variable its value in all lanes. `bits` are those that are unsound in a poisoned integer, None for all."""
        self.env[slot] = value
        if bits is not None:
            self.bits[slot] = bits
        elif self.bits:
            self.bits.pop(slot, None)
        if poison is not None:
            self.poison[slot] = poison
        elif self.poison:
            self.poison.pop(slot, None)

    def assign(self, slot: int, mask: Mask, value: Array, poison: Array | None = None) -> None:
        """Gives a variable a new value in the active lanes."""
        old = self.env[slot]
        if old is None:  # defined nowhere yet: the inactive lanes never look
            return self.define(slot, value, poison)
        if poison is not None or slot in self.poison:
            clean = np.zeros(1, np.int32)
            poison = mask.blend(clean if poison is None else poison, self.poison.get(slot, clean))
        return self.define(slot, mask.blend(value, old), poison if poison is not None and poison.any() else None)

    def refuse(self, poison: Array | None, mask: Mask, stmt: Stmt, use: str) -> None:
        """Raises BoundsError if an active lane is poisoned."""
        if poison is None:
            return
        active = mask.pick(poison, self.width)
        if not active.any():
            return
        lane = int(np.argmax(active != 0))
        origin, buffer, what = self.causes[int(active[lane]) - 1]
        place = f" at {origin.span}" if origin.span else ""
        thread = self.geometry.place(int(mask.pick(self.threads, self.width)[lane]))
        raise BoundsError(f"{use} of {who(thread)} depends on {what} `{buffer.name}`{place}", stmt.span, buffer.name, thread)

    def cause(self, stmt: Stmt, buffer: Buffer, what: str) -> int:
        """The number of a cause of poison."""
        for number, (known, _, _) in enumerate(self.causes, 1):
            if known is stmt:
                return number
        self.causes.append((stmt, buffer, what))
        return len(self.causes)

    # --- memory ----------------------------------------------------------------------------------------------------------------------

    def storage(self, slot: int) -> Storage:
        storage = self.storages[slot]
        if storage is None:
            raise GpuadError("malformed IR: memory is used before its Alloc")
        return storage

    def locate(self, storage: Storage, mask: Mask, index: Array) -> tuple[Array, Array]:
        """Positions in `storage.data` and which of them are outside, an entry for each active lane, or one if all are the same."""
        wide = index.astype(np.int64, copy=False)
        if storage.rows == "launch":
            positions = mask.pick(wide, self.width) if len(wide) > 1 else wide
            positions = positions + storage.offset
            return positions, positions.view(np.uint64) >= storage.length
        rows = self.rows if storage.rows == "block" else self.lanes
        inner = np.ascontiguousarray(mask.pick(wide, self.width))
        return mask.pick(rows, self.width) * storage.length + inner, inner.view(np.uint64) >= storage.length

    def inside(self, site: Site, storage: Storage, mask: Mask, index: Array) -> Array:
        """Positions of a write, an entry for each active lane. Raises BoundsError if one is outside."""
        positions, outside = self.locate(storage, mask, index)
        if np.count_nonzero(outside):
            lane = int(np.argmax(outside))
            where = int(mask.pick(index, self.width)[lane])
            thread = self.geometry.place(int(mask.pick(self.threads, self.width)[lane]))
            raise BoundsError(f"{who(thread)} writes {place(storage, where)}", site.stmt.span, storage.buffer.name, thread, where)
        return positions if len(positions) == mask.count(self.width) else np.broadcast_to(positions, (mask.count(self.width),))

    def batch(self, site: Site, storage: Storage, mask: Mask, positions: Array) -> Batch:
        """The accesses of the active lanes, for the tracker."""
        self.step(site.stmt)
        threads = mask.pick(self.threads, self.width)
        intervals = None if self.intervals is None else self.intervals[mask.pick(self.rows, self.width)]
        warp_clocks = None if self.warp_clocks is None else mask.pick(self.warp_clocks.at, self.width)
        indices = positions % storage.length if storage.rows != "launch" else positions - storage.offset
        if storage.scale == 1:
            return Batch(site, positions, threads, intervals, indices, warp_clocks=warp_clocks)
        n = storage.scale
        cells = (positions[:, None] * n + np.arange(n)).ravel()
        passed = [None if p is None else np.repeat(p, n, axis=0) for p in (intervals, warp_clocks)]
        return Batch(site, cells, np.repeat(threads, n), passed[0], indices, n, warp_clocks=passed[1])

    # --- blocks ----------------------------------------------------------------------------------------------------------------------

    def whole_blocks(self, mask: Mask, stmt: Stmt, what: str) -> Array:
        """Which blocks of the chunk are active. Raises BarrierError if one is only in part."""
        blocks = self.width // self.geometry.threads
        if mask.bits is None:
            return np.ones(blocks, np.bool_)
        table = mask.bits.reshape(blocks, self.geometry.threads)
        some: Array = np.logical_or.reduce(table, axis=1)
        every: Array = np.logical_and.reduce(table, axis=1)
        if (some != every).any():
            row = int(np.argmax(some != every))
            lane = int(row * self.geometry.threads + np.argmin(table[row]))
            raise BarrierError(f"{who(self.geometry.place(int(self.threads[lane])))} does not reach {what}", stmt.span)
        return every

    def pass_barrier(self, mask: Mask, stmt: Stmt, what: str) -> None:
        """The active blocks pass a barrier. Raises BarrierError if one is there only in part."""
        active = self.whole_blocks(mask, stmt, what)
        if self.intervals is not None:
            self.intervals[active] += 1

    # --- warps -----------------------------------------------------------------------------------------------------------------------

    @cached_property
    def in_block(self) -> Array:
        """The number of each lane's thread in its block."""
        return np.asarray(self.threads % self.geometry.threads, np.int64)

    def active(self, mask: Mask) -> Array:
        """Which lanes are active, as bools."""
        return np.ones(self.width, np.bool_) if mask.bits is None else mask.bits

    def members_there(self) -> Array:
        """For each lane the lanes of its warp, -1 where the block has none: an array (width, 32)."""
        threads = self.geometry.threads
        numbers = (self.in_block - self.in_block % WARP)[:, None] + np.arange(WARP)
        position = np.empty(threads, np.int64)  # within a block, whose threads may come in any order
        position[self.in_block[:threads]] = np.arange(threads)
        first = np.arange(self.width) // threads * threads
        return np.where(numbers < threads, first[:, None] + position[np.minimum(numbers, threads - 1)], -1)

    def members(self, mask: Mask, named: Array, stmt: Stmt, what: str) -> Array:
        """For each lane the lanes of its warp that its mask names, -1 elsewhere. Raises BarrierError if a lane is active but not named in
        its own mask, or named by an active lane, but not active."""
        active, table = self.active(mask), self.members_there()
        there = table >= 0
        wanted = (
            (np.broadcast_to(named, (self.width,)).astype(np.uint64)[:, None] >> np.arange(WARP, dtype=np.uint64)) & np.uint64(1)
        ) != 0
        own = wanted[np.arange(self.width), self.in_block % WARP]
        missing = active & (~own | (wanted & there & ~active[table]).any(axis=1))
        if missing.any():
            lane = int(np.argmax(missing))
            gone = table[lane][wanted[lane] & there[lane] & ~active[table[lane]]]
            culprit = int(gone[0]) if own[lane] else lane
            reason = "does not reach" if own[lane] else "is not named in the mask of"
            raise BarrierError(f"{who(self.geometry.place(int(self.threads[culprit])))} {reason} {what} of its warp", stmt.span)
        return np.where(wanted, table, -1)


def who(thread: Thread) -> str:
    return f"thread {thread[1]} of block {thread[0]}"


def place(storage: Storage, index: int) -> str:
    name = storage.buffer.name
    if storage.rows != "launch":
        return f"`{name}`[{index}], outside an array of {storage.length} elements"
    if not storage.length:
        return f"`{name}`[{index}], which is a null pointer or empty"
    return f"`{name}`[{index}], outside its allocation [{-storage.offset}, {storage.length - storage.offset})"


def race(tracker: Tracker, geometry: Geometry) -> RaceError:
    """The error that a watched tracker's log tells."""
    a, b = tracker.culprits()
    first, second = geometry.place(a.thread), geometry.place(b.thread)
    name = b.site.buffer.name
    earlier = f"{who(first)} {VERB[a.kind]} it" + (f" at {a.site.stmt.span}" if a.site.stmt.span else "")
    message = f"data race on `{name}`[{b.index}]: {who(second)} {VERB[b.kind]} it, and with no barrier between, {earlier}"
    return RaceError(message, name, b.index, (first, second), (a.site.stmt.span, b.site.stmt.span), (VERB[a.kind], VERB[b.kind]))

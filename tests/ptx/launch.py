"""Launches: arguments into parameters, blocks into lanes, and what all of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .faults import PtxError, Unknown, Unwritten
from .lanes import Lanes
from .machine import Activation
from .memory import Rows
from .races import Watch
from .warps import WARP

if TYPE_CHECKING:
    from .module import Code, Loaded

Dim3: TypeAlias = "tuple[int, int, int]"
LANES = 1 << 14  # as many lanes run as one vector, in whole blocks
AXES = "xyz"
POISONS = (0x00, 0xFF, 0x3F, 0xA5)  # bytes of zeros, of NaN and -1, of numbers near 1, of anything


@dataclass
class Tally:
    """What was executed: texts (by digest), launches, lanes, instructions of lanes. With `traffic` also instructions of warps, and of the
    accesses to global memory: `sectors` of 32 bytes that warps touch, access by access; in how many of them what they asked for would fit;
    elements that lanes changed atomically; and which sectors were read and written at all."""

    texts: set[str] = field(default_factory=set)
    launches: int = 0
    lanes: int = 0
    instructions: int = 0
    traffic: bool = False
    warp_instructions: int = 0
    sectors: int = 0
    least_sectors: int = 0
    atomics: int = 0
    read: Any = None
    written: Any = None

    def clear(self) -> None:
        nothing = np.zeros(0, np.uint64)
        vars(self).update(vars(Tally(traffic=self.traffic, read=nothing, written=nothing)))

    def access(self, addresses: Any, size: int, lanes: Lanes, reads: bool, writes: bool) -> None:
        """An access of `size` bytes for each lane, aligned to that, so that none is in two sectors."""
        addresses = lanes.full(addresses)
        pairs = np.unique(np.stack([lanes.warps.astype(np.uint64), addresses]), axis=1)
        touched = np.unique(np.stack([pairs[0], pairs[1] // SECTOR]), axis=1)
        self.sectors += touched.shape[1]
        self.least_sectors += int((-(-np.bincount(pairs[0].astype(np.int64)) * size // int(SECTOR))).sum())
        self.atomics += lanes.count if reads and writes else 0
        self.read = np.union1d(self.read, touched[1]) if reads else self.read
        self.written = np.union1d(self.written, touched[1]) if writes else self.written


SECTOR = np.uint64(32)
TALLY = Tally()


class Launch:
    """Some blocks of a launch, which run as one vector."""

    def __init__(
        self, loaded: Loaded, grid: Dim3, block: Dim3, blocks: range, parameters: Rows, shared_mem: int, poison: int | None = None
    ) -> None:
        self.memory, self.grid, self.block, self.first = loaded.memory, grid, block, blocks.start
        self.parameters, self.poison = parameters, poison
        self.block_threads = block[0] * block[1] * block[2]
        self.block_warps = -(-self.block_threads // WARP)
        self.block_count = len(blocks)
        self.warp_count = self.block_warps * self.block_count
        self.shared_mem = shared_mem
        end = loaded.dynamic_begin + shared_mem
        valid = np.zeros(max(end, 1), np.bool_)
        for at, size in loaded.static_shared:
            valid[at : at + size] = True
        valid[loaded.dynamic_begin :] = shared_mem > 0
        self.shared = Rows(self.block_count, end, "shared", valid)
        self.watch = Watch(self.block_count, self.shared.pitch, self.block_warps)
        self.local = Rows(self.block_count * self.block_threads, loaded.local_size, "local", poison=poison)
        self.clock = 0

    def load(self, addresses: Any, wanted: Any, count: int, what: str, lanes: Lanes) -> list[Any]:
        if TALLY.traffic:
            TALLY.access(addresses, wanted.itemsize * count, lanes, True, False)
        return self.memory.load(addresses, wanted, count, what)

    def store(self, addresses: Any, values: list[Any], what: str, lanes: Lanes) -> None:
        if TALLY.traffic:
            TALLY.access(addresses, values[0].dtype.itemsize * len(values), lanes, False, True)
        self.memory.store(addresses, values, what)

    def atomic(self, addresses: Any, size: int, lanes: Lanes) -> None:
        if TALLY.traffic:
            TALLY.access(addresses, size, lanes, True, True)

    def count(self, code: Code, at: int, lanes: Lanes) -> None:
        """A block is executed."""
        number = len(code.steps[at]) + (code.program.blocks[at].last is not None)
        TALLY.instructions += lanes.count * number
        if TALLY.traffic:
            TALLY.warp_instructions += int(np.unique(lanes.warps).size) * number

    def special(self, name: str, activation: Activation) -> Any:
        """A special register: an element for each lane, or one for all."""
        base, _, axis = name.partition(".")
        if base in ("ntid", "nctaid"):
            return np.array([(self.block if base == "ntid" else self.grid)[AXES.index(axis)]], np.uint32)
        if base in ("tid", "ctaid"):
            numbers, extent = (activation.threads, self.block) if base == "tid" else (activation.blocks + self.first, self.grid)
            return _axis(numbers, extent, AXES.index(axis)).astype(np.uint32)
        lane = (activation.threads % WARP).astype(np.uint64)
        one = np.uint64(1)
        lanemasks = {"eq": one << lane, "lt": (one << lane) - one, "le": (one << lane + one) - one}
        if base.startswith("lanemask_"):
            kind = base.removeprefix("lanemask_")
            mask = lanemasks[kind] if kind in lanemasks else ~lanemasks["le" if kind == "gt" else "lt"]
            return (mask & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        match base:
            case "laneid":
                return lane.astype(np.uint32)
            case "warpid":
                return (activation.threads // WARP).astype(np.uint32)
            case "dynamic_smem_size":
                return np.array([self.shared_mem], np.uint32)
            case "nwarpid":
                return np.array([self.block_warps], np.uint32)
            case "smid" | "gridid":
                return np.zeros(1, np.uint64)
            case "nsmid":
                return np.ones(1, np.uint64)
        raise Unknown(f"special register %{name}")


def _axis(numbers: Any, extent: Dim3, axis: int) -> Any:
    x, y, _ = extent
    return (numbers % x, numbers // x % y, numbers // (x * y))[axis]


class Kernel:
    """A kernel of a loaded module."""

    def __init__(self, loaded: Loaded, name: str) -> None:
        self.loaded, self.name = loaded, name
        self.code = loaded.code(name)
        if not self.code.program.function.is_entry:
            raise Unknown(f"{name} is no kernel")

    def __call__(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int = 0) -> None:
        """Runs it. `args`: bytes-like values, one for each parameter (NumPy scalars; addresses as `np.uint64`)."""
        (gx, gy, gz), (bx, by, bz) = ((*map(int, extent), 1, 1)[:3] for extent in (grid, block))
        parameters = self._parameters(args)
        if not 0 < bx * by * bz <= 1024:
            raise PtxError(f"a block of {bx * by * bz} threads")
        TALLY.texts.add(self.loaded.digest)
        TALLY.launches += 1
        TALLY.lanes += bx * by * bz * gx * gy * gz
        start = self._content() if self.code.watched or self.loaded.local_size else None
        run = partial(self._run, (gx, gy, gz), (bx, by, bz), parameters, shared_mem)
        try:
            run(None)
        except Unwritten as error:
            if start is None or not self._same_whatever_it_is(run, start):
                raise error from None

    def _content(self) -> list[tuple[Any, Any]]:
        """Every allocation's bytes, with a copy."""
        return [(allocation.data, allocation.data.copy()) for allocation in self.loaded.memory.known.values()]

    def _same_whatever_it_is(self, run: Callable[[int], None], start: list[tuple[Any, Any]]) -> bool:
        """Whether all memory comes out the same, bit for bit, with different values for what threads read and have not written."""
        results = []
        for poison in POISONS:
            for data, before in start:
                if not np.array_equal(data, before):
                    data[...] = before
            try:
                run(poison)
            except PtxError:
                return False
            results.append([data.copy() for data, _ in start])
        return all(np.array_equal(x, first) for other in results[1:] for x, first in zip(other, results[0], strict=True))

    def _run(self, grid: Dim3, block: Dim3, parameters: Rows, shared_mem: int, poison: int | None) -> None:
        threads, blocks = math.prod(block), math.prod(grid)
        per_vector = max(LANES // threads, 1)
        with np.errstate(all="ignore"):
            for first in range(0, blocks, per_vector):
                some = range(first, min(first + per_vector, blocks))
                launch = Launch(self.loaded, grid, block, some, parameters, shared_mem, poison)
                handed = Rows(threads * len(some), self.code.handed_size, "parameter")
                Activation(self.code, launch, np.arange(threads * len(some)), handed).run()

    def _parameters(self, args: Sequence[Any]) -> Rows:
        places = self.code.entry_places
        if len(args) != len(places):
            raise PtxError(f"{self.name} takes {len(places)} arguments, not {len(args)}")
        rows = Rows(1, max((at + size for at, size in places.values()), default=0), "parameter")
        for arg, (name, (at, size)) in zip(args, places.items(), strict=True):
            data = np.frombuffer(np.asarray(arg).tobytes(), np.uint8)
            if data.size < size:
                raise PtxError(f"{self.name}: {data.size} bytes for {name}, which has {size}")
            rows.data[at : at + size] = data[:size]
            rows.written[at : at + size] = True
        return rows

"""Device memory: allocations with addresses of their own, and rows of bytes for what each block (shared) or thread (local, parameters) has.

Each allocation is checked to its last byte; what lies between two belongs to nobody. Rows know which bytes were written, and which bytes
no variable covers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .faults import Misaligned, OutOfBounds, Uninitialised, Unwritten
from .types import unsigned

GUARD = 1 << 16  # bytes that nobody has behind each allocation that `Memory` places itself
SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, WINDOW = 1 << 60, 2 << 60, 3 << 60, 1 << 60  # generic addresses


@dataclass(eq=False)
class Allocation:
    """`data`: bytes, as many as were asked for (from an address that is a multiple of 16)."""

    start: int
    data: Any
    name: str = "an allocation"
    loaded: bool = False
    stored: bool = False
    views: dict[Any, Any] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + int(self.data.size)

    def typed(self, wanted: Any) -> Any:
        if wanted not in self.views:
            self.views[wanted] = self.data[: self.data.size // wanted.itemsize * wanted.itemsize].view(wanted)
        return self.views[wanted]


class Memory:
    """All allocations, in the order of their addresses."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.known: dict[int, Allocation] = {}
        self.top = 1 << 40

    def place(self, data: Any, name: str = "an allocation") -> Allocation:
        """Bytes at an address of their own, between guard zones."""
        allocation = self.attach(self.top, data, name)
        self.top += -(-max(int(data.size), 1) // 512) * 512 + GUARD
        return allocation

    def attach(self, start: int, data: Any, name: str = "an allocation") -> Allocation:
        """Bytes at a given address."""
        made = Allocation(start, data, name)
        insort(self.starts, start)
        self.known[start] = made
        return made

    def find(self, address: int) -> Allocation | None:
        """The allocation with this byte."""
        at = bisect_right(self.starts, address) - 1
        found = self.known[self.starts[at]] if at >= 0 else None
        return found if found is not None and address < found.end else None

    def pieces(self, addresses: Any, size: int, width: int, what: str) -> list[tuple[Allocation, Any, Any]]:
        """Addresses (of `size` bytes, aligned to `width`) by allocation: which of them (None: all), and the bytes' offsets."""
        low, high = int(addresses.min()), int(addresses.max())
        first = self.find(low)
        if first is not None and high + size <= first.end:
            offsets = (addresses - np.uint64(first.start)).view(np.int64)
            aligned(offsets, width, what)
            return [(first, None, offsets)]
        return self._spread(addresses, size, width, what)

    def _spread(self, addresses: Any, size: int, width: int, what: str) -> list[tuple[Allocation, Any, Any]]:
        found = []
        numbers = np.searchsorted(np.array(self.starts, np.uint64), addresses, "right") - 1
        for number in np.unique(numbers):
            which = np.flatnonzero(numbers == number)
            allocation = self.known[self.starts[number]] if number >= 0 else None
            if allocation is None or int(addresses[which].max()) + size > allocation.end:
                raise OutOfBounds(self._message(int(addresses[which].max()), size, what, allocation))
            offsets = (addresses[which] - np.uint64(allocation.start)).view(np.int64)
            aligned(offsets, width, what)
            found.append((allocation, which, offsets))
        return found

    def _message(self, address: int, size: int, what: str, before: Allocation | None) -> str:
        where = f", {address - before.end} bytes behind the end of {before.name} of {before.data.size} bytes" if before is not None else ""
        return f"{what}: {size} bytes at {address:#x}{where}"

    def load(self, addresses: Any, wanted: Any, count: int, what: str) -> list[Any]:
        """`count` elements from each address, as that many vectors."""
        pieces = self.pieces(addresses, wanted.itemsize * count, wanted.itemsize * count, what)
        if pieces[0][1] is None:
            allocation, _, offsets = pieces[0]
            allocation.loaded = True
            at = offsets // wanted.itemsize
            return [allocation.typed(wanted)[at + k] for k in range(count)]
        results = [np.empty(addresses.size, wanted) for _ in range(count)]
        for allocation, which, offsets in pieces:
            allocation.loaded = True
            for k, result in enumerate(results):
                result[which] = allocation.typed(wanted)[offsets // wanted.itemsize + k]
        return results

    def store(self, addresses: Any, values: list[Any], what: str) -> None:
        """One element of each vector to each address; of lanes that store to one address the last one wins."""
        size = values[0].dtype.itemsize
        for allocation, which, offsets in self.pieces(addresses, size * len(values), size * len(values), what):
            allocation.stored = True
            for k, value in enumerate(values):
                allocation.typed(value.dtype)[offsets // size + k] = value if which is None else value[which]


def aligned(offsets: Any, width: int, what: str) -> None:
    if (offsets & (width - 1)).any():
        bad = int(offsets[(offsets & (width - 1)) != 0][0])
        raise Misaligned(f"{what}: {width} bytes at offset {bad}")


class Rows:
    """`count` rows of `size` bytes: the shared memory of blocks, the local memory or the parameters of threads. `valid`: the bytes of a row
    that belong to a variable; `poison`: with which bytes they begin, if it is no error to read what nobody has written."""

    def __init__(self, count: int, size: int, name: str, valid: Any = None, poison: int | None = None) -> None:
        self.size, self.name, self.poison = size, name, poison
        self.pitch = -(-max(size, 1) // 16) * 16
        self.data = np.full(count * self.pitch, poison or 0, np.uint8)
        self.written = np.zeros(count * self.pitch, np.bool_)
        self.valid = valid

    def places(self, rows: Any, addresses: Any, size: int, width: int, what: str) -> Any:
        """Where in `data` the bytes at `addresses` of `rows` begin."""
        offsets = addresses.astype(np.int64)
        if int(offsets.min()) < 0 or int(offsets.max()) + size > self.size:
            raise OutOfBounds(f"{what}: {size} bytes at {int(offsets.min())} to {int(offsets.max())} of {self.size} of {self.name} memory")
        if self.valid is not None and not (self.valid[offsets] & self.valid[offsets + size - 1]).all():
            raise OutOfBounds(f"{what}: {size} bytes between the variables of {self.name} memory")
        aligned(offsets, width, what)
        return rows * self.pitch + offsets

    def load(self, rows: Any, addresses: Any, wanted: Any, count: int, what: str) -> list[Any]:
        size = wanted.itemsize
        at = self.places(rows, addresses, size * count, size * count, what) // size
        full = np.array([0x0101010101010101 & ((1 << 8 * size) - 1)], unsigned(size))
        marks, data = self.written.view(unsigned(size)), self.data.view(wanted)
        for k in range(count):
            if self.poison is None and not (marks[at + k] == full).all():
                bad = int(np.flatnonzero(np.broadcast_to(marks[at + k] != full, at.shape))[0])
                raise (Unwritten if self.name == "local" else Uninitialised)(
                    f"{what}: {self.name} memory at {int(np.broadcast_to(addresses, at.shape)[bad]) + k * size}"
                )
        return [data[at + k] for k in range(count)]

    def store(self, rows: Any, addresses: Any, values: list[Any], what: str) -> Any:
        """Stores, and returns the places."""
        size = values[0].dtype.itemsize
        places = self.places(rows, addresses, size * len(values), size * len(values), what)
        for k, value in enumerate(values):
            self.data.view(value.dtype)[places // size + k] = value
            self.written.view(unsigned(size))[places // size + k] = 0x0101010101010101 & ((1 << 8 * size) - 1)
        return places

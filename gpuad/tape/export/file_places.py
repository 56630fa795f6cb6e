"""Where the memory lies that a stored program uses: in the caller's arrays, in shadows, in the saved bytes, or in what it puts together.

In: pointers and arrays of a recording, at the moment of an operation's reverse. Out: places as JSON has them, and the bytes of `saved.bin`.
Assumed: operations are looked at from the last to the first, as versions are found (`memory.version_finder`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from ...arguments.arrays import address, leaf_memory, namespace, resolve
from ...errors import TapeError
from ...program.ir.region import EMPTY, Region
from ...runtime.array_types import NdArray
from ...runtime.base import Memory
from ..memory.arena import ALIGN, Arena
from ..memory.version_finder import VersionFinder
from ..memory.versions import Allocation, Piece, Versions, gather, rows
from ..record.operations import Foreign, Operation, Use
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from ..record.recording import Recording
from .standalone import order_of

_NOTHING = ("saved", 0, 0, 0, 0)  # where an array without elements lies
_POOL = 512  # CuPy's allocations are rounded up to it
Place = tuple[Any, ...]  # (kind, number, byte offset[, begin and bytes of a saved piece]), ("scalar", dtype, bytes in hex), or ("null",)


@dataclass(eq=False)
class Room:
    """An allocation or a shadow: what the caller of the stored program has to bring. `live`: what is read of it as it is."""

    name: str
    root: NdArray  # flat
    dtype: str
    own: bool  # it belongs to the stored program
    live: Region = EMPTY
    clear: list[list[int]] = field(default_factory=list)
    layouts: list[tuple[tuple[int, ...], str]] = field(default_factory=list)  # shape and order, as it was seen whole

    def entry(self, places: Places) -> dict[str, Any]:
        on_host = isinstance(self.root, np.ndarray)
        size = int(self.root.nbytes)
        packed = namespace(self.root).empty(self.live.nbytes, np.uint8)
        if self.live:
            gather(self.root.view(np.uint8), self.live, packed)
        return {
            "name": self.name, "nbytes": size, "least": size if on_host else max(size - _POOL + 1, 0), "dtype": self.dtype,
            "live": even_runs(self.live), "sha256": digest(_bytes_of(packed)), "clear": self.clear, "own": self.own,
            "content": places.stored(self.root) if self.own and self.live else None, "layouts": self.layouts,
        }  # fmt: skip


class Places:
    """Names all memory that the program meets, and collects the bytes to be saved."""

    def __init__(self, recording: Recording, names: Mapping[str, Any]) -> None:
        self.recording = recording
        self.wanted = {address(resolve(getattr(a, "primal", a)).root): name for name, a in names.items()}
        self.rooms: dict[str, list[Room]] = {"array": [], "shadow": []}
        self.by_address: dict[int, tuple[str, int]] = {}
        self.saved: list[bytes] = []
        self.saved_nbytes = 0
        self.known: dict[int, tuple[Any, int]] = {}  # by id: what is saved already, and where
        types, self.layouts = _dtypes(recording.operations), _layouts(recording.operations, names)
        for a in recording.allocations.values():
            plain = bool(names) and a.address not in recording.shadows.by_primal  # a constant that the caller has no name for
            own = (a.address in recording.made.arrays or plain) and a.address not in self.wanted
            self._add("array", self.wanted.get(a.address, a.name), a.root, types.get(a.address, "uint8"), own)
        unknown = [name for where, name in self.wanted.items() if where not in recording.allocations]
        if unknown:
            raise TapeError(f"`{unknown[0]}` is not memory of this recording")
        for pairs in recording.shadows.by_primal.values():
            for p in pairs:
                array = self.rooms["array"][self.by_address[p.allocation.address][1]]
                kind, number, _ = self.shadow(p.root, array.name, array.own)
                self.rooms[kind][number].layouts = array.layouts if p.root.size * p.size == array.root.nbytes else []
        for root, part in recording.shadows.cleared(recording.allocations).values():
            kind, number, _ = self.shadow(root, "shadow")
            self.rooms[kind][number].clear += even_runs(Region(part.spans * int(root.dtype.itemsize)))
        for operation in recording.operations:  # numbers of one name are counted as they were passed
            for name, shadow in _of_numbers(operation):
                self.shadow(shadow, name)

    def _add(self, kind: str, wish: str, root: NdArray, dtype: str, own: bool) -> None:
        where, size = address(root), int(root.nbytes)
        for other in (r for rooms in self.rooms.values() for r in rooms):
            begin = address(other.root)
            if size and other.root.nbytes and where < begin + other.root.nbytes and begin < where + size:
                raise TapeError(f"`{wish}` overlaps `{other.name}` without being a view of the same array; this cannot be stored")
        taken = {r.name for r in self.rooms[kind] if not r.own}
        if kind == "array" and where not in self.wanted:
            taken |= set(self.wanted.values())
        name = next(n for n in (wish, *(f"{wish}_{k}" for k in range(2, len(taken) + 3))) if n not in taken)
        self.by_address[where] = (kind, len(self.rooms[kind]))
        room = Room(name, root, dtype, own or not size)  # what has no bytes need not be brought
        room.layouts = self.layouts.get(where, [])
        self.rooms[kind].append(room)

    def shadow(self, root: NdArray, wish: str, own: bool = False) -> tuple[str, int, int]:
        """Where a shadow lies, which is named now if it is new."""
        if address(root) not in self.by_address:
            self._add("shadow", wish, root, str(root.dtype), own)
        return (*self.by_address[address(root)], 0)

    def live(self, memory: Memory) -> Place:
        """A pointer into the caller's memory."""
        return (*self.by_address[address(memory.root)], memory.offset * int(memory.root.dtype.itemsize))

    def read(self, allocation: Allocation, region: Region) -> int:
        """Notes that a region is read live; the number of its array."""
        number = self.by_address[allocation.address][1]
        room = self.rooms["array"][number]
        room.live = room.live | region
        return number

    def saved_piece(self, piece: Piece) -> int:
        """Where in the saved bytes a piece lies, packed."""
        return self.stored(piece.data, piece.packed)

    def stored(self, data: Any, content: Any = None) -> int:
        """Where in the saved bytes an array of the recording lies, which is put there now if it is new; `content`: what is put there, if
        that is something else."""
        held = self.known.get(id(data))
        if held is None:
            held = self.known[id(data)] = (data, self.saved_nbytes)
            found = _bytes_of(data if content is None else content)
            found += bytes(-len(found) % ALIGN)
            self.saved.append(found)
            self.saved_nbytes += len(found)
        return held[1]


class Plan(VersionFinder):
    """Finds versions as a reversal does, and writes down where they are."""

    def __init__(self, places: Places) -> None:
        super().__init__(Arena(lambda n: np.zeros(n, np.uint8)), Versions())
        self.places = places
        self.rooms: list[dict[str, Any]] = []

    def place(self, use: Use, like: Memory, *, own: bool) -> Place:
        """As `memory`, as a place."""
        if not use.region:  # nothing is read there, and memory of no size may be none that the recording knows
            return self.places.live(like) if address(like.root) in self.places.by_address else _NOTHING
        sources = self.held.get(id(use)) or self.versions.sources(use.allocation, use.region)
        if not own and all(piece is None for _, piece in sources):
            self.places.read(use.allocation, use.region)
            return self.places.live(like)
        size = int(like.root.dtype.itemsize)
        if not own and len(sources) == 1:
            piece = sources[0][1]
            if piece is not None and len(piece.region.spans) == 1 and piece.region.low % size == piece.region.nbytes % size == 0:
                begin = self.places.saved_piece(piece)
                return "saved", 0, begin + like.offset * size - piece.region.low, begin, piece.region.nbytes
        low, high = use.region.low, use.region.high
        moves = [m for part, piece in sources for m in self.moves(use.allocation, part, piece, low)]
        self.rooms.append({"nbytes": high - low, "moves": moves})
        return "room", len(self.rooms) - 1, like.offset * size - low // size * size

    def moves(self, allocation: Allocation, part: Region, piece: Piece | None, shift: int) -> list[list[Any]]:
        """Copies that put a part where it belongs, in memory whose first byte is byte `shift` of the allocation."""
        begins, runs = part.spans[:, 0], part.spans[:, 1] - part.spans[:, 0]
        if piece is None:
            source: list[Any] = ["array", self.places.read(allocation, part)]
            return [[*source, *row] for row in _grouped(begins, begins - shift, runs)]
        starts = piece.region.spans[:, 0]
        offsets = np.concatenate([[0], np.cumsum(piece.region.spans[:, 1] - starts)])
        within = np.searchsorted(starts, begins, side="right") - 1
        packed = self.places.saved_piece(piece) + offsets[within] + begins - starts[within]
        return [["saved", 0, *row] for row in _grouped(packed, begins - shift, runs)]


# --- what the recording knows of its arrays ----------------------------------------------------------------------------------------------


def _of_numbers(operation: Operation) -> Iterator[tuple[str, Any]]:
    """The shadows (flat) of the numbers that an operation is given, by the names of its parameters."""
    if isinstance(operation, Ruled) and operation.flows:
        yield from ((name, leaf_memory(active.shadow).root) for name, active in operation.actives.items())
    elif isinstance(operation, Launched) and operation.adjoint is not None:
        yield from ((a.name, shadow.root) for a in operation.call.bound.arguments if not a.is_pointer for shadow in a.shadows)


def _dtypes(operations: Iterable[Operation]) -> dict[int, str]:
    """The element type of each allocation, by its address."""
    launched = [op for op in operations if isinstance(op, Launched)]
    memories = [a.memory for op in launched for a in op.call.bound.arguments if a.memory is not None]
    found: dict[int, str] = {}
    memories += [o.memory for op in operations if isinstance(op, Ruled) for o in op.operands.values()]
    for memory in memories:
        found.setdefault(address(memory.root), str(memory.root.dtype))
    for op in operations:
        for use in op.effects.writes if isinstance(op, Foreign) else ():
            found.setdefault(use.allocation.address, str(use.allocation.root.dtype))
    return found


def _layouts(operations: Iterable[Operation], names: Mapping[str, Any]) -> dict[int, list[tuple[tuple[int, ...], str]]]:
    """How the arrays are laid out that are all of an allocation, by its address: shape, and 'C' or 'F'."""
    found: dict[int, dict[tuple[tuple[int, ...], str], None]] = {}
    named = (getattr(a, "primal", a) for a in names.values())
    met = ((memory, array) for operation in operations for memory, array in _arrays_of(operation))
    for memory, array in chain(met, ((resolve(array), array) for array in named)):
        order = order_of(array)
        if order and array.nbytes == memory.root.nbytes:
            found.setdefault(address(memory.root), {})[tuple(map(int, array.shape)), order] = None
    return {where: list(layouts) for where, layouts in found.items()}


def _arrays_of(operation: Operation) -> Iterator[tuple[Memory, Any]]:
    if isinstance(operation, Launched):
        yield from ((a.memory, a.array) for a in operation.call.bound.arguments if a.memory is not None and a.array is not None)
    elif isinstance(operation, Ruled):
        yield from ((o.memory, o.array) for o in operation.operands.values())


# --- tables ------------------------------------------------------------------------------------------------------------------------------


def even_runs(region: Region) -> list[list[int]]:
    """[low, stride, run, count] of evenly spaced runs."""
    return [[r.low, r.stride, r.run, r.count] for r in rows(region)] if region else []


def _grouped(sources: Any, targets: Any, runs: Any) -> list[list[int]]:
    """[source, step, target, stride, run, count]: runs as few groups evenly spaced on both sides."""
    found: list[list[int]] = []
    for source, target, run in zip(sources.tolist(), targets.tolist(), runs.tolist(), strict=True):
        if found and found[-1][4] == run:
            s, step, t, stride, _, count = found[-1]
            if count == 1:
                found[-1][1], found[-1][3], found[-1][5] = source - s, target - t, 2
                continue
            if (source, target) == (s + step * count, t + stride * count):
                found[-1][5] += 1
                continue
        found.append([source, 0, target, 0, run, 1])
    return found


def _bytes_of(array: Any) -> bytes:
    host: Any = array if isinstance(array, np.ndarray) else array.get()
    return bytes(host.tobytes())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

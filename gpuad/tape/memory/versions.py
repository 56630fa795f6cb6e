"""Allocations, what has been saved of them, and where an earlier version of a region is to be found.

While operations are recorded, an allocation knows which of its live bytes some recorded operation will need (`pending`). Just before an
operation overwrites such bytes they are copied into a `Piece`, once for all who need them. So a version is no copy of an array but a rule:
what operation number t saw at a place is in the first piece that was saved there at or after t, and if there is none, it is still there.
Going back in time, `Versions` keeps the table of pieces that stand for the present moment.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arguments.arrays import address, namespace
from ...program.ir.region import EMPTY, Region, span
from ...runtime.actions import Action, Copying, clearing, copying, perform, perform_one
from ...runtime.array_types import NdArray
from .lossy import Lossy


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """The bytes `region` of an allocation as they were before operation `time`, in `data` (uint8): packed one span after the other, or, if
    there is a `base`, each at its place, with the allocation's byte `base` first. What is between the spans then is unused: a
    version that this piece makes up but for little is completed there, rather than put together elsewhere. `saving`: what copied them;
    `lossy`: by which they are stored less exactly, packed."""

    time: int
    region: Region
    data: Any
    base: int | None = None
    saving: tuple[Action, ...] = ()
    lossy: Lossy | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that were copied."""
        return self.region.nbytes if self.lossy is None else int(self.data.size)

    @property
    def packed(self) -> Any:
        """The bytes one span after the other."""
        if self.base is None or self.data.size == self.region.nbytes:
            return self.data
        packed = namespace(self.data).empty(self.region.nbytes, np.uint8)
        gather(self.data, self.region.moved(-self.base), packed)
        return packed


@dataclass(frozen=True, eq=False, slots=True)
class DeferrableNeed:
    """Operation number `time` needs the bytes `region`, through its argument at `position`, or something that does instead."""

    time: int
    region: Region
    position: int


@dataclass(eq=False)
class Allocation:
    """One allocation that a recording has met. The recording keeps `root` (flat, uint8) alive, so its address is its own."""

    root: NdArray
    address: int
    name: str
    lossy: tuple[Lossy, ...] = ()  # of which earlier versions are stored less exactly
    pending: Region = EMPTY
    deferrable: list[DeferrableNeed] = field(default_factory=list)  # needed too, unless a few values can be kept instead
    results: list[DeferrableNeed] = field(default_factory=list)  # and this, unless a stack can do instead
    tainted: Region = EMPTY  # holds values that depend on active data, but has no shadow there
    read_bare: Region = EMPTY  # was read by operations that took it for inactive
    written_bare: Region = EMPTY  # was written by operations that took it for inactive
    used: Region = EMPTY  # has a shadow and was met by operations; noted where these are looked at
    marks: tuple[tuple[Region, int], ...] = ()  # fingerprints of what is needed, and of what else is used
    written: Region = EMPTY
    cleared: Region = EMPTY  # whose shadows are zero when a reversal with seeds begins
    initial: Region = EMPTY  # of which the state before the recording is in pieces
    pieces: list[Piece] = field(default_factory=list)

    def forget(self, name: str) -> None:
        """Begins anew: no operation has met it."""
        self.__dict__.update(Allocation(self.root, self.address, name, self.lossy).__dict__)

    @property
    def needed(self) -> Region:
        """Which of the live bytes adjoints will read, as things stand."""
        found = self.pending
        for need in (*self.deferrable, *self.results):
            found = found | need.region
        return found

    @property
    def accessed(self) -> Region:
        """Which bytes operations are known to read or write."""
        return self.used | self.written | self.read_bare | self.written_bare | self.needed

    def parts(self, region: Region) -> list[tuple[Region, Lossy | None]]:
        """A region by how its bytes are stored."""
        found: list[tuple[Region, Lossy | None]] = []
        for lossy in self.lossy:
            part = lossy.part(region)
            if part:
                found.append((part, lossy))
                region = region - part
        return [*found, (region, None)] if region else found

    def stored_bytes(self, region: Region) -> int:
        """What storing a region takes, packed."""
        return sum(part.nbytes if lossy is None else lossy.nbytes(part) for part, lossy in self.parts(region))

    def save(
        self, region: Region, time: int, room: Callable[[int], Any], do: Callable[[Action], None] = perform_one, *, exact: bool = False
    ) -> None:
        """Copies the region's bytes as they are now; `do` does so. `exact`: all of them to the bit."""
        for part, lossy in [(region, None)] if exact else self.parts(region):
            base, nbytes = home_of(part, self.pending | part, self.root, lossy)
            piece = piece_of(self.root, part, time, room(nbytes), base, lossy)
            for action in piece.saving:
                do(action)
            self.pieces.append(piece)


def home_of(region: Region, needed: Region, root: NdArray, lossy: Lossy | None = None) -> tuple[int | None, int]:
    """Where a region is saved: the allocation's byte that comes first (None: packed), and how many bytes that takes. `needed`: what is
    needed of the allocation; `lossy`: how it is stored less exactly."""
    if lossy is not None:
        return None, lossy.nbytes(region)
    around = _home(region, needed, int(root.size))
    return (None, region.nbytes) if around is None else (around[0], around[1] - around[0])


def piece_of(root: NdArray, region: Region, time: int, data: Any, base: int | None, lossy: Lossy | None = None) -> Piece:
    """The piece that saves a region of an allocation in `data`, by actions that are not done yet."""
    if lossy is not None:
        return Piece(time, region, data, None, (lossy.saving(root, region, data),), lossy)
    whole = region if base is None else _with_gaps(region, root)
    saving = tuple(gathering(root, region, data) if base is None else copying_live(root, whole, data, base))
    return Piece(time, region, data, base, saving)


NEAR = 1 << 26  # bytes; what was saved before the last so many is in no cache any more when it is read


def send_far(allocations: Iterable[Allocation]) -> None:
    """Has what is read long after it is saved copied past the caches, when it is saved the next time: the first is read last."""
    pieces = [p for a in allocations for p in a.pieces]
    later = sum(int(p.data.size) for p in pieces)
    for piece in sorted(pieces, key=lambda piece: piece.time) if later > NEAR else ():
        later -= int(piece.data.size)
        for action in piece.saving:
            if isinstance(action, Copying):
                action.far = later >= NEAR


Source = tuple[Region, "Piece | None"]  # bytes, and the piece that holds them (None: live)


class Versions:
    """Where the bytes of each allocation are at the moment that a reversal has come back to."""

    def __init__(self, pieces: Callable[[Allocation], Sequence[Piece]] = lambda a: a.pieces) -> None:
        self.pieces = pieces
        self.tables: dict[int, list[tuple[Region, Piece]]] = {}
        self.next: dict[int, int] = {}

    def back_to(self, allocation: Allocation, time: int) -> None:
        """Moves the allocation's moment to just before operation `time`; calls come with falling times."""
        pieces = self.pieces(allocation)
        at = self.next.get(id(allocation), len(pieces))
        while at > 0 and pieces[at - 1].time >= time:
            at -= 1
            piece = pieces[at]
            table = self.tables.get(id(allocation), [])
            kept = [(rest, other) for region, other in table if (rest := region - piece.region)]
            self.tables[id(allocation)] = [(piece.region, piece), *kept]
        self.next[id(allocation)] = at

    def brought_back(self, allocation: Allocation, region: Region) -> None:
        """The region's version of this moment is in the allocation itself again."""
        table = self.tables.get(id(allocation), [])
        self.tables[id(allocation)] = [(rest, piece) for held, piece in table if (rest := held - region)]

    def sources(self, allocation: Allocation, region: Region) -> list[Source]:
        """What the region's version is made of at this moment."""
        found: list[Source] = []
        rest = region
        for held, piece in self.tables.get(id(allocation), ()):
            part = rest & held
            if part:
                found.append((part, piece))
                rest = rest - part
        return [*found, (rest, None)] if rest else found


GAPS = 1 / 16  # share of a region's bytes that may lie between and beside its spans for it to be saved in place
MANY = 64  # groups of runs, beyond which bytes are copied by their offsets
FEW = 1 << 18  # offsets that are worth remembering
LONG = 1 << 23  # bytes
PORTION = 1 << 16  # bytes


def _home(region: Region, needed: Region, size: int) -> tuple[int, int] | None:
    """The first byte, and that after the last, of what the region makes up but for little, if it is worth being saved in place: of the
    allocation of `size` bytes, else of what is needed of it. A single span always is."""
    if size <= (1 + GAPS) * region.nbytes and few_rows(region) is not None:
        return 0, size
    if needed.high - needed.low <= (1 + GAPS) * region.nbytes and few_rows(region) is not None:
        return needed.low, needed.high
    return (region.low, region.high) if len(region.spans) == 1 else None


def _with_gaps(region: Region, root: NdArray) -> Region:
    """What is copied to save a region in place: one span, with what is between, is faster than many. On a CPU that ends where its C library
    goes past the caches."""
    return span(region.low, region.high) if not isinstance(root, np.ndarray) or region.high - region.low <= LONG else region


# --- copying regions ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """`count` runs of `run` bytes, `stride` apart from `low` on; `at` is their place in the packed bytes."""

    at: int
    low: int
    run: int
    stride: int
    count: int


def rows(region: Region) -> tuple[Rows, ...]:
    """The region as few groups of evenly spaced runs."""
    return few_rows(region) or tuple(_groups(region))


def few_rows(region: Region) -> tuple[Rows, ...] | None:
    """A region's rows, or None if they are more than MANY; found out once."""
    if region.groups is None:
        found = tuple(islice(_groups(region), MANY + 1))
        region.groups = found if len(found) <= MANY else ()
    groups: tuple[Rows, ...] = region.groups
    return groups if groups or not region else None


def _groups(region: Region) -> Iterator[Rows]:
    begins, runs = region.spans[:, 0], region.spans[:, 1] - region.spans[:, 0]
    steps = np.diff(begins)
    at = i = 0
    changes = np.flatnonzero((steps[1:] != steps[:-1]) | (runs[2:] != runs[1:-1])) + 1 if len(steps) > 1 else np.zeros(0, np.int64)
    while i < len(begins):
        count = 1
        if i + 1 < len(begins) and runs[i + 1] == runs[i]:
            later = changes[np.searchsorted(changes, i + 1)] if len(changes) and changes[-1] > i else len(begins) - 1
            count = int(later) - i + 1
        stride = int(steps[i]) if count > 1 else int(runs[i])
        yield Rows(at, int(begins[i]), int(runs[i]), stride, count)
        at += int(runs[i]) * count
        i += count


def _grid(array: NdArray, low: int, r: Rows) -> Any:
    """A view of the runs, of which the first begins with element `low` of a flat array, as a matrix."""
    size = int(array.dtype.itemsize)
    if r.count == 1:
        return array[low : low + r.run].reshape(1, r.run)
    shape, strides = (r.count, r.run), (r.stride * size, size)
    if isinstance(array, np.ndarray):  # as_strided makes an object more
        return np.ndarray(shape, array.dtype, array, low * size, strides)
    return sys.modules["cupy"].lib.stride_tricks.as_strided(array[low:], shape, strides)


_WORDS = {8: np.uint64, 4: np.uint32, 2: np.uint16}


def _moving(target: NdArray, source: Any) -> Action:
    """Copies a matrix of bytes. On a GPU, where a thread copies an element, runs with gaps between go by words, as long as their places and
    lengths allow."""
    if isinstance(target, np.ndarray) or (target.flags.c_contiguous and source.flags.c_contiguous):
        return copying(target, source)
    word = _WORDS.get(math.gcd(8, target.shape[1], target.strides[0], source.strides[0], address(target), address(source)))
    return copying(target, source) if word is None else copying(target.view(word), source.view(word))


def clearing_of(array: NdArray, elements: Region) -> list[Action]:
    """What sets elements of a flat array to 0, evenly spaced runs at once."""
    return [clearing(array[r.low : r.low + r.run] if r.count == 1 else _grid(array, r.low, r)) for r in rows(elements)]


def gathering(source: Any, region: Region, packed: Any) -> list[Action]:
    """What packs the region's bytes of `source` (flat, uint8) one span after the other."""
    groups = few_rows(region)
    if groups is None:
        unit = _unit(region)
        if unit > 1:
            source, packed = (_words(array, unit) for array in (source, packed))
        return [partial(_taken, source, region, unit, packed)]
    return [_moving(packed[r.at : r.at + r.run * r.count].reshape(r.count, r.run), _grid(source, r.low, r)) for r in groups]


def portions(source: NDArray[np.uint8], region: Region, room: Callable[[int], Any]) -> Iterator[NDArray[np.uint8]]:
    """The region's bytes in an array of the host, a portion after the other, all in the same room."""
    groups = few_rows(region)
    return _portions(source, region, room) if groups is None else _of_rows(source, groups, room)


def _of_rows(source: NDArray[np.uint8], groups: Sequence[Rows], room: Callable[[int], Any]) -> Iterator[NDArray[np.uint8]]:
    packed: Any = None
    for r in groups:
        if 2 * r.run > PORTION or r.count == 1:
            yield from (source[low : low + r.run] for low in range(r.low, r.low + r.stride * r.count, r.stride))
            continue
        packed, grid, most = room(PORTION) if packed is None else packed, _grid(source, r.low, r), PORTION // r.run
        for begin in range(0, r.count, most):
            some = grid[begin : begin + most]
            here = packed[: some.size]
            here.reshape(some.shape)[...] = some
            yield here


def _portions(source: NDArray[np.uint8], region: Region, room: Callable[[int], Any]) -> Iterator[NDArray[np.uint8]]:
    unit = _unit(region)
    words, at, step = (_words(source, unit) if unit > 1 else source), places(region, unit), PORTION // unit
    packed = room(min(region.nbytes, PORTION))
    for begin in range(0, len(at), step):
        chosen = at[begin : begin + step]
        here = packed[: len(chosen) * unit]
        np.take(words, chosen, 0, out=_words(here, unit) if unit > 1 else here, mode="clip")
        yield here


def gather(source: Any, region: Region, packed: Any) -> None:
    """Packs them now."""
    perform(gathering(source, region, packed))


def _taken(source: Any, region: Region, unit: int, packed: Any) -> None:
    at = places(region, unit)
    if isinstance(source, np.ndarray):
        np.take(source, at, 0, out=packed, mode="clip")  # "raise" would make an array of its own first
    else:
        packed[...] = source[at]


def _put(packed: Any, region: Region, target: NdArray, shift: int) -> None:
    target[places(region) - shift] = packed


def scattering(packed: Any, region: Region, target: NdArray, shift: int = 0) -> list[Action]:
    """What puts packed bytes back to where they belong, in `target`, whose first byte is byte `shift` of the allocation."""
    groups = few_rows(region)
    if groups is None:
        return [partial(_put, packed, region, target, shift)]
    return [_moving(_grid(target, r.low - shift, r), packed[r.at : r.at + r.run * r.count].reshape(r.count, r.run)) for r in groups]


@lru_cache(256)
def _unit(region: Region) -> int:
    """64 or 8 where all bytes can be copied in blocks or words of so many, with so many times fewer offsets; else 1."""
    return next(unit for unit in (64, 8, 1) if not (region.spans % unit).any())


def _words(array: NdArray, unit: int) -> Any:
    """Bytes as words of 8, or as rows of `unit` bytes."""
    words = array[: array.size // unit * unit].view(np.uint64)
    return words if unit == 8 else words.reshape(-1, unit // 8)


def places(region: Region, unit: int = 1) -> NDArray[np.int64]:
    """The offset of each byte, in order, or of each `unit` bytes, in such units."""
    return (_places if region.nbytes > unit * FEW else _few_places)(region, unit)


def _places(region: Region, unit: int) -> NDArray[np.int64]:
    begins, runs = region.spans[:, 0] // unit, (region.spans[:, 1] - region.spans[:, 0]) // unit
    first = np.cumsum(runs) - runs
    return np.repeat(begins - first, runs) + np.arange(region.nbytes // unit)


_few_places = lru_cache(8)(_places)


def placing(piece: Piece, part: Region, target: NdArray, shift: int) -> list[Action]:
    """What copies a part of a piece to its place in `target`."""
    if piece.lossy is not None:
        return [piece.lossy.placing(piece.data, piece.region, part, target, shift)]
    if piece.base is not None:
        return copying_live(piece.data, part, target, shift, piece.base)
    if part is piece.region:
        return scattering(piece.data, part, target, shift)
    begins = piece.region.spans[:, 0]
    offsets = np.concatenate([[0], np.cumsum(piece.region.spans[:, 1] - begins)])
    found: list[Action] = []
    for low, high in part.spans.tolist():
        i = int(np.searchsorted(begins, low, side="right")) - 1
        at = int(offsets[i] + low - begins[i])
        found.append(copying(target[low - shift : high - shift], piece.data[at : at + high - low]))
    return found


def copying_live(root: NdArray, part: Region, target: NdArray, shift: int, base: int = 0) -> list[Action]:
    """What copies bytes to their place in `target`; `root` begins with byte `base` of the allocation."""
    groups = few_rows(part)
    if groups is None:
        return [partial(_copied, root, part, target, shift, base)]
    return [_moving(_grid(target, r.low - shift, r), _grid(root, r.low - base, r)) for r in groups]


def _copied(root: NdArray, part: Region, target: NdArray, shift: int, base: int) -> None:
    at = places(part)
    target[at - shift] = root[at - base]

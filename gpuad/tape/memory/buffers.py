"""Buffers: allocations of a tape that stand for allocations of its caller, and the arrays of both by their places.

In: an array of the caller. Out: the array in a buffer that stands for it, with the same layout at the same byte of the allocation, and
copies between the two (`Part`). Which buffer stands for what is decided by `staging`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...arguments.annotations import Active, BatchDuplicated, Const, Duplicated
from ...arguments.arrays import address, is_array, leaf_memory, resolve
from ...arguments.layouts import layout
from ...errors import GpuadError
from ...ir.dtypes import shadow_dtype
from ...program.ir.region import Region, of_array
from ...runtime.actions import Action, copying
from ...runtime.array_locks import unlocked, writeable
from ...runtime.array_types import NdArray
from ...runtime.tensor_versions import count_writes

Outline: TypeAlias = "KnownArray | tuple[Outline, ...] | None"
CONTAINERS = (tuple, list)


@dataclass(frozen=True, slots=True)
class KnownArray:
    """An array as a program met it: its layout, and the address of its allocation (`home`)."""

    layout: tuple[Any, ...]
    home: int


def outline(x: Any) -> Outline:
    """The arrays of an argument as a program meets them, in the argument's structure; None for what has none."""
    if isinstance(x, Duplicated):
        return outline(x.primal), outline(x._own_shadow) if x.has_shadow else None
    if isinstance(x, BatchDuplicated):
        return outline(x.primal), *map(outline, x.shadows)
    if isinstance(x, Active):
        return outline(x.shadow)
    if isinstance(x, Const):
        return outline(x.primal)
    if type(x) in CONTAINERS:
        return tuple(map(outline, x))
    if type(x) is dict:
        return tuple(map(outline, x.values()))
    return KnownArray(layout(x), address(resolve(x).root)) if can_be_staged(x) else None


def homes(outlines: Iterable[Outline]) -> Iterator[int]:
    """The addresses of the allocations in some outlines."""
    for each in outlines:
        if isinstance(each, KnownArray):
            yield each.home
        elif each is not None:
            yield from homes(each)


class Buffer:
    """`root` (flat, bytes), which stands for an allocation of the caller's. `outside`: all bytes of that of this round, None before it has
    come."""

    __slots__ = ("_views", "open", "outside", "root")

    def __init__(self, root: NdArray) -> None:
        self.root: Any = root
        self.open: Any = self.root[:]  # by which it is written while what was made of it is locked
        self.outside: Any = None
        self._views: dict[Any, Any] = {}

    def inside(self, array: Any, offset: int) -> Any:
        """The elements in the buffer that stand for those of an array which begins at byte `offset` of its allocation: the same view for
        the same elements."""
        key = offset, *layout(array)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _placed(self.open[:], offset, array.shape, array.dtype, array.strides)
            if not writeable(array):
                view.flags.writeable = False
        return view

    @classmethod
    def of(cls, array: Any) -> Buffer:
        """The memory of an array, all of which it is, as a buffer."""
        root, offset = bytes_of(array)
        buffer = cls(root)
        buffer._views[(offset, *layout(array))] = array
        return buffer

    def shadow(self, array: Any, offset: int, whole: Any) -> Any:
        """The elements in a buffer for the shadow of `whole` that are the shadow of an array in the same allocation."""
        times = shadow_dtype(whole.dtype).itemsize // whole.dtype.itemsize  # of halves it is wider
        key = "shadow", offset, *layout(array)
        if key not in self._views:
            steps = tuple(step * times for step in array.strides)
            self._views[key] = _placed(self.open[:], offset * times, array.shape, shadow_dtype(array.dtype), steps)
        return self._views[key]

    def part(self, region: Region, array: Any) -> Part:
        """The bytes of a region, as elements of an array of the buffer that covers it, or else from its first to its last."""
        if array is not None:
            memory = leaf_memory(array)
            offset = memory.offset * int(memory.root.dtype.itemsize)
            if region <= of_array(array, offset):
                return Part(self, _placed(self.open, offset, array.shape, array.dtype, array.strides), offset)
        return Part(self, self.open[region.low : region.high], region.low)


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """Elements of a buffer, which lie at its byte `offset`."""

    buffer: Buffer
    elements: Any
    offset: int

    @property
    def key(self) -> tuple[Any, ...]:
        return id(self.buffer), self.offset, *layout(self.elements)

    @property
    def outside(self) -> Any:
        """The elements of the caller's array that they stand for; None where it has not come."""
        root, own = self.buffer.outside, self.elements
        return None if root is None else _placed(root, self.offset, own.shape, own.dtype, own.strides)

    def load(self) -> None:
        """Copies them in."""
        outside = self.outside
        if outside is not None:
            self.elements[...] = outside

    def store(self) -> None:
        """Copies them out."""
        outside = self.outside
        if outside is not None:
            outside[...] = self.elements
            count_writes((outside,))

    def captured(self, load: bool) -> list[Action]:
        """The same with the array of this round, whichever comes later."""
        outside = self.outside
        return [] if outside is None else [copying(self.elements, outside) if load else copying(outside, self.elements)]


class Spans:
    """Ranges of addresses, none of which overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges = sorted(ranges)

    def overlaps(self, begin: int, end: int) -> bool:
        """True if any of them has an address from `begin` to `end`."""
        at = bisect_left(self._ranges, (end, end))
        return at > 0 and self._ranges[at - 1][1] > begin

    def add(self, begin: int, end: int) -> None:
        insort(self._ranges, (begin, end))

    def remove(self, begin: int) -> None:
        """Takes out the range that begins there."""
        at = bisect_left(self._ranges, (begin, 0))
        del self._ranges[at : at + 1]


def can_be_staged(x: Any) -> bool:
    """True if it is an array of numbers, of NumPy or CuPy, in memory that a program can work on."""
    if not (type(x) is np.ndarray or (is_array(x) and not isinstance(x, np.ndarray))) or not x.size or x.dtype.hasobject:
        return False
    try:
        resolve(x)
    except GpuadError:
        return False
    return True


def bytes_of(array: Any) -> tuple[Any, int]:
    """All bytes of the allocation behind an array, flat, and at which of them the array begins."""
    if type(array) is np.ndarray and array.base is None and array.flags.c_contiguous:
        return unlocked(array).reshape(-1).view(np.uint8), 0
    memory = resolve(array)
    return resolve(memory.root.view(np.uint8)).root, memory.offset * int(array.dtype.itemsize)


def _placed(root: Any, offset: int, shape: Any, dtype: Any, strides: Any) -> Any:
    """An array in flat bytes."""
    if isinstance(root, np.ndarray):
        return np.ndarray(shape, dtype, root, offset, strides)
    return type(root)(shape, dtype, root.data + offset, strides)


def loading(parts: Iterable[Part]) -> tuple[Action, ...]:
    """What copies parts in."""
    return tuple(part.load for part in parts)


def storing(parts: Iterable[Part]) -> tuple[Action, ...]:
    """What copies parts out."""
    return tuple(part.store for part in parts)


__all__ = [
    "CONTAINERS",
    "Buffer",
    "KnownArray",
    "Outline",
    "Part",
    "Spans",
    "bytes_of",
    "can_be_staged",
    "homes",
    "loading",
    "outline",
    "storing",
]

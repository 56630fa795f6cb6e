"""How the arguments of a call lie in memory beside each other, and whether their shadows mirror that.

Primals overlap if and only if their shadows do, at the same element offsets: the reverse kernel reaches a shadow through the same index
expressions as the primal. Overlap is exact on strided sets. Views of one allocation that share no element may still meet, since a
kernel may reach outside of its view; unless it provably does not, their shadows must lie alike too.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ShadowError
from ..runtime.array_types import NdArray
from ..runtime.base import Memory
from .arrays import address, resolve
from .conversions import BoundArgument, Place

_OVERLAP_WORK = 100_000  # bound on NumPy's exact solver for overlapping strided sets


@dataclass(frozen=True)
class Alias:
    """How a pointer argument lies beside the ones before it.

    `allocation`: position of the first argument in the same allocation (its own if there is none). `overlap`: position of the first
    argument with which its view shares elements, directly or through others. `offset`: elements from `overlap`'s pointer to this one's,
    None if that is no whole number of elements. `allocation_offset`: the same from `allocation`'s pointer. `equal`: same pointer, shape
    and strides as `overlap`.
    """

    allocation: int
    overlap: int
    offset: int | None
    allocation_offset: int | None
    equal: bool


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """The memory of an array, as byte addresses: its first element, the hull of its elements, and its allocation (ends excluded). `unit`:
    bytes of what a pointer to it counts, the numbers that its elements consist of."""

    array: NdArray
    start: int
    low: int
    high: int
    root_low: int
    root_high: int
    unit: int


def region(array: NdArray, memory: Memory | None = None) -> Region:
    """Where an array lies."""
    memory = resolve(array) if memory is None else memory
    start = address(array)
    root = start - memory.offset * int(memory.root.dtype.itemsize)
    return Region(array, start, *hull(array), root, root + int(memory.root.nbytes), memory.itemsize)


def hull(array: NdArray) -> tuple[int, int]:
    """The addresses between which an array's elements lie (the end excluded)."""
    low = high = address(array)
    for step, count in zip(array.strides, array.shape, strict=True):
        reach = step * (count - 1)
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high + int(array.dtype.itemsize) if array.size else low


def overlap(a: Region, b: Region) -> bool:
    """True if two arrays share memory, exactly on strided sets; arrays without elements never do.

    Raises ShadowError where that cannot be found out with reasonable work.
    """
    if a.low >= b.high or b.low >= a.high or a.array.size == 0 or b.array.size == 0:
        return False
    try:
        return bool(np.shares_memory(_stand_in(a), _stand_in(b), max_work=_OVERLAP_WORK))  # type: ignore[arg-type]  # the stubs know -1 and 0
    except np.exceptions.TooHardError:
        strides = f"{a.array.strides} and {b.array.strides}"
        raise ShadowError(
            f"cannot tell whether two views (strides {strides}) overlap; pass contiguous copies. Nothing was launched."
        ) from None


@dataclass(frozen=True)
class _View:
    """Something with nothing but a place: NumPy judges overlap from address, shape and strides, and never reads."""

    __array_interface__: dict[str, Any]


def _stand_in(region: Region) -> Any:
    array = region.array
    where = {"data": (region.start, True), "shape": tuple(array.shape), "strides": tuple(array.strides), "typestr": array.dtype.str}
    return np.asarray(_View({"version": 3, **where}))


def judge(
    places: Sequence[Place], bound: Sequence[BoundArgument], stores: Collection[str], inside: Collection[str]
) -> tuple[Alias | None, ...]:
    """Checks all arguments and shadows against each other; gives an entry an argument, None where there are no elements to share.

    `stores` and `inside`: names of the parameters that may be written, and of those that provably stay inside of their views.
    Raises ShadowError.
    """
    primals = {a.position: region(a.array, a.memory) for a in bound if a.array is not None and a.array.size}
    shadows = {a.position: tuple(map(region, a.shadow_arrays, a.shadows)) for a in bound}
    if _in_own_allocations([*primals.values(), *itertools.chain(*shadows.values())]):
        return tuple(Alias(p, p, 0, 0, True) if p in primals else None for p in range(len(bound)))
    _Pairs(places, bound, primals, shadows, stores, inside).check()
    return _aliases(len(bound), primals)


def _in_own_allocations(regions: Iterable[Region]) -> bool:
    """True if no two lie in one allocation."""
    ordered = sorted(regions, key=lambda r: r.root_low)
    return all(a.root_high <= b.root_low for a, b in itertools.pairwise(ordered))


def _together(a: Region, b: Region) -> bool:
    """True if two lie in one allocation."""
    return a.root_low < b.root_high and b.root_low < a.root_high


def _distance(a: Region, b: Region) -> int | None:
    """Units from the pointer of `b` to that of `a`, None if that is no whole number of equal units."""
    whole, rest = divmod(a.start - b.start, a.unit)
    return whole if rest == 0 and b.unit == a.unit else None


def _aliases(count: int, primals: Mapping[int, Region]) -> tuple[Alias | None, ...]:
    joined = {p: p for p in primals}
    for p, q in itertools.combinations(primals, 2):
        if overlap(primals[p], primals[q]):
            first, last = sorted((joined[p], joined[q]))
            joined = {k: first if root == last else root for k, root in joined.items()}
    return tuple(_alias(primals, p, joined[p]) if p in primals else None for p in range(count))


def _alias(primals: Mapping[int, Region], position: int, root: int) -> Alias:
    mine, other = primals[position], primals[root]
    allocation = next(p for p, region in primals.items() if _together(region, mine))
    offset = _distance(mine, other)
    one, two = mine.array, other.array
    alike = (one.shape, one.strides, one.dtype) == (two.shape, two.strides, two.dtype)
    return Alias(allocation, root, offset, _distance(mine, primals[allocation]), offset == 0 and alike)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """All arguments with elements, to be compared two by two."""

    places: Sequence[Place]
    bound: Sequence[BoundArgument]
    primals: Mapping[int, Region]
    shadows: Mapping[int, tuple[Region, ...]]
    stores: Collection[str]
    inside: Collection[str]

    def check(self) -> None:
        """Raises ShadowError for the first pair that does not fit."""
        for p, q in itertools.product(self.shadows, self.primals):
            self._shadow_on_primal(p, q)
        for p in self.shadows:
            self._own_shadows(p)
        for p, q in itertools.combinations(self.shadows, 2):
            if self.shadows[p] and self.shadows[q]:
                self._mirror(p, q)
            elif p in self.primals and q in self.primals:
                self._bare(p, q)

    def _name(self, position: int) -> str:
        return self.bound[position].name

    def _shadow_on_primal(self, p: int, q: int) -> None:
        for shadow in self.shadows[p]:
            if overlap(shadow, self.primals[q]):
                whose = "itself" if p == q and shadow.start == self.primals[q].start else f"memory of `{self._name(q)}`"
                raise self.places[p].refuse(f"has as its shadow {whose}; a shadow is an array of its own: zeros_like(x).", ShadowError)

    def _own_shadows(self, p: int) -> None:
        if any(overlap(a, b) for a, b in itertools.combinations(self.shadows[p], 2)):
            raise self.places[p].refuse("has two shadows that overlap each other.", ShadowError)

    def _mirror(self, p: int, q: int) -> None:
        """Primals in one allocation count as overlapping, unless both provably stay inside of their views."""
        a, b = self.primals.get(p), self.primals.get(q)
        meet = a is not None and b is not None and overlap(a, b)
        if not meet and any(overlap(x, y) for x in self.shadows[p] for y in self.shadows[q]):
            raise self.places[q].refuse(
                f"shares its shadow with `{self._name(p)}`, which is another primal; give each its own shadow.", ShadowError
            )
        if a is None or b is None or not (meet or self._reaches(p, q)):
            return
        if self._alike(_distance(b, a), self.shadows[p], self.shadows[q]):
            return
        raise self.places[q].refuse(
            f"and `{self._name(p)}` {'overlap' if meet else 'are views of one array'}, but their shadows do not lie in the same way: "
            "primals overlap if and only if their shadows do, at the same offsets. Make the shadow once and slice the pair: "
            "U = Duplicated(u, du); V = U[...].", ShadowError,
        )  # fmt: skip

    def _may_share_floats(self, p: int, q: int) -> bool:
        """True if two views of numbers lie in one allocation and one of them may be left."""
        memories = (self.bound[p].memory, self.bound[q].memory)
        numbers = all(m is not None and m.is_float for m in memories) and self.primals[p].unit == self.primals[q].unit
        return numbers and self._reaches(p, q)

    def _reaches(self, p: int, q: int) -> bool:
        """True if two views lie in one allocation and one of them may be left."""
        return _together(self.primals[p], self.primals[q]) and not {self._name(p), self._name(q)} <= set(self.inside)

    @staticmethod
    def _alike(step: int | None, first: Sequence[Region], second: Sequence[Region]) -> bool:
        return step is not None and all(_together(x, y) and _distance(y, x) == step for x, y in zip(first, second, strict=True))

    def _bare(self, p: int, q: int) -> None:
        """What has a shadow is not passed beside it without one: its reads would drop a term, its writes would leave a stale shadow. So it
        may be where the kernel may reach from the one to the other, for all that is known."""
        if not (self.shadows[p] or self.shadows[q]):
            return
        plain, paired = (p, q) if self.shadows[q] else (q, p)
        meet, stored = overlap(self.primals[p], self.primals[q]), self._name(plain) in self.stores
        if not (meet or self._may_share_floats(p, q)) or (self.bound[plain].kind == "stopped" and not stored):
            return
        if not meet:
            raise self.places[plain].refuse(
                f"has no shadow and lies in one array with `{self._name(paired)}`, which has one, and the kernel may reach from one to the "
                f"other, for all that is known of its indices: pass a copy, or Duplicated with a shadow that lies beside that of "
                f"`{self._name(paired)}` in the same way.", ShadowError,
            )  # fmt: skip
        escape = "" if stored else ", or gpuad.stop_gradient(x) to drop this gradient on purpose"
        what = f"is memory of `{self._name(paired)}`, which has a shadow: pass Duplicated with that shadow here too{escape}."
        raise self.places[plain].refuse(what, ShadowError)

"""Seeds that are read where the caller has them.

A seed is copied into the shadow that it belongs to, and more often than not the first adjoint that meets it takes it: it reads each element
once, and the shadow is not looked at before it is cleared. Then that adjoint may as well read the seed itself, and the copy is left out.

That is decided by the plan of a reversal. Whatever else comes to a shadow whose seed is elsewhere, be it only to a part of it, has the seed
copied first; so has the end of the reversal. A seed that is read in place is an array that the caller keeps: the plan has its address.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ...arguments.arrays import address, is_array, namespace, resolve
from ...errors import LaunchError
from ...program.ir.region import Region
from ...runtime.actions import Action, copying
from ...runtime.array_types import NdArray
from ...runtime.base import Memory

Where = tuple[int, int]


def where_of(root: NdArray) -> Where:
    """The address of an allocation and the size of its elements: structs have shadows of several sizes in one allocation, bytes apart."""
    return address(root), int(root.dtype.itemsize)


@dataclass(frozen=True, eq=False)
class Placed:
    """A seed for elements `first` to `end` of a shadow's allocation `root`, which lies in `memory`; of `region` nothing was taken yet."""

    root: NdArray
    first: int
    end: int
    memory: Memory
    region: Region

    def at(self, offset: int) -> Memory | None:
        """The seed as a pointer in place of one to element `offset` of the shadow; None where that would point beside its allocation."""
        begin = self.memory.offset + offset - self.first
        return Memory(self.memory.root, begin) if 0 <= begin < self.memory.root.size else None

    def action(self) -> Action:
        """Copies it to the shadow. What was taken of it does not count any more."""
        begin = self.memory.offset
        return copying(self.root[self.first : self.end], self.memory.root[begin : begin + self.end - self.first])


def placed(shadow: NdArray, seed: Any, root: NdArray, region: Region) -> Placed | None:
    """A seed that may be read in place of a shadow's elements `region`, which the array `shadow` has; None for one that is a number, or
    laid out in another way, or does not start a whole number of elements into its allocation: a pointer to it counts these."""
    if not is_array(seed) or namespace(seed) is not namespace(root) or seed.dtype != root.dtype or seed.dtype != shadow.dtype:
        return None
    dense = seed.flags.c_contiguous and shadow.flags.c_contiguous and seed.shape == shadow.shape and getattr(seed.flags, "aligned", True)
    if not dense or _device(seed) != _device(root) or len(region.spans) != 1 or region.nbytes != seed.size:
        return None
    try:
        return Placed(root, region.low, region.high, resolve(seed), region)
    except LaunchError:
        return None


def _device(array: NdArray) -> Any:
    """The number of the array's GPU."""
    return getattr(getattr(array, "device", None), "id", None)


@dataclass(eq=False)
class Placements:
    """The seeds that lie elsewhere, at the moment that a plan has come back to, by the allocation of their shadows."""

    seeds: dict[Where, Placed] = field(default_factory=dict)

    @property
    def key(self) -> tuple[tuple[Where, int, int], ...]:
        """What a plan depends on."""
        return tuple((where, address(p.memory.root), p.memory.offset) for where, p in self.seeds.items())

    def has(self, roots: Iterable[Any]) -> bool:
        """Whether any of the shadows has its seed elsewhere."""
        return bool(self.seeds) and any(where_of(r) in self.seeds for r in roots)

    def of(self, root: NdArray) -> Placed | None:
        return self.seeds.get(where_of(root)) if self.seeds else None

    def take(self, root: NdArray, region: Region) -> None:
        """These elements were taken by an adjoint that read the seed."""
        seed = self.seeds.pop(where_of(root))
        rest = seed.region - region
        if rest:
            self.seeds[where_of(root)] = replace(seed, region=rest)

    def home(self, roots: Iterable[Any]) -> list[Placed]:
        """The seeds of these shadows, which have to be copied now."""
        return [seed for root in roots if (seed := self.seeds.pop(where_of(root), None)) is not None] if self.seeds else []

    def all(self) -> list[Placed]:
        """All that are left, which have to be copied now."""
        found, self.seeds = list(self.seeds.values()), {}
        return found

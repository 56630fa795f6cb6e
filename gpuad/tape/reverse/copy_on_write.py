"""Shadows of temporaries: memory that belongs to the tape, shared instead of copied while a recording is reversed (contract, rule 17).

After `z = x + y` the shadows of x and y are that of z, unchanged. Where x and y are temporaries too, whose shadows are zero until then,
they are given the memory of z's shadow instead of a copy of it. So a temporary's shadow has a home and lives there, unless it was given a
place; several may live in one place, and the first write to it by anyone, while others live there, is made elsewhere, on a copy. A user's
own shadow is neither given away nor replaced.

All of this is decided by the plan of a reversal, before its first launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arguments.arrays import address, resolve
from ...runtime.actions import Action, copying
from ...runtime.array_types import NdArray

New = Callable[[int, Any], Any]  # a flat array of so many elements of a type


class Homes:
    """The shadows of a recording's temporaries. The same program again gets the same arrays. Each is all of its allocation, as whatever
    points into it is resolved: CuPy rounds up what it allocates."""

    def __init__(self, new: New) -> None:
        self.new = new
        self.arrays: list[Any] = []
        self.wanted: list[tuple[int, Any]] = []
        self.addresses: set[int] = set()
        self.used = 0
        self.allocations = 0

    def reset(self) -> None:
        self.used = 0

    def take(self, size: int, dtype: Any) -> Any:
        """`size` elements or a few more, flat, not cleared."""
        at, wanted = self.used, (max(size, 1), np.dtype(dtype))
        self.used += 1
        if at == len(self.arrays) or self.wanted[at] != wanted:
            self.addresses.difference_update(address(a) for a in self.arrays[at : at + 1])
            self.arrays[at : at + 1] = [resolve(self.new(*wanted)).root]
            self.wanted[at : at + 1] = [wanted]
            self.addresses.add(address(self.arrays[at]))
            self.allocations += 1
        return self.arrays[at]

    def keep(self, root: NdArray) -> None:
        """One of them is not to be taken by others in this recording."""
        at = next(i for i, array in enumerate(self.arrays) if array is root or address(array) == address(root))
        if at >= self.used:
            for each in (self.arrays, self.wanted):
                each[at], each[self.used] = each[self.used], each[at]
            self.used += 1

    def drop_unused(self) -> None:
        """Lets go of those that this recording has not taken."""
        self.addresses.difference_update(address(a) for a in self.arrays[self.used :])
        del self.arrays[self.used :], self.wanted[self.used :]

    def has(self, root: NdArray) -> bool:
        """Whether an array is one of them."""
        return address(root) in self.addresses


@dataclass(frozen=True, eq=False)
class Copy:
    """Elements to be copied from one place to another."""

    source: Any
    target: NdArray

    def action(self) -> Action:
        return copying(self.target, self.source)


@dataclass(eq=False)
class CopyOnWriteShadows:
    """Where the shadow of each temporary lives, at the moment that a plan has come back to; places are flat arrays, by address."""

    homes: Homes
    temporaries: dict[int, Any] = field(default_factory=dict)  # homes of this recording, by address
    away: dict[int, Any] = field(default_factory=dict)  # who lives elsewhere: home's address -> place
    alive: set[int] = field(default_factory=set)  # whose content counts

    def is_temporary(self, root: NdArray) -> bool:
        return address(root) in self.temporaries

    def place(self, root: NdArray) -> Any:
        """Where a shadow lives."""
        return self.away.get(address(root), root)

    def at_home(self, roots: Iterable[Any]) -> bool:
        """Whether none of the shadows lives elsewhere, and none has guests."""
        return not self.away or not any(self._shared(r) or address(r) in self.away for r in roots)

    def lend(self, owner: Any, borrower: Any) -> None:
        """The borrower lives from now on where the owner does."""
        self.away[address(borrower)] = self.place(owner)

    def note_liveness(self, roots: Iterable[Any], alive: Callable[[Any], bool]) -> None:
        """Notes of shadows that were touched whether their content counts; those whose does not live nowhere any more."""
        for where, root in ((address(r), r) for r in roots if self.is_temporary(r)):
            if alive(root):
                self.alive.add(where)
            else:
                self.alive.discard(where)
                self.away.pop(where, None)

    def alone(self, root: NdArray) -> list[Copy]:
        """The shadow gets a place that no other shadow has: its home if that is free."""
        if not self._shared(root):
            return []
        old = self.place(root)
        new = root if old is not root and not self._living(root) else self.homes.take(int(root.size), root.dtype)
        return [Copy(old, new)] if self._move(root, new) else []

    def home(self, root: NdArray) -> list[Copy]:
        """The shadow goes home, and its guests leave: for what reaches it by its own address."""
        copies = []
        for where in self._living(root):
            guest = self.temporaries[where]
            if where != address(root):  # of one shadow there are several arrays
                new = self.homes.take(int(guest.size), guest.dtype)
                if self._move(guest, new):
                    copies.append(Copy(root, new))
        if address(root) in self.away:
            old = self.away.pop(address(root))
            if address(root) in self.alive:
                copies.append(Copy(old, root))
        return copies

    def _move(self, root: NdArray, new: Any) -> bool:
        """Whether there is something to take along."""
        if new is root:
            self.away.pop(address(root), None)
        else:
            self.away[address(root)] = new
        return address(root) in self.alive

    def _living(self, place: Any) -> list[int]:
        """Who lives in a place."""
        where = address(place)
        guests = [home for home, other in self.away.items() if address(other) == where]
        return [*guests, *([where] if where in self.alive and where not in self.away else [])]

    def _shared(self, root: NdArray) -> bool:
        others = [home for home in self._living(self.place(root)) if home != address(root)]
        return bool(others)

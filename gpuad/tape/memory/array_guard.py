"""Locks the arrays of NumPy that a recording depends on, from the first operation that meets them to the end of the block.

A recording depends on what an array holds if the array has a shadow, or an adjoint needs it. Who writes it otherwise than through gpuad
gets NumPy's ValueError at that line. Where a program is recorded once more, each step locks what it locked the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...arguments.annotations import BatchDuplicated, Const, Duplicated
from ...ir.dtypes import Array
from ...runtime.array_locks import Locks
from ...runtime.array_types import NdArray
from ...runtime.base import address_of, owner_of
from ..record.operations import Foreign, Operation
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from ..record.trace import Op

Depends = tuple[Array, bool, bool]  # whether the recording depends on it, and whether it was passed to be written or with a shadow


class Guard:
    """`locks`: what is locked. For each owner of memory: the arrays that the recording depends on, and others that it has met. `own`:
    whether an array is one that an operation made: others have views of it (`lend`); `outside`: the address of the array for which a
    buffer stands, by that of the buffer."""

    def __init__(self, own: Callable[[Array], bool], outside: Callable[[int], int]) -> None:
        self.locks, self._own, self._outside = Locks(), own, outside
        self.forget()

    def forget(self) -> None:
        """A recording begins anew; what is locked stays so."""
        self._needed: dict[int, dict[int, Array]] = {}
        self._others: dict[int, dict[int, Array]] = {}
        self._news: list[tuple[Array, bool]] = []
        self._known: dict[int, object] = {}  # calls whose arrays are locked, as far as they will be
        self.opened: dict[int, list[Array]] = {}  # what may be written until the next operation on it, by the address of its owner

    def lock_operands(self, operation: Operation) -> None:
        """Locks what the recording depends on from this operation on."""
        call = operation.call if isinstance(operation, Launched) else operation
        if id(call) in self._known:
            return
        self._known[id(call)] = call
        for array, depends, made in _arrays(operation):
            owner = owner_of(array)
            key, one = id(owner), id(array)
            if self.opened:
                self._close(owner)
            if one in self._needed.get(key, ()) or self._own(owner):
                continue
            if depends:
                self._lock(key, array, made)
                for other in [o for o in self._others.get(key, {}).values() if np.may_share_memory(o, array)]:
                    self._lock(key, other, False)
            elif any(np.may_share_memory(array, a) for a in self._needed.get(key, {}).values()):
                self._lock(key, array, made)
            else:
                self._others.setdefault(key, {})[one] = array
                if self.locks.goes_on:
                    self.locks.adopt(array, made)

    def _close(self, owner: Array) -> None:
        """An operation works on an array: what was opened of it is locked again."""
        where = address_of(owner)
        for key in {where, self._outside(where)}:
            for array in self.opened.pop(key, ()):
                self.locks.lock(array)

    def _lock(self, key: int, array: Array, made: bool) -> None:
        self._news.append((array, made))
        self._needed.setdefault(key, {})[id(array)] = array
        self._others.get(key, {}).pop(id(array), None)
        if self.locks.goes_on:  # and not at its end, where a program turns out to be another one
            self.locks.lock(array, made)

    def open(self, arrays: Iterable[Any]) -> None:
        """Arrays are about to be overwritten by code that the tape does not see: until the next operation that works on them."""
        self._known = {}
        for array in _host(arrays):
            key = id(owner_of(array))
            for one, a in list(self._needed.get(key, {}).items()):
                if np.may_share_memory(a, array):
                    self._others.setdefault(key, {})[one] = self._needed[key].pop(one)
            self._open(array)

    def _open(self, array: Array) -> None:
        if self.locks.goes_on:
            self.opened.setdefault(address_of(owner_of(array)), []).extend(self.locks.open(array))

    def lend(self, whole: Any, view: Any) -> None:
        """Somebody gets an array that an operation made, or a view of it."""
        if self.locks.goes_on and isinstance(whole, np.ndarray) and address_of(whole) not in self.opened:
            self.locks.lend(whole, view)

    def let_go(self, array: NdArray) -> None:
        """Unlocks what lies in an array that an operation made, but for views to which other references are held."""
        if self.locks.goes_on and isinstance(array, np.ndarray):
            self.locks.let_go(array)

    def taken(self) -> tuple[tuple[Array, bool], ...]:
        """What was locked since the last call."""
        found, self._news = tuple(self._news), []
        return found

    def again(self, op: Op, args: Sequence[Any]) -> None:
        """Locks, or opens, what an op did the first time, now that it is called with arguments that are the same to it."""
        if op.key.what is Foreign:
            for array in _host((*args, *op.key.args)):
                self._open(array)
        else:
            for array in _host(args) if self.opened else ():
                self._close(owner_of(array))
            for array, made in op.locks:
                self.locks.lock(array, made)
        self.follow(op.key.args, args)

    def follow(self, args: Sequence[Any], given: Sequence[Any]) -> None:
        """What the caller has passed is locked as is what has come in its place."""
        for old, new in zip(args, given, strict=True):
            if old is not new:
                self.take_place(old, new)

    def take_place(self, old: Any, new: Any) -> None:
        """Another view of the same memory is locked as that was in whose place it comes."""
        one, two = (x.primal if isinstance(x, Duplicated | BatchDuplicated | Const) else x for x in (old, new))
        if one is not two and isinstance(two, np.ndarray):
            if one in self.locks:
                self.locks.lock(two, two is not new)
            elif two is not new:
                self.locks.adopt(two)


def _arrays(operation: Operation) -> list[Depends]:
    """The arrays of NumPy that an operation works on, and views that were made for their shadows, on which nothing depends."""
    found: list[tuple[Any, bool, bool]] = []
    effects = operation.effects
    if isinstance(operation, Launched):
        needed = {use.position for use in (*effects.before, *effects.after)}
        written = {use.position for use in effects.writes}
        for i, a in enumerate(operation.call.bound.arguments):
            paired = a.memory is not None and bool(a.shadows)
            found.append((a.array, paired or i in needed, paired or i in written))
            found += [(array, False, True) for array in a.shadow_arrays]
    elif isinstance(operation, Ruled):
        for name, o in operation.operands.items():
            paired = o.shadow is not None
            made = paired or name in operation.rule.effect.writes
            found += [(o.array, paired or name in operation.needs, made), (o.shadow, False, True)]
    return [one for one in found if isinstance(one[0], np.ndarray) and one[0].size]


def _host(arrays: Iterable[Any]) -> Iterator[Array]:
    """Those of NumPy that have elements."""
    return (a for a in (getattr(x, "primal", x) for x in arrays) if isinstance(a, np.ndarray) and a.size)

"""Locks on NumPy arrays: arrays that a recording depends on are read-only until it is done.

A write behind a tape's back then fails at the line where it stands, by NumPy's own ValueError, and costs nothing to look for. NumPy keeps
the flag by array object, and a new view has that of the array it is made of: so an array is locked with all the arrays behind it, up to the
one that owns the memory. What gpuad itself writes goes by addresses, or by a view of the owner that was made before it was locked. A view
that others made before keeps its own flag, and so does what is no array of NumPy: that no lock sees.
Who holds such a view cannot be asked: NumPy's arrays are not known to Python's collector, and to count an owner's references and take off
those of all containers is a walk through every object, 5 ms for 55,000 of them, for each new array of each tape.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from threading import RLock, get_ident
from typing import Any

import numpy as np

from ..ir.dtypes import Array
from .array_types import NdArray

_GUARD = RLock()
held: list[Locks] = []  # of recordings that go on, in any thread


class Locks:
    """The arrays that one recording has locked. An array that was read-only before stays so; one that several recordings have locked may be
    written again when the last of them has let it go. Arrays are noted before they are locked: `release` is safe after an interrupt
    anywhere, and may be called again."""

    def __init__(self) -> None:
        self.thread = 0
        self._arrays: dict[int, Array] = {}
        self._open: dict[int, Array] = {}  # views of owners, through which gpuad writes
        self._fixed: dict[int, Array] = {}  # read-only before anything was locked here
        self._writable_owners: dict[int, Array] = {}  # owners that stay writable behind views that are locked

    def begin(self) -> None:
        """A recording begins in this thread."""
        with _GUARD:
            self.thread = get_ident()
            if self not in held:
                held.append(self)

    @property
    def goes_on(self) -> bool:
        """True if the recording does."""
        return self in held

    def __contains__(self, array: Array) -> bool:
        return id(array) in self._arrays

    def has(self, array: Array) -> bool:
        """True if an array is locked here, or a view of one that is: what has been made of it since is read-only too."""
        if id(array) in self._arrays:
            return True
        return id(array) not in self._fixed and any(id(a) in self._arrays or id(a) in self._writable_owners for a in _behind(array))

    def lock(self, array: Array, made: bool = True) -> None:
        """Locks an array and those behind it. `made`: if it is a view that was made of a locked one, it will be writable with that one."""
        if id(array) in self._arrays and not array.flags.writeable:
            return
        with _GUARD:
            self.adopt(array, made)
            for a in reversed([array, *_behind(array)]):
                self._lock(a)

    def adopt(self, array: Array, made: bool = True) -> None:
        """An array comes: `made`: one that is read-only since it was made of a locked one will be writable with that one."""
        if not array.flags.writeable and id(array) not in self._arrays:
            if self.has(array):
                if made:
                    self._arrays[id(array)] = array
            elif not any(locks.has(array) for locks in held):
                self._fixed[id(array)] = array

    def derive(self, view: Array, array: Array) -> None:
        """Notes a view that gpuad has made of an array."""
        if id(array) in self._arrays and not view.flags.writeable:
            self._arrays[id(view)] = view

    def lend(self, whole: Array, view: Array) -> None:
        """Locks a view of all of an array of gpuad's own, which others get, and what was made of it for them."""
        self.lock(whole)
        self.derive(view, whole)
        for owner in [*_behind(whole)][-1:]:
            self._writable_owners[id(owner)] = owner

    def open(self, array: Array) -> list[Array]:
        """An array may be written from here on, by itself and by whichever view was locked. Gives what was locked."""
        with _GUARD:
            made = not array.flags.writeable and self.has(array)
            opened = [a for a in self._arrays.values() if np.may_share_memory(a, array)]
            for a in _owners_first(opened):
                if not _elsewhere(self, a):
                    a.flags.writeable = True
                    del self._arrays[id(a)]
            if made and not array.flags.writeable and _can_be_unlocked(array, {}):
                array.flags.writeable = True
            return [*opened, *([array] if made else [])]

    def release(self) -> list[Array]:
        """Lets all arrays go. Gives those that someone else has made writable while they were locked."""
        with _GUARD:
            known = [a for a in self._arrays.values() if a.flags.writeable]
            for a in _owners_first(self._arrays.values()):
                if not self._hand_over(a):
                    a.flags.writeable = True
            if self in held:
                held.remove(self)
            self._arrays, self._open, self._fixed, self._writable_owners = {}, {}, {}, {}
            return known

    def let_go(self, memory: Array) -> None:
        """Lets go of arrays that lie in this memory and to which no other reference is held. The others stay locked."""
        with _GUARD:
            if not any(np.may_share_memory(a, memory) for a in self._arrays.values()):
                return
            noted: list[tuple[dict[int, Array], int, Callable[[], Array | None]]] = []
            locked: list[Callable[[], Array | None]] = []
            for a in _owners_first(self._arrays.values()):
                if np.may_share_memory(a, memory) and _elsewhere(self, a) is None:
                    a.flags.writeable = True
                    locked.append(weakref.ref(a))
            del a
            for store in (self._fixed, self._writable_owners):
                noted += [(store, key, weakref.ref(x)) for key, x in store.items() if np.may_share_memory(x, memory)]
            for store in (self._arrays, self._open, self._fixed, self._writable_owners):
                for key in [key for key, x in store.items() if np.may_share_memory(x, memory)]:
                    if store is not self._arrays or _elsewhere(self, store[key]) is None:
                        del store[key]
            for found in locked:
                if (there := found()) is not None:
                    self.lock(there)
            for store, key, found in noted:
                if (there := found()) is not None:
                    store[key] = there

    def view_of(self, owner: Array) -> Array | None:
        """A view of a locked owner through which it can be written."""
        return self._open.get(id(owner))

    def _lock(self, array: Array) -> None:
        if array.flags.writeable:
            if _can_be_unlocked(array, self._arrays):
                if not isinstance(array.base, np.ndarray):
                    self._open[id(array)] = array.view(np.ndarray)
                self._arrays[id(array)] = array
                array.flags.writeable = False
        elif id(array) not in self._arrays and (other := _elsewhere(self, array)) is not None:
            self._open[id(array)] = other._open.get(id(array), array)
            self._arrays[id(array)] = array

    def _hand_over(self, array: Array) -> bool:
        """True if another recording keeps an array locked, or what it is a view of; then that one lets it go."""
        keeper = _elsewhere(self, array)
        if keeper is None:
            keeper = next((k for a in _behind(array) if (k := _elsewhere(self, a)) is not None), None)
            if keeper is not None:
                keeper._arrays[id(array)] = array
        return keeper is not None


def unlocked(owner: Array) -> Array:
    """An array that owns its memory, or where it is locked by this thread a view of it that can be written."""
    if not held or owner.flags.writeable:
        return owner
    return next((view for locks in _mine() if (view := locks.view_of(owner)) is not None), owner)


def writeable(array: Any) -> bool:
    """True if gpuad may write an array: it can be written, or could be if this thread's recording had not locked it."""
    if getattr(array.flags, "writeable", True):
        return True
    return bool(held) and any(locks.has(array) for locks in _mine())


def derived(view: Any, array: Any) -> None:
    """Notes a view that gpuad has made of an array."""
    if held and isinstance(view, np.ndarray):
        for locks in _mine():
            locks.derive(view, array)


def borrows_memory(array: NdArray) -> bool:
    """True if an array of NumPy lies in memory that is no array's own: others may write it, whatever NumPy says."""
    if not isinstance(array, np.ndarray):
        return False
    owner = next(iter([*_behind(array)][-1:]), array)
    return owner.base is not None


def _mine() -> Iterator[Locks]:
    thread = get_ident()
    return (locks for locks in tuple(held) if locks.thread == thread)


def _behind(array: Array) -> Iterator[Array]:
    while isinstance(array.base, np.ndarray):
        array = array.base
        yield array


def _owners_first(arrays: Iterable[Array]) -> list[Array]:
    """Each after the arrays behind it, without which it cannot be made writable: one that was opened and locked again came last."""
    return sorted(arrays, key=lambda a: sum(1 for _ in _behind(a)))


def _elsewhere(own: Locks, array: Array) -> Locks | None:
    """Another recording that has locked an array."""
    return next((locks for locks in held if locks is not own and array in locks), None)


def _can_be_unlocked(array: Array, locked: dict[int, Array]) -> bool:
    """True if NumPy would make an array writable again. It does so where the array owns its memory, or where that of others says that it
    may be written."""
    if array.base is None or array.flags.owndata:
        return True
    if isinstance(array.base, np.ndarray):
        return array.base.flags.writeable or id(array.base) in locked
    try:
        with memoryview(array.base) as memory:
            return not memory.readonly
    except (TypeError, ValueError, BufferError):
        return False

"""Arrays that operations of a program make, where the program comes again.

A known program works on the memory that it worked on before (`trace_replay`); but what an operation has made belongs to the caller, who may
still have it. So he gets a handle, a pair that stands for the array, and the array itself, as a view of its own, only when he asks for it.
Before the memory is used again each handle that is left gets a copy of what it held; if somebody still has such a view, or a view of it,
the memory is his, and the program is recorded as if it were new.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ...arguments.annotations import Duplicated
from ...arguments.arrays import address
from ...arguments.deferred_clearing import DeferredClearing
from ...arguments.recorder import current
from ...runtime.array_types import NdArray
from ...runtime.base import Executor
from .buffers import Buffer

Take = Callable[[Any], Any]


class Seen:
    """An array that an operation made, or a view of it, once for all handles of it: the `takes` that lead there, and the array that the
    tape has. `views`: those that were made of it, by what was asked for; `pair`: it with its shadow, once it was needed."""

    __slots__ = ("pair", "primal", "takes", "views")

    def __init__(self, takes: tuple[Take, ...], primal: Any, pair: Duplicated | None) -> None:
        self.takes, self.primal, self.pair = takes, primal, pair
        self.views: dict[Hashable, Seen] = {}

    def view(self, take: Take, key: Hashable) -> Seen:
        """A view of it; `key`: what says the same as `take`, None for nothing."""
        found = self.views.get(key) if key is not None else None
        if found is None:
            found = Seen((*self.takes, take), take(self.primal), None)
            if key is not None and len(self.views) < _MANY:
                self.views[key] = found
        return found


_MANY = 256  # views of an array that are remembered


class _Shared:
    """What stands behind all views of an array that others have: they keep it alive, however they were made."""

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> Any:
        """By which NumPy makes a view."""
        return self.array.__array_interface__

    def view(self) -> Any:
        """The array once more, with this behind it."""
        if isinstance(self.array, np.ndarray):
            return np.asarray(self).view(self.array.dtype)
        from ...runtime.cuda import unowned_view

        return unowned_view(self.array, self)


class Made:
    """An array, not of size 0, that an operation made within the tape `owner`, at the user's line `where`. `pair`: the array with its
    shadow, as that tape knows it, which `shadow` makes when it is first needed; `stream`: on which the array was made last, `source`: on
    which its memory was, None where there are none. `apart`: whether others are given memory of their own; `memory`: the
    array's, as a buffer for that; `whole`: all of it, as handles see it; `looked`: whether others than the tape have ever come to its
    shadow, who may write it at any time."""

    __slots__ = (
        "_shared", "_view", "_views", "apart", "array", "handles", "looked", "memory", "owner", "pair", "source", "stream", "where",
        "whole",
    )  # fmt: skip

    def __init__(self, array: NdArray, shadow: Callable[[Any], Any], owner: Any, stream: Any, where: str) -> None:
        self.array, self.owner, self.where = array, owner, where
        self.pair = Duplicated(array)
        self.pair._make = lambda: shadow(array)
        self.whole = Seen((), array, self.pair)
        self.source = self.stream = stream
        self.apart, self.looked, self.memory = False, False, Buffer.of(array)
        self.handles: list[Callable[[], Any]] = []
        self._views: dict[tuple[Any, ...], Duplicated] = {}
        self._shared: Callable[[], Any] = _dead_ref
        self._view: Callable[[], Any] = _dead_ref

    def handed_out(self) -> Any:
        """A view of the array for others to have: the same one as long as they have it."""
        view = self._view()
        if view is None:
            self.owner.made.shared[address(self.array)] = self
            self.owner.sharing(self)
            behind = self._shared() or _Shared(self.array if not self.apart else self._detached_copy())
            view = behind.view()
            self._shared, self._view = weakref.ref(behind), weakref.ref(view)
        return view

    def _detached_copy(self) -> Any:
        """A copy for others to have, which follows what the program does to the array."""
        copy = self.array.copy()
        self.owner.made.staging.stand_for(self.memory, copy)
        return copy

    def look(self) -> None:
        """Others come to the shadow from here on."""
        self.looked = True
        self.owner.made.looked.add(self)

    @property
    def is_handed_out(self) -> bool:
        """True if anybody has it."""
        return self._shared() is not None

    @property
    def has_handles(self) -> bool:
        """True if anybody has a handle."""
        for known in self.handles:
            if known() is not None:
                return True
        self.handles.clear()
        return False

    def seen(self, view: Any, path: Sequence[Take]) -> Duplicated:
        """The pair along a path, on which the array is this view: the same pair for views that are the same."""
        key = address(view), view.shape, view.strides, view.dtype
        pair = self._views.get(key)
        if pair is None:
            pair = self.pair
            for take in path:
                pair = pair._view(take)
            if len(self._views) < _MANY:
                self._views[key] = pair
        return pair

    def take_back(self, executor: Executor, mark: Any) -> Any:
        """The memory is about to be used again, on the current stream: each handle gets a copy of the array. What an interrupt leaves is
        taken back later. Gives the mark that is reached when the copy is there: `mark`, moved, or a new one."""
        handles = [handle for known in self.handles if (handle := known()) is not None]
        if handles:
            copy = self._copy(executor)
            mark = executor.marked(mark)
            for handle in handles:
                handle.part(copy, mark)
        self.handles.clear()
        if self.apart:  # who still has what was handed out has memory of his own
            self._shared = self._view = _dead_ref
        return mark

    def _copy(self, executor: Executor) -> Any:
        """A copy of the array, made on its stream: that is where the caller has the array, and where the pool may have the copy back."""
        current = executor.stream()
        if current is None or self.stream is None:
            return self.array.copy()
        with executor.on(self.stream):
            executor.wait(current)
            copy = self.array.copy()
        executor.wait(self.stream)
        return copy


class Temporary(Duplicated):
    """A handle: the pair that a caller has of an array that an operation made, or a view of such a pair. Once it has parted it is a pair
    like any other."""

    __slots__ = ("_arriving", "_made_by", "_maker", "_seen")

    def __init__(self, made: Made, seen: Seen | None = None) -> None:
        self._seen = made.whole if seen is None else seen
        self._maker = made
        self._made_by: Made | None = made  # None once it has parted
        self._arriving: Any = None  # a mark in a stream: until it is reached, the copy that it stands for is not there
        self._primal = self._seen.primal  # what `Duplicated` sets, of an array that needs no look
        self._shadow = self._make = self._of = self._deferred = None
        self._keep = False
        made.handles.append(weakref.ref(self))

    @property
    def primal(self) -> Any:
        """The array itself."""
        if self._made_by is not None:
            whole = self._made_by.handed_out()
            view = _along(whole, self._seen.takes)
            self._made_by.owner.guard.lend(whole, view)
            return view
        if self._arriving is not None:  # no stream of the caller's knows of the copy
            self._arriving.synchronize()
            self._arriving = None
        return self._primal

    @property
    def _own_primal(self) -> Any:
        """The array, for code of its tape, which does not let the caller have it."""
        return self._primal if self._made_by is not None and self._made_by.owner is current.get() else self.primal

    @property
    def shadow(self) -> NdArray:
        """The shadow array."""
        self._deferred = self._deferred or DeferredClearing()
        self._maker.look()
        return super().shadow

    @property
    def _own_shadow(self) -> Any:
        """The shadow, for code that does not let the caller see it."""
        if self._maker.owner is not current.get():
            self._maker.look()
        return self.inner._own_shadow if self._made_by is not None else super()._own_shadow

    @property
    def has_shadow(self) -> bool:
        """True if the shadow exists already."""
        return self.inner.has_shadow if self._made_by is not None else super().has_shadow

    @property
    def maker(self) -> Made | None:
        """What is known of the array, if this is a handle of all of it."""
        return None if self._seen.takes else self._made_by

    @property
    def owner(self) -> object:
        """The tape that may use the memory again, if there is one."""
        return self._made_by.owner if self._made_by is not None else None

    @property
    def inner(self) -> Duplicated:
        """The pair as the tape knows it."""
        if self._made_by is None:
            return self
        seen = self._seen
        if seen.pair is None:
            seen.pair = self._made_by.seen(seen.primal, seen.takes)
        return seen.pair

    def part(self, copy: Any, mark: Any = None) -> None:
        """It stands for this copy of its array from now on, which is there when the mark is reached. A shadow that it had is the tape's,
        which refuses it from now on."""
        if self._made_by is not None:
            pair, self._arriving = self.inner, mark
            self._deferred = self._deferred or DeferredClearing()
            self._shadow = pair._own_shadow if pair.has_shadow else None
            self._primal, self._made_by = _along(copy, self._seen.takes), None
            self._seen = Seen(self._seen.takes, self._primal, None)  # a handle no more, by whatever it is compared

    @property
    def _plain(self) -> type[Duplicated]:
        return Duplicated

    def _sliced(self, key: Any, said: Hashable) -> Duplicated:
        known = self._seen.views.get(said) if said is not None and self._made_by is not None else None
        return super()._sliced(key, said) if known is None else Temporary(self._maker, known)

    def _view(self, take: Take, key: Hashable = None) -> Duplicated:
        if self._made_by is not None:
            return Temporary(self._made_by, self._seen.view(take, key))
        view = Duplicated(take(self.primal), take(self._shadow) if self._shadow is not None else None)
        view._of = self
        if self._shadow is None:
            view._make = lambda: take(self._own_shadow)
        return view


def inner(x: Any, tape: object) -> Any:
    """An argument as a tape knows it. To another tape than the one that made it, a handle is a pair like any other: it has the array."""
    return x.inner if type(x) is Temporary and x.owner is tape else x


def _along(array: NdArray, path: tuple[Take, ...]) -> Any:
    for take in path:
        array = take(array)
    return array


def _dead_ref() -> None:
    """Who has a view that was never asked for."""

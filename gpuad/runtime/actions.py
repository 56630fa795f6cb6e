"""The actions of a tape on memory, which can be repeated: launches with fixed arguments, copies, clearings, functions of rules.

Each is a callable without arguments, bound to the memory that it works on. A trace that is replayed does the same actions again, without
the analysis that led to them, and so does a graph. Large arrays of a CPU are cleared on all cores by compiled code: NumPy's `fill` has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from ..errors import LaunchError
from .array_types import NdArray
from .base import Prepared
from .compiler import has_compiler
from .host import default_workers
from .tensor_versions import Counting, count_writes, tensor_of
from .thread_pool import Batch, clearing_item

LARGE = 1 << 22  # bytes


def clear_together(array: NdArray) -> bool:
    """Sets a NumPy array of numbers to 0 if it is large, and whole or of whole rows, and there is a compiler; whether it did."""
    if not isinstance(array, np.ndarray) or array.nbytes < LARGE:
        return False
    item = clearing_item(array)
    return item is not None and _compiles() and Batch(np.array([item], np.int64), default_workers())() is None


@cache
def _compiles() -> bool:
    return has_compiler()


Action: TypeAlias = "Callable[[], Any]"  # what it returns is true only if it failed


@dataclass(frozen=True, eq=False)
class ByPython:
    """An action that is Python code of its own: it may read results, or make arrays. `name`, `where`: the operation and its place, `why`:
    what a graph on a GPU cannot repeat; empty if it does nothing of the kind."""

    run: Callable[[], None]
    name: str
    where: str
    why: str

    def __call__(self) -> None:
        self.run()


def perform(actions: Iterable[Action]) -> None:
    """Does them in order. LaunchError where a launch fails for want of memory."""
    for action in actions:
        if action():
            raise out_of_memory(action)


def out_of_memory(action: Action) -> LaunchError:
    """The error of a launch that has failed for want of memory."""
    return LaunchError(f"{named(action)}: out of memory")


def perform_one(action: Action) -> None:
    """Does it."""
    perform((action,))


def named(action: Action) -> str:
    """What an action is called in messages."""
    inner: Any = action
    while isinstance(inner, partial | Prepared | Counting):
        inner = inner.func
    return str(getattr(inner, "__name__", inner)).removeprefix("gpuad_launch_")


class Copying:
    """Copies an array, or a number, into an array. A program has many: so it is as small as can be. `far`: a CPU's caches will have
    forgotten it when it is read."""

    __slots__ = ("far", "source", "target")

    def __init__(self, target: NdArray, source: Any) -> None:
        self.target, self.source, self.far = target, source, False

    def __call__(self) -> None:
        self.target[...] = self.source


class Clearing:
    """Sets an array to 0."""

    __slots__ = ("target",)

    def __init__(self, target: NdArray) -> None:
        self.target = target

    def __call__(self) -> None:
        if not clear_together(self.target):
            self.target.fill(0)


class _CountedCopying(Copying):
    """Into a tensor."""

    __slots__ = ()

    def __call__(self) -> None:
        super().__call__()
        count_writes((self.target,))


class _CountedClearing(Clearing):
    """Of a tensor."""

    __slots__ = ()

    def __call__(self) -> None:
        super().__call__()
        count_writes((self.target,))


def copying(target: NdArray, source: Any) -> Copying:
    """Copies an array, or a number, into an array."""
    return Copying(target, source) if tensor_of(target) is None else _CountedCopying(target, source)


def clearing(target: NdArray) -> Clearing:
    """Sets an array to 0."""
    return Clearing(target) if tensor_of(target) is None else _CountedClearing(target)


class ActionLog:
    """Keeps actions in the order in which they come, to be done later, or since they have been done before."""

    def __init__(self) -> None:
        self.actions: list[Action] = []

    def do(self, action: Action) -> None:
        """Keeps an action."""
        self.actions.append(action)

    def taken(self) -> tuple[Action, ...]:
        """What has come since the last call."""
        found, self.actions = tuple(self.actions), []
        return found


class Performed(ActionLog):
    """Does actions as they come, too."""

    def do(self, action: Action) -> None:
        """Does an action."""
        self.actions.append(action)
        perform_one(action)

"""Actions that come one after the other with nothing of Python between them, as one.

What a program that is known will do to memory is known, too: its launches, copies and clearings are calls of compiled code with fixed
arguments, and on a CPU one call makes many of them (`runtime.thread_pool`). So the threads of one launch find the next one at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...errors import LaunchError
from ...runtime.actions import Action, Clearing, Copying, named
from ...runtime.base import Prepared
from ...runtime.thread_pool import Batch, Item, Native, clearing_item, copy_item, launch_item

_MANY_BYTES = 1 << 17  # of a copy
_MOST = 1000  # threads; a launch in a batch has no more parts than 16 bits count


class Batched:
    """Several actions as one. They keep their memory alive."""

    def __init__(self, actions: Sequence[Action], table: NDArray[np.int64], workers: int) -> None:
        self.actions = actions
        self.batch = Batch(table, workers)

    def __call__(self) -> None:
        """Does them. LaunchError where one fails for want of memory."""
        failed = self.batch()
        if failed is not None:
            raise LaunchError(f"{named(self.actions[failed])}: out of memory")


class _Run:
    """Actions that one call can do. `workers`: how many threads may make the largest launch; 0: there is none."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.table = array("q")  # numbers of 8 bytes each, since programs are long
        self.workers, self.is_large = 0, False

    def add(self, action: Action) -> bool:
        """Takes an action up; False where it takes Python."""
        native = _native(action)
        item = launch_item(native) if native is not None else _item(action)
        if item is None:
            return False
        self.actions.append(action)
        self.table.extend(item)
        if native is not None:
            self.workers = max(self.workers, native.workers, 1)
        self.is_large = self.is_large or item[4] * item[5] >= _MANY_BYTES or (native is not None and native.is_large)
        return True

    def taken(self) -> list[Action]:
        """They as one, where that is worth a call."""
        if not self.workers or len(self.actions) < 2:
            return self.actions
        rows = np.array(self.table).reshape(len(self.actions), -1)  # to call other threads takes longer than what is small
        return [Batched(self.actions, rows, self.workers if self.is_large else 1)]


def batched(actions: Iterable[Action]) -> tuple[Action, ...]:
    """The actions with those as one that one call can do."""
    found, run = [], _Run()
    for action in actions:
        if not run.add(action):
            found += [*run.taken(), action]
            run = _Run()
    return (*found, *run.taken())


def direct(action: Action) -> Action:
    """An action with nothing of Python around it, if it is compiled code. Whoever calls it keeps the action, and so its memory."""
    native = _native(action)
    return action if native is None else partial(native.entry, native.geometry, native.slots)


def _item(action: Action) -> Item | None:
    """What compiled code does for an action that is no launch; None where it takes Python."""
    if type(action) is Copying:  # one that counts for PyTorch has more to do
        return copy_item(action.target, action.source, action.far)
    if type(action) is Clearing:
        return clearing_item(action.target)
    return None


def _native(action: Action) -> Native | None:
    """The call of compiled code that a launch is."""
    native = action.func if isinstance(action, Prepared) else None
    return native if isinstance(native, Native) and native.workers <= _MOST else None

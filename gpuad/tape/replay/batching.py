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


def batched(actions: Iterable[Action]) -> tuple[Action, ...]:
    """The actions with those as one that one call can do."""
    found: list[Action] = []
    run: list[Action] = []
    table = array("q")

    def close() -> None:
        natives = [native for action in run if (native := _native(action)) is not None]
        if natives and len(run) > 1:
            rows = np.array(table).reshape(len(run), -1)
            large = any(native.is_large for native in natives) or bool((rows[:, 4] * rows[:, 5] >= _MANY_BYTES).any())
            workers = max(native.workers for native in natives) if large else 1  # to call others takes longer than what is small
            found.append(Batched(run.copy(), rows, workers))
        else:
            found.extend(run)
        run.clear()
        del table[:]

    for action in actions:
        item = _item(action)
        if item is None:
            close()
            found.append(action)
        else:
            run.append(action)
            table.extend(item)  # numbers of 8 bytes each, since programs are long
    close()
    return tuple(found)


def direct(action: Action) -> Action:
    """An action with nothing of Python around it, if it is compiled code. Whoever calls it keeps the action, and so its memory."""
    native = _native(action)
    return action if native is None else partial(native.entry, native.geometry, native.slots)


def _item(action: Action) -> Item | None:
    """What compiled code does for an action; None where it takes Python."""
    if type(action) is Copying:  # one that counts for PyTorch has more to do
        return copy_item(action.target, action.source, action.far)
    if type(action) is Clearing:
        return clearing_item(action.target)
    native = _native(action)
    return launch_item(native) if native is not None else None


def _native(action: Action) -> Native | None:
    """The call of compiled code that a launch is."""
    native = action.func if isinstance(action, Prepared) else None
    return native if isinstance(native, Native) and native.workers <= _MOST else None

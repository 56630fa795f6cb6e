"""The log of a tape's memory: what it takes and lets go, by kind, and when its programs begin and end.

All that a tape adds to its caller's memory comes through one door, which notes it here. An array is let go when the last reference to it
goes, so that need not be said. Bytes count as a pool rounds them. Each event goes to whoever listens (`listeners`); without one the log
is four numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter
from typing import Any

import numpy as np

from ...budget import rounded, shown
from ...runtime.array_types import NdArray


class Kind(StrEnum):
    """What bytes are for. `primal`, `shadow`: arrays and their shadows, those that a tape makes among them; `saved`: what adjoints need of
    what was overwritten; `checkpoint`: states from which operations run again; `scratch`: of one operation or adjoint while it runs."""

    primal = "primal"
    shadow = "shadow"
    saved = "saved"
    checkpoint = "checkpoint"
    scratch = "scratch"


class What(StrEnum):
    """What happens."""

    began = "began"  # a recording
    recorded = "recorded"
    reversing = "reversing"
    reversed = "reversed"
    failed = "failed"  # a recording or a reversal
    took = "took"
    freed = "freed"


@dataclass(frozen=True, slots=True)
class Event:
    """`what` happened at `seconds` (of `time.perf_counter`); of memory: `nbytes` of a `kind`."""

    seconds: float
    what: What
    kind: Kind | None = None
    nbytes: int = 0


Listener = Callable[[Event, Any], None]  # Any: the tape
listeners: list[Listener] = []


class MemoryLog:
    """What the tape `owner` has now (`held`, by kind; `total`), and the most since its last recording began."""

    def __init__(self, owner: Any) -> None:
        self._owner = weakref.ref(owner)
        self._arrays: dict[int, weakref.ref[Any]] = {}
        self._count = 0
        self.held: dict[Kind, int] = dict.fromkeys(Kind, 0)
        self.total = self.most = 0

    def begin(self) -> None:
        """A recording begins."""
        self.most = self.total
        self.tell(What.began)

    def took(self, kind: Kind, array: NdArray) -> Any:
        """An array has been made; gives it back."""
        size, self._count = rounded(int(array.nbytes)), self._count + 1
        number = self._count

        def freed(_: Any) -> None:
            self._arrays.pop(number, None)
            self._change(What.freed, kind, size)

        self._arrays[number] = _watched(array, freed)
        self._change(What.took, kind, size)
        return array

    def _change(self, what: What, kind: Kind, nbytes: int) -> None:
        more = nbytes if what is What.took else -nbytes
        self.held[kind] += more
        self.total += more
        self.most = max(self.most, self.total)
        self.tell(what, kind, nbytes)

    def ran_out(self, state: str) -> str:
        """What to do where memory has run out, which leaves arrays in a `state`."""
        kinds = ", ".join(f"{shown(n)} {kind}" for kind, n in self.held.items() if n)
        has = f"{shown(self.total)} ({kinds})" if kinds else "nothing"
        return (
            f"gpuad: the tape had {has} when memory ran out. {state} Let go of arrays, or give the tape less: gpuad.Tape(budget=...) keeps "
            "within so many bytes, and tape.tradeoff() says of a recorded program what budgets cost."
        )

    def tell(self, what: What, kind: Kind | None = None, nbytes: int = 0) -> None:
        """Tells who listens."""
        if listeners and (tape := self._owner()) is not None:
            event = Event(perf_counter(), what, kind, nbytes)
            for listener in tuple(listeners):
                listener(event, tape)


def _watched(array: NdArray, freed: Callable[[Any], None]) -> weakref.ref[Any]:
    """Notices when an array's memory is let go. Of CuPy's arrays others may be made of the same memory, which then is what counts."""
    memory = None if isinstance(array, np.ndarray) else getattr(array.data, "mem", None)
    try:
        return weakref.ref(array if memory is None else memory, freed)
    except TypeError:
        return weakref.ref(array, freed)


__all__ = ["Event", "Kind", "MemoryLog", "What", "listeners"]

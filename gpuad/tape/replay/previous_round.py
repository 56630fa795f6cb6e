"""The program of the round before, as far as it is compared with one that is recorded anew in its place.

In: the steps of a recording that is complete. Out: for each call that is recorded what stood in its place: the layouts of its arrays, and
whether its caller still has an array that it made. The arrays themselves are not kept alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arguments.arrays import address, resolve
from ...runtime.base import owner_of
from ..memory.buffers import Outline
from ..record.call_keys import CallKey, MadeKey, arrays_of

_FAR = 64  # steps that are looked through for a call that has moved


@dataclass(frozen=True, slots=True)
class PreviousStep:
    """A step of the round before. `held`: whether somebody had the array that it made, `regions`: of a rule."""

    what: Any
    line: Any
    outlines: tuple[Outline, ...]
    held: bool
    regions: Any


@dataclass(eq=False)
class PreviousRound:
    """The steps of the round before, and the allocations that it met (`known`), by address; `at`: the step that is expected."""

    steps: list[PreviousStep]
    known: Mapping[int, Any]
    at: int = field(default=0)

    @classmethod
    def of(cls, keys: Sequence[CallKey], at: int) -> PreviousRound:
        """The round of these calls, from number `at` on."""
        known: dict[int, Any] = {}
        for array in (a for key in keys for x in key.args for a in arrays_of(x) if a.size):
            owner = _weakly(owner_of(array) if hasattr(array, "__array_interface__") else array.data.mem)
            known[address(resolve(array).root)] = owner
        return cls([_previous(key) for key in keys], _Alive(known), at)

    def next(self, what: Any, line: Any = None) -> PreviousStep | None:
        """The step in whose place a call comes; None if the program has none there."""
        for at in range(self.at, min(self.at + _FAR, len(self.steps))):
            step = self.steps[at]
            if step.what is what and (line is None or step.line is None or step.line == line):
                self.at = at + 1
                return step
        return None


class _Alive(dict[int, Callable[[], Any]]):
    """Allocations by address, as long as they are there: an address may be that of another one later."""

    def __contains__(self, where: object) -> bool:
        owner = self.get(where)  # type: ignore[call-overload]
        return owner is not None and owner() is not None


def _previous(key: CallKey) -> PreviousStep:
    made = key.made if isinstance(key, MadeKey) else None
    held = made is not None and (made.is_handed_out or made.apart)
    return PreviousStep(MadeKey if made is not None else key.what, key.line, key.outlines, held, getattr(key, "regions", None))


def _weakly(owner: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: owner


__all__ = ["PreviousRound", "PreviousStep"]

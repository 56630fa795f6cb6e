"""Follows a program that comes again: which op is expected next, and whether the program is worth following at all.

In: the ops of a recording that is complete, with what they take for granted. Out: the op that is expected, and the calls that make it.
Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ...arguments.layouts import layout, signature
from ...runtime.actions import Action
from ..memory.buffers import loading, storing
from ..record.call_keys import CallKey
from ..record.trace import END, Op
from .batching import batched
from .previous_round import PreviousRound, PreviousStep

Calls: TypeAlias = tuple[Action, ...]
MAX_MISSES = 3  # programs that differ each time are not compared for ever


class Made(Protocol):
    """What is known of arrays that a tape made."""

    def is_own(self, array: Any) -> bool:
        """True if it is a view of an array that an operation made."""

    def owner_of_shadow(self, array: Any) -> Any:
        """The array of an operation of whose shadow it is a view; None where there is none."""


@dataclass(frozen=True, eq=False)
class TracedProgram:
    """What a recording that is complete takes for granted: arrays, by what they are, shadows that the tape made, by how they are laid out,
    and the surroundings. `ops`: what it is made of."""

    ops: Sequence[Op]
    arrays: tuple[tuple[Any, tuple[Any, ...]], ...]
    shadows: tuple[tuple[Any, tuple[Any, ...], Any], ...]
    surroundings: tuple[Any, ...]

    @classmethod
    def of(cls, ops: Sequence[Op], surroundings: tuple[Any, ...], made: Made) -> TracedProgram:
        """The program of these ops. `made`: which arrays are views of what the tape made, for an operation, which is never handed out, and
        which of what it made for a shadow, which stays where it is."""
        found = {id(a): a for op in ops for a in op.arrays}.values()
        arrays = [a for a in found if not made.is_own(a)]
        owners = [made.owner_of_shadow(a) for a in arrays]
        others = tuple((a, signature(a)) for a, owner in zip(arrays, owners, strict=True) if owner is None)
        shadows = tuple((a, layout(a), owner) for a, owner in zip(arrays, owners, strict=True) if owner is not None)
        return cls(ops, others, shadows, surroundings)

    def holds(self, surroundings: tuple[Any, ...]) -> bool:
        """Whether all of that is still so."""
        return self.surroundings == surroundings and self.changed() is None

    def changed(self) -> Any | None:
        """An array that is not what it was."""
        for array, was in self.arrays:
            if signature(array) != was:
                return array
        return next((array for array, was, owner in self.shadows if owner.looked and layout(array) != was), None)


class Cursor:
    """A place in a `program` that is known (None: none is). `expected`: the op that comes next, None where the program is new; `at`: its
    number. `previous`: the round in whose place one is recorded anew; `why`: why this one was not known; `unknown`: why the next one will
    not be; `replaced`: the previous step in whose place the last call came."""

    __slots__ = ("_calls", "_comparable", "_misses", "_ops", "at", "expected", "previous", "program", "replaced", "unknown", "why")

    def __init__(self) -> None:
        self._ops: Sequence[Op] = ()
        self._calls: list[tuple[Op, Calls] | None] = []  # what makes each op, with as few calls as there can be, once it was made again
        self.program: TracedProgram | None = None
        self.expected: Op | None = None
        self.previous: PreviousRound | None = None
        self.replaced: PreviousStep | None = None
        self.at = self._misses = 0
        self._comparable = True
        self.why = self.unknown = ""

    def forget(self, comparable: bool) -> None:
        """Begins anew, with a program that is new; `comparable`: whether it may be known the next time."""
        self.program = None  # first: a program whose operations are half forgotten, since an interrupt came, must not be known
        self._ops, self._calls, self.expected, self.at, self.previous = (), [], None, 0, None
        self._comparable = comparable and self._misses < MAX_MISSES
        if not comparable:
            self.unknown = "a tape with check='exact' records each round anew"
        elif not self._comparable:
            self.unknown = f"{MAX_MISSES} rounds one after the other were other programs than the ones before"

    def drop(self, why: str) -> None:
        """The program will not be known the next time."""
        self.program, self.unknown = None, why

    def note(self, key: CallKey, lasts: bool) -> None:
        """A call was recorded; `lasts`: it is known by its arguments, none of which can be changed into something else."""
        if self._comparable and not lasts:
            self._comparable = False
            self.unknown = f"an argument of {key.name} ({key.where}) is an object that can be changed"

    def remember(self, ops: Sequence[Op], surroundings: tuple[Any, ...], made: Made) -> None:
        """The recording is complete."""
        self.previous = None
        if ops and self._comparable:
            self.program, self._calls = TracedProgram.of(ops, surroundings, made), [None] * len(ops)

    def compare_with(self, previous: PreviousRound | None) -> None:
        """A program is recorded anew, in the place of the round before."""
        self.previous = previous if self._comparable else None

    def before(self, what: Any, line: Any = None) -> PreviousStep | None:
        """What stood in the place of a call that is recorded anew; None where nothing did."""
        self.replaced = None if self.previous is None else self.previous.next(what, line)
        return self.replaced

    def begin(self) -> None:
        """The program is expected from its first op on."""
        assert self.program is not None
        self.why = ""
        self._ops = self.program.ops
        self.at, self.expected = 0, self._ops[0]

    def advance(self, to: int | None = None) -> None:
        """The expected op was made; or all up to number `to`."""
        self.at = self.at + 1 if to is None else to
        self.expected = self._ops[self.at] if self.at < len(self._ops) else END

    def calls(self, op: Op) -> Calls:
        """The calls that make the expected op: its actions, and copies between buffers and what they stand for."""
        known = self._calls[self.at]
        if known is None or known[0] is not op:
            known = self._calls[self.at] = op, (*loading(op.loads), *batched(op.actions), *storing(op.stores))
        return known[1]

    @property
    def passed(self) -> list[Op]:
        """The ops that were made."""
        return list(self._ops[: self.at])

    def miss(self, why: str) -> None:
        """The program is another one than before."""
        self._misses += 1
        self.why = why

    @property
    def is_at_end(self) -> bool:
        """True if all ops were made."""
        return self.expected is END

    def finish(self) -> None:
        """The program came again, to its last step."""
        self.expected, self._misses = None, 0


__all__ = ["Cursor", "TracedProgram"]

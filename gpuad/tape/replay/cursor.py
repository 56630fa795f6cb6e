"""Follows a program that comes again: which step is expected next, and whether the program is worth following at all.

In: the steps of a recording that is complete, with what they take for granted. Out: the step that is expected. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...arguments.layouts import layout, signature
from .previous_round import PreviousRound, PreviousStep
from .trace_steps import END, Step

MAX_MISSES = 3  # programs that differ each time are not compared for ever


class Made(Protocol):
    """What is known of arrays that a tape made."""

    def is_own(self, array: Any) -> bool:
        """Whether it is a view of an array that an operation made."""

    def is_own_shadow(self, array: Any) -> bool:
        """Whether it is a view of a shadow of one."""


@dataclass(frozen=True, eq=False)
class TracedProgram:
    """The steps of a recording that is complete, and what they take for granted: arrays, by what they are, shadows that the tape made, by
    how they are laid out, and the surroundings."""

    steps: tuple[Step, ...]
    arrays: tuple[tuple[Any, tuple[Any, ...]], ...]
    shadows: tuple[tuple[Any, tuple[Any, ...]], ...]
    surroundings: tuple[Any, ...]

    @classmethod
    def of(cls, steps: Sequence[Step], surroundings: tuple[Any, ...], made: Made) -> TracedProgram:
        """The program of these steps, with its end. `made`: which arrays are views of what the tape made, for an operation, which nobody
        else ever has, and which of what it made for a shadow, which stays where it is."""
        found = {id(a): a for step in steps for a in step.arrays}.values()
        arrays = [a for a in found if not made.is_own(a)]
        shadows = [a for a in arrays if made.is_own_shadow(a)]
        others = tuple((a, signature(a)) for a in arrays if not made.is_own_shadow(a))
        return cls((*steps, END), others, tuple((a, layout(a)) for a in shadows), surroundings)

    def holds(self, surroundings: tuple[Any, ...]) -> bool:
        """Whether all of that is still so."""
        return self.surroundings == surroundings and self.changed() is None

    def changed(self) -> Any | None:
        """An array that is not what it was."""
        for array, was in self.arrays:
            if signature(array) != was:
                return array
        return next((array for array, was in self.shadows if layout(array) != was), None)


class Cursor:
    """A place in a `program` that is known (None: none is). `expected`: the step that comes next, None where the program is new; `at`: its
    number. `previous`: the round in whose place one is recorded anew; `why`: why this one was not known; `unknown`: why the next one will
    not be; `replaced`: the previous step in whose place the last call came."""

    __slots__ = ("_comparable", "_misses", "_steps", "at", "expected", "previous", "program", "replaced", "unknown", "why")

    def __init__(self) -> None:
        self._steps: tuple[Step, ...] = ()
        self.program: TracedProgram | None = None
        self.expected: Step | None = None
        self.previous: PreviousRound | None = None
        self.replaced: PreviousStep | None = None
        self.at = self._misses = 0
        self._comparable = True
        self.why = self.unknown = ""

    def forget(self, comparable: bool) -> None:
        """Begins anew, with a program that is new; `comparable`: whether it may be known the next time."""
        self.program = None  # first: a program whose operations are half forgotten, since an interrupt came, must not be known
        self._steps, self.expected, self.at, self.previous = (), None, 0, None
        self._comparable = comparable and self._misses < MAX_MISSES
        if not comparable:
            self.unknown = "a tape with check='exact' records each round anew"
        elif not self._comparable:
            self.unknown = f"{MAX_MISSES} rounds one after the other were other programs than the ones before"

    def drop(self, why: str) -> None:
        """The program will not be known the next time."""
        self.program, self.unknown = None, why

    def note(self, step: Step, lasts: bool) -> None:
        """A step was recorded; `lasts`: it is known by its arguments, none of which can be changed into something else."""
        if self._comparable and not lasts:
            self._comparable = False
            self.unknown = f"an argument of {step.name} ({step.where}) is an object that can be changed"

    def remember(self, steps: Sequence[Step], surroundings: tuple[Any, ...], made: Made) -> None:
        """The recording is complete."""
        self.previous = None
        if steps and self._comparable:
            self.program = TracedProgram.of(steps, surroundings, made)

    def compare_with(self, previous: PreviousRound | None) -> None:
        """A program is recorded anew, in the place of the round before."""
        self.previous = previous if self._comparable else None

    def before(self, what: Any, line: Any = None) -> PreviousStep | None:
        """What stood in the place of a call that is recorded anew; None where nothing did."""
        self.replaced = None if self.previous is None else self.previous.next(what, line)
        return self.replaced

    def begin(self) -> None:
        """The program is expected from its first step on."""
        assert self.program is not None
        self.why = ""
        self._steps = self.program.steps
        self.at, self.expected = 0, self._steps[0]

    def advance(self) -> None:
        """The expected step was done."""
        self.at += 1
        self.expected = self._steps[self.at]

    @property
    def passed(self) -> tuple[Step, ...]:
        """The steps that were done."""
        return self._steps[: self.at]

    def miss(self, why: str) -> None:
        """The program is another one than before."""
        self._misses += 1
        self.why = why

    @property
    def is_at_end(self) -> bool:
        """Whether all steps were done."""
        return self.expected is END

    def finish(self) -> None:
        """The program came again, to its last step."""
        self.expected, self._misses = None, 0


__all__ = ["Cursor", "TracedProgram"]

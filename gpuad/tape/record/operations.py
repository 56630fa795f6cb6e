"""Recorded operations: what each does to memory, what its adjoint needs, and how to run that adjoint.

An operation saves nothing itself: only the tape, which sees the whole program, knows what will be overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ...program.ir.region import Region
from ...runtime.actions import Action, copying
from ..memory.versions import Allocation


@dataclass(frozen=True, eq=False, slots=True)
class Use:
    """A region of an allocation; `position` is the argument through which the operation reaches it. `passed`: if it is not known which
    part of the allocation is reached, that of the array that was passed."""

    allocation: Allocation
    region: Region
    position: int
    passed: Region | None = None

    @property
    def shown(self) -> Region:
        """The region as far as a user means it: a launch may leave the array that it was passed, but is not taken to."""
        return self.region if self.passed is None else self.passed


@dataclass(frozen=True, eq=False, slots=True)
class Effects:
    """May-writes, and what the adjoint reads: as it was `before` the operation, or as it is `after` it (rules 1 and 14 of the contract).
    `must`: what is surely written."""

    writes: tuple[Use, ...] = ()
    before: tuple[Use, ...] = ()
    after: tuple[Use, ...] = ()
    must: tuple[Use, ...] = ()


class Operation(Protocol):
    """One entry of a tape."""

    @property
    def name(self) -> str:
        """What is run: a kernel, a rule."""

    @property
    def where(self) -> str:
        """The user's file and line."""

    @property
    def effects(self) -> Effects:
        """What it does to memory and what its adjoint reads."""

    def line(self) -> str:
        """The adjoint as one line of Python."""


@dataclass(frozen=True, eq=False)
class Foreign:
    """Code that the tape does not see, announced by `Tape.overwrites`: its result depends on nothing active."""

    name: str
    where: str
    effects: Effects
    cleared: tuple[Any, ...] = ()  # shadow views

    def reverse(self) -> list[Action]:
        """What was there before reached nothing: its adjoint is 0."""
        return [copying(shadow, 0) for shadow in self.cleared]

    def line(self) -> str:
        return f"clear({self.name})  # {self.where}: overwritten by code outside of the tape"


class Renewed(Foreign):
    """The memory of an array that an operation made, without a handle or view, is used for a new one: what it holds from here on
    hangs on nothing, until an operation writes it."""

    def reverse(self) -> list[Action]:
        """Its shadow is zero before, which is noted as the reversal is planned (`zero_regions`)."""
        return []

    def line(self) -> str:
        return f"clear({self.name})  # {self.where}: memory of an earlier temporary, used again"

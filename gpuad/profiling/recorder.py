"""Listens to the tapes while a program runs, and makes a profile of it.

While it runs nothing is done but noting: events of memory and phases, and what a program holds, once for each program that is new. What
that would cost within other budgets is asked at the end, of the tapes that are still there.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from ..errors import GpuadError, TapeError, UnknownNameError
from ..public_calls import positive, public
from ..tape.budget.holding import Holding
from ..tape.memory.memory_log import Event, Kind, What, listeners
from ..tape.program_recording import ProgramRecording
from .device import Neighbourhood
from .records import Level, Program, Round, Supposed
from .report import Profile
from .sampler import Sampler

_POINTS = 16  # budgets that are asked for
_MANY = 3000  # operations, up to which it is looked at what is held within them


@dataclass(eq=False)
class _Followed:
    """A tape: its number, the round that is going on, and what is known of its program. `outline`: what that was read off."""

    tape: weakref.ref[ProgramRecording]
    number: int
    held: dict[Kind, int]
    began: float = 0.0
    recorded: float | None = None
    reversing: float | None = None
    outline: tuple[object, ...] | None = None
    program: Program | None = None


@dataclass(eq=False)
class Recorder:
    """The listener."""

    followed: dict[int, _Followed] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    programs: dict[int, Program] = field(default_factory=dict)
    cost: float = 0.0

    def __call__(self, event: Event, tape: ProgramRecording) -> None:
        """Notes an event."""
        one = self._follow(event, tape)
        if event.kind is not None:
            self.levels.append(Level(event.seconds, one.number, event.kind, tape.memory.held[event.kind]))
            return
        begin = perf_counter()
        match event.what:
            case What.began:
                self._close(one, tape)
                one.began = event.seconds
            case What.recorded:
                one.recorded = event.seconds
            case What.reversing:
                one.reversing = event.seconds
            case What.reversed if one.recorded is not None:
                one.program = self._program(one, tape)
                self.rounds.append(Round(one.program, one.began, one.recorded, one.reversing, event.seconds))
                one.recorded = None
            case What.failed:
                one.recorded = None
        self.cost += perf_counter() - begin

    def _follow(self, event: Event, tape: ProgramRecording) -> _Followed:
        one = self.followed.get(id(tape))
        if one is None or one.tape() is not tape:
            one = self.followed[id(tape)] = _Followed(weakref.ref(tape), len(self.followed) + 1, {}, event.seconds)
            self.levels += [Level(event.seconds, one.number, kind, n) for kind, n in tape.memory.held.items() if n]
        return one

    def _program(self, one: _Followed, tape: ProgramRecording) -> Program:
        """What is recorded, read off once for each program that is new."""
        outline = tape.outline
        if one.program is None or one.outline != outline:
            found = Program(one.number, tape.held())
            one.outline = outline
            one.program = found if one.program is None or found.holding != one.program.holding else one.program
        return one.program

    def _close(self, one: _Followed, tape: ProgramRecording) -> None:
        """A recording that was not reversed."""
        if one.recorded is not None:
            self.rounds.append(Round(self._program(one, tape), one.began, one.recorded))
            one.recorded = None

    def finished(self) -> tuple[Round, ...]:
        """The rounds; of tapes that are still there with what their programs would cost within other budgets."""
        told: dict[int, Program] = {}
        for one in self.followed.values():
            tape = one.tape()
            if tape is not None:
                self._close(one, tape)
                if one.program is not None and one.outline == tape.outline:
                    told[id(one.program)] = _completed(one.program, tape)
        return tuple(replace(r, program=told.get(id(r.program), r.program)) for r in self.rounds)


def _completed(program: Program, tape: ProgramRecording) -> Program:
    """With what only the tape can say."""
    held = tape.held_by_caller()
    try:
        points = tape.tradeoff(_POINTS).points
    except TapeError:  # it has not looked at what runs again
        return replace(program, held_by_caller=held)
    looks = program.holding.operations <= _MANY
    return replace(program, held_by_caller=held, supposed=tuple(Supposed(p, _held(tape, p.budget) if looks else None) for p in points))


def _held(tape: ProgramRecording, budget: int) -> Holding | None:
    try:
        found: Holding = tape.held(budget)
        return found
    except GpuadError:
        return None


class Profiling:
    """What `with gpuad.profile() as p` gives: a profile once the block has ended. Its names are those of `Profile`."""

    def __init__(self) -> None:
        self._profile: Profile | None = None

    def __getattr__(self, name: str) -> Any:
        if self._profile is None:
            raise UnknownNameError(f"{name}: a profile is there when its block has ended")
        return getattr(self._profile, name)

    def __repr__(self) -> str:
        return repr(self._profile) if self._profile is not None else "<profile that is going on>"

    def __str__(self) -> str:
        return str(self._profile) if self._profile is not None else "a profile that is going on"


@public
def profile(interval: float = 0.01) -> AbstractContextManager[Profiling]:
    """Profiles the memory of all that tapes record and reverse within it.

        with gpuad.profile() as p:
            ...
        print(p)                   # who holds which bytes, why, and what would help
        p.page("memory.html")

    `interval`: seconds between two looks at process, pool and device; more where a look takes long: all looks together take less than 2 %
    of the time. Afterwards `p` has what a `Profile` has.
    """
    return _profiled(positive("interval", interval))


@contextmanager
def _profiled(interval: float) -> Iterator[Profiling]:
    found, recorder, neighbourhood = Profiling(), Recorder(), Neighbourhood()
    sampler = Sampler(neighbourhood, interval)
    begin = perf_counter()
    listeners.append(recorder)
    try:
        with neighbourhood.watched():
            sampler.start()
            try:
                yield found
            finally:
                listeners.remove(recorder)
                sampler.stop()
    finally:
        end = perf_counter()
        rounds = recorder.finished()
        found._profile = Profile(
            rounds, tuple(recorder.levels), tuple(sampler.readings), (begin, end), sampler.cost + recorder.cost, neighbourhood.allocator
        )


__all__ = ["Profiling", "Recorder", "profile"]

"""Decides, when memory is about to be overwritten, whether it is copied or a few values are kept in its place (rule 14 of the contract).

A launch whose adjoint could do with values that a thread computes once (see `checkpoint_kernels`) needs the memory that they are made of
only as long as they are not kept. If that memory survives, nothing is saved. Else the launches that need it are decided together, since one
copy would serve all of them: what takes fewer bytes is done, just before the memory is overwritten."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ... import pipeline
from ...ir.dtypes import dtype_of
from ...ir.nodes import Kernel
from ...pipeline import Call, State
from ...program.ir.region import EMPTY, Region
from ...runtime.actions import ActionLog
from ...runtime.base import Memory
from ..memory.versions import Allocation, DeferrableNeed
from .checkpoint_extraction import reads_fewer_bytes, with_values, writes_values
from .checkpoint_kernels import Cutting
from .footprints import Footprints
from .operations import Use
from .recorded_launch import Kept, Launched
from .trace import Extraction, Op, Trace


@dataclass(frozen=True, eq=False)
class Surviving:
    """What is read of an allocation where it is: in any case (`firm`), or unless values are kept instead (`deferrable`)."""

    allocation: Allocation
    firm: Region
    deferrable: tuple[DeferrableNeed, ...]


class Traced(Protocol):
    """A recording."""

    trace: Trace


class Saves(Protocol):
    """What saves for a recording."""

    log: ActionLog

    def pooled(self, call: Call) -> Call:
        """The call with memory for its needs from what the tape saves."""

    def space(self, length: int, dtype: Any) -> Any:
        """A flat array in what the tape saves, not cleared."""


class ValueCheckpoints:
    """Decides what a `recording` keeps for deferrable needs: copies of memory, or values made of it. `surviving`: what was read where it is
    by a recording that has ended."""

    def __init__(self, recording: Traced, footprints: Footprints, saver: Saves) -> None:
        self._recording, self._footprints, self._saver = recording, footprints, saver
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self.surviving: Sequence[Surviving] = ()

    def choose(self, writes: Sequence[Use]) -> None:
        """Decides the needs of what is about to be written."""
        hit: dict[int, set[int]] = {}
        for use in writes:
            for need in use.allocation.deferrable:
                if need.region & use.region:
                    hit.setdefault(need.time, set()).add(need.position)
        if not hit:
            return
        cuts = {time: cut for time, positions in hit.items() if (cut := self._best(time, frozenset(positions))) is not None}
        self.demand(time for time in hit if time not in cuts)
        values, copies = sum(cut.total for cut in cuts.values()), _copied(writes, set(cuts))
        if values > copies or (values == copies and not any(self._spares(time, cut, hit[time]) for time, cut in cuts.items())):
            self.demand(cuts)
            return
        for time, cut in cuts.items():
            self._keep(time, cut)

    def demand(self, times: Iterable[int]) -> None:
        """These launches need the memory itself."""
        wanted = set(times)
        for a in self._footprints.allocations.values() if wanted else ():
            for need in a.deferrable:
                if need.time in wanted:
                    a.pending = a.pending | need.region
        self.release(wanted)

    def demand_all(self) -> None:
        """What is still claimed when the recording ends is read where it is."""
        self.demand_results({need.time for a in self._footprints.allocations.values() for need in a.results})
        self.surviving = [Surviving(a, a.pending, tuple(a.deferrable)) for a in self._footprints.allocations.values() if a.deferrable]
        for a in self._footprints.allocations.values():
            a.pending, a.deferrable = a.needed, []

    def release(self, times: set[int]) -> None:
        """These launches need nothing that is deferred any more."""
        for a in self._footprints.allocations.values() if times else ():
            a.deferrable = [c for c in a.deferrable if c.time not in times]

    def demand_results(self, times: Collection[int]) -> None:
        """These launches need what they left in memory."""
        for a in self._footprints.allocations.values() if times else ():
            for need in a.results:
                a.pending = a.pending | need.region if need.time in times else a.pending
            a.results = [need for need in a.results if need.time not in times]

    def stack_results(self, writes: Sequence[Use]) -> None:
        """What is about to be written: launches whose adjoint reads there what they left do with a stack, where they need nothing else
        for it."""
        hit = {need.time for use in writes for need in use.allocation.results if need.region & use.region}
        for time in sorted(hit):
            new = self._on_stacks(self._launched(time))
            if new is None:
                self.demand_results({time})
                continue
            for a in self._footprints.allocations.values():
                a.results = [need for need in a.results if need.time != time]
            self.demand({time})
            self._recording.trace.change(time, operation=new)
            for use in new.effects.after:
                use.allocation.pending = use.allocation.pending | use.region

    def _on_stacks(self, old: Launched) -> Launched | None:
        """A launch with an adjoint that reads nothing of what it left for what loops carry; None where that needs more of what was."""
        assert old.adjoint is not None
        adjoint = old.kernel.reverse_for(replace(old.adjoint.pattern, results=False), old.call)
        effects, uses = self._footprints.reach(old, adjoint)
        known: dict[int, Region] = {}
        for use in old.effects.before:
            known[id(use.allocation)] = known.get(id(use.allocation), EMPTY) | use.region
        if old.kept is not None or adjoint.log_numbers != old.adjoint.log_numbers:
            return None
        if any(use.region - known.get(id(use.allocation), EMPTY) for use in effects.before):
            return None
        old.call.prepare([pipeline.counting(adjoint, old.call), *(k for s in pipeline.stages(adjoint, old.call) for k in s.kernels)])
        return replace(old, adjoint=adjoint, effects=effects, uses=uses, cuts=None)

    def _launched(self, time: int) -> Launched:
        operation = self._recording.trace.at(time).operation
        assert isinstance(operation, Launched), "only launches have deferrable needs"
        return operation

    def _best(self, time: int, positions: frozenset[int]) -> Cutting | None:
        cuts = self._launched(time).cuts
        return None if cuts is None else cuts.best(positions)

    def _spares(self, time: int, cut: Cutting, hit: set[int]) -> bool:
        """Whether with the values a launch needs less of the memory that is not about to be written, too."""
        needs = (need for a in self._footprints.allocations.values() for need in a.deferrable if need.time == time)
        return any(need.position not in hit and cut.spares(need.position) for need in needs)

    def _keep(self, time: int, cut: Cutting) -> None:
        """Computes the values now, from memory that is still as the launch saw it; its adjoint reads them from here on."""
        old = self._launched(time)
        call = self._saver.pooled(old.call)
        call.prepare([cut.extraction, *_of_reverse(cut, call)])
        kept = self.room_for(cut)  # read where they are written
        arguments = call.bound.arguments
        live = {i: (a.memory if a.is_pointer else a.value) for i, a in enumerate(arguments)}
        entries = {i: a.memory for i, a in enumerate(arguments) if a.memory is not None}
        state = State(live, entries=entries, logs=[*old.logs, *kept])
        call.run(cut.extraction, pipeline.arguments(cut.parameters, call, state))
        trace, extraction = self._recording.trace, Extraction(cut, kept, self._saver.log.actions[-1])
        new = self.reading(old, cut, kept, len(trace.operations))
        trace.change(time, operation=new, keeping=extraction)
        self.release({time})
        for use in new.effects.before:
            use.allocation.pending = use.allocation.pending | use.region

    def room_for(self, cut: Cutting) -> list[Memory]:
        """Room for the values of a launch."""
        return [Memory(self._saver.space(cut.elements, dtype_of(b.element))) for b in cut.saved]

    def reading(self, old: Launched, cut: Cutting, kept: Sequence[Memory], overwriter: int | None) -> Launched:
        """The launch with an adjoint that reads the values that are kept because of operation number `overwriter`."""
        effects, uses = self._footprints.reach(old, cut.adjoint)
        note = Kept(cut.names, cut.total, overwriter)
        return replace(old, adjoint=cut.adjoint, effects=effects, uses=uses, logs=[*old.logs, *kept], cuts=None, kept=note)

    def keep_cheaper_values(self) -> bool:
        """The program comes again: its launches keep values in place of memory that survives too, where these are less to read (see
        `checkpoint_extraction.reads_fewer_bytes`). Changes ops; whether any. To be called before they are made again, since nothing was
        kept when they were recorded."""
        surviving, self.surviving = self.surviving, ()
        trace = self._recording.trace
        if not surviving or not trace.is_plain:
            return False
        made: dict[int, Op] = {}
        for time in sorted({c.time for s in surviving for c in s.deferrable}):
            positions = frozenset(c.position for s in surviving for c in s.deferrable if c.time == time)
            new = self._kept_cheaper(trace.at(time), positions)
            if new is not None:
                made[time] = new
        if not made:
            return False
        numbers = {id(trace.at(time)): op for time, op in made.items()}
        trace.change_all(lambda op: numbers.get(id(op), op))
        for s in surviving:
            s.allocation.pending = s.firm
            for region in (c.region for c in s.deferrable if c.time not in made):
                s.allocation.pending = s.allocation.pending | region
        return True

    def _kept_cheaper(self, op: Op, positions: frozenset[int]) -> Op | None:
        """A launch that keeps values in place of all that its adjoint reads through these arguments; None where it does not."""
        old = op.operation
        assert isinstance(old, Launched), "only launches have deferrable needs"
        cut = old.cuts.get(positions) if old.cuts is not None else None
        if cut is None or not reads_fewer_bytes(old, cut) or not writes_values(op, cut):
            return None
        old.call.prepare(_of_reverse(cut, old.call))
        kept = self.room_for(cut)
        new = with_values(op, Extraction(cut, kept, op.actions[-1]))
        return None if new is None else replace(new, operation=self.reading(old, cut, kept, None))


def _of_reverse(cut: Cutting, call: Call) -> list[Kernel | None]:
    """The kernels of the reverse."""
    return [pipeline.counting(cut.adjoint, call), *(k for s in pipeline.stages(cut.adjoint, call) for k in s.kernels)]


def _copied(writes: Sequence[Use], times: set[int]) -> int:
    """Bytes that would be copied now for the needs of these launches alone."""
    wanted: dict[int, tuple[Allocation, Region]] = {}
    for use in writes:
        a = use.allocation
        found = wanted.get(id(a), (a, EMPTY))[1]
        for need in a.deferrable:
            if need.time in times:
                found = found | (need.region & use.region)
        wanted[id(a)] = (a, found)
    return sum(a.stored_bytes(region - a.pending) for a, region in wanted.values())

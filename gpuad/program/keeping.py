"""Decides, when memory is about to be overwritten, whether it is copied or a few values are kept in its place (RULES 14, N2 and N3).

A launch whose adjoint could do with values that a thread computes once (see `cutting`) only claims the memory that they are made of. If
that memory survives, nothing is saved. Else the launches that claim it are settled together, since one copy would serve all of them: what
takes fewer bytes is done, just before the memory is overwritten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from .. import launching
from ..cutting import Cutting
from ..differentiate import Adjoint
from ..executors.base import Memory
from ..ir.dtypes import dtype_of
from ..launching import Call, State
from .actions import Doing
from .extracting import Extraction
from .launch import Kept, Launched
from .memory import Allocation
from .operation import Effects, Operation, Use
from .region import EMPTY, Region


class Keeping(ABC):
    """The part of a recording that settles claims."""

    operations: list[Operation]
    allocations: dict[int, Allocation]
    extractions: list[Extraction]
    doing: Doing

    @abstractmethod
    def reach(self, kernel: object, adjoint: Adjoint, call: Call) -> tuple[Effects, dict[tuple[str, int], Use]]:
        """What a launch does to memory and what the adjoint reads, and the latter by the reverse kernel's parameters."""

    @abstractmethod
    def pooled(self, call: Call) -> Call:
        """The call with memory for its needs from what the tape saves."""

    @abstractmethod
    def space(self, length: int, dtype: Any) -> Any:
        """A flat array in what the tape saves, not cleared."""

    def settle(self, writes: Sequence[Use]) -> None:
        """Settles the claims on what is about to be written."""
        hit: dict[int, set[int]] = {}
        for use in writes:
            for claim in use.allocation.claims:
                if claim.region & use.region:
                    hit.setdefault(claim.time, set()).add(claim.position)
        if not hit:
            return
        cuts = {time: cut for time, positions in hit.items() if (cut := self._launched(time).cuts.get(frozenset(positions))) is not None}
        self.demand(time for time in hit if time not in cuts)
        if sum(cut.nbytes * self._launched(time).call.threads for time, cut in cuts.items()) >= _copied(writes, set(cuts)):
            self.demand(cuts)
            return
        for time, cut in cuts.items():
            self._keep(time, cut)

    def demand(self, times: Iterable[int]) -> None:
        """These launches need the memory itself."""
        wanted = set(times)
        for a in self.allocations.values() if wanted else ():
            for claim in a.claims:
                if claim.time in wanted:
                    a.pending = a.pending | claim.region
        self._release(wanted)

    def demand_all(self) -> None:
        """What is still claimed when the recording ends is read where it is."""
        for a in self.allocations.values():
            a.pending, a.claims = a.needed, []

    def _release(self, times: set[int]) -> None:
        for a in self.allocations.values() if times else ():
            a.claims = [c for c in a.claims if c.time not in times]

    def _launched(self, time: int) -> Launched:
        operation = self.operations[time]
        assert isinstance(operation, Launched), "only launches make claims"
        return operation

    def _keep(self, time: int, cut: Cutting) -> None:
        """Computes the values now, from memory that is still as the launch saw it; its adjoint reads them from here on."""
        old = self._launched(time)
        call = self.pooled(old.call)
        call.prepare(
            [cut.extraction, launching.counting(cut.adjoint, call), *(k for s in launching.stages(cut.adjoint, call) for k in s.kernels)]
        )
        kept = [Memory(self.space(call.threads, dtype_of(b.element))) for b in cut.saved]  # read where they are written
        logs = [*old.logs, *kept]
        arguments = call.bound.arguments
        live = {i: (a.memory if a.is_pointer else a.value) for i, a in enumerate(arguments)}
        state = State(live, entries={i: a.memory for i, a in enumerate(arguments) if a.memory is not None}, logs=logs)
        call.run(cut.extraction, launching.arguments(cut.parameters, call, state))
        self.extractions.append(Extraction(time, cut, kept, self.doing.actions[-1]))
        effects, uses = self.reach(old.kernel, cut.adjoint, old.call)
        note = Kept(cut.names, cut.nbytes * call.threads, len(self.operations) - 1)
        self.operations[time] = replace(old, adjoint=cut.adjoint, effects=effects, uses=uses, logs=logs, cuts={}, kept=note)
        self._release({time})
        for use in effects.before:
            use.allocation.pending = use.allocation.pending | use.region


def _copied(writes: Sequence[Use], times: set[int]) -> int:
    """Bytes that would be copied now for the claims of these launches alone."""
    wanted: dict[int, tuple[Allocation, Region]] = {}
    for use in writes:
        a = use.allocation
        found = wanted.get(id(a), (a, EMPTY))[1]
        for claim in a.claims:
            if claim.time in times:
                found = found | (claim.region & use.region)
        wanted[id(a)] = (a, found)
    return sum((region - a.pending).nbytes for a, region in wanted.values())

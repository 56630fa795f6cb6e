"""A recording that is complete, as it runs again: which bytes a checkpoint before each of its operations has.

A checkpoint before operation t is what later operations and their adjoints read of memory as it is then, as far as it is overwritten
later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...budget import rounded
from ...program.ir.region import Region
from ...program.ir.regions import Regions, common, united, without
from ..memory.versions import Allocation, home_of
from ..record.operations import Operation
from .rerun import Rerun, adjoint_reads, needs_of


@dataclass(eq=False)
class Program:
    """A recording that is complete, as it runs again: an entry of `reruns` for each operation, `allocations` by address. `states`: the
    checkpoints before the operations that were asked for; `lives`: what is live there and not overwritten any more, so not stored."""

    operations: Sequence[Operation]
    reruns: Sequence[Rerun]
    allocations: Mapping[int, Allocation]
    states: dict[int, Regions] = field(default_factory=dict)
    lives: dict[int, Regions] = field(default_factory=dict)
    _spares: dict[tuple[int, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.operations)

    @cached_property
    def written(self) -> list[Regions]:
        """For each operation what it writes."""
        return [rerun.writes for rerun in self.reruns]

    @cached_property
    def costs(self) -> list[int]:
        """What it costs to run the operations before each, and all: the bytes that they read and write."""
        found = [0]
        for rerun in self.reruns:
            found.append(found[-1] + max(sum(r.nbytes for part in (rerun.reads, rerun.writes) for r in part.values()), 1))
        return found

    @cached_property
    def state_bytes(self) -> list[int]:
        """For each operation the bytes of the checkpoint before it."""
        found = [0] * (len(self) + 1)
        live: Regions = {}
        later: Regions = {}
        for t in range(len(self) - 1, -1, -1):
            live, later = self._back(t, live, later)
            found[t] = sum(rounded(r.nbytes) for r in common(live, later).values())
        return found

    def _back(self, t: int, live: Regions, later: Regions) -> tuple[Regions, Regions]:
        """What is live before an operation, and what it or a later one writes."""
        rerun = self.reruns[t]
        reads = united(rerun.reads, needs_of(self.operations[t], rerun.must))
        live = without(united(without(live, rerun.must), reads), rerun.arrives)
        return live, united(later, rerun.writes)

    def note(self, boundaries: Iterable[int]) -> None:
        """Finds out about the checkpoints before these operations."""
        wanted = {t for t in boundaries if t < len(self)} - self.states.keys()
        live: Regions = {}
        later: Regions = {}
        for t in range(len(self) - 1, min(wanted, default=len(self)) - 1, -1):
            live, later = self._back(t, live, later)
            if t in wanted:
                self.states[t], self.lives[t] = common(live, later), without(live, later)

    @cached_property
    def finals(self) -> Regions:
        """What a reversal has to put back at its end: what is written more than once, or brought back from the beginning. The rest is
        written again as it was, and what a later checkpoint brings back is among these."""
        once: Regions = {}
        several: Regions = {}
        for rerun in self.reruns:
            several = united(several, common(once, rerun.writes))
            once = united(once, rerun.writes)
        self.note([0])
        return united(several, self.states.get(0, {}))

    def spared_from(self, begin: int, end: int) -> int:
        """The operation from which on those up to `end` need not run again, so that the adjoints of all from `begin` on can."""
        known = self._spares.get((begin, end))
        if known is not None:
            return known
        needed: Regions = {}
        t = end
        while t > begin:
            operation, rerun = self.operations[t - 1], self.reruns[t - 1]
            before, after = adjoint_reads(operation)
            if after or rerun.logs or rerun.arrives or common(rerun.writes, needed):
                break
            needed = united(needed, before)
            t -= 1
        self._spares[begin, end] = t
        return t


def initial_parts(program: Program, restored: frozenset[int] | None) -> Iterable[tuple[int, int, int]]:
    """The copies that make up the state at the beginning, as they are made: the operation before which that is, since it overwrites what
    was read, the address of the allocation, and the bytes."""
    for time, where, region in initial_regions(program, restored):
        yield time, where, home_of(region, region, program.allocations[where].root)[1]


def initial_regions(program: Program, restored: frozenset[int] | None) -> Iterable[tuple[int, int, Region]]:
    """The same with what is copied."""
    done: Regions = {}
    pending: Regions = {}
    for time, (operation, rerun) in enumerate(zip(program.operations, program.reruns, strict=True)):
        reads = without(united(rerun.reads, needs_of(operation, rerun.must)), rerun.arrives)
        fresh = without(united(pending, reads), done)
        wanted = common(fresh, rerun.writes)
        if restored is not None:
            wanted = united(wanted, without({w: r for w, r in rerun.writes.items() if w not in restored}, done))
        yield from ((time, w, r) for w, r in wanted.items())
        done, pending = united(done, rerun.writes), without(fresh, rerun.writes)

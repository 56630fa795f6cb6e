"""The plan of a reversal: all that it will do to memory, as a list of actions, before the first of them is done.

Operations are planned from the last to the first. Each is handed the versions that it needs (`finder`) and told which shadows count and
where they live (`zero`, `lending`); what copies and clears for that comes before its launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..executors.base import Executor
from .actions import Action, Doing
from .arena import Arena, Pooled
from .finder import VersionFinder
from .joining import Part, joined
from .launch import Launched
from .memory import Allocation, Versions, placing
from .operation import Foreign, Operation
from .placed import Where
from .region import Region
from .rules import Ruled
from .shadows import Shadows
from .zero import Stale, Step, elements, last_step, step_at_home, step_of, step_of_rule

Seeds = Sequence[tuple[Any, Region]]  # flat shadows, and the elements of each that get a seed


@dataclass(eq=False)
class Plan:
    """What a reversal does, and for each action the name and the place of its operation; `assembled`: bytes copied to put versions
    together; `placed`: shadows whose seeds it reads or copies itself; `again`: what does the same with fewer launches, for a program that
    comes again."""

    actions: tuple[Action, ...]
    names: tuple[str, ...]
    places: tuple[str, ...]
    assembled: int
    placed: frozenset[Where] = frozenset()
    runs: int = 0
    again: tuple[Action, ...] = ()

    @property
    def parts(self) -> list[Part]:
        """The actions with their names and places."""
        return list(zip(self.actions, self.names, self.places, strict=True))

    def now(self, executor: Executor) -> tuple[Action, ...]:
        """What is to be done this time. From the second time on launches that follow each other are one where that is the same;
        `executor`: theirs."""
        self.runs += 1
        if self.runs == 2:
            self.again = tuple(action for action, _, _ in joined(self.parts, executor))
        return self.again or self.actions


@dataclass(frozen=True, eq=False)
class Reversal:
    """A recording to be reversed. `transient`: memory for one operation at a time. `executors`: without and with exact products."""

    operations: Sequence[Operation]
    allocations: Mapping[int, Allocation]
    shadows: Shadows
    transient: Arena
    executors: tuple[Executor, Executor]

    def plan(self, stale: Stale, seeds: Seeds | None, temporaries: Sequence[Any], restore: bool) -> Plan:
        """The plan for seeds, or for the raw rule (None). Kernels are compiled. `restore`: primals are what they were at the end."""
        placed = frozenset(stale.placements.seeds)
        steps = self.steps(stale, seeds, temporaries)
        doing = Doing()
        doing.dry = True
        finder = VersionFinder(self.transient, Versions(), doing.do)
        pools = [Pooled(executor, self.transient) for executor in self.executors]
        owners: list[tuple[str, str]] = []
        for time in range(len(self.operations) - 1, -1, -1):
            operation, step = self.operations[time], steps.get(time)
            finder.reach(operation, time)
            self.transient.reset()
            if step is not None:
                doing.actions += step.begin()
                doing.actions += self.adjoint(operation, step, finder, pools)
            owners += [(operation.name, operation.where)] * (len(doing.actions) - len(owners))
        doing.actions += steps[-1].begin()
        doing.actions += self.restored(finder.versions) if restore else ()
        actions = doing.taken()
        owners += [("the end", "reverse")] * (len(actions) - len(owners))
        return Plan(actions, tuple(n for n, _ in owners), tuple(w for _, w in owners), finder.assembled, placed)

    def steps(self, stale: Stale, seeds: Seeds | None, temporaries: Sequence[Any]) -> dict[int, Step]:
        """How each operation is reversed, compiled, and at -1 what comes last. What is not in it has nothing to do."""
        for a in self.allocations.values() if seeds is not None else ():
            for root, part in self.shadows.parts(a, a.cleared):
                stale.add(root, part)
        for root, region in seeds or ():
            stale.drop(root, region)
        stale.lending.settle(temporaries, stale.alive)
        steps: dict[int, Step] = {}
        compiled: set[tuple[int, bool]] = set()
        for time in range(len(self.operations) - 1, -1, -1):
            operation = self.operations[time]
            step = _step(operation, stale)
            if step is not None:
                steps[time] = step
            if not isinstance(operation, Launched) or step is None:
                continue
            wanted = [k for s in step.stages for k in s.kernels if (id(k), operation.call.exact) not in compiled]
            compiled.update((id(k), operation.call.exact) for k in wanted)
            if wanted:
                operation.call.prepare(wanted)
        steps[-1] = last_step(stale)
        return steps

    def adjoint(self, operation: Operation, step: Step, finder: VersionFinder, pools: Sequence[Pooled]) -> list[Action]:
        """What runs the adjoint of an operation."""
        if isinstance(operation, Foreign):
            return operation.reverse()
        if isinstance(operation, Ruled):
            return [operation.reverse(finder)]
        assert isinstance(operation, Launched)
        return operation.reverse(finder, step.stages, step.moved, pools[operation.call.exact]) if step.stages else []

    def restored(self, versions: Versions) -> list[Action]:
        """What puts the state before the recording back."""
        found: list[Action] = []
        for a in self.allocations.values():
            versions.back_to(a, 0)
            for part, piece in versions.sources(a, a.initial):
                found += placing(piece, part, a.root, 0) if piece is not None else []
        return found


def _step(operation: Operation, stale: Stale) -> Step | None:
    if isinstance(operation, Launched):
        return step_of(operation, stale)
    if isinstance(operation, Ruled):
        return step_of_rule(operation, stale)
    assert isinstance(operation, Foreign)
    return step_at_home([elements(view) for view in operation.cleared], stale)

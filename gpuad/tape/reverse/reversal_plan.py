"""The plan of a reversal: all that it will do to memory, as a list of actions, before the first of them is done.

Operations are planned from the last to the first. Each is handed the versions that it needs (`finder`) and told which shadows count and
where they live (`shadow_state`, `zero_regions`); what copies and clears for that comes before its launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from ...arguments.arrays import address
from ...arguments.deferred_clearing import DeferredClearing
from ...program.ir.region import EMPTY, Region
from ...progress import doing
from ...runtime.actions import Action, ActionLog
from ...runtime.array_types import NdArray
from ...runtime.base import Executor
from ..budget.rerun import Rerun
from ..budget.script import Adjoint, Begin, Block, Undo
from ..budget.script_actions import Scripted
from ..memory.arena import Arena, Pooled
from ..memory.version_finder import VersionFinder
from ..memory.versions import Allocation, Versions, clearing_of, placing
from ..record.operations import Foreign, Operation, Renewed
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from ..replay.batching import batched
from ..replay.launch_joining import Part, joined
from .in_place_seeds import Where, where_of
from .shadow_state import ShadowState, Step, elements
from .shadows import Shadows
from .zero_regions import step_of, step_of_rule

Seeds = Sequence[tuple[Any, Region]]  # flat shadows, and the elements of each that get a seed


PATIENCE = 1.0  # by how much the time has to be worth it before launches are joined; 0: at once, for tests
_LOOKING = 1e-3  # seconds that joining takes, about, for each action
_COMPILING = 1.0  # and for all that is compiled

_END = ("the end", "reverse")  # whose actions these are
_AGAIN = ("the program again", "reverse")


@dataclass(frozen=True, eq=False)
class Owed:
    """Elements of a shadow that are zero after a reversal: cleared then only if the caller has seen the shadow."""

    deferred: DeferredClearing
    root: NdArray
    region: Region
    actions: Sequence[Action]

    def clear_or_owe(self) -> None:
        """Clears them, or notes that this has to be done."""
        self.deferred.owe({where_of(self.root): (self.region, self.actions)})


@dataclass(eq=False)
class Plan:
    """What a reversal does, and for each action the name and the place of its operation; `assembled`: bytes copied to put versions
    together; `scratch`: bytes of transient memory that the adjoint of an operation takes, as far as that is known before it runs, by the
    operation's number; `placed`: shadows whose seeds it reads or copies itself; `again`: what does the same with fewer calls, for a program
    that comes again, and, once they have been looked for (`joined`), with fewer launches. `begins`: elements that it takes for zero at the
    start, whatever they hold; `owed`: those that the caller has not seen, which are not cleared at the end; `deferred`: all shadows of the
    program that may owe something when it begins; `unused`: why all that it leads to is zero, if it is (`reaching`); `zeroed`: the
    addresses of shadows of temporaries that are all zeros after it."""

    actions: tuple[Action, ...]
    names: tuple[str, ...]
    places: tuple[str, ...]
    assembled: int
    scratch: Mapping[int, int] = field(default_factory=dict)
    placed: frozenset[Where] = frozenset()
    begins: Mapping[Where, Region] = field(default_factory=dict)
    owed: tuple[Owed, ...] = ()
    deferred: tuple[DeferredClearing, ...] = ()
    unused: str = ""
    zeroed: frozenset[int] = frozenset()
    runs: int = 0
    again: tuple[Action, ...] = ()
    joined: bool = False
    first: float = 0.0  # seconds that the first reversal took, with its plan
    later: float = 0.0  # and all that came after it

    @property
    def parts(self) -> list[Part]:
        """The actions with their names and places."""
        return list(zip(self.actions, self.names, self.places, strict=True))

    @property
    def is_seen(self) -> bool:
        """Whether what it owes was seen since it was made."""
        return any(owed.deferred.seen for owed in self.owed)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Around what is done. What other reversals owe to shadows of this program is cleared before, unless that is all the same here;
        what is owed after it is cleared or noted. If it fails, perhaps before it came to any shadow, the same is owed as before."""
        forgiven = [(deferred, deferred.forgivable(self.begins)) for deferred in self.deferred if deferred.owed]
        begin = perf_counter()
        try:
            for deferred, owed in forgiven:
                deferred.forgive(owed)
            yield
        except BaseException:
            for deferred, owed in forgiven:
                deferred.owe(owed)
            raise
        for owing in self.owed:
            owing.clear_or_owe()
        took = perf_counter() - begin
        self.first, self.later = (self.first + took, 0.0) if self.runs == 1 else (self.first, self.later + took)

    def now(self, executor: Executor) -> tuple[Action, ...]:
        """What is to be done this time. Launches that follow each other are one where that is the same, once that is worth the time that it
        takes to find out; `executor`: theirs."""
        self.runs += 1
        if self.runs > 1 and not self.joined and self._pays():
            self.again, self.joined = batched(action for action, _, _ in joined(self.parts, executor)), True
        elif self.runs == 2:
            self.again = batched(self.actions)
        return self.again or self.actions

    def _pays(self) -> bool:
        """Whether joining launches takes a quarter of what the first reversal took, or no longer than all that came after it: so it never
        more than doubles what a program costs, however often it comes, and its second reversal is not much slower than its first."""
        cost = PATIENCE * (_LOOKING * len(self.actions) + _COMPILING)
        return cost <= self.first / 4 or cost <= self.later


@dataclass(frozen=True, eq=False)
class Reversal:
    """A recording to be reversed. `transient`: memory for one operation at a time. `executors`: without and with exact products."""

    operations: Sequence[Operation]
    allocations: Mapping[int, Allocation]
    shadows: Shadows
    transient: Arena
    executors: tuple[Executor, Executor]

    def plan(
        self, state: ShadowState, seeds: Seeds | None, temporaries: Sequence[Any], restore: bool, scripted: Scripted | None = None
    ) -> Plan:
        """The plan for seeds, or for the raw rule (None). Kernels are compiled. `restore`: primals are what they were at the end.
        `scripted`: what is brought back and runs again between the adjoints."""
        begin = perf_counter()
        placed = frozenset(state.placements.seeds)
        begun = self.shadows.cleared(self.allocations, seeds) if seeds is not None else {}
        begins = {where: region for where, (_, region) in begun.items()}
        steps = self.steps(state, begun, seeds, temporaries)
        deferred = self.shadows.deferred
        doing = ActionLog()
        pools = [Pooled(executor, self.transient) for executor in self.executors]
        owners: list[tuple[str, str]] = []
        versions = Versions()
        assembled, scratch = 0, {}
        known: dict[Any, list[Action]] = {}
        for finder, time, operation in self.moments(doing, versions, scripted):
            step, before = steps.get(time), finder.assembled
            owners += [_AGAIN] * (len(doing.actions) - len(owners))
            finder.reach(operation, time)
            self.transient.reset()
            if step is not None:
                doing.actions += step.begin()
                doing.actions += self.adjoint(operation, step, finder, pools, known)
            owners += [(operation.name, operation.where)] * (len(doing.actions) - len(owners))
            assembled += finder.assembled - before
            if self.transient.taken:
                scratch[time] = self.transient.taken
        owners += [_AGAIN] * (len(doing.actions) - len(owners))
        last, owed = self.owing(steps[-1], begins, deferred)
        doing.actions += last.begin()
        if restore:
            doing.actions += self.restored(versions) if scripted is None else scripted.actions(Begin())
        actions = doing.taken()
        owners += [_END] * (len(actions) - len(owners))
        names, places = tuple(n for n, _ in owners), tuple(w for _, w in owners)
        plan = Plan(actions, names, places, assembled, scratch, placed, begins, owed, tuple(deferred.values()))
        if seeds is not None:
            cleared = {where_of(root): region for root, region in last.cleared}
            plan.zeroed = frozenset(address(root) for root in temporaries if cleared.get(where_of(root), EMPTY).nbytes == int(root.size))
        plan.joined = scripted is not None  # what runs again is the same launch with the same bits
        plan.first = perf_counter() - begin
        return plan

    def moments(self, doing: ActionLog, versions: Versions, scripted: Scripted | None) -> Iterator[tuple[VersionFinder, int, Operation]]:
        """Each operation, from the last to the first, with what finds its versions. What a script does between them is done."""
        if scripted is None:
            finder = VersionFinder(self.transient, versions, doing.do)
            yield from ((finder, time, self.operations[time]) for time in range(len(self.operations) - 1, -1, -1))
            return
        block: Block | None = None
        finder = VersionFinder(self.transient, versions, doing.do)
        for item in scripted.script.reversal:
            if not isinstance(item, Adjoint | Undo):
                doing.actions += scripted.actions(item)
                continue
            if item.block is not block:
                block, finder = item.block, VersionFinder(self.transient, scripted.versions(item.block), doing.do)
            operation = self.operations[item.time]
            if isinstance(item, Undo):
                doing.actions += taken_back(finder.versions, operation, scripted.program.reruns[item.time], item.time)
                continue
            if isinstance(operation, Launched) and item.time in block.logs:
                operation = replace(operation, logs=scripted.logs(block, item.time))
            yield finder, item.time, operation

    def owing(self, last: Step, begins: Mapping[Where, Region], deferred: Mapping[int, DeferredClearing]) -> tuple[Step, tuple[Owed, ...]]:
        """What comes last without the clearing of shadows that the caller has not seen, on a CPU: elsewhere it would have to wait for a
        stream. What is owed is what the next reversal of this program begins with."""
        if self.executors[0].stream() is not None:
            return last, ()
        owed = [
            Owed(found, root, region, clearing_of(root, region))
            for root, region in last.cleared
            if (found := deferred.get(address(root))) is not None and not found.seen and region <= begins.get(where_of(root), EMPTY)
        ]
        kept = {where_of(o.root) for o in owed}
        return replace(last, cleared=tuple((root, region) for root, region in last.cleared if where_of(root) not in kept)), tuple(owed)

    def steps(
        self, state: ShadowState, begun: Mapping[Where, tuple[Any, Region]], seeds: Seeds | None, temporaries: Sequence[Any]
    ) -> dict[int, Step]:
        """How each operation is reversed, compiled, and at -1 what comes last. What is not in it has nothing to do."""
        for root, part in begun.values():
            state.make_zero(root, part)
        for root, region in seeds or ():
            state.make_live(root, region)
        state.note(temporaries)
        steps: dict[int, Step] = {}
        compiled: set[tuple[int, bool]] = set()
        with doing("adjoints", len(self.operations)) as work:
            for work.at, time in enumerate(range(len(self.operations) - 1, -1, -1)):
                operation = self.operations[time]
                step = _step(operation, state)
                if step is not None:
                    steps[time] = step
                if not isinstance(operation, Launched) or step is None:
                    continue
                wanted = [k for s in step.stages for k in s.kernels if (id(k), operation.call.exact) not in compiled]
                compiled.update((id(k), operation.call.exact) for k in wanted)
                if wanted:
                    operation.call.prepare(wanted)
        steps[-1] = state.last()
        return steps

    def adjoint(
        self, operation: Operation, step: Step, finder: VersionFinder, pools: Sequence[Pooled], known: dict[Any, list[Action]]
    ) -> list[Action]:
        """What runs the adjoint of an operation. `known`: the launches that there are already."""
        if isinstance(operation, Foreign):
            return operation.reverse()
        if isinstance(operation, Ruled):
            return operation.reverse(finder)
        assert isinstance(operation, Launched)
        return operation.reverse(finder, step.stages, step.moved, pools[operation.call.exact], known) if step.stages else []

    def restored(self, versions: Versions) -> list[Action]:
        """What puts the state before the recording back."""
        found: list[Action] = []
        for a in self.allocations.values():
            versions.back_to(a, 0)
            for part, piece in versions.sources(a, a.initial):
                found += placing(piece, part, a.root, 0) if piece is not None else []
        return found


def taken_back(versions: Versions, operation: Operation, rerun: Rerun, time: int) -> list[Action]:
    """What takes back an operation: what it wrote is brought to where it left it, and is as it was before then."""
    assert rerun.undo is not None
    found: list[Action] = []
    for allocation in {use.allocation.address: use.allocation for use in operation.effects.writes}.values():
        region = rerun.writes[allocation.address]
        versions.back_to(allocation, time + 1)
        for part, piece in versions.sources(allocation, region):
            found += placing(piece, part, allocation.root, 0) if piece is not None else []
        versions.brought_back(allocation, region)
    return [*found, rerun.undo()]


def _step(operation: Operation, state: ShadowState) -> Step | None:
    if isinstance(operation, Launched):
        return step_of(operation, state)
    if isinstance(operation, Ruled):
        return step_of_rule(operation, state)
    assert isinstance(operation, Foreign)
    if isinstance(operation, Renewed):
        return state.renewed([elements(view) for view in operation.cleared])
    return state.at_home([elements(view) for view in operation.cleared])

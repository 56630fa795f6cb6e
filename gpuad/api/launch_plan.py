"""Launch plans: how a launch and its adjoint are run, found out once for each specialization key.

In: a bound call. Out: `LaunchPlan`, the kernels with their stages; and, where these need no copies from before the launch, no stacks and no
check of stores, the launches of compiled code that are all there is to do, of which a later call only fills in addresses (`run_again`).
Which argument of a kernel is which of the call's, and which is made for the call alone, is also all that `call_replay` needs: copies and
logs are made once more for that and thrown away, since it is their place among the arguments that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from .. import fusion, pipeline
from ..ir.nodes import Kernel as IrKernel
from ..pipeline import Call, executor_of
from ..pipeline.derived_kernels import Adjoint, Tangent
from ..pipeline.pattern import Parameter
from ..pipeline.stage import is_plain
from ..progress import doing
from ..runtime.base import Dim3, Memory
from .call_replay import CallKey, Fresh, Launch, note
from .dropped_gradients import check_flow, kept_seeds
from .kept_kernels import save_in_time
from .kernels import Kernel, Planned, pattern_of
from .specialization_key import Ready, specialization_key

T = TypeVar("T")
Taken: TypeAlias = "tuple[str, int]"  # 'primal' or 'shadow', and of which parameter; 'number', and the number


@dataclass(frozen=True, eq=False)
class Direct:
    """A launch whose arguments are the call's own. `grid`: its own, if that is not the call's."""

    kernel: IrKernel
    takes: tuple[Taken, ...]
    grid: Dim3 | None = None

    @property
    def positions(self) -> list[int | None]:
        """For each of its arguments which of the call's it is, if it is one."""
        return [k if role == "primal" else None for role, k in self.takes]


@dataclass(frozen=True, eq=False)
class LaunchPlan:
    """How a launch and its adjoint are run: in one kernel if there is one for both. `direct`: all there is to do, if these launches are."""

    adjoint: Adjoint
    primal: IrKernel
    stages: tuple[pipeline.Stage, ...]
    both: fusion.Fused | None
    direct: tuple[Direct, ...]


def launch_plan_of(chosen: Kernel, call: Call) -> LaunchPlan:
    """Finds the kernels, refuses what cannot be differentiated, and compiles; nothing of this if the call is like an earlier one."""
    with doing(f"differentiating a launch of `{chosen.name}` ({chosen.function.span})"):
        found = once(call, "launch_plan", lambda: _found(chosen, call))
    save_in_time()
    return found


def once(call: Call, what: Hashable, find: Callable[[], T]) -> T:
    """What is found out once for all calls that are alike. `what`: it, and what it depends on beyond the call, the switches and the
    executor."""
    if call.shared is None:
        return find()
    key = _key(call.bound.library, what)
    if key not in call.shared:
        call.shared[key] = find()
    found: T = call.shared[key]
    return found


def exactly(call: Call, exact: bool) -> Call:
    """The call with products and sums contracted or not."""
    return call if call.exact is exact else replace(call, exact=exact)


def run_again(chosen: Kernel, plan: Planned, said: CallKey | None) -> bool:
    """Runs a call that is like an earlier one and needs nothing but launches; False, and nothing is done, if it is not that."""
    known = chosen.known(specialization_key(plan.grid, plan.block, plan.args, plan.shared_mem))
    launch_plan = known.shared.get(_key(known.library)) if known is not None else None
    memory = known.memory(plan.args) if known is not None and launch_plan is not None and launch_plan.direct else None
    if known is None or launch_plan is None or memory is None:
        return False
    executor = executor_of(known.library, launch_plan.adjoint.exact)
    launches = [_of(each, known, *memory) for each in launch_plan.direct]
    for launch in launches:
        executor.launch(*launch, shared_mem=known.shared_mem)

    def prepared() -> list[Launch]:
        calls = (executor.prepared(*launch, shared_mem=known.shared_mem) for launch in launches)
        return [Launch(call, each.positions) for call, each in zip(calls, launch_plan.direct, strict=True)]

    note(said, plan.args, pipeline.switches(), executor, known.makes, prepared)
    return True


def _of(each: Direct, known: Ready, primals: Sequence[Any], shadows: Sequence[Any]) -> tuple[IrKernel, Dim3, Dim3, list[Any]]:
    """A launch for a call's memory."""
    given = {"primal": primals, "shadow": shadows}
    args = [given[role][k] if role in given else np.int32(k) for role, k in each.takes]
    return each.kernel, each.grid or known.grid, known.block, args


def _key(library: str | None, what: Hashable = "launch_plan") -> Hashable:
    """What the plan depends on beyond the specialization key."""
    return what, pipeline.switches(), executor_of(library)


def _found(chosen: Kernel, call: Call) -> LaunchPlan:
    adjoint = chosen.reverse_for(pattern_of(chosen, call), call)
    check_flow(chosen, call, adjoint.escapes, adjoint.connected)
    stages = pipeline.stages(adjoint, call)
    primal = chosen.primal(call.aliases())
    call = replace(call, exact=adjoint.exact)
    both = fusion.fusing(primal, adjoint, call, stages) if is_plain(stages) else None
    needed = (
        [both.kernel]
        if both is not None
        else [adjoint.augmented or primal, pipeline.counting(adjoint, call), *(k for s in stages for k in s.kernels)]
    )
    call.prepare(needed)
    return LaunchPlan(adjoint, primal, stages, both, _direct(primal, adjoint, call, stages, both))


def _direct(
    primal: IrKernel, adjoint: Adjoint, call: Call, stages: Sequence[pipeline.Stage], both: fusion.Fused | None
) -> tuple[Direct, ...]:
    """The launches of a call, if they are all; else none."""
    more = adjoint.layout.scratch or adjoint.logs or adjoint.augmented is not None or any(a.keep for a in call.bound.arguments)
    if more or call.overlaps or call.bound.width != 1 or pipeline.stores_in_doubt(adjoint, call):
        return ()
    if both is not None:
        found = [_launch(both.kernel, both.parameters, {})]
    else:
        own = Direct(primal, tuple(("primal", k) for k in range(len(call.bound.arguments))))
        found = [own, *(_launch(s.kernel, s.parameters, s.numbers, s.grid) if s.fixed is None else None for s in stages)]
    there = tuple(each for each in found if each is not None)
    return there if len(there) == len(found) else ()


def _launch(
    kernel: IrKernel, parameters: Sequence[Parameter], numbers: Mapping[tuple[str, int], int], grid: Dim3 | None = None
) -> Direct | None:
    """A launch with the call's own arguments, if it takes no others."""
    takes: list[Taken] = []
    for p in parameters:
        number = numbers.get((p.role, p.position))
        if number is None and p.role not in ("primal", "shadow"):
            return None
        takes.append((p.role, p.position) if number is None else ("number", number))
    return Direct(kernel, tuple(takes), grid)


class _Making:
    """Launches of a call, and what they are given that is not the call's own."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.fresh: dict[int, tuple[Any, Fresh]] = {}  # by the identity of an allocation, which is kept
        self.launches: list[Launch] = []

    def made(self, memory: Memory, fresh: Fresh) -> None:
        """Notes memory that is made for the call."""
        self.fresh.setdefault(id(memory.root), (memory.root, fresh))

    def add(self, kernel: IrKernel, args: Sequence[Any], positions: Sequence[int | None], grid: Dim3 | None = None) -> None:
        """A launch."""
        run = self.call.executor.prepared(kernel, grid or self.call.grid, self.call.block, args, shared_mem=self.call.shared_mem)
        given = {j: arg for j, arg in enumerate(args) if isinstance(arg, Memory) and id(arg.root) in self.fresh}
        fresh = {j: (self.fresh[id(m.root)][1], m.offset * m.itemsize) for j, m in given.items()}
        self.launches.append(Launch(run, positions, fresh))

    def zeros(self, rooms: Iterable[Memory]) -> None:
        """Notes room for what a pass writes down for a later one."""
        for room in rooms:
            self.made(room, Fresh("zeros", length=int(room.root.size), dtype=room.root.dtype))


def reverse_launches(launch_plan: LaunchPlan, call: Call) -> list[Launch] | None:
    """The launches of a call and its adjoint; None if there is more to do than these."""
    adjoint = launch_plan.adjoint
    if pipeline.stores_in_doubt(adjoint, call):
        return None
    kept = kept_seeds(call, adjoint)
    making = _Making(kept)
    for i, (given, used) in enumerate(zip(call.bound.arguments, kept.bound.arguments, strict=True)):
        for width, (theirs, ours) in enumerate(zip(given.shadows, used.shadows, strict=True)):
            if theirs is not ours:
                making.made(ours, Fresh("shadow", i, width))
    if launch_plan.both is not None:
        args = pipeline.arguments(launch_plan.both.parameters, kept, pipeline.live(kept))
        making.add(launch_plan.both.kernel, args, _positions(launch_plan.both.parameters))
        return making.launches
    state = pipeline.before(adjoint, kept)
    _copies(making, state.entries)
    making.zeros(state.logs)
    own = kept.bound.primals()
    more = state.logs if adjoint.augmented is not None else []
    making.add(adjoint.augmented or launch_plan.primal, [*own, *kept.offset_values(), *more], range(len(own)))
    for width in range(kept.bound.width):
        again = state.again(adjoint, kept)
        _copies(making, again.entries)
        for stage in launch_plan.stages:
            own_args = pipeline.own_arguments(adjoint, stage, kept, again, width)
            if own_args is None:
                return None
            making.zeros(m for m, p in zip(own_args, stage.parameters, strict=True) if p.role == "partial" and isinstance(m, Memory))
            making.add(stage.kernel, own_args, _positions(stage.parameters), stage.grid)
    return making.launches


def _copies(making: _Making, entries: dict[int, Memory]) -> None:
    """Notes copies from before the launch."""
    for position, memory in entries.items():
        making.made(memory, Fresh("primal", position))


def tangent_launches(tangent: Tangent, call: Call) -> list[Launch] | None:
    """The launches of a call that pushes tangents; None as above."""
    if call.bound.width != 1 or pipeline.stores_in_doubt(tangent, call):
        return None
    making, state = _Making(call), pipeline.live(call)
    state.logs = pipeline.new_logs(tangent, call)
    making.zeros(state.logs)
    for kernel, parameters in ((tangent.kernel, tangent.parameters), (tangent.resolve, tangent.resolve_parameters)):
        if kernel is not None:
            making.add(kernel, pipeline.arguments(parameters, call, state), _positions(parameters))
    return making.launches


def _positions(parameters: Sequence[Parameter]) -> list[int | None]:
    """For each parameter which argument of the call it gets, if it gets one."""
    return [p.position if p.role == "primal" else None for p in parameters]

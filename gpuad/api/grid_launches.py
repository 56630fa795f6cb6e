"""The derivative of a call that is several launches.

Each launch keeps what its reverse will read, and the reverses run from last to first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .. import pipeline
from ..arguments.annotations import Duplicated
from ..arguments.arrays import namespace
from ..ir.nodes import Kernel as IrKernel
from ..pipeline import Call, State
from ..pipeline.derived_kernels import Adjoint
from ..runtime.base import Memory
from .argument_flattening import on_stream
from .dropped_gradients import check_flow
from .forward_over_reverse import Second, second_of
from .kernels import Kernel, Planned, pattern_of
from .launch_plan import exactly, once

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class _PartPlan:
    adjoint: Adjoint
    primal: IrKernel
    stages: tuple[pipeline.Stage, ...]


def forward_all(plans: Iterable[Planned], push: Callable[[Kernel, Call], Any]) -> None:
    """Makes the launches, with tangents by `push` where an argument is active."""
    for plan in plans:
        _bound(plan, push, _launched)


def reverse_all(plans: Iterable[Planned], known: bool) -> None:
    """Makes the launches, then accumulates into the shadows of their arguments. What a reverse will read, and a later launch might write,
    is copied, once for each launch; a tape does so only where one does. What cannot be differentiated is refused before anything is
    launched where it is `known` what will be, else before the launch that it is."""
    if known:
        plans = list(plans)
        for plan in {plan.kernel: plan for plan in plans[::-1]}.values():
            _bound(plan, _part_plan, lambda chosen, call: None)
    saved = [(plan, _bound(plan, _saved, _launched)) for plan in plans]
    for plan, kept in saved[::-1]:
        if kept is None:
            continue
        part_plan, call, state = kept
        with plan.kernel.room(), on_stream(plan.stream, plan.args):
            for width in range(call.bound.width):
                pipeline.run_stages(part_plan.adjoint, part_plan.stages, call, state.again(part_plan.adjoint, call), width)


def second_all(plans: Iterable[Planned], directions: Sequence[Any], known: bool) -> None:
    """Makes the launches with tangents, then the adjoints with theirs, from last to first. `directions`: for each argument of the whole
    its tangent, with a shadow, or None. What cannot be differentiated is refused as by `reverse_all`."""
    kept: dict[int, Any] = {}

    def prepared(plan: Planned) -> Second:
        with plan.kernel.room(), on_stream(plan.stream, plan.args):
            chosen = plan.kernel.suited(plan.args, plan.shared_mem)
            more = (kept.setdefault(id(a), _direction(a)) if isinstance(a, Duplicated) else None for a in plan.args[len(directions) :])
            return second_of(chosen, plan, [*directions, *more], connected=True)

    if known:
        plans = list(plans)
        for plan in {plan.kernel: plan for plan in plans[::-1]}.values():
            prepared(plan)
    made = []
    for plan in plans:
        second = prepared(plan)
        with plan.kernel.room(), on_stream(plan.stream, plan.args):
            made.append((plan, second, _copied(second, second.forward())))
    for plan, second, state in made[::-1]:
        with plan.kernel.room(), on_stream(plan.stream, plan.args):
            second.reverse(state)


def _direction(kept: Duplicated) -> Duplicated:
    """A tangent for an array in which threads keep values between launches, of which nothing depends on anything yet."""
    return Duplicated(*(namespace(a).zeros(a.shape, a.dtype) for a in (kept.primal, kept._passed_shadow)))


def _copied(second: Second, state: State) -> State:
    """The state after a launch, where later ones may overwrite what the adjoint and its tangent read."""
    pipeline.keep_live(second.adjoint, second.call, state, frozenset())
    for key, memory in state.dots.items():
        if key[0] == "primal_dot" and isinstance(memory, Memory):
            state.dots[key] = pipeline.copied(second.call, memory)
    return state


def _bound(plan: Planned, active: Callable[[Kernel, Call], T], inactive: Callable[[Kernel, Call], None]) -> T | None:
    """What is done with a launch, by whether an argument of it is active."""
    with plan.kernel.room(), on_stream(plan.stream, plan.args):
        chosen = plan.kernel.suited(plan.args, plan.shared_mem)
        call = chosen.bind(plan.grid, plan.block, chosen.whole(plan.args), plan.shared_mem, plan.stream)
        if pipeline.active_positions(call):
            return active(chosen, call)
        inactive(chosen, call)
    return None


def _launched(chosen: Kernel, call: Call) -> None:
    pipeline.run_primal(chosen.primal(call.aliases()), None, call)


def _part_plan(chosen: Kernel, call: Call) -> _PartPlan:
    """The kernels of a launch and its reverse, compiled."""
    return once(call, "part", lambda: _found(chosen, call))


def _found(chosen: Kernel, call: Call) -> _PartPlan:
    adjoint = chosen.reverse_for(pattern_of(chosen, call), call)
    check_flow(chosen, call, adjoint.escapes, connected=True)
    part_plan = _PartPlan(adjoint, chosen.primal(call.aliases()), pipeline.stages(adjoint, call))
    kernels = (adjoint.augmented or part_plan.primal, pipeline.counting(adjoint, call), *(k for s in part_plan.stages for k in s.kernels))
    exactly(call, adjoint.exact).prepare(list(kernels))
    return part_plan


def _saved(chosen: Kernel, call: Call) -> tuple[_PartPlan, Call, State]:
    """Makes a launch and keeps all that its reverse will read."""
    part_plan = _part_plan(chosen, call)
    call = exactly(call, part_plan.adjoint.exact)
    pipeline.check_stores(part_plan.adjoint, call)
    state = pipeline.before(part_plan.adjoint, call)
    pipeline.run_primal(part_plan.primal, part_plan.adjoint, call, state)
    pipeline.keep_live(part_plan.adjoint, call, state, frozenset())
    return part_plan, call, state

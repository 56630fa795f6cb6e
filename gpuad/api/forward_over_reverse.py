"""Second derivatives of a launch: a kernel, its adjoint, and the tangent of both along a direction.

In: a launch with shadows, and for each argument that is active a tangent with a shadow of its own. Out: what runs the launch with its
tangent (`Second.forward`), and what runs the adjoint with its tangent after it (`Second.reverse`), from the state in between. Everything is
checked and compiled before the first of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import pipeline
from ..accumulate.fixed_point import fixed_point
from ..errors import LaunchError, UnsupportedError
from ..pipeline import Call, State
from ..pipeline.derived_kernels import Adjoint, Tangent
from .argument_flattening import FlatArguments
from .dropped_gradients import check_flow
from .kernels import Kernel, Planned, pattern_of


@dataclass(frozen=True, eq=False)
class Second:
    """A launch with its second derivative. `call`: the launch; `dots`: the same with directions in place of its arguments."""

    adjoint: Adjoint
    tangent: Tangent
    stage: pipeline.Stage
    call: Call
    dots: Call

    def run(self) -> None:
        """All of it."""
        self.reverse(self.forward())

    def forward(self) -> State:
        """Runs the launch with its tangent; gives what the adjoint and its tangent read."""
        call, tangent = self.call, self.tangent
        pipeline.check_stores(self.adjoint, call)
        state = pipeline.before_second(self.adjoint, call, self.dots)
        logs = [*state.logs, *pipeline.new_logs(tangent, call)[len(state.logs) :]]
        forward = State(state.primals, dots=state.dots, logs=logs)
        call.run(tangent.kernel, pipeline.tangent_arguments(tangent.parameters, call, forward))
        if tangent.resolve is not None:
            call.run(tangent.resolve, pipeline.tangent_arguments(tangent.resolve_parameters, call, forward))
        return state

    def reverse(self, state: State) -> None:
        """Accumulates into the shadows, and into those of the directions."""
        pipeline.run_stages(self.adjoint, [self.stage], self.call, state)


def second_of(chosen: Kernel, plan: Planned, directions: Sequence[Any], connected: bool | None = None) -> Second:
    """The second derivative of a launch, checked and compiled. `connected`: whether what is active reaches what is, if that is not to be
    found out of this launch. Raises as `gpuad.hvp` does."""
    call = chosen.bind(*plan[1:])
    if any(log.element.is_float for log in chosen.second(chosen.decided(pattern_of(chosen, call), call)).logs):
        raise UnsupportedError(f"`{chosen.name}`: second derivatives of the float that an atomic gives come in a later release")
    check_count(chosen.name, len(chosen.parameters), directions)
    call, dots = _with_directions(chosen, chosen.completed(plan), call, directions)
    pipeline.check_directions(chosen.name, call, dots)
    pattern = chosen.decided(pattern_of(chosen, call), call)
    adjoint = chosen.second(pattern)
    pipeline.check_adjoint_bounds(adjoint, call)
    check_flow(chosen, call, adjoint.escapes, adjoint.connected if connected is None else connected)
    stage = pipeline.alone(adjoint, call)
    tangent = chosen.tangent(pattern, adjoint.log_numbers)
    call = replace(call, exact=adjoint.exact)
    if pipeline.in_fixed_point() and fixed_point(stage.kernel, orders_blocks=call.executor.orders_blocks) is not None:
        raise UnsupportedError(f"`{chosen.name}`: hvp with sums of several threads is not deterministic in this release")
    call.prepare([tangent.kernel, tangent.resolve, pipeline.counting(adjoint, call), stage.kernel])
    return Second(adjoint, tangent, stage, call, dots)


def check_count(name: str, count: int, directions: Any) -> None:
    """LaunchError unless there is a direction, or None, for each of so many arguments."""
    if type(directions) is not FlatArguments and (not isinstance(directions, tuple | list) or len(directions) != count):
        raise LaunchError(f"`{name}`: hvp takes a tuple of directions, one for each of the {count} arguments, or None")


def _with_directions(chosen: Kernel, plan: Planned, call: Call, directions: Sequence[Any]) -> tuple[Call, Call]:
    """A call, and one with the directions in place of its arguments, both bound whole."""
    if chosen.composed:
        if type(plan.args) is not FlatArguments:
            raise UnsupportedError(f"`{chosen.name}`: hvp with halves by value comes in a later release", chosen.function.span)
        call = chosen.bind(*plan[1:])
        directions = directions if type(directions) is FlatArguments else chosen.whole_directions(directions)
    paired = pipeline.paired(chosen.name, call, directions, chosen.origins)
    own = FlatArguments(paired) if chosen.composed else paired
    tangents = {i for i, d in enumerate(directions) if d is not None}
    return call, chosen.bind(plan.grid, plan.block, own, plan.shared_mem, plan.stream, tangents=tangents)

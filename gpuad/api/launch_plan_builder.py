"""Builds launch plans: a derivative as launches of compiled code that can be repeated, with the memory that each call has for itself.

Which argument of a kernel is which of the call's, and which is made for the call alone, is all that a later call in the same words needs
(`call_replay`). Copies and logs are made once more here, and thrown away: it is their place among the arguments that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .. import pipeline
from ..ir.nodes import Kernel as IrKernel
from ..pipeline import Call
from ..pipeline.adjoint import Tangent
from ..pipeline.pattern import Parameter
from ..runtime.base import Dim3, Memory
from .call_replay import Fresh, Launch
from .dropped_gradients import kept_seeds
from .launch_plan import LaunchPlan


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


def reverse_launches(way: LaunchPlan, call: Call) -> list[Launch] | None:
    """The launches of a call and its adjoint; None if there is more to do than these."""
    adjoint = way.adjoint
    if pipeline.stores_in_doubt(adjoint, call):
        return None
    kept = kept_seeds(call, adjoint)
    making = _Making(kept)
    for i, (given, used) in enumerate(zip(call.bound.arguments, kept.bound.arguments, strict=True)):
        for width, (theirs, ours) in enumerate(zip(given.shadows, used.shadows, strict=True)):
            if theirs is not ours:
                making.made(ours, Fresh("shadow", i, width))
    if way.both is not None:
        args = pipeline.arguments(way.both.parameters, kept, pipeline.live(kept))
        making.add(way.both.kernel, args, _positions(way.both.parameters))
        return making.launches
    state = pipeline.before(adjoint, kept)
    _copies(making, state.entries)
    making.zeros(state.logs)
    own = kept.bound.primals()
    more = state.logs if adjoint.augmented is not None else []
    making.add(adjoint.augmented or way.primal, [*own, *kept.offset_values(), *more], range(len(own)))
    for width in range(kept.bound.width):
        again = state.again(adjoint, kept)
        _copies(making, again.entries)
        for stage in way.stages:
            own_args = pipeline.own_arguments(adjoint, stage, kept, again, width)
            if own_args is None:
                return None
            making.zeros(m for m, p in zip(own_args, stage.parameters, strict=True) if p.role == "partial")
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

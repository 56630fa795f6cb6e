"""How a recorded launch, and a call of a rule, runs again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ... import pipeline
from ...affine.effects import Shape
from ...affine.inverse_certificate import takes_back
from ...affine.relations import is_installed
from ...analysis.inverses import inverse
from ...api import Kernel as UserKernel
from ...ir.nodes import Kernel
from ...pipeline import Call
from ...runtime.actions import Action
from ...runtime.base import Memory, prepared
from ..record.operations import Use
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from ..replay.trace_cache import KnownLaunch
from .rerun import Rerun, of_uses, order_matters, said_once, touched_by_rule, united, without


def launch_again(known: KnownLaunch, operation: Launched, read: Iterable[Use]) -> Rerun:
    """A launch as it runs again; `read`: what the primal reads and adds to."""
    call, adjoint = operation.call, operation.adjoint
    writes, must = of_uses(operation.effects.writes), of_uses(operation.effects.must)
    first, why = known.launch(call.executor), order_matters(known.primal, call)
    reads = {} if why else of_uses(read)
    must = writes if why else must
    augmented = adjoint.augmented if adjoint is not None else None
    sizes = pipeline.log_sizes(adjoint, call) if adjoint is not None and augmented is not None else []

    def noting(data: Sequence[Any]) -> tuple[Sequence[Memory], Action]:
        assert augmented is not None
        logs = [Memory(d.view(dtype)) for d, (_, dtype) in zip(data, sizes, strict=True)]
        return logs, call.prepared(augmented, [*known.given, *logs])

    reads = united(reads, without(writes, must))
    again = None if why else _silent(known, call, first)
    logs = tuple(n * dtype.itemsize for n, dtype in sizes)
    undo = None if why or logs or operation.effects.after else undo_of(known.operation.kernel, known.primal, call, known.given)
    return Rerun(reads, writes, must, first, again, why, logs, noting, undo=undo)


def undo_of(kernel: UserKernel, primal: Kernel, call: Call, given: Sequence[Any]) -> Callable[[], Action] | None:
    """What makes the launch that takes one back to the bit, where there is a certificate for one. `given`: what it is launched with."""
    if call.overlaps or call.absent:
        return None
    undone = kernel.facts.get(("undone", id(primal), call.key), lambda: (primal, _certified(primal, call)))[1]
    if undone is None:
        return None

    def made() -> Action:
        call.prepare([undone])
        return prepared(call.executor, undone, call.grid, call.block, given, call.shared_mem)

    return made


def _certified(primal: Kernel, call: Call) -> Kernel | None:
    found = inverse(primal)
    if found is None or not is_installed():
        return None
    shape = Shape(call.grid, call.block, dict(call.numbers(primal).scalars))
    return found if takes_back(primal, found, shape) else None


def _silent(known: KnownLaunch, call: Call, first: Action) -> Action:
    """The launch without what the user has heard already."""
    silent = known.operation.kernel.facts.get(("said once", id(known.primal)), lambda: (known.primal, said_once(known.primal)))[1]
    if silent is known.primal:
        return first
    call.prepare([silent])
    return prepared(call.executor, silent, call.grid, call.block, known.given, call.shared_mem)


def rule_again(operation: Ruled, action: Action, library: str | None) -> Rerun:
    """A call of a rule as it runs again."""
    reads, writes, must = touched_by_rule(operation)
    why = "" if operation.rule.pure else "its rule is not declared pure"
    if library == "cupy" and operation.effect.adds:
        why = why or "the order of its additions is open"
    return Rerun({} if why else reads, writes, writes if why else must, action, None if why else action, why)

"""What a budget would come to for a program that was recorded without one.

Such a tape has not looked at what runs again, nor kept values in the way that a budget does. So its operations are read again here, as a
tape with a budget would have recorded them. Nothing runs, and the recording stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ... import pipeline
from ...api import pattern_of
from ...pipeline import executor_of
from ...program.ir.regions import united, without
from ..record.operations import Operation
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from ..replay.trace_replay import Repeating
from .outlook import Prospects
from .planner import Planner
from .program_states import Program
from .rerun import Rerun, of_uses, order_matters, rule_again, undo_of


def supposed(tape: Repeating) -> Prospects:
    """What a tape's recording would come to within budgets; all that is free, if none is given."""
    operations = [_as_recorded(tape, operation) for operation in tape.operations]
    reruns = [_rerun(tape, operation) for operation in operations]
    program = Program(operations, reruns, {a.address: a for a in tape.allocations.values()})
    planner = Planner(program, [*_signatures(tape, operations)], frozenset(tape.made.arrays) if tape.restore else None)
    free = executor_of(tape.library_name).free
    return Prospects(planner, tape.made.nbytes, free, free)


def _as_recorded(tape: Repeating, operation: Operation) -> Operation:
    """The operation without values that are kept in place of memory."""
    if not isinstance(operation, Launched) or operation.kept is None:
        return operation
    kernel, call = operation.kernel, operation.call
    adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
    effects, uses = tape.reach(kernel, adjoint, call)
    return replace(operation, adjoint=adjoint, effects=effects, uses=uses, logs=[], kept=None)


def _rerun(tape: Repeating, operation: Operation) -> Rerun:
    """What an operation reads and writes when it runs again; without what runs it."""
    if isinstance(operation, Ruled):
        return rule_again(operation, _nothing, tape.library_name)
    writes, must = of_uses(operation.effects.writes), of_uses(operation.effects.must)
    if not isinstance(operation, Launched):
        return Rerun({}, writes, writes, None, None, "the tape does not see it")
    call, adjoint = operation.call, operation.adjoint
    primal = operation.kernel.primal(call.aliases())
    why = order_matters(primal, call)
    reads = {} if why else of_uses(tape.read_again(operation.kernel, primal, call))
    must = writes if why else must
    sizes = pipeline.log_sizes(adjoint, call) if adjoint is not None and adjoint.augmented is not None else []
    logs = tuple(n * dtype.itemsize for n, dtype in sizes)
    undo = None if why or logs or operation.effects.after else undo_of(operation.kernel, primal, call, ())
    return Rerun(united(reads, without(writes, must)), writes, must, _nothing, None if why else _nothing, why, logs, undo=undo)


def _nothing() -> None:
    """What would run it."""


def _signatures(tape: Repeating, operations: Sequence[Operation]) -> Iterator[Any]:
    """What tells operations apart."""
    steps = [step for step in tape.steps or () if step.operates]
    if len(steps) == len(operations):
        yield from ((step.what, step.line) for step in steps)
    else:
        yield from ((operation.name, operation.where) for operation in operations)


__all__ = ["supposed"]

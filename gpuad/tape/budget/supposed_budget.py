"""What a budget would come to for a program that was recorded without one.

Such a tape has not looked at what runs again, nor kept values in the way that a budget does. So its operations are taken as a tape with a
budget would have recorded them. Nothing runs, and the recording stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from ...pipeline import executor_of
from ..record.recorded_launch import Launched
from ..record.trace import Op
from ..replay.trace_replay import Repeating
from .op_reruns import rerun_of
from .outlook import Prospects
from .planner import Planner
from .program_states import Program


def supposed(tape: Repeating) -> Prospects:
    """What a tape's recording would come to within budgets; all that is free, if none is given."""
    ops = [_without_values(op) for op in tape.trace.operating()]
    operations = [op.operation for op in ops if op.operation is not None]
    program = Program(operations, [rerun_of(op, tape) for op in ops], {a.address: a for a in tape.allocations.values()})
    planner = Planner(program, [op.key.signature for op in ops], frozenset(tape.made.arrays) if tape.restore else None)
    free = executor_of(tape.library_name).free
    return Prospects(planner, tape.made.nbytes, free, free)


def _without_values(op: Op) -> Op:
    """An op without values that are kept in place of memory."""
    kept = isinstance(op.operation, Launched) and op.operation.kept is not None
    return replace(op, operation=op.came) if kept else op


__all__ = ["supposed"]

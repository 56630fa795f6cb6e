"""The transient memory that the items of a script take, as far as it is known before they run.

In: the items and the program. Out: bytes, as a pool rounds them: of versions that are put together for an adjoint, of partial sums, of the
scratch of stacks that was measured as the program was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ... import pipeline
from ...budget import rounded
from ...ir.dtypes import dtype_of
from ..memory.version_finder import VersionFinder
from ..record.operations import Operation
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from .program_states import Program
from .script import Adjoint, Block, Item


def transient_bytes(script_items: Iterable[Item], program: Program) -> int:
    """The most transient memory that an operation or an adjoint of the items takes, as far as that is known before it runs."""
    most = max((rerun.room for rerun in program.reruns), default=0)
    finder: VersionFinder | None = None
    block: Block | None = None
    for item in script_items:
        if isinstance(item, Adjoint):
            if finder is None or item.block is not block:
                block = item.block
                finder = VersionFinder(None, block.symbolic())  # type: ignore[arg-type]
            finder.reach(program.operations[item.time], item.time)
            most = max(most, adjoint_bytes(program.operations[item.time], finder) + program.reruns[item.time].scratch)
    return most


def adjoint_bytes(operation: Operation, finder: VersionFinder) -> int:
    """What the adjoint takes of transient memory."""
    if isinstance(operation, Ruled):
        return _of_rule(operation, finder)
    if not isinstance(operation, Launched) or operation.adjoint is None:
        return 0
    call = operation.call
    arguments = call.bound.arguments
    total = 0
    for _ in range(call.bound.width):
        for (role, position), use in operation.uses.items():
            memory = arguments[position].memory
            if memory is not None:
                total += _aligned(finder.assembles(use, memory.itemsize, own=role == "working"))
    stages = pipeline.stages(operation.adjoint, call)
    partials = {array for stage in stages for array in stage.partials}
    total += sum(_aligned(call.threads * np.dtype(dtype_of(array.element)).itemsize) for array in partials)
    fixed = [(stage.fixed, stage.parameters) for stage in stages if stage.fixed is not None]
    return total + sum(_aligned(n) for f, parameters in fixed for n in pipeline.fixed_sizes(f, parameters, call, 0))


def _of_rule(operation: Ruled, finder: VersionFinder) -> int:
    total = 0
    for name, use in operation.needs.items():
        total += _aligned(finder.assembles(use, int(operation.operands[name].memory.itemsize), own=False))
    for name in operation.effect.overwrites:
        operand = operation.operands.get(name)
        if operand is not None and operand.shadow is not None:
            total += _aligned(int(operand.shadow.nbytes))
    if "room" in operation.rule.wanted:
        total += sum(_aligned(n) for n in operation.rule.rooms(operation))
    return total


def _aligned(nbytes: int) -> int:
    return rounded(nbytes) if nbytes else 0

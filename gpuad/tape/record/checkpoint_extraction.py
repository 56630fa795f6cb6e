"""Values that are kept in place of memory, written by the launch that reads that memory, in a program that is known.

While a program is recorded it is not known whether what a launch reads will be overwritten: its few values are computed when that is about
to happen, by a launch of their own that reads the memory once more (see `checkpoints`). When the program comes again, or becomes a graph,
it is known. Then the launch itself writes them, to the same place, since it has them anyway, and the other one is left out.

That is the same: until something overwrites the memory it is what the launch saw, and nothing else uses the place of the values before.

On a CPU, launches of a known program write values in place of memory that nothing overwrites, too, where these are *light*. The adjoint of
a lattice-Boltzmann step would read nine populations, 36 bytes a cell, and make of them what the launch had already: density and velocity,
12 bytes. A value is moved three times, since its line is fetched, written back, and read. So they are light if they are at most a third of
the bytes that they stand for, and memory grows by no more than that. On a GPU, what is there goes on being read: its memory is scarcer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import fusion, pipeline
from ...errors import LaunchError
from ...ir.nodes import Kernel
from ...runtime.actions import Action
from ...runtime.base import Prepared, prepared
from ..replay.trace_steps import Step
from .checkpoint_kernels import Cutting
from .operations import Operation
from .recorded_launch import Launched

_MOVED = 3  # times


@dataclass(frozen=True, eq=False, slots=True)
class Extraction:
    """The values of operation number `time`, which an `action` of another one, or of itself, puts into `memory`."""

    time: int
    cut: Cutting
    memory: Sequence[Any]
    action: Action


def extracted_early(steps: Sequence[Step], operations: Sequence[Operation], extractions: Sequence[Extraction]) -> None:
    """Changes the steps' actions: launches write their values themselves, where that is possible."""
    if len(steps) != len(operations) or not pipeline.chaining():
        return
    for extraction in extractions:
        operation, step = operations[extraction.time], steps[extraction.time]
        later = next((s for s in steps if any(a is extraction.action for a in s.actions)), None)
        if later is not None and isinstance(operation, Launched) and write_values(operation, step, extraction):
            later.actions = tuple(a for a in later.actions if a is not extraction.action)
            later.calls = None


def reads_fewer_bytes(operation: Launched, cut: Cutting) -> bool:
    """Whether values are less to keep and to read than what an adjoint reads of memory as it was before the launch."""
    read = sum(use.region.nbytes for use in operation.effects.before)
    return operation.call.bound.library != "cupy" and _MOVED * cut.total <= read


def writes_values(operation: Launched, step: Step, cut: Cutting) -> bool:
    """Whether the launch that a step makes can write values itself."""
    launch = _launch(operation, step) if pipeline.chaining() else None
    return launch is not None and _kernel(operation, launch.kernel, cut) is not None


def write_values(operation: Launched, step: Step, extraction: Extraction) -> bool:
    """Has the launch that a step makes write values itself; False where that cannot be."""
    launch = _launch(operation, step)
    both = _both(operation, launch, extraction) if launch is not None else None
    if both is None:
        return False
    step.actions = tuple(both if a is launch else a for a in step.actions)
    step.calls = None
    return True


def _launch(operation: Launched, step: Step) -> Prepared | None:
    """The launch of the user's kernel, which a step ends with."""
    if not step.actions:
        return None
    last = step.actions[-1]
    primal = operation.kernel.primal(operation.call.aliases())
    return last if isinstance(last, Prepared) and last.kernel is primal else None


def _both(operation: Launched, launch: Prepared, extraction: Extraction) -> Prepared | None:
    """The launch with the values; None where they are better computed apart, or where the device has too few registers for both."""
    call, kernel = operation.call, _kernel(operation, launch.kernel, extraction.cut)
    if kernel is None or (call.bound.library == "cupy" and pipeline.in_fixed_point()):  # a compiler may contract other sums of the primal
        return None
    try:
        call.prepare([kernel])
        return prepared(call.executor, kernel, launch.grid, launch.block, [*launch.arguments, *extraction.memory], call.shared_mem)
    except LaunchError:
        return None


def _kernel(operation: Launched, primal: Kernel, cut: Cutting) -> Kernel | None:
    return fusion.keeping(cut.adjoint, primal, cut.extraction, cut.saved, operation.call)

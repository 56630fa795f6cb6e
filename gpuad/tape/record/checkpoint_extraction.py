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

from dataclasses import replace

from ... import fusion, pipeline
from ...errors import LaunchError
from ...ir.nodes import Kernel
from ...runtime.base import Prepared, prepared
from .checkpoint_kernels import Cutting
from .recorded_launch import Launched
from .trace import Extraction, Op, Trace

_MOVED = 3  # times


def write_early(trace: Trace) -> None:
    """The program comes again: its launches write what is kept of what they read themselves, where that is possible."""
    keeping = [(time, op.keeping) for time, op in enumerate(trace.operating()) if op.keeping is not None]
    may = trace.is_plain and pipeline.chaining()
    for time, extraction in keeping:
        op = replace(trace.at(time), keeping=None)
        later = next((t for t, o in enumerate(trace.ops) if any(a is extraction.action for a in o.actions)), None) if may else None
        new = with_values(op, extraction) if later is not None else None
        trace.change(time, keeping=None, actions=(new or op).actions)
        if new is not None and later is not None:
            trace.change(later, actions=tuple(a for a in trace.at(later).actions if a is not extraction.action))


def reads_fewer_bytes(operation: Launched, cut: Cutting) -> bool:
    """Whether values are less to keep and to read than what an adjoint reads of memory as it was before the launch."""
    read = sum(use.region.nbytes for use in operation.effects.before)
    return operation.call.bound.library != "cupy" and _MOVED * cut.total <= read


def writes_values(op: Op, cut: Cutting) -> bool:
    """True if the launch that an op makes can write values itself."""
    launch = _launch(op) if pipeline.chaining() else None
    return launch is not None and _kernel(_launched(op), launch.kernel, cut) is not None


def with_values(op: Op, extraction: Extraction) -> Op | None:
    """The op whose launch writes values itself; None where that cannot be."""
    launch = _launch(op)
    both = _both(_launched(op), launch, extraction) if launch is not None else None
    return None if both is None else replace(op, actions=tuple(both if a is launch else a for a in op.actions))


def _launched(op: Op) -> Launched:
    assert isinstance(op.operation, Launched), "only launches keep values"
    return op.operation


def _launch(op: Op) -> Prepared | None:
    """The launch of the user's kernel, which an op ends with."""
    last = op.actions[-1] if op.actions else None
    operation = _launched(op)
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

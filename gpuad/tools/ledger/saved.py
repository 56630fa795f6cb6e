"""What a launch saves for its reverse, in bytes a thread, and how deep its stacks get: read off the memory that a reverse is given.

In: a primal, its adjoint, a bound call and the stages of its reverse. Out: for each array its `Kept`, bytes over the number of threads,
rounded to hundredths, and the entries of the deepest stack. Where depths do not follow from the launch's numbers the primal is run and the
counting kernel after it, so arrays of the call are written to. If that raises a GpuadError the depth is None and scratch memory is not
counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ... import pipeline
from ...arguments.arrays import address
from ...errors import GpuadError
from ...ir.nodes import Alloc, Buffer, Kernel
from ...ir.rewrite import walk_stmts
from ...pipeline import Call, Stage, State
from ...pipeline.derived_kernels import Adjoint

_GROUP = 32  # threads that have one part of a stack in scratch memory


@dataclass(frozen=True)
class Kept:
    """What is saved for the reverse: bytes a thread, as a copy, a log, a stack (`local` in the thread, `scratch` in global memory), or what
    threads keep for those that gather (`partial`); and for what."""

    how: str
    bytes: float
    why: str


def saved_by(
    primal: Kernel, adjoint: Adjoint, call: Call, stages: Sequence[Stage], why: Mapping[str, str]
) -> tuple[dict[str, Kept], int | None]:
    """What is saved, by name, and the entries of the deepest stack of a thread; None where it takes a launch and that fails, in which
    case scratch memory is not counted. Writes to the arrays of the call. `why`: for what each is saved."""
    state = pipeline.before(adjoint, call)
    found = [*_memory(adjoint, state), *_partials(stages, call)]
    arrays = [s.buffer for s in walk_stmts(adjoint.layout.body) if isinstance(s, Alloc) and s.buffer.name.endswith("_saved")]
    found += [("local", a.name, (a.length or 0) * a.element.size * call.threads) for a in arrays]
    depth: int | None = max((a.length or 0 for a in arrays), default=0)
    if adjoint.layout.scratch:
        stacks = _stacks(primal, adjoint, call, state)
        depth = None if stacks is None else max(stacks[1], depth or 0)
        found += stacks[0] if stacks is not None else []
    threads = max(call.threads, 1)
    return {name: Kept(how, round(size / threads, 2), why.get(name, "")) for how, name, size in found}, depth


def _memory(adjoint: Adjoint, state: State) -> list[tuple[str, str, float]]:
    """Copies from before the launch, and logs."""
    positions = {p.item: p.position for p in adjoint.parameters if p.role in ("entry", "working")}
    copies = [(buffer.name, positions.get(copy)) for buffer, copy in adjoint.recording.entry.items()]
    roots = {address(state.entries[k].root): (name, k) for name, k in reversed(copies) if k is not None and k in state.entries}
    found: list[tuple[str, str, float]] = [("copy", name, state.entries[k].root.nbytes) for name, k in reversed(roots.values())]
    return found + [("log", log.name, memory.root.nbytes) for log, memory in zip(adjoint.logs, state.logs, strict=True)]


def _partials(stages: Sequence[Stage], call: Call) -> list[tuple[str, str, float]]:
    arrays = {p.item for stage in stages for p in stage.parameters if p.role == "partial" and isinstance(p.item, Buffer)}
    return [("partial", array.name, array.element.size * call.threads) for array in sorted(arrays, key=lambda a: a.name)]


def _stacks(primal: Kernel, adjoint: Adjoint, call: Call, state: State) -> tuple[list[tuple[str, str, float]], int] | None:
    """The memory of stacks, and the entries of the deepest; found after the launch, as for its reverse."""
    try:
        pipeline.run_primal(primal, adjoint, call, state)
        bases = pipeline.stack_bases(adjoint, call, state)
    except GpuadError:  # a race, an index out of bounds, more threads than the reference executor runs: others say so
        return None
    entries = [(f, int(b[-1])) for scratch, b in zip(adjoint.layout.scratch, bases, strict=True) for f in scratch.fields]
    deepest = max(int(np.diff(b).max()) // _GROUP for b in bases)
    return [("scratch", f.name, count * f.element.size) for f, count in entries], deepest

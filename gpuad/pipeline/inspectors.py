"""Runs inspectors where no proof decides but the launch's numbers do: injectivity of a shadow's accesses, and barrier phases in shared
memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.conflicts import seem_to_conflict
from ..errors import GpuadError
from ..inspect.barrier_phase import NOTES, BarrierPhaseInspector
from ..inspect.injectivity import MOST, InjectivityInspector
from ..inspect.shared_races import SharedRaceInspector
from ..ir.nodes import Buffer
from ..runtime.base import Executor, Memory
from ..runtime.reference.errors import RaceError
from .adjoint_memory import shadow_of
from .calls import Call
from .derived_kernels import Adjoint, Inspected

_RUNS = 1 << 16
_WASTED = 4  # times as many accesses as there are elements: threads meet
_SPARSE = 1 << 12  # times as many elements as there are accesses: an inspector takes 12 bytes an element, which may be too many
STEPS = 1 << 10  # accesses and iterations of a block, each of all its threads at once
_FEW = 1 << 24  # elements for which that is no matter


@dataclass(frozen=True)
class Counted:
    """`spans`: the elements that are touched, counted from where the pointer points, as sorted spans of shape (n, 2), int64; None if they
    are too many, or data decide which of them. `once`: each of them once."""

    spans: NDArray[np.int64] | None
    once: bool


def may_be_injective(adjoint: Adjoint, call: Call, shadow: Buffer) -> bool:
    """True if a shadow's accesses may be injective, no two threads touching one element: there are elements enough for all of them, and
    those that are affine do not meet. So for a read beyond a periodic edge, of one field or of many, but not for a stencil."""
    memory = _memory(adjoint, call, shadow)
    inspector = adjoint.injectivity(shadow)
    if memory is None or inspector is None or inspector.places * _at_work(call) > int(memory.root.size):
        return False
    return not seem_to_conflict(adjoint.layout.body, shadow, call.numbers(adjoint.primal))


def _at_work(call: Call) -> int:
    """How many threads of a launch do something, as far as one may guess: of the last block along each axis one, but half of all."""
    full = prod((blocks - 1) * threads + 1 for blocks, threads in zip(call.grid, call.block, strict=True))
    return max(full, call.threads // 2)


def is_injective(adjoint: Adjoint, call: Call, shadow: Buffer) -> Counted | None:
    """What the launch touches of a shadow if no two of its threads touch one element; None if they do, or if that is not known."""
    memory = _memory(adjoint, call, shadow)
    inspector = adjoint.injectivity(shadow) if memory is not None and call.threads < MOST else None
    if memory is None or inspector is None:
        return None
    accesses, elements = inspector.touches * call.threads, int(memory.root.size)
    if accesses > _WASTED * elements or elements > max(_SPARSE * accesses, _FEW):
        return None
    numbers = call.numbers(adjoint.primal).scalars
    if any(v not in numbers for v in inspector.scalars):
        return None
    key = "touched", shadow, call.grid, call.block, tuple(numbers[v] for v in inspector.scalars), int(memory.root.size), memory.offset
    found: Counted | None = adjoint.facts.get_some(
        shadow, key, lambda: _counted(inspector, call, [numbers[v] for v in inspector.scalars], memory)
    )
    return found


def _memory(adjoint: Adjoint, call: Call, shadow: Buffer) -> Memory | None:
    position = next((p.position for p in adjoint.parameters if p.role == "shadow" and p.item == shadow), None)
    return None if position is None else shadow_of(call, position, 0)


def _counted(inspector: InjectivityInspector, call: Call, numbers: Collection[int], memory: Memory) -> Counted | None:
    call = replace(call, pool=None)  # once for these numbers: not in memory that a tape keeps
    try:
        last, first, times = (Memory(call.executor.zeros(memory.root.size, np.dtype(np.int32)), memory.offset) for _ in range(3))
    except MemoryError:  # CuPy's too
        return None
    scalars = [np.dtype(str(v.type)).type(n) for v, n in zip(inspector.scalars, numbers, strict=True)]
    bounds = np.int64(-memory.offset), np.int64(int(memory.root.size) - memory.offset)
    call.run(inspector.kernel, [*scalars, *bounds, last, first, times])
    touched = times.root > 0
    if not bool(((last.root == MOST + 1 - first.root) | ~touched).all()):
        return None
    if not inspector.certain:  # it is what may be touched
        return Counted(None, False)
    return Counted(_spans(touched, memory), bool((times.root <= 1).all()))


def _spans(touched: Any, memory: Memory) -> NDArray[np.int64] | None:
    """Where a mask over a flat array is set, from where a pointer points."""
    if bool(touched.all()):
        return np.array([[0, touched.size]], np.int64) - memory.offset
    mask = touched.get() if hasattr(touched, "get") else touched
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).astype(np.int64)
    return edges.reshape(-1, 2) - memory.offset if len(edges) <= 2 * _RUNS else None


# --- shared memory -----------------------------------------------------------------------------------------------------------------------


def one_by_one(adjoint: Adjoint, call: Call) -> frozenset[Buffer]:
    """The shadows in shared memory of which no two threads of a block touch one element between two barriers, if one of them writes."""
    inspector = adjoint.barrier_phases()
    numbers = call.numbers(adjoint.primal).scalars
    if inspector is None or any(v not in numbers for v in inspector.scalars):
        return frozenset()
    given = tuple(numbers[v] for v in inspector.scalars)
    key = "intervals", call.block, given
    found: frozenset[Buffer] | None = adjoint.facts.get_some("intervals", key, lambda: _ordered_by_phases(inspector, call, given))
    return found or frozenset()


@cache
def _interpreter() -> Executor:
    """It needs no compilation, and an inspector is short; it has no barriers, and each thread writes to memory of its own."""
    from ..runtime.reference import Reference

    return Reference(check=False, limit=NOTES)


def shared_race(inspected: Inspected, call: Call) -> RaceError | None:
    """A race in shared memory that the first block of the launch surely has, if its numbers prove one within `STEPS` steps."""
    inspector = inspected.shared_races()
    launch = call.numbers(inspected.primal)
    if inspector is None or any(v not in launch.scalars for v in inspector.scalars):
        return None
    given = tuple(launch.scalars[v] for v in inspector.scalars)
    key = "shared race", call.grid, call.block, call.shared_mem, given
    found: RaceError | None = inspected.facts.get_some("shared race", key, lambda: _found_race(inspector, call, given))
    return found


def _found_race(inspector: SharedRaceInspector, call: Call, numbers: Collection[int]) -> RaceError | None:
    from ..runtime.reference import Reference

    scalars = [np.dtype(str(v.type)).type(n) for v, n in zip(inspector.scalars, numbers, strict=True)]
    extents = [np.uint32(n) for n in call.grid]
    try:
        Reference(limit=STEPS, steps=STEPS).launch(
            inspector.kernel, (1, 1, 1), call.block, [*scalars, *extents], shared_mem=call.shared_mem
        )
    except RaceError as race:
        return race
    except GpuadError:  # too long, or outside of an array, or not all threads come to a barrier
        return None
    return None


def _ordered_by_phases(inspector: BarrierPhaseInspector, call: Call, numbers: Collection[int]) -> frozenset[Buffer]:
    threads = int(np.prod(call.block))
    notes, counts, barriers = (np.zeros(n, np.int64) for n in (threads * NOTES, threads, threads))
    scalars = [np.dtype(str(v.type)).type(n) for v, n in zip(inspector.scalars, numbers, strict=True)]
    try:
        _interpreter().launch(inspector.kernel, (1, 1, 1), call.block, [*scalars, *(Memory(a) for a in (notes, counts, barriers))])
    except GpuadError:  # a loop without an end, or code that no thread reaches
        return frozenset()
    if counts.min() < 0 or counts.max() > NOTES or barriers.min() != barriers.max():
        return frozenset()
    return frozenset(inspector.shadows) - inspector.lost - {inspector.shadows[k] for k in _conflicts(notes.reshape(threads, NOTES), counts)}


def _conflicts(notes: NDArray[np.int64], counts: NDArray[np.int64]) -> set[int]:
    """The numbers of shadows of which two threads touch one element in one interval, one of them in order to write."""
    left = (np.arange(NOTES) < counts[:, None]) & (notes >= 0)
    threads, left_notes = np.nonzero(left)[0], notes[left]
    _, places = np.unique(left_notes >> 1, return_inverse=True)
    least, most, written = (np.full(len(left_notes), fill, np.int64) for fill in (len(notes), -1, 0))
    np.minimum.at(least, places, threads)
    np.maximum.at(most, places, threads)
    np.maximum.at(written, places, left_notes & 1)
    wrong = (least != most) & (written == 1)
    return {BarrierPhaseInspector.shadow_of(int(note)) for note in np.unique(left_notes[wrong[places]])}

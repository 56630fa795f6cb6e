"""Reproducible sums: reverse passes with the same bits in every run, however the threads of a launch are ordered.

In: an adjoint and a launch whose threads add to elements of a shadow together. Out: two kernels in the place of one: the first finds the
largest magnitude of the contributions, the second adds them up as integers of four words for each element (`accumulate.fixed_point`).
Memory: four numbers for each element of such a shadow. Raises LaunchError at a contribution that is not finite, which has no such form.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ..accumulate.fixed_point import DIGIT_BITS, DIGITS, FixedPoint, scales_of
from ..arguments.arrays import namespace
from ..errors import LaunchError
from ..ir.nodes import Buffer, Kernel
from ..runtime.base import Argument, Memory
from .adjoint_memory import State, argument_of, copied, shadow_of
from .calls import Call
from .pattern import Parameter

Run: TypeAlias = "Callable[[Kernel, Sequence[Argument], State], None]"


def run_fixed(fixed: FixedPoint, parameters: tuple[Parameter, ...], call: Call, state: State, width: int, run: Run) -> None:
    """Runs the two kernels; `run` launches one with arguments beyond its own and a state. Raises LaunchError, with the shadows as they
    were, if a contribution is not finite."""
    given = {p.item: argument_of(p, call, state, width) for p in parameters if p.role == "shadow"}
    shadows = {item: m for item, m in given.items() if isinstance(m, Memory)}
    roots = {id(m.root): m.root for m in shadows.values()}
    kept = [(root, call.executor.copy(root)) for root in roots.values()]
    peaks = [_room(call, shadows[target]) for target in fixed.targets]
    working = {p.position for p in parameters if p.role == "working"}  # the second kernel finds it as the first does
    entries = {i: copied(call, m) if i in working else m for i, m in state.entries.items()}
    run(fixed.measure, peaks, replace(state, entries=entries, scratch=dict(state.scratch)))
    for root, copy in kept:
        root[...] = copy
    scales = [_scales(target, peak) for target, peak in zip(fixed.targets, peaks, strict=True)]
    digits = [_room(call, shadows[target], DIGITS) for target in fixed.targets]
    run(fixed.collect, [x for pair in zip(digits, scales, strict=True) for x in pair], state)
    for target, sums, scale in zip(fixed.targets, digits, scales, strict=True):
        _add_digits(shadows[target].root, sums.root.reshape(-1, DIGITS), scale.root)


def fixed_sizes(fixed: FixedPoint, parameters: tuple[Parameter, ...], call: Call, width: int) -> list[int]:
    """Bytes of the arrays that the two kernels take."""
    shadows = {p.item: m for p in parameters if p.role == "shadow" and (m := shadow_of(call, p.position, width)) is not None}
    copies = {id(m.root): int(m.root.nbytes) for m in shadows.values()}
    entries = [m for p in parameters if p.role == "working" and (m := call.bound.arguments[p.position].memory) is not None]
    sums = [8 * int(shadows[target].root.size) for target in fixed.targets if target in shadows]
    return [*copies.values(), *(int(m.root.nbytes) for m in entries), *sums, *(DIGITS * n for n in sums)]


@np.errstate(all="ignore")  # whatever error mode the caller has set in NumPy: half of a sum would be left
def add_in_fixed_point(memory: Any, places: Any, values: Any) -> None:
    """`memory[places] += values` for places that may repeat, with the same bits in whatever order the additions come. `memory`: flat, real
    or complex; `places`: integers of any shape, of which that of `values` is one. Raises LaunchError, before anything is written, if a
    value is not finite."""
    if memory.dtype.kind == "c":
        for part in ("real", "imag"):
            add_in_fixed_point(getattr(memory, part), places, getattr(values, part))
        return
    library = namespace(memory)
    found, order = library.unique(places.reshape(-1), return_inverse=True)
    rest = library.broadcast_to(values, places.shape).reshape(-1).astype(np.float64)
    peaks = library.zeros(found.size, np.float64)
    library.maximum.at(peaks, order, abs(rest))
    if not bool(library.isfinite(peaks).all()):
        raise LaunchError("a value that is to be added is not finite: no deterministic sum can be formed. Nothing was added.")
    scales = scales_of(peaks.view(np.int64))
    rest = rest * scales[order]
    digits = library.zeros((DIGITS, found.size), np.int64)
    for row in digits:
        whole = library.rint(rest)
        library.add.at(row.view(np.uint64), order, whole.astype(np.int64).view(np.uint64))  # CuPy has no atomics for signed ones
        rest = (rest - whole) * float(1 << DIGIT_BITS)
    sums = memory[found]
    _add_digits(sums, digits.T, scales)
    memory[found] = sums


def _room(call: Call, shadow: Memory, count: int = 1) -> Memory:
    """So many integers for each element of a shadow, zeroed."""
    return Memory(call.executor.zeros(count * shadow.root.size, np.dtype(np.int64)), count * shadow.offset)


def _scales(target: Buffer, peaks: Memory) -> Memory:
    greatest = int(peaks.root.max()) if peaks.root.size else 0
    peak = struct.unpack("=d", struct.pack("=q", greatest))[0]
    if not np.isfinite(peak):
        raise LaunchError(f"a contribution to `{target.name}` is {peak}: no deterministic sum can be formed. The shadows are as they were.")
    return Memory(scales_of(peaks.root), peaks.offset)


@np.errstate(all="ignore")
def _add_digits(shadow: Any, digits: Any, scales: Any) -> None:
    """Adds the sums to the shadow, the least digits first."""
    touched = (digits != 0).any(axis=1)
    total = digits[touched, DIGITS - 1].astype(np.float64)
    for place in reversed(range(DIGITS - 1)):
        total = total / float(1 << DIGIT_BITS) + digits[touched, place]
    shadow[touched] = (shadow[touched] + total / scales[touched]).astype(shadow.dtype)

"""Reverse passes with the same bits in every run, however the threads of a launch are ordered (`transform.fixed_point`).

Two kernels run in the place of one, with three integers for each element of the shadows that threads add to together.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np

from ..differentiate import Parameter
from ..errors import LaunchError
from ..executors.base import Memory
from ..ir.nodes import Buffer, Kernel
from ..transform.fixed_point import DIGIT_BITS, DIGITS, FixedPoint, scale_of
from .calls import Call
from .states import State, argument_of

VARIABLE = "GPUAD_DETERMINISTIC"
_wanted: ContextVar[bool | None] = ContextVar("deterministic", default=None)
Run: TypeAlias = "Callable[[Kernel, list[Any]], None]"


@contextlib.contextmanager
def deterministic(wanted: bool = True) -> Iterator[None]:
    """Within it a reverse pass gives the same bits in every run, on every number of threads. Where that is not possible, the launch is
    refused with UnsupportedError before anything is written. Shadows that threads add to together cost 24 bytes an element and a copy
    while the kernel runs, and the kernel runs twice; others cost nothing. GPUAD_DETERMINISTIC=1 in the environment wants it everywhere."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def in_fixed_point() -> bool:
    """Whether sums have to be made independent of the order of the threads."""
    wanted = _wanted.get()
    return os.environ.get(VARIABLE, "0") not in ("", "0") if wanted is None else wanted


def run_fixed(fixed: FixedPoint, parameters: tuple[Parameter, ...], call: Call, state: State, width: int, run: Run) -> None:
    """Runs the two kernels; `run` launches one with arguments beyond its own. Raises LaunchError, with the shadows as they were, if a
    contribution is not finite."""
    shadows = {p.item: argument_of(p, call, state, width) for p in parameters if p.role == "shadow"}
    roots = {id(m.root): m.root for m in shadows.values() if m is not None}
    kept = [(root, call.executor.copy(root)) for root in roots.values()]
    peaks = Memory(call.executor.zeros(len(fixed.targets), np.dtype(np.int64)))
    run(fixed.measure, [peaks])
    for root, copy in kept:
        root[...] = copy
    scales = [_scale(target, int(peaks.root[k])) for k, target in enumerate(fixed.targets)]
    digits = [_digits(call, shadows[target]) for target in fixed.targets]
    run(fixed.collect, [x for d, scale in zip(digits, scales, strict=True) for x in (d, np.float64(scale))])
    for target, sums, scale in zip(fixed.targets, digits, scales, strict=True):
        _settle(shadows[target].root, sums.root.reshape(-1, DIGITS), scale)


def _digits(call: Call, shadow: Memory) -> Memory:
    return Memory(call.executor.zeros(DIGITS * shadow.root.size, np.dtype(np.int64)), DIGITS * shadow.offset)


def _scale(target: Buffer, bits: int) -> float:
    peak = struct.unpack("=d", struct.pack("=q", bits))[0]
    if not np.isfinite(peak):
        raise LaunchError(f"a contribution to `{target.name}` is {peak}: no deterministic sum can be formed. The shadows are as they were.")
    return scale_of(peak)


def _settle(shadow: Any, digits: Any, scale: float) -> None:
    """Adds the sums to the shadow, the least digits first."""
    touched = (digits != 0).any(axis=1)
    total = digits[touched, DIGITS - 1].astype(np.float64)
    for place in reversed(range(DIGITS - 1)):
        total = total / float(1 << DIGIT_BITS) + digits[touched, place]
    shadow[touched] = (shadow[touched] + total / scale).astype(shadow.dtype)

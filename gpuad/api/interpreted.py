"""A kernel's launch as the reference executor runs it, which sees every access: its data races and bad indices are errors.

In: a kernel, and a call with NumPy arrays, which are written. Raises RaceError, BoundsError and BarrierError."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import pipeline
from ..runtime.array_types import Extents
from .argument_flattening import library_of
from .kernels import Family, Kernel


def interpret(family: Family, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
    """Runs the primal on the reference executor."""
    from ..runtime.reference import Reference

    plans = family.launches(grid, block, args, shared_mem=shared_mem, stream=stream)
    with pipeline.executor_for_tests(Reference()):
        for plan in plans:
            chosen = plan.kernel if family.in_parts else _on_host(plan.kernel, plan.args)  # parts have one memory
            chosen(plan.grid, plan.block, plan.args, shared_mem=plan.shared_mem, stream=plan.stream)


def _on_host(chosen: Kernel, args: Sequence[Any]) -> Kernel:
    """The kernel with its module's variables in memory of the host, if the arrays of a call are there."""
    if library_of(args) is not np or not chosen.function.globals:
        return chosen
    own = copy.copy(chosen)
    own.module = chosen.module.on_host()
    return own

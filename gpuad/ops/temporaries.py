"""New arrays that operations give back, and their shadows.

A temporary is a pair like any other, but its shadow belongs to the tape, which may share it with others while it reverses and uses it
again for the next recording.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import Active, BatchDuplicated, Duplicated
from ..arguments.arrays import namespace
from ..arguments.recorder import current
from ..errors import UnsupportedError
from ..ir.dtypes import is_real, shadow_dtype
from ..runtime.allocation import asked
from ..runtime.array_types import NdArray
from ..tape.memory.temporaries import Temporary


def refuse_swapped(dtype: Any) -> None:
    """Kernels and shadows know the machine's order of bytes only. Raises UnsupportedError."""
    if not np.dtype(dtype).isnative:
        raise UnsupportedError(f"gpuad.ops takes arrays in the machine's order of bytes, not {np.dtype(dtype).str}; convert it before")


def carried(inputs: Sequence[Any]) -> bool:
    """Whether an operand carries a gradient."""
    return any(isinstance(x, Duplicated | BatchDuplicated | Active) for x in inputs)


def new_array(like: Any, shape: Sequence[int], dtype: Any, *, active: bool) -> Any:
    """A new array of the same library, not cleared. `active`: whether it is to have a shadow. UnsupportedError for a type with its bytes in
    another order."""
    refuse_swapped(dtype)
    tape = current.get()
    if tape is not None:
        return tape.new(namespace(like), tuple(shape), np.dtype(dtype), active)
    if namespace(like) is np:
        asked(math.prod(shape) * np.dtype(dtype).itemsize)
    return namespace(like).empty(tuple(shape), dtype)


def temporary(array: NdArray) -> Duplicated:
    """A new array (C-contiguous) as a pair; its shadow is made when it is first needed."""
    tape = current.get()
    made = tape.maker(array) if tape is not None and (array.dtype.kind == "c" or is_real(array.dtype)) else None
    return Temporary(made) if made is not None else Duplicated(array)


def paired(array: NdArray, inputs: Sequence[Any]) -> Any:
    """A new array with as many shadows as the operands that carry a gradient have; none if none does."""
    batch = next((x for x in inputs if isinstance(x, BatchDuplicated)), None)
    if batch is not None:
        return BatchDuplicated(array, tuple(namespace(array).zeros(array.shape, shadow_dtype(array.dtype)) for _ in batch.shadows))
    return temporary(array) if any(isinstance(x, Duplicated) for x in inputs) else array

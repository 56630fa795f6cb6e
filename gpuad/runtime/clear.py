"""Clears large arrays of a CPU on all cores, by compiled code: NumPy's `fill` has one, and reads what it is about to overwrite."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .batch import Batch, clearing_item
from .compiler import has_compiler
from .host import default_workers

LARGE = 1 << 22  # bytes


def clear_together(array: Any) -> bool:
    """Sets a NumPy array of numbers to 0 if it is large, and whole or of whole rows, and there is a compiler; whether it did."""
    if not isinstance(array, np.ndarray) or array.nbytes < LARGE:
        return False
    item = clearing_item(array)
    return item is not None and _compiles() and Batch([item], default_workers())() is None


@cache
def _compiles() -> bool:
    return has_compiler()

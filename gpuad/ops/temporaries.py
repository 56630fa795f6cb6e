"""New arrays that operations give back, and their shadows.

A temporary is a pair like any other; that its shadow is known to nobody else yet is what a later step may use, to lend shadows between
temporaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..annotations import Duplicated, namespace


def new_array(like: Any, shape: Sequence[int], dtype: Any) -> Any:
    """A new array of the same library, not cleared."""
    return namespace(like).empty(tuple(shape), dtype)


def temporary(array: Any) -> Duplicated:
    """A new array as a pair; its shadow is made when it is first needed."""
    return Duplicated(array)

"""Arguments of a launch without the whole numbers that only move its arrays (`analysis.moving_numbers`).

In: a kernel's moves and a call's arguments. Out: arguments of the same launch, with such numbers 0 and each array a view that begins with
the element that they move it to. So launches that differ in such numbers alone are one call to all that is found out about a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..analysis.moving_numbers import Moves
from ..arguments.annotations import Duplicated


def moving_values(moves: Moves, args: Sequence[Any]) -> dict[int, int] | None:
    """The numbers of the terms by position; None where one of them is no plain whole number."""
    found = {k: args[k] for k in moves.factors}
    return {k: int(x) for k, x in found.items()} if all(isinstance(x, int | np.integer) for x in found.values()) else None


def moved_arguments(moves: Moves, args: Sequence[Any], values: dict[int, int]) -> tuple[Any, ...] | None:
    """The arguments of the same launch with the moving numbers 0. None where an array is not contiguous, or a view would begin outside."""
    moved: dict[int, Any] = {k: 0 for k in moves.numbers}
    for k, offset in moves.offsets(values).items():
        x = args[k]
        array = x.primal if type(x) is Duplicated else x
        if not hasattr(array, "flags") or not array.flags.c_contiguous or not 0 <= offset < array.size:
            return None
        row = max(moves.row(k, values), 1)
        moved[k] = x.reshape(-1)[offset : offset + (row if offset + row <= array.size else 1)]
    return tuple(moved.get(k, x) for k, x in enumerate(args))

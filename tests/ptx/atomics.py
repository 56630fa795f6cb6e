"""What atomic operations do to memory, as if the lanes came one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .faults import Unknown
from .floating import in_halves
from .floats import extremum, odd_sum


def _add(type_: str) -> Callable[..., Any]:
    return in_halves(odd_sum, type_) if type_ in ("bf16", "f16x2", "bf16x2") else np.add


def _least(type_: str) -> Callable[..., Any]:
    return in_halves(lambda a, b: extremum(a, b, False), type_) if "f" in type_ else np.minimum


def _most(type_: str) -> Callable[..., Any]:
    return in_halves(lambda a, b: extremum(a, b, True), type_) if "f" in type_ else np.maximum


OPERATIONS: dict[str, Callable[[str], Callable[..., Any]]] = {
    "add": _add,
    "min": _least,
    "max": _most,
    "and": lambda _: np.bitwise_and,
    "or": lambda _: np.bitwise_or,
    "xor": lambda _: np.bitwise_xor,
    "exch": lambda _: lambda _, new: new,
    "cas": lambda _: lambda old, expected, new: np.where(old == expected, new, old),
    "inc": lambda _: lambda old, most: np.where(old >= most, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda _: lambda old, most: np.where((old == 0) | (old > most), most, old - old.dtype.type(1)),
}
_WIDTHS = {
    "add": (2, 4, 8),
    "min": (2, 4, 8),
    "max": (2, 4, 8),
    "cas": (2, 4, 8),
    "exch": (4, 8),
    "and": (4, 8),
    "or": (4, 8),
    "xor": (4, 8),
}


def changed(memory: Any, at: Any, values: list[Any], name: str, type_: str, wants: bool) -> Any:
    """Applies the operation at the elements `at` of `memory`, and returns what was there before each lane came (where `wants` is false,
    anything)."""
    if memory.dtype.itemsize not in _WIDTHS.get(name, (4,)):
        raise Unknown(f"atom.{name}.{type_}")
    operation = OPERATIONS[name](type_)
    if not wants and isinstance(operation, np.ufunc):
        operation.at(memory, at, values[0])
        return memory[at]
    old = np.empty(at.size, memory.dtype)
    for some in turns(at):
        old[some] = memory[at[some]]
        memory[at[some]] = operation(old[some], *(v[some] for v in values))
    return old


def turns(at: Any) -> list[Any]:
    """Lanes in groups of which no two come to the same place, in order."""
    order = np.argsort(at, kind="stable")
    spots, begin, count = np.unique(at[order], return_index=True, return_counts=True)
    if spots.size == at.size:
        return [slice(None)]
    rank = np.empty(at.size, np.int64)
    rank[order] = np.arange(at.size) - np.repeat(begin, count)
    by_rank = np.argsort(rank, kind="stable")
    return np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])

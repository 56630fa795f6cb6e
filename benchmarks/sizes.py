"""Sizes for a machine: a case's benchmark is made for a GPU, and is cut down for anything smaller.

The largest size that is above the case's own is halved until the arguments and the arithmetic fit a budget, so that a grid stays a grid.
The outcome depends on the case and the budget alone: records of one budget can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuad.tools.cases import Case


@dataclass(frozen=True)
class Budget:
    """The most that one launch may take: bytes of arguments, floating-point operations, threads (None: no limit)."""

    bytes: int | None = None
    flops: int | None = None
    threads: int | None = None

    def part(self, divisor: int) -> Budget:
        """The budget divided."""
        return Budget(*(None if most is None else most // divisor for most in (self.bytes, self.flops, self.threads)))


WHOLE = Budget()


def fitting(case: Case, budget: Budget) -> dict[str, int]:
    """The benchmark's sizes, cut down to the budget."""
    sizes = dict(case.benchmark.sizes) if case.benchmark else {}
    least = case.resolve()
    while _above(case, sizes, budget):
        larger = [name for name, size in sizes.items() if size // 2 >= least[name]]
        if not larger:
            break
        largest = max(larger, key=lambda name: sizes[name])
        sizes[largest] //= 2
    return sizes


def argument_bytes(case: Case, sizes: Mapping[str, int]) -> int:
    """Bytes of the arrays, at eight bytes an element: the header does not know their types."""
    values = case.resolve(sizes)
    shapes = ([e.whole(values) for e in a.shape] for a in case.arguments.values() if a.shape is not None)
    return 8 * sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes)


def _above(case: Case, sizes: Mapping[str, int], budget: Budget) -> bool:
    grid, block, _ = case.geometry(sizes)
    amounts = (
        (argument_bytes(case, sizes), budget.bytes),
        (case.operations(sizes), budget.flops),
        (int(np.prod([*grid, *block], dtype=np.int64)), budget.threads),
    )
    return any(amount is not None and most is not None and amount > most for amount, most in amounts)

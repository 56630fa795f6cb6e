"""Chains of units that cost differently: the optimum over where checkpoints are stored, by dynamic programming over pairs of places.

    cost(slots, a, b) = min( w(a, b) - spared + cost(slots, a, b - q),                       run from a to b - q, keep the last q at once
                             min over j of  w(a, j) + cost(slots - 1, j, b) + cost(slots, a, j) )

where w(a, b) is what the units from a to b cost. For units that cost the same this is `schedule.Chain`, which is cheaper to find out;
here a row takes the cube of the number of units, so they are to be few (Walther and Griewank, 2004, have the same for unequal steps).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]  # by where a part of the chain begins and ends


class Weighted:
    """The costs of reversing units of which each costs its weight. `kept`, `spared`: as of `schedule.Chain`."""

    def __init__(self, weights: Sequence[int], kept: Callable[[int], int], spared: bool) -> None:
        self.units, self.kept, self.spared = len(weights), kept, int(spared)
        self.weights = np.asarray(weights, np.int64)
        self.sums = np.concatenate([[0], np.cumsum(self.weights)])
        self.costs: list[Table] = []
        self.splits: list[Table] = []

    def cost(self, slots: int) -> int:
        """What is run to reverse all of them from a state that is there; those that are kept, too."""
        return int(self._row(slots)[0][0, self.units])

    def split(self, slots: int, begin: int, end: int) -> int:
        """After how many of the units from `begin` to `end` a checkpoint is stored first; 0 if the last `kept` are kept without one."""
        return int(self._row(slots)[1][begin, end])

    def _row(self, slots: int) -> tuple[Table, Table]:
        while len(self.costs) <= slots:
            self._add_row()
        return self.costs[slots], self.splits[slots]

    def _add_row(self) -> None:
        n, slots = self.units, len(self.costs)
        most = max(self.kept(slots), 1)
        row, splits = np.zeros((n + 1, n + 1), np.int64), np.zeros((n + 1, n + 1), np.int64)
        for length in range(1, n + 1):
            begins = np.arange(n - length + 1)
            ends = begins + length
            best = self.sums[ends] - self.sums[begins] - self.spared * self.weights[ends - 1] + row[begins, np.maximum(ends - most, begins)]
            if slots and most < length:
                places = begins[:, None] + np.arange(1, length)
                through = self.sums[places] - self.sums[begins][:, None]
                found = through + self.costs[slots - 1][places, ends[:, None]] + row[begins[:, None], places]
                first = np.argmin(found, axis=1)
                least = found[np.arange(len(begins)), first]
                splits[begins, ends] = np.where(least < best, first + 1, 0)
                best = np.minimum(best, least)
            row[begins, ends] = best
        self.costs.append(row)
        self.splits.append(splits)

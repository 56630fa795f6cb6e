"""`det`: the determinant by expansion by minors, and its derivative by each entry.

Each minor of the last rows is expanded once, where the recursion of GradBench's own C++ expands it as often as it meets it: a launch for
the minors of one size, a thread each, all in one array. For n columns that is n 2^n work and not n!.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpuad
from gpuad import Duplicated

from .. import device

BLOCK = 64


class Program:
    """The launches, on arrays that are made once."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.n = given["ell"]
        self.a, self.minors = Duplicated(device.array(given["A"])), Duplicated(device.zeros(1 << self.n))
        self.seed = device.zeros(1 << self.n)
        self.seed[-1] = 1
        self.tape = gpuad.Tape()

    def launch(self, a: Any, minors: Any) -> None:
        """All sizes, of pairs on a tape or of bare arrays."""
        expand = device.kernel("det.cu", "expand")
        for size in range(1, self.n + 1):
            expand[device.blocks(1 << self.n, BLOCK), BLOCK](a, minors, self.n, size)

    def value(self) -> Any:
        """The primal alone."""
        self.minors.primal[0] = 1
        self.launch(self.a.primal, self.minors.primal)
        return self.minors.primal[-1]

    def gradient(self) -> Any:
        """Forward and reverse."""
        self.minors.primal[0] = 1
        with self.tape:
            self.launch(self.a, self.minors)
        self.a.shadow.fill(0)
        self.tape.reverse({self.minors: self.seed})
        return self.a.shadow


def primal(given: dict[str, Any]) -> Callable[[], Any]:
    """The determinant."""
    return Program(given).value


def gradient(given: dict[str, Any]) -> Callable[[], Any]:
    """Its derivative by each entry, row by row."""
    return Program(given).gradient


FUNCTIONS = {"primal": primal, "gradient": gradient}

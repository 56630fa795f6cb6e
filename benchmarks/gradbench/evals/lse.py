"""`lse`: log(sum of exp(x)), shifted by the largest x; the gradient is the softmax.

The value does not depend on the shift, so no gradient goes through it (`stop_gradient`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpuad
from gpuad import Duplicated

from .. import device

BLOCK = 64  # as in the file


class Program:
    """The launches, on arrays that are made once."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.x = Duplicated(device.array(given["x"]))
        self.n = len(given["x"])
        self.blocks = min(256, -(-self.n // (8 * BLOCK)))
        self.largest, self.shift = device.zeros(self.blocks), device.zeros(1)
        self.sum, self.result = Duplicated(device.zeros(self.blocks)), Duplicated(device.zeros(1))
        self.tape = gpuad.Tape()

    def launch(self, x: Any, sums: Any, result: Any) -> None:
        """The primal: of pairs on a tape, or of bare arrays."""
        largest, sum_exp, log = (device.kernel("log_sum_exp.cu", k) for k in ("block_largest", "block_sum_exp", "log_of_sums"))
        bare = gpuad.stop_gradient(x) if isinstance(x, Duplicated) else x
        largest[self.blocks, BLOCK](bare, self.largest, self.n)
        largest[1, BLOCK](self.largest, self.shift, self.blocks)
        sum_exp[self.blocks, BLOCK](x, self.shift, sums, self.n)
        log[1, 1](sums, self.shift, result, self.blocks)

    def value(self) -> Any:
        """The primal alone."""
        self.launch(self.x.primal, self.sum.primal, self.result.primal)
        return self.result.primal[0]

    def gradient(self) -> Any:
        """Forward and reverse."""
        with self.tape:
            self.launch(self.x, self.sum, self.result)
        self.x.shadow.fill(0)
        self.tape.reverse({self.result: 1.0})
        return self.x.shadow


def primal(given: dict[str, Any]) -> Callable[[], Any]:
    """The value."""
    return Program(given).value


def gradient(given: dict[str, Any]) -> Callable[[], Any]:
    """Its derivative by each x."""
    return Program(given).gradient


FUNCTIONS = {"primal": primal, "gradient": gradient}

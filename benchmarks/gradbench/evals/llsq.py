"""`llsq`: a polynomial of m coefficients against the sign function at n points, half the sum of squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpuad
from gpuad import Duplicated

from .. import device

BLOCK = 64


class Program:
    """The launch, on arrays that are made once."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.x, self.loss = Duplicated(device.array(given["x"])), Duplicated(device.zeros(1))
        self.sizes = given["n"], len(given["x"])
        self.kernel = device.kernel("llsq.cu", "half_squares")
        self.grid = device.blocks(given["n"], BLOCK)

    def value(self) -> Any:
        """The primal alone."""
        self.loss.primal.fill(0)
        self.kernel[self.grid, BLOCK](self.x.primal, self.loss.primal, *self.sizes)
        return self.loss.primal[0]

    def gradient(self) -> Any:
        """Forward and reverse."""
        self.loss.primal.fill(0)
        self.loss.shadow.fill(1)
        self.x.shadow.fill(0)
        gpuad.autodiff(self.kernel, self.grid, (BLOCK,), (self.x, self.loss, *self.sizes))
        return self.x.shadow


def primal(given: dict[str, Any]) -> Callable[[], Any]:
    """The value."""
    return Program(given).value


def gradient(given: dict[str, Any]) -> Callable[[], Any]:
    """Its derivative by each coefficient."""
    return Program(given).gradient


FUNCTIONS = {"primal": primal, "gradient": gradient}

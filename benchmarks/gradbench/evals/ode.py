"""`ode`: Runge-Kutta steps from y = 0 to time 2 for y[0]' = x[0], y[i]' = x[i] y[i - 1]; the gradient of the last entry by x.

A launch a step, on two fields that take turns; the tape keeps the field before each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpuad
from gpuad import Duplicated

from .. import device

BLOCK = 256
END = 2.0


class Program:
    """The launches, on arrays that are made once."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.n, self.steps = len(given["x"]), given["s"]
        self.x = Duplicated(device.array(given["x"]))
        self.fields = [Duplicated(device.zeros(self.n)) for _ in range(2)]
        self.seed = device.zeros(self.n)
        self.seed[-1] = 1
        self.tape = gpuad.Tape()

    def launch(self, x: Any, now: Any, other: Any) -> Any:
        """The steps, of pairs on a tape or of bare arrays; the field that has the result."""
        step, grid = device.kernel("ode.cu", "runge_kutta"), device.blocks(self.n, BLOCK)
        for _ in range(self.steps):
            step[grid, BLOCK](x, now, other, END / self.steps, self.n)
            now, other = other, now
        return now

    def value(self) -> Any:
        """The primal alone."""
        self.fields[0].primal.fill(0)
        return self.launch(self.x.primal, *(f.primal for f in self.fields))

    def gradient(self) -> Any:
        """Forward and reverse."""
        self.fields[0].primal.fill(0)
        with self.tape:
            last = self.launch(self.x, *self.fields)
        self.x.shadow.fill(0)
        self.tape.reverse({last: self.seed})
        return self.x.shadow


def primal(given: dict[str, Any]) -> Callable[[], Any]:
    """All entries at the end."""
    return Program(given).value


def gradient(given: dict[str, Any]) -> Callable[[], Any]:
    """The derivative of the last entry by each x."""
    return Program(given).gradient


FUNCTIONS = {"primal": primal, "gradient": gradient}

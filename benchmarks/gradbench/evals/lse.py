"""`lse`: log(sum of exp(x)), shifted by the largest x; the gradient is the softmax.

A reduction kernel, as CuPy has them. The value does not depend on the shift, so that is a plain number of the array library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import gpuad
from gpuad import Duplicated

from .. import device


@cache
def kernel() -> gpuad.ReductionKernel:
    """The logarithm of the sum of exponentials of what is `shift` less."""
    inputs, outputs = "float64 x, float64 shift", "float64 y"
    return gpuad.ReductionKernel(inputs, outputs, "exp(x - shift)", "a + b", "y = log(a)", "0", "log_sum_exp")


class Program:
    """The launch, on arrays that are made once."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.x = Duplicated(device.array(given["x"]))
        self.shift, self.result = device.zeros(), Duplicated(device.zeros())
        self.tape = gpuad.Tape()

    def value(self) -> Any:
        """The primal alone."""
        self.shift[...] = self.x.primal.max()
        return kernel()(self.x.primal, self.shift, self.result.primal) + self.shift

    def gradient(self) -> Any:
        """Forward and reverse."""
        self.shift[...] = self.x.primal.max()
        with self.tape:
            kernel()(self.x, self.shift, self.result)
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

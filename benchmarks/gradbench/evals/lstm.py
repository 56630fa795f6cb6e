"""`lstm`: the loss of a network with long short-term memory on a sequence, and its gradient by all weights.

One launch goes through the sequence, with the state in place; another sums the losses.
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
        self.weights, self.ends = Duplicated(device.array(given["main_params"])), Duplicated(device.array(given["extra_params"]))
        self.begin, self.sequence = device.array(given["state"]), device.array(given["sequence"])
        self.c, self.b = self.sequence.shape
        self.l = len(given["state"]) // 2
        self.state = Duplicated(device.zeros(2 * self.l, self.b))
        self.prediction, self.loss = Duplicated(device.zeros(self.c, self.b)), Duplicated(device.zeros(1))
        self.tape = gpuad.Tape()

    def launch(self, weights: Any, ends: Any, state: Any, prediction: Any, loss: Any) -> None:
        """The primal, of pairs on a tape or of bare arrays."""
        predict, loss_of = (device.kernel("lstm.cu", name) for name in ("predict", "loss_of"))
        predict[device.blocks(self.b, BLOCK), BLOCK](weights, ends, state, self.sequence, prediction, self.l, self.c, self.b)
        loss_of[device.blocks(self.c - 1, BLOCK), BLOCK](prediction, self.sequence, loss, self.c, self.b)

    def value(self) -> Any:
        """The primal alone."""
        self.state.primal[...] = self.begin
        self.loss.primal.fill(0)
        self.launch(*(pair.primal for pair in (self.weights, self.ends, self.state, self.prediction, self.loss)))
        return self.loss.primal[0]

    def gradient(self) -> Any:
        """Forward and reverse."""
        self.state.primal[...] = self.begin
        self.loss.primal.fill(0)
        with self.tape:
            self.launch(self.weights, self.ends, self.state, self.prediction, self.loss)
        self.weights.shadow.fill(0)
        self.ends.shadow.fill(0)
        self.tape.reverse({self.loss: 1.0})
        return device.library().concatenate((self.weights.shadow.ravel(), self.ends.shadow.ravel()))


def objective(given: dict[str, Any]) -> Callable[[], Any]:
    """The loss."""
    return Program(given).value


def jacobian(given: dict[str, Any]) -> Callable[[], Any]:
    """Its derivative by each weight."""
    return Program(given).gradient


FUNCTIONS = {"objective": objective, "jacobian": jacobian}

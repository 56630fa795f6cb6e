"""`gmm`: the log posterior of a Gaussian mixture, and its gradient by weights, means and inverse covariance factors.

The products of all factors with all points are one product of matrices, a kernel of its own. The logarithms of sums of exponentials do not
depend on the shifts, so no gradient goes through these (`stop_gradient`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated

from .. import device

BLOCK = 64
PARAMETERS = ("alpha", "mu", "q", "l")


class Program:
    """The launches, on arrays that are made once."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.d, self.k, self.n, self.m, self.gamma = (given[name] for name in ("d", "k", "n", "m", "gamma"))
        d, k, n = self.d, self.k, self.n
        self.x = device.array(np.asarray(given["x"]).T)
        self.pairs = {name: Duplicated(device.array(given[name])) for name in PARAMETERS}
        self.work = {"Q": (k * d * d,), "centre": (k * d,), "y": (k * d, n), "weight": (k,), "term": (k, n), "loss": (1,)}
        self.pairs |= {name: Duplicated(device.zeros(*shape)) for name, shape in self.work.items()}
        self.shift, self.alpha_shift = device.zeros(n), device.zeros(1)
        self.tape = gpuad.Tape()

    @property
    def constant(self) -> float:
        """What depends on no parameter."""
        freedom = self.d + self.m + 1
        gammas = 0.25 * self.d * (self.d - 1) * math.log(math.pi) + sum(math.lgamma(0.5 * (freedom - j)) for j in range(self.d))
        prior = freedom * self.d * (math.log(self.gamma) - 0.5 * math.log(2)) - gammas
        return self.k * prior - 0.5 * self.n * self.d * math.log(2 * math.pi)

    def launch(self, a: dict[str, Any]) -> None:
        """The primal but for the constant, of pairs on a tape or of bare arrays."""

        def run(name: str, threads: int, *args: Any, rows: int = 1) -> None:
            device.kernel("gmm.cu", name)[(*device.blocks(threads, BLOCK), rows), BLOCK](*args)

        def log_sums(term: Any, shift: Any, factor: float, k: int, n: int) -> None:
            run("largest", n, gpuad.stop_gradient(term) if isinstance(term, Duplicated) else term, shift, k, n)
            run("log_sums", n, term, shift, a["loss"], factor, k, n)

        d, k, n = self.d, self.k, self.n
        run("unpack", k * d * d, a["q"], a["l"], a["Q"], d, k)
        run("centres", k * d, a["Q"], a["mu"], a["centre"], d, k)
        run("whiten", n, a["Q"], self.x, a["centre"], a["y"], d, n, rows=k * d)
        run("weights", k, a["alpha"], a["q"], a["weight"], d, k)
        run("terms", n, a["y"], a["weight"], a["term"], d, n, rows=k)
        log_sums(a["term"], self.shift, 1.0, k, n)
        log_sums(a["alpha"], self.alpha_shift, float(-n), k, 1)
        run("wishart", k * d, a["Q"], a["q"], a["loss"], self.gamma, self.m, d, k)

    def value(self) -> Any:
        """The primal alone."""
        self.pairs["loss"].primal.fill(0)
        self.launch({name: pair.primal for name, pair in self.pairs.items()})
        return self.pairs["loss"].primal[0] + self.constant

    def gradient(self) -> dict[str, Any]:
        """Forward and reverse."""
        self.pairs["loss"].primal.fill(0)
        with self.tape:
            self.launch(self.pairs)
        for name in PARAMETERS:
            self.pairs[name].shadow.fill(0)
        self.tape.reverse({self.pairs["loss"]: 1.0})
        return {name: self.pairs[name].shadow for name in PARAMETERS}


def objective(given: dict[str, Any]) -> Callable[[], Any]:
    """The log posterior."""
    return Program(given).value


def jacobian(given: dict[str, Any]) -> Callable[[], Any]:
    """Its derivative by each parameter."""
    return Program(given).gradient


FUNCTIONS = {"objective": objective, "jacobian": jacobian}

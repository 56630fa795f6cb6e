"""`kmeans`: the sum of squared distances from each point to the nearest centroid, and Newton's direction for the centroids.

One kernel finds the nearest centroids, another sums the distances to them; the choice is locally constant, so derivatives go through the
second one alone. Its Hessian is diagonal: the product with a vector of ones is the diagonal, and `hvp` gives the gradient with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated

from .. import device

BLOCK = 64


class Program:
    """The launches, on arrays that are made once."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.points = device.array(np.asarray(given["points"]).T)
        self.centroids = Duplicated(device.array(given["centroids"]))
        (self.d, self.n), self.k = self.points.shape, len(given["centroids"])
        self.label, self.cost = device.array([0] * self.n, np.int32), Duplicated(device.zeros(1))
        self.ones = Duplicated(device.array(np.ones((self.k, self.d))))  # the direction; its shadow receives the Hessian's diagonal
        self.still = Duplicated(device.zeros(1))
        self.grid = device.blocks(self.n, BLOCK)
        self.sums = device.kernel("kmeans.cu", "squared_distances")

    def find(self) -> None:
        """The nearest centroids."""
        nearest = device.kernel("kmeans.cu", "nearest")
        nearest[self.grid, BLOCK](self.points, self.centroids.primal, self.label, self.n, self.k, self.d)

    def value(self) -> Any:
        """The primal alone."""
        self.find()
        self.cost.primal.fill(0)
        self.sums[self.grid, BLOCK](self.points, self.centroids.primal, self.label, self.cost.primal, self.n, self.d)
        return self.cost.primal[0]

    def direction(self) -> Any:
        """Gradient over the Hessian's diagonal."""
        self.find()
        self.cost.primal.fill(0)
        self.cost.shadow.fill(1)
        for array in (self.centroids.shadow, self.ones.shadow, self.still.primal, self.still.shadow):
            array.fill(0)
        args = (self.points, self.centroids, self.label, self.cost, self.n, self.d)
        gpuad.hvp(self.sums, self.grid, (BLOCK,), args, (None, self.ones, None, self.still, None, None))
        return self.centroids.shadow / self.ones.shadow


def cost(given: dict[str, Any]) -> Callable[[], Any]:
    """The sum."""
    return Program(given).value


def direction(given: dict[str, Any]) -> Callable[[], Any]:
    """Newton's direction, a row a centroid."""
    return Program(given).direction


FUNCTIONS = {"cost": cost, "dir": direction}

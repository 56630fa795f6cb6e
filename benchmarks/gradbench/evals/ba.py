"""`ba`: the errors of bundle adjustment, and their sparse Jacobian in compressed rows.

Each observation reads a camera and a point and has two errors, so the Jacobian by its own 15 parameters is a block: the parameters are
packed by observation, and one reverse with two shadows (`BatchDuplicated`), seeded with the first and the second error of all
observations, has all blocks. In the eval all cameras, points and weights are alike, and the output has of what repeats one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gpuad
from gpuad import BatchDuplicated, Duplicated

from .. import device

BLOCK = 64
PARAMETERS = 15


class Program:
    """The launches, on arrays that are made once."""

    def __init__(self, given: dict[str, Any]) -> None:
        n, m, p = (given[name] for name in ("n", "m", "p"))
        self.sizes, self.p, self.grid = (n, m, p), p, device.blocks(p, BLOCK)
        self.cameras = device.array(np.tile(given["cam"], (n, 1)))
        self.points = device.array(np.tile(given["x"], (m, 1)))
        self.weights = Duplicated(device.array(np.full(p, given["w"])))
        self.measured = device.array(np.tile(given["feat"], (p, 1)))
        self.observed = device.array(np.stack((np.arange(p) % n, np.arange(p) % m), axis=1), np.int32)
        self.packed = BatchDuplicated(device.zeros(PARAMETERS, p), (device.zeros(PARAMETERS, p), device.zeros(PARAMETERS, p)))
        self.error = BatchDuplicated(device.zeros(p, 2), (device.zeros(p, 2), device.zeros(p, 2)))
        self.weight_error = Duplicated(device.zeros(p))
        self.rows, self.columns = device.array([0] * (3 * p + 1), np.int32), device.array([0] * (31 * p), np.int32)
        self.values = device.zeros(31 * p)

    def pack(self) -> None:
        """Parameters by observation."""
        pack = device.kernel("ba.cu", "pack")
        pack[self.grid, BLOCK](self.cameras, self.points, self.weights.primal, self.observed, self.packed.primal, self.p)

    def errors(self) -> dict[str, Any]:
        """The primal alone."""
        self.pack()
        device.kernel("ba.cu", "reprojection")[self.grid, BLOCK](self.packed.primal, self.measured, self.error.primal, self.p)
        device.kernel("ba.cu", "weight_error")[self.grid, BLOCK](self.weights.primal, self.weight_error.primal, self.p)
        return {
            "reproj_error": {"elements": self.error.primal[0], "repeated": self.p},
            "w_err": {"element": self.weight_error.primal[0], "repeated": self.p},
        }

    def jacobian(self) -> dict[str, Any]:
        """Forward and reverse, and the rows."""
        self.pack()
        for seeded, (blocks, seeds) in enumerate(zip(self.packed.shadows, self.error.shadows, strict=True)):
            blocks.fill(0)
            seeds.fill(0)
            seeds[:, seeded] = 1
        self.weights.shadow.fill(0)
        self.weight_error.shadow.fill(1)
        gpuad.autodiff(device.kernel("ba.cu", "reprojection"), self.grid, (BLOCK,), (self.packed, self.measured, self.error, self.p))
        gpuad.autodiff(device.kernel("ba.cu", "weight_error"), self.grid, (BLOCK,), (self.weights, self.weight_error, self.p))
        blocks = (*self.packed.shadows, self.weights.shadow, self.observed)
        device.kernel("ba.cu", "compressed_rows")[self.grid, BLOCK](*blocks, self.rows, self.columns, self.values, *self.sizes)
        shown = {"rows": self.rows, "cols": self.columns, "vals": self.values}
        return {name: device.library().concatenate((part[: 2 * PARAMETERS], part[-1:])) for name, part in shown.items()}


def objective(given: dict[str, Any]) -> Callable[[], Any]:
    """The errors."""
    return Program(given).errors


def jacobian(given: dict[str, Any]) -> Callable[[], Any]:
    """Their derivatives."""
    return Program(given).jacobian


FUNCTIONS = {"objective": objective, "jacobian": jacobian}

"""`ht`: a hand's mesh, moved by its bones, against measured points; the errors and their Jacobian by the pose, and, where points lie in
triangles (the complicated variant), by the two coordinates of each point in its own.

The Jacobian has few columns and many rows: forward mode, all directions at once as a batch of equal poses, each with a direction of its
own. A coordinate has an effect on its own point alone, so one direction serves the first coordinates of all points, another the second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated

from .. import device

BLOCK = 64
POSE = 26


class Program:
    """The launches for a batch of poses, on arrays that are made once."""

    def __init__(self, given: dict[str, Any], *, directions: bool) -> None:
        data = given["data"]
        model = data["model"]
        self.points = device.array(data["points"])
        self.n, self.count = len(data["points"]), len(model["parents"])
        us = np.asarray(given["us"], np.float64).reshape(-1, 2)
        coordinates = 2 if us.size else 0
        self.poses = POSE + coordinates if directions else 1
        self.theta = _batch(np.asarray(given["theta"], np.float64), self.poses)
        self.us = _batch(us if us.size else np.zeros((1, 2)), self.poses)
        if directions:
            for column in range(coordinates):
                self.us.shadow[column, :, column] = 1
            self.theta.shadow[coordinates:] = device.array(np.eye(POSE))
        correspondences = np.asarray(data["correspondences"])
        corner = np.asarray(model["triangles"])[correspondences] if us.size else correspondences[:, None]
        self.corners, self.corner = corner.shape[1], device.array(corner, np.int32)
        bone, weight = _moved_by(np.asarray(model["weights"], np.float64))
        self.most, self.bone, self.weight = bone.shape[1], device.array(bone, np.int32), device.array(weight)
        self.relative, self.rest = device.array(model["base_relatives"]), device.array(model["inverse_base_absolutes"])
        self.base, self.parent = device.array(model["base_positions"]), device.array(model["parents"], np.int32)
        self.mirror = -1.0 if model["is_mirrored"] else 1.0
        self.transform = Duplicated(device.zeros(self.poses, self.count, 16))
        self.rotation, self.error = Duplicated(device.zeros(self.poses, 9)), Duplicated(device.zeros(self.poses, self.n, 3))

    def launch(self, run: Callable[..., None], theta: Any, us: Any, transform: Any, rotation: Any, error: Any) -> None:
        """The three launches by what runs one, of pairs or of bare arrays."""
        run(
            "bones",
            device.blocks(self.count * self.poses, BLOCK),
            theta,
            self.relative,
            self.rest,
            self.parent,
            transform,
            self.count,
            self.poses,
        )
        run("rotations", device.blocks(self.poses, BLOCK), theta, rotation, self.poses)
        mesh = (self.base, self.bone, self.weight, self.corner, self.points)
        sizes = (self.mirror, self.corners, self.most, self.count, self.n)
        run("distances", (*device.blocks(self.n, BLOCK), self.poses), transform, rotation, theta, us, *mesh, error, *sizes)

    def errors(self) -> Any:
        """The primal alone."""
        pairs = (self.theta, self.us, self.transform, self.rotation, self.error)
        self.launch(lambda name, grid, *args: device.kernel("ht.cu", name)[grid, BLOCK](*args), *(pair.primal for pair in pairs))
        return self.error.primal[0].ravel()

    def jacobian(self) -> Any:
        """All directions in forward mode; a row an error."""

        def forward(name: str, grid: tuple[int, ...], *args: Any) -> None:
            gpuad.autodiff(device.kernel("ht.cu", name), grid, (BLOCK,), args, mode=gpuad.Forward)

        for pair in (self.transform, self.rotation, self.error):
            pair.shadow.fill(0)
        self.launch(forward, self.theta, self.us, self.transform, self.rotation, self.error)
        return device.library().ascontiguousarray(self.error.shadow.reshape(self.poses, -1).T)


def _batch(one: Any, poses: int) -> Duplicated:
    """So many copies, with tangents of zero."""
    primal = device.array(np.repeat(one[None], poses, axis=0))
    return Duplicated(primal, device.library().zeros_like(primal))


def _moved_by(weights: Any) -> tuple[Any, Any]:
    """Of each corner the bones that move it, and their weights: as many for all as the corner with the most of them has."""
    most = max(1, int((weights != 0).sum(axis=1).max()))
    bone = np.argsort(weights == 0, axis=1, kind="stable")[:, :most]
    return bone, np.take_along_axis(weights, bone, axis=1)


def objective(given: dict[str, Any]) -> Callable[[], Any]:
    """The errors."""
    return Program(given, directions=False).errors


def jacobian(given: dict[str, Any]) -> Callable[[], Any]:
    """Their derivatives."""
    return Program(given, directions=True).jacobian


FUNCTIONS = {"objective": objective, "jacobian": jacobian}

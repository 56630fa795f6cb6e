"""Lagrangian shock hydrodynamics on a cube of hexahedra, as LULESH steps it: a program of five kernels that move everything in place.

Three sides of the cube are mirrors, so it is an eighth of a body; energy in the corner element is the blast wave of Sedov (1946). Lengths,
times, energies and the density are without units. The time step is given, where LULESH takes one by the speed of sound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated
from gpuad.tools.cases import kernel_folder

FILE = kernel_folder() / "shock_hydrodynamics.cu"
BLOCK = 128
CORNERS = ((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1))
AT_CORNERS = ("position", "velocity", "force")
IN_ELEMENTS = ("volume", "change", "rate", "length", "energy", "pressure", "viscosity", "sound")


@dataclass(frozen=True)
class Setting:
    """A cube of `side`^3 elements of this density, and the energy of its corner element per volume; `elsewhere`: of all others."""

    side: int = 16
    steps: int = 20
    dt: float = 2e-3
    density: float = 1.0
    blast: float = 100.0
    elsewhere: float = 0.0
    strength: float = 3.0


def mesh(side: int) -> tuple[Any, Any]:
    """Positions of the nodes of a unit cube (3, nodes), float64, and the corners of its elements (elements, 8), int32."""
    z, y, x = np.indices((side + 1,) * 3).reshape(3, -1)
    k, j, i = np.indices((side,) * 3).reshape(3, -1)
    corners = [((k + dz) * (side + 1) + j + dy) * (side + 1) + i + dx for dx, dy, dz in CORNERS]
    return np.stack([x, y, z]) / side, np.stack(corners, 1).astype(np.int32)


def beginning(setting: Setting) -> dict[str, Any]:
    """All arrays at time 0 by the names of the kernels' parameters, and `node_mass`. float64."""
    position, corner = mesh(setting.side)
    elements, nodes = len(corner), position.shape[1]
    each = setting.side**-3.0
    energy = np.full(elements, setting.elsewhere)
    energy[0] = setting.blast
    found = {name: np.zeros((3, nodes)) for name in AT_CORNERS} | {name: np.zeros(elements) for name in IN_ELEMENTS}
    node_mass = np.bincount(corner.ravel(), minlength=nodes) * setting.density * each / len(CORNERS)
    constants = {"corner": corner, "reference": np.full(elements, each), "mass": np.full(elements, setting.density * each)}
    pressure = 2 / 3 * energy
    sound = np.sqrt(2 / 3 * (energy + pressure) / setting.density)
    own = {"position": position, "volume": np.ones(elements), "energy": energy, "pressure": pressure, "sound": sound}
    return {**found, **constants, **own, "node_mass": node_mass}


class Body:
    """A body that is stepped in place. `arrays`: NumPy arrays as `beginning` gives them, each with a shadow if it is a `Duplicated`."""

    def __init__(self, setting: Setting, arrays: dict[str, Any]) -> None:
        self.setting, self.arrays = setting, arrays
        self.elements, self.nodes = len(arrays["corner"]), arrays["node_mass"].size
        names = ("stress_forces", "hourglass_forces", "move", "deform", "material")
        self.launches = {
            name: gpuad.kernel(FILE, name)[(self.nodes if name == "move" else self.elements) // BLOCK + 1, BLOCK] for name in names
        }

    def step(self) -> None:
        """One time step: forces, nodes, elements, matter."""
        a, s, call = self.arrays, self.setting, self.launches
        sizes = self.elements, self.nodes
        call["stress_forces"](a["position"], a["corner"], a["pressure"], a["viscosity"], a["force"], *sizes)
        call["hourglass_forces"](
            a["position"], a["velocity"], a["corner"], a["mass"], a["sound"], s.strength, a["force"], *sizes,
        )  # fmt: skip
        call["move"](a["force"], a["node_mass"], a["velocity"], a["position"], s.dt, s.side, self.nodes)
        changed = (a[name] for name in ("volume", "change", "rate", "length"))
        call["deform"](a["position"], a["velocity"], a["corner"], a["reference"], *changed, s.dt, *sizes)
        call["material"](*(a[name] for name in IN_ELEMENTS), s.density, self.elements)

    def run(self) -> None:
        """All time steps."""
        for _ in range(self.setting.steps):
            self.step()


def recorded(setting: Setting, start: dict[str, Any]) -> tuple[gpuad.Tape, Body]:
    """A tape with all steps from `start` on, which is not changed. What moves has shadows: the gradient that `tape.reverse` leaves in them
    is that for the start."""
    moving = {*AT_CORNERS, *IN_ELEMENTS}
    body = Body(setting, {name: Duplicated(a.copy()) if name in moving else a for name, a in start.items()})
    tape = gpuad.Tape()
    with tape:
        body.run()
    return tape, body


def total_energy(arrays: dict[str, Any]) -> float:
    """Of matter and of motion."""
    speed2 = (np.asarray(arrays["velocity"]) ** 2).sum(0)
    return float(arrays["energy"] @ arrays["reference"] + 0.5 * arrays["node_mass"] @ speed2)

"""`gpuad demo --program long`: how fast something grows where, from when it has arrived, over ten thousand steps within 64 MB.

A population spreads over a square by diffusion and grows where there is room for it (Fisher's equation); stations note from time to time
how dense it is. How fast it grows in each place is unknown, and an inversion starts from a uniform rate. The reverse of a step needs the
densities before it, so all steps together would need gigabytes: `Tape(budget=...)` keeps some of the states, and runs the steps between
them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...api import kernel
from ...arguments.annotations import Duplicated
from ...tape.facade import Tape, recording_of
from .descent import Map, lbfgs, on_host
from .outcome import Bytes, Outcome, Report, follow

QUANTITY = "growth in a step"

SOURCE = r"""
extern "C" __global__ void spread(float* after, const float* before, const float* growth, float diffusion, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    int i = y * n + x;
    float u = before[i];
    float laplacian = before[i - 1] + before[i + 1] + before[i - n] + before[i + n] - 4.0f * u;
    after[i] = u + diffusion * laplacian + growth[i] * u * (1.0f - u);
}

extern "C" __global__ void note(const float* density, float* records, int every, int across, int n) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < across * across) records[k] = density[((k / across) * every + every / 2) * n + (k % across) * every + every / 2];
}
"""


@dataclass(frozen=True)
class Setting:
    """The experiment: an `n` by `n` grid, `steps` steps, a record every `pause` of them by stations `every` so many cells; `growth` in
    a step where it is uniform, `variation` of it; `budget` of the tape. `stop`: the share of the first loss at which the inversion ends."""

    n: int = 256
    steps: int = 10_000
    pause: int = 100
    every: int = 8
    diffusion: float = 0.2
    growth: float = 1.0e-3
    variation: float = 0.4
    budget: str = "64 MB"
    iterations: int = 12
    stop: float = 0.005

    @property
    def across(self) -> int:
        """Stations along an edge."""
        return self.n // self.every


def true_map(setting: Setting) -> Map:
    """Richer and poorer land in patches."""
    y, x = np.mgrid[0 : setting.n, 0 : setting.n] / (setting.n - 1.0)
    patches = ((0.35, 0.35, 0.10, 1.0), (0.68, 0.62, 0.12, -1.0), (0.66, 0.30, 0.08, 0.8), (0.32, 0.70, 0.09, -0.8))
    land = sum(strength * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * width**2)) for cx, cy, width, strength in patches)
    return setting.growth * (1 + setting.variation * np.asarray(land))


class Simulation:
    """The land on one device: runs forward, and the gradient of a misfit backward."""

    def __init__(self, setting: Setting, library: Any) -> None:
        s, xp = setting, library
        self.setting, self.library = setting, library

        def zeros(*shape: int) -> Duplicated:
            return Duplicated(xp.zeros(shape, np.float32), xp.zeros(shape, np.float32))

        self.growth, self.fields = zeros(s.n, s.n), (zeros(s.n, s.n), zeros(s.n, s.n))
        self.records = zeros(s.steps // s.pause, s.across**2)
        self.rows = [self.records[k] for k in range(s.steps // s.pause)]  # pairs of views
        y, x = np.mgrid[0 : s.n, 0 : s.n] / (s.n - 1.0)
        self.start = xp.asarray(0.8 * np.exp(-((x - 0.5) ** 2 + (y - 0.5) ** 2) / (2 * 0.03**2)), np.float32)
        self.spread, self.note = kernel(SOURCE, "spread"), kernel(SOURCE, "note")
        self.tape = Tape(budget=s.budget)

    def gradient(self, growth: Map, observed: Any) -> tuple[float, Map]:
        """The misfit half |records - observed|^2 of a map, and its gradient with respect to the map."""
        self.forward(growth)
        residual = self.records.primal - observed
        self.growth.shadow.fill(0)
        self.tape.reverse({self.records: residual})
        return 0.5 * float((residual.astype(np.float64) ** 2).sum()), on_host(self.growth.shadow)

    def forward(self, growth: Map) -> None:
        """Fills the records, and notes how."""
        s = self.setting
        self.growth.primal[...] = self.library.asarray(growth, np.float32)
        before, after = self.fields
        before.primal[...] = self.start
        after.primal.fill(0)
        land, stations = (-(-s.n // 32), -(-s.n // 8)), -(-(s.across**2) // 128)
        with self.tape:
            for t in range(s.steps):
                self.spread[land, (32, 8)](after, before, self.growth, s.diffusion, s.n)
                before, after = after, before
                if (t + 1) % s.pause == 0:
                    self.note[stations, 128](before, self.rows[t // s.pause], s.every, s.across, s.n)

    def bytes(self) -> Bytes:
        """What the tape adds at each moment, and what it would add if it kept all."""
        within, without = (self.tape.held(budget).curve(added=True) for budget in (None, 1 << 62))
        return Bytes(within, without, self.setting.budget, recording_of(self.tape).memory.most)


def invert(setting: Setting, library: Any, report: Report = lambda *_: None) -> Outcome:
    """Records what the true map leads to, then recovers the map, starting from a uniform one.

    `library`: the array module, `numpy` or `cupy`. `report` is called after each iteration with its number, and the loss and the map's
    error relative to the start.
    """
    simulation, truth = Simulation(setting, library), true_map(setting)
    simulation.forward(truth)
    observed = simulation.records.primal.copy()
    scale = setting.growth

    def objective(relative: Map) -> tuple[float, Map]:
        loss, gradient = simulation.gradient(relative * scale, observed)
        return loss, gradient * scale

    descent = lbfgs(objective, np.ones_like(truth), 0.3, 2.0, first=0.2)
    found = follow(descent, truth / scale, np.ones_like(truth), setting.iterations, setting.stop, report)
    return Outcome(truth, np.full_like(truth, scale), found.found * scale, found.losses, simulation.bytes())

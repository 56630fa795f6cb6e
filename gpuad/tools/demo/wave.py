"""`gpuad demo --program wave`: full-waveform inversion, what a wave has passed through from what was recorded at the rim.

A square plate is struck at eight places, one shot each, and microphones around it record. The speed of sound inside is unknown: an
inversion starts from a uniform plate and changes the map of squared wave speed until a simulation gives the recorded traces. The gradient
of the misfit with respect to every cell of the map comes from the simulation's own kernels: `step` is an in-place leapfrog (the older of
two fields becomes the newer), so 300 steps overwrite two fields over and over, and the reverse pass walks them back. Per step it needs one
thing from the past, the field whose Laplacian multiplies the map, and only that is saved: by the tape, just before it is overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...api import kernel
from ...arguments.annotations import Duplicated
from ...tape.facade import Tape
from .descent import Map, lbfgs, on_host
from .outcome import Outcome, Report, follow

QUANTITY = "squared wave speed"

SOURCE = r"""
// One time step of the wave equation for all shots (blockIdx.z): the older field becomes the newer one.
extern "C" __global__ void step(float* older, const float* now, const float* speed, const float* damping, int rows, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= rows - 1) return;
    int cell = y * n + x, i = blockIdx.z * rows * n + cell;
    float laplacian = now[i - 1] + now[i + 1] + now[i - n] + now[i + n] - 4.0f * now[i];
    older[i] = damping[cell] * (2.0f * now[i] - damping[cell] * older[i] + speed[cell] * laplacian);
}

// Each shot has a source of its own, here if its number is not negative.
extern "C" __global__ void inject(float* field, const int* sources, float amplitude, int cells, int shots) {
    int shot = blockIdx.x * blockDim.x + threadIdx.x;
    if (shot < shots && sources[shot] >= 0) field[shot * cells + sources[shot]] += amplitude;
}

// One sample of every microphone in every shot.
extern "C" __global__ void sample(const float* field, const int* receivers, float* traces, int cells, int shots, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= shots * count) return;
    traces[i] = field[(i / count) * cells + receivers[i % count]];
}
"""


@dataclass(frozen=True)
class Setting:
    """The experiment: an `n` by `n` grid with `sponge` damped cells along the rim, `steps` time steps, a wavelet of `period` steps. `stop`
    is the share of the first loss at which the inversion ends."""

    n: int = 96
    steps: int = 300
    shots: int = 8
    receivers: int = 48
    period: float = 28.0
    sponge: int = 12
    background: float = 0.2
    lowest: float = 0.1
    highest: float = 0.35
    iterations: int = 40
    stop: float = 0.003


# --- the experiment ------------------------------------------------------------------------------------------------------------------


def true_map(setting: Setting) -> Map:
    """Two fast and two slow inclusions in a uniform plate."""
    y, x = np.mgrid[0 : setting.n, 0 : setting.n] / (setting.n - 1.0)
    inclusions = ((0.40, 0.42, 0.07, 0.30), (0.63, 0.60, 0.06, -0.25), (0.64, 0.36, 0.05, 0.25), (0.36, 0.66, 0.05, -0.20))
    speed = np.full((setting.n, setting.n), setting.background)
    for cx, cy, width, strength in inclusions:
        speed *= 1 + strength * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * width**2))
    return speed


def _ring(setting: Setting, count: int, margin: int) -> NDArray[np.int32]:
    """Flat indices of `count` cells on a circle, `margin` cells from the rim."""
    angle = 2 * np.pi * np.arange(count) / count
    middle, radius = setting.n / 2, setting.n / 2 - margin
    rows, columns = np.round(middle + radius * np.sin(angle)), np.round(middle + radius * np.cos(angle))
    return (rows * setting.n + columns).astype(np.int32)


def _damping(setting: Setting) -> NDArray[np.float32]:
    """1 inside, falling towards the rim, so that waves leave without an echo."""
    cells = np.arange(setting.n)
    depth = np.clip(setting.sponge - np.minimum(cells, setting.n - 1 - cells), 0, None) / setting.sponge
    profile = np.exp(-((0.35 * depth) ** 2))
    return np.outer(profile, profile).astype(np.float32)


def _wavelet(setting: Setting) -> list[float]:
    """A Ricker wavelet."""
    phase = (np.pi * (np.arange(setting.steps) - 1.2 * setting.period) / setting.period) ** 2
    return [float(v) for v in (1 - 2 * phase) * np.exp(-phase)]


class Simulation:
    """The plate on one device, or of it the rows from `first` to `last` (excluded): runs shots forward, and the gradient of a misfit
    backward."""

    def __init__(self, setting: Setting, library: Any, first: int = 0, last: int | None = None) -> None:
        s, xp = setting, library
        self.setting, self.library = setting, library
        self.inside = slice(first, setting.n if last is None else last)
        self.rows = self.inside.stop - self.inside.start

        def zeros(*shape: int) -> Any:
            return xp.zeros(shape, np.float32)

        sources, receivers = _ring(s, s.shots, s.sponge + 3), _ring(s, s.receivers, s.sponge + 2)
        self.heard = np.flatnonzero(self._owns(receivers // s.n))  # the microphones in these rows
        self.speed = Duplicated(zeros(self.rows, s.n), zeros(self.rows, s.n))
        self.fields = tuple(Duplicated(zeros(s.shots, self.rows, s.n), zeros(s.shots, self.rows, s.n)) for _ in range(2))
        self.traces = Duplicated(zeros(s.steps, s.shots, len(self.heard)), zeros(s.steps, s.shots, len(self.heard)))
        self.samples = [self.traces[t] for t in range(s.steps)]  # pairs of views: one row of traces and of their shadow
        self.damping = xp.asarray(_damping(s)[self.inside])
        here = np.where(self._owns(sources // s.n), sources - first * s.n, -1)
        self.sources, self.receivers = xp.asarray(here.astype(np.int32)), xp.asarray(receivers[self.heard] - np.int32(first * s.n))
        self.wavelet = _wavelet(s)
        self.step, self.inject, self.sample = (kernel(SOURCE, name) for name in ("step", "inject", "sample"))
        self.tape = Tape()  # one for all simulations: its memory is used again

    def gradient(self, speed: Map, observed: Any) -> tuple[float, Map]:
        """The misfit half |traces - observed|^2 at a map, and its gradient with respect to the map."""
        self.forward(speed)
        residual = self.recorded() - observed  # the seed: d(misfit)/d(traces)
        self.speed.shadow.fill(0)
        seed = residual if len(self.heard) == self.setting.receivers else self.library.ascontiguousarray(residual[..., self.heard])
        self.tape.reverse({self.traces: seed})
        loss = 0.5 * float((residual.astype(np.float64) ** 2).sum())
        return loss, self.whole(on_host(self.speed.shadow))

    def recorded(self) -> Any:
        """The traces of all microphones."""
        return self.traces.primal

    def whole(self, part: Map) -> Map:
        """The map of the plate."""
        return part

    def exchange(self, field: Duplicated) -> None:
        """What neighbours have to know of a field before a step."""

    def _owns(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether rows of the plate are computed here."""
        return (rows >= self.inside.start) & (rows < self.inside.stop)

    def forward(self, speed: Map) -> None:
        """Fills the traces, and records how."""
        s, cells, count = self.setting, self.rows * self.setting.n, len(self.heard)
        self.speed.primal[...] = self.library.asarray(speed[self.inside], np.float32)
        older, now = self.fields
        older.primal.fill(0)
        now.primal.fill(0)
        with self.tape:
            for t in range(s.steps):
                self.exchange(now)
                self.step[self._plate](older, now, self.speed, self.damping, self.rows, s.n)
                self.inject[self._per(s.shots)](older, self.sources, self.wavelet[t], cells, s.shots)
                if count:
                    self.sample[self._per(s.shots * count)](older, self.receivers, self.samples[t], cells, s.shots, count)
                older, now = now, older

    @property
    def _plate(self) -> tuple[tuple[int, int, int], tuple[int, int]]:
        return (-(-self.setting.n // 32), -(-self.rows // 8), self.setting.shots), (32, 8)

    @staticmethod
    def _per(count: int) -> tuple[tuple[int], tuple[int]]:
        return (-(-count // 128),), (128,)


# --- the inversion -------------------------------------------------------------------------------------------------------------------


def invert(setting: Setting, library: Any, report: Report = lambda *_: None) -> Outcome:
    """Records traces of the true map, then recovers it from them, starting from a uniform one.

    `library`: the array module, `numpy` or `cupy`. `report` is called after each iteration with its number, and the loss and the map's
    error relative to the start.
    """
    return inverted(Simulation(setting, library), report)


def inverted(simulation: Simulation, report: Report) -> Outcome:
    """The same with a simulation."""
    setting = simulation.setting
    return follow(points(simulation), true_map(setting), _start(setting), setting.iterations, setting.stop, report)


def points(simulation: Simulation) -> Iterator[tuple[Map, float]]:
    """The descent's maps with their misfits, the start first."""
    setting = simulation.setting
    simulation.forward(true_map(setting))
    observed = simulation.recorded().copy()
    inner = _inside(setting)

    def objective(speed: Map) -> tuple[float, Map]:
        loss, gradient = simulation.gradient(speed, observed)
        return loss, gradient * inner

    return lbfgs(objective, _start(setting), setting.lowest, setting.highest, first=0.01)


def _start(setting: Setting) -> Map:
    """A uniform plate."""
    return np.full((setting.n, setting.n), setting.background)


def _inside(setting: Setting) -> Map:
    """1 where the map is unknown: away from sponge, sources and microphones."""
    margin = setting.sponge + 6
    inner = np.zeros((setting.n, setting.n))
    inner[margin:-margin, margin:-margin] = 1
    return inner

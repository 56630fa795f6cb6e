"""`gpuad demo`: what a wave has passed through, from what it sounded like at the rim.

A square plate is struck at eight places, one shot each, and microphones around it record. The speed of sound inside is unknown: an
inversion starts from a uniform plate and changes the map of squared wave speed until a simulation gives the recorded traces. The gradient
of the misfit with respect to every cell of the map comes from the simulation's own kernels: `step` is an in-place leapfrog (the older of
two fields becomes the newer), so 300 steps overwrite two fields over and over, and the reverse pass walks them back. Per step it needs one
thing from the past, the field whose Laplacian multiplies the map, and only that is saved: by the tape, just before it is overwritten.

The optimiser is L-BFGS with a backtracking line search (Nocedal and Wright, Numerical Optimization, algorithms 7.4 and 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .annotations import Duplicated
from .api import kernel
from .tape import Tape

Map: TypeAlias = "NDArray[np.float64]"

SOURCE = r"""
// One time step of the wave equation for all shots (blockIdx.z): the older field becomes the newer one.
extern "C" __global__ void step(float* older, const float* now, const float* speed, const float* damping, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    int cell = y * n + x, i = blockIdx.z * n * n + cell;
    float laplacian = now[i - 1] + now[i + 1] + now[i - n] + now[i + n] - 4.0f * now[i];
    older[i] = damping[cell] * (2.0f * now[i] - damping[cell] * older[i] + speed[cell] * laplacian);
}

// Each shot has a source of its own.
extern "C" __global__ void inject(float* field, const int* sources, float amplitude, int n, int shots) {
    int shot = blockIdx.x * blockDim.x + threadIdx.x;
    if (shot < shots) field[shot * n * n + sources[shot]] += amplitude;
}

// One sample of every microphone in every shot.
extern "C" __global__ void sample(const float* field, const int* receivers, float* traces, int n, int shots, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= shots * count) return;
    traces[i] = field[(i / count) * n * n + receivers[i % count]];
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


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the inversion found. `loss` and `error` are relative to the start; the maps hold (wave speed in cells a step) squared."""

    truth: Map
    start: Map
    found: Map
    losses: tuple[float, ...] = field(repr=False)

    @property
    def loss(self) -> float:
        """Last loss over the first."""
        return self.losses[-1] / self.losses[0]

    @property
    def error(self) -> float:
        """Distance of the found map from the truth, over that of the start."""
        return float(np.linalg.norm(self.found - self.truth) / np.linalg.norm(self.start - self.truth))

    @property
    def succeeded(self) -> bool:
        """Whether the loss fell to a hundredth and the map's error to a half, as the demo promises."""
        return self.loss <= 0.01 and self.error <= 0.5


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
    """The plate on one device: runs shots forward, and the gradient of a misfit backward."""

    def __init__(self, setting: Setting, library: Any) -> None:
        s, xp = setting, library
        self.setting, self.library = setting, library

        def zeros(*shape: int) -> Any:
            return xp.zeros(shape, np.float32)

        self.speed = Duplicated(zeros(s.n, s.n), zeros(s.n, s.n))
        self.fields = tuple(Duplicated(zeros(s.shots, s.n, s.n), zeros(s.shots, s.n, s.n)) for _ in range(2))
        self.traces = Duplicated(zeros(s.steps, s.shots, s.receivers), zeros(s.steps, s.shots, s.receivers))
        self.samples = [self.traces[t] for t in range(s.steps)]  # pairs of views: one row of traces and of their shadow
        self.damping = xp.asarray(_damping(s))
        self.sources, self.receivers = xp.asarray(_ring(s, s.shots, s.sponge + 3)), xp.asarray(_ring(s, s.receivers, s.sponge + 2))
        self.wavelet = _wavelet(s)
        self.step, self.inject, self.sample = (kernel(SOURCE, name) for name in ("step", "inject", "sample"))
        self.tape = Tape()  # one for all simulations: its memory is used again

    def gradient(self, speed: Map, observed: Any) -> tuple[float, Map]:
        """The misfit half |traces - observed|^2 at a map, and its gradient with respect to the map."""
        self.forward(speed)
        residual = self.traces.primal - observed  # the seed: d(misfit)/d(traces)
        self.speed.shadow.fill(0)
        self.tape.reverse({self.traces: residual})
        loss = 0.5 * float((residual.astype(np.float64) ** 2).sum())
        return loss, self._on_host(self.speed.shadow)

    def forward(self, speed: Map) -> None:
        """Fills the traces, and records how."""
        s = self.setting
        self.speed.primal[...] = self.library.asarray(speed, np.float32)
        older, now = self.fields
        older.primal.fill(0)
        now.primal.fill(0)
        with self.tape:
            for t in range(s.steps):
                self.step[self._plate](older, now, self.speed, self.damping, s.n)
                self.inject[self._per(s.shots)](older, self.sources, self.wavelet[t], s.n, s.shots)
                self.sample[self._per(s.shots * s.receivers)](older, self.receivers, self.samples[t], s.n, s.shots, s.receivers)
                older, now = now, older

    @property
    def _plate(self) -> tuple[tuple[int, int, int], tuple[int, int]]:
        n = self.setting.n
        return (-(-n // 32), -(-n // 8), self.setting.shots), (32, 8)

    @staticmethod
    def _per(count: int) -> tuple[tuple[int], tuple[int]]:
        return (-(-count // 128),), (128,)

    @staticmethod
    def _on_host(array: Any) -> Map:
        return np.asarray(array.get() if hasattr(array, "get") else array, np.float64)


# --- the inversion -------------------------------------------------------------------------------------------------------------------

Objective: TypeAlias = "Callable[[Map], tuple[float, Map]]"


def lbfgs(objective: Objective, x: Map, low: float, high: float, first: float, memory: int = 10) -> Iterator[tuple[Map, float]]:
    """Points of ever lower value, with their values, the start first; ends when no step lowers the value. Points are clipped to
    [low, high]; `first` is the largest change of an entry in the first step."""
    pairs: list[tuple[Map, Map]] = []
    value, gradient = objective(x)
    yield x, value
    while True:
        direction = _two_loop(pairs, gradient) if pairs else gradient * (first / max(float(np.abs(gradient).max()), 1e-30))
        found = _backtrack(objective, x, value, gradient, direction, (low, high))
        if found is None:
            return
        new, value, slope = found
        step, change = new - x, slope - gradient
        if np.vdot(step, change) > 0:
            pairs = [*pairs, (step, change)][-memory:]
        x, gradient = new, slope
        yield x, value


def _two_loop(pairs: list[tuple[Map, Map]], gradient: Map) -> Map:
    """The gradient times the approximate inverse Hessian (Nocedal and Wright, algorithm 7.4)."""
    q, weights = gradient.copy(), []
    for step, change in reversed(pairs):
        weights.append(np.vdot(step, q) / np.vdot(change, step))
        q -= weights[-1] * change
    step, change = pairs[-1]
    q *= np.vdot(step, change) / np.vdot(change, change)
    for (step, change), weight in zip(pairs, reversed(weights), strict=True):
        q += step * (weight - np.vdot(change, q) / np.vdot(change, step))
    return q


def _backtrack(
    objective: Objective, x: Map, value: float, gradient: Map, direction: Map, bounds: tuple[float, float]
) -> tuple[Map, float, Map] | None:
    """The first of the steps 1, 1/2, 1/4 ... along the direction that lowers the value enough (Armijo), or None."""
    for length in 0.5 ** np.arange(10):
        new = np.clip(x - length * direction, *bounds)
        lower, slope = objective(new)
        if lower <= value + 1e-4 * float(np.vdot(gradient, new - x)):
            return new, lower, slope
    return None


def invert(setting: Setting, library: Any, report: Callable[[int, float, float], None] = lambda *_: None) -> Outcome:
    """Records traces of the true map, then recovers it from them, starting from a uniform one.

    `library`: the array module, `numpy` or `cupy`. `report` is called after each iteration with its number, and the loss and the map's
    error relative to the start.
    """
    simulation, truth = Simulation(setting, library), true_map(setting)
    simulation.forward(truth)
    observed = simulation.traces.primal.copy()
    start = np.full_like(truth, setting.background)
    inner = _inside(setting)

    def objective(speed: Map) -> tuple[float, Map]:
        loss, gradient = simulation.gradient(speed, observed)
        return loss, gradient * inner

    losses: list[float] = []
    found = start
    for number, (found, loss) in enumerate(lbfgs(objective, start, setting.lowest, setting.highest, first=0.01)):
        losses.append(loss)
        report(number, loss / losses[0], float(np.linalg.norm(found - truth) / np.linalg.norm(start - truth)))
        if number == setting.iterations or loss <= setting.stop * losses[0]:
            break
    return Outcome(truth, start, found, tuple(losses))


def _inside(setting: Setting) -> Map:
    """1 where the map is unknown: away from sponge, sources and microphones."""
    margin = setting.sponge + 6
    inner = np.zeros((setting.n, setting.n))
    inner[margin:-margin, margin:-margin] = 1
    return inner


def draw(outcome: Outcome, path: Path) -> None:
    """A PNG with the true map, the first and the last one, and the fall of the loss. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
    limits = {"vmin": float(outcome.truth.min()), "vmax": float(outcome.truth.max())}
    maps = {"truth": outcome.truth, "start": outcome.start, f"recovered (error {outcome.error:.0%})": outcome.found}
    for axis, (title, values) in zip(axes, maps.items(), strict=False):
        image = axis.imshow(values, cmap="RdBu_r", **limits)
        axis.set_title(title)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(image, ax=list(axes[:3]), label="squared wave speed", shrink=0.8)
    axes[3].semilogy([loss / outcome.losses[0] for loss in outcome.losses], marker=".")
    axes[3].set_title("misfit / first misfit")
    axes[3].set_xlabel("iteration")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)

"""`gpuad demo --program gray-scott`: what was sown, from what has grown.

Two chemicals react and diffuse (Gray and Scott 1984): `v` feeds on `u`, and blobs of it spread, merge or die out. Seeds of unknown strength
are sown on a grid, some hundred steps pass, and only the final fields are seen. An inversion starts from seeds as strong as the final
pattern is there, and changes them until a simulation grows the observed pattern. The gradient comes from the simulation's own kernels: two
pairs of fields take turns, each step overwrites the older pair, and the tape saves both fields of every step, which the reaction needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...api import kernel
from ...arguments.annotations import Duplicated
from ...tape.facade import Tape
from .descent import Map, lbfgs, on_host
from .outcome import Outcome, Report, follow

Pair: TypeAlias = "tuple[Duplicated, Duplicated]"

QUANTITY = "strength of the seeds"

SOURCE = r"""
// The first fields: m by m seeds, each a blob of v in a bath of u.
extern "C" __global__ void sow(float* u, float* v, const float* seeds, int n, int m) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    float spacing = (float)n / m, sown = 0.0f;
    for (int row = 0; row < m; row++)
        for (int column = 0; column < m; column++) {
            float dx = (x + 0.5f) / spacing - column - 0.5f, dy = (y + 0.5f) / spacing - row - 0.5f;
            sown += seeds[row * m + column] * expf(-2.0f * (dx * dx + dy * dy));
        }
    v[y * n + x] = sown;
    u[y * n + x] = 1.0f - 2.0f * sown;
}

// One time step, with periodic borders.
extern "C" __global__ void react(const float* u, const float* v, float* u_next, float* v_next, float feed, float kill, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    int left = y * n + (x + n - 1) % n, right = y * n + (x + 1) % n, up = (y + n - 1) % n * n + x, down = (y + 1) % n * n + x;
    int i = y * n + x;
    float reaction = u[i] * v[i] * v[i];
    u_next[i] = u[i] + 0.16f * (u[left] + u[right] + u[up] + u[down] - 4.0f * u[i]) - reaction + feed * (1.0f - u[i]);
    v_next[i] = v[i] + 0.08f * (v[left] + v[right] + v[up] + v[down] - 4.0f * v[i]) + reaction - (feed + kill) * v[i];
}
"""


@dataclass(frozen=True)
class Setting:
    """The experiment: `seeds` by `seeds` seeds on an `n` by `n` grid, a multiple of `seeds`; `steps` time steps. `share` of the seeds are
    there, the strongest are `highest`. `stop` is the share of the first loss at which the inversion ends."""

    n: int = 64
    seeds: int = 8
    steps: int = 100
    share: float = 0.25
    highest: float = 0.45
    feed: float = 0.0367
    kill: float = 0.0649
    iterations: int = 100
    stop: float = 0.0005


def true_seeds(setting: Setting) -> Map:
    """A few seeds of random strength, the same ones in every run."""
    generator, shape = np.random.default_rng(1), (setting.seeds, setting.seeds)
    sown = generator.random(shape) < setting.share
    return np.where(sown, setting.highest * generator.uniform(0.33, 0.78, shape), 0.0)


class Simulation:
    """The dish on one device: grows seeds forward, and the gradient of a misfit backward."""

    def __init__(self, setting: Setting, library: Any) -> None:
        def zeros(side: int) -> Duplicated:
            return Duplicated(library.zeros((side, side), np.float32), library.zeros((side, side), np.float32))

        self.setting, self.library = setting, library
        self.seeds, self.first, self.second = (
            zeros(setting.seeds),
            (zeros(setting.n), zeros(setting.n)),
            (zeros(setting.n), zeros(setting.n)),
        )
        self.sow, self.react = (kernel(SOURCE, name) for name in ("sow", "react"))
        self.tape = Tape()  # one for all simulations: its memory is used again

    def gradient(self, seeds: Map, observed: tuple[Any, Any]) -> tuple[float, Map]:
        """The misfit half |final fields - observed|^2 of some seeds, and its gradient with respect to the seeds."""
        final = self.forward(seeds)
        residuals = [field.primal - seen for field, seen in zip(final, observed, strict=True)]
        self.seeds.shadow.fill(0)
        self.tape.reverse(dict(zip(final, residuals, strict=True)))
        loss = 0.5 * sum(float((residual.astype(np.float64) ** 2).sum()) for residual in residuals)
        return loss, on_host(self.seeds.shadow)

    def forward(self, seeds: Map) -> Pair:
        """The final `u` and `v`; the tape records how they came about."""
        s = self.setting
        blocks = (-(-s.n // 16), -(-s.n // 8)), (16, 8)
        self.seeds.primal[...] = self.library.asarray(seeds, np.float32)
        now, new = self.first, self.second
        with self.tape:
            self.sow[blocks](*now, self.seeds, s.n, s.seeds)
            for _ in range(s.steps):
                self.react[blocks](*now, *new, s.feed, s.kill, s.n)
                now, new = new, now
        return now


def invert(setting: Setting, library: Any, report: Report = lambda *_: None) -> Outcome:
    """Grows the true seeds, then recovers them from the final fields.

    `library`: the array module, `numpy` or `cupy`. `report` is called after each iteration with its number, and the loss and the seeds'
    error relative to the start.
    """
    simulation, truth = Simulation(setting, library), true_seeds(setting)
    u, v = simulation.forward(truth)
    observed = u.primal.copy(), v.primal.copy()
    start = _guess(setting, on_host(observed[1]))
    descent = lbfgs(lambda seeds: simulation.gradient(seeds, observed), start, 0.0, setting.highest, first=0.05)
    return follow(descent, truth, start, setting.iterations, setting.stop, report)


def _guess(setting: Setting, v: Map) -> Map:
    """Seeds as strong as the final `v` is around them."""
    size = setting.n // setting.seeds
    return np.asarray(v.reshape(setting.seeds, size, setting.seeds, size).mean(axis=(1, 3)))

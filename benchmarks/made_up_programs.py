"""Made-up programs: loops of operations in place on views of two arrays, with and without a budget, to see what the searches of programs
take. Their shape comes from a generator with a seed.

Views begin where others end, overlap, or have a stride; loops have up to six operations, of which some take a number that differs between
turns; some launches wait for the whole grid, some write to elements that data name, some share a tile at places that data name.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated

N = 48
ROUNDS = 3  # of each program: launches are joined from the second on
SOURCE = r"""
#include <cooperative_groups.h>
#define K extern "C" __global__ void
#define H int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
K scale(double* y, const double* x, double c, int n) { H; y[i] = c * y[i] + sin(x[i]); }
K square(double* y, const double* x, double c, int n) { H; y[i] = y[i] * y[i] * c + x[i]; }
K step(double* y, const double* x, double c, int n) {
    H; if (i > 0 && i < n - 1) y[i] = 2 * x[i] - y[i] + c * (x[i - 1] - 2 * x[i] + x[i + 1]);
}
K pick(double* y, const double* x, const int* at, int n) { H; y[at[i]] = x[i] * x[i]; }
K waits(double* y, double* x, double c, int turns, int n) {
    auto grid = cooperative_groups::this_grid(); int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; t < turns; ++t) { if (i < n) y[i] = c * x[i] * x[(i + 1) % n]; grid.sync(); if (i < n) x[i] = y[i] + 0.1; grid.sync(); }
}
K turned(double* y, const double* x, const int* at, int n) {
    __shared__ double s[64]; int i = threadIdx.x; s[i] = x[i % n]; __syncthreads();
    double v = s[at[i % n]] * s[i]; __syncthreads(); s[i] = v; __syncthreads(); if (i < n) y[i] = s[(i + 1) % n] * v;
}
"""


@dataclass(frozen=True)
class MadeUpProgram:
    """A program; called, it is recorded several times, and reversed each time."""

    name: str
    seed: int

    def __call__(self) -> None:
        run(random.Random(self.seed))


def programs(count: int) -> list[MadeUpProgram]:
    """So many, of the seeds from 0 on."""
    return [MadeUpProgram(f"program {seed}", seed) for seed in range(count)]


Launch = Callable[[int], None]


def run(r: random.Random) -> None:
    """Records the program of a generator ROUNDS times, and reverses it."""
    whole, other = (Duplicated(np.linspace(0.2, 0.8, 8 * N)) for _ in range(2))
    views = _views(r, whole), _views(r, other)
    body = [_launch(r, views) for _ in range(r.randint(1, 6))]
    turns = r.choice((3, 8, 20, 40))
    budget = r.choice((None, None, 1 << 12, 1 << 14, 1 << 16))
    tape = gpuad.Tape(budget=budget) if budget is not None else gpuad.Tape()
    for _ in range(ROUNDS):
        whole.primal[...] = other.primal[...] = np.linspace(0.2, 0.8, 8 * N)
        try:
            with tape:
                _kernel("scale")[2, 32](whole[:N], other[:N], 0.5, N)
                for turn in range(turns):
                    for launch in body:
                        launch(turn)
            tape.reverse({whole: 1.0, other: 1.0}, allow_unused=True)
        except gpuad.BudgetError:
            return  # which is found out by the search, too


def _views(r: random.Random, whole: Any) -> list[Any]:
    """Views of an allocation that have N elements: some begin where others end, some overlap, some have a stride."""
    places = [slice(k * N // 2, k * N // 2 + N) for k in range(14)]
    strided = [slice(k, k + N * step, step) for step in (2, 3, 4) for k in (0, 1)]
    return [whole[place] for place in r.sample(places, 2) + r.sample(strided, 1)]


def _launch(r: random.Random, views: tuple[list[Any], list[Any]]) -> Launch:
    """An operation of a loop's body; what it takes may hang on the turn."""
    name = r.choice(("scale", "square", "step", "step", "pick", "waits", "turned", "multiply", "add"))
    whole = name in ("multiply", "add")  # array operations, which take views of any kind
    y, x = r.sample(r.choice(views), 2) if whole else (r.choice(some[:2]) for some in r.sample(views, 2))
    c, differs = r.uniform(0.1, 0.4), r.random() < 0.3
    if whole:
        operation = getattr(gpuad.ops, name)
        return lambda turn: operation(y, x, out=y)
    kernel, at = _kernel(name), np.asarray(r.sample(range(N), N), np.int32)
    if name in ("pick", "turned"):
        return lambda turn: kernel[1, 64](y, x, at, N)
    if name == "waits":
        kernel.adjoint(y=Duplicated, x=Duplicated)  # whose text has a variant for each state of its numbers
        return lambda turn: kernel[1, 64](y, x, c, 1 + turn % 3 if differs else 2, N)
    return lambda turn: kernel[2, 32](y, x, c * (1 + turn % 2) if differs else c, N)


@cache
def _kernel(name: str) -> Any:
    return gpuad.kernel(SOURCE, name)

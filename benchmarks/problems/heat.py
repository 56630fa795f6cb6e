"""The heat equation, explicit, from one field to the other and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, uniform
from ..runners.with_gpuad import Steps, kernel

DIFFUSION = 0.2
INSIDE = (slice(1, -1), slice(1, -1))

# What comes back to a cell is gathered from the cells that read it. Shadows of the interior have a border of zeros, so that the loop
# needs no guard; what reaches the border, where nothing is ever written, is summed up beside.
GATHER = """
    static void to_border(float* border, const float* dv, float a, long side) {
        for (long k = 1; k < side - 1; ++k) {
            border[k] += a * dv[side + k];
            border[(side - 1) * side + k] += a * dv[(side - 2) * side + k];
            border[k * side] += a * dv[k * side + 1];
            border[k * side + side - 1] += a * dv[k * side + side - 2];
        }
    }
    static void without_border(float* dv, const float* seed, float* border, long side) {
        std::memcpy(dv, seed, side * side * sizeof(float));
        for (long k = 0; k < side; ++k)
            for (long i : {k, (side - 1) * side + k, k * side, k * side + side - 1}) { border[i] = seed[i]; dv[i] = 0.0f; }
    }
    static void with_border(float* d, const float* dv, const float* border, long side) {
        std::memcpy(d, dv, side * side * sizeof(float));
        for (long k = 0; k < side; ++k)
            for (long i : {k, (side - 1) * side + k, k * side, k * side + side - 1}) d[i] = border[i];
    }
"""


class Heat(Problem):
    """Linear: nothing has to be kept."""

    name, title, active = "heat", "heat equation, 5-point stencil, in turn from field to field", ("start",)
    sizes = ({"side": 256, "steps": 100}, {"side": 1024, "steps": 100}, {"side": 4096, "steps": 10})
    large, quick = ({"side": 1024, "steps": 100}, {"side": 8192, "steps": 10}), {"side": 24, "steps": 4}
    required = 1.3
    of_hand = 1.3
    order, overwritten = ("start", "u", "v", "border", "dstart", "seed"), ()
    cpp = (
        GATHER
        + """
    static const float a = 0.2f;
    static void step(float* v, const float* u, long side) {
        #pragma omp parallel for
        for (long y = 1; y < side - 1; ++y)
            #pragma GCC ivdep
            for (long x = 1; x < side - 1; ++x) {
                long i = y * side + x;
                v[i] = u[i] + a * (u[i - 1] + u[i + 1] + u[i - side] + u[i + side] - 4.0f * u[i]);
            }
    }
    extern "C" void primal(const float* start, float* u, float* v, float* border, float* d, const float* seed, long side, long steps) {
        std::memcpy(u, start, side * side * sizeof(float));
        std::memcpy(v, start, side * side * sizeof(float));
        for (long t = 0; t < steps; ++t) { step(v, u, side); std::swap(u, v); }
    }
    extern "C" void gradient(const float* start, float* u, float* v, float* border, float* d, const float* seed, long side, long steps) {
        primal(start, u, v, border, d, seed, side, steps);
        std::memset(v, 0, side * side * sizeof(float));
        without_border(u, seed, border, side);
        for (long t = 0; t < steps; ++t) {
            to_border(border, u, a, side);
            step(v, u, side);  // the step is its own adjoint inside
            std::swap(u, v);
        }
        with_border(d, u, border, side);
    }
    """
    )

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        side = size["side"]
        return {"start": uniform(rng, (side, side), 0.2, 0.8), "seed": uniform(rng, (side, side))}

    def by_hand(self, size: Size) -> Mapping[str, Any]:
        return {name: (size["side"], size["side"]) for name in ("u", "v", "border")}

    def floor(self, size: Size) -> Floor:
        cells = size["side"] ** 2 * size["steps"]
        return Floor(8 * cells, 8 * cells)

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        du = given["seed"].astype(np.float64)
        for _ in range(size["steps"]):
            du = backward(du, lambda _: 1.0 - 4 * DIFFUSION)
        return {"start": du}

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        side = size["side"]
        launch = kernel("heat.cu", "heat")[(blocks(side, 32), blocks(side, 8)), (32, 8)]
        return Steps(library, lambda v, u: launch(u, v, DIFFUSION, side, side), size["steps"], given, True)

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        def step(u: Any, _: Any) -> Any:
            return u.at[INSIDE].add(DIFFUSION * laplace(u)), None

        return jax.lax.scan(step, x["start"], None, length=size["steps"])[0]

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        u, v = x["start"].clone(), x["start"].clone()
        for _ in range(size["steps"]):
            v[INSIDE] = u[INSIDE] + DIFFUSION * laplace(u)
            u, v = v, u
        return u

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        @wp.kernel
        def heat(u: wp.array2d(dtype=float), v: wp.array2d(dtype=float), a: float, side: int):
            y, x = wp.tid()
            if x > 0 and y > 0 and x < side - 1 and y < side - 1:
                v[y, x] = u[y, x] + a * (u[y, x - 1] + u[y, x + 1] + u[y - 1, x] + u[y + 1, x] - 4.0 * u[y, x])
            else:
                v[y, x] = u[y, x]

        side = size["side"]
        fields = [x["start"], *(new(side, side) for _ in range(size["steps"]))]

        def run() -> Any:
            for u, v in pairwise(fields):
                wp.launch(heat, dim=(side, side), inputs=[u, v, DIFFUSION, side])
            return fields[-1]

        return run


def laplace(u: Any) -> Any:
    """Of the interior, in any framework."""
    return u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * u[INSIDE]


def bands(side: int) -> Iterator[slice]:
    """The rows of the interior in bands that fit a cache: so large fields take NumPy a fifth of the time."""
    height = max(1, (1 << 16) // side)
    for begin in range(1, side - 1, height):
        yield slice(begin, min(begin + height, side - 1))


def backward(dv: NDArray[np.float64], middle: Callable[[slice], Any]) -> NDArray[np.float64]:
    """The adjoint of a step: each cell of the interior sends `middle` of what arrived at it to itself, `DIFFUSION` to its neighbours.
    `middle(rows)`: for these rows of the interior."""
    du, inside = dv.copy(), slice(1, -1)
    du[INSIDE] = 0.0
    for rows in bands(len(dv)):
        inner = dv[rows, inside]
        du[rows, inside] += inner * middle(rows)
        sent = DIFFUSION * inner
        du[rows, :-2] += sent
        du[rows, 2:] += sent
        du[rows.start - 1 : rows.stop - 1, inside] += sent
        du[rows.start + 1 : rows.stop + 1, inside] += sent
    return du

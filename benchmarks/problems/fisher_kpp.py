"""Fisher-KPP: diffusion and logistic growth, from one field to the other and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, uniform
from ..runners.with_gpuad import Steps, kernel
from .heat import DIFFUSION, GATHER, INSIDE, backward, bands, laplace

GROWTH = 0.1


class FisherKpp(Problem):
    """Nonlinear: every state that is overwritten is needed. By hand all states are kept: each step writes to the next slot of a history,
    so that keeping them costs no traffic."""

    name, title, active = "fisher_kpp", "Fisher-KPP, a nonlinear 5-point stencil, in turn from field to field", ("start",)
    sizes = ({"side": 256, "steps": 100}, {"side": 1024, "steps": 100}, {"side": 4096, "steps": 10})
    large, quick = ({"side": 1024, "steps": 100}, {"side": 8192, "steps": 10}), {"side": 24, "steps": 4}
    required = 1.3
    of_hand, keeps = 1.5, True
    order, overwritten = ("start", "u", "v", "border", "history", "dstart", "seed"), ()
    cpp = (
        GATHER
        + r"""
    static const float a = 0.2f, r = 0.1f;
    static void step(float* v, const float* u, long side) {
        #pragma omp parallel for
        for (long y = 1; y < side - 1; ++y)
            #pragma GCC ivdep
            for (long x = 1; x < side - 1; ++x) {
                long i = y * side + x;
                v[i] = u[i] + a * (u[i - 1] + u[i + 1] + u[i - side] + u[i + side] - 4.0f * u[i]) + r * u[i] * (1.0f - u[i]);
            }
    }
    static void back(float* __restrict__ du, const float* __restrict__ dv, const float* __restrict__ u, long side) {
        #pragma omp parallel for
        for (long y = 1; y < side - 1; ++y)
            #pragma GCC ivdep
            for (long x = 1; x < side - 1; ++x) {
                long i = y * side + x;
                du[i] = dv[i] * (1.0f - 4.0f * a + r * (1.0f - 2.0f * u[i])) + a * (dv[i - 1] + dv[i + 1] + dv[i - side] + dv[i + side]);
            }
    }
    static void edge(float* v, const float* u, long side) {
        for (long k = 0; k < side; ++k)
            for (long i : {k, (side - 1) * side + k, k * side, k * side + side - 1}) v[i] = u[i];
    }
    #define PARAMETERS \
        const float* start, float* u, float* v, float* border, float* history, float* d, const float* seed, long side, long steps
    extern "C" void primal(PARAMETERS) {
        std::memcpy(u, start, side * side * sizeof(float));
        std::memcpy(v, start, side * side * sizeof(float));
        for (long t = 0; t < steps; ++t) { step(v, u, side); std::swap(u, v); }
    }
    extern "C" void gradient(PARAMETERS) {
        const long cells = side * side;
        const float* before = start;
        for (long t = 0; t < steps; ++t) {
            edge(history + t * cells, before, side);
            step(history + t * cells, before, side);
            before = history + t * cells;
        }
        std::memset(v, 0, cells * sizeof(float));
        without_border(u, seed, border, side);
        for (long t = steps - 1; t >= 0; --t) {
            to_border(border, u, a, side);
            back(v, u, t ? history + (t - 1) * cells : start, side);
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
        field = (size["side"], size["side"])
        return {"u": field, "v": field, "border": field, "history": (size["steps"], *field)}

    def floor(self, size: Size) -> Floor:
        cells = size["side"] ** 2 * size["steps"]
        return Floor(8 * cells, 12 * cells, saved_bytes=4 * cells)

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        u, states = given["start"].astype(np.float64), []
        for _ in range(size["steps"]):
            states.append(u.astype(np.float32))  # half the memory; what is lost is far below the tolerance
            v = u.copy()
            for rows in bands(size["side"]):
                near, inner = u[rows.start - 1 : rows.stop + 1], u[rows, 1:-1]
                v[rows, 1:-1] += DIFFUSION * laplace(near) + GROWTH * inner * (1 - inner)
            u = v
        du = given["seed"].astype(np.float64)
        for state in reversed(states):
            du = backward(du, partial(_middle, state))
        return {"start": du}

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        side = size["side"]
        launch = kernel("fisher_kpp.cu", "fisher_kpp")[(blocks(side, 32), blocks(side, 8)), (32, 8)]
        return Steps(library, lambda v, u: launch(v, u, DIFFUSION, GROWTH, side), size["steps"], given, True)

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        def step(u: Any, _: Any) -> Any:
            return u.at[INSIDE].add(DIFFUSION * laplace(u) + GROWTH * u[INSIDE] * (1 - u[INSIDE])), None

        return jax.lax.scan(step, x["start"], None, length=size["steps"])[0]

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        """A field that the reverse needs may not be overwritten: a new one at each step."""
        u = x["start"]
        for _ in range(size["steps"]):
            v = u.clone()
            v[INSIDE] += DIFFUSION * laplace(u) + GROWTH * u[INSIDE] * (1 - u[INSIDE])
            u = v
        return u

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        @wp.kernel
        def fisher_kpp(u: wp.array2d(dtype=float), v: wp.array2d(dtype=float), a: float, r: float, side: int):
            y, x = wp.tid()
            if x > 0 and y > 0 and x < side - 1 and y < side - 1:
                lap = u[y, x - 1] + u[y, x + 1] + u[y - 1, x] + u[y + 1, x] - 4.0 * u[y, x]
                v[y, x] = u[y, x] + a * lap + r * u[y, x] * (1.0 - u[y, x])
            else:
                v[y, x] = u[y, x]

        side = size["side"]
        fields = [x["start"], *(new(side, side) for _ in range(size["steps"]))]

        def run() -> Any:
            for u, v in pairwise(fields):
                wp.launch(fisher_kpp, dim=(side, side), inputs=[u, v, DIFFUSION, GROWTH, side])
            return fields[-1]

        return run


def _middle(state: Any, rows: slice) -> Any:
    return 1.0 - 4 * DIFFUSION + GROWTH * (1.0 - 2.0 * state[rows, 1:-1])

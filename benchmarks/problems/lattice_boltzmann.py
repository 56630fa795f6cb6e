"""D2Q9 lattice Boltzmann with BGK collision, periodic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, uniform
from ..runners.with_gpuad import Steps, kernel

OMEGA = 1.2
_ROWS, _THREADS = 32, 16  # of the witness
EX = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
EY = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
WEIGHTS = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)

# A step pushes populations and, for the reverse, keeps density and velocity; its adjoint gathers what came to where they went. Both are
# written once, as what one cell does, and run in a loop without wraps inside of a row; the two cells at its ends know their neighbours.
CPP = """
    #define INLINE static inline __attribute__((always_inline))
    static constexpr int ex[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, ey[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
    static constexpr float w[9] = {4.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 36, 1.f / 36, 1.f / 36, 1.f / 36}, omega = 1.2f;
    static constexpr float along(int e, float u) { return e == 0 ? 0.0f : e == 1 ? u : -u; }

    // One cell. `left`, `right`: where the neighbours lie; rows of f, of g (the rows that the populations go to), and of the moments.
    template <bool keep>
    INLINE void cell(const float* f, float* const* g, float* m, long n, long x, long left, long right) {
        float p[9], rho = 0.0f, ux = 0.0f, uy = 0.0f;
        #pragma GCC unroll 9
        for (int k = 0; k < 9; ++k) { p[k] = f[k * n * n + x]; rho += p[k]; ux += along(ex[k], p[k]); uy += along(ey[k], p[k]); }
        const float over = 1.0f / rho;
        ux *= over; uy *= over;
        if (keep) { m[x] = rho; m[n * n + x] = ux; m[2 * n * n + x] = uy; }
        const float rest = 1.0f - 1.5f * (ux * ux + uy * uy);
        #pragma GCC unroll 9
        for (int k = 0; k < 9; ++k) {
            const float eu = 3.0f * (along(ex[k], ux) + along(ey[k], uy));
            g[k][ex[k] == 0 ? x : ex[k] == 1 ? right : left] = p[k] + omega * (w[k] * rho * (rest + eu + 0.5f * eu * eu) - p[k]);
        }
    }
    template <bool keep>
    static void step(float* g, const float* f, float* m, long n) {
        #pragma omp parallel for
        for (long y = 0; y < n; ++y) {
            float* to[9];
            for (int k = 0; k < 9; ++k) to[k] = g + k * n * n + (y + ey[k] + n) % n * n;
            const float* from = f + y * n;
            float* kept = m + y * n;
            cell<keep>(from, to, kept, n, 0, n - 1, 1);
            #pragma GCC ivdep
            for (long x = 1; x < n - 1; ++x) cell<keep>(from, to, kept, n, x, x - 1, x + 1);
            cell<keep>(from, to, kept, n, n - 1, n - 2, 0);
        }
    }
    // Gathers what came to where the cell's populations went, and goes back through the collision.
    INLINE void cell_back(float* df, const float* const* dg, const float* m, long n, long x, long left, long right) {
        const float rho = m[x], ux = m[n * n + x], uy = m[2 * n * n + x], rest = 1.0f - 1.5f * (ux * ux + uy * uy);
        float p[9], drho = 0.0f, dux = 0.0f, duy = 0.0f, sum = 0.0f;
        #pragma GCC unroll 9
        for (int k = 0; k < 9; ++k) {
            p[k] = dg[k][ex[k] == 0 ? x : ex[k] == 1 ? right : left];
            const float eu = 3.0f * (along(ex[k], ux) + along(ey[k], uy)), share = w[k] * p[k], slope = 3.0f * share * (1.0f + eu);
            drho += share * (rest + eu + 0.5f * eu * eu);
            sum += share;
            dux += along(ex[k], slope);
            duy += along(ey[k], slope);
        }
        dux = omega * (dux - 3.0f * ux * sum);
        duy = omega * (duy - 3.0f * uy * sum);
        drho = omega * drho - dux * ux - duy * uy;
        #pragma GCC unroll 9
        for (int k = 0; k < 9; ++k) df[k * n * n + x] = (1.0f - omega) * p[k] + drho + along(ex[k], dux) + along(ey[k], duy);
    }
    static void back(float* df, const float* dg, const float* m, long n) {
        #pragma omp parallel for
        for (long y = 0; y < n; ++y) {
            const float* from[9];
            for (int k = 0; k < 9; ++k) from[k] = dg + k * n * n + (y + ey[k] + n) % n * n;
            float* to = df + y * n;
            const float* kept = m + y * n;
            cell_back(to, from, kept, n, 0, n - 1, 1);
            #pragma GCC ivdep
            for (long x = 1; x < n - 1; ++x) cell_back(to, from, kept, n, x, x - 1, x + 1);
            cell_back(to, from, kept, n, n - 1, n - 2, 0);
        }
    }
    extern "C" void primal(const float* start, float* u, float* v, float* history, float* d, const float* seed, long n, long steps) {
        const float* f = start;
        for (long t = 0; t < steps; ++t) { step<false>(u, f, history, n); f = u; std::swap(u, v); }
    }
    extern "C" void gradient(const float* start, float* u, float* v, float* history, float* d, const float* seed, long n, long steps) {
        const float* f = start;
        for (long t = 0; t < steps; ++t) { step<true>(u, f, history + t * 3 * n * n, n); f = u; std::swap(u, v); }
        const float* dg = seed;
        for (long t = steps - 1; t >= 0; --t) {
            float* df = t == 0 ? d : u;
            back(df, dg, history + t * 3 * n * n, n);
            dg = df;
            std::swap(u, v);
        }
    }
"""


class LatticeBoltzmann(Problem):
    """The reverse needs density and velocity of each step, 12 bytes a cell."""

    name, title, active = "lattice_boltzmann", "lattice Boltzmann D2Q9, in turn from field to field", ("start",)
    sizes = ({"side": 256, "steps": 10}, {"side": 1024, "steps": 4}, {"side": 1024, "steps": 20})
    large, quick = ({"side": 1024, "steps": 20}, {"side": 2048, "steps": 8}), {"side": 16, "steps": 3}
    required = 1.3
    order, overwritten, cpp = ("start", "u", "v", "history", "dstart", "seed"), (), CPP

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        shape = (9, size["side"], size["side"])
        noise = uniform(rng, shape, 0.9, 1.1)
        return {"start": (WEIGHTS[:, None, None] * noise).astype(np.float32), "seed": uniform(rng, shape)}

    def by_hand(self, size: Size) -> Mapping[str, Any]:
        side = size["side"]
        return {"u": (9, side, side), "v": (9, side, side), "history": (size["steps"], 3, side, side)}

    def floor(self, size: Size) -> Floor:
        cells = size["side"] ** 2 * size["steps"]
        return Floor(72 * cells, 84 * cells, saved_bytes=12 * cells)

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        f, states = given["start"].astype(np.float64), []
        for _ in range(size["steps"]):
            states.append(_by_rows(_moments, f))
            f = np.stack([np.roll(part, (EY[k], EX[k]), (0, 1)) for k, part in enumerate(_by_rows(_collided, f, states[-1]))])
        df = given["seed"].astype(np.float64)
        for state in reversed(states):
            df = _by_rows(_backward, np.stack([np.roll(part, (-EY[k], -EX[k]), (0, 1)) for k, part in enumerate(df)]), state)
        return {"start": df}

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        side = size["side"]
        launch = kernel("lattice_boltzmann.cu", "lattice_boltzmann")[(blocks(side, 128), side), (128,)]
        return Steps(library, lambda g, f: launch(f, g, OMEGA, side, side), size["steps"], given, False)

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        np_, weights = jax.numpy, WEIGHTS.astype(np.float32)

        def step(f: Any, _: Any) -> Any:
            rho = f.sum(0)
            ux = np_.tensordot(EX.astype(np.float32), f, 1) / rho
            uy = np_.tensordot(EY.astype(np.float32), f, 1) / rho
            square, parts = 1.5 * (ux * ux + uy * uy), []
            for k in range(9):
                eu = 3.0 * (int(EX[k]) * ux + int(EY[k]) * uy)
                after = f[k] + OMEGA * (weights[k] * rho * (1.0 + eu + 0.5 * eu * eu - square) - f[k])
                parts.append(np_.roll(after, (int(EY[k]), int(EX[k])), (0, 1)))
            return np_.stack(parts), None

        return jax.lax.scan(step, x["start"], None, length=size["steps"])[0]

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        f = x["start"]
        ex, ey = (torch.tensor(e, dtype=torch.float32, device=f.device) for e in (EX, EY))
        for _ in range(size["steps"]):
            rho = f.sum(0)
            ux, uy = torch.tensordot(ex, f, 1) / rho, torch.tensordot(ey, f, 1) / rho
            square, parts = 1.5 * (ux * ux + uy * uy), []
            for k in range(9):
                eu = 3.0 * (int(EX[k]) * ux + int(EY[k]) * uy)
                after = f[k] + OMEGA * (float(WEIGHTS[k]) * rho * (1.0 + eu + 0.5 * eu * eu - square) - f[k])
                parts.append(torch.roll(after, (int(EY[k]), int(EX[k])), (0, 1)))
            f = torch.stack(parts)
        return f

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        vector = wp.types.vector(length=9, dtype=wp.float32)
        ex, ey, weights = (wp.constant(vector(*map(float, values))) for values in (EX, EY, WEIGHTS))

        @wp.kernel
        def lattice(f: wp.array3d(dtype=float), g: wp.array3d(dtype=float), omega: float, side: int):
            y, x = wp.tid()
            rho = wp.float32(0.0)
            mx = wp.float32(0.0)
            my = wp.float32(0.0)
            for k in range(9):
                rho += f[k, y, x]
                mx += ex[k] * f[k, y, x]
                my += ey[k] * f[k, y, x]
            ux = mx / rho
            uy = my / rho
            square = 1.5 * (ux * ux + uy * uy)
            for k in range(9):
                eu = 3.0 * (ex[k] * ux + ey[k] * uy)
                equilibrium = weights[k] * rho * (1.0 + eu + 0.5 * eu * eu - square)
                to_x = (x + int(ex[k]) + side) % side
                to_y = (y + int(ey[k]) + side) % side
                g[k, to_y, to_x] = f[k, y, x] + omega * (equilibrium - f[k, y, x])

        side = size["side"]
        fields = [x["start"], *(new(9, side, side) for _ in range(size["steps"]))]

        def run() -> Any:
            for f, g in pairwise(fields):
                wp.launch(lattice, dim=(side, side), inputs=[f, g, OMEGA, side])
            return fields[-1]

        return run


def _by_rows(of: Callable[..., Any], *fields: Any) -> Any:
    """What is formed of each cell by itself, a few rows at a time, which the caches hold, in threads."""
    rows = [slice(y, y + _ROWS) for y in range(0, fields[0].shape[-2], _ROWS)]
    with ThreadPoolExecutor(_THREADS) as threads:
        return np.concatenate(list(threads.map(lambda some: of(*(x[:, some] for x in fields)), rows)), axis=1)


def _moments(f: Any) -> Any:
    """Density and velocity."""
    rho = f.sum(0)
    return np.stack([rho, np.tensordot(EX, f, 1) / rho, np.tensordot(EY, f, 1) / rho])


def _collided(f: Any, state: Any) -> Any:
    return f + OMEGA * (_equilibrium(*state) - f)


def _equilibrium(rho: Any, ux: Any, uy: Any) -> Any:
    along = EX[:, None, None] * ux + EY[:, None, None] * uy
    return WEIGHTS[:, None, None] * rho * (1.0 + 3.0 * along + 4.5 * along**2 - 1.5 * (ux * ux + uy * uy))


def _backward(after: Any, state: Any) -> Any:
    """What comes back through a collision: `after` has come to the populations after it."""
    _, ux, uy = state
    ex, ey, shares = EX[:, None, None], EY[:, None, None], after * WEIGHTS[:, None, None]
    along = ex * ux + ey * uy
    drho = (shares * (1.0 + 3.0 * along + 4.5 * along**2 - 1.5 * (ux * ux + uy * uy))).sum(0)
    dux = (shares * (3.0 * ex + 9.0 * along * ex - 3.0 * ux)).sum(0)  # times rho; du / df = (e - u) / rho takes it away
    duy = (shares * (3.0 * ey + 9.0 * along * ey - 3.0 * uy)).sum(0)
    return (1 - OMEGA) * after + OMEGA * (drho + dux * (ex - ux) + duy * (ey - uy))

"""Gravity between all pairs of bodies."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, uniform
from ..runners.with_gpuad import Launch

SOFTENING = 0.3
_PAIRS = 1 << 20  # that a thread of the witness forms at a time
_THREADS = min(os.cpu_count() or 1, 16)


class NBody(Problem):
    """Bound by arithmetic: 21 operations a pair, and 43 for the reverse that gathers."""

    name, title, active = "nbody", "accelerations of all pairs of bodies, with softening", ("position", "mass")
    sizes, large, quick = ({"n": 1024}, {"n": 4096}), ({"n": 8192}, {"n": 32768}), {"n": 64}
    required = 1.3
    order, overwritten = ("position", "mass", "acceleration", "dposition", "dmass", "seed"), ()
    cpp = """
    static const float soft = 0.3f * 0.3f;
    #define PARAMETERS const float* p, const float* mass, float* acceleration, float* dp, float* dmass, const float* w, long n
    // positions and seeds by coordinate, so that the loop over the others reads without strides
    static std::vector<float> turned(const float* a, long n) {
        std::vector<float> t(3 * n);
        for (long i = 0; i < n; ++i) for (long k = 0; k < 3; ++k) t[k * n + i] = a[3 * i + k];
        return t;
    }
    extern "C" void primal(PARAMETERS) {
        const std::vector<float> turn = turned(p, n);
        const float *px = turn.data(), *py = px + n, *pz = py + n;
        #pragma omp parallel for
        for (long i = 0; i < n; ++i) {
            const float xi = px[i], yi = py[i], zi = pz[i];
            float ax = 0, ay = 0, az = 0;
            #pragma omp simd reduction(+ : ax, ay, az)
            for (long j = 0; j < n; ++j) {
                const float dx = px[j] - xi, dy = py[j] - yi, dz = pz[j] - zi;
                const float inverse = 1.0f / std::sqrt(dx * dx + dy * dy + dz * dz + soft);
                const float s = mass[j] * inverse * inverse * inverse;
                ax += dx * s; ay += dy * s; az += dz * s;
            }
            acceleration[3 * i] = ax; acceleration[3 * i + 1] = ay; acceleration[3 * i + 2] = az;
        }
    }
    extern "C" void gradient(PARAMETERS) {
        primal(p, mass, acceleration, dp, dmass, w, n);
        const std::vector<float> turn = turned(p, n), seeds = turned(w, n);
        const float *px = turn.data(), *py = px + n, *pz = py + n, *wx = seeds.data(), *wy = wx + n, *wz = wy + n;
        #pragma omp parallel for
        for (long i = 0; i < n; ++i) {  // as the one that pulls and as the one that is pulled
            const float xi = px[i], yi = py[i], zi = pz[i], ux = wx[i], uy = wy[i], uz = wz[i], mi = mass[i];
            float gx = 0, gy = 0, gz = 0, gm = 0;
            #pragma omp simd reduction(+ : gx, gy, gz, gm)
            for (long j = 0; j < n; ++j) {
                const float dx = px[j] - xi, dy = py[j] - yi, dz = pz[j] - zi;
                const float inverse = 1.0f / std::sqrt(dx * dx + dy * dy + dz * dz + soft), square = inverse * inverse;
                const float cube = square * inverse;
                const float mine = dx * wx[j] + dy * wy[j] + dz * wz[j], theirs = dx * ux + dy * uy + dz * uz;
                const float along = 3.0f * square * (mi * mine - mass[j] * theirs);
                gx += cube * (mi * wx[j] - mass[j] * ux - along * dx);
                gy += cube * (mi * wy[j] - mass[j] * uy - along * dy);
                gz += cube * (mi * wz[j] - mass[j] * uz - along * dz);
                gm -= cube * mine;
            }
            dp[3 * i] += gx; dp[3 * i + 1] += gy; dp[3 * i + 2] += gz;
            dmass[i] += gm;
        }
    }
    """

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        n = size["n"]
        return {"position": rng.normal(size=(n, 3)).astype(np.float32), "mass": uniform(rng, n), "seed": uniform(rng, (n, 3))}

    def by_hand(self, size: Size) -> Mapping[str, Any]:
        return {"acceleration": (size["n"], 3)}

    def floor(self, size: Size) -> Floor:
        n = size["n"]
        return Floor(28 * n, 56 * n, 21 * n * n, 43 * n * n)

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        p, m, w = (given[name].astype(np.float64) for name in ("position", "mass", "seed"))
        dp, dm, some = np.zeros_like(p), np.zeros_like(m), max(1, _PAIRS // size["n"])

        def pulled(begin: int) -> tuple[Any, Any, Any]:
            """What the bodies from `begin` on, some of them, give to all positions, to their own, and to all masses."""
            part = slice(begin, begin + some)
            r = p[None] - p[part, None]
            square = 1.0 / ((r * r).sum(2) + SOFTENING**2)
            cube, along = square * np.sqrt(square), np.einsum("ik,ijk->ij", w[part], r)
            dr = m[None, :, None] * (cube[..., None] * w[part, None] - (3 * cube * square * along)[..., None] * r)
            return dr.sum(0), dr.sum(1), (cube * along).sum(0)

        with ThreadPoolExecutor(_THREADS) as threads:
            begins = range(0, size["n"], some)
            for begin, (everywhere, here, masses) in zip(begins, threads.map(pulled, begins), strict=True):
                dp += everywhere
                dp[begin : begin + some] -= here
                dm += masses
        return {"position": dp, "mass": dm}

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        n = size["n"]
        args = ("position", "mass", "acceleration", SOFTENING, n)
        return Launch(library, "nbody.cu", "forces", (blocks(n, 128),), (128,), args, given, self.active, "acceleration", (n, 3))

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        r = x["position"][None] - x["position"][:, None]
        s = x["mass"][None] * jax.lax.rsqrt((r * r).sum(2) + SOFTENING**2) ** 3
        return (r * s[..., None]).sum(1)

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        r = x["position"][None] - x["position"][:, None]
        s = x["mass"][None] * torch.rsqrt((r * r).sum(2) + SOFTENING**2) ** 3
        return (r * s[..., None]).sum(1)

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        @wp.kernel
        def forces(p: wp.array2d(dtype=float), mass: wp.array(dtype=float), out: wp.array2d(dtype=float), soft: float, n: int):
            i = wp.tid()
            ax = wp.float32(0.0)
            ay = wp.float32(0.0)
            az = wp.float32(0.0)
            for j in range(n):
                dx = p[j, 0] - p[i, 0]
                dy = p[j, 1] - p[i, 1]
                dz = p[j, 2] - p[i, 2]
                inverse = 1.0 / wp.sqrt(dx * dx + dy * dy + dz * dz + soft * soft)
                s = mass[j] * inverse * inverse * inverse
                ax += dx * s
                ay += dy * s
                az += dz * s
            out[i, 0] = ax
            out[i, 1] = ay
            out[i, 2] = az

        out = new(size["n"], 3)

        def run() -> Any:
            wp.launch(forces, dim=size["n"], inputs=[x["position"], x["mass"], out, SOFTENING, size["n"]])
            return out

        return run

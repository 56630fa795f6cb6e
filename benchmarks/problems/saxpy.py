"""y += a x."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, uniform
from ..runners.with_gpuad import Launch

A = 1.5


class Saxpy(Problem):
    """The factor is a constant, so that the reverse is dx += a dy, and nothing happens to dy."""

    name, title, active = "saxpy", "y += a x, a constant", ("x",)
    sizes, large, quick = ({"n": 1 << 20}, {"n": 1 << 24}), ({"n": 1 << 27},), {"n": 1 << 10}
    required = 1.3
    cpp = """
    extern "C" void primal(const float* x, float* y, float* dx, const float* seed, long n) {
        #pragma omp parallel for
        for (long i = 0; i < n; ++i) y[i] += 1.5f * x[i];
    }
    extern "C" void gradient(const float* x, float* y, float* dx, const float* seed, long n) {
        primal(x, y, dx, seed, n);
        #pragma omp parallel for
        for (long i = 0; i < n; ++i) dx[i] += 1.5f * seed[i];
    }
    """
    order, overwritten = ("x", "y", "dx", "seed"), ("y",)

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        return {name: uniform(rng, size["n"]) for name in ("x", "y", "seed")}

    def floor(self, size: Size) -> Floor:
        return Floor(12 * size["n"], 12 * size["n"])

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        return {"x": A * given["seed"].astype(np.float64)}

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        grid = (min(blocks(size["n"], 256), 65535),)
        return Launch(library, "saxpy.cu", "saxpy", grid, (256,), (size["n"], A, "x", "y"), given, self.active, "y")

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return x["y"] + A * x["x"]

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return x["y"] + A * x["x"]

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        @wp.kernel
        def saxpy(y: wp.array(dtype=float), x: wp.array(dtype=float), out: wp.array(dtype=float), a: float):
            i = wp.tid()
            out[i] = y[i] + a * x[i]

        out = new(size["n"])

        def run() -> Any:
            wp.launch(saxpy, dim=size["n"], inputs=[x["y"], x["x"], out, A])
            return out

        return run

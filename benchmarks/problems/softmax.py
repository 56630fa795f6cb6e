"""Softmax of each row, in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, uniform
from ..runners.with_gpuad import Launch

N = 64


class Softmax(Problem):
    """The result is what the reverse needs, and it is there."""

    name, title, active = "softmax", f"softmax of rows of {N} in place, one row a thread", ("x",)
    sizes, large, quick = ({"rows": 4096}, {"rows": 65536}), ({"rows": 1 << 20},), {"rows": 32}
    order, overwritten = ("x", "dx", "seed"), ("x",)
    cpp = """
    #define PARAMETERS float* x, float* dx, const float* seed, long rows
    extern "C" void primal(PARAMETERS) {
        #pragma omp parallel for
        for (long r = 0; r < rows; ++r) {
            float* row = x + 64 * r;
            float largest = row[0], sum = 0;
            for (long k = 1; k < 64; ++k) largest = std::fmax(largest, row[k]);
            for (long k = 0; k < 64; ++k) sum += row[k] = std::exp(row[k] - largest);
            for (long k = 0; k < 64; ++k) row[k] /= sum;
        }
    }
    extern "C" void gradient(PARAMETERS) {
        primal(x, dx, seed, rows);
        #pragma omp parallel for
        for (long r = 0; r < rows; ++r) {
            const float *y = x + 64 * r, *w = seed + 64 * r;
            float along = 0;
            #pragma omp simd reduction(+ : along)
            for (long k = 0; k < 64; ++k) along += w[k] * y[k];
            for (long k = 0; k < 64; ++k) dx[64 * r + k] = y[k] * (w[k] - along);
        }
    }
    """

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        shape = (size["rows"], N)
        return {"x": rng.normal(size=shape).astype(np.float32), "seed": uniform(rng, shape)}

    def floor(self, size: Size) -> Floor:
        return Floor(8 * N * size["rows"], 12 * N * size["rows"])

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        x, w = given["x"].astype(np.float64), given["seed"].astype(np.float64)
        y = np.exp(x - x.max(1, keepdims=True))
        y /= y.sum(1, keepdims=True)
        return {"x": y * (w - (w * y).sum(1, keepdims=True))}

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        rows = size["rows"]
        return Launch(library, "softmax.cu", "softmax", (blocks(rows, 64),), (64,), ("x", rows, N), given, self.active, "x")

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return jax.nn.softmax(x["x"], axis=1)

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return torch.softmax(x["x"], 1)

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        """In three kernels: Warp does not restore what a loop of this length overwrites. The largest entry is taken for a constant."""

        @wp.kernel
        def largest_of(x: wp.array2d(dtype=float), largest: wp.array(dtype=float), n: int):
            r = wp.tid()
            most = x[r, 0]
            for k in range(1, n):
                most = wp.max(most, x[r, k])
            largest[r] = most

        @wp.kernel
        def sum_of(x: wp.array2d(dtype=float), largest: wp.array(dtype=float), total: wp.array(dtype=float), n: int):
            r = wp.tid()
            s = wp.float32(0.0)
            for k in range(n):
                s += wp.exp(x[r, k] - largest[r])
            total[r] = s

        @wp.kernel
        def divide(x: wp.array2d(dtype=float), largest: wp.array(dtype=float), total: wp.array(dtype=float), y: wp.array2d(dtype=float)):
            r, k = wp.tid()
            y[r, k] = wp.exp(x[r, k] - largest[r]) / total[r]

        rows = size["rows"]
        y, total, largest = new(rows, N), new(rows), wp.zeros(rows, dtype=float)

        def run() -> Any:
            wp.launch(largest_of, dim=rows, inputs=[x["x"], largest, N], record_tape=False)
            wp.launch(sum_of, dim=rows, inputs=[x["x"], largest, total, N])
            wp.launch(divide, dim=(rows, N), inputs=[x["x"], largest, total, y])
            return y

        return run

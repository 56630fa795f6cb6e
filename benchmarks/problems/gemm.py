"""C = alpha A B + beta C, in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, uniform
from ..runners.with_gpuad import Launch

ALPHA, BETA = 0.8, -0.5


class Gemm(Problem):
    """Bound by arithmetic. gpuad differentiates the kernel that it is given, one entry a thread; the others call the machine's BLAS."""

    name, title, active = "gemm", "C = alpha A B + beta C in place, one entry a thread", ("a", "b", "c")
    sizes, large, quick = ({"n": 256}, {"n": 512}), ({"n": 2048}, {"n": 4096}), {"n": 32}
    order, overwritten = ("a", "b", "c", "da", "db", "dc", "seed"), ("c",)
    cpp = """
    #define PARAMETERS const float* a, const float* b, float* c, float* da, float* db, float* dc, const float* w, long n
    extern "C" void primal(PARAMETERS) {
        #pragma omp parallel for
        for (long i = 0; i < n; ++i) {
            for (long j = 0; j < n; ++j) c[i * n + j] *= -0.5f;
            for (long l = 0; l < n; ++l)
                #pragma GCC ivdep
                for (long j = 0; j < n; ++j) c[i * n + j] += 0.8f * a[i * n + l] * b[l * n + j];
        }
    }
    extern "C" void gradient(PARAMETERS) {
        primal(a, b, c, da, db, dc, w, n);
        #pragma omp parallel for
        for (long i = 0; i < n; ++i) {
            for (long l = 0; l < n; ++l) {
                float sum = 0;
                #pragma omp simd reduction(+ : sum)
                for (long j = 0; j < n; ++j) sum += w[i * n + j] * b[l * n + j];
                da[i * n + l] += 0.8f * sum;
            }
            for (long j = 0; j < n; ++j) dc[i * n + j] = -0.5f * w[i * n + j];
        }
        #pragma omp parallel for
        for (long l = 0; l < n; ++l)
            for (long i = 0; i < n; ++i)
                #pragma GCC ivdep
                for (long j = 0; j < n; ++j) db[l * n + j] += 0.8f * a[i * n + l] * w[i * n + j];
    }
    """

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        return {name: uniform(rng, (size["n"], size["n"])) for name in ("a", "b", "c", "seed")}

    def floor(self, size: Size) -> Floor:
        n = size["n"]
        return Floor(16 * n * n, 32 * n * n, 2 * n**3, 4 * n**3)

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        a, b, w = (given[name].astype(np.float64) for name in ("a", "b", "seed"))
        return {"a": ALPHA * w @ b.T, "b": ALPHA * a.T @ w, "c": BETA * w}

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        n = size["n"]
        args = ("a", "b", "c", ALPHA, BETA, n, n, n)
        return Launch(library, "gemm.cu", "gemm", (blocks(n, 32), blocks(n, 8)), (32, 8), args, given, self.active, "c")

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return ALPHA * jax.numpy.matmul(x["a"], x["b"], precision="highest") + BETA * x["c"]

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return torch.addmm(x["c"], x["a"], x["b"], beta=BETA, alpha=ALPHA)

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        @wp.kernel
        def gemm(a: wp.array2d(dtype=float), b: wp.array2d(dtype=float), c: wp.array2d(dtype=float), out: wp.array2d(dtype=float), n: int):
            i, j = wp.tid()
            total = wp.float32(0.0)
            for k in range(n):
                total += a[i, k] * b[k, j]
            out[i, j] = 0.8 * total - 0.5 * c[i, j]

        n, out = size["n"], new(size["n"], size["n"])

        def run() -> Any:
            wp.launch(gemm, dim=(n, n), inputs=[x["a"], x["b"], x["c"], out, n])
            return out

        return run

"""A weighted histogram."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, uniform
from ..runners.with_gpuad import Launch

BINS = 4096


class Histogram(Problem):
    """The primal adds atomically; the reverse reads, and adds plainly."""

    name, title, active = "histogram", f"weighted histogram of {BINS} bins: h[ix] += w", ("weight",)
    sizes, large, quick = ({"n": 1 << 18}, {"n": 1 << 22}), ({"n": 1 << 26},), {"n": 1 << 10}
    order, overwritten = ("bin", "weight", "counts", "dweight", "seed"), ("counts",)
    cpp = """
    #define PARAMETERS const int* bin, const float* weight, float* counts, float* dweight, const float* seed, long n
    extern "C" void primal(PARAMETERS) {
        for (long i = 0; i < n; ++i) counts[bin[i]] += weight[i];
    }
    extern "C" void gradient(PARAMETERS) {
        primal(bin, weight, counts, dweight, seed, n);
        #pragma omp parallel for
        for (long i = 0; i < n; ++i) dweight[i] += seed[bin[i]];
    }
    """

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        bins = rng.integers(0, BINS, size["n"]).astype(np.int32)
        return {"bin": bins, "weight": uniform(rng, size["n"]), "counts": np.zeros(BINS, np.float32), "seed": uniform(rng, BINS)}

    def floor(self, size: Size) -> Floor:
        return Floor(8 * size["n"], 12 * size["n"])

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        return {"weight": given["seed"].astype(np.float64)[given["bin"]]}

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        n = size["n"]
        args = ("bin", "weight", "counts", n)
        return Launch(library, "histogram.cu", "histogram", (blocks(n, 256),), (256,), args, given, self.active, "counts")

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return x["counts"].at[x["bin"]].add(x["weight"])

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return x["counts"].index_add(0, x["bin"], x["weight"])

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        @wp.kernel
        def histogram(bin: wp.array(dtype=int), weight: wp.array(dtype=float), counts: wp.array(dtype=float)):
            i = wp.tid()
            wp.atomic_add(counts, bin[i], weight[i])

        counts = new(BINS)

        def run() -> Any:
            counts.zero_()
            wp.launch(histogram, dim=size["n"], inputs=[x["bin"], x["weight"], counts])
            return counts

        return run

"""Rows looked up by index: an embedding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, uniform
from ..runners.with_gpuad import Launch

WIDTH = 64


class Gather(Problem):
    """The primal reads by index; the reverse has to scatter: rows are looked up more than once."""

    name, title, active = "gather", f"rows of {WIDTH} looked up by index: y[j] = x[ix[j]]", ("x",)
    sizes, large, quick = (
        ({"rows": 4096, "n": 8192}, {"rows": 65536, "n": 131072}),
        ({"rows": 1 << 20, "n": 1 << 21},),
        {"rows": 16, "n": 64},
    )
    order, overwritten = ("x", "index", "y", "dx", "seed"), ()
    cpp = """
    #define PARAMETERS const float* x, const long long* index, float* y, float* dx, const float* seed, long rows, long n
    extern "C" void primal(PARAMETERS) {
        #pragma omp parallel for
        for (long j = 0; j < n; ++j) std::memcpy(y + 64 * j, x + 64 * index[j], 64 * sizeof(float));
    }
    extern "C" void gradient(PARAMETERS) {
        primal(x, index, y, dx, seed, rows, n);
        #pragma omp parallel for  // by parts of a row, so that no two cores add to one address
        for (long part = 0; part < 64; part += 16)
            for (long j = 0; j < n; ++j)
                for (long k = part; k < part + 16; ++k) dx[64 * index[j] + k] += seed[64 * j + k];
    }
    """

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        index = rng.integers(0, size["rows"], size["n"])
        return {"x": uniform(rng, (size["rows"], WIDTH)), "index": index, "seed": uniform(rng, (size["n"], WIDTH))}

    def by_hand(self, size: Size) -> Mapping[str, Any]:
        return {"y": (size["n"], WIDTH)}

    def floor(self, size: Size) -> Floor:
        table, taken, indices = 4 * WIDTH * size["rows"], 4 * WIDTH * size["n"], 8 * size["n"]
        return Floor(table + taken + indices, 2 * table + 2 * taken + indices)

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        places = (given["index"][:, None] * WIDTH + np.arange(WIDTH)).reshape(-1)
        dx = np.bincount(places, given["seed"].reshape(-1).astype(np.float64), given["x"].size)
        return {"x": dx.reshape(given["x"].shape)}

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        count = size["n"] * WIDTH
        args, shape = ("x", "index", "y", WIDTH, count), (size["n"], WIDTH)
        return Launch(library, "scatter_gather.cu", "lookup", (blocks(count, 256),), (256,), args, given, self.active, "y", shape)

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return x["x"].at[x["index"]].get(mode="promise_in_bounds")

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        return x["x"].index_select(0, x["index"])

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        @wp.kernel
        def lookup(x: wp.array2d(dtype=float), index: wp.array(dtype=wp.int64), y: wp.array2d(dtype=float)):
            j, k = wp.tid()
            y[j, k] = x[int(index[j]), k]

        y = new(size["n"], WIDTH)

        def run() -> Any:
            wp.launch(lookup, dim=(size["n"], WIDTH), inputs=[x["x"], x["index"], y])
            return y

        return run

"""CuPy's `CArray` as a raw kernel's parameter: an array that knows its shape and strides. Values and gradients are closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, LaunchError, pipeline

HEAD = """#include <cupy/carray.cuh>
template <typename A> __device__ double squared(const A& a, ptrdiff_t i) { return a[i] * a[i]; }
extern "C" __global__ void k(CArray<const double, 2%s> x, CArray<double, 2%s> y, CArray<double, 0> total, double factor) {
  %s
}"""
WORDS = {
    "by whole numbers": "int i = threadIdx.x; if (i < x.size()) y[i] = factor * x[i] * x[i];",
    "by an index for each axis": "ptrdiff_t at[2] = {threadIdx.x / y.shape()[1], threadIdx.x % y.shape()[1]};"
    " if (at[0] < x.shape()[0]) { y[at] = x[at] * factor; y[at] *= x[at]; }",
    "over the grid": "CUPY_FOR(i, x.size()) y[i] = factor * squared(x, i);",
    "by strides": "int r = threadIdx.x / x.shape()[1], c = threadIdx.x % x.shape()[1]; const int s = sizeof(double); if (r < x.shape()[0])"
    " { double v = (&x[0])[r * x.strides()[0] / s + c * x.strides()[1] / s]; y[(ptrdiff_t)threadIdx.x] = factor * v * v; }",
}
LAYOUTS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "dense": (", true, true", lambda a: a),
    "any": ("", lambda a: a),
    "transposed": (", false, true", lambda a: np.asfortranarray(a)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("words", WORDS)
def test_arrays_with_their_shapes(words: str, layout: str, executor: Any) -> None:
    options, laid = LAYOUTS[layout]
    kernel = gpuad.kernel(HEAD % (options, options, WORDS[words]), "k")
    rng = np.random.default_rng(0)
    x, dy = laid(rng.uniform(0.5, 1.5, (4, 7))), laid(rng.uniform(0.5, 1.5, (4, 7)))
    y, dx, seed = np.zeros_like(x), np.ones_like(x), dy.copy()
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 1, 32, (Duplicated(x, dx), Duplicated(y, dy), np.zeros(()), 3.0))
    np.testing.assert_allclose(y, 3 * x * x, rtol=1e-14)
    np.testing.assert_allclose(dx, 1 + 6 * x * seed, rtol=1e-14)
    assert not dy.any()


def test_a_program_and_an_array_without_axes() -> None:
    kernel = gpuad.kernel(HEAD % ("", "", "atomicAdd(&total[0], factor * squared(x, threadIdx.x));"), "k")
    x, y, total = Duplicated(np.arange(6.0).reshape(2, 3)), np.zeros((2, 3)), Duplicated(np.zeros(()))
    tape = gpuad.Tape()
    for _ in range(2):
        with tape:
            kernel[1, 6](x, y, total, 2.0)
    tape.reverse({total: 1.0})
    np.testing.assert_array_equal(x.shadow, 4 * np.arange(6.0).reshape(2, 3))
    assert total.primal == 2 * 2 * 55


def test_other_arguments_are_refused() -> None:
    kernel = gpuad.kernel(HEAD % ("", "", "y[0] = x[0];"), "k")
    with pytest.raises(LaunchError, match=r"parameter `x` of `k` .* takes an array of 2 axes, got one of 1. Nothing was launched."):
        kernel(1, 1, (np.zeros(3), np.zeros((1, 3)), np.zeros(()), 1.0))
    with pytest.raises(LaunchError, match=r"parameter 2 `y` of `k` .* takes an array, got a float"):
        kernel(1, 1, (np.zeros((1, 3)), 1.0, np.zeros(()), 1.0))
    text = (HEAD % ("", "", "y[0] = x[0];")).replace("double factor", "long x_size")
    with pytest.raises(LaunchError, match="a parameter is called `x_size`, as a number of the array `x` is"):
        gpuad.kernel(text, "k")(1, 1, (np.zeros((1, 3)), np.zeros((1, 3)), np.zeros(()), 1))

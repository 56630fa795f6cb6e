"""Elementwise and reduction kernels on random views (shapes, orders of axes, steps, broadcasts), against NumPy and differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from nightly import cases

from gpuad import Duplicated, ElementwiseKernel, ReductionKernel
from gpuad.testing import check_gradient

MAP = ElementwiseKernel(
    "T x, T w, raw T r",
    "T y, T z",
    """const ptrdiff_t last = r.size() - 1;
y = x * w * x + r[i % r.size()] * r[last - i % r.size()];
z = w * (i + 1) + x * (_ind.size() + 1) + y;""",
    "mapped",
)
FOLD = ReductionKernel("T x, T w, raw T r", "T y", "x * w * (_J + 1) + r[_J % r.size()]", "a + b", "y = a * a", "0", "folded")


def view(rng: np.random.Generator, shape: tuple[int, ...]) -> Duplicated:
    """A view of this shape into a larger array, with its axes in a random order, with steps, some of them backwards."""
    order = rng.permutation(len(shape))
    steps = rng.integers(1, 3, len(shape))
    room = [shape[k] * steps[k] + rng.integers(0, 2) for k in order]
    inner = Duplicated(rng.uniform(0.5, 1.5, room))[tuple(slice(0, shape[k] * steps[k], steps[k]) for k in order)]
    turned = inner._view(lambda a: a.transpose(np.argsort(order)))
    return turned[tuple(slice(None, None, -1 if rng.random() < 0.3 else None) for _ in shape)]


def smaller(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to this one."""
    ones = tuple(1 if rng.random() < 0.3 else n for n in shape)
    return ones[rng.integers(0, len(shape) + 1) :]


def operands(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[Duplicated, ...], Any, Any]:
    """A shape, arrays that broadcast to it and a raw one, their product over the shape, and the raw one in its own order."""
    shape = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 5)))
    pairs = view(rng, smaller(rng, shape)), view(rng, smaller(rng, shape)), view(rng, tuple(rng.integers(1, 4, rng.integers(1, 4))))
    return shape, pairs, [np.array(p.primal) for p in pairs[:2]], np.array(pairs[2].primal).ravel()


@pytest.mark.parametrize("seed", range(cases(4, 40)))
def test_elementwise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, given, (x, w), r = operands(rng)
    outs = view(rng, shape), view(rng, shape)
    i = np.arange(math.prod(shape)).reshape(shape)
    y = x * w * x + r[i % r.size] * r[r.size - 1 - i % r.size]
    MAP(*(p.primal for p in (*given, *outs)))
    np.testing.assert_allclose(outs[0].primal, y)
    np.testing.assert_allclose(outs[1].primal, w * (i + 1) + x * (i.size + 1) + y)
    if seed % 4 == 0:
        assert check_gradient(MAP, (*given, *outs), directions=1).passed


@pytest.mark.parametrize("seed", range(cases(4, 40)))
def test_reduction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, given, (x, w), r = operands(rng)
    product = x * w
    axis = tuple(int(a) for a in rng.permutation(product.ndim)[: rng.integers(0, product.ndim + 1)])
    keepdims = bool(rng.random() < 0.5)
    lengths = [n if a in axis else 1 for a, n in enumerate(product.shape)]
    j = np.arange(math.prod(lengths)).reshape(lengths)
    expected = np.asarray((product * (j + 1) + r[j % r.size]).sum(axis=axis, keepdims=keepdims)) ** 2
    out = view(rng, expected.shape)
    FOLD(*(p.primal for p in given), out.primal, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(out.primal, expected)
    if seed % 4 == 1:
        assert check_gradient(FOLD, (*given, out), directions=1, axis=axis, keepdims=keepdims).passed

"""A derivative that is 0 because nobody has put a seed anywhere is an error (rule 29 of the contract): all shadows that could hold one were
made by gpuad, of zeros, and the caller has not asked for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS

import gpuad
from gpuad import Active, Duplicated, ShadowError, pipeline

SQUARE = gpuad.kernel("""extern "C" __global__ void square(const double* x, double* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] * x[i];
}""", "square")  # fmt: skip
IN_PLACE = gpuad.kernel('extern "C" __global__ void twice(double* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2 * x[i]; }', "twice")
SUMMED = gpuad.kernel('extern "C" __global__ void sum(const float* x, float a, float* y) { atomicAdd(y, a * x[threadIdx.x]); }', "sum")
PAIRS = gpuad.kernel(
    'struct P { double a; double b; };\nextern "C" __global__ void swap(const P* x, P* y) { int i = threadIdx.x; y[i].a = x[i].b; '
    "y[i].b = x[i].a * x[i].a; }",
    "swap",
)
SYNCED = gpuad.kernel("""#include <cooperative_groups.h>
extern "C" __global__ void synced(double* x, double* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = x[i] * x[i]; cooperative_groups::this_grid().sync(); y[i] = x[7 - i];
}""", "synced")  # fmt: skip
ELEMENTWISE = gpuad.ElementwiseKernel("T x", "T y", "y = x * x", "elementwise")
REDUCED = gpuad.ReductionKernel("T x", "T y", "x * x", "a + b", "y = a", "0", "reduced")


@gpuad.jit
def jitted(x: Any, y: Any) -> None:
    i = gpuad.jit.threadIdx.x
    y[i] = x[i] * x[i]


def _pair(n: int = 4, dtype: Any = np.float64) -> Duplicated:
    return Duplicated(np.arange(1, n + 1, dtype=dtype))


def _records() -> Duplicated:
    return Duplicated(np.ones(4, [("a", "f8"), ("b", "f8")]))


def _thunk(X: Duplicated, Y: Duplicated, **keywords: Any) -> None:
    augmented, reverse = gpuad.autodiff_thunk(SQUARE, x=Duplicated, y=Duplicated)
    reverse(1, 4, (X, Y, 4), augmented(1, 4, (X, Y, 4)), **keywords)


def _thunk_of_family(X: Duplicated, Y: Duplicated, **keywords: Any) -> None:
    augmented, reverse = gpuad.autodiff_thunk(ELEMENTWISE, x=Duplicated, y=Duplicated)
    reverse(X, Y, augmented(X, Y), **keywords)


def _hvp(X: Duplicated, Y: Duplicated, **keywords: Any) -> None:
    gpuad.hvp(SQUARE, 1, 4, (X, Y, 4), (Duplicated(np.ones(4)), Duplicated(np.zeros(4)), None), **keywords)


# makes the pairs; the call; the names of what a seed would be in
CALLS: dict[str, tuple[Callable[[], tuple[Any, ...]], Callable[..., None], str]] = {
    "in place": (lambda: (_pair(),), lambda X, **k: gpuad.autodiff(IN_PLACE, 1, 4, (X, 4), **k), "`x`"),
    "out of place": (lambda: (_pair(), _pair()), lambda X, Y, **k: gpuad.autodiff(SQUARE, 1, 4, (X, Y, 4), **k), "`y`"),
    "loop over the grid": (lambda: (_pair(), _pair()), lambda X, Y, **k: gpuad.autodiff(SQUARE, 2, 1, (X, Y, 4), **k), "`y`"),
    "views": (lambda: (_pair(8), _pair(8)), lambda X, Y, **k: gpuad.autodiff(SQUARE, 1, 4, (X[2:6], Y[:4], 4), **k), "`y`"),
    "one shadow of the caller's": (
        lambda: (Duplicated(np.ones(4), np.ones(4)), _pair()),
        lambda X, Y, **k: gpuad.autodiff(SQUARE, 1, 4, (X, Y, 4), **k),
        "`y`",
    ),
    "number": (
        lambda: (_pair(4, np.float32), _pair(1, np.float32)),
        lambda X, Y, **k: gpuad.autodiff(SUMMED, 1, 4, (X, Active(2.0, np.zeros((), np.float32)), Y), **k),
        "`y`",
    ),
    "structs": (lambda: (_records(), _records()), lambda X, Y, **k: gpuad.autodiff(PAIRS, 1, 4, (X, Y), **k), "`y`"),
    "grid.sync()": (lambda: (_pair(8), _pair(8)), lambda X, Y, **k: gpuad.autodiff(SYNCED, 2, 4, (X, Y), **k), "`x`, `y`"),
    "elementwise": (lambda: (_pair(), _pair()), lambda X, Y, **k: gpuad.autodiff(ELEMENTWISE, X, Y, **k), "`y`"),
    "elementwise, turned": (lambda: (_pair(), _pair()), lambda X, Y, **k: gpuad.autodiff(ELEMENTWISE, X[::-1], Y[::-1], **k), "`y`"),
    "reduction": (lambda: (_pair(), _pair(1)), lambda X, Y, **k: gpuad.autodiff(REDUCED, X, Y.reshape(()), **k), "`y`"),
    "jit": (lambda: (_pair(), _pair()), lambda X, Y, **k: gpuad.autodiff(jitted, 1, 4, (X, Y), **k), "`y`"),
    "split": (lambda: (_pair(), _pair()), _thunk, "`y`"),
    "split, elementwise": (lambda: (_pair(), _pair()), _thunk_of_family, "`y`"),
    "hvp": (lambda: (_pair(), _pair()), _hvp, "`y`"),
    "forward": (
        lambda: (_pair(), _pair()), lambda X, Y, **k: gpuad.autodiff(SQUARE, 1, 4, (X, Y, 4), mode=gpuad.Forward, **k), "`x`",
    ),
}  # fmt: skip


@pytest.mark.one_of(3)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", CALLS)
def test_a_derivative_without_a_seed_is_refused(kind: str, executor: str) -> None:
    make, call, names = CALLS[kind]
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        pairs = make()
        before = [pair.primal.copy() for pair in pairs]
        for _ in range(3):  # the shadows are there from the second time on
            with pytest.raises(ShadowError, match=f"all (gradients|tangents) are 0: the shadow of {names} was made by gpuad") as refused:
                call(*pairs)
            assert "allow_unused=True" in str(refused.value)
        if not kind.startswith("split"):  # their forward half has run
            assert all(np.array_equal(a, pair.primal) for a, pair in zip(before, pairs, strict=True))
        for _ in range(3):
            call(*pairs, allow_unused=True)
        with pytest.raises(ShadowError, match="are 0"):  # not taken for the call that was allowed
            call(*pairs)
        pairs[-1 if kind != "forward" else 0].shadow[...] = np.ones((), pairs[-1].shadow.dtype)
        call(*pairs)
        wanted = pairs[0].shadow if kind != "forward" else pairs[-1].shadow
        assert (wanted if wanted.dtype.names is None else wanted.view(np.float64)).any()


def test_seeds_that_were_put_there_count_whatever_they_are() -> None:
    """A residual that is 0 at the optimum is a seed; so is what an earlier call has added."""
    X, Y = _pair(), _pair()
    Y.shadow[...] = 0
    gpuad.autodiff(SQUARE, 1, 4, (X, Y, 4))
    gpuad.autodiff(SQUARE, 1, 4, (_pair(), Duplicated(np.zeros(4), np.zeros(4)), 4))
    W, Z = _pair(), Duplicated(np.zeros(4), np.ones(4))
    X = _pair()
    gpuad.autodiff(SQUARE, 1, 4, (W, Z, 4))  # dz -> dw
    gpuad.autodiff(SQUARE, 1, 4, (X, W, 4))  # dw -> dx, and nobody has asked for dw
    np.testing.assert_array_equal(X.shadow, 2.0 * np.arange(1, 5) * 2 * np.arange(1, 5))


def test_what_a_tape_has_added_is_a_seed() -> None:
    X, W, Y = _pair(), _pair(), _pair()
    with gpuad.Tape() as tape:
        SQUARE[1, 4](W, Y, 4)
    tape.reverse({Y: 1.0})
    gpuad.autodiff(SQUARE, 1, 4, (X, W, 4))
    np.testing.assert_array_equal(X.shadow, 2.0 * np.arange(1, 5) * 2 * np.arange(1, 5))


def test_other_errors_come_first() -> None:
    """What is missing altogether is said before what holds nothing."""
    with pytest.raises(ShadowError, match="no path"):
        gpuad.autodiff(SQUARE, 1, 4, (np.ones(4), _pair(), 4))
    with pytest.raises(ShadowError, match="has no shadow"):
        gpuad.autodiff(SQUARE, 1, 4, (_pair(), np.ones(4), 4))
    with pytest.raises(gpuad.LaunchError, match="memory ends at 3"):
        gpuad.autodiff(SQUARE, 1, 8, (_pair(), _pair(), 5))

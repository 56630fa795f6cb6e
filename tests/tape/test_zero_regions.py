"""What a reversal knows to be zero: it is assigned to, not cleared, or skipped, and what a user sees is as if nothing were known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.runtime.reference import Reference

N = 12
TEXT = """
extern "C" __global__ void square(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[i] * u[i];
}
extern "C" __global__ void interior(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) v[i] = u[i] * u[i];
}
extern "C" __global__ void masked(const double* u, double* v, const int* mask, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && mask[i]) v[i] = u[i] * u[i];
}
extern "C" __global__ void twice(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[i] * u[i * i / n];
}
extern "C" __global__ void one(const double* u, double* v) { v[threadIdx.x] = u[0]; }
extern "C" __global__ void add(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] += 3 * u[i];
}
"""
MASK = (np.arange(N) % 3 != 0).astype(np.int32)


class Texts(Reference):
    """Keeps the reverse kernels that it ran, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def launch(self, kernel: Any, *args: Any, **keywords: Any) -> None:
        from gpuad.codegen.cuda import cuda_source

        if kernel.name.endswith("_reverse"):
            self.texts.append(cuda_source([kernel]))
        super().launch(kernel, *args, **keywords)


@contextmanager
def _watched() -> Iterator[list[str]]:
    executor = Texts()
    with pipeline.executor_for_tests(executor):
        yield executor.texts


def _kernel(name: str) -> Any:
    return gpuad.kernel(TEXT, name)


def _pair(value: float = 0.0) -> Duplicated:
    x = np.linspace(1, 2, N) + value
    return Duplicated(x, np.full(N, 7.0))


def test_ping_pong_assigns_and_does_not_clear() -> None:
    u, v = _pair(), _pair()
    start = u.primal.copy()
    square, tape = _kernel("square"), gpuad.Tape()
    with _watched() as texts:
        with tape:
            a, b = u, v
            for _ in range(4):
                square[1, N](a, b, N)
                a, b = b, a
        tape.reverse({a: 1.0})
    assert len(texts) == 4
    for text in texts[:3]:
        assert "+=" not in text and "= 0" not in text.split("{", 1)[1]
    assert "+=" in texts[3] or "du[i] =" in texts[3]
    np.testing.assert_allclose(u.shadow, 16 * start**15)
    np.testing.assert_array_equal(v.shadow, 0)


def test_elements_that_a_step_leaves_out_are_zero_all_the_same() -> None:
    """The ends of w are inputs, to which is added; what was known of its interior does not hold there. They start fresh, as all of w."""
    u, v, w = _pair(), _pair(1), _pair(2)
    before = u.primal.copy()
    interior, square, tape = _kernel("interior"), _kernel("square"), gpuad.Tape()
    with _watched():
        with tape:
            square[1, N](u, v, N)  # all of v
            interior[1, N](v, w, N)  # the interior of w; its ends are inputs
            square[1, N](w, u, N)
        tape.reverse({u: 1.0})
    inner = np.zeros(N)
    inner[1:-1] = 8 * before[1:-1] ** 7
    np.testing.assert_allclose(u.shadow, inner)
    np.testing.assert_array_equal(v.shadow, 0)
    ends = np.zeros(N)
    ends[[0, -1]] = 2 * (np.linspace(1, 2, N) + 2)[[0, -1]]
    np.testing.assert_allclose(w.shadow, ends)


@pytest.mark.parametrize("seeds", [True, False])
def test_data_decides_what_is_written(seeds: bool) -> None:
    """Where a guard is data nothing is known: elements are cleared, and added to."""
    u, v = _pair(), _pair(1)
    x, y = u.primal.copy(), v.primal.copy()
    if not seeds:
        u.shadow[...], v.shadow[...] = 0, 1
    masked, add, tape = _kernel("masked"), _kernel("add"), gpuad.Tape()
    with _watched():
        with tape:
            masked[1, N](u, v, MASK, N)
            add[1, N](v, u, N)
            masked[1, N](u, v, MASK, N)
        tape.reverse(*([{v: 1.0}] if seeds else []))
    assert y.shape == (N,)
    m = MASK != 0
    inner = x + 3 * x**2
    np.testing.assert_allclose(u.shadow, np.where(m, 2 * inner * (1 + 6 * x), 0))
    np.testing.assert_allclose(v.shadow, np.where(m, 0, 1))


def test_elements_added_to_twice_are_cleared_first() -> None:
    u, v = _pair(), _pair()
    x = u.primal.copy()
    twice, add, tape = _kernel("twice"), _kernel("add"), gpuad.Tape()
    with _watched() as texts:
        with tape:
            add[1, N](v, u, N)  # u is written, so its shadow begins as zero
            twice[1, N](u, v, N)
        tape.reverse({v: 1.0})
    assert "+=" in texts[0] or "atomicAdd" in texts[0]
    y = x + 3 * np.linspace(1, 2, N)
    half = np.arange(N) ** 2 // N
    both = y[half] + np.bincount(half, y, N)
    np.testing.assert_allclose(u.shadow, both)
    np.testing.assert_allclose(v.shadow, 3 * both)


def test_an_adjoint_without_a_seed_is_skipped() -> None:
    """What the last launch overwrites reached nothing: the adjoints of what went before have nothing to do."""
    u, v, w = _pair(), _pair(), _pair()
    x = u.primal.copy()
    square, tape = _kernel("square"), gpuad.Tape()
    with _watched() as texts:
        with tape:
            square[1, N](u, v, N)
            square[1, N](w, v, N)
            square[1, N](u, w, N)
        tape.reverse({w: 1.0})
    assert len(texts) == 1
    np.testing.assert_allclose(u.shadow, 7 + 2 * x)
    for pair in (v, w):
        np.testing.assert_array_equal(pair.shadow, 0)


def test_a_shadow_of_what_is_only_read_is_added_to() -> None:
    u, v = _pair(), _pair()
    x = u.primal.copy()
    square, tape = _kernel("square"), gpuad.Tape()
    with _watched():
        with tape:
            square[1, N](u, v, N)
        tape.reverse({v: 1.0})
    np.testing.assert_allclose(u.shadow, 7 + 2 * x)


def test_many_threads_that_read_one_element() -> None:
    u, v = _pair(), _pair()
    one, add, tape = _kernel("one"), _kernel("add"), gpuad.Tape()
    with _watched():
        with tape:
            add[1, N](v, u, N)
            one[1, N](u, v)
        tape.reverse({v: 1.0})
    np.testing.assert_allclose(u.shadow, np.eye(N)[0] * N)
    np.testing.assert_allclose(v.shadow, 3 * np.eye(N)[0] * N)


def test_a_seed_written_between_two_reverses_counts() -> None:
    """Nothing that was known is remembered (CASE 58)."""
    u, v = _pair(), _pair()
    square, tape = _kernel("square"), gpuad.Tape()
    with _watched():
        for k in range(2):
            u.primal[...] = np.linspace(1, 2, N)
            with tape:
                square[1, N](u, v, N)
                square[1, N](v, u, N)
            if k == 0:
                tape.reverse({u: 1.0})
            else:
                u.shadow[...], v.shadow[...] = 0, 5
                tape.reverse()
    np.testing.assert_allclose(u.shadow, 5 * 2 * np.linspace(1, 2, N))  # v is what the first launch left in it
    np.testing.assert_array_equal(v.shadow, 0)


def test_slices_of_one_shadow() -> None:
    u, v = _pair(), _pair()
    x = u.primal.copy()
    square, tape = _kernel("square"), gpuad.Tape()
    h = N // 2
    with _watched():
        with tape:
            square[1, h](u[:h], v[h:], h)
            square[1, h](v[h:], u[:h], h)
            square[1, h](u[h:], u[:h], h)
            square[1, h](u[:h], v[:h], h)
        tape.reverse({v: np.arange(N, dtype=float)})
    seeds = np.arange(N)
    np.testing.assert_allclose(u.shadow[:h], seeds[h:] * 2 * x[:h])
    np.testing.assert_allclose(u.shadow[h:], seeds[:h] * 4 * x[h:] ** 3)
    assert not v.shadow.any()

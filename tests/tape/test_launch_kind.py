"""What launches have in common that differ only in where their arrays lie: found out once, and right for each of them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launch_walk import walks

import gpuad
from gpuad import Duplicated
from gpuad.pipeline import executor_for_tests
from gpuad.tape.record import launch_kind

STEP = """
extern "C" __global__ void step(double* y, const double* x, int n, double f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = f * x[i] * x[i] + x[i + 1];
}
"""
N = 8


def _grown(x: Any, n: int, f: float) -> Any:
    return f * x[..., :n] ** 2 + x[..., 1 : n + 1]


def _pullback(x: Any, n: int, f: float, seed: Any) -> Any:
    found = np.zeros_like(x)
    found[:n] += 2 * f * x[:n] * seed
    found[1 : n + 1] += seed
    return found


@pytest.fixture
def executor(executor: Any) -> Iterator[Any]:
    """Launches run on it."""
    with executor_for_tests(executor):
        yield executor


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels of which a kind was found out."""
    found: list[str] = []
    make = launch_kind._kind

    def noted(kernel: Any, call: Any) -> Any:
        found.append(kernel.name)
        return make(kernel, call)

    monkeypatch.setattr(launch_kind, "_kind", noted)
    return found


def pair(size: int, seed: int = 0) -> Any:
    return Duplicated(np.random.default_rng(seed).uniform(0.5, 1.5, size))


def test_arrays_that_are_alike_have_one_kind(executor: Any, kinds: list[str]) -> None:
    kernel = gpuad.kernel(STEP, "step")
    with gpuad.Tape() as tape:
        pairs = [(pair(N + 1, k), pair(N), 0.5 + k) for k in range(5)]
        for x, y, f in pairs:
            kernel[1, 8](y, x, N, f)
    tape.reverse({y: np.arange(1.0, N + 1) for _, y, _ in pairs})
    for x, y, f in pairs:
        np.testing.assert_allclose(y.primal, _grown(x.primal, N, f), rtol=1e-14)
        np.testing.assert_allclose(x.shadow, _pullback(x.primal, N, f, np.arange(1.0, N + 1)), rtol=1e-14)
    assert kinds == ["step"]
    with gpuad.Tape() as tape:  # another tape finds it
        kernel[1, 8](pairs[0][1], pair(N + 1, 9), N, 2.0)
    assert kinds == ["step"]


OTHERS: dict[str, Callable[[], Any]] = {
    "alone": lambda: pair(N + 1),
    "further on": lambda: pair(N + 4)[3:],
    "of more": lambda: pair(2 * N)[: N + 1],
}


@pytest.mark.parametrize("other", OTHERS)
def test_arrays_elsewhere_in_their_memory_are_right(executor: Any, kinds: list[str], other: str) -> None:
    """Regions are counted from the beginning of an allocation: where an array begins, and how large the allocation is, makes a kind."""
    kernel = gpuad.kernel(STEP, "step")
    x, y, seed = OTHERS[other](), pair(N), np.arange(1.0, N + 1)
    old = x.primal.copy()
    with gpuad.Tape() as tape:
        kernel[1, 8](pair(N), pair(N + 1), N, 0.5)
        kernel[1, 8](y, x, N, 0.5)
        kernel[1, 8](x, pair(N + 1, 5), N, 0.5)  # what the adjoint of the second one reads has to be saved
    tape.reverse({y: seed})
    np.testing.assert_allclose(x.shadow, _pullback(old, N, 0.5, seed), rtol=1e-14)
    assert tape.stats.saved_bytes == N * 8
    assert len(kinds) == (2 if other == "alone" else 3)  # the third writes an array of another length


def test_bare_memory_with_a_shadow_is_another_kind(executor: Any, kinds: list[str]) -> None:
    """A launch that only writes memory bare is reversed by what is known of that memory."""
    kernel, x, y, z = gpuad.kernel(STEP, "step"), pair(N + 1), pair(N), pair(N)
    with gpuad.Tape() as tape:
        kernel[1, 8](y, x, N, 0.5)
        kernel[1, 8](y.primal, np.ones(N + 1), N, 0.5)  # overwrites it: nothing of x is in it any more
        kernel[1, 8](np.zeros(N), np.ones(N + 1), N, 0.5)  # has no shadow
        kernel[1, 8](z, x, N, 2.0)
    tape.reverse({y: 1.0, z: 1.0})
    np.testing.assert_allclose(x.shadow, _pullback(x.primal, N, 2.0, np.ones(N)), rtol=1e-14)
    assert kinds == ["step"] * 3


def test_a_kind_keeps_no_array_alive(executor: Any) -> None:
    kernel, x, y = gpuad.kernel(STEP, "step"), pair(N + 1), pair(N)
    with gpuad.Tape() as tape:
        kernel[1, 8](y, x, N, 0.5)
    tape.reverse({y: 1.0})
    gone = weakref.ref(x.primal)
    del x, y, tape
    gc.collect()
    assert gone() is None


def test_how_far_a_launch_goes() -> None:
    """A ratchet: fewer are better, and lower these numbers then. `python tests/launch_walk.py -v` names the files."""
    found = {name: (len(one.files), one.hops) for name, one in walks().items()}
    most = {"launch on a new pair": (56, 250), "launch that comes again": (39, 120), "reversal": (51, 1100)}
    assert all(files <= most[name][0] and hops <= most[name][1] for name, (files, hops) in found.items()), found

"""Saved regions with small gaps lie as they lay: an adjoint reads them where they are, and what it needs besides is put into the gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_random_programs
from launch_tools import EXECUTORS, running
from nightly import cases

import gpuad
from gpuad import Duplicated
from gpuad.tape.memory import versions

TEXT = """extern "C" __global__ void step(const double* u, double* v, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i > 0 && j > 0 && i < n - 1 && j < n - 1)
        v[i * n + j] = 0.5 * u[i * n + j] + 0.2 * u[i * n + j - 1] * u[(i + 1) * n + j] - 0.1 * u[(i - 1) * n + j] * u[i * n + j + 1];
}"""
N = 80


def _model(u: Any, v: Any, steps: int) -> Any:
    for _ in range(steps):
        new = v.copy()
        new[1:-1, 1:-1] = 0.5 * u[1:-1, 1:-1] + 0.2 * u[1:-1, :-2] * u[2:, 1:-1] - 0.1 * u[:-2, 1:-1] * u[1:-1, 2:]
        u, v = new, u
    return u


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_halo_is_put_around_a_saved_interior(executor: str) -> None:
    """The interior of each step is saved once and read in place; the halo, which is live, is all that is copied."""
    r, kernel, tape = np.random.default_rng(0), gpuad.kernel(TEXT, "step"), gpuad.Tape()
    u, v = Duplicated(r.uniform(0.5, 1.5, (N, N))), Duplicated(r.uniform(0.5, 1.5, (N, N)))
    x, y, seed = u.primal.copy(), v.primal.copy(), r.normal(size=(N, N))
    for _ in range(2):
        u.primal[...], v.primal[...], a, b = x, y, u, v
        with running(executor), tape:
            for _ in range(4):
                kernel[(5, 20), (16, 4)](a, b, N)
                a, b = b, a
            tape_ends_with = a
        with running(executor):
            tape.reverse({tape_ends_with: seed})
    direction = r.normal(size=(N, N))
    slope = np.vdot(seed, _model(x + 1e-30j * direction, y.astype(complex), 4).imag / 1e-30)
    np.testing.assert_allclose(np.vdot(u.shadow, direction), slope, rtol=1e-12)
    interior = 8 * (N - 2) ** 2
    assert tape.stats.saved_bytes == 3 * interior
    assert tape.stats.assembled_bytes == 3 * 8 * 4 * (N - 2)  # the edges, without the corners


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(cases(1, 4)))
def test_random_programs_with_gaps_of_any_size(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "GAPS", 1000.0)
    test_random_programs.test_random_programs(chunk)

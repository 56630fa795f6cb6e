"""A program that is profiled, in its two forms: kept all, and within a budget."""

from __future__ import annotations

from functools import cache

import numpy as np
from launch_tools import compiled

import gpuad
from gpuad import Duplicated
from gpuad.profiling import Profile

REACT = r"""
extern "C" __global__ void react(double* a, const double* b, double rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i] + rate * b[i] * (1.0 - b[i]);
}"""
N, STEPS, BYTES = 500, 24, 4096  # bytes of an array, as a pool rounds them


def play(tape: gpuad.Tape, rounds: int = 3, steps: int = STEPS) -> Duplicated:
    density, other = Duplicated(np.full(N, 0.2), np.zeros(N)), Duplicated(np.zeros(N), np.zeros(N))
    for _ in range(rounds):
        density.primal[...] = 0.2
        with tape:
            now, new = density, other
            for t in range(steps):
                compiled(REACT, "react")[-(-N // 64), 64](new, now, 0.01 * (t + 1), N)
                now, new = new, now
        tape.reverse({now: 1.0})
    return density


@cache
def profiled(budget: int | None = None) -> Profile:
    """Of three rounds."""
    with gpuad.profile() as p:
        tape = gpuad.Tape(budget=budget)
        play(tape)
    return p  # type: ignore[return-value]

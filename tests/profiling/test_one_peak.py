"""The most bytes of a program are one number, whoever says it: the tape, what it holds, its plan, a profile and its programs."""

from __future__ import annotations

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated

N = 70_001
MIX = gpuad.kernel(
    r"""extern "C" __global__ void mix(double* y, const double* x, double* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { double v = x[i] * z[i]; y[i] = v * y[i]; z[i] = exp(-z[i] * v); }
}""",
    "mix",
)
GRID, BLOCK = (N + 255) // 256, 256


@pytest.mark.parametrize("launches", [1, 5])
def test_all_say_the_same_in_every_round(launches: int) -> None:
    """Of more than a chunk of the tape's memory, from the first recording on."""
    starts = [np.linspace(0, 1, N) + k for k in range(3)]
    x, y, z = (Duplicated(start.copy()) for start in starts)
    tape = gpuad.Tape()
    for _ in range(3):
        for pair, start in zip((x, y, z), starts, strict=True):
            pair.primal[...] = start
        with gpuad.profile() as profile:
            with tape:
                for _ in range(launches):
                    MIX[GRID, BLOCK](y, x, z, N)
                    MIX[GRID, BLOCK](x, z, y, N)
            tape.reverse({x: 1.0})
        (program,) = profile.programs
        found = {tape.held().peak, tape.plan().peak, program.holding.peak, profile.peak, tape.peak_bytes}
        assert len(found) == 1, found
        assert found.pop() > 2**20

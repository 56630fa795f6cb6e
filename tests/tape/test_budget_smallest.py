"""The smallest budget of a program is enough each time that it is recorded, and never exceeded: programs in which launches need much
transient memory at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import compiled, running

import gpuad
from gpuad import BudgetError, Duplicated
from gpuad.tape.facade import recording_of

N = 8
SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
extern "C" __global__ void counted(int* at, double* h, const double* x, int n) {
    I;
    double s = h[i];
    for (int t = 0; t < 3; ++t) {
        at[(t + 1) * n + i] = (at[t * n + i] * 5 + 3) % 5;
        for (int q = 0; q < at[(t + 1) * n + i]; ++q) s = sin(s) * x[q * n + i] + 0.1;
    }
    h[i] = s;
}
extern "C" __global__ void tridiagonal(double* x, double* s, const double* d, int n) {
    I;
    s[i] = 0.2 / (1.5 + d[i]);
    x[i] = x[i] / (1.5 + d[i]);
    for (int t = 1; t < 4; ++t) {
        double p = 1.0 / (2.0 + d[t * n + i] - 0.2 * s[(t - 1) * n + i]);
        s[t * n + i] = 0.2 * p;
        x[t * n + i] = (x[t * n + i] - 0.2 * x[(t - 1) * n + i]) * p;
    }
    for (int t = 2; t >= 0; --t) x[t * n + i] -= s[t * n + i] * x[(t + 1) * n + i];
}
extern "C" __global__ void nested(double* h, const double* x, int n) {
    I;
    for (int t = 0; t < 3; ++t) {
        double a = 0;
        for (int k = 0; k <= t; ++k) a += h[k * n + i] * h[k * n + i] * 0.3 * x[k * n + i];
        h[(t + 1) * n + i] = sin(a) + 0.2;
    }
}
extern "C" __global__ void squares(double* y, const double* x, double* z, int n) {
    I;
    y[i] = 0.5 * x[i] * x[i] + 0.2 * y[i];
    z[i] = 0.5 * y[i] * y[i];
}
"""


def counted_twice(p: dict[str, Any]) -> None:
    """How often values are read is known when it has been counted; the second launch comes upon the first one's states."""
    for _ in range(2):
        compiled(SOURCE, "counted")[2, 4](p["at"], p["b"][8:], p["b"], N)


def stacks_of_several(p: dict[str, Any]) -> None:
    """The last launch's stacks are more than what is left beside what a new beginning takes."""
    compiled(SOURCE, "tridiagonal")[2, 4](p["d"], p["b"], p["a"], N)
    compiled(SOURCE, "squares")[2, 4](p["e"], p["b"], p["a"], N)
    compiled(SOURCE, "squares")[2, 4](p["c"], p["b"], p["a"], 5)
    compiled(SOURCE, "nested")[2, 4](p["d"][16:], p["c"], N)


@pytest.mark.parametrize("executor", ["host", "reference"])
@pytest.mark.parametrize("program", [counted_twice, stacks_of_several])
def test_the_smallest_budget(program: Any, executor: str) -> None:
    start = {name: np.random.default_rng(k).uniform(0.3, 1.1, 64) for k, name in enumerate("abcde")}

    def gradients(tape: gpuad.Tape, p: dict[str, Any]) -> list[Any]:
        for name, values in start.items():
            p[name].primal[...] = values
            p[name].shadow[...] = 1.0
        p["at"][...] = np.arange(5 * N) % 5
        with tape:
            program(p)
        for name in start:
            p[name].shadow[...] = 1.0
        tape.reverse(allow_unused=True)
        return [p[name].shadow.copy() for name in start]

    def fresh() -> dict[str, Any]:
        return {name: Duplicated(v.copy(), np.zeros(64)) for name, v in start.items()} | {"at": np.zeros(5 * N, np.int32)}

    with running(executor):
        expected = gradients(gpuad.Tape(), fresh())
        with pytest.raises(BudgetError) as refused:
            gradients(gpuad.Tape(budget=0), fresh())
        tape, p = gpuad.Tape(budget=refused.value.smallest), fresh()
        for _ in range(3):
            for got, want in zip(gradients(tape, p), expected, strict=True):
                np.testing.assert_array_equal(got, want)
            assert recording_of(tape).most <= refused.value.smallest

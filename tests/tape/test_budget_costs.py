"""Programs whose operations cost differently, within a budget: what is run again is what costs the least."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from launch_tools import compiled

import gpuad
from gpuad import Duplicated
from gpuad.budget import Weighted
from gpuad.tape.facade import recording_of

SOURCE = r"""
extern "C" __global__ void cheap(double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * x[i] * 0.7 + 0.1;
}
extern "C" __global__ void dear(double* x, const double* table, int m, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s = 0;
    for (int k = 0; k < m; k++) s += table[i * m + k];
    x[i] = x[i] * x[i] * 0.5 + 0.01 * s;
}
"""
N, M = 64, 50
BYTES = 512


pytestmark = pytest.mark.usefixtures("on_host_unjoined")


class Program:
    """Steps of which those in `dear` read a table of fifty times the state."""

    def __init__(self, dear: list[bool], budget: Any = None) -> None:
        rng = np.random.default_rng(0)
        self.dear, self.start = dear, rng.uniform(0.1, 0.9, N)
        self.x, self.table = Duplicated(self.start.copy(), np.zeros(N)), Duplicated(rng.uniform(0, 1, N * M), np.zeros(N * M))
        self.tape = gpuad.Tape(budget=budget)

    def record(self) -> None:
        self.x.primal[...] = self.start
        self.table.shadow.fill(0)
        with self.tape:
            for dear in self.dear:
                if dear:
                    compiled(SOURCE, "dear")[1, 64](self.x, self.table, M, N)
                else:
                    compiled(SOURCE, "cheap")[1, 64](self.x, N)

    def run(self) -> list[bytes]:
        self.record()
        self.tape.reverse({self.x: 1.0})
        return [a.tobytes() for p in (self.x, self.table) for a in (p.primal, p.shadow)]


def irregular(number: int, length: int) -> list[bool]:
    return [bool(b) for b in np.random.default_rng(number).random(length) < 0.3]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("number", range(4))
def test_bits_are_those_without_a_budget_and_dear_operations_run_less_often(number: int) -> None:
    dear = irregular(number, 16)
    free = Program(dear)
    wanted = [free.run() for _ in range(3)]
    fewer = 0
    for checkpoints in (1, 2, 3, 5):
        budget = BYTES * (2 + checkpoints)
        program = Program(dear, budget)
        for bits in wanted:
            assert program.run() == bits
            assert max(recording_of(program.tape).most, recording_of(program.tape).memory.most) <= budget
        planner = recording_of(program.tape).within.planner  # type: ignore[attr-defined]
        assert isinstance(planner.chain, Weighted)
        own = program.tape.plan()
        planner.__dict__["chain"], planner._scripts = planner.equal, {}
        equal = program.tape.plan()
        assert own.work <= equal.work and own.peak <= budget
        fewer += own.work < 0.999 * equal.work
    assert fewer >= 2, "where steps differ the schedule for equal ones is beaten"


def test_more_bytes_never_cost_more() -> None:
    for number in range(4):
        program = Program(irregular(number, 24), "1 GiB")
        program.record()
        points = program.tape.tradeoff().points
        low, high = min(p.peak for p in points), max(p.peak for p in points)
        plans = [program.tape.plan(int(b)) for b in np.linspace(low, high + BYTES, 30)]
        for one, two in itertools.pairwise(plans):
            assert two.work <= one.work and one.peak <= two.peak
        assert plans[0].work > 0 == plans[-1].work


def test_a_loop_of_equal_steps_is_as_ever() -> None:
    program = Program([False] * 20, BYTES * 5)
    program.run()
    planner = recording_of(program.tape).within.planner  # type: ignore[attr-defined]
    assert planner.chain is planner.equal
    assert program.tape.plan().work == pytest.approx(program.tape.plan().reruns / 20)

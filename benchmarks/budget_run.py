"""`python -m benchmarks.budget_run wave|fisher N STEPS BUDGET`: gradients of a time loop by gpuad within a byte budget (0: without one).

A process of its own for each budget, so that what it grows by is this tape's. Prints a line of JSON: bytes predicted, by the tape's own
account, and of the process above what the same program takes without a tape; runs again; CPU and wall seconds of a gradient, the least of
two once the program is known; and what the gradients are.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np

import gpuad
from gpuad import BudgetError, Duplicated
from gpuad.budget import extra_steps
from gpuad.tape.facade import recording_of

from . import resident
from .budget_peers import clock, start

SOURCE = r"""
extern "C" __global__ void wave(float* older, const float* now, const float* speed, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    int i = y * n + x;
    older[i] = 2.0f * now[i] - older[i] + speed[i] * (now[i - 1] + now[i + 1] + now[i - n] + now[i + n] - 4.0f * now[i]);
}
extern "C" __global__ void fisher(float* after, const float* before, const float* speed, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    int i = y * n + x;
    float u = before[i], v = u;
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1)
        v = u + 0.2f * (before[i - 1] + before[i + 1] + before[i - n] + before[i + n] - 4.0f * u) + speed[i] * u * (1.0f - u);
    after[i] = v;
}
"""
Row = dict[str, Any]


class Loop:
    """A problem on one tape."""

    def __init__(self, problem: str, n: int, steps: int, budget: int | None) -> None:
        self.problem, self.n, self.steps = problem, n, steps
        self.field, self.map = start(n)
        self.fields = [Duplicated(np.zeros((n, n), np.float32), np.zeros((n, n), np.float32)) for _ in range(2)]
        self.speed = Duplicated(self.map.copy(), np.zeros((n, n), np.float32))
        for pair in (*self.fields, self.speed):  # so that all of them is resident
            pair.shadow[...] = 0
        self.kernel = gpuad.kernel(SOURCE, problem)
        self.tape = gpuad.Tape(budget=budget)

    def program(self) -> Duplicated:
        """The program; what the loss is made of."""
        for f in self.fields:
            f.primal[...] = self.field if self.problem == "wave" or f is self.fields[0] else 0
        now, other = self.fields
        side = -(-self.n // 32), -(-self.n // 8)
        for _ in range(self.steps):
            self.kernel[side, (32, 8)](other, now, self.speed, self.n)
            now, other = other, now
        return now

    def run(self) -> None:
        """A gradient."""
        with self.tape:
            now = self.program()
        self.speed.shadow.fill(0)
        self.tape.reverse({now: now.primal})

    def sums(self) -> list[float]:
        """Of the gradients, by the initial field and by the map."""
        fields = self.fields if self.problem == "wave" else self.fields[:1]
        return [float(sum(f.shadow.sum(dtype=np.float64) for f in fields)), float(self.speed.shadow.sum(dtype=np.float64))]

    def digest(self) -> str:
        """Of the gradients' bits."""
        return hashlib.sha256(b"".join(p.shadow.tobytes() for p in (*self.fields, self.speed))).hexdigest()


def measured(problem: str, n: int, steps: int, budget: int | None) -> Row:
    """The row of a budget, or with which bytes it would do."""
    Loop(problem, n, 3, None).run()  # compiles, and loads what there is of gpuad
    loop = Loop(problem, n, steps, budget)
    loop.program()
    resident.settle()
    resident.forget()
    before = resident.now()
    try:
        loop.run()
    except BudgetError as refused:
        return {"budget": budget, "refused": f"at least {refused.smallest} bytes"}
    first = recording_of(loop.tape).memory.most
    loop.run()
    times, peak = clock(loop.run, 2), resident.peak()
    outlook = loop.tape.plan() if budget is not None else loop.tape.plan(1 << 60)
    predicted = outlook.peak if budget is not None else loop.tape.held().peak
    checkpoints = outlook.checkpoints
    return {
        "budget": budget, "bytes": recording_of(loop.tape).memory.total, "first recording": first, "predicted": predicted,
        "resident": peak - before, "predicted resident": predicted + outlook.records, "reruns": outlook.reruns, "checkpoints": checkpoints,
        "binomial": extra_steps(steps, checkpoints) if checkpoints else 0, "gradient": loop.digest(), "sums": loop.sums(), **times,
    }  # fmt: skip


if __name__ == "__main__":
    name, size, count, limit = sys.argv[1], *map(int, sys.argv[2:])
    print(json.dumps(measured(name, size, count, limit or None)))

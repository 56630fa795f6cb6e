"""`mpiexec -n 4 python -m benchmarks.distributed_scale`: what a program with halos and its reverse cost on 2 to 1,024 ranks.

A plate of `ROWS` by `COLUMNS` cells in strips, `STEPS` steps of heat conduction with a nonlinear material, a halo of one row each way and
step, a gradient with respect to a map that all ranks share, summed in one all-reduce at the end. The model has six numbers, all measured
here: seconds of a step's launch and its adjoint (for any number of cells, and for each cell), of a message (latency, and for each byte),
bytes copied in a second to save what the adjoint needs. So a program and its reverse on P ranks take

    steps x (launch + cells / P x cell + 4 x (latency + row x byte)) + saved / P x copy + all-reduce
    all-reduce = 2 log2(P) x latency + 2 (P - 1) / P x map x byte                    (recursive halving and doubling)

Assumptions: ranks have a core or device of their own (beside what is measured here, where there are more ranks than cores, the part that
computes takes as many times longer as ranks share one), all messages are as fast as here within one machine (give a network's LATENCY and
BANDWIDTH as arguments), nothing overlaps, strips are even, a rank keeps all it saves. It says nothing of congestion, of jitter, nor of the
schedule of a budget, which multiplies the forward's part by its reruns on every rank alike.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated, Tape

ROWS, COLUMNS, STEPS, REPEATS = 512, 512, 16, 5
SOURCE = r"""
extern "C" __global__ void heat(double* v, const double* u, const double* k, int rows, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= rows - 1) return;
    int i = y * n + x;
    v[i] = u[i] + 0.1 * k[x] * (1.0 + u[i] * u[i]) * (u[i - 1] + u[i + 1] + u[i - n] + u[i + n] - 4.0 * u[i]);
}
"""
heat = gpuad.kernel(SOURCE, "heat")


@dataclass(frozen=True)
class Machine:
    """Seconds: of a launch with its adjoint, of a cell in them, of a message and of each of its bytes, of a byte that is saved; and how
    many cores there are."""

    launch: float
    cell: float
    latency: float
    byte: float
    copy: float
    cores: float

    def reverse(self, ranks: int, here: bool) -> dict[str, float]:
        """The parts of a program and its reverse on so many ranks, in seconds. `here`: on these cores, which they may have to share."""
        shared = max(1.0, ranks / self.cores) if here else 1.0
        row, cells = COLUMNS * 8, ROWS * COLUMNS / ranks
        sums = 2 * math.log2(ranks) * self.latency + 2 * (ranks - 1) / ranks * COLUMNS * 8 * self.byte if ranks > 1 else 0.0
        return {
            "launches": STEPS * self.launch * shared,
            "cells": STEPS * cells * self.cell * shared,
            "halos": STEPS * 4 * (self.latency + row * self.byte) if ranks > 1 else 0.0,
            "saved": STEPS * cells * 8 * self.copy * shared,
            "all-reduce": sums,
        }


def seconds(run: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    """The median of some runs."""
    took = []
    for _ in range(REPEATS):
        before()
        begin = perf_counter()
        run()
        took.append(perf_counter() - begin)
    return median(took[1:])


def program(comm: Any, rows: int) -> float:
    """Seconds of a recording that is known and its reverse, with so many rows on this rank."""
    shape = rows + 2, COLUMNS
    u, v = Duplicated(np.random.default_rng(1).uniform(size=shape)), Duplicated(np.zeros(shape))
    k, tape = Duplicated(np.full(COLUMNS, 0.5)), Tape()
    grid = (-(-COLUMNS // 32), -(-(rows + 2) // 8))
    last = (u, v)[STEPS % 2]
    seed = np.ones(shape)
    up, down = comm.rank - 1, (comm.rank + 1 if comm.rank < comm.size - 1 else -1)

    def both() -> None:
        a, b = u, v
        with tape:
            comm.replicated(k)
            for _ in range(STEPS):
                for dest, source, out, into in ((up, down, 1, -1), (down, up, -2, 0)):
                    comm.Sendrecv(a[out], dest, 0, a[into], source)
                heat[grid, (32, 8)](b, a, k, rows + 2, COLUMNS)
                a, b = b, a
        tape.reverse({last: seed}, seed_rank="every")

    return seconds(both, comm.Barrier)


def measured(world: Any, pair: Any, alone: Any) -> Machine:
    """The model's numbers: launches and cells from two sizes on one rank, messages from two sizes on two."""
    small, large = (program(alone, rows) / STEPS for rows in (8, ROWS)) if world.rank == 0 else (0.0, 0.0)
    cell = (large - small) / ((ROWS - 8) * COLUMNS)
    buffer, times = np.zeros(1 << 17), []
    for count in (4, 1 << 17):
        x, y = buffer[:count].copy(), buffer[:count].copy()
        if pair is not None:
            turns = 50
            began = perf_counter()
            for _ in range(turns):
                pair.Sendrecv(x, 1 - pair.rank, 0, y, 1 - pair.rank)
            times.append((perf_counter() - began) / turns)
    world.Barrier()  # which leaves the cores to others
    source, target = np.ones(1 << 20), np.empty(1 << 20)
    copy = seconds(lambda: np.copyto(target, source)) / source.nbytes
    latency, byte = (times[0], max(times[1] - times[0], 0.0) / (8 * ((1 << 17) - 4))) if times else (0.0, 0.0)
    cores = float(len(os.sched_getaffinity(0)))
    return world.mpi.bcast(Machine(max(small - 8 * COLUMNS * cell, 0.0), cell, latency, byte, copy, cores), root=0)


def main() -> None:
    """Measures, and prints the model beside 1, 2 and 4 measured ranks."""
    from mpi4py import MPI

    world = gpuad.distributed.wrap(MPI.COMM_WORLD)
    groups = {n: world.Split(0 if world.rank < n else MPI.UNDEFINED) for n in (1, 2, 4) if n <= world.size}
    machine = measured(world, groups.get(2), groups[1])
    if len(sys.argv) > 2:
        machine = replace(machine, latency=float(sys.argv[1]), byte=1 / float(sys.argv[2]))
    seen: dict[int, float] = {}
    for n, comm in groups.items():
        if comm is not None:
            seen[n] = program(comm, ROWS // n)
        world.Barrier()
    if world.rank:
        return
    print(machine)
    print(f"{'ranks':>6} {'measured':>10} {'model':>10}   parts in ms")
    for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        parts = machine.reverse(n, n in seen)
        took = f"{1e3 * seen[n]:8.2f}ms" if n in seen else ""
        print(f"{n:6} {took:>10} {1e3 * sum(parts.values()):8.2f}ms   " + ", ".join(f"{name} {1e3 * t:.3f}" for name, t in parts.items()))


if __name__ == "__main__":
    main()

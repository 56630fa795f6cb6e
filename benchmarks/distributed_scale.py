"""`mpiexec -n 4 python -m benchmarks.distributed_scale`: what a program with halos and its reverse cost on 2 to 1,024 ranks.

A plate of `ROWS` by `COLUMNS` cells in strips, `STEPS` steps of heat conduction with a nonlinear material, a halo of one row each way and
step, a gradient with respect to a map that all ranks share, summed in one all-reduce at the end. The model's numbers are all measured
here, each by a program that does nothing else: a step's launch and its adjoint (in itself, and for each cell), a recorded exchange and its
adjoint (what it takes of a rank's own time, what it waits for the other, and for a core where ranks share some), an all-reduce of the map
by two ranks, and copying, which is how the adjoint's checkpoints are saved. So a program and its reverse on P ranks take

    steps x (launch + cells / P x (cell + 8 x copy) + 2 x (exchange + latency + 2 x row x byte)) + all-reduce x log2(P)

Assumptions: ranks have a core or device of their own (beside what is measured here, where there are more ranks than cores, a rank's own
time is as many times longer as ranks share one), all messages are as fast as here within one machine (give a network's LATENCY in seconds
and BANDWIDTH in bytes a second as arguments), nothing overlaps, strips are even, a rank keeps all it saves. It says nothing of congestion,
of jitter, nor of the schedule of a budget, which multiplies the forward's part by its reruns on every rank alike.
With `--machine NAME` it leaves a record in `benchmarks/results`, of which docs/how-to/distributed.md has the table.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated, Tape

from . import records

ROWS, COLUMNS, STEPS = 512, 512, 16
ROUNDS, REPEATS = 5, 7  # rounds through all that is measured, and runs of each piece: the lowest of the rounds' medians counts
SHORT, LONG = 8, 1 << 15  # numbers in a message
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
    """Seconds: of a launch with its adjoint, of a cell in them, of a byte that is saved; of a recorded exchange with its adjoint what a
    rank does, what it waits, each byte, and what it waits more where ranks share a core; of an all-reduce of the map by two ranks. And how
    many cores there are."""

    launch: float
    cell: float
    copy: float
    exchange: float
    latency: float
    byte: float
    crowding: float
    all_reduce: float
    cores: float

    def reverse(self, ranks: int, here: bool) -> dict[str, float]:
        """The parts of a program and its reverse on so many ranks, in seconds. `here`: on these cores, which they may have to share."""
        shared = max(1.0, ranks / self.cores) if here else 1.0
        row, cells = COLUMNS * 8, ROWS * COLUMNS / ranks
        exchange = self.exchange * shared + self.latency + 2 * row * self.byte + (self.crowding if shared > 1 else 0.0)
        return {
            "launches": STEPS * self.launch * shared,
            "cells": STEPS * cells * self.cell * shared,
            "checkpoints": STEPS * cells * 8 * self.copy * shared,
            "halos": STEPS * 2 * exchange if ranks > 1 else 0.0,
            "all-reduce": math.log2(ranks) * self.all_reduce * shared,
        }


def seconds(run: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    """The median of some runs, after a first."""
    run()
    took = []
    for _ in range(REPEATS):
        before()
        begin = perf_counter()
        run()
        took.append(perf_counter() - begin)
    return median(took)


def program(comm: Any, rows: int, *, launches: bool = True, halos: bool = True, columns: int = COLUMNS) -> float:
    """Seconds of a recording that is known and its reverse, with so many rows on this rank. One rank that sends sends to itself."""
    shape = rows + 2, columns
    u, v = Duplicated(np.random.default_rng(1).uniform(size=shape)), Duplicated(np.zeros(shape))
    k, tape = Duplicated(np.full(columns, 0.5)), Tape()
    grid = (-(-columns // 32), -(-(rows + 2) // 8))
    last = (u, v)[STEPS % 2]
    seed = np.ones(shape)
    up, down = comm.rank - 1, (comm.rank + 1 if comm.rank < comm.size - 1 else -1)
    if comm.size == 1:
        up = down = 0

    def both() -> None:
        a, b = u, v
        with tape:
            if launches:
                comm.replicated(k)
            for _ in range(STEPS):
                for dest, source, out, into in ((up, down, 1, -1), (down, up, -2, 0)) if halos else ():
                    comm.Sendrecv(a[out], dest, 0, a[into], source)
                if launches:
                    heat[grid, (32, 8)](b, a, k, rows + 2, columns)
                    a, b = b, a
        tape.reverse({last: seed}, seed_rank="every")

    return seconds(both, comm.Barrier)


def timings(world: Any, groups: dict[int, Any]) -> dict[str, float]:
    """Seconds of what the model's numbers are made of, and of the whole program on 1, 2 and 4 ranks; of one round, as rank 0 saw it."""
    alone, pair = groups[1], groups.get(2)
    plain, moved = np.ones(1 << 20), np.empty(1 << 20)
    x, y = np.ones(COLUMNS), np.empty(COLUMNS)
    pieces = {
        "small": (alone, lambda: program(alone, 8, halos=False)),
        "copy": (alone, lambda: seconds(lambda: np.copyto(moved, plain))),
        "quiet": (alone, lambda: program(alone, ROWS // 4, halos=False)),
        "talking": (alone, lambda: program(alone, ROWS // 4)),
        "own": (alone, lambda: program(alone, 8, launches=False, columns=SHORT)),
        "short": (pair, lambda: program(pair, 8, launches=False, columns=SHORT)),
        "long": (pair, lambda: program(pair, 8, launches=False, columns=LONG)),
        "crowd": (groups.get(4), lambda: program(groups[4], 8, launches=False, columns=SHORT)),
        "all-reduce": (pair, lambda: seconds(lambda: pair.Allreduce(x, y), pair.Barrier)),
    }
    for n, comm in groups.items():
        pieces[str(n)] = comm, partial(program, comm, ROWS // n, halos=n > 1)
    took = {}
    for name, (comm, piece) in pieces.items():
        if comm is not None:
            took[name] = piece()
        world.Barrier()  # which leaves the cores to the others
    return took


def machine(took: dict[str, float]) -> Machine:
    """The model's numbers. One rank alone: launches and cells from two sizes, copies, what exchanges with itself add to launches. Two:
    what they wait for each other beyond that, from messages of two sizes, and an all-reduce. Four: what they wait for a core."""
    small, large, quiet, talking = (took[name] / STEPS for name in ("small", "1", "quiet", "talking"))
    own, short, long, crowd = (took.get(name, 0.0) / STEPS / 2 for name in ("own", "short", "long", "crowd"))
    cores = float(len(os.sched_getaffinity(0)))
    latency = max(short - own, 0.0)
    cell, copy = (large - small) / ((ROWS - 8) * COLUMNS), took["copy"] / (8 << 20)
    return Machine(
        launch=max(small - 8 * COLUMNS * cell, 0.0),
        cell=max(cell - 8 * copy, 0.0),
        copy=copy,
        exchange=max(talking - quiet, 0.0) / 2,
        latency=latency,
        byte=max(long - short, 0.0) / (2 * 8 * (LONG - SHORT)),
        crowding=max(crowd - own * max(1.0, 4 / cores) - latency, 0.0),
        all_reduce=took.get("all-reduce", 0.0),
        cores=cores,
    )


def main() -> None:
    """Measures, prints the model beside 1, 2 and 4 measured ranks, and writes the record of a machine."""
    from mpi4py import MPI

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("latency", type=float, nargs="?", help="seconds that a message takes")
    parser.add_argument("bandwidth", type=float, nargs="?", help="bytes a second")
    parser.add_argument("--machine", help="what kind of machine this is; with it a record is written")
    chosen = parser.parse_args()
    world = gpuad.distributed.wrap(MPI.COMM_WORLD)
    groups = {n: world.Split(0 if world.rank < n else MPI.UNDEFINED) for n in (1, 2, 4) if n <= world.size}
    rounds = [timings(world, groups) for _ in range(ROUNDS)]
    if world.rank:
        return
    took = {name: min(r[name] for r in rounds) for name in rounds[0]}
    found, seen = machine(took), {n: took[str(n)] for n in groups}
    if chosen.bandwidth:
        found = replace(found, latency=2 * chosen.latency, byte=1 / chosen.bandwidth)  # there and, in the reverse, back
    rows = {n: {"measured_ms": _ms(seen[n]) if n in seen else None} | _model(found, n, n in seen) for n in (2**i for i in range(11))}
    print(found)
    for n, row in rows.items():
        print(f"{n:6} " + ", ".join(f"{name} {value}" for name, value in row.items() if value is not None))
    if chosen.machine:
        record = {"versions": records.versions("mpi4py", "mpich"), "compiler": records.compiler(), "load": records.load()}
        record |= {"numbers": {name: float(f"{x:.3g}") for name, x in asdict(found).items()}, "rows": rows}
        print(records.write("distributed", chosen.machine, records.today(), record).name)


def _model(numbers: Machine, ranks: int, here: bool) -> dict[str, float]:
    parts = numbers.reverse(ranks, here)
    return {"model_ms": _ms(sum(parts.values()))} | {f"{name}_ms": _ms(took) for name, took in parts.items()}


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


if __name__ == "__main__":
    main()

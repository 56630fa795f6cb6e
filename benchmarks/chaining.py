"""What launch fusion brings: each program with its launches joined and with each as it is. `python -m benchmarks.chaining`.

A program is replayed and reversed: by a tape that knows it (where fusion is that of an adjoint with what its launch keeps for it), and as a
graph (where launches that follow each other are joined, too). Of several rounds the least CPU time counts, of all threads together, the two
ways in turns. `python -m benchmarks.chaining --ptx` runs small ones in the interpreter of PTX instead, which counts
launches, instructions and sectors, as if arrays began where sectors do, of a replay and its reversal (NVRTC has to be there; run it with
`PYTHONPATH=.:tests`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.pipeline.modes import nothing_chained_for_tests
from gpuad.tape.replay.graph import Graph
from gpuad.tools.cases import kernel_folder

STEPS, ROUNDS, KNOWN = 8, 15, 4
POINTWISE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n)
extern "C" __global__ void square(double* x, int n) { I x[i] = x[i] * x[i]; }
extern "C" __global__ void shift(double* x, double a, int n) { I x[i] += a; }
extern "C" __global__ void blend(double* y, const double* x, int n) { I y[i] = 0.5 * y[i] * x[i]; }
"""
Program = tuple[Callable[[], None], dict[Duplicated, float], tuple[Any, ...]]  # a round, its seeds, and arrays to be put back before each


def pair(shape: Any, dtype: type = np.float32, low: float = 0.4, high: float = 0.9) -> Duplicated:
    """An array of numbers between two, with its shadow."""
    values = np.random.default_rng(0).uniform(low, high, shape).astype(dtype)
    return Duplicated(values, np.zeros_like(values))


def shipped(name: str) -> Any:
    """A kernel of `kernels/`."""
    return gpuad.kernel(kernel_folder() / f"{name}.cu", name)


def heat(side: int) -> Program:
    """Steps to and fro between two fields."""
    k, u, v = shipped("heat"), pair((side, side)), pair((side, side))

    def run() -> None:
        for t in range(STEPS):
            a, b = (u, v) if t % 2 == 0 else (v, u)
            k[(-(-side // 16), -(-side // 8)), (16, 8)](a, b, np.float32(0.2), side, side)

    return run, {u: 1.0}, (u, v)


def pointwise(side: int) -> Program:
    """Launches that overwrite one array element by element."""
    n = side * side
    x, y = pair(n, np.float64), pair(n, np.float64)
    square, shift, blend = (gpuad.kernel(POINTWISE, name) for name in ("square", "shift", "blend"))
    at = -(-n // 256), 256

    def run() -> None:
        for _ in range(STEPS // 2):
            square[at](x, n)
            shift[at](x, 0.1, n)
            blend[at](y, x, n)

    return run, {y: 1.0}, (x, y)


def gray_scott(side: int) -> Program:
    """Two fields, to and fro."""
    k, at = shipped("gray_scott"), ((-(-side // 16),) * 2, (16, 16))
    fields = [pair((side, side), np.float64) for _ in range(4)]

    def run() -> None:
        for t in range(STEPS):
            a, b = (fields[:2], fields[2:]) if t % 2 == 0 else (fields[2:], fields[:2])
            k[at](*a, *b, 0.035, 0.065, side)

    return run, {fields[0]: 1.0}, tuple(fields)


def lattice_boltzmann(side: int) -> Program:
    """Collision and streaming, to and fro."""
    k, f, g = shipped("lattice_boltzmann"), pair((9, side, side), low=0.09, high=0.13), pair((9, side, side))

    def run() -> None:
        for t in range(STEPS // 2):
            a, b = (f, g) if t % 2 == 0 else (g, f)
            k[(-(-side // 32), side), (32,)](a, b, np.float32(1.2), side, side)

    return run, {f: 1.0}, (f, g)


def adam(side: int) -> Program:
    """Steps of the optimiser, in place."""
    n, k = side * side, shipped("adam")
    arrays = [pair(n, np.float32) for _ in range(4)]

    def run() -> None:
        for t in range(STEPS // 2):
            k[-(-n // 128), 128](*arrays, np.float32(0.01), t + 1, np.uint32(n))

    return run, {arrays[0]: 1.0}, tuple(arrays)


PROGRAMS = {made.__name__: made for made in (heat, pointwise, gray_scott, lattice_boltzmann, adam)}


@dataclass(eq=False)
class Way:
    """A program on a tape of its own, with its launches joined or not."""

    chained: bool
    graph: bool
    program: Program

    def __post_init__(self) -> None:
        self.tape = gpuad.Tape()
        self.made: Graph | None = None
        self.start = [pair.primal.copy() for pair in self.program[2]]

    def _way(self) -> AbstractContextManager[None]:
        return nullcontext() if self.chained else nothing_chained_for_tests()

    def round(self) -> None:
        """A replay and its reversal."""
        run, seeds, arrays = self.program
        for held, start in zip(arrays, self.start, strict=True):
            held.primal[...] = start
            held.shadow.fill(0)
        with self._way():
            if self.made is not None:
                self.made.launch()
                return
            with self.tape:
                run()
            self.tape.reverse(seeds)

    def known(self) -> Way:
        """The same, once the program is known."""
        for _ in range(KNOWN):
            self.round()
        if self.graph:
            with self._way():
                with self.tape:
                    self.program[0]()
                self.made = self.tape.graph(self.program[1])
            self.round()
        return self


def timed(side: int = 1024) -> None:
    """Prints CPU times of each program, in milliseconds a round, joined and apart."""
    print(f"{'program':20}{'by':8}{'joined ms':>12}{'apart ms':>12}{'joined/apart':>14}")
    for (name, made), graph in product(PROGRAMS.items(), (False, True)):
        ways = [Way(chained, graph, made(side)).known() for chained in (True, False)]
        spent: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(ROUNDS):
            for way in ways:
                begin = time.process_time()
                way.round()
                spent[way.chained].append((time.process_time() - begin) * 1e3)
        joined, apart = min(spent[True]), min(spent[False])
        print(f"{name:20}{'graph' if graph else 'tape':8}{joined:12.1f}{apart:12.1f}{joined / apart:14.2f}", flush=True)


def interpreted(side: int = 32) -> None:
    """Prints counts of each program in the interpreter of PTX, joined and apart."""
    import ptx_executor
    from ptx.launch import TALLY

    print(f"{'program':20}{'by':8}{'':8}{'launches':>10}{'instructions':>14}{'sectors':>10}")
    for (name, made), graph, chained in product(PROGRAMS.items(), (False, True), (True, False)):
        device = ptx_executor.Ptx("-fmad=false", "-ftz=false")
        with pipeline.executor_for_tests(device):
            way = Way(chained, graph, made(side)).known()
            TALLY.clear()
            TALLY.traffic, before = True, device.launches
            way.round()
            TALLY.traffic = False
        words = f"{name:20}{'graph' if graph else 'tape':8}{'joined' if chained else 'apart':8}"
        print(f"{words}{device.launches - before:10}{TALLY.instructions:14}{TALLY.least_sectors:10}", flush=True)


if __name__ == "__main__":
    interpreted() if "--ptx" in sys.argv else timed()

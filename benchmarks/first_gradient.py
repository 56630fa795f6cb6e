"""`python -m benchmarks.first_gradient [STEPS]`: what the first gradient of a program costs whose launches take the step's number.

A wave with a source and a receiver, a recurrence that writes a row a step, and Adam with its step count. Each has it as an argument,
and views or a float in its place, which is what it may cost at most twice. Each way runs in a process of its own, in turns, after a
program of two steps that compiles the kernels; seconds are of the processor, and the lower of several.

With `--processes`: what a new process takes for a program that an earlier one has recorded, the making of its kernels included, beside what
that one took for the first time and for the second (with new arrays and a new tape). The cache on disk is empty before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import gpuad
from gpuad import Duplicated
from gpuad.runtime import disk_cache
from gpuad.tools.demo import gray_scott
from gpuad.tools.demo import wave as plate

from . import tape as launches

N = 1000
RUNS = 3
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
WAVE = """extern "C" __global__ void wave(double* p, const double* u, const double* wavelet, double* trace, double c, NUMBER int n) {
    I if (i > 0 && i < n - 1) {
        double v = 2 * u[i] - p[i] + c * (u[i - 1] - 2 * u[i] + u[i + 1]);
        if (i == n / 2) v += wavelet[AT];
        p[i] = v;
        if (i == 3) trace[AT] = v;
    }
}"""
ROWS = """extern "C" __global__ void rows(double* h, const double* x, NUMBER int n) {
    I if (i < n) h[AT * n + n + i] = sin(h[AT * n + i]) * x[i];
}"""
ADAM = """extern "C" __global__ void adam(double* p, double* m, double* v, const double* g, NUMBER int n) {
    I if (i < n) {
        double slope = g[i] * p[i];
        m[i] = 0.9 * m[i] + 0.1 * slope;
        v[i] = 0.999 * v[i] + 0.001 * slope * slope;
        p[i] -= 0.001 * (m[i] / (1 - pow(0.9, (double)AT))) / (sqrt(v[i] / (1 - pow(0.999, (double)AT))) + 1e-8);
    }
}"""
Program = Callable[[int], dict[Duplicated, Any]]


def kernel(text: str, number: str, at: str) -> Any:
    """A kernel whose step is called `at`, by a parameter `number`."""
    name = text.split("void ")[1].split("(")[0]
    return gpuad.kernel(text.replace("NUMBER", number).replace("AT", at).replace("I if", f"{HEAD} if"), name)


def wave(*, views: bool) -> Program:
    launch = (kernel(WAVE, "", "0") if views else kernel(WAVE, "int it,", "it"))[8, 128]

    def program(steps: int) -> dict[Duplicated, Any]:
        p, u, source, trace = (Duplicated(np.zeros(size)) for size in (N, N, steps, steps))
        source.primal[...] = np.sin(0.3 * np.arange(steps))
        for it in range(steps):
            launch(p, u, source[it : it + 1], trace[it : it + 1], 0.1, N) if views else launch(p, u, source, trace, 0.1, it, N)
            p, u = u, p
        return {trace: np.ones(steps)}

    return program


def rows(*, views: bool) -> Program:
    launch = (kernel(ROWS, "", "0") if views else kernel(ROWS, "int it,", "it"))[8, 128]

    def program(steps: int) -> dict[Duplicated, Any]:
        h, x = Duplicated(np.full((steps + 1, N), 0.5)), Duplicated(np.full(N, 1.1))
        for it in range(steps):
            launch(h[it : it + 2], x, N) if views else launch(h, x, it, N)
        return {h: np.ones((steps + 1, N))}

    return program


def adam(*, views: bool) -> Program:
    launch = (kernel(ADAM, "double it,", "it") if views else kernel(ADAM, "int it,", "it"))[8, 128]

    def program(steps: int) -> dict[Duplicated, Any]:
        p, g = Duplicated(np.full(N, 0.7)), Duplicated(np.full(N, 0.2))
        m, v = Duplicated(np.zeros(N)), Duplicated(np.zeros(N))
        for it in range(1, steps + 1):
            launch(p, m, v, g, float(it) if views else it, N)
        return {p: np.ones(N)}

    return program


PROGRAMS = {"wave": wave, "rows": rows, "adam": adam}

STAGGERED = """
#define CELL int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, \\
    z = blockIdx.z * blockDim.z + threadIdx.z, i = (z * n + y) * n + x
extern "C" __global__ void update_v(float* vx, float* vy, float* vz, const float* p, const float* light, float dt, int n) {
    CELL;
    if (x >= n - 1 || y >= n - 1 || z >= n - 1) return;
    vx[i] -= dt * light[i] * (p[i + 1] - p[i]);
    vy[i] -= dt * light[i] * (p[i + n] - p[i]);
    vz[i] -= dt * light[i] * (p[i + n * n] - p[i]);
}
extern "C" __global__ void update_p(float* p, const float* vx, const float* vy, const float* vz, const float* c, const float* wavelet,
                                    float* trace, float dt, int it, int n) {
    CELL;
    if (x < 1 || y < 1 || z < 1 || x >= n || y >= n || z >= n) return;
    float div = vx[i] - vx[i - 1] + vy[i] - vy[i - n] + vz[i] - vz[i - n * n];
    float q = p[i] - dt * c[i] * c[i] * div;
    if (x == n / 2 && y == n / 2 && z == n / 2) q += wavelet[it];
    p[i] = q;
    if (x == 3 && y == n / 2 && z == n / 2) trace[it] = q;
}
"""


def staggered(steps: int = 120, n: int = 16) -> None:
    """A wave on a staggered grid in three dimensions, of six arrays."""
    update_v, update_p = (gpuad.kernel(STAGGERED, name)[(1, n // 4, n // 4), (n, 4, 4)] for name in ("update_v", "update_p"))
    p, vx, vy, vz = (Duplicated(np.zeros(n**3, np.float32)) for _ in range(4))
    light, c = (Duplicated(np.ones(n**3, np.float32)) for _ in range(2))
    wavelet, trace = Duplicated(np.sin(0.3 * np.arange(steps)).astype(np.float32)), Duplicated(np.zeros(steps, np.float32))
    with gpuad.Tape() as tape:
        for it in range(steps):
            update_v(vx, vy, vz, p, light, 0.1, n)
            update_p(p, vx, vy, vz, c, wavelet, trace, 0.1, it, n)
    tape.reverse({trace: np.ones(steps, np.float32)})


def demo_wave() -> None:
    """One gradient of `gpuad demo --program wave`."""
    setting = plate.Setting()
    plate.Simulation(setting, np).gradient(plate.true_map(setting), np.float32(0))


def demo_gray_scott() -> None:
    """One gradient of `gpuad demo`."""
    setting = gray_scott.Setting()
    gray_scott.Simulation(setting, np).gradient(gray_scott.true_seeds(setting), (np.float32(0), np.float32(0)))


def launched(name: str, length: int = 1000) -> Callable[[], None]:
    """A program of `benchmarks.tape`."""

    def run() -> None:
        step, seeds = launches.PROGRAMS[name]()
        with gpuad.Tape() as tape:
            for t in range(length):
                step(t)
        tape.reverse(seeds)

    return run


KNOWN: dict[str, Callable[[], None]] = {
    "demo wave": demo_wave,
    "demo gray-scott": demo_gray_scott,
    "staggered": staggered,
    **{f"tape {name}": launched(name) for name in launches.PROGRAMS},
}


def seconds(name: str, steps: int, *, views: bool) -> tuple[float, float]:
    """Of the processor, for the first gradient with so many steps and for the second, in this process."""
    program = PROGRAMS[name](views=views)

    def once(length: int) -> float:
        start = time.process_time()
        with gpuad.Tape() as tape:
            seeds = program(length)
        tape.reverse(seeds)
        return time.process_time() - start

    once(2)
    return once(steps), once(steps)


def in_a_process(name: str, steps: int, way: str) -> tuple[float, float]:
    """The same by a process of its own."""
    ask = [sys.executable, "-m", "benchmarks.first_gradient", str(steps), "--only", f"{name}:{way}"]
    done = subprocess.run(ask, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    first, second = json.loads(done.stdout.splitlines()[-1])
    return first, second


def twice(name: str) -> tuple[float, float]:
    """Seconds of the processor for a program's first gradient and its second, in this process."""
    _ = gpuad.Tape, gpuad.autodiff  # imported before
    found = []
    for _ in range(2):
        start = time.process_time()
        KNOWN[name]()
        found.append(time.process_time() - start)
    return found[0], found[1]


def processes() -> None:
    """Prints a row for each program: with an empty cache, and by a process that begins with what an earlier one has left."""
    print(f"{'program':16} {'first, s':>9} {'second, s':>9} {'new process, s':>14} {'ratio':>6}")
    for name in KNOWN:
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, disk_cache.VARIABLE: cache}
            ask = [sys.executable, "-m", "benchmarks.first_gradient", "--known", name]
            runs = []
            for _ in range(1 + RUNS):
                done = subprocess.run(ask, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1], env=environment)
                runs.append(json.loads(done.stdout.splitlines()[-1]))
        (first, second), new = runs[0], min(run[0] for run in runs[1:])
        print(f"{name:16} {first:9.3f} {second:9.3f} {new:14.3f} {new / second:6.2f}")


def main(
    steps: Annotated[list[int] | None, typer.Argument()] = None,
    only: str = "",
    known: str = "",
    processes_: Annotated[bool, typer.Option("--processes")] = False,
) -> None:
    """Prints a row for each program and length."""
    lengths = steps or [120, 1000]
    if known:
        print(json.dumps(twice(known)))
        return
    if processes_:
        processes()
        return
    if only:
        name, way = only.split(":")
        print(json.dumps(seconds(name, lengths[0], views=way == "views")))
        return
    print(f"{'program':8} {'steps':>6} {'number, s':>10} {'views, s':>10} {'ratio':>6} {'second, s':>10}")
    for name in PROGRAMS:
        for length in lengths:
            found = [[in_a_process(name, length, way) for way in ("number", "views")] for _ in range(RUNS)]
            number, views = (min(run[k][0] for run in found) for k in (0, 1))
            again = min(run[0][1] for run in found)
            print(f"{name:8} {length:6} {number:10.3f} {views:10.3f} {number / views:6.2f} {again:10.3f}")


if __name__ == "__main__":
    typer.run(main)

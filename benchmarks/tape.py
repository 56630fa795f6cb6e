"""What recording costs: a launch on a tape against the launch alone, and its reverse, in programs of different lengths.

Run `python -m benchmarks.tape` (with `--profile` for where the time goes). The kernel does next to nothing on 64 elements, so what is
measured is the host's work. Four unchanged arguments are the common case, and so is a pair that is swapped at each step.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated
from gpuad.launching import executor_of

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void accumulate(double* y, const double* x, double a, int n) { I; if (i < n) y[i] += a * x[i]; }
extern "C" __global__ void advance(double* v, const double* u, double a, int n) {
    I; if (i > 0 && i < n - 1) v[i] = u[i] + a * u[i] * u[i - 1];
}
extern "C" __global__ void sample(double* out, const double* u, int at) { if (threadIdx.x == 0) out[0] = u[at]; }
"""
N = 64
LENGTHS = (100, 1000, 10_000)
Step = Callable[[int], None]


def unchanged() -> tuple[Step, dict[Duplicated, float]]:
    """The same call again and again; nothing is saved."""
    y, x = _pair(), _pair()
    launch = gpuad.kernel(SOURCE, "accumulate")[1, N]
    return lambda _: launch(y, x, 0.1, N), {y: 1.0}


def swapped() -> tuple[Step, dict[Duplicated, float]]:
    """Two fields that change their roles; a field is saved at each step."""
    fields = _pair(), _pair()
    launch = gpuad.kernel(SOURCE, "advance")[1, N]
    return lambda t: launch(fields[t % 2], fields[1 - t % 2], 1e-3, N), {fields[0]: 1.0}


def sampled() -> tuple[Step, dict[Duplicated, float]]:
    """Each launch writes to its own slice of one array: as many views as launches."""
    u, traces = _pair(), Duplicated(np.zeros((max(LENGTHS), 1)), np.zeros((max(LENGTHS), 1)))
    rows = [traces[t] for t in range(max(LENGTHS))]
    launch = gpuad.kernel(SOURCE, "sample")[1, 32]
    return lambda t: launch(rows[t], u, 5), {traces: 1.0}


PROGRAMS = {"unchanged": unchanged, "swapped": swapped, "sampled": sampled}


def _pair() -> Duplicated:
    return Duplicated(np.full(N, 0.5), np.zeros(N))


def bare(calls: int = 1000) -> float:
    """Seconds for a launch that is not recorded, the median."""
    y, x = np.zeros(N), np.ones(N)
    launch = gpuad.kernel(SOURCE, "accumulate")[1, N]
    return _median(lambda _: launch(y, x, 0.1, N), calls)


def _median(step: Step, calls: int) -> float:
    times = []
    for t in range(calls):
        begin = time.perf_counter()
        step(t)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(name: str, length: int) -> dict[str, Any]:
    """One program of `length` launches, three times on one tape; the figures of the last: microseconds for a launch (median of the last
    1000) and for its reverse (mean), bytes, new arrays of the executor."""
    step, seeds = PROGRAMS[name]()
    tape = gpuad.Tape()
    executor = executor_of("numpy")
    made: list[int] = []
    zeros = executor.zeros

    def counting(size: int, dtype: Any) -> Any:
        made.append(size)
        return zeros(size, dtype)

    row: dict[str, Any] = {}
    for _ in range(3):
        made.clear()
        executor.zeros = counting  # type: ignore[method-assign]
        begin = time.perf_counter()
        with tape:
            for t in range(max(length - 1000, 0)):
                step(t)
            launch = _median(step, min(length, 1000))
            before_exit = time.perf_counter()
        recorded = time.perf_counter()
        tape.reverse(seeds)  # type: ignore[arg-type]
        end = time.perf_counter()
        executor.zeros = zeros  # type: ignore[method-assign]
        row = {
            "launch_us": launch * 1e6,
            "record_us": (before_exit - begin) / length * 1e6,
            "exit_ms": (recorded - before_exit) * 1e3,
            "reverse_us": (end - recorded) / length * 1e6,
            "saved_bytes": tape.stats.saved_bytes,
            "arena_bytes": tape.stats.arena_bytes,
            "new_arrays": len(made),
        }
    return row


def watch(sizes: tuple[int, ...] = (1 << 20, 1 << 24, 1 << 27)) -> dict[int, float]:
    """Milliseconds to mark an array of so many bytes at the end of a recording and to check it before the reverse, together."""
    found = {}
    for nbytes in sizes:
        n = nbytes // 8
        x, y = Duplicated(np.ones(n), np.zeros(n)), Duplicated(np.zeros(n), np.zeros(n))
        launch = gpuad.kernel(SOURCE, "advance")[-(-n // 256), 256]
        tape = gpuad.Tape()
        with tape:
            launch(y, x, 0.1, n)
        assert tape._watch is not None
        begin = time.perf_counter()
        type(tape._watch).of(tape.allocations.values(), False)
        tape._watch.check()
        found[nbytes] = (time.perf_counter() - begin) * 1e3
    return found


def main() -> None:
    """Prints the table."""
    alone = bare() * 1e6
    print(f"a launch that is not recorded: {alone:.1f} us")
    columns = ("launch_us", "record_us", "reverse_us", "exit_ms", "saved_bytes", "arena_bytes", "new_arrays")
    print(f"{'program':<12}{'length':>8}" + "".join(f"{c:>14}" for c in columns))
    for name in PROGRAMS:
        for length in LENGTHS:
            row = measure(name, length)
            print(f"{name:<12}{length:>8}" + "".join(f"{row[c]:>14.1f}" if isinstance(row[c], float) else f"{row[c]:>14}" for c in columns))
    for nbytes, spent in watch().items():
        print(f"watching {nbytes >> 20} MiB: {spent:.1f} ms")
    if "--profile" in sys.argv:
        profile(10_000)


def profile(length: int) -> None:
    """Where the time of each program goes."""
    for name in PROGRAMS:
        step, seeds = PROGRAMS[name]()
        tape = gpuad.Tape()
        for part in ("record", "reverse"):
            profiler = cProfile.Profile()
            with profiler:
                if part == "record":
                    with tape:
                        for t in range(length):
                            step(t)
                else:
                    tape.reverse(seeds)  # type: ignore[arg-type]
            print(f"\n{name}: {part}")
            pstats.Stats(profiler).sort_stats("tottime").print_stats(14)


if __name__ == "__main__":
    main()

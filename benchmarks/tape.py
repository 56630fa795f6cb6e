"""What the host does for a launch: alone, recorded and reversed for the first time and again, and run again by a graph.

Run `python -m benchmarks.tape` (with `--profile` for where the time goes, with `--machine NAME` for a JSON record). The kernels do next to
nothing on 64 elements, so what is measured is the host's work, the call of the compiled kernel included. Four unchanged arguments are the
common case, and so is a pair that is swapped at each step. Each figure is the lower of several medians.
"""

from __future__ import annotations

import cProfile
import gc
import os
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated, api
from gpuad.pipeline import executor_of
from gpuad.runtime.base import Memory
from gpuad.tape.facade import recording_of

from . import records

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


REQUIRED = {"recorded_and_reversed_us": 10.0, "graph_us": 3.0, "bare_us": 15.0}  # of a launch with four unchanged arguments


def bare(calls: int = 1000) -> float:
    """Microseconds for a launch that is not recorded."""
    y, x = np.zeros(N), np.ones(N)
    launch = gpuad.kernel(SOURCE, "accumulate")[1, N]
    return _median(lambda _: launch(y, x, 0.1, N), calls) * 1e6


def prepared(calls: int = 1000) -> float:
    """Microseconds of the compiled kernel itself, called with arguments that are packed."""
    kernel = api.kernel(SOURCE, "accumulate").primal()
    given = [Memory(np.zeros(N)), Memory(np.ones(N)), np.float64(0.1), np.int32(N)]
    run = executor_of("numpy").prepared(kernel, (1, 1, 1), (N, 1, 1), given)
    return _median(lambda _: run(), calls) * 1e6


def _median(step: Step, calls: int, rounds: int = 3) -> float:
    return min(statistics.median(_times(step, calls)) for _ in range(rounds))


def _times(step: Step, calls: int) -> list[float]:
    times = []
    for t in range(calls):
        begin = time.perf_counter()
        step(t)
        times.append(time.perf_counter() - begin)
    return times


def measure(name: str, length: int, rounds: int = 7) -> dict[str, Any]:
    """One program of `length` launches, recorded and reversed on one tape again and again, and by a graph. Microseconds a launch: of the
    first recording and reverse, of later ones (`launch_us`: median of the last 1000 launches; `record_us`: mean of all, with entering and
    leaving), of a graph; bytes, and new arrays of the executor in the last round."""
    step, seeds = PROGRAMS[name]()
    tape, executor = gpuad.Tape(), executor_of("numpy")
    made: list[int] = []
    rows: list[dict[str, float]] = []
    with _counted(executor, made):
        for _ in range(rounds):
            made.clear()
            rows.append(_round(tape, step, seeds, length))
    first, later = rows[0], rows[1:]
    found = {f"first_{k}": first[k] for k in ("record_us", "reverse_us")} | {k: min(r[k] for r in later) for k in first}
    found["recorded_and_reversed_us"] = found["launch_us"] + found["reverse_us"]
    found["graph_us"] = graph(tape, seeds) / length
    return {**found, "saved_bytes": tape.stats.saved_bytes, "arena_bytes": tape.stats.arena_bytes, "new_arrays": len(made)}


def graph(tape: Any, seeds: Any) -> float:
    """Microseconds of a graph of what the tape has recorded."""
    made = tape.graph(seeds)
    return _median(lambda _: made.launch(), 20) * 1e6


@contextmanager
def _counted(executor: Any, made: list[int]) -> Iterator[None]:
    """Within it sizes of new arrays are noted."""
    zeros = executor.zeros

    def counting(size: int, dtype: Any) -> Any:
        made.append(size)
        return zeros(size, dtype)

    executor.zeros = counting
    try:
        yield
    finally:
        executor.zeros = zeros


def _round(tape: Any, step: Step, seeds: Any, length: int) -> dict[str, float]:
    gc.collect()
    begin = time.perf_counter()
    with tape:
        for t in range(max(length - 1000, 0)):
            step(t)
        launch = statistics.median(_times(step, min(length, 1000)))
        before_exit = time.perf_counter()
    recorded = time.perf_counter()
    tape.reverse(seeds)
    end = time.perf_counter()
    return {
        "launch_us": launch * 1e6,
        "record_us": (recorded - begin) / length * 1e6,
        "reverse_us": (end - recorded) / length * 1e6,
        "exit_ms": (recorded - before_exit) * 1e3,
    }


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
        assert recording_of(tape)._watch is not None
        begin = time.perf_counter()
        type(recording_of(tape)._watch).of(recording_of(tape).allocations.values(), False)
        recording_of(tape)._watch.check()
        found[nbytes] = (time.perf_counter() - begin) * 1e3
    return found


def measured(lengths: Sequence[int] = LENGTHS) -> dict[str, Any]:
    """All figures."""
    return {
        "versions": {**records.versions(), "compiler": records.compiler()},
        "cores": os.cpu_count(),
        "load": records.load(),
        "bare_us": bare(),
        "prepared_us": prepared(),
        "required": REQUIRED,
        "programs": {name: {str(length): measure(name, length) for length in lengths} for name in PROGRAMS},
        "watching_ms": {str(nbytes): spent for nbytes, spent in watch().items()},
    }


def show(record: dict[str, Any]) -> None:
    """Prints the record."""
    print(f"a launch that is not recorded: {record['bare_us']:.1f} us; the compiled kernel alone: {record['prepared_us']:.2f} us")
    columns = (
        "first_record_us", "first_reverse_us", "launch_us", "record_us", "reverse_us", "graph_us", "exit_ms", "saved_bytes", "arena_bytes",
        "new_arrays",
    )  # fmt: skip
    print(f"{'program':<12}{'length':>8}" + "".join(f"{c:>18}" for c in columns))
    for name, rows in record["programs"].items():
        for length, row in rows.items():
            print(f"{name:<12}{length:>8}" + "".join(f"{row[c]:>18.2f}" if isinstance(row[c], float) else f"{row[c]:>18}" for c in columns))
    for nbytes, spent in record["watching_ms"].items():
        print(f"watching {int(nbytes) >> 20} MiB: {spent:.1f} ms")
    row = record["programs"]["unchanged"]["1000"]
    for name, wanted in REQUIRED.items():
        value = record.get(name, row.get(name))
        print(f"{name}: {value:.2f}, wanted {wanted:.0f}" + ("" if value <= wanted else ": missed"))
    if record["load"] > 0.5:
        print(f"the machine was busy (load {record['load']:.1f} before the start): the figures are upper bounds")


def main() -> None:
    """Prints the table."""
    if "--profile" in sys.argv:
        profile(10_000)
        return
    record = measured()
    show(record)
    if "--machine" in sys.argv:
        print(f"record: {records.write('tape', sys.argv[sys.argv.index('--machine') + 1], records.today(), record).name}")


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
                    tape.reverse(seeds)
            print(f"\n{name}: {part}")
            pstats.Stats(profiler).sort_stats("tottime").print_stats(14)


if __name__ == "__main__":
    main()

"""What runs on the GPU, a process for each task: `python -m benchmarks.device about`, `case NAME BYTES`, `sweep [NAME ...]`; prints one
line of JSON.

A kernel that faults or hangs takes its process with it and nothing else, and each case starts with an empty memory pool. `cases` answers
requests, one a line, until there are no more: to begin a process takes longer than to measure most cases.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpuad.tools.cases import Case, all_cases

from . import cpu, measure, records, sizes
from .cpu import Record
from .measure import Effort, Pieces
from .workload import Workload, workload

EFFORT = Effort(rounds=3, repeats=15, seconds=10.0)
COPY_BYTES = 1 << 30
PARTS = (1, 16, 256)  # of the size: the next is tried where memory does not suffice


def missing() -> str | None:
    """Why there is no GPU to measure, or None."""
    try:
        count = importlib.import_module("cupy").cuda.runtime.getDeviceCount()
    except Exception as error:  # a missing package, driver or device: each says so itself
        return f"{type(error).__name__}: {error}"
    return None if count else "no GPU enumerates"


# --- the device ----------------------------------------------------------------------------------------------------------------------


def about(cupy: Any, copied: int = COPY_BYTES) -> Record:
    """The device and its software, and how fast it copies (bytes read and written per second)."""
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "name": _text(properties["name"]),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "multiprocessors": properties["multiProcessorCount"],
        "memory_bytes": properties["totalGlobalMem"],
        "cuda_driver": _dotted(runtime.driverGetVersion()),
        "cuda_runtime": _dotted(runtime.runtimeGetVersion()),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "cupy": cupy.__version__,
        **_monitored(),
        "copy_gb_s": round(copy_rate(cupy, copied) / 1e9, 1),
    }


def copy_rate(cupy: Any, size: int) -> float:
    """Bytes a second, read and written, of a copy from device memory to device memory."""
    source, target = cupy.zeros(size, "uint8"), cupy.zeros(size, "uint8")

    def copy() -> None:
        target[...] = source

    times = measure.lower_medians(lambda: {"copy": elapsed(cupy, copy)}, EFFORT)
    return 2 * size / times["copy"]


def elapsed(cupy: Any, run: Callable[[], object]) -> float:
    """Seconds on the device from the start of `run`'s work to its end, by events on the current stream."""
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) / 1e3


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _monitored() -> Record:
    """What the driver's monitor says: its version, clock, temperature, and whether others use the device; without what it does not know, or
    may not say in a container, and nothing without the package."""
    found: Record = {}
    with contextlib.suppress(Exception):  # the monitor is a nicety: a machine without it is measured as well
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        questions: dict[str, Callable[[], Any]] = {
            "driver": lambda: _text(nvml.nvmlSystemGetDriverVersion()),
            "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "other_processes": lambda: max(0, len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)) - 1),
        }
        for name, ask in questions.items():
            with contextlib.suppress(Exception):
                found[name] = ask()
    return found


# --- a case --------------------------------------------------------------------------------------------------------------------------


def case_record(cupy: Any, case: Case, budget: sizes.Budget, effort: Effort = EFFORT) -> Record:
    """One case at the largest size that fits the device."""
    for part in PARTS:
        limit = _part(case, budget, part)
        try:
            return {**_measured(cupy, workload(case, cupy, sizes.fitting(case, limit)), effort), "part": part}
        except cupy.cuda.memory.OutOfMemoryError as error:
            last = records.failure(error)
        cupy.get_default_memory_pool().free_all_blocks()
    return last


def _part(case: Case, budget: sizes.Budget, part: int) -> sizes.Budget:
    whole = sizes.argument_bytes(case, sizes.fitting(case, budget))
    return replace(budget, bytes=whole // part)


def _measured(cupy: Any, work: Workload, effort: Effort) -> Record:
    clock = functools.partial(elapsed, cupy)
    states: list[Any] = []

    def repetition() -> Pieces:
        states.clear()  # before the next state is made: memory for one is enough
        work.restore()
        primal = clock(work.bare)
        work.restore()
        saving = clock(lambda: states.append(work.save()))
        forward = clock(lambda: work.forward(states[0]))
        return {"primal": primal, "forward": saving + forward, "reverse": clock(lambda: work.reverse(states[0]))}

    times = measure.lower_medians(repetition, effort)
    executor: Any = work.call.executor
    return {
        "sizes": work.case.resolve(work.sizes),
        **cpu.figures(work, states[0], times),
        "kernels": {k.name: attributes(executor.function(k)) for k in work.generated},
        "pool_bytes": int(cupy.get_default_memory_pool().total_bytes()),
    }


def attributes(function: Any) -> Record:
    """What a compiled kernel needs of a multiprocessor."""
    return {
        "registers": int(function.num_regs),
        "local_bytes": int(function.local_size_bytes),
        "shared_bytes": int(function.shared_size_bytes),
        "max_threads": int(function.max_threads_per_block),
    }


# --- every kernel once ---------------------------------------------------------------------------------------------------------------


def sweep(cupy: Any, names: Sequence[str] = ()) -> Record:
    """Runs every generated kernel of these cases, or of all, once at the cases' own sizes: something for compute-sanitizer to watch. Memory
    is allocated without a pool, so that an access beyond an array is one beyond its allocation."""
    cupy.cuda.set_allocator(None)
    found: Record = {}
    for case in (c for c in all_cases() if not names or c.id in names):
        try:
            found[case.id] = {"kernels": _once(cupy, case)}
        except Exception as error:  # the others still have to run
            found[case.id] = records.failure(error)
    return found


def _once(cupy: Any, case: Case) -> int:
    work = workload(case, cupy)
    state = work.save()
    work.forward(state)
    work.reverse(state)
    cupy.cuda.Device().synchronize()
    return len(list(work.generated))


def named_record(cupy: Any, name: str, limit: int) -> Record:
    """A case by its name. `limit`: most bytes of arguments, 0 for the whole size."""
    (chosen,) = (c for c in all_cases() if c.id == name)
    return case_record(cupy, chosen, sizes.Budget(bytes=limit) if limit else sizes.WHOLE)


def answer(cupy: Any) -> None:
    """Answers requests for cases."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a kernel prints is no answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found = named_record(cupy, request["name"], request["limit"])
        except Exception as error:  # the asker decides what it is worth
            found = records.failure(error)
        answers.write(json.dumps(found) + "\n")
        answers.flush()
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()


def main(words: list[str]) -> None:
    """Runs one task. `case` takes the name and the budget's bytes (0: the whole size)."""
    cupy = importlib.import_module("cupy")
    match words:
        case ["about"]:
            print(json.dumps(about(cupy)))
        case ["sweep", *names]:
            print(json.dumps(sweep(cupy, names)))
        case ["case", name, limit]:
            print(json.dumps(named_record(cupy, name, int(limit))))
        case ["cases"]:
            answer(cupy)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

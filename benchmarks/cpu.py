"""The measurements of the CPU: every case on the host executor, what a launch costs besides its kernel, and the saxpy that must be fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from gpuad import Active, Duplicated, Tape, autodiff, kernel, ops
from gpuad.source import SourceFile
from gpuad.tools.cases import Case, all_cases, read

from . import host_speed, measure, sizes
from .measure import Effort, Pieces
from .workload import Workload, workload

Record: TypeAlias = "dict[str, Any]"

BUDGET = sizes.Budget(bytes=256 << 20, flops=500_000_000, threads=1 << 22)
LONG_ENOUGH = 0.03  # seconds
REQUIRED = 1.5  # reverse over primal of a saxpy of 2^20 float32

SAXPY = """/*gpuad
title = "y += a * x, a thread an element"
[[case]]
kernel = "saxpy"
sizes = {n = 1048576}
grid = ["(n + 255) // 256"]
block = [256]
[case.arguments]
n = {value = "n"}
a = {value = 1.5, active = ACTIVE}
x = {shape = ["n"], init = "normal", active = true}
y = {shape = ["n"], init = "normal", active = true}
[case.benchmark]
bytes = "12 * n"
*/
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""


def chosen(only: Sequence[str] = ()) -> list[Case]:
    """The cases with a benchmark whose name has one of the given words in it; all of them if none is given."""
    return [c for c in all_cases() if c.benchmark is not None and (not only or any(word in c.id for word in only))]


PARTS = (256, 64, 16, 4, 1)


def measured(case: Case, budget: sizes.Budget, effort: Effort, parts: Sequence[int] = PARTS) -> Record:
    """One case: times of primal, forward and reverse, and the memory that the derivative takes."""
    return timed(_large_enough(case, budget, parts), effort)


def _large_enough(case: Case, budget: sizes.Budget, parts: Sequence[int]) -> Workload:
    """The case at the first of these parts of the budget's size whose primal takes long enough to be measured well, or at the last: a
    kernel that computes much for each byte would else run for minutes."""
    for part in parts:
        work = workload(case, np, sizes.fitting(case, budget.part(part)))
        measure.seconds(work.bare)  # compiles
        work.restore()
        if measure.seconds(work.bare) > LONG_ENOUGH:
            break
    work.restore()
    return work


def timed(work: Workload, effort: Effort) -> Record:
    """The record of a workload on NumPy arrays."""
    state = work.save()

    def repetition() -> Pieces:
        nonlocal state
        work.restore()
        primal = measure.seconds(work.bare)
        work.restore()
        saving = measure.seconds(lambda: _keep(work.save()))
        forward = measure.seconds(lambda: work.forward(state))
        return {"primal": primal, "forward": saving + forward, "reverse": measure.seconds(lambda: work.reverse(state))}

    def _keep(new: Any) -> None:
        nonlocal state
        state = new

    times = measure.lower_medians(repetition, effort)
    return {"sizes": work.case.resolve(work.sizes), **figures(work, state, times)}


def figures(work: Workload, state: Any, times: Pieces) -> Record:
    """What is derived from the times (seconds) of the pieces; the state is one that has been reversed."""
    primal, reverse = times["primal"], times["reverse"]
    traffic, reverse_traffic = work.traffic, work.reverse_traffic(state)
    return {
        **{f"{name}_ms": round(value * 1e3, 4) for name, value in times.items()},
        "ratio": round(reverse / primal, 3),
        "traffic_ratio": round(reverse_traffic / traffic, 3),
        "primal_gb_s": round(traffic / primal / 1e9, 2),
        "reverse_gb_s": round(reverse_traffic / reverse / 1e9, 2),
        "primal_bytes": traffic,
        "reverse_bytes": reverse_traffic,
        "saved_bytes": work.saved_bytes(state),
        "scratch_bytes": work.scratch_bytes(state),
        "atomic": [b.name for b in work.atomic],
    }


# --- the required figure -------------------------------------------------------------------------------------------------------------


def saxpy(effort: Effort, n: int = 1 << 20) -> dict[str, Record]:
    """Reverse against primal for saxpy of `n` float32, launch against launch: a thread an element and as a grid-stride loop, with the
    factor constant and active. Each has to be within `REQUIRED`."""
    return {name: {**timed(workload(case, np, {"n": n}), effort), "required": REQUIRED} for name, case in _saxpys()}


def _saxpys() -> Iterator[tuple[str, Case]]:
    (stride,) = (c for c in all_cases() if c.id == "saxpy")
    for active in ("false", "true"):
        words = "a active" if active == "true" else "a constant"
        yield f"an element a thread, {words}", _from_text(SAXPY.replace("ACTIVE", active))
        yield (
            f"grid-stride loop, {words}",
            _from_text(stride.file.text.replace("a = {value = 1.5, active = true}", f"a = {{value = 1.5, active = {active}}}")),
        )


def _from_text(text: str) -> Case:
    (case,) = read(SourceFile("saxpy.cu", text))
    return case


# --- what a launch costs -------------------------------------------------------------------------------------------------------------


_SCALED = """struct Line { float slope, shift; };
extern "C" __global__ void scaled(int n, Line line, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += line.slope * x[i] + line.shift;
}"""


def overhead(effort: Effort, n: int = 256) -> dict[str, float]:
    """Microseconds of a call on arrays that are too small to matter: a plain launch, one with a struct by value, `autodiff` of the first;
    and, recorded and reversed, a launch of a program of 100 and a loss that array operations make."""
    k, scaled = kernel(SAXPY, "saxpy"), kernel(_SCALED, "scaled")
    x, y, dx, dy, da, aim = (np.ones(n, np.float32) for _ in range(6))
    line = np.array((1e-6, 0.0), [("slope", np.float32), ("shift", np.float32)])[()]
    X, Y, tape = Duplicated(x, dx), Duplicated(y, dy), Tape()
    plain, shadowed, given = (n, 1e-6, x, y), (n, Active(1e-6, da[:1]), X, Y), (n, 1e-6, X, Y)

    def program() -> None:
        with tape:
            for _ in range(100):
                k(1, 256, given)
            loss = ops.sum((Y - aim) ** 2)
        tape.reverse({loss: 1.0})

    runs = {
        "launch": lambda: k(1, 256, plain), "launch with a struct": lambda: scaled(1, 256, (n, line, x, y)),
        "autodiff": lambda: autodiff(k, 1, 256, shadowed),
    }  # fmt: skip
    found = measure.alternating(runs, effort, calls=50)
    found["launch in a program with a loss"] = measure.alternating({"program": program}, effort)["program"] / 100
    return {f"{name}_us": round(value * 1e6, 1) for name, value in found.items()}


def by_hand(effort: Effort) -> dict[str, Record]:
    """Generated code on one core against loops written by hand: milliseconds of both, and the share of the hand-written loop's speed."""
    return {
        name: {"by_hand_ms": round(hand, 4), "generated_ms": round(ours, 4), "share": round(hand / ours, 3), "wanted": host_speed.WANTED}
        for name, hand, ours in host_speed.measured(rounds=effort.rounds, repeats=effort.repeats)
    }

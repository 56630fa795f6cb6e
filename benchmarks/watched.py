"""What it costs that nothing is written behind a tape's back: gradients of a program beside those written by hand.

Run `python -m benchmarks.watched` (with `--side`, `--steps`, `--rounds`). The program is recorded on one tape that is used again, on a new
tape each time, and with `check="exact"`, which compares all bytes at each operation. The four take turns, so that a busy machine slows all
of them; each figure is the lower of several medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import gpuad
from gpuad import Tape

from .problems.fisher_kpp import FisherKpp
from .problems.heat import Heat
from .runners.by_hand import ByHand

MEDIANS = 3


def runs(problem: Any, side: int, steps: int) -> dict[str, Callable[[], float]]:
    """What computes the gradient once, in seconds, by kind of tape, and by hand."""
    size = {"side": side, "steps": steps}
    given = problem.inputs(size, np.random.default_rng(0))
    ours, hand = problem.gpuad(size, given, np), ByHand(problem, size, given, "cpu")
    used, exact = Tape(), Tape(check="exact")

    def on(tape: Callable[[], Tape]) -> Callable[[], float]:
        def run() -> float:
            ours.tape = tape()
            return seconds(ours)

        return run

    return {"by hand": lambda: seconds(hand), "used again": on(lambda: used), "new": on(Tape), "exact": on(lambda: exact)}


def seconds(runner: Any) -> float:
    """Of one gradient."""
    runner.prepare()
    begin = time.perf_counter()
    runner.gradient()
    return time.perf_counter() - begin


def measured(kinds: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The lower of several medians, of runs that take turns."""
    for run in kinds.values():
        for _ in range(3):
            run()
    medians: list[dict[str, float]] = []
    for _ in range(MEDIANS):
        times: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(rounds):
            for name, run in kinds.items():
                times[name].append(run())
        medians.append({name: statistics.median(found) for name, found in times.items()})
    return {name: min(median[name] for median in medians) for name in kinds}


def main() -> None:
    """Prints a line for each problem and kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("side", 1024), ("steps", 100), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    print(f"gpuad {gpuad.__version__}, {chosen.side}^2 elements, {chosen.steps} steps")
    for problem in (Heat(), FisherKpp()):
        found = measured(runs(problem, chosen.side, chosen.steps), chosen.rounds)
        for name, value in found.items():
            print(f"{problem.name:12} {name:12} {1e3 * value:9.2f} ms  {value / found['by hand']:5.2f} of the one by hand")


if __name__ == "__main__":
    main()

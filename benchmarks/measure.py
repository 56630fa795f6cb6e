"""Times what is interleaved: one repetition runs every piece once, so that a disturbance of the machine meets all of them.

The number for a piece is the lower of several medians: a median forgets single hiccups, the lower one a bad minute.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

Pieces = Mapping[str, float]


@dataclass(frozen=True)
class Effort:
    """`rounds` medians of `repeats` repetitions each, as far as they fit `seconds`; one repetition always runs."""

    rounds: int = 3
    repeats: int = 7
    seconds: float = 4.0


def lower_medians(repetition: Callable[[], Pieces], effort: Effort) -> dict[str, float]:
    """Seconds of each piece. `repetition` runs and times every piece once; its first run, which may compile, does not count."""
    repetition()
    medians: list[dict[str, float]] = []
    deadline = time.perf_counter() + effort.seconds
    while len(medians) < effort.rounds and (not medians or time.perf_counter() < deadline):
        medians.append(_medians(repetition, effort.repeats, deadline))
    return {name: min(m[name] for m in medians) for name in medians[0]}


def _medians(repetition: Callable[[], Pieces], repeats: int, deadline: float) -> dict[str, float]:
    samples = [repetition()]
    while len(samples) < repeats and time.perf_counter() < deadline:
        samples.append(repetition())
    return {name: statistics.median(s[name] for s in samples) for name in samples[0]}


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def cpu_seconds(run: Callable[[], object]) -> float:
    """CPU time of one call, of all threads."""
    start = time.process_time()
    run()
    return time.process_time() - start


def alternating(runs: Mapping[str, Callable[[], object]], effort: Effort, calls: int = 1) -> dict[str, float]:
    """Seconds of one call of each, measured in turn over `calls` calls at a time."""

    def repetition() -> Pieces:
        return {name: seconds(partial(_several, run, calls)) / calls for name, run in runs.items()}

    return lower_medians(repetition, effort)


def _several(run: Callable[[], object], calls: int) -> None:
    for _ in range(calls):
        run()


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios; 0 of none."""
    return statistics.geometric_mean(values) if values else 0.0

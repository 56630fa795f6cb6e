"""Measures gpuad's adjoints beside those by hand, in one run, in turns: time, bytes, executed atomic additions, and how far apart they are.

Run `python -m benchmarks.adjoints` (minutes; `--only NAME`, `--rounds`, `--repeats`); with `--machine NAME` it leaves a record in
`benchmarks/results`, of which `docs/by-hand.md` has the table. The time of an adjoint is what comes after the primal. Where gpuad's saves
something on the way forward, what the primal takes longer for it is gpuad's too.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from gpuad.tools.cases import Case

from .. import records
from ..measure import Effort, lower_medians, seconds
from ..shown import print_rows
from .operations import made, operations


def measured(case: Case, by_hand: tuple[Case, ...], effort: Effort, *, full: bool = True) -> dict[str, Any]:
    """The row of an operation."""
    operation = made(case, by_hand, full=full)
    found = operation.gradients()
    ours, theirs = operation.atomics()
    operation.put_back()
    state = operation.run_by_gpuad()
    saved, scratch = operation.workload.saved_bytes(state), operation.workload.scratch_bytes(state)
    times = lower_medians(lambda: operation.turns(seconds), effort)
    extra = max(times["forward"] - times["primal"], 0.0) if saved else 0.0
    return {
        "sizes": operation.workload.sizes or {name: size.whole({}) for name, size in case.sizes.items()},
        "primal_ms": round(1e3 * times["primal"], 3),
        "by_hand_ms": round(1e3 * times["by hand"], 3),
        "gpuad_ms": round(1e3 * (times["reverse"] + extra), 3),
        "ratio": round((times["reverse"] + extra) / times["by hand"], 3),
        "by_hand_bytes": operation.own_bytes,
        "gpuad_bytes": saved + scratch,
        "by_hand_atomics": theirs,
        "gpuad_atomics": ours,
        "difference": max(difference(*pair, operation.seeds[name]) for name, pair in found.items()),
    }


def difference(ours: Any, theirs: Any, seed: Any) -> float:
    """The greatest difference over the greatest number."""
    scale = max(float(np.abs(x).max(initial=0.0)) for x in (theirs, seed)) or 1.0
    return float(f"{float(np.abs(ours - theirs).max(initial=0.0)) / scale:.1e}")


def main() -> None:
    """Prints the table, and writes the record of a machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", help="what kind of machine this is; with it a record is written")
    parser.add_argument("--only", nargs="*", default=(), help="operations by the names of their kernels")
    parser.add_argument("--rounds", type=int, default=3, help="medians of which the lower counts")
    parser.add_argument("--repeats", type=int, default=9, help="runs of a median")
    chosen = parser.parse_args()
    effort = Effort(chosen.rounds, chosen.repeats, 12.0)
    rows = {case.kernel: measured(case, by_hand, effort) for case, by_hand in operations() if not chosen.only or case.kernel in chosen.only}
    print_rows("adjoints by gpuad and by hand", "operation", rows)
    if chosen.machine:
        print(records.of_rows("adjoints", chosen.machine, rows).name)


if __name__ == "__main__":
    main()

"""Measures what the gradient of an operation costs in each of its wordings, beside the adjoint by hand, in one run, in turns.

Run `python -m benchmarks.forms` (minutes; `--only NAME`, `--rounds`, `--repeats`); with `--machine NAME` it leaves a record in
`benchmarks/results`, of which `docs/by-hand.md` has the table. The CPU time of an adjoint, of all threads, is that of what comes after the
primal; where gpuad's saves something on the way forward, what the primal takes longer for it is gpuad's too.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from .. import records
from ..measure import Effort, cpu_seconds, lower_medians
from ..shown import print_rows
from .operations import OPERATIONS, arranged, wordings


def measured(operation: str, wording: str, effort: Effort, *, full: bool = True) -> dict[str, Any]:
    """The row of a wording."""
    made = arranged(operation, wording, full=full)
    ours, theirs = made.gradients()["x"]
    atomics, by_hand_atomics = made.atomics()
    saved = made.bytes()
    times = lower_medians(lambda: made.turns(cpu_seconds), effort)
    extra = max(times["forward"] - times["primal"], 0.0) if saved else 0.0
    return {
        "by_hand_ms": round(1e3 * times["by hand"], 3),
        "gpuad_ms": round(1e3 * (times["reverse"] + extra), 3),
        "ratio": round((times["reverse"] + extra) / times["by hand"], 3),
        "gpuad_bytes": saved,
        "by_hand_atomics": by_hand_atomics,
        "gpuad_atomics": atomics,
        "difference": float(f"{np.abs(ours - theirs).max() / np.abs(theirs).max():.1e}"),
    }


def main() -> None:
    """Prints the table, and writes the record of a machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", help="what kind of machine this is; with it a record is written")
    parser.add_argument("--only", nargs="*", default=tuple(OPERATIONS), help="operations by their names")
    parser.add_argument("--rounds", type=int, default=3, help="medians of which the lower counts")
    parser.add_argument("--repeats", type=int, default=5, help="runs of a median")
    chosen = parser.parse_args()
    effort = Effort(chosen.rounds, chosen.repeats, 4.0)
    rows = {f"{operation}: {wording}": measured(operation, wording, effort) for operation in chosen.only for wording in wordings(operation)}
    print_rows("wordings and adjoints by hand", "wording", rows)
    if chosen.machine:
        print(records.of_rows("forms", chosen.machine, rows).name)


if __name__ == "__main__":
    main()

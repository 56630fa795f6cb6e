"""Measures the programs on this machine: `python -m benchmarks.physics` (minutes; `--only NAME`, `--quick`); with `--machine NAME` it
leaves a record in `benchmarks/results`, of which `docs/physics.md` has the table."""

from __future__ import annotations

import argparse

from .. import records
from ..measure import Effort
from ..shown import print_rows
from .programs import programs


def main() -> None:
    """Prints the table, and writes the record of a machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", help="what kind of machine this is; with it a record is written")
    parser.add_argument("--only", nargs="*", default=(), help="programs by their names, as in the first column")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does everything run?")
    chosen = parser.parse_args()
    effort = Effort(1, 1, 0.0) if chosen.quick else Effort(3, 7, 10.0)
    wanted = [p for p in programs(full=not chosen.quick) if not chosen.only or p.name in chosen.only]
    rows = {p.name: {"like": p.like, **p.measured(effort)} for p in wanted}
    print_rows("gradients of physics programs", "program", rows)
    if chosen.machine:
        print(records.of_rows("physics", chosen.machine, rows).name)


if __name__ == "__main__":
    main()

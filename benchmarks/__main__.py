"""`python -m benchmarks`: what a gradient costs on the CPU, in tables, a JSON record and a picture. Status 1 if something is wrong or
cannot be measured, or with --strict if a required figure is missed.

Parts: `table` (problems beside others), `growth`, `saxpy`, `launches`, `product`, `by hand`, `cases` (every case of `kernels/`). Everything
in a part has a name, such as `table heat` or `cases softmax`; `--only` takes what has one of the given words in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import cpu, crew, figures, growth, measure, picture, product, records, shown, sizes, table
from .cpu import Record
from .crew import Hire
from .problems import PROBLEMS

_MIB = 1 << 20


@dataclass(frozen=True)
class Plan:
    """How much is measured, and who works: quickly or in full."""

    effort: measure.Effort
    budget: sizes.Budget
    saxpy: int
    pace: table.Pace
    quick: bool
    hire: Hire = crew.Process


FULL = Plan(measure.Effort(2, 5, 1.5), cpu.BUDGET, 1 << 20, table.Pace(), False)
QUICK = Plan(measure.Effort(1, 2, 0.05), sizes.Budget(1 << 16, 100_000, 1 << 10), 1 << 12, table.QUICK, True)


@dataclass(frozen=True)
class Task:
    """Something to measure: it becomes `record[part][name]`, or `record[part]` where it has no name of its own."""

    part: str
    name: str
    run: Callable[[], Record]

    @property
    def title(self) -> str:
        return f"{self.part} {self.name}".strip()


def command(
    machine: Annotated[str, typer.Option(help="the kind of machine, for the record's name, such as epyc-2-cores")] = "cpu",
    date: Annotated[str | None, typer.Option(help="the date for the record's name; default is today")] = None,
    only: Annotated[list[str] | None, typer.Option(help="measure what has this in its name, such as 'table heat'; may be repeated")] = None,
    quick: Annotated[bool, typer.Option(help="small sizes and few repetitions: does everything run?")] = False,
    strict: Annotated[bool, typer.Option(help="exit with status 1 if a required figure is missed")] = False,
    results: Annotated[Path, typer.Option(help="the folder for the record")] = records.RESULTS,
) -> None:
    """Measures gradients on the CPU, beside other frameworks where they are installed, and writes a record and a picture."""
    chosen = [task for task in tasks(QUICK if quick else FULL) if not only or any(word in task.title for word in only)]
    if not chosen:
        raise typer.BadParameter("nothing has such a name", param_hint="--only")
    record = {"quick": quick, **measured(chosen)}
    path = records.write("cpu", machine, date or records.today(), record, results)
    console = shown.wide_console()
    show(record, console)
    missing = picture.draw(record, path.with_suffix(".png"))
    console.print(f"record: {path.name}; " + (missing or f"picture: {path.stem}.png"), markup=False)
    raise typer.Exit(1 if failed(record) or (strict and missed(record)) else 0)


def tasks(plan: Plan) -> Iterator[Task]:
    """Everything that there is to measure."""
    for problem in PROBLEMS:
        chosen = table.sizes(problem, "cpu", plan.quick)
        yield Task("table", problem.name, partial(table.measured, problem, chosen, "cpu", plan.pace, plan.hire))
    for sweep in growth.QUICK if plan.quick else growth.SWEEPS:
        yield Task("growth", sweep.name, partial(growth.measured, sweep, plan.hire))
    yield Task("saxpy", "", partial(cpu.saxpy, plan.effort, plan.saxpy))
    yield Task("launches", "", partial(cpu.overhead, plan.effort))
    yield Task("product", "", partial(product.measured, plan.effort))
    yield Task("by hand", "", partial(cpu.by_hand, plan.effort))
    for case in cpu.chosen():
        yield Task("cases", case.id, partial(cpu.measured, case, plan.budget, plan.effort, cpu.PARTS[-1:] if plan.quick else cpu.PARTS))


def measured(chosen: Sequence[Task]) -> Record:
    """The record of the tasks; one that fails is recorded so, and the others still run."""
    record: Record = {
        "versions": {**records.versions("torch", "jax", "warp-lang"), "compiler": records.compiler()},
        "cores": os.cpu_count(),
        "load": records.load(),
    }
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(chosen))
        for task in chosen:
            progress.update(bar, description=task.title)
            try:
                found = task.run()
            except Exception as error:  # whatever it is, the others are still measured
                found = records.failure(error)
            if task.name:
                record.setdefault(task.part, {})[task.name] = found
            else:
                record[task.part] = found
            progress.advance(bar)
    return record


# --- judging -------------------------------------------------------------------------------------------------------------------------


def failed(record: Record) -> list[tuple[str, str]]:
    """What could not be measured or is wrong, and why. What is missing did not fail."""
    return list(_failures(record))


def _failures(record: Record) -> Iterator[tuple[str, str]]:
    for part in ("saxpy", "launches", "product", "by hand"):
        if "failed" in record.get(part, {}):
            yield part, record[part]["failed"]
    for part in ("table", "growth", "cases"):
        for name, entry in record.get(part, {}).items():
            yield from _failed(f"{part} {name}", entry)


def _failed(name: str, entry: Any) -> Iterator[tuple[str, str]]:
    if isinstance(entry, list):
        entry = {str(number): item for number, item in enumerate(entry)}
    if not isinstance(entry, dict):
        return
    if isinstance(entry.get("failed"), str):
        yield name, entry["failed"]
        return
    for key, item in entry.items():
        yield from _failed(name if key in ("rows", "points") else f"{name}, {key}", item)


def missed(record: Record) -> list[str]:
    """The required figures that this record misses; of a quick run, which says nothing about speed, none."""
    if record.get("quick"):
        return []
    found = [f"table {problem}, {size}: {v}" for problem, size, entry in _entries(record) for v in figures.missed(entry["verdicts"])]
    found += [
        f"table {p}, {s}: allocates" for p, s, entry in _entries(record) if entry["rows"]["gpuad"].get("allocations") and "steps" in s
    ]
    for name, sweep in record.get("growth", {}).items():
        found += [f"growth {name}: {v}" for v in figures.missed(sweep.get("verdicts", []))]
    for part, wrong in (
        ("saxpy", lambda row: row["ratio"] > row["required"]),
        ("product", lambda row: row["allocations"]),
        ("by hand", lambda row: row["share"] < row["wanted"]),
    ):
        rows = record.get(part, {})
        found += [f"{part}: {name}" for name, row in rows.items() if name != "failed" and wrong(row)]
    return found


def _entries(record: Record) -> Iterator[tuple[str, str, Record]]:
    for problem, sizes_ in record.get("table", {}).items():
        for size, entry in sizes_.items() if "failed" not in sizes_ else ():
            yield problem, size, entry


# --- tables --------------------------------------------------------------------------------------------------------------------------


def show(record: Record, console: Console) -> None:
    """Prints the record."""
    there = {part: entry for part, entry in record.items() if "failed" not in (entry if isinstance(entry, dict) else {})}
    if "cases" in there:
        console.print(shown.cases_table("cases", there["cases"]))
    if "saxpy" in there:
        console.print(shown.cases_table(f"saxpy of 2^20 float32, reverse / primal wanted: {cpu.REQUIRED}", there["saxpy"]))
    if "by hand" in there:
        console.print(shown.by_hand_table(there["by hand"]))
    if "product" in there:
        console.print(shown.product_table(there["product"]))
    judged = not record.get("quick")
    shown.show_table(there.get("table", {}), console, judged)
    shown.show_growth(there.get("growth", {}), console, judged)
    if record["load"] > 0.5:
        console.print(f"the machine was busy (load {record['load']:.1f} before the start): trust ratios, not times", style="yellow")
    if "launches" in there:
        console.print(", ".join(f"{name.removesuffix('_us')} {value} us" for name, value in there["launches"].items()))
    for name, why in failed(record):
        console.print(f"failed: {name}: {why}", style="red", markup=False)
    for what in missed(record):
        console.print(f"missed: {what}", style="red", markup=False)


def main() -> Any:
    """Entry point."""
    typer.run(command)


if __name__ == "__main__":
    sys.exit(main())

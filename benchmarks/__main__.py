"""`python -m benchmarks`: derivatives on the CPU, in a table and a JSON record. Status 1 if a case fails, or with --strict if a required
figure is missed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import cpu, measure, product, programs, records, sizes
from .cpu import Record

_MIB = 1 << 20


def command(
    machine: Annotated[str, typer.Option(help="the kind of machine, for the record's name, such as epyc-2-cores")] = "cpu",
    date: Annotated[str | None, typer.Option(help="the date for the record's name; default is today")] = None,
    only: Annotated[list[str] | None, typer.Option(help="measure cases with this in their name; may be repeated")] = None,
    quick: Annotated[bool, typer.Option(help="small sizes and few repetitions: does everything run?")] = False,
    strict: Annotated[bool, typer.Option(help="exit with status 1 if a required figure is missed")] = False,
    results: Annotated[Path, typer.Option(help="the folder for the record")] = records.RESULTS,
) -> None:
    """Measures primal and reverse of every case on the CPU and writes a record."""
    effort = measure.Effort(1, 3, 0.2) if quick else measure.Effort()
    budget = sizes.Budget(4 * _MIB, 2_000_000, 1 << 14) if quick else cpu.BUDGET
    record = _measured(only or (), budget, effort, 1 << 12 if quick else 1 << 20)
    path = records.write("cpu", machine, date or records.today(), record, results)
    console = wide_console()
    show(record, console)
    console.print(f"record: {path.name}")
    raise typer.Exit(1 if failed(record) or (strict and missed(record)) else 0)


def _measured(only: Sequence[str], budget: sizes.Budget, effort: measure.Effort, saxpy: int) -> Record:
    chosen, load = cpu.chosen(only), records.load()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(chosen) + 5)

        def report(name: str) -> None:
            progress.update(task, description=name)
            progress.advance(task)

        report("saxpy")
        required = cpu.saxpy(effort, saxpy)
        report("launches")
        launches = cpu.overhead(effort)
        report("product")
        products = product.measured(effort)
        report("programs")
        compared = programs.measured(effort, *((programs.SIDES[:1], 3) if saxpy < 1 << 20 else ()))
        report("by hand")
        return {
            "versions": {**records.versions("torch", "jax"), "compiler": records.compiler()},
            "cores": os.cpu_count(),
            "load": load,
            "saxpy": required,
            "launch": launches,
            "product": products,
            "programs": compared,
            "by_hand": cpu.by_hand(effort),
            "cases": cpu.cases(chosen, budget, effort, report),
        }


def failed(record: Record) -> list[str]:
    """Names of the cases that could not be measured."""
    wrong = [f"{name}, {who}" for name, rows in record["programs"].items() for who, row in rows.items() if "failed" in row]
    return [name for name, row in record["cases"].items() if "failed" in row] + wrong


def missed(record: Record) -> list[str]:
    """The required figures that this record misses."""
    saxpy = [name for name, row in record["saxpy"].items() if row["ratio"] > row["required"]]
    saxpy += [name for name, row in record["product"].items() if row["allocations"]]
    saxpy += [name for name, rows in record["programs"].items() if rows["gpuad"].get("allocations")]
    return saxpy + [name for name, row in record["by_hand"].items() if row["share"] < row["wanted"]]


# --- tables --------------------------------------------------------------------------------------------------------------------------


def show(record: Record, console: Console) -> None:
    """Prints the record."""
    console.print(cases_table("cases", record["cases"]))
    console.print(cases_table(f"saxpy of 2^20 float32, reverse / primal wanted: {cpu.REQUIRED}", record["saxpy"]))
    table = _table("generated code on one core against loops by hand", "kernel", "by hand ms", "generated ms", "share", "wanted")
    for name, row in record["by_hand"].items():
        table.add_row(
            name,
            f"{row['by_hand_ms']:.3f}",
            f"{row['generated_ms']:.3f}",
            _judged(row["share"], row["share"] >= row["wanted"]),
            f"{row['wanted']}",
        )
    console.print(table)
    console.print(product_table(record["product"]))
    console.print(programs_table(record["programs"]))
    if record["load"] > 0.5:
        console.print(f"the machine was busy (load {record['load']:.1f} before the start): trust ratios, not times", style="yellow")
    console.print(", ".join(f"{name.removesuffix('_us')} {value} us" for name, value in record["launch"].items()))
    for name in failed(record):
        console.print(f"failed: {name}: {_why(record, name)}", style="red", markup=False)


def _why(record: Record, name: str) -> str:
    program, _, who = name.rpartition(", ")
    row: Record = record["cases"].get(name) or record["programs"][program][who]
    return str(row["failed"])


def wide_console() -> Console:
    """The terminal; where there is none, lines long enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def cases_table(title: str, rows: dict[str, Record], more: Mapping[str, Callable[[Record], str]] | None = None) -> Table:
    """Cases as a table: times, bandwidths, memory. `traffic`: bytes that the reverse kernel moves over the primal's. `more`:
    columns beyond these, by their headings."""
    headings = (
        "kernel",
        "primal ms",
        "forward ms",
        "reverse ms",
        "ratio",
        "traffic",
        "GB/s",
        "reverse GB/s",
        "saved MB",
        "scratch MB",
        "atomic",
    )
    table = _table(title, *headings, *(more or ()))
    for name, row in rows.items():
        table.add_row(name, *(["failed"] if "failed" in row else [*_cells(row), *(cell(row) for cell in (more or {}).values())]))
    return table


def product_table(rows: dict[str, Record]) -> Table:
    """Microseconds beyond the primal of an in-place product on a tape."""
    title = f"{product.M} x {product.K} by {product.K} x {product.N} in place, on a tape: microseconds beyond the primal"
    parts = ("first_record", "first_reverse", "record", "reverse", "loop_record", "loop_reverse")
    table = _table(title, "operation", "primal", *(p.replace("_", " ") for p in parts), "saved B", "allocations, first and later")
    for name, row in rows.items():
        counts = f"{row['first_allocations']}, {row['allocations']}"
        table.add_row(name, *(f"{row[f'{p}_us']:.1f}" for p in ("primal", *parts)), str(row["saved_bytes"]), counts)
    return table


def programs_table(rows: dict[str, dict[str, Record]]) -> Table:
    """Programs of launches on a tape, beside other frameworks."""
    columns = {
        "primal ms": "primal_ms", "gradient ms": "gradient_ms", "ratio": "ratio", "record us a launch": "record_us_a_launch",
        "reverse us a launch": "reverse_us_a_launch", "saved B": "saved_bytes", "arena B": "arena_bytes", "allocations": "allocations",
    }  # fmt: skip
    table = _table("programs: gradient with its primal, each checked against one written by hand", "program", "by", *columns)
    for name, runners in rows.items():
        for who, row in runners.items():
            if "failed" in row or "missing" in row:
                table.add_row(name, who, "failed" if "failed" in row else row["missing"])
            else:
                table.add_row(name, who, *(str(row.get(key, "")) for key in columns.values()))
    return table


def _cells(row: Record) -> list[str]:
    ratio = _judged(row["ratio"], row["ratio"] <= row.get("required", float("inf")))
    times = [f"{row[name]:.3f}" for name in ("primal_ms", "forward_ms", "reverse_ms")]
    rates = [f"{row['traffic_ratio']:.2f}", f"{row['primal_gb_s']:.1f}", f"{row['reverse_gb_s']:.1f}"]
    return [*times, ratio, *rates, *(f"{row[name] / 1e6:.1f}" for name in ("saved_bytes", "scratch_bytes")), ", ".join(row["atomic"])]


def _judged(value: float, good: bool) -> str:
    return f"{value:.2f}" if good else f"[red]{value:.2f}[/]"


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=None, header_style="dim", title_justify="left", title_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def main() -> Any:
    """Entry point."""
    typer.run(command)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.gpu`: everything that takes a GPU, in one command, with one record.

In three parts, in the order of what matters most: the tests marked `gpu` (`--part tests`); compute-sanitizer over every generated kernel of
`kernels/`, where the machine has that tool (`--part sanitizer`); and the speed (`--part speed`): every case against a plain copy, then the
table of problems beside everybody who is installed and has a GPU, with graphs replayed. Where a machine is lent for minutes, a part alone
takes less than eight of them (`--seconds`): what is left then is done by the same command once more, which goes on with the record of that
name, from the same versions, unless `--anew`.

Where there is no GPU it says why and ends with status 0 (1 if GPUAD_REQUIRE_GPU=1). No step runs in this process, none longer than the time
that is left, and each is recorded as failed if it fails; the record is written anew after each, so that a run that is cut short leaves what
it has. Status 1 if a test failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from . import cpu, crew, device, gpu_steps, picture, records, shown, table
from .cpu import Record
from .gpu_steps import Cases, worker
from .problems import PROBLEMS

_QUICK_BYTES = 64 << 20
_ALONE = 460.0  # seconds for a part that is run by itself
_AT_MOST = 3600.0  # seconds for a step
HIRE: crew.Hire = crew.Process
CASES: Callable[[], Cases] = Cases


class Part(StrEnum):
    """What can be asked for by itself."""

    tests = "tests"
    sanitizer = "sanitizer"
    speed = "speed"


@dataclass
class Run:
    """A run: its record, where it is written, and when no step is to be begun any more."""

    record: Record
    machine: str
    date: str
    folder: Path
    end: float
    console: Console

    def write(self) -> Path:
        """Writes the record as it is now."""
        return records.write("gpu", self.machine, self.date, self.record, self.folder)

    def left(self) -> float:
        """Seconds that a step may take."""
        return min(self.end - time.monotonic(), _AT_MOST)

    def step(self, into: Record, name: str, find: Callable[[], Record]) -> None:
        """One more entry of the record, which is then written; none where an earlier run has it."""
        if name in into and not _is_open(into[name]):
            return
        self.console.print(f"{name} ...", style="dim", highlight=False)
        if self.left() <= 0:
            into.setdefault(name, {"failed": "not begun: the time was over"})
        else:
            try:
                into[name] = find()
            except Exception as error:  # the next step has nothing to do with it
                into[name] = records.failure(error)
        self.write()


def _is_open(entry: Record) -> bool:
    """Whether there is something left to do for an entry."""
    return bool(entry.get("left")) or str(entry.get("failed", "")).startswith("not begun")


def command(
    part: Annotated[list[Part] | None, typer.Option(help="only this part; may be repeated")] = None,
    machine: Annotated[str | None, typer.Option(help="the kind of machine, for the record's name; default is the device's name")] = None,
    date: Annotated[str | None, typer.Option(help="the date for the record's name; default is today")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="cases with this in their name, or `table` and a problem's; may be repeated")
    ] = None,
    quick: Annotated[bool, typer.Option(help="small sizes: does everything run?")] = False,
    seconds: Annotated[
        float, typer.Option(help="end within so many seconds; default is 460 for a part by itself, and no limit for all")
    ] = 0.0,
    anew: Annotated[bool, typer.Option("--anew", help="do not go on with a record that is there")] = False,
    results: Annotated[Path, typer.Option(help="the folder for the record")] = records.RESULTS,
) -> None:
    """Tests, checks and measures the derivatives on the GPU, and writes a record."""
    if reason := device.missing():
        print(f"no GPU to measure: {reason}")
        raise typer.Exit(1 if os.environ.get("GPUAD_REQUIRE_GPU") == "1" else 0)
    parts = part or list(Part)
    end = time.monotonic() + (seconds or (_ALONE if len(parts) == 1 else float("inf")))
    about = worker("about")
    versions = records.versions("torch", "jax", "warp-lang")
    name, day = machine or about.get("name", "gpu"), date or records.today()
    record: Record = {"versions": versions, "device": about}
    if not anew and (known := records.read("gpu", name, day, results)).get("versions") == versions:
        record = {**known, "device": about}
    run = Run(record, name, day, results, end, shown.wide_console())
    doing = {Part.tests: _test, Part.sanitizer: partial(_sanitize, only or ()), Part.speed: partial(_measure, only or (), quick)}
    for one in parts:
        doing[one](run)
    path = run.write()
    show(record, run.console)
    missing = picture.draw(record, path.with_suffix(".png"))
    run.console.print(f"record: {path.name}; " + (missing or f"picture: {path.stem}.png"), markup=False)
    raise typer.Exit(1 if record.get("tests", {}).get("status", 0) not in (0, 124) or record.get("tests", {}).get("failures") else 0)


def _test(run: Run) -> None:
    run.step(run.record, "tests", lambda: gpu_steps.tests(run.left(), run.record.get("tests")))


def _sanitize(only: list[str], run: Run) -> None:
    path = gpu_steps.sanitizer()
    if path is None:
        run.record["sanitizer"] = {"skipped": "compute-sanitizer is not on PATH"}
        return
    into = run.record.setdefault("sanitizer", {})
    for tool in gpu_steps.TOOLS:
        for names in gpu_steps.swept(only):
            run.step(into, f"{tool} {' '.join(names)}", lambda tool=tool, names=names: gpu_steps.sanitized(path, tool, names, run.left()))


def _measure(only: list[str], quick: bool, run: Run) -> None:
    into = run.record.setdefault("cases", {})
    with contextlib.closing(CASES()) as ask:
        for case in cpu.chosen(only):
            run.step(into, case.id, partial(measured, ask, case.id, _QUICK_BYTES if quick else 0, run.record["device"]))
    into = run.record.setdefault("table", {})
    for problem in (p for p in PROBLEMS if not only or any(word in f"table {p.name}" for word in only)):
        chosen = table.sizes(problem, "gpu", quick)
        pace = table.QUICK if quick else table.Pace()
        run.step(into, problem.name, partial(table.measured, problem, chosen, "gpu", pace, HIRE))


def measured(ask: Callable[[str, int], Record], name: str, limit: int, about: Record) -> Record:
    """A case's record, with its bandwidths as shares of a copy's. `limit`: most bytes of arguments, 0 for the whole size."""
    row, copy = ask(name, limit), about.get("copy_gb_s")
    if "failed" in row or not copy:
        return row
    return {**row, **{f"{name}_share_of_copy": round(row[f"{name}_gb_s"] / copy, 3) for name in ("primal", "reverse")}}


# --- what it prints ------------------------------------------------------------------------------------------------------------------


MORE: dict[str, Callable[[Record], str]] = {
    "of copy": lambda row: f"{row.get('primal_share_of_copy', 0):.2f}",
    "reverse of copy": lambda row: f"{row.get('reverse_share_of_copy', 0):.2f}",
    "registers": lambda row: "/".join(str(k["registers"]) for k in row["kernels"].values()),
    "pool MB": lambda row: f"{row['pool_bytes'] / 1e6:.0f}",
}


def show(record: Record, console: Console) -> None:
    """Prints the record."""
    about = record["device"]
    if "failed" in about:
        console.print(f"the device says nothing about itself: {about['failed']}", style="red", markup=False)
    else:
        what = f"{about['name']}, CUDA {about['cuda_runtime']}, CuPy {about['cupy']}"
        console.print(f"{what}; a copy moves {about['copy_gb_s']} GB/s", markup=False)
    shown.show_table(record.get("table", {}), console)
    console.print(shown.cases_table("cases", record.get("cases", {}), MORE))
    for name, row in record.get("cases", {}).items():
        if "failed" in row:
            console.print(f"failed: {name}: {row['failed']}", style="red", markup=False)
    for name in ("tests", "sanitizer"):
        told = {k: len(v) if k == "passed" else v for k, v in record.get(name, {}).items()}
        console.print(f"{name}: {json.dumps(told) if told else 'not run'}", markup=False)


if __name__ == "__main__":
    typer.run(command)

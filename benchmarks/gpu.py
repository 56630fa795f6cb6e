"""`python -m benchmarks.gpu`: everything that takes a GPU, in one command, with one record.

The tests marked `gpu` first, then the table of problems beside everybody who is installed and has a GPU, with graphs replayed, then every
case against the speed of a plain copy, then compute-sanitizer over every generated kernel, where the machine has that tool.
All of it takes half an hour; `--seconds` ends it earlier, `--only`, `--no-tests`, `--no-table`, `--no-cases` and `--no-sanitizer` choose
parts of it, where a machine is lent for minutes, with a `--results` of its own for each.
Where there is no GPU it says why and ends with status 0 (1 if GPUAD_REQUIRE_GPU=1). No step runs in this process,
and each is recorded as failed if it fails; the record is written anew after each, so that a run that is cut short leaves what it has.
Status 1 if a test failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import which as find_tool
from typing import Annotated

import typer
from rich.console import Console

from . import cpu, crew, device, picture, records, shown, table
from .cpu import Record
from .problems import PROBLEMS

ROOT = Path(__file__).parents[1]
_CASE_SECONDS, _STEP_SECONDS = 300, 3600
_QUICK_BYTES = 64 << 20
_MOST_TESTERS = 8  # each holds a CUDA context
HIRE: crew.Hire = crew.Process
_SANITIZED_ERROR = 9  # the exit status by which compute-sanitizer says that it found something


@dataclass(frozen=True)
class Outcome:
    """How a process ended; `text` is its standard output, or what it said about its failure."""

    status: int
    text: str


def run(words: list[str], seconds: int) -> Outcome:
    """Runs a command in the checkout's root; status 124 if it takes longer than `seconds`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    try:
        ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(124, f"no end after {seconds} s")
    except OSError as error:
        return Outcome(127, str(error))
    return Outcome(ended.returncode, ended.stdout if ended.returncode == 0 else f"{ended.stdout}\n{ended.stderr}".strip())


def worker(*words: str, seconds: int = _CASE_SECONDS) -> Record:
    """The JSON that a task of `benchmarks.device` prints; a record of its failure otherwise."""
    outcome = run([sys.executable, "-m", "benchmarks.device", *words], seconds)
    if outcome.status:
        return {"failed": records.without_places(f"exit status {outcome.status}: ...{outcome.text[-800:]}")}
    record: Record = json.loads(outcome.text.splitlines()[-1])
    return record


class Cases:
    """A process that measures one case after another, and another one after each failure: the device may be lost to the first."""

    def __init__(self) -> None:
        self.process: crew.Answering | None = None

    def __call__(self, name: str, limit: int) -> Record:
        """A case's record. `limit`: most bytes of arguments, 0 for the whole size."""
        self.process = self.process or crew.Answering("benchmarks.device", "cases", patience=_CASE_SECONDS)
        self.process.ask(name=name, limit=limit)
        found = self.process.answer()
        if "failed" in found:
            self.close()
        return found

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.close()
        self.process = None


CASES: Callable[[], Cases] = Cases


def tests() -> Record:
    """Runs the tests that need a GPU, in several processes: most of their time goes by on the host, and one that spoils its CUDA context
    takes but its neighbours along."""
    processes = str(min(os.cpu_count() or 1, _MOST_TESTERS))
    outcome = run([sys.executable, "-m", "pytest", "-q", "-n", processes, "-m", "gpu", "tests"], _STEP_SECONDS)
    lines = outcome.text.splitlines()
    failures = [records.without_places(line) for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"status": outcome.status, "summary": lines[-1] if lines else "", "failures": failures}


def sanitized() -> Record:
    """What compute-sanitizer finds in every generated kernel, a tool at a time."""
    tool = find_tool("compute-sanitizer")
    if tool is None:
        return {"skipped": "compute-sanitizer is not on PATH"}
    options = ["--error-exitcode", str(_SANITIZED_ERROR), "--tool"]
    task = [sys.executable, "-m", "benchmarks.device", "sweep"]
    return {name: _judged(run([tool, *options, name, *task], _STEP_SECONDS)) for name in ("memcheck", "racecheck")}


def _judged(outcome: Outcome) -> Record:
    found = [line for line in outcome.text.splitlines() if line.startswith("=========")]
    swept: Record = next((json.loads(line) for line in outcome.text.splitlines() if line.startswith("{")), {})
    return {
        "clean": outcome.status == 0,
        "summary": records.without_places("\n".join(found[-3:]) or outcome.text[-800:]),
        "cases": len(swept),
        "failed": {name: row["failed"] for name, row in swept.items() if "failed" in row},
    }


def command(
    machine: Annotated[str | None, typer.Option(help="the kind of machine, for the record's name; default is the device's name")] = None,
    date: Annotated[str | None, typer.Option(help="the date for the record's name; default is today")] = None,
    only: Annotated[list[str] | None, typer.Option(help="measure cases with this in their name; may be repeated")] = None,
    quick: Annotated[bool, typer.Option(help="small sizes: does everything run?")] = False,
    testing: Annotated[bool, typer.Option("--tests/--no-tests", help="run the tests marked gpu")] = True,
    tabling: Annotated[bool, typer.Option("--table/--no-table", help="measure the table of problems")] = True,
    casing: Annotated[bool, typer.Option("--cases/--no-cases", help="measure the cases")] = True,
    sanitizer: Annotated[bool, typer.Option(help="run compute-sanitizer, where it is found")] = True,
    seconds: Annotated[float, typer.Option(help="begin no further step after so many seconds; 0: no limit")] = 0.0,
    results: Annotated[Path, typer.Option(help="the folder for the record")] = records.RESULTS,
) -> None:
    """Tests, measures and checks the derivatives on the GPU, and writes a record."""
    if reason := device.missing():
        print(f"no GPU to measure: {reason}")
        raise typer.Exit(1 if os.environ.get("GPUAD_REQUIRE_GPU") == "1" else 0)
    console, end = shown.wide_console(), time.monotonic() + (seconds or float("inf"))
    about = worker("about")
    record: Record = {"versions": records.versions("torch", "jax", "warp-lang"), "device": about}

    def write() -> Path:
        return records.write("gpu", machine or about.get("name", "gpu"), date or records.today(), record, results)

    def step(into: Record, name: str, find: Callable[[], Record]) -> None:
        """One more entry of the record, which is then written."""
        console.print(f"{name} ...", style="dim", highlight=False)
        try:
            into[name] = find() if time.monotonic() < end else {"failed": f"not begun: {seconds:.0f} s have passed"}
        except Exception as error:  # the next step has nothing to do with it
            into[name] = records.failure(error)
        write()

    if testing:
        step(record, "tests", tests)
    record["table"] = {}
    for problem in (p for p in PROBLEMS if tabling and (not only or any(word in f"table {p.name}" for word in only))):
        chosen = table.sizes(problem, "gpu", quick)
        pace = table.QUICK if quick else table.Pace()
        step(record["table"], problem.name, partial(table.measured, problem, chosen, "gpu", pace, HIRE))
    record["cases"] = {}
    with contextlib.closing(CASES()) as ask:
        for case in cpu.chosen(only or ()) if casing else ():
            step(record["cases"], case.id, partial(measured, ask, case.id, _QUICK_BYTES if quick else 0, about))
    if sanitizer:
        step(record, "sanitizer", sanitized)
    path = write()
    show(record, console)
    missing = picture.draw(record, path.with_suffix(".png"))
    console.print(f"record: {path.name}; " + (missing or f"picture: {path.stem}.png"), markup=False)
    raise typer.Exit(1 if record.get("tests", {}).get("status", 0) else 0)


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
    shown.show_table(record["table"], console)
    console.print(shown.cases_table("cases", record["cases"], MORE))
    for name, row in record["cases"].items():
        if "failed" in row:
            console.print(f"failed: {name}: {row['failed']}", style="red", markup=False)
    for name in ("tests", "sanitizer"):
        console.print(f"{name}: {json.dumps(record.get(name, 'not run'))}", markup=False)


if __name__ == "__main__":
    typer.run(command)

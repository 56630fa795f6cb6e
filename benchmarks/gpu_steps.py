"""The steps of `benchmarks.gpu` as processes, each with a limit: what they say, or that they failed, is a record."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which as find_tool

from gpuad.tools.cases import all_cases

from . import crew, records
from .problem import Record

ROOT = Path(__file__).parents[1]
TOOLS = ("memcheck", "racecheck")
_CASE_SECONDS = 300
_MOST_TESTERS = 8  # each holds a CUDA context
_SANITIZED_ERROR = 9  # the exit status by which compute-sanitizer says that it found something
_AT_ONCE = 6  # cases of one sanitized process: to start one takes seconds, and what hangs takes its neighbours along
_ENDED = re.compile(r"(PASSED|FAILED|ERROR) (tests/\S.*?)(?: - .*)?$")


@dataclass(frozen=True)
class Outcome:
    """How a process ended; `text` is its standard output, or what it said about its failure."""

    status: int
    text: str


def run(words: list[str], seconds: float) -> Outcome:
    """Runs a command in the checkout's root; status 124 if it takes longer than `seconds`, with what it had said until then."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    try:
        ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as over:
        said = over.stdout.decode("utf-8", "replace") if isinstance(over.stdout, bytes) else over.stdout or ""
        return Outcome(124, f"{said}\nno end after {seconds:.0f} s".strip())
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


def tests(seconds: float, known: Record | None = None) -> Record:
    """Runs the tests that need a GPU, in several processes: most of their time goes by on the host, and one that spoils its CUDA context
    takes but its neighbours along. `known`: a record whose tests passed in an earlier run, and are left out. Where the time does not
    suffice the record says what has ended, and that some are `left`."""
    passed = list((known or {}).get("passed", ()))
    processes = str(min(os.cpu_count() or 1, _MOST_TESTERS))
    words = [sys.executable, "-m", "pytest", "-v", "-n", processes, "-m", "gpu", "tests", *(f"--deselect={name}" for name in passed)]
    outcome = run(words, seconds)
    ended = [(m[1], m[2].strip()) for m in map(_ENDED.search, outcome.text.splitlines()) if m]
    lines = outcome.text.splitlines()
    return {
        "status": outcome.status,
        "left": outcome.status == 124,
        "summary": lines[-1] if lines else "",
        "passed": sorted({*passed, *(name for how, name in ended if how == "PASSED")}),
        "failures": sorted({records.without_places(f"{how} {name}") for how, name in ended if how != "PASSED"}),
    }


def sanitizer() -> str | None:
    """The path of compute-sanitizer, if there is one."""
    return find_tool("compute-sanitizer")


def swept(only: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """The names of cases that one sanitized process runs, until all are there."""
    names = [case.id for case in all_cases() if not only or any(word in case.id for word in only)]
    return (tuple(names[k : k + _AT_ONCE]) for k in range(0, len(names), _AT_ONCE))


def sanitized(path: str, tool: str, names: Sequence[str], seconds: float) -> Record:
    """What a tool of compute-sanitizer finds in every generated kernel of some cases."""
    options = ["--error-exitcode", str(_SANITIZED_ERROR), "--tool", tool]
    outcome = run([path, *options, sys.executable, "-m", "benchmarks.device", "sweep", *names], seconds)
    found = [line for line in outcome.text.splitlines() if line.startswith("=========")]
    done: Record = next((json.loads(line) for line in outcome.text.splitlines() if line.startswith("{")), {})
    return {
        "clean": outcome.status == 0,
        "left": outcome.status == 124,
        "summary": records.without_places("\n".join(found[-3:]) or outcome.text[-800:]),
        "cases": len(done),
        "failed": {name: row["failed"] for name, row in done.items() if "failed" in row},
    }

"""compute-sanitizer over described launches, its findings at the user's lines.

A tool that is missing or broken finds nothing, which reads like success. So each tool is first run over a kernel with a planted fault of
its kind (`sanitized`), and nothing is believed of one that does not find it. Generated kernels are compiled with the user's lines
(GPUAD_LINEINFO), in a process of its own, since a fault spoils the CUDA context.

The text that is parsed is that of the releases from CUDA 11.4 to 13: records of lines that begin with `=========`, the first one says what,
`at KERNEL+0x.. in FILE:LINE` (or `at 0x.. in FILE:LINE:KERNEL`) where, and a summary how many there are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from ..runtime.cuda import LINEINFO
from ..source import Span
from .checks import Failed
from .examples import Example
from .findings import Finding

PREFIX = "sanitizer-"
_FOUND = 9  # the exit status by which it says that there were findings
_SECONDS = 600
_HEAD = re.compile(
    r"Invalid |Uninitialized |Barrier error|Misaligned |Program hit |(?:Error|Warning|ERROR|WARNING): (?:Race|Potential)|"
    r"Leaked |Unused memory|Stack overflow|Race reported|Internal Sanitizer|Error: "
)
_PLACE = re.compile(r" in (?!function\b)(\S[^()]*?):(\d+)(?=[:\s,]|$)")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


@dataclass(frozen=True)
class Record:
    """One thing that it reported: its words, its places in files (file, line), in order, and the whole text."""

    what: str
    places: tuple[tuple[str, int], ...]
    text: str


@dataclass(frozen=True)
class Report:
    """All that it reported; `total` is the number of its summary, None where there was none: then it did not come to its end."""

    records: tuple[Record, ...]
    total: int | None


def parsed(text: str) -> Report:
    """The report in a text, which may have other lines in between."""
    lines = [line.lstrip("=").rstrip() for line in text.splitlines() if line.startswith("========")]
    totals = [int(m[1]) for line in lines if (m := _SUMMARY.search(line))]
    return Report(tuple(_records(lines)), totals[0] if totals else None)


def _records(lines: Sequence[str]) -> Iterator[Record]:
    current: list[str] = []
    for line in [*lines, ""]:
        starts = bool(_HEAD.match(line.strip())) and not line.startswith("     ")
        if current and (starts or not line.strip() or "SUMMARY" in line):
            yield _record(current)
            current = []
        if starts or current:
            current.append(line)


def _record(lines: Sequence[str]) -> Record:
    own = [line.strip() for line in lines]
    device = [line for line in own if not line.startswith(("Host Frame", "Saved host", "Device Frame"))]
    places = tuple((m[1], int(m[2])) for m in _PLACE.finditer(" ".join(device)))
    what = re.split(r" (?:Write|Read) access at ", own[0])[0] if "Race reported" in own[0] else own[0]
    return Record(what, places, "\n".join(own))


# --- running it ----------------------------------------------------------------------------------------------------------------------

Runner: TypeAlias = "Callable[[Sequence[str], dict[str, str]], tuple[int, str]]"


def tool_path() -> str | None:
    """Where compute-sanitizer is: on PATH, or in the folder of the CUDA toolkit."""
    folders = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    candidates = (shutil.which("compute-sanitizer", path=os.path.join(folder, "bin")) for folder in folders if folder)
    return shutil.which("compute-sanitizer") or next((path for path in candidates if path), None)


def _run(command: Sequence[str], environment: dict[str, str]) -> tuple[int, str]:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace")
    except subprocess.TimeoutExpired:
        return 124, f"no end after {_SECONDS} s"
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout + done.stderr


@dataclass(frozen=True)
class Sanitizer:
    """One of its tools: memcheck, racecheck, initcheck or synccheck."""

    tool: str
    run: Runner = _run

    def check(self, example: Example, seed: int) -> list[Finding]:
        """What it finds in the launch, its reverse and the inspectors before them, as findings at lines of the example's file. Failed if
        the tool is missing, or does not find its planted fault."""
        self._trusted(example)
        status, text = self._started("run", str(example.path), example.name, str(seed), str(_root_of(example)))
        report = parsed(text)
        if status not in (0, _FOUND) or report.total is None or (report.total and not report.records):
            raise Failed(self._broken(example, f"ended with exit status {status}", text))
        return [self._finding(example, record) for record in report.records]

    def _trusted(self, example: Example) -> None:
        if (path := tool_path()) is None:
            message = "--sanitizer was asked for, but there is no compute-sanitizer on PATH or in CUDA_HOME"
            raise Failed(self._broken(example, message, "", "Install the CUDA toolkit's compute-sanitizer (apt: cuda-sanitizer-13-0)."))
        if said := _distrusted(path, self):
            raise Failed(self._broken(example, "does not find the fault planted for it: its silence would mean nothing", said))

    def planted(self) -> str:
        """Runs the tool over its planted fault; empty if it was found, else what it said."""
        status, text = self._started("planted", self.tool)
        report = parsed(text)
        found = any(f"planted_{self.tool}" in record.text for record in report.records)
        return "" if found and status == _FOUND else f"exit status {status}\n{text[-2000:]}"

    def _started(self, *words: str) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            own = [tool_path() or "compute-sanitizer", "--tool", self.tool, "--error-exitcode", str(_FOUND), "--log-file", str(log)]
            status, said = self.run([*own, sys.executable, "-m", "gpuad.tools.sanitized", *words], {**os.environ, LINEINFO: "1"})
            return status, (log.read_text(encoding="utf-8", errors="replace") if log.is_file() else "") + said

    def _finding(self, example: Example, record: Record) -> Finding:
        lines = [line for file, line in record.places if Path(file).name == Path(example.file.name).name]
        span = Span(example.file, lines[0], 1, 200) if lines else example.span
        if lines:
            text = example.file.line(lines[0])
            column = 1 + len(text) - len(text.lstrip())
            span = Span(example.file, lines[0], column, max(len(text.strip()), 1))
        return _at(example, span, f"{self.tool}: {record.what}", _ADVICE[self.tool], record.text)

    def _broken(self, example: Example, message: str, text: str, advice: str = "") -> Finding:
        advice = advice or f"Run `compute-sanitizer --tool {self.tool}` by itself on this machine; its version has to suit the driver."
        what = message if message.startswith("--") else f"compute-sanitizer's {self.tool} {message}"
        return _at(example, example.span, what, advice, text[-2000:].strip())


def _at(example: Example, span: Span, message: str, advice: str, detail: str) -> Finding:
    where = example.file.name, span.line, span.column
    return Finding("sanitizer", message, *where, subject=example.id, advice=advice, excerpt=span.caret(), detail=detail)


_ADVICE = {
    "memcheck": "Check the condition that guards the access, and the sizes that are passed.",
    "racecheck": "Put a __syncthreads() between the two accesses to shared memory.",
    "initcheck": "Something is read that was never written: clear the array, or check its bounds.",
    "synccheck": "All threads of the block have to come to the barrier.",
}


@cache
def _distrusted(path: str, sanitizer: Sanitizer) -> str:
    """What is wrong with a tool, once a process."""
    return sanitizer.planted()


def _root_of(example: Example) -> Path:
    """The folder from which the example's file is named."""
    parts = len(Path(example.file.name).parts)
    path = example.path.resolve()
    return path.parents[parts - 1] if path.as_posix().endswith(example.file.name) else path.parent

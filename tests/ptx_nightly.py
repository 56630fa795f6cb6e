"""`PYTHONPATH=. python tests/ptx_nightly.py`: everything that is executed as PTX, in one command.

Its sets, of which `--only` picks some: the interpreter's own tests, planted faults, the shipped kernels in every mode, kernels of
applications, random kernels, the texts as clang reads them, the path on a GPU, and the test corpus, which then runs as PTX whatever NumPy
arrays it launches, with its random searches as short as by day. What was executed goes to benchmarks/results/ptx-executed.json as each set
ends, and from there to docs/evidence.md. Status 1 if a test failed, or if a text has a form of an instruction that the interpreter's own
tests do not try.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import ptx_page
import ptx_record
import typer

OWN = [
    f"tests/runtime/test_ptx_{name}.py"
    for name in ("control", "conversions", "floats", "forms", "integers", "manual", "manual_programs", "memory")
]
CORPUS = [
    "accumulate",
    "ad",
    "analysis",
    "api",
    "arguments",
    "codegen",
    "elementwise",
    "fusion",
    "gradients",
    "lower",
    "ops",
    "optimize",
    "tape",
]
SETS: dict[str, Sequence[str]] = {
    "own tests": OWN,
    "planted faults": ("tests/runtime/test_ptx_faults.py",),
    "shipped kernels": ("tests/runtime/test_ptx_kernels.py",),
    "kernels of applications": ("tests/runtime/test_ptx_applications.py",),
    "random kernels": ("tests/runtime/test_ptx_random.py",),
    "clang": ("tests/runtime/test_ptx_clang.py",),
    "the path on a GPU": ("tests/runtime/test_gpu_path.py", "tests/runtime/test_large_shared.py"),
    "the test corpus": tuple(f"tests/{room}" for room in CORPUS),
}
_ENDED = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def entry(said: str, executed: ptx_record.Executed) -> dict[str, int]:
    """What pytest said at its end, and what was executed."""
    last = dict.fromkeys(("passed", "failed", "error", "errors", "skipped"), 0)
    last |= {what: int(number) for number, what in _ENDED.findall(said.rstrip().rpartition("\n")[2])}
    failed = last["failed"] + last["error"] + last["errors"]
    counts = {name: getattr(executed, name) for name in ("launches", "lanes", "instructions")}
    return {"tests": last["passed"] + failed, "failed": failed, "skipped": last["skipped"], "texts": len(executed.texts), **counts}


def add(record: dict[str, Any], name: str, said: str, executed: ptx_record.Executed) -> None:
    """A set that has run, into the record."""
    record["sets"][name] = entry(said, executed)
    if name == "own tests":
        record["own_tests"] = record["sets"].pop(name)["tests"]
        record["tried"] = sorted(executed.tried)
    else:
        record["forms"] = sorted({*record["forms"], *executed.met})
    record["untried"] = sorted({*record["forms"]} - {*record["tried"]})


def known() -> dict[str, Any]:
    """The record so far."""
    empty: dict[str, Any] = {"sets": {}, "forms": [], "tried": [], "untried": [], "own_tests": 0}
    return json.loads(ptx_page.EXECUTED.read_text(encoding="utf-8")) if ptx_page.EXECUTED.exists() else empty


def main(
    cases: Annotated[int, typer.Option(help="random kernels of each grammar")] = 1000,
    seed: Annotated[int, typer.Option(help="the first of them")] = 0,
    workers: Annotated[str, typer.Option(help="processes")] = "auto",
    only: Annotated[list[str] | None, typer.Option(help="this set; may be repeated")] = None,
) -> None:
    """Runs the sets, and writes the record and the page."""
    record = known()
    for name, files in SETS.items():
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            searched = {"GPUAD_NIGHTLY": str(cases), "GPUAD_SEED": str(seed)} if name != "the test corpus" else {}
            more = {ptx_record.VARIABLE: folder, **searched}
            words = [sys.executable, "-m", "pytest", "--ptx", "-q", "-n", workers, *files]
            print(f"== {name}", flush=True)
            ended = subprocess.run(words, env={**os.environ, **more}, stdout=subprocess.PIPE, text=True, check=False)
            print(ended.stdout, flush=True)
            add(record, name, ended.stdout, ptx_record.read(Path(folder)))
        ptx_page.EXECUTED.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    ptx_page.main()
    raise typer.Exit(int(bool(record["untried"] or any(part["failed"] for part in record["sets"].values()))))


if __name__ == "__main__":
    typer.run(main)

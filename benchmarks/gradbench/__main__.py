"""`python -m benchmarks.gradbench --checkout FOLDER`: GradBench's evals as they are published, answered by gpuad and other tools in turn.

The checkout is one of github.com/gradbench/gradbench; its `manual` tool, C++ with derivatives by hand, is compiled by the C++ compiler with
its own flags (it needs `make` and the header json.hpp, which its Makefile fetches), and by it the evals validate. The evals need NumPy and
pydantic here. PyTorch's and JAX's tools are run by another Python, if one is given. Writes a record; ends with 1 if an output is not valid.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .. import records, shown
from . import exchange, published
from .evals import NAMES
from .exchange import GPUAD, Command, Row

ROOT = Path(__file__).parents[2]
PEERS = ("pytorch", "jax")
MATTERS = 10.0  # milliseconds of `manual` from which its time is a bar


def environment(path: Path, threads: int) -> dict[str, str]:
    """The variables of a process that finds its modules there and takes so many threads."""
    flags = f"--xla_cpu_multi_thread_eigen={str(threads > 1).lower()} intra_op_parallelism_threads={threads}"
    own = {"PYTHONPATH": str(path), "GPUAD_THREADS": str(threads), "OMP_NUM_THREADS": str(threads), "XLA_FLAGS": flags}
    return {**os.environ, **own, "JAX_ENABLE_X64": "1"}


def commands(checkout: Path, threads: int, peers: str | None, peer: tuple[str, ...]) -> dict[str, Command]:
    """How each tool is started, gpuad first."""
    package = checkout / "python" / "gradbench"
    theirs = environment(package, threads)
    found = {
        GPUAD: Command([sys.executable, "-m", "benchmarks.gradbench.tool"], ROOT, environment(ROOT, threads)),
        "manual": Command([sys.executable, "-m", "gradbench.cpp", "manual"], checkout, theirs),
    }
    for name in peer if peers else ():
        script = package / "gradbench" / "tools" / name / "run.py"
        found[name] = Command([peers or "", str(script)], checkout, theirs)
    return found


def measured(name: str, checkout: Path, tools: dict[str, Command], rounds: int, arguments: list[str], console: Console) -> list[Row]:
    """An eval's rows, each said when it is there."""
    words = [sys.executable, "-m", f"gradbench.evals.{name}.run", *arguments]
    rows = []
    for row in exchange.run(Command(words, checkout, tools["manual"].environment), tools, rounds):
        rows.append(row)
        times = ", ".join(f"{who} {took['ms']:.3f} ms" if "ms" in took else f"{who} failed" for who, took in row["tools"].items())
        console.print(f"{name} {row['function']} {row['size']}: {times}; {'valid' if row['valid'] else 'NOT VALID'}", markup=False)
    return rows


def command(
    checkout: Annotated[Path, typer.Option(help="a checkout of github.com/gradbench/gradbench", exists=True, file_okay=False)],
    evals: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(NAMES)}; all if not given")] = None,
    machine: Annotated[str, typer.Option(help="the kind of machine, for the record's name")] = "cpu",
    peers: Annotated[str | None, typer.Option(help="a Python with torch and jax")] = None,
    peer: Annotated[list[str] | None, typer.Option(help="which of their tools; all if not given")] = None,
    threads: Annotated[int, typer.Option(help="of each tool; `manual` has one")] = 1,
    rounds: Annotated[int, typer.Option(help="turns that each tool gets at an evaluation")] = 2,
    eval_arguments: Annotated[str, typer.Option(help="handed to the evals, such as '--min-seconds 0.2'")] = "",
    results: Annotated[Path, typer.Option(help="the folder for the record")] = records.RESULTS,
) -> None:
    """Runs the evals, and writes the record; evals that are not named keep what a record of today has of them."""
    unknown = sorted(set(evals or ()) - set(NAMES))
    if unknown:
        raise typer.BadParameter(f"no answer to {', '.join(unknown)}; gpuad answers {', '.join(NAMES)}")
    console = shown.wide_console()
    tools = commands(checkout.resolve(), threads, peers, tuple(peer or PEERS))
    found = records.read("gradbench", machine, records.today(), results)
    record = {"versions": records.versions(), "compiler": records.compiler(), "load": records.load(), "threads": threads}
    record |= {"evals": found.get("evals", {}), "published": found.get("published", {})}
    for name in evals or NAMES:
        rows = measured(name, checkout.resolve(), tools, rounds, eval_arguments.split(), console)
        record["evals"][name] = rows
        record["published"][name] = published.ratios(checkout / "evals" / name / "summary.json")
        records.write("gradbench", machine, records.today(), record, results)
    wrong = [(n, r["function"], r["size"]) for n in evals or NAMES for r in record["evals"][n] if not r["valid"]]
    console.print(f"not valid: {wrong}" if wrong else "all valid")
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(command)

"""`python -m benchmarks.budgets --peers PYTHON`: time loops under byte budgets, beside JAX and PyTorch, at equal bytes and at equal time.

Wave and Fisher-KPP on a square, gradients with respect to the initial field and a map. gpuad runs under a list of budgets;
`budget_run` does so, a process each, and `budget_peers` runs the others by another interpreter, in an environment of its own. Bytes are
what is added to the caller's arrays, by each one's own account; seconds are of the CPU, since these hang less on what else runs, with the
wall's beside them. Writes a record and a picture of time over bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from . import records

SHARES = (5, 20, 100)
Record = dict[str, Any]


def measured(problem: str, n: int, steps: int, budget: int) -> Record:
    """The row of a budget (0: without one), by a process of its own."""
    ask = [sys.executable, "-m", "benchmarks.budget_run", problem, str(n), str(steps), str(budget)]
    run = subprocess.run(ask, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    row: Record = json.loads(run.stdout.splitlines()[-1])
    return row


def others(python: str, who: str, problem: str, n: int, steps: int) -> list[Record]:
    """The rows of a peer."""
    script = Path(__file__).with_name("budget_peers.py")
    run = subprocess.run([python, str(script), who, problem, str(n), str(steps)], capture_output=True, text=True, check=False, timeout=1800)
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return rows if run.returncode == 0 else [*rows, {"failed": records.without_places(run.stderr[-500:])}]


def compared(peer: Record, rows: Sequence[Record], at: Callable[[int], Record]) -> Record:
    """How many times as long a peer takes at equal bytes (`at` measures gpuad there), and how many times the bytes at equal time."""
    found: Record = {}
    if peer["bytes"] > min(r["bytes"] for r in rows):
        same = at(peer["bytes"])
        found = {"time ratio at equal bytes": round(peer["cpu"] / same["cpu"], 2)} if "cpu" in same else {}
    enough = [r["bytes"] for r in rows if r["cpu"] <= peer["cpu"]]
    if enough:
        found["bytes ratio at equal time"] = round(peer["bytes"] / min(enough), 2)
    return found


def problem_record(problem: str, n: int, steps: int, peers: str | None) -> Record:
    """All of a problem."""
    whole = measured(problem, n, steps, 0)
    every = [whole, *(measured(problem, n, steps, whole["predicted"] // share) for share in SHARES)]
    found: Record = {"gpuad": every, "stored": whole["predicted"]}
    rows = [r for r in every if "refused" not in r]
    bits = whole["gradient"]
    for row in rows:
        row["equal bits"] = row.pop("gradient") == bits
    for who in ("jax", "torch") if peers else ():
        found[who] = others(peers or "", who, problem, n, steps)
        worth = _frontier([r for r in found[who] if "failed" not in r])
        for peer in worth:
            peer |= compared(peer, rows, lambda limit: measured(problem, n, steps, limit))
            peer["same gradient"] = bool(np.allclose(peer["sums"], whole["sums"], rtol=2e-3))
    return found


def _frontier(rows: Sequence[Record]) -> list[Record]:
    """Those that no other beats in bytes and in time: a peer's best ways."""
    return [r for r in rows if not any(o is not r and o["bytes"] <= r["bytes"] and o["cpu"] <= r["cpu"] for o in rows)]


def draw(record: Record, path: Path) -> None:
    """Time over bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(record["problems"]), figsize=(11, 4), squeeze=False, layout="constrained")
    for axis, (name, found) in zip(axes[0], record["problems"].items(), strict=True):
        for who, marker in (("gpuad", "o-"), ("jax", "s"), ("torch", "^")):
            rows = sorted((r for r in found.get(who, ()) if r.get("bytes", 0) > 0), key=lambda r: r["bytes"])
            axis.plot([r["bytes"] / 1e6 for r in rows], [r["cpu"] for r in rows], marker, label=who)
        axis.set(xscale="log", yscale="log", title=name, xlabel="MB beside the caller's arrays", ylabel="CPU seconds of a gradient")
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def command(
    machine: Annotated[str, typer.Option(help="the kind of machine, for the record's name")] = "cpu",
    peers: Annotated[str | None, typer.Option(help="a Python with jax and torch")] = None,
    only: Annotated[list[str] | None, typer.Option(help="wave, fisher")] = None,
    n: Annotated[int, typer.Option(help="cells along an edge")] = 512,
    steps: Annotated[int, typer.Option(help="of the loop")] = 1000,
    results: Annotated[Path, typer.Option(help="the folder for the record")] = records.RESULTS,
) -> None:
    """Measures, and writes the record and the picture."""
    record: Record = {"versions": records.versions(), "compiler": records.compiler(), "load": records.load(), "n": n, "steps": steps}
    if peers:
        ask = "import jax, torch, json; print(json.dumps({'jax': jax.__version__, 'torch': torch.__version__}))"
        record["versions"] |= json.loads(subprocess.run([peers, "-c", ask], capture_output=True, text=True, check=True).stdout)
    record["problems"] = {}
    for problem in only or ("wave", "fisher"):
        record["problems"][problem] = problem_record(problem, n, steps, peers)
        record["load at the end"] = records.load()
        path = records.write("budgets", machine, records.today(), record, results)
        draw(record, path.with_suffix(".png"))
    for name, found in record["problems"].items():
        for who in ("gpuad", "jax", "torch"):
            for row in found.get(who, ()):
                print(name, who, {k: v for k, v in row.items() if k != "sums"})


if __name__ == "__main__":
    typer.run(command)

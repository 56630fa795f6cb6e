"""`gpuad profile script.py args`: a script as it is, and what its tapes' memory was for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..budget import shown
from ..profiling import Profile, profile
from ..profiling.table import HEAD, rows, summary
from .scripts import compiled, executed


def run(script: Path, args: Sequence[str], interval: float, outputs: Mapping[str, Path | None]) -> int:
    """Runs a script as `python script.py args` does, prints the table, and writes what `outputs` names ('page', 'picture', 'trace',
    'torch_snapshot'), also where the script has failed. Gives the script's exit status."""
    code = compiled(script)
    with profile(interval) as found:
        status = executed(code, script, args)
        result: Profile = found  # type: ignore[assignment]  # it has a profile's names
    show(result)
    for form, path in outputs.items():
        if path is not None:
            getattr(result, form)(path)
            print(f"{form.replace('_', ' ')}: {path}")
    return status


def show(result: Profile) -> None:
    """Prints the table."""
    console = Console()
    for line in summary(result):
        console.print(escape(line))
    for program in result.programs:
        times = sum(r.program is program for r in result.rounds)
        title = f"{program.title}, {times} times; peak {shown(program.holding.peak)}"
        table = Table(*HEAD, title=escape(title), title_justify="left", box=None, header_style="dim")
        for row in rows(program):
            table.add_row(*map(escape, row))
        console.print(table)
    for hint in result.advice:
        console.print("*", escape(hint))
    if not result.rounds:
        console.print("no tape was recorded while the script ran")


__all__ = ["run", "show"]

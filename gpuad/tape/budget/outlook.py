"""What a recorded program costs under byte budgets: a point for one budget, and the curve of all.

Nothing here runs anything: peaks and the operations that run again are read off the scripts of the schedules (`planner.Planner`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...budget import bytes_of, shown
from ...errors import BudgetError
from .planner import Planner
from .script import Script

_RECORDS = 6 << 10  # bytes an operation; measured from 300 to 3,000 of them, by `benchmarks.budgets` too: 4 to 9 KB


@dataclass(frozen=True)
class Outlook:
    """A reversal within `budget` bytes. `peak`: the most bytes that the tape adds, as a pool rounds them; `checkpoints`: states that are
    stored at once, that at the beginning among them, 0 if all that adjoints need is kept; `operations`: of the program, `reruns`: how
    often one of them runs again; `moved`: bytes that are copied to checkpoints and back; `offloaded`: of checkpoints on the second level;
    `seconds`: about what the runs beyond the first take, by the time of the last recording, NaN until the program has come again, since
    the time of a new one is that of compiling it; `work`: bytes that these read and
    write, as a multiple of those of the program."""

    budget: int
    peak: int
    checkpoints: int
    operations: int
    reruns: int
    moved: int
    seconds: float
    offloaded: int = 0
    work: float = 0.0

    @property
    def records(self) -> int:
        """About the bytes of the host's memory that the tape's own notes on the program take, beside all arrays and beside the budget: on a
        CPU the process grows by `peak` and these."""
        return _RECORDS * self.operations

    def __str__(self) -> str:
        if not self.reruns:
            return f"budget {shown(self.budget)}: peak {shown(self.peak)}, nothing runs again"
        took = "" if math.isnan(self.seconds) else f", about {self.seconds:.3g} s"
        return (
            f"budget {shown(self.budget)}: peak {shown(self.peak)}, {self.checkpoints} checkpoints, {self.reruns} operations run again "
            f"({self.work:.2f} times the program{took}), {shown(self.moved)} copied"
            + (f", {shown(self.offloaded)} offloaded" if self.offloaded else "")
        )


def outlook(planner: Planner, budget: int, others: int, seconds: float, *, two_levels: bool = False) -> Outlook:
    """What a budget comes to. `others`: bytes that the tape takes besides; `seconds`: of the program. BudgetError where it is too small."""
    script = planner.best_of_levels(budget - others) if two_levels else planner.best(budget - others)
    if script is None or planner.least() + others > budget:
        least = planner.least() + others
        raise BudgetError(
            f"the program cannot be reversed within {shown(budget)}: the smallest budget that would do is {least} bytes, "
            f"{planner.holders(others)}. Nothing was launched.",
            least,
        )
    return _of(script, planner, budget, others, seconds)


def _of(script: Script, planner: Planner, budget: int, others: int, seconds: float) -> Outlook:
    n = len(planner.program)
    checkpoints = script.checkpoints + 1 if script.uses_initial else 0
    peak = planner.peak(script) + others
    work = script.cost / planner.program.costs[-1]
    return Outlook(budget, peak, checkpoints, n, script.reruns, script.moved, seconds * work, script.far, work)


@dataclass(frozen=True)
class Tradeoff:
    """Bytes against runs: one point for each schedule worth its bytes, from the smallest budget to that with which nothing runs again."""

    points: tuple[Outlook, ...]

    def __str__(self) -> str:
        """As a table."""
        head = f"{'bytes':>14}  {'checkpoints':>11}  {'run again':>10}  {'of the program':>14}"
        rows = [f"{p.peak:>14}  {p.checkpoints or 'all':>11}  {p.reruns:>10}  {p.work:>14.2f}" for p in self.points]
        return "\n".join([head, *rows])

    def picture(self, path: str) -> None:
        """Draws the curve into a file, by Matplotlib (the extra `cli`)."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(6, 4))
        axes.plot([p.peak for p in self.points], [1 + p.work for p in self.points], "o-", markersize=3)
        axes.set(xscale="log", xlabel="bytes that the tape adds", ylabel="runs of the program")
        axes.grid(visible=True, alpha=0.3)
        figure.tight_layout()
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


@dataclass(frozen=True, eq=False)
class Prospects:
    """What a recorded program comes to within one budget and another. `others`: bytes that the tape takes besides; `own`: the budget if
    none is given; `free`: what the device has; `two_levels`: whether checkpoints may go to a second level."""

    planner: Planner
    others: int
    own: Callable[[], int]
    free: Callable[[], int]
    two_levels: bool = False

    def plan(self, budget: int | float | str | None, seconds: float) -> Outlook:
        """What reversing the program takes. `seconds`: of the recording. BudgetError where the budget is too small."""
        limit = self.own() if budget is None else bytes_of(budget, self.free)
        return outlook(self.planner, limit, self.others, seconds, two_levels=self.two_levels)

    def script_within(self, budget: int | float | str) -> Script | None:
        """What a reversal would follow. BudgetError where the budget is too small."""
        script = self.planner.best(self.plan(budget, 0.0).budget - self.others)
        return None if script is None else self.planner.whole(script)

    def tradeoff(self, points: int, seconds: float) -> Tradeoff:
        """The curve of bytes against operations that run again."""
        return tradeoff(self.planner, self.others, seconds, points)


def tradeoff(planner: Planner, others: int, seconds: float, points: int) -> Tradeoff:
    """The curve, of about so many points."""
    slots: Sequence[int] = range(planner.most_slots)
    if len(slots) > points:
        ratio = max(len(slots) - 1, 1) ** (1 / (points - 1))
        slots = sorted({round(ratio**k) - 1 for k in range(points)} | {0})
    scripts = [*(planner.script(s) for s in slots), planner.keeping(), *([planner.undoing()] if planner.undoes else [])]
    found: list[Outlook] = []
    for script in sorted(scripts, key=planner.peak):
        if not found or found[-1].work * planner.program.costs[-1] > script.cost + 0.5:
            found.append(_of(script, planner, planner.peak(script) + others, others, seconds))
    return Tradeoff(tuple(found))


__all__ = ["Outlook", "Prospects", "Tradeoff", "outlook", "tradeoff"]

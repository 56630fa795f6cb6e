"""Growth: how time and memory of a gradient grow with the elements and with the steps, as slopes of the logarithms.

Heat keeps nothing, Fisher-KPP every state. Each sweep is a process of its own, small sizes first. By the tape's own account, in exact
bytes: `kept`, what the reverse reads, saved or still in the program's arrays; and `held`, which is what is saved, those arrays and their
shadows. `resident` is what the process has beyond what it had at the smallest size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import crew, figures
from .crew import Hire, Member
from .figures import Record
from .problem import Problem, Size
from .problems import PROBLEMS

TIME_SLOPE, WITHIN = 1.1, 0.02
_TURNS = 3


@dataclass(frozen=True)
class Sweep:
    """Sizes of a problem along one axis: 'elements' or 'steps'."""

    problem: str
    axis: str
    sizes: tuple[Size, ...]

    @property
    def name(self) -> str:
        return f"{self.problem} in {self.axis}"

    def amount(self, size: Size) -> int:
        """How much there is along the axis."""
        return size["steps"] if self.axis == "steps" else size["side"] ** 2


SWEEPS = tuple(
    Sweep(problem, axis, sizes)
    for problem in ("heat", "fisher_kpp")
    for axis, sizes in (
        ("elements", tuple({"side": side, "steps": 10} for side in (256, 512, 1024, 2048, 4096))),
        ("steps", tuple({"side": 128, "steps": steps} for steps in (10, 100, 1000, 10_000))),
    )
)
QUICK = (Sweep("fisher_kpp", "elements", tuple({"side": side, "steps": 3} for side in (16, 32))),)


def measured(sweep: Sweep, hire: Hire = crew.Process) -> Record:
    """The points of a sweep, its slopes and verdicts; every point's gradient is checked."""
    (problem,) = (p for p in PROBLEMS if p.name == sweep.problem)
    with crew.hired(problem.name, ["gpuad"], "cpu", hire) as members:
        points = [{"size": dict(s), "amount": sweep.amount(s), **_point(problem, s, members["gpuad"])} for s in sweep.sizes]
    slopes = _slopes(points)
    return {"points": points, "slopes": slopes, "verdicts": judge(sweep, slopes)}


def judge(sweep: Sweep, slopes: Mapping[str, float]) -> list[Record]:
    """What is required of the slopes: of time everywhere, of all memory in elements, and of what is kept in steps."""
    found = []
    if "gradient_ms" in slopes:
        why = [f"the primal's is {slopes['primal_ms']:.2f}"]
        found.append(figures.verdict("slope of the gradient's time", slopes["gradient_ms"], TIME_SLOPE, why))
    key = "held_bytes" if sweep.axis == "elements" else "kept_bytes"
    if key in slopes:
        off = abs(slopes[key] - 1.0)
        found.append(figures.verdict(f"slope of {key.split('_')[0]} bytes away from 1", off, WITHIN, []))
    return found


def _point(problem: Problem, size: Size, member: Member) -> Record:
    given = problem.inputs(size, np.random.default_rng(0))
    with crew.written(given=given, wanted=problem.wanted(size, given)) as folder:
        del given
        member.ask(do="build", folder=folder, size=dict(size))
        built = member.answer()
        if "pieces" not in built:
            return built
        times = {piece: math.inf for piece in ("primal", "gradient")}
        for _ in range(_TURNS):
            for piece in times:
                member.ask(do="time", piece=piece, seconds=0.05)
                answer = member.answer()
                if "seconds" not in answer:
                    return answer
                times[piece] = min(times[piece], answer["seconds"])
        member.ask(do="say")
        said = member.answer()
        if "failed" in said:
            return said
    return {
        **{f"{piece}_ms": round(seconds * 1e3, 4) for piece, seconds in times.items()},
        "kept_bytes": said["kept_bytes"],
        "held_bytes": said["held_bytes"],
        "resident_bytes": said["memory_bytes"],
        "error": said["error"],
    }


def _slopes(points: Sequence[Record]) -> dict[str, float]:
    """Least-squares slopes of logarithms over all points that were measured; none of what does not grow."""
    there = [p for p in points if "gradient_ms" in p]
    if len(there) < 2:
        return {}
    amounts = [p["amount"] for p in there]
    keys = ("primal_ms", "gradient_ms", "kept_bytes", "held_bytes", "resident_bytes")
    return {key: round(slope(amounts, [p[key] for p in there]), 4) for key in keys if all(p[key] > 0 for p in there)}


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of log y over log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])

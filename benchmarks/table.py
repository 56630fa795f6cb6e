"""The table: every problem at several sizes, by everybody who is installed, in turn in one run, each gradient checked.

Each runner is a process (`worker.py`). One turn times every piece of every runner once; the figure is the lowest of the turns' medians. A
runner that is missing or wrong is a row that says so.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import crew, figures
from .crew import Hire, Member
from .figures import Rows
from .problem import Problem, Rates, Record, Size, label
from .worker import PACKAGES, RUNNERS


@dataclass(frozen=True)
class Pace:
    """`turns` at most, as far as they fit `seconds`; two always run, but one who takes half of that time in one turn has no other. A piece
    is called again and again for `piece` seconds in each."""

    turns: int = 6
    seconds: float = 6.0
    piece: float = 0.1


_LEAST_COPY = 1 << 20  # bytes; below it a copy takes no time that could be measured
QUICK = Pace(2, 0.0, 0.0)


def sizes(problem: Problem, place: str, quick: bool) -> tuple[Size, ...]:
    """The sizes that are measured."""
    return (problem.quick,) if quick else problem.sizes if place == "cpu" else problem.large


def measured(
    problem: Problem, chosen_sizes: Sequence[Size], place: str = "cpu", pace: Pace = Pace(), hire: Hire = crew.Process,
) -> dict[str, Record]:  # fmt: skip
    """A record for each size, by its label: the floor, the copy's rate, a row for each runner, and the verdicts on gpuad's."""
    found: dict[str, Record] = {}
    there = [name for name in RUNNERS if not absent(name)]
    with crew.hired(problem.name, there, place, hire) as members:
        for size in chosen_sizes:
            found[label(size)] = _at_size(problem, size, members, pace)
    return found


def absent(runner: str) -> str:
    """Why a runner cannot take part: its package; nothing if it can."""
    package = PACKAGES.get(runner)
    return f"{package} is not installed" if package and importlib.util.find_spec(package) is None else ""


def _at_size(problem: Problem, size: Size, members: Mapping[str, Member], pace: Pace) -> Record:
    floor = problem.floor(size)
    rows: Rows = {name: {"missing": absent(name)} for name in RUNNERS if absent(name)}
    given = problem.inputs(size, np.random.default_rng(0))
    with crew.written(given=given, wanted=problem.wanted(size, given)) as folder:
        del given
        built = _together(members, do="build", folder=folder, size=dict(size))
        fit = {name: answer["pieces"] for name, answer in built.items() if "pieces" in answer}
        rows |= {name: answer for name, answer in built.items() if name not in fit}
        times, copy, broken = _turns(problem, size, {name: members[name] for name in fit}, fit, pace)
        rows |= broken
        for name in (n for n in fit if n not in broken):
            members[name].ask(do="say")
            said = members[name].answer()
            rows[name] = said if "failed" in said else {**figures.figures(floor, times[name], copy), **said, **figures.moved(said, floor)}
    ordered = {name: rows[name] for name in RUNNERS}
    for row in ordered.values():
        if figures.usable(row) and figures.usable(ordered["gpuad"]):
            row["over_gpuad"] = round(row["gradient_ms"] / ordered["gpuad"]["gradient_ms"], 3)
    return {
        "size": dict(size),
        "floor": {
            **{f"{name}_bytes": getattr(floor, f"{name}_bytes") for name in ("primal", "reverse", "saved")},
            "ratio": round(floor.ratio, 3),
            **({"ratio_at_rates": round(floor.ratio_at(copy), 3)} if copy and floor.saved_bytes else {}),
        },
        **({"copy_gb_s": round(copy.near / 1e9, 2)} if copy else {}),
        **({"far_copy_gb_s": round(copy.far / 1e9, 2)} if copy and floor.saved_bytes else {}),
        "rows": ordered,
        "verdicts": figures.judge(problem, size, floor, ordered, copy),
    }


def _together(members: Mapping[str, Member], **request: object) -> dict[str, Record]:
    """Everybody's answer to a request; all work at once."""
    for member in members.values():
        member.ask(**request)
    return {name: member.answer() for name, member in members.items()}


def _turns(
    problem: Problem, size: Size, members: Mapping[str, Member], pieces: Mapping[str, list[str]], pace: Pace
) -> tuple[dict[str, dict[str, float]], Rates | None, Rows]:
    """Seconds of each piece of each runner, the rates of copies, and who broke on the way."""
    times = {name: dict.fromkeys(pieces[name], math.inf) for name in members}
    floor = problem.floor(size)
    near, far = max(floor.primal_bytes // problem.launches(size), _LEAST_COPY), max(2 * floor.saved_bytes, _LEAST_COPY)
    broken: Rows = {}
    done: set[str] = set()
    copies: dict[int, float] = {}
    deadline = time.perf_counter() + pace.seconds
    for turn in range(pace.turns):
        if turn > 1 and time.perf_counter() > deadline:
            break
        for name, member in members.items():
            begin = time.perf_counter()
            for piece in pieces[name] if name not in done else ():
                member.ask(do="time", piece=piece, seconds=pace.piece)
                answer = member.answer()
                if "seconds" not in answer:
                    broken[name] = answer
                    done.add(name)
                    break
                times[name][piece] = min(times[name][piece], answer["seconds"])
            if time.perf_counter() - begin > pace.seconds / 2 > 0:
                done.add(name)
        for nbytes in (near, far) if "gpuad" in members and "gpuad" not in broken else ():
            members["gpuad"].ask(do="copy", nbytes=nbytes, seconds=pace.piece)
            copies[nbytes] = max(copies.get(nbytes, 0.0), members["gpuad"].answer().get("rate", 0.0))
    return times, Rates(copies[near], copies[far]) if all(copies.values()) and copies else None, broken

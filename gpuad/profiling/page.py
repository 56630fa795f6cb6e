"""A profile as a page of HTML that stands alone: `page.html` with the figures in it. Nothing is fetched."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..budget import shown
from ..tape.budget.holding import Holding
from ..tape.memory.memory_log import Kind
from .advice import advice
from .bands import bands
from .records import Band, Measured, Program, Round, summed
from .table import summary

_TEMPLATE = Path(__file__).with_name("page.html")
_MARK = "/*DATA*/null"
_BANDS = 40  # of a program, beyond which they are summed by kind
_STEPS = 600  # of a band

Steps = Sequence[tuple[int, int]]


def write(measured: Measured, path: str | os.PathLike[str]) -> None:
    """Writes the page."""
    Path(path).write_text(html(measured), encoding="utf-8")


def html(measured: Measured) -> str:
    """The page."""
    text = json.dumps(figures(measured), separators=(",", ":")).replace(
        "<", "\\u003c"
    )  # no name of an array ends the script, or hides its end
    return _TEMPLATE.read_text(encoding="utf-8").replace(_MARK, text)


def figures(measured: Measured) -> dict[str, Any]:
    """What the page shows."""
    start = measured.seconds[0]
    return {
        "summary": summary(measured),
        "advice": list(advice(measured)),
        "programs": [_program(measured, program) for program in measured.programs],
        "levels": _thinned([(round(s - start, 6), n) for s, n in measured.totals]),
        "resident": [(round(r.seconds - start, 6), r.rss) for r in measured.readings if r.rss is not None],
        "rounds": [_round(r, start) for r in measured.rounds][-500:],
        "seconds": measured.seconds[1] - start,
    }


def _round(r: Round, start: float) -> list[float | None]:
    return [None if s is None else round(s - start, 6) for s in (r.began, r.recorded, r.reversing, r.reversed)]


def _program(measured: Measured, program: Program) -> dict[str, Any]:
    holding = program.holding
    rounds = [r for r in measured.rounds if r.program is program]
    return {
        "title": program.title,
        "times": len(rounds),
        "seconds": min((r.took for r in rounds), default=0.0),
        "operations": holding.operations,
        "moments": len(holding.moments),
        "peak": holding.peak,
        "labels": _labels(holding),
        "bands": _bands(holding),
        "budgets": [
            {
                "peak": s.outlook.peak,
                "checkpoints": s.outlook.checkpoints,
                "reruns": s.outlook.reruns,
                "seconds": 0.0 if math.isnan(s.outlook.seconds) else s.outlook.seconds,
                "moments": len(s.holding.moments) if s.holding is not None else 0,
                "bands": _bands(s.holding) if s.holding is not None else [],
            }
            for s in program.supposed
        ],
    }


def _labels(holding: Holding) -> dict[str, Any]:
    """What happens at each moment: few texts, and which comes when, as runs."""
    texts: dict[str, int] = {}
    runs: list[list[int]] = []
    for k, moment in enumerate(holding.moments):
        number = texts.setdefault(str(moment), len(texts))
        if not runs or runs[-1][1] != number:
            runs.append([k, number])
    return {"texts": list(texts), "runs": runs if len(runs) <= 20 * _STEPS else []}


def _bands(holding: Holding) -> list[dict[str, Any]]:
    found = bands(holding)
    shown_bands = [_band(b) for b in found[:_BANDS]]
    for kind in Kind:
        rest = [b for b in found[_BANDS:] if b.kind is kind]
        if rest:
            shown_bands.append(_rest(kind, rest))
    return shown_bands


def _band(b: Band) -> dict[str, Any]:
    return {
        "name": b.name, "kind": str(b.kind), "reason": b.reason, "added": b.added, "count": b.count, "bytes": shown(b.nbytes),
        "most": shown(b.most), "steps": _thinned(b.steps),
    }  # fmt: skip


def _rest(kind: Kind, rest: Sequence[Band]) -> dict[str, Any]:
    steps = summed((moment, nbytes - before) for b in rest for (_, before), (moment, nbytes) in pairwise([(0, 0), *b.steps]))
    return {
        "name": f"{len(rest)} more", "kind": str(kind), "reason": ", ".join(sorted({b.name for b in rest})[:20]), "added": True,
        "count": sum(b.count for b in rest), "bytes": shown(sum(b.nbytes for b in rest)), "most": shown(max(n for _, n in steps)),
        "steps": _thinned(steps),
    }  # fmt: skip


def _thinned(steps: Sequence[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """As many steps as a screen can show: of several the largest."""
    if len(steps) <= _STEPS:
        return list(steps)
    group = -(-len(steps) // _STEPS)
    found = [max(steps[k : k + group], key=lambda step: step[1]) for k in range(0, len(steps), group)]
    return [*found, steps[-1]]


__all__ = ["figures", "html", "write"]

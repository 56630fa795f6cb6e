"""What would help a program to take fewer bytes, most first: each sentence with its bytes, and with what it costs where that is known.

In: what a profile measured (`records.Measured`). Out: sentences, sorted by bytes. They name arrays that are saved, scratch memory of
adjoints (both from 2 % of the program's peak on) and arrays that the caller holds; for saved ones a budget, if one takes at most 1.5 times
as long. The time under a budget is an estimate: that of a measured round plus the operations that would run again."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..budget import shown
from ..tape.memory.memory_log import Kind
from .bands import bands
from .records import Band, Measured, Program, Supposed

_WORTH = 1.5  # times as long as without, that a budget is proposed for at most
_SHARE = 0.02  # of the peak, below which nothing is said


def advice(measured: Measured) -> tuple[str, ...]:
    """Sentences for all programs of a profile; of one that was recorded in several ways, for the last of them."""
    programs = {program.title: program for program in measured.programs}.values()
    found = [hint for program in programs for hint in _of_program(measured, program)]
    return tuple(text for _, text in sorted(found, key=lambda one: -one[0]))


def _of_program(measured: Measured, program: Program) -> Iterator[tuple[int, str]]:
    peak = program.holding.peak
    budget = _budget(measured, program)
    for band in bands(program.holding):
        if not band.added or band.most < max(_SHARE * peak, 1):
            continue
        if band.kind is Kind.saved and band.example.needed_by is not None:
            yield band.most, _saved(band, budget)
            budget = ""  # it is that of the program: said once
        elif band.kind is Kind.scratch:
            yield band.most, f"`{band.name}` takes {shown(band.most)} while the adjoint of {band.example.needed_by} runs: {band.reason}"
    for name, where, nbytes in program.held_by_caller:
        what = f"{shown(nbytes)} are held by `{name}`, made at {where}"
        yield nbytes, f"{what}: its memory cannot be used again, so the program is recorded anew each time; let it go before"


def _saved(band: Band, budget: str) -> str:
    example = band.example
    times = "once" if band.count == 1 else f"{band.count:,} times"
    held = shown(band.most) + ("" if band.most == band.nbytes else " at once")
    text = f"`{band.name}` is saved {times} ({held}) because {example.needed_by} needs it"
    if example.overwritten_by is not None and band.count == 1:
        return (
            f"{text}, since {example.overwritten_by} overwrites it: a ping-pong of two arrays, with the new values in the other one, would "
            "save nothing"
        )
    if example.overwritten_by is not None:
        text += f", and {example.overwritten_by} overwrites it"
    return text + (f": {budget}" if budget else "")


def _budget(measured: Measured, program: Program) -> str:
    """The smallest budget that does not take too long."""
    rounds = [r for r in measured.rounds if r.program is program and r.reversed is not None]
    took = min((r.took for r in rounds), default=0.0)
    fitting = [s for s in program.supposed if s.outlook.reruns and took and s.outlook.peak < program.holding.peak]
    worth = [s for s in fitting if _longer(s, took) <= _WORTH]
    if not worth:
        return ""
    best = min(worth, key=lambda s: s.outlook.peak)
    return f"a budget of {shown(best.outlook.peak)} takes about {_longer(best, took) - 1:.0%} longer"


def _longer(supposed: Supposed, took: float) -> float:
    """How long a round takes within a budget, as a multiple; of a program that was recorded once, whose time is that of compiling it, as if
    its reverse took none."""
    outlook = supposed.outlook
    return 1 + (outlook.work if math.isnan(outlook.seconds) else outlook.seconds / took)


__all__ = ["advice"]

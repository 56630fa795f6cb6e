"""What a program holds, summed by array and reason: as many lines as a reader can take in, however long the program is.

In: a `Holding`, everything that a recorded program and its reversal hold, from which moment to which. Out: `Band`s, one for each array,
kind and reason, with total bytes, the most at once, and the bytes as steps over moments; the largest at once first, ties by name and
reason. States of a checkpoint that differ only in the operation's number are one band. The sum of all bands is what is held."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..tape.budget.holding import Held, Holding
from .records import Band, most_of, steps_of

_NUMBER = re.compile(r"operation \d+, ")  # of a checkpoint's state: all states of one line are one band


def bands(holding: Holding) -> tuple[Band, ...]:
    """The bands of a program, what is largest at once first."""
    groups: dict[tuple[object, ...], list[Held]] = {}
    for h in holding.held:
        groups.setdefault((h.name, h.kind, h.needed_by, h.overwritten_by, _NUMBER.sub("", h.why), h.added), []).append(h)
    found = [_band(held, len(holding.moments)) for held in groups.values()]
    return tuple(sorted(found, key=lambda b: (-b.most, b.name, b.reason)))


def _band(held: Sequence[Held], end: int) -> Band:
    first, steps = held[0], steps_of(held, end)
    reason = _NUMBER.sub("", first.reason)
    return Band(first.name, first.kind, reason, first.added, len(held), sum(h.nbytes for h in held), most_of(steps), steps, first)


__all__ = ["bands"]

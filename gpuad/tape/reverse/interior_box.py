"""Finds a box of threads all of whose elements a reversal knows to be zero.

A kernel that gathers has a thread for each element. Of the shadow of a field whose inside alone is overwritten, the border counts and the
inside is zero (`shadow_state`): the threads of the inside assign, those of the border add, and nothing has to be cleared. The box is what
is left of the launch's threads when layers with elements that count are taken off its faces, the layer first of which the greatest part
counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...accumulate.gather_launch import Box, Elements
from ...analysis.affine_forms import Digit, Launch, Reach
from ...program.ir.region import EMPTY, Region
from ..memory.effects import of_reach

_LAYERS = 64  # that are taken off at most


@dataclass(frozen=True, eq=False)
class Boxed:
    """Threads, by their indices along x, y and z, and the elements that they have, counted from where the shadow's pointer points."""

    box: Box
    region: Region


def box_within(elements: Elements, zeros: Region, launch: Launch) -> Boxed | None:
    """The threads, if there are any, of which every element is in `zeros`, counted from the pointer; each has its own."""
    box = elements.box
    for _ in range(_LAYERS):
        whole = _elements(elements, box, launch)
        if whole is None:
            return None
        if whole <= zeros:
            return Boxed(box, whole)
        worst, box = max(((_counting(elements, layer, zeros, launch), rest) for layer, rest in _faces(box)), key=lambda found: found[0])
        if worst == 0 or any(low > high for low, high in box):
            return None
    return None


def _elements(elements: Elements, box: Box, launch: Launch) -> Region | None:
    """The elements of the threads of a box; None if that cannot be told exactly."""
    found, count = EMPTY, len(elements.forms)
    ranges = {Digit("global", axis): ends for axis, ends in zip("xyz", box, strict=True)}
    for form in elements.forms:
        part = of_reach(Reach(form, ranges), 0, 1, launch)
        if part is None:
            return None
        found = found | part
    for low, high in box:
        count *= high - low + 1
    return found if found.nbytes == count else None


def _counting(elements: Elements, layer: Box, zeros: Region, launch: Launch) -> float:
    """Which part of a layer's elements counts."""
    whole = _elements(elements, layer, launch)
    return (whole - zeros).nbytes / whole.nbytes if whole is not None else 0.0


def _faces(box: Box) -> Iterator[tuple[Box, Box]]:
    """Each outermost layer of a box, and the box without it."""
    for axis, (low, high) in enumerate(box):
        for layer, rest in (((low, low), (low + 1, high)), ((high, high), (low, high - 1))):
            yield _with(box, axis, layer), _with(box, axis, rest)


def _with(box: Box, axis: int, ends: tuple[int, int]) -> Box:
    x, y, z = (ends if k == axis else other for k, other in enumerate(box))
    return x, y, z


__all__ = ["Boxed", "box_within"]

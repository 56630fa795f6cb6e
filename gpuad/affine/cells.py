"""Cells of a set of instances: the parts in each of which certain conditions hold everywhere or nowhere, and points of each.

A cell is found by its points where it has some, and by isl where it has few: none is left out, however small it is. Where all points of a
set are known, no query to isl is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .points import Function, Mask, Points, Region, scattered
from .relations import LimitReached, without

if TYPE_CHECKING:
    from islpy import Set

_CELLS = 128  # of one set
_CUTS = 400  # conditions that are looked at for one set
_POOL = 192  # points that are looked at of each part of a set
_FEW = 6  # with fewer points isl is queried whether there are any, and which


class Cut:
    """A condition on instances, as the set of those for which it holds."""

    def __init__(self, make: Callable[[], Set]) -> None:
        self.make = make

    @cached_property
    def region(self) -> Region:
        return Region(self.whole)

    @cached_property
    def whole(self) -> Set:
        return self.make()

    def holds(self, points: Points) -> Mask:
        return self.region.holds(points)


class Related(Cut):
    """That an instance is related to another one."""

    def __init__(self, via: Function) -> None:
        super().__init__(lambda: via.related.domain())
        self.via = via

    def holds(self, points: Points) -> Mask:
        return self.via.images(points)[0]


class Beyond(Cut):
    """A condition on the instances to which others are related, as one on these."""

    def __init__(self, via: Function, inner: Cut) -> None:
        super().__init__(lambda: via.related.intersect_range(inner.whole).domain())
        self.via = via
        self.inner = inner

    def holds(self, points: Points) -> Mask:
        there, images = self.via.images(points)
        there[there] = self.inner.holds(images)
        return there


class Cell:
    """A part of a set, known by points of it, which may be all there are (`complete`); the set itself is made when it is first needed."""

    def __init__(self, points: Points, complete: bool, make: Callable[[], Set]) -> None:
        self.points = points
        self.complete = complete
        self.make = make

    @cached_property
    def whole(self) -> Set:
        return self.make()

    def sides(self, cut: Cut) -> list[Cell]:
        """What of it is not empty where a condition holds, and where it does not."""
        mask = cut.holds(self.points)
        found = [
            Cell(self.points[mask], self.complete, lambda: self.whole.intersect(cut.whole)),
            Cell(self.points[~mask], self.complete, lambda: without(self.whole, cut.whole)),
        ]
        return [cell for side in found if len((cell := side.certain()).points)]

    def certain(self) -> Cell:
        """The cell with at least as many points as a comparison needs, if it has so many."""
        return self if self.complete or len(self.points) >= _FEW else cell_of(self.whole)


def cell_of(whole: Set) -> Cell:
    return Cell(*scattered(whole, _POOL), lambda: whole)


def cells(whole: Set, cuts: Iterable[Cut], number: int) -> list[Points]:
    """Points of each cell of a set, about so many of each; all of them where there are few. Raises LimitReached for too many cells."""
    root = cell_of(whole)
    found = [root] if len(root.points) else []
    for cut in _different(root, cuts) if found else ():
        found = [side for cell in found for side in cell.sides(cut)]
        if len(found) > _CELLS:
            raise LimitReached(f"{_CELLS} parts of a set")
    return [_few(cell.points, number) for cell in found]


def _different(root: Cell, cuts: Iterable[Cut]) -> Iterator[Cut]:
    """Those of the cuts that part a set, each once."""
    known: dict[bytes, list[Set]] = {}
    for number, cut in enumerate(cuts):
        if number > _CUTS:
            raise LimitReached(f"{_CUTS} conditions on a set")
        sides = root.sides(cut)
        if len(sides) < 2:
            continue
        mask = cut.holds(root.points)
        alike = known.setdefault(min(mask.tobytes(), (~mask).tobytes()), [])
        if alike and root.complete:
            continue
        parts = [side.whole for side in sides]
        if not any(part.is_equal(other) for part in parts for other in alike):
            alike.append(parts[0])
            yield cut


def _few(points: Points, number: int) -> Points:
    """Some of the points, the first and the last ones among them."""
    if len(points) <= 2 * number:
        return points
    rng = np.random.default_rng(number)
    middle = rng.choice(np.arange(1, len(points) - 1), number - 2, replace=False)
    chosen: Points = points[np.concatenate([[0, len(points) - 1], np.sort(middle)])]
    return chosen

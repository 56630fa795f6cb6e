"""Equivalence of sums: whether two collections of additions add the same to every element, whatever is in memory.

One side are the additions of the plain adjoint, the other those of the kernels that run in its stead. First, additions that are the same
relation are crossed out. What is left is compared by `Contributions` where each addition hangs on one seed, else by `classes`. Either way
isl parts all instances exactly into cells, so that none is left out, in each of which the same additions meet and their values are made
alike. That the sums of a cell are one function of memory is tested at instances in general position with random memory (`sampling`): an
identity of functions of quasi-affine indices that fails, if it does not hold, at random points with probability near 1.

*Contributions* of one seed each are points of (element, element of the seeds), on which additions of both sides meet or do not.

What an adjoint adds is linear in the shadows that it reads, the seeds. Where each addition hangs on one element of these and no two of its
instances have the same element and the same seed, the two sides add the same if for each element and each seed what they add comes to one
sum: seeds are independent. So all additions are sets of points of one space, which is parted into the atoms of these sets; in an atom, the
same additions meet at each point.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..ir.nodes import Buffer
from .cells import Beyond, cells
from .classes import Classes
from .instances import Instances
from .layout import Layouts
from .points import Function, Points
from .relations import LimitReached, Undecided, tractable, without
from .sampling import Incomparable
from .sums import Addition, Sums, crossed_out, merged, seed_of

if TYPE_CHECKING:
    from islpy import Set

_ATOMS = 256


@dataclass(frozen=True)
class Strategy:
    """How sums are compared. `linear`: those sums alone are taken apart that hang on shadows; `by_seed`: what hangs on other elements of
    shadows is another contribution; `keyed`: by elements and seeds; `strict`: else only instances of which one reads all that the other
    reads are joined, which is found sooner."""

    linear: bool = True
    by_seed: bool = False
    keyed: bool = False
    strict: bool = True


STRATEGIES = (
    Strategy(by_seed=True, keyed=True),
    Strategy(),
    Strategy(by_seed=True),
    Strategy(linear=False),
    Strategy(strict=False),
    Strategy(linear=False, strict=False),
)


def differing(
    instances: Instances,
    layouts: Layouts,
    plain: Sequence[Addition],
    made: Sequence[Addition],
    shadows: Collection[Buffer],
    strategy: Strategy,
) -> str | None:
    """Why the two sides may differ, or None if they add the same. Raises Undecided."""
    one, other = (merged(instances.graph, side, shadows if strategy.by_seed else None) for side in crossed_out(plain, made))
    if not one and not other:
        return None
    try:
        with np.errstate(all="ignore"):
            if strategy.keyed:
                return Contributions(instances, layouts, one, other, shadows).difference()
            return Classes(instances, layouts, one, other, shadows, strategy.strict).difference()
    except Incomparable:
        return "a value that is not known as a function of memory"


@dataclass(frozen=True, eq=False)
class _Keyed:
    """An addition with the set of its points, and the function back to its instances."""

    k: int
    image: Set
    instance: Function


class Contributions(Sums):
    """Compares sums for each element and seed. Raises Undecided where an addition does not hang on one seed, or instances share one."""

    def __init__(
        self, instances: Instances, layouts: Layouts, plain: Sequence[Addition], made: Sequence[Addition], linear: Collection[Buffer]
    ) -> None:
        super().__init__(instances, layouts, plain, made)
        self.groups: dict[Buffer, list[_Keyed]] = {}
        for k, addition in enumerate(self.all):
            seed = seed_of(addition, linear)
            if seed is None or addition.element.text is None:
                raise Undecided("an addition that does not hang on one seed")
            related = addition.elements(layouts).flat_range_product(addition.read(layouts, seed))
            if not tractable(related).is_injective():
                raise Undecided("contributions with one seed")
            keyed = _Keyed(k, tractable(related.range()), Function(related.reverse()))
            if not keyed.image.is_empty():
                self.groups.setdefault(seed.args[0], []).append(keyed)

    def difference(self) -> str | None:
        """Where the two sides differ, in words."""
        count, members = 0, []
        for group in self.groups.values():
            for atom, there in _atoms(group):
                for points in self.points(atom, there):
                    for keyed in there:
                        found, images = keyed.instance.images(points)
                        members.append((keyed.k, count + np.flatnonzero(found), images))
                    count += len(points)
        return self.unequal(count, members)

    def points(self, atom: Set, there: Sequence[_Keyed]) -> list[Points]:
        cuts = [Beyond(keyed.instance, cut) for keyed in there for cut in self.kinks(keyed.k)]
        return cells(atom, cuts, max(self.wanted(keyed.k) for keyed in there))


def _atoms(group: Sequence[_Keyed]) -> list[tuple[Set, tuple[_Keyed, ...]]]:
    """The parts of the union of sets in which the same of them are everywhere."""
    found: list[tuple[Set, tuple[_Keyed, ...]]] = []
    for keyed in group:
        rest, parted = keyed.image, []
        for number, (atom, there) in enumerate(found):
            if rest.is_disjoint(atom):
                parted.append((atom, there))
                continue
            parted.append((atom.intersect(rest).coalesce(), (*there, keyed)))
            other, rest = without(atom, rest), without(rest, atom)
            if not other.is_empty():
                parted.append((other.coalesce(), there))
            if rest.is_empty():  # atoms have nothing in common
                parted += found[number + 1 :]
                break
        else:
            parted.append((rest.coalesce(), (keyed,)))
        found = parted
        if len(found) > _ATOMS:
            raise LimitReached(f"{_ATOMS} parts of a sum")
    return found

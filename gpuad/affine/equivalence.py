"""Whether two collections of additions add the same to every element, whatever is in memory.

One side are the additions of the plain adjoint, the other those of the kernels that run in its stead. First, additions that are the same
relation are crossed out. What is left is compared by `contributions` where each addition hangs on one seed, else by `classes`. Either way
isl parts all instances exactly into cells, so that none is left out, in each of which the same additions meet and their values are made
alike. That the sums of a cell are one function of memory is tested at instances in general position with random memory (`sampling`): an
identity of functions of quasi-affine indices that fails, if it does not hold, at random points with probability near 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.nodes import Buffer
from .classes import Classes
from .contributions import Contributions
from .instances import Instances
from .layout import Layouts
from .sampling import Incomparable
from .sums import Addition, crossed_out, merged


@dataclass(frozen=True)
class Way:
    """How sums are compared. `linear`: those sums alone are taken apart that hang on shadows; `apart`: what hangs on other elements of
    shadows is another contribution; `keyed`: by elements and seeds; `strict`: else only instances of which one reads all that the other
    reads are joined, which is found sooner."""

    linear: bool = True
    apart: bool = False
    keyed: bool = False
    strict: bool = True


WAYS = (Way(apart=True, keyed=True), Way(), Way(apart=True), Way(linear=False), Way(strict=False), Way(linear=False, strict=False))


def differing(
    instances: Instances, layouts: Layouts, plain: Sequence[Addition], made: Sequence[Addition], shadows: Collection[Buffer], way: Way
) -> str | None:
    """Why the two sides may differ, or None if they add the same. Raises Undecided."""
    one, other = (merged(instances.graph, side, shadows if way.apart else None) for side in crossed_out(plain, made))
    if not one and not other:
        return None
    try:
        with np.errstate(all="ignore"):
            if way.keyed:
                return Contributions(instances, layouts, one, other, shadows).difference()
            return Classes(instances, layouts, one, other, shadows, way.strict).difference()
    except Incomparable:
        return "a value that is not known as a function of memory"

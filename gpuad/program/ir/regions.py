"""Sets of bytes of several allocations, by their addresses: the algebra of `region`, allocation by allocation.

In and out: `Regions`, mappings from an allocation's address to a `Region`; operands are unchanged, and no result holds an empty region.
`joined` makes them of pairs, `united`, `without` and `common` are union, difference and intersection. Assumes that an address names the
same allocation throughout. Raises nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from .region import EMPTY, Region

Regions: TypeAlias = "dict[int, Region]"  # bytes of allocations, by address


def joined(parts: Iterable[tuple[int, Region]]) -> Regions:
    """Regions by allocation."""
    found: Regions = {}
    for where, region in parts:
        if region:
            found[where] = found.get(where, EMPTY) | region
    return found


def united(a: Mapping[int, Region], b: Mapping[int, Region]) -> Regions:
    """The bytes of both."""
    return joined((*a.items(), *b.items()))


def without(a: Mapping[int, Region], b: Mapping[int, Region]) -> Regions:
    """The bytes of `a` that are not in `b`."""
    return {where: rest for where, region in a.items() if (rest := region - b.get(where, EMPTY))}


def common(a: Mapping[int, Region], b: Mapping[int, Region]) -> Regions:
    """The bytes that are in both."""
    return {where: both for where, region in a.items() if (both := region & b.get(where, EMPTY))}

"""Delinearised access relations: from instances to an element, with a coordinate for each axis of its array in place of one number.

Kernels number the elements of an array of several dimensions themselves: `(z * ny + y) * nx + x`. That two instances touch one element is
then an equation over products of sizes, for which isl needs long; axis by axis it is trivial. So an index is taken apart again (it is
*delinearised*): the strides of an array's axes are the factors in the indices with which it is accessed, and the coordinates along the axes
are the quotients and remainders by them. An index's own summands are its coordinates where isl finds that each of them stays inside of its
axis; elsewhere quotient and remainder are written out, so the coordinates are exact whatever the strides are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from .effects import Dim, Effect
from .relations import Undecided, domain, integer, relation
from .values import Graph, Node, summands

if TYPE_CHECKING:
    from islpy import Map

_AXES = 5  # of one array at most


class Layouts:
    """The strides of arrays, greatest first, from all accesses of a launch's kernels."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.factors: dict[Hashable, set[int]] = {}
        self.maps: dict[Hashable, Map] = {}

    def note(self, effects: Iterable[Effect]) -> None:
        """Takes account of accesses. The relations of an array that is met again change."""
        for e in effects:
            if e.element.text is not None:
                terms, _ = summands(e.element)
                self.factors.setdefault(e.buffer, set()).update(abs(n) for n in terms.values())
        self.maps.clear()

    def strides(self, array: Hashable) -> tuple[int, ...]:
        """The strides of an array's axes, each a multiple of the next; the last is 1."""
        found: list[int] = []
        for factor in sorted(self.factors.get(array, ()), reverse=True):
            if factor > 1 and len(found) < _AXES - 1 and (not found or found[-1] % factor == 0):
                found.append(factor)
        return (*found, 1)

    def coordinates(self, array: Hashable, number: int) -> tuple[int, ...]:
        """An element's coordinates."""
        found = []
        for stride in self.strides(array):
            found.append(number // stride)
            number %= stride
        return tuple(found)

    def relation(self, dims: tuple[Dim, ...], guards: tuple[Node, ...], array: Hashable, index: Node) -> Map:
        """The map from instances to coordinates. Raises Undecided if the index has no text."""
        key = dims, guards, array, index
        if key not in self.maps:
            self.maps[key] = self.related(dims, guards, self.strides(array), index)
        return self.maps[key]

    def related(self, dims: Sequence[Dim], guards: Sequence[Node], strides: Sequence[int], index: Node) -> Map:
        if index.text is None:
            raise Undecided("an element hangs on data")
        if len(strides) > 1:
            found = self.straight(dims, guards, _shares(index, strides))
            if _inside(found, strides):
                return found
        return self.straight(dims, guards, _digits(index.text, strides))

    def straight(self, dims: Sequence[Dim], guards: Sequence[Node], texts: Sequence[str]) -> Map:
        """The map from instances to what the texts come to; without remainders by the size of a type where the guards leave one lap alone,
        since isl is slow with these."""
        import islpy

        found = relation(self.graph, dims, guards, texts)
        if not any(lap in text for text in texts for lap in _LAPS):
            return found
        straight = islpy.Map.from_basic_map(found.affine_hull()).intersect_domain(domain(self.graph, dims, guards))
        return straight if straight.is_equal(found) else found


_LAPS = tuple(f" mod {1 << bits}" for bits in (32, 64))


def _shares(index: Node, strides: Sequence[int]) -> list[str]:
    """The sum of an index for each axis: each summand at the greatest stride that divides its factor."""
    terms, constant = summands(index)
    axes: list[list[str]] = [[] for _ in strides]
    for node, factor in terms.items():
        k = next(k for k, stride in enumerate(strides) if factor % stride == 0)
        axes[k].append(f"{factor // strides[k]}*({node.text})")
    for k, stride in enumerate(strides):
        share = (2 * constant + stride) // (2 * stride) if k + 1 < len(strides) else constant  # the nearest multiple
        constant -= share * stride
        axes[k].append(f"({share})")
    return [" + ".join(parts) for parts in axes]


def _digits(text: str, strides: Sequence[int]) -> list[str]:
    """Quotients and remainders of a number."""
    found = []
    for k, stride in enumerate(strides):
        rest = text if k == 0 else f"(({text}) mod {strides[k - 1]})"
        found.append(rest if stride == 1 else f"floor(({rest})/{stride})")
    return found


def _inside(found: Map, strides: Sequence[int]) -> bool:
    """True if each coordinate but the first lies inside of its axis."""
    if found.is_empty():
        return True
    elements = found.range()
    for k in range(1, len(strides)):
        low, high = elements.dim_min_val(k), elements.dim_max_val(k)
        if not (low.is_int() and high.is_int() and low.is_nonneg() and integer(high) < strides[k - 1] // strides[k]):
            return False
    return True

"""isl's sets and functions at many integer points at once, and points of a set in general position.

Points are arrays of shape (n, d), int64. A set's basic sets and a map's affine pieces are taken over as coefficients, with quotients of
their own (isl's *divs*), so that membership and images of any number of points are a few operations of NumPy's and no queries to isl.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .relations import context, integer, tractable

if TYPE_CHECKING:
    from islpy import Aff, BasicSet, Map, MultiAff, Point, Set

Points: TypeAlias = "NDArray[np.int64]"
Mask: TypeAlias = "NDArray[np.bool_]"
_BOX = 2048  # points of a bounding box that are all looked at
_GRID = 1 << 19  # points of a box of which those that lie in a set are found without isl
_TRIES = 4096  # points of a larger one
_ENDS = 2  # quotients of a part, of which isl is asked for points at its ends: with more, each takes it a third of a second
_WIDE = 1 << 30
_FAR = 1 << 20  # how far an unbounded dimension is looked at


class Region:
    """An isl set: which points lie in it."""

    def __init__(self, whole: Set | BasicSet) -> None:
        self.whole = whole

    @cached_property
    def parts(self) -> list[list[tuple[bool, _Affine]]]:
        return [[(c.is_equality(), _Affine(c.get_aff())) for c in part.get_constraints()] for part in _explicit(self.whole)]

    def holds(self, points: Points) -> Mask:
        found = np.zeros(len(points), bool)
        for part in self.parts:
            inside = ~found
            for is_equality, term in part:
                value = term.numerator(points)
                inside &= np.asarray(value == 0 if is_equality else value >= 0, bool)
            found |= inside
        return found


class Function:
    """A single-valued isl map: its images."""

    def __init__(self, related: Map) -> None:
        self.related = related

    @cached_property
    def pieces(self) -> list[tuple[Region, list[_Affine]]]:
        import islpy

        found: list[tuple[Set, MultiAff]] = []
        islpy.PwMultiAff.from_map(tractable(self.related)).foreach_piece(lambda where, value: found.append((where, value)))
        n = self.related.dim(islpy.dim_type.out)
        return [(Region(where), [_Affine(value.get_aff(k)) for k in range(n)]) for where, value in found]

    def images(self, points: Points) -> tuple[Mask, Points]:
        """Which points have an image, and the images of these."""
        import islpy

        there = np.zeros(len(points), bool)
        images = np.zeros((len(points), self.related.dim(islpy.dim_type.out)), np.int64)
        for where, values in self.pieces:
            mine = where.holds(points) & ~there
            if mine.any():
                few = points[mine]
                images[mine] = np.stack([v.value(few) for v in values], axis=1) if values else images[mine]
                there |= mine
        return there, images[there]


class _Affine:
    """A quasi-affine function: (constant + factors . point + quotients) / denominator."""

    def __init__(self, aff: Aff) -> None:
        import islpy

        kinds = islpy.dim_type
        bottom = aff.get_denominator_val()
        self.denominator = integer(bottom)
        self.constant = integer(aff.get_constant_val().mul(bottom))
        factors = [integer(aff.get_coefficient_val(kinds.in_, k).mul(bottom)) for k in range(aff.dim(kinds.in_))]
        self.terms = [(k, f) for k, f in enumerate(factors) if f]
        quotients = [(integer(aff.get_coefficient_val(kinds.div, k).mul(bottom)), k) for k in range(aff.dim(kinds.div))]
        self.quotients = [(f, _Affine(aff.get_div(k))) for f, k in quotients if f]
        numbers = [self.constant, self.denominator, *(f for _, f in self.terms), *(f for f, _ in self.quotients)]
        self.kind = object if any(abs(n) >= _WIDE for n in numbers) else np.int64  # wide numbers as Python's, which are exact

    def numerator(self, points: Points) -> Points:
        points = points.astype(self.kind, copy=False)
        total: Points = np.full(len(points), self.constant, self.kind)
        for k, factor in self.terms:
            total += factor * points[:, k]
        for factor, inner in self.quotients:
            total = total + factor * inner.value(points)
        return total

    def value(self, points: Points) -> Points:
        found = self.numerator(points)
        return found if self.denominator == 1 else found // self.denominator


def _explicit(whole: Set | BasicSet) -> list[BasicSet]:
    """The basic sets of a set, with every quotient written out."""
    found = tractable(whole)
    return list(tractable(found.compute_divs() if hasattr(found, "compute_divs") else found).get_basic_sets())


def scattered(whole: Set, number: int) -> tuple[Points, bool]:
    """Points of a set: all of them (and True) where the set lies in a small box; else about so many of each of its parts, those at the ends
    of it and pseudo-random ones, which are in general position: no two different affine functions agree on all of them, except where the
    set is thin, with probability near 1."""
    import islpy

    n = whole.dim(islpy.dim_type.set)
    if n == 0:
        return np.zeros((0 if whole.is_empty() else 1, 0), np.int64), True
    parts = [part for part in _explicit(whole) if not part.is_empty()]
    if not parts:
        return np.zeros((0, n), np.int64), True
    boxes = [_box(part, n) for part in parts]
    low, high = (choose([box[side] for box in boxes], axis=0) for side, choose in ((0, np.min), (1, np.max)))
    if _size(low, high) <= _BOX:
        return _of(Region(whole), _grid(low, high)), True
    found = [_some(part, box, number) for part, box in zip(parts, boxes, strict=True)]
    return np.unique(np.concatenate(found), axis=0), False


def _some(part: BasicSet, box: tuple[Points, Points], number: int) -> Points:
    """Points of a basic set."""
    low, high = box
    if _size(low, high) <= _BOX:
        return _of(Region(part), _grid(low, high))
    region, rng = Region(part), np.random.default_rng(len(low))
    if _size(low, high) <= _GRID:
        return _chosen(_of(region, _grid(low, high)), number, rng)
    inside = _of(region, _solved(region, rng.integers(low, high, (_TRIES, len(low)), endpoint=True)))[:number]
    ends = [coordinates(part.sample_point())]
    bounded = part if part.is_bounded() else part.intersect(_box_set(low, high))
    if not bounded.is_empty():
        ends += [coordinates(end.sample_point()) for end in (bounded.lexmin(), bounded.lexmax())]
        if len(inside) < number // 2:
            tractable(bounded, _ENDS)
            ends += [_toward(bounded, rng.integers(-99, 99, len(low), endpoint=True)) for _ in range(number // 2)]
    return np.concatenate([np.array(ends, np.int64), inside])


def _chosen(points: Points, number: int, rng: np.random.Generator) -> Points:
    """The first, the last and pseudo-random ones of points, so many of them."""
    if len(points) <= number:
        return points
    middle = rng.choice(np.arange(1, len(points) - 1), number - 2, replace=False)
    chosen: Points = points[np.concatenate([[0], np.sort(middle), [len(points) - 1]])]
    return chosen


def _solved(region: Region, points: Points) -> Points:
    """The points with the coordinates that a basic set's equations say put in, as far as they say them in turn."""
    (part,) = region.parts
    for _, term in (item for item in part if item[0]):
        if term.terms:
            k, factor = term.terms[-1]
            points[:, k] -= np.asarray(term.numerator(points) // factor).astype(np.int64)  # OverflowError: it is not decided
    return points


def _toward(part: BasicSet, direction: Points) -> list[int]:
    """A point of a bounded set that is farthest in a direction."""
    import islpy

    aff = islpy.Aff.zero_on_domain(islpy.LocalSpace.from_space(part.get_space()))
    for k, by in enumerate(direction):
        aff = aff.set_coefficient_val(islpy.dim_type.in_, k, islpy.Val.int_from_si(context(), int(by)))
    most = part.max_val(aff)
    face = part.add_constraint(islpy.Constraint.equality_from_aff(aff.add_constant_val(most.neg())))
    return coordinates(face.sample_point())


def _box(part: BasicSet, n: int) -> tuple[Points, Points]:
    ends = np.zeros((2, n), np.int64)
    as_set = part.to_set()
    for k in range(n):
        low, high = as_set.dim_min_val(k), as_set.dim_max_val(k)
        first = integer(low) if low.is_int() else None
        last = integer(high) if high.is_int() else None
        ends[0, k] = first if first is not None else (-_FAR if last is None else last - _FAR)
        ends[1, k] = last if last is not None else ends[0, k] + _FAR
    return ends[0], ends[1]


def _box_set(low: Points, high: Points) -> BasicSet:
    import islpy

    names = [f"d{k}" for k in range(len(low))]
    text = " and ".join(f"{a} <= {name} <= {z}" for name, a, z in zip(names, low, high, strict=True))
    return islpy.BasicSet.read_from_str(context(), f"{{ [{', '.join(names)}] : {text} }}")


def _size(low: Points, high: Points) -> int:
    size = 1
    for a, z in zip(low.tolist(), high.tolist(), strict=True):
        size *= z - a + 1
    return size


def _grid(low: Points, high: Points) -> Points:
    """All points of a box."""
    axes = [np.arange(a, z + 1) for a, z in zip(low, high, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def _of(region: Region, points: Points) -> Points:
    return points[region.holds(points)]


def coordinates(point: Point) -> list[int]:
    """An isl point's."""
    import islpy

    n = point.get_space().dim(islpy.dim_type.set)
    return [integer(point.get_coordinate_val(islpy.dim_type.set, k)) for k in range(n)]


def point_set(point: Iterable[int]) -> Set:
    """The set of one point."""
    import islpy

    return islpy.Set.read_from_str(context(), f"{{ [{', '.join(map(str, point))}] }}")

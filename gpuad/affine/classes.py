"""Classes of the instances of additions, joined by one-to-one relations between instances that add to one element and read the same.

Every instance, of either side, is in a class, and both sides' additions of a class have to come to one sum. Which instances have partners
is isl's exact answer: each domain is cut into the cells in which that is the same for all (`cells`). A relation is never trusted: one too
many or too few only makes classes whose sums differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ..ir.nodes import Buffer
from .cells import Beyond, Cut, Related, cells
from .instances import Instances
from .layout import Layouts
from .points import Function, Points, coordinates, point_set
from .relations import LimitReached, agreeing, context, tractable
from .sampling import Sampler
from .sums import Addition, Point, Sums, loads, seed_of

if TYPE_CHECKING:
    from islpy import Map

_TRIALS = 160  # relations that are tried for a pair
_WAVES = 8  # steps from an instance to all of its class
_Instance = tuple[int, Point]  # the number of an addition, and one of its instances


class Classes(Sums):
    """Joins instances of two sides to classes. `linear`: the shadows; `strict`: only instances are joined of which one reads all that the
    other reads."""

    def __init__(
        self,
        instances: Instances,
        layouts: Layouts,
        plain: Sequence[Addition],
        made: Sequence[Addition],
        linear: Collection[Buffer],
        strict: bool,
    ) -> None:
        super().__init__(instances, layouts, plain, made)
        self.first: dict[int, Point | None] = {}
        self.reads: dict[_Instance, frozenset[tuple[Hashable, int]]] = {}
        self.partners: list[list[tuple[Function, int]]] = [[] for _ in self.all]
        self.seeds = [seed_of(addition, linear) for addition in self.all]
        self.pairs: dict[int, Map] = {}
        for a, b in product(range(len(plain)), range(len(plain), len(self.all))):
            found = self.related(b, a, strict)
            if found is not None:
                self.partners[b].append((Function(found), a))
                self.partners[a].append((Function(found.reverse()), b))

    def related(self, b: int, a: int, strict: bool) -> Map | None:
        """The relation between instances of two additions, None if there is none or none is found."""
        pairs = self.with_seeds(b, a) if self.seeds[a] is not None and self.seeds[b] is not None else None
        if pairs is not None:
            if pairs.is_empty():
                return None
            if _is_one_to_one(pairs):
                return pairs
        elif strict and self.reads_otherwise(b, a):
            return None
        alike = partial(self.reads_alike, b, a) if strict else _any
        return _Search(self.layouts, self.all[b], self.all[a], alike).found(pairs)

    def with_seeds(self, b: int, a: int) -> Map | None:
        """Pairs of instances of additions with one seed each that add to one element and read one element of the seeds: no others can
        cancel out. None where indices are not quasi-affine."""
        for k in (b, a):
            addition, seed = self.all[k], self.seeds[k]
            if k not in self.pairs and addition.element.text is not None and seed is not None:
                self.pairs[k] = addition.elements(self.layouts).flat_range_product(addition.read(self.layouts, seed))
        if a not in self.pairs or b not in self.pairs:
            return None
        one, other = self.seeds[b], self.seeds[a]
        assert one is not None and other is not None
        if one.args[0] != other.args[0]:
            return None
        return self.pairs[b].apply_range(self.pairs[a].reverse())

    def reads_alike(self, b: int, a: int, related: Map) -> bool:
        """True if one of two related instances reads all that the other reads."""
        if related.is_empty():
            return True
        point = tuple(coordinates(related.wrap().sample_point()))
        n = len(self.all[b].dims)
        return self.alike((b, point[:n]), (a, point[n:]))

    def alike(self, one: _Instance, other: _Instance) -> bool:
        here, there = self.read(*one), self.read(*other)
        return here <= there or there <= here

    def reads_otherwise(self, b: int, a: int) -> bool:
        """True if the one instance that adds to the element of some other instance does not read as that does: a look at one pair that
        spares most relations."""
        one, other = self.all[b], self.all[a]
        if one.element.text is None or other.element.text is None:
            return False
        if b not in self.first:
            whole = one.instances(self.graph)
            self.first[b] = None if whole.is_empty() else tuple(coordinates(whole.sample_point()))
        point = self.first[b]
        if point is None:
            return False
        element = int(np.ravel(Sampler(self.context, self.columns(b, np.array([point])), 0).value(one.element))[0])
        senders = point_set(self.layouts.coordinates(other.array, element)).apply(other.elements(self.layouts).reverse())
        if senders.is_empty() or not senders.is_singleton():
            return False
        return not self.alike((b, point), (a, tuple(coordinates(senders.sample_point()))))

    def read(self, k: int, point: Point) -> frozenset[tuple[Hashable, int]]:
        """What an instance reads, as far as that is known from its numbers."""
        if (k, point) not in self.reads:
            sampler = Sampler(self.context, self.columns(k, np.array([point])), 0)
            found = ((load.args[0], int(np.ravel(sampler.value(load.args[1]))[0])) for load in loads(self.all[k]))
            self.reads[k, point] = frozenset(found)
        return self.reads[k, point]

    def difference(self) -> str | None:
        """Where the two sides differ, in words."""
        union = self.classes([self.samples(k) for k in range(len(self.all))])
        numbers, count = union.numbers()
        members = [
            (k, numbers[list(mine.values())], np.array(list(mine), np.int64).reshape(len(mine), len(self.all[k].dims)))
            for k, mine in union.members.items()
        ]
        return self.unequal(count, members)

    # --- cells --------------------------------------------------------------------------------------------------------------------

    def samples(self, k: int) -> Points:
        """Instances of an addition in each of its cells."""
        addition = self.all[k]
        parts = cells(addition.instances(self.graph), self.cuts(k, self.depth), self.wanted(k))
        return np.concatenate(parts) if parts else np.zeros((0, len(addition.dims)), np.int64)

    @cached_property
    def depth(self) -> int:
        """How many relations from the nearest one of them every addition is."""
        return min((self.farthest(k) for k in range(len(self.all)) if self.partners[k]), default=0)

    def farthest(self, k: int) -> int:
        steps, waiting = {k: 0}, [k]
        for at in waiting:
            for _, other in self.partners[at]:
                if other not in steps:
                    steps[other] = steps[at] + 1
                    waiting.append(other)
        return max(steps.values())

    def cuts(self, k: int, depth: int, before: int = -1) -> Iterator[Cut]:
        """What tells an addition's instances apart: which partners they have, what kinks there are in what they add, and the same of their
        partners, so that in a cell all classes are made alike."""
        yield from self.kinks(k)
        for function, other in self.partners[k]:
            if other != before:
                yield Related(function)
                if depth > 0:
                    yield from (Beyond(function, cut) for cut in self.cuts(other, depth - 1, k))

    # --- classes ------------------------------------------------------------------------------------------------------------------

    def classes(self, members: list[Points]) -> _Union:
        """The classes of some instances, whole."""
        union = _Union()
        new = [union.added(k, points) for k, points in enumerate(members)]
        for _ in range(_WAVES):
            found: list[list[tuple[int, Point]]] = [[] for _ in self.all]
            for k, items in enumerate(new):
                points = np.array([p for _, p in items], np.int64).reshape(len(items), len(self.all[k].dims))
                for function, other in self.partners[k] if items else ():
                    there, images = function.images(points)
                    ours = [item for item, is_there in zip(items, there, strict=True) if is_there]
                    found[other] += union.joined(ours, other, images)
            new = found
            if not any(new):
                return union
        raise LimitReached(f"{_WAVES} steps through a class")


class _Union:
    """Classes of instances, by numbers. `members`: of each addition, its instances with theirs."""

    def __init__(self) -> None:
        self.members: dict[int, dict[Point, int]] = {}
        self.parents: list[int] = []

    def added(self, k: int, points: Points) -> list[tuple[int, Point]]:
        """The instances that were not known, with their numbers."""
        known, new = self.members.setdefault(k, {}), []
        for point in map(tuple, points.tolist()):
            if point not in known:
                known[point] = len(self.parents)
                self.parents.append(known[point])
                new.append((known[point], point))
        return new

    def joined(self, items: Sequence[tuple[int, Point]], k: int, images: Points) -> list[tuple[int, Point]]:
        """Joins instances with their partners, those of the addition `k`; what of these was not known."""
        new = self.added(k, images)
        for (item, _), image in zip(items, map(tuple, images.tolist()), strict=True):
            self.parents[self.root(item)] = self.root(self.members[k][image])
        return new

    def root(self, item: int) -> int:
        while self.parents[item] != item:
            self.parents[item] = item = self.parents[self.parents[item]]
        return item

    def numbers(self) -> tuple[Points, int]:
        """The number of each instance's class, and how many there are."""
        roots = [self.root(item) for item in range(len(self.parents))]
        _, numbers = np.unique(roots, return_inverse=True)
        return numbers, int(numbers.max(initial=-1)) + 1


# --- relations --------------------------------------------------------------------------------------------------------------------------


class _Search:
    """Looks for a one-to-one relation between instances of two additions that add to one element, one of instances that are `alike`."""

    def __init__(self, layouts: Layouts, one: Addition, other: Addition, alike: Callable[[Map], bool]) -> None:
        self.layouts = layouts
        self.one = one
        self.other = other
        self.alike = alike
        self.budget = _TRIALS

    def found(self, pairs: Map | None = None) -> Map | None:
        """The relation, None if none is found; `pairs`: the candidates."""
        if self.one.element.text is None or self.other.element.text is None:
            return self.likewise()
        related = pairs
        if related is None:
            related = self.one.elements(self.layouts).apply_range(self.other.elements(self.layouts).reverse())
        if related.is_empty():
            return None
        for names in self.in_order():
            less = related.intersect(self.equal(names))
            if _keeps_all(related, less) and _is_one_to_one(less) and self.alike(less):
                return less
        return self.narrowed(related)

    def likewise(self) -> Map | None:
        """The identity, where dimensions have the same names and the element is the same expression; None elsewhere."""
        graph, one, other = self.layouts.graph, self.one, self.other
        names = [d.name for d in one.dims]
        if names != [d.name for d in other.dims] or one.element is not other.element:
            return None
        same = agreeing(one.dims, other.dims, names)
        related = same.intersect_domain(one.instances(graph)).intersect_range(other.instances(graph))
        return related if _is_one_to_one(related) and self.alike(related) else None

    def in_order(self) -> Iterator[list[tuple[str, str]]]:
        """Dimensions that have one role on both sides: loops in their order, and threads."""
        loops, threads = ([[d.name for d in x.dims if d.thread == thread] for x in (self.one, self.other)] for thread in (False, True))
        if len(loops[0]) == len(loops[1]):
            yield list(zip(*loops, strict=True))
            if len(threads[0]) == len(threads[1]):
                yield [*zip(*loops, strict=True), *zip(*threads, strict=True)]

    def narrowed(self, related: Map) -> Map | None:
        """The relation with pairs left out that read other elements, then with dimensions made equal, until it is one-to-one."""
        if related.is_empty():
            return None
        if _is_one_to_one(related):
            return related if self.alike(related) else None
        for conditions in (self.reads(), self.equalities()):
            for less in self.by_loss(related, conditions):
                found = self.narrowed(less)
                if found is not None:
                    return found
        return None

    def reads(self) -> Iterator[Map]:
        """Pairs that read one element, for each load of both sides."""
        for load in loads(self.other):
            for offer in loads(self.one):
                if offer.args[0] == load.args[0]:
                    yield self.one.read(self.layouts, offer).apply_range(self.other.read(self.layouts, load).reverse())

    def equalities(self) -> Iterator[Map]:
        """Pairs that have the same value in a dimension of each."""
        return (self.equal([(a.name, b.name)]) for a in self.one.dims for b in self.other.dims)

    def by_loss(self, related: Map, conditions: Iterable[Map]) -> Iterator[Map]:
        """What is left of a relation under each condition that leaves something out; first where all instances of both sides keep a
        partner, then where those of one side do."""
        lossy = []
        for condition in conditions:
            self.budget -= 1
            if self.budget < 0:
                break
            less = tractable(related.intersect(condition))
            if less.is_empty() or related.is_subset(less):
                continue
            loses = [not bool(one.is_subset(other)) for one, other in ((related.domain(), less.domain()), (related.range(), less.range()))]
            if not any(loses):
                yield less
            elif not all(loses):
                lossy.append((loses, less))
        yield from (less for _, less in sorted(lossy, key=lambda item: item[0]))

    def equal(self, names: Sequence[tuple[str, str]]) -> Map:
        """Pairs of instances that have the same values in pairs of dimensions."""
        import islpy

        left, right = ([f"{letter}{k}" for k in range(len(x.dims))] for letter, x in (("a", self.one), ("b", self.other)))
        places = [{d.name: k for k, d in enumerate(x.dims)} for x in (self.one, self.other)]
        terms = " and ".join(f"a{places[0][a]} = b{places[1][b]}" for a, b in names) or "1 = 1"
        return islpy.Map.read_from_str(context(), f"{{ [{', '.join(left)}] -> [{', '.join(right)}] : {terms} }}")


def _any(related: Map) -> bool:
    return True


def _is_one_to_one(related: Map) -> bool:
    return bool(tractable(related).is_single_valued() and related.is_injective())


def _keeps_all(related: Map, less: Map) -> bool:
    """True if all instances of both sides that had a partner have one."""
    return bool(tractable(related).domain().is_subset(tractable(less).domain()) and related.range().is_subset(less.range()))

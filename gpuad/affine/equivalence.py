"""Whether two collections of additions add the same to every element, whatever is in memory.

One side are the additions of the plain adjoint, the other those of the kernels that run in its stead. First, additions that are the same
relation are crossed out. For what is left, isl finds one-to-one relations between instances of the two sides that add to one element and
read the same elements; they join instances to classes. Then every instance, of either side, is in a class, and both sides' additions of
a class have to come to one sum. Which instances have partners is isl's exact answer: each domain is cut into the cells in which that is
the same for all (and in which the values' own conditions are), none is left out. That the sums of a cell are one function of memory is
tested at several of its instances with random memory (`sampling`): an identity of polynomials that fails at random points with probability
near 1.

A relation is never trusted: one too many or too few only makes classes whose sums differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from ..ir.nodes import Buffer
from .cells import Beyond, Cut, cells
from .instances import Dim, Effect, Instances, addends, is_zero
from .layout import Layouts
from .points import Function, Points, coordinates, point_set
from .relations import Undecided, agreeing, context, domain
from .sampling import Incomparable, Sampler
from .values import Graph, Node, kinks

_SAMPLES = 12  # instances of each cell
_TRIALS = 160  # relations that are tried for a pair
_SEEDS = 3
_CLOSE = 2e-5  # of the sum of the terms' sizes: constants of single precision may have been folded
_WAVES = 8  # steps from an instance to all of its class
Point = tuple[int, ...]
_Instance = tuple[int, Point]  # the number of an addition, and one of its instances


@dataclass(eq=False)
class Addition:
    """What is added: instances, array and element, value, and the guards that have no text, as factors of the value."""

    dims: tuple[Dim, ...]
    guards: tuple[Node, ...]
    array: Buffer
    element: Node
    value: Node

    @property
    def key(self) -> Hashable:
        """What is the same for additions that are one relation."""
        return frozenset(self.dims), frozenset(self.guards), self.element.text or self.element, self.value

    def elements(self, layouts: Layouts) -> Any:
        """The relation from instances to elements."""
        return layouts.relation(self.dims, self.guards, self.array, self.element)

    def read(self, layouts: Layouts, load: Node) -> Any:
        """The relation from instances to the elements of a load."""
        return layouts.relation(self.dims, self.guards, *load.args)

    def instances(self, graph: Graph) -> Any:
        return domain(graph, self.dims, self.guards)


def additions(graph: Graph, effect: Effect, linear: Collection[Buffer] | None = None, *, apart: bool = False) -> list[Addition]:
    """An effect's value as terms: what a loop sums up is an addition for each iteration. `linear`: the shadows; if they are given, of sums
    that hang on these, all others are numbers. `apart`: what hangs on other elements of them is another contribution."""
    assert effect.value is not None
    terms = _Terms(graph, linear, apart).of(effect.value)
    found = [
        Addition((*effect.dims, *dims), (*effect.guards, *guards), effect.buffer, effect.element, value) for dims, guards, value in terms
    ]
    if any(len({d.name for d in a.dims}) < len(a.dims) for a in found):
        raise Undecided("a loop stands inside of itself")
    return found


_Term = tuple[tuple[Dim, ...], tuple[Node, ...], Node]


class _Terms:
    """Takes sums apart."""

    def __init__(self, graph: Graph, linear: Collection[Buffer] | None, apart: bool) -> None:
        self.graph = graph
        self.linear = linear
        self.apart = apart
        self.known: dict[Node, frozenset[Node]] = {}

    def of(self, node: Node) -> list[_Term]:
        """The terms of a sum: what loops sum up, the sides of choices with their conditions, and of all the rest one for each seed."""
        rest: list[_Term] = []
        whole: dict[frozenset[Node], Node] = {}
        for sign, addend in addends(node):
            for dims, guards, value in self.spread(addend):
                signed = value if sign > 0 else self.graph.node("neg", (value,), node.type)
                if dims or guards:
                    rest.append((dims, guards, signed))
                    continue
                seeds = self.seeds(value) if self.apart else frozenset()
                whole[seeds] = self.graph.node("+", (whole[seeds], signed), node.type) if seeds in whole else signed
        return [*(((), (), value) for value in whole.values()), *rest]

    def seeds(self, node: Node) -> frozenset[Node]:
        """The elements of shadows on which a value hangs."""
        if node not in self.known:
            found = frozenset({node} if node.op == "load" and node.args[0] in (self.linear or ()) else ())
            self.known[node] = found.union(*(self.seeds(a) for a in node.args if isinstance(a, Node)))
        return self.known[node]

    def is_sum(self, node: Node) -> bool:
        """Whether a value is a sum over iterations, or one whose addends hang on other seeds."""
        if self.sums_up(node) or not self.apart or len(self.seeds(node)) < 2:
            return self.sums_up(node)
        parts = [addend for _, addend in addends(node)]
        if len({self.seeds(part) for part in parts}) > 1:
            return True
        return any(self.is_sum(a) for part in parts if part.op in ("*", "/", "cast") for a in part.args if isinstance(a, Node))

    def sums_up(self, node: Node) -> bool:
        return node.has_sum and (self.linear is None or bool(self.seeds(node)))

    def spread(self, node: Node) -> list[_Term]:
        """An addend as terms."""
        graph, kind = self.graph, node.type
        match node.op, node.args:
            case "cast", (a,) if a.type.is_float:
                return [(d, g, graph.node("cast", (v,), kind)) for d, g, v in self.of(a)]
            case "*", (a, b) if self.is_sum(a) != self.is_sum(b):
                left = self.is_sum(a)
                return [(d, g, graph.node("*", (v, b) if left else (a, v), kind)) for d, g, v in self.of(a if left else b)]
            case "/", (a, b) if self.is_sum(a) and not self.sums_up(b):
                return [(d, g, graph.node("/", (v, b), kind)) for d, g, v in self.of(a)]
            case "select", (c, a, b) if not self.sums_up(c) and (c.text is not None or self.sums_up(node)):
                sides = ((c, a), (graph.negated(c), b))
                return [(d, (*g, guard), v) for guard, side in sides for d, g, v in self.of(side)]
            case "sum", (dim, added) if self.sums_up(node):
                return [((dim, *d), g, v) for d, g, v in self.of(added)]
        return [] if is_zero(node) else [((), (), node)]


def differing(
    instances: Instances, layouts: Layouts, plain: Sequence[Addition], made: Sequence[Addition], *, strict: bool, apart: bool
) -> str | None:
    """Why the two sides may differ, or None if they add the same. `strict`: only instances of which one reads all that the other reads are
    joined, which is found sooner; `apart`: what one instance adds may be several contributions. Raises Undecided."""
    one, other = (side if apart else _merged(instances.graph, side) for side in _crossed_out(plain, made))
    if not one and not other:
        return None
    try:
        with np.errstate(all="ignore"):
            return _Classes(instances, layouts, one, other, strict).difference()
    except Incomparable:
        return "a value that is not known as a function of memory"


def _merged(graph: Graph, items: Iterable[Addition]) -> list[Addition]:
    """What one instance adds to one element as one addition."""
    found: dict[Hashable, Addition] = {}
    for a in items:
        known = [g for g in a.guards if g.text is not None]
        value = a.value
        for guard in (g for g in a.guards if g.text is None):
            value = graph.select(guard, value, graph.constant(0.0, value.type))
        key = a.dims, frozenset(known), a.element.text or a.element
        before = found.get(key)
        whole = value if before is None else graph.node("+", (before.value, value), value.type)
        found[key] = Addition(a.dims, tuple(known), a.array, a.element, whole)
    return list(found.values())


def _crossed_out(plain: Sequence[Addition], made: Sequence[Addition]) -> tuple[list[Addition], list[Addition]]:
    """What is left of both sides without what stands on both."""
    left, right = Counter(a.key for a in plain), Counter(a.key for a in made)
    common = left & right
    return _without(plain, common), _without(made, common)


def _without(items: Sequence[Addition], common: Counter[Hashable]) -> list[Addition]:
    spare, kept = Counter(common), []
    for item in items:
        if spare[item.key] > 0:
            spare[item.key] -= 1
        else:
            kept.append(item)
    return kept


class _Classes:
    """Joins instances of two sides to classes; `strict`: only those of which one reads all that the other reads."""

    def __init__(self, instances: Instances, layouts: Layouts, plain: Sequence[Addition], made: Sequence[Addition], strict: bool) -> None:
        self.context = instances
        self.layouts = layouts
        self.graph = instances.graph
        self.all = [*plain, *made]
        self.signs = [1] * len(plain) + [-1] * len(made)
        self.first: dict[int, Point | None] = {}
        self.reads: dict[_Instance, frozenset[tuple[Hashable, int]]] = {}
        self.cut: dict[int, list[Cut]] = {}
        self.partners: list[list[tuple[Function, int]]] = [[] for _ in self.all]
        for a, b in product(range(len(plain)), range(len(plain), len(self.all))):
            if strict and self.reads_otherwise(b, a):
                continue
            alike = partial(self.reads_alike, b, a) if strict else _any
            found = _Search(layouts, self.all[b], self.all[a], alike).found()
            if found is not None:
                self.partners[b].append((Function(found), a))
                self.partners[a].append((Function(found.reverse()), b))

    def reads_alike(self, b: int, a: int, related: Any) -> bool:
        """Whether one of two related instances reads all that the other reads."""
        if related.is_empty():
            return True
        point = tuple(coordinates(related.wrap().sample_point()))
        n = len(self.all[b].dims)
        return self.alike((b, point[:n]), (a, point[n:]))

    def alike(self, one: _Instance, other: _Instance) -> bool:
        here, there = self.read(*one), self.read(*other)
        return here <= there or there <= here

    def reads_otherwise(self, b: int, a: int) -> bool:
        """Whether the one instance that adds to the element of some other instance does not read as that does: a look at one pair that
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
        element = int(np.ravel(Sampler(self.context, self.columns(b, [point]), 0).value(one.element))[0])
        senders = point_set(self.layouts.coordinates(other.array, element)).apply(other.elements(self.layouts).reverse())
        if senders.is_empty() or not senders.is_singleton():
            return False
        return not self.alike((b, point), (a, tuple(coordinates(senders.sample_point()))))

    def columns(self, k: int, points: Sequence[Point]) -> dict[str, Any]:
        return {d.name: np.array([p[i] for p in points], np.int64) for i, d in enumerate(self.all[k].dims)}

    def read(self, k: int, point: Point) -> frozenset[tuple[Hashable, int]]:
        """What an instance reads, as far as that is known from its numbers."""
        if (k, point) not in self.reads:
            sampler = Sampler(self.context, self.columns(k, [point]), 0)
            loads = _loads(self.all[k])
            self.reads[k, point] = frozenset((load.args[0], int(np.ravel(sampler.value(load.args[1]))[0])) for load in loads)
        return self.reads[k, point]

    def difference(self) -> str | None:
        return self.unequal(self.classes([self.samples(k) for k in range(len(self.all))]))

    # --- cells --------------------------------------------------------------------------------------------------------------------

    def samples(self, k: int) -> Points:
        """Instances of an addition in each of its cells."""
        addition = self.all[k]
        places = max((len(node.args[1]) for node in _inside(addition.value) if node.op == "table"), default=0)
        parts = cells(addition.instances(self.graph), self.cuts(k, self.depth), _SAMPLES + 4 * places)
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
                yield Cut(partial(_domain_of, function))
                if depth > 0:
                    yield from (Beyond(function, cut) for cut in self.cuts(other, depth - 1, k))

    def kinks(self, k: int) -> list[Cut]:
        """Where quasi-affine parts of an addition's value begin and end."""
        addition = self.all[k]
        if k not in self.cut:
            own = {d.name for d in addition.dims}
            conditions = [c for v in (addition.value, *_unknown(addition)) for c in kinks(self.graph, v) if c.dims and c.dims <= own]
            self.cut[k] = [Cut(partial(domain, self.graph, addition.dims, [*addition.guards, c])) for c in dict.fromkeys(conditions)]
        return self.cut[k]

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
        raise Undecided("classes without end")

    def unequal(self, union: _Union) -> str | None:
        """A class whose two sums differ, in words."""
        numbers, count = union.numbers()
        told = np.zeros(count, bool)
        for seed in range(_SEEDS):
            sums, sizes = np.zeros(count), np.zeros(count)
            for k, mine in union.members.items():
                where = numbers[list(mine.values())]
                values = self.signs[k] * self.values(k, list(mine), seed)
                np.add.at(sums, where, values)
                np.add.at(sizes, where, np.abs(values))
            good = np.isfinite(sums)
            if np.any(good & (np.abs(sums) > _CLOSE * sizes)):
                worst = int(np.argmax(np.where(good, np.abs(sums) - _CLOSE * sizes, -1)))
                return self.said((k, p) for k, mine in union.members.items() for p, item in mine.items() if numbers[item] == worst)
            told |= good
        return None if told.all() else "values that are no numbers"

    def values(self, k: int, points: Sequence[Point], seed: int) -> Any:
        addition = self.all[k]
        sampler = Sampler(self.context, self.columns(k, points), seed)
        value = np.broadcast_to(np.asarray(sampler.value(addition.value), float), (len(points),))
        for guard in _unknown(addition):
            value = np.where(sampler.value(guard), value, 0.0)
        return value

    def said(self, members: Iterable[_Instance]) -> str:
        k, point = min(members)
        where = ", ".join(f"{d.name} = {n}" for d, n in zip(self.all[k].dims, point, strict=True))
        return f"another sum for what {'the plain adjoint' if self.signs[k] > 0 else 'the kernel'} adds at {where}"


def _unknown(addition: Addition) -> list[Node]:
    """The guards that have no text."""
    return [g for g in (*(g for d in addition.dims for g in d.guards), *addition.guards) if g.text is None]


def _domain_of(function: Function) -> Any:
    return function.related.domain()


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

    def numbers(self) -> tuple[Any, int]:
        """The number of each instance's class, and how many there are."""
        roots = [self.root(item) for item in range(len(self.parents))]
        _, numbers = np.unique(roots, return_inverse=True)
        return numbers, int(numbers.max(initial=-1)) + 1


# --- relations --------------------------------------------------------------------------------------------------------------------------


class _Search:
    """Looks for a one-to-one relation between instances of two additions that add to one element, one of instances that are `alike`."""

    def __init__(self, layouts: Layouts, one: Addition, other: Addition, alike: Callable[[Any], bool]) -> None:
        self.layouts = layouts
        self.one = one
        self.other = other
        self.alike = alike
        self.budget = _TRIALS

    def found(self) -> Any | None:
        """The relation, None if none is found."""
        if self.one.element.text is None or self.other.element.text is None:
            return self.likewise()
        related = self.one.elements(self.layouts).apply_range(self.other.elements(self.layouts).reverse())
        if related.is_empty():
            return None
        for names in self.in_order():
            less = related.intersect(self.equal(names))
            if _keeps_all(related, less) and _is_one_to_one(less) and self.alike(less):
                return less
        return self.narrowed(related)

    def likewise(self) -> Any | None:
        """The same instance of both, where the dimensions are the same and the element is the same expression."""
        graph, one, other = self.layouts.graph, self.one, self.other
        names = [d.name for d in one.dims]
        if names != [d.name for d in other.dims] or one.element is not other.element:
            return None
        same = agreeing(graph, one.dims, other.dims, names)
        related = same.intersect_domain(one.instances(graph)).intersect_range(other.instances(graph))
        return related if _is_one_to_one(related) and self.alike(related) else None

    def in_order(self) -> Iterator[list[tuple[str, str]]]:
        """Dimensions that have one role on both sides: loops in their order, and threads."""
        loops, threads = ([[d.name for d in x.dims if d.thread == thread] for x in (self.one, self.other)] for thread in (False, True))
        if len(loops[0]) == len(loops[1]):
            yield list(zip(*loops, strict=True))
            if len(threads[0]) == len(threads[1]):
                yield [*zip(*loops, strict=True), *zip(*threads, strict=True)]

    def narrowed(self, related: Any) -> Any | None:
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

    def reads(self) -> Iterator[Any]:
        """Pairs that read one element, for each load of both sides."""
        for load in _loads(self.other):
            for offer in _loads(self.one):
                if offer.args[0] == load.args[0]:
                    yield self.one.read(self.layouts, offer).apply_range(self.other.read(self.layouts, load).reverse())

    def equalities(self) -> Iterator[Any]:
        """Pairs that have the same value in a dimension of each."""
        return (self.equal([(a.name, b.name)]) for a in self.one.dims for b in self.other.dims)

    def by_loss(self, related: Any, conditions: Iterable[Any]) -> Iterator[Any]:
        """What is left of a relation under each condition that leaves something out; first where all instances of both sides keep a
        partner, then where those of one side do."""
        lossy = []
        for condition in conditions:
            self.budget -= 1
            if self.budget < 0:
                break
            less = related.intersect(condition)
            if less.is_empty() or related.is_subset(less):
                continue
            loses = [not bool(one.is_subset(other)) for one, other in ((related.domain(), less.domain()), (related.range(), less.range()))]
            if not any(loses):
                yield less
            elif not all(loses):
                lossy.append((loses, less))
        yield from (less for _, less in sorted(lossy, key=lambda item: item[0]))

    def equal(self, names: Sequence[tuple[str, str]]) -> Any:
        """Pairs of instances that have the same values in pairs of dimensions."""
        import islpy

        left, right = ([f"{letter}{k}" for k in range(len(x.dims))] for letter, x in (("a", self.one), ("b", self.other)))
        places = [{d.name: k for k, d in enumerate(x.dims)} for x in (self.one, self.other)]
        terms = " and ".join(f"a{places[0][a]} = b{places[1][b]}" for a, b in names) or "1 = 1"
        return islpy.Map.read_from_str(context(), f"{{ [{', '.join(left)}] -> [{', '.join(right)}] : {terms} }}")


def _any(related: Any) -> bool:
    return True


def _is_one_to_one(related: Any) -> bool:
    return bool(related.is_single_valued() and related.is_injective())


def _keeps_all(related: Any, less: Any) -> bool:
    """Whether all instances of both sides that had a partner have one."""
    return bool(related.domain().is_subset(less.domain()) and related.range().is_subset(less.range()))


def _inside(value: Node) -> Iterator[Node]:
    """The nodes that a value is made of, each once."""
    seen: set[Node] = set()
    waiting: list[Any] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Node) and node not in seen:
            seen.add(node)
            waiting += node.args
            yield node


def _loads(addition: Addition) -> Iterator[Node]:
    """The loads of an addition's value whose indices are quasi-affine in the instance."""
    own = {d.name for d in addition.dims}
    for node in _inside(addition.value):
        if node.op == "load" and node.args[1].text is not None and node.dims and node.dims <= own:
            yield node

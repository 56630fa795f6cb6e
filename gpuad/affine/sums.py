"""Sums of contributions: what kernels add to an array, as terms, of two sides, one with a plus and the other with a minus.

In: effects (`effects.Effect`) whose values are nodes of one graph. Out of `additions`: `Addition`s (instances, guards, array, element,
value): sums, and sums over loops, are taken out of conversions, products, quotients and selects. `merged` adds up those of one instance and
element, `crossed_out` takes equal ones off both sides. `Sums.unequal` evaluates the rest at given instances with random memory, four times,
and returns where the sides differ by more than 1e-9 (float64) or 2e-6 (float32) of the sum of the terms' sizes, or None.

That is a randomised test, as Schwartz's of polynomial identities (Journal of the ACM 27 (4), 1980); that the instances represent all others
is shown by the callers (`equivalence`, `classes`). Raises Undecided where a loop stands inside of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..ir.nodes import Buffer
from .cells import Cut
from .effects import Dim, Effect, inside
from .instances import Instances
from .layout import Layouts
from .points import Points
from .relations import Undecided, domain, holding
from .sampling import Lanes, Sampler
from .values import Graph, Node, addends, is_zero, kinks

if TYPE_CHECKING:
    from islpy import Map, Set

_SAMPLES = 12  # instances of each cell
_SEEDS = 4
_CLOSE = {64: 1e-9, 32: 2e-6}  # of the sum of the terms' sizes, by bits: constants may have been folded in single precision
_ROUGH = 1e-3
Point = tuple[int, ...]


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

    def elements(self, layouts: Layouts) -> Map:
        """The relation from instances to elements."""
        return layouts.relation(self.dims, self.guards, self.array, self.element)

    def read(self, layouts: Layouts, load: Node) -> Map:
        """The relation from instances to the elements of a load."""
        return layouts.relation(self.dims, self.guards, *load.args)

    def instances(self, graph: Graph) -> Set:
        return domain(graph, self.dims, self.guards)


def additions(graph: Graph, effect: Effect, linear: Collection[Buffer] | None = None, *, by_seed: bool = False) -> list[Addition]:
    """An effect's value as terms: what a loop sums up is an addition for each iteration. `linear`: the shadows; if they are given, of sums
    that hang on these, all others are numbers. `by_seed`: what hangs on other elements of them is another contribution."""
    assert effect.value is not None
    terms = _Terms(graph, linear, by_seed).of(effect.value)
    found = [
        Addition((*effect.dims, *dims), (*effect.guards, *guards), effect.buffer, effect.element, value) for dims, guards, value in terms
    ]
    if any(len({d.name for d in a.dims}) < len(a.dims) for a in found):
        raise Undecided("a loop stands inside of itself")
    return found


_Term = tuple[tuple[Dim, ...], tuple[Node, ...], Node]


class _Terms:
    """Takes sums apart."""

    def __init__(self, graph: Graph, linear: Collection[Buffer] | None, by_seed: bool) -> None:
        self.graph = graph
        self.linear = linear
        self.by_seed = by_seed
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
                seeds = self.seeds(value) if self.by_seed else frozenset()
                whole[seeds] = self.graph.node("+", (whole[seeds], signed), node.type) if seeds in whole else signed
        return [*(((), (), value) for value in whole.values()), *rest]

    def seeds(self, node: Node) -> frozenset[Node]:
        """The elements of shadows on which a value hangs."""
        if node not in self.known:
            found = frozenset({node} if node.op == "load" and node.args[0] in (self.linear or ()) else ())
            self.known[node] = found.union(*(self.seeds(a) for a in node.args if isinstance(a, Node)))
        return self.known[node]

    def is_sum(self, node: Node) -> bool:
        """True if a value is a sum over iterations, or one whose addends hang on other seeds."""
        if self.sums_up(node) or not self.by_seed or len(self.seeds(node)) < 2:
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


def merged(graph: Graph, items: Iterable[Addition], linear: Collection[Buffer] | None = None) -> list[Addition]:
    """What one instance adds to one element as one addition, or as one for each seed of the arrays `linear`."""
    found: dict[Hashable, Addition] = {}
    for a in items:
        known = [g for g in a.guards if g.text is not None]
        value = a.value
        for guard in (g for g in a.guards if g.text is None):
            value = graph.select(guard, value, graph.constant(0.0, value.type))
        key = a.dims, frozenset(known), a.element.text or a.element, None if linear is None else seed_of(a, linear)
        before = found.get(key)
        whole = value if before is None else graph.node("+", (before.value, value), value.type)
        found[key] = Addition(a.dims, tuple(known), a.array, a.element, whole)
    return list(found.values())


def crossed_out(plain: Sequence[Addition], made: Sequence[Addition]) -> tuple[list[Addition], list[Addition]]:
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


class Sums:
    """The additions of two sides in one list, the plain adjoint's first."""

    def __init__(self, instances: Instances, layouts: Layouts, plain: Sequence[Addition], made: Sequence[Addition]) -> None:
        self.context = instances
        self.layouts = layouts
        self.graph = instances.graph
        self.all = [*plain, *made]
        self.signs = [1] * len(plain) + [-1] * len(made)
        self._cuts: dict[int, list[Cut]] = {}

    def wanted(self, k: int) -> int:
        """How many instances of a cell are looked at."""
        return _SAMPLES + 4 * max((len(node.args[1]) for node in inside([self.all[k].value]) if node.op == "table"), default=0)

    def kinks(self, k: int) -> list[Cut]:
        """Where quasi-affine parts of an addition's value begin and end."""
        addition = self.all[k]
        if k not in self._cuts:
            own = {d.name for d in addition.dims}
            conditions = [c for v in (addition.value, *unknown(addition)) for c in kinks(self.graph, v) if c.dims and c.dims <= own]
            self._cuts[k] = [Cut(partial(holding, self.graph, addition.dims, c)) for c in dict.fromkeys(conditions)]
        return self._cuts[k]

    def unequal(self, count: int, members: Sequence[tuple[int, Points, Points]]) -> str | None:
        """Which of `count` sums do not come to 0, in words. `members`: additions, each with the numbers of sums and its instances that are
        in them."""
        compared = np.zeros(count, bool)
        close = max((_CLOSE.get(a.value.type.bits, _ROUGH) for a in self.all), default=0.0)
        for seed in range(_SEEDS):
            sums, sizes = np.zeros(count), np.zeros(count)
            for k, numbers, points in members:
                values = self.signs[k] * self.values(k, points, seed)
                np.add.at(sums, numbers, values)
                np.add.at(sizes, numbers, np.abs(values))
            good = np.isfinite(sums)
            if np.any(good & (np.abs(sums) > close * sizes)):
                worst = int(np.argmax(np.where(good, np.abs(sums) - close * sizes, -1)))
                return self.said(next((k, points[numbers == worst][0]) for k, numbers, points in members if np.any(numbers == worst)))
            compared |= good
        return None if compared.all() else "values that are no numbers"

    def columns(self, k: int, points: Points) -> dict[str, Points]:
        return {d.name: points[:, i] for i, d in enumerate(self.all[k].dims)}

    def values(self, k: int, points: Points, seed: int) -> Lanes:
        """What an addition adds at some of its instances."""
        addition = self.all[k]
        sampler = Sampler(self.context, self.columns(k, points), seed)
        value = np.broadcast_to(np.asarray(sampler.value(addition.value), float), (len(points),))
        for guard in unknown(addition):
            value = np.where(sampler.value(guard), value, 0.0)
        return value

    def said(self, instance: tuple[int, Points]) -> str:
        k, point = instance
        where = ", ".join(f"{d.name} = {n}" for d, n in zip(self.all[k].dims, point.tolist(), strict=True))
        return f"another sum for what {'the plain adjoint' if self.signs[k] > 0 else 'the kernel'} adds at {where}"


def unknown(addition: Addition) -> list[Node]:
    """The guards that have no text."""
    return [g for g in (*(g for d in addition.dims for g in d.guards), *addition.guards) if g.text is None]


def seed_of(addition: Addition, linear: Collection[Buffer]) -> Node | None:
    """The one element of shadows on which a value hangs."""
    found = [node for node in inside([addition.value]) if node.op == "load" and node.args[0] in linear]
    return found[0] if len(found) == 1 and found[0] in list(loads(addition)) else None


def loads(addition: Addition) -> Iterator[Node]:
    """The loads of an addition's value whose indices are quasi-affine in the instance."""
    own = {d.name for d in addition.dims}
    for node in inside([addition.value]):
        if node.op == "load" and node.args[1].text is not None and node.dims and node.dims <= own:
            yield node

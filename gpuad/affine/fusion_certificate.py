"""Certificates of fused launches: one kernel does what several launches do one after the other.

Threads of a launch come in any order, and so do the *units* of work (threads, or iterations of loops over elements; see `unit_trace`) of
launches that are independent unit by unit. A fused kernel is certified, for the numbers of its launch, if

* no unit of one launch touches what another unit of another launch writes: the relation {unit -> unit} over all pairs of accesses of which
  one writes lies in the identity (sums into one element may meet, as they do in any order; an index that hangs on data may be any);
* in each unit the kernel does what the launches do in order: it writes the same values to the same elements under the same guards, but for
  what is overwritten before the unit is done; and it reads only what they read. Values are compared as functions of memory before the
  launches, with what the unit itself has written handed on.

What derives fused kernels is not used here. What isl cannot decide in its number of operations is not certified.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from ..memo import Memo
from .canonical import Canonical, Guards
from .effects import Dim
from .relations import context, is_so
from .unit_trace import Access, Part, Place, Refused, Trace, in_units, may_touch, named_in, unit
from .values import Graph, Node

if TYPE_CHECKING:
    from islpy import Map

_NAME = re.compile(r"\bs\d+\b")
_known = Memo()  # which touches meet


def refused(parts: Sequence[Part], fused: Part, *, looped: bool = False, text: Sequence[int] | None = None) -> str | None:
    """Why a kernel is not certified to do what launches do one after the other, or None. `looped`: they are loops over elements, and an
    iteration is a unit; `text`: in which order they stand in the kernel's text, if that is another one."""
    launches = Launches()
    for part in parts:
        reason = launches.dependence(part, footprint(part, looped=looped))
        if reason is not None:
            return reason
    return otherwise(parts, fused, looped=looped, text=text)


# --- launches that touch each other's memory ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Touch:
    """What a launch does to elements: 'read', 'write' or 'sum'. `key`: what is the same where the same units touch the same elements;
    `before`: what is read is what was there before all launches."""

    kind: str
    array: Hashable
    before: bool
    key: Hashable
    unit: tuple[str, ...]
    index: Node
    dims: tuple[Dim, ...]
    guards: tuple[Node, ...]
    graph: Graph = field(repr=False)

    def elements(self, offset: int, count: int) -> Map:
        """The relation from the first dimensions of units to elements."""
        index = self.index
        if offset:
            index = self.graph.arithmetic("+", index, self.graph.constant(offset, index.type), index.type)
        return in_units(self.graph, self.dims, self.guards, index, count)


@dataclass(frozen=True, eq=False)
class Footprint:
    """What a launch touches; `guards`: what its outermost guards and loops say, None if that hangs on data; `reason`: why it cannot be a
    part of a fused one."""

    touches: tuple[Touch, ...] = ()
    guards: tuple[Hashable, ...] | None = None
    reason: str | None = None


def footprint(part: Part, *, looped: bool = False) -> Footprint:
    """What a launch touches, each once."""
    graph = Graph()
    trace = Trace(graph, Canonical(graph), set(), looped)
    try:
        trace.run(part)
    except Refused as reason:
        return Footprint(reason=str(reason))
    touches = [_touch(graph, a) for a in trace.found if not a.is_own]
    guards = tuple(trace.guards) if None not in trace.guards else None
    return Footprint(tuple({(t.kind, t.array, t.before, t.key): t for t in touches}.values()), guards)


def _touch(graph: Graph, access: Access) -> Touch:
    kind = {"read": "read", "add": "sum"}.get(access.kind, "write")
    texts = (
        access.index.text,
        tuple((d.name, *(g.text for g in d.guards if g.text is not None)) for d in access.dims),
        tuple(sorted(g.text for g in access.guards if g.text is not None)),
    )
    names = tuple(graph.named.items()) if _NAME.search(str(texts)) else ()
    return Touch(
        kind, access.array, access.before, (texts, names), unit(access), access.index, access.dims, access.guards, graph
    )  # fmt: skip


class Launches:
    """Launches that are independent unit by unit."""

    def __init__(self) -> None:
        self.shape: Hashable = None
        self.touched: dict[Hashable, dict[Hashable, tuple[Touch, int]]] = defaultdict(dict)
        self.extents: dict[Hashable, tuple[int, int, int]] = {}

    def dependence(self, part: Part, found: Footprint, places: Mapping[Any, Place] | None = None) -> str | None:
        """Takes one more launch, or says why a unit of it may touch what another unit of an earlier one writes, or the other way round.
        `places`: where the arrays of its footprint are."""
        shape = part.shape.grid, part.shape.block
        if found.reason is not None or (self.shape or shape) != shape:
            return found.reason or "the launches have other grids or blocks"
        new: dict[Hashable, dict[Hashable, tuple[Touch, int]]] = defaultdict(dict)
        for touch in found.touches:
            place = places[touch.array] if places is not None else Place(touch.array)
            new[place.array][touch.kind, touch.before, touch.key, place.offset] = touch, place.offset
        for array, touches in new.items():
            for touch, offset in touches.values():
                if any(_depend(touch, offset, *other) for other in self.touched[array].values()):
                    return "a unit touches what another one of another launch writes"
                if touch.before and any(_depend(touch, offset, *other) for other in touches.values()):
                    return "a unit reads what another one has overwritten"
        for place in (places if places is not None else part.places).values():
            if place.extent is not None:
                begin, end, size = place.extent
                self.extents[place.array] = begin, max(end, self.extents.get(place.array, place.extent)[1]), size
        for array, touches in new.items():
            self.touched[array].update(touches)
        self.shape = shape
        return self.seen_otherwise(new)

    @property
    def written(self) -> set[Hashable]:
        """The arrays that they write."""
        return {array for array, touches in self.touched.items() if any(t.kind != "read" for t, _ in touches.values())}

    def seen_otherwise(self, new: Iterable[Hashable]) -> str | None:
        """Whether memory that is written may be seen as two arrays, of other types or owners."""
        for array, other in product(new, self.extents):
            if array != other and array in self.extents:
                (begin, end, _), (low, high, _) = self.extents[array], self.extents[other]
                if begin < high and low < end and self.share_bytes(array, other):
                    return "memory that is written is seen as two arrays"
        return None

    def share_bytes(self, one: Hashable, other: Hashable) -> bool:
        """True if an element of one array, and one of another, may share a byte that is written."""
        pairs = product(self.touched[one].values(), self.touched[other].values())
        extents = self.extents[one], self.extents[other]
        changing = ((a, b) for a, b in pairs if not a[0].kind == b[0].kind == "read")
        return any(is_so(partial(_overlap, a, b, *extents), undecided=True) for a, b in changing)


def _depend(one: Touch, offset: int, other: Touch, far: int) -> bool:
    """True if other units, or units of other kinds, may touch one element, and that matters."""
    if one.kind == other.kind != "write":
        return False
    if one.index.text is None or other.index.text is None:
        return True
    if one.index.high + offset < other.index.low + far or other.index.high + far < one.index.low + offset:
        return False
    key = one.key, other.key, one.unit, other.unit, offset - far
    found: bool = _known.get(key, lambda: is_so(partial(_may_share, one, offset - far, other), undecided=True))
    return found


def _may_share(one: Touch, offset: int, other: Touch) -> bool:
    import islpy

    if one.unit != other.unit:  # an iteration, and what comes before or after all of them
        count = min(len(one.unit), len(other.unit))
        return not one.elements(offset, count).range().is_disjoint(other.elements(0, count).range())
    count = len(one.unit)
    pairs = one.elements(offset, count).apply_range(other.elements(0, count).reverse())
    return not pairs.is_subset(islpy.Map.identity(pairs.get_space()))


def _overlap(one: tuple[Touch, int], other: tuple[Touch, int], *extents: tuple[int, int, int]) -> bool:
    """True if elements of two arrays share bytes."""
    import islpy

    first = min(begin for begin, _, _ in extents)
    found = []
    for (touch, offset), (begin, _, size) in zip((one, other), extents, strict=True):
        if touch.index.text is None:
            return True
        at = f"{size}*e + {begin - first}"
        bytes_ = islpy.Map.read_from_str(context(), f"{{ [e] -> [b] : {at} <= b < {at} + {size} }}")
        found.append(touch.elements(offset, len(touch.unit)).range().apply(bytes_))
    return not found[0].is_disjoint(found[1])


# --- what a unit does ---------------------------------------------------------------------------------------------------------------------


def otherwise(parts: Sequence[Part], fused: Part, *, looped: bool = False, text: Sequence[int] | None = None) -> str | None:
    """Why a unit of the fused kernel may do something else than units of the launches one after the other, or None."""
    graph = Graph()
    canonical = Canonical(graph)
    order = range(len(parts)) if text is None else text
    before = _named_before(parts, order, looped)
    sequential: set[Hashable] = set()
    while True:
        count = len(sequential)
        traces = Trace(graph, canonical, sequential, looped), Trace(graph, canonical, sequential, looped)
        try:
            for part, named in zip(parts, before, strict=True):
                traces[0].run(part, named)
            traces[1].run(fused)
        except Refused as reason:
            return str(reason)
        if len(sequential) == count:
            return _Comparison(*traces, order).difference()


def _named_before(parts: Sequence[Part], text: Sequence[int], looped: bool) -> list[tuple[int, int]]:
    """For each of the kernels how many loops and arrays stand before it in the fused kernel's text. Any names do that are distinguished."""
    found = [(0, 0)] * len(parts)
    loops = arrays = 0
    for number in text:
        found[number] = loops, arrays
        more, made = named_in(parts[number].body)
        loops, arrays = loops + more - looped, arrays + made
    return found


class _Comparison:
    """Of what a unit does in separate launches, and what it does in the fused kernel."""

    def __init__(self, separate: Trace, fused: Trace, order: Sequence[int]) -> None:
        self.separate = separate
        self.fused = fused
        self.order = order
        self.canonical = separate.canonical

    def difference(self) -> str | None:
        if self.separate.loops != self.fused.loops:
            return "a loop is another one"
        if any(a.kind == "change" for a in self.separate.found) and self.reordered():
            return "what stands around atomic operations is moved"
        arrays = dict.fromkeys((*self.separate.writes, *self.fused.writes))
        return self.read_otherwise() or next(filter(None, map(self.written_otherwise, arrays)), None)

    def reordered(self) -> bool:
        """True if the accesses are not one after the other as in the launches: threads may wait for one another's atomic operations."""
        separate = [access for number in self.order for access in self.separate.parts[number]]
        return list(map(self.key, separate)) != list(map(self.key, self.fused.found))

    def read_otherwise(self) -> str | None:
        """Whether elements are read that are not read separately."""
        reads: dict[Hashable, list[Guards]] = defaultdict(list)
        for access in self.separate.found:
            if access.kind == "read":
                reads[access.where].append(access.when[1])
        for access in self.fused.found:
            if access.kind == "read" and not any(guards <= access.when[1] for guards in reads[access.where]):
                return "it reads what is not read separately"
        return None

    def written_otherwise(self, array: Hashable) -> str | None:
        """Whether something else is written to an array, or in an order that matters."""
        separate, fused = self.separate.writes.get(array, []), self.fused.writes.get(array, [])
        if array in self.separate.sequential:
            same = list(map(self.key, separate)) == list(map(self.key, fused))
            return None if same else "something else is written to what is read in order"
        partner = self.matched(separate, fused)
        if partner is None:
            return "it writes what is not written separately"
        kept = set(partner)
        if any(k not in kept and not self.is_overwritten(write, [separate[m] for m in kept if m > k]) for k, write in enumerate(separate)):
            return "it does not write what is written separately"
        for (k, one), (m, other) in combinations(zip(partner, fused, strict=True), 2):
            if k > m and not one.kind == other.kind == "add" and may_touch(self.separate, one, other):
                return "it writes in another order"
        return None

    def matched(self, separate: Sequence[Access], fused: Sequence[Access]) -> list[int] | None:
        """For each write of the fused kernel the number of the separate one that it is."""
        places: dict[Hashable, list[int]] = defaultdict(list)
        for k, write in enumerate(separate):
            places[self.key(write)].append(k)
        counts = Counter(map(self.key, fused))
        if any(len(places[key]) < n for key, n in counts.items()):
            return None
        waiting = {key: iter(places[key][len(places[key]) - n :]) for key, n in counts.items()}  # the last ones
        return [next(waiting[self.key(write)]) for write in fused]

    def is_overwritten(self, write: Access, later: Sequence[Access]) -> bool:
        """True if what was written is overwritten before the unit is done."""
        if write.is_own:
            return True
        return write.kind == "set" and any(w.kind == "set" and w.where == write.where and w.when[1] <= write.when[1] for w in later)

    def key(self, write: Access) -> Hashable:
        value = None if write.value is None else self.canonical.number(write.value)
        return write.kind, write.where, write.when, value, write.detail


__all__ = ["Footprint", "Launches", "footprint", "otherwise", "refused"]

"""Certificates: the kernels that are to run in the stead of a launch do what that launch's plain adjoint does.

The plain adjoint, in which every addition is atomic, is what the launch means. Kernels made from it (gathers, sums over blocks, numbers
that threads keep, threads and loops in other roles, plain additions) are certified for the numbers of one launch from their IR as it runs:

* all additions to a shadow come to the same (`equivalence`): each contribution once, from each thread and iteration of the user's launch;
* what they read is what the plain adjoint reads: nothing that a kernel before them has written, and no element that the plain adjoint
  writes before it reads it;
* the same elements are cleared;
* no two threads of a kernel touch one element where a write is plain.

None of this uses what derived the kernels; a mistake there costs speed and no more. What isl cannot decide in its number of operations is
not certified.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..ir.nodes import Block, Buffer, How, Stmt
from ..ir.types import I64, Space
from .effects import AXES, Dim, Effect, Shape, inside
from .equivalence import STRATEGIES, Strategy, differing
from .instances import Instances
from .layout import Layouts
from .relations import Undecided, agreeing, context, count, decided, domain, doubt, is_so, quotients_of
from .sums import Addition, additions
from .values import Graph, Node, conjuncts, is_zero

if TYPE_CHECKING:
    from islpy import Map, Set


@dataclass(frozen=True, eq=False)
class Run:
    """A kernel that is launched: its body and the launch's numbers. `keeps`: arrays in which each thread keeps a number for kernels that
    come after; elements where nothing is kept are 0."""

    body: Block
    shape: Shape
    keeps: frozenset[Buffer] = frozenset()


_NONE: frozenset[Buffer] = frozenset()
MEET = "two threads may touch one element"


@dataclass(frozen=True)
class Zeros:
    """Elements `constant + sum(factor * k)` for all k with `low <= k <= high`; `terms`: factor, low and high of each."""

    constant: int
    terms: tuple[tuple[int, int, int], ...]


Zero = Mapping[Buffer, Sequence[Zeros] | None]


def refused(plain: Run, made: Sequence[Run], shadows: Collection[Buffer], zero: Zero = MappingProxyType({})) -> dict[Buffer, str]:
    """Those of the shadows for which the kernels are not certified, with the reason. `zero`: shadows that hold 0 where a kernel stores to
    them, so that a store is an addition: in all these elements, if they are said, and in no others."""
    certificate = _Certificate(plain, made, shadows, zero)
    return {b: reason for b in shadows if (reason := certificate.reason(b)) is not None}


def meeting(
    run: Run, buffers: Iterable[Buffer], counts: Callable[[Stmt], bool] = lambda _: True, *, by_data: bool = False
) -> dict[Buffer, str]:
    """Those of the buffers in one element of which two threads of a launch may meet: at least one of them with a write; and why that is
    thought. Threads of several blocks do not meet in shared memory, nor any two in a thread's own. `counts`: which accesses are looked
    at; `by_data`: also those at an index that hangs on data, by what guards say of it."""
    instances = Instances(by_data=by_data)
    effects = instances.effects(run.body, run.shape)
    mine = {b: [e for e in effects if e.buffer == b and counts(e.stmt)] for b in buffers if b.space is not Space.LOCAL}
    layouts = Layouts(instances.graph)
    layouts.note(effects)
    free = {b: partial(_is_race_free, layouts, found, run.shape, atomics=False) for b, found in mine.items()}
    return {b: reason for b, ask in free.items() if (reason := doubt(ask, MEET)) is not None}


def refused_stores(run: Run, zero: Zero, buffers: Collection[Buffer]) -> dict[Buffer, str]:
    """Those of the shadows for which a kernel is not certified to store to all their elements that are 0, before anything else is done to
    these and without meeting another thread there, with the reason."""
    certificate = _Certificate(run, [run], buffers, zero)
    return {b: reason for b in buffers if (reason := certificate.unstored(b)) is not None}


def reads_added(run: Run, buffers: Iterable[Buffer]) -> str | None:
    """Why a thread may read or clear an element of one of the buffers to which it has added, None if none does."""
    instances = Instances()
    effects = instances.effects(run.body, run.shape)
    layouts = Layouts(instances.graph)
    layouts.note(effects)
    for buffer in buffers:
        mine = [e for e in effects if e.buffer == buffer]
        adds = [e for e in mine if e.kind == "add" and _commutes(e)]
        late = [(r, a) for r in mine if r not in adds for a in adds if r.order > a.order or _share_a_loop(r, a)]
        for r, a in late:
            reason = doubt(partial(_differ_in_thread, layouts, r, a), f"`{buffer.name}` is read after it was added to")
            if reason is not None:
                return reason
    return None


def _share_a_loop(one: Effect, other: Effect) -> bool:
    return any(d in other.dims for d in one.dims if not d.thread)


def _differ_in_thread(layouts: Layouts, one: Effect, other: Effect) -> bool:
    """True if no thread comes to one element by both effects."""
    pairs = _by_thread(layouts, one).apply_range(_by_thread(layouts, other).reverse())
    return bool(pairs.intersect(_identity(pairs)).is_empty())


class _Certificate:
    def __init__(self, plain: Run, made: Sequence[Run], shadows: Collection[Buffer], zero: Zero) -> None:
        self.shadows = frozenset(shadows)
        self.instances = Instances()
        self.graph = self.instances.graph
        self.zero = zero
        self.made = made
        self.kept = frozenset(b for run in made for b in run.keeps)
        self.plain = self.instances.effects(plain.body, plain.shape)
        self.stages: list[list[Effect]] = []
        for run in made:
            effects = self.instances.effects(run.body, run.shape)
            self.stages.append(effects)
            for buffer in run.keeps:
                self.keep(buffer, effects, run.shape)
        self.layouts = Layouts(self.graph)
        for effects in (self.plain, *self.stages):
            self.layouts.note(effects)

    def keep(self, buffer: Buffer, effects: Sequence[Effect], shape: Shape) -> None:
        """Notes what threads keep for the kernels that come after, if each has stored to the element of its number."""
        stores = [e for e in effects if e.buffer == buffer and e.writes]
        if len(stores) != 1 or stores[0].kind != "set" or any(not d.thread for d in stores[0].dims):
            return
        if is_so(lambda: _is_number(self.graph, stores[0], shape), undecided=False):
            self.instances.kept[buffer] = stores[0], shape

    def reason(self, buffer: Buffer) -> str | None:
        """Why a shadow is refused, or None."""
        if self.unmoved(buffer):
            return self.first_reason(buffer, self.disordered, self.hung_otherwise, self.racing)
        return self.first_reason(buffer, self.disordered, self.stored_late, self.cleared_otherwise, self.added_otherwise, self.racing)

    def unstored(self, buffer: Buffer) -> str | None:
        """Why stores do not come to a shadow as to one that holds 0, or None."""
        if buffer not in self.zero:
            return "it is not known to be zero where it is stored to"
        return self.first_reason(buffer, self.stored_late, self.racing)

    def first_reason(self, buffer: Buffer, *obligations: Callable[[Buffer], str | None]) -> str | None:
        """The first reason why one of the proof obligations is not met, or None."""
        for what in obligations:
            try:
                found: str | None = decided(partial(what, buffer))
            except Undecided as undecided:
                return undecided.reason
            if found is not None:
                return found
        return None

    def unmoved(self, buffer: Buffer) -> bool:
        """True if one kernel does to a shadow all that the plain adjoint does, in the same order."""
        stages = [effects for effects in self.stages if any(e.buffer == buffer and e.writes for e in effects)]
        return len(stages) <= 1 and self.writes(self.plain, buffer) == (self.writes(stages[0], buffer) if stages else [])

    def hung_otherwise(self, buffer: Buffer) -> str | None:
        """Whether what is done to a shadow hangs on memory that is not read in the state in which the plain adjoint reads it."""
        parts = [x for effects in (self.plain, *self.stages) for e in effects if e.buffer == buffer and e.writes for x in _parts(e)]
        return self.read_otherwise(_memory(self.instances, parts), moved=False)

    def writes(self, effects: Sequence[Effect], buffer: Buffer) -> list[Hashable]:
        """What is done to a shadow, in order; a store of 0 is a clear."""
        mine = (e for e in effects if e.buffer == buffer and e.writes)
        return [
            (
                "clear" if self.is_clearing(e) else e.kind,
                e.dims,
                e.guards,
                e.element.text or e.element,
                None if e.kind == "set" and e.value is not None and is_zero(e.value) else e.value,
            )
            for e in mine
        ]

    # --- order --------------------------------------------------------------------------------------------------------------------

    def disordered(self, buffer: Buffer) -> str | None:
        """Whether a kernel reads or clears what one before it has written."""
        for k, after in enumerate(self.stages):
            readers = [e for e in after if e.buffer == buffer and (e.kind in ("read", "change") or self.is_clearing(e))]
            writers = [e for before in self.stages[:k] for e in before if e.buffer == buffer and e.writes]
            for reader in readers:
                if any(not self.image(reader).is_disjoint(self.image(writer)) for writer in writers):
                    return "a kernel reads what one before it has written"
        return None

    def stored_late(self, buffer: Buffer) -> str | None:
        """Whether a store to a shadow that holds 0 comes after anything else is done to its element."""
        if buffer not in self.zero:
            return None
        if self.stored_elsewhere(buffer, self.zero[buffer]):
            return "it is not stored to where it is zero"
        stages = [[w for e in effects if e.buffer == buffer and e.writes for w in _touching(self.graph, e)] for effects in self.stages]
        for k, writers in enumerate(stages):
            before = [w for stage in stages[:k] for w in stage]
            for store in (w for w in writers if w.kind == "set"):
                late = any(not self.image(store).is_disjoint(self.image(w)) for w in before)
                if late or not all(self.reads_first(store, w) for w in writers):
                    return "it is stored to after it was written"
        return None

    def stored_elsewhere(self, buffer: Buffer, zeros: Sequence[Zeros] | None) -> bool:
        """True if other elements are stored to than those that are zero, whatever their memory holds."""
        if zeros is None:
            return False
        stores = [e for effects in self.stages for e in effects if e.buffer == buffer and e.kind == "set"]
        if any(g.text is None for e in stores for g in (*e.guards, *(g for d in e.dims for g in d.guards))):
            return True
        return not _is_same(_union([self.image(e) for e in stores]), _union([self.elements(buffer, part) for part in zeros]))

    def elements(self, buffer: Buffer, zeros: Zeros) -> Set:
        graph, index, dims = self.graph, self.graph.constant(zeros.constant, I64), []
        for k, (factor, low, high) in enumerate(zeros.terms):
            name = f"z{k}"
            wide, ends = graph.dim(name, I64, -(1 << 62), (1 << 62) - 1), (graph.constant(low, I64), graph.constant(high, I64))
            dims.append(Dim(name, (graph.compare(">=", wide, ends[0]), graph.compare("<=", wide, ends[1])), False))
            index = graph.arithmetic("+", index, graph.scaled(graph.dim(name, I64, low, high), factor, I64), I64)
        return self.layouts.relation(tuple(dims), (), buffer, index).range()

    def image(self, effect: Effect) -> Set:
        """The elements that an effect touches."""
        return self.access(effect).range()

    def access(self, effect: Effect) -> Map:
        """The relation from instances to elements."""
        return self.layouts.relation(effect.dims, effect.guards, effect.buffer, effect.element)

    def as_before(self, effects: Sequence[Effect], buffer: Buffer) -> bool:
        """True if every read of a buffer gives what was there before the kernel."""
        mine = [e for e in effects if e.buffer == buffer]
        writers = [e for e in mine if e.writes]
        return all(self.reads_first(r, w) for r in mine if r.kind in ("read", "clear") for w in writers)

    def reads_first(self, reader: Effect, writer: Effect) -> bool:
        """True if no instance reads what an instance of the writer has written before, or what another thread writes."""
        if reader.kind == "read" and not reader.value and writer is reader:
            return True
        one, other = self.access(reader), self.access(writer)
        both = one.apply_range(other.reverse())
        if both.is_empty():
            return True
        if writer is not reader and (writer.order < reader.order) and not _exclusive(self.graph, reader, writer):
            return False
        common = [d.name for d in reader.dims if d in writer.dims]
        return bool(both.is_subset(agreeing(reader.dims, writer.dims, common)))

    # --- what is cleared ----------------------------------------------------------------------------------------------------------

    def cleared_otherwise(self, buffer: Buffer) -> str | None:
        """Whether other elements are cleared. A store is a clear and an addition; what is added to an element comes after its clear."""
        if not all(self.clears_first(effects, buffer) for effects in (self.plain, *self.stages)):
            return "it is cleared after it was added to"
        one = [e for e in self.plain if e.buffer == buffer and self.is_clearing(e)]
        other = [e for effects in self.stages for e in effects if e.buffer == buffer and self.is_clearing(e)]
        left, right = ({(e.dims, frozenset(conjuncts(e.guards)), e.element.text or e.element) for e in side} for side in (one, other))
        left, right = _joined(self.graph, left), _joined(self.graph, right)
        if left == right:
            return None
        if any(g.text is None for dims, guards, _ in (*left, *right) for g in (*guards, *(g for d in dims for g in d.guards))):
            return "elements are cleared where data say so"
        sides = [_union([self.image(e) for e in side]) for side in (one, other)]
        return None if _is_same(*sides) else "other elements are cleared"

    def is_clearing(self, effect: Effect) -> bool:
        return effect.kind == "clear" or (effect.kind == "set" and effect.buffer not in self.zero)

    def clears_first(self, effects: Sequence[Effect], buffer: Buffer) -> bool:
        mine = [e for e in effects if e.buffer == buffer]
        late = [(a, c) for c in mine if self.is_clearing(c) for a in mine if a.kind in ("add", "set") and a.order < c.order]
        return all(self.image(a).is_disjoint(self.image(c)) or _exclusive(self.graph, a, c) for a, c in late)

    # --- what is added ------------------------------------------------------------------------------------------------------------

    def added_otherwise(self, buffer: Buffer) -> str | None:
        for effects in (self.plain, *self.stages):
            if any(e.buffer == buffer and e.kind == "change" for e in effects):
                return "it is changed by other atomic operations"
        reason: str | None = None
        for strategy in STRATEGIES:
            try:
                reason = decided(partial(self.differing, buffer, strategy))
            except Undecided as undecided:
                reason = undecided.reason
            else:
                if reason is None or (strategy.keyed and not self.instances.rough):
                    return reason
        return reason

    def differing(self, buffer: Buffer, strategy: Strategy) -> str | None:
        """Whether something else is added."""
        plain = self.added(self.plain, buffer, strategy)
        made = [a for effects in self.stages for a in self.added(effects, buffer, strategy)]
        reason = differing(self.instances, self.layouts, plain, made, self.shadows, strategy)
        if reason is not None:
            return reason
        parts = [x for a in (*plain, *made) for x in _parts(a)]
        return self.read_otherwise(_memory(self.instances, parts), moved={a.key for a in plain} != {a.key for a in made})

    def added(self, effects: Sequence[Effect], buffer: Buffer, strategy: Strategy) -> list[Addition]:
        adds = [e for e in effects if e.buffer == buffer and e.kind in ("add", "set") and e.value is not None and not is_zero(e.value)]
        linear = self.shadows if strategy.linear else None
        return [a for e in adds for a in additions(self.graph, e, linear, by_seed=strategy.by_seed)]

    def read_otherwise(self, memory: Iterable[Buffer], *, moved: bool) -> str | None:
        """Whether an addition hangs on memory that is not as it was before the plain adjoint, or before the kernel that makes it. Where
        none is `moved` to other instances, all may happen to that memory as it does in the plain adjoint."""
        for buffer in dict.fromkeys(memory):
            if not all(self.as_before(effects, buffer) for effects in (self.plain, *self.stages)) and (moved or not self.happens(buffer)):
                return f"`{buffer.name}` is read after it was written"
        return None

    def happens(self, buffer: Buffer) -> bool:
        """True if in each kernel that reads a buffer all happens to it that does in the plain adjoint, in the same order; reads may be
        missing."""
        reads = self.reads(self.plain, buffer)
        return all(
            self.writes(effects, buffer) == self.writes(self.plain, buffer) and self.reads(effects, buffer) <= reads
            for effects in self.stages
            if any(e.buffer == buffer and e.kind in ("read", "clear") for e in effects)
        )

    def reads(self, effects: Sequence[Effect], buffer: Buffer) -> set[Hashable]:
        """The reads of a buffer, each with the number of writes before it in the text."""
        mine = [e for e in effects if e.buffer == buffer]
        return {
            (e.dims, e.guards, e.element.text or e.element, sum(w.writes for w in mine[:k])) for k, e in enumerate(mine) if e.kind == "read"
        }

    # --- races --------------------------------------------------------------------------------------------------------------------

    def racing(self, buffer: Buffer) -> str | None:
        for effects, run in zip(self.stages, self.made, strict=True):
            mine = [e for e in effects if e.buffer == buffer]
            if not _is_race_free(self.layouts, mine, run.shape, atomics=True):
                return MEET
        return None


def _is_race_free(layouts: Layouts, effects: Sequence[Effect], shape: Shape, *, atomics: bool) -> bool:
    """True if no two threads touch one element, one of them with a write; `atomics`: atomic and reduced additions may meet each other, and
    stores of one and the same number too."""
    effects = [part for e in effects for part in _touching(layouts.graph, e)]
    plain = [e for e in effects if e.writes and not (atomics and _commutes(e))]
    maps = {e: _by_thread(layouts, e) for e in (effects if plain else ())}
    for writer in plain:
        for other in effects:
            if atomics and _stores_alike(writer, other):
                continue
            pairs = maps[writer].apply_range(maps[other].reverse())
            count(quotients_of(pairs))
            if writer.buffer.space is Space.SHARED:
                pairs = pairs.intersect(_one_block(writer, shape))
            if not pairs.is_subset(_identity(pairs)):
                return False
    return True


def _one_block(effect: Effect, shape: Shape) -> Map:
    """Pairs of threads of one block."""
    import islpy

    names = [d.name for d in effect.dims if d.thread]
    sizes = [shape.block[AXES.index(name[1])] for name in names]
    terms = " and ".join(f"floor({n}/{size}) = floor({n}_/{size})" for n, size in zip(names, sizes, strict=True)) or "1 = 1"
    left, right = ", ".join(names), ", ".join(f"{n}_" for n in names)
    return islpy.Map.read_from_str(context(), f"{{ [{left}] -> [{right}] : {terms} }}")


def _touching(graph: Graph, effect: Effect) -> list[Effect]:
    """An effect as it touches memory: where it adds something."""
    if not effect.idle:
        return [effect]
    return [replace(effect, dims=a.dims, guards=a.guards, value=a.value, idle=False) for a in additions(graph, effect)]


def _commutes(effect: Effect) -> bool:
    return effect.kind in ("add", "clear", "change") and effect.how in (How.ATOMIC, How.REDUCED)


def _stores_alike(one: Effect, other: Effect) -> bool:
    """True if both store one constant."""
    return one.kind == other.kind == "set" and one.value is other.value and one.value is not None and one.value.is_constant


def _by_thread(layouts: Layouts, effect: Effect) -> Map:
    """The relation from threads to elements."""
    import islpy

    found = layouts.relation(effect.dims, effect.guards, effect.buffer, effect.element)
    threads = sum(d.thread for d in effect.dims)
    return found.project_out(islpy.dim_type.in_, threads, len(effect.dims) - threads)


def _identity(pairs: Map) -> Map:
    import islpy

    return islpy.Map.identity(pairs.get_space())


def _is_number(graph: Graph, effect: Effect, shape: Shape) -> bool:
    """True if a thread's element is its number among all."""
    number, before = graph.constant(0, effect.element.type), 1
    for axis, n in zip(AXES, shape.threads, strict=True):
        if n > 1:
            index = graph.dim(f"g{axis}", effect.element.type, 0, n - 1)
            number = graph.arithmetic("+", number, graph.scaled(index, before, number.type), number.type)
        before *= n
    other = graph.compare("!=", effect.element, number)
    return bool(other.text is not None and domain(graph, effect.dims, [*effect.guards, other]).is_empty())


def _exclusive(graph: Graph, one: Effect, other: Effect) -> bool:
    """True if a guard of one is the negation of a guard of the other."""
    return any(graph.negated(g) in other.guards for g in one.guards)


_Where = tuple[tuple[Dim, ...], frozenset[Node], str | Node]


def _joined(graph: Graph, places: Collection[_Where]) -> set[_Where]:
    """Places, those that differ in one guard alone, and there by its negation, as one."""
    found = set(places)
    for place in sorted(found, key=lambda p: -len(p[1])):
        for guard in place[1] if place in found else ():
            rest = place[1] - {guard}
            other = (place[0], rest | {graph.negated(guard)}, place[2])
            if other in found:
                found -= {place, other}
                found |= _joined(graph, {(place[0], rest, place[2])})
                return _joined(graph, found)
    return found


def _union(sets: Sequence[Set]) -> Set | None:
    found = None
    for one in sets:
        found = one if found is None else found.union(one)
    return found


def _is_same(one: Set | None, other: Set | None) -> bool:
    """True if two sets are equal; None is the empty one."""
    if one is None or other is None:
        return all(side is None or bool(side.is_empty()) for side in (one, other))
    return bool(one.is_equal(other))


def _parts(item: Effect | Addition) -> list[Node | None]:
    """What an access hangs on."""
    return [item.value, item.element, *item.guards, *(g for d in item.dims for g in d.guards)]


def _memory(instances: Instances, parts: Iterable[Node | None]) -> Iterable[Buffer]:
    """The arrays on which something hangs."""
    known: dict[str, None] = {}
    while parts:
        nodes = list(inside(parts, dims=True))
        yield from (node.args[0] for node in nodes if node.op == "load")
        loops = dict.fromkeys(node.args[0] for node in nodes if node.op in ("carried", "result") and node.args[0] not in known)
        known |= loops
        found = (instances.recurrences[name] for name in loops if name in instances.recurrences)
        parts = [part for loop in found for part in (*loop.nexts, *loop.firsts, loop.condition)]

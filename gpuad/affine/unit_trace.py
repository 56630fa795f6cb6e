"""Symbolic execution of a unit of work: what it does to memory, in order, in a run of kernels' bodies, one after the other.

A *unit* is what is done in order and by itself: a thread, or, where every kernel is one loop over elements, an iteration of that loop in a
thread. In goes the body of each kernel with the numbers of its launch and with the memory that its pointers stand for, out come the
accesses: which element, under which guards, and what is written, as nodes of one graph that are equal if they are the same function of
memory as it was before. What the unit itself has written is what it reads.

Where it is not known whether a read sees a write, or a loop reads what its earlier iterations have written, the array is *sequential*: what
is read there is known by the number of writes that come before it in the text. Two texts that write the same to such an array, in the same
order, read the same from it. That goes for what loops carry, too: it is known by its loop and number, and all that makes it is compared.

Assumes that threads of one kernel read nothing that others of its threads write, save through atomic operations. Refuses barriers,
shuffles, stacks, shared memory and output.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ..ir import nodes as ir
from ..ir.rewrite import walk_stmts, written_in
from ..ir.types import BOOL, I32, I64, Scalar, Space, value_type
from .canonical import Canonical, Guards, Terms
from .effects import Dim, Shape
from .instances import Instances, Walk
from .relations import is_so, relation
from .values import Graph, Node

if TYPE_CHECKING:
    from islpy import Map

UNIT = "u"  # the dimension of the loop over elements
Touching: TypeAlias = "ir.Alloc | ir.Load | ir.Take | ir.Store | ir.Accumulate | ir.Atomic"
OWN = "own"  # arrays that threads make for themselves


@dataclass(frozen=True)
class Place:
    """Where a pointer points: an array and how many elements into it. `extent`: where the array begins and ends, in bytes, and the size of
    an element, if that is known; else it overlaps no other. `before`: the array as it was before all kernels."""

    array: Hashable
    offset: int = 0
    extent: tuple[int, int, int] | None = None
    before: bool = False


@dataclass(frozen=True, eq=False)
class Part:
    """A kernel as it is launched. `scalars`: what tells the parameters apart that are no integers."""

    body: ir.Block
    shape: Shape
    places: Mapping[ir.Buffer, Place]
    scalars: Mapping[ir.Var, Hashable] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Access:
    """`kind`: 'read', 'set', 'add' (atomic or reduced), 'change' (any other atomic operation) or 'make' (an array of the thread's own).
    `element`: with the offset of the pointer, as a sum of terms, and `index`, the same as a node. `when`: dims and guards, canonical.
    `before`: it reads what was there before all kernels."""

    kind: str
    array: Hashable
    element: Terms
    index: Node
    value: Node | None
    dims: tuple[Dim, ...]
    guards: tuple[Node, ...]
    when: tuple[tuple[tuple[str, Guards], ...], Guards]
    detail: Hashable
    before: bool
    order: int

    @property
    def writes(self) -> bool:
        return self.kind != "read"

    @property
    def is_own(self) -> bool:
        """True if the access is to an array of the thread's own."""
        return isinstance(self.array, tuple) and self.array[0] == OWN

    @property
    def where(self) -> Hashable:
        """Which element of which array, in which loops."""
        return self.array, self.element, self.when[0]


def named_in(body: ir.Block) -> tuple[int, int]:
    """How many loops, and arrays of a thread's own, a body has."""
    stmts = list(walk_stmts(body))
    return sum(isinstance(s, ir.For | ir.While) for s in stmts), sum(isinstance(s, ir.Alloc) for s in stmts)


class Refused(Exception):
    """A kernel that does what is not modelled, in words."""


@dataclass(frozen=True)
class _Condition(ir.Stmt):
    """Stands between the header and the body of a loop that goes on while something holds."""

    condition: ir.Expr
    name: str


class Trace:
    """The accesses of kernels that come one after the other. `sequential`: arrays of which it is known that they are; `looped`: whether a
    unit is an iteration."""

    def __init__(self, graph: Graph, canonical: Canonical, sequential: set[Hashable], looped: bool) -> None:
        self.graph = graph
        self.canonical = canonical
        self.sequential = sequential
        self.looped = looped
        self.instances = Instances()
        self.instances.graph = graph
        self.found: list[Access] = []
        self.parts: list[list[Access]] = []  # the same, by kernel
        self.writes: dict[Hashable, list[Access]] = {}
        self.loops: set[Hashable] = set()  # what each loop is, and what it carries
        self.guards: list[Hashable] = []  # what stands around the statements of a body
        self.entered = 0
        self.arrays = 0
        self.sharing: dict[Hashable, bool] = {}

    def run(self, part: Part, before: tuple[int, int] = (0, 0)) -> None:
        """Goes through one more kernel. `before`: numbers of loops and of arrays of its own that have names already. Raises Refused."""
        self.entered, self.arrays = before
        first = len(self.found)
        _Unit(self, part).block(part.body)
        self.parts.append(self.found[first:])


class _Unit(Walk):
    """Goes through the body of one kernel."""

    def __init__(self, trace: Trace, part: Part) -> None:
        super().__init__(trace.instances, part.shape)
        self.trace = trace
        self.part = part
        self.places = dict(part.places)
        self.outermost = {id(s) for s in part.body}
        self.written: list[frozenset[Hashable]] = []  # arrays that the loops around write
        self.order = len(trace.found)

    # --- statements ---------------------------------------------------------------------------------------------------------------

    def stmt(self, stmt: ir.Stmt) -> None:
        if isinstance(stmt, ir.Barrier | ir.Shuffle | ir.Push | ir.Pop | ir.Tell):
            raise Refused(f"{type(stmt).__name__.lower()}s are not modelled")
        if isinstance(stmt, _Condition):
            self.trace.loops.add((stmt.name, "while", self.trace.canonical.number(self.truth(stmt.condition))))
            return
        if id(stmt) in self.outermost and isinstance(stmt, ir.If | ir.For):
            self.trace.guards.append(self.guard(stmt))
        super().stmt(stmt)

    def guard(self, stmt: ir.If | ir.For) -> Hashable | None:
        """Which units come to what a statement guards, however it is written; None if that hangs on data."""
        canonical = self.trace.canonical
        if isinstance(stmt, ir.If):
            return canonical.spelled(self.truth(stmt.condition))
        bounds = [self.expr(e) for e in (stmt.start, stmt.stop, stmt.step)]
        known = all(e.text is not None for e in bounds)
        return (*map(canonical.terms, bounds), stmt.var.type, stmt.backward) if known else None

    def memory(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Alloc():
                self.made(stmt)
            case ir.Load(var=var, index=i):
                self.values[var] = self.read(stmt, self.expr(i))
            case ir.Take(var=var, index=i):
                element = self.expr(i)
                self.values[var] = self.read(stmt, element)
                self.noted("set", stmt, element, self.graph.constant(0, var.type), self.detail(stmt.how))
            case ir.Store(index=i, value=v):
                self.noted("set", stmt, self.expr(i), self.expr(v), None)
            case ir.Accumulate(index=i, value=v, how=ir.How.PLAIN):
                element, value = self.expr(i), self.expr(v)
                before = self.read(stmt, element)
                self.noted("set", stmt, element, self.graph.arithmetic("+", before, value, value.type), None)
            case ir.Accumulate(index=i, value=v):
                self.noted("add", stmt, self.expr(i), self.expr(v), self.detail(stmt.how))
            case ir.Atomic():
                self.atomic(stmt)

    def detail(self, how: ir.How) -> Hashable:
        return None if how is ir.How.PLAIN else how.value

    def atomic(self, stmt: ir.Atomic) -> None:
        """A change; what was there before it hangs on how many there have been."""
        element, operands = self.expr(stmt.index), [self.expr(e) for e in stmt.operands]
        detail = stmt.op, tuple(map(self.trace.canonical.number, operands)), stmt.var is not None
        access = self.noted("change", stmt, element, None, detail)
        self.trace.sequential.add(access.array)
        before = len(self.trace.writes[access.array])
        if stmt.var is not None:
            names = tuple(d.name for d in self.dims)
            self.values[stmt.var] = self.graph.node("changed", (access.array, access.element, before, names), stmt.var.type)

    def made(self, stmt: ir.Alloc) -> None:
        if stmt.buffer.space is Space.SHARED:
            raise Refused("shared memory is not modelled")
        array = OWN, self.trace.arrays
        self.trace.arrays += 1
        self.places[stmt.buffer] = Place(array)
        if self.written:
            self.trace.sequential.add(array)
        zero = self.graph.constant(0, value_type(stmt.buffer.element)) if stmt.zero else None
        self.noted("make", stmt, self.graph.constant(0, I64), zero, (stmt.buffer.element, stmt.buffer.length))

    def noted(self, kind: str, stmt: Touching, element: Node, value: Node | None, detail: Hashable) -> Access:
        if stmt.buffer not in self.places:
            raise Refused(f"`{stmt.buffer.name}` is no memory of the launch")
        place, canonical = self.places[stmt.buffer], self.trace.canonical
        if place.before and kind != "read":
            raise Refused("a copy from before the launch is written")
        terms, constant = canonical.terms(element)
        index = self.graph.cast(element, I64)
        if place.offset:
            index = self.graph.arithmetic("+", index, self.graph.constant(place.offset, I64), I64)
        when = canonical.dims(self.dims), canonical.guards(self.guards)
        element_of = terms, constant + place.offset
        order = len(self.trace.found)
        access = Access(kind, place.array, element_of, index, value, self.dims, self.guards, when, detail, place.before, order)
        self.trace.found.append(access)
        if kind != "read":
            self.trace.writes.setdefault(place.array, []).append(access)
        return access

    # --- what is read -------------------------------------------------------------------------------------------------------------

    def read(self, stmt: Touching, element: Node) -> Node:
        """What is in an element now."""
        access, trace = self.noted("read", stmt, element, None, None), self.trace
        kind, array = value_type(stmt.buffer.element), access.array
        again = any(array in written for written in self.written)
        if self.places[stmt.buffer].before or not (again or trace.writes.get(array)):
            return self.content(access, kind)
        if again:
            trace.sequential.add(array)
        if array not in trace.sequential:
            found = self.resolved(access, kind, stmt.buffer.element)
            if found is not None:
                return found
            trace.sequential.add(array)
        names = tuple(d.name for d in self.dims)
        count = len(trace.writes.get(array, ()))
        return self.graph.node("memory", (array, access.element, count, names), kind)

    def content(self, access: Access, kind: Scalar) -> Node:  # type: ignore[override]
        """What was in the element before all kernels."""
        return self.graph.node("content", (access.array, access.element), kind, dims=access.index.dims)

    def resolved(self, access: Access, kind: Scalar, element: Scalar) -> Node | None:
        """What the unit has written there, or what was there before; None if that is not known."""
        choices: list[tuple[Node, Node]] = []
        found: Node | None = None
        for write in reversed(self.trace.writes.get(access.array, ())):
            if write.kind == "make":
                found = write.value
                break
            if write.where == access.where and write.kind == "set" and write.value is not None:
                value = write.value if kind == element else self.graph.node("rounded", (element, write.value), kind)
                if write.when[1] <= access.when[1]:
                    found = value
                    break
                if self.trace.canonical.exclusive(write.when[1], access.when[1]):
                    continue
                condition = self.graph.constant(True, BOOL)
                for guard in write.guards:
                    condition = self.graph.both(condition, guard)
                choices.append((condition, value))
            elif may_touch(self.trace, write, access):
                return None
        found = self.content(access, kind) if found is None else found
        for condition, value in reversed(choices):
            found = self.graph.select(condition, value, found)
        return found

    # --- loops --------------------------------------------------------------------------------------------------------------------

    def named(self, name: str, stmt: ir.For | ir.While) -> str:
        """Loops are known by their order in the text; the one over the elements by its name."""
        if self.is_over_elements(stmt):
            return UNIT
        self.trace.entered += 1
        return f"l{self.trace.entered}"

    def is_over_elements(self, stmt: ir.For | ir.While) -> bool:
        return self.trace.looped and not self.guards and all(d.thread for d in self.dims)

    def loop(self, stmt: ir.For) -> None:
        if self.is_over_elements(stmt):
            if stmt.carried:
                raise Refused("a loop over elements carries values")
            super().loop(stmt)
            return
        self.written.append(self.arrays_written(stmt.body))
        super().loop(stmt)
        self.written.pop()

    def arrays_written(self, body: ir.Block) -> frozenset[Hashable]:
        made = {s.buffer for s in walk_stmts(body) if isinstance(s, ir.Alloc)}
        written = written_in(body) - made
        return frozenset(self.places[b].array for b in written if b in self.places)

    def inside(
        self,
        var: ir.Var | None,
        index: Node | None,
        dim: Dim,
        body: ir.Block,
        carried: Sequence[ir.Carried],
        bounds: tuple[Node, Node, int, bool] | None,
        condition: ir.Expr | None = None,
    ) -> None:
        backward = bounds[3] if bounds is not None else None
        pace = bounds[2] if bounds is not None else None
        loop = dim.name, "loop", self.trace.canonical.guards(dim.guards), pace, backward
        self.trace.loops.add(loop)
        super().inside(var, index, dim, body, carried, bounds, None)

    def ended(self, k: int, dim: Dim, first: Node, after: Node, placeholders: tuple[Node, ...], kind: Scalar, counts: bool) -> Node:
        """What a variable is after a loop."""
        if dim.name == UNIT:
            raise Refused("a loop over elements carries values")
        if after is placeholders[k]:
            return first
        number = self.trace.canonical.number
        self.trace.loops.add((dim.name, "carries", k, number(first), number(after)))
        return self.graph.node("result", (dim.name, k), kind, dims=frozenset(d.name for d in self.dims))

    def repeat(self, stmt: ir.While) -> None:
        """A loop of which it is not known how often it runs."""
        if self.is_over_elements(stmt):
            raise Refused("a loop over elements does not count")
        self.written.append(self.arrays_written((*stmt.header, *stmt.body)))
        name = self.named("", stmt)
        index = self.graph.dim(name, I32, 0, (1 << 31) - 1)
        wide = self.graph.dim(name, I64, -(1 << 62), (1 << 62) - 1)
        guards = self.graph.compare(">=", wide, self.graph.constant(0, I64)), self.graph.node("goes on", (name,), BOOL)
        body = (*stmt.header, _Condition(stmt.condition, name), *stmt.body)
        self.inside(stmt.counter, index, Dim(name, guards, False), body, stmt.carried, None)
        self.written.pop()
        if stmt.count is not None:
            self.values[stmt.count] = self.graph.node("count", (name, tuple(d.name for d in self.dims)), stmt.count.type)

    # --- values -------------------------------------------------------------------------------------------------------------------

    def variable(self, var: ir.Var) -> Node:
        if var not in self.values and var in self.part.scalars and var not in self.shape.numbers:
            return self.graph.node("parameter", (self.part.scalars[var],), var.type)
        return super().variable(var)


# --- elements -----------------------------------------------------------------------------------------------------------------------------


def may_touch(trace: Trace, one: Access, other: Access) -> bool:
    """True if a unit may touch one element in both accesses."""
    (terms, first), (others, second) = one.element, other.element
    if terms == others and one.when[0] == other.when[0]:
        return first == second and not trace.canonical.exclusive(one.when[1], other.when[1])
    if one.index.text is None or other.index.text is None:
        return True
    if one.index.high < other.index.low or other.index.high < one.index.low:
        return False
    key = one.element, one.when, other.element, other.when
    if key not in trace.sharing:
        trace.sharing[key] = is_so(partial(_may_share, trace.graph, one, other), undecided=True)
    return trace.sharing[key]


def _may_share(graph: Graph, one: Access, other: Access) -> bool:
    """True if the same unit touches one element in both."""
    names = {unit(one), unit(other)}
    count = min(map(len, names))
    elements = [in_units(graph, a.dims, a.guards, a.index, count) for a in (one, other)]
    return not elements[0].is_disjoint(elements[1])


def unit(access: Access) -> tuple[str, ...]:
    """The dimensions of an access's unit."""
    return tuple(d.name for d in access.dims if d.thread or d.name == UNIT)


def in_units(graph: Graph, dims: Sequence[Dim], guards: Iterable[Node], index: Node, count: int) -> Map:
    """The relation from the first `count` dimensions to elements."""
    import islpy

    assert index.text is not None
    return relation(graph, dims, guards, [index.text]).project_out(islpy.dim_type.in_, count, len(dims) - count)


__all__ = ["Access", "Part", "Place", "Refused", "Trace", "in_units", "may_touch", "named_in", "unit"]

"""Data races that follow from a launch's numbers.

A gradient is promised for launches without data races (rule 11 of the contract). Most violations can only be found by running (the
reference executor does); but where one thread stores at an affine index, or adds there, and another reads there, the same forms that prove
accumulation injective prove the race. Only what is certain counts: guards and loop bounds that the forms express fully, threads that surely
exist. A barrier between the two orders threads of one block, but not those of two (`blocks_conflict`).

Stores of which several threads may leave different values in one element, as far as their text tells, are `contested`; whether two threads
do come to one element is for a proof or an inspector to say.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, TypeGuard

from ..ir import nodes as ir
from ..ir.rewrite import blocks, expressions, walk_stmts
from ..ir.types import BOOL
from .affine_forms import UNBOUNDED, Digit, Form, Launch, Ranges, Reach, Unknown, Walk, canonical, interval, narrowed
from .conflicts import Nodes, Term, can_cancel, conflict
from .to_be_recorded import to_be_recorded
from .uniformity import common, is_common

_AXES = "xyz"


@dataclass(frozen=True, kw_only=True)
class _Difference(Term):
    """By how much two threads differ in a digit, between whose ranges it lies. `differs(d)`: whether two that differ by `d` may be of
    different blocks; exact for one digit at a time, since each has its own range."""

    left: tuple[int, int]
    right: tuple[int, int]
    width: int  # of the blocks in this digit; 0: it does not tell blocks apart

    def differs(self, by: int) -> bool:
        first, last = max(self.left[0], self.right[0] + by), min(self.left[1], self.right[1] + by)
        if not self.width or not by or first > last:
            return False
        return abs(by) >= self.width or last - first >= self.width or any(self.parted(n, by) for n in range(first, last + 1))

    def parted(self, one: int, by: int) -> bool:
        return one // self.width != (one - by) // self.width

    def parted_anyhow(self) -> bool:
        """True if two threads may be of different blocks, whatever the element."""
        return self.width > 0 and len({n // self.width for n in (*self.left, *self.right)}) > 1


def blocks_conflict(a: Reach, b: Reach, launch: Launch, nodes: Nodes) -> bool:
    """True if two threads of different blocks, one at each access, surely touch one element; False where that is not known. Assumes that
    both accesses are executed for certain within their ranges."""
    unknowns = _differences(a, b, launch)
    if unknowns is None:
        return False
    free = any(u.coefficient == 0 and u.parted_anyhow() for u in unknowns)
    return can_cancel(unknowns, a.form.constant - b.form.constant, free, nodes)


def _of(coefficient: int, left: tuple[int, int], right: tuple[int, int], width: int) -> _Difference:
    return _Difference(coefficient, left[0] - right[1], left[1] - right[0], left=left, right=right, width=width)


def _differences(a: Reach, b: Reach, launch: Launch) -> list[_Difference] | None:
    """None where the two forms have other factors, iterations, or ranges that their digits do not tell."""
    left, right = dict(a.form.terms), dict(b.form.terms)
    if left != right or any(not d.is_thread for d in left):
        return None
    found: list[_Difference] = []
    for axis, extent, count in zip(_AXES, launch.block, launch.grid, strict=True):
        whole, thread, block = (Digit(kind, axis) for kind in ("global", "thread", "block"))
        if thread not in left and block not in left:
            found.append(_of(left.get(whole, 0), a.ranges[whole], b.ranges[whole], extent))
            continue
        if whole in left or any(r.ranges[whole] != (0, extent * count - 1) for r in (a, b)):
            return None
        found.append(_of(left.get(thread, 0), a.ranges[thread], b.ranges[thread], 0))
        found.append(_of(left.get(block, 0), a.ranges[block], b.ranges[block], 1))
    return found


@dataclass(frozen=True)
class Race:
    """A thread reads (`read`) what another writes (`write`) in the same launch, by an atomic operation or not."""

    read: ir.Stmt
    write: ir.Stmt
    buffer: ir.Buffer

    @property
    def atomic(self) -> bool:
        return isinstance(self.write, ir.Atomic) or getattr(self.write, "how", None) is ir.How.ATOMIC


def proved_race(kernel: ir.Kernel, launch: Launch, active: Callable[[ir.Var], bool] = lambda _: False) -> Race | None:
    """A race that surely happens in the launch, or None if none is certain. Reads of what other threads change by atomic operations count
    if they are `active`: others, as of a counter that is looked at before it is raised, are recorded. A thread that reads behind a store
    of its own may read what another one has stored in the same place, unless both have stored one value."""
    facts = to_be_recorded(kernel)
    loads = frozenset(id(a.stmt) for a in facts.accesses if isinstance(a.stmt, ir.Load))
    walk = Certain(launch, frozenset(b for b in facts.written if b.length is None), loads)
    walk.run(kernel.body)
    alike = _common_stores(kernel)
    active_reads = [(read, at) for read, at in walk.reads if active(read.var)]
    nodes = Nodes()
    for write, written in (*walk.writes, *walk.additions):
        if nodes.left <= 0:
            break
        for read, at in walk.reads if is_plain_write(write) else active_reads:
            parted = (id(write), id(read)) in facts.parted
            if read.buffer != write.buffer or (id(write) in alike and (parted or id(read) not in facts.entry)):
                continue
            if (blocks_conflict if parted else _conflict)(written, at, launch, nodes):
                return Race(read, write, read.buffer)
    return None


def _conflict(write: Reach, read: Reach, launch: Launch, nodes: Nodes) -> bool:
    """True if a thread surely reads what another one writes."""
    surely = _comparable(write, read) and conflict(write, read, launch, nodes)
    return surely or _hits(write, read, launch) or _hits(read, write, launch) or _crosses(write, read, launch)


def _common_stores(kernel: ir.Kernel) -> frozenset[int]:
    """The ids of stores of a value that may be the same in all threads: any thread reads the same."""
    known = common(kernel, private_arrays=True)
    return frozenset(id(s) for s in walk_stmts(kernel.body) if isinstance(s, ir.Store) and is_common(s.value, known))


@dataclass(frozen=True)
class Extent:
    """A write, or a read, that surely reaches elements from `low` to `high` of a pointer's memory, both included."""

    stmt: ir.Stmt
    buffer: ir.Buffer
    low: int
    high: int


def sure_extents(kernel: ir.Kernel, launch: Launch) -> tuple[Extent, ...]:
    """How far the writes to parameters that are executed for certain surely reach."""
    walk = Certain(launch, frozenset(kernel.buffers), frozenset())
    try:
        walk.run(kernel.body)
    except Unknown:
        return ()
    whole = tuple(Extent(stmt, stmt.buffer, *interval(reach.form, reach.ranges)) for stmt, reach in (*walk.writes, *walk.additions))
    return whole + tuple(walk.extents)


def sure_reads(kernel: ir.Kernel, launch: Launch) -> tuple[Extent, ...]:
    """How far the reads of parameters reach that are executed for certain, and whose values are used for certain."""
    ended = [(kernel.body, ()), *((block, _next(stmt)) for stmt in walk_stmts(kernel.body) for block in blocks(stmt))]
    used = frozenset(load for block, ends in ended for load in _used(block, ends))
    walk = Certain(launch, frozenset(kernel.buffers), used)
    try:
        walk.run(kernel.body)
    except Unknown:
        return ()
    return tuple(Extent(stmt, stmt.buffer, *interval(reach.form, reach.ranges)) for stmt, reach in walk.reads)


def _next(stmt: ir.Stmt) -> tuple[ir.Expr, ...]:
    """What a loop carries on at the end of its body."""
    return tuple(c.next for c in stmt.carried) if isinstance(stmt, ir.For | ir.While) else ()


def _used(block: ir.Block, ends: tuple[ir.Expr, ...]) -> Iterator[int]:
    """The ids of the loads of a block that give what is written to memory, decides something, or is carried on by a loop, in what is
    executed after them if they are. `ends`: what the loop around carries on."""
    wanted = {v for e in ends for v in _strict(e)}
    for stmt in reversed(block):
        if isinstance(stmt, ir.Load) and stmt.var in wanted:
            yield id(stmt)
        made = isinstance(stmt, ir.Let) and stmt.var in wanted
        if isinstance(stmt, ir.If):
            wanted.update(_strict(stmt.condition))
        elif made or isinstance(stmt, ir.Store | ir.Accumulate | ir.Atomic | ir.Load | ir.Shuffle):
            wanted.update(v for e in expressions(stmt) for v in _strict(e))


def _strict(expr: ir.Expr) -> Iterator[ir.Var]:
    """The Vars that the value of an expression depends on, whatever its conditions choose."""
    waiting = [expr]
    while waiting:
        e = waiting.pop()
        if isinstance(e, ir.Var):
            yield e
        first_only = isinstance(e, ir.Select) or (isinstance(e, ir.Binary) and e.op in ("&&", "||"))
        waiting += ir.children(e)[: 1 if first_only else None]


def sure_access(kernel: ir.Kernel, launch: Launch, buffer: ir.Buffer) -> ir.Stmt | None:
    """An access to a buffer that is executed for certain, wherever it reaches."""
    walk = _Executed(launch, frozenset({buffer}), frozenset(id(s) for s in walk_stmts(kernel.body) if isinstance(s, ir.Load)))
    with contextlib.suppress(Unknown):
        walk.run(kernel.body)
    return next((stmt for stmt, _ in (*walk.reads, *walk.writes, *walk.additions)), None)


def sure_writes(kernel: ir.Kernel, launch: Launch, buffer: ir.Buffer) -> list[Reach]:
    """The stores to a buffer that are executed for certain, with exactly what they reach."""
    walk = Certain(launch, frozenset({buffer}), frozenset())
    try:
        walk.run(kernel.body)
    except Unknown:
        return []
    return [
        reach
        for write, reach in walk.writes
        if isinstance(write, ir.Store) and all(d.kind in ("global", "loop") for d, _ in reach.form.terms)
    ]


@dataclass(frozen=True)
class CyclicLoop:
    """A loop that gives out numbers from `low` to `high` to threads: `counter` is its variable, `digit` its iteration."""

    counter: Form
    digit: Digit
    low: int
    high: int


class Certain(Walk):
    """Collects the stores, and the loads whose ids are `wanted_loads`, that are executed for certain. `extents`: how far writes reach in
    loops that give out numbers to threads, of which not every thread makes the last iteration."""

    def __init__(self, launch: Launch, wanted: frozenset[ir.Buffer], wanted_loads: frozenset[int]) -> None:
        super().__init__(launch, wanted)
        self.wanted_loads = wanted_loads
        self.certain = True
        self.writes: list[tuple[ir.Store | ir.Accumulate, Reach]] = []
        self.additions: list[tuple[ir.Accumulate | ir.Atomic, Reach]] = []  # atomic ones, and other atomic operations
        self.reads: list[tuple[ir.Load, Reach]] = []
        self.extents: list[Extent] = []
        self.cyclic: CyclicLoop | None = None  # the loop around that makes what is in it uncertain, if nothing else does

    def stmt(self, stmt: ir.Stmt, ranges: Ranges) -> None:
        if self.cyclic is not None and isinstance(stmt, ir.Store | ir.Accumulate | ir.Atomic) and stmt.buffer in self.wanted:
            self.note_cyclic(self.cyclic, stmt, ranges)
        match stmt:
            case ir.Load(buffer=b, index=i) if b in self.wanted:
                if self.certain and id(stmt) in self.wanted_loads:
                    self.note(self.reads, stmt, i, ranges)
            case ir.Store(buffer=b, index=i) | ir.Accumulate(buffer=b, index=i) if b in self.wanted:
                if self.certain and (isinstance(stmt, ir.Store) or stmt.how is ir.How.PLAIN):
                    self.note(self.writes, stmt, i, ranges)
                elif self.certain:
                    self.note(self.additions, stmt, i, ranges)
            case ir.Atomic(buffer=b, index=i) if b in self.wanted and self.certain:
                self.note(self.additions, stmt, i, ranges)
            case ir.Accumulate() | ir.Atomic() | ir.Take():
                pass  # what is not certain is of no use here
            case ir.If(condition=c, then=a, otherwise=z):
                for side, holds in ((a, True), (z, False)):
                    inner = narrowed(ranges, self.constraints(c, holds, ranges), self.launch)
                    self.within(self.expressed(c, holds, ranges), lambda s=side, r=inner: self.side(s, r))
            case ir.While():
                self.within(False, lambda: super(Certain, self).stmt(stmt, ranges))
            case _:
                super().stmt(stmt, ranges)

    def note(self, found: list, stmt: ir.Stmt, index: ir.Expr, ranges: Ranges) -> None:  # type: ignore[type-arg]
        try:
            found.append((stmt, Reach(canonical(self.form(index, ranges), self.launch), ranges)))
        except Unknown:
            return

    def note_cyclic(self, cyclic: CyclicLoop, stmt: ir.Store | ir.Accumulate | ir.Atomic, ranges: Ranges) -> None:
        """How far a write in such a loop reaches, if its index is a multiple of the loop's variable beside what depends on no thread."""
        try:
            form = canonical(self.form(stmt.index, ranges), self.launch)
        except Unknown:
            return
        factor, over = divmod(dict(form.terms).get(cyclic.digit, 0), dict(cyclic.counter.terms)[cyclic.digit])
        rest = form + cyclic.counter.scaled(-factor)
        if over or any(d.is_thread for d, _ in rest.terms):
            return
        (low, high), ends = interval(rest, ranges), sorted((factor * cyclic.low, factor * cyclic.high))
        self.extents.append(Extent(stmt, stmt.buffer, low + ends[0], high + ends[1]))

    def within(self, certain: bool, action, cyclic: CyclicLoop | None = None) -> None:  # type: ignore[no-untyped-def]
        before = self.certain, self.cyclic
        self.certain, self.cyclic = self.certain and certain, self.cyclic if certain else cyclic
        action()
        self.certain, self.cyclic = before

    def loop_body(self, stmt: ir.For, ranges: Ranges, last: int) -> None:
        even = 0 <= last < UNBOUNDED and self.even(stmt, ranges)
        cyclic = self.cyclic_loop(stmt, ranges) if self.certain and not even and 0 <= last < UNBOUNDED else None
        self.within(even, lambda: super(Certain, self).loop_body(stmt, ranges, last), cyclic)

    def cyclic_loop(self, stmt: ir.For, ranges: Ranges) -> CyclicLoop | None:
        """What a loop over a grid gives out, `for (k = global index; k < n; k += number of threads)`, if every thread enters it."""
        counter = canonical(self.counters[-1][0], self.launch)
        threads, loops = ([(d, c) for d, c in counter.terms if d.is_thread is is_thread] for is_thread in (True, False))
        try:
            low, high = interval(self.form(stmt.stop, ranges), ranges)
        except Unknown:
            return None
        if low != high or len(threads) != 1 or len(loops) != 1:
            return None
        (thread, pace), (digit, step) = threads[0], loops[0]
        first, last = ranges[thread]
        if pace <= 0 or step != pace * (last - first + 1) or any(ranges[d] != r for d, r in self.everywhere().items()):
            return None
        start = counter.constant + pace * first
        return CyclicLoop(counter, digit, start, start + (high - 1 - start) // pace * pace) if start < high else None

    def even(self, stmt: ir.For, ranges: Ranges) -> bool:
        """True if all threads run the loop equally often."""
        try:
            low, high = interval(self.form(stmt.stop, ranges) + self.form(stmt.start, ranges).scaled(-1), ranges)
            step = self.form(stmt.step, ranges)
        except Unknown:
            return False
        return low == high or (not step.terms and step.constant != 0 and -(-low // step.constant) == -(-high // step.constant))

    def expressed(self, condition: ir.Expr, holds: bool, ranges: Ranges) -> bool:
        """True if the ranges say all that the condition says."""
        match condition:
            case ir.Var() if condition in self.bools:
                return self.expressed(self.bools[condition], holds, ranges)
            case ir.Var() if condition in self.forms:
                return bool(self.forms[condition].constant) is holds
            case ir.Cast(operand=a) if a.type.is_integer and condition.type == BOOL:
                return self.expressed(ir.Binary("!=", a, ir.Constant(0, a.type), BOOL), holds, ranges)
            case ir.Unary(op="!", operand=a):
                return self.expressed(a, not holds, ranges)
            case ir.Binary(op="&&", left=a, right=b) if holds:
                return self.expressed(a, True, ranges) and self.expressed(b, True, ranges)
            case ir.Binary(op="||", left=a, right=b) if not holds:
                return self.expressed(a, False, ranges) and self.expressed(b, False, ranges)
            case ir.Binary(op=op, left=a, right=b) if op in _COMPARED and (known := self.difference(a, b, ranges)) is not None:
                return _COMPARED[op](known, 0) is holds
            case ir.Binary():
                found = self.constraints(condition, holds, ranges)
                return bool(found) and all(self.shown(canonical(form, self.launch)) for form, _ in found)
        return False

    def difference(self, a: ir.Expr, b: ir.Expr, ranges: Ranges) -> int | None:
        """The difference of two numbers where it is one."""
        try:
            form = self.form(a, ranges) + self.form(b, ranges).scaled(-1)
        except Unknown:
            return None
        return None if form.terms else form.constant

    def shown(self, form: Form) -> bool:
        """True if a bound is on a digit in which indices are compared."""
        return all(d.kind in ("global", "loop") for d, _ in form.terms) and len(form.terms) <= 1


class _Executed(Certain):
    """Accesses that are surely executed, whatever their indices are."""

    def note(self, found: list, stmt: ir.Stmt, index: ir.Expr, ranges: Ranges) -> None:  # type: ignore[type-arg]
        found.append((stmt, None))


_COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}


def _hits(one: Reach, all_: Reach, launch: Launch) -> bool:
    """True if several threads come to one element (`all_`) that a thread comes to by its number, as in `x[i] = x[0] * x[i]`."""
    if all_.form.terms or len(one.form.terms) != 1 or launch.grid[1:] != (1, 1) or launch.block[1:] != (1, 1):
        return False
    digit, factor = one.form.terms[0]
    thread, rest = divmod(all_.form.constant - one.form.constant, factor)
    low, high = one.ranges[digit]
    first, last = all_.ranges[Digit("global", "x")]
    return digit == Digit("global", "x") and rest == 0 and low <= thread <= high and last > first


def _crosses(write: Reach, read: Reach, launch: Launch) -> bool:
    """True if a thread reads what another one writes, where their indices go at different paces, as in `x[i] = x[n - 1 - i]`, or where
    all threads read what a loop goes through."""
    if len(write.form.terms) != 1 or len(read.form.terms) != 1 or launch.grid[1:] != (1, 1) or launch.block[1:] != (1, 1):
        return False
    ((writer, a),), ((reader, b),) = write.form.terms, read.form.terms
    thread = Digit("global", "x")
    if writer != thread or (reader.is_thread and (reader != thread or a == b)):
        return False
    met = _solutions(a, b, read.form.constant - write.form.constant, write.ranges[writer], read.ranges[reader])
    if reader.is_thread:
        return any(w != r for w, r in met)
    first, last = read.ranges[thread]
    return bool(met) and last > first


def _solutions(a: int, b: int, gap: int, left: tuple[int, int], right: tuple[int, int]) -> list[tuple[int, int]]:
    """Two whole solutions of `a u = b v + gap` with u and v in these ranges, or those that there are. Two have different u - v if a and b
    differ."""
    common = math.gcd(a, b)
    if gap % common:
        return []
    ends = sorted(Fraction(b * v + gap, a) for v in right)
    low, high, step = max(left[0], math.ceil(ends[0])), min(left[1], math.floor(ends[1])), abs(b) // common
    first = low + (gap // common * pow(a // common, -1, step) - low) % step
    return [(u, (a * u - gap) // b) for u in (first, first + step) if u <= high]


def _comparable(a: Reach, b: Reach) -> bool:
    """True if the search over the two forms is exact: the same factors for the same digits of threads, no axis in two guises."""
    left, right = ({d: c for d, c in r.form.terms if d.is_thread} for r in (a, b))
    return left == right and all(d.kind == "global" for d in left)


Write: TypeAlias = "ir.Store | ir.Accumulate | ir.Atomic"


def contested(kernel: ir.Kernel, buffers: Collection[ir.Buffer]) -> tuple[Write, ...]:
    """The stores to `buffers` that may give different values for different threads: all to a buffer, unless each gives the one same value.
    An addition that is not atomic is one of them, and so is an exchange: whose value stays is not on record."""
    uniform = common(kernel, private_arrays=False)
    found: list[Write] = []
    for buffer in buffers:
        writes = [s for s in walk_stmts(kernel.body) if is_plain_write(s) and s.buffer == buffer]
        values = [stored_value(s) for s in writes]
        if any(v is None or not is_common(v, uniform) or v != values[0] for v in values):
            found.extend(writes)
    return tuple(found)


def stored_value(stmt: Write) -> ir.Expr | None:
    """The value that a thread writes, if it does not depend on the old content, and that is not returned."""
    match stmt:
        case ir.Store(value=value):
            return value
        case ir.Atomic(var=None, operands=(value,)):
            return value
    return None


def is_plain_write(stmt: ir.Stmt) -> TypeGuard[Write]:
    """Whether the statement writes memory in a way that two threads may not do to one element."""
    if isinstance(stmt, ir.Atomic):
        return stmt.op == "exch"
    return isinstance(stmt, ir.Store) or (isinstance(stmt, ir.Accumulate) and stmt.how is ir.How.PLAIN)

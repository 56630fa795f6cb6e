"""Data races that can be proved from a launch's numbers.

A gradient is promised for launches without data races (RULES 11). Most violations can only be found by running (the reference executor
does); but where one thread stores at an affine index and another reads there what was before, the same forms that prove plain
accumulation safe prove the race. Only what is certain counts: guards and loop bounds that the forms express fully, threads that surely
exist. A barrier between the two orders threads of one block, but not those of two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from ..ir.nodes import (
    Accumulate,
    Atomic,
    Binary,
    Buffer,
    Expr,
    For,
    How,
    If,
    Kernel,
    Load,
    Stmt,
    Store,
    Take,
    Unary,
    Var,
    While,
)
from ..ir.rewrite import walk_stmts
from .blocks import blocks_meet
from .injectivity import UNBOUNDED, Digit, Form, Launch, Ranges, Reach, Unknown, Walk, canonical, interval, may_meet, narrowed
from .replay import replay
from .uniform import common, is_common


@dataclass(frozen=True)
class Race:
    """A thread reads (`read`) what another writes (`write`) in the same launch."""

    read: Stmt
    write: Stmt
    buffer: Buffer


def proved_race(kernel: Kernel, launch: Launch) -> Race | None:
    """A race that surely happens in the launch, or None if none is certain."""
    facts = replay(kernel)
    loads = frozenset(id(a.stmt) for a in facts.accesses if isinstance(a.stmt, Load))
    walk = Certain(launch, frozenset(b for b in facts.written if b.length is None), loads if facts.parted else facts.entry)
    walk.run(kernel.body)
    alike = _common_stores(kernel) if facts.parted else frozenset()
    for write, written in walk.writes:
        for read, at in walk.reads:
            if read.buffer != write.buffer:
                continue
            if (id(write), id(read)) in facts.parted:
                meets = id(write) not in alike and blocks_meet(written, at, launch)
            else:
                meets = id(read) in facts.entry and _meet(written, at, launch)
            if meets:
                return Race(read, write, read.buffer)
    return None


def _meet(write: Reach, read: Reach, launch: Launch) -> bool:
    """Whether a thread surely reads what another one writes."""
    surely = _comparable(write, read) and may_meet(write, read, launch, unsure=False)
    return surely or _hits(write, read, launch) or _crosses(write, read, launch)


def _common_stores(kernel: Kernel) -> frozenset[int]:
    """The ids of stores of a value that may be the same in all threads: whoever reads it, it is the same."""
    known = common(kernel, lambda load: True)
    return frozenset(id(s) for s in walk_stmts(kernel.body) if isinstance(s, Store) and is_common(s.value, known))


@dataclass(frozen=True)
class Extent:
    """A write that surely reaches elements from `low` to `high` of a pointer's memory, both included."""

    stmt: Stmt
    buffer: Buffer
    low: int
    high: int


def sure_extents(kernel: Kernel, launch: Launch) -> tuple[Extent, ...]:
    """How far the writes to parameters that are executed for certain surely reach."""
    walk = Certain(launch, frozenset(kernel.buffers), frozenset())
    try:
        walk.run(kernel.body)
    except Unknown:
        return ()
    return tuple(Extent(stmt, stmt.buffer, *interval(reach.form, reach.ranges)) for stmt, reach in (*walk.writes, *walk.additions))


def sure_writes(kernel: Kernel, launch: Launch, buffer: Buffer) -> list[Reach]:
    """The stores to a buffer that are executed for certain, with exactly what they reach."""
    walk = Certain(launch, frozenset({buffer}), frozenset())
    try:
        walk.run(kernel.body)
    except Unknown:
        return []
    return [
        reach for write, reach in walk.writes if isinstance(write, Store) and all(d.kind in ("global", "loop") for d, _ in reach.form.terms)
    ]


class Certain(Walk):
    """Collects the stores, and the loads of what was there before, that are executed for certain."""

    def __init__(self, launch: Launch, wanted: frozenset[Buffer], entry: frozenset[int]) -> None:
        super().__init__(launch, wanted)
        self.entry = entry
        self.certain = True
        self.writes: list[tuple[Store | Accumulate, Reach]] = []
        self.additions: list[tuple[Accumulate | Atomic, Reach]] = []  # atomic ones, and other atomic operations
        self.reads: list[tuple[Load, Reach]] = []

    def stmt(self, stmt: Stmt, ranges: Ranges) -> None:
        match stmt:
            case Load(buffer=b, index=i) if b in self.wanted:
                if self.certain and id(stmt) in self.entry:
                    self.note(self.reads, stmt, i, ranges)
            case Store(buffer=b, index=i) | Accumulate(buffer=b, index=i) if b in self.wanted:
                if self.certain and (isinstance(stmt, Store) or stmt.how is How.PLAIN):
                    self.note(self.writes, stmt, i, ranges)
                elif self.certain:
                    self.note(self.additions, stmt, i, ranges)
            case Atomic(buffer=b, index=i) if b in self.wanted and self.certain:
                self.note(self.additions, stmt, i, ranges)
            case Accumulate() | Atomic() | Take():
                pass  # atomics race with nobody, and what is not certain is of no use here
            case If(condition=c, then=a, otherwise=z):
                for side, holds in ((a, True), (z, False)):
                    inner = narrowed(ranges, self.constraints(c, holds, ranges), self.launch)
                    self.within(self.expressed(c, holds, ranges), lambda s=side, r=inner: self.side(s, r))
            case While():
                self.within(False, lambda: super(Certain, self).stmt(stmt, ranges))
            case _:
                super().stmt(stmt, ranges)

    def note(self, found: list, stmt: Stmt, index: Expr, ranges: Ranges) -> None:  # type: ignore[type-arg]
        try:
            found.append((stmt, Reach(canonical(self.form(index, ranges), self.launch), ranges)))
        except Unknown:
            return

    def within(self, certain: bool, action) -> None:  # type: ignore[no-untyped-def]
        before, self.certain = self.certain, self.certain and certain
        action()
        self.certain = before

    def loop_body(self, stmt: For, ranges: Ranges, last: int) -> None:
        self.within(0 <= last < UNBOUNDED and self.even(stmt, ranges), lambda: super(Certain, self).loop_body(stmt, ranges, last))

    def even(self, stmt: For, ranges: Ranges) -> bool:
        """Whether all threads run the loop equally often."""
        try:
            low, high = interval(self.form(stmt.stop, ranges) + self.form(stmt.start, ranges).scaled(-1), ranges)
            step = self.form(stmt.step, ranges)
        except Unknown:
            return False
        return low == high or (not step.terms and step.constant != 0 and -(-low // step.constant) == -(-high // step.constant))

    def expressed(self, condition: Expr, holds: bool, ranges: Ranges) -> bool:
        """Whether the ranges say all that the condition says."""
        match condition:
            case Var() if condition in self.bools:
                return self.expressed(self.bools[condition], holds, ranges)
            case Unary(op="!", operand=a):
                return self.expressed(a, not holds, ranges)
            case Binary(op="&&", left=a, right=b) if holds:
                return self.expressed(a, True, ranges) and self.expressed(b, True, ranges)
            case Binary(op="||", left=a, right=b) if not holds:
                return self.expressed(a, False, ranges) and self.expressed(b, False, ranges)
            case Binary():
                found = self.constraints(condition, holds, ranges)
                return bool(found) and all(self.shown(canonical(form, self.launch)) for form, _ in found)
        return False

    def shown(self, form: Form) -> bool:
        """Whether a bound is on a digit in which indices are compared."""
        return all(d.kind in ("global", "loop") for d, _ in form.terms) and len(form.terms) <= 1


def _hits(write: Reach, read: Reach, launch: Launch) -> bool:
    """Whether several threads read one element that a thread writes, as in `x[i] = x[0] * x[i]`."""
    if read.form.terms or len(write.form.terms) != 1 or launch.grid[1:] != (1, 1) or launch.block[1:] != (1, 1):
        return False
    digit, factor = write.form.terms[0]
    writer, rest = divmod(read.form.constant - write.form.constant, factor)
    low, high = write.ranges[digit]
    first, last = read.ranges[Digit("global", "x")]
    return digit == Digit("global", "x") and rest == 0 and low <= writer <= high and last > first


def _crosses(write: Reach, read: Reach, launch: Launch) -> bool:
    """Whether a thread reads what another one writes, where their indices go at different paces, as in `x[i] = x[n - 1 - i]`, or where
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
    """Whether the search over the two forms is exact: the same factors for the same digits of threads, no axis in two guises."""
    left, right = ({d: c for d, c in r.form.terms if d.is_thread} for r in (a, b))
    return left == right and all(d.kind == "global" for d in left)

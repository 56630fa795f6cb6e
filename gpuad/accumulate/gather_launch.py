"""Gather launches: the launch that a gather would be (`accumulate.gather`), by the numbers of the primal's: its grid and predicates.

The grid covers the image of what the primal's threads send, and a slice tests the predicates that the guards of its senders do not imply,
so that it covers threads of the primal alone. Nothing is proved: `affine` says whether every contribution arrives, once and in its element,
and nothing runs that has no certificate. Declined is what would not pay, and what cannot be told from the numbers, with every intermediate
value inside of its C type."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

from ..analysis.affine_forms import Digit, Form, Launch, Ranges, Reach, Unknown, Walk, canonical, interval
from ..ir.folding import conjuncts
from ..ir.nodes import Accumulate, Atomic, Binary, Block, Buffer, Constant, Expr, For, If, Load, Stmt, Store, Take, While
from ..ir.rewrite import walk_stmts
from .gather import Gather, Predicates, Sides, Slice
from .gather_kernel import at_target, leading_guards, predicates, without_held

_MEMORY = (Load, Store, Take, Accumulate, Atomic)
_MOST = 1 << 30  # threads along an axis, and steps of a shift: sums of two of them are ints
_GRID = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)
_IDLE, _CHEAP = 16, 1 << 16  # a gather has at most so many times as many threads as there are elements, or that many
_SENDERS, _ENOUGH = 16, 1 << 14  # a thread goes through all senders if threads are no more than so many times rarer, or that many
Three = tuple[int, int, int]
Box: TypeAlias = "tuple[tuple[int, int], tuple[int, int], tuple[int, int]]"  # inclusive ranges of indices, along x, y and z


@dataclass(frozen=True)
class Elements:
    """The elements of a shadow for which threads collect: `forms`, one for each lane, over the collecting thread's index (the digits
    `global`). No two threads of the box have one element, and all that collect anything for the shadow are in it. `needed`: along which
    axes the kernel has more than one thread."""

    forms: tuple[Form, ...]
    box: Box
    needed: tuple[bool, bool, bool]


@dataclass(frozen=True)
class Gathering:
    """A gather for a launch, the predicates that its kernel has to test, its grid (the block is the primal's),
    the first index and the number of the primal's threads along each axis; the elements of those shadows for which they are known."""

    gathered: Gather
    sides: Sides
    grid: Three
    first: Three
    threads: Three
    elements: Mapping[Buffer, Elements]

    @property
    def buffers(self) -> frozenset[Buffer]:
        """The shadows that are gathered."""
        return self.gathered.buffers


@dataclass(frozen=True)
class Declined:
    """Shadows that had better not be gathered; `is_costly`: since few threads would collect, each from many."""

    buffers: frozenset[Buffer]
    is_costly: bool = False


def gather_launch(gathered: Gather, launch: Launch, elements: int) -> Gathering | Declined:
    """A gather's launch, or for which shadows there is none; `elements`: how many there are in the memory that is gathered, which is what
    threads are worth being started for."""
    try:
        return _Launching(gathered, launch, elements).found()
    except Unknown:
        return Declined(gathered.buffers)


class _Launching:
    def __init__(self, gathered: Gather, launch: Launch, elements: int) -> None:
        self.gathered = gathered
        self.elements_there = elements
        extents = (extent for mixed in gathered.geometry.digits.values() for _, extent in mixed.loops)
        self.granted = gathered.geometry.holds(launch.grid, launch.block) and all(_number(launch, extent) > 0 for extent in extents)
        grid = gathered.geometry.grid(launch.grid, launch.block, partial(_number, launch))
        self.threads = gathered.geometry.threads(launch.grid, launch.block, partial(_number, launch))
        numbers = {**launch.scalars, **dict(zip(gathered.threads, self.threads, strict=True))}
        self.launch = replace(launch, grid=grid, scalars=numbers)
        self._reached: dict[Hashable, list[_Reached]] = {}

    def found(self) -> Gathering | Declined:
        if not self.granted or max(self.threads) > _MOST:
            return Declined(self.gathered.buffers)
        declined = frozenset(b for piece in self.gathered.slices for b in (*self.untold(piece), *self.again(piece)))
        if declined:
            return Declined(declined)
        low, high = self.image()
        first = tuple(min(n, 0) for n in low)
        grid = tuple(-(-(z - a + 1) // n) for a, z, n in zip(first, high, self.launch.block, strict=True))
        if any(g > most or g * n > _MOST for g, n, most in zip(grid, self.launch.block, _GRID, strict=True)):
            return Declined(self.gathered.buffers)
        if prod(grid) * prod(self.launch.block) > max(_CHEAP, _IDLE * max(self.elements_there, prod(self.threads))):
            return Declined(self.gathered.buffers)
        lazy = self.lazy()
        if lazy:
            return Declined(lazy, is_costly=True)
        own = tuple((a, a + g * n - 1) for a, g, n in zip(first, grid, self.launch.block, strict=True))
        needed = tuple(self.needed(piece, own) for piece in self.gathered.slices)
        sides = Sides((first[0] < 0, first[1] < 0, first[2] < 0), needed)
        return Gathering(self.gathered, sides, _three(grid), _three(first), _three(self.threads), self.elements(needed, own))

    def everyone(self) -> dict[Digit, tuple[int, int]]:
        """The indices of the primal's threads."""
        return {Digit("global", axis): (0, n - 1) for axis, n in zip("xyz", self.threads, strict=True)}

    # --- what is sent ------------------------------------------------------------------------------------------------------------------

    def reached(self, piece: Slice, ranges: Mapping[Digit, tuple[int, int]], needed: Predicates) -> list[_Reached]:
        """What a slice touches, in terms of the sender, for senders in the ranges."""
        key = id(piece), frozenset(ranges.items()), needed
        if key not in self._reached:
            self._reached[key] = self._touched(piece, ranges, needed)
        return self._reached[key]

    def _touched(self, piece: Slice, ranges: Mapping[Digit, tuple[int, int]], needed: Predicates) -> list[_Reached]:
        seen = _Sending(self.launch, self.gathered, piece, ranges)
        seen.run(self.opened(piece, needed))
        return seen.reached

    def opened(self, piece: Slice, needed: Predicates) -> Block:
        """A slice with its predicates, in terms of the sender, and with the loops around it."""
        terms = [t for t in predicates(self.gathered, piece, replace(needed, zero=(False,) * 3)) if not isinstance(t, Constant)]
        block: Block = piece.block
        for term in reversed(terms):
            block = (If(term, block),)
        for var in reversed(piece.move.loops):
            block = (replace(self.gathered.loops[var], body=block, carried=(), backward=False),)
        return block

    def untold(self, piece: Slice) -> frozenset[Buffer]:
        """The shadows that a slice adds to, if it is not known to whom it sends."""
        try:
            self.reached(piece, self.everyone(), Predicates())
        except Unknown:
            return self.added(piece)
        return frozenset()

    def again(self, piece: Slice) -> frozenset[Buffer]:
        """The shadows that a slice adds to, if it reads what a loop of the adjoint writes: the adjoint has to go through that again anyway,
        and adds on its way at less cost."""
        written = {
            s.buffer
            for loop in walk_stmts(self.gathered.body)
            if isinstance(loop, While) or (isinstance(loop, For) and loop.var not in self.gathered.geometry.loops)
            for s in walk_stmts(loop.body)
            if isinstance(s, Store | Take | Accumulate | Atomic)
        }
        return self.added(piece) if any(isinstance(s, Load) and s.buffer in written for s in walk_stmts(piece.block)) else frozenset()

    def added(self, piece: Slice) -> frozenset[Buffer]:
        """The shadows that a slice adds to."""
        return frozenset(self.gathered.lanes[s.buffer] for s in walk_stmts(piece.block) if isinstance(s, Accumulate))

    def image(self) -> tuple[list[int], list[int]]:
        """The least and greatest index along each axis to which a thread that exists sends something."""
        boxes = [r.box for piece in self.gathered.slices for r in self.reached(piece, self.everyone(), Predicates()) if r.lane is not None]
        if not boxes:
            raise Unknown
        low, high = ([f(box[k][side] for box in boxes) for k in range(3)] for side, f in ((0, min), (1, max)))
        if min(low) < -_MOST or max(high) > _MOST:
            raise Unknown
        return low, high

    def lazy(self) -> frozenset[Buffer]:
        """The shadows that few threads would collect for, each from many senders."""
        boxes: dict[Buffer, list[tuple[tuple[int, int], ...]]] = {}
        for piece in self.gathered.slices:
            for reach in self.reached(piece, self.everyone(), Predicates()):
                if reach.lane is not None and (piece.move.spread or piece.move.own):
                    boxes.setdefault(self.gathered.lanes[reach.lane], []).append(reach.box)
        enough = min(prod(self.threads) // _SENDERS, _ENOUGH)
        return frozenset(
            buffer
            for buffer, found in boxes.items()
            if prod(max(b[k][1] for b in found) - min(b[k][0] for b in found) + 1 for k in range(3)) < enough
        )

    # --- the kernel --------------------------------------------------------------------------------------------------------------------

    def needed(self, piece: Slice, own: Sequence[tuple[int, int]]) -> Predicates | None:
        """The predicates that the kernel has to test so that a slice covers only threads that exist; None if it covers none."""
        if not any(r.lane for r in self.reached(piece, self.everyone(), Predicates())):
            return None
        wide, held = self.widened(piece, own), self.held(piece)
        low, high, zero = [False] * 3, [False] * 3, [False] * 3
        for reach in self._touched(replace(piece, block=without_held(piece.block, held)), wide, Predicates()):
            for k, axis in enumerate("xyz"):
                a, z = reach.ranges[Digit("global", axis)]
                low[k], high[k] = low[k] or a < 0, high[k] or z >= self.threads[k]
        for k, digit in enumerate(piece.move.solved):
            zero[k] = digit is None and own[k] != (0, 0)
        return Predicates(_flags(low), _flags(high), _flags(zero), *self.within(piece), held)

    def held(self, piece: Slice) -> frozenset[Expr]:
        """The comparisons of several indices of a sender at once that all senders satisfy that exist, as `(c * h + y) * w + x < n` where
        there are no more of them. Of those of one index a kernel makes bounds."""
        seen = _Sending(self.launch, self.gathered, piece, self.everyone())
        seen.run(self.opened(piece, Predicates()))
        return frozenset(term for term, holds in seen.holding.items() if holds)

    def within(self, piece: Slice) -> tuple[frozenset[Expr], frozenset[Expr]]:
        """The comparisons of a sender that is gone through which only threads that exist satisfy, or all of these; and those of them that
        are tested for every sender and implied by others that are, too."""
        found: dict[Expr, int] = {}
        always = [*(conjuncts(piece.move.condition) if piece.move.condition is not None else []), *leading_guards(piece.block)]
        for stmt in (*walk_stmts(piece.block), *([If(piece.move.condition, ())] if piece.move.condition is not None else [])):
            for term in conjuncts(stmt.condition) if isinstance(stmt, If) else ():
                if isinstance(term, Binary) and term.left in piece.move.spread and term.op in ("<", ">="):
                    bound = self.value(term.right)
                    if bound is not None and 0 <= bound <= self.threads[self.gathered.sender.index(term.left)]:
                        found[term] = bound
        bounds = {t: n for t, n in found.items() if t in always}
        implied = {t for t in bounds for other in bounds if _follows(t, bounds[t], other, bounds[other])}
        return frozenset(found), frozenset(implied)

    def value(self, expr: Expr) -> int | None:
        try:
            return _number(self.launch, expr)
        except Unknown:
            return None

    def widened(self, piece: Slice, own: Sequence[tuple[int, int]]) -> dict[Digit, tuple[int, int]]:
        """The indices that senders would have for collecting threads in the ranges, whether they exist or not."""
        ranges = self.everyone()
        seen = _Sending(self.launch, self.gathered, piece, ranges)
        shifts = seen.shifts()
        for k, digit in enumerate(piece.move.solved):
            if digit in self.gathered.sender:
                a, z = shifts[k]
                ranges[Digit("global", "xyz"[self.gathered.sender.index(digit)])] = own[k][0] - z, own[k][1] - a
        if any(max(abs(a), abs(z)) > 2 * _MOST for a, z in ranges.values()):
            raise Unknown
        return ranges

    def boxed(self, reach: _Reached) -> Ranges:
        return {Digit("global", axis): box for axis, box in zip("xyz", reach.box, strict=True)}

    def elements(self, needed: Sequence[Predicates | None], own: Sequence[tuple[int, int]]) -> dict[Buffer, Elements]:
        """The elements for which threads collect, of those shadows where each thread of a box has its own."""
        boxes: dict[Buffer, list[Ranges]] = {}
        for piece, predicate in zip(self.gathered.slices, needed, strict=True):
            for reach in self.reached(piece, self.widened(piece, own), predicate) if predicate is not None else ():
                if reach.lane is not None:
                    boxes.setdefault(self.gathered.lanes[reach.lane], []).append(self.boxed(reach))
        return {buffer: found for buffer, parts in boxes.items() if (found := self.elements_of(buffer, _hull(parts), own)) is not None}

    def elements_of(self, buffer: Buffer, hull: Ranges, own: Sequence[tuple[int, int]]) -> Elements | None:
        box = tuple((max(a, low), min(z, high)) for (a, z), (low, high) in zip(hull.values(), own, strict=True))
        digits = [Digit("global", axis) for axis in "xyz"]
        ranges = dict(zip(digits, box, strict=True))
        if any(a > z for a, z in box):
            return None
        threads = [Form(0, ((digit, 1),)) for digit in digits]
        lanes = [lane for lane, owner in self.gathered.lanes.items() if owner == buffer]
        try:
            forms = tuple(element_of(self.gathered, self.launch, lane, threads, ranges) for lane in lanes)
        except Unknown:
            return None
        return Elements(forms, (box[0], box[1], box[2]), _flags([low < high for low, high in own]))


def _follows(term: Expr, bound: int, other: Expr, tighter: int) -> bool:
    """True if a bound follows from another one of the same index."""
    assert isinstance(term, Binary) and isinstance(other, Binary)
    if (term.left, term.op) != (other.left, other.op) or term == other:
        return False
    return tighter < bound if term.op == "<" else tighter > bound


def _number(launch: Launch, expr: Expr) -> int:
    """What an expression comes to that no thread has a say in; raises Unknown."""
    form = Walk(launch, frozenset()).form(expr, {})
    if form.terms:
        raise Unknown
    return form.constant


@dataclass(frozen=True)
class _Reached:
    """A statement of a slice that touches memory, or a loop in it, with the range of the sender's digits. Of an accumulation: the `lane` it
    adds to, and the `box` of the collecting threads."""

    ranges: Ranges
    lane: Buffer | None = None
    box: tuple[tuple[int, int], ...] = ()


class _Sending(Walk):
    """Collects what a slice touches, in terms of the sender, and to whom it sends."""

    def __init__(self, launch: Launch, gathered: Gather, piece: Slice, senders: Mapping[Digit, tuple[int, int]]) -> None:
        super().__init__(launch, frozenset())
        self.gathered = gathered
        self.piece = piece
        self.senders = senders
        self.reached: list[_Reached] = []
        self.known: tuple[tuple[Form, str], ...] = ()
        self.holding: dict[Expr, bool] = {}  # whether comparisons of several indices hold wherever they are made
        self.forms.update((v, Form(0, ((Digit("global", a), 1),))) for v, a in zip(gathered.sender, "xyz", strict=True))

    def run(self, body: Block) -> list[Reach]:
        self.block(body, self.start())
        return []

    def start(self) -> Ranges:
        ranges: Ranges = dict(self.senders)
        for axis, grid, block in zip("xyz", self.launch.grid, self.launch.block, strict=True):
            ranges[Digit("thread", axis)], ranges[Digit("block", axis)] = (0, block - 1), (0, grid - 1)
        return ranges

    def shifts(self) -> list[tuple[int, int]]:
        """By how much collecting threads are ahead along each axis, at least and at most."""
        ranges = self.start()
        for var in self.piece.move.loops:
            loop = self.gathered.loops[var]
            before = self.loops
            self.loop(replace(loop, body=(), carried=()), ranges)
            start, step = self.form(loop.start, ranges), self.form(loop.step, ranges)
            digit = Digit("loop", "", before + 1)
            ranges[digit] = (0, max(self.trips(loop, start, step.constant, ranges), 0))
        return [interval(self.form(shift, ranges), ranges) for shift in self.piece.move.shift]

    def stmt(self, stmt: Stmt, ranges: Ranges) -> None:
        if isinstance(stmt, Accumulate):
            self.reached.append(self.sent(stmt, ranges))
        elif isinstance(stmt, _MEMORY) or (isinstance(stmt, For | While) and not self.is_opened(stmt)):
            self.reached.append(_Reached(ranges))  # a loop of a thread that does not exist might not end
        super().stmt(stmt, ranges)

    def is_opened(self, stmt: For | While) -> bool:
        return isinstance(stmt, For) and stmt.var in self.piece.move.loops

    def branch(self, block: Block, condition: Expr, holds: bool, ranges: Ranges) -> None:
        for term in conjuncts(condition) if holds else ():
            self.holding[term] = self.holding.get(term, True) and self.surely(term, ranges)
        before = self.known
        self.known = (*before, *self.constraints(condition, holds, ranges))
        super().branch(block, condition, holds, ranges)
        self.known = before

    def surely(self, term: Expr, ranges: Ranges) -> bool:
        """True if a comparison of several indices holds for all in the ranges."""
        found = [(canonical(form, self.launch), kind) for form, kind in self.constraints(term, True, ranges)]
        return bool(found) and all(kind == "<=" and len(form.terms) > 1 and interval(form, ranges)[1] <= 0 for form, kind in found)

    def bounded(self, form: Form, ranges: Ranges) -> tuple[int, int]:
        """What the form ranges over, given the conditions that hold."""
        low, high = interval(form, ranges)
        for known, kind in self.known:
            for sign in (1, -1) if kind == "==" else (1,):
                other = canonical(known.scaled(sign), self.launch)
                if other.terms and dict(other.terms) == dict(form.terms):
                    high = min(high, form.constant - other.constant)
                elif other.terms and dict(other.scaled(-1).terms) == dict(form.terms):
                    low = max(low, form.constant + other.constant)
        return low, high

    def sent(self, stmt: Accumulate, ranges: Ranges) -> _Reached:
        """To whom."""
        box = tuple(self.bounded(canonical(form, self.launch), ranges) for form in self.own(ranges))
        return _Reached(ranges, stmt.buffer, box)

    def own(self, ranges: Ranges) -> list[Form]:
        """The collecting thread's index along each axis."""
        found = []
        for digit, shift in zip(self.piece.move.solved, self.piece.move.shift, strict=True):
            form = self.form(shift, ranges)
            if digit is not None and digit not in self.forms:
                raise Unknown
            found.append(form + self.forms[digit] if digit is not None else form)
        return found


def element_of(gathered: Gather, launch: Launch, lane: Buffer, own: Sequence[Form], ranges: Ranges) -> Form:
    """The element that a thread with the index `own` collects for; raises Unknown."""
    target = next(t for t in gathered.targets if t.buffer == lane)
    lets, index = at_target(gathered, target)
    walk = Walk(launch, frozenset())
    walk.forms.update(zip(gathered.own, own, strict=True))
    for let in lets:
        walk.define(let.var, let.value, ranges)
    return canonical(walk.form(index, ranges), launch)


def _hull(parts: Sequence[Ranges]) -> Ranges:
    """The least ranges in which all of them lie."""
    return {d: (min(p[d][0] for p in parts), max(p[d][1] for p in parts)) for d in parts[0]}


def _flags(items: Sequence[bool]) -> tuple[bool, bool, bool]:
    return items[0], items[1], items[2]


def _three(items: Iterable[int]) -> Three:
    x, y, z = items
    return x, y, z


__all__ = ["Box", "Declined", "Elements", "Gathering", "gather_launch"]

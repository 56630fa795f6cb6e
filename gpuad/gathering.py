"""Judges, for the numbers of a launch, which scattered accumulations may be gathered (`transform.gather`), and with which grid.

Five things are proved, all of them on the numbers, with every intermediate value inside of its C type:

* every thread of the primal that may contribute is some thread's sender, since the gather's grid covers the image of the contributions;
* a sender that touches memory, or enters a loop, is a thread of the primal: its guards imply it, else the kernel asks;
* what a slice reads is what the sender would have read: memory that the reverse does not write, or an element of a shadow that no other
  thread touches and that the sender itself has not written before;
* all contributions that a thread collects are to one element;
* no two threads collect for one element.

So the gather kernel does plain additions, writes nothing that it reads, and counts every contribution once, whatever the shifts are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from .analysis.affine import evaluate, polynomial
from .analysis.injectivity import Digit, Form, Launch, Ranges, Reach, Unknown, Walk, canonical, may_meet
from .ir.nodes import Accumulate, Atomic, Block, Buffer, Expr, For, If, Load, Stmt, Store, Take, Var, While
from .ir.rewrite import blocks, walk_stmts
from .transform.gather import Gather, Sides, Slice, at_target, indices, placed

_MEMORY = (Load, Store, Take, Accumulate, Atomic)
_MOST = 1 << 30  # threads along an axis, and steps of a shift: sums of two of them are ints
_GRID = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)
Three = tuple[int, int, int]


@dataclass(frozen=True)
class Gathering:
    """A gather that is proved for a launch, the questions that the kernel has to ask, its grid (the block is the primal's),
    the first index and the number of the primal's threads along each axis."""

    gathered: Gather
    sides: Sides
    grid: Three
    first: Three
    threads: Three

    @property
    def buffers(self) -> frozenset[Buffer]:
        """The shadows that are gathered."""
        return self.gathered.buffers


@dataclass(frozen=True)
class Failed:
    """Shadows for which the proof failed."""

    buffers: frozenset[Buffer]


def judge(gathered: Gather, launch: Launch, plain: Collection[Buffer]) -> Gathering | Failed:
    """The gather for a launch, or for which shadows it cannot be; `plain`: shadows of which no two threads of the adjoint touch one
    element."""
    try:
        return _Judge(gathered, launch, plain).verdict()
    except Unknown:
        return Failed(gathered.buffers)


class _Judge:
    def __init__(self, gathered: Gather, launch: Launch, plain: Collection[Buffer]) -> None:
        self.gathered = gathered
        self.launch = launch
        self.plain = plain
        self.threads = tuple(g * n for g, n in zip(launch.grid, launch.block, strict=True))
        self.shifts = [tuple(_number(e, launch) for e in piece.shift) for piece in gathered.slices]

    def verdict(self) -> Gathering | Failed:
        if not self.fits():
            return Failed(self.gathered.buffers)
        unread = frozenset(b for piece in self.gathered.slices for b in self.unreadable(piece))
        if unread:
            return Failed(unread)
        low, high = self.image()
        first = tuple(min(n, 0) for n in low)
        grid = tuple(-(-(z - a + 1) // n) for a, z, n in zip(first, high, self.launch.block, strict=True))
        if any(g > most or g * n > _MOST for g, n, most in zip(grid, self.launch.block, _GRID, strict=True)):
            return Failed(self.gathered.buffers)
        sides = Sides(before=(first[0] < 0, first[1] < 0, first[2] < 0))
        numbers: dict[Var, int] = dict(self.launch.scalars)
        numbers.update(zip(self.gathered.first, first, strict=True))
        numbers.update(zip(self.gathered.threads, self.threads, strict=True))
        proof = _Proof(self.gathered, Launch(_three(grid), self.launch.block, numbers), self.threads, first)
        sides = proof.asked(sides, self.shifts)
        failed = proof.failed(sides, self.shifts)
        if failed:
            return Failed(failed)
        return Gathering(self.gathered, sides, _three(grid), _three(first), _three(self.threads))

    def fits(self) -> bool:
        """Whether the block is one that the kernel is written for, and indices stay far from wrapping."""
        widths = all(self.launch.block["xyz".index(axis)] == width for axis, width in self.gathered.widths.items())
        return widths and max(self.threads) <= _MOST and all(abs(n) <= _MOST for shift in self.shifts for n in shift)

    def image(self) -> tuple[list[int], list[int]]:
        """The least and greatest index along each axis to which a thread that exists sends something."""
        low, high = [_MOST] * 3, [-_MOST] * 3
        for piece, shift in zip(self.gathered.slices, self.shifts, strict=True):
            seen = _Seen(self.launch, self.senders())
            seen.run(piece.block)
            for access in seen.accesses:
                if isinstance(access.stmt, Accumulate):
                    for k, axis in enumerate("xyz"):
                        a, z = access.ranges[Digit("global", axis)]
                        low[k], high[k] = min(low[k], a + shift[k]), max(high[k], z + shift[k])
        if low[0] > high[0]:
            raise Unknown
        return low, high

    def senders(self) -> dict[Var, Form]:
        return {v: Form(0, ((Digit("global", axis), 1),)) for v, axis in zip(self.gathered.sender, "xyz", strict=True)}

    # --- reads -----------------------------------------------------------------------------------------------------------------------

    def unreadable(self, piece: Slice) -> frozenset[Buffer]:
        """The shadows that a slice adds to, if it reads something that the sender may have read in another state."""
        read = {s.buffer for s in walk_stmts(piece.block) if isinstance(s, Load)}
        adds = frozenset(s.buffer for s in walk_stmts(piece.block) if isinstance(s, Accumulate))
        if read & self.gathered.buffers:
            return adds
        return adds if any(not self.constant(buffer) for buffer in read) else frozenset()

    def constant(self, buffer: Buffer) -> bool:
        """Whether every read of the buffer in the adjoint gives what was there before the launch."""
        if not any(isinstance(s, Store | Take | Accumulate | Atomic) and s.buffer == buffer for s in walk_stmts(self.gathered.body)):
            return True
        if buffer not in self.plain:
            return False
        seen = _Seen(self.launch, self.senders())
        seen.run(self.gathered.body)
        forms = {id(a.stmt): a for a in seen.accesses}
        places = [p for p in _places(self.gathered.body) if getattr(p.stmt, "buffer", None) == buffer]
        if any(isinstance(s, For | While) for p in places for s, _ in p.path):
            return False
        for k, reader in enumerate(places):
            if isinstance(reader.stmt, Store | Accumulate):
                continue
            for writer in places[:k]:
                if not isinstance(writer.stmt, Load) and not _exclusive(writer, reader):
                    a, z = forms.get(id(writer.stmt)), forms.get(id(reader.stmt))
                    if a is not None and z is not None and not _differ(a.form, z.form):
                        return False
        return True


@dataclass(frozen=True)
class _Place:
    stmt: Stmt
    path: tuple[tuple[Stmt, int], ...]


def _places(block: Block, path: tuple[tuple[Stmt, int], ...] = ()) -> Iterator[_Place]:
    """All statements in order, with the control statements and their sides around each."""
    for stmt in block:
        yield _Place(stmt, path)
        for side, inner in enumerate(blocks(stmt)):
            yield from _places(inner, (*path, (stmt, side)))


def _exclusive(a: _Place, b: _Place) -> bool:
    """Whether the two lie on different sides of one If."""
    return any(s is t and i != j and isinstance(s, If) for (s, i), (t, j) in zip(a.path, b.path, strict=False))


def _differ(a: Form | None, b: Form | None) -> bool:
    """Whether two indices of one thread surely differ."""
    return a is not None and b is not None and dict(a.terms) == dict(b.terms) and a.constant != b.constant


# --- the kernel's own accesses -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Access:
    """A statement that touches memory, or a loop: what its digits range over, and the form of its index, if it has one."""

    stmt: Stmt
    ranges: Ranges
    form: Form | None


class _Seen(Walk):
    """Collects what a block touches."""

    def __init__(self, launch: Launch, forms: Mapping[Var, Form]) -> None:
        super().__init__(launch, frozenset())
        self.forms.update(forms)
        self.accesses: list[_Access] = []

    def stmt(self, stmt: Stmt, ranges: Ranges) -> None:
        if isinstance(stmt, _MEMORY):
            self.accesses.append(_Access(stmt, ranges, self.place(stmt.index, ranges)))
        elif isinstance(stmt, For | While):  # of a thread that does not exist it might not end
            self.accesses.append(_Access(stmt, ranges, None))
        super().stmt(stmt, ranges)

    def place(self, index: Expr, ranges: Ranges) -> Form | None:
        try:
            return canonical(self.form(index, ranges), self.launch)
        except Unknown:
            return None


class _Proof:
    """What is proved of the gather kernel, slice by slice, as a scatter in terms of its own threads."""

    def __init__(self, gathered: Gather, launch: Launch, threads: Sequence[int], first: Sequence[int]) -> None:
        self.gathered = gathered
        self.launch = launch
        self.threads = threads
        self.first = first

    def accesses(self, piece: Slice, sides: Sides) -> list[_Access]:
        seen = _Seen(self.launch, {})
        seen.run((*indices(self.gathered, sides), *placed(self.gathered, piece, sides)))
        return seen.accesses

    def outside(self, accesses: Iterable[_Access], shift: Sequence[int], axis: int) -> tuple[bool, bool]:
        """Whether a sender that touches memory may have an index below 0, and one beyond the primal's threads."""
        digit = Digit("global", "xyz"[axis])
        ends = [a.ranges[digit] for a in accesses]
        away = self.first[axis] - shift[axis]
        return any(low + away < 0 for low, _ in ends), any(high + away >= self.threads[axis] for _, high in ends)

    def asked(self, sides: Sides, shifts: Sequence[Sequence[int]]) -> Sides:
        """The sides with the questions that are needed."""
        low, high = [False] * 3, [False] * 3
        for piece, shift in zip(self.gathered.slices, shifts, strict=True):
            accesses = self.accesses(piece, sides)
            for axis in range(3):
                below, beyond = self.outside(accesses, shift, axis)
                low[axis], high[axis] = low[axis] or below, high[axis] or beyond
        return replace(sides, low=(low[0], low[1], low[2]), high=(high[0], high[1], high[2]))

    def failed(self, sides: Sides, shifts: Sequence[Sequence[int]]) -> frozenset[Buffer]:
        """The shadows for which something is not proved."""
        bad: set[Buffer] = set()
        reaches: dict[Buffer, list[Reach]] = {t.buffer: [] for t in self.gathered.targets}
        for piece, shift in zip(self.gathered.slices, shifts, strict=True):
            accesses = self.accesses(piece, sides)
            if any(any(self.outside(accesses, shift, axis)) for axis in range(3)):
                return self.gathered.buffers
            for access in accesses:
                if isinstance(access.stmt, Accumulate):
                    if access.form is None:
                        bad.add(access.stmt.buffer)
                    else:
                        reaches[access.stmt.buffer].append(Reach(access.form, access.ranges))
        for target in self.gathered.targets:
            found = reaches[target.buffer]
            if not all(self.is_at(target.buffer, reach, sides) for reach in found) or not self.apart(found):
                bad.add(target.buffer)
        return frozenset(bad)

    def is_at(self, buffer: Buffer, reach: Reach, sides: Sides) -> bool:
        """Whether a contribution is to the element that the thread collects for."""
        target = next(t for t in self.gathered.targets if t.buffer == buffer)
        lets, index = at_target(self.gathered, target)
        walk = Walk(self.launch, frozenset())
        for let in (*indices(self.gathered, sides), *lets):
            walk.define(let.var, let.value, reach.ranges)
        try:
            form = canonical(walk.form(index, reach.ranges), self.launch)
        except Unknown:
            return False
        return form.constant == reach.form.constant and dict(form.terms) == dict(reach.form.terms)

    def apart(self, reaches: Sequence[Reach]) -> bool:
        """Whether no two threads collect for one element."""
        if not reaches:
            return True
        hull = {d: (min(r.ranges[d][0] for r in reaches), max(r.ranges[d][1] for r in reaches)) for d in _common(reaches)}
        whole = Reach(reaches[0].form, hull)
        if all(d in hull for d, _ in whole.form.terms) and not may_meet(whole, whole, self.launch):
            return True
        return not any(may_meet(a, b, self.launch) for a, b in combinations_with_replacement(reaches, 2))


def _common(reaches: Sequence[Reach]) -> set[Digit]:
    return set.intersection(*(set(r.ranges) for r in reaches))


def _number(expr: Expr, launch: Launch) -> int:
    return evaluate(polynomial(expr, {}), launch.scalars)


def _three(items: Iterable[int]) -> Three:
    x, y, z = items
    return x, y, z


__all__ = ["Failed", "Gathering", "judge"]

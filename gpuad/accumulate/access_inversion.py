"""Inverts access relations: the shifts between sender and element for each accumulation of a shadow, as proposals for a gather.

Indices are polynomials over *digits*, the thread's index along each axis and the numbers of the loops around, and over parameters. A
shadow's element is told by its factors: of `y * nx + x` by `nx` along y and 1 along x. Each accumulation is *solved* for the digits that
have these factors in it, thread indices first, else loops: in `dx[j] += f(i, j)` of an all-pairs loop it is j that tells the element, and
the collecting thread goes through all i. By what else is in the index it is ahead: a polynomial over parameters and the digits that are not
solved, which is divided by the factors, the greatest first: `i + nx` is a step along y. What cannot be divided tells the *lanes* of an
element apart: `3 * i + 2` is the third number of thread i. Where there are more digits than axes, a thread has an element for each
iteration of the loops that are left, its *own* ones: in `dw[(a * h + y) * w + x] += ...` of a loop over a, thread y, x goes through all a.

What is found here is a proposal; a launch proves on its numbers what is to be gained by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from ..analysis.index_polynomials import Polynomial, atoms, definitions, plus, polynomial, scale, split, times
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, blocks, touches, used_vars, walk_stmts
from ..ir.types import F32, F64, I32, I64, U32, Scalar
from ..optimize.piecewise_affine import Piece, PiecewiseAffine, TooMany, divided, written

Shift: TypeAlias = "tuple[ir.Expr, ir.Expr, ir.Expr]"
Slopes: TypeAlias = "tuple[Polynomial, Polynomial, Polynomial]"
_NONE: Polynomial = {}
MOST_SLICES = 64  # of one gather


@dataclass(frozen=True, eq=False)
class Target:
    """The element of a shadow that a thread collects for: `lets` lead to `index`, over the indices `Gather.sender`. `buffer`: the shadow,
    or what stands for one lane of it."""

    buffer: ir.Buffer
    lets: tuple[ir.Let, ...]
    index: ir.Expr


@dataclass(frozen=True)
class Move:
    """The senders of a thread: for each axis the digit of the sender that is the collecting thread's index less `shift`. The other digits
    are gone through: `spread`, indices of senders, and those of the `loops` around the accumulation that are not solved (outermost first,
    by their variables); `own`: those of the loops that have an element for each iteration. `condition`: the senders that are covered."""

    solved: tuple[ir.Var | None, ir.Var | None, ir.Var | None]
    shift: Shift
    loops: tuple[ir.Var, ...] = ()
    spread: tuple[ir.Var, ...] = ()
    condition: ir.Expr | None = None
    bends: tuple[tuple[ir.Expr, ir.Expr], ...] = ()
    own: tuple[ir.Var, ...] = ()

    @property
    def is_straight(self) -> bool:
        """True if a thread sends to its own element."""
        return self.condition is None and not self.loops and not self.spread and all(s == b.zero(I32) for s in self.shift)

    @property
    def searched(self) -> tuple[ir.Var, ...]:
        """The loops' digits that are gone through for one element."""
        return tuple(v for v in self.loops if v not in self.solved and v not in self.own)


@dataclass(frozen=True)
class Sent:
    """A piece of an accumulation: to which lane and index, under what condition that is not the move's."""

    move: Move
    lane: ir.Buffer
    index: ir.Expr
    condition: ir.Expr | None


@dataclass(frozen=True, eq=False)
class Found:
    """The accumulations into a shadow, by id, in pieces, and the elements of a thread."""

    sent: Mapping[int, tuple[Sent, ...]]
    targets: tuple[Target, ...]
    loops: Mapping[ir.Var, ir.For]

    @property
    def cost(self) -> tuple[int, int]:
        """How many loops threads have for themselves, and how many digits have to be gone through, all moves together."""
        moves = {s.move for pieces in self.sent.values() for s in pieces}
        return sum(len(m.own) for m in moves), sum(len(m.searched) + len(m.spread) for m in moves)


@dataclass(frozen=True)
class _Add:
    """An accumulation with the loops and the conditions around it."""

    stmt: ir.Accumulate
    loops: tuple[ir.For | ir.While, ...]
    conditions: tuple[ir.Expr, ...]


@dataclass(frozen=True)
class _Ahead:
    """A piece of an accumulation, by how many threads along each axis it is ahead, what is left, and the variables of the loops in that."""

    add: _Add
    piece: Piece
    solved: tuple[ir.Var | None, ir.Var | None, ir.Var | None]
    vector: tuple[Polynomial, Polynomial, Polynomial]
    rest: tuple[tuple[tuple[ir.Expr, ...], int], ...]
    own: tuple[ir.Var, ...] = ()

    @property
    def shift(self) -> Hashable:
        """The key that statements share if they are moved alike, whatever their conditions."""
        return self.solved, tuple(frozenset(v.items()) for v in self.vector)


@dataclass(frozen=True)
class _Bend:
    """A thread index that some pieces of an accumulation depend on, along an axis, and others do not: where a clamp holds it."""

    index: ir.Var
    axis: int


class AccessInversion:
    """Looks for the shifts between the indices of a shadow's accumulations."""

    def __init__(self, body: ir.Block, sender: tuple[ir.Var, ir.Var, ir.Var], scalars: frozenset[ir.Var], names: Names) -> None:
        self.body = body
        self.sender = sender
        self.scalars = scalars
        self.names = names
        self.lets = definitions(body)
        self.bools = {s.var: s.value for s in walk_stmts(body) if isinstance(s, ir.Let) and s.var.type.kind == "bool"}
        self.edges = PiecewiseAffine(self.lets, sender, scalars, names)
        self.adds = {id(a.stmt): a for a in _adds(body)}
        self.accesses = [s for s in walk_stmts(body) if isinstance(s, ir.Take | ir.Accumulate | ir.Load | ir.Store)]
        self.named = {s.var: (k, s) for k, s in enumerate(walk_stmts(body)) if isinstance(s, ir.Let)}
        self.used = tuple(v for v in sender if _occurs(body, v))

    def of(self, buffer: ir.Buffer, rank: int = 0) -> Found | None:
        """None unless all that happens to the shadow are additions at shifts of one index. `rank`: which of several ways to see them so,
        those in which a thread has one element first, and of these the one that goes through the fewest digits."""
        found = list(touches(self.body, buffer))
        adds = [self.adds[id(s)] for s in found if isinstance(s, ir.Accumulate) and s.how is ir.How.UNDECIDED]
        if not adds or len(adds) < len(found) or any(sum_type(a.stmt) is None for a in adds):
            return None
        if any(isinstance(loop, ir.While) or not self.is_even(loop) for a in adds for loop in a.loops):
            return None
        try:
            results = self.ways(buffer, adds, guessing=False) or self.ways(buffer, adds, guessing=True)
        except TooMany:
            return None
        ranked = sorted(results, key=lambda r: r.cost)
        return ranked[rank] if rank < len(ranked) else None

    def ways(self, buffer: ir.Buffer, adds: Sequence[_Add], *, guessing: bool) -> list[Found]:
        """All ways to see the accumulations as shifts. `guessing`: which threads a piece is about is guessed where nothing says so."""
        pieces = [(a, p) for a in adds for p in self.edges.pieces(a.stmt.index, self.plain(a.conditions), guessing=guessing)]
        return [r for slopes in self.candidates(pieces) if (r := self.under(buffer, slopes, pieces)) is not None]

    def plain(self, conditions: Sequence[ir.Expr]) -> list[ir.Expr]:
        """The conditions with names of conditions put out."""
        return [self.bools.get(c, c) if isinstance(c, ir.Var) else c for c in conditions]

    def is_even(self, loop: ir.For) -> bool:
        """True if all threads go through the same iterations."""
        step = loop.step
        if not isinstance(step, ir.Constant) or loop.var.type not in (I32, I64, U32):
            return False
        return all(self.edges.is_uniform(polynomial(e, self.lets)) for e in (loop.start, loop.stop))

    # --- what tells elements apart -----------------------------------------------------------------------------------------------

    def candidates(self, pieces: Sequence[tuple[_Add, Piece]]) -> Iterator[Slopes]:
        """The factors along each axis that may tell elements: those of thread indices, then with those of loops."""
        found: list[Slopes] = []
        wanted = [(a, polynomial(p.marked, self.lets)) for a, p in pieces]
        for with_loops in (False, True):
            for add, p in wanted:
                slopes = self.slopes(p, add.loops if with_loops else ())
                if slopes is not None and any(slopes) and slopes not in found:
                    found.append(slopes)
                    yield slopes

    def slopes(self, p: Polynomial, loops: Sequence[ir.For | ir.While]) -> Slopes | None:
        """The factor of each axis's index, made of parameters; those of loops along the axes that are free. None if there is another
        dependence on the thread."""
        mine = [self.factor(p, v) for v in self.sender]
        if any(m is None for m in mine):
            return None
        result: list[Polynomial] = [{} if m in mine[:k] else m or {} for k, m in enumerate(mine)]  # of two that add up one is gone through
        theirs = [f for loop in loops if isinstance(loop, ir.For) and (f := self.factor(p, loop.var))]
        own = list(result)
        for factor in sorted(theirs, key=_order):
            free = next((a for a in range(3) if not result[a]), None)
            if free is not None and factor not in result:
                result[free] = factor
        if result != own:  # threads side by side collect for elements side by side
            placed = sorted((f for f in result if f), key=_order)
            result = [*placed, *[{}] * (3 - len(placed))]
        return result[0], result[1], result[2]

    def factor(self, p: Polynomial, digit: ir.Var) -> Polynomial | None:
        """The factor of a digit, which must be made of parameters."""
        parts = split(p, digit)
        return parts[0] if parts is not None and self.edges.is_uniform(parts[0]) else None

    # --- vectors -----------------------------------------------------------------------------------------------------------------

    def under(self, buffer: ir.Buffer, slopes: Slopes, pieces: Sequence[tuple[_Add, Piece]]) -> Found | None:
        """All accumulations as moves, if the factors tell the elements of each of them."""
        ahead: list[_Ahead] = []
        bend = self.bend(slopes, [polynomial(piece.marked, self.lets) for _, piece in pieces])
        for add, piece in pieces:
            placed = self.place(add, piece, slopes, bend)
            if placed is None:
                return None
            ahead += placed
        lanes = list(dict.fromkeys(a.rest for a in ahead))
        if not ahead or len(lanes) > 16 or len({a.shift for a in ahead}) > MOST_SLICES:
            return None
        sent: dict[int, tuple[Sent, ...]] = {}
        targets = []
        loops: dict[ir.Var, ir.For] = {}
        for rest in lanes:
            mine = [a for a in ahead if a.rest == rest]
            lane = buffer if len(lanes) == 1 else self.names.buffer(buffer.name, buffer.element)
            chosen = self.middle(lane, mine, slopes)
            if chosen is None:
                return None
            target, origin = chosen
            targets.append(target)
            for a in mine:
                move = self.move(a, origin)
                if move is None:
                    return None
                inside = None if move.condition is not None else b.every(a.piece.conditions)
                sent[id(a.add.stmt)] = (*sent.get(id(a.add.stmt), ()), Sent(move, lane, a.piece.index, inside))
                loops.update((loop.var, loop) for loop in a.add.loops if isinstance(loop, ir.For))
        return Found(sent, tuple(targets), loops)

    def bend(self, slopes: Slopes, pieces: Sequence[Polynomial]) -> _Bend | None:
        """The one thread index that some pieces do not depend on, and the axis along which the others do."""
        found = []
        for v in self.sender:
            factors = [self.factor(p, v) for p in pieces]
            there = [f for f in factors if f]
            if there and {} in factors and all(f == there[0] for f in there) and there[0] in slopes:
                found.append(_Bend(v, slopes.index(there[0])))
        return found[0] if len(found) == 1 else None

    def place(self, add: _Add, piece: Piece, slopes: Slopes, bend: _Bend | None) -> list[_Ahead] | None:
        """The piece as what it is ahead; pinned where it does not depend on a thread's index."""
        p = polynomial(piece.marked, self.lets)
        direct = self.ahead(add, piece, p, slopes, bend)
        if direct is not None:
            return [direct]
        missing = [a for a in range(3) if slopes[a] and self.factor(p, self.sender[a]) == {}]
        if len(missing) != 1:
            return None
        axis = missing[0]
        result: list[_Ahead] = []
        for part in self.edges.pinned(piece, self.sender[axis], slopes[axis], self.plain(add.conditions)):
            found = self.ahead(add, part, polynomial(part.marked, self.lets), slopes, _Bend(self.sender[axis], axis))
            if found is None:
                return None
            result.append(found)
        return result or None

    def ahead(self, add: _Add, piece: Piece, p: Polynomial, slopes: Slopes, bend: _Bend | None = None) -> _Ahead | None:
        """By how many threads along each axis an index is ahead. `bend`: along its axis it is, whatever it is, if that divides it."""
        lap = bend.axis if bend is not None else None
        solved: list[ir.Var | None] = [None] * 3
        rest = p
        for axis in range(3):
            if slopes[axis]:
                first = bend.index if bend is not None and bend.axis == axis else self.sender[axis]
                digit = self.digit(add, p, slopes[axis], first, solved)
                if digit is None:
                    return None
                solved[axis] = digit
                rest = plus(rest, scale(times(slopes[axis], {(digit,): 1}), -1))
        taken = {v for v in solved if v is not None}
        if any(v in taken for a in atoms(rest) for v in ir.variables(a)):
            return None
        vector: list[Polynomial] = [{}, {}, {}]
        whole = divided(rest, slopes[lap]) if lap is not None else None
        if lap is not None and whole is not None:
            vector[lap], rest = whole, {}
        for axis in sorted(range(3), key=lambda a: _order(slopes[a]), reverse=True):
            if slopes[axis]:
                others = [slopes[a] for a in range(3) if a != axis and slopes[a]]
                quotient, rest = self.divided(rest, slopes[axis], others if axis == _last(slopes) else None)
                vector[axis] = plus(vector[axis], quotient)
        own = self.own(add, rest, vector, taken)
        if own is None:
            return None
        for axis in range(3):  # along an axis that tells nothing the sender is the thread with the same index, or any
            if not slopes[axis] and not self.is_spread(axis, taken):
                solved[axis] = self.sender[axis]
        left = tuple(sorted(rest.items(), key=repr))
        return _Ahead(add, piece, (solved[0], solved[1], solved[2]), (vector[0], vector[1], vector[2]), left, own)

    def own(self, add: _Add, rest: Polynomial, vector: Sequence[Polynomial], taken: set[ir.Var]) -> tuple[ir.Var, ...] | None:
        """The variables of the loops by which elements are told apart that no axis tells; None if anything else does."""
        moved = {a for p in vector for a in atoms(p)}
        loops = [loop.var for loop in add.loops if isinstance(loop, ir.For) and loop.var in atoms(rest)]
        if any(v in taken or v in moved or not self.factor(rest, v) for v in loops):
            return None
        left = {monomial: c for monomial, c in rest.items() if not any(v in monomial for v in loops)}
        return tuple(loops) if self.edges.is_uniform(left) else None

    def is_spread(self, axis: int, taken: set[ir.Var]) -> bool:
        return self.sender[axis] in taken or self.sender[axis] in self.used

    def digit(self, add: _Add, p: Polynomial, wanted: Polynomial, first: ir.Var, solved: Sequence[ir.Var | None]) -> ir.Var | None:
        """The digit of an accumulation that has the factor of an axis, `first` if that is one."""
        loops = [loop.var for loop in reversed(add.loops) if isinstance(loop, ir.For) and loop.step == b.const(1, loop.step.type)]
        for v in (first, *loops, *self.sender):
            if v not in solved and self.factor(p, v) == wanted:
                return v
        return None

    def divided(self, p: Polynomial, by: Polynomial, others: Sequence[Polynomial] | None) -> tuple[Polynomial, Polynomial]:
        """Quotient and rest; `others`: the factors that have divided before, if nothing else will divide the rest. What a greater factor
        than the last divides is no shift along the last axis: `h * w` of a second channel beside `w * y + x`."""
        lead = _lead(by)
        last, greater = others is not None, [_lead(o) for o in others or () if len(_lead(o)) > len(lead)]
        quotient: Polynomial = {}
        for _ in range(8):
            step: Polynomial = {}
            for monomial, coefficient in p.items():
                left = _without(monomial, lead)
                if left is None or (not last and any(a in self.scalars or not isinstance(a, ir.Var) for a in left)):
                    continue
                if any(_without(monomial, g) is not None for g in greater):
                    continue
                whole, rest = divmod(coefficient, by[lead])
                if not last and abs(2 * rest) > abs(by[lead]):
                    whole += 1
                if whole:
                    step[left] = whole
            if not step:
                break
            quotient, p = plus(quotient, step), plus(p, scale(times(step, by), -1))
        return quotient, p

    # --- targets -----------------------------------------------------------------------------------------------------------------

    def middle(self, lane: ir.Buffer, ahead: Sequence[_Ahead], slopes: Slopes) -> tuple[Target, Sequence[Polynomial]] | None:
        """The index, of those that occur, from which all are least far."""
        best: tuple[tuple[int, int], Target, Sequence[Polynomial]] | None = None
        counts = Counter(a.shift for a in ahead)
        vectors = {a.shift: a.vector for a in ahead}
        for stmt in self.accesses:
            lets = self.closure(stmt.index)
            if lets is None:
                continue
            there = self.ahead(_Add(stmt, (), ()), Piece((), stmt.index, stmt.index), polynomial(stmt.index, self.lets), slopes)  # type: ignore[arg-type]
            if (
                there is None
                or there.rest != ahead[0].rest
                or any(v not in (None, s) for v, s in zip(there.solved, self.sender, strict=True))
            ):
                continue
            cost = sum(n * _size(plus(v, scale(o, -1))) for k, n in counts.items() for v, o in zip(vectors[k], there.vector, strict=True))
            rank = (cost, 0 if isinstance(stmt, ir.Take) else 1)
            if best is None or rank < best[0]:
                best = rank, Target(lane, lets, stmt.index), there.vector
        return best[1:] if best is not None else (self.made(lane, ahead[0].rest, slopes), ({}, {}, {}))

    def made(self, lane: ir.Buffer, rest: tuple[tuple[tuple[ir.Expr, ...], int], ...], slopes: Slopes) -> Target:
        """An element with the factors, where no thread has an index like it."""
        index: ir.Expr = b.zero(I32)
        for axis in sorted((a for a in range(3) if slopes[a]), key=lambda a: _order(slopes[a]), reverse=True):
            index = b.binary("+", index, b.binary("*", written(slopes[axis]), self.sender[axis], I32), I32)
        return Target(lane, (), b.binary("+", index, written(dict(rest)), I32))

    def closure(self, index: ir.Expr) -> tuple[ir.Let, ...] | None:
        """The definitions, in order, that lead from a thread's index and parameters to an index; None if others do."""
        needed: set[ir.Var] = set()
        waiting = [index]
        while waiting:
            for v in ir.variables(waiting.pop()):
                if v in self.scalars or v in self.sender or v in needed:
                    continue
                if v not in self.lets:
                    return None
                needed.add(v)
                waiting.append(self.lets[v])
        found = [let for _, let in sorted((self.named[v] for v in needed), key=itemgetter(0))]
        return tuple(found) if not any(isinstance(e, ir.LaunchIndex) for let in found for e in ir.walk(let.value)) else None

    # --- moves -------------------------------------------------------------------------------------------------------------------

    def move(self, a: _Ahead, origin: Sequence[Polynomial]) -> Move | None:
        """The move of a piece, seen from the element's own thread."""
        loops = tuple(loop.var for loop in a.add.loops if isinstance(loop, ir.For))
        spread = tuple(v for v in reversed(self.sender) if v in self.used and v not in a.solved)
        free = {*loops, *spread} - {*a.solved, *a.own}
        shift = [self.number(self.unlapped(plus(v, scale(o, -1))), free) for v, o in zip(a.vector, origin, strict=True)]
        if any(s is None for s in shift):
            return None
        known = {*self.scalars, *self.sender, *loops}
        full = [self.alone(self.edges.plain(c), spread) for c in a.piece.conditions]
        hoisted = all(v in known for c in full for v in ir.variables(c)) and not any(
            isinstance(e, ir.LaunchIndex) for c in full for e in ir.walk(c)
        )
        if not hoisted or not full:
            return Move(a.solved, tuple(shift), loops, spread, own=a.own)  # type: ignore[arg-type]
        return Move(a.solved, tuple(shift), loops, spread, b.every(full), a.piece.bends, a.own)  # type: ignore[arg-type]

    def alone(self, condition: ir.Expr, spread: Sequence[ir.Var]) -> ir.Expr:
        """A condition on one of the indices that are gone through and on parameters as a bound of that index."""
        for v in spread:
            match self.edges.bounds(condition, v):
                case [("<=", bound)]:
                    return b.compare("<", v, written(plus(bound, {(): 1})))
                case [(">=", bound)]:
                    return b.compare(">=", v, written(bound))
        return condition

    def unlapped(self, p: Polynomial) -> Polynomial:
        result: Polynomial = {}
        for monomial, coefficient in p.items():
            term: Polynomial = {(): coefficient}
            for atom in monomial:
                lap = self.edges.laps.get(atom) if isinstance(atom, ir.Var) else None
                term = times(term, lap if lap is not None else {(atom,): 1})
            result = plus(result, term)
        return result

    def number(self, p: Polynomial, free: set[ir.Var]) -> ir.Expr | None:
        """The polynomial as an int expression over parameters and digits (a launch makes sure that it is as small as that)."""
        for monomial, coefficient in p.items():
            if abs(coefficient) >= 1 << 20:
                return None
            for a in monomial:
                if a not in free and not self.edges.is_uniform({(a,): 1}):
                    return None
                if isinstance(a, ir.Var) and a.type not in (I32, I64, U32):
                    return None
        return written(p)


def _adds(block: ir.Block, loops: tuple[ir.For | ir.While, ...] = (), conditions: tuple[ir.Expr, ...] = ()) -> Iterator[_Add]:
    """The accumulations, with the loops and the conditions around each."""
    for stmt in block:
        match stmt:
            case ir.Accumulate():
                yield _Add(stmt, loops, conditions)
            case ir.If(condition=c, then=x, otherwise=y):
                yield from _adds(x, loops, (*conditions, c))
                yield from _adds(y, loops, (*conditions, b.negate(c)))
            case ir.For() | ir.While():
                for inner in blocks(stmt):
                    yield from _adds(inner, (*loops, stmt), conditions)


def _occurs(body: ir.Block, var: ir.Var) -> bool:
    return var in used_vars(body)


def _last(slopes: Slopes) -> int:
    """The axis with the smallest factor."""
    return min((a for a in range(3) if slopes[a]), key=lambda a: _order(slopes[a]))


def _order(p: Polynomial) -> tuple[int, int]:
    """Products of more parameters are taken to be greater, and greater numbers."""
    lead = max(p, key=len, default=())
    return len(lead), abs(p.get(lead, 0)) if p else -1


def _lead(p: Polynomial) -> tuple[ir.Expr, ...]:
    """The monomial that is taken to be greatest."""
    return max(p, key=lambda m: (len(m), repr(m)))


def _without(monomial: tuple[ir.Expr, ...], part: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...] | None:
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _size(p: Polynomial) -> int:
    return sum(abs(c) * (1 + 8 * len(m)) for m, c in p.items())


def sum_type(stmt: ir.Accumulate) -> Scalar | None:
    """In what type contributions are summed."""
    wider = stmt.value.type if stmt.value.type.bits > stmt.buffer.element.bits else stmt.buffer.element
    return wider if wider in (F32, F64) else None

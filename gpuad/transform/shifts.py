"""Looks for the shifts between the indices of an array's accumulations: by how many threads one is ahead of another.

Indices are polynomials over the thread's index along each axis and parameters. Two with the same factors of the thread's indices differ by
a polynomial over parameters, which is divided by these factors, the greatest first: `i + nx` is a step along y of `i = y * nx + x`. What is
found here is a proposal; a launch proves on its numbers what is to be gained by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..analysis.affine import Polynomial, atoms, definitions, plus, polynomial, scale, split, times
from ..ir import build as b
from ..ir.nodes import Accumulate, Block, Buffer, Expr, For, How, LaunchIndex, Let, Load, Store, Take, Var, While, variables, walk
from ..ir.rewrite import blocks, touches, walk_stmts
from ..ir.types import F32, F64, I32, I64, Scalar
from . import fold

Shift: TypeAlias = "tuple[Expr, Expr, Expr]"


@dataclass(frozen=True, eq=False)
class Target:
    """The element of a shadow that a thread collects for: `lets` lead to `index`, over the indices `Gather.sender`."""

    buffer: Buffer
    lets: tuple[Let, ...]
    index: Expr


@dataclass(frozen=True, eq=False)
class Found:
    """The accumulations into a shadow, by id, with their shifts, and the element of a thread."""

    shifts: Mapping[int, Shift]
    target: Target


class Shifts:
    """Looks for the shifts between the indices of a shadow's accumulations."""

    def __init__(self, body: Block, sender: tuple[Var, Var, Var], scalars: frozenset[Var]) -> None:
        self.body = body
        self.sender = sender
        self.scalars = scalars
        self.lets = definitions(body)
        loops = (s for s in walk_stmts(body) if isinstance(s, For | While))
        self.inner = {id(s) for loop in loops for block in blocks(loop) for s in walk_stmts(block)}

    def of(self, buffer: Buffer) -> Found | None:
        """None unless all that happens to the shadow are additions at shifts of one index."""
        found = list(touches(self.body, buffer))
        adds = [s for s in found if isinstance(s, Accumulate) and s.how is How.UNDECIDED and id(s) not in self.inner]
        if not adds or len(adds) < len(found) or any(sum_type(s) is None for s in adds):
            return None
        base = polynomial(adds[0].index, self.lets)
        slopes = self.slopes(base)
        vectors = [self.vector(polynomial(s.index, self.lets), base, slopes) for s in adds] if slopes is not None else []
        known = [v for v in vectors if v is not None]
        if not slopes or len(known) < len(adds):
            return None
        chosen = self.middle(buffer, known, base, slopes)
        if chosen is None:
            return None
        target, origin = chosen
        shifts = {}
        for stmt, vector in zip(adds, known, strict=True):
            shift = [self.number(plus(v, scale(o, -1))) for v, o in zip(vector, origin, strict=True)]
            if any(s is None for s in shift):
                return None
            shifts[id(stmt)] = tuple(shift)
        return Found(shifts, target)  # type: ignore[arg-type]

    def slopes(self, p: Polynomial) -> list[Polynomial] | None:
        """The factor of each axis's index, made of parameters; None if there is another dependence on the thread."""
        found = []
        for index in self.sender:
            parts = split(p, index)
            if parts is None:
                return None
            found.append(parts[0])
            p = parts[1]
        return found if not any(v in self.sender for s in found for a in atoms(s) for v in variables(a)) else None

    def vector(self, p: Polynomial, base: Polynomial, slopes: list[Polynomial]) -> list[Polynomial] | None:
        """By how many threads along each axis an index is ahead of another, if it is by some."""
        rest = plus(p, scale(base, -1))
        if any(v in self.sender for a in atoms(rest) for v in variables(a)):
            return None
        result: list[Polynomial] = [{}, {}, {}]
        for axis in sorted(range(3), key=lambda a: _order(slopes[a]), reverse=True):
            if slopes[axis]:
                result[axis], rest = _divided(rest, slopes[axis], last=axis == self.last(slopes))
        return None if rest else result

    def last(self, slopes: list[Polynomial]) -> int:
        """The axis with the smallest factor."""
        return min((a for a in range(3) if slopes[a]), key=lambda a: _order(slopes[a]))

    def middle(
        self, buffer: Buffer, vectors: list[list[Polynomial]], base: Polynomial, slopes: list[Polynomial]
    ) -> tuple[Target, list[Polynomial]] | None:
        """The index, of those that occur, from which all are least far."""
        best: tuple[tuple[int, int], Target, list[Polynomial]] | None = None
        for stmt in walk_stmts(self.body):
            if not isinstance(stmt, Take | Accumulate | Load | Store):
                continue
            lets = self.closure(stmt.index)
            vector = self.vector(polynomial(stmt.index, self.lets), base, slopes) if lets is not None else None
            if vector is None or lets is None:
                continue
            cost = sum(_size(plus(v, scale(o, -1))) for w in vectors for v, o in zip(w, vector, strict=True))
            rank = (cost, 0 if isinstance(stmt, Take) else 1)
            if best is None or rank < best[0]:
                best = rank, Target(buffer, lets, stmt.index), vector
        return best[1:] if best is not None else None

    def closure(self, index: Expr) -> tuple[Let, ...] | None:
        """The definitions, in order, that lead from a thread's index and parameters to an index; None if others do."""
        needed: set[Var] = set()
        waiting = [index]
        while waiting:
            for v in variables(waiting.pop()):
                if v in self.scalars or v in self.sender or v in needed:
                    continue
                if v not in self.lets:
                    return None
                needed.add(v)
                waiting.append(self.lets[v])
        found: dict[Var, Let] = {}
        for stmt in walk_stmts(self.body):
            if isinstance(stmt, Let) and stmt.var in needed:
                found.setdefault(stmt.var, stmt)
        return tuple(found.values()) if not any(isinstance(e, LaunchIndex) for s in found.values() for e in walk(s.value)) else None

    def number(self, p: Polynomial) -> Expr | None:
        """The polynomial as an int expression over parameters (a launch makes sure that it is as small as that)."""
        result: Expr = b.zero(I32)
        for monomial, coefficient in sorted(p.items(), key=lambda item: (-len(item[0]), repr(item[0]))):
            if abs(coefficient) >= 1 << 20 or any(a not in self.scalars or a.type not in (I32, I64) for a in monomial):
                return None
            term: Expr = b.const(abs(coefficient), I32)
            for atom in monomial:
                term = fold.binary("*", term, fold.cast(atom, I32), I32)
            first = coefficient < 0 and result == b.zero(I32)
            result = fold.unary("-", term) if first else fold.binary("+-"[coefficient < 0], result, term, I32)
        return result


def _order(p: Polynomial) -> tuple[int, int]:
    """Products of more parameters are taken to be greater, and greater numbers."""
    lead = max(p, key=len, default=())
    return len(lead), abs(p.get(lead, 0)) if p else -1


def _divided(p: Polynomial, by: Polynomial, *, last: bool) -> tuple[Polynomial, Polynomial]:
    """Quotient and rest; `last`: nothing else will divide the rest."""
    lead = max(by, key=lambda m: (len(m), repr(m)))
    quotient: Polynomial = {}
    for _ in range(8):
        step: Polynomial = {}
        for monomial, coefficient in p.items():
            left = _without(monomial, lead)
            if left is None or (left and not last):
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


def _without(monomial: tuple[Expr, ...], part: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _size(p: Polynomial) -> int:
    return sum(abs(c) * (1 + 8 * len(m)) for m, c in p.items())


def sum_type(stmt: Accumulate) -> Scalar | None:
    """In what type contributions are summed."""
    wider = stmt.value.type if stmt.value.type.bits > stmt.buffer.element.bits else stmt.buffer.element
    return wider if wider in (F32, F64) else None

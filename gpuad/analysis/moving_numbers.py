"""Whole numbers of a launch that only move where it works, as the step's number does in `wavelet[it]` and `trace[it * n + i] = u[i]`.

In: the primal of a kernel. Out: `Moves`, which numbers these are, and by how many elements they move each array. A launch with these
numbers set to 0 and these arrays taken from that element on is the same launch, so what is proved of one holds for all values.

A number moves an array if every access to the array has the same terms with the number, products of whole numbers of the launch, and the
number stands nowhere else: in no condition, bound or value. Unsigned arithmetic of 32 bits wraps below 0, so a number in it moves none.

And numbers that are only factors and terms of what is computed, as the step's number in `1 - pow(b, (float)it)`: to all that is proved of a
launch they are what a float is, unknown (`numbers_as_values`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..ir.nodes import Accumulate, Atomic, Buffer, Cast, Expr, Kernel, Let, Load, Stmt, Store, Var, children, variables, walk
from ..ir.rewrite import expressions, walk_stmts
from .index_polynomials import Polynomial, polynomial


@dataclass(frozen=True)
class Term:
    """A product of numbers, by the positions of their parameters, and a coefficient."""

    factors: tuple[int, ...]
    coefficient: int


@dataclass(frozen=True)
class Moves:
    """Positions of the numbers among the parameters; for each array that they move, by its position, the terms that move it."""

    numbers: frozenset[int]
    arrays: tuple[tuple[int, tuple[Term, ...]], ...]

    def offsets(self, values: Mapping[int, int]) -> dict[int, int]:
        """By how many elements a launch with these numbers, by position, moves each array."""
        return {k: sum(t.coefficient * prod(values[f] for f in t.factors) for t in terms) for k, terms in self.arrays}

    def row(self, array: int, values: Mapping[int, int]) -> int:
        """The elements that a number moves an array by when it grows by 1, the most of all numbers that do: of `h[it * n + i]` it is n."""
        terms = dict(self.arrays)[array]
        return max(abs(t.coefficient * prod(values[f] for f in t.factors if f not in self.numbers)) for t in terms)

    @property
    def factors(self) -> frozenset[int]:
        """Positions of all numbers in the terms, those that move arrays and those that these are multiplied with."""
        return frozenset(f for _, terms in self.arrays for t in terms for f in t.factors)


def moving_numbers(kernel: Kernel) -> Moves:
    """The whole numbers that only move arrays, and how."""
    positions = {p: k for k, p in enumerate(kernel.params)}
    whole = {p for p in kernel.params if isinstance(p, Var) and p.type.is_integer and p.type.bits >= 32}
    lets = {s.var: s.value for s in walk_stmts(kernel.body) if isinstance(s, Let) and s.var.type.is_integer}
    found = {v for v in whole if _is_offset_only(kernel, v, lets)}
    indices = [(b, polynomial(i, lets)) for b, i in _accesses(kernel)]
    while True:
        moved, others = _terms(indices, found, whole)
        if not others:
            break
        found -= others
    arrays = tuple((positions[b], tuple(Term(tuple(positions[v] for v in m), c) for m, c in own)) for b, own in moved.items() if own)
    return Moves(frozenset(positions[v] for v in found), arrays)


def numbers_as_values(kernel: Kernel) -> frozenset[int]:
    """Positions of the whole numbers that only become floating-point values."""
    lets = {s.var: s.value for s in walk_stmts(kernel.body) if isinstance(s, Let) and s.var.type.is_integer}
    return frozenset(k for k, p in enumerate(kernel.params) if isinstance(p, Var) and p.type.is_integer and _is_value(kernel, p, lets))


def _is_value(kernel: Kernel, number: Var, lets: Mapping[Var, Expr]) -> bool:
    carriers = _carriers(number, lets)
    rest = (s for s in walk_stmts(kernel.body) if not (isinstance(s, Let) and s.var in lets))
    return all(carriers.isdisjoint(_kept_whole(e)) for s in rest for e in expressions(s))


def _kept_whole(expr: Expr) -> Iterator[Var]:
    """The Vars of an expression but those that are converted to floating point before anything else is made of them."""
    if isinstance(expr, Cast) and expr.type.is_float:
        return iter(())
    if isinstance(expr, Var):
        return iter((expr,))
    return (v for e in children(expr) for v in _kept_whole(e))


def _accesses(kernel: Kernel) -> Iterator[tuple[Buffer, Expr]]:
    return ((s.buffer, s.index) for s in walk_stmts(kernel.body) if isinstance(s, Load | Store | Accumulate | Atomic))


def _carriers(number: Var, lets: Mapping[Var, Expr]) -> set[Var]:
    """A number and the integers that are made of it. `lets`: in the order of their definitions."""
    carriers = {number}
    for var, value in lets.items():
        if not carriers.isdisjoint(variables(value)):
            carriers.add(var)
    return carriers


def _is_offset_only(kernel: Kernel, number: Var, lets: Mapping[Var, Expr]) -> bool:
    """True if a number stands in indices of parameters alone, there in arithmetic that does not wrap below 0."""
    carriers = _carriers(number, lets)
    for stmt in walk_stmts(kernel.body):
        for expr in expressions(stmt):
            if carriers.isdisjoint(variables(expr)):
                continue
            if not _is_index(stmt, expr, kernel) and not (isinstance(stmt, Let) and stmt.var in lets):
                return False
            if any(e.type.kind == "uint" and e.type.bits <= 32 and not carriers.isdisjoint(variables(e)) for e in walk(expr)):
                return False
    return True


def _is_index(stmt: Stmt, expr: Expr, kernel: Kernel) -> bool:
    return isinstance(stmt, Load | Store | Accumulate | Atomic) and expr is stmt.index and stmt.buffer in kernel.params


def _terms(
    indices: list[tuple[Buffer, Polynomial]], numbers: set[Var], whole: set[Var]
) -> tuple[dict[Buffer, frozenset[tuple[tuple[Var, ...], int]]], set[Var]]:
    """For each array its terms with one of the numbers; and the numbers that are no movers: in a term with something else than whole
    numbers of the launch, or in a term that another access to the array has not."""
    moved: dict[Buffer, frozenset[tuple[tuple[Var, ...], int]]] = {}
    others: set[Var] = set()
    for buffer, index in indices:
        own = set()
        for monomial, coefficient in index.items():
            inside = {v for atom in monomial for v in variables(atom)} & numbers
            plain = tuple(a for a in monomial if isinstance(a, Var) and a in whole)
            if inside and len(plain) < len(monomial):
                others |= inside
            elif inside:
                own.add((plain, coefficient))
        for monomial, _ in moved.setdefault(buffer, frozenset(own)) ^ own:
            others |= set(monomial) & numbers
    return moved, others

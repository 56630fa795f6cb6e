"""Normalises comparisons of a thread's index with bounds: `x >= 2` for `x - 1 > 0`, `x < 1` for `x + (n - 1) < n`.

A comparison of ints is rearranged as one of whole numbers, which it is where no value on the way is near the ends of an int. So what is
rearranged is noted, for a launch to look at the numbers (`Tidied.forms`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ..analysis.index_polynomials import Polynomial, atoms, constant, plus, polynomial, scale, split
from ..ir import build as b
from ..ir.nodes import Binary, Block, Cast, Constant, Expr, If, Stmt, Unary, Var, walk
from ..ir.rewrite import map_blocks
from ..ir.types import BOOL, I32, I64
from .piecewise_affine import written

_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_ENDS = {"<": (1, -1), "<=": (1, 0), ">": (-1, 1), ">=": (-1, 0)}  # which way, and how far from the bound the last one lies


@dataclass
class SimplifiedBounds:
    """Rearranges comparisons of `indices`, of which those in `natural` are never negative. `forms`: what was compared, as sums;
    `known`: what it has become."""

    indices: Collection[Var]
    natural: Collection[Var]
    scalars: Collection[Var]
    forms: list[Polynomial] = field(default_factory=list)
    known: set[Expr] = field(default_factory=set)

    def block(self, block: Block) -> Block:
        """The block with conditions rearranged; those that surely hold are gone."""
        out: list[Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, self.block)
            match stmt:
                case If(condition=c, then=then, otherwise=(), merges=()):
                    condition = self.condition(c)
                    out += then if b.is_const(condition, True) else [If(condition, then, span=stmt.span, note=stmt.note)]
                case _:
                    out.append(stmt)
        return tuple(out)

    def condition(self, expr: Expr) -> Expr:
        """A conjunction, each term once."""
        terms: list[Expr] = []
        for term in conjuncts(expr):
            new = self.term(term)
            if not b.is_const(new, True) and not any(self.implies(other, new) for other in terms):
                terms = [*(other for other in terms if not self.implies(new, other)), new]
        result: Expr | None = None
        for term in terms:
            result = term if result is None else Binary("&&", result, term, BOOL)
        return result if result is not None else b.const(True, BOOL)

    def implies(self, given: Expr, term: Expr) -> bool:
        """Whether one comparison of an index makes another superfluous."""
        if given == term:
            return True
        if not isinstance(given, Binary) or not isinstance(term, Binary) or given.left != term.left or not {given, term} <= self.known:
            return False
        ahead = constant(plus(polynomial(term.right, {}), scale(polynomial(given.right, {}), -1)))
        if ahead is None or term.op not in _ENDS or (given.op != "==" and _ENDS.get(given.op, (0, 0))[0] != _ENDS[term.op][0]):
            return False
        way, last = _ENDS[term.op]
        return way * (ahead + last - _ENDS.get(given.op, (0, 0))[1]) >= 0

    def term(self, term: Expr) -> Expr:
        if not isinstance(term, Binary) or term.op not in _TURNED or term.left.type != I32 or not _is_sum(term.left, term.right):
            return term
        left, right = polynomial(term.left, {}), polynomial(term.right, {})
        rest = plus(left, scale(right, -1))
        found = [v for v in self.indices if any(v in m for m in rest)]
        parts = split(rest, found[0]) if len(found) == 1 else None
        if parts is None or parts[0] not in ({(): 1}, {(): -1}) or not all(a in self.scalars for a in atoms(parts[1])):
            return term
        positive = parts[0][()] == 1
        bound = scale(parts[1], -1 if positive else 1)
        self.forms += [left, right, bound]
        new = self.written(found[0], term.op if positive else _TURNED[term.op], bound)
        self.known.add(new)
        return new

    def written(self, index: Var, op: str, bound: Polynomial) -> Expr:
        if op in ("<=", ">") and bound.get(()) == -1:
            bound, op = {m: c for m, c in bound.items() if m}, "<" if op == "<=" else ">="
        low = written(bound)
        if (
            index in self.natural
            and isinstance(low, Constant)
            and ((op == ">=" and low.value <= 0) or (op in (">", "!=") and low.value < 0))
        ):
            return b.const(True, BOOL)
        return b.compare(op, index, low)


def conjuncts(expr: Expr) -> list[Expr]:
    """The terms of a conjunction."""
    if isinstance(expr, Binary) and expr.op == "&&":
        return [*conjuncts(expr.left), *conjuncts(expr.right)]
    return [expr]


def _is_sum(*exprs: Expr) -> bool:
    """Whether the expressions are sums and products of ints, and conversions of ints of 64 bits."""
    for expr in exprs:
        for e in walk(expr):
            match e:
                case Var() | Constant() | Unary(op="-") | Binary(op="+" | "-" | "*") if e.type == I32:
                    continue
                case Cast(operand=Var(type=t)) if e.type == I32 and t == I64:
                    continue
                case Var() if e.type == I64:
                    continue
            return False
    return True

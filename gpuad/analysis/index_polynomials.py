"""Index expressions as polynomials with integer coefficients over opaque atoms, and what they say about two accesses of one thread.

`i * n + j - 1` is `{(i, n): 1, (j,): 1, (): -1}`; a monomial's factors are sorted, and no coefficient is 0. Vars defined by a `Let` are
expanded, conversions between integer types that keep the number modulo 2^32 looked through: a difference of two polynomials that is a
number and no multiple of 2^32 stays non-zero modulo 2^32, so a proof of *distinct* addresses survives wrapping. What wraps earlier,
arithmetic and conversions of fewer bits, is opaque. Equality of addresses is never concluded from polynomials, only from identical
expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ..ir.nodes import Binary, Cast, Constant, Expr, Let, Stmt, Unary, Var, walk
from ..ir.rewrite import walk_stmts
from ..ir.types import Scalar

Monomial: TypeAlias = "tuple[Expr, ...]"
Polynomial: TypeAlias = "dict[Monomial, int]"


def plus(a: Polynomial, b: Polynomial) -> Polynomial:
    result = dict(a)
    for monomial, coefficient in b.items():
        total = result.get(monomial, 0) + coefficient
        if total:
            result[monomial] = total
        else:
            result.pop(monomial, None)
    return result


def scale(a: Polynomial, factor: int) -> Polynomial:
    return {m: c * factor for m, c in a.items()} if factor else {}


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for m, c in a.items():
        for n, d in b.items():
            result = plus(result, {tuple(sorted((*m, *n), key=repr)): c * d})
    return result


_WRAP = 1 << 32
_LIMIT = 64  # monomials; beyond it an expression is treated as opaque


def definitions(block: tuple[Stmt, ...]) -> dict[Var, Expr]:
    """The integer Vars that a `Let` anywhere in the block defines, with their values."""
    return {s.var: s.value for s in walk_stmts(block) if isinstance(s, Let) and s.var.type.is_integer}


def polynomial(expr: Expr, lets: Mapping[Var, Expr]) -> Polynomial:
    """The expression over atoms that no `Let` of `lets` defines."""
    return _polynomial(expr, lets, {})


def _polynomial(expr: Expr, lets: Mapping[Var, Expr], known: dict[Var, Polynomial]) -> Polynomial:
    """An expression as a polynomial; `known`: what Vars are that have occurred before."""

    def of(inner: Expr) -> Polynomial:
        return _polynomial(inner, lets, known)

    if isinstance(expr, Unary | Binary) and expr.type.bits < 32:
        return {(expr,): 1}
    match expr:
        case Constant(value=v):
            return {(): int(v)} if v else {}
        case Var() if expr in lets:
            if expr not in known:
                known[expr] = of(lets[expr])
            return known[expr]
        case Cast(operand=a) if _keeps(a.type, expr.type):
            return of(a)
        case Unary(op="-", operand=a):
            return scale(of(a), -1)
        case Binary(op="+", left=a, right=b):
            return plus(of(a), of(b))
        case Binary(op="-", left=a, right=b):
            return plus(of(a), scale(of(b), -1))
        case Binary(op="*", left=a, right=b):
            product = times(of(a), of(b))
            return product if len(product) <= _LIMIT else {(expr,): 1}
        case Binary(op="<<", left=a, right=Constant(value=v)) if 0 <= v < 31:
            return scale(of(a), 1 << int(v))
    return {(expr,): 1}


def _keeps(source: Scalar, target: Scalar) -> bool:
    """True if a conversion leaves every number the same modulo 2^32."""
    if not source.is_integer or not target.is_integer or target.bits >= 32:
        return source.is_integer and target.is_integer
    return (source.bits <= target.bits and source.kind == target.kind) or (source.bits < target.bits and source.kind == "uint")


def split(p: Polynomial, atom: Expr) -> tuple[Polynomial, Polynomial] | None:
    """(A, B) with p = A * atom + B and neither containing the atom; None if it is not linear in it or hidden in another atom."""
    slope: Polynomial = {}
    rest: Polynomial = {}
    for monomial, coefficient in p.items():
        if monomial.count(atom) > 1 or any(m != atom and occurs(m, atom) for m in monomial):
            return None
        target = slope if atom in monomial else rest
        target[tuple(m for m in monomial if m != atom)] = coefficient
    return slope, rest


def occurs(expr: Expr, atom: Expr) -> bool:
    return any(e == atom for e in walk(expr))


def atoms(p: Polynomial) -> set[Expr]:
    return {a for monomial in p for a in monomial}


def constant(p: Polynomial) -> int | None:
    """The value of a polynomial without atoms, else None."""
    if not p:
        return 0
    return p.get(()) if set(p) == {()} else None


def evaluate(p: Polynomial, values: Mapping[Var, int]) -> int:
    """The value where each atom is a variable with a value."""
    total = 0
    for monomial, coefficient in p.items():
        for atom in monomial:
            assert isinstance(atom, Var)
            coefficient *= values[atom]
        total += coefficient
    return total


def strides(slope: int) -> bool:
    """True if multiples of a stride stay apart: the least number of steps after which 32-bit arithmetic comes back to the same value is
    more than any loop over memory makes."""
    return slope % _WRAP != 0 and (slope & -slope) <= 1 << 16


def nonzero(difference: int) -> bool:
    """True if a difference of addresses is certainly none, in 32-bit arithmetic too."""
    return difference % _WRAP != 0


def ratio(p: Polynomial, q: Polynomial) -> int | None:
    """The integer k with p = k * q, if there is one."""
    if not p:
        return 0
    if set(p) != set(q):
        return None
    ratios = {p[m] // q[m] if p[m] % q[m] == 0 else None for m in p}
    return ratios.pop() if len(ratios) == 1 else None

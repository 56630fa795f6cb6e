"""Polynomials with integer coefficients over opaque expressions: `i * n + j - 1` is `{(i, n): 1, (j,): 1, (): -1}`.

Equal polynomials may be written in several ways only in the order of a monomial's factors, which `times` sorts. No coefficient is 0.
"""

from __future__ import annotations

from typing import TypeAlias

from .nodes import Expr

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

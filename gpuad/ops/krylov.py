"""Conjugate gradients and GMRES on plain arrays of any shape, which are vectors to them.

In: a function that gives the product with a matrix, a right-hand side. Out: the solution and the relative residual that was reached. A
product is formed for each iteration. What a solver does not reach within its iterations the caller has to judge by the residual."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .adjoints import library_of

Product = Callable[[Any], Any]
_RESTART = 40


class Solution(NamedTuple):
    """The solution, and |b - A x| / |b|."""

    x: Any
    residual: float


def _inner(a: Any, b: Any) -> Any:
    return library_of(a).sum(a.conj() * b if a.dtype.kind == "c" else a * b)


def _length(a: Any) -> float:
    return math.sqrt(float(abs(_inner(a, a))))


def cg(product: Product, b: Any, start: Any, tolerance: float, iterations: int) -> Solution:
    """Conjugate gradients: of a Hermitian positive definite matrix."""
    x, r = start, b - product(start)
    p, size, whole = r, _inner(r, r), _length(b) or 1.0
    for _ in range(iterations):
        if math.sqrt(float(abs(size))) <= tolerance * whole:
            break
        q = product(p)
        step = size / _inner(p, q)
        x = x + step * p
        r = r - step * q
        before, size = size, _inner(r, r)
        p = r + (size / before) * p
    return Solution(x, _length(b - product(x)) / whole)


def gmres(product: Product, b: Any, start: Any, tolerance: float, iterations: int) -> Solution:
    """GMRES with restarts, by the modified Gram-Schmidt process, twice."""
    x, whole, left = start, _length(b) or 1.0, iterations
    while True:
        r = b - product(x)
        size = _length(r)
        if size <= tolerance * whole or left <= 0 or not np.isfinite(size):
            return Solution(x, size / whole)
        count = sorted((left, _RESTART, max(int(b.size), 1)))[0]
        left -= count
        x = x + _best(product, r, size, count, tolerance * whole)


def _best(product: Product, r: Any, size: float, count: int, small: float) -> Any:
    """The correction in the space that `count` products span, for which the residual is smallest."""
    basis, columns = [r / size], np.zeros((count + 1, count), np.result_type(r.dtype, np.float64))
    used = count
    for k in range(count):
        w = product(basis[k])
        for _ in range(2):
            for j, v in enumerate(basis):
                part = _inner(v, w)
                columns[j, k] += complex(part) if r.dtype.kind == "c" else float(part)
                w = w - part * v
        columns[k + 1, k] = height = _length(w)
        weights, rest = _least(columns[: k + 2, : k + 1], size)
        if rest <= small or height <= 1e-14 * abs(columns[: k + 1, k]).max(initial=0.0):
            used = k + 1
            break
        basis.append(w / height)
    weights, _ = _least(columns[: used + 1, :used], size)
    found = basis[0] * weights[0].item()
    for v, weight in zip(basis[1:], weights[1:], strict=False):
        found = found + v * weight.item()
    return found.astype(r.dtype, copy=False)


def _least(matrix: Any, size: float) -> tuple[Any, float]:
    right = np.zeros(matrix.shape[0], matrix.dtype)
    right[0] = size
    weights = np.linalg.lstsq(matrix, right, rcond=None)[0]
    return weights, float(np.linalg.norm(right - matrix @ weights))

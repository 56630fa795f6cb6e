"""Products with constant sparse matrices and linear operators, as rules.

In: a matrix of `scipy.sparse` or `cupyx.scipy.sparse`, or a linear operator with `matvec` and `rmatvec`; an array, annotated or not. Out:
the product, a pair if the array is one, whose reverse is the product with the adjoint. The matrix is a constant, which may not be changed
while a tape needs it. Raises ValueError for shapes that do not fit."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ArgumentValueError
from ..tape.rules import rule
from .adjoints import add_to
from .layout import primal_of
from .parts import as_operand
from .reductions import result_for


class Matrix:
    """A matrix of a library for sparse ones, which is the same where it is the same object: it compares by elements itself."""

    __slots__ = ("plain",)

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matrix) and self.plain is other.plain

    def __hash__(self) -> int:
        return id(self.plain)

    def __call__(self, x: Any) -> Any:
        """The product, recorded if x is a pair."""
        return product_with(self, x)

    def product(self, x: Any) -> Any:
        """The product with a plain array."""
        return self.plain.matvec(x) if hasattr(self.plain, "matvec") else self.plain @ x

    def adjoint(self, x: Any) -> Any:
        """The product of the adjoint with a plain array."""
        return self.plain.rmatvec(x) if hasattr(self.plain, "rmatvec") else self.plain.conj().T @ x


def _product_reverse(dx: Any, dy: Any, matrix: Matrix) -> None:
    if dx is not None:
        add_to(dx, matrix.adjoint(dy))


@rule(reads=("x",), overwrites=("y",), reverse=_product_reverse, linear=(("x",),))
def _product(x: Any, y: Any, matrix: Matrix) -> None:
    y[...] = matrix.product(x)


def is_sparse(a: Any) -> bool:
    """True if it is a sparse matrix or linear operator, of SciPy or CuPy."""
    return hasattr(a, "tocsr") or (hasattr(a, "matvec") and hasattr(a, "rmatvec"))


@lru_cache(maxsize=256)
def the_same(matrix: Matrix) -> Matrix:
    """The same object for the same matrix, by which a tape knows it."""
    return matrix


def product_with(a: Any, x: Any) -> Any:
    """The product of a constant sparse matrix, or linear operator, with an array (n,) or (n, k)."""
    matrix = the_same(a if isinstance(a, Matrix) else Matrix(a))
    x = as_operand("matmul", x)
    rows, columns = matrix.plain.shape
    shape = primal_of(x).shape
    if len(shape) not in (1, 2) or shape[0] != columns:
        raise ArgumentValueError(f"matmul: a sparse matrix of shape ({rows}, {columns}) and an array of shape {tuple(shape)} do not fit")
    kind = np.result_type(primal_of(x).dtype, matrix.plain.dtype)
    out = result_for((x,), (rows, *shape[1:]), kind)
    _product(x, out, matrix)
    return out

"""Linear algebra with the names of `scipy.linalg` and `cupyx.scipy.linalg`, least squares, and matrices that are made of vectors.

In: arrays, annotated or not. Out: a new array or pair. With X = exp(A): dA = the upper right block of exp([[A^H, dX], [0, A^H]]); with
A = P L U: dA = P L^-H (tril(L^H dL, -1) + triu(dU U^H)) U^-H; with x = A^+ b of full rank (G. H. Golub, V. Pereyra, The Differentiation of
Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate, 1973). The library's own code computes, pivots included.
Raises ArgumentValueError for shapes that do not fit, UnsupportedError for what has no derivative, TapeError outside of a tape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arguments.annotations import Stopped
from ..errors import ArgumentValueError, UnsupportedError
from ..tape.rules import rule
from .adjoints import add_to, adjoint_of, library_of, scipy_of
from .elementwise import apply, check_recorded
from .functions import copyto
from .layout import primal_of
from .linear import matmul
from .linear_algebra import inv, solve, svd
from .parts import as_operand
from .plain_results import bare, library_behind
from .rearranging import Rearrangement
from .reductions import result_for
from .reductions import sum as sum_along
from .views import moveaxis, reshape


def _matrix(name: str, a: Any, *, square: bool = True) -> tuple[Any, np.dtype[Any]]:
    """A matrix, and the type that is computed in."""
    check_recorded(name, (a,))
    a = as_operand(name, a)
    primal = primal_of(a)
    if primal.ndim != 2 or (square and primal.shape[0] != primal.shape[1]):
        raise ArgumentValueError(f"{name} takes a {'square ' if square else ''}matrix, not an array of shape {tuple(primal.shape)}")
    return a, np.dtype(np.result_type(primal.dtype, np.float32) if primal.dtype.kind in "fc" else np.float64)


# --- the exponential ---------------------------------------------------------------------------------------------------------------------


def _along(a: Any, direction: Any) -> Any:
    """The derivative of the exponential in a direction: a block of the exponential of a matrix of twice the size."""
    n, library = a.shape[0], library_of(a)
    kind = np.result_type(a.dtype, direction.dtype)
    both = library.zeros((2 * n, 2 * n), kind)
    both[:n, :n], both[:n, n:], both[n:, n:] = a, direction, a
    return scipy_of(a, "linalg").expm(both)[:n, n:]


def _expm_reverse(a: Any, da: Any, dx: Any) -> None:
    if da is not None:
        add_to(da, _along(adjoint_of(a), dx))


def _expm_tangent(a: Any, da: Any, dx: Any) -> None:
    dx[...] = _along(a, da)


@rule(reads=("a",), overwrites=("x",), needs={"a": "before"}, reverse=_expm_reverse, tangent=_expm_tangent)
def _expm(a: Any, x: Any) -> None:
    x[...] = scipy_of(a, "linalg").expm(a)


def expm(A: Any) -> Any:
    """The exponential of a square matrix, as `scipy.linalg.expm`."""
    a, kind = _matrix("expm", A)
    out = result_for((a,), primal_of(a).shape, kind)
    _expm(a, out)
    return out


# --- factors with pivots -----------------------------------------------------------------------------------------------------------------


def _rows(pivots: Any, n: int) -> Any:
    """The permutation that LAPACK's exchanges of rows come to: row k of the product is row `found[k]` of the matrix."""
    found = list(range(n))
    for k, other in enumerate(pivots.tolist()):
        found[k], found[other] = found[other], found[k]
    return library_of(pivots).asarray(np.array(found))


def _lower(lu: Any) -> Any:
    return library_of(lu).tril(lu, -1) + library_of(lu).eye(lu.shape[0], dtype=lu.dtype)


def _factor_reverse(lu: Any, piv: Any, da: Any, dlu: Any) -> None:
    if da is None:
        return
    library, low, up = library_of(lu), _lower(lu), library_of(lu).triu(lu)
    middle = library.tril(library.matmul(adjoint_of(low), library.tril(dlu, -1)), -1)
    middle = middle + library.triu(library.matmul(library.triu(dlu), adjoint_of(up)))
    grown = adjoint_of(library.linalg.solve(up, adjoint_of(library.linalg.solve(adjoint_of(low), middle))))
    da[_rows(piv, lu.shape[0])] += grown if da.dtype.kind == "c" else grown.real


@rule(reads=("a",), overwrites=("lu", "piv"), needs={"lu": "after", "piv": "after"}, reverse=_factor_reverse)
def _factor(a: Any, lu: Any, piv: Any) -> None:
    lu[...], piv[...] = scipy_of(a, "linalg").lu_factor(a, check_finite=False)


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, Any]:
    """The factors of a square matrix in one array, and the exchanges of rows, plain, as `scipy.linalg.lu_factor`."""
    a, kind = _matrix("lu_factor", a)
    n, library = primal_of(a).shape[0], library_behind([a])
    lu, piv = result_for((a,), (n, n), kind), library.empty(n, np.int32)
    _factor(a, lu, piv)
    return lu, piv


def _factored_reverse(lu: Any, piv: Any, x: Any, dlu: Any, db: Any, dx: Any, trans: int) -> None:
    library, solve_by = library_of(lu), scipy_of(lu, "linalg").lu_solve
    grown = solve_by((lu, piv), dx if trans else dx.conj(), trans=0 if trans == 2 else 1, check_finite=False)
    if trans == 1:  # (A^T)^H is the conjugate of A
        grown = solve_by((lu, piv), dx.conj(), trans=0, check_finite=False).conj()
    elif trans == 0:
        grown = grown.conj()
    if db is not None:
        add_to(db, grown)
    if dlu is None:
        return
    two = x.reshape(x.shape[0], -1), grown.reshape(x.shape[0], -1)
    one, other = two if not trans else (two[1].conj(), two[0].conj()) if trans == 1 else two[::-1]
    da = -library.matmul(other, adjoint_of(one))[_rows(piv, lu.shape[0])]
    grown_lu = library.tril(library.matmul(da, adjoint_of(library.triu(lu))), -1) + library.triu(library.matmul(adjoint_of(_lower(lu)), da))
    add_to(dlu, grown_lu)


@rule(reads=("lu", "piv", "b"), overwrites=("x",), needs={"lu": "before", "piv": "before", "x": ("after", "lu")}, reverse=_factored_reverse)
def _factored(lu: Any, piv: Any, b: Any, x: Any, trans: int) -> None:
    x[...] = scipy_of(lu, "linalg").lu_solve((lu, piv), b, trans=trans, check_finite=False)


def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """Solves a x = b by the factors of `lu_factor`, as `scipy.linalg.lu_solve`; gradients go to the factors and to b."""
    lu, piv = lu_and_piv
    (lu, kind), b = _matrix("lu_solve", lu), as_operand("lu_solve", b)
    check_recorded("lu_solve", (b,))
    if trans not in (0, 1, 2) or primal_of(b).ndim not in (1, 2) or primal_of(b).shape[0] != primal_of(lu).shape[0]:
        raise ArgumentValueError(f"lu_solve: b of shape {tuple(primal_of(b).shape)}, trans {trans!r} (0, 1 or 2)")
    out = result_for((lu, b), primal_of(b).shape, np.result_type(kind, primal_of(b).dtype))
    _factored(lu, Stopped(bare(piv)), b, out, trans)
    return out


def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, ...]:
    """The permutation, plain, and the factors of a square matrix, as `scipy.linalg.lu`; with `permute_l` the first two as one."""
    both, piv = lu_factor(a)
    library, n = library_behind([both]), primal_of(both).shape[0]
    p = library.zeros((n, n), primal_of(both).real.dtype)
    p[_rows(piv, n), library.arange(n)] = 1
    kind = primal_of(both).dtype
    below, above = library.tril(library.ones((n, n), kind), -1), library.triu(library.ones((n, n), kind))
    low = apply("add", apply("multiply", both, below), library.eye(n, dtype=kind))
    up = apply("multiply", both, above)
    return (matmul(p.astype(kind), low), up) if permute_l else (p, low, up)


# --- least squares -----------------------------------------------------------------------------------------------------------------------


def _lstsq_reverse(a: Any, b: Any, x: Any, da: Any, db: Any, dx: Any) -> None:
    library = library_of(a)
    inverse = library.linalg.pinv(a)
    back = library.matmul(adjoint_of(inverse), dx)
    if db is not None:
        add_to(db, back)
    if da is not None:
        rest = b - library.matmul(a, x)
        found = library.matmul(rest, adjoint_of(library.matmul(inverse, back))) - library.matmul(back, adjoint_of(x))
        beside = dx - library.matmul(adjoint_of(a), back)
        add_to(da, found + library.matmul(library.matmul(adjoint_of(inverse), x), adjoint_of(beside)))


@rule(
    reads=("a", "b"), overwrites=("x",), needs={"a": "before", "b": ("before", "a"), "x": ("after", "a")}, reverse=_lstsq_reverse
)  # fmt: skip
def _lstsq(a: Any, b: Any, x: Any) -> None:
    x[...] = library_of(a).linalg.lstsq(a, b, rcond=None)[0]


class Lstsq(NamedTuple):
    """The results of `numpy.linalg.lstsq`."""

    x: Any
    residuals: Any
    rank: int
    s: Any


def lstsq(a: Any, b: Any, rcond: Any = None) -> Lstsq:
    """Least squares by a matrix of full rank, as `numpy.linalg.lstsq`: the solution, sums of squares of what is left, rank, singular
    values."""
    (a, kind), b = _matrix("lstsq", a, square=False), as_operand("lstsq", b)
    check_recorded("lstsq", (b,))
    (m, n), library = primal_of(a).shape, library_behind([a])
    if primal_of(b).ndim not in (1, 2) or primal_of(b).shape[0] != m:
        raise ArgumentValueError(f"lstsq: b of shape {tuple(primal_of(b).shape)} for a matrix of shape {(m, n)}")
    rank = int(library.linalg.matrix_rank(bare(a)))
    if rank < min(m, n):
        raise UnsupportedError(f"lstsq: the matrix has rank {rank}, where the solution is not differentiable")
    right = reshape(b, (m, -1))
    columns = primal_of(right).shape[1]
    out = result_for((a, right), (n, columns), np.result_type(kind, primal_of(b).dtype))
    _lstsq(a, right, out)
    left = apply("subtract", right, matmul(a, out))
    squares = sum_along(apply("square", apply("absolute", left)), axis=0) if m > n else library.empty(0)
    return Lstsq(reshape(out, (n, *primal_of(b).shape[1:])), squares, rank, svd(a, compute_uv=False))


# --- what consists of others -------------------------------------------------------------------------------------------------------------


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """Solves tensordot(a, x, x.ndim) = b, as `numpy.linalg.tensorsolve`."""
    a, b = as_operand("tensorsolve", a), as_operand("tensorsolve", b)
    if axes is not None:
        rest = [k for k in range(primal_of(a).ndim) if k not in axes]
        a = moveaxis(a, (*rest, *axes), tuple(range(primal_of(a).ndim)))
    shape, n = primal_of(a).shape[primal_of(b).ndim :], int(primal_of(b).size)
    if math.prod(shape) != n:
        raise ArgumentValueError(f"tensorsolve: arrays of shapes {tuple(primal_of(a).shape)} and {tuple(primal_of(b).shape)} do not fit")
    return reshape(solve(reshape(a, (n, n)), reshape(b, -1)), shape)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse with respect to tensordot, as `numpy.linalg.tensorinv`."""
    a = as_operand("tensorinv", a)
    shape = primal_of(a).shape
    n = math.prod(shape[ind:])
    if ind <= 0 or n * n != primal_of(a).size:
        raise ArgumentValueError(f"tensorinv: an array of shape {tuple(shape)} with ind {ind!r} is no square matrix")
    return reshape(inv(reshape(a, (n, n))), (*shape[ind:], *shape[:ind]))


class _OfScipy(Rearrangement):
    """A function of `scipy.linalg` that puts elements of vectors into a matrix."""

    def function(self, library: Any) -> Any:
        """SciPy's, or CuPy's."""
        return getattr(scipy_of(library.empty(0), "linalg"), self.name)

    def __call__(self, *args: Any, out: Any = None, **keywords: Any) -> Any:
        """As that function. A row that is left out of `toeplitz` is the column, conjugated."""
        if self.name == "toeplitz" and len(args) == 1 and "r" not in keywords and primal_of(args[0]).dtype.kind == "c":
            args = (args[0], apply("conjugate", args[0]))
        return super().__call__(*args, out=out, **keywords)


def block_diag(*arrs: Any) -> Any:
    """A matrix with these along its diagonal, as `scipy.linalg.block_diag`."""
    parts = [reshape(x, (1, -1)) if primal_of(x).ndim < 2 else x for x in (as_operand("block_diag", x) for x in arrs)]
    shapes = [primal_of(x).shape for x in parts]
    height, width = (sum(shape[k] for shape in shapes) for k in (0, 1))
    out = result_for(tuple(parts), (height, width), np.result_type(*(primal_of(x).dtype for x in parts)))
    apply("copyto", 0, out=out)
    row = column = 0
    for x, (m, n) in zip(parts, shapes, strict=True):
        copyto(out[row : row + m, column : column + n], x)
        row, column = row + m, column + n
    return out


def khatri_rao(a: Any, b: Any) -> Any:
    """The products of Kronecker of each column, as `scipy.linalg.khatri_rao`."""
    a, b = as_operand("khatri_rao", a), as_operand("khatri_rao", b)
    if primal_of(a).ndim != 2 or primal_of(b).ndim != 2 or primal_of(a).shape[1] != primal_of(b).shape[1]:
        raise ArgumentValueError("khatri_rao takes matrices with as many columns")
    return reshape(apply("multiply", a[:, None, :], b[None]), (-1, primal_of(a).shape[1]))


TABLE: dict[str, Callable[..., Any]] = {
    f"linalg.{f.__name__}": f for f in (expm, lu, lu_factor, lu_solve, lstsq, tensorsolve, tensorinv, block_diag, khatri_rao)
} | {
    f"linalg.{name}": _OfScipy(name, data) for name, data in (("toeplitz", (0, 1)), ("hankel", (0, 1)), ("circulant", (0,)))
}  # fmt: skip

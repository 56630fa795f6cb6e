"""Linear algebra on square matrices and stacks of them, as rules of the array library's own functions.

In: matrices (..., n, n), annotated or not. Out: an array or pair. With X = A^-1 B: dB = A^-H dX, dA = -dB X^H; with X = A^-1: dA = -X^H dX
X^H; with the determinant d: dA = conj(d) A^-H dd; with A = L L^H: dA = L^-H sym(L^H dL) L^-1; with A = V diag(w) V^H: dA = V (diag(dw) +
F o (V^H dV)) V^H, where F_ij = 1 / (w_j - w_i); with A = U diag(s) V^H: as M. B. Giles has them (Collected Matrix Derivative Results for
Forward and Reverse Mode Algorithmic Differentiation, 2008). Of a Hermitian matrix one triangle is read, which gets all of the gradient.

Raises ValueError for shapes that do not fit, LinAlgError as the library does, TapeError for a pair outside of a tape. Where eigenvalues or
singular values are equal, what comes through vectors has no derivative: it is NaN or infinite."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentValueError, UnsupportedError
from ..public_calls import brief
from ..tape.rules import rule
from .adjoints import add_to, adjoint_of, library_of
from .elementwise import apply, check_recorded
from .extrema import max, min, norm
from .layout import primal_of
from .linear import matmul
from .parts import as_operand
from .plain_results import bare, library_behind
from .reductions import Axis, reduced_axes, result_for, sum
from .views import expand_dims, swapaxes, view


def _square(name: str, a: Any) -> tuple[Any, Any]:
    """A stack of square matrices, and the type that is computed in."""
    check_recorded(name, (a,))
    a = as_operand(name, a)
    primal = primal_of(a)
    if primal.ndim < 2 or primal.shape[-1] != primal.shape[-2]:
        raise ArgumentValueError(f"{name} takes square matrices, not an array of shape {tuple(primal.shape)}")
    return a, _kind(primal.dtype)


def _kind(*dtypes: Any) -> np.dtype[Any]:
    found = np.result_type(*dtypes)
    return np.dtype(found if found.kind in "fc" else np.float64)


# --- systems -----------------------------------------------------------------------------------------------------------------------------


def _general_solve_reverse(a: Any, x: Any, da: Any, db: Any, dx: Any) -> None:
    grown = library_of(dx).linalg.solve(adjoint_of(a), dx)
    if db is not None:
        add_to(db, grown)
    if da is not None:
        add_to(da, -library_of(dx).matmul(grown, adjoint_of(x)))


def _general_solve_tangent(a: Any, x: Any, da: Any, db: Any, dx: Any) -> None:
    dx[...] = library_of(x).linalg.solve(a, db - library_of(x).matmul(da, x))


@rule(
    reads=("a", "b"), overwrites=("x",), needs={"a": "before", "x": ("after", "a")}, reverse=_general_solve_reverse,
    tangent=_general_solve_tangent,
)  # fmt: skip
def _general_solve(a: Any, b: Any, x: Any) -> None:
    x[...] = library_of(a).linalg.solve(a, b)


def solve(a: Any, b: Any) -> Any:
    """Solves `a x = b` for matrices (..., n, n) and b of shape (n,) or (..., n, k), as `numpy.linalg.solve`."""
    (a, _), b = _square("solve", a), as_operand("solve", b)
    check_recorded("solve", (b,))
    one, two = primal_of(a), primal_of(b)
    if two.ndim == 0 or two.shape[0 if two.ndim == 1 else -2] != one.shape[-1]:
        raise ArgumentValueError(f"solve: matrices of shapes {tuple(one.shape)} and {tuple(two.shape)} do not fit")
    right = expand_dims(b, -1) if two.ndim == 1 else b
    stack = np.broadcast_shapes(one.shape[:-2], primal_of(right).shape[:-2])
    out = result_for((a, b), (*stack, *primal_of(right).shape[-2:]), _kind(one.dtype, two.dtype))
    _general_solve(a, right, out)
    return view(out, lambda p: p[..., 0]) if two.ndim == 1 else out


def _inv_reverse(x: Any, da: Any, dx: Any) -> None:
    if da is not None:
        add_to(da, -library_of(x).matmul(library_of(x).matmul(adjoint_of(x), dx), adjoint_of(x)))


def _inv_tangent(x: Any, da: Any, dx: Any) -> None:
    dx[...] = -library_of(x).matmul(library_of(x).matmul(x, da), x)


@rule(reads=("a",), overwrites=("x",), needs={"x": "after"}, reverse=_inv_reverse, tangent=_inv_tangent)
def _inv(a: Any, x: Any) -> None:
    x[...] = library_of(a).linalg.inv(a)


def inv(a: Any) -> Any:
    """The inverse of matrices, as `numpy.linalg.inv`."""
    a, kind = _square("inv", a)
    out = result_for((a,), primal_of(a).shape, kind)
    _inv(a, out)
    return out


def _det_reverse(a: Any, x: Any, da: Any, dx: Any) -> None:
    """By cofactors where a matrix is singular: those of its singular values and vectors."""
    if da is None:
        return
    library = library_of(a)
    u, s, vh = library.linalg.svd(a)
    n = a.shape[-1]
    others = library.stack([library.prod(s[..., [i for i in range(n) if i != k]], axis=-1) for k in range(n)], axis=-1)
    turn = library.linalg.det(u) * library.linalg.det(vh)
    cofactors = library.matmul(u * others[..., None, :], vh) * turn[..., None, None].conj()
    add_to(da, cofactors * dx[..., None, None])


@rule(reads=("a",), overwrites=("x",), needs={"a": "before", "x": "after"}, reverse=_det_reverse)
def _det(a: Any, x: Any) -> None:
    x[...] = library_of(a).linalg.det(a)


def det(a: Any) -> Any:
    """The determinant of matrices, as `numpy.linalg.det`; of singular ones too."""
    a, kind = _square("det", a)
    out = result_for((a,), primal_of(a).shape[:-2], kind)
    _det(a, out)
    return out


class Slogdet(NamedTuple):
    """As NumPy's SlogdetResult: the sign, and the logarithm of the absolute value."""

    sign: Any
    logabsdet: Any


def _logdet_reverse(a: Any, da: Any, dx: Any) -> None:
    if da is not None:
        add_to(da, adjoint_of(library_of(a).linalg.inv(a)) * dx[..., None, None])


def _logdet_tangent(a: Any, da: Any, dx: Any) -> None:
    dx[...] = library_of(a).trace(library_of(a).linalg.solve(a, da), axis1=-2, axis2=-1)


@rule(reads=("a",), overwrites=("x",), needs={"a": "before"}, reverse=_logdet_reverse, tangent=_logdet_tangent)
def _logdet(a: Any, x: Any) -> None:
    x[...] = library_of(a).linalg.slogdet(a)[1]


def slogdet(a: Any) -> Slogdet:
    """The sign, plain, and the logarithm of the absolute value of determinants of real matrices, as `numpy.linalg.slogdet`."""
    a, kind = _square("slogdet", a)
    if kind.kind == "c":
        raise UnsupportedError("slogdet takes real matrices: the sign of a complex determinant has a gradient; use det")
    out = result_for((a,), primal_of(a).shape[:-2], kind)
    _logdet(a, out)
    return Slogdet(library_behind([a]).linalg.slogdet(bare(a))[0], out)


# --- factors -----------------------------------------------------------------------------------------------------------------------------


def _cholesky_reverse(x: Any, da: Any, dx: Any) -> None:
    if da is None:
        return
    library = library_of(x)
    inner = library.matmul(adjoint_of(x), dx)
    low = library.tril(inner, -1) + library.eye(x.shape[-1]) * inner.real / 2
    half = library.linalg.solve(adjoint_of(x), low)
    add_to(da, _of_triangle(adjoint_of(library.linalg.solve(adjoint_of(x), adjoint_of(half))), "L"))


def _of_triangle(full: Any, UPLO: str) -> Any:
    """The gradient of a Hermitian matrix as that of the triangle of it that is read."""
    library, both = library_of(full), full + adjoint_of(full)
    part = library.tril(both, -1) if UPLO in "Ll" else library.triu(both, 1)
    return part + library.eye(both.shape[-1]) * both.real / 2


@rule(reads=("a",), overwrites=("x",), needs={"x": "after"}, reverse=_cholesky_reverse)
def _cholesky(a: Any, x: Any) -> None:
    x[...] = library_of(a).linalg.cholesky(a)


def cholesky(a: Any, upper: bool = False) -> Any:
    """The lower (or upper) factor of Hermitian positive definite matrices, as `numpy.linalg.cholesky`. The lower triangle is read, and gets
    the gradient."""
    a, kind = _square("cholesky", a)
    out = result_for((a,), primal_of(a).shape, kind)
    _cholesky(a, out)
    if not upper:
        return out
    turned = swapaxes(out, -1, -2)
    return apply("conjugate", turned) if kind.kind == "c" else turned


def _eigh_reverse(w: Any, v: Any, da: Any, dw: Any, dv: Any, UPLO: str) -> None:
    if da is None:
        return
    library = library_of(v)
    middle = library.eye(w.shape[-1]) * (0 if dw is None else dw[..., None, :])
    if dv is not None:
        inner = library.matmul(adjoint_of(v), dv)
        gaps = w[..., None, :] - w[..., :, None]
        where = (library.eye(w.shape[-1]) > 0) | (inner == 0)
        middle = middle + library.where(where, 0, inner / library.where(library.eye(w.shape[-1]) > 0, 1, gaps))
    add_to(da, _of_triangle(library.matmul(library.matmul(v, middle), adjoint_of(v)), UPLO))


@rule(reads=("a",), overwrites=("w", "v"), needs={"w": "after", "v": "after"}, reverse=_eigh_reverse)
def _eigh(a: Any, w: Any, v: Any, UPLO: str) -> None:
    w[...], v[...] = library_of(a).linalg.eigh(a, UPLO)


class Eigh(NamedTuple):
    """As NumPy's EighResult."""

    eigenvalues: Any
    eigenvectors: Any


def eigh(a: Any, UPLO: str = "L") -> Eigh:
    """Eigenvalues and eigenvectors of Hermitian matrices, as `numpy.linalg.eigh`. The triangle that is read gets the gradient; a
    vector's phase is the library's choice, so a loss that depends on it has none."""
    a, kind = _square("eigh", a)
    shape = primal_of(a).shape
    values = result_for((a,), shape[:-1], np.empty(0, kind).real.dtype)
    vectors = result_for((a,), shape, kind)
    _eigh(a, values, vectors, UPLO)
    return Eigh(values, vectors)


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of Hermitian matrices, as `numpy.linalg.eigvalsh`."""
    return eigh(a, UPLO).eigenvalues


def _svd_reverse(u: Any, s: Any, vh: Any, da: Any, du: Any, ds: Any, dvh: Any) -> None:
    """J. Townsend, Differentiating the Singular Value Decomposition (2016); of complex matrices without the phase, which is a choice."""
    if da is None:
        return
    library, k = library_of(s), s.shape[-1]
    one = library.eye(k)
    v = adjoint_of(vh)
    squares = s * s
    gaps = squares[..., None, :] - squares[..., :, None]
    ratios = library.where(one > 0, 0, 1 / library.where(one > 0, 1, gaps))
    middle = one * (0 if ds is None else ds[..., None, :])
    found = 0
    if du is not None and du.any():
        inner = library.matmul(adjoint_of(u), du)
        middle = middle + (ratios * (inner - adjoint_of(inner))) * s[..., None, :]
        found = found + library.matmul((du - library.matmul(u, inner)) / s[..., None, :], vh)
    if dvh is not None and dvh.any():
        dv = adjoint_of(dvh)
        inner = library.matmul(vh, dv)
        middle = middle + s[..., :, None] * (ratios * (inner - adjoint_of(inner)))
        found = found + library.matmul(u / s[..., None, :], adjoint_of(dv - library.matmul(v, inner)))
    add_to(da, library.matmul(library.matmul(u, middle), vh) + found)


@rule(reads=("a",), overwrites=("u", "s", "vh"), needs={"u": "after", "s": "after", "vh": "after"}, reverse=_svd_reverse)
def _svd(a: Any, u: Any, s: Any, vh: Any) -> None:
    u[...], s[...], vh[...] = library_of(a).linalg.svd(a, full_matrices=False)


class Svd(NamedTuple):
    """As NumPy's SVDResult."""

    U: Any
    S: Any
    Vh: Any


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Singular values and vectors of real matrices, as `numpy.linalg.svd` with `full_matrices` False (or of square ones); of complex ones
    the values."""
    check_recorded("svd", (a,))
    a = as_operand("svd", a)
    primal = primal_of(a)
    *stack, m, n = primal.shape
    if hermitian or (compute_uv and (primal.dtype.kind == "c" or (full_matrices and m != n))):
        raise UnsupportedError("svd: of real matrices, with full_matrices=False where they are not square, without hermitian=True")
    k, kind = sorted((m, n))[0], _kind(primal.dtype)
    parts = [result_for((a,), (*stack, *shape), t) for shape, t in (((m, k), kind), ((k,), np.empty(0, kind).real.dtype), ((k, n), kind))]
    _svd(a, *parts)
    return Svd(*parts) if compute_uv else parts[1]


def _qr_reverse(q: Any, r: Any, da: Any, dq: Any, dr: Any) -> None:
    if da is None:
        return
    library = library_of(r)
    middle = 0
    if dr is not None:
        middle = library.matmul(r, adjoint_of(dr))
    if dq is not None:
        middle = middle - library.matmul(adjoint_of(dq), q)
    low = library.tril(middle, -1)
    both = low + adjoint_of(low) + library.eye(r.shape[-1]) * middle.real
    full = library.matmul(q, both) + (0 if dq is None else dq)
    add_to(da, adjoint_of(library.linalg.solve(r, adjoint_of(full))))


@rule(reads=("a",), overwrites=("q", "r"), needs={"q": "after", "r": "after"}, reverse=_qr_reverse)
def _qr(a: Any, q: Any, r: Any) -> None:
    q[...], r[...] = library_of(a).linalg.qr(a)


class Qr(NamedTuple):
    """As NumPy's QRResult."""

    Q: Any
    R: Any


def qr(a: Any, mode: str = "reduced") -> Qr:
    """The factors of real matrices with at least as many rows as columns, as `numpy.linalg.qr` with mode 'reduced'."""
    check_recorded("qr", (a,))
    a = as_operand("qr", a)
    *stack, m, n = primal_of(a).shape
    kind = _kind(primal_of(a).dtype)
    if mode != "reduced" or m < n or kind.kind == "c":
        raise UnsupportedError("qr: of real matrices with at least as many rows as columns, in mode 'reduced'")
    parts = [result_for((a,), (*stack, *shape), kind) for shape in ((m, n), (n, n))]
    _qr(a, *parts)
    return Qr(*parts)


# --- what consists of others -------------------------------------------------------------------------------------------------------------


def pinv(a: Any, rcond: Any = None) -> Any:
    """The pseudo-inverse of real matrices of full rank, as `numpy.linalg.pinv`."""
    check_recorded("pinv", (a,))
    a = as_operand("pinv", a)
    turned = swapaxes(a, -1, -2)
    turned = apply("conjugate", turned) if primal_of(a).dtype.kind == "c" else turned
    m, n = primal_of(a).shape[-2:]
    if int(np.min(bare(library_behind([a]).linalg.matrix_rank(bare(a))))) < sorted((m, n))[0] or rcond is not None:
        raise UnsupportedError("pinv: of matrices of full rank, without rcond: at others it is not differentiable")
    return solve(matmul(turned, a), turned) if m >= n else matmul(turned, inv(matmul(a, turned)))


def matrix_power(a: Any, n: int) -> Any:
    """A whole power of square matrices, as `numpy.linalg.matrix_power`, by repeated squaring."""
    a, _ = _square("matrix_power", a)
    if n < 0:
        return matrix_power(inv(a), -n)
    if n == 0:
        return library_behind([a]).linalg.matrix_power(bare(a), 0)
    found, square = None, a
    while True:
        if n & 1:
            found = square if found is None else matmul(found, square)
        n >>= 1
        if not n:
            return found if found is not a else apply("copyto", a)
        square = matmul(square, square)


def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """The product of several matrices, from left to right, as `numpy.linalg.multi_dot`."""
    found = functools.reduce(matmul, [as_operand("multi_dot", x) for x in arrays])
    return found if out is None else apply("copyto", found, out=out)


def general_norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Any:
    """Norms of vectors and matrices, as `numpy.linalg.norm`; not differentiable where an absolute value is not."""
    x = as_operand("norm", x)
    along = reduced_axes("norm", axis, primal_of(x).ndim)
    if ord is None or (ord == "fro" and len(along) == 2) or (ord == 2 and len(along) == 1):
        return norm(x, None, axis, keepdims)
    size = apply("absolute", x)
    if len(along) == 1:
        return _vector_norm(size, ord, along[0], keepdims)
    if len(along) != 2:
        raise ArgumentValueError(f"norm: ord {brief(ord)} is for vectors and matrices, not for {len(along)} axes")
    if ord in (2, -2, "nuc"):
        if along != (primal_of(x).ndim - 2, primal_of(x).ndim - 1) or keepdims:
            raise UnsupportedError(f"norm: ord {brief(ord)} over the last two axes, without keepdims")
        values = svd(x, compute_uv=False)
        return sum(values, axis=-1) if ord == "nuc" else max(values, axis=-1) if ord == 2 else min(values, axis=-1)
    if ord not in (1, -1, np.inf, -np.inf):
        raise ArgumentValueError(f"norm: no norm of matrices has ord {brief(ord)}")
    first, then = along if abs(ord) == 1 else along[::-1]
    totals = sum(size, axis=first, keepdims=True)
    found = (max if ord > 0 else min)(totals, axis=then, keepdims=True)
    return found if keepdims else view(found, lambda p: p.squeeze(axis=along))


def _vector_norm(size: Any, ord: Any, axis: int, keepdims: bool) -> Any:
    if ord in (np.inf, -np.inf):
        return (max if ord > 0 else min)(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return (bare(size) != 0).sum(axis=axis, keepdims=keepdims).astype(size.dtype)
    if ord == 1:
        return sum(size, axis=axis, keepdims=keepdims)
    return apply("power", sum(apply("power", size, float(ord)), axis=axis, keepdims=keepdims), 1.0 / ord)


def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Norms over axes as of one vector, as `numpy.linalg.vector_norm`."""
    x = as_operand("vector_norm", x)
    if ord == 2:
        return norm(x, None, axis, keepdims)
    if axis is None and not keepdims:
        x, axis = x.reshape(-1), 0
    if not isinstance(axis, int):
        raise UnsupportedError("vector_norm: ord other than 2 over one axis, or all of them without keepdims")
    return general_norm(x, ord, axis, keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Norms over the last two axes, as `numpy.linalg.matrix_norm`."""
    return general_norm(x, ord, (-2, -1), keepdims)


def cond(x: Any, p: Any = None) -> Any:
    """The condition number in the norm of order 2, as `numpy.linalg.cond`."""
    if p not in (None, 2):
        raise UnsupportedError("cond: in the norm of order 2; write norm(x, p) * norm(inv(x), p)")
    values = svd(x, compute_uv=False)
    return apply("divide", view(values, lambda a: a[..., 0]), view(values, lambda a: a[..., -1]))


TABLE: dict[str, Callable[..., Any]] = {
    f"linalg.{f.__name__}": f
    for f in (solve, inv, det, slogdet, cholesky, eigh, eigvalsh, svd, qr, pinv, matrix_power, multi_dot, vector_norm, matrix_norm, cond)
} | {
    "linalg.norm": general_norm, "linalg.svdvals": lambda x, /: svd(x, compute_uv=False),
}  # fmt: skip

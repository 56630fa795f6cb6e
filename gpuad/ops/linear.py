"""Matrix products and solves, as rules: what each reverse reads depends on which gradients are needed.

In: matrices, or stacks of them (..., m, k) and (..., k, n), broadcast over the leading axes; vectors as in NumPy; annotated or not. Out: an
array or pair. With C = A B the adjoints are dC B^H and A^H dC; with A X = B, dB = A^-H dX and dA = -dB X^H, its triangle only (M. B. Giles,
Collected Matrix Derivative Results for Forward and Reverse Mode Algorithmic Differentiation, 2008). So a product's A is saved for the
reverse only if B has a gradient, and the other way round.

An operand that overlaps the output is copied first. Triangular systems are solved with `linalg.solve`, a general solver. Raises ValueError
for shapes that do not fit, UnsupportedError for a complex factor of real matrices and for `dot` of more than two axes, TapeError for a pair
outside of a tape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arguments.annotations import Active
from ..errors import ArgumentTypeError, ArgumentValueError, ShadowError, UnsupportedError
from ..public_calls import brief
from ..runtime.array_types import NdArray
from ..tape.record.recorded_rule import Ruled
from ..tape.rules import rule
from .adjoints import add_to, adjoint_of, library_of
from .elementwise import apply, are_disjoint, check_out, check_recorded
from .layout import array_of, primal_of
from .reductions import result_for
from .sparse_matrices import is_sparse, product_with
from .views import expand_dims, ravel, view


def _product(a: Any, b: Any, room: Any) -> Any:
    """The product of (stacks of) matrices, in memory of the tape."""
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return library_of(a).matmul(a, b, out=room((*stack, a.shape[-2], b.shape[-1]), np.result_type(a.dtype, b.dtype)))


def _matmul_reverse(a: Any, b: Any, da: Any, db: Any, dc: Any, room: Any) -> None:
    if da is not None:
        add_to(da, _product(dc, adjoint_of(b), room))
    if db is not None:
        add_to(db, _product(adjoint_of(a), dc, room))


@rule(
    reads=("a", "b"),
    overwrites=("c",),
    needs={"a": ("before", "b"), "b": ("before", "a")},
    reverse=_matmul_reverse,
    linear=(("a",), ("b",)),
)
def _matmul(a: Any, b: Any, c: Any) -> None:
    library_of(c).matmul(a, b, out=c)


def _products(operation: Ruled) -> list[int]:
    """Bytes of the products that the reverse of one forms: of the shapes of what it adds to, in as many stacks as the result has."""
    c = operation.operands["c"].array
    stacks = math.prod(c.shape[:-2])
    shapes = [o.array.shape[-2:] for n in ("a", "b") if (o := operation.operands[n]).shadow is not None]
    factor = [c.shape[-2:]] if "alpha" in operation.actives else []
    return [stacks * math.prod(shape) * int(c.dtype.itemsize) for shape in [*shapes, *factor]]


_matmul.rooms = _products


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """Product of matrices (..., m, k) and (..., k, n), or vectors (k,), as `numpy.matmul`. Where `out` overlaps an operand, that one is
    copied first. One of the two may be a constant sparse matrix."""
    check_recorded("matmul", (a, b, out))
    if is_sparse(a) or is_sparse(b):
        found = product_with(a, b) if is_sparse(a) else transposed(product_with(b.T, transposed(a)))
        return found if out is None else apply("copyto", found, out=out)
    one, two = array_of("matmul", a), array_of("matmul", b)
    shape, dtype = _matmul_shape("matmul", tuple(one.shape), tuple(two.shape)), np.result_type(one.dtype, two.dtype)
    if out is None:
        out = result_for((a, b), shape, dtype)
    check_out("matmul", out, shape, dtype)
    a, b, c = are_disjoint(a, primal_of(out)), are_disjoint(b, primal_of(out)), out
    if one.ndim == 1:
        a, c = view(a, lambda p: p[None, :]), view(c, lambda p: p[..., None, :] if two.ndim > 1 else p[..., None])
    if two.ndim == 1:
        b, c = view(b, lambda p: p[:, None]), view(c, lambda p: p[..., None])
    _matmul(a, b, c)
    return out


def transposed(x: Any) -> Any:
    """A matrix with its axes exchanged; a vector as it is."""
    return view(x, lambda p: p.T)


def _matmul_shape(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a product; ValueError where the operands do not fit."""
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
        raise ArgumentValueError(f"{name}: matrices of shapes {a} and {b} do not fit")
    try:
        stack = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ArgumentValueError(f"{name}: stacks of matrices of shapes {a} and {b} do not fit") from None
    return (*stack, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _gemm_reverse(
    alpha: Any, a: Any, b: Any, beta: Any, c: Any, dalpha: Any, da: Any, db: Any, dbeta: Any, dc: Any, dc_before: Any, room: Any
) -> None:
    if da is not None:
        add_to(da, _scaled(_product(dc, adjoint_of(b), room), alpha))
    if db is not None:
        add_to(db, _scaled(_product(adjoint_of(a), dc, room), alpha))
    if dalpha is not None:
        _add_inner(dalpha, _product(a, b, room), dc)
    if dbeta is not None:
        _add_inner(dbeta, c, dc)
    if dc_before is not None and beta != 0:
        dc *= np.conj(beta)
        dc_before += dc


def _scaled(value: Any, factor: Any) -> Any:
    value *= np.conj(factor)
    return value


def _add_inner(target: NdArray, x: Any, dx: Any) -> None:
    """Adds what the factor of `x` gets: of a real factor the real part."""
    add_to(target, (dx * x.conj()).sum().reshape(target.shape))


@rule(
    reads=("alpha", "a", "b", "beta", "c"),
    overwrites=("c",),
    needs={"a": ("before", "b", "alpha"), "b": ("before", "a", "alpha"), "c": ("before", "beta")},
    reverse=_gemm_reverse,
)
def _gemm(alpha: Any, a: Any, b: Any, beta: Any, c: Any, room: Any = None) -> None:
    product = library_of(c).matmul(a, b, out=c if beta == 0 else room(c.shape, c.dtype))
    product *= alpha
    if beta != 0:
        c *= beta
        c += product


_gemm.rooms = _products


def gemm(alpha: Any, a: Any, b: Any, beta: Any, c: Any) -> Any:
    """C <- alpha A B + beta C, for matrices (..., m, k), (..., k, n), (..., m, n); alpha and beta are numbers or Active. With beta = 0 what
    C held does not matter, not even NaN. Where C overlaps A or B, that one is copied first. Gives C."""
    check_recorded("gemm", (alpha, a, b, beta, c))
    one, two, target = (array_of("gemm", x) for x in (a, b, c))
    if any(x.ndim < 2 for x in (one, two, target)):
        raise ArgumentValueError(
            f"gemm takes matrices, not arrays of shapes {tuple(one.shape)}, {tuple(two.shape)} and {tuple(target.shape)}"
        )
    check_out("gemm", c, _matmul_shape("gemm", tuple(one.shape), tuple(two.shape)), np.result_type(one.dtype, two.dtype))
    _gemm(_scalar("alpha", alpha, target.dtype), are_disjoint(a, target), are_disjoint(b, target), _scalar("beta", beta, target.dtype), c)
    return c


def _scalar(name: str, x: Any, dtype: Any) -> Any:
    """A number in the type of the arrays. TypeError for what is no number, UnsupportedError for a complex one with real arrays, ShadowError
    for one with a real shadow."""
    value = x.value if isinstance(x, Active) else x
    if not isinstance(value, bool | int | float | complex | np.generic | np.ndarray) or np.ndim(value) > 0:
        raise ArgumentTypeError(
            f"gemm: {name} is a number or an Active, not {type(x).__name__}; multiply by an array before: gemm(1.0, x * a, ...)"
        )
    if dtype.kind != "c" and np.iscomplexobj(value):
        raise UnsupportedError("gpuad.ops.gemm: a complex factor of real matrices; make them complex")
    if isinstance(x, Active) and np.iscomplexobj(x.value) and not np.iscomplexobj(x.shadow):
        raise ShadowError("gpuad.ops.gemm: a complex Active number has a real shadow, which would drop half of its gradient")
    return Active(dtype.type(x.value), x.shadow) if isinstance(x, Active) else dtype.type(x)


def _solve_reverse(a: Any, x: Any, da: Any, db: Any, dx: Any, lower: bool, trans: int, unit: bool) -> None:
    library = library_of(dx)
    grown = library.linalg.solve(adjoint_of(_system(a, lower, trans, unit)), dx[:, None] if dx.ndim == 1 else dx)
    if db is not None:
        add_to(db, grown[:, 0] if dx.ndim == 1 else grown)
    if da is not None:
        outer = -(grown @ adjoint_of(x[:, None] if dx.ndim == 1 else x))
        outer = (outer, outer.swapaxes(-1, -2), adjoint_of(outer))[trans]
        add_to(da, _part(outer, lower, -1 if unit else 0))


@rule(reads=("a", "b"), overwrites=("x",), needs={"a": "before", "x": ("after", "a")}, reverse=_solve_reverse)
def _solve(a: Any, b: Any, x: Any, lower: bool, trans: int, unit: bool) -> None:
    solved = library_of(a).linalg.solve(_system(a, lower, trans, unit), b[:, None] if b.ndim == 1 else b)
    x[...] = solved[:, 0] if b.ndim == 1 else solved


def _part(a: Any, lower: bool, inside: int) -> Any:
    """The lower or upper triangle, with its diagonal or (-1) without it."""
    return library_of(a).tril(a, inside) if lower else library_of(a).triu(a, -inside)


def _system(a: Any, lower: bool, trans: int, unit: bool) -> Any:
    """The matrix of the system that is solved."""
    part = _part(a, lower, -1) + library_of(a).eye(a.shape[-1], dtype=a.dtype) if unit else _part(a, lower, 0)
    return (part, part.swapaxes(-1, -2), adjoint_of(part))[trans]


_TRANS = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}


def solve_triangular(a: Any, b: Any, lower: bool = False, trans: int | str = 0, out: Any = None, unit_diagonal: bool = False) -> Any:
    """Solves `a x = b` for a triangular matrix (n, n) and b of shape (n,) or (n, k), as `scipy.linalg.solve_triangular`; `trans` 1 or "T"
    solves the transposed system, 2 or "C" the adjoint one. The other triangle is not read and gets no gradient, nor does a unit diagonal.
    `out` may be `b`."""
    check_recorded("solve_triangular", (a, b, out))
    one, two = array_of("solve_triangular", a), array_of("solve_triangular", b)
    if one.ndim != 2 or one.shape[0] != one.shape[1] or two.ndim not in (1, 2) or two.shape[0] != one.shape[0]:
        raise ArgumentValueError(
            f"solve_triangular: a matrix (n, n) and b of shape (n,) or (n, k), not {tuple(one.shape)} and {tuple(two.shape)}"
        )
    if not any(trans == known for known in _TRANS):
        raise ArgumentValueError(f"solve_triangular: trans is 0, 1, 2, 'N', 'T' or 'C', not {brief(trans)}")
    dtype = np.result_type(one.dtype, two.dtype, np.float32)
    if out is None:
        out = result_for((a, b), two.shape, dtype)
    check_out("solve_triangular", out, two.shape, dtype)
    _solve(are_disjoint(a, primal_of(out)), are_disjoint(b, primal_of(out)), out, bool(lower), _TRANS[trans], bool(unit_diagonal))
    return out


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """The product of two vectors, matrices, or of a matrix and a vector, as `numpy.dot`; of a number and an array their product."""
    one, two = primal_of(a), primal_of(b)
    if min(getattr(one, "ndim", 0), getattr(two, "ndim", 0)) == 0:
        return apply("multiply", a, b, out=out)
    if max(one.ndim, two.ndim) > 2:
        raise UnsupportedError("gpuad.ops.dot takes vectors and matrices; use matmul or einsum")
    return matmul(a, b, out=out)


def outer(a: Any, b: Any, out: Any = None) -> Any:
    """The products of all elements of `a` with all of `b`, a matrix (a.size, b.size), as `numpy.outer`."""
    return apply("multiply", expand_dims(ravel(a), 1), ravel(b), out=out)

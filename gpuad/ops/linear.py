"""Matrix products and solves, as rules: what each reverse reads depends on which gradients are asked for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ..annotations import Active, Duplicated, namespace
from ..errors import UnsupportedError
from ..program.rules import rule
from .elementwise import apart, check_out, check_recorded
from .layout import primal_of
from .reductions import result_for


def _h(a: Any) -> Any:
    """The adjoint of each matrix of a stack."""
    return a.swapaxes(-1, -2).conj() if a.dtype.kind == "c" else a.swapaxes(-1, -2)


def _add_to(target: Any, value: Any) -> None:
    """Adds a value to a shadow, summed over the axes along which the primal was broadcast; of a real primal the real part."""
    extra = value.ndim - target.ndim
    value = value.sum(axis=tuple(range(extra))) if extra else value
    gone = tuple(i for i, (n, m) in enumerate(zip(target.shape, value.shape, strict=True)) if n != m)
    value = value.sum(axis=gone, keepdims=True) if gone else value
    target += value.real if value.dtype.kind == "c" and target.dtype.kind != "c" else value


def _product(a: Any, b: Any, room: Any) -> Any:
    """The product of (stacks of) matrices, in memory of the tape."""
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return namespace(a).matmul(a, b, out=room((*stack, a.shape[-2], b.shape[-1]), np.result_type(a.dtype, b.dtype)))


def _matmul_reverse(a: Any, b: Any, da: Any, db: Any, dc: Any, room: Any) -> None:
    if da is not None:
        _add_to(da, _product(dc, _h(b), room))
    if db is not None:
        _add_to(db, _product(_h(a), dc, room))


@rule(reads=("a", "b"), overwrites=("c",), needs={"a": ("before", "b"), "b": ("before", "a")}, reverse=_matmul_reverse)
def _matmul(a: Any, b: Any, c: Any) -> None:
    namespace(c).matmul(a, b, out=c)


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """Product of matrices (..., m, k) and (..., k, n), or vectors (k,), as `numpy.matmul`. Where `out` overlaps an operand, that one is
    copied first."""
    check_recorded("matmul", (a, b, out))
    one, two = primal_of(a), primal_of(b)
    shape, dtype = _matmul_shape(tuple(one.shape), tuple(two.shape)), np.result_type(one.dtype, two.dtype)
    if out is None:
        out = result_for((a, b), shape, dtype)
    check_out("matmul", out, shape, dtype)
    a, b, c = apart(a, primal_of(out)), apart(b, primal_of(out)), out
    if one.ndim == 1:
        a, c = a[None, :], c[..., None, :] if two.ndim > 1 else c[..., None]
    if two.ndim == 1:
        b, c = b[:, None], c[..., None]
    _matmul(a, b, c)
    return out


def _matmul_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a product; ValueError where the operands do not fit."""
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
        raise ValueError(f"matmul: matrices of shapes {a} and {b} do not fit")
    return (*np.broadcast_shapes(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _gemm_reverse(
    alpha: Any, a: Any, b: Any, beta: Any, c: Any, dalpha: Any, da: Any, db: Any, dbeta: Any, dc: Any, dc_before: Any, room: Any
) -> None:
    if da is not None:
        _add_to(da, _scaled(_product(dc, _h(b), room), alpha))
    if db is not None:
        _add_to(db, _scaled(_product(_h(a), dc, room), alpha))
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


def _add_inner(target: Any, x: Any, dx: Any) -> None:
    """Adds what the factor of `x` gets: of a real factor the real part."""
    _add_to(target, (dx * x.conj()).sum().reshape(target.shape))


@rule(
    reads=("alpha", "a", "b", "beta", "c"),
    overwrites=("c",),
    needs={"a": ("before", "b", "alpha"), "b": ("before", "a", "alpha"), "c": ("before", "beta")},
    reverse=_gemm_reverse,
)
def _gemm(alpha: Any, a: Any, b: Any, beta: Any, c: Any, room: Any = None) -> None:
    product = namespace(c).matmul(a, b, out=c if beta == 0 else room(c.shape, c.dtype))
    product *= alpha
    if beta != 0:
        c *= beta
        c += product


def gemm(alpha: Any, a: Any, b: Any, beta: Any, c: Any) -> Any:
    """C <- alpha A B + beta C, for matrices (..., m, k), (..., k, n), (..., m, n); alpha and beta are numbers or Active. With beta = 0 what
    C held does not matter, not even NaN. Where C overlaps A or B, that one is copied first. Gives C."""
    check_recorded("gemm", (alpha, a, b, beta, c))
    one, two, target = primal_of(a), primal_of(b), primal_of(c)
    if any(x.ndim < 2 for x in (one, two, target)):
        raise ValueError("gemm takes matrices")
    check_out("gemm", c, _matmul_shape(tuple(one.shape), tuple(two.shape)), np.result_type(one.dtype, two.dtype))
    _gemm(_scalar(alpha, target.dtype), apart(a, target), apart(b, target), _scalar(beta, target.dtype), c)
    return c


def _scalar(x: Any, dtype: Any) -> Any:
    """A number in the type of the arrays."""
    return Active(dtype.type(x.value), x.shadow) if isinstance(x, Active) else dtype.type(x)


def _solve_reverse(a: Any, x: Any, da: Any, db: Any, dx: Any, lower: bool, trans: bool) -> None:
    library = namespace(dx)
    vector = dx.ndim == 1
    grown = library.linalg.solve(_h(_triangle(a, lower, trans)), dx[:, None] if vector else dx)
    if db is not None:
        db += grown[:, 0] if vector else grown
    if da is not None:
        outer = -(grown @ _h(x[:, None] if vector else x))
        da += _triangle(outer.swapaxes(-1, -2) if trans else outer, lower, False)


@rule(reads=("a", "b"), overwrites=("x",), needs={"a": "before", "x": ("after", "a")}, reverse=_solve_reverse)
def _solve(a: Any, b: Any, x: Any, lower: bool, trans: bool) -> None:
    library = namespace(a)
    solved = library.linalg.solve(_triangle(a, lower, trans), b[:, None] if b.ndim == 1 else b)
    x[...] = solved[:, 0] if b.ndim == 1 else solved


def _triangle(a: Any, lower: bool, trans: bool) -> Any:
    part = namespace(a).tril(a) if lower else namespace(a).triu(a)
    return part.swapaxes(-1, -2) if trans else part


def solve_triangular(a: Any, b: Any, lower: bool = False, trans: bool = False, out: Any = None) -> Any:
    """Solves `a x = b` (with `trans` the transposed system) for a real triangular matrix (n, n) and b of shape (n,) or (n, k), as
    `scipy.linalg.solve_triangular`. The other triangle is not read and gets no gradient. `out` overlaps neither."""
    check_recorded("solve_triangular", (a, b, out))
    one, two = primal_of(a), primal_of(b)
    if one.dtype.kind == "c" or two.dtype.kind == "c":
        raise UnsupportedError("solve_triangular takes real matrices")
    if out is None:
        out = result_for((a, b), two.shape, np.result_type(one.dtype, two.dtype))
    _solve(a, b, out, bool(lower), bool(trans))
    return out


# --- einsum --------------------------------------------------------------------------------------------------------------------------


def _einsum_reverse(a: Any, b: Any, da: Any, db: Any, dc: Any, first: str, second: str, result: str) -> None:
    if da is not None:
        _add_term(da, first, dc, result, b, second)
    if db is not None:
        _add_term(db, second, dc, result, a, first)


def _add_term(target: Any, letters: str, dc: Any, result: str, other: Any, others: str) -> None:
    """The gradient of one operand: over letters that neither the result nor the other operand has, it is constant."""
    kept = "".join(letter for letter in letters if letter in result + others)
    value = namespace(dc).einsum(f"{result},{others}->{kept}", dc, other.conj())
    shape = tuple(n if letter in kept else 1 for letter, n in zip(letters, target.shape, strict=True))
    _add_to(target, namespace(dc).broadcast_to(value.reshape(shape), target.shape))


@rule(reads=("a", "b"), overwrites=("c",), needs={"a": ("before", "b"), "b": ("before", "a")}, reverse=_einsum_reverse)
def _einsum(a: Any, b: Any, c: Any, first: str, second: str, result: str) -> None:
    c[...] = namespace(a).einsum(f"{first},{second}->{result}", a, b)


def einsum(subscripts: str, *operands: Any, out: Any = None) -> Any:
    """`numpy.einsum` of one or two operands. UnsupportedError for more, for `...`, and for a letter twice in one operand."""
    check_recorded("einsum", (*operands, out))
    inputs, result = _parsed(subscripts, len(operands))
    if len(operands) == 1:
        operands, inputs = (*operands, namespace(primal_of(operands[0])).ones((), primal_of(operands[0]).dtype)), [*inputs, ""]
    sizes = {k: n for x, s in zip(operands, inputs, strict=True) for k, n in zip(s, primal_of(x).shape, strict=True)}
    if out is None:
        dtype = np.result_type(*(primal_of(x).dtype for x in operands))
        out = result_for(operands, tuple(sizes[k] for k in result), dtype)
    _einsum(*operands, out, *inputs, result)
    return out


def _parsed(subscripts: str, count: int) -> tuple[list[str], str]:
    text = subscripts.replace(" ", "")
    if "..." in text:
        raise UnsupportedError("einsum with `...` is not differentiated; name the axes")
    left, arrow, result = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != count or count > 2:
        raise UnsupportedError(f"einsum of {count} operands by {subscripts!r}; gpuad.ops.einsum takes one or two, chain the products")
    if any(len(set(s)) != len(s) for s in (*inputs, result)):
        raise UnsupportedError(f"einsum {subscripts!r}: a letter occurs twice in one operand; take the diagonal by an index array")
    counts = Counter("".join(inputs))
    return inputs, result if arrow else "".join(sorted(k for k, n in counts.items() if n == 1))


__all__ = ["Duplicated", "einsum", "gemm", "matmul", "solve_triangular"]

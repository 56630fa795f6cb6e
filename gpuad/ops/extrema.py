"""Greatest and least elements, products, variances, norms.

In: an array, annotated or not, and axes as NumPy takes them (all by default). Out: an array or pair without these axes, or with `keepdims`
with length 1. The gradient of `max` and `min` goes to the first element that attains the value (a subgradient); that of `prod` is the
product of the other elements, by cumulative products from both sides, so that zeros need no division. `var`, `std` and `norm` are composed
of recorded operations, the variance in two passes, mean first.

Raises ValueError for the extremum of no elements, UnsupportedError for complex arrays (`max`, `min`, `var`, `std`) and for norms other than
of order 2, TapeError for a pair outside of a tape. `std` and `norm` are not differentiable where they are 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ArgumentValueError, UnsupportedError
from ..public_calls import brief
from ..tape.rules import rule
from .adjoints import add_to, from_rows, in_rows, library_of
from .elementwise import apply, are_disjoint
from .layout import array_of, primal_of
from .reductions import Axis, mean, reduced_axes, reduction_result, sum, total_type


def _extreme_reverse(x: Any, dx: Any, dy: Any, axes: tuple[int, ...], name: str) -> None:
    """All goes to the element that was chosen, of equal ones to the first."""
    if dx is None:
        return
    library, rows = library_of(x), in_rows(x, axes)
    chosen = getattr(rows, f"arg{name}")(axis=1)
    given = library.zeros(rows.shape, dy.dtype)
    given[library.arange(rows.shape[0]), chosen] = dy.reshape(-1)
    add_to(dx, from_rows(given, x.shape, axes))


def _extreme_tangent(x: Any, dx: Any, dy: Any, axes: tuple[int, ...], name: str) -> None:
    rows = in_rows(x, axes)
    chosen = getattr(rows, f"arg{name}")(axis=1)
    dy[...] = in_rows(dx, axes)[library_of(x).arange(rows.shape[0]), chosen].reshape(dy.shape)


@rule(reads=("x",), overwrites=("y",), needs={"x": "before"}, reverse=_extreme_reverse, tangent=_extreme_tangent)
def _extreme(x: Any, y: Any, axes: tuple[int, ...], name: str) -> None:
    y[...] = getattr(x, name)(axis=axes).reshape(y.shape)


def _prod_reverse(x: Any, dx: Any, dy: Any, axes: tuple[int, ...]) -> None:
    """Each element gets the product of the others, without a division: elements may be 0. Formed in the type of the result, whose range
    may be wider than that of the elements."""
    if dx is None:
        return
    library, rows = library_of(x), in_rows(x, axes)
    kind = np.result_type(dx.dtype, dy.dtype)
    others = library.ones(rows.shape, kind)
    others[:, 1:] = library.cumprod(rows[:, :-1], axis=1, dtype=kind)
    others[:, :-1] *= library.flip(library.cumprod(library.flip(rows[:, 1:], 1), axis=1, dtype=kind), 1)
    add_to(dx, from_rows(dy.reshape(-1, 1) * others.conj(), x.shape, axes))


@rule(reads=("x",), overwrites=("y",), needs={"x": "before"}, reverse=_prod_reverse)
def _prod(x: Any, y: Any, axes: tuple[int, ...]) -> None:
    y[...] = x.prod(axis=axes, dtype=y.dtype).reshape(y.shape)


def max(x: Any, axis: Axis = None, out: Any = None, keepdims: bool = False) -> Any:
    """The greatest element over `axis` (all by default), as `numpy.max`; NaN if there is one. Of equal ones the first gets the gradient."""
    return _chosen("max", x, axis, out, keepdims)


def min(x: Any, axis: Axis = None, out: Any = None, keepdims: bool = False) -> Any:
    """The least element over `axis` (all by default), as `numpy.min`; NaN if there is one. Of equal ones the first gets the gradient."""
    return _chosen("min", x, axis, out, keepdims)


def _chosen(name: str, x: Any, axis: Axis, out: Any, keepdims: bool) -> Any:
    primal = array_of(name, x)
    axes = reduced_axes(name, axis, primal.ndim)
    if primal.dtype.kind == "c":
        raise UnsupportedError(f"gpuad.ops.{name} takes real arrays")
    if math.prod(primal.shape[a] for a in axes) == 0:
        raise ArgumentValueError(f"{name} of no elements")
    out = reduction_result(name, x, axes, primal.dtype, out, keepdims)
    _extreme(are_disjoint(x, primal_of(out)), out, axes, name)
    return out


def prod(x: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """The product over `axis` (all by default), as `numpy.prod`."""
    primal = array_of("prod", x)
    axes = reduced_axes("prod", axis, primal.ndim)
    out = reduction_result("prod", x, axes, dtype or total_type(primal.dtype, False), out, keepdims)
    _prod(are_disjoint(x, primal_of(out)), out, axes)
    return out


def var(x: Any, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The variance over `axis` (all by default), as `numpy.var`: over the number of elements less `ddof`."""
    primal = array_of("var", x)
    if primal.dtype.kind == "c":
        raise UnsupportedError("gpuad.ops.var takes real arrays")
    count = math.prod(primal.shape[a] for a in reduced_axes("var", axis, primal.ndim))
    squares = apply("square", apply("subtract", x, mean(x, axis, dtype, keepdims=True)))
    found = mean(squares, axis, dtype, out, keepdims)
    return found if ddof == 0 else apply("multiply", found, count / (count - ddof) if count != ddof else math.nan, out=found)


def std(x: Any, axis: Axis = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The standard deviation over `axis` (all by default), as `numpy.std`; not differentiable where it is 0."""
    found = var(x, axis, dtype, out, ddof, keepdims)
    return apply("sqrt", found, out=found)


def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Any:
    """The root of the sum of squares over `axis` (all by default), as `numpy.linalg.norm` has it for vectors and, with `ord` None or
    "fro", for matrices; not differentiable where it is 0."""
    if ord not in (None, "fro") and not (ord == 2 and len(reduced_axes("norm", axis, array_of("norm", x).ndim)) == 1):
        raise UnsupportedError(f"gpuad.ops.norm: ord={brief(ord)} is not differentiated")
    size = apply("absolute", x) if array_of("norm", x).dtype.kind == "c" else x
    axes = None if axis is None else reduced_axes("norm", axis, array_of("norm", x).ndim)
    found = sum(apply("square", size), axis=axes, keepdims=keepdims)
    return apply("sqrt", found, out=found)

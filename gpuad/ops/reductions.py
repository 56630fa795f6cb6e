"""Sums, means, cumulative sums and sorting, as rules.

In: an array, annotated or not, with axes, dtype and `out` as NumPy takes them. Out: an array or pair of the dtype that NumPy gives. The
reverse of a sum broadcasts the gradient over the reduced axes, that of a cumulative sum is the cumulative sum from the other end, that of a
sort is the inverse permutation. Only the sort's reverse reads a value: the array from before.

Means of halves are summed in float32. Sorts of NumPy arrays are stable. Raises TypeError where an integer result would drop a gradient,
UnsupportedError where a dtype would drop imaginary parts or round a mean, TapeError for a pair outside of a tape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import Duplicated
from ..errors import ArgumentTypeError, UnsupportedError
from ..ir.dtypes import is_half, is_real
from ..tape.rules import rule
from .adjoints import add_to, library_of, part_for
from .elementwise import apply, are_disjoint, check_out, check_recorded
from .layout import array_of, axes_of, axis_of, primal_of
from .temporaries import carried, new_array, temporary
from .views import reshape

Axis = int | Sequence[int] | None


def result_for(inputs: tuple[Any, ...], shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array for a rule's result; a pair if an input is one."""
    first = next(primal_of(x) for x in inputs if hasattr(primal_of(x), "shape"))
    array = new_array(first, shape, dtype, active=carried(inputs))
    return temporary(array) if any(isinstance(x, Duplicated) for x in inputs) else array


def reduced_axes(name: str, axis: Axis, ndim: int) -> tuple[int, ...]:
    """The axes of a reduction. An array of shape () may be reduced over axis 0 or -1, as in NumPy."""
    return axes_of(name, axis, ndim) if ndim or axis is None else axes_of(name, axis, 1)[:0]


def reduced(shape: Sequence[int], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """The shape after a reduction."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def _sum_reverse(dx: Any, dy: Any, axes: tuple[int, ...], scale: float) -> None:
    if dx is not None:
        kept = tuple(1 if i in axes else n for i, n in enumerate(dx.shape))
        dx += part_for(dx, (dy if scale == 1.0 else dy * dy.dtype.type(scale)).reshape(kept))


@rule(reads=("x",), overwrites=("y",), reverse=_sum_reverse, linear=(("x",),))
def _sum(x: Any, y: Any, axes: tuple[int, ...], scale: float) -> None:
    kind = np.dtype(np.float32) if scale != 1.0 and is_half(y.dtype) else y.dtype  # what a mean is made of may be beyond a half
    if kind == y.dtype and isinstance(y, np.ndarray):  # as below, without an array between
        library_of(y).add.reduce(x, axis=axes, dtype=kind, out=y, keepdims=x.ndim == y.ndim)
        if scale != 1.0:
            np.multiply(y, kind.type(scale), out=y)
        return
    total = x.sum(axis=axes, dtype=kind).reshape(y.shape)
    y[...] = total if scale == 1.0 else total * kind.type(scale)


def sum(x: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Sum over `axis` (all by default), as `numpy.sum`; an array of shape () for a sum over all."""
    return _reduce("sum", x, axis, dtype, out, keepdims, 1.0)


def mean(x: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Mean over `axis` (all by default), as `numpy.mean`."""
    shape = array_of("mean", x).shape
    count = math.prod(shape[a] for a in reduced_axes("mean", axis, len(shape)))
    return _reduce("mean", x, axis, dtype, out, keepdims, 1.0 / count if count else math.nan)


def _reduce(name: str, x: Any, axis: Axis, dtype: Any, out: Any, keepdims: bool, scale: float) -> Any:
    primal = array_of(name, x)
    axes = reduced_axes(name, axis, primal.ndim)
    out = reduction_result(name, x, axes, dtype or total_type(primal.dtype, name == "mean"), out, keepdims)
    _sum(are_disjoint(x, primal_of(out)), out, axes, scale)
    return out


def reduction_result(name: str, x: Any, axes: tuple[int, ...], dtype: Any, out: Any, keepdims: bool) -> Any:
    """Where a reduction goes: into `out`, if that fits, or into a new array."""
    check_recorded(name, (x, out))
    check_carried(name, x, dtype)
    shape = reduced(primal_of(x).shape, axes, keepdims)
    if out is None:
        return result_for((x,), shape, dtype)
    check_out(name, out, shape, dtype)
    return out


def check_carried(name: str, x: Any, dtype: Any) -> None:
    """A sum of integers made of floats has a derivative of 0 almost everywhere, which is hardly what was meant: TypeError. Neither are
    imaginary parts dropped, nor means made of integers: UnsupportedError."""
    kind = np.dtype(dtype).kind
    if isinstance(x, Duplicated) and kind not in "fc":
        raise ArgumentTypeError(f"{name}: a result of {np.dtype(dtype)} would drop the gradient of x; reduce `.primal` for that")
    if primal_of(x).dtype.kind == "c" and kind != "c":
        raise UnsupportedError(f"{name}: dtype={np.dtype(dtype)} would drop imaginary parts; reduce `.real` for that")
    if name == "mean" and kind in "biu":
        raise UnsupportedError(f"mean: dtype={np.dtype(dtype)} rounds to integers; take the mean in floats")


def total_type(dtype: Any, mean: bool) -> Any:
    """The type of a sum or mean, as NumPy has it."""
    if dtype.kind == "c" or is_real(dtype):
        return dtype
    return np.float64 if mean else np.uint64 if dtype.kind == "u" else np.int64


def _cumsum_reverse(dx: Any, dy: Any, axis: int) -> None:
    if dx is not None:
        add_to(dx, library_of(dy).flip(library_of(dy).cumsum(library_of(dy).flip(dy, axis), axis), axis))


@rule(reads=("x",), overwrites=("y",), reverse=_cumsum_reverse, linear=(("x",),))
def _cumsum(x: Any, y: Any, axis: int) -> None:
    y[...] = library_of(x).cumsum(x, axis, dtype=y.dtype)


def cumsum(x: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Cumulative sum along an axis, as `numpy.cumsum`; without an axis of the flat array. `out` may be `x` itself."""
    check_recorded("cumsum", (x, out))
    array_of("cumsum", x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    primal = primal_of(x)
    axis, dtype = axis_of("cumsum", axis, primal.ndim), np.dtype(dtype or total_type(primal.dtype, False))
    check_carried("cumsum", x, dtype)
    if out is None:
        out = result_for((x,), primal.shape, dtype)
    check_out("cumsum", out, primal.shape, dtype)
    _cumsum(are_disjoint(x, primal_of(out)), out, axis)
    return out


def _sort_reverse(x: Any, dx: Any, dx_before: Any, axis: int) -> None:
    if dx_before is not None:
        order = _order(x, axis)
        back = library_of(x).argsort(order, axis=axis)
        dx_before += library_of(x).take_along_axis(dx, back, axis)


@rule(reads=("x",), overwrites=("x",), needs={"x": "before"}, reverse=_sort_reverse)
def _sort(x: Any, axis: int) -> None:
    x[...] = library_of(x).take_along_axis(x, _order(x, axis), axis)


def _order(x: Any, axis: int) -> Any:
    return library_of(x).argsort(x, axis=axis, **({"kind": "stable"} if library_of(x) is np else {}))


def sort(x: Any, axis: int = -1, *, out: Any = None) -> Any:
    """Sorts along an axis into `out` (a new array by default; `out=x` sorts in place). Equal elements keep their order, so each gets its
    own gradient."""
    check_recorded("sort", (x, out))
    primal = array_of("sort", x)
    axis = axis_of("sort", axis, primal.ndim)
    if out is None:
        out = result_for((x,), primal.shape, primal.dtype)
    check_out("sort", out, primal.shape, primal.dtype)
    if out is not x:
        apply("copyto", x, out=out)
    _sort(out, axis)
    return out

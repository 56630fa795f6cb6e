"""Sums, means, cumulative sums and sorting, as rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..annotations import Duplicated, namespace
from ..program.rules import rule
from .elementwise import apply, check_recorded
from .layout import primal_of
from .temporaries import new_array, temporary

Axis = int | tuple[int, ...] | None


def result_for(inputs: tuple[Any, ...], shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array for a rule's result; a pair if an input is one."""
    first = next(primal_of(x) for x in inputs if hasattr(primal_of(x), "shape"))
    array = new_array(first, shape, dtype)
    return temporary(array) if any(isinstance(x, Duplicated) for x in inputs) else array


def _sum_reverse(dx: Any, dy: Any, axis: Axis, scale: float) -> None:
    if dx is not None:
        dx += (dy * dy.dtype.type(scale)).reshape(kept_shape(dx.shape, axis))


@rule(reads=("x",), overwrites=("y",), reverse=_sum_reverse)
def _sum(x: Any, y: Any, axis: Axis, scale: float) -> None:
    total = x.sum(axis=axis, dtype=y.dtype).reshape(y.shape)
    y[...] = total if scale == 1.0 else total * y.dtype.type(scale)


def kept_shape(shape: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """The shape after a reduction that keeps its axes with length 1."""
    gone = range(len(shape)) if axis is None else [a % len(shape) for a in ((axis,) if isinstance(axis, int) else axis)]
    return tuple(1 if i in gone else n for i, n in enumerate(shape))


def sum(x: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Sum over `axis` (all by default), as `numpy.sum`; an array of shape () for a sum over all."""
    return _reduce("sum", x, axis, dtype, out, keepdims, 1.0)


def mean(x: Any, axis: Axis = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Mean over `axis` (all by default), as `numpy.mean`."""
    shape = primal_of(x).shape
    kept = kept_shape(shape, axis)
    count = int(np.prod([n for n, k in zip(shape, kept, strict=True) if k == 1], dtype=np.int64))
    return _reduce("mean", x, axis, dtype, out, keepdims, 1.0 / max(count, 1))


def _reduce(name: str, x: Any, axis: Axis, dtype: Any, out: Any, keepdims: bool, scale: float) -> Any:
    check_recorded(name, (x, out))
    primal = primal_of(x)
    kept = kept_shape(primal.shape, axis)
    gone = {a % len(kept) for a in ((axis,) if isinstance(axis, int) else axis)} if axis is not None else set(range(len(kept)))
    shape = kept if keepdims else tuple(n for i, n in enumerate(kept) if i not in gone)
    if out is None:
        out = result_for((x,), shape, dtype or _total_type(primal.dtype, name == "mean"))
    elif tuple(primal_of(out).shape) != shape:
        raise ValueError(f"{name}: out has shape {tuple(primal_of(out).shape)}, the result {shape}")
    _sum(x, out, axis, scale)
    return out


def _total_type(dtype: Any, mean: bool) -> Any:
    """The type of a sum or mean, as NumPy has it."""
    if dtype.kind in "fc":
        return dtype
    return np.float64 if mean else np.uint64 if dtype.kind == "u" else np.int64


def _cumsum_reverse(dx: Any, dy: Any, axis: int) -> None:
    if dx is not None:
        dx += namespace(dy).flip(namespace(dy).cumsum(namespace(dy).flip(dy, axis), axis), axis)


@rule(reads=("x",), overwrites=("y",), reverse=_cumsum_reverse)
def _cumsum(x: Any, y: Any, axis: int) -> None:
    y[...] = namespace(x).cumsum(x, axis)


def cumsum(x: Any, axis: int | None = None, out: Any = None) -> Any:
    """Cumulative sum along an axis, as `numpy.cumsum`; without an axis of the flat array. `out` may be `x` itself."""
    check_recorded("cumsum", (x, out))
    if axis is None:
        x, axis = x.reshape(-1), 0
    primal = primal_of(x)
    axis = range(primal.ndim)[axis]
    if out is None:
        out = result_for((x,), primal.shape, primal.dtype)
    return _through(_cumsum, x, out, axis)


def _through(rule_: Any, x: Any, out: Any, axis: int) -> Any:
    """Runs a rule that does not work in place, by way of a temporary where the output overlaps the input."""
    if namespace(primal_of(out)).may_share_memory(primal_of(out), primal_of(x)):
        rule_(x, between := result_for((x,), primal_of(x).shape, primal_of(x).dtype), axis)
        return apply("copyto", between, out=out)
    rule_(x, out, axis)
    return out


def _sort_reverse(x: Any, dx: Any, dx_before: Any, axis: int) -> None:
    if dx_before is not None:
        order = _order(x, axis)
        back = namespace(x).argsort(order, axis=axis)
        dx_before += namespace(x).take_along_axis(dx, back, axis)


@rule(reads=("x",), overwrites=("x",), needs={"x": "before"}, reverse=_sort_reverse)
def _sort(x: Any, axis: int) -> None:
    x[...] = namespace(x).take_along_axis(x, _order(x, axis), axis)


def _order(x: Any, axis: int) -> Any:
    return namespace(x).argsort(x, axis=axis, **({"kind": "stable"} if namespace(x) is np else {}))


def sort(x: Any, axis: int = -1, out: Any = None) -> Any:
    """Sorts along an axis into `out` (a new array by default; `out=x` sorts in place). Equal elements keep their order, so each gets its
    own gradient."""
    check_recorded("sort", (x, out))
    primal = primal_of(x)
    if out is None:
        out = result_for((x,), primal.shape, primal.dtype)
    if out is not x:
        apply("copyto", x, out=out)
    _sort(out, range(primal.ndim)[axis])
    return out

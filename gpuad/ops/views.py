"""Other views of the same elements: of a pair the pair of views. Nothing is computed, so nothing is recorded, inside of a tape or not.

In: an array, annotated or not, and axes or a shape as NumPy takes them. Out: a view annotated the same way, primal and shadows viewed
alike, so that a gradient added to the view's shadow is added to the array's. A plain array may come back as a copy where NumPy copies
(`reshape`, `ravel`); a pair does inside of a tape, where that is recorded.

Raises ShadowError for a pair of which the new shape would need a copy outside of a tape, TypeError for what is no array, AxisError and
ValueError as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import Const, Duplicated
from ..arguments.arrays import resolve
from ..runtime.array_types import NdArray
from .adjoints import library_of
from .layout import array_of, axes_of, axis_of, primal_of


def view(x: Any, take: Callable[[Any], Any]) -> Any:
    """A view of an array, annotated like it."""
    if isinstance(x, Duplicated):
        return x._view(take)
    return type(x)(take(x.primal)) if isinstance(x, Const) else take(x)


def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """The view with its axes in another order, reversed by default."""
    ndim = array_of("transpose", x).ndim
    order = None if axes is None else axes_of("transpose", axes, ndim)
    return view(x, lambda a: a.transpose(order))


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """The view with `axis1` and `axis2` exchanged."""
    ndim = array_of("swapaxes", x).ndim
    one, two = (axis_of("swapaxes", a, ndim) for a in (axis1, axis2))
    return view(x, lambda a: a.swapaxes(one, two))


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """The view with the axes at `source` moved to `destination`, as `numpy.moveaxis`."""
    array_of("moveaxis", x)
    return view(x, lambda a: library_of(a).moveaxis(a, source, destination))


def expand_dims(x: Any, axis: int | Sequence[int]) -> Any:
    """The view with new axes of length 1."""
    count = len(tuple(axis)) if isinstance(axis, Iterable) and not isinstance(axis, str) else 1
    at = axes_of("expand_dims", axis, array_of("expand_dims", x).ndim + count)
    return view(x, lambda a: library_of(a).expand_dims(a, at))


def squeeze(x: Any, axis: Any = None) -> Any:
    """The view without axes of length 1."""
    array_of("squeeze", x)
    return view(x, lambda a: a.squeeze(axis=axis))


def flip(x: Any, axis: Any = None) -> Any:
    """The view with the order of the elements reversed along axes, all by default."""
    along = axes_of("flip", axis, array_of("flip", x).ndim)
    return view(x, lambda a: library_of(a).flip(a, along))


def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """The view of the given `shape` that repeats elements, to be read only; the gradient is summed over what was repeated."""
    array_of("broadcast_to", x)
    return view(x, lambda a: _repeated(a, tuple(shape)))


def _repeated(array: NdArray, shape: tuple[int, ...]) -> Any:
    """NumPy's own would be read-only, and a shadow is added to."""
    if not isinstance(array, np.ndarray):
        return library_of(array).broadcast_to(array, shape)
    strides, memory = np.broadcast_to(array, shape).strides, resolve(array)
    whole: Any = memory.root
    if not array.size:
        return np.empty(shape, array.dtype)
    return np.ndarray(shape, array.dtype, whole, memory.offset * array.dtype.itemsize, strides)


def reshape(x: Any, shape: Any, order: str = "C") -> Any:
    """The view with another shape; of a pair whose strides need a copy a recorded one, outside of a tape ShadowError."""
    array_of("reshape", x)
    return x.reshape(shape, order=order) if isinstance(x, Duplicated) else view(x, lambda a: a.reshape(shape, order=order))


def ravel(x: Any, order: str = "C") -> Any:
    """The flat view; of a pair whose strides need a copy a recorded one, outside of a tape ShadowError."""
    array_of("ravel", x)
    return x.ravel(order) if isinstance(x, Duplicated) else view(x, lambda a: a.ravel(order))


def real(x: Any) -> Any:
    """The real parts, as a view; the array itself if it is real."""
    return x if array_of("real", x).dtype.kind != "c" else view(x, lambda a: a.real)


def imag(x: Any) -> Any:
    """The imaginary parts of a complex array, as a view; of a real one zeros, plain and read-only, as `numpy.imag`."""
    return view(x, lambda a: a.imag) if array_of("imag", x).dtype.kind == "c" else primal_of(x).imag

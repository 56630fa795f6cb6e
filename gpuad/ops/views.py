"""Other views of the same elements: of a pair the pair of views. Nothing is computed, so nothing is recorded, inside of a tape or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..annotations import Const, Duplicated, resolve
from .adjoints import library_of


def view(x: Any, take: Callable[[Any], Any]) -> Any:
    """A view of an array, annotated like it."""
    if isinstance(x, Duplicated):
        return x._view(take)
    return type(x)(take(x.primal)) if isinstance(x, Const) else take(x)


def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """The view with its axes in another order, reversed by default."""
    return view(x, lambda a: a.transpose() if axes is None else a.transpose(tuple(axes)))


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """The view with two axes exchanged."""
    return view(x, lambda a: a.swapaxes(axis1, axis2))


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """The view with axes moved to other places."""
    return view(x, lambda a: library_of(a).moveaxis(a, source, destination))


def expand_dims(x: Any, axis: int) -> Any:
    """The view with a new axis of length 1."""
    return view(x, lambda a: library_of(a).expand_dims(a, axis))


def squeeze(x: Any, axis: Any = None) -> Any:
    """The view without axes of length 1."""
    return view(x, lambda a: a.squeeze(axis=axis))


def flip(x: Any, axis: Any = None) -> Any:
    """The view with the order of the elements reversed along axes, all by default."""
    return view(x, lambda a: library_of(a).flip(a, axis))


def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """The view that repeats elements, to be read only."""
    return view(x, lambda a: _repeated(a, tuple(shape)))


def _repeated(array: Any, shape: tuple[int, ...]) -> Any:
    """NumPy's own would be read-only, and a shadow is added to."""
    if not isinstance(array, np.ndarray):
        return library_of(array).broadcast_to(array, shape)
    strides, memory = np.broadcast_to(array, shape).strides, resolve(array)
    if not array.size:
        return np.empty(shape, array.dtype)
    return np.ndarray(shape, array.dtype, memory.root, memory.offset * array.dtype.itemsize, strides)


def reshape(x: Any, shape: Any) -> Any:
    """The view with another shape; ShadowError for a pair whose strides would need a copy."""
    return x.reshape(shape) if isinstance(x, Duplicated) else view(x, lambda a: a.reshape(shape))


def ravel(x: Any) -> Any:
    """The flat view; ShadowError for a pair whose strides would need a copy."""
    return x.ravel() if isinstance(x, Duplicated) else view(x, lambda a: a.ravel())


def _dtype(x: Any) -> Any:
    return x.primal.dtype if isinstance(x, Const) else x.dtype


def real(x: Any) -> Any:
    """The real parts, as a view; the array itself if it is real."""
    return x if _dtype(x).kind != "c" else view(x, lambda a: a.real)


def imag(x: Any) -> Any:
    """The imaginary parts of a complex array, as a view. TypeError for a real one."""
    if _dtype(x).kind != "c":
        raise TypeError("a real array has no imaginary parts that are memory")
    return view(x, lambda a: a.imag)

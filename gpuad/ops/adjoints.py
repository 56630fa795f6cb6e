"""What the reverses of rules share. Nothing here knows of gpuad, so that a stored program can carry the text along."""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import numpy as np


def library_of(array: Any) -> Any:
    """The module `numpy` or `cupy`."""
    return np if isinstance(array, np.ndarray) else sys.modules[type(array).__module__.partition(".")[0]]


def scipy_of(array: Any, room: str) -> Any:
    """SciPy's module of that name, or CuPy's `cupyx.scipy` for an array of CuPy's."""
    return importlib.import_module(("scipy." if isinstance(array, np.ndarray) else "cupyx.scipy.") + room)


def adjoint_of(a: Any) -> Any:
    """The adjoint of each matrix of a stack."""
    return a.swapaxes(-1, -2).conj() if a.dtype.kind == "c" else a.swapaxes(-1, -2)


def add_to(target: Any, value: Any) -> None:
    """Adds a value to a shadow, summed over the axes along which the primal was broadcast; of a real primal the real part."""
    if value.shape == target.shape:
        target += part_for(target, value)
        return
    extra = value.ndim - target.ndim
    value = value.sum(axis=tuple(range(extra))) if extra else value
    gone = tuple(i for i, (n, m) in enumerate(zip(target.shape, value.shape, strict=True)) if n != m)
    value = value.sum(axis=gone, keepdims=True) if gone else value
    target += part_for(target, value)


def part_for(target: Any, value: Any) -> Any:
    """What a shadow gets of a value: where the primal is real and its result complex, the real part."""
    return value.real if value.dtype.kind == "c" and target.dtype.kind != "c" else value


def in_rows(x: Any, axes: tuple[int, ...]) -> Any:
    """The array as a matrix: a row for each element of the result of a reduction over `axes`, as a copy or a view."""
    moved = library_of(x).moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim)))
    kept = moved.shape[: x.ndim - len(axes)]
    return moved.reshape(math.prod(kept), math.prod(moved.shape[len(kept) :]))


def from_rows(rows: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """The way back: an array of that shape."""
    kept = tuple(n for i, n in enumerate(shape) if i not in axes)
    moved = rows.reshape(kept + tuple(shape[i] for i in axes))
    return library_of(rows).moveaxis(moved, tuple(range(len(kept), len(shape))), axes)


def elements_of(array: Any) -> tuple[Any, int]:
    """The dense memory from the lowest to the highest element of a view, flat, and where in it the first element is."""
    if array.flags.c_contiguous:
        return array.reshape(-1), 0
    size = int(array.dtype.itemsize)
    upward = array[(*(slice(None, None, -1 if s < 0 else 1) for s in array.strides), Ellipsis)]
    steps = [s // size * (n - 1) for s, n in zip(array.strides, array.shape, strict=True)]
    flat = library_of(array).lib.stride_tricks.as_strided(upward, (1 + sum(map(abs, steps)),), (size,))
    return flat, -sum(s for s in steps if s < 0)

"""Arrays put together from others, as recorded copies into views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .elementwise import apply, check_out, check_recorded
from .layout import primal_of
from .reductions import result_for
from .views import expand_dims, reshape, view


def _part(x: Any, axis: int, low: int, high: int) -> Any:
    key = (*[slice(None)] * axis, slice(low, high))
    return view(x, lambda a: a[key])


def concatenate(arrays: Sequence[Any], axis: int = 0, out: Any = None) -> Any:
    """The arrays one after the other along an axis, as `numpy.concatenate`. `out` overlaps none of them."""
    check_recorded("concatenate", (*arrays, out))
    primals = [primal_of(a) for a in arrays]
    axis = range(primals[0].ndim)[axis]
    lengths = [int(p.shape[axis]) for p in primals]
    shape, dtype = (*primals[0].shape[:axis], sum(lengths), *primals[0].shape[axis + 1 :]), np.result_type(*(p.dtype for p in primals))
    if any(p.shape[:axis] + p.shape[axis + 1 :] != primals[0].shape[:axis] + primals[0].shape[axis + 1 :] for p in primals):
        raise ValueError(f"concatenate: arrays of shapes {[tuple(p.shape) for p in primals]} do not fit along axis {axis}")
    if out is None:
        out = result_for(tuple(arrays), shape, dtype)
    check_out("concatenate", out, shape, dtype)
    at = 0
    for array, length in zip(arrays, lengths, strict=True):
        apply("copyto", array, out=_part(out, axis, at, at + length))
        at += length
    return out


def stack(arrays: Sequence[Any], axis: int = 0, out: Any = None) -> Any:
    """The arrays beside each other along a new axis, as `numpy.stack`."""
    axis = range(primal_of(arrays[0]).ndim + 1)[axis]
    return concatenate([expand_dims(a, axis) for a in arrays], axis, out)


def roll(x: Any, shift: int, axis: int | None = None) -> Any:
    """The elements moved along an axis, or in flat order, those that fall off put in again at the other end, as `numpy.roll`."""
    check_recorded("roll", (x,))
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), primal_of(x).shape)
    axis = range(primal_of(x).ndim)[axis]
    cut = -shift % max(int(primal_of(x).shape[axis]), 1)
    return concatenate([_part(x, axis, cut, primal_of(x).shape[axis]), _part(x, axis, 0, cut)], axis)

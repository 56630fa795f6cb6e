"""Arrays put together from others, as recorded copies into views.

In: sequences of arrays, annotated or not (`concatenate`, `stack`), or one array with shifts (`roll`), with axes as NumPy counts them. Out:
`out`, or a new array of the common dtype, a pair if an input is one. Each part is copied by the recorded elementwise `copyto` into a view
of the result, so the reverse adds each part of the result's gradient to its source.

Raises TypeError for what is no sequence of arrays and for shifts that are not whole numbers, ValueError for shapes that do not fit,
AxisError for an axis that there is not, TapeError for a pair outside of a tape."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import BatchDuplicated, Duplicated
from ..errors import ArgumentTypeError, ArgumentValueError
from ..public_calls import brief
from .elementwise import apply, check_out, check_recorded
from .layout import array_of, axis_of, primal_of
from .reductions import result_for
from .views import expand_dims, reshape, view


def _part(x: Any, axis: int, low: int, high: int) -> Any:
    key = (*[slice(None)] * axis, slice(low, high))
    return view(x, lambda a: a[key])


def _several(name: str, arrays: Any) -> list[Any]:
    """The arrays of a sequence; TypeError for what is none, and where something in it is no array, ValueError where it is empty."""
    if (not isinstance(arrays, Sequence) and not getattr(arrays, "ndim", 0)) or isinstance(arrays, Duplicated | BatchDuplicated | str):
        raise ArgumentTypeError(f"{name} takes a list of arrays, not {type(arrays).__name__}: write [x, y]")
    if len(arrays) == 0:
        raise ArgumentValueError(f"{name} needs at least one array")
    return [array_of(name, a) for a in arrays]


def concatenate(arrays: Sequence[Any], axis: int | None = 0, out: Any = None) -> Any:
    """The arrays one after the other along an axis, or (None) their elements, as `numpy.concatenate`. `out` overlaps none of them."""
    primals = _several("concatenate", arrays)
    check_recorded("concatenate", (*arrays, out))
    if axis is None:
        return concatenate([reshape(a, -1) for a in arrays], 0, out)
    axis = axis_of("concatenate", axis, primals[0].ndim)
    lengths = [int(p.shape[axis]) for p in primals]
    shape, dtype = (*primals[0].shape[:axis], sum(lengths), *primals[0].shape[axis + 1 :]), np.result_type(*(p.dtype for p in primals))
    if any(p.shape[:axis] + p.shape[axis + 1 :] != primals[0].shape[:axis] + primals[0].shape[axis + 1 :] for p in primals):
        raise ArgumentValueError(f"concatenate: arrays of shapes {[tuple(p.shape) for p in primals]} do not fit along axis {axis}")
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
    primals = _several("stack", arrays)
    axis = axis_of("stack", axis, primals[0].ndim + 1)
    if any(p.shape != primals[0].shape for p in primals):
        raise ArgumentValueError(f"stack: arrays of shapes {', '.join(str(tuple(p.shape)) for p in primals)}; they have to have one shape")
    return concatenate([expand_dims(a, axis) for a in arrays], axis, out)


def roll(x: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Any:
    """The elements moved along axes, or in flat order, those that fall off put in again at the other end, as `numpy.roll`: one shift for
    all axes, or one for each."""
    check_recorded("roll", (x,))
    array_of("roll", x)
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), primal_of(x).shape)
    for along, by in _moves(shift, axis, primal_of(x).ndim).items():
        x = _rolled(x, by, along)
    return x


def _moves(shift: Any, axis: Any, ndim: int) -> dict[int, int]:
    """By how many elements along which axis. TypeError for what are no whole numbers, ValueError where there are more shifts than axes, or
    fewer."""
    shifts = list(shift) if isinstance(shift, Iterable) and not isinstance(shift, str) else [shift]
    along = [axis_of("roll", a, ndim) for a in (axis if isinstance(axis, Iterable) and not isinstance(axis, str) else [axis])]
    if len(shifts) != len(along) and 1 not in (len(shifts), len(along)):
        raise ArgumentValueError(f"roll: {len(shifts)} shifts for {len(along)} axes")
    moves: dict[int, int] = {}
    for k in range(max(len(shifts), len(along))):
        by, a = shifts[k % len(shifts)], along[k % len(along)]
        try:
            moves[a] = moves.get(a, 0) + operator.index(by)
        except TypeError:
            raise ArgumentTypeError(f"roll: a shift is a whole number of elements, not {brief(by)}") from None
    return moves


def _rolled(x: Any, shift: int, axis: int) -> Any:
    """Along one axis."""
    cut = -shift % max(int(primal_of(x).shape[axis]), 1)
    return concatenate([_part(x, axis, cut, primal_of(x).shape[axis]), _part(x, axis, 0, cut)], axis)

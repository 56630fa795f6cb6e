"""How a strided view reaches a generated kernel: as a pointer to its lowest element, and an offset and strides as numbers.

A raw kernel knows a pointer and no strides. With the offset of the first element and the element strides as integers every index is affine
in the thread's number: the regions of an operation are then exact, and accumulation is proved plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments.annotations import BatchDuplicated, Const, Duplicated
from ..arguments.arrays import address, is_array, namespace, refuse_subclass
from ..arguments.layouts import repeats
from ..errors import ArgumentAxisError, ArgumentTypeError, ArgumentValueError, LaunchError, ShadowError, UnsupportedError
from ..public_calls import brief, index
from ..runtime.array_types import NdArray


def primal_of(x: Any, name: str = "") -> Any:
    """The array itself, of an annotated one too. ArgumentTypeError for one of a class derived from NumPy's."""
    if isinstance(x, Duplicated):
        return x._own_primal
    if isinstance(x, BatchDuplicated | Const):
        return x.primal
    refuse_subclass(x, name)
    return x


def array_of(name: str, x: Any) -> Any:
    """The array of an operand; TypeError for what is none."""
    array = primal_of(x)
    if not is_array(array):
        raise ArgumentTypeError(f"{name} takes arrays, not {type(array).__name__}; make one of it before, as with numpy.asarray")
    if array.dtype.hasobject:
        raise ArgumentTypeError(f"{name} takes arrays of numbers, not of Python objects")
    return array


def axis_of(name: str, axis: Any, ndim: int) -> int:
    """An axis by its number from 0 on; TypeError for what is no whole number, NumPy's AxisError where there is none of that number."""
    number = index(axis)
    if number is None:
        raise ArgumentTypeError(f"{name}: an axis is a whole number, not {brief(axis)}")
    if not -ndim <= number < ndim:
        raise ArgumentAxisError(f"{name}: axis {number} is out of bounds for an array with {ndim} axes")
    return number % ndim


def axes_of(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes by their numbers from 0 on, all for None; ValueError where one comes twice."""
    if axis is None:
        return tuple(range(ndim))
    found = tuple(axis_of(name, a, ndim) for a in (axis if isinstance(axis, tuple | list | range) else (axis,)))
    if len(set(found)) < len(found):
        raise ArgumentValueError(f"{name}: an axis occurs twice in {brief(axis)}")
    return found


def element_strides(array: NdArray) -> tuple[int, ...]:
    """Strides in elements. LaunchError where they are no whole numbers of them."""
    size = int(array.dtype.itemsize)
    if any(s % size for s in array.strides):
        raise LaunchError(f"an array's strides {array.strides} are no multiples of its {size} byte elements; pass a copy")
    return tuple(s // size for s in array.strides)


def origin(array: NdArray) -> int:
    """Elements from the beginning of the hull to the array's first element."""
    return -sum(min(0, s * (int(n) - 1)) for s, n in zip(element_strides(array), array.shape, strict=True))


def hull_size(array: NdArray) -> int:
    """Elements of the hull."""
    return 1 + sum(abs(s) * (int(n) - 1) for s, n in zip(element_strides(array), array.shape, strict=True))


def reached(x: Any) -> Any:
    """A view of the same elements from the lowest on, each once, with what was said about it; `x` itself where it is such a view, so that
    a tape knows the very object again."""
    if isinstance(x, Duplicated | BatchDuplicated):
        check_pair(x)
        refuse_windows(x)
    array = primal_of(x)
    if all(s > 0 or n == 1 for s, n in zip(array.strides, array.shape, strict=True)):
        return x
    key = (*(slice(0, 1) if s == 0 else slice(None, None, 1 if s > 0 else -1) for s in array.strides), Ellipsis)
    return type(x)(array[key]) if isinstance(x, Const) else x[key]


def refuse_windows(x: Any) -> None:
    """UnsupportedError for a pair whose elements share memory otherwise than by broadcasting, which the shadow's would, too."""
    array = primal_of(x)
    if repeats(array) and repeats(array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]):
        raise UnsupportedError(
            "a pair whose elements share memory, as those of a sliding window, has no adjoint: take the elements by an index array, "
            "`X[indices]`, which is recorded"
        )


def shadows_of(x: Any) -> tuple[Any, ...]:
    """The shadows of a pair, or of an array with several, for who does not look at what they hold."""
    return (x._own_shadow,) if isinstance(x, Duplicated) else tuple(x.shadows)


def check_pair(x: Any) -> None:
    """Primal and shadow are reached by the same numbers. Raises ShadowError if they are not laid out alike."""
    for shadow in shadows_of(x):
        _check_alike(x.primal, shadow)


def _check_alike(primal: Any, shadow: NdArray) -> None:
    if tuple(shadow.shape) != tuple(primal.shape):
        raise ShadowError(
            f"a primal of shape {tuple(primal.shape)} has a shadow of shape {tuple(shadow.shape)}; make it with zeros_like(x)"
        )
    if _stepping(shadow) != _stepping(primal):
        raise ShadowError(
            f"a primal and its shadow have different strides ({primal.strides} and {shadow.strides} bytes); make the shadow with "
            "zeros_like(x), or slice the pair: Duplicated(base, dbase)[...]"
        )


def _stepping(array: NdArray) -> list[int]:
    return [s if array.size else 0 for s, n in zip(element_strides(array), array.shape, strict=True) if n > 1]


def same(a: Any, b: Any) -> bool:
    """Whether two arrays are the same elements in the same order."""
    alike = (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
    return bool(alike and namespace(a) is namespace(b) and address(a) == address(b))


@dataclass(frozen=True)
class Axes:
    """The iteration over all elements: `lengths` of the axes, the innermost first, and for each operand the `steps` along them (0:
    broadcast) and the `offsets` of its first element in its hull."""

    lengths: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]


def axes(shape: Sequence[int], operands: Sequence[Any]) -> Axes:
    """As few axes as the strides allow, along the order in which the first operand, the output, lies in memory. All lengths are
    positive."""
    steps = [_broadcast(a, shape) for a in operands]
    offsets = [origin(a) for a in operands]
    for axis, (n, s) in enumerate(zip(shape, steps[0], strict=True)):
        if s < 0:  # walk upwards through the output
            offsets = [o + t[axis] * (n - 1) for o, t in zip(offsets, steps, strict=True)]
            steps = [[-v if i == axis else v for i, v in enumerate(t)] for t in steps]
    kept = sorted((i for i, n in enumerate(shape) if n > 1), key=lambda i: abs(steps[0][i]))
    lengths: list[int] = []
    columns: list[tuple[int, ...]] = []
    for i in kept:
        column = tuple(t[i] for t in steps)
        if columns and all(s == p * lengths[-1] for s, p in zip(column, columns[-1], strict=True)):
            lengths[-1] *= shape[i]
        else:
            lengths.append(shape[i])
            columns.append(column)
    if not lengths:
        lengths, columns = [1], [(1,) * len(operands)]
    return Axes(tuple(lengths), tuple(zip(*columns, strict=True)), tuple(offsets))


def _broadcast(array: NdArray, shape: Sequence[int]) -> list[int]:
    """Element strides of an array that is broadcast to a shape."""
    missing = len(shape) - len(array.shape)
    own = element_strides(array)
    return [0] * missing + [0 if n == 1 != shape[missing + i] else s for i, (n, s) in enumerate(zip(array.shape, own, strict=True))]


def refuse_repeated(array: NdArray, name: str) -> None:
    """An output whose elements share memory has no defined content."""
    if repeats(array):
        raise LaunchError(f"{name}: elements of the output share memory (a stride of 0, a sliding window); pass an array of its own")


def broadcast_shape(name: str, arrays: Sequence[Any]) -> tuple[int, ...]:
    """The common shape; ValueError where there is none."""
    shapes = [tuple(a.shape) for a in arrays]
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        raise ArgumentValueError(f"{name}: arrays of shapes {', '.join(map(str, shapes))} cannot be broadcast to one shape") from None

"""Index arrays and masks: recorded takes, puts and scattered additions.

A key of any kind is first made into the offsets of the elements that it names, relative to the view's first element. These offsets are a
new array without other references, so no version of the caller's index arrays has to be kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments.annotations import Duplicated
from ..arguments.arrays import namespace, resolve
from ..arguments.layouts import repeats
from ..errors import ArgumentIndexError, ArgumentTypeError, ArgumentValueError, LaunchError
from ..pipeline import add_in_fixed_point
from ..program.ir.region import Region
from ..runtime.array_types import NdArray
from ..tape.rules import rule
from .adjoints import elements_of, library_of, part_for
from .elementwise import apply, are_disjoint, check_out, check_recorded, copied
from .layout import array_of, axis_of, element_strides, primal_of, refuse_repeated
from .reductions import result_for
from .temporaries import carried, new_array, temporary
from .trace_cache import by_arguments, by_content
from .views import reshape


def offsets(array: NdArray, key: Any) -> Any:
    """The elements that `array[key]` names, as offsets (int64) in elements from the first, in the shape of the result."""
    library = namespace(array)
    found = _direct(array, key if type(key) is tuple else (key,)) if library is np else None
    if found is not None:
        return found
    total = library.zeros(array.shape, np.int64)[key]
    for axis, (n, step) in enumerate(zip(array.shape, element_strides(array), strict=True)):
        shape = [n if i == axis else 1 for i in range(array.ndim)]
        part = library.broadcast_to((library.arange(n, dtype=np.int64) * step).reshape(shape), array.shape)[key]
        total = total + part
    return library.array(total, order="C")  # of shape () too


def _direct(array: NdArray, key: tuple[Any, ...]) -> Any:
    """The same for a mask of all of an array, and for a whole number for each of its axes; None for other keys, and those out of bounds."""
    if not key or not all(type(part) is np.ndarray for part in key):
        return None
    (mask, *_) = key
    if mask.dtype == bool:
        return np.flatnonzero(mask) if mask.shape == array.shape and array.ndim and array.flags.c_contiguous else None
    if len(key) != array.ndim or not all(part.dtype.kind in "iu" and part.size for part in key):
        return None
    total = None
    for part, n, step in zip(key, array.shape, element_strides(array), strict=True):
        low, high = int(part.min()), int(part.max())
        if low < -n or high >= n:
            return None
        places = np.array(part, np.int64, order="C")
        if low < 0:
            places[places < 0] += n
        places = places if step == 1 else np.multiply(places, step, out=places)
        total = places if total is None else total + places
    return total


def _are_distinct(where: Any, key: Any) -> bool:
    """True if no element is named twice."""
    if getattr(getattr(key, "dtype", None), "kind", "") == "b":
        return True
    library = namespace(where)
    low = int(where.min())
    span = int(where.max()) - low + 1
    if span > 16 * where.size + 4096:
        return int(library.unique(where).size) == int(where.size)
    seen = library.zeros(span, bool)
    seen[where - low if low else where] = True
    return int(library.count_nonzero(seen)) == int(where.size)


def place_of_elements(array: NdArray, where: Any) -> tuple[Any, Any]:
    """The dense memory behind a view, and places in it."""
    flat, first = elements_of(array)
    return flat, where + first if first else where


def _take_reverse(dx: Any, dy: Any, where: Any) -> None:
    if dx is not None:
        add_at(*place_of_elements(dx, where), part_for(dx, dy))


def _take_reverse_in_order(dx: Any, dy: Any, where: Any) -> None:
    if dx is not None:
        add = add_at if isinstance(dx, np.ndarray) else add_in_fixed_point
        add(*place_of_elements(dx, where), part_for(dx, dy))


@rule(reads=("x",), overwrites=("y",), reverse=_take_reverse, linear=(("x",),))
def _take(x: Any, y: Any, where: Any) -> None:
    memory, places = place_of_elements(x, where)
    if isinstance(y, np.ndarray) and y.dtype == memory.dtype and y.flags.c_contiguous:
        np.take(memory, places, out=y, mode="clip")  # which are all there: nothing is looked at once more, nor copied
    else:
        y[...] = memory[places]


_take.deterministic = _take_reverse_in_order
take_elements = _take


def _put_reverse(dv: Any, dx: Any, where: Any) -> None:
    memory, places = place_of_elements(dx, where)
    if dv is not None:
        dv += memory[places]
    memory[places] = 0


@rule(reads=("v",), sets=("x",), reverse=_put_reverse, linear=(("v",),))
def _put(x: Any, v: Any, where: Any) -> None:
    memory, places = place_of_elements(x, where)
    memory[places] = v


def _add_reverse(dv: Any, dx: Any, where: Any) -> None:
    if dv is not None:
        memory, places = place_of_elements(dx, where)
        dv += memory[places]


@rule(reads=("v",), adds=("x",), reverse=_add_reverse, linear=(("v",),))
def _add(x: Any, v: Any, where: Any) -> None:
    add_at(*place_of_elements(x, where), v)


def add_at(memory: Any, places: Any, values: Any) -> None:
    """Adds values at places that may repeat: one after the other on a CPU, in no order on a GPU. `places`: an array of them in flat memory,
    or a tuple of arrays, one for each axis."""
    if not isinstance(places, tuple) and values.shape == places.shape:  # of one axis it is many times as fast
        places, values = places.reshape(-1), values.reshape(-1)
    library_of(memory).add.at(memory, places, values)


_MOST_PLACES = 1 << 16  # whose bytes are listed one by one


# --- what users call -----------------------------------------------------------------------------------------------------------------


@by_content
def getitem(x: Any, key: Any) -> Any:
    """`x[key]` with index arrays or masks: a copy, a temporary of its own."""
    check_recorded("indexing with arrays", (x,))
    x = _owned(x)
    return _taken(x, offsets(primal_of(x), _plain_key(key)), None)


@by_content
def take(x: Any, indices: Any, axis: int | None = None, out: Any = None) -> Any:
    """The elements of `x` at `indices` (integers, any shape) along an axis, or of the flat array, as `numpy.take`. Repeated indices add up
    in the gradient."""
    check_recorded("take", (x, out))
    array_of("take", x)
    x = _owned(x) if out is None else are_disjoint(x, primal_of(out))
    return _taken(x, _axis_offsets("take", primal_of(x), indices, axis), out)


def _owned(x: Any) -> Any:
    """The array, or a copy of a pair whose elements share memory (a broadcast one)."""
    return copied(x) if isinstance(x, Duplicated) and repeats(x.primal) else x


@by_arguments
def _taken(x: Any, where: Any, out: Any) -> Any:
    if out is None:
        out = result_for((x,), where.shape, primal_of(x).dtype)
    check_out("take", out, where.shape, primal_of(x).dtype)
    if primal_of(out).size:
        _take(x, out, where)
    return out


def _axis_offsets(name: str, array: NdArray, indices: Any, axis: int | None) -> Any:
    library = namespace(array)
    indices = library.asarray(_plain_key(indices))
    if indices.dtype.kind not in "iub" and indices.size:
        raise ArgumentIndexError(f"{name}: indices are whole numbers, not {indices.dtype}")
    indices = indices if indices.size else indices.astype(np.int64)
    if indices.dtype.kind == "b":  # numbers here, no mask
        indices = indices.astype(np.int64)
    if axis is None:
        if library is np and indices.size and not (-array.size <= indices.min() and indices.max() < array.size):
            raise ArgumentIndexError(f"{name}: an index is out of bounds for an array of {array.size} elements")
        axes = array if array.ndim else array[None]
        return offsets(axes, library.unravel_index(indices % max(array.size, 1), axes.shape))
    axis = axis_of(name, axis, array.ndim)
    return offsets(array, (*[slice(None)] * axis, indices))


def _plain_key(key: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    if any(isinstance(p, Duplicated) for p in parts):
        raise ArgumentTypeError("an index array carries no gradient; pass `.primal`")
    return key


@by_content
def setitem(x: Any, key: Any, value: Any) -> None:
    """`x[key] = value` with index arrays or masks. LaunchError where an element is named twice: what stays is undefined."""
    check_recorded("indexing with arrays", (x, value))
    where = offsets(primal_of(x), _plain_key(key))
    _write(_put, x, where, value, key)


@by_content
def put(x: Any, indices: Any, values: Any, axis: int | None = None) -> None:
    """Sets elements at `indices` of the flat array, where values are taken in flat order and repeated, as `numpy.put` does; or along an
    axis, where they are broadcast. LaunchError for repeated indices."""
    check_recorded("put", (x, values))
    where = _axis_offsets("put", array_of("put", x), indices, axis)
    if axis is None and getattr(primal_of(values), "ndim", 0) > 0:
        values = reshape(copied(values), -1) if primal_of(values).ndim > 1 else values
        count = int(primal_of(values).size)
        where = where.reshape(-1, count) if count and where.size % count == 0 else where.reshape(-1)
    _write(_put, x, where, values)


@by_content
def scatter_add(x: Any, key: Any, values: Any) -> None:
    """`x[key] += values` where elements may be named more than once, as `numpy.add.at`."""
    check_recorded("scatter_add", (x, values))
    _write(_add, x, offsets(array_of("scatter_add", x), _plain_key(key)), values)


def _write(rule_: Any, x: Any, where: Any, value: Any, key: Any = None) -> None:
    primal = primal_of(x)
    refuse_repeated(primal, rule_.name.strip("_"))
    if not where.size:
        return
    if rule_ is _put and not _are_distinct(where, key):
        raise LaunchError(
            "an element is set twice by an index array: what stays is undefined, and so is the gradient. Use gpuad.ops.scatter_add to sum, "
            "or make the indices unique. Nothing was run."
        )
    (_put_at if rule_ is _put else _add_at)(x, where, value)


@by_arguments
def _put_at(x: Any, where: Any, value: Any) -> None:
    regions = {"x": _region(primal_of(x), where)} if where.size <= _MOST_PLACES else {}
    _put.within(regions, x, _spread(value, where, primal_of(x)), where)


@by_arguments
def _add_at(x: Any, where: Any, value: Any) -> None:
    known = namespace(primal_of(x)) is np and where.size <= _MOST_PLACES
    _add.within({"x": _region(primal_of(x), where)} if known else {}, x, _spread(value, where, primal_of(x)), where)


def _region(array: NdArray, where: Any) -> Region:
    """The bytes of the named elements in the array's allocation."""
    size = int(array.dtype.itemsize)
    where = where if isinstance(where, np.ndarray) else where.get()
    low = (np.unique(where) + resolve(array).offset) * size
    first = np.concatenate([[True], np.diff(low) > size])
    last = np.concatenate([np.flatnonzero(first)[1:] - 1, [len(low) - 1]])
    return Region(np.stack([low[first], low[last] + size], axis=1).astype(np.int64))


def _fits(shape: tuple[int, ...], places: tuple[int, ...]) -> bool:
    """Whether values of a shape broadcast to places."""
    own = shape[::-1]
    return all(n == 1 for n in own[len(places) :]) and all(n in (1, m) for n, m in zip(own, places[::-1], strict=False))


def _spread(value: Any, where: Any, like: Any) -> Any:
    """The values in an array of their own, one for each place."""
    array = primal_of(value)
    if hasattr(array, "shape") and not _fits(tuple(array.shape), tuple(where.shape)):
        raise ArgumentValueError(f"values of shape {tuple(array.shape)} do not fit {tuple(where.shape)} places")
    copy = new_array(like, where.shape, like.dtype, active=carried((value,)))
    return apply("copyto", value, out=temporary(copy) if isinstance(value, Duplicated) else copy)

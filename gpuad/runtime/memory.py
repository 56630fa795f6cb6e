"""From an array that a user passed to the allocation behind it.

A kernel gets a pointer, not an array: it may legally reach outside the view that its caller sliced. So every pointer argument is resolved
to the allocation that owns its bytes (the last ndarray on the way of `.base`), seen as a flat array of the pointer's element type, and
the offset of the view's first element in it. Nothing is ever copied. Of an array that a recording of this thread has locked (`locked`) the
flat one can be written.
"""

from __future__ import annotations

import ctypes

import numpy as np

from ..errors import LaunchError
from ..ir.dtypes import Array
from .array_locks import unlocked
from .base import Memory


def resolve(array: Array) -> Memory:
    """The allocation behind a NumPy array: `root` is all of it, flat, contiguous and of `array.dtype` (a view), `offset` counts elements
    from its start to `array`'s first element. An owner of another dtype is reinterpreted by its bytes; F-ordered owners are flat in
    memory order.

    Raises LaunchError if the array does not start at a multiple of its item size, or if its owner has gaps.
    """
    if type(array) is np.ndarray and array.base is None and array.flags.c_contiguous and array.size and not array.dtype.hasobject:
        return Memory(unlocked(array).reshape(-1), 0)
    data = _bytes(unlocked(owner_of(array)))
    distance = address_of(array) - address_of(data) if data.size else 0
    size = array.dtype.itemsize
    if distance % size:
        raise LaunchError(f"an array of {array.dtype} starts {distance} bytes into its allocation, which is no multiple of {size} bytes")
    return Memory(data[: data.size // size * size].view(array.dtype), distance // size)


def element_range(array: Array) -> tuple[int, int]:
    """The half-open range of elements of `resolve(array).root` within which a (strided) view lies; equal ends if it is empty.

    Raises LaunchError if a stride is no multiple of the item size, or as `resolve` does.
    """
    offset = resolve(array).offset
    if not array.size:
        return offset, offset
    size = array.dtype.itemsize
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    if any(s % size for s in array.strides):
        raise LaunchError(f"an array's strides {array.strides} are no multiples of its {size} byte elements")
    return offset + sum(min(s, 0) for s in steps) // size, offset + sum(max(s, 0) for s in steps) // size + 1


def owner_of(array: Array) -> Array:
    """The outermost ndarray on the way of `.base`: what lies beyond it (bytes, a mapped file, a foreign buffer) is not ours to reach
    into. Between a view by `as_strided` and its array there is an object of NumPy's that holds it."""
    base = array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            array = base
        elif not isinstance(getattr(base, "base", None), np.ndarray):
            return array
        base = base.base
    return array


def _bytes(owner: Array) -> Array:
    """All bytes of the owner as a flat uint8 view in memory order."""
    if not owner.size:
        return np.empty(0, np.uint8)
    if owner.dtype.hasobject:
        raise LaunchError("an array of Python objects is no memory that a kernel can use")
    flat = _ascending(np.atleast_1d(owner.view(np.ndarray))).ravel(order="K")
    if not np.shares_memory(flat, owner):
        raise LaunchError(f"an array of shape {owner.shape} and strides {owner.strides} that owns its memory leaves gaps in it")
    return flat.view(np.uint8)


def _ascending(array: Array) -> Array:
    """A view of an array's elements with all strides positive."""
    return array[tuple(slice(None, None, -1 if s < 0 else 1) for s in array.strides)]


_LENT = frozenset("?bBhHiIlLqQfd")  # types of elements of which ctypes takes a buffer
_byte_of = ctypes.c_char.from_buffer


def plain_address(array: Array) -> int | None:
    """The address of an array that gives its buffer away without a word: it is dense, may be written, and is no view, of which NumPy might
    warn. Its interface would take three times as long."""
    if array.base is None and array.flags.carray and array.dtype.char in _LENT and array.size:
        return ctypes.addressof(_byte_of(array))  # type: ignore[arg-type]  # which the stubs do not know for a buffer
    return None


def address_of(array: Array) -> int:
    """The address of an array's first element."""
    where = plain_address(array)
    return int(array.__array_interface__["data"][0]) if where is None else where

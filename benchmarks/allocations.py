"""Counts the arrays that NumPy allocates, at its allocator: what a program that runs again should not do.

NumPy asks one table of functions (NEP 49) for the memory of every array, its own intermediates included; here stands a table that counts
and passes on. What a tape takes from its arena is no allocation; what a rule computes into a new array is one. A floor on the size
leaves out the bookkeeping of a few numbers an operation (which bytes it touches), which is not the program's data.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from gpuad.runtime import allocation

_SET_HANDLER, _GET_HANDLER = 304, 305  # the places of PyDataMem_SetHandler and -GetHandler in NumPy's table, part of its stable interface
_MALLOC = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CALLOC = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_REALLOC = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("ctx", ctypes.c_void_p),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", ctypes.c_void_p),
    )


class Counter:
    """The sizes in bytes of the arrays allocated since `clear()`."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def clear(self) -> None:
        self.sizes.clear()

    def of_at_least(self, nbytes: int) -> int:
        """How many arrays had so many bytes or more."""
        return sum(size >= nbytes for size in self.sizes)


@contextlib.contextmanager
def counted() -> Iterator[Counter]:
    """Within it every array that NumPy makes in this thread is counted, and what a tape maps. Arrays made within it may outlive it."""
    counter, capsule = _counting()
    swap, mapped = _function(_SET_HANDLER, ctypes.py_object, ctypes.py_object), allocation.pages

    def pages(nbytes: int) -> Any:
        counter.sizes.append(nbytes)
        return mapped(nbytes)

    before, allocation.pages = swap(capsule), pages
    counter.clear()
    try:
        yield counter
    finally:
        swap(before)
        allocation.pages = mapped


def _function(place: int, *types: Any) -> Any:
    """A function of NumPy's C interface."""
    core = getattr(np, "_core", None) or np.core  # type: ignore[attr-defined]
    table = ctypes.cast(_pointer(core._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    return ctypes.PYFUNCTYPE(*types)(table[place])


def _pointer(capsule: Any, name: bytes | None) -> Any:
    inside = ctypes.pythonapi.PyCapsule_GetPointer
    inside.restype, inside.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return inside(capsule, name)


@cache
def _counting() -> tuple[Counter, Any]:
    """The one counter, and the table as NumPy takes it. The table frees by NumPy's own function, and is never let go: an array made under
    it may be the last thing that the process frees."""
    usual = ctypes.cast(_pointer(_function(_GET_HANDLER, ctypes.py_object)(), b"mem_handler"), ctypes.POINTER(_Handler)).contents
    counter = Counter()

    def malloc(ctx: Any, size: int) -> Any:
        counter.sizes.append(size)
        return usual.malloc(ctx, size)

    def calloc(ctx: Any, count: int, size: int) -> Any:
        counter.sizes.append(count * size)
        return usual.calloc(ctx, count, size)

    def realloc(ctx: Any, pointer: Any, size: int) -> Any:
        counter.sizes.append(size)
        return usual.realloc(ctx, pointer, size)

    table = _Handler(b"counting", 1, usual.ctx, _MALLOC(malloc), _CALLOC(calloc), _REALLOC(realloc), usual.free)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(table))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return counter, new(ctypes.addressof(table), b"mem_handler", None)

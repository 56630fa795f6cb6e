"""How gpuad's own arrays of NumPy are made, through a gate, so that a test can let one fail. CuPy's come from its allocator.

In: a length and a dtype. Out of `mapped`: a flat array of zeros, of 128 KiB or more in pages of its own (an anonymous mapping), which go
back to the system with the array: beyond a threshold that grows as mapped chunks are freed, the C library keeps freed memory in its heap
(GNU C Library Manual, Malloc Tunable Parameters). From 4 MiB on huge pages are requested.

Each gate is called with the bytes before they are allocated. Raises MemoryError if a gate does, or if the system has no memory."""

from __future__ import annotations

import ctypes
import mmap
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.dtypes import Array

gates: list[Callable[[int], None]] = []
NUMPY = 389047  # the domain under which NumPy traces its arrays (numpy.lib.tracemalloc_domain of NumPy 2)
_OWN = 1 << 17  # bytes; the C library maps such requests as well, until the first of them is freed
_HUGE = 1 << 22  # bytes from which on huge pages are requested, as NumPy does
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}


def asked(nbytes: int) -> None:
    """So many bytes are about to be allocated. MemoryError where a gate says so."""
    for gate in gates:
        gate(nbytes)


def mapped(length: int, dtype: Any) -> Array:
    """A flat array of zeros in pages of its own, if it is large: they go back to the system with the array. The C library's heap would
    keep many of them where arrays come and go, beyond what a tape was allowed. MemoryError if there are none."""
    nbytes = length * np.dtype(dtype).itemsize
    asked(nbytes)
    if nbytes < _OWN:
        return np.zeros(length, dtype)
    return np.frombuffer(pages(nbytes), dtype)


def pages(nbytes: int) -> mmap.mmap:
    """Memory from the system. MemoryError if there is none."""
    try:
        found = mmap.mmap(-1, nbytes, **_PRIVATE)
    except OSError as error:
        raise MemoryError(f"no {nbytes} bytes: {error}") from error
    if nbytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        found.madvise(mmap.MADV_HUGEPAGE)
    if tracemalloc.is_tracing():
        _announce(found)
    return found


def _announce(found: mmap.mmap) -> None:
    """Announces a mapping to `tracemalloc` as NumPy does its arrays, until it goes: the system's pages are in no allocator that it sees."""
    address = np.frombuffer(found, np.uint8).ctypes.data
    track, untrack = ctypes.pythonapi.PyTraceMalloc_Track, ctypes.pythonapi.PyTraceMalloc_Untrack
    track.argtypes = (ctypes.c_uint, ctypes.c_size_t, ctypes.c_size_t)
    untrack.argtypes = (ctypes.c_uint, ctypes.c_size_t)
    track(NUMPY, address, len(found))
    weakref.finalize(found, untrack, NUMPY, address)


__all__ = ["NUMPY", "asked", "gates", "mapped", "pages"]

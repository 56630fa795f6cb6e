"""How much memory arrays take while something runs: NumPy's on the CPU, as `tracemalloc` traces them, or CuPy's on the GPU.

Python's own objects do not count: what the first use of a kernel imports and derives is ten times the arrays of a small test. They do
where `tracemalloc` was tracing before. What compiled kernels take for themselves on the CPU, stacks of a reverse that grow, is not traced.
"""

from __future__ import annotations

import ctypes
import gc
import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..runtime.allocation import NUMPY

_PACKAGES = tuple(os.path.dirname(file) + os.sep for file in (os.path.dirname(__file__), np.__file__))


@dataclass
class Used:
    """Bytes beyond those at the start: `peak` while it ran, `left` in arrays at its end; `kept`: where these were made."""

    peak: int = 0
    left: int = 0
    kept: list[tuple[str, int]] = field(default_factory=list)


@contextmanager
def memory(library: Any = np) -> Iterator[Used]:
    """Measures what runs within it, on the CPU or, with CuPy's module, on the current device."""
    used = Used()
    if library is np:
        with _traced(used):
            yield used
    else:
        from ..runtime.cuda import pool_peak

        with pool_peak(used):
            yield used


@contextmanager
def _traced(used: Used) -> Iterator[None]:
    ours = not tracemalloc.is_tracing()
    if ours:
        _trace_arrays(frames=8)
    try:
        gc.collect()
        tracemalloc.reset_peak()
        start, before = tracemalloc.get_traced_memory()[0], _arrays()
        try:
            yield
        finally:
            used.peak = max(tracemalloc.get_traced_memory()[1] - start, 0)
            gc.collect()
            after = _arrays()
            used.left = max(sum(after.values()) - sum(before.values()), 0)
            grown = ((where, size - before.get(where, 0)) for where, size in after.items())
            used.kept = sorted(((where, size) for where, size in grown if size > 0), key=lambda one: -one[1])
    finally:
        if ours:
            tracemalloc.stop()


class _Allocator(ctypes.Structure):
    """`PyMemAllocatorEx` of CPython's C interface: a context and four functions."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free"))


def _trace_arrays(frames: int) -> None:
    """Starts `tracemalloc` and gives Python's three kinds of memory back their allocators: what NumPy announces is traced alone."""
    plain = [_Allocator() for _ in range(3)]
    for domain, allocator in enumerate(plain):
        ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(allocator))
    tracemalloc.start(frames)
    for domain, allocator in enumerate(plain):
        ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(allocator))


def _arrays() -> dict[str, int]:
    """Bytes of NumPy's arrays by the line of the latest caller outside of this package and NumPy."""
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY)])
    sizes: dict[str, int] = {}
    for trace in snapshot.traces:
        frames = list(trace.traceback)[::-1]  # the latest call first
        outside = next((f for f in frames if not f.filename.startswith(_PACKAGES)), frames[0] if frames else None)
        where = f"{outside.filename}:{outside.lineno}" if outside is not None else "?"
        sizes[where] = sizes.get(where, 0) + trace.size
    return sizes

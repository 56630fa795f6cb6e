"""The thread pool that all compiled kernels of a process share, and the batches of launches that it runs.

Launches, copies and clearings on a CPU that one call of compiled code makes one after the other.

From Python each of them takes a call of its own, a microsecond in which the pool of threads has nothing to do. What is known beforehand
is a table of addresses; these are fixed, so whoever has the table keeps the arrays.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codegen.cpu.helpers import POOL
from .array_types import NdArray
from .compiler import compiled

DoItems = Callable[[int, int, int, int], int]  # the table's address, from which item on, how many there are, threads of a copy


@dataclass(frozen=True)
class ThreadPool:
    """Its functions: the address of the one that shares a launch out, and the one that does the items of a batch."""

    shared_out_by: int
    do_items: DoItems

    def lend(self, library: ctypes.CDLL) -> None:
        """Has the kernels of a library run by its threads."""
        _place(library).value = self.shared_out_by


_PLACE = "gpuad_shared_out_by"
_GEOMETRY = struct.Struct("=7q")  # grid, block, and how many threads may make the launch
_MANY = 1 << 15  # threads of a launch


_CREWS: dict[str, ThreadPool] = {}


def thread_pool() -> ThreadPool:
    """The pool of this process; CompileError without a compiler. If several threads ask at once, the first that has made one made it for
    all: a thread finds in its pool which batch it is in, so launches must not know another one."""
    return _CREWS.get("the") or _CREWS.setdefault("the", _made())


def _made() -> ThreadPool:
    library = compiled(POOL, ["gpuad_do_items", _PLACE])
    do_items = library.gpuad_do_items
    do_items.argtypes, do_items.restype = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_int], ctypes.c_longlong
    return ThreadPool(_place(library).value or 0, do_items)


def _place(library: ctypes.CDLL) -> ctypes.c_void_p:
    return ctypes.c_void_p.in_dll(library, _PLACE)


class Native:
    """A launch as a call of compiled code: its entry, its geometry and its packed arguments. `memory` is kept alive: these are addresses.
    `workers`: how many threads may make it; `led`: one of them has to do something by itself."""

    __slots__ = ("entry", "geometry", "led", "memory", "slots", "workers")

    def __init__(self, entry: Any, geometry: bytes, slots: bytes, memory: Sequence[Any], workers: int, led: bool) -> None:
        self.entry, self.geometry, self.slots = entry, geometry, slots
        self.memory, self.workers, self.led = memory, workers, led

    @property
    def is_large(self) -> bool:
        """True if its threads alone are so many that others are called for it; one of few that loop long calls them by itself."""
        return bool(math.prod(_GEOMETRY.unpack(self.geometry)[:6]) >= _MANY)

    def __call__(self) -> Any:
        """Makes the launch; its status."""
        return self.entry(self.geometry, self.slots)

    @property
    def __name__(self) -> str:
        return str(self.entry.__name__)


Item = tuple[int, int, int, int, int, int, int, int]  # as compiled code reads it


def launch_item(launch: Native) -> Item:
    """A launch."""
    return _entry(launch.entry), _bytes(launch.geometry), _bytes(launch.slots), int(launch.led), 0, 0, 0, 0


def copy_item(target: NdArray, source: Any, far: bool = False) -> Item | None:
    """A copy from one array of NumPy to another; None where it is more than one of memory, from somewhere to elsewhere. `far`: past the
    caches."""
    if not (_has_numbers(target) and _has_numbers(source) and target.flags.writeable):
        return None
    if target.dtype != source.dtype or target.shape != source.shape or np.may_share_memory(target, source):
        return None
    if target.strides == source.strides and _is_dense(target):
        return 0, _address(target), _address(source), int(far), int(target.nbytes), 1, 0, 0
    if not (_has_runs(target) and _has_runs(source)):
        return None
    count, run = target.shape
    return 0, _address(target), _address(source), int(far), run * int(target.itemsize), count, target.strides[0], source.strides[0]


def clearing_item(target: NdArray) -> Item | None:
    """The clearing of an array of NumPy; None where it is not one of memory."""
    if not (_has_numbers(target) and target.flags.writeable):
        return None
    if _is_dense(target):
        return 0, _address(target), 0, 0, int(target.nbytes), 1, 0, 0
    return (
        (0, _address(target), 0, 0, target.shape[1] * int(target.itemsize), target.shape[0], target.strides[0], 0)
        if _has_runs(target)
        else None
    )


class Batch:
    """Items that are done by one call, in order: a row of `table` each, of int64. `workers`: how many threads may make a copy. Their memory
    is kept by who has the batch."""

    def __init__(self, table: NDArray[np.int64], workers: int) -> None:
        self.workers = workers
        self.table = table
        self.place = _address(self.table)

    def __call__(self) -> int | None:
        """Does them. The number of the one that failed for want of memory, if one did; those after it are not done then."""
        at, count, do_items = 0, len(self.table), thread_pool().do_items
        while at < count:
            at = do_items(self.place, at, count, self.workers)
            if at < 0:
                return -1 - at
        return None


def _has_numbers(array: NdArray) -> bool:
    """True if it is an array of numbers, of which 0 is made of zero bits."""
    return isinstance(array, np.ndarray) and array.dtype.kind in "biufc" and array.size > 0


def _is_dense(array: NdArray) -> bool:
    """True if the elements are one after the other."""
    return bool(array.flags.c_contiguous or array.flags.f_contiguous)


def _has_runs(array: NdArray) -> bool:
    """True if it is a matrix whose rows are dense and apart."""
    return bool(array.ndim == 2 and array.strides[1] == array.itemsize and array.strides[0] >= array.shape[1] * array.itemsize)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _bytes(data: bytes) -> int:
    return _address(np.frombuffer(data, np.uint8))


def _entry(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0

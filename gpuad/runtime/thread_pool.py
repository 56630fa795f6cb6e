"""The thread pool that all compiled kernels of a process share, and the batches of launches that it runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from ..codegen.cpu.helpers import POOL
from .library import compiled

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
_CREWS: dict[str, ThreadPool] = {}


def thread_pool() -> ThreadPool:
    """The crew of this process; CompileError without a compiler. If several threads ask at once, the first that has made one made it for
    all: a thread finds in its crew which batch it is in, so launches must not know another one."""
    return _CREWS.get("the") or _CREWS.setdefault("the", _made())


def _made() -> ThreadPool:
    library = compiled(POOL, ["gpuad_do_items", _PLACE])
    do_items = library.gpuad_do_items
    do_items.argtypes, do_items.restype = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_int], ctypes.c_longlong
    return ThreadPool(_place(library).value or 0, do_items)


def _place(library: ctypes.CDLL) -> ctypes.c_void_p:
    return ctypes.c_void_p.in_dll(library, _PLACE)

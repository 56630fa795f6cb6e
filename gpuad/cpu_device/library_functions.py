"""Functions of the mathematical libraries, by NumPy: how C calls them, how they wait their turn in a stream and see the device's memory."""

from __future__ import annotations

import ctypes
import itertools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike, NDArray

from .native_libraries import Libraries

INT, LONG, SIZE, POINTER, FLOAT, DOUBLE = ctypes.c_int, ctypes.c_longlong, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_float, ctypes.c_double
FAILED = 6  # "internal error" or the like in all of these libraries

Array = NDArray[Any]
_Type: TypeAlias = "type[ctypes._SimpleCData[Any]]"


@dataclass
class Table:
    """The table of functions, which Python fills. `streams`: of handles, plans and generators, by their addresses."""

    libraries: Libraries
    streams: dict[int, int] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _waiting: dict[int, tuple[Callable[[], None], bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_long)(self._called)

    def add(self, name: str, types: Sequence[_Type], function: Callable[..., int | None]) -> None:
        """Makes this Python function the library's function of that name, where CuPy asks for it; what it returns is the status, None for
        success."""
        if name not in self.libraries.names:
            return

        def call(*args: Any) -> int:
            try:
                return function(*args) or 0
            except Exception:  # which C could not take
                traceback.print_exc()
                return FAILED

        made = ctypes.CFUNCTYPE(INT, *types)(call)
        self.kept.append(made)
        self.libraries.table[self.libraries.names.index(name)] = ctypes.cast(made, POINTER).value

    def add_handles(self, create: str, destroy: str, set_stream: str, get_stream: str = "") -> None:
        """The functions of a kind of handle that do nothing but keep its stream."""

        def created(place: int, *rest: object) -> None:
            write(place, POINTER, self.new_handle())

        self.add(create, (POINTER, INT), created)
        self.add(destroy, (POINTER,), lambda handle: self.streams.__delitem__(handle))
        self.add_stream(set_stream)
        self.add(get_stream, (POINTER, POINTER), lambda handle, place: write(place, POINTER, self.streams[handle]))

    def add_stream(self, name: str) -> None:
        """The function that sets the stream of a handle, plan or generator."""
        self.add(name, (POINTER, POINTER), lambda handle, stream: self.streams.update({handle: stream or 0}))

    def new_handle(self) -> int:
        """A number for a handle, plan or generator, on the legacy stream."""
        handle = 16 * next(self._numbers)
        self.streams[handle] = 0
        return handle

    def enqueue(self, handle: int, work: Callable[[], None], *, at_once: bool = False) -> int:
        """Lets the work run in the order of the handle's stream; with `at_once` it has run when this returns, as where a result goes to the
        host. The status, 0 for success."""
        stream = POINTER(self.streams.get(handle, 0))
        status = self.enqueue_on(stream, work)
        return int(self.libraries.device.gpuad_device_reach(stream)) if at_once and not status else status

    def enqueue_on(self, stream: ctypes.c_void_p, work: Callable[[], None]) -> int:
        """As `enqueue`, by the stream itself."""
        number, device, captured = next(self._numbers), self.libraries.device, INT()
        device.hipStreamIsCapturing(stream, ctypes.byref(captured))
        self._waiting[number] = work, bool(captured.value)
        return int(device.gpuad_device_enqueue(stream, self._run, ctypes.c_long(number)))

    def close(self) -> None:
        """Takes Python's functions out of the table: CuPy gives handles back when Python has gone."""
        nothing = ctypes.cast(self.libraries.device.gpuad_device_nothing, POINTER).value
        for place in range(len(self.libraries.names)):
            self.libraries.table[place] = nothing

    def _called(self, number: int) -> None:
        try:
            work, again = self._waiting[number]
            if not again:  # what a graph has may run again
                del self._waiting[number]
            work()
        except Exception:  # which C could not take
            traceback.print_exc()


# --- the device's memory as arrays --------------------------------------------------------------------------------------------------------


def vector(address: int, dtype: DTypeLike, count: int, step: int = 1) -> Array:
    """`count` elements, every `step`-th."""
    kind = np.dtype(dtype)
    if not count:
        return np.empty(0, kind)
    extent = (count - 1) * abs(step) + 1
    whole = memory(address, extent * kind.itemsize).view(kind)
    return whole[:: abs(step)][:: -1 if step < 0 else 1]


def memory(address: int, count: int) -> NDArray[np.uint8]:
    """Bytes of the device, which are the host's."""
    return np.frombuffer(memoryview((ctypes.c_char * count).from_address(address)).cast("B"), np.uint8)


def matrix(address: int, dtype: DTypeLike, rows: int, columns: int, leading: int) -> Array:
    """A matrix whose columns lie side by side, `leading` elements apart."""
    kind = np.dtype(dtype)
    if not rows or not columns:
        return np.empty((rows, columns), kind)
    whole = vector(address, kind, leading * (columns - 1) + rows)
    return as_strided(whole, (rows, columns), (kind.itemsize, leading * kind.itemsize))


def batch(address: int, dtype: DTypeLike, rows: int, columns: int, leading: int, apart: int, count: int) -> Array:
    """Matrices of that kind, `apart` elements from each other: shape (count, rows, columns)."""
    kind = np.dtype(dtype)
    if not rows or not columns or not count:
        return np.empty((count, rows, columns), kind)
    whole = vector(address, kind, apart * (count - 1) + leading * (columns - 1) + rows)
    return as_strided(whole, (count, rows, columns), (apart * kind.itemsize, kind.itemsize, leading * kind.itemsize))


def number(address: int, dtype: DTypeLike) -> Any:
    """The scalar there."""
    return vector(address, dtype, 1)[0]


def write(address: int, kind: _Type, value: object) -> None:
    """Sets the number of C there."""
    kind.from_address(address).value = value

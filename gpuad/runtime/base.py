"""What every executor offers, and the form in which memory reaches it: from an array that a user passed to the allocation behind it.

A kernel gets a pointer, not an array: it may legally reach outside the view that its caller sliced. So every pointer argument is resolved
to the allocation that owns its bytes (the last ndarray on the way of `.base`), seen as a flat array of the pointer's element type, and the
offset of the view's first element in it. Nothing is ever copied. Of an array that a recording of this thread has locked (`array_locks`) the
flat one can be written.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..errors import LaunchError
from ..ir.dtypes import Array, is_real
from ..ir.nodes import Kernel
from .array_locks import unlocked
from .array_types import NdArray

Dim3: TypeAlias = "tuple[int, int, int]"


@dataclass(frozen=True, eq=False, slots=True)
class Memory:
    """A pointer argument: element `offset` of `root`, the whole allocation as a flat contiguous array (NumPy or CuPy) of the pointer's
    element type.

    A kernel may legally reach outside the view that its caller sliced, to both sides, as long as it stays inside `root`.
    """

    root: NdArray
    offset: int = 0
    _address: int | None = field(default=None, init=False, repr=False)

    @property
    def address(self) -> int:
        """The address of its first byte, that of the allocation."""
        found = self._address
        if found is None:
            root: Any = self.root  # a view, whose buffer would not be given away without a word
            found = int((root.__array_interface__ if isinstance(root, np.ndarray) else root.__cuda_array_interface__)["data"][0])
            object.__setattr__(self, "_address", found)
        return found

    @property
    def itemsize(self) -> int:
        """Bytes of an element: of a number, also where the array that was passed holds vectors or complex numbers of them."""
        return int(self.root.dtype.itemsize)

    @property
    def is_float(self) -> bool:
        """True if the elements are numbers that may carry a gradient."""
        return is_real(self.root.dtype)


Argument: TypeAlias = "Memory | Any | None"  # a Memory, a NumPy scalar of the parameter's type, or None (a null pointer)


class Executor(Protocol):
    """Runs final core IR (every `How` decided, no Push or Pop)."""

    name: str
    has_rows: bool  # whether it has memory of its own for stacks, and so runs `kernel.in_rows` where there is one
    orders_blocks: bool  # whether the threads of a block come to its shared memory in the same order in every run
    sums_over_blocks: bool  # whether threads that all add to one element had better form the sum of their block first, in loops, too

    def launch(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Runs the kernel; `args` follow `kernel.params`. Raises LaunchError before anything is written if the launch cannot be made."""

    def prepared(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0) -> Callable[[], Any]:
        """A launch as a callable that makes it, any number of times, on the stream that is current then. All that can be refused is
        refused now. What a call returns is true only if it failed for want of memory."""

    def captured(self, run: Callable[[], None]) -> Callable[[], None]:
        """What `run` puts into the current stream, without doing it, as a callable that does it. LaunchError where it makes arrays or
        waits. Only where there are streams."""

    def prepare(self, kernels: Sequence[Kernel], threads: int = 1) -> None:
        """Compiles the kernels now, and refuses (LaunchError) what cannot run with blocks of `threads` threads, before anything is
        launched."""

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Within it launches, copies and new arrays belong to the stream (None: the current one)."""

    def stream(self) -> Any:
        """The stream that is current (with a number `ptr`), or None where everything is done in order."""

    def wait(self, stream: Any) -> None:
        """Lets the current stream wait for what has been put into another one."""

    def marked(self, mark: Any = None) -> Any:
        """A mark in the current stream, or this one moved there: its `synchronize()` returns when the stream has passed it."""

    def zeros(self, length: int, dtype: Any) -> Any:
        """A new flat array of zeros on this executor's device."""

    def copy(self, array: NdArray) -> Any:
        """A new array with the same content and dtype, on the same device."""

    def free(self) -> int:
        """Bytes of the device's memory that are free."""


class InOrder:
    """What executors have in common whose launches are done when they return."""

    def captured(self, run: Callable[[], None]) -> Callable[[], None]:
        """Launches here are done when they return, so there is nothing to capture."""
        raise LaunchError("a graph on the CPU is a list of prepared launches")

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Nothing: launches here are done when they return."""
        return nullcontext()

    def stream(self) -> Any:
        """None: there is one order only."""
        return None

    def wait(self, stream: Any) -> None:
        """Nothing: what was called before is done."""

    def marked(self, mark: Any = None) -> Any:
        """None: there is nothing to wait for."""
        return None

    def free(self) -> int:
        """Bytes that the machine can hand out without swapping."""
        try:
            with open("/proc/meminfo", encoding="ascii") as found:
                return next(int(line.split()[1]) * 1024 for line in found if line.startswith("MemAvailable:"))
        except (OSError, StopIteration):
            return int(os.sysconf("SC_AVPHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))


class Prepared:
    """A launch as a callable that makes it, any number of times, and what it is a launch of: others may join it (`fusion.chain`)."""

    __slots__ = ("arguments", "block", "func", "grid", "kernel")

    def __init__(self, func: Callable[[], Any], kernel: Kernel, grid: Dim3, block: Dim3, arguments: Sequence[Argument]) -> None:
        self.func, self.kernel, self.grid, self.block, self.arguments = func, kernel, grid, block, arguments

    def __call__(self) -> Any:
        return self.func()


def prepared(executor: Executor, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], shared_mem: int = 0) -> Prepared:
    """A launch, prepared by an executor. LaunchError if it cannot be made."""
    return Prepared(executor.prepared(kernel, grid, block, args, shared_mem=shared_mem), kernel, grid, block, args)


def resolve(array: Array, number: np.dtype[Any] | None = None) -> Memory:
    """The allocation behind a NumPy array: `root` is all of it, flat, contiguous and of `array.dtype` (a view), `offset` counts elements
    from its start to `array`'s first element. An owner of another dtype is reinterpreted by its bytes; F-ordered owners are flat in
    memory order. `number`: what the array's elements consist of; then `root` has, and `offset` counts, these: also those at the end of the
    allocation that make up no whole element.

    Raises LaunchError if the array does not start at a multiple of its item size, or if its owner has gaps.
    """
    number = number or array.dtype
    if type(array) is np.ndarray and array.base is None and array.flags.c_contiguous and array.size and not array.dtype.hasobject:
        return Memory(unlocked(array).reshape(-1).view(number), 0)
    data = _bytes(unlocked(owner_of(array)))
    distance = address_of(array) - address_of(data) if data.size else 0
    size = array.dtype.itemsize
    if distance % size:
        raise LaunchError(f"an array of {array.dtype} starts {distance} bytes into its allocation, which is no multiple of {size} bytes")
    return Memory(data[: data.size // number.itemsize * number.itemsize].view(number), distance // number.itemsize)


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
    if owner.dtype.hasobject:
        raise LaunchError("an array of Python objects is no memory that a kernel can use")
    if not owner.size:  # at its own address, by which a recording knows an allocation
        return owner.view(np.ndarray).reshape(-1).view(np.uint8)
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

"""What every executor offers, and the form in which memory reaches it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ..errors import LaunchError
from ..ir.dtypes import is_real
from ..ir.nodes import Kernel

Dim3: TypeAlias = "tuple[int, int, int]"


@dataclass(frozen=True, eq=False, slots=True)
class Memory:
    """A pointer argument: element `offset` of `root`, the whole allocation as a flat contiguous array (NumPy or CuPy) of the pointer's
    element type.

    A kernel may legally reach outside the view that its caller sliced, to both sides, as long as it stays inside `root`.
    """

    root: Any
    offset: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of an element: of a number, also where the array that was passed holds vectors or complex numbers of them."""
        return int(self.root.dtype.itemsize)

    @property
    def is_float(self) -> bool:
        """Whether the elements are numbers that may carry a gradient."""
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

    def copy(self, array: Any) -> Any:
        """A new array with the same content and dtype, on the same device."""

    def free(self) -> int:
        """Bytes of the device's memory that nobody has."""


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

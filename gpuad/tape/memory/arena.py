"""Memory that belongs to a tape and is used again by every recording: saved bytes, transient copies, scratch.

Requests come in the same order when the same program runs again, so each is met by the buffer that met it last time. Nothing is freed
before the tape is; a recording that needs more adds to what is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...budget import rounded
from ...ir.nodes import Kernel
from ...runtime.actions import Action, clearing, copying, perform_one
from ...runtime.array_types import NdArray
from ...runtime.base import Argument, Dim3, Executor

CHUNK = 1 << 20
LARGE = 1 << 26  # chunks are no larger, but for requests that are
GROWTH = 64  # of an arena by a chunk: what is taken in vain is less than 2 %
ALIGN = 256


class Arena:
    """Hands out bytes from large chunks, in order; `reset` begins anew with the same chunks."""

    def __init__(self, new: Callable[[int], Any], begin: Callable[[], None] | None = None) -> None:
        self.new = new
        self.begin = begin  # called before the first bytes after a reset are handed out
        self.chunks: list[Any] = []
        self.at = 0
        self.used = 0
        self.allocations = 0

    def reset(self) -> None:
        self.at = self.used = 0

    def take(self, nbytes: int) -> Any:
        """`nbytes` bytes (flat, uint8), not cleared, that stay as they are until `reset`."""
        size = -(-max(nbytes, 1) // ALIGN) * ALIGN
        if self.begin is not None and self.at == self.used == 0:
            self.begin()
        while self.at < len(self.chunks) and self.used + size > self.chunks[self.at].size:
            self.at, self.used = self.at + 1, 0
        if self.at == len(self.chunks):
            many = max(min(self.nbytes // GROWTH, LARGE) // size, CHUNK // size, 1)  # of requests like this one: nothing is left over
            self.chunks.append(self.new(many * size))
            self.allocations += 1
            self.used = 0
        begin = self.used
        self.used += size
        return self.chunks[self.at][begin : begin + nbytes]

    @property
    def taken(self) -> int:
        """Bytes that have been handed out since it was reset, or left over between."""
        return sum(int(c.size) for c in self.chunks[: self.at]) + self.used

    def here(self) -> tuple[int, int]:
        """The place that `back_to` comes back to."""
        return self.at, self.used

    def back_to(self, place: tuple[int, int]) -> None:
        """What was handed out after that place is handed out again."""
        self.at, self.used = place

    def room(self, shape: Sequence[int], dtype: Any) -> Any:
        """Room in the arena as a dense array."""
        dtype = np.dtype(dtype)
        return self.take(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks."""
        return sum(int(c.size) for c in self.chunks)


class Full(Exception):
    """A tape's memory is not to grow by a request."""


class Separate(Arena):
    """An arena that takes each request as an allocation of its own, so that a request costs what a pool rounds it to, and all can be let
    go. `admit`: asked before memory is made, for so many bytes."""

    def __init__(self, new: Callable[[int], Any], admit: Callable[[int], bool]) -> None:
        super().__init__(new)
        self.admit = admit

    def take(self, nbytes: int) -> Any:
        """`nbytes` bytes (flat, uint8), not cleared, that stay as they are until `reset`. Full where they are not admitted."""
        size = max(nbytes, 1)
        if self.at == len(self.chunks) or int(self.chunks[self.at].size) != size:
            del self.chunks[self.at :]
            if not self.admit(rounded(size)):
                raise Full
            self.chunks.append(self.new(size))
            self.allocations += 1
        self.at += 1
        return self.chunks[self.at - 1][:nbytes]

    def drop(self) -> None:
        """Lets all go."""
        self.chunks, self.at = [], 0

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks, as a pool rounds them."""
        return sum(rounded(int(c.size)) for c in self.chunks)


class Exact(Arena):
    """An arena for one operation at a time that is as large as what is asked of it, and no larger. `admit`: asked before it grows. `most`:
    bytes that were in use at once; whoever wants to know sets it to 0 before."""

    def __init__(self, new: Callable[[int], Any], begin: Callable[[], None], admit: Callable[[int], None]) -> None:
        super().__init__(new, begin)
        self.admit, self.most, self.pinned = admit, 0, False

    def reset(self) -> None:
        if not self.pinned:
            self.chunks = []
        super().reset()

    def take(self, nbytes: int) -> Any:
        """As of any arena; whoever is asked may raise before memory is made."""
        size = rounded(nbytes)
        if not any(self.used * (k == self.at) + size <= c.size for k, c in enumerate(self.chunks) if k >= self.at):
            self._grow(size)
        found = super().take(size)[:nbytes]
        self.most = max(self.most, self.taken)
        return found

    def size(self, nbytes: int) -> None:
        """Makes it so large, in one piece, for who goes on using the same places (`pinned`). Nothing of it may be in use."""
        self.chunks, self.at, self.used, self.pinned = [], 0, 0, True
        if nbytes:
            self._grow(rounded(nbytes))

    def free(self) -> None:
        """Lets all go; it has as much as is asked of it from here on."""
        self.chunks, self.at, self.used, self.pinned = [], 0, 0, False

    def _grow(self, size: int) -> None:
        self.admit(size)
        self.chunks.append(self.new(size))
        self.allocations += 1


class Pooled:
    """An executor whose arrays come from an arena; `do` does what it does to memory, at once or later."""

    def __init__(self, inner: Executor, arena: Arena, do: Callable[[Action], None] = perform_one) -> None:
        self.inner = inner
        self.arena = arena
        self.do = do
        self.name = inner.name
        self.orders_blocks = inner.orders_blocks
        self.sums_over_blocks = inner.sums_over_blocks
        self.has_rows = inner.has_rows

    def launch(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0, stream: Any = None) -> None:
        """As the executor itself."""
        self.do(self.inner.prepared(kernel, grid, block, args, shared_mem=shared_mem))

    def prepared(self, kernel: Kernel, grid: Dim3, block: Dim3, args: Sequence[Argument], *, shared_mem: int = 0) -> Callable[[], Any]:
        """As the executor itself."""
        return self.inner.prepared(kernel, grid, block, args, shared_mem=shared_mem)

    def captured(self, run: Callable[[], None]) -> Callable[[], None]:
        """As the executor itself."""
        return self.inner.captured(run)

    def prepare(self, kernels: Sequence[Kernel], threads: int = 1) -> None:
        """As the executor itself."""
        self.inner.prepare(kernels, threads)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """As the executor itself."""
        return self.inner.on(stream)

    def stream(self) -> Any:
        """As the executor itself."""
        return self.inner.stream()

    def wait(self, stream: Any) -> None:
        """As the executor itself."""
        self.inner.wait(stream)

    def marked(self, mark: Any = None) -> Any:
        """As the executor itself."""
        return self.inner.marked(mark)

    def free(self) -> int:
        """As the executor itself."""
        return self.inner.free()

    def zeros(self, length: int, dtype: Any) -> Any:
        """Zeros from the arena."""
        dtype = np.dtype(dtype)
        data = self.arena.take(length * dtype.itemsize).view(dtype)
        self.do(clearing(data))
        return data

    def copy(self, array: NdArray) -> Any:
        """A copy in the arena."""
        data = self.arena.take(int(array.nbytes)).view(array.dtype)
        self.do(copying(data, array))
        return data

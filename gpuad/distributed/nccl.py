"""The maps of `linear`, and messages from rank to rank, by NCCL through CuPy.

Everything is put into the stream that is current, and nothing is waited for. Messages are collected until one of them is asked for, and go
as one group, since NCCL's sends and receives wait for each other; they have no tags, so those between two ranks come in the order in which
they were begun. NCCL says nothing of ranks that differ or are gone: what all are about to do is compared through MPI before each call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ..arguments.arrays import namespace
from .linear import Shape
from .mpi import in_rank_order, summable, zeros

_TYPES = {"float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64", "int32": "NCCL_INT32", "int64": "NCCL_INT64", "uint8": "NCCL_UINT8"}


@dataclass(eq=False)
class Queued:
    """A message that was begun. `array`: what is sent or received."""

    array: Any
    start: Callable[[], None]
    what: str


class NcclTransport:
    """One direction of a communicator. `nccl`: CuPy's, `rank`, `size`: in it. `nbytes`, `messages`: as of `MpiTransport`."""

    def __init__(self, nccl: Any, rank: int, size: int) -> None:
        self.nccl, self.rank, self.size = nccl, rank, size
        self.library = sys.modules[type(nccl).__module__]
        self.nbytes = self.messages = 0
        self._queue: list[Queued] = []

    # --- the table's maps ------------------------------------------------------------------------------------------------------------

    def sum_all(self, x: Any, shape: Shape) -> Any:
        self._count(x.nbytes)
        if shape.in_order:
            return in_rank_order(self._all(x, (int(x.size),) * self.size, shape), self.size)
        return self._reduced(x, shape, self.library.NCCL_SUM)

    def sum_to_root(self, x: Any, shape: Shape) -> Any:
        x = zeros(shape, shape.counts[0]) if x is None else x
        self._count(0 if self.rank == shape.root else x.nbytes)
        if shape.in_order:
            parts = self._at_root(x, replace(shape, counts=(int(x.size),) * self.size))
            return in_rank_order(parts, self.size) if parts is not None else None
        given = summable(x)
        total = shape.new(int(given.size), given.dtype)
        with self._at_once():
            self._reduce(given, total, shape.root)
        return total.astype(x.dtype) if self.rank == shape.root else None

    def root_to_all(self, x: Any, shape: Shape) -> Any:
        y = shape.new(shape.counts[0], shape.dtype) if x is None or self.rank != shape.root else x
        self._count(0 if self.rank == shape.root else y.nbytes)
        with self._at_once():
            self.nccl.bcast(y.data.ptr, int(y.nbytes), self.library.NCCL_UINT8, shape.root, _stream(y))
        return y

    def gather_all(self, x: Any, shape: Shape) -> Any:
        y = self._all(x, shape.counts, shape)
        self._count(y.nbytes - x.nbytes)
        return y

    def sum_blocks(self, x: Any, shape: Shape) -> Any:
        own = shape.counts[self.rank]
        self._count(x.nbytes - own * x.dtype.itemsize)
        if shape.in_order:
            return in_rank_order(self._exchanged(x, replace(shape, takes=(own,) * self.size)), self.size)
        given = summable(x)
        total = shape.new(own, given.dtype)
        with self._at_once():
            for rank, (a, z) in enumerate(_places(shape.counts)):
                self._reduce(given[a:z], total if rank == self.rank else given[a:z], rank)
        return total.astype(x.dtype)

    def gather_to_root(self, x: Any, shape: Shape) -> Any:
        x = zeros(shape, shape.counts[self.rank]) if x is None else x
        self._count(0 if self.rank == shape.root else x.nbytes)
        return self._at_root(x, shape)

    def deal(self, x: Any, shape: Shape) -> Any:
        y = shape.new(shape.counts[self.rank], shape.dtype)
        self._count(0 if self.rank == shape.root else y.nbytes)
        with self._at_once():
            for rank, (a, z) in enumerate(_places(shape.counts)) if self.rank == shape.root else ():
                self._put(x[a:z], rank)
            self._take(y, shape.root)
        return y

    def exchange(self, x: Any, shape: Shape) -> Any:
        self._count((sum(shape.counts) - shape.counts[self.rank]) * shape.dtype.itemsize)
        return self._exchanged(x, shape)

    # --- extrema ---------------------------------------------------------------------------------------------------------------------

    def extreme(self, x: Any, name: str, shape: Shape) -> tuple[Any, Any]:
        """As of `MpiTransport`."""
        library, op = namespace(x), getattr(self.library, f"NCCL_{name}")
        given, missing = summable(x), library.isnan(x)
        given = library.where(missing, given.dtype.type(-np.inf if name == "MAX" else np.inf), given)
        self._count(x.nbytes)
        best = self._reduced(given, shape, op)
        rank = library.where(missing, self.rank, library.where(given == best, self.size + self.rank, 2 * self.size)).astype(np.int32)
        first = self._reduced(rank, shape, self.library.NCCL_MIN)
        best[first < self.size] = np.nan
        return best.astype(x.dtype), first % self.size

    # --- messages --------------------------------------------------------------------------------------------------------------------

    def send(self, x: Any, dest: int, tag: int) -> Queued:
        """Begins to send a flat contiguous array, which nobody may write until it has left."""
        self._count(x.nbytes)
        return self._queued(x, partial(self._put, x, dest), f"a message to rank {dest}")

    def receive(self, y: Any, source: int, tag: int) -> Queued:
        """Begins to receive into a flat contiguous array."""
        return self._queued(y, partial(self._take, y, source), f"a message from rank {source}")

    def finish(self, pending: Queued) -> Any:
        """Sends and receives all that was begun, in the current stream; gives the message's array."""
        if pending in self._queue:
            self.all_left()
        return pending.array

    def all_left(self) -> None:
        """Sends and receives all that was begun."""
        queue, self._queue = self._queue, []
        if queue:
            self.library.groupStart()
            for queued in queue:
                queued.start()
            self.library.groupEnd()

    # --- how -------------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """A group, after all messages that were begun before it."""
        self.all_left()
        self.library.groupStart()
        yield
        self.library.groupEnd()

    def _queued(self, array: Any, start: Callable[[], None], what: str) -> Queued:
        queued = Queued(array, start, what)
        self._queue.append(queued)
        return queued

    def _put(self, x: Any, rank: int) -> None:
        if x.nbytes:
            self.nccl.send(x.data.ptr, int(x.nbytes), self.library.NCCL_UINT8, rank, _stream(x))

    def _take(self, y: Any, rank: int) -> None:
        if y.nbytes:
            self.nccl.recv(y.data.ptr, int(y.nbytes), self.library.NCCL_UINT8, rank, _stream(y))

    def _reduced(self, x: Any, shape: Shape, op: int) -> Any:
        given = summable(x)
        total = shape.new(int(given.size), given.dtype)
        with self._at_once():
            self.nccl.allReduce(given.data.ptr, total.data.ptr, *self._numbers(given), op, _stream(given))
        return total.astype(x.dtype)

    def _reduce(self, x: Any, y: Any, root: int) -> None:
        if x.size:
            self.nccl.reduce(x.data.ptr, y.data.ptr, *self._numbers(x), self.library.NCCL_SUM, root, _stream(x))

    def _all(self, x: Any, counts: tuple[int, ...], shape: Shape) -> Any:
        y = shape.new(sum(counts), x.dtype)
        with self._at_once():
            for rank, (a, z) in enumerate(_places(counts)):
                self._put(x, rank)
                self._take(y[a:z], rank)
        return y

    def _at_root(self, x: Any, shape: Shape) -> Any:
        y = shape.new(sum(shape.counts), x.dtype) if self.rank == shape.root else None
        with self._at_once():
            self._put(x, shape.root)
            if y is not None:
                for rank, (a, z) in enumerate(_places(shape.counts)):
                    self._take(y[a:z], rank)
        return y

    def _exchanged(self, x: Any, shape: Shape) -> Any:
        y = shape.new(sum(shape.takes), x.dtype)
        with self._at_once():
            for rank, ((a, z), (b, e)) in enumerate(zip(_places(shape.counts), _places(shape.takes), strict=True)):
                self._put(x[a:z], rank)
                self._take(y[b:e], rank)
        return y

    def _numbers(self, x: Any) -> tuple[int, int]:
        """How many numbers of which of NCCL's types: a complex one is two."""
        dtype, count = x.dtype, int(x.size)
        if dtype.kind == "c":
            dtype, count = np.dtype(f"f{dtype.itemsize // 2}"), 2 * count
        return count, getattr(self.library, _TYPES[dtype.name])

    def _count(self, nbytes: int) -> None:
        self.nbytes += int(nbytes)
        self.messages += 1


def _stream(x: Any) -> int:
    return int(namespace(x).cuda.get_current_stream().ptr)


def _places(counts: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(pairwise((0, *accumulate(counts))))

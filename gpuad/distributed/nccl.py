"""The maps of `linear`, and messages from rank to rank, by NCCL through CuPy.

Everything is put into the stream that is current, and nothing is waited for. Messages are collected until one of them is asked for, and go
as one group, since NCCL's sends and receives wait for each other; they have no tags, so those between two ranks come in the order in which
they were begun. NCCL says nothing of ranks that differ or are gone: what all are about to do is compared through MPI before each call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ..arguments.arrays import namespace
from .linear import Shape, Transport, summable

_TYPES = {"float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64", "int32": "NCCL_INT32", "int64": "NCCL_INT64", "uint8": "NCCL_UINT8"}


@dataclass(eq=False)
class Queued:
    """A message that was begun. `array`: what is sent or received."""

    array: Any
    start: Callable[[], None]
    what: str


class NcclTransport(Transport):
    """One direction of a communicator. `nccl`: CuPy's, `rank`, `size`: in it."""

    def __init__(self, nccl: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.nccl, self.library = nccl, sys.modules[type(nccl).__module__]
        self._queue: list[Queued] = []

    # --- what the maps are made of -----------------------------------------------------------------------------------------------------

    def reduced(self, x: Any, shape: Shape, op: str) -> Any:
        given = summable(x)
        total = shape.new(int(given.size), given.dtype)
        with self._at_once():
            what = getattr(self.library, f"NCCL_{op}")
            self.nccl.allReduce(given.data.ptr, total.data.ptr, *self._numbers(given), what, _stream(given))
        return total.astype(x.dtype, copy=False)

    def summed_at_root(self, x: Any, shape: Shape) -> Any:
        given = summable(x)
        total = shape.new(int(given.size), given.dtype)
        with self._at_once():
            self._reduce(given, total, shape.root)
        return total.astype(x.dtype, copy=False) if self.rank == shape.root else None

    def copy_from_root(self, y: Any, shape: Shape) -> None:
        with self._at_once():
            self.nccl.bcast(y.data.ptr, int(y.nbytes), self.library.NCCL_UINT8, shape.root, _stream(y))

    def all_blocks(self, x: Any, counts: tuple[int, ...], shape: Shape) -> Any:
        y = shape.new(sum(counts), x.dtype)
        with self._at_once():
            for rank, (a, z) in enumerate(_places(counts)):
                self._put(x, rank)
                self._take(y[a:z], rank)
        return y

    def summed_block(self, x: Any, shape: Shape) -> Any:
        given = summable(x)
        total = shape.new(shape.counts[self.rank], given.dtype)
        with self._at_once():
            for rank, (a, z) in enumerate(_places(shape.counts)):
                self._reduce(given[a:z], total if rank == self.rank else given[a:z], rank)
        return total.astype(x.dtype, copy=False)

    def blocks_at_root(self, x: Any, shape: Shape) -> Any:
        y = shape.new(sum(shape.counts), x.dtype) if self.rank == shape.root else None
        with self._at_once():
            self._put(x, shape.root)
            if y is not None:
                for rank, (a, z) in enumerate(_places(shape.counts)):
                    self._take(y[a:z], rank)
        return y

    def scatter_from_root(self, x: Any, y: Any, shape: Shape) -> None:
        with self._at_once():
            for rank, (a, z) in enumerate(_places(shape.counts)) if self.rank == shape.root else ():
                self._put(x[a:z], rank)
            self._take(y, shape.root)

    def exchanged(self, x: Any, shape: Shape) -> Any:
        y = shape.new(sum(shape.takes), x.dtype)
        with self._at_once():
            for rank, ((a, z), (b, e)) in enumerate(zip(_places(shape.counts), _places(shape.takes), strict=True)):
                self._put(x[a:z], rank)
                self._take(y[b:e], rank)
        return y

    # --- messages --------------------------------------------------------------------------------------------------------------------

    def send(self, x: Any, dest: int, tag: int) -> Queued:
        """Begins to send a flat contiguous array, which may not be written until it has left."""
        self.count(x.nbytes)
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

    def _reduce(self, x: Any, y: Any, root: int) -> None:
        if x.size:
            self.nccl.reduce(x.data.ptr, y.data.ptr, *self._numbers(x), self.library.NCCL_SUM, root, _stream(x))

    def _numbers(self, x: Any) -> tuple[int, int]:
        """How many numbers of which of NCCL's types: a complex one is two."""
        dtype, count = x.dtype, int(x.size)
        if dtype.kind == "c":
            dtype, count = np.dtype(f"f{dtype.itemsize // 2}"), 2 * count
        return count, getattr(self.library, _TYPES[dtype.name])


def _stream(x: Any) -> int:
    return int(namespace(x).cuda.get_current_stream().ptr)


def _places(counts: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(pairwise((0, *accumulate(counts))))

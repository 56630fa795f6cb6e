"""The maps of `linear`, and messages from rank to rank, by MPI through mpi4py.

What is only moved goes as bytes, so that every dtype can be; sums are formed by MPI in the dtype itself, of halves in float32. Every call
is started without blocking and waited for by a `Watch`. Arrays of a device go to MPI as they are (it has to be GPU-aware); the stream on
which they were made is waited for before, since MPI does not know it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from ..arguments.arrays import namespace
from ..ir.dtypes import is_half
from .linear import Shape
from .watch import Watch, keep


@dataclass(eq=False)
class Pending:
    """A message on its way: a request of MPI, and the memory that it uses. `array`: what is received."""

    request: Any
    array: Any
    what: str


class MpiTransport:
    """One direction (forward or reverse) of a communicator, on one of MPI's of its own. `nbytes`: the payload of this rank so far, of which
    all ranks together count each byte once: what it sent, of copies from and sums to a root what is not the root's own."""

    def __init__(self, comm: Any, watch: Watch) -> None:
        import mpi4py.MPI as mpi

        self.mpi, self.comm, self.watch = mpi, comm, watch
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.nbytes = self.messages = 0
        self._leaving: list[Pending] = []

    def renew(self, comm: Any) -> None:
        """Goes on with another communicator; what is on its way on the one before is forgotten."""
        keep(self._leaving)
        self.comm, self._leaving = comm, []

    # --- the table's maps ------------------------------------------------------------------------------------------------------------

    def sum_all(self, x: Any, shape: Shape) -> Any:
        self._count(x.nbytes)
        if shape.in_order:
            return in_rank_order(self._gathered(x, shape), self.size)
        given = summable(x)
        total = shape.new(int(given.size), given.dtype)
        self._do("Allreduce", self.comm.Iallreduce, self._numbers(given), self._numbers(total))
        return total.astype(x.dtype, copy=False)

    def sum_to_root(self, x: Any, shape: Shape) -> Any:
        is_root = self.rank == shape.root
        x = zeros(shape, shape.counts[0]) if x is None else x
        self._count(0 if is_root else x.nbytes)
        if shape.in_order:
            found = self._at_root(x, replace(shape, counts=(int(x.size),) * self.size))
            return in_rank_order(found, self.size) if is_root else None
        given = summable(x)
        total = shape.new(int(given.size), given.dtype) if is_root else None
        self._do("Reduce", self.comm.Ireduce, self._numbers(given), None if total is None else self._numbers(total), root=shape.root)
        return None if total is None else total.astype(x.dtype, copy=False)

    def root_to_all(self, x: Any, shape: Shape) -> Any:
        y = shape.new(shape.counts[0], shape.dtype) if x is None or self.rank != shape.root else x
        self._count(0 if self.rank == shape.root else y.nbytes)
        self._do("Bcast", self.comm.Ibcast, self._bytes(y), root=shape.root)
        return y

    def gather_all(self, x: Any, shape: Shape) -> Any:
        y = self._all(x, shape)
        self._count(y.nbytes - x.nbytes)
        return y

    def sum_blocks(self, x: Any, shape: Shape) -> Any:
        own = shape.counts[self.rank]
        self._count(x.nbytes - own * x.dtype.itemsize)
        if shape.in_order:
            takes = replace(shape, takes=(own,) * self.size)
            return in_rank_order(self._exchanged(x, takes), self.size)
        given = summable(x)
        total = shape.new(own, given.dtype)
        self._do("Reduce_scatter", self.comm.Ireduce_scatter, self._numbers(given), self._numbers(total), list(shape.counts))
        return total.astype(x.dtype, copy=False)

    def gather_to_root(self, x: Any, shape: Shape) -> Any:
        x = zeros(shape, shape.counts[self.rank]) if x is None else x
        self._count(0 if self.rank == shape.root else x.nbytes)
        return self._at_root(x, shape)

    def deal(self, x: Any, shape: Shape) -> Any:
        y, size = shape.new(shape.counts[self.rank], shape.dtype), shape.dtype.itemsize
        self._count(0 if self.rank == shape.root else y.nbytes)
        given = None if self.rank != shape.root else [*self._bytes(x)[:1], *_blocks(shape.counts, size), self.mpi.BYTE]
        self._do("Scatter", self.comm.Iscatterv, given, self._bytes(y), root=shape.root)
        return y

    def exchange(self, x: Any, shape: Shape) -> Any:
        self._count((sum(shape.counts) - shape.counts[self.rank]) * shape.dtype.itemsize)
        return self._exchanged(x, shape)

    # --- extrema -------------------------------------------------------------------------------------------------------------------------

    def extreme(self, x: Any, name: str, shape: Shape) -> tuple[Any, Any]:
        """The greatest (or least) of all ranks' numbers, for all, and the rank of each: the lowest of those that have it, and where there
        are NaN, which win as in NumPy, the lowest that has one."""
        library, op = namespace(x), getattr(self.mpi, name)
        given, missing = summable(x), library.isnan(x)
        given = library.where(missing, given.dtype.type(-np.inf if name == "MAX" else np.inf), given)
        best, first = shape.new(int(x.size), given.dtype), shape.new(int(x.size), np.dtype(np.int32))
        self._count(x.nbytes)
        self._do("Allreduce", self.comm.Iallreduce, self._numbers(given), self._numbers(best), op=op)
        rank = library.where(missing, self.rank, library.where(given == best, self.size + self.rank, 2 * self.size)).astype(np.int32)
        self._do("Allreduce", self.comm.Iallreduce, self._numbers(rank), self._numbers(first), op=self.mpi.MIN)
        best[first < self.size] = np.nan
        return best.astype(x.dtype, copy=False), first % self.size

    # --- messages ------------------------------------------------------------------------------------------------------------------------

    def send(self, x: Any, dest: int, tag: int) -> Pending:
        """Starts to send a flat contiguous array, which nobody may write until it has left."""
        self._count(x.nbytes)
        what = f"a message to rank {dest} with tag {tag}"
        pending = Pending(self.comm.Isend(self._bytes(x), dest, tag), x, what)
        self._leaving = [p for p in self._leaving if not p.request.Test()]
        self._leaving.append(pending)
        return pending

    def receive(self, y: Any, source: int, tag: int) -> Pending:
        """Starts to receive into a flat contiguous array."""
        request = self.watch.hold(self.comm.Irecv(self._bytes(y), source, tag), y)
        return Pending(request, y, f"a message from rank {source} with tag {tag}")

    def finish(self, pending: Pending) -> Any:
        """Waits for a message; gives its array."""
        self.watch.wait(pending.request, pending.what, pending.array)
        self._leaving = [p for p in self._leaving if p is not pending]
        return pending.array

    def all_left(self) -> None:
        """Waits until all that was sent has left."""
        leaving, self._leaving = self._leaving, []
        for pending in leaving:
            self.finish(pending)

    # --- how -----------------------------------------------------------------------------------------------------------------------------

    def _all(self, x: Any, shape: Shape) -> Any:
        y, size = shape.new(sum(shape.counts), x.dtype), x.dtype.itemsize
        into = [*self._bytes(y)[:1], *_blocks(shape.counts, size), self.mpi.BYTE]
        self._do("Allgather", self.comm.Iallgatherv, self._bytes(x), into)
        return y

    def _gathered(self, x: Any, shape: Shape) -> Any:
        return self._all(x, replace(shape, counts=(int(x.size),) * self.size))

    def _at_root(self, x: Any, shape: Shape) -> Any:
        is_root = self.rank == shape.root
        y = shape.new(sum(shape.counts), x.dtype) if is_root else None
        into = None if y is None else [*self._bytes(y)[:1], *_blocks(shape.counts, x.dtype.itemsize), self.mpi.BYTE]
        self._do("Gather", self.comm.Igatherv, self._bytes(x), into, root=shape.root)
        return y

    def _exchanged(self, x: Any, shape: Shape) -> Any:
        y, size = shape.new(sum(shape.takes), x.dtype), x.dtype.itemsize
        given = [*self._bytes(x)[:1], *_blocks(shape.counts, size), self.mpi.BYTE]
        into = [*self._bytes(y)[:1], *_blocks(shape.takes, size), self.mpi.BYTE]
        self._do("Alltoall", self.comm.Ialltoallv, given, into)
        return y

    def _do(self, what: str, start: Any, *args: Any, **keywords: Any) -> None:
        self.watch.wait(start(*args, **keywords), f"{what} on {self.size} ranks", args)

    def _count(self, nbytes: int) -> None:
        self.nbytes += int(nbytes)
        self.messages += 1

    def _bytes(self, x: Any) -> list[Any]:
        settle(x)
        return [x.view(np.uint8), int(x.nbytes), self.mpi.BYTE]

    def _numbers(self, x: Any) -> list[Any]:
        settle(x)
        return [x, int(x.size), self.mpi.Datatype.fromcode(x.dtype.char)]


def settle(x: Any) -> None:
    """Waits for the stream on which an array of a device was written: MPI reads it at once."""
    if not isinstance(x, np.ndarray):
        namespace(x).cuda.get_current_stream().synchronize()


def summable(x: Any) -> Any:
    """In a dtype that MPI adds."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def zeros(shape: Shape, count: int) -> Any:
    made = shape.new(count, shape.dtype)
    made.fill(0)
    return made


def _blocks(counts: tuple[int, ...], size: int) -> tuple[list[int], list[int]]:
    """Bytes of each rank's block, and where it begins."""
    sizes = [n * size for n in counts]
    return sizes, [0, *accumulate(sizes[:-1])]


def in_rank_order(parts: Any, count: int) -> Any:
    """The sum of vectors that lie one after the other, the first two first."""
    rows = parts.reshape(count, -1)
    total = summable(rows[0]).copy()
    for row in rows[1:]:
        total += row
    return total.astype(parts.dtype, copy=False)

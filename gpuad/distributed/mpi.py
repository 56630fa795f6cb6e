"""The maps of `linear`, and messages from rank to rank, by MPI through mpi4py.

What is only moved goes as bytes, so that every dtype can be; sums are formed by MPI in the dtype itself, of halves in float32. Every call
is started without blocking and waited for by a `Watch`. Arrays of a device go to MPI as they are (it has to be GPU-aware); the stream on
which they were made is waited for before, since MPI does not know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from ..arguments.arrays import namespace
from .linear import Shape, Transport, summable
from .watch import Watch, keep


@dataclass(eq=False)
class Pending:
    """A message on its way: a request of MPI, and the memory that it uses. `array`: what is received."""

    request: Any
    array: Any
    what: str


class MpiTransport(Transport):
    """One direction (forward or reverse) of a communicator, on one of MPI's of its own."""

    def __init__(self, comm: Any, watch: Watch) -> None:
        import mpi4py.MPI as mpi

        self.mpi, self.comm, self.watch = mpi, comm, watch
        super().__init__(int(comm.Get_rank()), int(comm.Get_size()))
        self._leaving: list[Pending] = []

    def renew(self, comm: Any) -> None:
        """Goes on with another communicator; what is on its way on the one before is forgotten."""
        keep(self._leaving)
        self.comm, self._leaving = comm, []

    # --- what the maps are made of -----------------------------------------------------------------------------------------------------

    def reduced(self, x: Any, shape: Shape, op: str) -> Any:
        given = summable(x)
        total = shape.new(int(given.size), given.dtype)
        self._do("Allreduce", self.comm.Iallreduce, self._numbers(given), self._numbers(total), op=getattr(self.mpi, op))
        return total.astype(x.dtype, copy=False)

    def summed_at_root(self, x: Any, shape: Shape) -> Any:
        given = summable(x)
        total = shape.new(int(given.size), given.dtype) if self.rank == shape.root else None
        self._do("Reduce", self.comm.Ireduce, self._numbers(given), None if total is None else self._numbers(total), root=shape.root)
        return None if total is None else total.astype(x.dtype, copy=False)

    def copy_from_root(self, y: Any, shape: Shape) -> None:
        self._do("Bcast", self.comm.Ibcast, self._bytes(y), root=shape.root)

    def all_blocks(self, x: Any, counts: tuple[int, ...], shape: Shape) -> Any:
        y = shape.new(sum(counts), x.dtype)
        self._do("Allgather", self.comm.Iallgatherv, self._bytes(x), self._blocks(y, counts))
        return y

    def summed_block(self, x: Any, shape: Shape) -> Any:
        given = summable(x)
        total = shape.new(shape.counts[self.rank], given.dtype)
        self._do("Reduce_scatter", self.comm.Ireduce_scatter, self._numbers(given), self._numbers(total), list(shape.counts))
        return total.astype(x.dtype, copy=False)

    def blocks_at_root(self, x: Any, shape: Shape) -> Any:
        y = shape.new(sum(shape.counts), x.dtype) if self.rank == shape.root else None
        into = None if y is None else self._blocks(y, shape.counts)
        self._do("Gather", self.comm.Igatherv, self._bytes(x), into, root=shape.root)
        return y

    def scatter_from_root(self, x: Any, y: Any, shape: Shape) -> None:
        given = None if self.rank != shape.root else self._blocks(x, shape.counts)
        self._do("Scatter", self.comm.Iscatterv, given, self._bytes(y), root=shape.root)

    def exchanged(self, x: Any, shape: Shape) -> Any:
        y = shape.new(sum(shape.takes), x.dtype)
        self._do("Alltoall", self.comm.Ialltoallv, self._blocks(x, shape.counts), self._blocks(y, shape.takes))
        return y

    # --- messages ------------------------------------------------------------------------------------------------------------------------

    def send(self, x: Any, dest: int, tag: int) -> Pending:
        """Starts to send a flat contiguous array, which may not be written until it has left."""
        self.count(x.nbytes)
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

    def _do(self, what: str, start: Any, *args: Any, **keywords: Any) -> None:
        self.watch.wait(start(*args, **keywords), f"{what} on {self.size} ranks", args)

    def _bytes(self, x: Any) -> list[Any]:
        wait_for_stream(x)
        return [x.view(np.uint8), int(x.nbytes), self.mpi.BYTE]

    def _blocks(self, x: Any, counts: tuple[int, ...]) -> list[Any]:
        """An array as blocks of so many elements, one for each rank."""
        sizes = [n * int(x.dtype.itemsize) for n in counts]
        return [*self._bytes(x)[:1], (sizes, [0, *accumulate(sizes[:-1])]), self.mpi.BYTE]

    def _numbers(self, x: Any) -> list[Any]:
        wait_for_stream(x)
        return [x, int(x.size), self.mpi.Datatype.fromcode(x.dtype.char)]


def wait_for_stream(x: Any) -> None:
    """Waits for the stream on which an array of a device was written: MPI reads it at once."""
    if not isinstance(x, np.ndarray):
        namespace(x).cuda.get_current_stream().synchronize()

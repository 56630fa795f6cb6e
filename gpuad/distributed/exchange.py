"""What a communicator exchanges, as the rules of collectives and messages (`operations`) ask for it.

In: one of MPI's communicators, or one of NCCL's with it; calls and messages as rules record them. Out: arrays that came, after the ranks
have agreed that they make the same call, or that a message is what is expected. Forward and reverse go by communicators of their own, so
that one never takes what the other has sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments.arrays import namespace
from ..errors import DistributedError
from . import operations
from .agreement import HEADER, Agreement, compare_header, header
from .mpi import MpiTransport, Pending
from .nccl import NcclTransport, Queued
from .operations import Call, Message
from .request import Request
from .watch import Watch, keep

NUMBERS = 64  # of one (rank, tag), how many messages may be on their way


class Exchange:
    """The ranks, the two directions, and what is on its way. `rank`, `size`; `mpi`: MPI's own; `wrapped`: the caller has wrapped it, and
    not made it of another one; `tags`: how many there are."""

    def __init__(self, mpi: Any, watch: Watch | None, limit: float, check: bool, nccl: Any = None) -> None:
        import mpi4py.MPI

        self.MPI = mpi4py.MPI
        self.mpi, self.nccl = mpi, nccl
        self.rank, self.size = int(mpi.Get_rank()), int(mpi.Get_size())
        self.watch, self.wrapped = watch or Watch(mpi, limit), watch is None
        calls, forward, back = self.watch.duplicates(mpi, 3)
        self.check, self._calls = check, Agreement(calls, self.watch)
        self.forward, self.back = self._transport(forward), self._transport(back)
        self.tags = int(mpi.Get_attr(self.MPI.TAG_UB)) // NUMBERS if nccl is None else 1  # NCCL has none: messages come in order
        self.requests: dict[int, Any] = {}
        self.back_requests: dict[int, Pending | Queued] = {}
        self.open: dict[int, Request] = {}  # requests that were not waited for, by their slot
        self._library: Any = np
        self.number = len(operations.communicators)
        operations.communicators.append(self)

    def _transport(self, own: Any) -> MpiTransport | NcclTransport:
        """One direction."""
        return MpiTransport(own, self.watch) if self.nccl is None else NcclTransport(self.nccl, self.rank, self.size)

    @property
    def calls(self) -> Agreement:
        """Where ranks compare."""
        return self._calls

    def start_again(self) -> None:
        """Goes on with other communicators of MPI; all ranks call it."""
        calls, forward, back = self.watch.duplicates(self.mpi, 3)
        self._calls.renew(calls)
        for transport, comm in ((self.forward, forward), (self.back, back)):
            if isinstance(transport, MpiTransport):
                transport.renew(comm)
        keep(self.requests, self.back_requests)
        self.requests, self.back_requests, self.open = {}, {}, {}

    def library(self, *arrays: Any) -> Any:
        """Whose arrays a call works on; where it has none, whose the last one did."""
        array = next((a for a in arrays if a is not None), None)
        if array is not None:
            self._library = namespace(array)
        return self._library

    def agree(self, call: Call) -> None:
        """Compares a collective with the others', before anything is sent."""
        self.watch.require()
        if not self.check or self.size == 1:
            return
        wrong = self._calls.counts_fit(call.given, call.expected) if call.given else []
        self._calls.same(call.said, "; ".join(wrong), otherwise=f"{call.name}: the ranks do not make the same call")

    def post_send(self, call: Message, array: Any) -> tuple[Pending | Queued, Any]:
        """Starts to send, with what says what it is before it."""
        assert call.dest is not None
        self.watch.require()
        self._calls.sends(call.dest, call.send_tag)
        x = operations.packed(array, ()) if array is not None else self._library.empty(0, np.uint8)
        said = header(int(x.nbytes), call.dtype, call.active)
        first = self.watch.hold(self._calls.comm.Isend([said, self.MPI.BYTE], call.dest, call.send_tag), said) if self.check else None
        return self.forward.send(x, call.dest, call.send_tag), (first, said)

    def sent(self, leaving: tuple[Any, Any]) -> None:
        """Waits until it has left."""
        pending, (first, said) = leaving
        self.forward.finish(pending)
        if first is not None:
            self.watch.wait(first, pending.what, said)

    def post_receive(self, call: Message, array: Any) -> tuple[Pending | Queued, Any]:
        """Starts to receive into memory of its own."""
        assert call.source is not None
        self.watch.require()
        self._calls.asks(call.source, call.recv_tag)
        library = self.library(array)
        y = library.empty(int(array.size) if array is not None else 0, array.dtype if array is not None else np.uint8)
        came, own = bytearray(HEADER), header(int(y.nbytes), call.dtype, call.active)
        first = self.watch.hold(self._calls.comm.Irecv([came, self.MPI.BYTE], call.source, call.recv_tag), came) if self.check else None
        return self.forward.receive(y, call.source, call.recv_tag), (first, came, own)

    def received(self, coming: tuple[Any, Any]) -> Any:
        """Waits for a message, which has to be what is expected."""
        pending, (first, came, own) = coming
        if first is not None:
            self.watch.wait(first, pending.what, (came, pending.array))
            try:
                compare_header(bytes(came), own, pending.what)
            except DistributedError as error:  # the array itself is still received, and not wanted
                keep(pending)
                self.watch.tell(error)
                raise
        return self.forward.finish(pending)

    def back_send(self, call: Message, array: Any) -> None:
        """Sends the shadow of what was received; it leaves on its own."""
        assert call.source is not None
        x = array.reshape(-1).copy() if array is not None else self._library.empty(0, np.uint8)
        self.back.send(x, call.source, call.recv_tag * NUMBERS + call.recv_number % NUMBERS)

    def back_receive(self, call: Message, array: Any) -> Pending | Queued:
        """Starts to receive what is to be added to the shadow of what was sent."""
        assert call.dest is not None
        y = self.library(array).empty(int(array.size) if array is not None else 0, array.dtype if array is not None else np.uint8)
        return self.back.receive(y, call.dest, call.send_tag * NUMBERS + call.send_number % NUMBERS)

"""A communicator whose calls a tape records: MPI's names, arguments as mpi4py takes them, `Duplicated` where an array has a shadow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import accumulate, pairwise
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from ..arguments.annotations import Duplicated, Stopped
from ..arguments.recorder import current
from ..errors import DistributedError, LaunchError, UnsupportedError
from ..ops.temporaries import new_array
from ..pipeline import in_fixed_point
from . import operations
from .buffers import Buffer, Segments, buffer, is_whole, refuse_overlap
from .exchange import NUMBERS, Exchange
from .operations import COLLECTIVES, EXTREMA, ISEND, MESSAGES, SENT, Call, Message
from .request import Request
from .session import Session

P = ParamSpec("P")
T = TypeVar("T")


def _recorded(method: Callable[Concatenate[Communicator, P], T]) -> Callable[Concatenate[Communicator, P], T]:
    """A call of which the recording knows, if there is one: its processes take part from here on."""

    @wraps(method)
    def noted(self: Communicator, /, *args: P.args, **keywords: P.kwargs) -> T:
        self._session()
        return method(self, *args, **keywords)

    return noted


class Communicator(Exchange):
    """The ranks of one of MPI's communicators, as `wrap` gives it.

    Its calls are MPI's, with the buffers that mpi4py's upper-case methods take; an array with a gradient is passed as `Duplicated`, on all
    ranks or on none. Inside of a tape they are recorded, outside of one they take plain arrays. `rank`, `size`; `mpi`: MPI's own.
    Counts are what is sent: a message is as long as the buffer that it is received into.
    """

    # --- as MPI has it -----------------------------------------------------------------------------------------------------------------

    def Get_rank(self) -> int:
        """This process's number in the communicator."""
        return self.rank

    def Get_size(self) -> int:
        """How many processes there are."""
        return self.size

    def Split(self, color: int = 0, key: int = 0) -> Communicator | None:
        """A communicator of the ranks with the same colour; None for MPI.UNDEFINED. All ranks call it. UnsupportedError over NCCL."""
        self._refuse_nccl("Split")
        color, key = int(color), int(key)
        self._all_come("Split")  # MPI's own waits for ever
        part = self.mpi.Split(color, key)
        if part == self.MPI.COMM_NULL:
            return None
        return Communicator(part, self.watch, self.watch.limit, self.check)

    def Dup(self) -> Communicator:
        """A communicator of all ranks, with messages of its own. UnsupportedError over NCCL."""
        self._refuse_nccl("Dup")
        self._all_come("Dup")
        return Communicator(self.mpi.Dup(), self.watch, self.watch.limit, self.check)

    def recover(self) -> None:
        """Begins anew after an error that all ranks have caught, and are past: each calls this on the communicator that was wrapped. It and
        those that were made of it can be used again, and recordings that were complete be reversed. What was on its way is forgotten, and
        matches nothing that comes later; requests that were not waited for are void. LaunchError inside of a tape's block, or on another
        communicator; UnsupportedError over NCCL; DistributedError if a rank does not come within the limit, and then for good.
        """
        self._refuse_nccl("recover")
        if not self.wrapped:
            raise LaunchError("recover() is for the communicator that was wrapped, by all of its ranks. Nothing was changed.")
        if current.get() is not None:
            raise LaunchError("recover() inside of a tape's block, whose recording has to be given up first. Nothing was changed.")
        self.watch.renew(self.mpi)
        for comm in operations.communicators:
            if comm.watch is self.watch:
                comm.start_again()

    # --- collectives ---------------------------------------------------------------------------------------------------------------------

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        """The sum (or MAX, MIN) over all ranks, on all ranks; `sendbuf`: IN_PLACE for the array itself. Of equal ones the lowest rank's
        gets the gradient of a maximum."""
        self._reduced("Allreduce", "sum_all", sendbuf, recvbuf, op, None)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Any = None, root: int = 0) -> None:
        """The sum (or MAX, MIN) over all ranks, at the root; `recvbuf` is None elsewhere."""
        self._reduced("Reduce", "sum_to_root", sendbuf, recvbuf, op, self._root(root))

    @_recorded
    def Bcast(self, buf: Any, root: int = 0) -> None:
        """What the root has, to all."""
        b, is_root = buffer(buf), self.rank == self._root(root)
        call = self._call("Bcast", "root_to_all", (b,), counts=(self._sized(b),), root=root, gives=is_root, gets=not is_root)
        self._run(COLLECTIVES["Bcast"], call, read=b if is_root else None, write=None if is_root else b)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """All ranks' arrays one after the other, on all ranks. `recvbuf`: [x, counts] or [x, (counts, displacements)] if they differ."""
        self._gathered("Allgather", "gather_all", sendbuf, recvbuf, None)

    Allgatherv = Allgather

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """All ranks' arrays one after the other, at the root; `recvbuf` is None elsewhere."""
        self._gathered("Gather", "gather_to_root", sendbuf, recvbuf, self._root(root))

    Gatherv = Gather

    @_recorded
    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Of the root's array to each rank its block. `recvbuf`: IN_PLACE at the root for no copy of its own."""
        root, is_root = self._root(root), self.rank == root
        stays = is_root and self._in_place(recvbuf)
        r = None if stays else buffer(recvbuf)
        s = buffer(sendbuf) if is_root else None
        own = None if r is None else self._sized(r)
        counts, mine = s.blocks(self.size, own) if s is not None else (self._only(own or 0), ())
        gives = self._bytes(counts, s) if s is not None else self._only(0)
        expects = self._at(root, (own if own is not None else counts[self.rank]) * self._itemsize(r or s))
        call = self._call(
            "Scatter", "deal", (s, r), counts=counts, root=root, mine=mine, gives=is_root, gets=not stays, given=gives, expected=expects
        )  # fmt: skip
        self._run(COLLECTIVES["Scatter"], call, read=s, write=r)

    Scatterv = Scatter

    @_recorded
    def Reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Any = None) -> None:
        """Of the sum over all ranks, each rank its block, of `recvcounts` elements."""
        self._refuse_extremum("Reduce_scatter", op)
        r = buffer(recvbuf)
        inside = self._in_place(sendbuf)
        s = r if inside else buffer(sendbuf)
        counts, mine = Buffer(s.x, tuple(map(int, recvcounts)) if recvcounts is not None else None).blocks(self.size)
        own = counts[self.rank]
        if mine or (not inside and r.size != own):
            raise LaunchError(
                f"Reduce_scatter: {sum(counts)} elements are counted of {s.size} that are sent, and {own} of {r.size} that are received. "
                "Nothing was sent."
            )
        outs: Segments = ((0, own),) if inside and own != r.size else ()
        said = f"counts {counts}"
        call = self._call("Reduce_scatter", "sum_blocks", (s, r), counts=counts, outs=outs, said=said)
        self._run(COLLECTIVES["Reduce_scatter"], call, read=None if inside else s, write=None if inside else r, both=r if inside else None)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        """Of the sum over all ranks, each rank its block; all have one size."""
        self.Reduce_scatter(sendbuf, recvbuf, None, op)

    @_recorded
    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Block s of rank r's array becomes block r of rank s's. `[x, counts]`, `[x, (counts, displacements)]` if they differ."""
        r, inside = buffer(recvbuf), self._in_place(sendbuf)
        s = r if inside else buffer(sendbuf)
        (counts, mine), (takes, outs) = s.blocks(self.size), r.blocks(self.size)
        refuse_overlap(outs)
        call = self._call(
            "Alltoall", "exchange", (s, r), counts=counts, takes=takes, mine=mine, outs=outs, given=self._bytes(counts, s),
            expected=self._bytes(takes, r),
        )  # fmt: skip
        self._run(COLLECTIVES["Alltoall"], call, **self._placed(None if inside else s, r, outs))

    Alltoallv = Alltoall

    @_recorded
    def Barrier(self) -> None:
        """Waits for all ranks. Its adjoint is nothing: it does nothing to memory."""
        self._all_come("Barrier")

    def _all_come(self, name: str) -> None:
        self.watch.require()
        if self.check:
            self._calls.same(name, otherwise="the ranks do not make the same call")
        else:
            self.watch.wait(self._calls.comm.Ibarrier(), f"{name} on {self.size} ranks")

    # --- messages ------------------------------------------------------------------------------------------------------------------------

    @_recorded
    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Sends an array, and waits until it may be written."""
        if not self._is_null(dest):
            b = buffer(buf)
            self._run(MESSAGES["Send"], self._message("Send", (b,), dest=(dest, tag)), read=b)

    @_recorded
    def Recv(self, buf: Any, source: int, tag: int = 0, status: Any = None) -> None:
        """Receives an array of just this size, from a rank and with a tag that are named."""
        if not self._is_null(source):
            b = buffer(buf)
            self._run(MESSAGES["Recv"], self._message("Recv", (b,), source=(source, tag)), write=b)

    @_recorded
    def Sendrecv(
        self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int | None = None, recvtag: int | None = None,
        status: Any = None,
    ) -> None:  # fmt: skip
        """Sends to one rank and receives from another at once."""
        if source is None:
            raise LaunchError("Sendrecv: name the source. Nothing was sent.")
        sends, receives = not self._is_null(dest), not self._is_null(source)
        s, r = buffer(sendbuf) if sends else None, buffer(recvbuf) if receives else None
        if not (sends or receives):
            return
        call = self._message(
            "Sendrecv", (s, r), dest=(dest, sendtag) if sends else None,
            source=(source, sendtag if recvtag is None else recvtag) if receives else None,
        )  # fmt: skip
        self._run(MESSAGES["Sendrecv"], call, read=s, write=r)

    @_recorded
    def Sendrecv_replace(self, buf: Any, dest: int, sendtag: int = 0, source: int | None = None, recvtag: int | None = None) -> None:
        """Sends an array to one rank and receives one from another in its place."""
        if source is None or self._is_null(dest) or self._is_null(source):
            raise LaunchError("Sendrecv_replace takes two ranks; with PROC_NULL use Send or Recv. Nothing was sent.")
        b = buffer(buf)
        call = self._message("Sendrecv", (b,), dest=(dest, sendtag), source=(source, sendtag if recvtag is None else recvtag))
        self._run(MESSAGES["Sendrecv"], call, both=b)

    @_recorded
    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Begins to send a copy of an array: it may be written at once. In the reverse its shadow comes back between the adjoints of Wait
        and of this."""
        if self._is_null(dest):
            return Request(self._waited, None, None)
        b, slot = buffer(buf), self._slot()
        call = self._message("Isend", (b,), dest=(dest, tag), slot=slot)
        request = self.open[slot] = Request(self._waited, b, call)
        self._run(ISEND, call, read=b)
        return request

    @_recorded
    def Irecv(self, buf: Any, source: int, tag: int = 0) -> Request:
        """Begins to receive an array, which holds what it held until Wait."""
        if self._is_null(source):
            return Request(self._waited, None, None)
        b, slot = buffer(buf), self._slot()
        call = self._message("Irecv", (b,), source=(source, tag), slot=slot)
        self.watch.require()
        self.requests[slot] = self.post_receive(call, b.array if b.size else None)
        request = self.open[slot] = Request(self._waited, b, call)
        return request

    @staticmethod
    def Waitall(requests: Sequence[Request]) -> None:
        """Waits for all requests, in their order."""
        Request.Waitall(requests)

    def _waited(self, request: Request) -> None:
        """Completes a request."""
        b, call = request.buffer, request.call
        if b is None or call is None:
            return
        if self.open.get(call.slot) is not request:
            raise DistributedError("a request that was begun before recover() is void. Nothing was received.")
        if self.nccl is not None:
            same = [slot for slot, r in self.open.items() if (r.side, r.key) == (request.side, request.key)]
            if min(same, key=lambda slot: self.open[slot].number) != call.slot:
                raise LaunchError(
                    "over NCCL messages with one rank are waited for in the order in which they were begun. Nothing was done."
                )
        if call.dest is not None:
            self._run(SENT, call, read=b)
        else:
            self._run(operations.ARRIVED, call, write=b)
        self.open.pop(call.slot, None)

    # --- how -----------------------------------------------------------------------------------------------------------------------------

    def replicated(self, *pairs: Duplicated) -> None:
        """Says, inside of a tape, that arrays with a shadow are the same on all ranks, which only read them: at the end of each reverse
        what it has added to their shadows is summed over the ranks, of all of them in one all-reduce. DistributedError if they differ."""
        session = self._session()
        if session is None:
            raise LaunchError("replicated() is said inside of a tape")
        session.replicate(self, pairs)

    def _session(self) -> Session | None:
        """That of the recording that goes on, in which this communicator is used from here on."""
        tape = cast(Any, current.get())
        return Session.of(tape, self) if tape is not None else None

    def _run(self, rule: Any, call: Call | Message, **given: Any) -> None:
        arrays = {name: b.x if b is not None and b.size else None for name, b in given.items()}
        names = [n for n in rule.signature.parameters if n not in ("what", "winner")]
        extra = {}
        if "winner" in rule.signature.parameters:
            extra["winner"] = self._winner(call, *given.values())
        rule(**{n: arrays.get(n) for n in names}, **extra, what=call.plain)

    def _winner(self, call: Any, *buffers: Buffer | None) -> Any:
        b = next((b for b in buffers if b is not None and b.size), None)
        return new_array(b.array, (b.size,), np.int32, active=False) if call.active and b is not None else None

    @_recorded
    def _reduced(self, name: str, linear: str, sendbuf: Any, recvbuf: Any, op: Any, root: int | None) -> None:
        inside, has_result = self._in_place(sendbuf), root is None or self.rank == root
        if inside and not has_result:
            raise LaunchError(f"{name}: IN_PLACE is for the root. Nothing was sent.")
        r = buffer(recvbuf) if has_result else None
        s = r if inside else buffer(sendbuf)
        assert s is not None
        if r is not None and (r.size != s.size or r.array.dtype != s.array.dtype):
            raise LaunchError(
                f"{name} of {s.size} elements of {s.array.dtype} into {r.size} of {r.array.dtype}: they have to be alike. Nothing was sent."
            )
        which = self._op(name, op)
        said = f"{which} of {s.size}"
        call = self._call(name, linear, (s, r), counts=(self._sized(s),), root=root or 0, gets=has_result, said=said, op=which)
        rule = (COLLECTIVES if which == "SUM" else EXTREMA)[name]
        if which != "SUM" and s.array.dtype.kind == "c":
            raise UnsupportedError(f"{name}: complex numbers have no order. Nothing was sent.")
        self._run(rule, call, read=None if inside else s, write=None if inside else r, both=r if inside else None)

    @_recorded
    def _gathered(self, name: str, linear: str, sendbuf: Any, recvbuf: Any, root: int | None) -> None:
        inside, has_result = self._in_place(sendbuf), root is None or self.rank == root
        r = buffer(recvbuf) if has_result else None
        s = None if inside else buffer(sendbuf)
        if inside and r is None:
            raise LaunchError(f"{name}: IN_PLACE is for the root. Nothing was sent.")
        own = None if s is None else self._sized(s)
        counts, outs = r.blocks(self.size, None if r.counts is not None else own) if r is not None else (self._only(own or 0), ())
        refuse_overlap(outs)
        mine: Segments = ()
        if inside and r is not None:
            at = outs or _segments(counts)
            mine, own = (at[self.rank],), counts[self.rank]
        if r is not None and own != counts[self.rank]:
            raise LaunchError(f"{name}: {own} elements are sent where {counts[self.rank]} are counted for this rank. Nothing was sent.")
        size = self._itemsize(s or r)
        gives = (int(own or 0) * size,) * self.size if root is None else self._at(root, int(own or 0) * size)
        expects = self._bytes(counts, r) if r is not None else self._only(0)
        said = f"counts {counts}" if root is None else ""
        call = self._call(
            name, linear, (s, r), counts=counts, root=root or 0, mine=mine, outs=outs, gets=has_result, given=gives, expected=expects,
            said=said,
        )  # fmt: skip
        if inside:
            self._run(COLLECTIVES[name], call, both=r)
        else:
            self._run(COLLECTIVES[name], call, **self._placed(s, r, outs))

    @staticmethod
    def _placed(s: Buffer | None, r: Buffer | None, outs: Segments) -> dict[str, Buffer | None]:
        """An array of which not all is overwritten is read, too: what is left stays."""
        if r is None or not outs or is_whole(tuple(sorted(outs)), r.size):
            return {"read": s, "write": r} if s is not None else {"both": r}
        if s is None:
            return {"both": r}
        raise LaunchError(
            "blocks that are received leave gaps in their array: pass a view for each, or an array without. Nothing was sent."
        )

    def _call(
        self, name: str, linear: str, buffers: Sequence[Buffer | None], *, counts: tuple[int, ...], takes: tuple[int, ...] = (),
        root: int = 0, mine: Segments = (), outs: Segments = (), gives: bool = True, gets: bool = True, given: tuple[int, ...] = (),
        expected: tuple[int, ...] = (), said: str = "", op: str = "SUM",
    ) -> Call:  # fmt: skip
        known = [b for b in buffers if b is not None]
        dtype, active = self._alike(name, known)
        size = f" of {counts[0]}" if linear == "root_to_all" else ""
        words = f"{name}{size}{' ' if said else ''}{said} {dtype}, root {root}, {'with' if active else 'without'} shadows"
        if in_fixed_point():
            words += ", in order"
        return Call(
            self.number,
            name,
            linear,
            op,
            root,
            counts,
            takes,
            dtype,
            mine,
            outs,
            gives,
            gets,
            active,
            in_fixed_point(),
            words,
            given,
            expected,
        )

    def _message(
        self, name: str, buffers: Sequence[Buffer | None], *, dest: tuple[int, int] | None = None, source: tuple[int, int] | None = None,
        slot: int = -1,
    ) -> Message:  # fmt: skip
        dtype, active = self._alike(name, [b for b in buffers if b is not None])
        session = self._session()

        def numbered(side: str, key: tuple[int, int] | None) -> tuple[int | None, int, int]:
            if key is None:
                return None, 0, 0
            rank, tag = key
            if not 0 <= rank < self.size:
                raise LaunchError(f"{name}: rank {rank} of {self.size}: a message on a tape names its other side. Nothing was sent.")
            if not 0 <= tag < self.tags:
                raise LaunchError(f"{name}: tag {tag}: tags go from 0 to {self.tags - 1}. Nothing was sent.")
            if sum((r.side, r.key) == (side, key) for r in self.open.values()) >= NUMBERS:
                raise LaunchError(f"{name}: {NUMBERS} messages with one tag are on their way: wait for one. Nothing was sent.")
            return rank, tag, session.next_number(self.number, side, rank, tag) if session is not None else 0

        to, back = numbered("to", dest), numbered("from", source)
        return Message(self.number, name, to[0], to[1], to[2], back[0], back[1], back[2], dtype, active, slot)

    def _alike(self, name: str, buffers: Sequence[Buffer]) -> tuple[str, bool]:
        """The dtype of arrays, which they share, and whether they have shadows, which all of them have or none."""
        if self.nccl is not None and any(isinstance(b.array, np.ndarray) for b in buffers):
            raise LaunchError(f"{name} over NCCL takes CuPy's arrays. Nothing was sent.")
        dtypes = {b.array.dtype.name for b in buffers}
        if len(dtypes) > 1:
            raise LaunchError(f"{name} with arrays of {' and '.join(sorted(dtypes))}: they have to be alike. Nothing was sent.")
        flags = {self._active(b) for b in buffers}
        if len(flags) > 1:
            raise LaunchError(
                f"{name} with a shadow on one of its arrays and none on the other: its gradient would be dropped. Pass Duplicated for "
                "both, or for neither. Nothing was sent."
            )
        return next(iter(dtypes)), next(iter(flags))

    def _refuse_nccl(self, name: str) -> None:
        if self.nccl is not None:
            raise UnsupportedError(f"{name} of a communicator of NCCL: make another one, and wrap it")

    def _active(self, b: Buffer) -> bool:
        """True if an array has a shadow, or is memory that has one in this recording."""
        if isinstance(b.x, Duplicated):
            return True
        tape = cast(Any, current.get())
        if tape is None or isinstance(b.x, Stopped) or not b.size:
            return False
        return bool(tape.has_shadow(b.array))

    def _slot(self) -> int:
        return next(k for k in range(len(self.open) + 1) if k not in self.open)

    def _in_place(self, given: Any) -> bool:
        return given is IN_PLACE or (type(given) is type(self.MPI.IN_PLACE) and given == self.MPI.IN_PLACE)

    def _is_null(self, rank: int) -> bool:
        return bool(rank == self.MPI.PROC_NULL)

    def _root(self, root: int) -> int:
        if not 0 <= root < self.size:
            raise LaunchError(f"root {root} of {self.size} ranks. Nothing was sent.")
        return root

    def _sized(self, b: Buffer) -> int:
        if b.counts is not None:
            raise LaunchError("counts for each rank where one vector is meant. Nothing was sent.")
        return b.size

    def _only(self, own: int) -> tuple[int, ...]:
        return self._at(self.rank, own)

    def _at(self, rank: int, n: int) -> tuple[int, ...]:
        return tuple(n if r == rank else 0 for r in range(self.size))

    @staticmethod
    def _itemsize(b: Buffer | None) -> int:
        return int(b.array.dtype.itemsize) if b is not None else 0

    @staticmethod
    def _bytes(counts: tuple[int, ...], b: Buffer) -> tuple[int, ...]:
        return tuple(n * int(b.array.dtype.itemsize) for n in counts)

    def _op(self, name: str, op: Any) -> str:
        mpi = self.MPI
        known = {"SUM": mpi.SUM, "MAX": mpi.MAX, "MIN": mpi.MIN}
        if op is None:
            return "SUM"
        for word, meant in known.items():
            if op in (word, meant):
                return word
        if op in ("PROD", mpi.PROD):
            raise UnsupportedError(
                f"{name}: a product over ranks is not differentiated: sum logarithms, or gather the factors. Nothing was sent."
            )
        raise UnsupportedError(f"{name}: SUM, MAX and MIN are known to the tape; use .mpi for others, outside of it. Nothing was sent.")

    def _refuse_extremum(self, name: str, op: Any) -> None:
        if self._op(name, op) != "SUM":
            raise UnsupportedError(f"{name}: only sums; use Allreduce for a maximum. Nothing was sent.")


class _InPlace:
    def __repr__(self) -> str:
        return "gpuad.distributed.IN_PLACE"


IN_PLACE = _InPlace()


def _segments(counts: tuple[int, ...]) -> Segments:
    return tuple(pairwise((0, *accumulate(counts))))


__all__ = ["IN_PLACE", "Communicator"]

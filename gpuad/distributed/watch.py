"""Waiting for other processes: no longer than a limit, and not for one that has said that it stopped.

Nothing here blocks inside MPI: every request is asked whether it is done, the processor is given to others in between (ranks may share
one), and from time to time it is looked whether another rank has sent word that it stopped. A rank that stops sends word to all others
once; after that, or after a time limit, the communicator is broken: each further call on it says why.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from typing import Any

from ..errors import DistributedError

_STOPPED = 1  # the tag of the word that a rank has stopped
_MOST = 4000  # bytes of its message
_SPINS = 64  # how often a request is asked before others get the processor
_YIELDS = 16  # how often they do before this rank sleeps in between, so that ranks which share a processor get on
_NAP = 3e-5  # seconds
_GRACE = 2.0  # seconds that the others have to say what they know before a job with a dead rank is ended

_watches: weakref.WeakSet[Watch] = weakref.WeakSet()


class Watch:
    """What the ranks of a communicator (one of MPI's, only used here) know of each other. `limit`: seconds that a rank waits for another.
    `broken`: why nothing can be done any more."""

    def __init__(self, comm: Any, limit: float) -> None:
        self.comm, self.limit = comm, limit
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.broken = ""
        self.lost = False  # a rank did not answer: MPI's own end would wait for it, too
        self._sent: list[Any] = []
        self._held: dict[int, tuple[Any, Any]] = {}
        _watches.add(self)
        _at_the_end()

    def require(self) -> None:
        """Raises DistributedError if something is known to be wrong."""
        if not self.broken:
            self.look()
        if self.broken:
            raise DistributedError(self.broken)

    def look(self) -> None:
        """Hears whether another rank has stopped."""
        mpi = _mpi()
        if self.size == 1 or not self.comm.Iprobe(mpi.ANY_SOURCE, _STOPPED):
            return
        status, text = mpi.Status(), bytearray(_MOST)
        self.comm.Recv([text, mpi.BYTE], mpi.ANY_SOURCE, _STOPPED, status)
        said = bytes(text[: status.Get_count(mpi.BYTE)]).decode(errors="replace")
        self.broken = f"rank {status.Get_source()} stopped: {said}"

    def tell(self, error: BaseException) -> None:
        """Sends word to all others that this rank goes no further; once."""
        if self.broken or self.size == 1 or getattr(error, "shared", False):
            return
        mpi, message = _mpi(), f"{type(error).__name__}: {error}"
        self.broken = f"this rank stopped: {message}"
        text = message.encode()[:_MOST]
        try:
            for rank in range(self.size):
                if rank != self.rank:
                    self._sent.append((self.comm.Isend([text, mpi.BYTE], rank, _STOPPED), text))
            for request, _ in self._sent:
                request.Test()  # small messages are gone by now; they are not waited for
        except mpi.Exception:  # a process that is gone cannot be told
            self.lost = True

    def hold(self, request: Any, memory: Any) -> Any:
        """A request that is waited for later, perhaps never if something fails before: MPI may write its memory at any time, so it is kept
        until then. Gives the request."""
        self._held[id(request)] = request, memory
        return request

    def wait(self, request: Any, what: str, kept: Any = None) -> None:
        """Waits until a request is done. `what`: the call, for messages; `kept`: memory that it uses, which is not given back if it is
        never done (mpi4py does not keep it). DistributedError if another rank stopped, or nothing happened within the limit."""
        spins, deadline = 0, 0.0
        try:
            while not request.Test():
                spins += 1
                if spins % _SPINS:
                    continue
                if spins < _SPINS * _YIELDS:
                    os.sched_yield()
                else:
                    time.sleep(_NAP)
                    spins -= 1  # asked once between two naps
                now = time.monotonic()
                deadline = deadline or now + self.limit
                self.look()
                if self.broken:
                    raise DistributedError(self.broken)
                if now > deadline:
                    self._give_up(what)
            self._held.pop(id(request), None)
        except _mpi().Exception as error:
            _never_freed.append((request, kept))
            self.tell(error)
            raise DistributedError(f"{what}: {error}") from error
        except BaseException as error:
            _never_freed.append((request, kept))
            self.tell(error)
            raise

    def _give_up(self, what: str) -> None:
        self.lost = True
        raise DistributedError(
            f"{what}: nothing came from the other ranks for {self.limit:g} s. One of them is gone, is stuck, or makes other calls; if they "
            "only need longer, wrap(comm, limit=...) gives them more. What was being communicated is undefined."
        )


_never_freed: list[Any] = []


def _mpi() -> Any:
    return sys.modules["mpi4py.MPI"]


_installed = False


def _at_the_end() -> None:
    """An error that nobody catches is told to the others, and a process of a job with a dead rank does not wait for it at the end."""
    global _installed
    if _installed:
        return
    _installed = True
    before = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        before(kind, error, trace)
        for watch in list(_watches):
            watch.tell(error)

    sys.excepthook = hook
    atexit.register(_end)


def _end() -> None:
    mpi = _mpi()
    if any(watch.lost for watch in _watches) and not mpi.Is_finalized():
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_GRACE)  # others report what they know
        mpi.COMM_WORLD.Abort(1)

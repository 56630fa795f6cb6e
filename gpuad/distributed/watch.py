"""Waiting for other processes: no longer than a limit, and not for one that has said that it stopped, or is gone.

Nothing here blocks inside MPI: every request is asked whether it is done, the processor is given to others in between (ranks may share
one), and from time to time it is looked whether another rank has sent word that it stopped, or its process has ended. A rank that stops
sends word to all others once; after that, or after a time limit, the communicator is broken: each further call on it says why, until all
ranks begin anew together (`renew`).
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import DistributedError
from ..runtime.host import share_cores
from . import processes

_STOPPED = 1  # the tag of the word that a rank has stopped
_MOST = 4000  # bytes of its message
_SPINS = 64  # how often a request is asked before others get the processor
_YIELDS = 16  # how often they do before this rank sleeps in between, so that ranks which share a processor get on
_NAP, _LONGEST_NAP = 3e-5, 1e-3  # seconds
_NAPPED = 0.02  # of the time that it has waited, how much a nap takes: who waits long leaves the processor to those who compute
_LOOKS = 0.25  # seconds between looks for processes that have ended
_GRACE = 2.0  # seconds that the others have to say what they know before a job with a dead rank is ended

_ANEW = "When all ranks have caught this, recover() of the communicator that was wrapped begins anew."

_watches: weakref.WeakSet[Watch] = weakref.WeakSet()


def poll(request: Any, what: str, limit: float, between: Callable[[float], None]) -> None:
    """Waits until a request is done. `between`: called with the time from time to time, and may raise. DistributedError after the limit."""
    spins, deadline, nap = 0, 0.0, _NAP
    while not request.Test():
        spins += 1
        if spins % _SPINS:
            continue
        if spins < _SPINS * _YIELDS:
            os.sched_yield()
        else:
            time.sleep(nap)
            spins -= 1  # asked once between two naps
        now = time.monotonic()
        deadline = deadline or now + limit
        nap = min(max(_NAP, _NAPPED * (now + limit - deadline)), _LONGEST_NAP)
        between(now)
        if now > deadline:
            raise DistributedError(
                f"{what}: nothing came from the other ranks for {limit:g} s. One of them is gone, is stuck, or makes other calls; if they "
                "only need longer, wrap(comm, limit=...) gives them more. What was being communicated is undefined."
            )


def duplicates(mpi: Any, count: int, wait: Callable[[Any, str], None]) -> list[Any]:
    """Communicators of MPI of the same ranks, which all of them make; `wait`: for a request."""
    made = [mpi.Idup() for _ in range(count)]
    for _, request in made:
        wait(request, f"a communicator of {mpi.Get_size()} ranks")
    return [comm for comm, _ in made]


class Watch:
    """What the ranks of one of MPI's communicators know of each other; all of them make it. `limit`: seconds that a rank waits for another.
    `broken`: why nothing can be done any more; `messaged`: where this rank has sent messages, or asked for
    some, of which it is not known whether the others have done the same; `processes`: what
    the ranks are."""

    def __init__(self, mpi: Any, limit: float) -> None:
        self.limit, self.broken = limit, ""
        self.rank, self.size = int(mpi.Get_rank()), int(mpi.Get_size())
        self.lost = False  # a rank did not answer: MPI's own end would wait for it, too
        self._final = ""  # why it cannot be made anew
        self._sent: list[Any] = []
        self._held: dict[int, tuple[Any, Any]] = {}
        self._looked = 0.0
        self.messaged: set[Any] = set()
        (self.comm,) = duplicates(mpi, 1, self._wait_blindly)
        self.processes = self._notified_processes()
        share_cores(processes.on_these_cores(self.processes))
        _watches.add(self)
        _at_the_end()

    def _wait_blindly(self, request: Any, what: str) -> None:
        """Without hearing others: before they can say something, or when all has been said."""
        poll(request, what, self.limit, lambda now: None)

    def _notified_processes(self) -> list[processes.Process]:
        mine, rows = np.array(processes.own(), np.int64), np.empty((self.size, processes.FIELDS), np.int64)
        self._wait_blindly(self.comm.Iallgather(mine, rows), "the ranks' processes")
        return [(int(a), int(b), int(c), int(d)) for a, b, c, d in rows]

    def renew(self, mpi: Any) -> None:
        """Forgets what was wrong; all ranks call it. What was on its way can never be matched with what comes later. DistributedError if a
        rank is gone, or does not come within the limit; then nothing can be done any more."""
        if self._final:
            raise DistributedError(self._final)
        try:
            poll(self.comm.Ibarrier(), "recover()", self.limit, self._refuse_ended)  # before anything is asked of the user's communicator
            (fresh,) = duplicates(mpi, 1, self._wait_blindly)
        except DistributedError as error:
            self.broken = self._final = f"recover() has failed: {error}"
            self.lost = True
            raise
        keep(self._sent, self._held)
        self.comm, self.broken, self.lost, self._sent, self._held = fresh, "", False, [], {}
        self.messaged.clear()

    def require(self) -> None:
        """Raises DistributedError if something is known to be wrong."""
        if not self.broken:
            self.look()
        if self.broken:
            raise DistributedError(f"{self.broken.rstrip('.')}. {self._final or _ANEW}")

    def look(self) -> None:
        """Hears whether another rank has stopped."""
        mpi = _mpi()
        if self.size == 1 or not self.comm.Iprobe(mpi.ANY_SOURCE, _STOPPED):
            return
        status, text = mpi.Status(), bytearray(_MOST)
        self.comm.Recv([text, mpi.BYTE], mpi.ANY_SOURCE, _STOPPED, status)
        said = bytes(text[: status.Get_count(mpi.BYTE)]).decode(errors="replace")
        self.broken = f"rank {status.Get_source()} stopped: {said}"

    def _hear(self, now: float) -> None:
        self.look()
        if self.broken:
            raise DistributedError(self.broken)
        self._refuse_ended(now)

    def _refuse_ended(self, now: float) -> None:
        """DistributedError if a process is gone that has said nothing."""
        if now < self._looked + _LOOKS:
            return
        self._looked = now
        gone = [rank for rank, process in enumerate(self.processes) if processes.has_ended(process)]
        if gone:
            self.lost = True
            _, pid, *_ = self.processes[gone[0]]
            raise DistributedError(
                f"rank {gone[0]} is gone: its process ({pid}) has ended without a word, as one does that was killed, or ran out of memory. "
                "What was being communicated is undefined."
            )

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
        try:
            poll(request, what, self.limit, self._hear)
            self._held.pop(id(request), None)
        except _mpi().Exception as error:
            keep(request, kept)
            self.tell(error)
            raise DistributedError(f"{what}: {error}") from error
        except BaseException as error:
            keep(request, kept)
            self.lost = self.lost or (isinstance(error, DistributedError) and not self.broken)  # no other rank has said why
            self.tell(error)
            raise

    def duplicates(self, mpi: Any, count: int) -> list[Any]:
        """Communicators of the same ranks as one of MPI's, which all of these make. Who is late finishes it, though others have stopped
        since: they have made it."""

        def wait(request: Any, what: str) -> None:
            poll(request, what, self.limit, self._refuse_ended)

        return duplicates(mpi, count, wait)


_never_freed: list[Any] = []


def keep(*memory: Any) -> None:
    """What MPI may write or read at any time, since its end was not waited for."""
    _never_freed.append(memory)


def _mpi() -> Any:
    return sys.modules["mpi4py.MPI"]


_installed = False


def _at_the_end() -> None:
    """An error that is not caught is told to the others, and a process of a job with a dead rank does not wait for it at the end."""
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

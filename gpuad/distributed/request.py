"""Requests: messages that were begun and not waited for, with the methods of MPI's own (Wait, Waitall).

In: the buffer and the message (`operations.Message`). Guaranteed: waiting completes a message once, and is recorded by the tape, whose
reverse then begins the message of the shadow, the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, cast

from ..arguments.recorder import current
from ..errors import DistributedError
from .buffers import Buffer
from .operations import Message

_numbers = count()


def _block() -> Any:
    """What stands for the block of a tape that goes on; None outside of one."""
    tape = cast(Any, current.get())
    return None if tape is None else tape.joint


class Request:
    """A message that was begun by Isend or Irecv. It is waited for once, in the block of the tape in which it was begun."""

    def __init__(self, complete: Callable[[Request], None], buffer: Buffer | None, call: Message | None) -> None:
        self.buffer, self.call, self.number = buffer, call, next(_numbers)
        self._complete, self._block, self._done = complete, _block(), call is None

    @property
    def side(self) -> str:
        """Whether it goes "to" a rank or comes "from" one."""
        return "" if self.call is None else "from" if self.call.dest is None else "to"

    @property
    def key(self) -> tuple[int | None, int]:
        """The rank and the tag."""
        call = self.call
        return (None, 0) if call is None else (call.source, call.recv_tag) if call.dest is None else (call.dest, call.send_tag)

    def Wait(self, status: Any = None) -> None:
        """Waits for it; of an Irecv the array holds the message from here on. DistributedError where it was begun in another block."""
        if self._done:
            return
        if _block() is not self._block:
            raise DistributedError(
                "a request is waited for in the block of the tape in which it was begun, since the reverse turns the two around. Nothing "
                "was received."
            )
        self._done = True
        self._complete(self)

    wait = Wait

    @staticmethod
    def Waitall(requests: Sequence[Request], statuses: Any = None) -> None:
        """Waits for all of them, in their order."""
        for request in requests:
            request.Wait()

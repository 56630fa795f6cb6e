"""The order between the streams on which a program was recorded and the one on which it is reversed.

A user's streams are the user's: two operations on different streams that touch one region without an event between them were a race
already. What a tape adds is its own memory, used on every stream, and the reverse: it runs on the stream that is current when it is called,
in order, after everything that was recorded. So no two adjoints run at once, and plain accumulation stays right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...runtime.base import Executor
from ...runtime.cuda import follow


class Streams:
    """The streams that a recording has used, and those that used the tape's memory before it."""

    def __init__(self) -> None:
        self.used: dict[int, Any] = {}
        self.before: list[Any] = []
        self.owners: dict[int, Any] = {}  # on which the tape's memory was made: let go, it is given to what comes there next
        self.makers: dict[int, Any] = {}  # on which operations made arrays last
        self.sources: dict[int, Any] = {}  # and those that the memory of these arrays comes from
        self.working: Any = None  # which used the transient memory last
        self.silent = False

    def begin(self) -> None:
        """A new recording; the tape's memory is used again."""
        self.before, self.used = [*self.used.values(), *self.before], {}

    def enter(self, executor: Executor) -> None:
        """An operation comes on the current stream."""
        stream = executor.stream()
        if stream is None or stream.ptr in self.used or self.silent:
            return
        self.used[stream.ptr] = stream
        for other in self.before:
            executor.wait(other)

    def work(self, executor: Executor) -> None:
        """The transient memory is used anew, on the current stream."""
        stream = executor.stream()
        if self.silent:
            return
        if stream is not None and self.working is not None:
            executor.wait(self.working)
        self.working = stream

    def take_over(self, executor: Executor) -> None:
        """The tape's memory is used on the current stream, after all who used it before."""
        self.begin()
        self.enter(executor)
        self.work(executor)

    def take_back(self, executor: Executor) -> None:
        """Takes over the tape's memory, and arrays that operations made, which a caller has let go but may still read on the stream where
        they were made."""
        self.take_over(executor)
        for maker in self.makers.values():
            executor.wait(maker)
        self.makers = {}

    def making(self, stream: Any, source: Any) -> None:
        """An operation makes an array on a stream, if there are any, in memory of another one."""
        if stream is not None:
            self.makers[stream.ptr] = stream
            self.sources[source.ptr] = source

    def owning(self, executor: Executor) -> None:
        """Memory of the tape is made on the current stream."""
        stream = executor.stream()
        if stream is not None:
            self.owners[stream.ptr] = stream

    def let_go(self) -> None:
        """The arrays that operations made are given back."""
        self._leave(self.sources.values())
        self.makers, self.sources = {}, {}

    def let_all_go(self, sources: Iterable[Any] = ()) -> None:
        """All memory is given back, also what was made on the streams `sources`."""
        self._leave({s.ptr: s for s in (*self.owners.values(), *self.sources.values(), *sources)}.values())

    def _leave(self, owners: Iterable[Any]) -> None:
        """A pool gives memory that comes back to what comes next on the stream where it was made: that waits for those who use it still."""
        for owner in owners:
            for user in (*self.used.values(), *self.before, *(() if self.working is None else (self.working,))):
                follow(owner, user)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Within it no stream is waited for: what comes is captured, not run."""
        self.silent = True
        try:
            yield
        finally:
            self.silent = False

    def join(self, executor: Executor) -> None:
        """The current stream waits for all that was recorded, and is the only one from now on."""
        for other in self.used.values():
            executor.wait(other)
        stream = executor.stream()
        self.used, self.before = {} if stream is None else {stream.ptr: stream}, []

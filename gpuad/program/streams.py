"""The order between the streams on which a program was recorded and the one on which it is reversed.

A user's streams are the user's: two operations on different streams that touch one region without an event between them were a race
already. What a tape adds is its own memory, used on every stream, and the reverse: it runs on the stream that is current when it is called,
in order, after everything that was recorded. So no two adjoints run at once, and plain accumulation stays right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..executors.base import Executor


class Streams:
    """The streams that a recording has used, and those that used the tape's memory before it."""

    def __init__(self) -> None:
        self.used: dict[int, Any] = {}
        self.before: list[Any] = []
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

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Within it nobody is waited for: what comes is captured, not run."""
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

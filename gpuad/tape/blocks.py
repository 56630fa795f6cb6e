"""The block of a `with` statement that has a tape, and how it is known that it has been left.

A statement calls `__exit__` when its block ends; an interrupt that comes just then, before the first line of it is run, is all that a tape
would ever hear of the end. So what the statement holds to be called is an object of its own, in compiled code: when it is gone, so is the
block. No frame refers to it, so it is gone before an `except` of the caller's begins, whose traceback holds the frames.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any, Protocol, overload

from ..errors import TapeError


class Entered(Protocol):
    """What is entered: `left` is called at the end of a block, `lost` where that was not to be."""

    opening: weakref.ref[Block] | None

    def left(self, kind: Any, error: Any, trace: Any = None) -> None:
        """The block ends."""

    def lost(self, block: weakref.ref[Block]) -> None:
        """A block has ended without a word."""


class Facade(Protocol):
    """What a `with` statement is given: the object that its user holds, over the one that is entered."""

    @property
    def _recording(self) -> Entered: ...


Block = partial[None]  # of `left`: what a `with` statement calls at the end of its block, which it holds until then


class Exit:
    """`__exit__` as an attribute of a class: a new `Block` for each statement."""

    @overload
    def __get__(self, tape: None, owner: type) -> Exit: ...
    @overload
    def __get__(self, tape: Facade, owner: type) -> Block: ...
    def __get__(self, tape: Facade | None, owner: type) -> Exit | Block:
        if tape is None:
            return self
        entered = tape._recording
        block = Block(entered.left)
        entered.opening = weakref.ref(block, partial(_lost, weakref.ref(entered)))
        return block

    def __call__(self, tape: Facade, kind: Any, error: Any, trace: Any) -> None:
        """Ends the block, for who looks `__exit__` up in the class, such as an ExitStack."""
        tape._recording.left(kind, error, trace)


@dataclass(frozen=True, eq=False)
class Entry:
    """A block that a tape was entered for, in a thread; None where it cannot be told when the block is gone."""

    thread: int
    block: weakref.ref[Block] | None

    @property
    def is_open(self) -> bool:
        """True if that block surely goes on."""
        return self.block is not None and self.block() is not None

    def refuse_open(self, *, inside: bool) -> None:
        """TapeError unless the block was left by an interrupt, in this thread or in one that has ended. `inside`: whether its tape records
        in this thread."""
        here = inside and self.thread == get_ident()
        if here and self.is_open:
            raise TapeError("a tape is entered inside its own block; one program is one block")
        if not here and any(thread.ident == self.thread for thread in threading.enumerate()):
            raise TapeError(
                "the tape is recording already, in another thread or task: each has a tape of its own. That recording goes on, and nothing "
                "was recorded here."
            )


def _lost(tape: Callable[[], Entered | None], block: weakref.ref[Block]) -> None:
    if (entered := tape()) is not None:
        entered.lost(block)

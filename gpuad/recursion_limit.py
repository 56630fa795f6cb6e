"""Room for deep kernels: an expression of hundreds of terms is hundreds of levels of tree, and every pass descends it by recursion.

Python's limit of 1000 frames is reached at some 150 levels. Inside `room` it is DEEP, which the default stack of a thread (8 MB) holds
several times over; whatever needs more is refused at its place.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import ArgumentError
from weakref import WeakSet

from .errors import UnsupportedError
from .source import Span

DEEP = 10_000  # frames

_lock = threading.Lock()
_stays: WeakSet[_Stay] = WeakSet()  # weak: of one whose end was interrupted nothing is left
_before: int | None = None  # the limit to return to


class _Stay:
    """One user of the room."""


@contextmanager
def room(name: str, span: Span) -> Iterator[None]:
    """Raises the recursion limit (of all threads, as Python has it) until the last user leaves. Raises UnsupportedError at `span`, which
    belongs to the kernel `name`, where even that is not enough."""
    stay = _Stay()
    try:
        _enter(stay)
        yield
    except (RecursionError, ArgumentError) as error:
        if "RecursionError" not in repr(error):  # ctypes wraps what happens while it converts an argument
            raise
        message = (
            f"kernel '{name}' is nested too deeply; split its longest expression, or its deepest chain of ifs, into several statements"
        )
        raise UnsupportedError(message, span) from None
    finally:
        _leave(stay)


def _enter(stay: _Stay) -> None:
    global _before
    with _lock:
        if _before is None:
            _before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(_before, DEEP))
        _stays.add(stay)


def _leave(stay: _Stay) -> None:
    """May come after a part of `_enter` only, where that was interrupted."""
    global _before
    with _lock:
        _stays.discard(stay)
        if not _stays and _before is not None:
            with suppress(RecursionError):  # called from a frame deeper than the old limit: the next to leave returns to it
                sys.setrecursionlimit(_before)
                _before = None

"""What gpuad is doing, said when it takes longer than two seconds.

`doing` is a `with` block around work; blocks within others say it in more detail: "recording step 37 (wave.py:12): proving the gather of
`update_p`". As long as all is quick, nothing is said. From two seconds on (of work, be it in one block or in many with little between
them), a terminal shows one line, which is gone when the work is done. GPUAD_LOG=info writes such lines one below the other instead, on a
terminal or not, and how long each block took that was so slow; GPUAD_LOG=debug all blocks; GPUAD_LOG=off says nothing. All of it goes
through the logger "gpuad", so that a program's own handlers get it as well.

The line is drawn by a thread, which wakes twice a second and ends when there is nothing to do, so that what is slow itself has nothing to
look after. A loop in the block notes how far it is (`at`).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import TextIO

from .errors import LaunchError

VARIABLE = "GPUAD_LOG"
QUIET = 2.0  # seconds of work in silence
_APART = 1.0  # seconds between two blocks from which on they are not one piece of work
_TICK, _LEAVE = 0.5, 5.0  # seconds between looks; and without work, after which the looking ends
_BAR = 20  # characters
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "off": logging.CRITICAL + 1}

logger = logging.getLogger("gpuad")
logger.addHandler(logging.NullHandler())


class Doing:
    """Work within a `with` block: `what` it is, of how many parts if that is known, and which part it is `at`."""

    __slots__ = ("at", "begun", "length", "progress", "what")

    def __init__(self, progress: Progress, what: str, length: int = 0) -> None:
        self.progress, self.what, self.length = progress, what, length
        self.at, self.begun = 0, 0.0

    def __enter__(self) -> Doing:
        self.begun = self.progress.begin(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.end(self)

    def __str__(self) -> str:
        if not self.length:
            return self.what
        full = _BAR * min(self.at, self.length) // self.length
        return f"{self.what} [{'#' * full:<{_BAR}}] {self.at} of {self.length}"


class Progress:
    """The work of this process. `clock`: seconds; `stream`: where the line is drawn, by default the standard error as it is then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, stream: TextIO | None = None, watch: bool = True) -> None:
        self.clock, self.given, self.watch = clock, stream, watch
        self.lock = threading.RLock()
        self.stack: list[Doing] = []  # of the thread that began first; others work in silence
        self.thread = 0
        self.before = self.ended = 0.0  # seconds of work that this is a part of, and when the last of it ended
        self.said = ""
        self.said_at = -QUIET
        self.drawn = self.watched = False
        self.silenced = 0

    def doing(self, what: str, length: int = 0) -> Doing:
        """Work, for a `with` block."""
        return Doing(self, what, length)

    def begin(self, work: Doing) -> float:
        """Notes work that begins, and when."""
        now = self.clock()
        if not self.stack:
            if self.watch and not self.watched:
                self._start()
            with self.lock:
                if not self.stack:
                    self.thread = threading.get_ident()
                    self.before = self.before if now - self.ended <= _APART else 0.0
                    self.stack.append(work)
        elif self.thread == threading.get_ident():
            self.stack.append(work)
        return now

    def end(self, work: Doing) -> None:
        """Notes that it has ended, well or not."""
        now = self.clock()
        took = now - work.begun
        if self.thread == threading.get_ident() and work in self.stack:
            with self.lock:
                text = self.text() if took >= QUIET else work.what
                del self.stack[self.stack.index(work) :]
                if not self.stack:
                    self.before, self.ended = self.before + took, now
                    self._erase()
            logger.log(logging.INFO if took >= QUIET else logging.DEBUG, "%s took %.2f s", text, took)

    def text(self) -> str:
        """What is being done: the whole, what has a known length, and the part that it is at."""
        shown = [work for k, work in enumerate(self.stack) if k in (0, len(self.stack) - 1) or work.length]
        return ": ".join(map(str, shown))

    def look(self) -> None:
        """Says it, if it takes long."""
        with self.lock:
            now = self.clock()
            if not self.stack or self.silenced or now - self.stack[0].begun + self.before < QUIET:
                return
            text = self.text()
            if self.is_drawn:
                self._draw(text)
            elif text != self.said and now - self.said_at >= QUIET:
                self.said, self.said_at = text, now
                logger.info(text)

    @property
    def is_drawn(self) -> bool:
        """True if a line is drawn, in place of logged."""
        return not os.environ.get(VARIABLE) and self._is_terminal()

    def _is_terminal(self) -> bool:
        with suppress(Exception):  # a stream of somebody else's, or one that is closed
            return self._stream.isatty()
        return False

    @property
    def _stream(self) -> TextIO:
        return self.given or sys.stderr

    def _draw(self, text: str) -> None:
        line = f"gpuad: {text}"
        width = get_terminal_size().columns - 1
        with suppress(Exception):
            self._stream.write(f"\r{line if len(line) <= width else line[: width - 3] + '...'}\x1b[K")
            self._stream.flush()
            self.drawn = True

    def _erase(self) -> None:
        if self.drawn:
            self.drawn = False
            with suppress(Exception):
                self._stream.write("\r\x1b[K")
                self._stream.flush()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Within it no line is drawn: who has one of their own."""
        self.silenced += 1
        try:
            yield
        finally:
            self.silenced -= 1

    # --- the thread that looks --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        _set_up()
        if self.is_drawn or logger.isEnabledFor(logging.INFO):
            self.watched = True
            threading.Thread(target=self._look_on, name="gpuad progress", daemon=True).start()

    def _look_on(self) -> None:
        begun = self.clock()
        while self.stack or self.clock() - max(self.ended, begun) < _LEAVE:
            time.sleep(_TICK)
            self.look()
        self.watched = False

    def forked(self) -> None:
        """Begins without a stack and without a thread, in the child of a fork."""
        self.lock, self.stack, self.watched, self.drawn = threading.RLock(), [], False, False


def _set_up() -> None:
    """What GPUAD_LOG says. LaunchError for what is no level."""
    text = os.environ.get(VARIABLE, "")
    if not text or any(isinstance(h, _Handler) for h in logger.handlers):
        return
    if text not in _LEVELS:
        raise LaunchError(f"the environment variable {VARIABLE} is {text!r}: it has to be one of {', '.join(_LEVELS)}")
    handler = _Handler()
    handler.setFormatter(logging.Formatter("gpuad: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[text])


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to the standard error, as it is set up by GPUAD_LOG."""


PROGRESS = Progress()
doing = PROGRESS.doing
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROGRESS.forked)

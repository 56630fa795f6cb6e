"""What the pipeline has made so far, for whoever wants to see it.

Every pass gives what it has made to `made`, by the pass's name: it is checked (`ir.verify`), and shown to whoever has asked with `watched`.
A pass that is tried several times, as the reverse sweep is, is shown each time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar

from ..context_variables import scoped
from .nodes import Kernel
from .verify import verify

Watcher = Callable[[str, Kernel], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def watched(watcher: Watcher) -> AbstractContextManager[None]:
    """Within it each stage is shown to `watcher(name, kernel)`."""
    return scoped(_watcher, watcher)


def made(name: str, kernel: Kernel) -> Kernel:
    """The kernel, valid, and shown. Raises InvalidIR if the pass has broken a rule of the core IR."""
    verify(kernel)
    tried(name, kernel)
    return kernel


def tried(name: str, kernel: Kernel) -> None:
    """Shows what is made on trial, unchecked: it is checked when the trial is taken."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(name, kernel)

"""Streams: what a call allocates and clears is ordered on the stream of its launch.

A shadow that was not given is made, of zeros, by the first call that needs it. Were it made on another stream than that of the launch, the
zeros could come after the gradient, and the caller, who has not seen it, could do nothing about that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..pipeline import executor_of
from .module_memory import library_of


def on_stream(stream: Any, args: Sequence[Any]) -> AbstractContextManager[Any]:
    """Within it what is made for a call with these arguments is made on the stream that was asked for; None: on the current one."""
    if stream is None or not isinstance(args, tuple | list):
        return nullcontext()
    return executor_of(library_of(args).__name__).on(stream)

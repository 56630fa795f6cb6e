"""Choices that hold within a `with` block.

`scoped` sets a context variable (PEP 567, Python's `contextvars`) on entry and restores the value from before on exit, also when the block
raises. It holds in the current context only: other threads that run at the time keep their values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def scoped(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Within it the variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)

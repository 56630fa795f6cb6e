"""Choices that hold within a `with` block."""

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

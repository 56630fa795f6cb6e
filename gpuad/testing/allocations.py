"""Allocations that fail, to try what a program does when memory runs out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from ..public_calls import public, whole
from ..runtime import allocation, cuda


@dataclass
class Failing:
    """What has been seen: `count` allocations, of which number `at`, from 0 on, fails, once."""

    at: int
    count: int = 0

    @property
    def failed(self) -> bool:
        """True if it has come to it."""
        return self.count > self.at >= 0

    def __call__(self, nbytes: int) -> None:
        """An allocation of so many bytes."""
        number, self.count = self.count, self.count + 1
        if number == self.at:
            raise cuda.out_of_memory(nbytes) if "cupy" in sys.modules else MemoryError(f"injected: {nbytes} bytes were asked for")


@public
def failing_allocations(k: int) -> AbstractContextManager[Failing]:
    """Lets allocation number `k`, from 0 on, fail within it, once; `k` = -1: none, to count them.

        with gpuad.testing.failing_allocations(3) as failing:
            ...
        assert failing.failed

    On a CPU these are the arrays that gpuad makes, in this process; on a GPU all that CuPy's allocator is asked for, in this thread. They
    fail with MemoryError, on a GPU with CuPy's OutOfMemoryError, as they do when memory has run out.
    """
    return _failing(Failing(whole("k", k, -1)))


@contextmanager
def _failing(failing: Failing) -> Iterator[Failing]:
    allocation.gates.append(failing)
    try:
        with cuda.allocation_gate(failing):
            yield failing
    finally:
        allocation.gates.remove(failing)


__all__ = ["Failing", "failing_allocations"]

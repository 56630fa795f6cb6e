"""Shared memory that a kernel needs, and where its arrays lie if that is more than CUDA gives without being asked.

Up to 48 KB a block are there for arrays that are declared. More a kernel gets as one dynamic array only, whose bytes the launch names; then
all its shared arrays are pieces of that one. The reverse pass, which has a shadow beside each array, needs twice what its primal needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .nodes import Alloc, Buffer, Kernel, Stmt
from .rewrite import walk_stmts
from .types import Space

OWN_BYTES = 512  # what sums over a block take, of floats and of doubles (`codegen.spelling`), which are declared in any case
DECLARED_BYTES = 48 * 1024 - OWN_BYTES
_ALIGNED = 16


def shared_arrays(kernel: Kernel) -> tuple[Buffer, ...]:
    """The kernel's shared arrays, each once, in the order in which they are made."""
    made = (s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Alloc) and is_shared(s))
    return tuple(dict.fromkeys(made))


def shared_bytes(kernel: Kernel) -> int:
    """Bytes of shared memory that each block needs."""
    return _end(_pieces(shared_arrays(kernel)))


def pieces(kernel: Kernel) -> Mapping[Buffer, int]:
    """Where in the dynamic array each shared array begins, in bytes; empty where all of them can be declared."""
    found = dict(_pieces(shared_arrays(kernel)))
    return found if _end(found.items()) > DECLARED_BYTES else {}


def dynamic_bytes(kernel: Kernel) -> int:
    """Bytes of dynamic shared memory that a launch of the kernel has to name."""
    return _end(pieces(kernel).items())


def size(array: Buffer) -> int:
    """Bytes of a shared array, as it takes them up among others."""
    return -(-(array.length or 0) * array.element.size // _ALIGNED) * _ALIGNED


def _pieces(arrays: tuple[Buffer, ...]) -> Iterator[tuple[Buffer, int]]:
    start = 0
    for array in arrays:
        yield array, start
        start += size(array)


def _end(found: Iterable[tuple[Buffer, int]]) -> int:
    return max((start + size(array) for array, start in found), default=0)


def is_shared(stmt: Stmt) -> bool:
    """True if the statement makes a shared array."""
    return isinstance(stmt, Alloc) and stmt.buffer.space is Space.SHARED

"""Places for buffers in one allocation, when it is known from when to when each is used.

Best fit in the order of time, neighbours that are free become one: where all buffers are of a few sizes, as the checkpoints of a loop
are, nothing is lost to gaps.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

UNIT = 512  # bytes, as CuPy's pool rounds
_FIRST = -(1 << 60)  # the place of the first island


def rounded(nbytes: int) -> int:
    """Bytes that a pool hands out for a request."""
    return -(-max(nbytes, 1) // UNIT) * UNIT


@dataclass(eq=False, slots=True)
class Buffer:
    """`size` bytes; `begin`: its place, once it has one."""

    size: int
    begin: int = -1


@dataclass(eq=False)
class Layout:
    """Takes and frees buffers; `top`: bytes of the allocation that has room for all that was taken, but for those in `islands`, whose
    places are negative."""

    top: int = 0
    used: int = 0
    _next: int = _FIRST
    _free: list[tuple[int, int]] = field(default_factory=list)  # (begin, end), sorted, apart
    _sizes: list[tuple[int, int]] = field(default_factory=list)  # (size, begin) of the same, sorted

    def take(self, size: int) -> Buffer:
        """A buffer of at least one byte."""
        want = rounded(size)
        at = bisect_left(self._sizes, (want, _FIRST))
        if at < len(self._sizes):
            length, begin = self._sizes[at]
            self._remove(begin, begin + length)
            if length > want:
                self._add(begin + want, begin + length)
        elif self._free and self._free[-1][1] == self.top:
            begin = self._free[-1][0]
            self._remove(begin, self.top)
            self.top = begin + want
        else:
            begin, self.top = self.top, self.top + want
        self.used += want
        return Buffer(size, begin)

    def islands(self, sizes: Iterable[int]) -> list[Buffer]:
        """Buffers in allocations of their own, which are there already: once they are dropped, others take their places."""
        found = []
        for size in sizes:
            buffer = Buffer(size, self._next)
            self._next += rounded(size) + UNIT  # so that no two become one
            self.used += rounded(size)
            found.append(buffer)
        return found

    def drop(self, buffers: Iterable[Buffer]) -> None:
        """They are free again."""
        for buffer in buffers:
            begin, end = buffer.begin, buffer.begin + rounded(buffer.size)
            self.used -= end - begin
            at = bisect_left(self._free, (begin, end))
            if at < len(self._free) and self._free[at][0] == end:
                end = self._free[at][1]
                self._remove(*self._free[at])
            if at > 0 and self._free[at - 1][1] == begin:
                begin = self._free[at - 1][0]
                self._remove(*self._free[at - 1])
            self._add(begin, end)

    def _add(self, begin: int, end: int) -> None:
        insort(self._free, (begin, end))
        insort(self._sizes, (end - begin, begin))

    def _remove(self, begin: int, end: int) -> None:
        self._free.pop(bisect_left(self._free, (begin, end)))
        self._sizes.pop(bisect_left(self._sizes, (end - begin, begin)))

"""Sets of bytes of one allocation, as sorted disjoint spans, with an exact and cheap algebra.

A program repeats itself: the same regions meet again and again. So regions are interned (equal ones are one object) and the results of set
operations remembered, which makes the algebra of a long recording a matter of dictionary look-ups.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...runtime.array_types import NdArray
from ...traced_numbers import recorded

Spans = NDArray[np.int64]  # shape (n, 2): begin and end (excluded), sorted, disjoint, not touching

_interned: weakref.WeakValueDictionary[bytes, Region] = weakref.WeakValueDictionary()
_interning = threading.Lock()


class Region:
    """An immutable set of byte offsets. Compare with `is`: equal regions are one object."""

    __slots__ = ("__weakref__", "_memo", "groups", "high", "low", "nbytes", "spans")

    spans: Spans
    nbytes: int
    low: int  # the first byte
    high: int  # the byte after the last
    groups: Any  # the spans as evenly spaced runs, once somebody has copied by them (memory.rows)
    _memo: dict[tuple[str, int], tuple[Region, Region]]

    def __new__(cls, spans: Spans) -> Region:
        key = spans.tobytes()
        found = _interned.get(key)
        if found is not None:
            return found
        made = object.__new__(cls)
        made.spans = spans
        made.nbytes = int((spans[:, 1] - spans[:, 0]).sum())
        made.low, made.high = (int(spans[0, 0]), int(spans[-1, 1])) if len(spans) else (0, 0)
        made._memo, made.groups = {}, None
        with _interning:  # another thread may have made it in the meantime
            return _interned.setdefault(key, made)

    def __reduce__(self) -> tuple[Any, ...]:
        return of_bytes, (self.spans.tobytes(),)

    def __bool__(self) -> bool:
        return self.nbytes > 0

    def __repr__(self) -> str:
        shown = ", ".join(f"{a}:{z}" for a, z in self.spans[:3])
        return f"Region({shown}{', ...' if len(self.spans) > 3 else ''}; {self.nbytes} B)"

    def __or__(self, other: Region) -> Region:
        if other.__class__ is not Region:
            return NotImplemented
        if not other.nbytes or other is self:
            return self
        return self._known("|", other, _union) if self.nbytes else other

    def __and__(self, other: Region) -> Region:
        if other.__class__ is not Region:
            return NotImplemented
        if not self.nbytes or not other.nbytes or self.high <= other.low or other.high <= self.low:
            return EMPTY
        return self if other is self else self._known("&", other, _intersection)

    def __sub__(self, other: Region) -> Region:
        if other.__class__ is not Region:
            return NotImplemented
        if not self.nbytes or not other.nbytes or self.high <= other.low or other.high <= self.low:
            return self
        return EMPTY if other is self else self._known("-", other, _difference)

    def moved(self, by: int) -> Region:
        """The region `by` bytes further on."""
        return self if by == 0 or not self else Region(self.spans + by)

    def __le__(self, other: Region) -> bool:
        if other.__class__ is not Region:
            return NotImplemented
        return (self & other) is self

    def _known(self, op: str, other: Region, compute: Any) -> Region:
        found = self._memo.get((op, id(other)))
        if found is not None and found[0] is other:
            return found[1]
        result = Region(compute(self.spans, other.spans))
        if len(self._memo) > 256:
            self._memo.clear()
        self._memo[op, id(other)] = (other, result)  # keeping `other` alive keeps its id its own
        return result


def of_bytes(spans: bytes) -> Region:
    """The region whose spans are these numbers."""
    return _interned.get(spans) or Region(np.frombuffer(spans, np.int64).reshape(-1, 2))


@recorded
@lru_cache(1 << 12)
def span(low: int, high: int) -> Region:
    """The bytes from `low` to `high` (excluded)."""
    return Region(np.array([[low, high]], np.int64)) if high > low else EMPTY


@recorded
def lattice(low: int, run: int, steps: Iterable[tuple[int, int]]) -> Region:
    """The runs of `run` bytes at `low + sum(i_k * stride_k)`, with 0 <= i_k < count_k for each (stride, count) in `steps`."""
    starts = np.array([low], np.int64)
    for stride, count in sorted((abs(s), n) for s, n in _upward(steps)):
        if count <= 0 or run <= 0:
            return EMPTY
        if stride <= run and len(starts) == 1:
            run = run if count == 1 else stride * (count - 1) + run
        else:
            starts = (starts[:, None] + stride * np.arange(count, dtype=np.int64)).ravel()
    shift = sum(s * (n - 1) for s, n in steps if s < 0)
    starts = np.sort(starts + shift)
    return Region(_merged(np.stack([starts, starts + run], axis=1)))


def _upward(steps: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return list(steps)


def of_array(array: NdArray, low: int) -> Region:
    """The bytes of a strided array whose first element is at byte `low`."""
    if array.size == 0:
        return EMPTY
    if array.flags.c_contiguous:
        return span(low, low + int(array.nbytes))
    return lattice(low, int(array.dtype.itemsize), [(int(s), int(n)) for s, n in zip(array.strides, array.shape, strict=True)])


def touched_elements(region: Region, size: int, shift: int) -> Region:
    """The numbers of the elements of `size` bytes of which a byte is in the region, `shift` further on."""
    spans = region.spans
    return Region(_merged(np.stack([spans[:, 0] // size, -(-spans[:, 1] // size)], axis=1) + shift))


def _merged(spans: Spans) -> Spans:
    """Sorted spans with touching and overlapping ones joined."""
    if len(spans) < 2:
        return spans
    ends = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate([[True], spans[1:, 0] > ends[:-1]])
    begins = spans[first, 0]
    last = np.concatenate([np.flatnonzero(first)[1:] - 1, [len(spans) - 1]])
    return np.stack([begins, ends[last]], axis=1)


def _union(a: Spans, b: Spans) -> Spans:
    both = np.concatenate([a, b])
    return _merged(both[np.argsort(both[:, 0], kind="stable")])


def _intersection(a: Spans, b: Spans) -> Spans:
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")
    last = np.searchsorted(b[:, 0], a[:, 1], side="left")
    counts = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(a)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    other = np.repeat(first, counts) + within
    return np.stack([np.maximum(a[which, 0], b[other, 0]), np.minimum(a[which, 1], b[other, 1])], axis=1)


def _difference(a: Spans, b: Spans) -> Spans:
    if not len(b):
        return a
    least, most = min(a[0, 0], b[0, 0]), max(a[-1, 1], b[-1, 1])
    gaps = np.stack([np.concatenate([[least], b[:, 1]]), np.concatenate([b[:, 0], [most]])], axis=1)
    return _intersection(a, gaps[gaps[:, 1] > gaps[:, 0]])


EMPTY = Region(np.zeros((0, 2), np.int64))

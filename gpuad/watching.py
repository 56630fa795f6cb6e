"""Notices memory that was changed behind a recording.

What the reverse will read live is marked at the end of the recording and looked at again before the first shadow is touched. By default
the mark is taken of a sample: all of what is small, else one block in 32, which sees a change of one element in a hundred of a large
array nearly always, but not of a single one; `check="exact"` marks every byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import TapeError
from .launching import fingerprint
from .program.memory import Allocation, gather
from .program.region import Region, span

SMALL = 1 << 16  # bytes that are looked at in full
BLOCK = 64
SHARE = 32


@dataclass(frozen=True)
class Watch:
    """Marks of the regions that a reverse reads live."""

    marks: tuple[tuple[Allocation, Region, int], ...]

    @classmethod
    def of(cls, allocations: Iterable[Allocation], exact: bool) -> Watch:
        """Marks what is pending in the allocations."""
        found = []
        for a in allocations:
            region = a.pending if exact else sample(a.pending)
            if region:
                found.append((a, region, mark(a, region)))
        return cls(tuple(found))

    def check(self) -> None:
        """Raises TapeError if marked memory has changed."""
        for allocation, region, before in self.marks:
            if mark(allocation, region) != before:
                raise TapeError(
                    f"`{allocation.name}` was changed between the recording and the reverse, which needs it as it was: copy it before you "
                    "change it, or change it inside the tape. No shadow was touched."
                )


def mark(allocation: Allocation, region: Region) -> int:
    """A fingerprint of a region as it is now."""
    if len(region.spans) == 1:
        return fingerprint(allocation.root[region.low : region.high])
    packed = allocation.root[: region.nbytes].copy()
    gather(allocation.root, region, packed)
    return fingerprint(packed)


def sample(region: Region) -> Region:
    """A part of a region that is spread over it: blocks at fixed pseudo-random places."""
    if region.nbytes <= SMALL:
        return region
    low, high = region.low, region.high
    blocks = (high - low) // BLOCK
    chosen = np.random.default_rng(0).choice(blocks, max(blocks // SHARE, 1), replace=False)
    chosen.sort()
    begins = low + chosen * BLOCK
    return _joined(begins) & region


def _joined(begins: NDArray[np.int64]) -> Region:
    result = span(int(begins[0]), int(begins[0]) + BLOCK)
    spans = np.stack([begins, begins + BLOCK], axis=1).astype(np.int64)
    first = np.concatenate([[True], spans[1:, 0] > spans[:-1, 1]])
    last = np.concatenate([np.flatnonzero(first)[1:] - 1, [len(spans) - 1]])
    return Region(np.stack([spans[first, 0], spans[last, 1]], axis=1)) if len(spans) > 1 else result

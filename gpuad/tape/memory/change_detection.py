"""Notices memory that was changed behind a recording.

What the reverse will read live is marked at the end of the recording, all of its bytes, and looked at again before the first shadow is
touched. `check="exact"` marks what has a shadow, too, at every operation. On a CPU with a compiler the mark of what is large is a digest by
compiled code on all cores, on a GPU one by a kernel of ours.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import TapeError
from ...program.ir.region import Region
from ...runtime.digest import PIECE, Spans, digest, digest_on_device
from .versions import Allocation, portions

LARGE = 1 << 15  # bytes from which compiled code is worth its call
Room = Callable[[int], Any]


@dataclass(frozen=True)
class Watch:
    """Marks of the regions that a reverse reads live."""

    marks: tuple[tuple[Allocation, Region, int], ...]

    @classmethod
    def of(cls, allocations: Iterable[Allocation], room: Room | None = None) -> Watch:
        """Marks what is pending in the allocations. `room` gives bytes to work with."""
        return cls(tuple((a, a.pending, mark(a, a.pending, room)) for a in allocations if a.pending))

    def check(self, room: Room | None = None) -> None:
        """Raises TapeError if marked memory has changed."""
        for allocation, region, before in self.marks:
            if mark(allocation, region, room) != before:
                raise TapeError(
                    f"`{allocation.name}` was changed between the recording and the reverse, which needs it as it was: copy it before you "
                    "change it, or change it inside the tape. No shadow was touched."
                )


def mark(allocation: Allocation, region: Region, room: Room | None = None) -> int:
    """A fingerprint of all bytes of a region as it is now."""
    root = allocation.root
    if not isinstance(root, np.ndarray):
        return digest_on_device(root, pieces(region))
    found = digest(root, pieces(region)) if region.nbytes >= LARGE else None
    if found is not None:
        return found
    if len(region.spans) == 1:
        return zlib.crc32(root[region.low : region.high].data)
    found = 0
    for portion in portions(root, region, room or (lambda nbytes: np.empty(nbytes, np.uint8))):
        found = zlib.crc32(portion.data, found)
    return found


@lru_cache(64)
def pieces(region: Region) -> Spans:
    """The spans of a region, long ones in several parts."""
    begins, ends = region.spans[:, 0], region.spans[:, 1]
    parts = -(-(ends - begins) // PIECE)
    first = np.repeat(np.cumsum(parts) - parts, parts)
    low = np.repeat(begins, parts) + (np.arange(int(parts.sum())) - first) * PIECE
    return np.ascontiguousarray(np.stack([low, np.minimum(low + PIECE, np.repeat(ends, parts))], axis=1), np.int64)

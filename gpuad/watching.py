"""Notices memory that was changed behind a recording.

What the reverse will read live is marked at the end of the recording and looked at again before the first shadow is touched. By default
the mark is taken of a sample: all of what is small, else one block in 32, which sees a change of one element in a hundred of a large array
nearly always, but not of a single one; `check="exact"` marks every byte. On a CPU with a compiler the blocks of a sample are lines of its
caches, and their mark a digest by compiled code.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .annotations import address
from .errors import TapeError
from .executors.digest import BLOCK, digest
from .launching import fingerprint
from .program.memory import Allocation, gather, places, portions
from .program.region import EMPTY, Region, span

SMALL = 1 << 20  # bytes that are looked at in full
SHARE = 32
Room = Callable[[int], Any]


@dataclass(frozen=True)
class Watch:
    """Marks of the regions that a reverse reads live."""

    marks: tuple[tuple[Allocation, Region, int], ...]

    @classmethod
    def of(cls, allocations: Iterable[Allocation], exact: bool, room: Room | None = None) -> Watch:
        """Marks what is pending in the allocations. `room` gives bytes to work with."""
        found = []
        for a in allocations:
            region = a.pending if exact else sample(a.pending, _shift(a.root))
            if region:
                found.append((a, region, mark(a, region, room)))
        return cls(tuple(found))

    def check(self, room: Room | None = None) -> None:
        """Raises TapeError if marked memory has changed."""
        for allocation, region, before in self.marks:
            if mark(allocation, region, room) != before:
                raise TapeError(
                    f"`{allocation.name}` was changed between the recording and the reverse, which needs it as it was: copy it before you "
                    "change it, or change it inside the tape. No shadow was touched."
                )


def mark(allocation: Allocation, region: Region, room: Room | None = None) -> int:
    """A fingerprint of a region as it is now."""
    if len(region.spans) == 1:
        return fingerprint(allocation.root[region.low : region.high])
    blocks = _blocks(allocation.root, region)
    mixed = digest(*blocks) if blocks is not None else None
    if mixed is not None:
        return mixed
    room = room or (lambda nbytes: allocation.root[:nbytes].copy())
    if isinstance(allocation.root, np.ndarray):
        found = 0
        for portion in portions(allocation.root, region, room):
            found = zlib.crc32(portion.data, found)
        return found
    packed = room(region.nbytes)
    gather(allocation.root, region, packed)
    return fingerprint(packed)


def _shift(root: Any) -> int:
    """The first of an allocation's bytes with which a cache line begins."""
    return -address(root) % BLOCK if isinstance(root, np.ndarray) else 0


def _blocks(root: Any, region: Region) -> tuple[Any, Any] | None:
    """The allocation from where its cache lines begin, and the numbers of those that a region is made of; None if it is of anything
    else."""
    if not isinstance(root, np.ndarray) or region.nbytes < SMALL // SHARE:
        return None
    shift = _shift(root)
    lines = _lines(region, shift)
    return (root[shift:], places(lines, BLOCK)) if lines is not None else None


@lru_cache(256)
def _lines(region: Region, shift: int) -> Region | None:
    """The region counted from byte `shift`, if it is made of blocks from there on."""
    return None if ((region.spans - shift) % BLOCK).any() else region.moved(-shift)


@lru_cache(256)
def sample(region: Region, shift: int = 0) -> Region:
    """A part of a region that is spread over it: in each stretch of SHARE blocks one, at a fixed pseudo-random place; where the region is
    in large pieces, whole blocks only, which are fewer to look for than bytes. Blocks begin with byte `shift`, or that of a multiple of
    BLOCK after it or before."""
    return _sample(region.moved(-shift)).moved(shift)


def most_of(root: Any, region: Region) -> tuple[Region, Region]:
    """A sample of a region of an allocation, and its ends, where what is set between launches often lies."""
    found = sample(region, _shift(root))
    return found, _ends(region) if found is not region else EMPTY


@lru_cache(256)
def _ends(region: Region) -> Region:
    return region & (span(region.low, region.low + BLOCK) | span(region.high - BLOCK, region.high))


def _sample(region: Region) -> Region:
    if region.nbytes <= SMALL:
        return region
    low = region.low // BLOCK * BLOCK
    stretches = (region.high - low) // (BLOCK * SHARE)
    places = np.random.default_rng(0).integers(0, SHARE, stretches)
    begins = low + (np.arange(stretches) * SHARE + places) * BLOCK
    first = np.concatenate([[True], begins[1:] > begins[:-1] + BLOCK])
    last = np.concatenate([np.flatnonzero(first)[1:] - 1, [stretches - 1]])
    found = Region(np.stack([begins[first], begins[last] + BLOCK], axis=1).astype(np.int64)) & region
    whole = np.stack([-(-found.spans[:, 0] // BLOCK) * BLOCK, found.spans[:, 1] // BLOCK * BLOCK], axis=1)
    blocks = Region(whole[whole[:, 1] > whole[:, 0]])
    return blocks if 2 * blocks.nbytes >= found.nbytes else found

"""Races in shared memory: who has read, written or atomically changed each byte since the block's last barrier.

A byte's record names one thread (its number in the block + 1), or several of one warp (-1 - warp), or ALL, and the number of warp barriers
that the warp had passed. Two uses of a byte, of which one writes, race unless they are of one thread, or of one warp with a warp barrier
between; or both write the same value; or both are strong: atomic operations, and what is volatile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .faults import Race

NOBODY, ALL = 0, np.iinfo(np.int32).min
WARP = 32


class Records:
    """One kind of use of the bytes of all rows."""

    def __init__(self, size: int) -> None:
        self.who = np.zeros(size, np.int32)
        self.epoch = np.zeros(size, np.int32)

    def clear(self, rows: Any, pitch: int) -> None:
        self.who.reshape(-1, pitch)[rows] = NOBODY

    def others(self, at: Any, threads: Any, epochs: Any) -> Any:
        """Whether somebody else's use, which nothing orders, is on record."""
        who = self.who[at]
        warp = np.where(who > 0, (who - 1) // WARP, -1 - who)
        ordered = (warp == threads // WARP) & (self.epoch[at] < epochs) & (who != ALL)
        return (who != NOBODY) & (who != threads + 1) & ~ordered

    def note(self, at: Any, threads: Any, epochs: Any) -> None:
        """Adds these uses, one lane after the other in effect."""
        who, warps = self.who[at], threads // WARP
        before = np.where(who > 0, (who - 1) // WARP, -1 - who)
        passed = (before == warps) & (self.epoch[at] < epochs) & (who != ALL)
        alone = (who == NOBODY) | (who == threads + 1) | passed
        joined = np.where(alone, threads + 1, np.where((before == warps) & (who != ALL), -1 - warps, ALL))
        self.who[at] = joined
        self.epoch[at] = epochs
        self._meet(at, joined, warps)

    def _meet(self, at: Any, joined: Any, warps: Any) -> None:
        """Lanes of this very use that came to one byte: several of a warp, or of several."""
        lost = self.who[at] != joined
        if not lost.any():
            return
        order = np.argsort(at, kind="stable")
        spots, begin = np.unique(at[order], return_index=True)
        low, high = np.minimum.reduceat(warps[order], begin), np.maximum.reduceat(warps[order], begin)
        first, last = np.minimum.reduceat(joined[order], begin), np.maximum.reduceat(joined[order], begin)
        several = first != last
        shared = np.where((low == high) & (first != ALL), -1 - low, ALL)
        self.who[spots[several]] = shared[several]


class Watch:
    """The records of the shared memory of all blocks of a launch."""

    def __init__(self, rows: int, pitch: int, warps: int) -> None:
        self.pitch, self.warps = pitch, warps
        self.readers, self.writers, self.atomics, self.lookers = (Records(rows * pitch) for _ in range(4))
        self.epochs = np.zeros(rows * warps, np.int32)

    def barrier(self, rows: Any) -> None:
        """All threads of these blocks have met."""
        for records in (self.readers, self.writers, self.atomics, self.lookers):
            records.clear(rows, self.pitch)

    def warp_barrier(self, rows: Any, threads: Any) -> None:
        at = np.unique(rows * self.warps + threads // WARP)
        self.epochs[at] += 1

    def _bytes(self, rows: Any, threads: Any, places: Any, size: int) -> tuple[Any, Any, Any]:
        rows, threads, places = np.broadcast_arrays(rows, threads, places)
        epochs = self.epochs[rows * self.warps + threads // WARP]
        at = (places[:, None] + np.arange(size)).ravel()
        return at, np.repeat(threads, size), np.repeat(epochs, size)

    def read(self, rows: Any, threads: Any, places: Any, size: int, what: str) -> None:
        at, threads, epochs = self._bytes(rows, threads, places, size)
        for records, how in ((self.writers, "wrote"), (self.atomics, "atomically changed")):
            _refuse(records.others(at, threads, epochs), at, threads, self.pitch, f"{what}: reads what another thread {how}")
        self.readers.note(at, threads, epochs)

    def look(self, rows: Any, threads: Any, places: Any, size: int, what: str) -> None:
        """A strong read."""
        at, threads, epochs = self._bytes(rows, threads, places, size)
        _refuse(self.writers.others(at, threads, epochs), at, threads, self.pitch, f"{what}: reads what another thread wrote")
        self.lookers.note(at, threads, epochs)

    def write(self, rows: Any, threads: Any, places: Any, size: int, before: Any, after: Any, what: str) -> None:
        """`before`, `after`: per lane, whether memory held the very value already, and whether it holds it now."""
        if not np.all(after):
            raise Race(f"{what}: threads write different values to one place")
        same = before
        at, threads, epochs = self._bytes(rows, threads, places, size)
        same = np.repeat(np.broadcast_to(same, places.shape), size)
        for records, how in ((self.readers, "read"), (self.lookers, "read"), (self.atomics, "atomically changed")):
            _refuse(records.others(at, threads, epochs), at, threads, self.pitch, f"{what}: writes what another thread {how}")
        clash = self.writers.others(at, threads, epochs) & ~same
        _refuse(clash, at, threads, self.pitch, f"{what}: writes what another thread wrote")
        self.writers.note(at, threads, epochs)

    def atomic(self, rows: Any, threads: Any, places: Any, size: int, what: str) -> None:
        at, threads, epochs = self._bytes(rows, threads, places, size)
        for records, how in ((self.readers, "read"), (self.writers, "wrote")):
            _refuse(records.others(at, threads, epochs), at, threads, self.pitch, f"{what}: atomically changes what another thread {how}")
        self.atomics.note(at, threads, epochs)


def _refuse(found: Any, at: Any, threads: Any, pitch: int, message: str) -> None:
    if found.any():
        first = int(np.flatnonzero(found)[0])
        raise Race(f"{message} (thread {int(threads[first])}, byte {int(at[first]) % pitch} of shared memory)")

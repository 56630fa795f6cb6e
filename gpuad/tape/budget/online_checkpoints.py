"""Checkpoints of a program that is recorded for the first time: what will read them, and how many there will be, is not known.

A mark costs nothing when it is set. Bytes are copied just before they are overwritten for the first time since the newest mark, if after
some mark the program has read them before it wrote them: one copy serves all marks before it. So the state at a mark is made up of what
was copied at or after it, and of what was never overwritten since. A mark that is dropped leaves to the one before it the copies of bytes
that were not overwritten between them, and copies that only it needed are let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...budget import rounded
from ...program.ir.regions import Regions, common, united, without
from ...runtime.actions import Action
from ..memory.versions import Allocation, Piece, placing


@dataclass(frozen=True, eq=False)
class Copied:
    """Bytes of an allocation in memory of their own."""

    allocation: Allocation
    piece: Piece
    number: int
    room: Any = None  # the memory that the piece lies in, if it is not all of it

    @property
    def nbytes(self) -> int:
        """As a pool rounds them."""
        return rounded(int(self.piece.data.size))

    def back(self) -> list[Action]:
        """What puts them back."""
        return placing(self.piece, self.piece.region, self.allocation.root, 0)


@dataclass(eq=False)
class Mark:
    """The state before operation `time`. `read`, `done`: what was read before it was overwritten, and what was overwritten, from there
    to the next mark; `copies`: of what was, and which bytes of each count; `borrowed`: those whose memory belongs to the state at the
    beginning."""

    time: int
    read: Regions = field(default_factory=dict)
    done: Regions = field(default_factory=dict)
    copies: list[tuple[Copied, Regions]] = field(default_factory=list)
    borrowed: set[int] = field(default_factory=set)

    def takes(self, later: Mark) -> None:
        """The next mark is dropped: what this one needs of its copies comes here."""
        self.copies += [(copied, without(part, self.done)) for copied, part in later.copies]
        self.borrowed |= later.borrowed
        self.read = united(self.read, without(later.read, self.done))
        self.done = united(self.done, later.done)


class Marks:
    """The marks of a recording."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Lets all go."""
        self.marks: list[Mark] = []
        self.nbytes = 0  # of copies, as a pool rounds them
        self._owed: Regions = {}  # what was read after earlier marks, and not overwritten before the newest

    def __len__(self) -> int:
        return len(self.marks)

    def set(self, time: int) -> None:
        """The state as it is now will be had again."""
        if self.marks:
            self._owed = without(united(self._owed, self.marks[-1].read), self.marks[-1].done)
        self.marks.append(Mark(time))

    def to_copy(self, reads: Regions, writes: Regions) -> Regions:
        """An operation reads and overwrites: what has to be copied before."""
        if not self.marks:
            return {}
        newest = self.marks[-1]
        newest.read = united(newest.read, without(reads, newest.done))
        return without(common(united(newest.read, self._owed), writes), newest.done)

    def wrote(self, writes: Regions) -> None:
        """It has overwritten these bytes."""
        if self.marks:
            self.marks[-1].done = united(self.marks[-1].done, writes)

    def add(self, copied: Copied, *, borrowed: bool) -> None:
        """A copy was made; `borrowed`: for the state at the beginning."""
        if self.marks:
            newest = self.marks[-1]
            newest.copies.append((copied, {copied.allocation.address: copied.piece.region}))
            if borrowed:
                newest.borrowed.add(id(copied))
            else:
                self.nbytes += copied.nbytes

    def drop(self, number: int) -> None:
        """Lets a mark go, and the copies that only it needs."""
        mark = self.marks.pop(number)
        if number:
            self.marks[number - 1].takes(mark)
        owed: Regions = {}
        for mark in self.marks:
            self._owed, needed = owed, united(owed, mark.read)
            mark.copies = [(copied, here) for copied, part in mark.copies if (here := common(part, needed))]
            owed = without(needed, mark.done)
        self.nbytes = sum(c.nbytes for c in self.own())

    def own(self) -> Iterable[Copied]:
        """The copies whose memory is theirs."""
        return {id(c): c for mark in self.marks for c, _ in mark.copies if id(c) not in mark.borrowed}.values()

    def states(self, wanted: dict[int, Regions]) -> Iterator[tuple[int, list[tuple[Copied, Regions]]]]:
        """For each mark, the last first, where the bytes are that its state has (`wanted`, by time). A mark that lacks some is left out."""
        for number in range(len(self.marks) - 1, -1, -1):
            time = self.marks[number].time
            rest, found = wanted[time], []
            for mark in self.marks[number:]:
                for copied, part in mark.copies:
                    here = common(part, rest)
                    if here:
                        found.append((copied, here))
                rest = without(rest, mark.done)
            lacking = without(wanted[time], _all(found))
            if not lacking:
                yield time, found


def _all(found: Iterable[tuple[Copied, Regions]]) -> Regions:
    every: Regions = {}
    for _, part in found:
        every = united(every, part)
    return every

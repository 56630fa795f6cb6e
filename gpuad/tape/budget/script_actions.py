"""A script with its memory: the actions that its items come to.

In: a script (`script`), whose buffers have places, the memory that they lie in, and what a first recording has kept. Out: for each item the
copies, launches and transfers that do it, and what puts arrays back after a failure. Nothing is decided here, and nothing is done before
the actions run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...budget import rounded
from ...runtime.actions import Action, clearing, perform
from ...runtime.base import Memory
from ..memory.versions import Piece, Versions, piece_of, placing
from .offload import Level
from .online_checkpoints import Copied
from .program_states import Program
from .script import Again, Ahead, Arrive, Begin, Block, Far, Fetch, Item, Script, Store, Stored


@dataclass(eq=False)
class Kept:
    """What a program needs to run once more: its `initial` state, as far as it is overwritten; by operation the `results` of those that may
    not run again, and what `arrivals` from code that the tape does not see it met; and what copies all that (`saving`, by operation, or
    -1 - operation for what comes after it)."""

    initial: list[Copied] = field(default_factory=list)
    results: dict[int, list[Copied]] = field(default_factory=dict)
    arrivals: dict[int, list[Copied]] = field(default_factory=dict)
    saving: dict[int, list[Action]] = field(default_factory=dict)

    @property
    def copies(self) -> list[Copied]:
        """All of them, in the order in which they were made."""
        every = [*self.initial, *(c for each in (self.results, self.arrivals) for copies in each.values() for c in copies)]
        return sorted(every, key=lambda copied: copied.number)

    @property
    def nbytes(self) -> int:
        """Bytes, as a pool rounds them."""
        return sum(c.nbytes for c in self.copies)


@dataclass(eq=False)
class Scripted:
    """A script with its memory, and what it comes to. `stored`: whether the final state is stored, and not yet back."""

    script: Script
    program: Program
    room: Any
    kept: Kept
    level: Level | None = None
    stored: bool = False

    def __post_init__(self) -> None:
        self._versions: dict[int, tuple[Block, dict[int, list[Piece]]]] = {}
        self._pieces: dict[int, tuple[Stored, Piece]] = {}
        self._islands = sorted(self.script.arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        return rounded(int(self.room.size)) if self.room is not None else 0

    def data(self, buffer: Any) -> Any:
        """A buffer's bytes."""
        if buffer.begin >= 0:
            return self.room[buffer.begin : buffer.begin + buffer.size]
        island = self._islands[bisect_right(self._islands, buffer.begin) - 1]
        begin, room = buffer.begin - island, self.script.arrays[island]
        assert begin + buffer.size <= room.size, "a place is within one allocation"
        return room[begin : begin + buffer.size]

    def piece(self, stored: Stored) -> Piece:
        """Stored bytes as a piece."""
        known = self._pieces.get(id(stored))
        if known is None:
            root = self.program.allocations[stored.where].root
            known = self._pieces[id(stored)] = (
                stored,
                piece_of(root, stored.region, stored.time, self.data(stored.buffer), stored.base, stored.lossy),
            )
        return known[1]

    def versions(self, block: Block) -> Versions:
        """Where the versions are that a block has kept."""
        known = self._versions.get(id(block))
        if known is None:
            found = {w: [self.piece(s) for s in each] for w, each in block.pieces.items()}
            known = self._versions[id(block)] = block, found
        pieces = known[1]
        return Versions(lambda a: pieces.get(a.address, ()))

    def logs(self, block: Block, time: int) -> list[Memory]:
        """What a launch wrote down."""
        noting = self.program.reruns[time].noting
        assert noting is not None
        return list(noting([self.data(b) for b in block.logs[time]])[0])

    def forward(self, time: int) -> tuple[Action, ...]:
        """What an operation of the program itself does."""
        script, rerun = self.script, self.program.reruns[time]
        saving = self.kept.saving if script.has_initial else {}
        found: list[Action] = [*saving.get(time, ())]
        for store in script.forward.get(time, ()):
            found += self.actions(store)
        if time in script.noted:
            found += self._noting(time, script.noted[time])
        elif rerun.first is not None:
            found.append(rerun.first)
        return (*found, *saving.get(-1 - time, ()))

    def _noting(self, time: int, logs: Sequence[Any]) -> list[Action]:
        noting = self.program.reruns[time].noting
        assert noting is not None
        memories, launch = noting([self.data(b) for b in logs])
        return [*(clearing(m.root) for m in memories), launch]

    def actions(self, item: Item) -> list[Action]:
        """What an item does, but for adjoints."""
        match item:
            case Store(stored, far):
                found = [action for s in stored for action in self.piece(s).saving]
                if far is not None:
                    assert self.level is not None
                    return [self.level.join, *found, partial(self.level.write, far.at, self._staged(far))]
                return [*found, self._mark(True)] if stored is self.script.finals else found
            case Fetch(stored, far):
                found = [a for s in stored for a in self._back(s)]
                if far is not None:
                    assert self.level is not None
                    return [self.level.join, *found]
                return [*found, self._mark(False)] if stored is self.script.finals else found
            case Ahead(far):
                assert self.level is not None
                return [self.level.join, partial(self.level.read, far.at, self._staged(far))]
            case Begin():
                return [action for copied in self.kept.initial for action in copied.back()]
            case Arrive(time):
                return [action for copied in self.kept.arrivals.get(time, ()) for action in copied.back()]
            case Again(time, logs):
                return self._again(time, logs)
        raise AssertionError("adjoints are planned by the reversal")

    def _staged(self, far: Far) -> Any:
        return self.room[far.begin : far.begin + far.nbytes]

    def _again(self, time: int, logs: Sequence[Any] | None) -> list[Action]:
        rerun = self.program.reruns[time]
        if rerun.keeps:
            found = [action for copied in self.kept.results.get(time, ()) for action in copied.back()]
            if logs is None:
                return found
        if logs is not None:
            return self._noting(time, logs)
        return [rerun.again] if rerun.again is not None else []

    def _back(self, stored: Stored) -> list[Action]:
        piece = self.piece(stored)
        return placing(piece, stored.wanted, self.program.allocations[stored.where].root, 0)

    def _mark(self, stored: bool) -> Action:
        def mark() -> None:
            self.stored = stored

        return mark

    def put_back(self) -> None:
        """Arrays hold what the program left in them again, after a failure."""
        if self.level is not None:
            with suppress(OSError):  # that is what may have failed
                self.level.join()
        if self.stored:
            for s in self.script.finals:
                perform(self._back(s))
            self.stored = False

"""What a profile knows, as frozen records, and the sums over time that all of its forms share.

In: what tapes and the device were seen to hold. Out: programs, rounds, levels by kind, and bands: bytes from a moment on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from ..tape.budget.holding import Held, Holding
from ..tape.budget.outlook import Outlook
from ..tape.memory.memory_log import Kind
from .device import Reading


@dataclass(frozen=True, slots=True)
class Level:
    """Bytes that tape number `tape` has of a kind from `seconds` on."""

    seconds: float
    tape: int
    kind: Kind
    nbytes: int


@dataclass(frozen=True)
class Supposed:
    """A program within another budget: what it would cost, and what it would hold (None: not looked at)."""

    outlook: Outlook
    holding: Holding | None = None


@dataclass(frozen=True, eq=False)
class Program:
    """A recorded program with its reversal, as all rounds of it have it. `supposed`: within other budgets, the smallest first;
    `held_by_caller`: arrays made by operations that the caller still has: name, where it was made, bytes."""

    tape: int
    holding: Holding
    supposed: tuple[Supposed, ...] = ()
    held_by_caller: tuple[tuple[str, str, int], ...] = ()

    @property
    def title(self) -> str:
        """What it is called in what goes out."""
        first = self.holding.moments[0].place if self.holding.moments else None
        return f"tape {self.tape}: {self.holding.operations} operations from {first}" if first else f"tape {self.tape}: no operations"


@dataclass(frozen=True)
class Round:
    """A program recorded, and reversed; in seconds of `time.perf_counter`. `reversing`, `reversed`: None if it was not reversed."""

    program: Program
    began: float
    recorded: float
    reversing: float | None = None
    reversed: float | None = None

    def seconds(self, moment: int) -> float:
        """When a moment begins; those of a phase are spread evenly over it."""
        n, m = self.program.holding.operations, len(self.program.holding.moments)
        if moment < n or self.reversing is None or self.reversed is None:
            return self.began + (self.recorded - self.began) * min(moment, n) / max(n, 1)
        return self.reversing + (self.reversed - self.reversing) * (moment - n) / max(m - n, 1)

    @property
    def took(self) -> float:
        """Seconds of recording and reversal."""
        back = (self.reversed or 0.0) - (self.reversing or 0.0)
        return self.recorded - self.began + back


@dataclass(frozen=True)
class Measured:
    """What was found. `rounds`: each recording with its reversal, in order; `levels`: bytes that tapes had, by kind; `readings`: of the
    process, pool and device; `seconds`: from when to when; `cost`: seconds that looking took; `allocator`: CuPy's."""

    rounds: tuple[Round, ...]
    levels: tuple[Level, ...]
    readings: tuple[Reading, ...]
    seconds: tuple[float, float]
    cost: float
    allocator: str = ""

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """The programs, each once, in the order in which they came last."""
        last = {id(r.program): r.program for r in self.rounds}
        return tuple(last.values())

    @cached_property
    def by_kind(self) -> tuple[tuple[float, dict[Kind, int]], ...]:
        """Bytes that all tapes had of each kind, as steps in time."""
        last: dict[tuple[int, Kind], int] = {}
        now, found = dict.fromkeys(Kind, 0), []
        for level in self.levels:
            now[level.kind] += level.nbytes - last.get((level.tape, level.kind), 0)
            last[level.tape, level.kind] = level.nbytes
            found.append((level.seconds, dict(now)))
        return tuple(found)

    @cached_property
    def totals(self) -> tuple[tuple[float, int], ...]:
        """Bytes that all tapes had, as steps in time."""
        return tuple((seconds, sum(kinds.values())) for seconds, kinds in self.by_kind)

    @property
    def peak(self) -> int:
        """The most bytes that all tapes together added at one time, as a pool rounds them."""
        return max((total for _, total in self.totals), default=0)

    def peak_by_kind(self) -> dict[Kind, int]:
        """What they were for."""
        return max((kinds for _, kinds in self.by_kind), key=lambda kinds: sum(kinds.values()), default=dict.fromkeys(Kind, 0))

    @property
    def peak_resident(self) -> int | None:
        """The most resident memory of the process that was seen."""
        return max((r.rss for r in self.readings if r.rss is not None), default=None)


@dataclass(frozen=True)
class Band:
    """All that is held of an array for one reason. `count`: how often it is saved, `nbytes`: all of it, `most` of it at once; `steps`:
    bytes from a moment on."""

    name: str
    kind: Kind
    reason: str
    added: bool
    count: int
    nbytes: int
    most: int
    steps: tuple[tuple[int, int], ...]
    example: Held


def steps_of(held: Sequence[Held], end: int) -> tuple[tuple[int, int], ...]:
    """Bytes from a moment on, where they change."""
    changes = [(0, 0), (end, 0)]
    for h in held:
        changes += [(h.begin, h.nbytes), (min(h.end, end), -h.nbytes)]
    found = summed(changes)
    return tuple(b for k, b in enumerate(found) if k == 0 or b[1] != found[k - 1][1] or k == len(found) - 1)


def summed(changes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Bytes from a moment on, by what is added to them at moments."""
    by_moment: dict[int, int] = {}
    for moment, nbytes in changes:
        by_moment[moment] = by_moment.get(moment, 0) + nbytes
    return list(zip(sorted(by_moment), accumulate(by_moment[moment] for moment in sorted(by_moment)), strict=True))


def most_of(steps: Sequence[tuple[int, int]]) -> int:
    """The most of them that lasts."""
    return max((nbytes for (moment, nbytes), (later, _) in pairwise(steps) if later > moment), default=0)


__all__ = ["Band", "Level", "Measured", "Program", "Round", "Supposed", "most_of", "steps_of", "summed"]

"""The moves by which a chain of units is reversed with few of its states stored.

A *unit* is run, or run and kept: then what its adjoint needs is there when it is reversed. With `slots` checkpoints beside the initial
state, the optimum is found by dynamic programming over the number of units and of free slots:

    cost(slots, l) = min( l - spared + cost(slots, l - q),                                   run l - q units, keep the last q at once
                          min over j of  j + cost(slots - 1, l - j) + cost(slots, j) )       run j, store a checkpoint there

where `q` units can be kept in the memory of the free slots. If keeping a unit more takes as much as a checkpoint this is Griewank and
Walther's binomial schedule; where it takes less, segments grow at the leaves (mixed checkpointing: Maddison, 2024; Hascoet and Araya-Polo,
2006); if all units can be kept, nothing runs twice. More slots never cost more, since fewer may be used.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from .weighted import Weighted


@dataclass(frozen=True)
class Save:
    """Stores the state, which is that before unit `at`; `far`: on the second level."""

    at: int
    far: bool = False


@dataclass(frozen=True)
class Load:
    """Brings the state before unit `at` back; `last`: it is not stored any longer after that."""

    at: int
    last: bool = False


@dataclass(frozen=True)
class Run:
    """Runs the units from `begin` to `end` (excluded)."""

    begin: int
    end: int


@dataclass(frozen=True)
class Keep:
    """Runs them, and keeps what their adjoints need."""

    begin: int
    end: int


@dataclass(frozen=True)
class Reverse:
    """Runs the adjoints of units that were kept, the last first, and lets go what was kept for them."""

    begin: int
    end: int


@dataclass(frozen=True)
class Drop:
    """A state that is stored is not needed any longer."""

    at: int


Move: TypeAlias = "Save | Load | Run | Keep | Reverse | Drop"


class Chain:
    """The costs of reversing `units` units. `kept`: how many units can be kept in the memory of so many free slots (at least 1, and not
    falling). `spared`: whether the last unit of those that are kept need not be run again, since its adjoint reads nothing that it
    makes."""

    def __init__(self, units: int, kept: Callable[[int], int], spared: bool) -> None:
        self.units, self.kept, self.spared = units, kept, int(spared)
        self.costs: list[array[int]] = []
        self.splits: list[array[int]] = []  # 0: the last units are kept

    def cost(self, slots: int, length: int) -> int:
        """Units that are run to reverse `length` of them from a state that is there; of those that are kept, too."""
        return self._row(slots)[0][length]

    def split(self, slots: int, begin: int, end: int) -> int:
        """After how many of the units from `begin` to `end` a checkpoint is stored first; 0 if the last `kept` are kept without one."""
        return self._row(slots)[1][end - begin]

    def _row(self, slots: int) -> tuple[array[int], array[int]]:
        while len(self.costs) <= slots:
            self._add_row()
        return self.costs[slots], self.splits[slots]

    def _add_row(self) -> None:
        slots = len(self.costs)
        above = self.costs[slots - 1] if slots else None
        most, row, splits, j = max(self.kept(slots), 1), array("i", [0]), array("i", [0]), 1
        for length in range(1, self.units + 1):
            best, split = length - self.spared + row[max(length - most, 0)], 0
            if above is not None and most < length:
                j = min(j, length - 1)
                found = j + above[length - j] + row[j]
                while j + 1 < length and (more := j + 1 + above[length - j - 1] + row[j + 1]) <= found:
                    j, found = j + 1, more
                if found < best:
                    best, split = found, j
            row.append(best)
            splits.append(split)
        self.costs.append(row)
        self.splits.append(splits)


def moves_of(chain: Chain | Weighted, slots: int) -> tuple[Move, ...]:
    """The program itself and its reversal."""
    found: list[Move] = [Save(0)]
    _reverse(chain, 0, chain.units, slots, found)
    return _tidied(found)


def moves_from(chain: Chain | Weighted, stored: Mapping[int, bool], slots: int) -> tuple[Move, ...]:
    """The reversal of a program that has been run, of which the states before the units `stored` were (0 among them, rising), each with
    whether it takes one of the slots."""
    found: list[Move] = [Save(at) for at in stored]
    end, taken = chain.units, sum(stored.values())
    for at in reversed(stored):
        found.append(Load(at))
        _reverse(chain, at, end, max(slots - taken, 0), found)
        end, taken = at, taken - stored[at]
    return _tidied(found)


def segment(chain: Chain, slots: int) -> int:
    """The longest chain that is reversed with so many checkpoints so that no unit runs more than twice, once to come to the others."""
    length = 1
    while length < chain.units and chain.cost(slots, length + 1) < 2 * (length + 1):
        length += 1
    return length


def moves_on_two_levels(chain: Chain, slots: int) -> tuple[Move, ...]:
    """The program itself and its reversal, with states between segments on a second level that has room for all of them, and `slots`
    within each segment. Segments are as long as can be while nothing of them runs more than twice."""
    length = segment(chain, slots)
    begins = list(range(0, chain.units, length))
    found: list[Move] = [Save(0)]
    for begin in begins[1:]:
        found += [Run(begin - length, begin), Save(begin, far=True)]
    end = chain.units
    for begin in reversed(begins):
        found += [Load(begin)] if end < chain.units else []
        _reverse(chain, begin, end, slots, found)
        end = begin
    return _tidied(found)


def _reverse(chain: Chain | Weighted, begin: int, end: int, slots: int, found: list[Move]) -> None:
    """Reverses the units from `begin`, whose state is there, and stored."""
    todo: list[Move | tuple[int, int, int]] = [(begin, end, slots)]
    while todo:
        move = todo.pop()
        if not isinstance(move, tuple):
            found.append(move)
            continue
        a, b, free = move
        if a == b:
            continue
        j = chain.split(free, a, b)
        if j:
            todo += [(a, a + j, free), Load(a), (a + j, b, free - 1), Save(a + j), Run(a, a + j)]
            continue
        c = max(b - max(chain.kept(free), 1), a)
        todo += [(a, c, free), Load(a)] if c > a else []
        todo += [Reverse(c, b), Keep(c, b)]
        todo += [Run(a, c)] if c > a else []


def _tidied(moves: Iterable[Move]) -> tuple[Move, ...]:
    """Without states that are stored in vain; marks where one is loaded for the last time."""
    found: list[Move] = []
    wanted: set[int] = set()
    for move in reversed(list(moves)):
        if isinstance(move, Load):
            found.append(replace(move, last=move.at not in wanted))
            wanted.add(move.at)
        elif isinstance(move, Save):
            if move.at in wanted:
                wanted.discard(move.at)
                found.append(move)
        else:
            found.append(move)
    return tuple(reversed(found))


def reruns(moves: Iterable[Move]) -> int:
    """How often units are run, those of which nothing is kept and those of which it is."""
    return sum(move.end - move.begin for move in moves if isinstance(move, Run | Keep))

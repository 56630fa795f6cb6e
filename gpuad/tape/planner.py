"""Which script a byte budget leads to: the units of a recorded program, and the schedules for each number of checkpoints.

A unit is a turn of the program's loop, if most of it is one, else an operation, or some of them in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..budget import Chain, Keep, Reverse, moves_from, moves_of, rounded
from .program import Program, initial_parts
from .script import Script, Writer
from .script_memory import transient_bytes

MOST_UNITS = 1024
_LONGEST = 256  # operations of a period
_FEW = 16  # schedules, of which each is looked at


def period(signatures: Sequence[Any]) -> tuple[int, int, int] | None:
    """The shortest period that most of a program has, as (its length, where it begins, where it ends); None if there is none."""
    ids: dict[Any, int] = {}
    marks = np.array([ids.setdefault(s, len(ids)) for s in signatures])
    n = len(marks)
    for p in range(1, min(n // 3, _LONGEST) + 1):
        same = np.concatenate([[False], marks[:-p] == marks[p:], [False]])
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        begins, ends = edges[::2], edges[1::2]
        if len(begins):
            longest = int(np.argmax(ends - begins))
            begin, end = int(begins[longest]), int(ends[longest]) + p
            if end - begin >= max(n // 2, 3 * p):
                return p, begin, end
    return None


def units_of(program: Program, signatures: Sequence[Any]) -> list[int]:
    """Where units begin, and the program's end: at each turn of its loop, where the least is live, or at each operation."""
    n = len(program)
    found = period(signatures)
    if found is None:
        step = -(-n // MOST_UNITS)
        return [*range(0, n, step), n]
    p, begin, end = found
    sizes = program.state_bytes
    turns = min(range(begin, begin + p), key=lambda t: (sizes[t + p] if t + p <= end else sizes[t], t))
    group = -(-((end - turns) // p) // MOST_UNITS) * p
    inner = [t for t in range(turns, end + 1, group) if 0 < t < n]
    return [0, *inner, n]


@dataclass(eq=False)
class Planner:
    """Scripts for a program by their number of checkpoints. `restored`: the program's own allocations, where the others are given their
    initial state back in the end."""

    program: Program
    signatures: Sequence[Any]
    restored: frozenset[int] | None = None
    _scripts: dict[tuple[bool, int], Script] = field(default_factory=dict)

    @cached_property
    def initial(self) -> int:
        """Bytes of the state at the beginning."""
        return sum(rounded(nbytes) for _, _, nbytes in self.initial_parts)

    @cached_property
    def initial_parts(self) -> tuple[tuple[int, int, int], ...]:
        """The copies that make it up: before which operation, the allocation's address, bytes."""
        return tuple(initial_parts(self.program, self.restored))

    @cached_property
    def kept(self) -> int:
        """Bytes of what may not be computed again."""
        found = [r for rerun in self.program.reruns if rerun.keeps for r in rerun.writes.values()]
        found += [r for rerun in self.program.reruns for r in rerun.arrives.values()]
        return sum(rounded(r.nbytes) for r in found)

    @cached_property
    def boundaries(self) -> list[int]:
        """Where units begin, and the program's end."""
        return units_of(self.program, self.signatures)

    @cached_property
    def _sizes(self) -> tuple[int, int, int, bool]:
        """Bytes of a checkpoint, of one unit that is kept, and of each further one; whether the last of them need not run."""
        marks, sizes = self.boundaries, self.program.state_bytes
        units = len(marks) - 1
        state = max((sizes[t] for t in marks[1:-1]), default=0)
        some = sorted({*range(min(3, units)), *range(units // 2, min(units // 2 + 3, units)), units - 1})
        one = max(self._kept(u, u + 1) for u in some)
        further = max((self._kept(u, u + 2) - self._kept(u, u + 1) for u in some if u + 2 <= units), default=0)
        further = max(further, -(-(self.keeping().top - one) // max(units - 1, 1)), 0)  # what is kept of many is no less than of two
        spared = all(self.program.spared_from(marks[u], marks[u + 1]) == marks[u] for u in some)
        return state, one, further, spared

    def _kept(self, begin: int, end: int) -> int:
        writer = Writer(self.program, self.boundaries, sweeps=False)
        writer.at = len(self.program)
        writer._keep(self.boundaries[begin], self.boundaries[end])
        return writer.layout.top

    @cached_property
    def chain(self) -> Chain:
        state, _, further, spared = self._sizes
        units = len(self.boundaries) - 1
        return Chain(units, lambda slots: 1 + slots * state // further if further else units, spared)

    @cached_property
    def most_slots(self) -> int:
        """From so many on all units are kept."""
        units = len(self.boundaries) - 1
        low, high = 0, max(units, 1)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.chain.kept(middle) >= units else (middle + 1, high)
        return low

    def script(self, slots: int, *, sweeps: bool) -> Script:
        """The script with so many checkpoints beside the initial state."""
        key = sweeps, slots
        if key not in self._scripts:
            moves = moves_of(self.chain, slots) if sweeps else moves_from(self.chain, [0], slots)
            found = Writer(self.program, self.boundaries, sweeps=sweeps).script(moves)
            found.transient = transient_bytes(found.reversal, self.program)
            self._scripts[key] = found
        return self._scripts[key]

    def keeping(self) -> Script:
        """The script in which nothing runs again."""
        key = True, -1
        if key not in self._scripts:
            units = len(self.boundaries) - 1
            found = Writer(self.program, self.boundaries, sweeps=True).script((Keep(0, units), Reverse(0, units)))
            found.transient = transient_bytes(found.reversal, self.program)
            self._scripts[key] = found
        return self._scripts[key]

    def peak(self, script: Script) -> int:
        """Bytes that it takes, with what it needs of the state at the beginning."""
        fixed = self.initial + self.kept if script.uses_initial or self.restored is not None else 0
        return script.top + fixed + rounded(script.transient) * bool(script.transient)

    def best(self, budget: int, *, sweeps: bool = True) -> Script | None:
        """The script that runs the fewest operations again within so many bytes; None if there is none."""
        if sweeps and self.peak(self.keeping()) <= budget:
            return self.keeping()
        if self.peak(self.script(0, sweeps=sweeps)) > budget:
            return None
        low, high = 0, max(self.most_slots - 1 if sweeps else self.most_slots, 0)
        high = min(high, budget // max(self._sizes[0], 1) + 1)
        if high <= _FEW:  # all there are
            fitting = [s for slots in range(high + 1) if self.peak(s := self.script(slots, sweeps=sweeps)) <= budget]
            return min(fitting, key=lambda s: (s.reruns, self.peak(s)))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.peak(self.script(middle, sweeps=sweeps)) <= budget else (low, middle - 1)
        return self.script(low, sweeps=sweeps)

    def least(self, *, sweeps: bool = False) -> int:
        """The smallest budget for which there is a script."""
        return min(self.peak(self.script(0, sweeps=sweeps)), self.peak(self.keeping()) + self.kept)

    def holders(self, others: int) -> str:
        """What takes the smallest budget."""
        script = min(self.script(0, sweeps=False), self.keeping(), key=self.peak)
        again = script.uses_initial
        parts = {
            "the initial state": self.initial if again or self.restored is not None else 0,
            "results of operations that may not run again": self.kept if again else 0,
            "the final state, to be put back": sum(rounded(s.region.nbytes) for s in script.finals),
            "transient memory of one operation": rounded(script.transient) * bool(script.transient),
            "arrays that operations made and their shadows": others,
        }
        rest = self.peak(script) + others - sum(parts.values())
        parts["what adjoints need of one unit" if again else "what adjoints need"] = rest
        return "made of " + ", ".join(f"{n} for {what}" for what, n in parts.items() if n)

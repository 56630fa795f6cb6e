"""Which script a byte budget leads to: the units of a recorded program, and the schedules for each number of checkpoints.

A unit is an iteration of the program's loop, if most of it is one, else an operation, or some of them in a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...budget import Chain, Keep, Move, Reverse, Weighted, moves_from, moves_of, moves_on_two_levels, rounded, shown
from .online_checkpoints import Marks
from .program_states import Program, initial_parts
from .script import Online, Script, Writer
from .transient_memory import transient_bytes

MOST_UNITS = 1024
MOST_WEIGHED = 128  # units that are told apart by what they cost
UNEQUAL = 1.25  # from this ratio of costs on
_LONGEST = 256  # operations of a period
_KEEPING = -1  # in place of a number of checkpoints: nothing runs again
_UNDOING = -2  # nor is what operations overwrite kept where they can be taken back
_FEW = 16  # schedules, of which each is looked at
_LOOKED = 1 << 13  # operations of schedules, up to which each is looked at, too


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


def units_of(program: Program, signatures: Sequence[Any], through: Collection[int] = ()) -> list[int]:
    """Where units begin, and the program's end: at each iteration of its loop, where the least is live, and as far apart before and after
    it; or at each operation. `through`: where some have to begin."""
    return sorted({*_units_of(program, signatures, min(through, default=None)), *through})


def _units_of(program: Program, signatures: Sequence[Any], at: int | None) -> list[int]:
    n = len(program)
    found = period(signatures)
    if found is None:
        step = max(-(-n // MOST_UNITS), 1)
        return [*range(0, n, step), n]
    p, begin, end = found
    sizes = program.state_bytes
    turns = min(range(begin, begin + p), key=lambda t: (sizes[t + p] if t + p <= end else sizes[t], t))
    if at is not None and begin <= at < end:
        turns = begin + (at - begin) % p
    group = max(-(-(n // p) // MOST_UNITS), 1) * p
    return [0, *(t for t in range(turns % group, n, group) if t), n]


@dataclass(frozen=True)
class Iteration:
    """The turns of a loop that is still running: their length in operations, and where one begins."""

    length: int
    begin: int

    @classmethod
    def of(cls, program: Program, signatures: Sequence[Any]) -> Iteration:
        """As far as the program has come: begun where the least is live. Each operation is one, if there is no loop."""
        found = period(signatures)
        if found is None:
            return cls(1, 0)
        p, n = found[0], len(program.reruns)
        sizes = program.state_bytes
        return cls(p, min(range(max(n - 2 * p, 0), max(n - p, 1)), key=lambda t: (sizes[t], t)))

    def begins(self, time: int) -> bool:
        """True if one begins there."""
        return (time - self.begin) % self.length == 0

    def number(self, time: int) -> int:
        """How many turns there were before."""
        return time // self.length


@dataclass(eq=False)
class Planner:
    """Scripts for a program by their number of checkpoints. `restored`: the program's own allocations, where the others are given their
    initial state back in the end. `marks`: the checkpoints with which it has been run; None if it is to be run by the script.
    `two_levels`: states between segments go to a second level that has room for all of them."""

    program: Program
    signatures: Sequence[Any]
    restored: frozenset[int] | None = None
    marks: Marks | None = None
    two_levels: bool = False
    _scripts: dict[int, Script] = field(default_factory=dict)

    def after(self, marks: Marks) -> Planner:
        """The same for the program once it has been run with such checkpoints."""
        return replace(self, marks=marks, two_levels=False, _scripts={})

    @cached_property
    def offloading(self) -> Planner:
        """The same with a second level."""
        return replace(self, two_levels=True, _scripts={})

    @cached_property
    def online(self) -> Online | None:
        """The checkpoints with which it has been run."""
        if self.marks is None:
            return None
        self.program.note(mark.time for mark in self.marks.marks)
        return Online.of(self.marks, self.program.states)

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
        return units_of(self.program, self.signatures, self.online.stored if self.online is not None else ())

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
        writer = Writer(self.program, self.boundaries, Online())
        writer.at = len(self.program)
        writer._keep(self.boundaries[begin], self.boundaries[end])
        return writer.layout.top

    @cached_property
    def _kept_units(self) -> Callable[[int], int]:
        """How many units can be kept in the memory of so many checkpoints. It does not hold the planner, whose memory is let go with it."""
        state, _, further, _ = self._sizes
        units = len(self.boundaries) - 1
        return lambda slots: 1 + slots * state // further if further else units

    @cached_property
    def equal(self) -> Chain:
        """The units, as if they cost the same."""
        return Chain(len(self.boundaries) - 1, self._kept_units, self._sizes[3])

    @cached_property
    def chain(self) -> Chain | Weighted:
        """The units with what each costs, where that differs and they are few enough for it."""
        weights = np.diff(np.asarray(self.program.costs)[self.boundaries])
        inner = weights[1:-1] if len(weights) > 4 else weights  # what comes before and after a loop is no matter
        if len(weights) > MOST_WEIGHED or inner.max() <= UNEQUAL * inner.min():
            return self.equal
        return Weighted([int(w) for w in weights], self._kept_units, self._sizes[3])

    @cached_property
    def most_slots(self) -> int:
        """From so many on all units are kept."""
        units = len(self.boundaries) - 1
        low, high = 0, max(units, 1)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.chain.kept(middle) >= units else (middle + 1, high)
        return low

    def script(self, slots: int) -> Script:
        """A sketch of the script with so many checkpoints beside the initial state: what it comes to, without its items, since many are
        made and looked at."""
        if slots not in self._scripts:
            self._scripts[slots] = replace(self._least(slots), forward={}, noted={}, reversal=[])
        return self._scripts[slots]

    def _least(self, slots: int) -> Script:
        """The script that takes fewer bytes of that which keeps what is overwritten and that which takes operations back."""
        found, moves = [], self._moves(slots)
        if slots != _UNDOING:
            found.append(self._write(moves, sketch=True))
        if slots != _KEEPING and self.undoes:
            found.append(self._write(moves, sketch=True, undoing=True))
        return min(found, key=self.peak)

    @cached_property
    def undoes(self) -> bool:
        """True if there are operations that can be taken back. Where the initial state is given back nothing is, nor after a first
        recording: what fits there would be less than what the program takes when it comes again."""
        return self.restored is None and self.marks is None and any(rerun.undo is not None for rerun in self.program.reruns)

    def whole(self, script: Script) -> Script:
        """The script of a sketch, as it is followed."""
        for planner in (self, self.offloading, self._unswept):
            for slots, known in planner._scripts.items():
                if known is script:
                    return planner._write(planner._moves(slots), undoing=bool(script.undone))
        raise AssertionError("a sketch belongs to the planner that made it")

    def _moves(self, slots: int) -> tuple[Move, ...]:
        if slots in (_KEEPING, _UNDOING):
            units = len(self.boundaries) - 1
            return Keep(0, units), Reverse(0, units)
        if self.online is None:
            return moves_on_two_levels(self.equal, slots) if self.two_levels else moves_of(self.chain, slots)
        stored = {self.boundaries.index(t): bool(self.online.freed[t]) for t in sorted(self.online.stored)}
        return moves_from(self.chain, {0: False, **stored}, slots)

    def _write(self, moves: Sequence[Move], *, sketch: bool = False, undoing: bool = False) -> Script:
        found = Writer(self.program, self.boundaries, self.online, sketch=sketch, undoing=undoing).script(moves)
        found.transient = transient_bytes(found.reversal, self.program)
        return found

    def keeping(self) -> Script:
        """The script in which nothing runs again."""
        return self.script(_KEEPING)

    def undoing(self) -> Script:
        """The script in which exactly invertible operations are taken back in place of saving what they overwrite."""
        return self.script(_UNDOING)

    def peak(self, script: Script) -> int:
        """Bytes that it takes, with what it needs of the state at the beginning."""
        fixed = self.initial + self.kept if script.has_initial or self.restored is not None else 0
        return script.top + fixed + (self.marks.nbytes if self.marks else 0) + rounded(script.transient) * bool(script.transient)

    def best_of_levels(self, budget: int) -> Script | None:
        """The script that costs the least; on two levels only where that is better."""
        near, far = self.best(budget), self.offloading.best(budget)
        if near is None or far is None:
            return near or far
        return far if far.cost < near.cost else near

    def best(self, budget: int) -> Script | None:
        """The script whose operations that run again cost the least within so many bytes; None if there is none."""
        sweeps = self.marks is None
        if sweeps and self.peak(self.keeping()) <= budget:
            return self.keeping()
        if sweeps and self.undoes and self.peak(self.undoing()) <= budget:
            return self.undoing()
        if self.peak(self.script(0)) > budget:  # to begin at the beginning again may take less than to go on where the program ends
            return self._bare if sweeps and self.peak(self._bare) <= budget else None
        low, high = 0, max(self.most_slots - 1 if sweeps else self.most_slots, 0)
        if high <= _FEW or high * len(self.program) <= _LOOKED:  # all there are: where states differ, more of them may take fewer bytes
            fitting = [s for slots in range(high + 1) if self.peak(s := self.script(slots)) <= budget]
            return min(fitting, key=lambda s: (s.cost, self.peak(s)))
        high = min(high, budget // max(self._sizes[0], 1) + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.peak(self.script(middle)) <= budget else (low, middle - 1)
        return self.script(low)

    @cached_property
    def _bare(self) -> Script:
        """The script for a program that has been run with nothing stored but the state at the beginning."""
        return self._unswept.script(0)

    @cached_property
    def _unswept(self) -> Planner:
        return self.after(Marks())

    def least(self) -> int:
        """The smallest budget for which there is a script, also while the program is not known yet."""
        return min(self.peak(self._bare), self.peak(self.keeping()) + self.kept)

    def described(self, script: Script, names: Callable[[int], str]) -> list[str]:
        """What a script stores, runs again and sends to the second level, with bytes and reasons, a line each. `names`: of allocations, by
        address."""
        undone = [f"undo       {self._undone(script)}, which is exact in bits"] if script.undone else []
        if not script.reruns:
            rest = ", but for what is taken back; the final state, which is put back, among it" if undone else ""
            return [f"store      all that adjoints need of what is overwritten{rest}: {shown(script.top)}", *undone]
        states = [self.program.states[t] for t in self.boundaries[1:-1] if t in self.program.states]
        largest = max(states, key=lambda state: sum(r.nbytes for r in state.values()), default={})
        of = ", ".join(f"`{names(where)}`" for where in largest) or "nothing"
        finals = sum(rounded(s.region.nbytes) for s in script.finals)
        found = [
            f"store      the state at the beginning, {shown(self.initial)}; at most {script.checkpoints} checkpoints of {of}, "
            f"{shown(self._sizes[0])} each: what later operations read of memory and overwrite; the final state, which is put back, "
            f"{shown(finals)}",
            f"recompute  {script.reruns} operations, from the checkpoint before them",
            *undone,
        ]
        if script.far:
            found.append(f"offload    {shown(script.far)} of states between segments, fetched ahead of the adjoints")
        for why, nbytes in self._reasons.items():
            found.append(f"keep       {shown(nbytes)} of results, which may not be computed again: {why}")
        return found

    def _undone(self, script: Script) -> str:
        """Which operations are taken back."""
        counts = Counter(self.program.operations[t].name for t in script.undone)
        return ", ".join(f"{count} of `{name}`" for name, count in sorted(counts.items()))

    @cached_property
    def _reasons(self) -> dict[str, int]:
        """Bytes of what may not be computed again, by why."""
        found: dict[str, int] = {}
        for rerun in self.program.reruns:
            parts = [(rerun.why, rerun.writes)] if rerun.keeps else []
            for why, regions in [*parts, ("code that the tape does not see has written it", rerun.arrives)]:
                nbytes = sum(rounded(r.nbytes) for r in regions.values())
                if nbytes:
                    found[why] = found.get(why, 0) + nbytes
        return found

    def holders(self, others: int) -> str:
        """What takes the smallest budget."""
        script = min(self._bare, self.keeping(), key=self.peak)
        again = script.has_initial
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

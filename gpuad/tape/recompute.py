"""What the moves of a checkpointing schedule mean for a recorded program: which bytes are stored and brought back, what runs again, and
where all of it lies.

A checkpoint before operation t is what later operations and their adjoints read of memory as it is then, as far as it is overwritten
later. The state at the beginning is stored as the program is recorded (`initial`): its bytes are copied just before they are first
overwritten. Buffers get their places while the script is written, so the bytes that a script takes are known before anything is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from .. import pipeline
from ..budget import Buffer, Chain, Drop, Keep, Layout, Load, Move, Reverse, Run, Save, moves_from, moves_of, rounded
from ..ir.dtypes import dtype_of
from .operations import Operation
from .recorded_launch import Launched
from .region import EMPTY, Region
from .rerun import Regions, Rerun, adjoint_reads, common, needs_of, united, without
from .rules import Ruled
from .version_finder import VersionFinder
from .versions import Allocation, Piece, Versions, home_of

# --- a recorded program ----------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Program:
    """A recording that is complete, as it runs again: an entry of `reruns` for each operation, `allocations` by address. `states`: the
    checkpoints before the operations that were asked for; `lives`: what is live there and not overwritten any more, so not stored."""

    operations: Sequence[Operation]
    reruns: Sequence[Rerun]
    allocations: Mapping[int, Allocation]
    states: dict[int, Regions] = field(default_factory=dict)
    lives: dict[int, Regions] = field(default_factory=dict)
    _spares: dict[tuple[int, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.operations)

    @cached_property
    def written(self) -> list[Regions]:
        """For each operation what it writes."""
        return [rerun.writes for rerun in self.reruns]

    @cached_property
    def state_bytes(self) -> list[int]:
        """For each operation the bytes of the checkpoint before it."""
        found = [0] * (len(self) + 1)
        live: Regions = {}
        later: Regions = {}
        for t in range(len(self) - 1, -1, -1):
            live, later = self._back(t, live, later)
            found[t] = sum(rounded(r.nbytes) for r in common(live, later).values())
        return found

    def _back(self, t: int, live: Regions, later: Regions) -> tuple[Regions, Regions]:
        """What is live before an operation, and what it or a later one writes."""
        rerun = self.reruns[t]
        reads = united(rerun.reads, needs_of(self.operations[t], rerun.must))
        live = without(united(without(live, rerun.must), reads), rerun.arrives)
        return live, united(later, rerun.writes)

    def note(self, boundaries: Iterable[int]) -> None:
        """Finds out about the checkpoints before these operations."""
        wanted = {t for t in boundaries if t < len(self)} - self.states.keys()
        live: Regions = {}
        later: Regions = {}
        for t in range(len(self) - 1, min(wanted, default=len(self)) - 1, -1):
            live, later = self._back(t, live, later)
            if t in wanted:
                self.states[t], self.lives[t] = common(live, later), without(live, later)

    @cached_property
    def finals(self) -> Regions:
        """What a reversal has to put back at its end: what is written more than once, or brought back from the beginning. The rest is
        written again as it was, and what a later checkpoint brings back is among these."""
        once: Regions = {}
        several: Regions = {}
        for rerun in self.reruns:
            several = united(several, common(once, rerun.writes))
            once = united(once, rerun.writes)
        self.note([0])
        return united(several, self.states.get(0, {}))

    def spared_from(self, begin: int, end: int) -> int:
        """The operation from which on those up to `end` need not run again, so that the adjoints of all from `begin` on can."""
        known = self._spares.get((begin, end))
        if known is not None:
            return known
        needed: Regions = {}
        t = end
        while t > begin:
            operation, rerun = self.operations[t - 1], self.reruns[t - 1]
            before, after = adjoint_reads(operation)
            if after or rerun.logs or rerun.arrives or common(rerun.writes, needed):
                break
            needed = united(needed, before)
            t -= 1
        self._spares[begin, end] = t
        return t


# --- scripts ---------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Stored:
    """Bytes of an allocation as they were before operation `time`, in a buffer, packed or from byte `base` on."""

    where: int
    region: Region
    buffer: Buffer
    base: int | None = None
    time: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """What is kept of operations that are about to be reversed: pieces by allocation, and what launches wrote down."""

    pieces: dict[int, list[Stored]] = field(default_factory=dict)
    logs: dict[int, list[Buffer]] = field(default_factory=dict)

    def symbolic(self) -> Versions:
        """Where versions are, for who only counts bytes."""
        found = {w: [Piece(s.time, s.region, _Sized(s.buffer.size), s.base) for s in each] for w, each in self.pieces.items()}
        return Versions(lambda a: found.get(a.address, ()))


@dataclass(frozen=True, slots=True)
class _Sized:
    size: int


@dataclass(frozen=True, eq=False, slots=True)
class Fetch:
    """Copies stored bytes to where they belong."""

    stored: tuple[Stored, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Store:
    """Copies bytes of the state."""

    stored: tuple[Stored, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Begin:
    """Brings back the state at the beginning."""


@dataclass(frozen=True, eq=False, slots=True)
class Arrive:
    """Brings what code that the tape does not see has written before an operation."""

    time: int


@dataclass(frozen=True, eq=False, slots=True)
class Again:
    """Runs an operation; `logs`: it writes down what its adjoint needs there."""

    time: int
    logs: tuple[Buffer, ...] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Adjoint:
    """Runs the adjoint of an operation."""

    time: int
    block: Block


Item: TypeAlias = "Fetch | Store | Begin | Arrive | Again | Adjoint"


@dataclass(eq=False)
class Script:
    """A program and its reversal, item by item. `forward`: what is stored before each operation of the program itself, and what it writes
    down (None: nothing); `reversal`: all that follows; `finals`: what is put back at the end. `top`: bytes of the buffers; `transient`:
    the most that one operation takes; `reruns`: operations that run again; `watched`: what the reversal reads of memory as the program
    left it."""

    forward: dict[int, tuple[Store, ...]]
    noted: dict[int, tuple[Buffer, ...]]
    reversal: list[Item]
    finals: tuple[Stored, ...]
    layout: Layout
    reruns: int
    moved: int
    watched: Regions
    checkpoints: int
    uses_initial: bool
    sweeps: bool
    transient: int = 0

    @property
    def top(self) -> int:
        """Bytes of all buffers."""
        return self.layout.top


class Writer:
    """Writes the script for moves over units that begin at `boundaries`. `sweeps`: whether the program itself is part of it, else it has
    been run; `initial`: the state at the beginning is stored by others."""

    def __init__(self, program: Program, boundaries: Sequence[int], *, sweeps: bool) -> None:
        self.program, self.boundaries, self.sweeping = program, boundaries, sweeps
        self.layout = Layout()
        self.checkpoints: dict[int, tuple[Stored, ...]] = {}
        self.forward: dict[int, list[Store]] = {}
        self.noted: dict[int, tuple[Buffer, ...]] = {}
        self.reversal: list[Item] = []
        self.block = Block()
        self.finals: tuple[Stored, ...] = ()
        self.reruns = self.moved = self.most = 0
        self.watched: Regions = {}
        self.uses_initial = False
        self.at = 0  # operations of the program itself that have been run

    def script(self, moves: Sequence[Move]) -> Script:
        """The script."""
        program = self.program
        program.note(self.boundaries)
        if any(isinstance(move, Load) for move in moves):
            self.uses_initial = True
        if not self.sweeping:
            self.at = len(program)
        for move in moves:
            self._write(move)
        if self.finals:
            self.reversal.append(Fetch(self.finals))
        forward = {t: tuple(stores) for t, stores in self.forward.items()}
        return Script(
            forward, self.noted, self.reversal, self.finals, self.layout, self.reruns, self.moved, self.watched, self.most,
            self.uses_initial, self.sweeping,
        )  # fmt: skip

    def _write(self, move: Move) -> None:
        match move:
            case Save(at):
                self._save(self.boundaries[at])
            case Load(at, last):
                self._load(self.boundaries[at], last)
            case Run(begin, end):
                self._run(self.boundaries[begin], self.boundaries[end])
            case Keep(begin, end):
                self._keep(self.boundaries[begin], self.boundaries[end])
            case Reverse(begin, end):
                self._reverse(self.boundaries[begin], self.boundaries[end])
            case Drop(at):
                self.layout.drop(s.buffer for s in self.checkpoints.pop(self.boundaries[at]))

    @property
    def in_program(self) -> bool:
        """Whether what comes next belongs to the program itself."""
        return self.at < len(self.program)

    def _save(self, t: int) -> None:
        if self.in_program or not self.sweeping:
            self.watched = united(self.watched, self.program.lives.get(t, {}))
        if t == 0:
            return
        state = self.program.states[t]
        found = tuple(Stored(w, region, self.layout.take(region.nbytes)) for w, region in state.items())
        self.checkpoints[t] = found
        self.most = max(self.most, len(self.checkpoints))
        self._store(t, found)

    def _store(self, t: int, stored: tuple[Stored, ...]) -> None:
        self.moved += sum(s.region.nbytes for s in stored)
        if self.in_program:
            self.forward.setdefault(t, []).append(Store(stored))
        else:
            self.reversal.append(Store(stored))

    def _load(self, t: int, last: bool) -> None:
        if not self.finals:
            self.finals = tuple(Stored(w, r, self.layout.take(r.nbytes)) for w, r in self.program.finals.items())
            self._store(t, self.finals)
        if t == 0:
            self.moved += sum(r.nbytes for r in self.program.states[0].values())
            self.reversal.append(Begin())
            return
        stored = self.checkpoints[t]
        self.moved += sum(s.region.nbytes for s in stored)
        self.reversal.append(Fetch(stored))
        if last:
            self.layout.drop(s.buffer for s in self.checkpoints.pop(t))

    def _run(self, begin: int, end: int) -> None:
        if self.in_program:
            self.at = end
            return
        self.reruns += end - begin
        for t in range(begin, end):
            self._arrive(t)
            self.reversal.append(Again(t))

    def _arrive(self, t: int) -> None:
        if self.program.reruns[t].arrives:
            self.reversal.append(Arrive(t))

    def _keep(self, begin: int, end: int) -> None:
        block, program = Block(), self.program
        pending: Regions = {}
        self.block, inside = block, self.in_program
        stop = end if inside else program.spared_from(begin, end)
        for t in range(begin, end):
            operation, rerun = program.operations[t], program.reruns[t]
            before, after = adjoint_reads(operation)
            pending = united(pending, before)
            if t < stop:
                if not inside:
                    self._arrive(t)
                pending = self._overwritten(t, operation, pending, block)
                self._again(t, rerun, block, inside)
            pending = united(pending, after)
        if inside:
            self.watched = united(self.watched, pending)
            self.at = end
        else:
            self.reruns += stop - begin

    def _overwritten(self, t: int, operation: Operation, pending: Regions, block: Block) -> Regions:
        """Keeps what is about to be overwritten, and needed; gives what is still needed where it is."""
        found = []
        for use in operation.effects.writes:
            where = use.allocation.address
            region = pending.get(where, EMPTY) & use.region
            if not region:
                continue
            base, nbytes = home_of(region, pending[where], use.allocation.root)
            stored = Stored(where, region, self.layout.take(nbytes), base, t)
            block.pieces.setdefault(where, []).append(stored)
            found.append(stored)
            pending = without(pending, {where: region})
        if found:
            self._store(t, tuple(found))
        return pending

    def _again(self, t: int, rerun: Rerun, block: Block, inside: bool) -> None:
        logs = tuple(self.layout.take(size) for size in rerun.logs) if rerun.logs else None
        if logs is not None:
            block.logs[t] = list(logs)
            if inside:
                self.noted[t] = logs
        if not inside:
            self.reversal.append(Again(t, logs))

    def _reverse(self, begin: int, end: int) -> None:
        block = self.block
        self.reversal += [Adjoint(t, block) for t in range(end - 1, begin - 1, -1)]
        self.layout.drop(s.buffer for each in block.pieces.values() for s in each)
        self.layout.drop(buffer for logs in block.logs.values() for buffer in logs)


def transient_bytes(script_items: Iterable[Item], program: Program) -> int:
    """The most transient memory that an operation or an adjoint of the items takes, as far as that is known before it runs."""
    most = max((rerun.room for rerun in program.reruns), default=0)
    finder: VersionFinder | None = None
    block: Block | None = None
    for item in script_items:
        if isinstance(item, Adjoint):
            if finder is None or item.block is not block:
                block = item.block
                finder = VersionFinder(None, block.symbolic())  # type: ignore[arg-type]
            finder.reach(program.operations[item.time], item.time)
            most = max(most, adjoint_bytes(program.operations[item.time], finder) + program.reruns[item.time].scratch)
    return most


def adjoint_bytes(operation: Operation, finder: VersionFinder) -> int:
    """What the adjoint takes of transient memory."""
    if isinstance(operation, Ruled):
        return _of_rule(operation, finder)
    if not isinstance(operation, Launched) or operation.adjoint is None:
        return 0
    call = operation.call
    arguments = call.bound.arguments
    total = 0
    for _ in range(call.bound.width):
        for (role, position), use in operation.uses.items():
            memory = arguments[position].memory
            if memory is not None:
                total += _aligned(finder.assembles(use, memory.itemsize, own=role == "working"))
    stages = pipeline.stages(operation.adjoint, call)
    partials = {array for stage in stages for array in stage.partials}
    total += sum(_aligned(call.threads * np.dtype(dtype_of(array.element)).itemsize) for array in partials)
    fixed = [(stage.fixed, stage.parameters) for stage in stages if stage.fixed is not None]
    return total + sum(_aligned(n) for f, parameters in fixed for n in pipeline.fixed_sizes(f, parameters, call, 0))


def _of_rule(operation: Ruled, finder: VersionFinder) -> int:
    total = 0
    for name, use in operation.needs.items():
        total += _aligned(finder.assembles(use, int(operation.operands[name].memory.itemsize), own=False))
    for name in operation.effect.overwrites:
        operand = operation.operands.get(name)
        if operand is not None and operand.shadow is not None:
            total += _aligned(int(operand.shadow.nbytes))
    if "room" in operation.rule.wanted:
        total += sum(_aligned(n) for n in operation.rule.rooms(operation))
    return total


def _aligned(nbytes: int) -> int:
    return rounded(nbytes) if nbytes else 0


def initial_copies(program: Program, restored: frozenset[int] | None) -> Iterable[int]:
    """The sizes of the copies that make up the state at the beginning, as they are made: before an operation overwrites what was read."""
    done: Regions = {}
    pending: Regions = {}
    for operation, rerun in zip(program.operations, program.reruns, strict=True):
        reads = without(united(rerun.reads, needs_of(operation, rerun.must)), rerun.arrives)
        fresh = without(united(pending, reads), done)
        wanted = common(fresh, rerun.writes)
        if restored is not None:
            wanted = united(wanted, without({w: r for w, r in rerun.writes.items() if w not in restored}, done))
        yield from (home_of(r, r, program.allocations[w].root)[1] for w, r in wanted.items())
        done, pending = united(done, rerun.writes), without(fresh, rerun.writes)


# --- units -----------------------------------------------------------------------------------------------------------------------------

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
        return sum(rounded(nbytes) for nbytes in initial_copies(self.program, self.restored))

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


__all__ = [
    "Adjoint", "Again", "Begin", "Block", "Fetch", "Item", "Planner", "Program", "Script", "Store", "Stored", "Writer", "period",
    "transient_bytes", "units_of",
]  # fmt: skip

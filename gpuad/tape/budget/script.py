"""What the moves of a checkpointing schedule mean for a recorded program: which bytes are stored and brought back, what runs again, and
where all of it lies.

The state at the beginning is stored as the program is recorded (`initial`): its bytes are copied just before they are first overwritten.
Buffers get their places while the script is written, so the bytes that a script takes are known before anything is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...budget import Buffer, Drop, Keep, Layout, Load, Move, Reverse, Run, Save, rounded
from ...program.ir.region import EMPTY, Region
from ...program.ir.regions import Regions, common, united, without
from ..memory.lossy import Lossy
from ..memory.versions import Piece, Versions, home_of
from ..record.operations import Operation
from .online_checkpoints import Copied, Marks
from .program_states import Program
from .rerun import Rerun, adjoint_reads


@dataclass(frozen=True, eq=False, slots=True)
class Stored:
    """Bytes of an allocation as they were before operation `time`, in a buffer, packed or from byte `base` on."""

    where: int
    region: Region
    buffer: Buffer
    base: int | None = None
    time: int = 0
    part: Region | None = None  # what counts of them, if it is not all
    lossy: Lossy | None = None  # by which they are stored less exactly

    @property
    def wanted(self) -> Region:
        """The bytes that count."""
        return self.region if self.part is None else self.part


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """What is kept of operations that are about to be reversed: pieces by allocation, what launches wrote down, and which operations are
    taken back, so that nothing is kept of what they overwrite."""

    pieces: dict[int, list[Stored]] = field(default_factory=dict)
    logs: dict[int, list[Buffer]] = field(default_factory=dict)
    undone: set[int] = field(default_factory=set)

    def symbolic(self) -> Versions:
        """Where versions are, for who only counts bytes."""
        found = {w: [Piece(s.time, s.region, _Sized(s.buffer.size), s.base) for s in each] for w, each in self.pieces.items()}
        return Versions(lambda a: found.get(a.address, ()))


@dataclass(frozen=True, slots=True)
class _Sized:
    size: int


@dataclass(frozen=True, eq=False, slots=True)
class Fetch:
    """Copies stored bytes to where they belong; `far`: after they have been brought back from the second level."""

    stored: tuple[Stored, ...]
    far: Far | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Store:
    """Copies bytes of the state; `far`: and these go to the second level then."""

    stored: tuple[Stored, ...]
    far: Far | None = None


@dataclass(frozen=True, slots=True)
class Far:
    """A place of the second level, and the buffers' bytes that go there, or come back."""

    at: int
    begin: int
    nbytes: int


@dataclass(frozen=True, eq=False, slots=True)
class Ahead:
    """Begins to bring bytes back from the second level."""

    far: Far


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
class Undo:
    """Takes back what an operation wrote, from the version that it left."""

    time: int
    block: Block


@dataclass(frozen=True, eq=False, slots=True)
class Adjoint:
    """Runs the adjoint of an operation."""

    time: int
    block: Block


Item: TypeAlias = "Fetch | Store | Ahead | Begin | Arrive | Again | Undo | Adjoint"


@dataclass(frozen=True, eq=False)
class Online:
    """Checkpoints that were stored as the program was recorded, by the operation that follows: where their bytes are, of which each
    checkpoint wants some, and which memory is free once it has been brought back for the last time. `arrays`: the memory, by its place."""

    layout: Layout = field(default_factory=Layout)
    stored: dict[int, tuple[Stored, ...]] = field(default_factory=dict)
    freed: dict[int, tuple[Buffer, ...]] = field(default_factory=dict)
    arrays: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, marks: Marks, states: dict[int, Regions]) -> Online:
        """Those of a recording. `states`: what each has to bring back."""
        found, own = cls(), {id(c) for c in marks.own()}
        buffers: dict[int, Buffer] = {}
        first: dict[int, int] = {}  # the checkpoint that needs a copy last
        for time, copies in marks.states(states):
            for copied, _ in copies:
                if id(copied) not in buffers:
                    (buffers[id(copied)],) = found.layout.islands([int(copied.piece.data.size)])
                    found.arrays[buffers[id(copied)].begin] = copied.piece.data if copied.room is None else copied.room
                first[id(copied)] = time
            found.stored[time] = tuple(_stored(copied, part, buffers[id(copied)]) for copied, parts in copies for part in parts.values())
        for time in found.stored:
            found.freed[time] = tuple(buffers[c] for c, t in first.items() if t == time and c in own)
        return found


def _stored(copied: Copied, part: Region, buffer: Buffer) -> Stored:
    piece = copied.piece
    return Stored(copied.allocation.address, piece.region, buffer, piece.base, piece.time, part)


@dataclass(eq=False)
class Script:
    """A program and its reversal, item by item. `forward`: what is stored before each operation of the program itself, and what it writes
    down (None: nothing); `reversal`: all that follows; `finals`: what is put back at the end. `top`: bytes of the buffers; `transient`:
    the most that one operation takes; `arrays`: memory that the recording had made, which buffers lie in; `reruns`: operations that run
    again, `cost`: the bytes that these read and write; `watched`: what the reversal reads of memory as the program left it."""

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
    arrays: dict[int, Any]
    far: int  # bytes of the second level
    cost: int
    undone: frozenset[int]  # operations that are taken back
    transient: int = 0

    @property
    def has_initial(self) -> bool:
        """True if the state at the beginning is stored: where launches are taken back too, so that a program that turns out to be another
        one can start again."""
        return self.uses_initial or bool(self.undone)

    @property
    def top(self) -> int:
        """Bytes of all buffers."""
        return self.layout.top


class Writer:
    """Writes the script for moves over units that begin at `boundaries`. `online`: the checkpoints of the program, which has been run; None
    where it is part of the script itself. The state at the beginning is stored by others. `sketch`: launches of which nothing is kept are
    counted, and not written down: they are many, and take no memory. `undoing`: what operations overwrite is not kept where they can be
    taken back; what they left is put back at the end."""

    def __init__(
        self, program: Program, boundaries: Sequence[int], online: Online | None, *, sketch: bool = False, undoing: bool = False
    ) -> None:
        self.sketch, self.undoing = sketch, undoing
        self.undone: set[int] = set()
        self.program, self.boundaries, self.sweeping = program, boundaries, online is None
        self.online = Online() if online is None else online
        self.layout = deepcopy(self.online.layout)
        self.far = Layout()
        self.places: dict[int, Far] = {}
        self.staging: Buffer | None = None
        self.checkpoints: dict[int, tuple[Stored, ...]] = {}
        self.forward: dict[int, list[Store]] = {}
        self.noted: dict[int, tuple[Buffer, ...]] = {}
        self.reversal: list[Item] = []
        self.block = Block()
        self.finals: tuple[Stored, ...] = ()
        self.reruns = self.cost = self.moved = self.most = 0
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
        self._stage(moves)
        for move in moves:
            self._write(move)
        if self.finals:
            self.reversal.append(Fetch(self.finals))
        self._fetch_ahead()
        forward = {t: tuple(stores) for t, stores in self.forward.items()}
        return Script(
            forward, self.noted, self.reversal, self.finals, self.layout, self.reruns, self.moved, self.watched, self.most,
            self.uses_initial, self.sweeping, self.online.arrays,
            self.far.top, self.cost, frozenset(self.undone),
        )  # fmt: skip

    def _write(self, move: Move) -> None:
        match move:
            case Save(at, far):
                self._save(self.boundaries[at], far)
            case Load(at, last):
                self._load(self.boundaries[at], last)
            case Run(begin, end):
                self._run(self.boundaries[begin], self.boundaries[end])
            case Keep(begin, end):
                self._keep(self.boundaries[begin], self.boundaries[end])
            case Reverse(begin, end):
                self._reverse(self.boundaries[begin], self.boundaries[end])
            case Drop(at):
                self._let_go(self.boundaries[at])

    @property
    def in_program(self) -> bool:
        """True if what comes next belongs to the program itself."""
        return self.at < len(self.program)

    def _save(self, t: int, far: bool) -> None:
        if self.in_program or not self.sweeping:
            self.watched = united(self.watched, self.program.lives.get(t, {}))
        if t == 0:
            return
        if t in self.online.stored and not self.reversal:
            self.checkpoints[t] = self.online.stored[t]
            self.most = max(self.most, len(self.checkpoints))
            return
        state = self.program.states[t]
        if far:
            self._store_far(t, state)
            return
        found = tuple(Stored(w, region, self.layout.take(region.nbytes)) for w, region in state.items())
        self.checkpoints[t] = found
        self.most = max(self.most, len(self.checkpoints))
        self._store(t, found)

    def _store(self, t: int, stored: tuple[Stored, ...], far: Far | None = None) -> None:
        self.moved += sum(s.region.nbytes for s in stored)
        if self.in_program:
            self.forward.setdefault(t, []).append(Store(stored, far))
        else:
            self.reversal.append(Store(stored, far))

    def _store_far(self, t: int, state: Regions) -> None:
        """Stores a state on the second level, through the one room that all of these share."""
        assert self.staging is not None
        found, at = [], self.staging.begin
        for where, region in state.items():
            found.append(Stored(where, region, Buffer(region.nbytes, at)))
            at += rounded(region.nbytes)
        nbytes = at - self.staging.begin
        self.places[t] = Far(self.far.take(nbytes).begin, self.staging.begin, nbytes)
        self.checkpoints[t] = tuple(found)
        self._store(t, self.checkpoints[t], self.places[t])

    def _stage(self, moves: Sequence[Move]) -> None:
        """Takes the room through which states go to the second level, and come back."""
        states = [self.program.states[self.boundaries[m.at]] for m in moves if isinstance(m, Save) and m.far]
        if states:
            self.staging = self.layout.take(max(sum(rounded(r.nbytes) for r in state.values()) for state in states) or 1)

    def _fetch_ahead(self) -> None:
        """Each state is brought back from the second level as soon as the room is free: while adjoints run."""
        found: list[Item] = []
        held = list(self.places.values())[-1:]  # what the room has, and from where on that is not needed
        free = 0
        for item in self.reversal:
            if isinstance(item, Fetch) and item.far is not None and [item.far] != held:
                found.insert(free, Ahead(item.far))
            found.append(item)
            if isinstance(item, Fetch) and item.far is not None:
                held, free = [item.far], len(found)
        self.reversal = found

    def _load(self, t: int, last: bool) -> None:
        self._store_finals(t)
        if t == 0:
            self.moved += sum(r.nbytes for r in self.program.states[0].values())
            self.reversal.append(Begin())
            return
        stored = self.checkpoints[t]
        self.moved += sum(s.wanted.nbytes for s in stored)
        self.reversal.append(Fetch(stored, self.places.get(t)))
        if last:
            self._let_go(t)

    def _store_finals(self, t: int) -> None:
        """Stores what is put back at the end, before memory is changed for the first time."""
        if self.finals:
            return
        regions = self.program.finals if self.uses_initial else {}
        if self.undoing:
            for rerun in self.program.reruns:
                regions = united(regions, rerun.writes) if rerun.undo is not None else regions
        self.finals = tuple(Stored(w, r, self.layout.take(r.nbytes)) for w, r in regions.items())
        self._store(t, self.finals)

    def _let_go(self, t: int) -> None:
        """A checkpoint is not needed any longer."""
        stored = self.checkpoints.pop(t)
        if t in self.places:
            return
        self.layout.drop(self.online.freed[t] if stored is self.online.stored.get(t) else [s.buffer for s in stored])

    def _run(self, begin: int, end: int) -> None:
        if self.in_program:
            self.at = end
            return
        self._count(begin, end)
        for t in range(begin, end) if not self.sketch else ():
            self._arrive(t)
            self.reversal.append(Again(t))

    def _count(self, begin: int, end: int) -> None:
        self.reruns += end - begin
        self.cost += self.program.costs[end] - self.program.costs[begin]

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
                if self.undoing and rerun.undo is not None and common(pending, rerun.writes):
                    block.undone.add(t)
                    pending = united(pending, rerun.writes)  # from what it left, what was there before is had
                else:
                    pending = self._overwritten(t, operation, pending, block)
                self._again(t, rerun, block, inside)
            pending = united(pending, after)
        if inside:
            self.watched = united(self.watched, pending)
            self.at = end
        else:
            self._count(begin, stop)

    def _overwritten(self, t: int, operation: Operation, pending: Regions, block: Block) -> Regions:
        """Keeps what is about to be overwritten, and needed; gives what is still needed where it is."""
        found = []
        for use in operation.effects.writes:
            where = use.allocation.address
            region = pending.get(where, EMPTY) & use.region
            if not region:
                continue
            for part, lossy in use.allocation.parts(region):
                base, nbytes = home_of(part, pending[where], use.allocation.root, lossy)
                stored = Stored(where, part, self.layout.take(nbytes), base, t, lossy=lossy)
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
        if block.undone:
            self._store_finals(end)
        self.undone |= block.undone
        for t in range(end - 1, begin - 1, -1):
            if t in block.undone:
                self.reversal.append(Undo(t, block))
            self.reversal.append(Adjoint(t, block))
        self.layout.drop(s.buffer for each in block.pieces.values() for s in each)
        self.layout.drop(buffer for logs in block.logs.values() for buffer in logs)

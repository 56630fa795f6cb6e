"""The script by which a tape reverses the program that it has recorded, as data (`gpuad.program.ir.script`), with and without a budget.

In: a tape that is recorded to its end, and its program as data. Out: what is stored as the program runs, and each step of its reversal with
the slots that it reads. Nothing runs, and nothing is changed. What a reversal does with seeds, and which adjoints it leaves out since
shadows are zero, is decided when it is planned (`reverse.reversal_plan`); it is not part of the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..program.ir import script as ir
from ..program.ir.program import Allocate
from ..runtime.base import Memory, Prepared
from .budget import script as budget
from .budget.online_checkpoints import Copied
from .budget.script_actions import Kept, Scripted
from .memory.versions import Piece, Versions
from .read_program import RecordedProgram
from .record.operations import Foreign, Operation
from .record.recorded_launch import Launched
from .replay.trace_replay import Repeating

_SAVE = "tape/record/saver.py:save_overwritten"
_CHOOSE = "tape/record/checkpoints.py:choose"
_CHEAPER = "tape/record/checkpoints.py:keep_cheaper_values"
_EARLY = "tape/record/checkpoint_extraction.py:write_early"
_LOG = "ad/recording.py:record"
_REVERSE = "tape/reverse/reversal_plan.py:moments"
_RESTORED = "tape/reverse/reversal_plan.py:restored"
_UNDO = "tape/reverse/reversal_plan.py:taken_back"
_CLEAR = "tape/reverse/reversal_plan.py:steps"
_INITIAL = "tape/budget/first_recording.py:before"
_ARRIVED = "tape/budget/first_recording.py:_arrive"
_RESULT = "tape/budget/first_recording.py:after"
_MARK = "tape/budget/first_recording.py:_copy_for_marks"
_CHECKPOINT = "tape/budget/script.py:_save"
_OVERWRITTEN = "tape/budget/script.py:_overwritten"
_FINALS = "tape/budget/script.py:_store_finals"
_LOAD = "tape/budget/script.py:_load"
_AHEAD = "tape/budget/script.py:_fetch_ahead"
_AGAIN = "tape/budget/script.py:_run"
_BLOCK = "tape/budget/script.py:_keep"
_BLOCK_REVERSE = "tape/budget/script.py:_reverse"

_STATE = "a checkpoint"
_START = "the state at the beginning"
_LAST = "put back at the end"


def script_of(tape: Repeating, recorded: RecordedProgram) -> ir.Script | None:
    """The script that the tape's next reversal follows, or that its last one followed; None where operations will run again, and which is
    decided when the reversal is planned."""
    scripted = tape.within.script
    if scripted is not None:
        return _Scheduled(tape, recorded, scripted).script()
    return _KeepAll(tape, recorded).script() if tape.within.stores else None


class _Reader:
    """What both readers share: numbers for slots, and the memory that each stands for, kept so that its id is its own."""

    def __init__(self, tape: Repeating, recorded: RecordedProgram) -> None:
        self.tape, self.recorded = tape, recorded
        self.operations: Sequence[Operation] = tape.operations
        self._slots: dict[int, tuple[Any, ir.Slot]] = {}
        self.before: dict[int, list[ir.Item]] = {}  # what comes before each operation as the program runs

    def slot(self, memory: Any, nbytes: int, far: bool = False) -> ir.Slot:
        """The slot that stands for a piece, a log or a buffer of a script."""
        known = self._slots.get(id(memory))
        if known is None:
            known = self._slots[id(memory)] = memory, ir.Slot(len(self._slots), nbytes, far)
        return known[1]

    def number(self, time: int) -> int:
        """The number in the program of an operation of the tape."""
        return self.recorded.numbers[time]

    def forward(self, runs: dict[int, ir.Run]) -> tuple[ir.Item, ...]:
        """The program's own operations, with what comes before each."""
        times = {number: time for time, number in enumerate(self.recorded.numbers)}
        found: list[ir.Item] = []
        for number, op in enumerate(self.recorded.program.ops):
            time = times.get(number, -1)
            found += self.before.get(time, ())
            if not isinstance(op, Allocate):
                found.append(runs.get(time) or ir.Run(number=number, by=op.place))
        return (*found, *self.before.get(len(self.operations), ()))

    def store_copies(self, kept: Kept, initial: bool) -> None:
        """What is stored for operations that run again: the state at the beginning, if that is wanted, and what may not run again."""
        for copied in kept.initial if initial else ():
            self._copy(copied, copied.piece.time, _START, _INITIAL)
        for time, copies in kept.results.items():
            for copied in copies:
                self._copy(copied, time + 1, "may not run again", _RESULT)
        for time, copies in kept.arrivals.items():
            for copied in copies:
                self._copy(copied, time, "written by code that the tape does not see", _ARRIVED)

    def _copy(self, copied: Copied, time: int, why: str, by: str) -> None:
        access = self.recorded.access(copied.allocation.address, copied.piece.region)
        slot = self.slot(copied, int(copied.piece.data.size))
        self.before.setdefault(time, []).append(ir.Store(slot=slot, access=access, why=why, by=by))

    def adjoint(self, time: int, versions: Versions, slots: dict[int, ir.Slot], values: tuple[ir.Slot, ...], by: str) -> list[ir.Item]:
        """The item that reverses an operation, if it has something to do; the versions go back to before it."""
        operation, number = self.operations[time], self.number(time)
        effects = operation.effects
        after = [source for use in effects.after for source in self._sources(versions, use, slots)]
        for use in (*effects.writes, *effects.before):
            versions.back_to(use.allocation, time)
        reads = tuple(dict.fromkeys([*(s for use in effects.before for s in self._sources(versions, use, slots)), *after]))
        if isinstance(operation, Foreign):
            return [ir.Clear(number=number, by=_CLEAR)] if operation.cleared else []
        has_one = self.recorded.program.ops[number].adjoint
        return [ir.Adjoint(number=number, reads=reads, values=values, by=by)] if has_one else []

    def _sources(self, versions: Versions, use: Any, slots: dict[int, ir.Slot]) -> Iterable[ir.Read]:
        for part, piece in versions.sources(use.allocation, use.region) if use.region else ():
            yield ir.Read(self.recorded.access(use.allocation.address, part), slots[id(piece)] if piece is not None else None)


class _KeepAll(_Reader):
    """The script of a recording that keeps what its adjoints need."""

    def script(self) -> ir.Script:
        slots: dict[int, ir.Slot] = {}
        self.store_copies(self.tape.within.kept, initial=True)
        pieces = [(piece, where) for where, a in self.tape.allocations.items() for piece in a.pieces]
        for saved, where in sorted(pieces, key=lambda entry: entry[0].time):
            slots[id(saved)] = slot = self.slot(saved, saved.nbytes)
            why = "fewer bits (store=)" if saved.lossy is not None else ""
            access = self.recorded.access(where, saved.region)
            self.before.setdefault(saved.time, []).append(ir.Store(slot=slot, access=access, why=why, by=_SAVE))
        values = {t: self._logs(op) for t, op in enumerate(self.operations) if isinstance(op, Launched) and op.logs}
        runs: dict[int, ir.Run] = {}
        for time, own in values.items():
            self._values(time, own, runs)
        versions = Versions()
        reversal: list[ir.Item] = []
        for time in range(len(self.operations) - 1, -1, -1):
            reversal += self.adjoint(time, versions, slots, values.get(time, ()), _REVERSE)
        if self.tape.restore:
            for a in self.tape.allocations.values():
                versions.back_to(a, 0)
                for part, piece in versions.sources(a, a.initial):
                    if piece is not None:
                        reversal.append(ir.Fetch(slot=slots[id(piece)], access=self.recorded.access(a.address, part), by=_RESTORED))
        return ir.Script(self.recorded.program, self.forward(runs), tuple(reversal))

    def _logs(self, operation: Launched) -> tuple[ir.Slot, ...]:
        return tuple(self.slot(log, int(log.root.nbytes)) for log in operation.logs)

    def _values(self, time: int, own: tuple[ir.Slot, ...], runs: dict[int, ir.Run]) -> None:
        """Who writes the values that the adjoint of an operation reads: its own launch, or one that comes before they would be lost."""
        operation = self.operations[time]
        assert isinstance(operation, Launched)
        kept, number = operation.kept, self.number(time)
        if kept is None:
            runs[time] = ir.Run(number=number, values=own, by=_LOG)
        elif kept.overwriter is None:
            runs[time] = ir.Run(number=number, values=own, by=_CHEAPER)
        elif self._written_by_launch(time, operation):
            runs[time] = ir.Run(number=number, values=own, by=_EARLY)
        else:
            self.before.setdefault(kept.overwriter, []).append(ir.Extract(number=number, values=own, by=_CHOOSE))

    def _written_by_launch(self, time: int, operation: Launched) -> bool:
        """True if an operation's launch itself writes its values."""
        actions = self.tape.trace.at(time).actions
        given = {id(x) for a in actions if isinstance(a, Prepared) for x in a.arguments if isinstance(x, Memory)}
        return any(id(log) in given for log in operation.logs)


@dataclass(frozen=True)
class _Size:
    size: int


class _Scheduled(_Reader):
    """A script within a budget."""

    def __init__(self, tape: Repeating, recorded: RecordedProgram, scripted: Scripted) -> None:
        super().__init__(tape, recorded)
        self.scripted, self.source = scripted, scripted.script
        blocks = [item.block for item in self.source.reversal if isinstance(item, budget.Adjoint | budget.Undo)]
        self.in_blocks = {id(s) for block in blocks for each in block.pieces.values() for s in each}
        self.done: set[int] = set()  # what a store has an item for
        self.pieces: dict[int, tuple[budget.Block, Versions, dict[int, ir.Slot]]] = {}  # by block

    def script(self) -> ir.Script:
        source = self.source
        self.store_copies(self.scripted.kept, initial=source.has_initial or self.tape.restore)
        for time, stores in source.forward.items():
            for store in stores:
                self.before.setdefault(time, []).extend(self._store(store))
        runs = {t: ir.Run(number=self.number(t), values=tuple(map(self._buffer, logs)), by=_BLOCK) for t, logs in source.noted.items()}
        reversal = [made for item in source.reversal for made in self._item(item)]
        reversal += self._back(self.scripted.kept.initial, _RESTORED) if self.tape.restore else []
        return ir.Script(self.recorded.program, self.forward(runs), tuple(reversal))

    def _item(self, item: budget.Item) -> list[ir.Item]:
        match item:
            case budget.Store():
                return self._store(item)
            case budget.Fetch(stored, far):
                by = _FINALS if stored is self.source.finals else _LOAD
                return [ir.Fetch(slot=self._stored(s, far is not None), access=self._access(s), by=by) for s in stored]
            case budget.Ahead(far):
                return [ir.Prefetch(nbytes=far.nbytes, by=_AHEAD)]
            case budget.Begin():
                return self._back(self.scripted.kept.initial, _LOAD)
            case budget.Arrive(time):
                return self._back(self.scripted.kept.arrivals.get(time, ()), _AGAIN)
            case budget.Again(time, logs):
                return self._again(time, logs)
            case budget.Undo(time, block):
                return self._undo(time, block)
            case budget.Adjoint(time, block):
                versions, slots = self._versions(block)
                return self.adjoint(time, versions, slots, tuple(map(self._buffer, block.logs.get(time, ()))), _BLOCK_REVERSE)

    def _again(self, time: int, logs: Sequence[Any] | None) -> list[ir.Item]:
        results = self._back(self.scripted.kept.results.get(time, ()), _AGAIN) if self.scripted.program.reruns[time].keeps else []
        if results and logs is None:
            return results
        by = _AGAIN if logs is None else _BLOCK
        return [*results, ir.Run(number=self.number(time), values=tuple(map(self._buffer, logs or ())), by=by)]

    def _undo(self, time: int, block: budget.Block) -> list[ir.Item]:
        """What takes an operation back: what it wrote is brought to where it left it first."""
        versions, slots = self._versions(block)
        found: list[ir.Item] = []
        rerun, operation = self.scripted.program.reruns[time], self.operations[time]
        for a in {use.allocation.address: use.allocation for use in operation.effects.writes}.values():
            versions.back_to(a, time + 1)
            for part, piece in versions.sources(a, rerun.writes[a.address]):
                if piece is not None:
                    found.append(ir.Fetch(slot=slots[id(piece)], access=self.recorded.access(a.address, part), by=_UNDO))
            versions.brought_back(a, rerun.writes[a.address])
        return [*found, ir.Undo(number=self.number(time), by=_BLOCK)]

    def _versions(self, block: budget.Block) -> tuple[Versions, dict[int, ir.Slot]]:
        known = self.pieces.get(id(block))
        if known is None:
            slots: dict[int, ir.Slot] = {}
            pieces: dict[int, list[Piece]] = {}
            for where, each in block.pieces.items():
                for stored in each:
                    piece = Piece(stored.time, stored.region, _Size(stored.buffer.size), stored.base)
                    slots[id(piece)] = self._stored(stored)
                    pieces.setdefault(where, []).append(piece)
            known = self.pieces[id(block)] = block, Versions(lambda a: pieces.get(a.address, ())), slots
        return known[1], known[2]

    def _buffer(self, buffer: Any) -> ir.Slot:
        return self.slot(buffer, buffer.size)

    def _access(self, stored: budget.Stored) -> Any:
        return self.recorded.access(stored.where, stored.wanted)

    def _store(self, store: budget.Store) -> list[ir.Item]:
        finals = store.stored is self.source.finals
        found: list[ir.Item] = []
        for stored in store.stored:
            self.done.add(id(stored))
            why, by = (_LAST, _FINALS) if finals else ("", _OVERWRITTEN) if id(stored) in self.in_blocks else (_STATE, _CHECKPOINT)
            slot, access = self.slot(stored, stored.buffer.size, store.far is not None), self.recorded.access(stored.where, stored.region)
            found.append(ir.Store(slot=slot, access=access, why=why, by=by))
        return found

    def _stored(self, stored: budget.Stored, far: bool = False) -> ir.Slot:
        """The slot of stored bytes; where no item stores them, the first recording did, before the operation that overwrote them."""
        slot = self.slot(stored, stored.buffer.size, far)
        if id(stored) not in self.done:
            self.done.add(id(stored))
            access = self.recorded.access(stored.where, stored.region)
            self.before.setdefault(stored.time, []).append(ir.Store(slot=slot, access=access, why=_STATE, by=_MARK))
        return slot

    def _back(self, copies: Iterable[Copied], by: str) -> list[ir.Item]:
        return [
            ir.Fetch(slot=self.slot(c, int(c.piece.data.size)), access=self.recorded.access(c.allocation.address, c.piece.region), by=by)
            for c in copies
        ]


__all__ = ["script_of"]

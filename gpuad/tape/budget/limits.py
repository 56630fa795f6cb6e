"""What a tape may add to what its caller has: without a limit here, within one in `budgeted`.

A recording says what it is about to do (`rerunning`, `before`, `after`, `make_room`), a reversal asks what it follows (`scripted`). Without
a limit all that adjoints need is stored, nothing runs again, and there is nothing to be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol

from ...pipeline import executor_of
from ..memory.arena import Arena
from ..memory.made_arrays import MadeArrays
from ..memory.versions import Allocation
from ..record.operations import Operation
from ..record.recorded_launch import Launched
from ..record.trace import Op, Trace
from .op_reruns import Rerunning, rerun_of
from .outlook import Prospects
from .planner import Planner
from .program_states import Program
from .script_actions import Kept, Scripted


class Recorded(Rerunning, Protocol):
    """What is asked of a recording."""

    trace: Trace
    made: MadeArrays
    restore: bool

    @property
    def allocations(self) -> dict[int, Allocation]:
        """The memory that operations have met, by address."""


class Limits:
    """No limit. `saved`, `transient`: the tape's memory for what adjoints need, and for one operation at a time. `given`: the budget as the
    user wrote it; `stores`: whether what adjoints need is kept; `kept`: what operations run again from; `most`: the most bytes that a
    budget ever added."""

    is_limited = False
    stores = True
    given: object = None

    def __init__(self, recording: Recorded, saved: Arena, transient: Arena) -> None:
        self.recording, self.saved, self.transient = recording, saved, transient
        self.kept, self.most = Kept(), 0
        self._prospects: tuple[list[Operation], Prospects] | None = None

    @property
    def script(self) -> Scripted | None:
        """The script that is followed now, with its memory."""
        return None

    def forget(self) -> None:
        """Begins anew."""
        self._prospects = None

    def added(self) -> int:
        """Bytes that the tape has now, of all kinds."""
        return self.saved.nbytes + self.transient.nbytes + self.recording.made.nbytes

    def make_room(self, nbytes: int) -> None:
        """An operation of a recording is about to make an array: what has to go goes before. BudgetError where that is too little."""

    def admits_buffer(self, size: int) -> bool:
        """True if so many bytes are left; they are taken then."""
        return True

    def measure_room(self, check: Callable[[], None]) -> None:
        """Makes a check of the launch that is recorded next."""
        check()

    def rerunning(self, op: Op) -> Op:
        """The op that is recorded next, with how it runs again if that may be."""
        return op

    def before(self, operation: Operation, time: int) -> None:
        """Copies what the operation that is recorded is about to overwrite, beside what adjoints need."""

    def after(self, time: int) -> None:
        """An operation has been recorded."""

    def conclude(self) -> None:
        """The program has ended. BudgetError where it cannot be reversed."""

    def expects(self) -> bool:
        """The program is expected to come again: whether it is to be repeated, rather than recorded once more."""
        return True

    def note_spare(self) -> None:
        """Notes what is left beside the program that was recorded, for buffers of one that is recorded in its place."""

    def resuming(self) -> AbstractContextManager[None]:
        """Around what takes over a part of a program that has run."""
        return nullcontext()

    def scripted(self) -> Scripted | None:
        """The schedule that a reversal follows; None where all that adjoints need was kept."""
        return None

    def check_planned(self) -> None:
        """A plan has been made. BudgetError if that takes too much."""

    def failed(self) -> None:
        """A reversal has failed: arrays hold what the program left in them again."""

    def refuse_scripted(self, what: str) -> None:
        """TapeError where operations would have to run again."""

    def watched(self) -> Mapping[int, Allocation]:
        """The allocations by address, with what a reversal reads of them as it is."""
        return self.recording.allocations

    @property
    def prospects(self) -> Prospects:
        """What the program comes to within budgets."""
        operations = self.recording.trace.operations
        if self._prospects is None or self._prospects[0] is not operations:
            self._prospects = operations, _hypothetical(self.recording)
        return self._prospects[1]

    def described(self, seconds: float, names: Callable[[int], str]) -> str:
        """The plan for people: what it comes to, and what it is made of."""
        return ""


def _hypothetical(recording: Recorded) -> Prospects:
    """What a recording would come to within budgets. Its operations are taken as a budget would have recorded them, without values that are
    kept in place of memory; nothing runs."""
    ops = [replace(op, operation=op.came) if _keeps_values(op) else op for op in recording.trace.operating()]
    operations = [op.operation for op in ops if op.operation is not None]
    allocations = {a.address: a for a in recording.allocations.values()}
    program = Program(operations, [rerun_of(op, recording) for op in ops], allocations)
    planner = Planner(program, [op.key.signature for op in ops], frozenset(recording.made.arrays) if recording.restore else None)
    free = executor_of(recording.library_name).free
    return Prospects(planner, recording.made.nbytes, free, free)


def _keeps_values(op: Op) -> bool:
    return isinstance(op.operation, Launched) and op.operation.kept is not None


__all__ = ["Limits", "Recorded"]

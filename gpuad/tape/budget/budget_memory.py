"""The bytes that a budget allows, those that are there, and what a first recording lets go of where more are wanted.

While a program is recorded for the first time its length is not known. So two things are kept: what adjoints need (`stores`), as
without a budget, and what the program needs to run once more from its beginning (`restarts`: its initial state, as far as it is
overwritten, and the results of what may not run again). When both do not fit, the first is let go, and checkpoints are stored from there on
(`marks`), and thinned as the program goes on; when the second could not fit whatever comes, that is.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast

from ...budget import bytes_of, expendable, rounded, shown
from ...errors import BudgetError
from ...pipeline import executor_of
from ...program.ir.regions import Regions, joined, united
from ..memory.arena import Exact, Full, Separate
from ..memory.memory_log import Kind
from ..record.recorded_launch import Launched
from ..record.saver import Saver
from ..record.trace import Op
from ..status import State
from .limits import Limits, Recorded
from .offload import Level
from .online_checkpoints import Copied, Marks
from .planner import Iteration
from .program_states import Program
from .script_actions import Kept, Scripted


class Budgeted(Recorded, Protocol):
    """What a budget knows of its tape."""

    state: State
    saver: Saver

    def drop_plans(self) -> None:
        """Reversals that were planned have a script whose memory is let go."""

    def unknown(self) -> None:
        """The program is not known any more."""


class BudgetMemory(Limits, ABC):
    """The bytes that a tape may add, and what it keeps within them. `given`: as the user wrote it; `new`: makes memory of the tape,
    `work`: called before transient memory is used anew; `offload`: where checkpoints may go besides. `saved`, `transient`: the tape's
    memory for what adjoints need, and for one operation at a time; `most`: the most bytes that it ever had."""

    is_limited = True
    saved: Separate
    transient: Exact

    def __init__(self, tape: Budgeted, given: object, new: Callable[..., Any], work: Callable[[], None], offload: Any = None) -> None:
        bytes_of(given, lambda: 0)  # what cannot be read is refused now
        self.tape, self.given, self.new = tape, given, new
        self.shrunk = False  # whether there was less memory than the budget allows
        saved, transient = Separate(self._new_saved, self.admit), Exact(partial(new, kind=Kind.scratch), work, self.admit_transient)
        super().__init__(tape, saved, transient)
        self.offload, self.level = offload, cast("Level | None", None)
        self.limit: int | None = None
        self._scripted: Scripted | None = None
        self._old: list[Copied] = []  # copies of a part that is recorded anew
        self._resuming: tuple[bool, bool] | None = None
        self._fits_stored = False  # whether a program that comes again is known to need no second run
        self._ahead = False  # whether transient memory is asked for by an operation that has not begun
        self.spare = 0
        self.stages = True  # whether there may be buffers in place of arrays that are others in each round

    def forget(self) -> None:
        """Begins anew."""
        if self.shrunk:
            self.limit, self.shrunk = None, False  # others may have let go
        scripted, restarts = self._resuming or (False, True)
        self._prefers_stores, self._fits_stored = self._fits_stored, False
        self._laid_out = self._resuming is not None or self._prefers_stores  # for a program before, of which this may be a longer one
        self.stores, self.restarts = not scripted, restarts
        self.kept = Kept()
        self._several: Regions = {}  # written more than once
        self._scripted = None
        self.marks, self._slots, self._iteration = Marks(), 0, Iteration(1, 0)

    def limited(self) -> int:
        """The budget in bytes."""
        if self.limit is None:
            executor = executor_of(self.tape.library_name)
            self.limit = bytes_of(self.given, executor.free)
        return self.limit

    @property
    def all_there_is(self) -> str:
        """Where there was less memory than the budget allows, that the budget now is what there is."""
        return ", which is all the memory there is" if self.shrunk else ""

    def added(self) -> int:
        """Bytes that the tape has now, of all kinds."""
        script = self._scripted.nbytes if self._scripted is not None else 0
        return self.saved.nbytes + self.kept.nbytes + self.marks.nbytes + script + self.transient.nbytes + self.tape.made.nbytes

    def _note_added(self) -> None:
        self.most = max(self.most, self.added())

    def _fits(self, more: int = 0, use: str = "") -> bool:
        """True if so many bytes more are within the budget, after what has to go for that is gone. `use`: what they are for: "stores",
        which may be what goes, "restarts", or an operation that goes on ("amid"), so that one of both has to stay."""
        least = more if use == "restarts" else 0
        if self.added() + more > self.limited():
            self.tape.made.homes.drop_unused()  # of another program
        while self.added() + more > self.limited():
            if self.marks:
                self._thin()
                continue
            if not (self.stores or self.restarts) or (use == "amid" and not (self.stores and self.restarts)):
                return False
            if self.restarts and (not self.stores or self._prefers_stores or self._least_restart() + least > self.limited()):
                if self.stores or self._resuming is not None:
                    self._drop_restarts()
                else:
                    self._convert()
                if use == "restarts":
                    return False
            else:
                self._leave_stores()
                if use == "stores":
                    return False
        return True

    def _least_restart(self) -> int:
        """What a reversal that starts from the beginning takes at least, as far as the program has come."""
        again = united(self._several, joined((c.allocation.address, c.piece.region) for c in self.kept.initial))
        return self.kept.nbytes + sum(rounded(r.nbytes) for r in again.values()) + self.transient.nbytes + self.tape.made.nbytes

    def _drop_stores(self) -> None:
        self.stores = False
        for a in self.tape.allocations.values():
            a.pieces = []
        self.tape.trace.change_all(_without_memory)
        self.tape.saver.log.taken()
        self.saved.drop()

    def _drop_restarts(self) -> None:
        self._copy_no_more()
        self.restarts, self.kept = False, Kept()
        self.marks.clear()

    def _copy_no_more(self) -> None:
        """Steps do not copy any longer what restarts need."""
        gone = {id(action) for actions in self.kept.saving.values() for action in actions}
        log = self.tape.saver.log
        log.actions = [a for a in log.actions if id(a) not in gone]

        def rest(op: Op) -> Op:
            kept = tuple(a for a in op.actions if id(a) not in gone)
            return op if len(kept) == len(op.actions) else replace(op, actions=kept)

        self.tape.trace.change_all(rest)

    def admit(self, size: int) -> bool:
        """True if memory for what adjoints need may grow by so much."""
        fits = self._fits(size, "stores") and self.stores
        if fits:
            self.most = max(self.most, self.added() + size)
        return fits

    def _made(self, nbytes: int, kind: Kind = Kind.checkpoint, rest: int = 0) -> Any:
        """Memory of the tape. Full where the allocator has none, for the first time: then the budget is what the tape has, and `rest`, from
        here on, and who asks plans anew."""
        try:
            return self.new(nbytes, kind=kind)
        except MemoryError:
            if self.shrunk:
                raise
            allowed, self.shrunk = self.limited(), True
            self.limit = self.added() + rest
            warnings.warn(
                f"gpuad: there is no memory for {shown(nbytes)} more, which the budget of {shown(allowed)} allows: others have it. The "
                f"tape plans anew, within {shown(self.limit)}.",
                RuntimeWarning,
                stacklevel=2,
            )
            raise Full from None

    def _new_saved(self, nbytes: int) -> Any:
        """Memory for what adjoints need."""
        try:
            return self._made(nbytes, Kind.saved)
        except Full:
            if self._fits(rounded(nbytes), "stores") and self.stores:
                return self.new(nbytes, kind=Kind.saved)
            raise

    def _new_copy(self, nbytes: int) -> Any | None:
        """Memory for a copy that restarts need, if there is room."""
        for _ in range(2):
            if not self._fits(rounded(nbytes), "restarts") or not self.restarts:
                return None
            with suppress(Full):
                return self._made(nbytes)
        return None

    def make_room(self, nbytes: int) -> None:
        """An operation of a recording is about to make an array: what has to go goes before. BudgetError where arrays that are held already
        leave too little; a budget of 0 asks what the whole program takes."""
        held = self.tape.made.nbytes
        use = "amid" if self.tape.trace.coming is not None else ""
        if not self._fits(rounded(nbytes), use) and 0 < self.limited() < held + rounded(nbytes):
            raise BudgetError(
                f"arrays that operations made and their shadows take {shown(held)}, and {shown(rounded(nbytes))} more are asked for here, "
                f"beyond the budget of {shown(self.limited())}{self.all_there_is}. Those that the program still holds are not used again: "
                "let go of what is not needed (`del t`), or give more. Arrays are as the operations before left them, and the tape can be "
                "entered again."
            )

    def measured(self, action: Callable[[], None]) -> int:
        """Does something for an operation that has not begun, so that for it may go what may go between operations; gives the bytes of
        transient memory that it took."""
        self._ahead, self.transient.most = True, 0
        try:
            action()
        finally:
            self._ahead = False
        return self.transient.most

    def admit_transient(self, size: int) -> None:
        """Transient memory is about to grow. BudgetError where a reversal must not."""
        if self.tape.state.is_recording:
            self._fits(size, "" if self._ahead else "amid")  # what does not fit is refused when the program has ended
        elif self.added() + size > self.limited():
            raise BudgetError(
                f"an adjoint asks for {shown(size)} while it runs, beyond the budget of {shown(self.limited())}: at least "
                f"{shown(self.added() + size)} would do. Arrays are as the program left them."
            )
        self.most = max(self.most, self.added() + size)

    def _thin(self) -> None:
        """Lets go of the mark that costs the least."""
        self._slots = max(self._slots, len(self.marks))  # with the state at the beginning, and without the one that goes
        numbers = [0, *(self._iteration.number(mark.time) for mark in self.marks.marks)]
        self.marks.drop(expendable(numbers, self._iteration.number(len(self.tape.trace.operations)), self._slots) - 1)

    @abstractmethod
    def _convert(self) -> None:
        """Runs what has been recorded once more and keeps what adjoints need, in place of what restarts do."""

    @abstractmethod
    def _leave_stores(self) -> None:
        """Lets go of what adjoints need; of what operations run again from there may be some among it."""

    def _program(self) -> Program:
        trace = self.tape.trace
        return Program(trace.operations, trace.reruns, {a.address: a for a in self.tape.allocations.values()})


def _without_memory(op: Op) -> Op:
    """An op that saves nothing: a schedule says what it does when the program comes again."""
    operation = op.operation
    if isinstance(operation, Launched) and operation.logs:
        operation = replace(operation, logs=[])
    return replace(op, actions=(), operation=operation)

"""A byte budget that a tape keeps within.

While a program is recorded for the first time its length is not known. So two things are kept: what adjoints need (`stores`), as
without a budget, and what the program needs to run once more from its beginning (`restarts`: its initial state, as far as it is
overwritten, and the results of what may not run again). When both do not fit, the first is let go, and checkpoints are stored from there on
(`marks`), and thinned as the program goes on; when the second could not fit whatever comes, that is. A program of which neither fits is
recorded to its end, since only then it is known how many bytes it takes, and refused there with that number.

When the program comes again its schedule is known (`budget.schedule`): each of its steps stores what the script says. A reversal runs the
script's actions: states are brought back, operations run again, adjoints run, and at the end arrays hold what the program left in them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Protocol, cast

from .. import pipeline
from ..budget import bytes_of, expendable, rounded, shown, stride
from ..errors import BudgetError, TapeError
from ..pipeline import executor_of
from ..runtime.actions import Action, Doing, clearing, perform
from .arena import Exact, Full, Pooled, Separate
from .marks import Copied, Marks
from .memory_log import Kind
from .offload import Level, level_of
from .operations import Foreign, Operation, Renewed
from .outlook import Prospects
from .planner import Planner, Turn
from .program import Program
from .recorded_launch import Launched
from .region import EMPTY, Region
from .rerun import Regions, Rerun, allocation_of, common, joined, needs_of, united, without
from .script import Script
from .scripted import Kept, Scripted
from .trace_steps import Step
from .versions import Allocation, home_of, piece_of

NONE = Rerun({}, {}, {}, None, None)
_REFUSED = "refused: its reverse does not fit into the budget"


class Recorded(Protocol):
    """What a budget knows of its tape."""

    operations: list[Operation]
    allocations: dict[int, Allocation]
    own: Any
    restore: bool
    state: str
    doing: Doing
    steps: list[Step] | None

    @property
    def library_name(self) -> str | None:
        """Whose arrays the program works on."""

    def other_bytes(self) -> int:
        """Bytes of shadows of temporaries, with their copies, and of arrays that operations made."""

    def claim(self, operation: Operation, time: int) -> None:
        """Notes what the operation's adjoint needs of memory as it is."""

    def save_overwritten(self, operation: Operation, time: int) -> None:
        """Saves what operation number `time` is about to overwrite, as far as it is needed."""

    def drop_plans(self) -> None:
        """Reversals that were planned have a script whose memory is let go."""

    def unknown(self) -> None:
        """The program is not known any more."""


class Budget:
    """The bytes that a tape may add, and what it keeps within them. `given`: as the user wrote it; `new`: makes memory of the tape,
    `work`: called before transient memory is used anew; `offload`: where checkpoints may go besides. `saved`, `transient`: the tape's
    memory for what adjoints need, and for one operation at a time; `most`: the most bytes that it ever had."""

    def __init__(self, tape: Recorded, given: object, new: Callable[..., Any], work: Callable[[], None], offload: Any = None) -> None:
        bytes_of(given, lambda: 0)  # what cannot be read is refused now
        self.tape, self.given, self.new = tape, given, new
        self.saved = Separate(self._new_saved, self.admit)
        self.shrunk = False  # whether there was less memory than the budget allows
        self.transient = Exact(partial(new, kind=Kind.scratch), work, self.admit_transient)
        self.offload, self.level = offload, cast("Level | None", None)
        self.limit: int | None = None
        self._scripted: Scripted | None = None
        self._old: list[Copied] = []
        self._resuming: tuple[bool, bool] | None = None
        self._fits_stored = False  # whether a program that comes again is known to need no second run
        self.most = 0

    def forget(self) -> None:
        """Begins anew."""
        if self.shrunk:
            self.limit, self.shrunk = None, False  # others may have let go
        scripted, restarts = self._resuming or (False, True)
        self._prefers_stores, self._fits_stored = self._fits_stored, False
        self.stores, self.restarts = not scripted, restarts
        self.reruns: list[Rerun] = []
        self.again: dict[Any, Rerun] = {}  # of a recipe, which turns of a loop share
        self.kept = Kept()
        self._done: Regions = {}
        self._pending: Regions = {}
        self._several: Regions = {}
        self._open: list[Regions] = []
        self._coming: Rerun = NONE
        self._copies = 0
        self._planner: Planner | None = None
        self.__dict__.pop("_after", None)
        self._refusal: BudgetError | None = None
        self._scripted = None
        self._signatures: list[Any] = []
        self.marks, self._slots, self._turn = Marks(), 0, Turn(1, 0)

    # --- the account -------------------------------------------------------------------------------------------------------------------

    def limited(self) -> int:
        """The budget in bytes."""
        if self.limit is None:
            executor = executor_of(self.tape.library_name)
            self.limit = bytes_of(self.given, executor.free)
        return self.limit

    def added(self) -> int:
        """Bytes that the tape has now, of all kinds."""
        script = self._scripted.nbytes if self._scripted is not None else 0
        return self.saved.nbytes + self.kept.nbytes + self.marks.nbytes + script + self.transient.nbytes + self.tape.other_bytes()

    def _note_added(self) -> None:
        self.most = max(self.most, self.added())

    def _fits(self, more: int = 0, use: str = "") -> bool:
        """Whether so many bytes more are within the budget, after what has to go for that is gone. `use`: what they are for: "stores",
        which may be what goes, "restarts", or an operation that goes on ("amid"), so that one of both has to stay."""
        least = more if use == "restarts" else 0
        while self.added() + more > self.limited():
            if self.marks:
                self._thin()
                continue
            if not (self.stores or self.restarts) or (use == "amid" and not (self.stores and self.restarts)):
                return False
            if self.restarts and (not self.stores or self._prefers_stores or self._least_restart() + least > self.limited()):
                if self.stores or self.tape.doing.dry:
                    self._drop_restarts()
                else:
                    self._convert()
                if use == "restarts":
                    return False
            else:
                self._drop_stores()
                if use == "stores":
                    return False
        return True

    def _least_restart(self) -> int:
        """What a reversal that starts from the beginning takes at least, as far as the program has come."""
        again = united(self._several, joined((c.allocation.address, c.piece.region) for c in self.kept.initial))
        return self.kept.nbytes + sum(rounded(r.nbytes) for r in again.values()) + self.transient.nbytes + self.tape.other_bytes()

    def _drop_stores(self) -> None:
        self.stores = False
        for a in self.tape.allocations.values():
            a.pieces = []
        for step in self.tape.steps or ():  # their actions hold the memory; a schedule says what each does when the program comes again
            step.actions, step.calls = (), None
        self.tape.doing.taken()
        self.tape.operations[:] = [replace(op, logs=[]) if isinstance(op, Launched) and op.logs else op for op in self.tape.operations]
        self.saved.drop()

    def _drop_restarts(self) -> None:
        self._copy_no_more()
        self.restarts, self.kept = False, Kept()
        self.marks.clear()

    def _copy_no_more(self) -> None:
        """Steps do not copy any longer what restarts need."""
        gone = {id(action) for actions in self.kept.saving.values() for action in actions}
        doing = self.tape.doing
        doing.actions = [a for a in doing.actions if id(a) not in gone]
        for step in self.tape.steps or ():
            if any(id(a) in gone for a in step.actions):
                step.actions, step.calls = tuple(a for a in step.actions if id(a) not in gone), None

    def admit(self, size: int) -> bool:
        """Whether memory for what adjoints need may grow by so much."""
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
        """An operation of a recording is about to make an array: what has to go goes before."""
        self._fits(rounded(nbytes))

    def admit_transient(self, size: int) -> None:
        """Transient memory is about to grow. BudgetError where a reversal must not."""
        if self.tape.state == "recording":
            self._fits(size, "amid")  # what does not fit is refused when the program has ended
        elif self.added() + size > self.limited():
            raise BudgetError(
                f"an adjoint asks for {shown(size)} while it runs, beyond the budget of {shown(self.limited())}: at least "
                f"{shown(self.added() + size)} would do. Arrays are as the program left them."
            )
        self.most = max(self.most, self.added() + size)

    # --- a first recording -------------------------------------------------------------------------------------------------------------

    def stacks(self, operation: Launched) -> int:
        """Bytes that the stacks of a launch's reverse will take, which is about to be made."""
        adjoint, call = operation.adjoint, operation.call
        if adjoint is None or not adjoint.layout.scratch:
            return 0
        self.transient.reset()
        self.transient.most = 0
        pipeline.take_scratch(adjoint, replace(call, pool=Pooled(call.executor, self.transient)))
        return self.transient.most

    def coming(self, rerun: Rerun, what: Any) -> None:
        """The operation that is recorded next, as it runs again, and what tells it from others."""
        self._coming = rerun
        self._signatures.append(what)

    def before(self, operation: Operation, time: int) -> None:
        """Copies what an operation is about to overwrite of the state at the beginning, if the program reads that."""
        if self.offload is not None and self.level is None:
            self.level = level_of(self.offload, self.tape.library_name)
        rerun = self._coming
        self._arrive(operation, rerun, time)
        reads = united(rerun.reads, needs_of(operation, rerun.must))
        fresh = without(united(self._pending, reads), self._done)
        wanted = common(fresh, rerun.writes)
        if self.tape.restore:
            users = {w: r for w, r in rerun.writes.items() if w not in self.tape.own}
            wanted = united(wanted, without(users, self._done))
        if self.restarts and not self.stores and not self.tape.doing.dry:
            self._mark(time)
        allocations = {**self.tape.allocations, **allocation_of(operation)}
        for where, region in wanted.items():
            if self._copy(lambda: self.kept.initial, allocations[where], region, time, time):
                self.marks.add(self.kept.initial[-1], lent=True)
        self._copy_for_marks(without(reads, rerun.arrives), rerun.writes, wanted, allocations, time)
        self.marks.wrote(rerun.writes)
        self._several = united(self._several, common(self._done, rerun.writes))
        self._done = united(self._done, rerun.writes)
        self._pending = without(fresh, rerun.writes)

    def _arrive(self, operation: Operation, rerun: Rerun, time: int) -> None:
        """Copies what code that the tape does not see has written before an operation that works on it."""
        if isinstance(operation, Foreign):  # which nothing has worked on
            self._open = [rest for written in self._open if (rest := without(written, rerun.writes))]
            return
        met = united(united(rerun.reads, rerun.writes), needs_of(operation, {}))
        for written in self._open:
            part = common(written, met)
            rerun.arrives = united(rerun.arrives, part)
            for where, region in part.items():
                self._copy(lambda: self.kept.arrivals.setdefault(time, []), self.tape.allocations[where], region, time, time)
                written[where] = written[where] - region

    def _mark(self, time: int) -> None:
        """Sets a mark before an operation, if it is the time for one."""
        if self._slots == 0 and not self.marks:
            self._turn = Turn.of(self._program(), self._signatures)
        steps = self._turn.number(time) - self._turn.number(self.marks.marks[-1].time if self.marks else 0)
        apart = stride(self._turn.number(time), self._slots) if self._slots else 1
        if time and steps >= apart and self._turn.begins(time):
            self.marks.set(time)

    def _thin(self) -> None:
        """Lets go of the mark that costs the least."""
        self._slots = max(self._slots, len(self.marks))  # with the state at the beginning, and without the one that goes
        numbers = [0, *(self._turn.number(mark.time) for mark in self.marks.marks)]
        self.marks.drop(expendable(numbers, self._turn.number(len(self.reruns)), self._slots) - 1)

    def _copy_for_marks(self, reads: Regions, writes: Regions, copied: Regions, allocations: Mapping[int, Allocation], time: int) -> None:
        """Copies what an operation is about to overwrite of the states at marks, beside what was copied for that at the beginning; marks
        that there is no room for are let go."""
        while self.marks:
            wanted = without(self.marks.meets(reads, writes), copied)
            homes = {w: home_of(r, r, allocations[w].root) for w, r in wanted.items()}
            more = sum(rounded(nbytes) for _, nbytes in homes.values())
            if self._least_restart() + self.marks.nbytes + more <= self.limited():
                break
            self._thin()
        else:
            return
        for where, region in wanted.items():
            base, nbytes = homes[where]
            try:
                room = self._made(rounded(nbytes))  # to the last byte that others may have of it
            except Full:
                self._thin()
                self._copy_for_marks(reads, writes, copied, allocations, time)
                return
            piece = piece_of(allocations[where].root, region, time, room[:nbytes], base)
            perform(piece.saving)
            self.marks.add(Copied(allocations[where], piece, 0, room), lent=False)
            self._note_added()

    def _copy(self, found: Callable[[], list[Copied]], allocation: Allocation, region: Region, time: int, owner: int) -> bool:
        """Copies bytes for restarts, if there is room; whether there was. `found`: where they are noted then; those before may have to
        go to make room."""
        if not self.restarts:
            return False
        base, nbytes = home_of(region, region, allocation.root)
        old = self._old.pop(0) if self._old else None
        if old is not None and (old.piece.time, old.piece.region, old.allocation.address) == (time, region, allocation.address):
            data = old.piece.data
        else:
            data, self._old = self._new_copy(nbytes), []
        if data is None:
            return False
        piece = piece_of(allocation.root, region, time, data, base)
        for action in piece.saving:
            self.tape.doing.do(action)
        self.kept.saving.setdefault(owner, []).extend(piece.saving)
        self._copies += 1
        found().append(Copied(allocation, piece, self._copies))
        self._note_added()
        return True

    def _copied(self, allocation: Allocation, region: Region, time: int) -> Copied:
        """Bytes of an allocation as they are now."""
        base, nbytes = home_of(region, region, allocation.root)
        piece = piece_of(allocation.root, region, time, self.new(nbytes), base)
        perform(piece.saving)
        return Copied(allocation, piece, 0)

    def after(self, operation: Operation, time: int) -> None:
        """The operation has been recorded."""
        rerun = self._coming
        self.reruns.append(rerun)
        self._coming = NONE
        if rerun.keeps:
            allocations = allocation_of(operation)
            for where, region in rerun.writes.items():
                self._copy(lambda: self.kept.results.setdefault(time, []), allocations[where], region, time, -1 - time)
        if isinstance(operation, Foreign) and not isinstance(operation, Renewed):
            self._open.append(dict(rerun.writes))
        self._fits()
        self._note_added()

    # --- the end of a first recording --------------------------------------------------------------------------------------------------

    def conclude(self) -> None:
        """The program has ended. BudgetError where it cannot be reversed within the budget."""
        planner, free = self.planner, self.limited() - self.tape.other_bytes()
        if self.stores and self.saved.nbytes + rounded_up(planner.keeping().transient) <= free:
            self._store_only()
        elif self.restarts and planner.peak(planner.after(Marks()).script(0)) <= free:
            if self.stores:
                self._drop_stores()
            while self.marks and self._after.peak(self._after.script(0)) > free:
                self._thin()
                del self._after
        elif self.restarts and planner.peak(planner.keeping()) <= free:
            self._convert()
            if not self.stores:
                self._refuse()
        else:
            self._refuse()

    @property
    def planner(self) -> Planner:
        """What schedules there are when the program is run by them."""
        if self._planner is None:
            self._planner = Planner(self._program(), self._signatures, frozenset(self.tape.own) if self.tape.restore else None)
        return self._planner

    @cached_property
    def _after(self) -> Planner:
        """And what there are now that it has been run."""
        return self.planner.after(self.marks)

    def _program(self) -> Program:
        return Program(self.tape.operations, self.reruns, {a.address: a for a in self.tape.allocations.values()})

    def _refuse(self) -> None:
        """Says that the program does not fit, and lets go what it has kept."""
        planner, others = self.planner, self.tape.other_bytes()
        least = planner.least() + others
        if least <= self.limited():  # what was let go on the way was the wrong thing
            self.tape.unknown()
            self.tape.state = "interrupted: it is longer than the program before, for which its budget was laid out"
            raise TapeError("the program is longer than the one before, for which the tape's budget was laid out: record it again")
        if self.stores:
            self._drop_stores()
        self._drop_restarts()
        there = ", which is all the memory there is" if self.shrunk else ""
        if self.shrunk:
            self.tape.unknown()  # the next time there may be more
        self._refusal = BudgetError(
            f"the program cannot be reversed within {shown(self.limited())}{there}: the smallest budget that would do is {least} bytes, "
            f"{planner.holders(others)}. Arrays are as the program left them.",
            least,
        )
        self.tape.state = _REFUSED
        raise self._refusal

    def _store_only(self) -> None:
        """The state at the beginning is not needed, also when the program comes again. Where there is room it is stored all the same, for
        a program that turns out to be longer."""
        if self.restarts and self.added() + rounded_up(self.planner.keeping().transient) <= self.limited():
            return
        self._drop_restarts()

    def _convert(self) -> None:
        """Runs what has been recorded once more from its beginning and keeps what adjoints need, as if that had been kept all along: where
        it takes less than to start again in a reversal, but did not fit beside what that takes."""
        if self.stores:
            self._drop_stores()
        self._copy_no_more()
        initial, doing = self.kept.initial, self.tape.doing
        self.kept = Kept(results=self.kept.results, arrivals=self.kept.arrivals)
        self.restarts, self.stores = False, True
        self.marks.clear()
        for a in self.tape.allocations.values():
            a.pending, a.initial = EMPTY, EMPTY
        open_ = [self._copied(self.tape.allocations[w], region, len(self.reruns)) for each in self._open for w, region in each.items()]
        _put_back(initial)
        initial = []
        steps = [step for step in self.tape.steps or () if step.operates]
        for time, (operation, rerun) in enumerate(zip(list(self.tape.operations), self.reruns, strict=True)):
            self.tape.doing = Doing()
            _put_back(self.kept.arrivals.get(time, ()))
            self.tape.claim(operation, time)
            self.tape.save_overwritten(operation, time)
            launch = self._once_more(operation, rerun, time)
            for use in operation.effects.after:
                use.allocation.pending = use.allocation.pending | use.region
            if time < len(steps):
                steps[time].actions, steps[time].calls = (*self.tape.doing.taken(), *launch), None
                steps[time].room = self.saved.here()
        room = (0, 0)
        for step in self.tape.steps or ():
            step.room = room = step.room if step.operates else room  # what makes an array saves nothing
        self.tape.doing = doing
        _put_back([*self.kept.arrivals.get(len(self.reruns), ()), *open_])  # what others have written since the last operation
        self.kept = Kept()
        self._planner = None

    def _once_more(self, operation: Operation, rerun: Rerun, time: int) -> tuple[Action, ...]:
        """Runs an operation again, to write down what its adjoint needs if it is to; gives what does so when the program comes again."""
        if rerun.keeps:
            _put_back(self.kept.results.get(time, ()))
        elif rerun.again is not None and not (rerun.logs and self.stores):
            perform((rerun.again,))
        if rerun.logs and self.stores and rerun.noting is not None and isinstance(operation, Launched):
            try:
                memories, launch = rerun.noting([self.saved.take(size) for size in rerun.logs])
            except Full:
                perform((rerun.again,) if rerun.again is not None else ())
                return ()
            self.tape.operations[time] = replace(operation, logs=list(memories))
            actions: tuple[Action, ...] = (*(clearing(m.root) for m in memories), launch)
            perform(actions)
            return actions
        return (rerun.first,) if rerun.first is not None else ()

    # --- scripts -----------------------------------------------------------------------------------------------------------------------

    def _take_best(self, best: Callable[[int], Script | None], whole: Callable[[Script], Script], done: str) -> Scripted:
        """Memory for the best script that there is memory for. BudgetError if there is less than was thought, and none would do."""
        with suppress(Full):
            return self._take(whole(self._checked(best, done)))
        return self._take(whole(self._checked(best, done)))

    def _checked(self, best: Callable[[int], Script | None], done: str) -> Script:
        script = best(self.limited() - self.tape.other_bytes())
        if script is None:
            assert self.shrunk, "the recording would have been refused"
            least = self.planner.least() + self.tape.other_bytes()
            self.tape.unknown()
            raise BudgetError(
                f"there is memory for {shown(self.limited())} only: the smallest budget that would do is {least} bytes. {done}", least
            )
        return script

    def _take(self, script: Script) -> Scripted:
        """Memory for a script, in place of that for the one before."""
        self.tape.drop_plans()
        self._scripted = None
        self.transient.size(0)
        self.transient.size(script.transient)
        room = self._made(script.top, rest=script.top // 2) if script.top else None
        if script.far:
            assert self.level is not None
            self.level.settle()
            self.level.reserve(script.far)
        self._scripted = Scripted(script, self.planner.program, room, self.kept, self.level)
        self._note_added()
        return self._scripted

    def scripted(self) -> Scripted | None:
        """What a reversal follows; None where all that adjoints need was kept, as without a budget."""
        if self._scripted is None and not self.stores:
            self._take_best(self._after.best, self._after.whole, "Arrays are as the program left them.")
        if self._scripted is None and not self.transient.pinned:
            self.transient.size(self.planner.keeping().transient)
        return self._scripted

    def expects(self) -> bool:
        """The program is expected to come again: whether it is to be repeated, rather than recorded once more."""
        if self.stores or self._sweeps or self._refusal:
            return True
        self._let_marks_go()
        if self.planner.peak(self.planner.keeping()) <= self.limited() - self.tape.other_bytes():
            self._fits_stored = True  # it is recorded once more, and nothing is kept but what adjoints need
            return False
        self._schedule()
        return True

    def _let_marks_go(self) -> None:
        """From here on a schedule says what is stored."""
        if self._scripted is not None:
            self.tape.drop_plans()
            self._scripted = None
        self.__dict__.pop("_after", None)  # which has their memory
        self.marks.clear()

    @property
    def script(self) -> Scripted | None:
        """The script that is followed now, with its memory."""
        return self._scripted

    @property
    def _sweeps(self) -> bool:
        """Whether the program stores what its script says."""
        return self._scripted is not None and self._scripted.script.sweeps

    def _schedule(self) -> None:
        """The program comes again: from here on its steps store what the script says."""
        best = self.planner.best if self.level is None else self.planner.best_of_levels
        scripted = self._take_best(best, self.planner.whole, "Nothing was launched.")
        time = 0
        for step in self.tape.steps or ():
            if not step.operates:
                continue
            step.actions, step.calls = scripted.forward(time), None
            time += 1

    @property
    def refused(self) -> bool:
        """Whether the program is one that was refused: nothing of it is known but that."""
        return self._refusal is not None

    def refuse_again(self) -> None:
        """BudgetError where the program that comes again was refused before."""
        if self._refusal is not None:
            self.tape.state = _REFUSED
            raise BudgetError(
                str(self._refusal).replace("Arrays are as the program left them.", "Nothing was launched."), self._refusal.smallest
            )

    @contextmanager
    def resuming(self) -> Iterator[None]:
        """Around what records anew a part of a program that has run: its copies lie where they were made."""
        self._old = self.kept.copies if self.restarts else []
        self._resuming = self._scripted is not None, self.restarts
        try:
            yield
        finally:
            self._old, self._resuming = [], None

    def check_planned(self) -> None:
        """A plan has been made: shadows of temporaries may have got copies. BudgetError if that is too much."""
        if self.added() > self.limited():
            least = self.planner.least() + self.tape.other_bytes()
            raise BudgetError(
                f"the reverse takes {shown(self.added())} with its copies of temporaries' shadows, beyond the budget of "
                f"{shown(self.limited())}: the smallest budget that would do is {least} bytes. No shadow was touched.",
                least,
            )
        self._note_added()

    # --- what it comes to --------------------------------------------------------------------------------------------------------------

    @property
    def prospects(self) -> Prospects:
        """What the program comes to within this budget and within others."""
        free = executor_of(self.tape.library_name).free
        return Prospects(self.planner, self.tape.other_bytes(), self.limited, free, two_levels=self.level is not None)

    def told(self, seconds: float, names: Callable[[int], str]) -> str:
        """The plan for people: what it comes to, and what it is made of."""
        free = self.limited() - self.tape.other_bytes()
        script = self.planner.best(free) if self.level is None else self.planner.best_of_levels(free)
        assert script is not None, "the plan before says so"
        return "\n  ".join([str(self.prospects.plan(None, seconds)), *self.planner.told(script, names)])

    def refuse_scripted(self, what: str) -> None:
        """TapeError where operations would have to run again."""
        if not self.stores:
            planner = self.planner  # a first recording stores the state at the beginning as well, as long as there is room
            enough = planner.peak(planner.keeping()) + planner.initial + planner.kept + self.tape.other_bytes()
            raise TapeError(
                f"within its budget of {shown(self.limited())} this program runs again in its reverse, which {what} cannot: a tape without "
                f"a budget, or with one of {enough} bytes, keeps all that is needed"
            )

    def failed(self) -> None:
        """A reversal has failed: arrays hold what the program left in them again."""
        if self._scripted is not None:
            self._scripted.put_back()

    # --- what may change behind it -----------------------------------------------------------------------------------------------------

    def watched(self) -> list[Allocation]:
        """The allocations, with what a reversal reads of them as it is."""
        if self.level is not None:
            self.level.settle()  # what was recorded is stored
        if self.stores and self._scripted is None:
            return list(self.tape.allocations.values())
        if self._scripted is not None:
            found = self._scripted.script.watched
        else:
            self.planner.program.note([0])
            found = self.planner.program.lives[0]
        return [replace(a, pending=found[a.address]) for a in self.tape.allocations.values() if a.address in found]


def _put_back(copies: Iterable[Copied]) -> None:
    for copied in copies:
        perform(copied.back())


def rounded_up(nbytes: int) -> int:
    """As a pool rounds them; nothing stays nothing."""
    return rounded(nbytes) if nbytes else 0

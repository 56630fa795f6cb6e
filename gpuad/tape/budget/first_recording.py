"""What a tape within a budget copies while it records a program for the first time, beside what adjoints need.

In: each operation as it runs again (`rerun`), before and after it is made. Out: the state at the beginning and at marks, as far as it is
overwritten, and what operations that may not run again have written (`kept`, `marks`), within the bytes that there are (`budget_memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ... import pipeline
from ...budget import rounded, stride
from ...errors import TapeError
from ...program.ir.region import EMPTY, Region
from ...program.ir.regions import Regions, common, united, without
from ...runtime.actions import Action, Performed, clearing, perform
from ..memory.arena import Full, Pooled
from ..memory.versions import Allocation, home_of, piece_of
from ..record.operations import Foreign, Operation, Renewed
from ..record.recorded_launch import Launched
from ..record.trace import Op
from .budget_memory import BudgetMemory
from .offload import level_of
from .online_checkpoints import Copied
from .op_reruns import rerun_of
from .planner import Iteration, Planner
from .program_states import Program, initial_regions
from .rerun import Rerun, allocation_of, needs_of
from .script_actions import Kept


class FirstRecording(BudgetMemory):
    """The part of a budget that follows a recording."""

    _planner: Planner | None

    def forget(self) -> None:
        """Begins anew."""
        super().forget()
        self.again: dict[Any, Rerun] = {}  # of a known call, which iterations of a loop share
        self._done: Regions = {}
        self._pending: Regions = {}
        self._open: list[Regions] = []
        self._copies = self._room = 0

    @property
    def signatures(self) -> list[Any]:
        """The keys that tell operations apart."""
        return [op.key.signature for op in self.tape.trace.operating()]

    def stacks(self, operation: Launched) -> int:
        """Bytes that the stacks of a launch's reverse will take, which is about to be made."""
        adjoint, call = operation.adjoint, operation.call
        if adjoint is None or not adjoint.layout.scratch:
            return 0
        self.transient.reset()
        pooled = replace(call, pool=Pooled(call.executor, self.transient))
        return self.measured(lambda: pipeline.take_scratch(adjoint, pooled))

    def measure_room(self, check: Callable[[], None]) -> None:
        """Makes a check of the launch that is recorded next: the transient memory that it takes is taken each time that the program is
        recorded."""
        self._room = self.measured(check)

    def rerunning(self, op: Op) -> Op:
        """The op that is recorded next, with how it runs again."""
        operation, known = op.operation, op.known
        if not isinstance(operation, Launched):
            rerun = rerun_of(op, self.tape)
        else:
            if known not in self.again:
                self.again[known] = rerun_of(op, self.tape)
            rerun = replace(self.again[known], scratch=self.stacks(operation), room=self._room)
        self._room = self.transient.most = 0
        return replace(op, rerun=rerun)

    def before(self, operation: Operation, time: int) -> None:
        """Copies what an operation is about to overwrite of the state at the beginning, if the program reads that."""
        if self.offload is not None and self.level is None:
            self.level = level_of(self.offload, self.tape.library_name)
        rerun = self._arrive(operation, time)
        reads = united(rerun.reads, needs_of(operation, rerun.must))
        fresh = without(united(self._pending, reads), self._done)
        wanted = common(fresh, rerun.writes)
        if self.tape.restore:
            users = {w: r for w, r in rerun.writes.items() if w not in self.tape.made.arrays}
            wanted = united(wanted, without(users, self._done))
        if self.restarts and not self.stores and self._resuming is None:
            self._mark(time)
        allocations = {**self.tape.allocations, **allocation_of(operation)}
        for where, region in wanted.items():
            if self._copy(lambda: self.kept.initial, allocations[where], region, time, time):
                self.marks.add(self.kept.initial[-1], borrowed=True)
        self._copy_for_marks(without(reads, rerun.arrives), rerun.writes, wanted, allocations, time)
        self.marks.wrote(rerun.writes)
        self._several = united(self._several, common(self._done, rerun.writes))
        self._done = united(self._done, rerun.writes)
        self._pending = without(fresh, rerun.writes)

    def _arrive(self, operation: Operation, time: int) -> Rerun:
        """Copies what code that the tape does not see has written before an operation that works on it. Gives how that runs again."""
        trace = self.tape.trace
        rerun = trace.at(time).rerun
        assert rerun is not None
        if isinstance(operation, Foreign):  # which nothing has worked on
            self._open = [rest for written in self._open if (rest := without(written, rerun.writes))]
            return rerun
        met = united(united(rerun.reads, rerun.writes), needs_of(operation, {}))
        for written in self._open:
            part = common(written, met)
            rerun = replace(rerun, arrives=united(rerun.arrives, part))
            for where, region in part.items():
                self._copy(lambda: self.kept.arrivals.setdefault(time, []), self.tape.allocations[where], region, time, time)
                written[where] = written[where] - region
        trace.change(time, rerun=rerun)
        return rerun

    def _mark(self, time: int) -> None:
        """Sets a mark before an operation, if it is the time for one."""
        if self._slots == 0 and not self.marks:
            self._iteration = Iteration.of(self._program(), [*self.signatures, self.tape.trace.at(time).key.signature])
        steps = self._iteration.number(time) - self._iteration.number(self.marks.marks[-1].time if self.marks else 0)
        apart = stride(self._iteration.number(time), self._slots) if self._slots else 1
        if time and steps >= apart and self._iteration.begins(time):
            self.marks.set(time)

    def _copy_for_marks(self, reads: Regions, writes: Regions, copied: Regions, allocations: Mapping[int, Allocation], time: int) -> None:
        """Copies what an operation is about to overwrite of the states at marks, beside what was copied for that at the beginning; marks
        that there is no room for are let go."""
        while self.marks:
            wanted = without(self.marks.to_copy(reads, writes), copied)
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
            self.marks.add(Copied(allocations[where], piece, 0, room), borrowed=False)
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
            self.tape.saver.log.do(action)
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

    def after(self, time: int) -> None:
        """An operation has been recorded."""
        op = self.tape.trace.at(time)
        operation, rerun = op.operation, op.rerun
        assert operation is not None and rerun is not None
        if self._resuming is None and self.transient.most > rerun.room:
            self.tape.trace.change(time, rerun=replace(rerun, room=self.transient.most))
        if rerun.keeps:
            allocations = allocation_of(operation)
            for where, region in rerun.writes.items():
                self._copy(lambda: self.kept.results.setdefault(time, []), allocations[where], region, time, -1 - time)
        if isinstance(operation, Foreign) and not isinstance(operation, Renewed):
            self._open.append(dict(rerun.writes))
        self._fits()
        self._note_added()

    def _leave_stores(self) -> None:
        """Where a program turns out to be longer than the one before, for which only what adjoints need was kept, that is the state at the
        beginning, too, if it has been saved whole: then operations can run again from there."""
        if not self._laid_out or self.restarts:
            self._drop_stores()
            return
        trace = self.tape.trace
        self._laid_out, now = False, len(trace.operations)
        ops = [*trace.operating(), *([trace.coming] if trace.coming is not None else ())]
        reruns = [op.rerun for op in ops if op.rerun is not None]
        allocations = {a.address: a for a in self.tape.allocations.values()}
        restored = frozenset(self.tape.made.arrays) if self.tape.restore else None
        operations = [op.operation for op in ops if op.operation is not None]
        wanted = [*initial_regions(Program(operations, reruns, allocations), restored)]
        pieces = ((a, piece) for a in allocations.values() for piece in a.pieces if piece.lossy is None)
        saved = {(piece.time, a.address, piece.region): Copied(a, piece, 0) for a, piece in pieces}
        found = [saved.get(part) for part in wanted if part[0] < now]
        self._drop_stores()
        self.kept = Kept(initial=[copied for copied in found if copied is not None])
        rest = wanted[len(found) :]  # which the operation that has begun is about to overwrite
        more = sum(rounded(home_of(region, region, allocations[where].root)[1]) for _, where, region in rest)
        full = bool(rest) and self.added() + more > self.limited()  # nothing can be let go on the way
        if full or None in found or any(rerun.keeps or rerun.arrives for rerun in reruns):
            self.kept = Kept()
            self.tape.unknown()
            raise TapeError(
                "the program is longer than the one before, for which the tape's budget was laid out: record it again. Arrays are as the "
                "operations before left them."
            )
        self.restarts = True
        for time, where, region in rest:
            self._copy(lambda: self.kept.initial, allocations[where], region, time, time)

    def _convert(self) -> None:
        """Runs what has been recorded once more from its beginning and keeps what adjoints need, as if that had been kept all along: where
        it takes less than to start again in a reversal, but did not fit beside what that takes."""
        if self.stores:
            self._drop_stores()
        self._copy_no_more()
        initial, trace = self.kept.initial, self.tape.trace
        self.kept = Kept(results=self.kept.results, arrivals=self.kept.arrivals)
        self.restarts, self.stores = False, True
        self.marks.clear()
        for a in self.tape.allocations.values():
            a.pending, a.initial = EMPTY, EMPTY
        end = len(trace.operations)
        last = [rerun.writes for rerun in trace.reruns[-1:] if rerun.keeps]  # whose result is perhaps not kept yet
        newest = [part for each in (*self._open, *last) for part in each.items()]
        open_ = [self._copied(self.tape.allocations[where], region, end) for where, region in newest]
        _put_back(initial)
        initial = []
        for time, (operation, rerun) in enumerate(zip(list(trace.operations), trace.reruns, strict=True)):
            with self.tape.saver.logging(Performed()) as log:
                _put_back(self.kept.arrivals.get(time, ()))
                self.tape.saver.note_needs(operation, time)
                self.tape.saver.save_overwritten(operation, time)
                launch = self._once_more(operation, rerun, time)
                for use in operation.effects.after:
                    use.allocation.pending = use.allocation.pending | use.region
            trace.change(time, actions=(*log.taken(), *launch), room=self.saved.here())
        room = (0, 0)

        def placed(op: Op) -> Op:
            nonlocal room
            if op.operation is None:  # what makes an array saves nothing
                return replace(op, room=room)
            room = op.room
            return op

        trace.change_all(placed)
        _put_back([*self.kept.arrivals.get(end, ()), *open_])  # what it, and others since, have written
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
            self.tape.trace.change(time, operation=replace(operation, logs=list(memories)))
            actions: tuple[Action, ...] = (*(clearing(m.root) for m in memories), launch)
            perform(actions)
            return actions
        return (rerun.first,) if rerun.first is not None else ()


def _put_back(copies: Iterable[Copied]) -> None:
    for copied in copies:
        perform(copied.back())

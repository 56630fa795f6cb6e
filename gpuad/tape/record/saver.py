"""Saves what operations are about to overwrite, as far as an adjoint needs it: copied, or as a few values in its place (`checkpoints`).

In: an operation with its effects, before and after it is made. Out: pieces of allocations, and the actions that copy them, in a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from ...pipeline import Call
from ...program.ir.region import EMPTY, Region
from ...runtime.actions import ActionLog, Performed
from ..budget.limits import Limits
from ..memory.arena import Full, Pooled
from ..memory.made_arrays import MadeArrays
from ..memory.versions import Allocation, DeferrableNeed
from .checkpoints import Traced, ValueCheckpoints
from .footprints import Footprints
from .operations import Operation
from .recorded_launch import Launched


class Saver:
    """Saves for a `recording`, `within` limits. `save_all`: everything that is overwritten; `restore`: the state before the recording, too.
    `log`: what is done; `values`: what is kept in place of memory."""

    def __init__(
        self, recording: Traced, footprints: Footprints, within: Limits, made: MadeArrays, *, save_all: bool, restore: bool
    ) -> None:
        self._within, self._made, self._save_all, self._restore = within, made, save_all, restore
        self.log: ActionLog = Performed()
        self.values = ValueCheckpoints(recording, footprints, self)

    def forget(self) -> None:
        """Begins anew."""
        self.values.forget()
        self._within.saved.reset()
        self.log.taken()

    @contextmanager
    def logging(self, log: ActionLog) -> Iterator[ActionLog]:
        """Within it actions go to a log of their own."""
        before, self.log = self.log, log
        try:
            yield log
        finally:
            self.log = before

    def pooled(self, call: Call) -> Call:
        """The call with memory for its needs from what the tape saves."""
        return replace(call, pool=Pooled(call.executor, self._within.saved, self.log.do))

    def space(self, length: int, dtype: Any) -> Any:
        """A flat array in what the tape saves, not cleared."""
        return self._within.saved.room((length,), dtype)

    def note_needs(self, operation: Operation, time: int) -> None:
        """Notes what the operation's adjoint needs of memory as it is."""
        for use in operation.effects.before:
            if isinstance(operation, Launched) and operation.cuts is not None and operation.cuts.worthwhile:
                use.allocation.deferrable.append(DeferrableNeed(time, use.region, use.position))
            else:
                use.allocation.pending = use.allocation.pending | use.region

    def before(self, operation: Operation, time: int) -> None:
        """Saves what the operation that comes is about to overwrite."""
        try:
            self.note_needs(operation, time)
            self._overwrite(operation, time)
        except BaseException:
            self.values.release({time})
            raise

    def after(self, operation: Operation, time: int) -> None:
        """Notes what the adjoint of the operation that has been made needs of memory as it is now."""
        stacks = isinstance(operation, Launched) and operation.adjoint is not None and operation.adjoint.recording.results
        for use in operation.effects.after:
            if stacks and not self._save_all and not self._within.is_limited:
                use.allocation.results.append(DeferrableNeed(time, use.region, use.position))
            else:
                use.allocation.pending = use.allocation.pending | use.region

    def _overwrite(self, operation: Operation, time: int) -> None:
        self.values.choose(operation.effects.writes)
        self.values.stack_results(operation.effects.writes)
        self.save_overwritten(operation, time)
        for use in operation.effects.writes:
            a = use.allocation
            a.written, a.cleared = a.written | use.region, a.cleared | use.shown
        for use in operation.effects.must:
            use.allocation.tainted = use.allocation.tainted - use.region

    def save_overwritten(self, operation: Operation, time: int) -> None:
        """Saves what operation number `time` is about to overwrite, as far as it is needed."""
        for use in operation.effects.writes:
            a = use.allocation
            wanted = use.region if self._save_all else a.pending & use.region
            fresh = EMPTY
            if self._restore and a.address not in self._made.arrays:  # what an operation made was nothing before
                fresh = use.region - a.initial
                wanted, a.initial = wanted | fresh, a.initial | fresh
            if a.lossy and fresh:  # which is put back
                self._save(a, fresh, time, exact=True)
                wanted = wanted - fresh
            if wanted:
                self._save(a, wanted, time)
            a.pending = a.pending - use.region

    def _save(self, allocation: Allocation, region: Region, time: int, *, exact: bool = False) -> None:
        """Copies what is about to be overwritten, and needed."""
        if not self._within.stores:
            return
        with suppress(Full):  # of a budget
            allocation.save(region, time, self._within.saved.take, self.log.do, exact=exact)

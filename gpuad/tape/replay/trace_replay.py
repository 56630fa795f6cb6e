"""A program that is recorded once more: its steps are known again, and only their actions are done.

What a recording finds out (effects, regions, what is saved where, the plan of the reverse) depends on which calls come with which memory,
and not on what is in that memory. So where the next recording makes the same calls in the same order, all of it stays as it is. Each call
is compared with the step that is expected; the first one that differs, or an end that comes early, makes the tape record anew what has
passed, without doing it again (the bytes that it saved lie where they would be saved now), and go on as if there had been no step before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from ...errors import GpuadError, TapeError
from ...pipeline import analysing, executor_of, in_fixed_point, plain_allowed
from ...program.ir.region import Region
from ...runtime.actions import Action, perform
from ..budget.budgeted import Budget
from ..memory.arena import Arena
from ..memory.made_arrays import MadeArrays
from ..memory.streams import Streams
from ..memory.versions import send_far
from ..record.recording import Recording
from ..status import RECORDING, interrupted, interrupted_by
from .batching import batched
from .cursor import Cursor
from .trace_steps import Step


class Repeating(Recording):
    """The part of a tape that knows a program again."""

    exact: bool
    _library: str | None
    streams: Streams

    def __init__(self, saved: Arena, transient: Arena, within: Budget | None, made: MadeArrays) -> None:
        self.guard = made.guard
        self.cursor = Cursor()
        super().__init__(saved, transient, within, made)

    def forget(self) -> None:
        """Begins anew."""
        self.cursor.forget(comparable=not self.exact)
        super().forget()
        self.steps: list[Step] | None = []
        self.doing.taken()
        self.doing.dry = False
        self.guard.forget()

    @property
    def library_name(self) -> str | None:
        """Whose arrays the program works on."""
        return self._library

    def surroundings(self) -> tuple[Any, ...]:
        """What a recording depends on besides its calls."""
        return executor_of(self._library), executor_of(self._library, True), analysing(), plain_allowed(), in_fixed_point()

    # --- while recording ---------------------------------------------------------------------------------------------------------------

    def _note(self, step: Step, lasts: bool) -> None:
        """Keeps a step that was recorded; `lasts`: it is known by its arguments, none of which can be changed into something else."""
        step.actions, step.room, step.locks = self.doing.taken(), self._saved.here(), self.guard.taken()
        self.cursor.note(lasts)
        if self.steps is not None:
            self.steps.append(step)

    def _remember(self) -> None:
        """The recording is complete."""
        send_far(self.allocations.values())
        self.cursor.remember(self.steps or (), self.surroundings())

    def unknown(self) -> None:
        """A call was refused or has failed: what it left behind is not known as a step."""
        self.steps = None
        self.cursor.drop()

    @property
    def learns(self) -> bool:
        """Whether the program is new, as far as it has come."""
        return self.cursor.expected is None

    # --- while repeating ---------------------------------------------------------------------------------------------------------------

    def _expects(self) -> bool:
        """Begins to repeat what is known, if it can be repeated; whether it can."""
        known = self.cursor.program
        if known is None or not known.holds(self.surroundings()):
            return False
        if not self.made.taken_back(executor_of(self._library), self.streams):
            return False
        self.values.write_early(self.steps)
        if self.steps is not None:
            self.values.keep_cheaper_values(self.steps)
        self.cursor.begin()
        return self.within is None or self.within.expects()

    def _repeat(self, step: Step) -> bool:
        """Does what the expected step did; False, and nothing was done, where a check refuses it: the call is then recorded, to say so."""
        if self.state is not RECORDING:
            self._require(RECORDING)
        if step.check is not None:
            try:
                self._do(step, (step.check,))
            except GpuadError:
                self.differ()
                return False
        if step.calls is None:
            step.calls = batched(step.actions)
        try:
            self._do(step, step.calls)
        except BaseException as error:
            name = getattr(step.what, "name", "foreign code")
            self.state = interrupted_by(error, f"at operation {self.cursor.at} ({name})")
            raise
        self.cursor.advance()
        return True

    def _do(self, step: Step, actions: Sequence[Action]) -> None:
        """Does what belongs to a step, on the stream of the step."""
        if step.stream is None:
            perform(actions)
            return
        executor = executor_of(self._library)
        with executor.on(step.stream if step.stream is not True else None):
            self.streams.enter(executor)
            perform(actions)

    def repeats(self, what: Any, args: Sequence[Any], regions: Mapping[str, Region] | None = None) -> bool:
        """Whether a call is the expected step, which has been done then. Where it is not, the tape is ready to record it."""
        step = self.cursor.expected
        if step is None:
            return False
        if step.what is what and step.same_arguments(args) and getattr(step, "regions", None) == regions:
            self.guard.again(step, args)
            return self._repeat(step)
        self.differ()
        return False

    def differ(self) -> None:
        """The program is another one than before: records anew what has passed."""
        if self.cursor.expected is None:
            return
        passed, state = self.cursor.passed, self.state
        self.cursor.miss()
        with self.within.resuming() if self.within is not None else nullcontext():
            self.forget()
            self.state, self.doing.dry = state, True
            try:
                for step in passed:
                    step.again(self)
                    if (self.within is None or self.within.stores) and self._saved.here() != step.room:
                        raise TapeError("what the program saves has moved; record it with a new tape")
            except BaseException as error:
                self.state = interrupted_by(error)
                raise
            finally:
                self.doing.dry = False

    def _compare_arrays(self) -> None:
        """A call in the words of the last time is not looked at closer: here it turns out if its arrays were something else by then."""
        assert self.cursor.program is not None
        changed = self.cursor.program.changed()
        if changed is not None:
            self.cursor.drop()
            reason = f"an array of shape {changed.shape} was laid out anew, or made read-only, while the program ran"
            self.state = interrupted(reason)
            raise TapeError(f"{reason}; record it again")

    def _whole(self) -> bool:
        """At the end of a recording: whether it was the expected one to the last step."""
        if self.cursor.expected is None:
            return False
        if self.cursor.is_at_end:
            self.cursor.finish()
            self._compare_arrays()
            return True
        self.differ()
        return False

"""A program that is recorded once more: its steps are known again, and only their actions are done.

What a recording finds out (effects, regions, what is saved where, the plan of the reverse) depends on which calls come with which memory,
and not on what is in that memory. So where the next recording makes the same calls in the same order, all of it stays as it is. Each call
is compared with the step that is expected; the first one that differs, or an end that comes early, makes the tape record anew what has
passed, without doing it again (the bytes that it saved lie where they would be saved now), and go on as if there had been no step before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from operator import is_
from typing import Any

from numpy import ndarray

from ...arguments.arrays import address, resolve
from ...errors import GpuadError, TapeError
from ...pipeline import analysing, executor_of, in_fixed_point, plain_allowed
from ...program.ir.region import Region, of_array
from ...runtime.actions import Action, perform
from ..budget.budgeted import Budget
from ..memory.arena import Arena
from ..memory.buffers import Part, loading, storing
from ..memory.made_arrays import MadeArrays
from ..memory.streams import Streams
from ..memory.versions import send_far
from ..record.operations import Use
from ..record.recording import Recording
from ..status import RECORDING, interrupted, interrupted_by
from .batching import batched
from .cursor import Cursor, TracedProgram
from .differences import difference
from .previous_round import PreviousRound
from .trace_steps import MadeStep, Step


class Repeating(Recording):
    """The part of a tape that knows a program again."""

    exact: bool
    words: dict[Any, Any]
    _library: str | None
    streams: Streams

    def __init__(self, saved: Arena, transient: Arena, within: Budget | None, made: MadeArrays) -> None:
        self.guard = made.guard
        self.cursor = Cursor()
        self.copied: tuple[tuple[Part, ...], tuple[Part, ...]] = ((), ())  # between buffers and what they stand for, with an operation
        super().__init__(saved, transient, within, made)

    def forget(self) -> None:
        """Begins anew."""
        self.cursor.forget(comparable=not self.exact)
        super().forget()
        self.steps: list[Step] | None = []
        self.doing.taken()
        self.doing.dry, self.copied = False, ((), ())
        self.guard.forget()
        self.made.staging.forget()

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
        (step.loads, step.stores), self.copied = self.copied, ((), ())
        self.cursor.note(step, lasts)
        if self.steps is not None:
            self.steps.append(step)

    def _remember(self) -> None:
        """The recording is complete."""
        send_far(self.allocations.values())
        self.cursor.remember(self.steps or (), self.surroundings(), self.made)

    def unknown(self, why: str = "one of its calls was refused or failed") -> None:
        """What a call that was refused, or has failed, left behind is not known as a step."""
        self.steps, self.copied = None, ((), ())
        self.cursor.drop(why)

    @property
    def learns(self) -> bool:
        """Whether the program is new, as far as it has come."""
        return self.cursor.expected is None

    # --- while repeating ---------------------------------------------------------------------------------------------------------------

    def _expects(self) -> bool:
        """Begins to repeat what is known, if it can be repeated; whether it can."""
        self.made.staging.begin()
        if self.cursor.program is None:
            self.cursor.why = self.cursor.unknown
            return False
        self.cursor.why = self._not_expected(self.cursor.program)
        if self.cursor.why:
            return False
        self.values.write_early(self.steps)
        if self.steps is not None:
            self.values.keep_cheaper_values(self.steps)
        self.cursor.begin()
        if self.within is not None and not self.within.expects():
            self.cursor.why = "within its budget, nothing but what adjoints need is kept from now on"
        return not self.cursor.why

    def _not_expected(self, known: TracedProgram) -> str:
        """Why a program cannot be repeated; nothing where it can, and its memory is ready for that."""
        if known.surroundings != self.surroundings():
            return "executors or settings are others than in the round before"
        changed = known.changed()
        if changed is not None:
            return f"an array of shape {changed.shape} was laid out anew, or made read-only, since the round before"
        return self.made.taken_back(executor_of(self._library), self.streams)

    def _previous(self, at: int = 0) -> PreviousRound | None:
        """The last round, if it was complete, for one that is recorded anew from step `at` on."""
        if not self.steps or self.exact:
            return None
        if self.within is not None:
            self.within.note_spare()
        return PreviousRound.of(self.steps, at)

    def _repeat(self, step: Step) -> bool:
        """Does what the expected step did; False, and nothing was done, where a check refuses it: the call is then recorded, to say so."""
        if self.state is not RECORDING:
            self._require(RECORDING)
        if step.check is not None:
            try:
                self._do(step, (*loading(step.loads), step.check))
            except GpuadError as error:
                self.differ(f"it was refused: {error}")
                return False
        if step.calls is None:
            step.calls = (*loading(step.loads), *batched(step.actions), *storing(step.stores))
        try:
            self._do(step, step.calls)
        except BaseException as error:
            self.state = interrupted_by(error, f"at operation {self.cursor.at} ({step.name})")
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

    def staged(self, what: Any, args: Any, line: Any = None) -> Any:
        """The arguments of a call of `what` on buffers, as far as these stand for arrays which are others in each round."""
        staging, step = self.made.staging, self.cursor.expected
        if self.made.arrays and any(type(x) is ndarray for x in args):
            args = type(args)(map(self.made.inside, args))
        if step is not None:
            if not staging.buffers or step.what is not what or all(map(is_, args, step.args)):
                return args
            found = staging.arguments(args, step.outlines, None)
        else:
            before = self.cursor.before(what, line)
            if before is None and not staging.holds_any:
                return args
            known = self.cursor.previous.known if before is not None and self.cursor.previous is not None else None
            found = staging.arguments(args, before.outlines if before is not None else (), known)
        return args if all(map(is_, args, found)) else type(args)(found)

    def stage(
        self, uses: Sequence[Use], writes: Sequence[Use], arrays: Callable[[int], Any], others: Sequence[Any] = (), *, foreign: bool = False
    ) -> None:
        """An operation is about to be recorded that works on memory for which buffers stand: what the caller has there is copied in, and
        what it writes will be copied back. `arrays`: through which of them a position reaches it; `others`: which it reads besides;
        `foreign`: whether the caller writes it, who has no use for a copy."""
        staging = self.made.staging
        if not staging.buffers:
            return
        memories = [(array, resolve(array)) for array in others]
        regions = [(address(m.root), of_array(array, m.offset * int(array.dtype.itemsize)), array) for array, m in memories]
        loads, stores = ([(use.allocation.address, use.region, arrays(use.position)) for use in part] for part in (uses, writes))
        written = staging.parts(stores)
        self.copied = staging.parts([*loads, *stores, *regions]), () if foreign else written
        staging.note_written(written)
        if not self.doing.dry:
            perform(loading(self.copied[0]))

    def repeats(self, what: Any, args: Sequence[Any], given: Sequence[Any], regions: Mapping[str, Region] | None = None) -> bool:
        """Whether a call is the expected step, which has been done then. Where it is not, the tape is ready to record it. `args`: on
        buffers, `given`: as the caller has passed them."""
        step = self.cursor.expected
        if step is None:
            return False
        own = getattr(step, "regions", None)
        within = own == regions or (own is not None and regions is not None and _within(regions, own))
        if step.what is what and within and step.same_arguments(args):
            self.guard.again(step, given)
            return self._repeat(step)
        self.differ(difference(step, what, args))
        return False

    def differ(self, why: str) -> None:
        """The program is another one than before: records anew what has passed."""
        step = self.cursor.expected
        if step is None:
            return
        passed, state = self.cursor.passed, self.state
        place = f"operation {len(passed)}, {step.name} ({step.where}): " if step.what is not None else ""
        previous = self._previous(len(passed))
        again = {None, *(step.made for step in passed if isinstance(step, MadeStep))}
        words = {key: known for key, known in self.words.items() if known.made in again}
        self.cursor.miss(place + why)
        with self.within.resuming() if self.within is not None and passed else nullcontext():
            self.forget()
            self.state, self.doing.dry = state, True
            try:
                for step in passed:
                    step.again(self)
                    if (self.within is None or self.within.stores) and self._saved.here() != step.room:
                        raise TapeError("what the program saves has moved; record it with a new tape")
                self.words.update(words)
                self.cursor.compare_with(previous)
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
            reason = f"an array of shape {changed.shape} was laid out anew, or made read-only, while the program ran"
            self.cursor.drop(reason)
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
        self.differ("the program ended before it")
        return False


def _within(regions: Mapping[str, Region], known: Mapping[str, Region]) -> bool:
    """Whether a call reaches no more than is known of it: of what is not named it may reach all."""
    return all(name in regions and regions[name] <= part for name, part in known.items())

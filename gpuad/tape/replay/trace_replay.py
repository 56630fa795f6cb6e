"""A program that is recorded once more: its ops are known again, and only their actions are done.

What a recording finds out (effects, regions, what is saved where, the plan of the reverse) depends on which calls come with which memory,
and not on what is in that memory. So where the next recording makes the same calls in the same order, all of it stays as it is. Each call
is compared with the op that is expected. The first one that differs, or an end that comes early, has the ops up to there taken over into a
recording that goes on from them: what is known of memory is what they did to it, and the bytes that they saved lie where they lay.
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
from ...runtime.actions import Action, ActionLog, perform
from ..budget.limits import Limits
from ..memory.buffers import Part, loading
from ..memory.made_arrays import MadeArrays
from ..memory.streams import Streams
from ..memory.versions import send_far
from ..record.call_keys import MadeKey
from ..record.checkpoint_extraction import write_early
from ..record.operations import Use
from ..record.recording import Recording
from ..record.trace import Op
from ..status import RECORDING, interrupted, interrupted_by
from .cursor import Cursor, TracedProgram
from .differences import difference
from .previous_round import PreviousRound


class Repeating(Recording):
    """The part of a tape that knows a program again."""

    exact: bool
    words: dict[Any, Any]
    _library: str | None
    streams: Streams

    def __init__(self, within: Limits, made: MadeArrays, first: Callable[[], bool]) -> None:
        self.guard = made.guard
        self.cursor = Cursor()
        super().__init__(within, made, first)

    def forget(self) -> None:
        """Begins anew."""
        self.cursor.forget(comparable=not self.exact)
        super().forget()
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

    def _remember(self) -> None:
        """The recording is complete."""
        send_far(self.allocations.values())
        self.cursor.remember(self.trace.ops if self.trace.is_whole else (), self.surroundings(), self.made)

    def unknown(self, why: str = "one of its calls was refused or failed") -> None:
        """Drops what a call that was refused, or has failed, left behind: it is no op."""
        self.trace.is_whole = False
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
        write_early(self.trace)
        self.saver.values.keep_cheaper_values()
        if not self.within.expects():
            self.cursor.why = "within its budget, nothing but what adjoints need is kept from now on"
            return False
        self.cursor.begin()
        return True

    def _not_expected(self, known: TracedProgram) -> str:
        """Why a program cannot be repeated; nothing where it can, and its memory is ready for that."""
        if known.surroundings != self.surroundings():
            return "executors or settings are others than in the round before"
        changed = known.changed()
        if changed is not None:
            return f"an array of shape {changed.shape} was laid out anew, or made read-only, since the round before"
        return self.made.taken_back(executor_of(self._library), self.streams)

    def _previous(self, at: int = 0) -> PreviousRound | None:
        """The last round, if it was complete, for one that is recorded anew from op `at` on."""
        if not self.trace.is_whole or not self.trace.ops or self.exact:
            return None
        self.within.note_spare()
        return PreviousRound.of([op.key for op in self.trace.ops], at)

    def _repeat(self, op: Op) -> bool:
        """Does what the expected op did; False, and nothing was done, where a check refuses it: the call is then recorded, to say so."""
        if self.state is not RECORDING:
            self._require(RECORDING)
        if op.check is not None:
            try:
                self._do(op, (*loading(op.loads), op.check))
            except GpuadError as error:
                self.differ(f"it was refused: {error}")
                return False
        calls = self.cursor.calls(op)
        try:
            self._do(op, calls)
        except BaseException as error:
            self.state = interrupted_by(error, f"at operation {self.cursor.at} ({op.key.name})")
            raise
        self.cursor.advance()
        return True

    def _do(self, op: Op, actions: Sequence[Action]) -> None:
        """Does what belongs to an op, on its stream."""
        if op.stream is None:
            perform(actions)
            return
        executor = executor_of(self._library)
        with executor.on(op.stream if op.stream is not True else None):
            self.streams.enter(executor)
            perform(actions)

    def staged(self, what: Any, args: Any, line: Any = None) -> Any:
        """The arguments of a call of `what` on buffers, as far as these stand for arrays which are others in each round."""
        staging, op = self.made.staging, self.cursor.expected
        if self.made.arrays and any(type(x) is ndarray for x in args):
            args = type(args)(map(self.made.inside, args))
        if op is not None:
            if not staging.buffers or op.key.what is not what or all(map(is_, args, op.key.args)):
                return args
            found = staging.arguments(args, op.key.outlines, None)
        else:
            before = self.cursor.before(what, line)
            if before is None and not staging.holds_any:
                return args
            known = self.cursor.previous.known if before is not None and self.cursor.previous is not None else None
            found = staging.arguments(args, before.outlines if before is not None else (), known)
        return args if all(map(is_, args, found)) else type(args)(found)

    def stage(
        self, uses: Sequence[Use], writes: Sequence[Use], arrays: Callable[[int], Any], others: Sequence[Any] = (), *, foreign: bool = False
    ) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """An operation is about to be recorded that works on memory for which buffers stand: what the caller has there is copied in, and
        what it writes will be copied back. Gives the parts of both. `arrays`: through which of them a position reaches it; `others`: which
        it reads besides; `foreign`: whether the caller writes it, who has no use for a copy."""
        staging = self.made.staging
        if not staging.buffers:
            return (), ()
        memories = [(array, resolve(array)) for array in others]
        regions = [(address(m.root), of_array(array, m.offset * int(array.dtype.itemsize)), array) for array, m in memories]
        loads, stores = ([(use.allocation.address, use.region, arrays(use.position)) for use in part] for part in (uses, writes))
        written = staging.parts(stores)
        copied = staging.parts([*loads, *stores, *regions])
        staging.note_written(written)
        perform(loading(copied))
        return copied, () if foreign else written

    def repeats(self, what: Any, args: Sequence[Any], given: Sequence[Any], regions: Mapping[str, Region] | None = None) -> bool:
        """True if a call is the expected op, which has been made then. Where it is not, the tape is ready to record it. `args`: on
        buffers, `given`: as the caller has passed them."""
        op = self.cursor.expected
        if op is None:
            return False
        own = getattr(op.key, "regions", None)
        within = own == regions or (own is not None and regions is not None and _within(regions, own))
        if op.key.what is what and within and op.key.same_arguments(args):
            self.guard.again(op, given)
            return self._repeat(op)
        self.differ(difference(op.key, what, args))
        return False

    def differ(self, why: str) -> None:
        """The program is another one than before: takes over what has passed, and records from there on."""
        op = self.cursor.expected
        if op is None:
            return
        passed, state, key = self.cursor.passed, self.state, op.key
        place = f"operation {len(passed)}, {key.name} ({key.where}): " if key.what is not None else ""
        previous = self._previous(len(passed))
        again = {None, *(op.key.made for op in passed if isinstance(op.key, MadeKey))}
        words = {key: known for key, known in self.words.items() if known.made in again}
        allocations = self.allocations
        self.cursor.miss(place + why)
        with self.within.resuming() if passed else nullcontext(), self.saver.logging(ActionLog()):
            self.forget()
            self.state = state
            try:
                with self.footprints.taking_over(allocations):
                    paired: set[int] = set()
                    for op in passed:
                        self.take_over(op, paired)
                        if self.within.stores and self.within.saved.here() != op.room:
                            raise TapeError("what the program saves has moved; record it with a new tape")
                self.words.update(words)
                self.cursor.compare_with(previous)
            except BaseException as error:
                self.state = interrupted_by(error)
                raise

    def take_over(self, op: Op, paired: set[int]) -> None:
        """Records an op that was made in this round already. `paired`: ids of calls whose shadows are known, to which its own is added."""
        raise NotImplementedError

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
        """At the end of a recording: whether it was the expected one to the last op."""
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

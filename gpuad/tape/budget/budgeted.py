"""A byte budget that a tape keeps within.

A first recording keeps what fits (`first_recording`). A program that cannot be reversed with that is recorded to its end, since only then
it is known how many bytes it takes, and refused there with that number.

When the program comes again its schedule is known (`budget.schedule`): each of its steps stores what the script says. A reversal runs the
script's actions: states are brought back, operations run again, adjoints run, and at the end arrays hold what the program left in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property

from ...budget import rounded, shown
from ...errors import BudgetError, TapeError
from ...pipeline import executor_of
from ..memory.arena import Full
from ..memory.versions import Allocation
from ..status import REFUSED, interrupted
from .first_recording import FirstRecording
from .online_checkpoints import Marks
from .outlook import Prospects
from .planner import Planner
from .script import Script
from .script_actions import Scripted


class Budget(FirstRecording):
    """The bytes that a tape may add, and what it keeps within them."""

    def forget(self) -> None:
        """Begins anew."""
        super().forget()
        self._planner = None
        self.__dict__.pop("_after", None)

    def conclude(self) -> None:
        """The program has ended. BudgetError where it cannot be reversed within the budget."""
        self.tape.made.homes.drop_unused()
        planner, free = self.planner, self.limited() - self.tape.made.nbytes
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
            self._planner = Planner(self._program(), self.signatures, frozenset(self.tape.made.arrays) if self.tape.restore else None)
        return self._planner

    @cached_property
    def _after(self) -> Planner:
        """And what there are now that it has been run."""
        return self.planner.after(self.marks)

    def _refuse(self) -> None:
        """Says that the program does not fit, and lets go what it has kept."""
        planner, others = self.planner, self.tape.made.nbytes
        self.stages = self.stages and not self.tape.made.staging.buffers  # perhaps it is their bytes that are too much
        least = planner.least() + others
        if least <= self.limited():  # what was let go on the way was the wrong thing
            self.tape.unknown()
            self.tape.state = interrupted("it is longer than the program before, for which its budget was laid out")
            raise TapeError("the program is longer than the one before, for which the tape's budget was laid out: record it again")
        if self.stores:
            self._drop_stores()
        self._drop_restarts()
        self.tape.unknown()  # another program may begin as this one does
        self.tape.state = REFUSED
        raise BudgetError(
            f"the program cannot be reversed within {shown(self.limited())}{self.all_there_is}: the smallest budget that would do is "
            f"{least} bytes, {planner.holders(others)}. Arrays are as the program left them.",
            least,
        )

    def _store_only(self) -> None:
        """The state at the beginning is not needed, also when the program comes again. Where there is room it is stored all the same, for
        a program that turns out to be longer."""
        if self.restarts and self.added() + rounded_up(self.planner.keeping().transient) <= self.limited():
            return
        self._drop_restarts()

    # --- scripts -----------------------------------------------------------------------------------------------------------------------

    def _take_best(self, best: Callable[[int], Script | None], whole: Callable[[Script], Script], done: str) -> Scripted:
        """Memory for the best script that there is memory for. BudgetError if there is less than was thought, and none would do."""
        with suppress(Full):
            return self._take(whole(self._checked(best, done)))
        return self._take(whole(self._checked(best, done)))

    def _checked(self, best: Callable[[int], Script | None], done: str) -> Script:
        script = best(self.limited() - self.tape.made.nbytes)
        if script is None:
            assert self.shrunk, "the recording would have been refused"
            least = self.planner.least() + self.tape.made.nbytes
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
            self.level.join()
            self.level.reserve(script.far)
        self._scripted = Scripted(script, self.planner.program, room, self.kept, self.level)
        self._note_added()
        return self._scripted

    def scripted(self) -> Scripted | None:
        """The schedule that a reversal follows; None where all that adjoints need was kept, as without a budget."""
        if self._scripted is None and not self.stores:
            self._take_best(self._after.best, self._after.whole, "Arrays are as the program left them.")
        if self._scripted is None and not self.transient.pinned:
            self.transient.size(self.planner.keeping().transient)
        return self._scripted

    def expects(self) -> bool:
        """The program is expected to come again: whether it is to be repeated, rather than recorded once more."""
        if self.stores or self._sweeps:
            return True
        self._let_marks_go()
        if self.planner.peak(self.planner.keeping()) <= self.limited() - self.tape.made.nbytes:
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
        """True if the program stores what its script says."""
        return self._scripted is not None and self._scripted.script.sweeps

    def _schedule(self) -> None:
        """The program comes again: from here on its steps store what the script says."""
        best = self.planner.best if self.level is None else self.planner.best_of_levels
        scripted = self._take_best(best, self.planner.whole, "Nothing was launched.")
        for time in range(len(self.tape.trace.operations)):
            self.tape.trace.change(time, actions=scripted.forward(time))

    @contextmanager
    def resuming(self) -> Iterator[None]:
        """Around what records anew a part of a program that has run: its copies lie where they were made."""
        self._old = self.kept.copies if self.restarts else []
        self._resuming = self._scripted is not None, self.restarts
        try:
            yield
        finally:
            self._old, self._resuming = [], None

    def note_spare(self) -> None:
        """Notes what the budget leaves beside the program that was recorded, for buffers of one that is recorded in its place: half of it,
        since that may take more where its arrays lie in larger ones."""
        free, keeping = self.limited() - self.tape.made.nbytes, self.planner.peak(self.planner.keeping())
        self.spare = (free - (keeping if keeping <= free else self.planner.least())) // 2

    def admits_buffer(self, size: int) -> bool:
        """True if so many bytes are left; they are taken then."""
        size = rounded_up(size)
        if not self.stages or size > self.spare or not self._fits(size):
            return False
        self.spare -= size
        return True

    def check_planned(self) -> None:
        """A plan has been made: shadows of temporaries may have got copies. BudgetError if that is too much."""
        if self.added() > self.limited():
            least = self.planner.least() + self.tape.made.nbytes
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
        return Prospects(self.planner, self.tape.made.nbytes, self.limited, free, two_levels=self.level is not None)

    def described(self, seconds: float, names: Callable[[int], str]) -> str:
        """The plan for people: what it comes to, and what it is made of."""
        free = self.limited() - self.tape.made.nbytes
        script = self.planner.best(free) if self.level is None else self.planner.best_of_levels(free)
        assert script is not None, "the plan before says so"
        return "\n  ".join([str(self.prospects.plan(None, seconds)), *self.planner.described(script, names)])

    def refuse_scripted(self, what: str) -> None:
        """TapeError where operations would have to run again."""
        if not self.stores:
            planner = self.planner  # a first recording stores the state at the beginning as well, as long as there is room
            enough = planner.peak(planner.keeping()) + planner.initial + planner.kept + self.tape.made.nbytes
            raise TapeError(
                f"within its budget of {shown(self.limited())} this program runs again in its reverse, which {what} cannot: a tape without "
                f"a budget, or with one of {enough} bytes, keeps all that is needed"
            )

    def failed(self) -> None:
        """A reversal has failed: arrays hold what the program left in them again."""
        if self._scripted is not None:
            self._scripted.put_back()

    # --- what may change behind it -----------------------------------------------------------------------------------------------------

    def watched(self) -> Mapping[int, Allocation]:
        """The allocations by address, with what a reversal reads of them as it is."""
        if self.level is not None:
            self.level.join()  # what was recorded is stored
        if self.stores and self._scripted is None:
            return self.tape.allocations
        if self._scripted is not None:
            found = self._scripted.script.watched
        else:
            self.planner.program.note([0])
            found = self.planner.program.lives[0]
        return {where: replace(a, pending=found[where]) for where, a in self.tape.allocations.items() if where in found}


def rounded_up(nbytes: int) -> int:
    """As a pool rounds them; nothing stays nothing."""
    return rounded(nbytes) if nbytes else 0

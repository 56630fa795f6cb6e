"""Plans of a recording's reversals, by their seeds: made once, kept as long as the recording is.

In: seeds as the caller gives them. Out: the seeds as they go to memory, and the plan (`reversal_plan`) that follows with them. Nothing is
written. Assumed: a plan depends on the operations, on which seeds there are and where they lie, and on the surroundings, not on data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...api.kept_kernels import save_in_time
from ...arguments.arrays import address
from ...errors import TapeError
from ...pipeline import executor_of
from ...progress import doing
from ..memory.temporaries import inner
from ..record.operations import Operation
from ..replay.trace_replay import Repeating
from .copy_on_write import CopyOnWriteShadows
from .in_place_seeds import Placements
from .reaching import unreached
from .reversal_plan import Plan, Reversal
from .seeds import Seed, SeedKey, Seeds, as_before
from .shadow_state import ShadowState


class ReversePlanner:
    """Plans the reversals of a `tape`. `plans`: those of its recording, by what each depends on."""

    def __init__(self, tape: Repeating) -> None:
        self._tape, self._seeds = tape, Seeds(tape)
        self.forget()

    def forget(self) -> None:
        """Begins anew: another program is recorded."""
        self.plans: dict[Any, Plan] = {}
        self._operations: Sequence[Operation] = ()  # which the plans are for
        self._last: SeedKey | None = None  # the reversal before this one
        self._seeds.forget()

    def drop(self) -> None:
        """Reversals that were planned have a script whose memory is let go."""
        self.plans.clear()
        self._last = None

    def planned(self, seeds: Mapping[Any, Any] | None, *, lasting: bool = False) -> tuple[list[Seed] | None, Plan]:
        """The seeds as they go to memory, and the plan for them. What they alone show to have a shadow has it for this reversal only, so
        that the next one, of the same recording or of one like it, does not depend on them. `lasting`: the seeds are read again later."""
        tape = self._tape
        if type(seeds) is dict:
            seeds = _inside(seeds, tape)
        operations, known = tape.operations, tape.shadows
        premises = operations, known, known.count, tape.surroundings(), tape.within.script
        if self._last is not None and seeds is not None and not lasting and self._last.matches(seeds, premises):
            self._begin_work()
            return self._last.resolved(seeds), self._last.plan
        before = self._seeds.last
        with tape.judge.supposing():
            resolved = self._seeds.resolved(seeds, lasting=lasting) if seeds is not None else None
            plan = self._plan(operations, resolved, self._seeds.placements(resolved or (), lasting))
            comes_again = seeds is not None and resolved is not None and not lasting and as_before(seeds, resolved, before)
            self._last = SeedKey.of(seeds or {}, resolved or (), premises, plan) if comes_again else None
            return resolved, plan

    def _plan(self, operations: Sequence[Operation], resolved: list[Seed] | None, placements: Placements) -> Plan:
        """The plan for such seeds, kept as long as the recording of these operations is."""
        tape = self._tape
        if self._operations is not operations:
            self._operations = operations
            self.plans.clear()
        seeds = [(root, region) for _, _, root, region in resolved] if resolved is not None else None
        pairs = tape.shadows.pairs if tape.paired != tape.shadows.count else None  # a seed has shown a shadow
        given = tuple((address(root), root.dtype, region) for root, region in seeds) if seeds is not None else None
        key = tape.surroundings(), pairs, given, placements.key
        if key not in self.plans or self.plans[key].is_seen:
            self.plans[key] = self._new_plan(seeds, placements)
        self._begin_work()
        return self.plans[key]

    def _new_plan(self, seeds: list[tuple[Any, Any]] | None, placements: Placements) -> Plan:
        tape = self._tape
        executors = executor_of(tape.library_name), executor_of(tape.library_name, True)
        scripted = tape.within.scripted()
        reversal = Reversal(tape.operations, tape.allocations, tape.shadows, tape.transient, executors)
        shareable = {} if tape.within.is_limited else dict(tape.made.shadows)  # copies on write would be beyond what was promised
        temporaries = list(shareable.values())
        state = ShadowState(CopyOnWriteShadows(tape.made.homes, shareable), placements)
        with doing(f"planning the reversal of {len(tape.operations)} operations"):
            plan = reversal.plan(state, seeds, temporaries, tape.restore, scripted)
        tape.within.check_planned()
        plan.unused = unreached(tape.operations, tape.shadows, seeds or (), tape.made.arrays)
        save_in_time()
        return plan

    @property
    def scratch(self) -> Mapping[int, int]:
        """Bytes of transient memory that adjoints take, by the number of the operation, as far as a reversal has been planned."""
        of_this = self.plans if self._operations is self._tape.operations else {}
        return next(reversed(of_this.values())).scratch if of_this else {}

    def _begin_work(self) -> None:
        """The current stream is about to reverse."""
        if self._tape.library_name is not None:
            self._tape.streams.work(executor_of(self._tape.library_name))


def _inside(seeds: dict[Any, Any], tape: Repeating) -> dict[Any, Any]:
    """The seeds by the pairs that the tape knows."""
    keys = [inner(key, tape) for key in seeds]
    if tape.made.staging.holds_any:
        keys = tape.made.staging.arguments(keys, (), None)
    found = dict(zip(keys, seeds.values(), strict=True))
    if len(found) < len(seeds):
        raise TapeError("two seeds go to one element of a shadow: add them up first. No shadow was touched.")
    return found


__all__ = ["ReversePlanner"]

"""Plans of a recording's reversals, by their seeds: made once, kept as long as the recording is.

In: seeds as the caller gives them. Out: the seeds as they go to memory, and the plan (`reversal_plan`) that follows with them. Nothing is
written. Assumed: a plan depends on the operations, on which seeds there are and where they lie, and on the surroundings, not on data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...arguments.arrays import address
from ...pipeline import executor_of
from ..memory.temporaries import inner
from ..replay.trace_replay import Repeating
from .copy_on_write import CopyOnWriteShadows
from .in_place_seeds import Placements
from .reaching import unreached
from .reversal_plan import Plan, Reversal
from .seeds import Asked, Seed, Seeding, as_before
from .shadow_state import ShadowState


class Reversing(Seeding, Repeating):
    """The part of a tape that plans reversals."""

    _paired: int  # pairs of arrays and shadows that the operations have shown

    def _planned(self, seeds: Mapping[Any, Any] | None, *, lasting: bool = False) -> tuple[list[Seed] | None, Plan]:
        """The seeds as they go to memory, and the plan for them. What they alone show to have a shadow has it for this reversal only, so
        that the next one, of the same recording or of one like it, does not depend on them."""
        seeds = {inner(key, self): seed for key, seed in seeds.items()} if type(seeds) is dict else seeds
        operations, known = self.operations, self.shadows
        premises = operations, known, known.count, self.surroundings(), None if self.within is None else self.within.script
        if self._asked is not None and seeds is not None and not lasting and self._asked.again(seeds, premises):
            self._work()
            return self._asked.resolved(seeds), self._asked.plan
        self.shadows, before = known.copy(), self._last_seeds
        try:
            resolved = self._resolved(seeds, lasting=lasting) if seeds is not None else None
            plan = self._plan(resolved, self.placements(resolved or (), lasting))
            known_again = seeds is not None and resolved is not None and not lasting and as_before(seeds, resolved, before)
            self._asked = Asked.of(seeds or {}, resolved or (), premises, plan) if known_again else None
            return resolved, plan
        finally:
            if self.operations is operations:
                self.shadows = known
            else:  # a seed has shown a shadow of memory that was written without one
                self._known = None
                self.plans.clear()

    def _plan(self, resolved: list[Seed] | None, placements: Placements) -> Plan:
        """The plan for such seeds, kept as long as the recording is."""
        seeds = [(root, region) for _, _, root, region in resolved] if resolved is not None else None
        pairs = self.shadows.pairs if self._paired != self.shadows.count else None  # a seed has shown a shadow
        given = tuple((address(root), root.dtype, region) for root, region in seeds) if seeds is not None else None
        key = self.surroundings(), pairs, given, placements.key
        if key not in self.plans or self.plans[key].is_seen:
            executors = executor_of(self._library), executor_of(self._library, True)
            scripted = self.within.scripted() if self.within is not None else None
            reversal = Reversal(self.operations, self.allocations, self.shadows, self._transient, executors)
            shareable = {} if self.within is not None else dict(self.made.shadows)  # copies on write would be beyond what was promised
            temporaries = list(shareable.values())
            state = ShadowState(CopyOnWriteShadows(self.made.homes, shareable), placements)
            self.plans[key] = plan = reversal.plan(state, seeds, temporaries, self.restore, scripted)
            if self.within is not None:
                self.within.check_planned()
            plan.unused = unreached(self.operations, self.shadows, seeds or (), self.made.arrays, self.touched)
        self._work()
        return self.plans[key]

    @property
    def scratch(self) -> Mapping[int, int]:
        """Bytes of transient memory that adjoints take, by the number of the operation, as far as a reversal has been planned."""
        return next(reversed(self.plans.values())).scratch if self.plans else {}

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all transient memory."""
        return self._transient.nbytes

    @property
    def _portion(self) -> Callable[[int], Any] | None:
        """Room for looking at memory: of a tape with a budget it is the host's, a few kilobytes."""
        return None if self.within is not None else self._transient.take

    def drop_plans(self) -> None:
        """Reversals that were planned have a script whose memory is let go."""
        self.plans.clear()
        self._asked = None

    def _work(self) -> None:
        """The current stream is about to reverse."""
        if self._library is not None:
            self._streams.work(executor_of(self._library))

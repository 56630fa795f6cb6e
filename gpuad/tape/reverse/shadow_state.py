"""The state of shadows at the moment that the plan of a reversal has come back to, and how it changes.

An element of a shadow is

* *live*: what is in memory counts; where its seed is read in place, in the memory of the seed (`in_place_seeds`);
* *zero* for all that follows, whatever memory holds there (rule 9 of the contract): so is, when a program is reversed, what it writes, but
  for the seeds, and what an adjoint has taken. It is not cleared but noted, and cleared where somebody needs it so, or at the end;
* *shared*: it lives in the memory of another shadow with the same content, until one of them is written (`copy_on_write`);
* *owed*: zero after the reversal, and not cleared before its owner looks at it (`reversal_plan.Owed`, `arguments.deferred_clearing`).

So what a user sees is what the contract says, and knowledge never outlives the reversal. Nothing here touches memory: what has to be copied
and cleared for a change of state is in the `Step` that comes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...arguments.arrays import leaf_memory
from ...pipeline import Stage
from ...program.ir.region import EMPTY, Region, of_array, span
from ...runtime.actions import Action
from ...runtime.array_types import NdArray
from ...runtime.base import Memory
from ..memory.versions import clearing_of
from .copy_on_write import Copy, CopyOnWriteShadows
from .in_place_seeds import Placed, Placements, Where, where_of


@dataclass(frozen=True, slots=True)
class Step:
    """How an operation is reversed: shadows to be copied and elements to be cleared first, the kernels (none: there is nothing to do, or
    it is no launch), and shadows that live elsewhere, by the parameter's position."""

    cleared: tuple[tuple[Any, Region], ...]
    stages: tuple[Stage, ...] = ()
    copies: tuple[Copy | Placed, ...] = ()
    moved: Mapping[int, Memory] = field(default_factory=dict)

    def begin(self) -> list[Action]:
        """What comes before the adjoint itself."""
        return [*(copy.action() for copy in self.copies), *(a for root, region in self.cleared for a in clearing_of(root, region))]


class ShadowState:
    """`regions`: the elements of each shadow that are zero; `sharing`: where shadows live, `placements`: seeds that lie elsewhere."""

    def __init__(self, sharing: CopyOnWriteShadows, placements: Placements | None = None) -> None:
        self.regions: dict[Where, Region] = {}
        self.roots: dict[Where, Any] = {}
        self.sharing = sharing
        self.placements = placements or Placements()

    def zeros(self, root: NdArray) -> Region:
        return self.regions.get(where_of(root), EMPTY)

    def make_zero(self, root: NdArray, region: Region) -> None:
        where = where_of(root)
        self.roots[where] = root
        self.regions[where] = self.regions.get(where, EMPTY) | region

    def make_live(self, root: NdArray, region: Region) -> Region:
        """These elements count again; gives those of them that were zero."""
        zero = self.zeros(root)
        found = zero & region
        if found:
            self.regions[where_of(root)] = zero - found
        return found

    def is_live(self, root: NdArray) -> bool:
        """Whether any of its elements count."""
        return not span(0, int(root.size)) <= self.zeros(root)

    def rest(self) -> list[tuple[Any, Region]]:
        """All that is zero."""
        return [(self.roots[where], region) for where, region in self.regions.items() if region]

    def note(self, roots: Iterable[Any]) -> None:
        """These shadows were touched: those of temporaries that are not live any more live nowhere."""
        self.sharing.note_liveness(roots, self.is_live)

    def at_home(self, used: Sequence[tuple[Any, Region]]) -> Step:
        """What comes before code that reaches shadows by their own addresses."""
        copies: list[Copy | Placed] = [*self.placements.home(root for root, _ in used)]
        copies += (c for root, _ in used for c in self.sharing.home(root))
        cleared = tuple((root, part) for root, region in used if (part := self.make_live(root, region)))
        self.note((root for root, _ in used))
        return Step(cleared, copies=tuple(copies))

    def renewed(self, cleared: Sequence[tuple[Any, Region]]) -> Step:
        """What comes before memory that is used again: from here on these shadows are those of what was there before, and zero."""
        step = self.at_home(cleared)
        for root, region in cleared:
            self.make_zero(root, region)
        return replace(step, cleared=())

    def last(self) -> Step:
        """What is left to do when all adjoints have run: every shadow goes home, and what is zero is cleared."""
        copies: list[Copy | Placed] = [*self.placements.all()]
        copies += (c for root in self.sharing.temporaries.values() for c in self.sharing.home(root))
        return Step(tuple(self.rest()), copies=tuple(copies))


def elements(view: Any) -> tuple[Any, Region]:
    """The allocation of an array, flat, and which of its elements the array has."""
    memory = leaf_memory(view)
    size = int(memory.root.dtype.itemsize)
    return memory.root, Region(of_array(view, memory.offset * size).spans // size)

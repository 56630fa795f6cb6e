"""Watches that memory is changed by the operations of a recording alone.

Each operation is followed by marks of what it left behind, as far as it is needed or has a shadow; before the next one works on that, it is
compared with them. A first recording looks at what is small, an exact one at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import TapeError
from ...program.ir.region import Region
from ...runtime.array_locks import borrows_memory
from ..memory.change_detection import mark as fingerprint
from ..memory.versions import Allocation
from .footprints import Footprints
from .judge import Judge
from .operations import Foreign, Operation
from .recorded_launch import Launched

SMALL = 1 << 20  # bytes of an allocation that a first recording looks at


class ChangeMarks:
    """`exact`: compare what is needed at every operation; `first`: whether the tape records for the first time: what is written behind it
    then is, as a rule, written behind it ever after."""

    def __init__(self, footprints: Footprints, judge: Judge, exact: bool, first: Callable[[], bool]) -> None:
        self._footprints, self._judge, self._exact, self._first = footprints, judge, exact, first

    @property
    def looks(self) -> bool:
        """True if each operation is followed by a look at what it left behind."""
        return self._exact or (self._first() and any(map(self._looks_at, self._footprints.allocations.values())))

    def _looks_at(self, a: Allocation) -> bool:
        """True if an allocation is looked at. In a first recording it is where that costs little beside the recording, for views that were
        made before anything was locked, and where others have the memory, too, so that it cannot be locked."""
        return self._exact or a.root.nbytes <= SMALL or borrows_memory(a.root)

    def compare(self, operation: Operation | None, time: int) -> None:
        """Checks that what the operation works on is as the operation before left it, as far as it is needed or has a shadow; at
        the end (None) that all allocations are. Raises TapeError."""
        allocations = self._footprints.worked_on(operation) if operation is not None else self._footprints.allocations.values()
        for a in allocations:
            marks = a.marks[:1] if a.marks and operation is not None and self._renews(operation, a) else a.marks
            if any([fingerprint(a, region) != before for region, before in marks if region.nbytes]):
                where = f"operation {time} ({operation.name}, {operation.where})" if operation else "the end of the recording"
                raise TapeError(
                    f"`{a.name}` was changed between operation {time - 1} and {where} by code that the tape does not see: "
                    "write through the Duplicated (`U[0] = ...`) or by gpuad.ops, or announce it with tape.overwrites()"
                )

    def _renews(self, operation: Operation, a: Allocation) -> bool:
        """True if an operation surely overwrites what is looked at of an allocation, which it does not read: what was there does not matter
        then, but to an exact check."""
        if self._exact or not isinstance(operation, Launched) or any([use.allocation is a for use in operation.reads]):
            return False
        region = a.used - a.needed
        for use in operation.effects.must:
            region = region - use.region if use.allocation is a else region
        return not region

    def mark(self, operation: Operation) -> None:
        """Marks what a change behind the tape would spoil: what an adjoint needs, and what has a shadow, once an operation has met it: that
        the next one finds another value there is not in the gradient."""
        for use in self._footprints.uses(operation):
            a, region = use.allocation, use.region
            if self._looks_at(a):  # what foreign code wrote is overwritten from here on
                foreign = isinstance(operation, Foreign)
                a.used = a.used - region if foreign else a.used | self._judge.shadows.with_shadow(a, region)
        written = {id(use.allocation) for use in operation.effects.writes}
        for a in self._footprints.worked_on(operation):
            if self._looks_at(a):
                needed = a.needed
                known = {} if id(a) in written else dict(a.marks)  # compared as the operation came
                a.marks = tuple([(r, self._fingerprint(a, r, known)) for r in (needed, a.used - needed)])

    @staticmethod
    def _fingerprint(a: Allocation, region: Region, known: Mapping[Region, int]) -> int:
        return 0 if not region.nbytes else known[region] if region in known else fingerprint(a, region)

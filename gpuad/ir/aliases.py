"""Which pointer parameters overlap at a launch: the pattern for which a kernel is lowered.

Overlapping parameters become one buffer, so that every later pass sees one array with element offsets known relative to each other
(RULES.md, rule 3). Parameters not mentioned are taken to be disjoint; whoever launches has to check that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Overlap:
    """Parameter number `position` (from 0) reaches the memory of parameter `base`: at the same address if `equal`, else at an element
    offset that the launch passes as an extra int64 parameter."""

    position: int
    base: int
    equal: bool


@dataclass(frozen=True)
class Aliases:
    """The overlaps of one launch, at most one for each parameter; a base is itself no alias. `absent`: parameters for which it has no
    array, though the kernel may come to an access of it. Hashable."""

    overlaps: tuple[Overlap, ...] = ()
    absent: frozenset[int] = frozenset()

    @classmethod
    def of(cls, overlaps: Mapping[int, tuple[int, bool]], absent: frozenset[int] = frozenset()) -> Aliases:
        """From a mapping of parameter position to (position of the base parameter, equal)."""
        return cls(tuple(Overlap(position, base, equal) for position, (base, equal) in sorted(overlaps.items())), absent)

    def get(self, position: int) -> Overlap | None:
        """The overlap of a parameter, or None if it stands for itself."""
        return next((o for o in self.overlaps if o.position == position), None)


NONE = Aliases()

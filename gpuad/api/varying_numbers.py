"""Whole numbers of which calls of a kernel that are alike otherwise have had several values, as the step's number in a loop over time.

What is proved of a launch as if nothing were known of such a number holds for all its values (`pipeline.at_large`)."""

from __future__ import annotations

from collections.abc import Hashable

from ..pipeline import Call

_MANY = 256  # frames that are remembered


class VaryingNumbers:
    """For each frame of calls (`Call.frame`) the whole numbers of the first, and the positions of those that were others since."""

    def __init__(self) -> None:
        self.known: dict[Hashable, tuple[dict[int, int], frozenset[int]]] = {}

    def of(self, frame: Hashable) -> frozenset[int]:
        """The numbers that have varied."""
        known = self.known.get(frame)
        return known[1] if known is not None else frozenset()

    def including(self, call: Call) -> frozenset[int]:
        """The same for the frame of a call, which may be of other numbers."""
        numbers = call.whole_numbers
        if not numbers:
            return frozenset()
        if len(self.known) >= _MANY and call.frame not in self.known:
            self.known.clear()
        first, varying = self.known.get(call.frame, (numbers, frozenset()))
        varying |= {i for i, n in numbers.items() if first[i] != n}
        self.known[call.frame] = first, varying
        return varying

"""Whether launches touch nothing that another thread of an earlier one writes, nor the other way round (see `chain`). Where threads loop
over elements, that goes for another iteration of the same thread, too."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..analysis.injectivity import Launch as Numbers
from ..analysis.injectivity import Ranges, Reach, Unknown, Walk, may_meet
from ..ir.nodes import Accumulate, Buffer, For, Kernel, Load, Stmt, Store, Take
from ..ir.rewrite import touches
from .chained_kernel import is_sum
from .link import Link, Where, facts, where_of


@dataclass(frozen=True, eq=False)
class Access:
    """What a launch does to elements of an allocation, counted from its beginning: 'reads', 'writes' or 'sums'; `reach`: None if it is not
    known which. Accesses of one geometry with one `key` are the same."""

    kind: str
    reach: Reach | None
    _moved: dict[int, Access] = field(default_factory=dict)
    _met: dict[int, tuple[bool, Access]] = field(default_factory=dict)  # by the other's id, which is kept alive

    @cached_property
    def key(self) -> Hashable:
        if self.reach is None:
            return self.kind
        return self.kind, self.reach.form, tuple(sorted((d.kind, d.axis, d.loop, r) for d, r in self.reach.ranges.items()))

    def moved(self, offset: int) -> Access:
        """The access counted from elsewhere."""
        if self.reach is None or not offset:
            return self
        if offset not in self._moved:
            form = self.reach.form
            self._moved[offset] = Access(self.kind, replace(self.reach, form=replace(form, constant=form.constant + offset)))
        return self._moved[offset]

    def meets(self, other: Access, launch: Numbers) -> bool:
        """Whether an element of one, and another thread's of the other, may be the same, and that matters."""
        if self.kind == other.kind != "writes":
            return False
        if id(other) not in self._met:
            unknown = self.reach is None or other.reach is None
            self._met[id(other)] = unknown or may_meet(self.reach, other.reach, launch, iterations=True), other  # type: ignore[arg-type]
        return self._met[id(other)][0]


class Window:
    """The memory that launches touch which are to be one."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.accesses: dict[Where, dict[Hashable, Access]] = {}
        self.extents: dict[Where, tuple[int, int, bool]] = {}
        self.written: set[Where] = set()

    def takes(self, link: Link) -> bool:
        """Whether one more launch touches nothing that another thread of those before writes, nor the other way round."""
        new: dict[Where, dict[Hashable, Access]] = {}
        touched = _touched(link)
        for param, memory in link.memories():
            found = new.setdefault(where_of(param, memory), {})
            for access in touched[param]:
                moved = access.moved(memory.offset)
                found[moved.key] = moved
        for where, accesses in new.items():
            before = self.accesses.get(where, {}).values()
            if any(a.meets(b, self.numbers) for a in accesses.values() for b in before):
                return False
        changed = {where for where, found in new.items() if any(a.kind != "reads" for a in found.values())}
        if not self.is_of_one_kind(link, changed):
            return False
        self.written |= changed
        for where, accesses in new.items():
            self.accesses.setdefault(where, {}).update(accesses)
        return True

    def is_of_one_kind(self, link: Link, changed: set[Where]) -> bool:
        """Whether memory seen under several types, or through several owners, is only read."""
        for param, memory in link.memories():
            where = where_of(param, memory)
            begin, end = where[0], where[0] + int(memory.root.nbytes)
            for other, (low, high, written) in self.extents.items():
                if other != where and begin < high and low < end and (written or where in changed):
                    return False
            low, high, written = self.extents.get(where, (begin, end, False))
            self.extents[where] = min(low, begin), max(high, end), written or where in changed
        return True


def _touched(link: Link) -> dict[Buffer, tuple[Access, ...]]:
    """For each pointer what happens there."""
    numbers = link.numbers()
    key = "touched", id(link.kernel), link.grid, link.block, tuple(numbers.scalars.values())

    def find() -> Any:
        return {b: _accesses(link.kernel, b, numbers) for b in link.kernel.buffers}, link.kernel

    found: dict[Buffer, tuple[Access, ...]] = facts.get(key, find)[0]
    return found


def _accesses(kernel: Kernel, buffer: Buffer, numbers: Numbers) -> tuple[Access, ...]:
    found: list[Access] = []
    loops = sum(isinstance(s, For) for s in kernel.body)
    for stmt in touches(kernel.body, buffer):
        try:
            reaches = _Only(numbers, buffer, stmt).run(kernel.body)
            found += (Access(_kind(stmt), reach if _loops(reach) == loops else None) for reach in reaches)
        except Unknown:
            found.append(Access(_kind(stmt), None))
    return tuple(found)


def _loops(reach: Reach) -> int:
    """Around how many loops is known how often they run."""
    return sum(d.kind == "loop" for d in reach.ranges)


def _kind(stmt: Stmt) -> str:
    return "reads" if isinstance(stmt, Load) else "sums" if is_sum(stmt) else "writes"


class _Only(Walk):
    """Finds what one statement reaches."""

    def __init__(self, launch: Numbers, buffer: Buffer, wanted: Stmt) -> None:
        super().__init__(launch, frozenset({buffer}))
        self.sought = wanted

    def stmt(self, stmt: Stmt, ranges: Ranges) -> None:
        if isinstance(stmt, Load | Store | Take | Accumulate) and stmt is not self.sought:
            return
        super().stmt(stmt, ranges)

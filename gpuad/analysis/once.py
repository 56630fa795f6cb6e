"""Where the only access to an array surely touches, each element once."""

from __future__ import annotations

from ..ir.nodes import Accumulate, Atomic, Block, Buffer, Load, Stmt, Store, Take
from ..ir.rewrite import touches
from .injectivity import Launch, Ranges, Reach, Unknown
from .races import Certain


def once(body: Block, buffer: Buffer, launch: Launch) -> Reach | None:
    """What the launch touches of the array, if a single statement does, and it is executed exactly once for each combination of the
    reach's digits. None where that is not certain. Whether two combinations meet in one element is left to the caller."""
    found = list(touches(body, buffer))
    return surely(body, found[0], launch) if len(found) == 1 else None


def surely(body: Block, stmt: Stmt, launch: Launch) -> Reach | None:
    """What a statement reaches, if it is executed exactly once for each combination of the reach's digits."""
    walk = _Sole(launch, stmt)
    try:
        walk.run(body)
    except Unknown:
        return None
    if walk.reach is None:
        return None
    digits = {d for d, _ in walk.reach.form.terms}
    counted = all(d in digits or low == high for d, (low, high) in walk.reach.ranges.items() if d.kind in ("global", "loop"))
    return walk.reach if counted and all(d.kind in ("global", "loop") for d in digits) else None


class _Sole(Certain):
    """Finds the reach of one statement, if it is executed for certain."""

    def __init__(self, launch: Launch, wanted: Stmt) -> None:
        super().__init__(launch, frozenset(), frozenset())
        self.sought = wanted
        self.reach: Reach | None = None

    def stmt(self, stmt: Stmt, ranges: Ranges) -> None:
        if stmt is not self.sought:
            super().stmt(stmt, ranges)
            return
        assert isinstance(stmt, Load | Store | Accumulate | Take | Atomic)
        kept: list[tuple[Stmt, Reach]] = []
        if self.certain:
            self.note(kept, stmt, stmt.index, ranges)
        self.reach = kept[0][1] if kept else None

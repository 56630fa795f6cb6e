"""Exact coverage: whether the only access to an array touches each of its elements once.

In: a kernel's body, an array or one of the statements that access it, and a launch's numbers (`affine_forms.Launch`). Out: the `Reach` of
the statement, an affine form over digits of threads and loops with their ranges, if each combination of the form's digits executes it
exactly once; else None. Only what certainly executes counts (`races.Certain`), so a guard or a bound that is not affine gives None. `begun`
does this for the first of several additions, if every thread executes it before the others.

That two combinations name different elements (injectivity) is not part of the result; the caller has to prove it."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.nodes import Accumulate, Atomic, Block, Buffer, If, Load, Stmt, Store, Take
from ..ir.rewrite import touches, walk_stmts
from .affine_forms import Launch, Ranges, Reach, Unknown
from .races import Certain


def covers_exactly_once(body: Block, buffer: Buffer, launch: Launch) -> Reach | None:
    """What the launch touches of the array, if a single statement does, and it is executed exactly once for each combination of the
    reach's digits. None where that is not certain. Whether two combinations meet in one element is left to the caller."""
    found = list(touches(body, buffer))
    return surely(body, found[0], launch) if len(found) == 1 else None


def begun(body: Block, buffer: Buffer, launch: Launch) -> Reach | None:
    """What the first of several statements that add to the array reaches, if it is executed exactly once for each combination of the
    reach's digits, and in each thread before all others. Whether the others reach anything else is left to the caller."""
    found = list(touches(body, buffer))
    if len(found) < 2 or not all(isinstance(s, Accumulate) for s in found) or not _in_turn(body, found[0], found[1:]):
        return None
    return surely(body, found[0], launch)


def _in_turn(block: Block, first: Stmt, others: Sequence[Stmt]) -> bool:
    """True if a thread is done with one statement before it comes to any of the others: no loop has both in it."""
    at = next(k for k, s in enumerate(block) if _has(s, first))
    held = block[at]
    if not any(_has(held, s) for s in others):
        return True  # it is the first in the text
    if not isinstance(held, If):
        return False
    side = held.then if any(_has(s, first) for s in held.then) else held.otherwise
    return all(any(_has(s, other) for s in (*side, *block[at + 1 :])) for other in others) and _in_turn(side, first, others)


def _has(stmt: Stmt, other: Stmt) -> bool:
    return any(s is other for s in walk_stmts((stmt,)))


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

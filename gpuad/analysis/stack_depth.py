"""How deep a stack can get in a launch whose numbers are known: a bound from the trip counts of the loops around its pushes.

Loops whose bounds are launch numbers have a greatest trip count, and so has a while loop that goes by such numbers alone; one that data
end, or a bound that is read from memory, has none, and the depth must then be counted by a kernel.
"""

from __future__ import annotations

from ..ir.nodes import Block, Expr, For, Pop, Push, Stmt, While
from ..ir.rewrite import blocks
from .injectivity import UNBOUNDED, Launch, Ranges, Unknown, Walk
from .trip_counts import passed


def depths(body: Block, launch: Launch) -> dict[int, int | None]:
    """For each stack (by uid) a bound on its entries in one thread, or None. A stack is empty again where the loops common to its pushes
    and its pops begin anew, so only the other loops around a push count."""
    walk = _Depths(launch, shared_loops(body))
    walk.run(body)
    return walk.depths


def shared_loops(body: Block) -> dict[int, frozenset[int]]:
    """For each stack (by uid) the ids of the loops around all of its pushes and pops."""
    around: dict[int, list[frozenset[int]]] = {}

    def visit(block: Block, path: tuple[int, ...]) -> None:
        for stmt in block:
            if isinstance(stmt, Push | Pop):
                around.setdefault(stmt.stack.uid, []).append(frozenset(path))
            inside = (*path, id(stmt)) if isinstance(stmt, For | While) else path
            for inner in blocks(stmt):
                visit(inner, inside)

    visit(body, ())
    return {uid: frozenset.intersection(*paths) for uid, paths in around.items()}


def trips(body: Block, launch: Launch) -> dict[int, int | None]:
    """For each For, by its id, a bound on its iterations in one thread, or None."""
    walk = _Trips(launch)
    walk.run(body)
    return walk.counts


class _Trips(Walk):
    def __init__(self, launch: Launch) -> None:
        super().__init__(launch, frozenset())
        self.counts: dict[int, int | None] = {}

    def loop_body(self, stmt: For, ranges: Ranges, last: int) -> None:
        self.counts[id(stmt)] = last + 1 if last < UNBOUNDED else None
        super().loop_body(stmt, ranges, last)


class _Depths(Walk):
    def __init__(self, launch: Launch, shared: dict[int, frozenset[int]]) -> None:
        super().__init__(launch, frozenset())
        self.shared = shared
        self.depths: dict[int, int | None] = {}
        self.trip_counts: list[tuple[int, int | None]] = []

    def stmt(self, stmt: Stmt, ranges: Ranges) -> None:
        if isinstance(stmt, Push):
            self.push(stmt)
        if isinstance(stmt, While):
            found = passed(stmt, lambda e: self.number(e, ranges))
            self.trip_counts.append((id(stmt), len(found) - 1 if found is not None else None))
        super().stmt(stmt, ranges)
        if isinstance(stmt, While):
            self.trip_counts.pop()

    def number(self, expr: Expr, ranges: Ranges) -> int | None:
        """What an expression is in all threads of the launch, if that is one number."""
        try:
            form = self.form(expr, ranges)
        except Unknown:
            return None
        return None if form.terms else form.constant

    def loop_body(self, stmt: For, ranges: Ranges, last: int) -> None:
        self.trip_counts.append((id(stmt), last + 1 if last < UNBOUNDED else None))
        super().loop_body(stmt, ranges, last)
        self.trip_counts.pop()

    def push(self, stmt: Push) -> None:
        total: int | None = 1
        for loop, trips in self.trip_counts:
            if loop not in self.shared[stmt.stack.uid]:
                total = None if total is None or trips is None else total * trips
        before = self.depths.get(stmt.stack.uid, 0)
        self.depths[stmt.stack.uid] = None if total is None or before is None else before + total

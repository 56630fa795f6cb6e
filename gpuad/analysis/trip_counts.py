"""Trip counts that are known before anything runs: of a For between constants, and of a While whose condition depends only on known
numbers, `for (int d = 16; d > 0; d /= 2)`.

The numbers of such a While start from known ones and are updated from known ones, whatever the data are; they are computed here, iteration
by iteration.

How deep a stack can get in a launch whose numbers are known: a bound from the trip counts of the loops around its pushes.

Loops whose bounds are launch numbers have a greatest trip count, and so has a while loop that goes by such numbers alone; one that data
end, or a bound that is read from memory, has none, and the depth must then be counted by a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ..ir.folding import evaluated, integer, whole
from ..ir.nodes import Block, Constant, Expr, For, LaunchIndex, Let, Pop, Push, Stmt, Var, While, variables, walk
from ..ir.rewrite import blocks, spelled
from .affine_forms import UNBOUNDED, Launch, Ranges, Unknown, Walk

Known: TypeAlias = "Callable[[Expr], int | None]"  # the value of a Var from before the loop, or of an index of the launch
Values: TypeAlias = "Mapping[Expr, int]"

_MOST = 64  # iterations; a loop that has more takes too long to go through


def constant_range(start: Expr, stop: Expr, step: Expr) -> range | None:
    """The values that a For's index takes, if its bounds are constants."""
    match start, stop, step:
        case Constant(value=a), Constant(value=z), Constant(value=s) if s:
            return range(int(a), int(z), int(s))
    return None


def constant_trips(loop: For | While) -> int | None:
    """How many iterations a For between constants makes."""
    found = constant_range(loop.start, loop.stop, loop.step) if isinstance(loop, For) else None
    return None if found is None else len(found)


def passed(loop: While, known: Known) -> list[Values] | None:
    """What the loop's known numbers are at the start of each iteration, and after the last; None where it does not depend on them alone, or
    runs for long."""
    lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
    before = {leaf: value for leaf in _leaves(loop, lets) if (value := known(leaf)) is not None}
    first = {c.var: value for c in loop.carried if c.var.type.is_integer and (value := _value(c.init, before)) is not None}
    following = _following(loop, lets, first, before)
    found: list[Values] = [{v: first[v] for v in following}]
    while not loop.header and len(found) <= _MOST:
        now = found[-1]
        here = {**before, **now}
        goes_on = _value(loop.condition, here)
        if not goes_on:
            return found if goes_on is not None else None
        then: dict[Expr, int] = {v: value for v, e in following.items() if (value := _value(e, here)) is not None}
        if len(then) < len(now):
            return None
        found.append(then)
    return None


def _leaves(loop: While, lets: Mapping[Var, Expr]) -> set[Expr]:
    """The Vars and indices that its condition, its carried numbers, and what the body makes of them, speak of."""
    exprs = [loop.condition, *(e for c in loop.carried for e in (c.init, c.next)), *lets.values()]
    own = {*(c.var for c in loop.carried), *lets}
    return {e for expr in exprs for e in walk(expr) if isinstance(e, Var | LaunchIndex) and e not in own}


def _following(loop: While, lets: Mapping[Var, Expr], first: Mapping[Var, int], before: Values) -> dict[Var, Expr]:
    """The carried numbers that depend on nothing but each other and what was known before, with what they are in the next iteration."""
    found = {c.var: full for c in loop.carried if c.var in first and (full := spelled(c.next, lets)) is not None}
    while loose := [v for v, e in found.items() if any(u not in found and u not in before for u in variables(e))]:
        found = {v: e for v, e in found.items() if v not in loose}
    return found


def _value(expr: Expr, values: Values) -> int | None:
    """The value of an integer, or of a truth, as the kernel computes it; None where that is not known, or not defined."""
    return whole(evaluated(expr, {leaf: integer(value, leaf.type) for leaf, value in values.items()}))


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
        super().loop_body(stmt, ranges, max(last, 0))
        self.trip_counts.pop()

    def push(self, stmt: Push) -> None:
        total: int | None = 1
        for loop, trips in self.trip_counts:
            if loop not in self.shared[stmt.stack.uid]:
                total = None if total is None or trips is None else total * trips
        before = self.depths.get(stmt.stack.uid, 0)
        self.depths[stmt.stack.uid] = None if total is None or before is None else before + total

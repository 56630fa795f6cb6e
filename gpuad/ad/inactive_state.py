"""Inactive state that a loop carries along, such as that of a random number generator, and what the derivative uses of it.

To reverse an iteration its inactive part is run again from the state at its start, which has to be recorded. It may take fewer bytes to
record the results that the active part uses: one normal number in place of a generator of six integers. Which of the two is less is tried
(`recording`); here are the statements whose results stand between the parts.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..analysis.activity import Activity
from ..ir.nodes import Block, Carried, For, If, Kernel, Let, Load, Stmt, Var, While, variables
from ..ir.rewrite import blocks, defined, expressions, walk_stmts
from .forward_sweep import closed_form


def frontiers(primal: Kernel, activity: Activity) -> Iterator[frozenset[int]]:
    """For each loop that lies in no other and carries inactive state: the ids of the statements of its body that compute from that state
    what active statements use."""
    for loop in _outermost(primal.body):
        state = {c.var for c in loop.carried if c.var not in activity.varied and closed_form(loop, c) is None}
        found = _frontier(loop.body, loop.carried, state, activity) if state else frozenset()
        if found:
            yield found


def _outermost(block: Block) -> Iterator[For | While]:
    for stmt in block:
        if isinstance(stmt, For | While):
            yield stmt
        elif isinstance(stmt, If):
            yield from _outermost((*stmt.then, *stmt.otherwise))


def _frontier(body: Block, carried: tuple[Carried, ...], state: set[Var], activity: Activity) -> frozenset[int]:
    made: dict[Var, int] = {}  # inactive values that depend on the state, and the statement of each
    wanted: set[Var] = set()
    for stmt in body:
        used = _used(stmt) & (state | made.keys())
        if used and _is_inactive(stmt, activity):
            made |= dict.fromkeys(defined(stmt), id(stmt))
        else:
            wanted |= used
    wanted |= {v for c in carried if c.var in activity.varied for v in variables(c.next)}
    return frozenset(made[v] for v in wanted if v in made)


def _used(stmt: Stmt) -> set[Var]:
    return {v for s in walk_stmts((stmt,)) for e in expressions(s) for v in variables(e)}


def _is_inactive(stmt: Stmt, activity: Activity) -> bool:
    """Whether a statement only computes, and nothing that the derivative follows."""
    inner = [stmt, *(s for block in blocks(stmt) for s in walk_stmts(block))]
    return all(isinstance(s, Let | Load | If | For | While) and not any(v in activity.varied for v in defined(s)) for s in inner)

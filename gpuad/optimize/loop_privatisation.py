"""Moves variables into the loop in which every iteration gives them a value before it uses them, as those that come from an array declared
at the top."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from ..ir.nodes import Assign, Block, For, Let, Stmt, Var, While, variables
from ..ir.rewrite import expressions, map_blocks, named, walk_stmts


def inward(block: Block, candidates: Set[Var]) -> Block:
    """The block with those of the candidates further inside for which that is so; each starts with a Let of a constant and is assigned
    to."""
    out: list[Stmt | None] = list(block)
    uses = [set(_named((stmt,))) for stmt in block]
    for at, stmt in enumerate(block):
        if isinstance(stmt, Let) and stmt.var in candidates:
            users = [k for k, found in enumerate(uses) if k != at and stmt.var in found]
            moved = _into(out[users[0]], stmt.var) if len(users) == 1 else None
            if moved is not None:
                out[at], out[users[0]] = None, moved
    return tuple(map_blocks(stmt, lambda inner: inward(inner, candidates)) for stmt in out if stmt is not None)


def _into(loop: Stmt | None, var: Var) -> Stmt | None:
    """The loop with the variable as one of its body's."""
    if not isinstance(loop, For | While) or any(var in variables(e) for e in expressions(loop)):
        return None
    if isinstance(loop, While) and var in _named(loop.header):
        return None
    at, first = next((k, s) for k, s in enumerate(loop.body) if var in _named((s,)))
    if not isinstance(first, Assign) or first.var != var or var in variables(first.value):
        return None
    start = Let(var, first.value, span=first.span, note=first.note)
    return replace(loop, body=(*loop.body[:at], start, *loop.body[at + 1 :]))


def _named(block: Block) -> Iterator[Var]:
    """The variables that the statements use or assign to."""
    return (v for stmt in walk_stmts(block) for v in named(stmt))

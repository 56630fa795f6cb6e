"""Removes barriers that separate nothing.

The forward sweep and its mirror repeat every barrier of the primal, also where what they ordered is gone. A barrier stays only if memory
that other threads see has been touched since the last one, and will be touched again, at least once by a write.

Assumes and guarantees: valid IR.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from ..ir.nodes import Accumulate, Atomic, Barrier, Block, Buffer, For, How, If, Load, Stmt, Store, Take, While
from ..ir.rewrite import blocks, walk_stmts
from ..ir.types import Space

Touched: TypeAlias = "frozenset[tuple[Buffer, str]]"  # how: 'read', 'write' or 'atomic'

NOTHING: Touched = frozenset()


def thin(body: Block) -> Block:
    """The body without the barriers that separate nothing."""
    if not any(isinstance(s, Barrier) for s in walk_stmts(body)):
        return body
    return _block(body, NOTHING, NOTHING)[0]


def holds_barrier(stmt: Stmt) -> bool:
    """Whether the statement is or contains a barrier of a block."""
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return any(isinstance(s, Barrier) and s.scope == "block" for s in (stmt, *inner))


def _block(block: Block, since: Touched, after: Touched) -> tuple[Block, Touched]:
    """The thinned block, and what has been touched since the last barrier at its end. `since`: the same at its start; `after`: what will
    be touched after it."""
    later = [after]
    for stmt in reversed(block):
        later.append(later[-1] | _touched(stmt))
    later.reverse()
    out: list[Stmt] = []
    for position, stmt in enumerate(block):
        match stmt:
            case Barrier(scope=scope):
                if _conflict(since, later[position + 1]):
                    out.append(stmt)
                    since = NOTHING if scope == "block" else since
            case If() | For() | While():
                stmt, since = _control(stmt, since, later[position + 1])
                out.append(stmt)
            case _:
                out.append(stmt)
                since |= _touched(stmt)
    return tuple(out), since


def _control(stmt: If | For | While, since: Touched, after: Touched) -> tuple[Stmt, Touched]:
    if not any(isinstance(s, Barrier) for block in blocks(stmt) for s in walk_stmts(block)):
        return stmt, since | _touched(stmt)
    if isinstance(stmt, If):
        then, first = _block(stmt.then, since, after)
        otherwise, second = _block(stmt.otherwise, since, after)
        return replace(stmt, then=then, otherwise=otherwise), first | second
    own = _touched(stmt)
    body, _ = _block(stmt.body, since | own, after | own)
    return replace(stmt, body=body), since | own


def _touched(stmt: Stmt) -> Touched:
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return frozenset(t for s in (stmt, *inner) for t in _access(s))


def _access(stmt: Stmt) -> tuple[tuple[Buffer, str], ...]:
    if not isinstance(stmt, Load | Store | Accumulate | Take | Atomic) or stmt.buffer.space is Space.LOCAL:
        return ()
    if isinstance(stmt, Load):
        return ((stmt.buffer, "read"),)
    adds = isinstance(stmt, Accumulate) and stmt.how is not How.PLAIN
    return ((stmt.buffer, "atomic" if adds else "write"),)


def _conflict(before: Touched, after: Touched) -> bool:
    return any(a == b and not (how == other != "write") for a, how in before for b, other in after)

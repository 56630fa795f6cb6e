"""Removes barriers that separate nothing.

The forward sweep and its mirror repeat every barrier of the primal, also where what they ordered is gone. A barrier stays only if memory
that other threads see has been touched since the last one, and will be touched again, at least once by a write.

Assumes and guarantees: valid IR.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from ..ir.nodes import Accumulate, Alloc, Atomic, Barrier, Block, Buffer, For, How, If, Load, Shuffle, Stmt, Store, Take, While
from ..ir.rewrite import blocks, walk_stmts
from ..ir.types import Space

Memory: TypeAlias = "Buffer | tuple[str, int | None]"  # shared arrays by name and length: copies of one are one (`tiles.share`)
Touched: TypeAlias = "frozenset[tuple[Memory, str]]"  # how: 'read', 'write' or 'atomic'

NOTHING: Touched = frozenset()


def waits(body: Block) -> bool:
    """Whether threads wait for one another, or share memory of their block."""
    return any(isinstance(s, Barrier | Shuffle) or (isinstance(s, Alloc) and s.buffer.space is Space.SHARED) for s in walk_stmts(body))


def remove_redundant_barriers(body: Block) -> Block:
    """The body without the barriers that separate nothing."""
    if not any(isinstance(s, Barrier) for s in walk_stmts(body)):
        return body
    return _block(body, NOTHING, NOTHING)[0]


def holds_barrier(stmt: Stmt) -> bool:
    """Whether the statement is or contains a barrier of a block."""
    return barrier_in(stmt) == "block"


def barrier_in(stmt: Stmt) -> str | None:
    """The widest scope of the barriers in a statement, None if there are none."""
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    scopes = {s.scope for s in (stmt, *inner) if isinstance(s, Barrier)}
    return min(scopes, default=None)  # 'block' comes before 'warp'


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


def _access(stmt: Stmt) -> tuple[tuple[Memory, str], ...]:
    if not isinstance(stmt, Load | Store | Accumulate | Take | Atomic) or stmt.buffer.space is Space.LOCAL:
        return ()
    buffer = stmt.buffer
    memory = (buffer.name, buffer.length) if buffer.space is Space.SHARED else buffer
    if isinstance(stmt, Load):
        return ((memory, "read"),)
    adds = isinstance(stmt, Accumulate) and stmt.how is not How.PLAIN
    return ((memory, "atomic" if adds else "write"),)


def _conflict(before: Touched, after: Touched) -> bool:
    return any(a == b and not (how == other != "write") for a, how in before for b, other in after)

"""Moves a local array into the loop that builds it anew in every iteration.

C users declare their arrays at the top. If each iteration of a loop stores every element that it reads before it reads it, the array
belongs to the iteration: no value of it crosses from one to the next, and the reverse pass may build it again instead of recording it
(CASES 13). Proved where the first statements that touch the array store constant indices, or loop over constant ranges of them.

Assumes and guarantees: valid IR with unique definitions.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.index_polynomials import constant, polynomial, split
from ..ir.nodes import Accumulate, Alloc, Atomic, Block, Buffer, Constant, For, If, Kernel, Load, Stmt, Store, Take, While
from ..ir.rewrite import blocks, walk_stmts
from ..ir.types import Space


def sink(kernel: Kernel) -> Kernel:
    """The kernel with each local array declared as far inside as it can be."""
    return replace(kernel, body=_block(kernel.body))


def _block(block: Block) -> Block:
    for at, stmt in enumerate(block):
        if isinstance(stmt, Alloc) and not stmt.zero and stmt.buffer.space is Space.LOCAL:
            users = [i for i, s in enumerate(block) if i != at and _touches(s, stmt.buffer)]
            moved = _into(block[users[0]], stmt) if len(users) == 1 else None
            if moved is not None:
                rest = (*block[: users[0]], moved, *block[users[0] + 1 :])
                return _block(tuple(s for s in rest if s is not stmt))
    return tuple(_descend(s) for s in block)


def _descend(stmt: Stmt) -> Stmt:
    match stmt:
        case If(then=a, otherwise=b):
            return replace(stmt, then=_block(a), otherwise=_block(b))
        case For(body=body) | While(body=body):
            return replace(stmt, body=_block(body))
    return stmt


def _into(stmt: Stmt, alloc: Alloc) -> Stmt | None:
    """The control statement with the array declared inside, or None if that would change what it holds."""
    buffer = alloc.buffer
    match stmt:
        case If(then=a, otherwise=b) if not (_any(a, buffer) and _any(b, buffer)):
            return replace(stmt, then=(alloc, *a)) if _any(a, buffer) else replace(stmt, otherwise=(alloc, *b))
        case For(body=body) if _built_first(body, buffer):
            return replace(stmt, body=(alloc, *body))
        case While(header=header, body=body) if not _any(header, buffer) and _built_first(body, buffer):
            return replace(stmt, body=(alloc, *body))
    return None


def _built_first(body: Block, buffer: Buffer) -> bool:
    """Whether the block stores every element before it may read any."""
    assert buffer.length is not None
    stored: set[int] = set()
    for stmt in body:
        if len(stored) == buffer.length:
            return True
        if _reads(stmt, buffer):
            return False
        stored |= _surely_stored(stmt, buffer)
    return True


def built(body: Block, buffer: Buffer) -> bool:
    """Whether the block surely stores every element."""
    stored = {place for stmt in body for place in _surely_stored(stmt, buffer)}
    return buffer.length is not None and stored >= set(range(buffer.length))


def _surely_stored(stmt: Stmt, buffer: Buffer) -> set[int]:
    match stmt:
        case Store(buffer=b, index=Constant(value=v)) if b == buffer:
            return {int(v)}
        case For(start=Constant(value=a), stop=Constant(value=z), step=Constant(value=s)):
            values = range(int(a), int(z), int(s))
            return {v for inner in stmt.body for v in _stored_over(inner, buffer, stmt, values)}
    return set()


def _stored_over(stmt: Stmt, buffer: Buffer, loop: For, values: range) -> set[int]:
    """The indices that a statement of a loop's body stores to in all iterations together."""
    if not isinstance(stmt, Store) or stmt.buffer != buffer:
        return set()
    parts = split(polynomial(stmt.index, {}), loop.var)
    slope, shift = (constant(p) for p in parts) if parts else (None, None)
    return {slope * v + shift for v in values} if slope is not None and shift is not None else set()


def _any(block: Block, buffer: Buffer) -> bool:
    return any(_touches(s, buffer) for s in block)


def _touches(stmt: Stmt, buffer: Buffer) -> bool:
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return any(isinstance(s, Load | Store | Accumulate | Take | Atomic) and s.buffer == buffer for s in (stmt, *inner))


def _reads(stmt: Stmt, buffer: Buffer) -> bool:
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return any(isinstance(s, Load | Accumulate | Take | Atomic) and s.buffer == buffer for s in (stmt, *inner))

"""Tiles in shared memory that each iteration of a loop fills anew: they belong to the iteration.

`split` moves the declaration of such an array into the loop, so that the reverse pass fills the tile again in each reversed iteration
instead of recording what was read from it. Whether an iteration really stores all that it reads depends on the block's extents
(`analysis.must_define`): it is a premise that each launch checks. `share` undoes the move in the adjoint, where the forward sweep and the
reversed loop have a copy each: they take turns in one array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..ir.nodes import Alloc, Block, Buffer, For, If, Kernel, Stmt, While
from ..ir.rewrite import map_blocks, touches, walk_stmts
from ..ir.types import Space
from .barriers import holds_barrier


def split(kernel: Kernel) -> Kernel:
    """The kernel with each shared array that only one loop with barriers uses declared in that loop."""
    body = kernel.body
    for stmt in reversed(kernel.body):
        if isinstance(stmt, Alloc) and is_shared(stmt):
            moved = _moved(tuple(s for s in body if s is not stmt), stmt)
            body = moved if moved is not None else body
    return replace(kernel, body=body)


def tiles(kernel: Kernel) -> Iterator[tuple[For | While, Buffer]]:
    """The shared arrays that are declared in loops, with the loops."""
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, For | While):
            yield from ((stmt, s.buffer) for s in stmt.body if isinstance(s, Alloc) and is_shared(s))


def is_shared(stmt: Stmt) -> bool:
    """Whether the statement makes a shared array."""
    return isinstance(stmt, Alloc) and stmt.buffer.space is Space.SHARED


def _moved(block: Block, alloc: Alloc) -> Block | None:
    """The block with the array declared in the innermost loop with barriers that has all its uses; None without such a loop."""
    users = [i for i, s in enumerate(block) if any(touches((s,), alloc.buffer))]
    if len(users) != 1:
        return None
    stmt = block[users[0]]
    inside = _into(stmt, alloc)
    return None if inside is None else (*block[: users[0]], inside, *block[users[0] + 1 :])


def _into(stmt: Stmt, alloc: Alloc) -> Stmt | None:
    match stmt:
        case If(then=a, otherwise=z):
            first, second = (any(touches(side, alloc.buffer)) for side in (a, z))
            if first and second:
                return None
            moved = _moved(a if first else z, alloc)
            if moved is None:
                return None
            return replace(stmt, then=moved) if first else replace(stmt, otherwise=moved)
        case For(body=body) | While(body=body) if holds_barrier(stmt):
            if isinstance(stmt, While) and any(touches(stmt.header, alloc.buffer)):
                return None
            return replace(stmt, body=_moved(body, alloc) or (alloc, *body))
    return None


def share(body: Block, stands_for: Mapping[Buffer, Buffer]) -> Block:
    """The body with one declaration of each shared array, at its start; arrays that stand for one of the primal are that one."""

    def original(buffer: Buffer) -> Buffer:
        while buffer in stands_for:
            buffer = stands_for[buffer]
        return buffer

    made: dict[Buffer, Alloc] = {}

    def block(stmts: Block) -> Block:
        out: list[Stmt] = []
        for stmt in stmts:
            buffer = getattr(stmt, "buffer", None)
            if isinstance(buffer, Buffer) and buffer.space is Space.SHARED:
                stmt = replace(stmt, buffer=original(buffer))  # type: ignore[call-arg]
            if isinstance(stmt, Alloc) and is_shared(stmt) and not stmt.zero:
                made.setdefault(stmt.buffer, stmt)
                continue
            out.append(map_blocks(stmt, block))
        return tuple(out)

    rest = block(body)
    return (*made.values(), *rest)

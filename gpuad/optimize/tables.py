"""Constant tables: local arrays that hold the same numbers at every read, `const float c[5] = {-2.8f, 1.6f, ...}`.

Parts of a kernel that other threads run, or that run in another order, need them as they are; so they are taken out of its body, to be made
at the beginning of whatever reads them.
"""

from __future__ import annotations

from ..ir.nodes import Alloc, Block, Buffer, Constant, Expr, LaunchIndex, Load, Store, Var, walk
from ..ir.rewrite import edit, walk_blocks, walk_stmts
from ..ir.types import Space


def inline_constant_tables(body: Block) -> tuple[Block, Block]:
    """What makes the tables of a body, and the body without that."""
    found = {s.buffer for s in walk_stmts(body) if isinstance(s, Alloc) and s.buffer.space is Space.LOCAL and _is_table(body, s.buffer)}
    making = tuple(s for s in walk_stmts(body) if isinstance(s, Alloc | Store) and s.buffer in found)
    return making, edit(body, lambda s: () if isinstance(s, Alloc | Store) and s.buffer in found else None)


def making(tables: Block, block: Block) -> Block:
    """What makes those of the tables that a block reads."""
    read = {s.buffer for s in walk_stmts(block) if isinstance(s, Load)}
    return tuple(s for s in tables if isinstance(s, Alloc | Store) and s.buffer in read)


def _is_table(body: Block, array: Buffer) -> bool:
    """Whether the array is made once in the text, and each element is then given a constant, once, before anything is read."""
    touching = [s for s in walk_stmts(body) if getattr(s, "buffer", None) == array]
    first, *rest = touching
    stores = [s for s in rest if isinstance(s, Store)]
    block = next(b for b in walk_blocks(body) if any(s is first for s in b))
    beside = {id(s) for s in block}
    return (
        isinstance(first, Alloc)
        and rest[: len(stores)] == stores
        and all(isinstance(s, Load) for s in rest[len(stores) :])
        and all(id(s) in beside and isinstance(s.index, Constant) and _is_constant(s.value) for s in stores)
        and len({s.index for s in stores}) == len(stores)
        and (first.zero or len(stores) == array.length)
    )


def _is_constant(value: Expr) -> bool:
    return not any(isinstance(e, Var | LaunchIndex) for e in walk(value))

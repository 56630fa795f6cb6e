"""Privatisation: moves arrays and variables into the loop whose iterations define them before each use.

C users declare their arrays at the top. If each iteration of a loop stores every element before it reads it, no value crosses from one
iteration to the next, and the reverse pass may recompute the array instead of recording it (CASES 13). For a thread's arrays
(`privatise_arrays`) that is proved where the first statements that touch the array store constant indices, or loop over constant ranges of
them; for scalars that came from arrays (`privatise_scalars`) where the first statement that names them assigns to them.

A tile in shared memory is moved likewise (`privatise_tiles`). Whether an iteration stores all that it reads depends on the block's extents
(`analysis.must_define`), so it is a premise that each launch checks. `share_tiles` undoes the move in the adjoint, where the forward sweep
and the reversed loop would have a copy each: they take turns in one array.

Assumes and guarantees: valid IR with unique definitions.

Constant tables: local arrays that hold the same numbers at every read, `const float c[5] = {-2.8f, 1.6f, ...}`.

Parts of a kernel that other threads run, or that run in another order, need them as they are; so they are taken out of its body, to be made
at the beginning of whatever reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

from ..analysis.index_polynomials import constant, polynomial, split
from ..ir import nodes as ir
from ..ir.rewrite import blocks, edit, expressions, map_blocks, named, touches, walk_blocks, walk_stmts
from ..ir.shared import is_shared
from ..ir.types import Space
from .dead_code import holds_barrier


def privatise_arrays(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with each local array declared as far inside as it can be."""
    return replace(kernel, body=_block(kernel.body))


def _block(block: ir.Block) -> ir.Block:
    for at, stmt in enumerate(block):
        if isinstance(stmt, ir.Alloc) and not stmt.zero and stmt.buffer.space is Space.LOCAL:
            users = [i for i, s in enumerate(block) if i != at and _touches(s, stmt.buffer)]
            moved = _into(block[users[0]], stmt) if len(users) == 1 else None
            if moved is not None:
                rest = (*block[: users[0]], moved, *block[users[0] + 1 :])
                return _block(tuple(s for s in rest if s is not stmt))
    return tuple(_descend(s) for s in block)


def _descend(stmt: ir.Stmt) -> ir.Stmt:
    match stmt:
        case ir.If(then=a, otherwise=b):
            return replace(stmt, then=_block(a), otherwise=_block(b))
        case ir.For(body=body) | ir.While(body=body):
            return replace(stmt, body=_block(body))
    return stmt


def _into(stmt: ir.Stmt, alloc: ir.Alloc) -> ir.Stmt | None:
    """The control statement with the array declared inside, or None if that would change what it holds."""
    buffer = alloc.buffer
    match stmt:
        case ir.If(then=a, otherwise=b) if not (_any(a, buffer) and _any(b, buffer)):
            return replace(stmt, then=(alloc, *a)) if _any(a, buffer) else replace(stmt, otherwise=(alloc, *b))
        case ir.For(body=body) if _built_first(body, buffer):
            return replace(stmt, body=(alloc, *body))
        case ir.While(header=header, body=body) if not _any(header, buffer) and _built_first(body, buffer):
            return replace(stmt, body=(alloc, *body))
    return None


def _built_first(body: ir.Block, buffer: ir.Buffer) -> bool:
    """True if the block stores every element before it may read any."""
    assert buffer.length is not None
    stored: set[int] = set()
    for stmt in body:
        if len(stored) == buffer.length:
            return True
        if _reads(stmt, buffer):
            return False
        stored |= _surely_stored(stmt, buffer)
    return True


def built(body: ir.Block, buffer: ir.Buffer) -> bool:
    """True if the block surely stores every element."""
    stored = {place for stmt in body for place in _surely_stored(stmt, buffer)}
    return buffer.length is not None and stored >= set(range(buffer.length))


def _surely_stored(stmt: ir.Stmt, buffer: ir.Buffer) -> set[int]:
    match stmt:
        case ir.Store(buffer=b, index=ir.Constant(value=v)) if b == buffer:
            return {int(v)}
        case ir.For(start=ir.Constant(value=a), stop=ir.Constant(value=z), step=ir.Constant(value=s)):
            values = range(int(a), int(z), int(s))
            return {v for inner in stmt.body for v in _stored_over(inner, buffer, stmt, values)}
    return set()


def _stored_over(stmt: ir.Stmt, buffer: ir.Buffer, loop: ir.For, values: range) -> set[int]:
    """The indices that a statement of a loop's body stores to in all iterations together."""
    if not isinstance(stmt, ir.Store) or stmt.buffer != buffer:
        return set()
    parts = split(polynomial(stmt.index, {}), loop.var)
    slope, shift = (constant(p) for p in parts) if parts else (None, None)
    return {slope * v + shift for v in values} if slope is not None and shift is not None else set()


def _any(block: ir.Block, buffer: ir.Buffer) -> bool:
    return any(_touches(s, buffer) for s in block)


def _touches(stmt: ir.Stmt, buffer: ir.Buffer) -> bool:
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return any(isinstance(s, ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic) and s.buffer == buffer for s in (stmt, *inner))


def _reads(stmt: ir.Stmt, buffer: ir.Buffer) -> bool:
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return any(isinstance(s, ir.Load | ir.Accumulate | ir.Take | ir.Atomic) and s.buffer == buffer for s in (stmt, *inner))


def privatise_scalars(block: ir.Block, candidates: Set[ir.Var]) -> ir.Block:
    """The block with those of the candidates further inside for which that is so; each starts with a Let of a constant and is assigned
    to."""
    out: list[ir.Stmt | None] = list(block)
    uses = [set(_named((stmt,))) for stmt in block]
    for at, stmt in enumerate(block):
        if isinstance(stmt, ir.Let) and stmt.var in candidates:
            users = [k for k, found in enumerate(uses) if k != at and stmt.var in found]
            moved = _into_loop(out[users[0]], stmt.var) if len(users) == 1 else None
            if moved is not None:
                out[at], out[users[0]] = None, moved
    return tuple(map_blocks(stmt, lambda inner: privatise_scalars(inner, candidates)) for stmt in out if stmt is not None)


def _into_loop(loop: ir.Stmt | None, var: ir.Var) -> ir.Stmt | None:
    """The loop with the variable as one of its body's."""
    if not isinstance(loop, ir.For | ir.While) or any(var in ir.variables(e) for e in expressions(loop)):
        return None
    if isinstance(loop, ir.While) and var in _named(loop.header):
        return None
    at, first = next((k, s) for k, s in enumerate(loop.body) if var in _named((s,)))
    if not isinstance(first, ir.Assign) or first.var != var or var in ir.variables(first.value):
        return None
    start = ir.Let(var, first.value, span=first.span, note=first.note)
    return replace(loop, body=(*loop.body[:at], start, *loop.body[at + 1 :]))


def _named(block: ir.Block) -> Iterator[ir.Var]:
    """The variables that the statements use or assign to."""
    return (v for stmt in walk_stmts(block) for v in named(stmt))


def privatise_tiles(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with each shared array that only one loop with barriers uses declared in that loop."""
    body = kernel.body
    for stmt in reversed(kernel.body):
        if isinstance(stmt, ir.Alloc) and is_shared(stmt):
            moved = _moved(tuple(s for s in body if s is not stmt), stmt)
            body = moved if moved is not None else body
    return replace(kernel, body=body)


def tiles(kernel: ir.Kernel) -> Iterator[tuple[ir.For | ir.While, ir.Buffer]]:
    """The shared arrays that are declared in loops, with the loops."""
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, ir.For | ir.While):
            yield from ((stmt, s.buffer) for s in stmt.body if isinstance(s, ir.Alloc) and is_shared(s))


def _moved(block: ir.Block, alloc: ir.Alloc) -> ir.Block | None:
    """The block with the array declared in the innermost loop with barriers that has all its uses; None without such a loop."""
    users = [i for i, s in enumerate(block) if any(touches((s,), alloc.buffer))]
    if len(users) != 1:
        return None
    stmt = block[users[0]]
    inside = _into_tile_loop(stmt, alloc)
    return None if inside is None else (*block[: users[0]], inside, *block[users[0] + 1 :])


def _into_tile_loop(stmt: ir.Stmt, alloc: ir.Alloc) -> ir.Stmt | None:
    match stmt:
        case ir.If(then=a, otherwise=z):
            first, second = (any(touches(side, alloc.buffer)) for side in (a, z))
            if first and second:
                return None
            moved = _moved(a if first else z, alloc)
            if moved is None:
                return None
            return replace(stmt, then=moved) if first else replace(stmt, otherwise=moved)
        case ir.For(body=body) | ir.While(body=body) if holds_barrier(stmt):
            if isinstance(stmt, ir.While) and any(touches(stmt.header, alloc.buffer)):
                return None
            return replace(stmt, body=_moved(body, alloc) or (alloc, *body))
    return None


def share_tiles(body: ir.Block, stands_for: Mapping[ir.Buffer, ir.Buffer]) -> ir.Block:
    """The body with one declaration of each shared array, at its start; arrays that stand for one of the primal are that one."""

    def original(buffer: ir.Buffer) -> ir.Buffer:
        while buffer in stands_for:
            buffer = stands_for[buffer]
        return buffer

    made: dict[ir.Buffer, ir.Alloc] = {}

    def change(stmt: ir.Stmt) -> ir.Block | None:
        buffer = getattr(stmt, "buffer", None)
        if not isinstance(buffer, ir.Buffer) or buffer.space is not Space.SHARED:
            return None
        stmt = replace(stmt, buffer=original(buffer))  # type: ignore[call-arg]
        if isinstance(stmt, ir.Alloc) and is_shared(stmt) and not stmt.zero:
            made.setdefault(stmt.buffer, stmt)
            return ()
        return (stmt,)

    rest = edit(body, change)
    return (*made.values(), *rest)


def inline_constant_tables(body: ir.Block) -> tuple[ir.Block, ir.Block]:
    """What makes the tables of a body, and the body without that."""
    found = {s.buffer for s in walk_stmts(body) if isinstance(s, ir.Alloc) and s.buffer.space is Space.LOCAL and _is_table(body, s.buffer)}
    making = tuple(s for s in walk_stmts(body) if isinstance(s, ir.Alloc | ir.Store) and s.buffer in found)
    return making, edit(body, lambda s: () if isinstance(s, ir.Alloc | ir.Store) and s.buffer in found else None)


def making(tables: ir.Block, block: ir.Block) -> ir.Block:
    """What makes those of the tables that a block reads."""
    read = {s.buffer for s in walk_stmts(block) if isinstance(s, ir.Load)}
    return tuple(s for s in tables if isinstance(s, ir.Alloc | ir.Store) and s.buffer in read)


def _is_table(body: ir.Block, array: ir.Buffer) -> bool:
    """True if the array is made once in the text, and each element is then given a constant, once, before anything is read."""
    touching = [s for s in walk_stmts(body) if getattr(s, "buffer", None) == array]
    first, *rest = touching
    stores = [s for s in rest if isinstance(s, ir.Store)]
    block = next(b for b in walk_blocks(body) if any(s is first for s in b))
    beside = {id(s) for s in block}
    return (
        isinstance(first, ir.Alloc)
        and rest[: len(stores)] == stores
        and all(isinstance(s, ir.Load) for s in rest[len(stores) :])
        and all(id(s) in beside and isinstance(s.index, ir.Constant) and _is_constant(s.value) for s in stores)
        and len({s.index for s in stores}) == len(stores)
        and (first.zero or len(stores) == array.length)
    )


def _is_constant(value: ir.Expr) -> bool:
    return not any(isinstance(e, ir.Var | ir.LaunchIndex) for e in ir.walk(value))

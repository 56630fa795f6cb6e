"""Makes a kernel shorter without changing what it computes.

On primals, `forward_stores` hands a value that was just stored to the load that reads it back. On adjoints, `simplify` removes
loop-carried values that never change, copies, and temporaries of the reverse pass that are used once. Float arithmetic is never
reordered. Names that the user gave are kept: only variables with a uid from `first_own` on, which a pass of ours made, are inlined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ..ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Barrier,
    Block,
    Buffer,
    Constant,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Stmt,
    Store,
    Take,
    Var,
    While,
    variables,
)
from ..ir.rewrite import blocks, expressions, map_blocks, map_stmt_exprs, substitute, substituted, touches, walk_stmts
from ..ir.types import Space


def simplify(body: Block, first_own: int) -> Block:
    """The body with constant carried values, copies and single-use temporaries of ours gone, to a fixpoint."""
    while True:
        simpler = _inline(_copies(_named_inits(body)), first_own)
        if simpler == body:
            return body
        body = simpler


# --- copies --------------------------------------------------------------------------------------------------------------------------


def _copies(body: Block) -> Block:
    """Removes what is only another name for a variable or a constant: `Let v = w`, merges whose two sides are one value, and carried values
    that no iteration changes. Since every definition has its own variable, the name it stands for is visible wherever it is."""
    mapping: dict[Var, Expr] = {}
    fixed = _mutable(body)
    for stmt in walk_stmts(body):
        match stmt:
            case Let(var=var, value=Var() | Constant() as value) if var not in fixed and value not in fixed:
                mapping[var] = value
            case If(merges=merges):
                mapping |= {m.var: m.then for m in merges if m.then == m.otherwise and isinstance(m.then, Var | Constant)}
            case For(carried=carried) | While(carried=carried):
                for c in carried:
                    if c.next == c.var and isinstance(c.init, Var | Constant):
                        mapping |= {c.var: c.init, c.result: c.init}
    return _without(body, _resolved(mapping)) if mapping else body


def _mutable(body: Block) -> set[Expr]:
    return {s.var for s in walk_stmts(body) if isinstance(s, Assign)}


def _resolved(mapping: dict[Var, Expr]) -> dict[Var, Expr]:
    """The mapping with chains of copies followed to their end."""
    resolved: dict[Var, Expr] = {}
    for var in mapping:
        value: Expr = var
        while isinstance(value, Var) and value in mapping:
            value = mapping[value]
        resolved[var] = value
    return resolved


def _without(block: Block, mapping: dict[Var, Expr]) -> Block:
    out: list[Stmt] = []
    for stmt in block:
        match stmt:
            case Let(var=var) if var in mapping:
                continue
            case If(merges=merges):
                stmt = replace(stmt, merges=tuple(m for m in merges if m.var not in mapping))
            case For(carried=carried) | While(carried=carried):
                stmt = replace(stmt, carried=tuple(c for c in carried if c.var not in mapping))
        stmt = map_stmt_exprs(stmt, lambda e: substitute(e, mapping))
        stmt = map_blocks(stmt, lambda inner: _without(inner, mapping))
        if not _empty(stmt):
            out.append(stmt)
    return tuple(out)


def _empty(stmt: Stmt) -> bool:
    return isinstance(stmt, If) and not (stmt.then or stmt.otherwise or stmt.merges)


def _named_inits(block: Block) -> Block:
    """The init of a carried value that no iteration changes gets a name before the loop, so that `_copies` can remove the carried value."""
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, For | While):
            same = [c for c in stmt.carried if c.next == c.var and not isinstance(c.init, Var | Constant)]
            out.extend(Let(c.result, c.init, span=stmt.span) for c in same)
            kept = tuple(c for c in stmt.carried if c not in same)
            inner: dict[Var, Expr] = {c.var: c.result for c in same}
            stmt = substituted(replace(stmt, carried=kept), inner)
        out.append(map_blocks(stmt, _named_inits))
    return tuple(out)


# --- single uses ---------------------------------------------------------------------------------------------------------------------


def _inline(body: Block, first_own: int) -> Block:
    """Puts a temporary of ours that is used once at its use, unless that would move it into a loop."""
    uses: Counter[Var] = Counter()
    for stmt in walk_stmts(body):
        for expr in expressions(stmt):
            uses.update(variables(expr))
    fixed = _mutable(body)
    wanted = {
        s.var
        for s in walk_stmts(body)
        if isinstance(s, Let) and s.var.uid >= first_own and uses[s.var] == 1 and fixed.isdisjoint((s.var, *variables(s.value)))
    }
    return _inline_block(body, wanted)


def _inline_block(block: Block, wanted: set[Var]) -> Block:
    out: list[Stmt] = []
    pending: dict[Var, Let] = {}
    for stmt in block:
        used = set(_used(stmt))
        if isinstance(stmt, For | While):
            out.extend(pending.pop(v) for v in list(pending) if v in set(_used_repeatedly(stmt)))
        stmt = substituted(stmt, {v: let.value for v, let in pending.items() if v in used})
        for v in used:
            pending.pop(v, None)
        if isinstance(stmt, Let) and stmt.var in wanted:
            pending[stmt.var] = stmt
            continue
        out.append(map_blocks(stmt, lambda b: _inline_block(b, wanted)))
    return (*out, *pending.values())  # the one use of what is left is outside: a merge, a carried value


def _used(stmt: Stmt) -> Iterator[Var]:
    """The Vars used in a statement or inside it."""
    inner = (s for b in blocks(stmt) for s in walk_stmts(b))
    return (v for s in (stmt, *inner) for e in expressions(s) for v in variables(e))


def _used_repeatedly(loop: For | While) -> Iterator[Var]:
    """The Vars that a loop uses in every iteration."""
    yield from (v for b in blocks(loop) for s in b for v in _used(s))
    yield from (v for c in loop.carried for v in variables(c.next))
    if isinstance(loop, While):
        yield from variables(loop.condition)


# --- stores and loads of the primal --------------------------------------------------------------------------------------------------


def forward_stores(kernel: Kernel) -> Kernel:
    """A load of an address that the same block has just loaded or stored to takes that value, if nothing could have written there in
    between."""
    return replace(kernel, body=_copies(_forward(kernel.body)))


def forward_arrays(body: Block) -> Block:
    """Loads of a thread's own arrays in an adjoint take what was stored; nothing is stored to one in its block after the last load."""
    return _copies(_unread(_forward(body, own=True)))


def _is_own(buffer: Buffer) -> bool:
    return buffer.space is Space.LOCAL


def _misses(stmt: Stmt, index: Expr) -> bool:
    """Whether a store is to another element than that at the index, as two numbers show."""
    return isinstance(stmt, Store) and isinstance(stmt.index, Constant) and isinstance(index, Constant) and stmt.index != index


def _forward(block: Block, *, own: bool = False) -> Block:
    """`own`: of arrays of the thread only."""
    out: list[Stmt] = []
    known: dict[tuple[Buffer, Expr], Expr] = {}
    for stmt in block:
        match stmt:
            case Load(var=var, buffer=b, index=i) if (b, i) in known and known[b, i].type == var.type:
                out.append(Let(var, known[b, i], span=stmt.span))
                continue
            case Load(var=var, buffer=b, index=i):
                if _is_own(b) or not own:
                    known[b, i] = var
            case _:
                written = _written(stmt)
                known = {} if _waits(stmt) else {k: v for k, v in known.items() if k[0] not in written or (own and _misses(stmt, k[1]))}
                if isinstance(stmt, Store) and isinstance(stmt.value, Var | Constant) and (_is_own(stmt.buffer) or not own):
                    known[stmt.buffer, stmt.index] = stmt.value
        out.append(map_blocks(stmt, lambda inner: _forward(inner, own=own)))
    return tuple(out)


def _unread(block: Block) -> Block:
    out: list[Stmt] = [map_blocks(s, _unread) for s in block]
    for array in (s.buffer for s in block if isinstance(s, Alloc) and _is_own(s.buffer)):
        last = max((k for k, s in enumerate(out) if any(isinstance(t, Load | Take | Atomic) for t in touches((s,), array))), default=-1)
        out[last + 1 :] = _without_stores(tuple(out[last + 1 :]), array)
    return tuple(out)


def _without_stores(block: Block, array: Buffer) -> Block:
    kept = (s for s in block if not (isinstance(s, Store | Accumulate) and s.buffer == array))
    return tuple(map_blocks(s, lambda inner: _without_stores(inner, array)) for s in kept)


def _waits(stmt: Stmt) -> bool:
    """Whether other threads may write before the statement is done."""
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return any(isinstance(s, Barrier) for s in (stmt, *inner))


def _written(stmt: Stmt) -> set[Buffer]:
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return {s.buffer for s in (stmt, *inner) if isinstance(s, Store | Accumulate | Atomic | Take)}

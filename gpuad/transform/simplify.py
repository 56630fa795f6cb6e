"""Makes a kernel shorter without changing what it computes.

On primals, `forward_stores` hands a value that was just stored to the load that reads it back. On adjoints, `simplify` removes loop-carried
values that never change, copies, and temporaries of the reverse pass that are used once. Float arithmetic is never reordered. Names that the user
gave are kept: only variables with a uid from `first_own` on, which a pass of ours made, are inlined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ..ir.nodes import (
    Accumulate,
    Atomic,
    Barrier,
    Block,
    Buffer,
    Carried,
    Constant,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Merge,
    Stmt,
    Store,
    Take,
    Var,
    While,
    variables,
)
from ..ir.rewrite import blocks, defined, expressions, map_blocks, map_stmt_exprs, substitute, walk_stmts


def simplify(body: Block, first_own: int) -> Block:
    """The body with constant carried values, copies and single-use temporaries of ours gone, to a fixpoint."""
    while True:
        simpler = _inline(_copies(_invariant(body)), first_own)
        if simpler == body:
            return body
        body = simpler


# --- carried values that never change ------------------------------------------------------------------------------------------------


def _invariant(block: Block) -> Block:
    """A carried value whose next is itself is its init, before, during and after the loop."""
    out: list[Stmt] = []
    mapping: dict[Var, Expr] = {}
    for stmt in block:
        stmt = _substituted(stmt, mapping)
        if isinstance(stmt, For | While):
            fixed = [c for c in stmt.carried if c.next == c.var]
            inner = {c.var: c.init for c in fixed if isinstance(c.init, Var | Constant)}
            gone = [c for c in fixed if c.var in inner]
            mapping |= {c.result: c.init for c in gone}
            kept = tuple(c for c in stmt.carried if c not in gone)
            stmt = _substituted(replace(stmt, carried=kept), inner)
            lets, stmt = _name_inits(stmt)
            out.extend(lets)
        out.append(map_blocks(stmt, _invariant))
    return tuple(out)


def _name_inits(loop: For | While) -> tuple[Block, For | While]:
    """A longer init of an unchanging value is named before the loop, so that the next round can remove it."""
    lets: list[Stmt] = []
    carried: list[Carried] = []
    for c in loop.carried:
        if c.next == c.var and not isinstance(c.init, Var | Constant):
            lets.append(Let(c.result, c.init, span=loop.span))
            fresh = Var(c.result.name, c.result.type, -c.result.uid)
            carried.append(Carried(c.var, c.result, c.var, fresh))
        else:
            carried.append(c)
    return tuple(lets), replace(loop, carried=tuple(carried))


def _substituted(stmt: Stmt, mapping: dict[Var, Expr]) -> Stmt:
    """The statement and all inside it with the Vars replaced."""
    if not mapping:
        return stmt
    stmt = map_stmt_exprs(stmt, lambda e: substitute(e, mapping))
    return map_blocks(stmt, lambda block: tuple(_substituted(s, mapping) for s in block))


# --- copies --------------------------------------------------------------------------------------------------------------------------


def _copies(block: Block) -> Block:
    """Removes `Let v = w` and `Let v = constant` (v is never assigned again), and merges whose two sides are one value."""
    out: list[Stmt] = []
    mapping: dict[Var, Expr] = {}
    for stmt in block:
        stmt = _substituted(stmt, mapping)
        if isinstance(stmt, Let) and isinstance(stmt.value, Var | Constant):
            mapping[stmt.var] = stmt.value
            continue
        if isinstance(stmt, If):
            same = [m for m in stmt.merges if m.then == m.otherwise and isinstance(m.then, Var | Constant) and not _made_inside(stmt, m)]
            mapping |= {m.var: m.then for m in same}
            stmt = replace(stmt, merges=tuple(m for m in stmt.merges if m not in same))
            if not stmt.then and not stmt.otherwise and not stmt.merges:
                continue
        out.append(_propagate_out(map_blocks(stmt, _copies), stmt))
    return tuple(out)


def _propagate_out(new: Stmt, old: Stmt) -> Stmt:
    """Copies removed inside a block are also replaced where the block's results are named (merges, carried, a while's condition)."""
    mapping: dict[Var, Expr] = {}
    for block in blocks(old):
        running: dict[Var, Expr] = {}
        for s in block:
            s = map_stmt_exprs(s, lambda e: substitute(e, running))  # noqa: B023
            if isinstance(s, Let) and isinstance(s.value, Var | Constant):
                running[s.var] = s.value
        mapping |= running
    return map_stmt_exprs(new, lambda e: substitute(e, mapping)) if mapping else new


def _made_inside(stmt: If, merge: Merge) -> bool:
    return any(v in set(_defined_inside(stmt)) for v in variables(merge.then))


def _defined_inside(stmt: Stmt) -> list[Var]:
    return [v for block in blocks(stmt) for s in walk_stmts(block) for v in defined(s)]


# --- single uses ---------------------------------------------------------------------------------------------------------------------


def _inline(body: Block, first_own: int) -> Block:
    """Puts a temporary of ours that is used once at its use, unless that would move it into a loop."""
    uses: Counter[Var] = Counter()
    for stmt in walk_stmts(body):
        for expr in expressions(stmt):
            uses.update(variables(expr))
    return _inline_block(body, uses, first_own)


def _inline_block(block: Block, uses: Counter[Var], first_own: int) -> Block:
    out: list[Stmt] = []
    pending: dict[Var, Let] = {}
    for stmt in block:
        used = set(_used(stmt))
        if isinstance(stmt, For | While):
            out.extend(pending.pop(v) for v in list(pending) if v in set(_used_repeatedly(stmt)))
        stmt = _substituted(stmt, {v: let.value for v, let in pending.items() if v in used})
        for v in used:
            pending.pop(v, None)
        if isinstance(stmt, Let) and stmt.var.uid >= first_own and uses[stmt.var] == 1:
            pending[stmt.var] = stmt
            continue
        out.append(map_blocks(stmt, lambda b: _inline_block(b, uses, first_own)))
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
    """A load of the address that the same block has just stored to takes the stored value, if nothing could have written there in between."""
    return replace(kernel, body=_forward(kernel.body))


def _forward(block: Block) -> Block:
    out: list[Stmt] = []
    known: dict[Buffer, tuple[Expr, Expr]] = {}
    for stmt in block:
        match stmt:
            case Load(var=var, buffer=b, index=i) if b in known and known[b][0] == i and known[b][1].type == var.type:
                out.append(Let(var, known[b][1], span=stmt.span))
                continue
            case Store(buffer=b, index=i, value=value):
                known[b] = (i, value)
            case _:
                for written in _written(stmt):
                    known.pop(written, None)
                if isinstance(stmt, Barrier):
                    known.clear()
        out.append(map_blocks(stmt, _forward))
    return tuple(out)


def _written(stmt: Stmt) -> set[Buffer]:
    inner = (s for block in blocks(stmt) for s in walk_stmts(block))
    return {s.buffer for s in (stmt, *inner) if isinstance(s, Store | Accumulate | Atomic | Take)}

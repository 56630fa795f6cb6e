"""Copy propagation, store-to-load forwarding, and removal of invariant carried values, single-use temporaries and single-iteration loops.

On primals, `forward_stores` hands a value that was just stored to the load that reads it back. On adjoints, `simplify` removes loop-carried
values that never change, copies, and temporaries of the reverse pass that are used once. Float arithmetic is never reordered. Names that
the user gave are kept: only variables with a uid from `first_own` on, which a pass of ours made, are inlined.

`for (k...) if (k == at) ...` becomes its body for k = at (`unwrap_single_iterations`), after the proofs about the launch, which understand
the loop. That assumes that every accumulation is decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import (
    assigned_vars,
    blocks,
    edit,
    holds,
    map_blocks,
    map_stmt_exprs,
    substitute,
    substituted,
    touches,
    used_vars,
    walk_stmts,
    written_in,
)
from ..ir.types import BOOL, Space


def simplify(body: ir.Block, first_own: int) -> ir.Block:
    """The body with constant carried values, copies and single-use temporaries of ours gone, to a fixpoint."""
    while True:
        simpler = _inline(_copies(_named_inits(body)), first_own)
        if simpler == body:
            return body
        body = simpler


# --- copies --------------------------------------------------------------------------------------------------------------------------


def _copies(body: ir.Block) -> ir.Block:
    """Removes what is only another name for a variable or a constant: `Let v = w`, merges whose two sides are one value, and carried values
    that no iteration changes. Since every definition has its own variable, the name it stands for is visible wherever it is."""
    mapping: dict[ir.Var, ir.Expr] = {}
    fixed: frozenset[ir.Expr] = assigned_vars(body)
    for stmt in walk_stmts(body):
        match stmt:
            case ir.Let(var=var, value=ir.Var() | ir.Constant() as value) if var not in fixed and value not in fixed:
                mapping[var] = value
            case ir.If(merges=merges):
                mapping |= {m.var: m.then for m in merges if m.then == m.otherwise and isinstance(m.then, ir.Var | ir.Constant)}
            case ir.For(carried=carried) | ir.While(carried=carried):
                for c in carried:
                    if c.next == c.var and isinstance(c.init, ir.Var | ir.Constant):
                        mapping |= {c.var: c.init, c.result: c.init}
    return _without(body, _resolved(mapping)) if mapping else body


def _resolved(mapping: dict[ir.Var, ir.Expr]) -> dict[ir.Var, ir.Expr]:
    """The mapping with chains of copies followed to their end."""
    resolved: dict[ir.Var, ir.Expr] = {}
    for var in mapping:
        value: ir.Expr = var
        while isinstance(value, ir.Var) and value in mapping:
            value = mapping[value]
        resolved[var] = value
    return resolved


def _without(block: ir.Block, mapping: dict[ir.Var, ir.Expr]) -> ir.Block:
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.Let(var=var) if var in mapping:
                continue
            case ir.If(merges=merges):
                stmt = replace(stmt, merges=tuple(m for m in merges if m.var not in mapping))
            case ir.For(carried=carried) | ir.While(carried=carried):
                stmt = replace(stmt, carried=tuple(c for c in carried if c.var not in mapping))
        stmt = map_stmt_exprs(stmt, lambda e: substitute(e, mapping))
        stmt = map_blocks(stmt, lambda inner: _without(inner, mapping))
        if not _empty(stmt):
            out.append(stmt)
    return tuple(out)


def _empty(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.If) and not (stmt.then or stmt.otherwise or stmt.merges)


def _named_inits(block: ir.Block) -> ir.Block:
    """The init of a carried value that no iteration changes gets a name before the loop, so that `_copies` can remove the carried value."""
    out: list[ir.Stmt] = []
    for stmt in block:
        if isinstance(stmt, ir.For | ir.While):
            same = [c for c in stmt.carried if c.next == c.var and not isinstance(c.init, ir.Var | ir.Constant)]
            out.extend(ir.Let(c.result, c.init, span=stmt.span) for c in same)
            kept = tuple(c for c in stmt.carried if c not in same)
            inner: dict[ir.Var, ir.Expr] = {c.var: c.result for c in same}
            stmt = substituted(replace(stmt, carried=kept), inner)
        out.append(map_blocks(stmt, _named_inits))
    return tuple(out)


# --- single uses ---------------------------------------------------------------------------------------------------------------------


def _inline(body: ir.Block, first_own: int) -> ir.Block:
    """Puts a temporary of ours that is used once at its use, unless that would move it into a loop."""
    uses = Counter(used_vars(body))
    fixed: frozenset[ir.Expr] = assigned_vars(body)
    wanted = {
        s.var
        for s in walk_stmts(body)
        if isinstance(s, ir.Let) and s.var.uid >= first_own and uses[s.var] == 1 and fixed.isdisjoint((s.var, *ir.variables(s.value)))
    }
    return _inline_block(body, wanted)


def _inline_block(block: ir.Block, wanted: set[ir.Var]) -> ir.Block:
    out: list[ir.Stmt] = []
    pending: dict[ir.Var, ir.Let] = {}
    for stmt in block:
        used = set(used_vars((stmt,)))
        if isinstance(stmt, ir.For | ir.While):
            out.extend(pending.pop(v) for v in list(pending) if v in set(_used_repeatedly(stmt)))
        stmt = substituted(stmt, {v: let.value for v, let in pending.items() if v in used})
        for v in used:
            pending.pop(v, None)
        if isinstance(stmt, ir.Let) and stmt.var in wanted:
            pending[stmt.var] = stmt
            continue
        out.append(map_blocks(stmt, lambda b: _inline_block(b, wanted)))
    return (*out, *pending.values())  # the one use of what is left is outside: a merge, a carried value


def _used_repeatedly(loop: ir.For | ir.While) -> Iterator[ir.Var]:
    """The Vars that a loop uses in every iteration."""
    yield from (v for block in blocks(loop) for v in used_vars(block))
    yield from (v for c in loop.carried for v in ir.variables(c.next))
    if isinstance(loop, ir.While):
        yield from ir.variables(loop.condition)


# --- stores and loads of the primal --------------------------------------------------------------------------------------------------


def forward_stores(kernel: ir.Kernel) -> ir.Kernel:
    """A load of an address that the same block has just loaded or stored to takes that value, if nothing could have written there in
    between."""
    return replace(kernel, body=_copies(_forward(kernel.body)))


def forward_arrays(body: ir.Block) -> ir.Block:
    """Loads of a thread's own arrays in an adjoint take what was stored; nothing is stored to one in its block after the last load."""
    return _copies(_unread(_forward(body, own=True)))


def _is_own(buffer: ir.Buffer) -> bool:
    return buffer.space is Space.LOCAL


def _misses(stmt: ir.Stmt, index: ir.Expr) -> bool:
    """True if a store is to another element than that at the index, as two numbers show."""
    return isinstance(stmt, ir.Store) and isinstance(stmt.index, ir.Constant) and isinstance(index, ir.Constant) and stmt.index != index


def _forward(block: ir.Block, *, own: bool = False) -> ir.Block:
    """`own`: of arrays of the thread only."""
    out: list[ir.Stmt] = []
    known: dict[tuple[ir.Buffer, ir.Expr], ir.Expr] = {}
    for stmt in block:
        match stmt:
            case ir.Load(var=var, buffer=b, index=i) if (b, i) in known and known[b, i].type == var.type:
                out.append(ir.Let(var, known[b, i], span=stmt.span))
                continue
            case ir.Load(var=var, buffer=b, index=i):
                if _is_own(b) or not own:
                    known[b, i] = var
            case _:
                written = written_in((stmt,))
                known = {k: v for k, v in known.items() if k[0] not in written or (own and _misses(stmt, k[1]))}
                if holds((stmt,), ir.Barrier):  # other threads may write before the statement is done
                    known = {}
                if isinstance(stmt, ir.Store) and isinstance(stmt.value, ir.Var | ir.Constant) and (_is_own(stmt.buffer) or not own):
                    known[stmt.buffer, stmt.index] = stmt.value
        out.append(map_blocks(stmt, lambda inner: _forward(inner, own=own)))
    return tuple(out)


def _store_to(array: ir.Buffer, stmt: ir.Stmt) -> tuple[()] | None:
    return () if isinstance(stmt, ir.Store | ir.Accumulate) and stmt.buffer == array else None


def _unread(block: ir.Block) -> ir.Block:
    out: list[ir.Stmt] = [map_blocks(s, _unread) for s in block]
    for array in (s.buffer for s in block if isinstance(s, ir.Alloc) and _is_own(s.buffer)):
        last = max(
            (k for k, s in enumerate(out) if any(isinstance(t, ir.Load | ir.Take | ir.Atomic) for t in touches((s,), array))), default=-1
        )
        out[last + 1 :] = edit(tuple(out[last + 1 :]), partial(_store_to, array))
    return tuple(out)


# --- loops of which one iteration does anything ----------------------------------------------------------------------------------------


def unwrap_single_iterations(block: ir.Block) -> ir.Block:
    """The block without loops of which one iteration alone does anything: that iteration, if it is reached."""
    return tuple(_unwrapped(map_blocks(stmt, unwrap_single_iterations)) for stmt in block)


def _unwrapped(stmt: ir.Stmt) -> ir.Stmt:
    inner = stmt.body[0] if isinstance(stmt, ir.For) and len(stmt.body) == 1 else None
    if not isinstance(stmt, ir.For) or not isinstance(inner, ir.If) or not isinstance(stmt.step, ir.Constant) or inner.otherwise:
        return stmt
    at, more = _only_iteration(inner.condition, stmt)
    merges = {m.var: m for m in inner.merges}
    idle = all(isinstance(c.next, ir.Var) and c.next in merges and merges[c.next].otherwise == c.var for c in stmt.carried)
    changed = assigned_vars(inner.then)
    if at is None or not idle or not changed.isdisjoint(ir.variables(inner.condition)):
        return stmt
    values = {v: e for v, e in ((stmt.var, at), *((c.var, c.init) for c in stmt.carried))}
    lets = tuple(ir.Let(v, e) for v, e in values.items() if not isinstance(e, ir.Var | ir.Constant))
    values = {v: e for v, e in values.items() if isinstance(e, ir.Var | ir.Constant)}
    ends = tuple(
        ir.Merge(c.result, substitute(merges[c.next].then, values), c.init)
        for c in stmt.carried
        if c.result is not None and isinstance(c.next, ir.Var)
    )
    condition = b.both(more, _is_reached(at, stmt, int(stmt.step.value)))
    assert condition is not None
    return replace(inner, condition=condition, then=(*lets, *(substituted(s, values) for s in inner.then)), merges=ends)


def _only_iteration(condition: ir.Expr, loop: ir.For) -> tuple[ir.Expr | None, ir.Expr | None]:
    """The number that the loop's variable has to be for the condition to hold, and what else has to hold."""
    bound = {loop.var, *(c.var for c in loop.carried)}
    match condition:
        case ir.Binary(op="==", left=left, right=right) if left == loop.var and bound.isdisjoint(ir.variables(right)):
            return right, None
        case ir.Binary(op="&&", left=more, right=right) if bound.isdisjoint(ir.variables(more)):
            at, other = _only_iteration(right, loop)
            return at, b.both(more, other)
    return None, None


def _is_reached(at: ir.Expr, loop: ir.For, step: int) -> ir.Expr:
    """Whether the loop's variable comes by a number."""
    first, last = (">=", "<") if step > 0 else ("<=", ">")
    inside = ir.Binary("&&", b.compare(first, at, loop.start), b.compare(last, at, loop.stop), BOOL)
    if abs(step) == 1:
        return inside
    rest = ir.Binary("%", ir.Binary("-", at, loop.start, at.type), ir.Constant(abs(step), at.type), at.type)
    return ir.Binary("&&", inside, b.compare("==", rest, ir.Constant(0, at.type)), BOOL)

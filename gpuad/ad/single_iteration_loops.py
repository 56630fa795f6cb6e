"""Goes straight to the one iteration of a loop that does something: `for (k...) if (k == at) ...`.

Proofs about a launch understand the loop (`chosen` writes it so): which elements its iterations touch. What runs needs no loop.

Assumes and guarantees: valid IR with unique definitions, every accumulation decided.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import build as b
from ..ir.nodes import Assign, Binary, Block, Constant, Expr, For, If, Let, Merge, Stmt, Var, variables
from ..ir.rewrite import map_blocks, substitute, substituted, walk_stmts
from ..ir.types import BOOL


def direct(block: Block) -> Block:
    """The block without such loops."""
    return tuple(_stmt(map_blocks(stmt, direct)) for stmt in block)


def _stmt(stmt: Stmt) -> Stmt:
    inner = stmt.body[0] if isinstance(stmt, For) and len(stmt.body) == 1 else None
    if not isinstance(stmt, For) or not isinstance(inner, If) or not isinstance(stmt.step, Constant) or inner.otherwise:
        return stmt
    at, more = _iteration(inner.condition, stmt)
    merges = {m.var: m for m in inner.merges}
    idle = all(isinstance(c.next, Var) and c.next in merges and merges[c.next].otherwise == c.var for c in stmt.carried)
    changed = {s.var for s in walk_stmts(inner.then) if isinstance(s, Assign)}
    if at is None or not idle or not changed.isdisjoint(variables(inner.condition)):
        return stmt
    values = {v: e for v, e in ((stmt.var, at), *((c.var, c.init) for c in stmt.carried))}
    lets = tuple(Let(v, e) for v, e in values.items() if not isinstance(e, Var | Constant))
    values = {v: e for v, e in values.items() if isinstance(e, Var | Constant)}
    ends = tuple(
        Merge(c.result, substitute(merges[c.next].then, values), c.init)
        for c in stmt.carried
        if c.result is not None and isinstance(c.next, Var)
    )
    condition = b.both(more, _reached(at, stmt, int(stmt.step.value)))
    assert condition is not None
    return replace(inner, condition=condition, then=(*lets, *(substituted(s, values) for s in inner.then)), merges=ends)


def _iteration(condition: Expr, loop: For) -> tuple[Expr | None, Expr | None]:
    """The number that the loop's variable has to be for the condition to hold, and what else has to hold."""
    bound = {loop.var, *(c.var for c in loop.carried)}
    match condition:
        case Binary(op="==", left=left, right=right) if left == loop.var and bound.isdisjoint(variables(right)):
            return right, None
        case Binary(op="&&", left=more, right=right) if bound.isdisjoint(variables(more)):
            at, other = _iteration(right, loop)
            return at, b.both(more, other)
    return None, None


def _reached(at: Expr, loop: For, step: int) -> Expr:
    """Whether the loop's variable comes by a number."""
    first, last = (">=", "<") if step > 0 else ("<=", ">")
    inside = Binary("&&", b.compare(first, at, loop.start), b.compare(last, at, loop.stop), BOOL)
    if abs(step) == 1:
        return inside
    rest = Binary("%", Binary("-", at, loop.start, at.type), Constant(abs(step), at.type), at.type)
    return Binary("&&", inside, b.compare("==", rest, Constant(0, at.type)), BOOL)

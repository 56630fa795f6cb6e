"""Loops of the reverse sweep that run in the primal's order, where iterations commute.

Iterations commute if none reads what another writes: sums into shadows, values of each iteration's own element. Then the primal's header
serves; it needs no division for the trip count and reads memory in ascending order.

Assumes and guarantees: valid IR with unique definitions. Sums are formed in another order.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.index_polynomials import Polynomial, atoms, constant, definitions, occurs, polynomial, split, strides
from ..ir import nodes as ir
from ..ir.rewrite import bound_in, expressions, map_blocks, walk_stmts


def run_forwards(body: ir.Block) -> ir.Block:
    """The body with every backward loop that may run forward turned round."""
    lets = definitions(body)
    return tuple(_stmt(s, lets) for s in body)


def _stmt(stmt: ir.Stmt, lets: dict[ir.Var, ir.Expr]) -> ir.Stmt:
    if isinstance(stmt, ir.For) and stmt.backward and _commutes(stmt, lets):
        stmt = replace(stmt, backward=False)
    return map_blocks(stmt, lambda block: tuple(_stmt(s, lets) for s in block))


def _commutes(loop: ir.For, lets: dict[ir.Var, ir.Expr]) -> bool:
    inside = tuple(walk_stmts(loop.body))
    if any(isinstance(s, ir.Push | ir.Pop | ir.Assign | ir.Atomic | ir.Barrier | ir.Shuffle) for s in inside):
        return False
    if not all(_is_sum(c, loop, inside) for c in loop.carried):
        return False
    return all(_separate(loop, buffer, inside, lets) for buffer in _written(inside))


def _is_sum(carried: ir.Carried, loop: ir.For, inside: tuple[ir.Stmt, ...]) -> bool:
    """True if the carried value only collects: nothing else looks at it, not what another one will be either, and it is one of the addends
    of its own next value."""
    elsewhere = [*(e for s in inside for e in expressions(s)), *(c.next for c in loop.carried if c is not carried)]
    looked_at = any(v == carried.var for e in elsewhere for v in ir.variables(e))
    return not looked_at and carried.var.type.is_float and _adds_once(carried.next, carried.var)


def _adds_once(expr: ir.Expr, var: ir.Var) -> bool:
    if expr == var:
        return True
    if not isinstance(expr, ir.Binary) or expr.op not in "+-":
        return False
    left = sum(1 for v in ir.variables(expr.left) if v == var)
    right = sum(1 for v in ir.variables(expr.right) if v == var)
    if left + right != 1:
        return False
    return _adds_once(expr.left, var) if left else expr.op == "+" and _adds_once(expr.right, var)


def _written(inside: tuple[ir.Stmt, ...]) -> set[ir.Buffer]:
    return {s.buffer for s in inside if isinstance(s, ir.Store | ir.Accumulate | ir.Take)}


def _separate(loop: ir.For, buffer: ir.Buffer, inside: tuple[ir.Stmt, ...], lets: dict[ir.Var, ir.Expr]) -> bool:
    """True if iterations only add to the buffer, or each touches an element of its own."""
    touches = [s for s in inside if isinstance(s, ir.Load | ir.Store | ir.Accumulate | ir.Take) and s.buffer == buffer]
    if all(isinstance(s, ir.Accumulate) for s in touches):
        return True
    forms = [polynomial(s.index, lets) for s in touches]
    return all(f == forms[0] for f in forms) and _moves(forms[0], loop)


def _moves(form: Polynomial, loop: ir.For) -> bool:
    parts = split(form, loop.var)
    slope = constant(parts[0]) if parts is not None else None
    if slope is None or not strides(slope):
        return False
    varying = bound_in(loop) - {loop.var}
    return not any(occurs(a, v) for a in atoms(form) for v in varying)

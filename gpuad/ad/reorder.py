"""Runs a reversed loop in the primal's order where its iterations commute.

A reversed loop needs its order only if one iteration reads what another writes. Where it does not (sums into shadows, values of each
iteration's own element), the primal's own loop header serves: it needs no division for the trip count, reads memory in the direction in
which it lies, and reads like the loop that the user wrote.

Assumes and guarantees: valid IR with unique definitions. Sums are formed in another order.
"""

from __future__ import annotations

from dataclasses import replace

from ..analysis.index_polynomials import atoms, constant, definitions, occurs, polynomial, split, strides
from ..analysis.to_be_recorded import bound_in
from ..ir.nodes import (
    Accumulate,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Block,
    Buffer,
    Carried,
    Expr,
    For,
    Load,
    Pop,
    Push,
    Shuffle,
    Stmt,
    Store,
    Take,
    Var,
    variables,
)
from ..ir.polynomials import Polynomial
from ..ir.rewrite import expressions, map_blocks, walk_stmts


def reorder(body: Block) -> Block:
    """The body with every backward loop that may run forward turned round."""
    lets = definitions(body)
    return tuple(_stmt(s, lets) for s in body)


def _stmt(stmt: Stmt, lets: dict[Var, Expr]) -> Stmt:
    if isinstance(stmt, For) and stmt.backward and _commutes(stmt, lets):
        stmt = replace(stmt, backward=False)
    return map_blocks(stmt, lambda block: tuple(_stmt(s, lets) for s in block))


def _commutes(loop: For, lets: dict[Var, Expr]) -> bool:
    inside = tuple(walk_stmts(loop.body))
    if any(isinstance(s, Push | Pop | Assign | Atomic | Barrier | Shuffle) for s in inside):
        return False
    if not all(_is_sum(c, loop, inside) for c in loop.carried):
        return False
    return all(_separate(loop, buffer, inside, lets) for buffer in _written(inside))


def _is_sum(carried: Carried, loop: For, inside: tuple[Stmt, ...]) -> bool:
    """Whether the carried value only collects: nothing else looks at it, not what another one will be either, and it is one of the addends
    of its own next value."""
    elsewhere = [*(e for s in inside for e in expressions(s)), *(c.next for c in loop.carried if c is not carried)]
    looked_at = any(v == carried.var for e in elsewhere for v in variables(e))
    return not looked_at and carried.var.type.is_float and _adds_once(carried.next, carried.var)


def _adds_once(expr: Expr, var: Var) -> bool:
    if expr == var:
        return True
    if not isinstance(expr, Binary) or expr.op not in "+-":
        return False
    left = sum(1 for v in variables(expr.left) if v == var)
    right = sum(1 for v in variables(expr.right) if v == var)
    if left + right != 1:
        return False
    return _adds_once(expr.left, var) if left else expr.op == "+" and _adds_once(expr.right, var)


def _written(inside: tuple[Stmt, ...]) -> set[Buffer]:
    return {s.buffer for s in inside if isinstance(s, Store | Accumulate | Take)}


def _separate(loop: For, buffer: Buffer, inside: tuple[Stmt, ...], lets: dict[Var, Expr]) -> bool:
    """Whether iterations only add to the buffer, or each touches an element of its own."""
    touches = [s for s in inside if isinstance(s, Load | Store | Accumulate | Take) and s.buffer == buffer]
    if all(isinstance(s, Accumulate) for s in touches):
        return True
    forms = [polynomial(s.index, lets) for s in touches]
    return all(f == forms[0] for f in forms) and _moves(forms[0], loop)


def _moves(form: Polynomial, loop: For) -> bool:
    parts = split(form, loop.var)
    slope = constant(parts[0]) if parts is not None else None
    if slope is None or not strides(slope):
        return False
    varying = bound_in(loop) - {loop.var}
    return not any(occurs(a, v) for a in atoms(form) for v in varying)

"""Makes a kernel that was put together from copies of one piece shorter: what copies have in common is computed once.

Assumes and guarantees: valid IR with unique definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..analysis.affine import Polynomial, plus, scale, times
from ..ir import build as b
from ..ir.nodes import Binary, Block, Constant, Expr, If, Let, Stmt, Var, variables
from ..ir.rewrite import map_blocks, map_expr, map_stmt_exprs, rebuild, substitute
from ..ir.types import BOOL, I32
from . import fold
from .globally import assigned


def shared(body: Block) -> Block:
    """Integers and conditions that were computed before, around, are not computed again; an index that lies next to one of these is
    written so."""
    return _share(body, {}, {}, {}, assigned(body))


def _share(block: Block, known: dict[Expr, Var], forms: dict[Var, Polynomial], renamed: dict[Var, Expr], mutable: frozenset[Var]) -> Block:
    known, forms = dict(known), dict(forms)
    out: list[Stmt] = []
    for stmt in block:
        stmt = map_blocks(stmt, lambda inner: _share(inner, known, forms, renamed, mutable))
        stmt = map_stmt_exprs(stmt, lambda e: _near(map_expr(substitute(e, renamed), folded), forms))
        lasting = isinstance(stmt, Let) and not mutable & {stmt.var, *variables(stmt.value)}
        if isinstance(stmt, Let) and lasting and not stmt.var.type.is_float:
            other = known.get(stmt.value)
            if other is not None or _is_short(stmt.value):
                renamed[stmt.var] = other if other is not None else stmt.value
                continue
            known[stmt.value] = stmt.var
            form = _form(stmt.value, forms)
            if form is not None:
                forms[stmt.var] = form
        out.append(stmt)
    return tuple(out)


def _is_short(expr: Expr) -> bool:
    """Whether an expression is a variable, or one with a constant or a parameter added."""
    match expr:
        case Var() | Constant():
            return True
        case Binary(op="+" | "-", left=Var(), right=Var() | Constant()):
            return expr.type.is_integer
    return False


def _form(expr: Expr, forms: Mapping[Var, Polynomial]) -> Polynomial | None:
    """The expression as a polynomial over variables, exact in wrapping 32-bit arithmetic; None if it is none."""
    match expr:
        case Constant(value=v) if expr.type == I32:
            return {(): int(v)} if v else {}
        case Var() if expr.type == I32:
            return forms.get(expr, {(expr,): 1})
        case Binary(op="+" | "-" | "*", left=left, right=right) if expr.type == I32:
            x, y = _form(left, forms), _form(right, forms)
            if x is None or y is None or len(x) * len(y) > 16:
                return None
            return times(x, y) if expr.op == "*" else plus(x, scale(y, 1 if expr.op == "+" else -1))
    return None


def _near(expr: Expr, forms: Mapping[Var, Polynomial]) -> Expr:
    """The expression as a known variable with something short added, if that is shorter."""
    if not isinstance(expr, Binary) or expr.type != I32 or b.size(expr) <= 3:
        return rebuild(expr, lambda e: _near(e, forms))
    form = _form(expr, forms)
    for var, other in forms.items() if form is not None else ():
        if len(other) < 2:
            continue
        far = plus(form or {}, scale(other, -1))
        if len(far) <= 1 and all(abs(c) == 1 or not m for m, c in far.items()) and all(len(m) <= 1 for m in far):
            return _moved(var, far)
    return rebuild(expr, lambda e: _near(e, forms))


def _moved(var: Var, far: Polynomial) -> Expr:
    for monomial, coefficient in far.items():
        step: Expr = monomial[0] if monomial else b.const(abs(coefficient), I32)
        return fold.binary("+-"[coefficient < 0], var, step, I32)
    return var


def flattened(block: Block) -> Block:
    """The block in which a condition that stands alone inside another joins it."""
    out: list[Stmt] = []
    for stmt in block:
        stmt = map_blocks(stmt, flattened)
        match stmt:
            case If(then=(If() as inner,), otherwise=(), merges=()) if not inner.otherwise and not inner.merges:
                out.append(replace(inner, condition=_conjunction(stmt.condition, inner.condition)))
            case _:
                out.append(stmt)
    return tuple(out)


def _conjunction(left: Expr, right: Expr) -> Expr:
    """`left && right`, without parentheses."""
    if isinstance(right, Binary) and right.op == "&&":
        return Binary("&&", _conjunction(left, right.left), right.right, BOOL)
    return Binary("&&", left, right, BOOL)


def folded(expr: Expr) -> Expr:
    """An operation on integers whose operands have changed."""
    if isinstance(expr, Binary) and expr.type.is_integer:
        return fold.binary(expr.op, expr.left, expr.right, expr.type)
    return expr

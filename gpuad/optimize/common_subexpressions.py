"""Common subexpression elimination over a kernel that was put together from several copies of one slice.

Assumes and guarantees: valid IR with unique definitions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from ..analysis.index_polynomials import Polynomial, plus, scale, times
from ..ir import build as b
from ..ir import folding
from ..ir.nodes import Accumulate, Atomic, Binary, Block, Buffer, Constant, Expr, If, Let, Load, Stmt, Store, Take, Var, children, variables
from ..ir.rewrite import assigned_vars, map_blocks, map_expr, map_stmt_exprs, rebuild, substitute, walk_stmts
from ..ir.types import BOOL, I32


def eliminate_common_subexpressions(body: Block) -> Block:
    """What was computed or read before, around, is not computed or read again; an index that lies next to another is written so."""
    written = {s.buffer for s in walk_stmts(body) if isinstance(s, Store | Take | Accumulate | Atomic)}
    return _Share(assigned_vars(body), frozenset(written)).block(body, {}, {})


class _Share:
    """`known`: what has which value where one looks; `forms`: integers as polynomials. Variables that are put out are `renamed`."""

    def __init__(self, mutable: frozenset[Var], written: frozenset[Buffer]) -> None:
        self.mutable = mutable
        self.written = written
        self.renamed: dict[Var, Expr] = {}
        self.values: dict[Var, Expr] = {}

    def block(self, block: Block, known: dict[Hashable, Var], forms: dict[Var, Polynomial]) -> Block:
        known, forms = dict(known), dict(forms)
        out: list[Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, lambda inner: self.block(inner, known, forms))
            stmt = map_stmt_exprs(stmt, lambda e: _near(map_expr(substitute(e, self.renamed), folded), forms))
            if not self.is_known(stmt, known, forms):
                out.append(stmt)
        return tuple(out)

    def is_known(self, stmt: Stmt, known: dict[Hashable, Var], forms: dict[Var, Polynomial]) -> bool:
        """Whether a statement only says what is known, under another name; else it is known from now on."""
        match stmt:
            case Load(var=var, buffer=buffer, index=index) if buffer not in self.written and not self.mutable & {var, *variables(index)}:
                return self.names(var, (buffer, index), known)
            case Let(var=var, value=value) if not self.mutable & {var, *variables(value)}:
                if var.type.is_float:
                    self.values[var] = value
                    return not isinstance(value, Var | Constant) and self.names(var, self.key(value), known)
                if _is_short(value):
                    self.renamed[var] = value
                    return True
                form = _form(value, forms)
                if self.names(var, value, known):
                    return True
                if form is not None:
                    forms[var] = form
        return False

    def names(self, var: Var, value: Hashable, known: dict[Hashable, Var]) -> bool:
        other = known.setdefault(value, var)
        if other != var:
            self.renamed[var] = other
        return other != var

    def key(self, expr: Expr) -> Hashable:
        """What is the same for expressions of one value. The square of a difference is that of the opposite difference."""
        match expr:
            case Binary(op="*", left=Var() as left, right=right) if left == right and _is_difference(self.values.get(left)):
                return "square", frozenset(self.key(e) for e in children(self.values[left])), expr.type
        parts = tuple(self.key(e) for e in children(expr))
        return (type(expr), getattr(expr, "op", ""), getattr(expr, "function", ""), expr.type, parts) if parts else expr


def _is_difference(expr: Expr | None) -> bool:
    return isinstance(expr, Binary) and expr.op == "-" and expr.type.is_float


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
        return folding.binary("+-"[coefficient < 0], var, step, I32)
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
        return folding.binary(expr.op, expr.left, expr.right, expr.type)
    return expr

"""Multiplies by a power of two once what all its uses multiply by it, as those in the adjoint of a sum of squares do."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from ..ir import build as b
from ..ir.nodes import Binary, Block, Call, Constant, Expr, Let, Unary, Var
from ..ir.rewrite import map_blocks, map_stmt_exprs, rebuild, walk_stmts
from .sums import addition


def scaled(body: Block, among: Collection[Var], sums: Collection[Var], first_own: int) -> Block:
    """The body with one of these linear values, if there is such a one, multiplied where it is made and not where it is used."""
    found: dict[Var, list[float]] = {}
    for stmt in walk_stmts(body):
        if isinstance(stmt, Let) and stmt.var in among:
            _note(stmt.value, found)
        for _, part in addition(stmt, sums) or ():
            _note(part, found)
    for var, powers in found.items():
        if var in among and var.uid >= first_own and len(powers) > 1 and powers[0] != 1 and len(set(powers)) == 1:
            return _by(body, var, b.const(powers[0], var.type), among, sums)
    return body


def _note(expr: Expr, found: dict[Var, list[float]]) -> None:
    """Notes by which power of two each variable is multiplied wherever it occurs; 1 where by none."""
    of = factors(expr)
    power = next((e.value for e in of if isinstance(e, Constant) and _is_power(e.value)), 1.0)
    for factor in of:
        if isinstance(factor, Var):
            found.setdefault(factor, []).append(power if of.count(factor) == 1 else 1.0)
        else:
            for inner in _inside(factor):
                _note(inner, found)


def factors(expr: Expr) -> list[Expr]:
    """What a product is made of."""
    match expr:
        case Binary(op="*", left=x, right=y):
            return [*factors(x), *factors(y)]
    return [expr]


def _without(expr: Expr, power: Constant) -> Expr | None:
    """The product without this factor; None if it has none."""
    match expr:
        case Binary(op="*", left=x, right=y):
            if power in (x, y):
                return y if x == power else x
            left, right = _without(x, power), _without(y, power)
            return replace(expr, left=left) if left is not None else replace(expr, right=right) if right is not None else None
    return None


def _inside(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Unary(operand=x):
            return (x,)
        case Binary(left=x, right=y) | Call(arguments=(x, y)):
            return (x, y)
    return ()


def _is_power(value: float) -> bool:
    return value not in (0, 1) and math.isfinite(value) and math.frexp(value)[0] == 0.5


def _by(block: Block, var: Var, power: Constant, among: Collection[Var], sums: Collection[Var]) -> Block:
    """The block with the variable a multiple of what it was."""

    def used(expr: Expr) -> Expr:
        return _without(expr, power) or expr if var in factors(expr) else rebuild(expr, used)

    out = []
    for stmt in block:
        stmt = map_blocks(stmt, lambda inner: _by(inner, var, power, among, sums))
        if isinstance(stmt, Let) and stmt.var == var:
            stmt = replace(stmt, value=_multiple(power, stmt.value))
        elif addition(stmt, sums) is not None or (isinstance(stmt, Let) and stmt.var in among):
            stmt = map_stmt_exprs(stmt, used)
        out.append(stmt)
    return tuple(out)


def _multiple(power: Constant, expr: Expr) -> Expr:
    match expr:
        case Call(function="gpuad_chain", arguments=(seed, partial)):
            return b.chain(seed, b.mul(power, partial))
    return b.mul(power, expr)

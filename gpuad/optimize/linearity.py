"""Which values only go into sums.

A value is *linear* if each of its uses is a term or a factor of what is added to a sum, or of another linear value. So it decides nothing,
is no argument of a function, no divisor and no index: it may as well be computed with another rounding, or another sign of zero.
"""

from __future__ import annotations

from collections.abc import Collection

from ..ir.nodes import Accumulate, Binary, Block, Call, Expr, Let, Stmt, Store, Unary, Var, variables
from ..ir.rewrite import expressions, walk_stmts
from .sums import addition
from .thread_indices import assigned


def linear(body: Block, sums: Collection[Var]) -> frozenset[Var]:
    """The linear values of a body."""
    needs: dict[Var, list[Var]] = {}
    other: set[Var] = set(assigned(body))
    for stmt in walk_stmts(body):
        straight, bent = _uses(stmt, sums)
        other |= set(bent)
        if isinstance(stmt, Let):
            needs.setdefault(stmt.var, []).extend(straight)
    pending = [v for v in other if v in needs]
    while pending:
        for var in needs[pending.pop()]:
            if var not in other:
                other.add(var)
                pending += [var] if var in needs else []
    return frozenset(v for v in needs if v.type.is_float and v not in other)


def _uses(stmt: Stmt, sums: Collection[Var]) -> tuple[list[Var], list[Var]]:
    """The variables that a statement uses as terms and factors of a value or of what it adds to a sum, and those that it uses otherwise."""
    straight: list[Var] = []
    bent: list[Var] = []
    if isinstance(stmt, Let) and stmt.var.type.is_float:
        _part(stmt.value, straight, bent)
    elif (parts := addition(stmt, sums)) is not None:
        for _, part in parts:
            _part(part, straight, bent)
    elif isinstance(stmt, Store | Accumulate) and stmt.value in sums:
        bent += variables(stmt.index)
    else:
        bent += [v for e in expressions(stmt) for v in variables(e)]
    return straight, bent


def _part(expr: Expr, straight: list[Var], bent: list[Var]) -> None:
    match expr:
        case Var():
            straight.append(expr)
        case Unary(op="-", operand=inner):
            _part(inner, straight, bent)
        case Binary(op="+" | "-" | "*", left=x, right=y) | Call(function="gpuad_chain", arguments=(x, y)):
            _part(x, straight, bent)
            _part(y, straight, bent)
        case Binary(op="/", left=x, right=y):
            _part(x, straight, bent)
            bent += variables(y)
        case _:
            bent += variables(expr)

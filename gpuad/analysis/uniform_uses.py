"""What a kernel makes of the whole numbers of its launch before a thread has a part in it: `it % 3 == 0`, `it / 2 * n`.

What only becomes a floating-point value is left out: no fact about memory depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..ir.nodes import Assign, Binary, Cast, Constant, Expr, Kernel, Let, Select, Unary, Var, children, variables, walk
from ..ir.rewrite import expressions, is_short, substitute, walk_stmts
from ..ir.types import BOOL


def uniform_uses(kernel: Kernel) -> tuple[Expr, ...]:
    """The greatest expressions of a kernel in which nothing stands but whole numbers of its launch, one at least, and constants."""
    numbers, lets = _numbers(kernel), uniform_lets(kernel)
    found: dict[Expr, None] = {}
    for stmt in walk_stmts(kernel.body):
        if not (isinstance(stmt, Let) and stmt.var in lets):
            for expr in expressions(stmt):
                found.update(dict.fromkeys(_greatest(expr, lets, numbers)))
    return tuple(found)


def uniform_lets(kernel: Kernel) -> dict[Var, Expr]:
    """The variables that stand for such expressions, with these in terms of the numbers; one that has several values is none."""
    numbers, several = _numbers(kernel), set[Var]()
    lets: dict[Var, Expr] = {}
    made_of: dict[Var, set[Var]] = {}
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Assign):
            several.add(stmt.var)
        elif isinstance(stmt, Let) and _is_uniform(stmt.value, lets, numbers):
            value = substitute(stmt.value, lets)
            made_of.setdefault(stmt.var, set()).update(variables(stmt.value))
            if not is_short(value) or lets.setdefault(stmt.var, value) != value:
                several.add(stmt.var)
        elif isinstance(stmt, Let):
            several.add(stmt.var)
    while more := {v for v in lets if v not in several and not several.isdisjoint(made_of[v])}:  # what is made of such a one has several
        several |= more
    return {v: e for v, e in lets.items() if v not in several}


def _numbers(kernel: Kernel) -> frozenset[Var]:
    return frozenset(p for p in kernel.params if isinstance(p, Var) and _is_whole(p))


def _is_whole(expr: Expr) -> bool:
    return expr.type.is_integer or expr.type == BOOL


def _is_uniform(expr: Expr, lets: Mapping[Var, Expr], numbers: Collection[Var]) -> bool:
    return all(
        _is_whole(e) and (isinstance(e, Constant | Unary | Binary | Cast | Select) or (isinstance(e, Var) and (e in numbers or e in lets)))
        for e in walk(expr)
    )


def _greatest(expr: Expr, lets: Mapping[Var, Expr], numbers: Collection[Var]) -> Iterator[Expr]:
    if _is_uniform(expr, lets, numbers):
        full = substitute(expr, lets)
        if any(v in numbers for v in variables(full)):
            yield full
    elif isinstance(expr, Cast) and expr.type.is_float and _is_uniform(expr.operand, lets, numbers):
        return
    else:
        for child in children(expr):
            yield from _greatest(child, lets, numbers)


__all__ = ["uniform_lets", "uniform_uses"]

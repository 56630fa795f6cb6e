"""Loop-invariant code motion: quotients and remainders that are uniform over a row leave the CPU's loop over it.

`(y + 1) % ny` where y is the index of the row: a compiler leaves it in the loop, since a division must not run where the kernel does not
divide, and with it the loop is no vector loop. As the kernel defines them they are total, so each is computed once, before the row's loop.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ...ir.nodes import Assign, Binary, Block, Buffer, Constant, Expr, Kernel, LaunchIndex, Let, Var, variables, walk
from ...ir.rewrite import defined, rebuild, substitute, walk_stmts
from ..structure import Read, map_expressions
from .iteration_domain import GLOBAL

_SIZE = 40  # nodes of an expression that is looked through


@dataclass(frozen=True)
class Rows:
    """A kernel with further scalar parameters, and what they are in a row."""

    kernel: Kernel
    values: tuple[tuple[Var, Expr], ...] = ()


def hoist(kernel: Kernel) -> Rows:
    """The kernel with its rows' quotients and remainders as parameters."""
    task = _Hoist(kernel)
    body = map_expressions(kernel.body, task.visit)
    made = tuple((var, value) for value, var in task.found.items())
    return Rows(replace(kernel, params=(*kernel.params, *(v for v, _ in made)), body=body), made) if made else Rows(kernel)


class _Hoist:
    def __init__(self, kernel: Kernel) -> None:
        self.params = kernel.params
        self.values = values_of(kernel.body)
        self.uid = 1 + max((v.uid for v in (*kernel.scalars, *(v for s in walk_stmts(kernel.body) for v in defined(s)))), default=0)
        self.found: dict[Expr, Var] = {}

    def visit(self, expr: Expr) -> Expr:
        if not any(_divides(e) for e in walk(expr)):
            return expr
        full = substitute(expr, self.values)
        if not expr.type.is_integer or not is_of_row(full, self.params):
            return rebuild(expr, self.visit)
        if full not in self.found:
            self.uid += 1
            self.found[full] = Var("gpuad_of_row", expr.type, self.uid)
        return self.found[full]


def _divides(expr: Expr) -> bool:
    return isinstance(expr, Binary) and expr.op in ("/", "%") and expr.type.is_integer and not isinstance(expr.right, Constant)


def is_of_row(expr: Expr, params: tuple[Var | Buffer, ...]) -> bool:
    """Whether the expression is made of scalar parameters and of what all threads of a row have in common."""
    if any(v not in params for v in variables(expr)):
        return False
    return not any(
        isinstance(e, Read) or (isinstance(e, LaunchIndex) and e.axis == "x" and e.name in (GLOBAL, "threadIdx")) for e in walk(expr)
    )


def values_of(body: Block) -> dict[Var, Expr]:
    """What the whole numbers that are defined once are in terms of parameters, launch indices, and what has no value here."""
    stmts = list(walk_stmts(body))
    times = Counter(v for s in stmts for v in defined(s))
    fixed = {s.var for s in stmts if isinstance(s, Assign)}
    table: dict[Var, Expr] = {}
    for stmt in stmts:
        if not isinstance(stmt, Let) or stmt.var in fixed or times[stmt.var] > 1 or stmt.var.type.is_float:
            continue
        value = substitute(stmt.value, table)
        if sum(1 for _ in walk(value)) <= _SIZE and not any(isinstance(e, Read) for e in walk(value)) and not _reads(value, fixed):
            table[stmt.var] = value
    return table


def _reads(expr: Expr, names: set[Var]) -> bool:
    return any(v in names for v in variables(expr))

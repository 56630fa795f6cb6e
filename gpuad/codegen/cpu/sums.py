"""Prepares sums over threads for the CPU, where a thread hands its contribution to the loop that runs it.

A contribution that is zero behind a guard, `float da_2 = 0; if (i < n) { ... da_2 = x * dy; } gpuad_block_sum(&da[0], da_2);`, moves into
the guard: then the guard is all that the kernel does, and its bounds become those of the loop over threads.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ...ir.nodes import Accumulate, Binary, Cast, Constant, Expr, How, If, Kernel, Stmt, Unary, Var
from ...ir.rewrite import substitute
from ..structure import visit_operands


def is_sum(stmt: Stmt) -> bool:
    """Whether the statement adds a float to a sum over threads."""
    return isinstance(stmt, Accumulate) and stmt.how is How.REDUCED and stmt.buffer.element.is_float


def sink_sums(kernel: Kernel) -> Kernel:
    """The kernel with the sums at its end inside the guard before them, where they are zero without it."""
    count = next((k for k, s in enumerate(reversed(kernel.body)) if not is_sum(s)), 0)
    if not count:
        return kernel
    *before, guard = kernel.body[:-count]
    sums = kernel.body[-count:]
    if not isinstance(guard, If) or guard.otherwise or not all(_is_zero(m.otherwise) for m in guard.merges):
        return kernel
    merged = {m.var for m in guard.merges}
    if not all(isinstance(s, Accumulate) and isinstance(s.index, Constant) and is_linear(s.value, merged) for s in sums):
        return kernel
    table = {m.var: m.then for m in guard.merges}
    inner = tuple(visit_operands(s, lambda e: substitute(e, table)) for s in sums)
    return replace(kernel, body=(*before, replace(guard, then=guard.then + inner, merges=())))


def is_linear(expr: Expr, names: Set[Var]) -> bool:
    """Whether the expression is a sum of these variables, with signs and conversions between floats: the sum of its values over threads
    is its value for the sums of the variables."""
    match expr:
        case Var():
            return expr in names
        case Cast(operand=a, type=t):
            return t.is_float and a.type.is_float and is_linear(a, names)
        case Unary(op="-", operand=a):
            return is_linear(a, names)
        case Binary(op="+" | "-", left=a, right=b):
            return is_linear(a, names) and is_linear(b, names)
    return False


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Constant) and expr.value == 0

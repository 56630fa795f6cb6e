"""Sums on the CPU: a lane's own reduction loop, and sums over threads that the loop over threads carries.

`sum += a[row * n + k] * b[k]` for the loop over k, in an order that is not promised: run in step, neighbouring lanes would read far from
one another. Here a lane goes through the loop by itself, and the vectors hold its iterations (`reduction`).

A contribution to a sum over threads that is zero behind a guard, `float da_2 = 0; if (i < n) { ... da_2 = x * dy; } gpuad_block_sum(&da[0],
da_2);`, moves into the guard (`sink_sums`): then the guard is all that the kernel does, and its bounds become those of the loop over
threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from ...ir.nodes import Accumulate, Assign, Binary, Cast, Constant, Expr, For, How, If, Kernel, Let, Load, Stmt, Unary, Var, variables
from ...ir.rewrite import substitute
from ..folded import expressions, index_terms, reads, visit_operands
from .lane_loops import tiled
from .uniformity import Uniform, bound_in


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


@dataclass(frozen=True)
class Reduction:
    """A loop that only adds to these variables."""

    loop: For
    sums: tuple[Var, ...]

    def into(self, parts: Mapping[Var, Var]) -> For:
        """The loop that adds to others in their place."""
        table: dict[Var, Expr] = dict(parts)

        def stmt(given: Stmt) -> Stmt:
            made = visit_operands(given, lambda e: substitute(e, table))
            return replace(made, var=parts[made.var]) if isinstance(made, Assign) else made

        return replace(self.loop, body=tuple(stmt(s) for s in self.loop.body))


def reduction(loop: For, uniform: Uniform) -> Reduction | None:
    """The loop as one that a lane goes through by itself; None if it does anything else, or reads memory in another way."""
    if loop.carried or tiled(loop, uniform, 0) is None or not all(isinstance(s, Let | Load | Assign) for s in loop.body):
        return None
    added = [s for s in loop.body if isinstance(s, Assign)]
    sums = dict.fromkeys(s.var for s in added)
    if not added or not sums.keys() <= uniform.kernel.unordered or not all(v.type.is_float for v in sums):
        return None
    if any(uniform.is_same(v) for v in sums):  # such a sum is formed once, not by each lane
        return None
    values = [v for s in loop.body for e in _values(s, sums) for v in variables(e)]
    if any(v in sums for v in values) or not all(_is_straight(index, loop, uniform) for index in _indices(loop, uniform)):
        return None
    return Reduction(loop, tuple(sums))


def _values(stmt: Stmt, sums: dict[Var, None]) -> Iterator[Expr]:
    """What a statement computes; of an addition to a sum, what is added."""
    match stmt:
        case Load(index=index):
            yield index
        case Assign(var=var, value=Binary(op="+" | "-", left=left, right=right)) if left == var:
            yield right
        case Let(value=value) | Assign(value=value):
            yield value


def _indices(loop: For, uniform: Uniform) -> Iterator[Expr | None]:
    """Where the loop reads; None where it reads what the kernel writes."""
    for expr in expressions(loop.body):
        yield from (None if read.buffer in uniform.written else read.index for read in reads(expr))
    for stmt in loop.body:
        if isinstance(stmt, Load):
            yield None if stmt.buffer in uniform.written else stmt.index


def _is_straight(index: Expr | None, loop: For, uniform: Uniform) -> bool:
    """Whether an index stays, or grows by one an iteration."""
    if index is None:
        return False
    inside = {loop.var, *bound_in(loop.body)}
    rest = [(sign, term) for sign, term in index_terms(substitute(index, uniform.steady), 1) if any(v in inside for v in variables(term))]
    return not rest or rest == [(1, loop.var)]

"""Finds the loops run in step by which each lane adds up what it reads one after the other from memory of its own, in an order that is not
promised: `sum += a[row * n + k] * b[k]` for the loop over k.

Lanes of neighbours would read far from one another at every step. Here a lane goes through the loop by itself, and the compiler's vectors
hold its iterations, of which each element has a sum of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...ir.nodes import Assign, Binary, Expr, For, Let, Load, Stmt, Var, variables
from ...ir.rewrite import substitute
from ..structure import expressions, reads, visit_operands
from .grid_stride import terms
from .tiles import tiled
from .uniformity import Uniform, bound_in


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
    rest = [(sign, term) for sign, term in terms(substitute(index, uniform.steady), 1) if any(v in inside for v in variables(term))]
    return not rest or rest == [(1, loop.var)]

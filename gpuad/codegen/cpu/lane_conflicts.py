"""Lane conflicts: statements by which several threads may come to one element of memory, sums over threads, atomic additions and takes.

Lanes of one strip may meet there too, so such a statement is no part of what they do at once, but in two cases. Where the lanes' elements
lie side by side, each has its own; then no other such statement on the same memory is done in the same loop over the lanes. Where the
element is the same for all, the strip forms the sum and adds it once (`Total`), if all that the kernel ever does with that memory is to add
to it. In all other cases the statement is a short loop of its own, over one lane after the other.

A contribution to a sum over threads that is zero behind a guard, `float da_2 = 0; if (i < n) { ... da_2 = x * dy; } gpuad_block_sum(&da[0],
da_2);`, moves into the guard (`sink_sums`): then the guard is all that the kernel does, and its bounds become those of the loop over
threads.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from ...ir.folding import is_const
from ...ir.nodes import Accumulate, Atomic, Binary, Block, Buffer, Cast, Constant, Expr, How, If, Kernel, Stmt, Take, Unary, Var
from ...ir.rewrite import substitute, walk_stmts
from ...ir.types import F64, Scalar
from ..folded import loaded, visit_operands, written


@dataclass(frozen=True)
class Total:
    """What all lanes add to one element. The index is the first lane's."""

    stmt: Accumulate

    @property
    def type(self) -> Scalar:
        """In which type the sum is formed."""
        element = self.stmt.buffer.element
        return F64 if element.is_float else element

    def adding(self, value: Expr) -> Accumulate:
        """The addition of a sum, in place of what a lane adds."""
        return replace(self.stmt, value=value)


def conflicts(stmt: Stmt) -> bool:
    """True if the statement itself is one by which threads meet."""
    if isinstance(stmt, Accumulate) and stmt.how is How.REDUCED:
        return not stmt.buffer.element.is_float  # sums of integers are atomic: a double does not hold them all
    return isinstance(stmt, Atomic) or (isinstance(stmt, Accumulate | Take) and stmt.how is How.ATOMIC)


def has_conflict(block: Block) -> bool:
    """True if there is such a statement in the block."""
    return any(map(conflicts, walk_stmts(block)))


def only_added(work: Block) -> frozenset[Buffer]:
    """The memory that is accessed by atomic additions alone."""
    stmts = list(walk_stmts(work))
    added = {s.buffer for s in stmts if isinstance(s, Accumulate) and conflicts(s)}
    added -= {b for s in stmts if (b := written(s)) is not None and not (isinstance(s, Accumulate) and conflicts(s))}
    return frozenset(added - loaded(work))


def conflicting_buffers(actions: Sequence[object]) -> set[Buffer]:
    """The memory at which lanes meet one another in a loop over them."""
    return {a.buffer for a in actions if isinstance(a, Accumulate | Take) and conflicts(a)}


def is_sum(stmt: Stmt) -> bool:
    """True if the statement adds a float to a sum over threads."""
    return isinstance(stmt, Accumulate) and stmt.how is How.REDUCED and stmt.buffer.element.is_float


def sink_sums(kernel: Kernel) -> Kernel:
    """The kernel with the sums at its end inside the guard before them, where they are zero without it."""
    count = next((k for k, s in enumerate(reversed(kernel.body)) if not is_sum(s)), 0)
    if not count:
        return kernel
    *before, guard = kernel.body[:-count]
    sums = kernel.body[-count:]
    if not isinstance(guard, If) or guard.otherwise or not all(is_const(m.otherwise, 0) for m in guard.merges):
        return kernel
    merged = {m.var for m in guard.merges}
    if not all(isinstance(s, Accumulate) and isinstance(s.index, Constant) and is_linear(s.value, merged) for s in sums):
        return kernel
    table = {m.var: m.then for m in guard.merges}
    inner = tuple(visit_operands(s, lambda e: substitute(e, table)) for s in sums)
    return replace(kernel, body=(*before, replace(guard, then=guard.then + inner, merges=())))


def is_linear(expr: Expr, names: Set[Var]) -> bool:
    """True if the expression is a sum of these variables, with signs and conversions between floats: the sum of its values over threads
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

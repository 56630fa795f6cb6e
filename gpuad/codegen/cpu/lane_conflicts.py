"""Lane conflicts: statements by which several lanes may touch one element of memory, atomic additions and atomic takes.

Lanes of one strip may meet there too, so such a statement is no part of what they do at once, but in two cases. Where the lanes' elements
lie side by side, each has its own; then no other such statement on the same memory is done in the same loop over the lanes. Where the
element is the same for all, the strip forms the sum and adds it once (`Total`), if all that the kernel ever does with that memory is to add
to it. In all other cases the statement is a short loop of its own, over one lane after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.nodes import Accumulate, Atomic, Block, Buffer, Expr, How, Stmt, Take
from ...ir.rewrite import walk_stmts
from ...ir.types import F64, Scalar
from ..structure import loaded, written


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
    """Whether the statement itself is one by which threads meet."""
    if isinstance(stmt, Accumulate) and stmt.how is How.REDUCED:
        return not stmt.buffer.element.is_float  # sums of integers are atomic: a double does not hold them all
    return isinstance(stmt, Atomic) or (isinstance(stmt, Accumulate | Take) and stmt.how is How.ATOMIC)


def has_conflict(block: Block) -> bool:
    """Whether there is such a statement in the block."""
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

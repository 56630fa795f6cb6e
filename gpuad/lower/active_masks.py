"""`__activemask()`: which threads of a warp have come to a place, as a vote of those that might.

    if (x[i] > 0) { unsigned m = __activemask(); ... }
    ->  m = __ballot_sync(~0, x[i] > 0); if (x[i] > 0) { ... }

Hardware says which threads happen to run together, which may be any part of those that take a branch. Here it is all of them: that is
what it is where threads of a warp are in step, and kernels that are right for any part are right for all.

Before an If that parts the threads they vote which side each takes; in a loop those that are in it vote which of them go on. What returns
before belongs to `barrier_hoisting`, which takes those threads out of every mask. Assumes a lowered kernel. Guarantees: nothing asks for an
active mask. Raises UnsupportedError where threads leave a `while` at different times around one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from ..analysis.uniformity import is_uniform, parts, uniform
from ..errors import UnsupportedError
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, blocks, map_blocks, walk_stmts
from ..ir.types import BOOL, I32, U32

_EVERYONE = b.const(0xFFFFFFFF, U32)


def resolve_active_masks(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with votes in the place of active masks."""
    if not _asks(kernel.body):
        return kernel
    return replace(kernel, body=_Masks(kernel).block(kernel.body, None))


def _asks(block: ir.Block) -> bool:
    return any(_is_asked(s) for s in walk_stmts(block))


def _is_asked(stmt: ir.Stmt) -> TypeGuard[ir.Shuffle]:
    return isinstance(stmt, ir.Shuffle) and stmt.op == "active"


class _Masks:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.names, self.same = Names(kernel), uniform(kernel)

    def block(self, block: ir.Block, mask: ir.Expr | None) -> ir.Block:
        """The block, to which the threads of a mask come; None: all that have not returned."""
        out: list[ir.Stmt] = []
        for stmt in block:
            if _is_asked(stmt):
                out.append(replace(stmt, op="ballot") if mask is None else ir.Let(stmt.var, mask, span=stmt.span))
            elif not any(map(_asks, blocks(stmt))):
                out.append(stmt)
            elif not parts(stmt, lambda e: not is_uniform(e, self.same), {}) or (mask is None and isinstance(stmt, ir.If) and stmt.leaving):
                out.append(map_blocks(stmt, lambda inner: self.block(inner, mask)))
            elif isinstance(stmt, ir.If):
                out.extend(self.parted(stmt, mask))
            elif isinstance(stmt, ir.For):
                out.extend(self.repeated(stmt, mask))
            else:
                asked = next(s for s in walk_stmts((stmt,)) if _is_asked(s))
                raise UnsupportedError(
                    "which threads are active is not known in a `while` that threads of a warp leave at different times; write a `for`, or "
                    "the mask that is meant",
                    asked.span,
                )
        return tuple(out)

    def vote(self, holds: ir.Expr, mask: ir.Expr | None, like: ir.Stmt) -> tuple[ir.Block, ir.Var]:
        """The threads of a mask for which a condition holds."""
        vote, ballot, none = self.names.var("vote", U32), self.names.var("active", U32), b.const(0, I32)
        given = ir.Let(vote, b.select(holds, b.const(1, U32), b.const(0, U32)), span=like.span)
        return (given, ir.Shuffle(ballot, "ballot", _EVERYONE if mask is None else mask, vote, none, none, span=like.span)), ballot

    def parted(self, stmt: ir.If, mask: ir.Expr | None) -> ir.Block:
        votes: ir.Block = ()
        sides = []
        for holds, side in ((stmt.condition, stmt.then), (b.negate(stmt.condition), stmt.otherwise)):
            if _asks(side):
                voted, active = self.vote(holds, mask, stmt)
                votes, side = (*votes, *voted), self.block(side, active)
            sides.append(side)
        return (*votes, replace(stmt, then=sides[0], otherwise=sides[1]))

    def repeated(self, loop: ir.For, mask: ir.Expr | None) -> ir.Block:
        down = isinstance(loop.step, ir.Constant) and loop.step.value < 0

        def in_loop(at: ir.Expr) -> ir.Expr:
            return b.binary(">" if down else "<", at, loop.stop, BOOL)

        before, entered = self.vote(in_loop(loop.start), mask, loop)
        inside, result = self.names.var("active", U32), self.names.var("active", U32)
        after, staying = self.vote(in_loop(b.binary("+", loop.var, loop.step, loop.var.type)), inside, loop)
        carried = (*loop.carried, ir.Carried(inside, entered, staying, result))
        return (*before, replace(loop, body=(*self.block(loop.body, inside), *after), carried=carried))


__all__ = ["resolve_active_masks"]

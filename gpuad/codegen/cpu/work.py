"""Estimates how much a thread does, so that a launch of few threads that loop long is shared out to workers as one of many threads is."""

from __future__ import annotations

from ...ir import build as b
from ...ir.nodes import Block, Constant, Expr, For, Kernel, Select, While
from ...ir.rewrite import substitute
from ...ir.types import F64
from ..structure import blocks
from .ranges import is_uniform, single_values

_USUAL = 16  # iterations of a loop of which nothing is known before the launch


def iterations(kernel: Kernel) -> Expr | None:
    """About how many iterations a thread makes in all its loops, in terms of the kernel's scalar parameters and the launch's extents; None
    if there are no loops. What stands behind a branch counts."""
    task = _Iterations(kernel)
    found = task.block(kernel.body)
    return None if b.is_const(found, 0) else found


class _Iterations:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.values = single_values(kernel)

    def block(self, block: Block) -> Expr:
        total: Expr = b.const(0, F64)
        for stmt in block:
            inner: Expr = b.const(0, F64)
            for nested, _ in blocks(stmt):
                inner = b.add(inner, self.block(nested))
            if isinstance(stmt, For | While):
                inner = b.mul(self.trips(stmt), b.add(b.const(1, F64), inner))
            total = b.add(total, inner)
        return total

    def trips(self, loop: For | While) -> Expr:
        """How often a loop is run."""
        usual = b.const(_USUAL, F64)
        if isinstance(loop, While) or not isinstance(loop.step, Constant):
            return usual
        start, stop = (substitute(e, self.values) for e in (loop.start, loop.stop))
        if not (is_uniform(start, self.kernel) and is_uniform(stop, self.kernel)):
            return usual
        first, last = (start, stop) if loop.step.value > 0 else (stop, start)
        if isinstance(first, Constant) and isinstance(last, Constant):
            return b.const(max(0.0, (last.value - first.value) / abs(loop.step.value)), F64)
        span = b.sub(b.cast(last, F64), b.cast(first, F64))
        return Select(b.compare("<", first, last), b.mul(span, b.const(1 / abs(loop.step.value), F64)), b.const(0, F64))

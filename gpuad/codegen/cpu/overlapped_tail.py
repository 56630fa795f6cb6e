"""Whether threads may do their work twice.

A loop over a row has an end that fills no vector, and a compiler does it thread by thread: of a row of 256 cells as much as a third of the
time. Where it makes no difference that a thread does its work twice, the last threads of a row are done as one more full strip, some of
which were done before. That is so if a thread only stores, to memory that no thread of the launch reads: both times it stores the same.
"""

from __future__ import annotations

from ...ir.nodes import Assign, Buffer, If, Kernel, Let, Load, Store
from ...ir.rewrite import walk_stmts
from ..structure import blocks, operands, reads

STRIP = 16  # threads; a vector of the widest processors has as many floats


def may_be_done_twice(kernel: Kernel) -> bool:
    """Whether that is so of a kernel whose parameters do not overlap, and which only computes."""
    read: set[Buffer] = set()
    stored: set[Buffer] = set()
    for stmt in walk_stmts(kernel.body):
        if not isinstance(stmt, Let | Load | Assign | Store | If):
            return False
        if isinstance(stmt, Store):
            stored.add(stmt.buffer)
        if isinstance(stmt, Load):
            read.add(stmt.buffer)
        behind = [e for _, tail in blocks(stmt) for e in tail]
        read.update(r.buffer for e in (*operands(stmt), *behind) for r in reads(e))
    return not stored & read and all(b.length is None for b in stored)

"""A kernel for launches without arrays for some of its pointers: whoever comes to an access of one ends the launch with an error.

A null pointer is legal as long as nobody follows it, and whether somebody does may hang on data. On a CPU following it would end the
process. So each access becomes an assertion that fails, and what would be read is 0 for the passes after it.

Assumes valid IR. Guarantees that none of the buffers is accessed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..ir import build as b
from ..ir.nodes import Accumulate, Atomic, Block, Buffer, Kernel, Let, Load, Stmt, Store, Tell
from ..ir.rewrite import map_blocks


def without_arrays(kernel: Kernel, absent: Collection[Buffer]) -> Kernel:
    """The kernel without accesses to the buffers."""
    return replace(kernel, body=_without(kernel.body, absent)) if absent else kernel


def _without(block: Block, absent: Collection[Buffer]) -> Block:
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Load | Store | Accumulate | Atomic) and stmt.buffer in absent:
            out += _stopped(stmt)
        else:
            out.append(map_blocks(stmt, lambda inner: _without(inner, absent)))
    return tuple(out)


def _stopped(stmt: Load | Store | Accumulate | Atomic) -> list[Stmt]:
    does = "read" if isinstance(stmt, Load) else "written"
    said = Tell(f"{stmt.span}: `{stmt.buffer.name}` is None, but is {does} here", (), True, span=stmt.span)
    result = getattr(stmt, "var", None)
    return [said] if result is None else [said, Let(result, b.const(0, result.type), span=stmt.span)]

"""Null pointer arguments: a kernel variant in which every access to an absent array is an assertion that fails.

A null pointer is legal as long as it is not dereferenced, and whether it is may depend on data. On a CPU that would end the process. So
each access becomes an assertion that fails, and what would be read is 0 for the passes after it.

Assumes valid IR. Guarantees that none of the buffers is accessed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ..ir import build as b
from ..ir.nodes import Accumulate, Atomic, Buffer, Kernel, Let, Load, Stmt, Store, Tell
from ..ir.rewrite import edit


def without_arrays(kernel: Kernel, absent: Collection[Buffer]) -> Kernel:
    """The kernel without accesses to the buffers."""

    def change(stmt: Stmt) -> Iterable[Stmt] | None:
        if isinstance(stmt, Load | Store | Accumulate | Atomic) and stmt.buffer in absent:
            return _stopped(stmt)
        return None

    return replace(kernel, body=edit(kernel.body, change)) if absent else kernel


def _stopped(stmt: Load | Store | Accumulate | Atomic) -> list[Stmt]:
    does = "read" if isinstance(stmt, Load) else "written"
    said = Tell(f"{stmt.span}: `{stmt.buffer.name}` is None, but is {does} here", (), True, span=stmt.span)
    result = getattr(stmt, "var", None)
    return [said] if result is None else [said, Let(result, b.const(0, result.type), span=stmt.span)]

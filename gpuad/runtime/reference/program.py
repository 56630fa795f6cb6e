"""A kernel made ready to be interpreted, and what a launch must know about it beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir.nodes import Accumulate, Alloc, Atomic, Barrier, Block, Buffer, For, If, Kernel, Stmt, Store, Take, While
from ...ir.types import Space
from .accesses import Run
from .expressions import Names
from .statements import compile_block


@dataclass(frozen=True, eq=False)
class Program:
    """`written` are the buffers that the kernel may write; `private_bytes` what a thread's local arrays need."""

    kernel: Kernel
    run: Run
    names: Names
    written: frozenset[Buffer]
    barriers: bool
    private_bytes: int
    turns: bool  # whether there are barriers of a warp


def compile_kernel(kernel: Kernel) -> Program:
    """Raises GpuadError if the kernel is malformed, UnsupportedError for what the reference executor lacks."""
    names = Names()
    for buffer in kernel.buffers:
        names.buffer(buffer)
    for var in kernel.scalars:
        names.var(var)
    run = compile_block(kernel.body, names)
    statements = tuple(_statements(kernel.body))
    written = frozenset(s.buffer for s in statements if isinstance(s, Store | Accumulate | Take | Atomic))
    local = [s.buffer for s in statements if isinstance(s, Alloc) and s.buffer.space is not Space.SHARED]
    return Program(
        kernel,
        run,
        names,
        written,
        any(isinstance(s, Barrier) for s in statements),
        sum((b.length or 0) * (b.element.size + 4) for b in local),
        any(isinstance(s, Barrier) and s.scope == "warp" for s in statements),
    )


def _statements(block: Block) -> Iterator[Stmt]:
    for stmt in block:
        yield stmt
        match stmt:
            case If(then=first, otherwise=second) | While(header=first, body=second):
                yield from _statements(first)
                yield from _statements(second)
            case For(body=body):
                yield from _statements(body)

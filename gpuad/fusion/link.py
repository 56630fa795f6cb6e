"""A launch, or a copy that is written as one, as a part of a chain of launches.

In: a prepared launch (`runtime.base.Prepared`). Out: a `Link`, its kernel, geometry and arguments, with the numbers that proofs take and
the cost of its kernel; None for a launch that cannot be fused. Only kernels of at most 400 statements qualify, with at most one guard or
loop at the top, global memory alone, no null pointer, and accesses that are plain, or sums of floats at the top level. What is found of a
kernel is memoised under its id, with the kernel, so that the id stays its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.affine_forms import Launch as Numbers
from ..arguments.arrays import address
from ..codegen.cpu.source import library_calls
from ..ir.nodes import Accumulate, Assign, Buffer, For, How, If, Kernel, Let, Load, Stmt, Store, Take, Var
from ..ir.rewrite import walk_stmts
from ..ir.types import Scalar, Space
from ..memo import Memo
from ..runtime.base import Argument, Dim3, Memory, Prepared
from .chained_kernel import is_sum

STATEMENTS = 400  # of a kernel, at most

facts = Memo()  # with the kernels that they are about, so that their ids stay their own

Where = tuple[int, Scalar]  # the address of an allocation and the type of its elements


@dataclass(frozen=True)
class Cost:
    """Statements of a kernel, and calls of the C library where it runs on a CPU."""

    statements: int
    calls: int


def _cost(kernel: Kernel) -> Cost:
    return Cost(sum(1 for _ in walk_stmts(kernel.body)), library_calls(kernel))


@dataclass(frozen=True, eq=False)
class Link:
    """A kernel, its geometry, and what it is launched with; `is_copy`: it stands for a copy or a clearing."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    arguments: Sequence[Argument]
    is_copy: bool = False

    @property
    def geometry(self) -> tuple[Dim3, Dim3]:
        return self.grid, self.block

    def memories(self) -> Iterator[tuple[Buffer, Memory]]:
        """The pointers, each with where it points."""
        for param, argument in zip(self.kernel.params, self.arguments, strict=True):
            if isinstance(param, Buffer) and isinstance(argument, Memory):
                yield param, argument

    def numbers(self) -> Numbers:
        """What proofs take of the launch."""
        given = zip(self.kernel.params, self.arguments, strict=True)
        return Numbers(self.grid, self.block, {p: _integer(a) for p, a in given if isinstance(p, Var) and p.type.is_integer})

    def cost(self) -> Cost:
        """How much its kernel does."""
        found: Cost = facts.get(("cost", id(self.kernel)), lambda: (_cost(self.kernel), self.kernel))[0]
        return found


def _integer(value: Any) -> int:
    return int(value)


def link_of(launch: Any) -> Link | None:
    """A launch as a part of a chain; None where its kernel has what cannot be put among the statements of others, or a null pointer."""
    if not isinstance(launch, Prepared) or any(a is None for a in launch.arguments):
        return None
    plain, _ = facts.get(("kind", id(launch.kernel)), lambda: (_is_plain(launch.kernel), launch.kernel))
    return Link(launch.kernel, launch.grid, launch.block, launch.arguments) if plain else None


def where_of(param: Buffer, memory: Memory) -> Where:
    """Which memory a pointer points to."""
    return address(memory.root), param.element


def _is_plain(kernel: Kernel) -> bool:
    stmts = list(walk_stmts(kernel.body))
    in_memory = all(b.space is Space.GLOBAL and b.length is None for b in kernel.buffers)
    guards = sum(isinstance(s, If | For) for s in kernel.body)
    top = {id(s) for s in kernel.body}
    return in_memory and guards <= 1 and len(stmts) <= STATEMENTS and all(_is_simple(s, id(s) in top) for s in stmts)


def _is_simple(stmt: Stmt, top: bool) -> bool:
    if isinstance(stmt, Accumulate | Take):
        return stmt.how is How.PLAIN or (top and is_sum(stmt) and stmt.buffer.element.is_float)
    if isinstance(stmt, For):
        return top and not stmt.carried
    return isinstance(stmt, Let | Assign | Load | Store | If)

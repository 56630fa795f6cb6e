"""Records what a small local array holds at the start of an iteration, in place of all that the iteration reads from it.

An array that lives through a loop is overwritten by it, so every value read from it has to be recorded: a Runge-Kutta step on `y[4]`
reads its state for each stage. With the elements at the start of the iteration on record, the reverse of the iteration has the array as it
was and builds the rest again. Which of the two takes fewer bytes is tried (`recording`).

Assumes and guarantees: valid IR with unique definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..ir import build as b
from ..ir.names import Names
from ..ir.nodes import Accumulate, Alloc, Atomic, Block, Buffer, Constant, For, If, Kernel, Load, Stmt, Store, Take, While
from ..ir.rewrite import touches
from ..ir.types import I32, Space, value_type
from ..optimize.privatisation import built

MOST = 16  # elements


@dataclass(frozen=True)
class Snapshots:
    """A kernel in whose loops, by their id, the first statements load all elements of some arrays."""

    kernel: Kernel
    loads: Mapping[int, tuple[Load, ...]]

    def arrays(self, loop: Stmt) -> frozenset[Buffer]:
        """The arrays that are on record at the start of each iteration of a loop."""
        return frozenset(load.buffer for load in self.loads.get(id(loop), ()))

    def restored(self, loop: Stmt) -> Block:
        """What gives the reverse of an iteration the arrays as they were."""
        loads = self.loads.get(id(loop), ())
        made = tuple(Alloc(array, span=loop.span) for array in dict.fromkeys(load.buffer for load in loads))
        return (*made, *(Store(load.buffer, load.index, load.var, span=load.span) for load in loads))


def snapshots(kernel: Kernel) -> Snapshots | None:
    """The kernel with loads where loops of many iterations read and write an array that is built before them; None if there is none."""
    task = _Task(Names(kernel))
    body = task.block(kernel.body, frozenset())
    return Snapshots(replace(kernel, body=body), task.loads) if task.loads else None


class _Task:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.loads: dict[int, tuple[Load, ...]] = {}

    def block(self, block: Block, whole: frozenset[Buffer]) -> Block:
        """`whole`: arrays of which every element has been stored to before the block."""
        small = {s.buffer: s.zero for s in block if isinstance(s, Alloc) and _is_small(s.buffer)}
        out: list[Stmt] = []
        for at, stmt in enumerate(block):
            whole |= {a for a, zero in small.items() if zero or built(block[:at], a)}
            match stmt:
                case If(then=then, otherwise=otherwise):
                    stmt = replace(stmt, then=self.block(then, whole), otherwise=self.block(otherwise, whole))
                case For() | While():
                    stmt = self.loop(stmt, whole)
            out.append(stmt)
        return tuple(out)

    def loop(self, loop: For | While, whole: frozenset[Buffer]) -> Stmt:
        arrays = sorted((a for a in whole if _is_updated(loop, a)), key=lambda a: a.uid)
        loads = tuple(
            Load(self.names.var(a.name, value_type(a.element)), a, b.const(e, I32), span=loop.span)
            for a in arrays
            for e in range(a.length or 0)
        )
        made = replace(loop, body=(*loads, *self.block(loop.body, frozenset())))
        if loads:
            self.loads[id(made)] = loads
        return made


def _is_small(array: Buffer) -> bool:
    return array.space is Space.LOCAL and (array.length or MOST + 1) <= MOST


def _is_updated(loop: For | While, array: Buffer) -> bool:
    """Whether a loop of many iterations reads and writes an array in its body."""
    few = isinstance(loop, For) and isinstance(loop.start, Constant) and isinstance(loop.stop, Constant)
    used = list(touches(loop.body, array))
    header = isinstance(loop, While) and any(touches(loop.header, array))
    reads, writes = (any(isinstance(s, kind) for s in used) for kind in (Load | Accumulate, Store | Accumulate))
    return reads and writes and not few and not header and not any(isinstance(s, Take | Atomic) for s in used)

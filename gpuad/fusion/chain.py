"""Launch fusion of a program: launches that follow each other as one, where that is certified to be the same.

Threads of a launch come in any order, so doing two launches thread by thread is the same as doing them one after the other if no thread
touches in one of them what another thread writes in the other. That is decided with the launches' numbers, and so is whether the kernel
that was made does the same (`certified`). What is not certified stays apart: other grids or blocks, memory of which two types of elements
are seen, indices from data, atomics, barriers, arrays of a kernel's own, loops but for one over the elements, assertions.

On a CPU a chain has one call of the C library at most: threads one after the other wait for it, and with it the arithmetic of all the rest
is not vectorised. It writes few arrays: large ones lie alike in the cache, and more of them than that has ways drive each other out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ..affine.relations import is_installed
from ..codegen.cpu.source import is_flat
from ..ir.nodes import Buffer, Constant, Expr, Kernel, Var
from ..ir.types import I64, Scalar
from ..ir.verify import verify
from ..runtime.base import Memory
from .certified import Independent, is_certified
from .chained_kernel import Part, chained
from .link import STATEMENTS, Link, Where, facts, where_of

MOST = 32  # launches in one
CALLS = 1  # of the C library, on a CPU
WRITTEN = 12  # arrays that one launch writes, on a CPU
KERNELS = 16  # that one program may need compiled for this


def one_after_the_other(links: Sequence[Link], on_cpu: bool, made: dict[int, Kernel]) -> list[tuple[Link | None, int]]:
    """The launches that are to be made for these, and how many of these each stands for: None where it is the only one. `made`: the kernels
    that the program needs for this so far, by their ids."""
    if not is_installed():
        return [(None, 1)] * len(links)
    found: list[tuple[Link | None, int]] = []
    at = 0
    while at < len(links):
        count = _length(links[at : at + MOST], on_cpu)
        several = count > 1 and not all(link.is_copy for link in links[at : at + count])
        joined = _joined(links[at : at + count], on_cpu, made) if several else None
        found += [(joined, count)] if joined is not None else [(None, 1)] * count
        at += count
    return found


def _length(links: Sequence[Link], on_cpu: bool) -> int:
    """How many of the launches, from the first on, are certified to be independent thread by thread, and worth it."""
    together = Independent(links[0])
    statements = calls = 0
    for count, link in enumerate(links):
        cost = link.cost()
        statements, calls = statements + cost.statements, calls + cost.calls
        if statements > STATEMENTS or (on_cpu and calls > CALLS) or not together.takes(link):
            return max(count, 1)
        if on_cpu and len(together.written) > WRITTEN:
            return max(count, 1)
    return _whole_periods(links) if len(links) == MOST else len(links)


def _whole_periods(links: Sequence[Link]) -> int:
    """How many of the launches that could be one are to be, so that a program which does the same again and again has few kernels: as many
    as are whole turns."""
    ids = [id(link.kernel) for link in links]
    turn = next(t for t in range(1, len(ids) + 1) if ids[t:] == ids[: len(ids) - t])
    return len(ids) // turn * turn


def _joined(links: Sequence[Link], on_cpu: bool, made: dict[int, Kernel]) -> Link | None:
    """The launches as one; None where that cannot be written, or had better not."""
    plan = _Plan(links)
    kernel, _ = facts.get(plan.key(), lambda: (plan.kernel(), [link.kernel for link in links]))
    if kernel is None or (on_cpu and is_flat(links[0].kernel) and not is_flat(kernel)) or (len(made) >= KERNELS and id(kernel) not in made):
        return None
    made[id(kernel)] = kernel
    joined = Link(kernel, *links[0].geometry, [*plan.memories, *plan.values])
    return joined if is_certified(links, joined, (plan.key(), joined.geometry, tuple(map(str, plan.values)))) else None


class _Plan:
    """What the joint kernel's parameters are: memory by its allocation, from the lowest element to which a pointer points; numbers by their
    value. Zero is written as such."""

    def __init__(self, launches: Sequence[Link]) -> None:
        self.launches = launches
        self.places: dict[Where, int] = {}
        self.memories: list[Memory] = []
        self.numbers: dict[tuple[Scalar, bytes], int] = {}
        self.values: list[Any] = []
        self.names: list[str] = []  # of the memories
        self.called: list[str] = []  # the numbers
        for launch in launches:
            for param, memory in launch.memories():
                self.note(param, memory)
        self.arguments = [[self.argument(p, a) for p, a in zip(x.kernel.params, x.arguments, strict=True)] for x in launches]

    def note(self, param: Buffer, memory: Memory) -> None:
        where = where_of(param, memory)
        place = self.places.setdefault(where, len(self.memories))
        if place == len(self.memories):
            self.memories.append(memory)
            self.names.append(param.name)
        elif memory.offset < self.memories[place].offset or memory.root.size > self.memories[place].root.size:
            root = max(memory.root, self.memories[place].root, key=lambda r: int(r.size))
            self.memories[place] = Memory(root, min(memory.offset, self.memories[place].offset))

    def argument(self, param: Any, value: Any) -> tuple[int, int | None]:
        """Which of the joint parameters an argument is: memory, and how far from where it begins (the number of a number), or a number (-1
        for zero)."""
        if isinstance(param, Buffer):
            place = self.places[where_of(param, value)]
            far = value.offset - self.memories[place].offset
            return place, self.number("shift", I64, np.int64(far)) if far else None
        return self.number(param.name, param.type, value), None

    def number(self, name: str, type_: Scalar, value: Any) -> int:
        if type_.is_integer and int(value) == 0:
            return -1
        found = self.numbers.setdefault((type_, np.asarray(value).tobytes()), len(self.values))
        if found == len(self.values):
            self.values.append(value)
            self.called.append(name)
        return found

    def key(self) -> Any:
        """What the kernel depends on."""
        return "chain", tuple(id(x.kernel) for x in self.launches), tuple(map(tuple, self.arguments))

    def kernel(self) -> Kernel | None:
        first = 1 + max((p.uid for x in self.launches for p in x.kernel.params), default=0)
        buffers = [Buffer(name, element, uid=first + k) for k, (name, (_, element)) in enumerate(zip(self.names, self.places, strict=True))]
        types = zip(self.called, self.numbers, strict=True)
        scalars = [Var(name, type_, first + len(buffers) + k) for k, (name, (type_, _)) in enumerate(types)]
        parts = [self.part(x.kernel, given, buffers, scalars) for x, given in zip(self.launches, self.arguments, strict=True)]
        header = "\n".join(["In one launch, thread by thread:", *_listed(x.kernel.name for x in self.launches)])
        made = chained(self.name(), [*buffers, *scalars], parts, header)
        if made is not None:
            verify(made)
        return made

    def name(self) -> str:
        """What the joint kernel is called, after the launches, not the copies."""
        names = [x.kernel.name for x in self.launches if not x.is_copy]
        return f"{names[0]}_to_{names[-1]}_{len(names)}" if len(names) > 1 else f"{names[0]}_and_copies"

    def part(self, kernel: Kernel, given: Sequence[tuple[int, int | None]], buffers: Sequence[Buffer], scalars: Sequence[Var]) -> Part:
        zero = {p: Constant(0, p.type) for p in kernel.scalars}
        numbers: dict[Var, Expr] = {
            p: scalars[k] if k >= 0 else zero[p] for p, (k, _) in zip(kernel.params, given, strict=True) if isinstance(p, Var)
        }
        memory = {
            p: (buffers[k], scalars[shift] if shift is not None else None)
            for p, (k, shift) in zip(kernel.params, given, strict=True)
            if isinstance(p, Buffer)
        }
        return Part(kernel.body, numbers, memory)


def _listed(names: Iterable[str]) -> list[str]:
    """The names in order, as lines of a comment."""
    runs = ((name, sum(1 for _ in run)) for name, run in groupby(names))
    return textwrap.wrap(", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in runs), 100)


__all__ = ["one_after_the_other"]

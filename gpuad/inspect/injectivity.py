"""A kernel that finds out which threads of a launch touch which elements of a shadow, by doing it.

Where an index is not affine in the thread, no proof tells whether two threads meet: a neighbour beyond a periodic edge, a transposed tile
that is swizzled, an order of bits reversed. But where such indices, and the guards around them, hang on the launch's whole numbers alone,
the launch itself can be asked, before it runs and once for these numbers. What is left of the reverse kernel then is what computes the
indices; each access to the shadow notes its thread's number. An access outside of the allocation, which a launch may not make but which
somebody may ask about, notes nothing: the kernel that asks never writes outside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ..ad.stack_layout import thread_number
from ..ir import build as b
from ..ir.names import Names
from ..ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Block,
    Buffer,
    Constant,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Pop,
    Shuffle,
    Stmt,
    Store,
    Take,
    Var,
    While,
    variables,
)
from ..ir.rewrite import blocks, bound, expressions, map_blocks, walk_stmts
from ..ir.types import BOOL, I32, I64, Space
from ..optimize.dead_code import prune

MOST = (1 << 31) - 2  # threads of a launch


@dataclass(frozen=True)
class Census:
    """The kernel: whole numbers of the launch, the first element of the shadow's allocation and that after its last (int64, counted from
    where the pointer points), then three int32 arrays, all 0, with an element for each of the shadow: the greatest of the numbers (from 1)
    of the threads that touch it, `MOST` less the least of them (from 0), how often it is touched. `touches`: how often a thread touches
    one, at least as far as the text says; `places`: how many it touches, if different indices are different elements. `certain`: what it
    notes is what happens; else it goes through both sides of branches that data decide, and notes what may happen."""

    kernel: Kernel
    scalars: tuple[Var, ...]
    touches: int
    places: int
    certain: bool


def census(reverse: Kernel, shadow: Buffer) -> Census | None:
    """The kernel that asks; None where the accesses hang on memory or on real numbers, or threads wait for one another."""
    names = Names(reverse)
    begin, end = (names.var(f"{shadow.name}_{part}", I64) for part in ("begin", "end"))
    arrays = tuple(names.buffer(f"{shadow.name}_{part}", I32) for part in ("last", "first", "times"))
    scalars = tuple(v for v in reverse.scalars if v.type.is_integer)
    unknown = _unknown(reverse)
    for certain in (True, False):
        noted = _noting(reverse if certain else _either(reverse, unknown), shadow, (begin, end), arrays, names)
        body = prune(noted, private=[x for x in reverse.buffers if x != shadow])
        used = {v for s in walk_stmts(body) for e in expressions(s) for v in variables(e)}
        if _by_numbers(body, (*scalars, begin, end), arrays) and (certain or not used & unknown):
            kernel = Kernel(f"{reverse.name}_census", (*scalars, begin, end, *arrays), body, reverse.span)
            touches = tuple(_touches(reverse.body, shadow, 1))
            places = sum(dict(sorted(touches, key=lambda t: t[1])).values())
            return Census(kernel, scalars, sum(times for _, times in touches), places, certain)
    return None


def _noting(reverse: Kernel, shadow: Buffer, ends: tuple[Var, Var], arrays: tuple[Buffer, ...], names: Names) -> Block:
    """The reverse kernel with notes in place of what it does to the shadow."""
    thread, number = names.var("thread", I64), names.var("number", I32)
    last, first, times = arrays

    def note(index: Expr) -> Block:
        up, down = Binary("+", number, b.const(1, I32), I32), Binary("-", b.const(MOST, I32), number, I32)
        kept = ((last, "max", up), (first, "max", down), (times, "add", b.const(1, I32)))
        at = names.var("at", I64)
        inside = b.both(b.compare(">=", at, ends[0]), b.compare("<", at, ends[1]))
        assert inside is not None
        return Let(at, b.cast(index, I64)), If(inside, tuple(Atomic(op, None, buffer, at, (value,)) for buffer, op, value in kept))

    def block(stmts: Block) -> Block:
        out: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, Load | Store | Accumulate | Take | Atomic) and stmt.buffer == shadow:
                out += note(stmt.index)
            elif not _ends_outside(stmt):
                out.append(map_blocks(stmt, block))
        return tuple(out)

    return Let(thread, thread_number()), Let(number, b.cast(thread, I32)), *block(reverse.body)


def _either(reverse: Kernel, unknown: Collection[Var]) -> Kernel:
    """The reverse kernel with both sides of branches that more than whole numbers decide, one after the other. What is merged behind them
    is not defined any more."""

    def block(stmts: Block) -> Block:
        out: list[Stmt] = []
        for stmt in stmts:
            stmt = map_blocks(stmt, block)
            if isinstance(stmt, If) and any(v in unknown for v in variables(stmt.condition)):
                out += [If(b.const(True, BOOL), side, span=stmt.span) for side in (stmt.then, stmt.otherwise) if side]
            else:
                out.append(stmt)
        return tuple(out)

    return replace(reverse, body=block(reverse.body))


def _unknown(reverse: Kernel) -> set[Var]:
    """The variables that hang on more than the launch's whole numbers: on what was read, or on what that has decided."""
    found: set[Var] = {v for v in reverse.scalars if not v.type.is_integer}
    arrays: set[Buffer] = set(reverse.buffers)  # of which it is not known what is in them
    before = -1
    while len(found) + len(arrays) != before:
        before = len(found) + len(arrays)
        for stmt in walk_stmts(reverse.body):
            memory = getattr(stmt, "buffer", None)
            sure = all(v not in found for e in expressions(stmt) for v in variables(e))
            if isinstance(stmt, Alloc) and memory is not None and memory.space is not Space.LOCAL:
                arrays.add(memory)
            if isinstance(stmt, Take | Atomic | Shuffle | Pop) or (isinstance(stmt, Load) and memory in arrays) or not sure:
                found.update(bound(stmt))
            if not sure and isinstance(stmt, Assign):
                found.add(stmt.var)
            if not sure and memory is not None:
                arrays.add(memory)
            if not sure and isinstance(stmt, If | For | While):  # whether, or how often, is not known
                found |= {s.var for s in walk_stmts((stmt,)) if isinstance(s, Assign)}
                arrays |= {s.buffer for s in walk_stmts((stmt,)) if isinstance(s, Store | Accumulate | Take | Atomic)}
    return found


def _ends_outside(stmt: Stmt) -> bool:
    """Whether all that the statement does is an addition to memory of the launch."""
    return isinstance(stmt, Accumulate | Store) and stmt.buffer.length is None


def _by_numbers(body: Block, given: Collection[Var], arrays: Collection[Buffer]) -> bool:
    """Whether nothing is used but whole numbers and arrays of the thread's own."""
    stmts = list(walk_stmts(body))
    made = {v for s in stmts for v in bound(s)} | set(given)
    for stmt in stmts:
        memory = getattr(stmt, "buffer", None)
        if isinstance(stmt, Barrier | Shuffle) or (isinstance(stmt, Load) and memory in arrays):
            return False
        if memory is not None and memory not in arrays and (memory.length is None or memory.space is not Space.LOCAL):
            return False
        if any(v not in made for e in expressions(stmt) for v in variables(e)):
            return False
    return True


def _touches(block: Block, shadow: Buffer, times: int) -> Iterator[tuple[Expr, int]]:
    """The indices of the shadow that a thread touches and how often, as far as the text says: a loop of unknown length counts once."""
    for stmt in block:
        if isinstance(stmt, Load | Store | Accumulate | Take | Atomic) and stmt.buffer == shadow:
            yield stmt.index, times
        for inner in blocks(stmt):
            yield from _touches(inner, shadow, times * (_trips(stmt) if isinstance(stmt, For) else 1))


def _trips(stmt: For) -> int:
    match stmt.start, stmt.stop, stmt.step:
        case Constant(value=a), Constant(value=z), Constant(value=s):
            return len(range(int(a), int(z), int(s)))
    return 1

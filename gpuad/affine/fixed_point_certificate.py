"""Certificates of sums in fixed point: the two kernels of `accumulate.fixed_point` do what the one does for which they stand.

Read back from their text as it runs: all is the kernel's, statement by statement, but that each atomic addition of a float to memory that
blocks share is, in the first kernel, the maximum of its magnitude's bits, and in the second the addition of its digits, at the same
element. Digits are added to a shadow after the second kernel alone, so nothing may read or clear an element to which its thread has added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeGuard

from ..ir.nodes import Accumulate, Atomic, Binary, Block, Buffer, Call, Cast, Constant, Expr, How, Let, Load, Stmt
from ..ir.rewrite import blocks, map_blocks
from ..ir.types import F64, I64, Space
from .certificate import Run, reads_added

Reader = Callable[[Accumulate, Sequence[Stmt]], int]
Places = Mapping[Buffer, Sequence[Buffer]]  # of each shadow, the memory in which its sums are formed


def summed_otherwise(run: Run, measure: Block, collect: Block, peaks: Places, sums: Places, digits: int, bits: int) -> str | None:
    """Why the two kernels may do anything else than the one that `run` would launch, or None. `peaks`: of each shadow the array of its
    greatest magnitudes, `sums` those of its digits and scales."""
    readers = partial(_measured, peaks), partial(_collected, sums, digits, 1 << bits)
    if not all(_is_same(run.body, made, read) for made, read in zip((measure, collect), readers, strict=True)):
        return "the text is another one"
    return reads_added(run, peaks)


def _is_same(body: Block, made: Block, read: Reader) -> bool:
    rest = list(made)
    for stmt in body:
        count = read(stmt, rest) if _is_sum(stmt) else int(bool(rest) and _is_alike(stmt, rest[0], read))
        if not count:
            return False
        rest = rest[count:]
    return not rest


def _is_alike(stmt: Stmt, other: Stmt, read: Reader) -> bool:
    one, two = (map_blocks(s, lambda block: ()) for s in (stmt, other))
    return one == two and all(_is_same(a, z, read) for a, z in zip(blocks(stmt), blocks(other), strict=True))


def _is_sum(stmt: Stmt) -> TypeGuard[Accumulate]:
    if not isinstance(stmt, Accumulate) or stmt.how is How.PLAIN:
        return False
    return stmt.buffer.space is not Space.SHARED and stmt.buffer.element.is_float


def _measured(peaks: Places, add: Accumulate, stmts: Sequence[Stmt]) -> int:
    """How many statements measure an addition, 0 if they do not."""
    match stmts:
        case [Let(var=term, value=value), Atomic(op="max", var=None) as peak, *_] if value in _widened(add.value):
            wanted = (Call("bits", (Call("fabs", (term,), F64),), I64),)
            places = peaks.get(add.buffer, ())
            return 2 * int((peak.buffer, peak.index, peak.operands) in [(p, add.index, wanted) for p in places])
    return 0


def _collected(sums: Places, digits: int, base: int, add: Accumulate, stmts: Sequence[Stmt]) -> int:
    """How many statements add the digits of an addition, 0 if they do not."""
    wanted = 2 + 3 * digits
    match stmts:
        case [Let(var=term, value=value), Load(var=scale) as load, *_] if value in _widened(add.value) and add.buffer in sums:
            own, scales = sums[add.buffer]
            if (load.buffer, load.index) != (scales, add.index):
                return 0
            steps = _digits(own, add, Binary("*", term, scale, F64), stmts[2:wanted], digits, base)
            return wanted * int(len(stmts) >= wanted and all(steps))
    return 0


def _digits(own: Buffer, add: Accumulate, rest: Expr, stmts: Sequence[Stmt], digits: int, base: int) -> Iterator[bool]:
    """Whether each digit is the whole part of what is left, and is added in its place."""
    first = Binary("*", _wide(add.index), Constant(digits, I64), I64)
    for place in range(digits):
        match stmts[3 * place : 3 * place + 3]:
            case [Let(var=value, value=left), Let(var=digit, value=whole), Atomic(op="add", var=None) as added]:
                index = first if place == 0 else Binary("+", first, Constant(place, I64), I64)
                yield left == rest and whole == Call("rint", (value,), F64)
                yield (added.buffer, added.index, added.operands) == (own, index, (Cast(digit, I64),))
                rest = Binary("*", Binary("-", value, digit, F64), Constant(float(base), F64), F64)
            case _:
                yield False


def _wide(index: Expr) -> Expr:
    if isinstance(index, Constant):
        return Constant(index.value, I64)
    return index if index.type == I64 else Cast(index, I64)


def _widened(value: Expr) -> tuple[Expr, ...]:
    return (value,) if value.type == F64 else (Cast(value, F64),)

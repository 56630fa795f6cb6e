"""Reproducible summation: sums of several threads in fixed point, with bits that do not depend on the order of the threads.

Floating-point additions do not commute with rounding, so a scatter by atomics has other bits in every run. Additions of integers do. Two
kernels stand for a reverse kernel: `measure` finds, for each element of shadows that threads add to together, the greatest magnitude among
its contributions; `collect` writes each contribution as three digits of 31 bits below that magnitude and adds those as integers, three for
each element. What lies 2^-92 below an element's greatest contribution is rounded off, far below what a double resolves. (The idea of
summation over fixed bins is Demmel and Nguyen's, "Fast reproducible floating-point summation", 2013.)

What a thread adds this way is not yet in the shadow: a kernel that reads or clears such a shadow after it has added to it is refused. Sums
in shared memory stay as they are where the threads of a block come in the same order in every run, and are refused where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from ..errors import UnsupportedError
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, blocks, edit, touches, walk_stmts
from ..ir.types import F64, I64, Space
from ..ir.verify import verify

DIGITS = 3
DIGIT_BITS = 31
_SUM_ORDER = "threads add floating-point numbers to shared memory here, in the order in which they come"
_TAKE_ORDER = "threads may store one value to one element here, and the one that comes first takes its adjoint"


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """The kernels that stand for one: both take its arguments first. `measure`: then for each of `targets` its greatest magnitudes, the
    bits of a double an element, zeroed. `collect`: then for each of `targets` its sums, `DIGITS` integers an element, zeroed, and its
    scales, for each element a power of two that takes the greatest magnitude below 2^30."""

    targets: tuple[ir.Buffer, ...]
    measure: ir.Kernel
    collect: ir.Kernel


def fixed_point(kernel: ir.Kernel, alike: Collection[ir.Buffer] = (), *, orders_blocks: bool = False) -> FixedPoint | None:
    """None if no two threads add to one element of memory with atomics. Raises UnsupportedError, with the place, where the sums cannot be
    put off to the end of the launch, or where it depends on chance which thread takes an element's adjoint: of shadows `alike`, to whose
    elements several threads may have stored one value. `orders_blocks`: the threads of a block come to its shared memory in the same order
    in every run."""
    targets = tuple(p for p in kernel.buffers if any(_is_shared_sum(s) for s in touches(kernel.body, p)))
    if not orders_blocks:
        _refuse_within_blocks(kernel)
    _refuse(kernel, targets, alike)
    if not targets:
        return None
    names = Names(kernel)
    peaks = {t: names.buffer(f"{t.name}_peaks", I64) for t in targets}
    sums = {t: (names.buffer(f"{t.name}_digits", I64), names.buffer(f"{t.name}_scales", F64)) for t in targets}
    extra = tuple(p for pair in sums.values() for p in pair)
    measure = _kernel(kernel, "measure", lambda s: _measured(s, names, peaks[s.buffer]), tuple(peaks.values()))
    return FixedPoint(targets, measure, _kernel(kernel, "collect", lambda s: _collected(s, names, *sums[s.buffer]), extra))


def _kernel(kernel: ir.Kernel, what: str, change: Callable[[ir.Accumulate], ir.Block], extra: tuple[ir.Buffer, ...]) -> ir.Kernel:
    in_rows = _kernel(kernel.in_rows, what, change, extra) if kernel.in_rows is not None else None
    body, params = edit(kernel.body, lambda s: change(s) if _is_shared_sum(s) else None), (*kernel.params, *extra)
    made = replace(kernel, name=f"{kernel.name}_{what}", params=params, body=body, in_rows=in_rows)
    verify(made)
    return made


def _is_shared_sum(stmt: ir.Stmt) -> TypeGuard[ir.Accumulate]:
    """Whether the statement adds a float to what other threads, of other blocks too, may add to."""
    if not isinstance(stmt, ir.Accumulate) or not stmt.buffer.element.is_float:
        return False
    return stmt.how in (ir.How.ATOMIC, ir.How.REDUCED) and stmt.buffer.space is not Space.SHARED


def _term(stmt: ir.Accumulate, names: Names) -> ir.Let:
    return ir.Let(names.var(f"{stmt.buffer.name}_term", F64), b.cast(stmt.value, F64), span=stmt.span)


def _measured(stmt: ir.Accumulate, names: Names, peaks: ir.Buffer) -> ir.Block:
    """The bits of doubles that are not negative are ordered as the doubles are, NaN above all."""
    term = _term(stmt, names)
    bits = ir.Call("bits", (b.call("fabs", term.var),), I64)
    return term, ir.Atomic("max", None, peaks, stmt.index, (bits,), span=stmt.span)


def _collected(stmt: ir.Accumulate, names: Names, digits: ir.Buffer, scales: ir.Buffer) -> ir.Block:
    """Every step is exact: scaling by powers of two, and the difference to the nearest whole number."""
    term = _term(stmt, names)
    scale = names.var(f"{stmt.buffer.name}_scale", F64)
    out: list[ir.Stmt] = [term, ir.Load(scale, scales, stmt.index, span=stmt.span)]
    rest: ir.Expr = ir.Binary("*", term.var, scale, F64)
    first = ir.Binary("*", b.cast(stmt.index, I64), b.const(DIGITS, I64), I64)
    for place in range(DIGITS):
        value = names.var(f"{stmt.buffer.name}_rest", F64)
        digit = names.var(f"{stmt.buffer.name}_digit", F64)
        out += [ir.Let(value, rest, span=stmt.span), ir.Let(digit, b.call("rint", value), span=stmt.span)]
        index = first if place == 0 else ir.Binary("+", first, b.const(place, I64), I64)
        out.append(ir.Atomic("add", None, digits, index, (ir.Cast(digit, I64),), span=stmt.span))
        rest = ir.Binary("*", ir.Binary("-", value, digit, F64), b.const(float(1 << DIGIT_BITS), F64), F64)
    return tuple(out)


# --- what cannot be put off ------------------------------------------------------------------------------------------------------------


def _refuse_within_blocks(kernel: ir.Kernel) -> None:
    """Sums over a block are in a fixed order."""
    for stmt in walk_stmts(kernel.body):
        if not isinstance(stmt, ir.Accumulate | ir.Take) or stmt.how is not ir.How.ATOMIC or not stmt.buffer.element.is_float:
            continue
        if stmt.buffer.space is Space.SHARED:
            what = _SUM_ORDER if isinstance(stmt, ir.Accumulate) else _TAKE_ORDER
            raise UnsupportedError(f"{what}; a deterministic reverse pass is not possible", stmt.span)


def _refuse(kernel: ir.Kernel, targets: tuple[ir.Buffer, ...], alike: Collection[ir.Buffer]) -> None:
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, ir.Take) and stmt.how is ir.How.ATOMIC and stmt.buffer in alike:
            raise UnsupportedError(f"{_TAKE_ORDER}; a deterministic reverse pass is not possible", stmt.span)
        if isinstance(stmt, ir.Atomic) and stmt.buffer.element.is_float:
            raise UnsupportedError("the result of an atomic depends on the order of the threads; it is not deterministic", stmt.span)
    for target in targets:
        _in_order(kernel.body, target, added=False)


def _in_order(block: ir.Block, target: ir.Buffer, *, added: bool) -> bool:
    """True if the block, after it, has added to the target; refuses reads that may see what was added, and stores that may clear it."""
    for stmt in block:
        if isinstance(stmt, ir.Load | ir.Take | ir.Store) and stmt.buffer == target:
            if added:
                done = "cleared" if isinstance(stmt, ir.Store) else "read"
                what = f"`{target.name}` is {done} after other threads may have added to it in the same launch"
                raise UnsupportedError(f"{what}; a deterministic reverse pass is not possible", stmt.span)
        elif _is_shared_sum(stmt) and isinstance(stmt, ir.Accumulate) and stmt.buffer == target:
            added = True
        elif isinstance(stmt, ir.For | ir.While):
            again = added or any(_is_shared_sum(s) for s in touches(tuple(s for inner in blocks(stmt) for s in inner), target))
            added = any([_in_order(inner, target, added=again) for inner in blocks(stmt)])
        elif isinstance(stmt, ir.If):
            added = any([_in_order(inner, target, added=added) for inner in blocks(stmt)])
    return added


def scales_of(peaks: Any) -> Any:
    """For each magnitude, the bits of a double, the power of two that takes it below 2^30, so that 2^33 contributions fit into 64 bits; at
    most the greatest that is a double, whose digits reach below the smallest. An array of NumPy or CuPy."""
    exponents = (1052 - (peaks >> 52)).clip(-1022, 1023)  # a double of the biased exponent e is below 2^(e - 1022)
    return ((exponents + 1023) << 52).view(np.float64)

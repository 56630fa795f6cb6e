"""Register promotion: an element of memory that a loop reads and writes is held in a variable through the loop.

A running maximum that is kept in memory (`for (...) if (x[k] > y[i]) y[i] = x[k];`) is one that is kept in a variable, with a load before
the loop and a store behind it. So the loop carries a value, and what is known of carried values holds for it: which iteration put it
there is noted, in place of what each has overwritten.

Only where the loop has no other access to that memory, no thread waits in it, and each iteration begins by reading the element.

Assumes and guarantees: valid IR with unique definitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..analysis.trip_counts import constant_trips
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import Names, blocks, bound_in, holds, map_blocks, spelled, touches, walk_stmts, written_in
from ..ir.types import Space, value_type

_TOGETHER = (ir.Barrier, ir.Shuffle, ir.Tell)  # other threads may write, or see what is written


def promote_elements(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with such elements in variables."""
    body = _block(kernel.body, Names(kernel))
    return replace(kernel, body=body) if body != kernel.body else kernel


def _block(block: ir.Block, names: Names) -> ir.Block:
    out: list[ir.Stmt] = []
    for stmt in block:
        stmt = map_blocks(stmt, lambda inner: _block(inner, names))
        out.extend(_promoted(stmt, names) if isinstance(stmt, ir.For) and not holds(stmt.body, *_TOGETHER) else (stmt,))
    return tuple(out)


def _promoted(loop: ir.For, names: Names) -> Iterator[ir.Stmt]:
    """A loop with what stands before and behind it."""
    found = next(_elements(loop), None)
    if found is None:
        yield loop
        return
    start, held, result = (names.var(found.load.var.name, found.load.var.type) for _ in range(3))
    body, after = _in_variable(loop.body, found.load.buffer, held, names)
    ran = _ran(loop)
    first = replace(found.load, var=start, index=found.index)
    if ran is not None:
        first = replace(first, var=names.var(start.name, start.type))
        yield ir.If(ran, (first,), (), (ir.Merge(start, first.var, b.zero(start.type)),), span=loop.span)
    else:
        yield first
    yield from _promoted(replace(loop, body=body, carried=(*loop.carried, ir.Carried(held, start, after, result))), names)
    last = ir.Store(found.load.buffer, found.index, result, span=found.store.span)
    yield last if ran is None else ir.If(ran, (last,), (), span=loop.span)


@dataclass(frozen=True)
class _Element:
    """An element that a loop first loads, and stores to."""

    load: ir.Load
    store: ir.Store
    index: ir.Expr  # in terms of what is known before the loop


def _elements(loop: ir.For) -> Iterator[_Element]:
    inside = bound_in(loop)
    lets = {s.var: s.value for s in walk_stmts(loop.body) if isinstance(s, ir.Let) and s.var.type.is_integer}
    for buffer in sorted(written_in(loop.body), key=lambda buffer: buffer.uid):
        used = list(touches(loop.body, buffer))
        first = next(s for s in loop.body if any(touches((s,), buffer)))
        stores = [s for s in used if isinstance(s, ir.Store)]
        if (
            buffer.length is not None
            or buffer.space is not Space.GLOBAL
            or buffer.element != value_type(buffer.element)
            or not isinstance(first, ir.Load)
        ):
            continue
        if not stores or len(stores) + sum(isinstance(s, ir.Load) for s in used) < len(used) or _in_inner_loop(loop.body, buffer):
            continue
        places = {spelled(s.index, lets) for s in used if isinstance(s, ir.Load | ir.Store)}
        index = places.pop()
        if not places and index is not None and not any(v in inside for v in ir.variables(index)):
            yield _Element(first, stores[0], index)


def _in_inner_loop(block: ir.Block, buffer: ir.Buffer) -> bool:
    inner = (inside for s in walk_stmts(block) if isinstance(s, ir.For | ir.While) for inside in blocks(s))
    return any(any(touches(inside, buffer)) for inside in inner)


def _ran(loop: ir.For) -> ir.Expr | None:
    """The condition that the loop has an iteration; None if it surely has."""
    if constant_trips(loop):
        return None
    down = isinstance(loop.step, ir.Constant) and loop.step.value < 0
    return b.compare(">" if down else "<", loop.start, loop.stop)


def _in_variable(block: ir.Block, buffer: ir.Buffer, value: ir.Expr, names: Names) -> tuple[ir.Block, ir.Expr]:
    """The block with the element in a variable, which has a value at its start, and the value that it has at the end."""
    out: list[ir.Stmt] = []
    for stmt in block:
        match stmt:
            case ir.Load(var=var) if stmt.buffer == buffer:
                out.append(ir.Let(var, value, span=stmt.span))
            case ir.Store() if stmt.buffer == buffer:
                value = stmt.value
            case ir.If() if any(touches((stmt,), buffer)):
                then, first = _in_variable(stmt.then, buffer, value, names)
                otherwise, second = _in_variable(stmt.otherwise, buffer, value, names)
                merges = stmt.merges
                if first != second:
                    merges = (*merges, ir.Merge(names.var(buffer.name, buffer.element), first, second))
                    value = merges[-1].var
                out.extend(b.make_if(stmt.condition, then, otherwise, merges, stmt.span))
            case _:
                out.append(stmt)
    return tuple(out), value

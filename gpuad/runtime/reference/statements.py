"""Statements become closures that run all threads of a chunk in lockstep under a mask; control flow narrows the mask.

In: a block of the core IR and the slots of its names. Out: a function of a frame and a mask. Both sides of an `if` run one after the other,
each for the threads that take it, and a loop runs until no thread is left in it: execution masks, as in the SIMT model (CUDA C++
Programming Guide, SIMT Architecture). Compiling checks types, so a run need not.

Guarantees one order of execution for one launch. Raises GpuadError for malformed IR, BoundsError for a poisoned value as a condition or
bound, BarrierError where threads of a block do not all reach a barrier, UnsupportedError for a `while` that goes on beyond the frame's
limit, LaunchError for a failed assertion."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import GpuadError, LaunchError, UnsupportedError
from ...ir import nodes as ir
from ...ir.dtypes import Array, dtype_of
from ...ir.types import BOOL, I32, U32
from . import accesses
from .accesses import Run
from .expressions import Code, Names, compile_expr, expect, join
from .frame import Frame, Mask, Stacks, who

Known = tuple[Array, "Array | None"]  # a value and its poison


def compile_block(block: ir.Block, names: Names) -> Run:
    """The statements in order. Raises GpuadError if they are malformed, UnsupportedError for what the reference executor lacks."""
    steps = [_COMPILE[type(stmt)](stmt, names) for stmt in block]

    def run(frame: Frame, mask: Mask) -> None:
        for step in steps:
            step(frame, mask)

    return run


# --- scalars -------------------------------------------------------------------------------------------------------------------------


def _let(stmt: ir.Let, names: Names) -> Run:
    expect(stmt.value.type, stmt.var.type, f"the value of `{stmt.var.name}`")
    value, slot = compile_expr(stmt.value, names), names.var(stmt.var)

    def run(frame: Frame, mask: Mask) -> None:
        poison = value.taint(frame)
        frame.define(slot, value.value(frame), poison, None if poison is None or value.bits is None else value.bits(frame))

    return run


def _assign(stmt: ir.Assign, names: Names) -> Run:
    expect(stmt.value.type, stmt.var.type, f"the value of `{stmt.var.name}`")
    value, slot = compile_expr(stmt.value, names), names.var(stmt.var)
    return lambda frame, mask: frame.assign(slot, mask, value.value(frame), value.taint(frame))


def _known(code: Code, frame: Frame) -> Known:
    return code.value(frame), code.taint(frame)


# --- branches ------------------------------------------------------------------------------------------------------------------------


def _if(stmt: ir.If, names: Names) -> Run:
    expect(stmt.condition.type, BOOL, "the condition of an if")
    condition = compile_expr(stmt.condition, names)
    then, otherwise = compile_block(stmt.then, names), compile_block(stmt.otherwise, names)
    slots = [names.var(m.var) for m in stmt.merges]
    first, second = [compile_expr(m.then, names) for m in stmt.merges], [compile_expr(m.otherwise, names) for m in stmt.merges]
    for merge in stmt.merges:
        expect(merge.then.type, merge.var.type, f"a value of `{merge.var.name}`")
        expect(merge.otherwise.type, merge.var.type, f"a value of `{merge.var.name}`")

    def side(frame: Frame, mask: Mask | None, block: Run, values: list[Code]) -> list[Known]:
        if mask is None:
            return []
        block(frame, mask)
        return [_known(v, frame) for v in values]

    def run(frame: Frame, mask: Mask) -> None:
        frame.refuse(condition.taint(frame), mask, stmt, "a condition")
        chosen = condition.value(frame)
        left = side(frame, mask.narrow(chosen), then, first)
        right = side(frame, mask.narrow(~chosen), otherwise, second)
        for position, slot in enumerate(slots):
            frame.define(slot, *_merged(chosen, left[position : position + 1], right[position : position + 1]))

    return run


def _merged(chosen: Array, left: list[Known], right: list[Known]) -> Known:
    """A value where two sides meet; a side that no thread took is empty."""
    if not left or not right:
        return (left or right)[0]
    (a, poison_a), (b, poison_b) = left[0], right[0]
    if poison_a is None and poison_b is None:
        return np.where(chosen, a, b), None
    clean = np.zeros(1, np.int32)
    return np.where(chosen, a, b), np.where(chosen, clean if poison_a is None else poison_a, clean if poison_b is None else poison_b)


# --- loops ---------------------------------------------------------------------------------------------------------------------------


class _State:
    """The values that a loop carries."""

    def __init__(self, carried: tuple[ir.Carried, ...], names: Names) -> None:
        for c in carried:
            expect(c.init.type, c.var.type, f"the first value of `{c.var.name}`")
            expect(c.next.type, c.var.type, f"the next value of `{c.var.name}`")
            expect(c.result.type, c.var.type, f"`{c.result.name}`")
        self.init = [compile_expr(c.init, names) for c in carried]
        self.vars = [names.var(c.var) for c in carried]
        self.results = [names.var(c.result) for c in carried]
        self.carried, self.names = carried, names
        self.next: list[Code] = []

    def close(self) -> None:
        """Compiles the next values, once the body is known."""
        self.next = [compile_expr(c.next, self.names) for c in self.carried]

    def begin(self, frame: Frame) -> None:
        for slot, (value, poison) in zip(self.vars, [_known(c, frame) for c in self.init], strict=True):
            frame.define(slot, value, poison)

    def advance(self, frame: Frame, mask: Mask) -> None:
        """All at once, in the active lanes."""
        for slot, (value, poison) in zip(self.vars, [_known(c, frame) for c in self.next], strict=True):
            frame.assign(slot, mask, value, poison)

    def end(self, frame: Frame) -> None:
        for slot, result in zip(self.vars, self.results, strict=True):
            value = frame.env[slot]
            assert value is not None
            frame.define(result, value, frame.poison.get(slot))


def _for(stmt: ir.For, names: Names) -> Run:
    bounds = [compile_expr(e, names) for e in (stmt.start, stmt.stop, stmt.step)]
    for bound in (stmt.start, stmt.stop, stmt.step):
        expect(bound.type, stmt.var.type, f"a bound of the loop over `{stmt.var.name}`")
    slot, dtype, state = names.var(stmt.var), dtype_of(stmt.var.type), _State(stmt.carried, names)
    body = compile_block(stmt.body, names)
    state.close()

    def run(frame: Frame, mask: Mask) -> None:
        frame.refuse(join(*(b.taint(frame) for b in bounds)), mask, stmt, "a loop's bound")
        start, stop, step = (_wide(b.value(frame)) for b in bounds)
        counts = _trip_counts(start, stop, step, mask, frame.width)
        if not isinstance(stmt.step, ir.Constant):
            counts = np.where(start < stop, counts, 0)
        state.begin(frame)
        for done in range(int(mask.pick(counts, frame.width).max())):
            frame.step(stmt)
            live = mask.narrow(counts > done)
            assert live is not None
            number = counts - 1 - done if stmt.backward else done
            frame.define(slot, _narrow(start + step * number, dtype))
            body(frame, live)
            state.advance(frame, live)
        state.end(frame)

    return run


def _wide(value: Array) -> Array:
    """Integers in which a loop's arithmetic cannot overflow."""
    if value.dtype.itemsize < 8:
        return value.astype(np.int64)
    small = (value < 2**61) if value.dtype.kind == "u" else (value < 2**61) & (value > -(2**61))
    return value.astype(np.int64) if small.all() else value.astype(object)


def _narrow(value: Array, dtype: np.dtype[Any]) -> Array:
    """Back to the loop variable's type; lanes that have left the loop may hold anything."""
    if value.dtype != object:
        return value.astype(dtype)
    return (value & (2**64 - 1)).astype(np.uint64).view(dtype)


def _trip_counts(start: Array, stop: Array, step: Array, mask: Mask, width: int) -> Array:
    """Lengths of `range(start, stop, step)`."""
    if mask.pick((step == 0) & (start < stop), width).any():
        raise GpuadError("malformed IR: a loop's step is 0")
    size = np.where(step == 0, 1, abs(step))
    counts = -((np.where(step > 0, start - stop, stop - start)) // size)
    return np.asarray(np.maximum(counts, 0))


def _while(stmt: ir.While, names: Names) -> Run:
    expect(stmt.condition.type, BOOL, "the condition of a while")
    state = _State(stmt.carried, names)
    header = compile_block(stmt.header, names)
    condition = compile_expr(stmt.condition, names)
    body = compile_block(stmt.body, names)
    state.close()
    for var in (stmt.counter, stmt.count):
        expect(I32 if var is None else var.type, I32, "a while's counter")
    counter = None if stmt.counter is None else names.var(stmt.counter)
    count = None if stmt.count is None else names.var(stmt.count)

    def iterate(frame: Frame, mask: Mask, totals: Array, done: int) -> Mask | None:
        """One iteration; gives the threads that ran its body."""
        frame.step(stmt)
        if counter is not None:
            frame.define(counter, np.array([done], np.int32))
        header(frame, mask)
        frame.refuse(condition.taint(frame), mask, stmt, "a condition")
        live = mask.narrow(condition.value(frame))
        if live is None:
            return None
        body(frame, live)
        state.advance(frame, live)
        totals[live.lanes] += 1
        return live

    def run(frame: Frame, mask: Mask) -> None:
        state.begin(frame)
        totals, live = np.zeros(frame.width, np.int32), mask
        for done in range(frame.limit):
            still = iterate(frame, live, totals, done)
            if still is None:
                break
            live = still
        else:
            raise UnsupportedError(f"the loop has not ended after {frame.limit} iterations", stmt.span)
        state.end(frame)
        if count is not None:
            frame.define(count, totals)

    return run


# --- barriers and stacks -------------------------------------------------------------------------------------------------------------


def _barrier(stmt: ir.Barrier, names: Names) -> Run:
    named = compile_expr(stmt.mask if stmt.mask is not None else ir.Constant(0xFFFFFFFF, U32), names)

    def run(frame: Frame, mask: Mask) -> None:
        if stmt.scope != "block":
            members = frame.members(mask, named.value(frame), stmt, "a barrier")
            assert frame.warp_clocks is not None
            frame.warp_clocks.pass_barrier(frame.active(mask), members, frame.members_there())
            return
        frame.pass_barrier(mask, stmt, "a barrier of its block")

    return run


def _shuffle(stmt: ir.Shuffle, names: Names) -> Run:
    named, value, lane, width = (compile_expr(e, names) for e in (stmt.mask, stmt.value, stmt.lane, stmt.width))
    slot = names.var(stmt.var)
    silent = ir.Buffer(stmt.var.name, stmt.var.type)

    def run(frame: Frame, mask: Mask) -> None:
        members = frame.members(mask, named.value(frame), stmt, "a shuffle")
        frame.refuse(join(named.taint(frame), lane.taint(frame), width.taint(frame)), mask, stmt, "a shuffle")
        values = np.broadcast_to(value.value(frame), (frame.width,))
        if stmt.op == "ballot":
            frame.refuse(value.taint(frame), mask, stmt, "a vote")
            votes = (members >= 0) & (values[members] != 0)
            frame.define(slot, (votes.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=1).astype(np.uint32))
            return
        own = frame.in_block % 32
        source = _source(stmt.op, own, lane.value(frame).astype(np.int64), width.value(frame).astype(np.int64))
        picked = members[np.arange(frame.width), source]
        poison = value.taint(frame)
        taint = np.zeros(frame.width, np.int32) if poison is None else np.broadcast_to(poison, (frame.width,))[picked]
        missing = frame.active(mask) & (picked < 0)
        if missing.any():
            taint = np.where(missing, frame.cause(stmt, silent, "a lane that takes no part in the shuffle to"), taint)
        frame.define(slot, values[picked], taint if taint.any() else None)

    return run


def _source(op: str, own: Array, lane: Array, width: Array) -> Array:
    """The lane of the warp whose value each lane gets."""
    low = own & (width - 1)
    start = own - low
    match op:
        case "up":
            return np.where(lane > low, own, own - lane)
        case "down":
            return np.where(low + lane >= width, own, own + lane)
        case "xor":
            other = own ^ (lane & 31)
            return np.where(other >= start + width, own, other)
        case "":
            return np.asarray(start + (lane & (width - 1)))
    raise AssertionError(f"a shuffle of the kind {op!r}")


_LENGTH = re.compile(r"(%[-+ #0]*[\d.]*)ll([a-zA-Z])")  # 64 bits, a length that Python's % does not take


def _tell(stmt: ir.Tell, names: Names) -> Run:
    values = [compile_expr(v, names) for v in stmt.values]
    text = _LENGTH.sub(r"\1\2", stmt.text)

    def run(frame: Frame, mask: Mask) -> None:
        if stmt.stops:
            first = int(mask.pick(frame.threads, frame.width)[0])
            raise LaunchError(f"an assertion failed for {who(frame.geometry.place(first))}: {stmt.text}")
        for value in values:
            frame.refuse(value.taint(frame), mask, stmt, "a number that is printed")
        columns = [mask.pick(value.value(frame), frame.width).tolist() for value in values]
        for row in zip(*columns, strict=True) if columns else [()] * mask.count(frame.width):
            print(text % row, end="")

    return run


def _push(stmt: ir.Push, names: Names) -> Run:
    slot, values = names.stack(stmt.stack), [compile_expr(v, names) for v in stmt.values]
    for value, (name, kind) in zip(stmt.values, stmt.stack.fields, strict=True):
        expect(value.type, kind, f"`{name}`, pushed on `{stmt.stack.name}`,")
    dtypes = [dtype_of(kind) for _, kind in stmt.stack.fields]

    def run(frame: Frame, mask: Mask) -> None:
        stack = frame.stacks.get(slot) or _new_stack(frame, slot, dtypes)
        lanes = frame.lanes[mask.lanes]
        depth = stack.depth[lanes]
        _reserve(stack, int(depth.max()) + 1)
        for position, code in enumerate(values):
            poison = code.taint(frame)
            stack.values[position][depth, lanes] = mask.pick(code.value(frame), frame.width)
            stack.poison[position][depth, lanes] = 0 if poison is None else mask.pick(poison, frame.width)
        stack.depth[lanes] = depth + 1

    return run


def _new_stack(frame: Frame, slot: int, dtypes: list[np.dtype[Any]]) -> Stacks:
    shape = (4, frame.width)
    stack = Stacks(np.zeros(frame.width, np.int64), [np.zeros(shape, d) for d in dtypes], [np.zeros(shape, np.int32) for _ in dtypes])
    frame.stacks[slot] = stack
    return stack


def _reserve(stack: Stacks, depth: int) -> None:
    """Makes room for `depth` entries."""
    if stack.values and depth > len(stack.values[0]):
        stack.values = [np.concatenate((v, np.zeros_like(v))) for v in stack.values]
        stack.poison = [np.concatenate((p, np.zeros_like(p))) for p in stack.poison]


def _pop(stmt: ir.Pop, names: Names) -> Run:
    slot, slots = names.stack(stmt.stack), [names.var(v) for v in stmt.vars]
    for var, (name, kind) in zip(stmt.vars, stmt.stack.fields, strict=True):
        expect(var.type, kind, f"`{name}`, popped from `{stmt.stack.name}`,")

    def run(frame: Frame, mask: Mask) -> None:
        stack, lanes = frame.stacks.get(slot), frame.lanes[mask.lanes]
        if stack is None or (stack.depth[lanes] == 0).any():
            raise GpuadError(f"malformed IR: `{stmt.stack.name}` is popped more often than pushed")
        depth = stack.depth[lanes] - 1
        stack.depth[lanes] = depth
        for position, var in enumerate(slots):
            value, poison = np.zeros(frame.width, stack.values[position].dtype), np.zeros(frame.width, np.int32)
            value[lanes], poison[lanes] = stack.values[position][depth, lanes], stack.poison[position][depth, lanes]
            frame.define(var, value, poison if poison.any() else None)

    return run


_COMPILE: dict[type[ir.Stmt], Callable[[Any, Names], Run]] = {
    ir.Let: _let,
    ir.Assign: _assign,
    ir.If: _if,
    ir.For: _for,
    ir.While: _while,
    ir.Barrier: _barrier,
    ir.Shuffle: _shuffle,
    ir.Tell: _tell,
    ir.Push: _push,
    ir.Pop: _pop,
    ir.Alloc: accesses.compile_alloc,
    ir.Load: accesses.compile_load,
    ir.Store: accesses.compile_store,
    ir.Accumulate: accesses.compile_accumulate,
    ir.Take: accesses.compile_take,
    ir.Atomic: accesses.compile_atomic,
}

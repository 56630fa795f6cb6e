"""Statements that access memory: each computes which threads reach which elements, reports that to the race tracker, and then accesses.

In: a Load, Store, Accumulate, Take, Atomic or Alloc of the core IR, and the slots of its names. Out: a closure over a frame and a mask of
active threads. Plain accesses of a statement happen together; atomics one thread after the other in lane order, which makes a run
repeatable. A read outside of an array or of memory never initialised gives a poisoned value, a write outside raises.

Guarantees that each access reaches the tracker (`races`) before memory changes. Raises BoundsError for a write outside and for an index
that is poisoned, BarrierError for a sum over a block that not all of its threads reach, what the tracker raises, UnsupportedError for an
atomic that is not listed, GpuadError for malformed IR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...errors import GpuadError, UnsupportedError
from ...ir.dtypes import Array, dtype_of, is_real
from ...ir.functions import EXTREMA
from ...ir.nodes import Accumulate, Alloc, Atomic, Expr, How, Load, Store, Take
from ...ir.types import Space, value_type
from .expressions import Code, Names, compile_expr, expect, join
from .frame import Frame, Mask, Storage, who
from .races import Kind, Site, Tracker

Run = Callable[[Frame, Mask], None]


def compile_load(stmt: Load, names: Names) -> Run:
    expect(stmt.var.type, value_type(stmt.buffer.element), f"`{stmt.var.name}`, loaded from `{stmt.buffer.name}`,")
    slot, memory, index, site = names.var(stmt.var), names.buffer(stmt.buffer), _index(stmt.index, names), Site(stmt, stmt.buffer)
    dtype = dtype_of(stmt.var.type)

    def run(frame: Frame, mask: Mask) -> None:
        where = _where(frame, mask, index, stmt)
        storage = frame.storage(memory)
        value, poison = _read(frame, mask, site, storage, where)
        frame.define(slot, value.astype(dtype, copy=False), poison, _read_bits(frame, mask, storage, where, poison))

    return run


def compile_store(stmt: Store, names: Names) -> Run:
    expect(stmt.value.type, value_type(stmt.buffer.element), f"a value stored to `{stmt.buffer.name}`")
    memory, index, value, site = (
        names.buffer(stmt.buffer),
        _index(stmt.index, names),
        compile_expr(stmt.value, names),
        Site(stmt, stmt.buffer),
    )

    def run(frame: Frame, mask: Mask) -> None:
        where, storage = _where(frame, mask, index, stmt), frame.storage(memory)
        positions = frame.inside(site, storage, mask, where)
        poison = _accepted(frame, mask, site, storage, value)
        content = mask.pick(value.value(frame), frame.width)
        with np.errstate(over="ignore"):  # to halves
            content = content.astype(storage.data.dtype, copy=False)
        _write(frame, mask, site, storage, positions, content, poison)
        if storage.bits is not None:
            storage.bits[positions] = 0 if poison is None else mask.pick(value.unsound(frame), frame.width)

    return run


def compile_accumulate(stmt: Accumulate, names: Names) -> Run:
    expect(stmt.value.type, value_type(stmt.buffer.element), f"a value added to `{stmt.buffer.name}`")
    memory, index, value, site = (
        names.buffer(stmt.buffer),
        _index(stmt.index, names),
        compile_expr(stmt.value, names),
        Site(stmt, stmt.buffer),
    )

    def add(frame: Frame, mask: Mask) -> None:
        where, storage = _where(frame, mask, index, stmt), frame.storage(memory)
        poison = _accepted(frame, mask, site, storage, value)
        addend = mask.pick(value.value(frame), frame.width)
        positions = frame.inside(site, storage, mask, where)
        if storage.poison is not None and poison is not None:
            np.maximum.at(storage.poison, positions, poison)
        if storage.rows == "lane" or stmt.how is How.PLAIN:
            _track_plain(frame, mask, site, storage, positions)
            with np.errstate(over="ignore"):  # to halves
                storage.data[positions] = (storage.data[positions].astype(addend.dtype) + addend).astype(storage.data.dtype)
            return
        if storage.tracker is not None:
            storage.tracker.access(Kind.ATOMIC, frame.batch(site, storage, mask, positions))
        if stmt.how is How.REDUCED:
            _add_reduced(frame, mask, site, storage, positions, addend)
        else:
            np.add.at(storage.data, positions, addend.astype(storage.data.dtype))  # a half is what is added to a half

    def add_together(frame: Frame, mask: Mask) -> None:
        """The block's threads wait for one another before the sum is added, and after that."""
        frame.pass_barrier(mask, stmt, "a sum over its block")
        adding = mask.narrow(_in_some_lane(frame, mask, value))
        if adding is not None:  # else there may be no such element
            add(frame, adding)
        frame.pass_barrier(mask, stmt, "a sum over its block")

    return add_together if stmt.how is How.REDUCED else add


def _in_some_lane(frame: Frame, mask: Mask, value: Code) -> Array:
    """For each lane whether an active one of its block has another value than 0, or a poisoned one."""
    poison = value.taint(frame)
    counts = (value.value(frame) != 0) | (poison is not None and poison != 0)
    found = np.zeros(frame.width, np.bool_)
    found[mask.lanes] = mask.pick(counts, frame.width)
    some = found.reshape(-1, frame.geometry.threads).any(axis=1)
    return np.repeat(some, frame.geometry.threads)


def compile_take(stmt: Take, names: Names) -> Run:
    expect(stmt.var.type, stmt.buffer.element, f"`{stmt.var.name}`, taken from `{stmt.buffer.name}`,")
    slot, memory, index, site = names.var(stmt.var), names.buffer(stmt.buffer), _index(stmt.index, names), Site(stmt, stmt.buffer)

    def run(frame: Frame, mask: Mask) -> None:
        where, storage = _where(frame, mask, index, stmt), frame.storage(memory)
        positions = frame.inside(site, storage, mask, where)
        poison = None if storage.poison is None else _spread(frame, mask, storage.poison[positions])
        old = storage.data[positions]
        if storage.rows == "lane" or stmt.how is How.PLAIN:
            _track_plain(frame, mask, site, storage, positions)
        else:
            _track_atomic(frame, mask, site, storage, positions)
            first = np.zeros(len(positions), np.bool_)  # an exchange gives the content to the first thread, and 0 to the others
            first[np.unique(positions, return_index=True)[1]] = True
            old = np.where(first, old, old.dtype.type(0))
        storage.data[positions] = 0
        if storage.poison is not None:
            storage.poison[positions] = 0
        frame.define(slot, _spread(frame, mask, old), poison if poison is not None and poison.any() else None)

    return run


def compile_atomic(stmt: Atomic, names: Names) -> Run:
    if stmt.op not in _UPDATES:
        raise UnsupportedError(f"the reference executor has no atomic operation `{stmt.op}`", stmt.span)
    for operand in stmt.operands:
        expect(operand.type, value_type(stmt.buffer.element), f"an operand of an atomic on `{stmt.buffer.name}`")
    slot = None if stmt.var is None else names.var(stmt.var)
    memory, index, site = names.buffer(stmt.buffer), _index(stmt.index, names), Site(stmt, stmt.buffer)
    operands, update = [compile_expr(o, names) for o in stmt.operands], _UPDATES[stmt.op]
    dtype = dtype_of(value_type(stmt.buffer.element))

    def run(frame: Frame, mask: Mask) -> None:
        where, storage = _where(frame, mask, index, stmt), frame.storage(memory)
        positions = frame.inside(site, storage, mask, where)
        frame.refuse(join(*(o.taint(frame) for o in operands)), mask, stmt, "an atomic's operand")
        if storage.poison is not None:
            frame.refuse(_spread(frame, mask, storage.poison[positions]), mask, stmt, "an atomic's old content")
        _track_atomic(frame, mask, site, storage, positions)
        values = [mask.pick(o.value(frame), frame.width).astype(storage.data.dtype, copy=False) for o in operands]
        old = _serialise(storage.data, positions, update, values)
        if slot is not None:
            frame.define(slot, _spread(frame, mask, old.astype(dtype, copy=False)))

    return run


def compile_alloc(stmt: Alloc, names: Names) -> Run:
    buffer, memory, dtype = stmt.buffer, names.buffer(stmt.buffer), dtype_of(stmt.buffer.element)
    shared = buffer.space is Space.SHARED

    def run(frame: Frame, mask: Mask) -> None:
        if shared and not stmt.zero and frame.storages[memory] is not None:
            return  # it is there as long as the block
        blocks = frame.width // frame.geometry.threads
        length = frame.shared_mem // dtype.itemsize if buffer.length is None else buffer.length
        size = length * (blocks if shared else frame.width)
        fill = np.nan if is_real(dtype) and not stmt.zero else 0
        poison = None if stmt.zero else np.full(size, frame.cause(stmt, buffer, "uninitialised"), np.int32)
        key = (memory, frame.chunk)
        watch = frame.watch[1] if frame.watch is not None and frame.watch[0] == key else None
        tracker = Tracker(key, size, frame.geometry.threads, watch) if shared and frame.check else None
        bits = None if poison is None or not buffer.element.is_integer else np.full(size, ~dtype.type(0), dtype)
        rows = "block" if shared else "lane"
        frame.storages[memory] = Storage(buffer, np.full(size, fill, dtype), 0, length, rows, tracker, 1, poison, bits)

    return run


# --- steps they share ----------------------------------------------------------------------------------------------------------------


def _index(index: Expr, names: Names) -> Code:
    if not index.type.is_integer:
        raise GpuadError(f"malformed IR: an index of type {index.type}")
    return compile_expr(index, names)


def _where(frame: Frame, mask: Mask, index: Code, stmt: Load | Store | Accumulate | Take | Atomic) -> Array:
    frame.refuse(index.taint(frame), mask, stmt, "an index")
    return index.value(frame)


def _accepted(frame: Frame, mask: Mask, site: Site, storage: Storage, value: Code) -> Array | None:
    """The poison of a value to be written, one entry an active lane: allowed into local and shared arrays only, which carry it on."""
    poison = value.taint(frame)
    if poison is None:
        return None
    if storage.poison is None:
        if storage.rows == "launch":
            frame.refuse(poison, mask, site.stmt, f"a value written to `{storage.buffer.name}`")
            return None
        storage.poison = np.zeros(len(storage.data), np.int32)
    return mask.pick(poison, frame.width)


def _spread(frame: Frame, mask: Mask, found: Array) -> Array:
    """Entries of the active lanes, put into their lanes."""
    if mask.bits is None or len(found) == 1:
        return found
    result = np.zeros(frame.width, found.dtype)
    result[mask.lanes] = found
    return result


def _read(frame: Frame, mask: Mask, site: Site, storage: Storage, index: Array) -> tuple[Array, Array | None]:
    positions, outside = frame.locate(storage, mask, index)
    if np.count_nonzero(outside):
        return _read_outside(frame, mask, site, storage, positions, outside)
    if storage.tracker is not None:
        every = np.broadcast_to(positions, (mask.count(frame.width),))
        storage.tracker.access(Kind.READ, frame.batch(site, storage, mask, every))
    value = _spread(frame, mask, storage.data[positions])
    if storage.poison is None:
        return value, None
    poison = storage.poison[positions]
    return value, _spread(frame, mask, poison) if np.count_nonzero(poison) else None


def _read_bits(frame: Frame, mask: Mask, storage: Storage, index: Array, poison: Array | None) -> Array | None:
    """The unsound bits of what a load gives; None, for all, where some lanes are outside."""
    if poison is None or storage.bits is None:
        return None
    positions, outside = frame.locate(storage, mask, index)
    return None if np.count_nonzero(outside) else _spread(frame, mask, storage.bits[positions])


def _read_outside(frame: Frame, mask: Mask, site: Site, storage: Storage, positions: Array, outside: Array) -> tuple[Array, Array]:
    """What a load gives if some lanes are outside: poison in those."""
    count = mask.count(frame.width)
    positions, outside = np.broadcast_to(positions, (count,)), np.broadcast_to(outside, (count,))
    dtype = storage.data.dtype
    found = np.full(count, np.nan if is_real(dtype) else 0, dtype)
    poison = np.where(outside, frame.cause(site.stmt, storage.buffer, "a read outside"), 0).astype(np.int32)
    inside = np.flatnonzero(~outside)
    if len(inside):
        found[inside] = storage.data[positions[inside]]
        if storage.poison is not None:
            poison[inside] = storage.poison[positions[inside]]
        if storage.tracker is not None:
            bits = np.zeros(frame.width, np.bool_)
            bits[np.arange(frame.width)[mask.lanes][inside]] = True
            storage.tracker.access(Kind.READ, frame.batch(site, storage, Mask(bits), positions[inside]))
    return _spread(frame, mask, found), _spread(frame, mask, poison)


def _write(frame: Frame, mask: Mask, site: Site, storage: Storage, positions: Array, values: Array, poison: Array | None) -> None:
    if storage.tracker is None:
        storage.data[positions] = values
    else:
        batch = replace(frame.batch(site, storage, mask, positions), contents=_bits(values))
        storage.tracker.access(Kind.WRITE, batch, _differs(storage, positions, values))
        storage.data[positions] = values
        storage.tracker.clash(batch, _differs(storage, positions, values))
    if storage.poison is not None:
        storage.poison[positions] = 0 if poison is None else poison


def _differs(storage: Storage, positions: Array, values: Array) -> Array:
    """Where the content is not bitwise the values."""
    differs = _bits(storage.data[positions]) != _bits(values)
    return differs if storage.scale == 1 else np.repeat(differs, storage.scale)


def _bits(values: Array) -> Array:
    return values.view(f"u{values.dtype.itemsize}")


def _track_plain(frame: Frame, mask: Mask, site: Site, storage: Storage, positions: Array) -> None:
    """A read and a write of the same element."""
    if storage.tracker is None:
        return
    batch = frame.batch(site, storage, mask, positions)
    storage.tracker.access(Kind.READ, batch)
    storage.tracker.access(Kind.WRITE, batch)


def _track_atomic(frame: Frame, mask: Mask, site: Site, storage: Storage, positions: Array) -> None:
    if storage.tracker is not None:
        storage.tracker.access(Kind.ATOMIC, frame.batch(site, storage, mask, positions))


# --- atomics -------------------------------------------------------------------------------------------------------------------------


def _exchanged(old: Array, value: Array) -> Array:
    return value


def _swapped(old: Array, wanted: Array, value: Array) -> Array:
    """Compare-and-swap, which compares bits."""
    return np.where(_bits(old) == _bits(wanted), value, old)


def _incremented(old: Array, limit: Array) -> Array:
    raised: Array = old + old.dtype.type(1)
    return np.where(old >= limit, old.dtype.type(0), raised)


def _decremented(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


def _kept(op: str) -> Callable[[Array, Array], Array]:
    """The operation of `ir.functions`: the new value where it is greater, or less, as the operation compares."""
    kinds = {"i": "i", "u": "u"}

    def ordered(values: Array) -> Array:
        return values.view(f"{kinds[op[0]]}{values.dtype.itemsize}") if op[0] in kinds else values

    def update(old: Array, value: Array) -> Array:
        first, second = ordered(value), ordered(old)
        replaced = first > second if op.endswith("max") else first < second
        if op[0] == "f":
            replaced |= (old != old) & (value == value)
        if op[0] == "n":
            replaced = ~(old >= value if op.endswith("max") else old <= value)
        return np.where(replaced, value, old)

    return update


_UPDATES: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    **{op: _kept(op) for op in EXTREMA},
    "exch": _exchanged,
    "cas": _swapped,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": _incremented,
    "dec": _decremented,
}


def _serialise(data: Array, positions: Array, update: Callable[..., Array], operands: list[Array]) -> Array:
    """Updates the elements one thread after another, in lane order; gives the content that each thread found."""
    found = np.empty(len(positions), data.dtype)
    for lanes in _rounds(positions):
        where = positions[lanes]
        old = data[where]
        found[lanes] = old
        data[where] = update(old, *(o[lanes] for o in operands))
    return found


def _rounds(positions: Array) -> list[Array]:
    """Lanes in rounds: within one all positions are distinct, and lanes of one position come in lane order."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sizes = np.diff(np.append(starts, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(starts, sizes)
    ends = np.cumsum(np.bincount(rank))[:-1]
    return np.split(order[np.argsort(rank, kind="stable")], ends)


def _add_reduced(frame: Frame, mask: Mask, site: Site, storage: Storage, positions: Array, addend: Array) -> None:
    """Sums over each block in float64, then adds the sums. Every thread of a block has to come, with the same index."""
    active = frame.whole_blocks(mask, site.stmt, "a sum over its block")
    table = positions.reshape(int(active.sum()), frame.geometry.threads)
    if (table != table[:, :1]).any():
        lane = int(np.argmax((table != table[:, :1]).ravel()))
        thread = frame.geometry.place(int(mask.pick(frame.threads, frame.width)[lane]))
        raise GpuadError(f"malformed IR: {who(thread)} adds to another element of `{storage.buffer.name}` than its block")
    exact = addend.astype(np.float64) if addend.dtype.kind == "f" else addend
    sums = exact.reshape(table.shape).sum(axis=1, dtype=exact.dtype)
    np.add.at(storage.data, table[:, 0], sums.astype(addend.dtype))

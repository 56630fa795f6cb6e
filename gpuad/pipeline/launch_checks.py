"""Checks of a launch on its numbers alone, before anything is written: device, bounds, premises of the adjoint.

Store checks: whether two threads of a launch write to one element, by proof or by an inspector; such a launch is refused.

What a store leaves has to be one thread's: either no other accesses the element (`inspect.store_conflicts`), or the accesses are by threads
of one block and a barrier separates them (`inspect.barrier_order`). Nothing has been written when a launch is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..analysis.affine_forms import Launch as Numbers
from ..analysis.affine_forms import footprints
from ..analysis.index_polynomials import evaluate, strides
from ..analysis.must_define import defines_before_use
from ..analysis.races import Extent, contested, is_plain_write, proved_race, sure_access, sure_extents
from ..errors import LaunchError, ShadowError, UnsupportedError
from ..inspect.barrier_order import Access, hindrance, may_be_ordered
from ..inspect.store_conflicts import StoreConflictInspector, distinguishing_stores
from ..ir.nodes import Accumulate, Alloc, Atomic, Buffer, Kernel, Load, Stmt, Store
from ..ir.rewrite import holds, walk_stmts
from ..optimize.privatisation import tiles
from ..runtime.base import Memory
from .adjoint_memory import copied, fingerprint
from .calls import Call
from .certificates import may_collide
from .derived_kernels import Adjoint, Inspected
from .inspectors import shared_race


def check_device(call: Call) -> None:
    """Refuses arrays that are not on the current device."""
    if call.bound.library != "cupy":
        return
    from ..runtime.cuda import current_device

    here = current_device()
    for argument in call.bound.arguments:
        for array in (argument.array, *argument.shadow_arrays):
            if array is not None and int(array.device.id) != here:
                raise LaunchError(
                    f"`{call.bound.kernel}`: `{argument.name}` or its shadow is on device {int(array.device.id)}, but device {here} is the "
                    "current one; enter the arrays' device, or copy them."
                )


def check_bounds(kernel: Kernel, call: Call, extents: tuple[Extent, ...]) -> None:
    """Refuses a launch that surely writes outside of an array's allocation."""
    positions = {item: i for i, item in enumerate(kernel.params)}
    for extent in extents:
        _check_inside(call, positions.get(extent.buffer), extent, "writes `{}` from element {} to {} ({})")


def check_reads(kernel: Kernel, call: Call, extents: tuple[Extent, ...]) -> None:
    """Refuses a launch that surely reads outside of the allocation of an array without a shadow, and uses what it finds there. Where there
    is a shadow, `check_adjoint_bounds` knows what is added to it."""
    positions = {item: i for i, item in enumerate(kernel.params)}
    for extent in extents:
        position = positions.get(extent.buffer)
        if position is not None and position < len(call.bound.arguments) and not call.bound.arguments[position].shadows:
            _check_inside(call, position, extent, "reads `{}` from element {} to {} ({})")


def absent(kernel: Kernel, call: Call, numbers: Numbers) -> frozenset[int]:
    """Positions of the pointers without an array to which the launch, with these numbers, may come. LaunchError for one to which it surely
    does."""
    found = set()
    for position, (item, argument) in enumerate(zip(kernel.params, call.bound.arguments, strict=False)):
        if not isinstance(item, Buffer) or argument.memory is not None or argument.array is not None:
            continue
        stmt = sure_access(kernel, numbers, item)
        if stmt is not None:
            does = "reads" if isinstance(stmt, Load) else "writes"
            raise LaunchError(
                f"`{call.bound.kernel}`: `{argument.name}` is None, but this launch {does} it ({stmt.span}): pass an array, or ask in the "
                f"kernel whether there is one, `if ({argument.name})`. Nothing was launched."
            )
        if footprints(kernel.body, [item], numbers)[item] != (0, -1):
            found.add(position)
    return frozenset(found)


def check_adjoint_bounds(adjoint: Adjoint, call: Call) -> None:
    """Refuses a launch whose adjoint surely adds to a shadow outside of it: where the launch uses what it reads outside of the array. What
    it reads there and does not use does no harm."""
    shadows = {p.item: p.position for p in adjoint.parameters if p.role == "shadow"}

    def find(numbers: Numbers) -> tuple[Extent, ...]:
        body = Kernel(adjoint.name, adjoint.params, adjoint.layout.body, adjoint.primal.span)
        return tuple(e for e in sure_extents(body, numbers) if e.buffer in shadows)

    for extent in call.fact(adjoint.facts, ("bounds",), adjoint.primal, find):
        words = "reads `{}` from element {} to {} ({}), and its adjoint would add to the shadow there"
        _check_inside(call, shadows[extent.buffer], extent, words)


def _check_inside(call: Call, position: int | None, extent: Extent, words: str) -> None:
    if position is None or position >= len(call.bound.arguments):
        return
    argument = call.bound.arguments[position]
    memory = argument.memory
    if memory is None:
        return
    first, last = -memory.offset, int(memory.root.size) - memory.offset - 1
    if extent.low < first or extent.high > last:
        where = f"ends at {last}" if extent.high > last else f"begins at {first}"
        raise LaunchError(
            f"`{call.bound.kernel}`: this launch {words.format(argument.name, extent.low, extent.high, extent.stmt.span)}, but "
            f"its memory {where}: check the sizes that are passed, grid and block. Nothing was launched."
        )


def premises_hold(adjoint: Adjoint, call: Call) -> bool:
    """True if the strides that the adjoint takes to be non-zero are so in this launch, and the tiles that it fills again are filled by
    each iteration before they are read."""
    numbers = call.numbers(adjoint.primal)
    if not all(strides(evaluate(p, numbers.scalars)) for p in adjoint.recording.premises):
        return False
    if not holds(adjoint.primal.body, Alloc):
        return True
    filled: bool = adjoint.facts.get(
        ("tiles", call.key), lambda: all(defines_before_use(adjoint.primal, loop, tile, numbers) for loop, tile in tiles(adjoint.primal))
    )
    return filled


def stays_inside(kernel: Kernel, call: Call, numbers: Numbers) -> frozenset[str]:
    """Names of the pointer parameters through which the launch, with these numbers, provably stays inside of the view that was passed."""
    found = footprints(kernel.body, kernel.buffers, numbers)
    inside = set()
    for item, argument in zip(kernel.params, call.bound.arguments, strict=False):
        reach = found.get(item) if isinstance(item, Buffer) else None
        memory = argument.memory
        if reach is None or memory is None or reach[0] < 0:
            continue
        if reach[1] < dense_extent(argument.array) * argument.array.dtype.itemsize // memory.itemsize:
            inside.add(argument.name)
    return frozenset(inside)


def dense_extent(array: Any) -> int:
    """Elements from a view's first element to its last, both included, if it is dense; else only the first run."""
    if array.size == 0:
        return 0
    span = 1 + sum(abs(s) * (n - 1) for s, n in zip(array.strides, array.shape, strict=True)) // array.dtype.itemsize
    return span if span == array.size else 1


def check_stopped(call: Call) -> None:
    """A stopped argument reads memory through which a gradient flows elsewhere in the same launch: the two cannot be told apart."""
    arguments = call.bound.arguments
    bases = {i: call.overlaps.get(i, (i, 0))[0] for i in range(len(arguments))}
    for i, argument in enumerate(arguments):
        others = [a for j, a in enumerate(arguments) if j != i and bases[j] == bases[i] and a.shadows]
        if argument.kind == "stopped" and others:
            raise ShadowError(
                f"`{call.bound.kernel}`: `{argument.name}` is stopped, but its memory is also `{others[0].name}`, which has a shadow; pass "
                "a copy of it. Nothing was launched."
            )


def check_same(before: Call, now: Call, marks: Mapping[str, int]) -> None:
    """Refuses a reverse that is not that of the launch that was saved, or whose inputs have changed against a promise."""
    name = now.bound.kernel
    if (before.key, before.loose, before.whole_values) != (now.key, now.loose, now.whole_values):
        raise LaunchError(f"`{name}`: the reverse is called with another grid, block, integers, array layouts or overlaps than its forward")
    for argument in before.bound.arguments:  # whose memory is read, wherever that of the reverse's call is
        mark = marks.get(argument.name)
        if mark is not None and argument.memory is not None and fingerprint(argument.memory.root) != mark:
            raise LaunchError(
                f"`{name}`: `{argument.name}` was declared not_overwritten, but has changed since the forward; leave it out of "
                "not_overwritten to have it saved. No shadow was touched."
            )


def loads(kernel: Kernel, buffer: Buffer) -> bool:
    """True if the kernel reads the buffer."""
    return any(isinstance(s, Load) and s.buffer == buffer for s in walk_stmts(kernel.body))


def check_stores(adjoint: Inspected, call: Call) -> None:
    """Refuses a launch in which two threads store different values to one element that has a shadow, unless barriers order the
    accesses; nothing has been launched then."""
    doubtful = stores_in_doubt(adjoint, call)
    if not doubtful:
        return
    if ("ordered", call.key) in adjoint.facts.known and _first_conflict(adjoint, call, doubtful) is None:
        return
    check = adjoint.store_conflicts(frozenset(doubtful))
    flag = _flag(check, call)
    if flag == 2:
        raise LaunchError(
            f"`{call.bound.kernel}`: different atomic operations meet in one element of {_named(adjoint, doubtful)}: what is left depends "
            "on the order of the threads, and so would the gradient. Nothing was launched."
        )
    if flag:
        _check_barrier_order(adjoint, call, doubtful)
    elif check.by_numbers:
        adjoint.facts.get(("no conflict", call.key), lambda: True)


def _flag(check: StoreConflictInspector, call: Call) -> int:
    """What a checking kernel finds in a launch."""
    if check.by_numbers and call.pool is not None:  # once for these numbers: not in memory that a tape keeps
        call = replace(call, pool=None)
    memories = dict(zip(check.kernel.params, (a.memory for a in call.bound.arguments), strict=False))
    given, owned = ([memories[b] for b in buffers if isinstance(b, Buffer)] for buffers in (check.copies, check.notes))
    flag = Memory(call.executor.zeros(1, np.dtype(np.int32)))
    bounded = [memories[x] for x in check.bounded]
    ends = [np.int64(n) for m in bounded for n in ((0, 0) if m is None else (-m.offset, int(m.root.size) - m.offset))]
    notes = [None if m is None else Memory(call.executor.zeros(m.root.size, np.dtype(np.int64)), m.offset) for m in owned]
    for run in range(check.runs):
        copies = [None if m is None else copied(call, m) for m in given]
        number = [np.int32(run)] if check.runs > 1 else []
        call.run(check.kernel, [*call.bound.primals(), *call.offset_values(), *copies, *notes, *ends, *number, flag])
    found = int(flag.root[0])
    stmt = check.outside(found)
    if stmt is not None:
        what, buffer = "reads" if isinstance(stmt, Load) else "writes", getattr(stmt, "buffer", None)
        raise LaunchError(
            f"`{call.bound.kernel}`: this launch {what} `{buffer.name if buffer else ''}` outside of its memory ({stmt.span}): check its "
            "indices. Nothing was launched."
        )
    return found


def _check_barrier_order(adjoint: Inspected, call: Call, doubtful: Sequence[Buffer]) -> None:
    """Refuses a launch in which accesses of several threads to one element are not ordered by barriers (`inspect.barrier_order`)."""
    before = f"`{call.bound.kernel}`: two threads write to one element of {_named(adjoint, doubtful)}:"
    if not may_be_ordered(adjoint.primal):
        then = "what stays is undefined, and so is the gradient. Use atomicAdd to sum, or make the indices unique."
        raise LaunchError(f"{before} {then} Nothing was launched.")
    obstacle = hindrance(adjoint.primal, doubtful)
    if obstacle is not None:
        what = "in the condition of a loop" if isinstance(obstacle, Load) else "by atomic operations"
        raise LaunchError(
            f"{before} unless a __syncthreads() lies between, what stays is undefined; if one does, that threads take turns in an array "
            f"that is also reached {what} ({obstacle.span}) is not supported in this release. Nothing was launched."
        )
    met = _first_conflict(adjoint, call, doubtful)
    if met is not None:
        raise LaunchError(f"`{call.bound.kernel}`: {_said(*met)} Nothing was launched.")
    adjoint.facts.get(("ordered", call.key), lambda: True)


def _first_conflict(adjoint: Inspected, call: Call, doubtful: Sequence[Buffer]) -> tuple[Access, bool] | None:
    """None if barriers order the accesses of different threads to one element: in the doubtful buffers, and in all others that the kernel
    stores to. Else an access that is not ordered, and whether that is by another block."""
    check = adjoint.barrier_order(frozenset((*doubtful, *_free(adjoint, _stored(adjoint)))))
    flag = _flag(check, call)
    if flag:
        return check.meeting(flag)
    if check.by_numbers:
        adjoint.facts.get(("no conflict", call.key), lambda: True)
    return None


def ordered_by_barriers(adjoint: Inspected, call: Call | None) -> list[Buffer]:
    """The buffers whose accesses barriers may order: for the numbers of a launch, or for any."""
    if not may_be_ordered(adjoint.primal):
        return []
    found = _stored(adjoint) if call is None else doubtful_stores(adjoint, call)
    return _free(adjoint, found)


def _free(adjoint: Inspected, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Those of which no access rules out an order by barriers."""
    return [b for b in buffers if hindrance(adjoint.primal, [b]) is None]


def _said(stmt: Access, across: bool) -> str:
    """What is wrong with an access to an element that another thread comes to."""
    name = f"`{stmt.buffer.name}`"
    how = "reads an element that another one writes" if isinstance(stmt, Load) else "writes an element to which another one comes"
    if across:
        what = f"a block {how}, of {name} ({stmt.span}): nothing orders the blocks of a launch"
    else:
        what = f"a thread {how}, of {name} ({stmt.span}), with no __syncthreads() between"
    return f"{what}; what stays is undefined, and so is the gradient. Let threads of one block take turns with a __syncthreads() between."


def _named(adjoint: Inspected, buffers: Sequence[Buffer]) -> str:
    """The buffers, and where the kernel first writes to one."""
    return ", ".join(f"`{b.name}`" for b in buffers) + _first_place(adjoint, buffers)


def _first_place(adjoint: Inspected, buffers: Sequence[Buffer]) -> str:
    """Where the kernel first writes to one of the buffers, in brackets."""
    writes = (s for s in walk_stmts(adjoint.primal.body) if isinstance(s, _WRITES) and s.buffer in buffers and s.span is not None)
    return next((f" ({s.span})" for s in writes), "")


def stores_in_doubt(adjoint: Inspected, call: Call) -> list[Buffer]:
    """The shadowed buffers for which a check before each launch has to tell whether stores collide: not where a check of the same numbers
    has found, and there is nothing else to look at. UnsupportedError for a proved race."""
    check_races(adjoint, call)
    if ("no conflict", call.key) in adjoint.facts.known:
        return []
    for known in dict.fromkeys((call.at_large, call)):  # where no value of the numbers that vary leaves a doubt, these leave none
        found: list[Buffer] = adjoint.facts.get(("stores", known.key), partial(doubtful_stores, adjoint, known))
        if not found:
            break
    return found


def check_races(adjoint: Inspected, call: Call) -> None:
    """Refuses a launch in which one thread surely reads what another writes."""
    active = adjoint.activity.__contains__
    race = call.fact(adjoint.facts, ("race",), adjoint.primal, lambda numbers: proved_race(adjoint.primal, numbers, active))
    if race is not None:
        raise UnsupportedError(
            f"a data race: in this launch a thread reads an element of `{race.buffer.name}` here that another thread "
            f"{'changes by an atomic operation' if race.atomic else 'writes'} at {race.write.span}; the result depends on chance, and so "
            "would its gradient",
            race.read.span,
        )
    found = shared_race(adjoint, call)
    if found is not None:
        (earlier, later), (first, _) = found.verbs, found.spans
        raise UnsupportedError(
            f"a data race: in this launch a thread {later} an element of `{found.buffer}` in shared memory here that another thread "
            f"{earlier} at {first}, with no __syncthreads() between; the result depends on chance, and so would its gradient",
            found.spans[1],
        )


def doubtful_stores(adjoint: Inspected, call: Call) -> list[Buffer]:
    """The shadowed buffers to whose elements two threads may store different values, or in which different atomics may meet."""
    mixed = {getattr(s, "buffer", None) for s in walk_stmts(adjoint.primal.body) if id(s) in adjoint.mixed}
    stored = [b for b in _stored(adjoint) if may_collide(adjoint, call, b, is_plain_write)]
    return [b for b in adjoint.primal.buffers if b in stored or b in mixed]


def stored_alike(adjoint: Inspected, call: Call) -> frozenset[Buffer]:
    """The shadowed buffers to one element of which two threads may store one same value, which is no fault: the one that comes first takes
    its adjoint."""
    return frozenset(b for b in adjoint.primal.buffers if b in adjoint.activity.shadowed and _may_be_alike(adjoint, call, b))


def _may_be_alike(adjoint: Inspected, call: Call, buffer: Buffer) -> bool:
    if not any(is_plain_write(s) and s.buffer == buffer for s in walk_stmts(adjoint.primal.body)):
        return False
    if not may_collide(adjoint, call, buffer, is_plain_write):
        return False
    if not contested(adjoint.primal, [buffer]):
        return True
    kinds = distinguishing_stores(adjoint.primal, buffer)
    return not all(any(not may_collide(adjoint, call, buffer, _is_store, way) for way in ways) for ways in kinds)


def _is_store(stmt: Stmt) -> bool:
    return isinstance(stmt, Store)


_WRITES = (Store, Accumulate, Atomic)


def _stored(adjoint: Inspected) -> list[Buffer]:
    return [b for b in adjoint.primal.buffers if b in adjoint.activity.shadowed and contested(adjoint.primal, [b])]

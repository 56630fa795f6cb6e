"""What can be told of a launch from its numbers before it runs, and refused; nothing has been written then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..analysis.affine import evaluate, strides
from ..analysis.coverage import covered
from ..analysis.injectivity import collision_free, footprints
from ..analysis.races import Extent, proved_race
from ..differentiate import Adjoint, Judged
from ..errors import LaunchError, ShadowError, UnsupportedError
from ..executors.base import Memory
from ..ir.nodes import Accumulate, Atomic, Buffer, Kernel, Load, Store
from ..ir.rewrite import walk_stmts
from ..transform.barriers import holds_barrier
from ..transform.claims import contested
from ..transform.tiles import tiles
from .calls import Call
from .states import copied, fingerprint


def check_device(call: Call) -> None:
    """Refuses arrays that are not on the current device."""
    if call.bound.library != "cupy":
        return
    from ..executors.cuda import current_device

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
    memories = {item: (a.memory, a.name) for item, a in zip(kernel.params, call.bound.arguments, strict=False)}
    for extent in extents:
        memory, name = memories.get(extent.buffer, (None, ""))
        if memory is None:
            continue
        size = int(memory.root.size)
        if memory.offset + extent.low < 0 or memory.offset + extent.high >= size:
            raise LaunchError(
                f"`{call.bound.kernel}`: this launch writes `{name}` from element {extent.low} to {extent.high} ({extent.stmt.span}), but "
                f"its memory ends at {size - memory.offset - 1}: check the sizes that are passed, grid and block. Nothing was launched."
            )


def premises_hold(adjoint: Adjoint, call: Call) -> bool:
    """Whether the strides that the adjoint takes to be non-zero are so in this launch, and the tiles that it fills again are filled by
    each iteration before they are read."""
    numbers = call.numbers(adjoint.primal)
    if not all(strides(evaluate(p, numbers.scalars)) for p in adjoint.recording.premises):
        return False
    filled: bool = adjoint.facts.get(
        ("tiles", call.key), lambda: all(covered(adjoint.primal, loop, tile, numbers) for loop, tile in tiles(adjoint.primal))
    )
    return filled


def stays_inside(kernel: Kernel, call: Call) -> frozenset[str]:
    """Names of the pointer parameters through which the launch provably stays inside of the view that was passed."""
    numbers = call.numbers(kernel)
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


def check_stores(adjoint: Judged, call: Call) -> None:
    """Refuses a launch in which two threads store different values to one element that has a shadow; nothing has been launched then."""
    doubtful = stores_in_doubt(adjoint, call)
    if not doubtful:
        return
    check = adjoint.claims(frozenset(doubtful))
    positions = {item: i for i, item in enumerate(adjoint.primal.params)}
    given = [call.bound.arguments[positions[b]].memory for b in check.copies]
    owned = [call.bound.arguments[positions[b]].memory for b in check.claims]
    if check.by_numbers and call.pool is not None:  # once for these numbers: not in memory that a tape keeps
        call = replace(call, pool=None)
    flag = Memory(call.executor.zeros(1, np.dtype(np.int32)))
    claims = [None if m is None else Memory(call.executor.zeros(m.root.size, np.dtype(np.int64)), m.offset) for m in owned]
    for run in (0, 1):
        copies = [None if m is None else copied(call, m) for m in given]
        call.run(check.kernel, [*call.bound.primals(), *call.offset_values(), *copies, *claims, np.int32(run), flag])
    names = ", ".join(f"`{b.name}`" for b in doubtful) + _first_place(adjoint, doubtful)
    if int(flag.root[0]) == 2:
        raise LaunchError(
            f"`{call.bound.kernel}`: different atomic operations meet in one element of {names}: what is left depends on the order of the "
            "threads, and so would the gradient. Nothing was launched."
        )
    if int(flag.root[0]):
        raise LaunchError(
            f"`{call.bound.kernel}`: two threads write to one element of {names}: {_what_then(adjoint)} Nothing was launched."
        )
    if check.by_numbers:
        adjoint.facts.get(("apart", call.key), lambda: True)


def _what_then(adjoint: Judged) -> str:
    """What is wrong with two threads that write to one element. The check does not look at barriers, which may put them in turns."""
    if any(holds_barrier(s) for s in adjoint.primal.body):
        return (
            "unless a __syncthreads() lies between, what stays is undefined; if one does, that threads take turns in an element of global "
            "memory is not supported in this release. Let one thread write each element, or let them take turns in shared memory."
        )
    return "what stays is undefined, and so is the gradient. Use atomicAdd to sum, or make the indices unique."


def _first_place(adjoint: Judged, buffers: Sequence[Buffer]) -> str:
    """Where the kernel first writes to one of the buffers, in brackets."""
    writes = (s for s in walk_stmts(adjoint.primal.body) if isinstance(s, _WRITES) and s.buffer in buffers and s.span is not None)
    return next((f" ({s.span})" for s in writes), "")


def stores_in_doubt(adjoint: Judged, call: Call) -> list[Buffer]:
    """The shadowed buffers for which a check before each launch has to tell whether stores collide: not where a check of the same numbers
    has told, and there is nothing else to look at. UnsupportedError for a proved race."""
    check_races(adjoint, call)
    if ("apart", call.key) in adjoint.facts.known:
        return []
    found: list[Buffer] = adjoint.facts.get(("stores", call.key), lambda: doubtful_stores(adjoint, call))
    return found


def check_races(adjoint: Judged, call: Call) -> None:
    """Refuses a launch in which one thread surely reads what another writes."""
    race = adjoint.facts.get(("race", call.key), lambda: proved_race(adjoint.primal, call.numbers(adjoint.primal)))
    if race is not None:
        raise UnsupportedError(
            f"a data race: in this launch a thread reads an element of `{race.buffer.name}` here that another thread writes at "
            f"{race.write.span}; the result depends on chance, and so would its gradient",
            race.read.span,
        )


def doubtful_stores(adjoint: Judged, call: Call) -> list[Buffer]:
    """The shadowed buffers to whose elements two threads may store different values, or in which different atomics may meet."""
    numbers = call.numbers(adjoint.primal)
    mixed = {getattr(s, "buffer", None) for s in walk_stmts(adjoint.primal.body) if id(s) in adjoint.mixed}
    stored = [b for b in _stored(adjoint) if not collision_free(adjoint.primal.body, [b], numbers, _WRITES, atomics=False)]
    return [b for b in adjoint.primal.buffers if b in stored or b in mixed]


_WRITES = (Store, Accumulate, Atomic)


def _stored(adjoint: Judged) -> list[Buffer]:
    return [b for b in adjoint.primal.buffers if b in adjoint.activity.shadowed and contested(adjoint.primal, [b])]


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
    if before.key != now.key or before.loose != now.loose:
        raise LaunchError(f"`{name}`: the reverse is called with another grid, block, integers, array layouts or overlaps than its forward")
    for argument in before.bound.arguments:  # whose memory is read, wherever that of the reverse's call is
        mark = marks.get(argument.name)
        if mark is not None and argument.memory is not None and fingerprint(argument.memory.root) != mark:
            raise LaunchError(
                f"`{name}`: `{argument.name}` was declared not_overwritten, but has changed since the forward; leave it out of "
                "not_overwritten to have it saved. No shadow was touched."
            )


def loads(kernel: Kernel, buffer: Buffer) -> bool:
    """Whether the kernel reads the buffer."""
    return any(isinstance(s, Load) and s.buffer == buffer for s in walk_stmts(kernel.body))

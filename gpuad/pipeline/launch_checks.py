"""Checks of a launch on its numbers alone, before anything is written: device, bounds, premises of the adjoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..analysis.index_polynomials import evaluate, strides
from ..analysis.injectivity import footprints
from ..analysis.must_define import defines_before_use
from ..analysis.races import Extent, sure_access, sure_extents
from ..errors import LaunchError, ShadowError
from ..ir.nodes import Buffer, Kernel, Load
from ..ir.rewrite import walk_stmts
from ..optimize.privatisation import tiles
from .adjoint import Adjoint
from .adjoint_memory import fingerprint
from .calls import Call


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


def absent(kernel: Kernel, call: Call) -> frozenset[int]:
    """Positions of the pointers without an array to which the launch may come. LaunchError for one to which it surely does."""
    found = set()
    numbers = call.numbers(kernel)
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

    def find() -> tuple[Extent, ...]:
        body = Kernel(adjoint.name, adjoint.params, adjoint.layout.body, adjoint.primal.span)
        return tuple(e for e in sure_extents(body, call.numbers(adjoint.primal)) if e.buffer in shadows)

    for extent in adjoint.facts.get(("bounds", call.key), find):
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
    """Whether the strides that the adjoint takes to be non-zero are so in this launch, and the tiles that it fills again are filled by
    each iteration before they are read."""
    numbers = call.numbers(adjoint.primal)
    if not all(strides(evaluate(p, numbers.scalars)) for p in adjoint.recording.premises):
        return False
    filled: bool = adjoint.facts.get(
        ("tiles", call.key), lambda: all(defines_before_use(adjoint.primal, loop, tile, numbers) for loop, tile in tiles(adjoint.primal))
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

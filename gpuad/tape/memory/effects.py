"""What a kernel launch does to memory, as regions of the allocations behind its arguments.

In: a kernel's body with a launch's numbers, and the kinds of statements. Out: bytes that may be touched, never less than are; and those
that are surely written, never more. Where an index hangs on data it is all of the array that was passed, or all of its allocation where the
kernel may leave that array. Exact where indices are affine (`analysis.injectivity.Walk`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...analysis.affine_forms import UNBOUNDED, Form, Launch, Ranges, Reach, Unknown, Walk, canonical
from ...analysis.races import sure_writes
from ...arguments import BoundArgument
from ...ir.nodes import Block, Buffer, Kernel, Stmt
from ...ir.records import size_of
from ...program.ir.region import EMPTY, Region, lattice, of_array, span
from ...runtime.base import Memory

MOST_RUNS = 1 << 16  # beyond it a region is widened to its hull
_FAR = 1 << 48  # elements, beyond every allocation


def touched(
    body: Block, buffer: Buffer, launch: Launch, kinds: tuple[type[Stmt], ...], argument: BoundArgument, inside: bool
) -> Region | None:
    """The bytes that statements of the given kinds may touch through a pointer, counted from where it points; never less than they do.
    `argument`: what was passed, in whose array the kernel stays if `inside`. None: all of the allocation, for all that can be told."""
    assert argument.memory is not None
    found = reached(body, buffer, launch, kinds, argument.memory.itemsize)
    return dense(argument) if found is None and inside else found


def reached(body: Block, buffer: Buffer, launch: Launch, kinds: tuple[type[Stmt], ...], size: int) -> Region | None:
    """What statements of the given kinds may touch of memory with elements of `size` units, from where a pointer points; never less than
    they do. None where that cannot be told."""
    try:
        reaches = Walk(launch, frozenset({buffer}), kinds).run(body)
    except Unknown:
        return None
    found = EMPTY
    for reach in reaches:
        part = of_reach(reach, 0, size, launch)
        if part is None:
            return None
        found = found | part
    return found


def surely_written(kernel: Kernel, buffer: Buffer, launch: Launch, size: int) -> Region:
    """The bytes that a launch writes for certain through a pointer, counted from where it points; never more than it does."""
    found = EMPTY
    for reach in sure_writes(kernel, launch, buffer):
        steps = list(_steps(canonical(reach.form, launch), reach.ranges))
        exact = all(count < MOST_RUNS * 64 for stride, count in steps if abs(stride) > 1)
        part = of_reach(reach, 0, size, launch) if exact and _runs(steps) <= MOST_RUNS * 64 else None
        found = found | part if part is not None else found
    return found


def _runs(steps: Sequence[tuple[int, int]]) -> int:
    """How many runs of bytes a lattice may have, at most."""
    runs = 1
    for stride, count in steps:
        runs *= count if abs(stride) > 1 else 1
    return runs


def absolute(region: Region | None, memory: Memory) -> Region:
    """Such a region as bytes of the allocation behind the pointer."""
    size = int(memory.root.dtype.itemsize)
    whole = span(0, int(memory.root.nbytes))
    return whole if region is None else region.moved(memory.offset * size) & whole


def dense(argument: BoundArgument) -> Region:
    """The hull of the array that was passed, from where the pointer points; of structs only the numbers that are reached through this
    pointer."""
    view = argument.array
    if argument.pieces:
        return bytes_of(argument)
    size = int(view.dtype.itemsize)
    return span(0, size + sum(abs(s) * (n - 1) for s, n in zip(view.strides, view.shape, strict=True)) if view.size else 0)


def bytes_of(argument: BoundArgument) -> Region:
    """The bytes of the array that was passed, from where the pointer points; of structs only the numbers that are reached through this
    pointer."""
    view, memory, type_ = argument.array, argument.memory, argument.struct
    if not argument.pieces or memory is None or type_ is None or view.size == 0:
        return of_array(view, 0)
    steps = [(int(s), int(n)) for s, n in zip(view.strides, view.shape, strict=True)]
    if view.dtype.itemsize != size_of(type_):  # the structs' bytes
        steps[-1] = (size_of(type_), steps[-1][1] * int(view.dtype.itemsize) // size_of(type_))
    found = EMPTY
    for offset in argument.pieces:
        found = found | lattice(offset, memory.itemsize, steps)
    return found


def of_reach(reach: Reach, origin: int, size: int, launch: Launch) -> Region | None:
    """The bytes of one access over all threads and iterations, or None if they are not bounded."""
    found = _of_digits(reach, origin, size, launch)
    if found is None or reach.within is None:
        return found
    low, high = max(reach.within[0], -_FAR), min(reach.within[1], _FAR)
    return found & span(origin + low * size, origin + (high + 1) * size) if low <= high else EMPTY


def _of_digits(reach: Reach, origin: int, size: int, launch: Launch) -> Region | None:
    form = canonical(reach.form, launch)
    steps = list(_steps(form, reach.ranges))
    low = form.constant + sum(c * reach.ranges[d][0] for d, c in form.terms)
    if any(count >= UNBOUNDED // 2 for _, count in steps):
        return None
    if _runs(steps) > MOST_RUNS * 64:
        first = low + sum(min(0, s * (n - 1)) for s, n in steps)
        last = low + sum(max(0, s * (n - 1)) for s, n in steps)
        return span(origin + first * size, origin + (last + 1) * size)
    return lattice(origin + low * size, size, [(s * size, n) for s, n in steps])


def _steps(form: Form, ranges: Ranges) -> Iterable[tuple[int, int]]:
    for digit, coefficient in form.terms:
        first, last = ranges[digit]
        yield coefficient, last - first + 1

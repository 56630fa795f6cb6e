"""Copies and clearings of a program as launches, where a launch beside them touches the same elements.

A launch that overwrites an array comes after a copy of what is saved of it, and the shadow that it takes is cleared at the end. If a
statement of the kernel comes to these elements, a kernel that does the copy in the same threads can be written, and that one may become a
part of the launch (`fusion.chain`). It takes the copy's place only if it is certified to do what the copy does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...affine.certificate import Run
from ...affine.copy_certificate import copies
from ...affine.effects import Shape
from ...affine.relations import is_installed
from ...analysis.affine_forms import Launch as Numbers
from ...analysis.exact_coverage import surely
from ...arguments.aliasing import hull
from ...arguments.arrays import address, is_array
from ...fusion import Link
from ...fusion.copies_as_kernels import copying_like, setting_like
from ...fusion.link import facts
from ...ir.dtypes import dtype_of
from ...ir.nodes import Accumulate, Buffer, Kernel, Load, Store, Take
from ...ir.rewrite import touches
from ...ir.types import BOOL, value_type
from ...ir.verify import verify
from ...program.ir.region import span
from ...runtime.actions import Action, Clearing, Copying
from ...runtime.array_types import NdArray
from ...runtime.base import Memory
from ..memory.effects import of_reach

Touch = Load | Store | Accumulate | Take


def as_launch(action: Action, model: Link) -> Link | None:
    """A copy or a clearing as a launch like the model; None if the model does not touch just these elements."""
    if isinstance(action, Clearing):
        return _setting(action.target, 0, model)
    if not isinstance(action, Copying):
        return None
    if isinstance(action.source, int | float | np.floating):
        return _setting(action.target, action.source, model)
    if not _alike(action.target, action.source):
        return None
    return _copying(action.source, action.target, model, True) or _copying(action.target, action.source, model, False)


def _alike(a: Any, b: Any) -> bool:
    """Whether one array is copied to another, byte by byte."""
    if not is_array(a) or not is_array(b) or _overlap(a, b):
        return False
    return type(a) is type(b) and a.dtype == b.dtype and a.nbytes == b.nbytes and _is_dense(a) and _is_dense(b)


def _overlap(a: Any, b: Any) -> bool:
    (low, high), (begin, end) = hull(a), hull(b)
    return low < end and begin < high


def _is_dense(array: NdArray) -> bool:
    return bool(array.size and array.flags.c_contiguous)


def _setting(target: NdArray, value: Any, model: Link) -> Link | None:
    """An array set to a number."""
    if not _is_dense(target):
        return None
    for stmt, memory, first in _touching(model, target):
        number = np.asarray(value).astype(memory.root.dtype)[()]
        if number.tobytes().strip(b"\0") == b"":
            kernel, more = _made(("set", id(stmt), ""), model, lambda s=stmt: setting_like(model.kernel, s, "")), []
        elif memory.is_float:
            kernel, more = _made(("set", id(stmt), "seed"), model, lambda s=stmt: setting_like(model.kernel, s, "seed")), [number]
        else:
            continue
        link = Link(kernel, *model.geometry, [*model.arguments, *more], True)
        if _is_certified(link, stmt.buffer, None, first - memory.offset, int(target.nbytes) // memory.itemsize):
            return link
    return None


def _copying(near: Any, far: Any, model: Link, to: bool) -> Link | None:
    """A copy from `near`, which the model touches, to `far`, or the other way."""
    for stmt, memory, first in _touching(model, near):
        dtype = dtype_of(stmt.buffer.element)
        if address(far) % dtype.itemsize:
            continue
        other = Memory(far.reshape(-1).view(dtype), memory.offset - first)
        name = f"{stmt.buffer.name}_saved" if to else f"{stmt.buffer.name}_from"
        kernel = _made(("copy", id(stmt), to), model, lambda s=stmt, n=name: copying_like(model.kernel, s, n, to=to))
        link = Link(kernel, *model.geometry, [*model.arguments, other], True)
        own = kernel.params[-1]
        assert isinstance(own, Buffer)
        pair = (own, stmt.buffer) if to else (stmt.buffer, own)
        if _is_certified(link, *pair, first - memory.offset, int(near.nbytes) // memory.itemsize):
            return link
    return None


def _is_certified(link: Link, target: Buffer, source: Buffer | None, first: int, count: int) -> bool:
    """Whether a launch sets these elements and does nothing else."""
    numbers = link.numbers()
    key = "copies", id(link.kernel), link.geometry, tuple(numbers.scalars.values()), first, count

    def ask() -> tuple[bool, Kernel]:
        run = Run(link.kernel.body, Shape(link.grid, link.block, numbers.scalars))
        return is_installed() and copies(run, target, source, first, count), link.kernel

    return bool(facts.get(key, ask)[0])


def _made(key: Any, model: Link, make: Any) -> Kernel:
    def new() -> tuple[Kernel, Kernel]:
        kernel = make()
        verify(kernel)
        return kernel, model.kernel

    kernel: Kernel = facts.get(("modelled", id(model.kernel), *key), new)[0]
    return kernel


def _touching(model: Link, array: NdArray) -> Iterator[tuple[Touch, Memory, int]]:
    """The model's statements that come to just the elements of an array; with the pointer, and the first element's number in its
    allocation."""
    begin, end = address(array), address(array) + int(array.nbytes)
    for param, memory in model.memories():
        size, low = memory.itemsize, address(memory.root)
        fits = value_type(param.element) == param.element != BOOL and (begin - low) % size == (end - begin) % size == 0
        if not fits or begin < low or end > low + int(memory.root.nbytes):
            continue
        first = (begin - low) // size
        wanted = span(first - memory.offset, first - memory.offset + (end - begin) // size)
        for stmt, region in _exactly(model, param):
            if region == wanted:
                yield stmt, memory, first


def _exactly(model: Link, param: Buffer) -> list[tuple[Touch, Any]]:
    numbers = model.numbers()
    key = "exactly", id(model.kernel), model.grid, model.block, tuple(numbers.scalars.values()), param
    return list(facts.get(key, lambda: (_regions(model.kernel, param, numbers), model.kernel))[0])


def _regions(kernel: Kernel, param: Buffer, numbers: Numbers) -> list[tuple[Touch, Any]]:
    """The statements that surely come to elements, and to which, counted from where the pointer points."""
    found: list[tuple[Touch, Any]] = []
    for stmt in touches(kernel.body, param):
        reach = surely(kernel.body, stmt, numbers)
        region = of_reach(reach, 0, 1, numbers) if reach is not None else None
        if region is not None and isinstance(stmt, Load | Store | Accumulate | Take):
            found.append((stmt, region))
    return found

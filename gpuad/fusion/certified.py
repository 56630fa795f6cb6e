"""Fused launches as `affine.fusion_certificate` takes them: bodies, numbers, and where each pointer points.

A certificate holds for a kernel and the numbers of its launch, and for how its arrays lie beside each other where they share an allocation.
What has none is not fused.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..affine.effects import Shape
from ..affine.fusion_certificate import Footprint, Launches, footprint, otherwise, refused
from ..affine.unit_trace import Part, Place
from ..arguments.arrays import address
from ..ir.nodes import Buffer, For, Kernel, Var
from ..pipeline.adjoint_memory import shadow_of
from ..pipeline.calls import Call
from ..pipeline.pattern import Parameter
from ..runtime.base import Memory
from .link import Link, facts

# --- launches of a program ----------------------------------------------------------------------------------------------------------------


def part_of(link: Link) -> Part:
    """A launch, its pointers by allocation and type of element, its real numbers by their value."""
    places: dict[Buffer, Place] = {}
    scalars: dict[Var, Hashable] = {}
    for param, argument in zip(link.kernel.params, link.arguments, strict=True):
        if isinstance(param, Var):
            scalars[param] = param.type, np.asarray(argument).tobytes()
        elif isinstance(argument, Memory):
            begin = address(argument.root)
            extent = begin, begin + int(argument.root.nbytes), argument.itemsize
            places[param] = Place((begin, param.element), argument.offset, extent)
    return Part(link.kernel.body, Shape(link.grid, link.block, link.numbers().scalars), places, scalars)


def footprint_of(link: Link, looped: bool) -> Footprint:
    """What a launch touches, its pointers by their parameters."""

    def find() -> tuple[Footprint, Kernel]:
        part = part_of(link)
        return footprint(Part(part.body, part.shape, {p: Place(p) for p in part.places}, part.scalars), looped=looped), link.kernel

    key = "footprint", id(link.kernel), link.geometry, tuple(link.numbers().scalars.values()), looped
    found: Footprint = facts.get(key, find)[0]
    return found


class Independent:
    """Launches behind one guard no unit of which touches what another unit of another one writes. `written`: the memory that they write."""

    def __init__(self, first: Link) -> None:
        self.looped = is_looped(first)
        self.guards = footprint_of(first, self.looped).guards
        self.launches = Launches()

    def takes(self, link: Link) -> bool:
        """True if one more launch is so."""
        part, found = part_of(link), footprint_of(link, self.looped)
        return found.guards == self.guards is not None and self.launches.dependence(part, found, part.places) is None

    @property
    def written(self) -> set[Hashable]:
        return self.launches.written


def is_looped(link: Link) -> bool:
    """True if a launch is one loop over elements."""
    return any(isinstance(s, For) for s in link.kernel.body)


def is_certified(separate: Sequence[Link], joined: Link, key: Hashable) -> bool:
    """True if a joint launch does thread by thread what launches do that are `Independent`. `key`: the joint launch, as it is known by."""

    def ask() -> tuple[str | None, list[Kernel]]:
        reason = otherwise([part_of(x) for x in separate], part_of(joined), looped=is_looped(joined))
        return reason, [joined.kernel, *(x.kernel for x in separate)]

    reason: str | None = facts.get(("certificate", key), ask)[0]
    return reason is None


# --- a launch and its reverse -------------------------------------------------------------------------------------------------------------


class Pointers:
    """Where the pointers of a call point. `key`: how they lie beside each other, where they share an allocation."""

    def __init__(self, call: Call, parameters: Iterable[Parameter], primal: Kernel) -> None:
        arguments = call.bound.arguments
        own = {p: a.memory for p, a in zip(primal.params, arguments, strict=False) if isinstance(p, Buffer) and a.memory is not None}
        shadows = {p.item: shadow_of(call, p.position, 0) for p in parameters if p.role == "shadow"}
        memories = own | {b: m for b, m in shadows.items() if isinstance(b, Buffer) and m is not None}
        extents = {b: (address(m.root), address(m.root) + int(m.root.nbytes), m.itemsize) for b, m in memories.items()}
        ordered = sorted(extents.values())
        self.places: dict[Buffer, Place] = {}
        self.key: Hashable = ()
        if any(end > begin for (_, end, _), (begin, _, _) in pairwise(ordered)):
            first = ordered[0][0]
            self.places = {b: Place((extents[b][0] - first, b.element), m.offset, extents[b]) for b, m in memories.items()}
            self.key = tuple((p.array, p.offset) for p in self.places.values())
        self.numbers = call.numbers(primal).scalars
        self.shape = Shape(call.grid, call.block, self.numbers)

    def part(self, kernel: Kernel, before: Mapping[Buffer, Buffer] | None = None) -> Part:
        """A kernel on these pointers. `before`: buffers that stand for memory as it was before the launch, and that memory."""
        entries = before or {}
        places = {b: replace(self.place(entries.get(b, b)), before=b in entries) for b in kernel.buffers}
        return Part(kernel.body, self.shape, places, {v: v for v in kernel.scalars})

    def place(self, buffer: Buffer) -> Place:
        return self.places.get(buffer, Place(buffer))


def is_forward_and_reverse(
    pointers: Pointers, primal: Kernel, reverse: Kernel, parameters: Sequence[Parameter], made: Kernel, text: Sequence[int]
) -> bool:
    """True if a kernel is certified to do what a launch and its reverse do. `text`: in which order it has them."""
    own = dict(enumerate(primal.params))
    entries = ((p.item, own[p.position]) for p in parameters if p.role == "entry")
    before = {b: memory for b, memory in entries if isinstance(b, Buffer) and isinstance(memory, Buffer)}
    return refused([pointers.part(primal), pointers.part(reverse, before)], pointers.part(made), text=text) is None


def is_keeping(pointers: Pointers, primal: Kernel, extraction: Kernel, made: Kernel) -> bool:
    """True if a kernel is certified to do what a launch does, and the extraction of values after it."""
    return refused([pointers.part(primal), pointers.part(extraction)], pointers.part(made), text=(1, 0)) is None


__all__ = ["Independent", "Pointers", "is_certified", "is_forward_and_reverse", "is_keeping", "part_of"]

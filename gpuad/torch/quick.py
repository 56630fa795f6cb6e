"""Launches on a CPU that need nothing but compiled code: what is known of them beforehand is laid out, so that a call fills in addresses.

A thousand elements take compiled code less than a microsecond, so each step of Python counts here. What such a launch does is what
`launches` does where it takes the long way; which of the two is taken is decided once for all launches that are alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from ..interop import Direct, Split
from .arrays import copied, is_lazy, lies_as, like, relaid, type_of

Packer: TypeAlias = "tuple[int, Callable[[Any], int]]"  # a float by value: its position, and how it is packed
_zeros = torch.zeros_like


def model(shape: Sequence[int], dtype: Any) -> Any:
    """A tensor of one element, of which zeros of this shape are made in half the time that it takes from a shape and a type."""
    return torch.zeros((), dtype=dtype).expand(shape)


class Shadow(NamedTuple):
    """A shadow of a reverse: of which parameter, how it lies, which of the seeds it begins with, if one, and whether that is only read."""

    position: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    model: Any  # None where it is not contiguous
    seed: int | None
    unchanged: bool


class Quick:
    """Both halves of a launch. `layouts`: of each parameter shape, strides, type; `returned`: positions in the order of the seeds; `fresh`,
    `cloned`: what is made, and what is copied, since the kernel overwrites it; `wanted`: for each argument that is passed the position of
    its gradient and its type, if that is not the shadow's."""

    def __init__(
        self, split: Split, direct: Direct, layouts: Sequence[Any], pointers: Sequence[int], packers: Sequence[Packer],
        fresh: Sequence[int], cloned: Sequence[int], returned: Sequence[int], in_place: bool,
        wanted: Sequence[tuple[int | None, Any]], loose: bool,
    ) -> None:  # fmt: skip
        self.loose, self.passed = loose, tuple(k for k in range(len(layouts)) if k not in fresh)
        self.returned, self.wanted = tuple(returned), tuple(wanted)
        self.split, self.launch, self.stages = split, direct.forward, direct.reverse
        self.fresh = [(k, model(layouts[k][0], layouts[k][2])) for k in fresh]
        self.cloned, self.in_place = tuple(cloned), in_place
        self.pointers = tuple(k for k in pointers if layouts[k] is not None)
        self.packers = tuple(packers)
        self.logs = [(size, type_of(dtype)) for size, dtype in split.logs]
        self.reads = split.reads
        self.before = tuple((k, k in fresh, k in split.working, layouts[k]) for k in split.before)
        count, logs, entries = len(layouts), len(self.logs), len(split.before)
        self.count = count
        self.forward_table = [0] * (count + logs) + list(direct.forward_constants)
        self.layouts = layouts
        self.partials = direct.partials
        self.at_logs = 2 * count + entries
        self.at_partials = self.at_logs + logs
        self.reverse_table = [0] * (self.at_partials + len(self.partials)) + list(direct.reverse_constants)
        seeds = {k: j for j, k in enumerate(returned)}
        self.shadows = [
            Shadow(
                k,
                *_laid(layouts[k]),
                type_of(dtype),
                model(_laid(layouts[k])[0], type_of(dtype)) if _contiguous(layouts[k]) else None,
                seeds.get(k),
                k in split.unchanged,
            )
            for k, dtype in enumerate(split.shadows)
            if dtype is not None
        ]

    def placed(self, args: Sequence[Any]) -> Sequence[Any]:
        """What a call passes, by the parameters' positions."""
        if not self.fresh:
            return args
        found: list[Any] = [None] * self.count
        for k, x in zip(self.passed, args, strict=True):
            found[k] = x
        return found

    def forward(self, given: Sequence[Any]) -> tuple[list[Any], list[Any], tuple[int, ...]]:
        """Runs the launch. Gives its tensors by position, what the reverse needs of them, and its floats packed. OverflowError or TypeError
        for floats that are none; nothing is launched then."""
        table = self.forward_table[:]
        for k, pack in self.packers:
            table[k] = pack(given[k])
        current = list(given)
        for k, form in self.fresh:
            current[k] = _zeros(form)
        if not self.in_place:
            for k in self.cloned:
                current[k] = copied(given[k])
        kept = [current[k] for k in self.reads] if self.reads else []
        for k, fresh, _, _ in self.before:
            kept.append(None if fresh else copied(given[k]) if self.in_place else given[k])
        for k in self.pointers:
            table[k] = current[k].data_ptr()
        at = self.count
        for size, dtype in self.logs:
            log = torch.zeros(size, dtype=dtype)
            kept.append(log)
            table[at] = log.data_ptr()
            at += 1
        self.launch(table)
        return current, kept, tuple(table[k] for k, _ in self.packers)

    def reverse(self, kept: Sequence[Any], seeds: Sequence[Any], floats: Sequence[int]) -> list[Any]:
        """Pulls seeds back. Gives the shadows by position."""
        table = self.reverse_table[:]
        held: list[Any] = []
        for (k, _), packed in zip(self.packers, floats, strict=True):
            table[k] = packed
        j = 0
        for k in self.reads:
            x = kept[j]
            if not lies_as(x, self.layouts[k]):
                held.append(x := relaid(x, self.layouts[k]))
            table[k] = x.data_ptr()
            j += 1
        count = self.count
        for at, (_, fresh, working, layout) in enumerate(self.before, 2 * count):
            x = like(None, *layout) if fresh else copied(kept[j]) if working else kept[j]
            if not lies_as(x, layout):
                x = relaid(x, layout)
            held.append(x)
            table[at] = x.data_ptr()
            j += 1
        for at in range(self.at_logs, self.at_partials):
            table[at] = kept[j].data_ptr()
            j += 1
        for at, (size, dtype) in enumerate(self.partials, self.at_partials):
            held.append(partial := np.zeros(size, dtype))
            table[at] = partial.__array_interface__["data"][0]
        shadows: list[Any] = [None] * count
        for k, shape, strides, dtype, form, at_seed, unchanged in self.shadows:
            seed = None if at_seed is None else seeds[at_seed]
            if seed is None:
                made = _zeros(form) if form is not None else torch.empty_strided(shape, strides, dtype=dtype).zero_()
            elif form is not None and seed.dtype is dtype and seed.is_contiguous() and not is_lazy(seed):
                made = seed if unchanged else seed.clone()
            else:
                made = torch.empty_strided(shape, strides, dtype=dtype).copy_(seed)
            shadows[k] = made
            table[count + k] = made.data_ptr()
        for stage in self.stages:
            stage(table)
        return shadows

    def gradients(self, shadows: Sequence[Any]) -> list[Any]:
        """Shadows as gradients of what was passed, in its types."""
        return [None if k is None else shadows[k] if type_ is None else shadows[k].to(type_) for k, type_ in self.wanted]


def _laid(layout: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return ((), ()) if layout is None else layout[:2]


def _contiguous(layout: Any) -> bool:
    shape, strides = _laid(layout)
    step = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return True

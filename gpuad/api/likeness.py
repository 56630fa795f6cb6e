"""Launches that are like an earlier one: the same types, layouts and whole numbers, whatever the memory and the real numbers are.

What binding a call finds out, and refuses, depends on little more than that. So a launch of the primal alone, with plain arrays that lie in
memory apart from each other, is bound once for all that are alike; the others give no more than addresses and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from ..annotations import address, fills, is_array, resolve
from ..arguments import BoundArgument
from ..executors.base import Dim3, Memory
from ..ir.nodes import Kernel
from ..ir.types import HALVES
from ..launching import Call, executor_of
from ..program.actions import perform_one

_WHOLE = frozenset({int, bool, np.bool_, *(np.dtype(f"{kind}{bits}").type for kind in ("int", "uint") for bits in (8, 16, 32, 64))})
_REAL = frozenset({float, np.float32, np.float64})
_LARGEST = {"float32": 3e38, "float64": float("inf")}  # below it a number is rounded, and that is all
Make: TypeAlias = "Callable[[Any], Any] | None"


def likeness(grid: Any, block: Any, args: Sequence[Any], shared_mem: int) -> Hashable:
    """What two calls have to share to be alike; None for what is not known to be said by it."""
    if not (_plain(grid) and _plain(block)):
        return None
    found: list[Any] = [grid, block, shared_mem]
    for x in args:
        kind = type(x)
        if kind is np.ndarray:
            found.append((x.dtype, x.shape, x.strides, x.flags.writeable))
        elif kind in _WHOLE:
            found.append((kind, x))
        elif kind in _REAL or x is None:
            found.append(kind)
        elif is_array(x):
            found.append((kind, x.dtype, x.shape, x.strides, int(x.device.id), _current_device()))
        else:
            return None
    return tuple(found)


def _plain(extents: Any) -> bool:
    return type(extents) is int or (type(extents) is tuple and all(type(n) is int for n in extents))


def _current_device() -> int:
    from ..executors.cuda import current_device

    return current_device()


@dataclass(frozen=True, eq=False)
class Ready:
    """A launch that has been bound, for all that are like it. `makes`: for each argument how it is passed, or None for an array. `inside`:
    the kernel stays inside of each view, so that it matters not where in its allocation it lies."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    shared_mem: int
    library: str | None
    makes: tuple[Make, ...]
    inside: bool

    def launch(self, args: Sequence[Any], stream: Any) -> bool:
        """Makes the launch with such arguments; False, and nothing is done, if they have to be looked at closer."""
        values = [make(x) if make is not None else self.place(x) for make, x in zip(self.makes, args, strict=True)]
        if any(value is None and x is not None for value, x in zip(values, args, strict=True)) or not _apart(values):
            return False
        executor = executor_of(self.library)
        try:
            launch = executor.prepared(self.kernel, self.grid, self.block, values, shared_mem=self.shared_mem)
        except RecursionError:  # a text for arguments that overlap or are huge is made now
            return False
        if stream is None:
            perform_one(launch)
        else:
            with executor.on(stream):
                perform_one(launch)
        return True

    def place(self, array: Any) -> Memory | None:
        """The memory of an array, if it may lie there."""
        memory = resolve(array)
        return memory if self.inside or fills(array, memory) else None


def _apart(values: Sequence[Any]) -> bool:
    """Whether no two pointers lie in one allocation."""
    hulls = sorted((address(m.root), m.root.nbytes) for m in values if isinstance(m, Memory))
    return all(start + nbytes <= end for (start, nbytes), (end, _) in pairwise(hulls))


def ready(kernel: Kernel, call: Call, args: Sequence[Any]) -> Ready | None:
    """The call as one that others may be like; None where more than likeness would have to be looked at."""
    bound = call.bound
    if len(args) != len(bound.arguments) or any(a is not None and a.allocation != i for i, a in enumerate(bound.aliases)):
        return None
    makes = [_make(x, argument) for x, argument in zip(args, bound.arguments, strict=True)]
    made = Ready(kernel, call.grid, call.block, call.shared_mem, bound.library, tuple(m for m, _ in makes), not call.loose)
    usable = all(known for _, known in makes) and all(made.place(a.array) is not None for a in bound.arguments if a.array is not None)
    return made if usable else None


def _make(x: Any, argument: BoundArgument) -> tuple[Make, bool]:
    """How such an argument is passed, and whether that is known."""
    if argument.array is not None:
        return None, argument.memory is not None and argument.memory.root.dtype == x.dtype and not argument.pieces
    if x is None or type(x) in _WHOLE:
        value = argument.value
        return (lambda _: value), True
    dtype = argument.value.dtype
    if type(x) not in _REAL or argument.declaration.type in HALVES:  # one struct in an array; a float32 that is rounded already
        return None, False
    return _rounded(dtype.type, _LARGEST.get(dtype.name, 0.0)), dtype.kind == "f"


def _rounded(kind: Callable[[Any], Any], largest: float) -> Make:
    return lambda x: kind(x) if -largest < x < largest else None

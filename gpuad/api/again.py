"""Launches on a CPU in the words of an earlier one: the same arrays, which are where and as they were, and the same whole numbers.

All that binding finds out depends on the numbers, on where the arrays and the allocations behind them lie, and on how they are laid out. So
a call for which these are equal is that call, and takes no more than comparing them; real numbers are put into its arguments anew. No array
is kept alive: one that has taken the place of another is the same to a kernel if it is the same in all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..errors import LaunchError
from ..executors.base import Executor
from ..executors.batch import Native
from ..executors.memory import owner_of
from ..launching import executor_of

_REAL = frozenset({float, np.float32, np.float64})
_WHOLE = frozenset({int, bool})
_SLOT = 8  # bytes of an argument
Make: TypeAlias = "Callable[[Any], Any]"


def words(args: Sequence[Any]) -> Hashable:
    """What an earlier call is looked up by; None for one that is not looked up."""
    if type(args) is not tuple:
        return None
    found: list[Any] = []
    for x in args:
        kind = type(x)
        if kind is np.ndarray:
            found.append(id(x))
        elif kind in _WHOLE:
            found.append((kind, x))
        elif kind in _REAL:
            found.append(kind)
        else:
            return None
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Launch:
    """A launch that was made: by whom, by what, and for each argument how a real number becomes that of the kernel."""

    executor: Executor
    call: Callable[[], Any]
    makes: tuple[Make | None, ...]


@dataclass(frozen=True, eq=False)
class Again:
    """A launch that was made, of arrays by what NumPy says of each and of the allocation behind it, and with real numbers, by position: the
    number, and how it becomes that of a kernel."""

    grid: Any
    block: Any
    shared_mem: int
    arrays: tuple[tuple[int, Any], ...]
    reals: tuple[tuple[int, Any, Make], ...]
    executor: Executor
    call: tuple[Any, bytes, bytes]

    @classmethod
    def of(cls, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, launch: Launch) -> Again | None:
        """A launch that was made. None where it takes more than a call of compiled code."""
        call = launch.call
        reals = [(i, x, launch.makes[i]) for i, x in enumerate(args) if type(x) in _REAL]
        known = tuple((i, x, make) for i, x, make in reals if make is not None)
        if not isinstance(call, Native) or len(known) < len(reals):
            return None
        arrays = tuple((i, _seen(x)) for i, x in enumerate(args) if type(x) is np.ndarray)
        words = call.entry, call.geometry, call.slots  # which keep no array alive
        return cls(grid, block, shared_mem, arrays, known, launch.executor, words)

    def made(self, grid: Any, block: Any, args: Sequence[Any], shared_mem: int) -> bool:
        """Makes the launch of a call that was found by its words; False, and nothing is done, if it is another one."""
        if not (_same(grid, self.grid) and _same(block, self.block) and shared_mem == self.shared_mem):
            return False
        for i, seen in self.arrays:
            if _seen(args[i]) != seen:
                return False
        if executor_of("numpy") is not self.executor:
            return False
        entry, geometry, slots = self.call
        for i, before, make in self.reals:
            x = args[i]
            if x is not before:
                number = make(x)
                if number is None:
                    return False
                slots = slots[: _SLOT * i] + number.tobytes().ljust(_SLOT, b"\0") + slots[_SLOT * (i + 1) :]
        if entry(geometry, slots):
            raise LaunchError(f"{entry.__name__.removeprefix('gpuad_launch_')}: out of memory")
        return True


def _same(a: Any, b: Any) -> bool:
    """Whether two extents of a launch are equal; `b` is a number or a tuple of numbers."""
    if a is b:
        return True
    if type(a) is not type(b) or (type(a) is tuple and any(type(n) is not int for n in a)):
        return False
    return bool(a == b)


def _seen(array: Any) -> Any:
    """Where an array lies and how, and the same of the allocation behind it."""
    owner = owner_of(array)
    if owner is array:
        return array.__array_interface__, array.dtype
    return array.__array_interface__, array.dtype, owner.__array_interface__, owner.dtype, type(owner)

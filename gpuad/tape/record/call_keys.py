"""By what the calls of a program are known when the same program runs once more.

A call is the same if it has the same kernel, geometry and numbers, and arrays that are the same memory laid out in the same way. Its key
keeps its arrays alive, so an address stays what it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arguments.annotations import Active, BatchDuplicated, Const, Duplicated, shadows_of_array
from ...arguments.arrays import is_array
from ...arguments.layouts import layout, signature
from ...program.ir.region import Region
from ...runtime.array_types import Extents
from ..memory.buffers import Outline, outline
from ..memory.temporaries import Made

_NUMBERS = (bool, int, float, complex, str, bytes, np.number, np.bool_, type(None), type(...), np.dtype, type)


@dataclass(eq=False, slots=True)
class CallKey:
    """By what a call is known when it comes again. `what` was called: a kernel, a rule, or a kind of `Foreign`; `line`, `where`: of the
    call."""

    what: Any
    args: tuple[Any, ...]
    line: Any
    where: str
    _outlines: tuple[Outline, ...] | None = field(default=None, init=False)

    def same_arguments(self, args: Sequence[Any]) -> bool:
        """Whether a call has these arguments."""
        own = self.args
        if len(own) != len(args):
            return False
        for a, b in zip(own, args, strict=True):
            if a is b:  # all() of a generator would take as long as all the rest
                continue
            if not same(a, b):
                return False
        return True

    @property
    def name(self) -> str:
        """What is called."""
        return str(getattr(self.what, "name", "foreign code"))

    @property
    def signature(self) -> tuple[Any, Any]:
        """The key that tells operations apart."""
        return self.what, self.line

    @property
    def outlines(self) -> tuple[Outline, ...]:
        """The arrays of its arguments, by what they are."""
        if self._outlines is None:
            self._outlines = tuple(map(outline, self.args))
        return self._outlines


@dataclass(eq=False, slots=True)
class LaunchKey(CallKey):
    """A launch of a kernel. `wanted`: the stream that was asked for."""

    grid: Any
    block: Any
    shared_mem: int
    wanted: Any

    def same(self, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> bool:
        """Whether a launch of the same kernel is this one."""
        return (
            (grid is self.grid or _same_geometry(grid, self.grid))
            and (block is self.block or _same_geometry(block, self.block))
            and shared_mem == self.shared_mem
            and stream is self.wanted
            and self.same_arguments(args)
        )


@dataclass(eq=False, slots=True)
class RuleKey(CallKey):
    """A call of a rule. `names`: of its arguments; `regions`: of arrays of which less is touched than all."""

    names: tuple[str, ...]
    regions: Mapping[str, Region]


@dataclass(eq=False, slots=True)
class MadeKey(CallKey):
    """An array that an operation made, perhaps in the memory of an earlier one; its arguments: library, shape, type, whether it is to have
    a shadow."""

    made: Made

    @property
    def name(self) -> str:
        return "a new array"


def _same_geometry(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, int | tuple) and bool(a == b)


def same(a: Any, b: Any) -> bool:
    """Whether two arguments, the first of which lasts, mean the same."""
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is int or kind is str or kind is bool or kind is bytes:
        return bool(a == b)
    if kind is float:
        return bool(a == b) and math.copysign(1.0, a) == math.copysign(1.0, b)
    if isinstance(a, np.generic):
        return bool(a.dtype == b.dtype) and a.tobytes() == b.tobytes()
    if isinstance(a, Duplicated):
        there = a.keep == b.keep and b.has_shadow  # what is made later is no earlier memory, and belongs to the stream of the call
        return there and same_array(a.primal, b.primal) and same_array(a._own_shadow, b._own_shadow) and _of_one_array(a, b)
    if isinstance(a, BatchDuplicated):
        return same_array(a.primal, b.primal) and same(a.shadows, b.shadows) and _of_one_array(a, b)
    if isinstance(a, Active):
        return same(a.value, b.value) and same(a.shadow, b.shadow)
    if isinstance(a, Const):
        return same(a.primal, b.primal)
    if isinstance(a, tuple | list | slice):
        one, two = ((x.start, x.stop, x.step) if isinstance(x, slice) else x for x in (a, b))
        return len(one) == len(two) and all(x is y or same(x, y) for x, y in zip(one, two, strict=True))
    if kind is dict:
        return list(a) == list(b) and same(tuple(a.values()), tuple(b.values()))
    return is_array(a) and same_array(a, b)


def _of_one_array(a: Any, b: Any) -> bool:
    """Whether the arrays of which two pairs are views are the same."""
    return a._of is b._of or same(shadows_of_array(a), shadows_of_array(b))


def same_array(a: Any, b: Any) -> bool:
    """Whether two arrays are the same memory, seen in the same way."""
    return a is b or (signature(a) == signature(b) if a.size else layout(a) == layout(b))


def lasting(x: Any, copied: bool = False) -> bool:
    """Whether an object goes on meaning what it means now: the content of an array may change, what it is may not. `copied`: of a rule,
    whose lists and dicts are copies of its own, and whose other objects may not change (`rules`)."""
    if isinstance(x, (*_NUMBERS, Duplicated, BatchDuplicated)) or (is_array(x) and x.dtype.kind != "O"):
        return True
    if isinstance(x, Active):
        return isinstance(x.value, _NUMBERS) and lasting(x.shadow)
    if isinstance(x, Const):
        return lasting(x.primal)
    if copied and type(x) in (list, dict):
        return all(lasting(part, copied) for part in (x.values() if type(x) is dict else x))
    parts = x if type(x) is tuple else (x.start, x.stop, x.step) if isinstance(x, slice) else None
    if parts is None:
        return copied and not is_array(x)
    return all(lasting(part, copied) for part in parts)


def constant(x: Any) -> bool:
    """Whether an argument passed by value will always be the same number or numbers: not a list, nor an array of one struct."""
    if isinstance(x, Active | Const):
        x = x.primal
    return all(isinstance(part, _NUMBERS) for part in x) if type(x) is tuple else isinstance(x, _NUMBERS)


def arrays_of(x: Any) -> Iterator[Any]:
    """The arrays behind an argument."""
    if isinstance(x, Duplicated):
        yield from (x.primal, x._own_shadow) if x.has_shadow else (x.primal,)
    elif isinstance(x, BatchDuplicated):
        yield from (x.primal, *x.shadows)
    elif isinstance(x, Active):
        yield from arrays_of(x.shadow)
    elif isinstance(x, Const):
        yield from arrays_of(x.primal)
    elif type(x) is tuple:
        for part in x:
            yield from arrays_of(part)
    elif is_array(x):
        yield x

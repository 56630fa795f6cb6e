"""The specialization key of a call: argument types, layouts and integers, whatever the addresses and the floats are.

What binding a call finds out, and refuses, depends on little more than that. So calls whose arrays and shadows all lie in allocations of
their own are bound once for all that are alike; the others give no more than addresses and numbers. Where a kernel may leave the views that
it is given, or arrays share an allocation, each call is looked at as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arguments import Bound, BoundArgument
from ..arguments.annotations import Active, Const, Stopped
from ..arguments.arrays import fills, is_array, resolve
from ..arguments.conversions import Place, is_null
from ..errors import GpuadError
from ..ir.nodes import Kernel
from ..ir.types import HALVES
from ..pipeline import Call, executor_of
from ..runtime.actions import perform_one
from ..runtime.array_locks import writeable
from ..runtime.array_types import Extents
from ..runtime.base import Dim3, Memory
from .call_replay import PAIRS, REAL, WHOLE, Launch, Make, plain

_SHADOWED = frozenset({"duplicated", "noneed", "active"})
_LARGEST = {"float32": 3e38, "float64": float("inf")}  # below it a number is rounded, and that is all


# --- what calls share --------------------------------------------------------------------------------------------------------------------


def specialization_key(grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, numbers: bool = True) -> Hashable:
    """The key that two calls have to share to be alike, or to be so but for their whole `numbers`; None for what it is not known to say."""
    if not (plain(grid) and plain(block) and type(shared_mem) is int and isinstance(args, tuple | list)):
        return None
    found: list[Any] = [grid, block, shared_mem]
    for x in args:
        kind = _kind(x) if numbers or type(x) not in WHOLE else type(x)
        if kind is None:
            return None
        found.append(kind)
    return tuple(found)


def _kind(x: Any) -> Any:
    kind = type(x)
    if kind is np.ndarray:
        return x.dtype, x.shape, x.strides, writeable(x)
    if kind in WHOLE:
        return kind, x
    if kind in REAL or x is None:
        return kind
    if kind in PAIRS:
        return _both(kind, _kind(x.primal), _kind(x._passed_shadow), x.keep)
    if kind is Active:
        return _both(kind, _kind(x.value), _kind(x.shadow)) if type(x.value) in REAL and is_array(x.shadow) else None
    if kind is Const or kind is Stopped:
        return _both(kind, _kind(x.primal))
    return (kind, x.dtype, x.shape, x.strides, int(x.device.id), _current_device()) if is_array(x) and kind.__name__ == "ndarray" else None


def _both(*parts: Any) -> Any:
    return None if None in parts else parts


def _current_device() -> int:
    from ..runtime.cuda import current_device

    return current_device()


# --- calls that are ready ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Part:
    """An argument of such a call: the bound one without its memory, how its number is made, and how large its allocation is if it has to be
    that large."""

    like: BoundArgument
    pointer: bool
    make: Make | None
    size: int | None

    def passed(self, x: Any) -> Any:
        """What a kernel gets for an array, a number or None; None if that has to be looked at closer."""
        if not self.pointer:
            return self.make(x) if self.make is not None else self.like.value
        if x is None or isinstance(x, int):  # an address, which is refused, or null
            return None
        memory = resolve(x)
        return memory if self.size is None or (memory.root.size == self.size and fills(x, memory)) else None

    def bound(self, x: Any) -> BoundArgument | None:
        """The argument for another object; None if that has to be looked at closer."""
        like = self.like
        value = _primal(like.kind, x)
        value = None if self.pointer and is_null(value) else value
        passed = self.passed(value)
        if passed is None and value is not None:
            return None
        arrays = (x._passed_shadow,) if like.kind in _SHADOWED else ()
        shadows = tuple(map(resolve, arrays))
        memory, number, array = (passed, None, value) if self.pointer else (None, passed, None)
        return BoundArgument(
            like.position, like.declaration, like.kind, memory, shadows, number, array, arrays, like.keep, struct=like.struct
        )  # fmt: skip


def _primal(kind: str, x: Any) -> Any:
    """The array, number or None behind an annotation of this kind."""
    return x if kind == "bare" else x.value if kind == "active" else x.primal


@dataclass(frozen=True, eq=False)
class Ready:
    """A call that has been bound, for all that are like it. `key`: None while it is not known."""

    name: str
    parts: tuple[Part, ...]
    aliases: tuple[Any, ...]
    library: str | None
    grid: Dim3
    block: Dim3
    shared_mem: int
    loose: frozenset[int]
    absent: frozenset[int]
    values: frozenset[int]
    key: Hashable
    frame: Hashable
    shared: dict[Hashable, Any] = field(default_factory=dict)

    def call(self, args: Sequence[Any], stream: Any, varying: frozenset[int] = frozenset()) -> Call | None:
        """The call with such arguments, of which numbers are `varying`; None if they have to be looked at closer."""
        arguments = []
        for part, x in zip(self.parts, args, strict=True):
            argument = part.bound(x)
            if argument is None:
                return None
            arguments.append(argument)
        if not _disjoint([m for a in arguments for m in (a.memory, *a.shadows) if m is not None]):
            return None
        call = Call(
            Bound(self.name, tuple(arguments), self.aliases, self.library, 1), self.grid, self.block, self.shared_mem, stream, self.loose,
            self.absent, self.values, varying, shared=self.shared,
        )  # fmt: skip
        call.__dict__.update(frame=self.frame, overlaps={}, **({} if self.key is None else {"key": self.key}))  # what it would find out
        return call

    def renumbered(self, args: Sequence[Any]) -> Ready | None:
        """The same with the whole numbers of these arguments, of which nothing has been found out; None where one cannot be passed."""
        parts = []
        for part, x in zip(self.parts, args, strict=True):
            if type(x) in WHOLE and not part.pointer:
                try:
                    like = Place(self.name, part.like.position, part.like.declaration).bind(x)
                except GpuadError:  # which is said of the call as a whole
                    return None
                part = replace(part, like=like)
            parts.append(part)
        return replace(self, parts=tuple(parts), key=None, shared={})

    def memory(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
        """What kernels get for such arguments and for their shadows; None if they have to be looked at."""
        values: list[Any] = []
        shadows: list[Any] = []
        for part, x in zip(self.parts, args, strict=True):
            kind = part.like.kind
            value = _primal(kind, x)
            passed = part.passed(value)
            if passed is None and value is not None:
                return None
            values.append(passed)
            shadows.append(resolve(x._passed_shadow) if kind in _SHADOWED else None)
        return (values, shadows) if _disjoint([m for m in (*values, *shadows) if isinstance(m, Memory)]) else None

    def launch(self, kernel: Kernel, args: Sequence[Any]) -> Launch | None:
        """Makes the launch with such arguments, on the current stream, and gives what made it; None, and nothing is done, if they have to
        be looked at."""
        memory = self.memory(args)
        if memory is None:
            return None
        values, _ = memory
        try:
            launch = executor_of(self.library).prepared(kernel, self.grid, self.block, values, shared_mem=self.shared_mem)
        except RecursionError:  # a text for arguments that overlap or are huge is made now
            return None
        perform_one(launch)
        return Launch(launch, range(len(values)))

    @property
    def makes(self) -> tuple[Make | None, ...]:
        """For each argument how a real number becomes that of the kernel."""
        return tuple(part.make for part in self.parts)


def _disjoint(memories: Sequence[Memory]) -> bool:
    """True if no two pointers lie in one allocation."""
    hulls = sorted([(m.address, m.root.nbytes) for m in memories])
    before = 0
    for start, nbytes in hulls:
        if start < before:
            return False
        before = start + nbytes
    return True


def ready(call: Call, args: Sequence[Any]) -> Ready | None:
    """The call as one that others may be like; None where more than the key would have to be looked at."""
    bound = call.bound
    alone = all(a is None or a.allocation == i for i, a in enumerate(bound.aliases)) and not call.overlaps
    if len(args) != len(bound.arguments) or bound.width != 1 or not alone:
        return None
    parts = [_part(x, a, loose=bool(call.loose)) for x, a in zip(args, bound.arguments, strict=True)]
    if not all(parts):
        return None
    made = Ready(
        bound.kernel, tuple(p for p in parts if p is not None), bound.aliases, bound.library, call.grid, call.block, call.shared_mem,
        call.loose, call.absent, call.values, call.key, call.frame,
    )  # fmt: skip
    return made if made.call(args, None) is not None else None


def _part(x: Any, argument: BoundArgument, *, loose: bool) -> Part | None:
    """The part of an argument, if more of its kind can be made."""
    memories = ((argument.memory, argument.array), *zip(argument.shadows, argument.shadow_arrays, strict=True))
    same = all(m is None or m.root.dtype == array.dtype for m, array in memories)
    if not same or argument.pieces or argument.kind not in ("bare", "const", "stopped", "duplicated", "noneed", "active"):
        return None
    bare = replace(argument, memory=None, shadows=(), array=None, shadow_arrays=())
    if argument.is_pointer:
        size = int(argument.memory.root.size) if loose and argument.memory is not None else None
        return Part(replace(bare, value=None), True, None, size)
    value = getattr(x, "value", getattr(x, "primal", x))
    if type(value) in WHOLE:
        return Part(bare, False, None, None)
    make = rounding(argument) if type(value) in REAL else None  # not so: one struct in an array
    return Part(replace(bare, value=None), False, make, None) if make is not None else None


def rounding(argument: BoundArgument) -> Make | None:
    """How the real number that such an argument was given becomes that of the kernel, for others of its type."""
    if argument.declaration.type in HALVES or argument.value is None:  # a float32 that is rounded already
        return None
    dtype = argument.value.dtype
    return _rounded(dtype.type, _LARGEST[dtype.name]) if dtype.kind == "f" and dtype.name in _LARGEST else None


def _rounded(kind: Callable[[Any], Any], largest: float) -> Make:
    return lambda x: kind(x) if -largest < x < largest else None

"""The call replay cache: a call on a CPU with the same arrays, shadows, layouts and integers as an earlier one repeats its launches.

All that binding finds out depends on the numbers, on where the arrays and the allocations behind them lie, and on how they are laid out;
what a derivative needs besides, on the switches that are set. So a call for which these are equal is that call, and takes no more than
comparing them; real numbers are put into its arguments anew. It is arrays that are compared, not the pairs that a caller writes around
them. No array is kept alive: one that has taken the place of another is the same to a kernel if it is the same in all of this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arguments.annotations import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed, Stopped
from ..arguments.arrays import address, resolve
from ..errors import LaunchError
from ..pipeline import executor_of
from ..runtime.base import Executor, owner_of, plain_address
from ..runtime.tensor_versions import Counting, count_writes, tensor_of
from ..runtime.thread_pool import Native

REAL = frozenset({float, np.float32, np.float64})
WHOLE = frozenset({int, bool, np.bool_, *(np.dtype(f"{kind}{bits}").type for kind in ("int", "uint") for bits in (8, 16, 32, 64))})
PAIRS = frozenset({Duplicated, DuplicatedNoNeed})
_SLOT = 8  # bytes of an argument
_MANY = 256  # calls that are remembered
Make: TypeAlias = "Callable[[Any], Any]"
Packed: TypeAlias = "tuple[Any, bytes, bytes]"  # an entry of compiled code, a geometry and arguments


# --- what a call says --------------------------------------------------------------------------------------------------------------------


class CallKey(NamedTuple):
    """A call: what an earlier one is looked up by and where, all arrays that it names, shadows included, its real numbers, and what else it
    says of the launch."""

    past: Past
    key: Hashable
    arrays: list[Any]
    reals: list[Any]
    grid: Any = 0
    block: Any = 0
    shared_mem: int = 0


def call_key(past: Past, what: Hashable, args: Sequence[Any], grid: Any = 0, block: Any = 0, shared_mem: int = 0) -> CallKey | None:
    """A call of a kernel with that past, and `what` is to be done with it. None where no earlier call is looked up."""
    if not isinstance(args, tuple | list):
        return None
    found: list[Any] = [what]
    arrays: list[Any] = []
    reals: list[Any] = []
    for x in args:
        kind = type(x)
        if kind is np.ndarray:
            found.append(id(x))
            arrays.append(x)
        elif kind in WHOLE:
            found.append((kind, x))
        elif kind in REAL:
            found.append(kind)
            reals.append(x)
        elif kind in PAIRS:
            primal, shadow = x.primal, x._passed_shadow
            if type(primal) is not np.ndarray or type(shadow) is not np.ndarray:
                return None
            found += (kind, x.keep, id(primal), id(shadow))
            arrays += (primal, shadow)
        elif not _say(x, found, arrays, reals):
            return None
    return CallKey(past, tuple(found), arrays, reals, grid, block, shared_mem)


def _say(x: Any, found: list[Any], arrays: list[Any], reals: list[Any]) -> bool:
    """Words for arguments that are rarer; False for one that says too little of itself. What it adds begins with the kind, which says
    how much there is of it."""
    kind = type(x)
    found.append(kind)
    if x is None:
        return True
    if kind is Active:
        found += (type(x.value), id(x.shadow))
        arrays.append(x.shadow)
        reals.append(x.value)
        return type(x.shadow) is np.ndarray and type(x.value) in REAL
    if kind is BatchDuplicated:
        found += (len(x.shadows), id(x.primal), *map(id, x.shadows))
        arrays += (x.primal, *x.shadows)
        return all(type(array) is np.ndarray for array in (x.primal, *x.shadows))
    if kind is not Const and kind is not Stopped:
        return False
    said = call_key({}, "", (x.primal,))
    if said is not None:
        found.append(said.key)
        arrays += said.arrays
        reals += said.reals
    return said is not None


def _reals_at(args: Sequence[Any]) -> list[int]:
    """The positions of the real numbers among the arguments of a call that can be looked up."""
    values = [x if type(x) in REAL else x.value if type(x) is Active else getattr(x, "primal", None) for x in args]
    return [i for i, value in enumerate(values) if type(value) in REAL]


def plain(extents: Any) -> bool:
    """True if the extents of a launch are numbers that stay what they are."""
    return type(extents) is int or (type(extents) is tuple and all(type(n) is int for n in extents))


# --- calls that were made ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fresh:
    """Memory that is made before the launches of a call: a copy of the allocation behind the array, or behind a shadow, of an argument
    (`role`, `position`, `width`: which shadow), or so many zeros."""

    role: str
    position: int = 0
    width: int = 0
    length: int = 0
    dtype: Any = None

    def made(self, source: Any) -> Any:
        """It, as a flat array. `source`: the array that is copied."""
        return np.zeros(self.length, self.dtype) if source is None else resolve(source).root.copy()


@dataclass(frozen=True, eq=False)
class Launch:
    """A launch that was made: what made it, and for each of the kernel's arguments, if it is one of the call's, which. `fresh`: arguments
    that are memory of this call alone, and how many bytes into it they point."""

    call: Callable[[], Any]
    positions: Sequence[int | None]
    fresh: Mapping[int, tuple[Fresh, int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CallReplay:
    """A call that was made: its geometry, its arrays by what NumPy says of each and of the allocation behind it, its real numbers, the
    switches that were set, and its launches of compiled code, with packed arguments. Of each real number: how it becomes that of a kernel,
    and where it stands, by launch and place."""

    grid: Any
    block: Any
    shared_mem: int
    arrays: list[Any]
    reals: tuple[tuple[Any, Make, tuple[tuple[int, int], ...]], ...]
    switches: tuple[bool, ...]
    executor: Executor
    launches: tuple[Packed, ...]
    fresh: tuple[tuple[Fresh, int | None, tuple[tuple[int, int, int], ...]], ...]  # which of the arrays it copies; by launch, place, offset
    tensors: tuple[int, ...] = ()  # which of the arrays it writes lie in tensors of PyTorch

    def made(self, said: CallKey, switches: tuple[bool, ...]) -> bool:
        """Makes a call that was found by its words; False, and nothing is done, if it is another one."""
        if not (_same(said.grid, self.grid) and _same(said.block, self.block) and _same(said.shared_mem, self.shared_mem)):
            return False
        if switches != self.switches:
            return False
        if [_seen(array) for array in said.arrays] != self.arrays or executor_of("numpy") is not self.executor:
            return False
        launches = self._launches(said.reals)
        if launches is None:
            return False
        held = []
        for fresh, source, places in self.fresh:
            held.append(fresh.made(None if source is None else said.arrays[source]))
            at = address(held[-1])
            launches = _with(launches, [(k, j, (at + offset).to_bytes(_SLOT, sys.byteorder)) for k, j, offset in places])
        try:
            for entry, geometry, slots in launches:
                if entry(geometry, slots):
                    raise LaunchError(f"{entry.__name__.removeprefix('gpuad_launch_')}: out of memory")
        finally:
            if self.tensors:
                count_writes(said.arrays[i] for i in self.tensors)
        return True

    def _launches(self, reals: Sequence[Any]) -> Sequence[Packed] | None:
        """Its launches with other real numbers; None if one of these is none of the kernel's type."""
        launches: Sequence[Packed] = self.launches
        for (before, make, places), x in zip(self.reals, reals, strict=True):
            if x is not before:
                number = make(x)
                if number is None:
                    return None
                packed = number.tobytes().ljust(_SLOT, b"\0")
                launches = _with(launches, [(k, j, packed) for k, j in places])
        return launches


Past: TypeAlias = "dict[Hashable, CallReplay | None]"  # calls that were made, by their words; None for one that was made once


def replay_call(said: CallKey, switches: tuple[bool, ...] = ()) -> bool:
    """Makes a call in the words of an earlier one; False, and nothing is done, if it is not known. `switches`: all that it depends on."""
    known = said.past.get(said.key)
    return known is not None and known.made(said, switches)


def note(
    said: CallKey | None, args: Sequence[Any], switches: tuple[bool, ...], executor: Executor, makes: Sequence[Make | None],
    launches: Callable[[], Sequence[Launch] | None], origins: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """Keeps a call that was made for those in the same words, once there have been two. `args`: the arguments of the launch that it meant;
    `origins`: which of these each of the arguments that were bound comes from, if they are not the same; `makes`: how each of the latter,
    if it is a real number, becomes that of a kernel."""
    if said is None:
        return
    if len(said.past) >= _MANY:
        said.past.clear()
    known = said.key in said.past
    bound = range(len(args)) if origins is None else origins
    said.past[said.key] = _again(said, args, switches, executor, makes, launches(), bound) if known else None


def _again(
    said: CallKey, args: Sequence[Any], switches: tuple[bool, ...], executor: Executor, makes: Sequence[Make | None],
    launches: Sequence[Launch] | None, origins: Sequence[int],
) -> CallReplay | None:  # fmt: skip
    """A call that was made; None where it takes more than calls of compiled code."""
    places = _reals_at(args)
    if launches is None or not (plain(said.grid) and plain(said.block)) or len(places) != len(said.reals):
        return None
    reals = []
    for i, x in zip(places, said.reals, strict=True):
        at = origins.index(i)
        make = makes[at]
        if make is None:
            return None
        reals.append((x, make, tuple((k, j) for k, each in enumerate(launches) for j, p in enumerate(each.positions) if p == at)))
    calls = [each.call.func if isinstance(each.call, Counting) else each.call for each in launches]
    counted = [tensor for each in launches if isinstance(each.call, Counting) for tensor in each.call.tensors]
    tensors = tuple(i for i, array in enumerate(said.arrays) if counted and any(tensor_of(array) is t for t in counted))
    fresh = _fresh(said, args, launches, origins)
    if fresh is None or any(not isinstance(call, Native) for call in calls):
        return None
    packed = tuple((call.entry, call.geometry, call.slots) for call in calls if isinstance(call, Native))  # which keep no array alive
    arrays = [_seen(array) for array in said.arrays]
    return CallReplay(said.grid, said.block, said.shared_mem, arrays, tuple(reals), switches, executor, packed, fresh, tensors)


def _fresh(
    said: CallKey, args: Sequence[Any], launches: Sequence[Launch], origins: Sequence[int]
) -> tuple[tuple[Fresh, int | None, tuple[tuple[int, int, int], ...]], ...] | None:
    """What is made for a call, and where it is passed; None if it cannot be told of which of its arrays that is a copy."""
    found: dict[Fresh, list[tuple[int, int, int]]] = {}
    for k, launch in enumerate(launches):
        for j, (fresh, offset) in launch.fresh.items():
            found.setdefault(fresh, []).append((k, j, offset))
    named = [which for i, x in enumerate(args) for which in _named(i, x)]
    if len(named) != len(said.arrays):
        return None
    source = {which: at for at, which in enumerate(named)}
    return tuple((f, source.get((f.role, origins[f.position], f.width)), tuple(places)) for f, places in found.items())


def _named(i: int, x: Any) -> list[tuple[str, int, int]]:
    """The arrays of an argument in the order of its words: role, the argument's position, which shadow."""
    if type(x) is BatchDuplicated:
        return [("primal", i, 0), *(("shadow", i, width) for width in range(len(x.shadows)))]
    primal = [("primal", i, 0)] if type(getattr(x, "primal", x)) is np.ndarray else []
    return [*primal, ("shadow", i, 0)] if type(x) in PAIRS or type(x) is Active else primal


def _with(launches: Sequence[Packed], changes: Sequence[tuple[int, int, bytes]]) -> Sequence[Packed]:
    """The launches with other arguments: by launch, place, packed."""
    found = list(launches)
    for k, j, packed in changes:
        entry, geometry, slots = found[k]
        found[k] = entry, geometry, slots[: _SLOT * j] + packed + slots[_SLOT * (j + 1) :]
    return found


def _same(a: Any, b: Any) -> bool:
    """True if two extents of a launch are equal, of which `b` is plain."""
    return a is b or (type(a) is type(b) and plain(a) and bool(a == b))


def _seen(array: np.ndarray[Any, Any]) -> Any:
    """The place and layout of an array, and the same of the allocation behind it, with what lends that memory."""
    if array.base is None:
        return _placed(array)
    owner = owner_of(array)
    return _placed(array), None if owner is array else (_placed(owner), type(owner)), type(owner.base)


def _placed(array: np.ndarray[Any, Any]) -> Any:
    """Address, shape, strides and type of an array, and whether it may be written, which is so if there are four of these."""
    where = plain_address(array)
    return (array.__array_interface__, array.dtype) if where is None else (where, array.shape, array.strides, array.dtype)

"""The halves of a split launch as calls of compiled code, for launches on a CPU that need nothing but their kernels.

All that such a launch is given are addresses and numbers, so a half is a table of these and, for each of its kernels, which of the table's
entries go where: no array is looked at again. That holds where no data decides (no check of stores), the stacks lie in memory of the
executor and nothing is printed or asserted; elsewhere there is no `Direct`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np

from .. import pipeline
from ..arguments.annotations import Duplicated
from ..errors import LaunchError
from ..ir.types import Scalar
from ..pipeline import Call, State
from ..runtime.base import Memory
from ..runtime.thread_pool import Native
from .split import Split

_SLOT = 8


@dataclass(frozen=True, eq=False, slots=True)
class Packed:
    """A launch of compiled code: its entry, its geometry, and which entries of a table it is given."""

    entry: Callable[[bytes, bytes], int]
    geometry: bytes
    pack: Callable[..., bytes]
    pick: Callable[[Sequence[int]], tuple[int, ...]]
    picked: tuple[int, ...]

    def __call__(self, table: Sequence[int]) -> None:
        """Makes the launch."""
        if self.entry(self.geometry, self.pack(*self.pick(table))):
            raise LaunchError("a launch is out of memory")


@dataclass(frozen=True, eq=False)
class Direct:
    """Both halves. The forward's table: arguments by position (addresses, packed floats, 0 else), logs, `constants`. The reverse's:
    arguments, shadows by position, copies of `before` in its order, logs, `partials` (zeros of so many elements), `constants`."""

    forward: Packed
    reverse: tuple[Packed, ...]
    forward_constants: tuple[int, ...]
    reverse_constants: tuple[int, ...]
    partials: tuple[tuple[int, np.dtype[Any]], ...]


_FORMATS = {"float32": struct.Struct("=f4x"), "float64": struct.Struct("=d")}
_WHOLE = struct.Struct("=Q")


def packer(type_: Scalar) -> Callable[[float], int]:
    """How a float by value becomes an entry of a table. It raises OverflowError for one that the type has not."""
    pack, unpack = _FORMATS[str(type_)].pack, _WHOLE.unpack
    return lambda x: unpack(pack(x))[0]


def direct(split: Split, args: Sequence[Any], reals: Sequence[int]) -> Direct | None:
    """The halves as such calls; None where there is more to do. `args`: of a call that is alike; `reals`: positions of the floats by value
    that may differ between the calls."""
    call = split.bound(args)
    if call.bound.library != "numpy" or pipeline.stores_in_doubt(split.adjoint, call) or split.call.shared_mem:
        return None
    if any(a.array is not None and not a.array.size for a in call.bound.arguments):
        return None
    return _Packing(split, call, frozenset(reals)).packed()


class _Packing:
    """Packs both halves of one call, whose memory is known by its objects."""

    def __init__(self, split: Split, call: Call, reals: frozenset[int]) -> None:
        self.split, self.reals = split, reals
        self.count = len(call.bound.arguments)
        self.shadows = [None if d is None else self._shadow(i, call) for i, d in enumerate(split.shadows)]
        arguments = tuple(
            a
            if s is None
            else replace(a, kind="duplicated" if a.is_pointer else "active", shadows=(split.shadow_memory(i, s),), shadow_arrays=(s,))
            for i, (a, s) in enumerate(zip(call.bound.arguments, self.shadows, strict=True))
        )
        self.call = replace(call, bound=replace(call.bound, arguments=arguments))
        self.logs = [Memory(np.zeros(size, dtype)) for size, dtype in split.logs]
        self.entries = {i: Memory(np.empty_like(m.root), m.offset) for i in split.before if (m := arguments[i].memory) is not None}

    def _shadow(self, i: int, call: Call) -> Any:
        argument = call.bound.arguments[i]
        return Duplicated(argument.array).shadow if argument.is_pointer else np.zeros(1, self.split.shadows[i])

    def packed(self) -> Direct | None:
        """Both halves."""
        split, call = self.split, self.call
        own = [*call.bound.primals(), *call.offset_values()]
        names = {id(m): i for i, m in enumerate(own) if isinstance(m, Memory)}
        names |= {id(m): self.count + j for j, m in enumerate(self.logs)}
        constants: list[int] = []
        kernel = split.adjoint.augmented or split.primal
        more = self.logs if split.adjoint.augmented is not None else []
        forward = self._pack(
            kernel, [*own, *more], [*range(len(own)), *(None for _ in more)], names, self.count + len(self.logs), constants
        )
        reverse = self._reverse()
        if forward is None or reverse is None:
            return None
        return Direct(forward, reverse[0], tuple(constants), reverse[1], reverse[2])

    def _reverse(self) -> tuple[tuple[Packed, ...], tuple[int, ...], tuple[tuple[int, np.dtype[Any]], ...]] | None:
        split, call, count = self.split, self.call, self.count
        primals = {i: (a.memory if a.is_pointer else a.value) for i, a in enumerate(call.bound.arguments)}
        state = State(primals, dict(self.entries), self.logs)
        given = [split_stage_arguments(split, stage, call, state) for stage in split.stages]
        partials = list(state.scratch.values())
        if any(args is None for args in given):
            return None
        names = {id(m): i for i, m in primals.items() if isinstance(m, Memory)}
        names |= {id(a.shadows[0]): count + i for i, a in enumerate(call.bound.arguments) if a.shadows}
        names |= {id(m): 2 * count + j for j, m in enumerate(self.entries.values())}
        names |= {id(m): 2 * count + len(self.entries) + j for j, m in enumerate([*self.logs, *(p for p in partials if p is not None)])}
        base = 2 * count + len(self.entries) + len(self.logs) + sum(p is not None for p in partials)
        constants: list[int] = []
        packed = []
        for stage, args in zip(split.stages, given, strict=True):
            assert args is not None
            positions = [p.position if p.role == "primal" else None for p in stage.parameters]
            made = self._pack(stage.kernel, args, positions, names, base, constants, stage.grid)
            if made is None:
                return None
            packed.append(made)
        return tuple(packed), tuple(constants), tuple((int(p.root.size), p.root.dtype) for p in partials if p is not None)

    def _pack(
        self, kernel: Any, args: Sequence[Any], positions: Sequence[int | None], names: dict[int, int], base: int, constants: list[int],
        grid: Any = None,
    ) -> Packed | None:  # fmt: skip
        """A launch; None if it is none of compiled code, or is given memory that the table has not."""
        call = self.call
        launch = call.executor.prepared(kernel, grid or call.grid, call.block, args, shared_mem=call.shared_mem)
        if not isinstance(launch, Native) or len(launch.slots) != _SLOT * len(args):
            return None
        slots = struct.unpack(f"={len(args)}Q", launch.slots)
        picked = []
        for arg, position, slot in zip(args, positions, slots, strict=True):
            if isinstance(arg, Memory):
                if id(arg) not in names or slot != arg.address + arg.offset * arg.itemsize:
                    return None
                picked.append(names[id(arg)])
            elif position in self.reals:
                picked.append(position)
            else:
                picked.append(base + len(constants))
                constants.append(slot)
        pick: Callable[[Sequence[int]], tuple[int, ...]] = itemgetter(*picked) if len(picked) > 1 else _one(picked[0])
        return Packed(launch.entry, launch.geometry, struct.Struct(f"={len(args)}Q").pack, pick, tuple(picked))


def _one(k: int) -> Callable[[Sequence[int]], tuple[int, ...]]:
    return lambda table: (table[k],)


def split_stage_arguments(split: Split, stage: pipeline.Stage, call: Call, state: State) -> list[Any] | None:
    """What a stage is launched with, where no data decides."""
    return pipeline.own_arguments(split.adjoint, stage, call, state, 0) if stage.may_run else None

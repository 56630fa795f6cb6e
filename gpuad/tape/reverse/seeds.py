"""Seeds: which shadows they go to, checked before anything is written.

In: {Duplicated: array or number} as the caller gives them. Out: pairs of shadow and seed, with the allocation and the elements that each
covers. TapeError for a seed that fits no shadow, for two on one element, and for one on memory that the tape does not know.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, TypeAlias

import numpy as np

from ...arguments.aliasing import hull
from ...arguments.annotations import BatchDuplicated, Duplicated
from ...arguments.arrays import address, as_array, is_array, leaf_memory, namespace
from ...arguments.layouts import repeats, signature
from ...errors import TapeError
from ...ir.dtypes import is_real
from ...program.ir.region import Region, of_array
from ...public_calls import show
from ...runtime.array_types import NdArray
from ...runtime.base import Memory
from ..record.call_keys import arrays_of
from ..record.recording import Recording
from .in_place_seeds import Placed, Placements, Where, placed, where_of
from .reversal_plan import Plan

Seed: TypeAlias = tuple[Any, Any, Any, Region]  # the shadow's elements, what goes there, the shadow's allocation, which elements of it
_NUMBERS = (bool, int, float, complex, np.generic, tuple, list)  # and what NumPy makes an array of
_PLAIN_NUMBERS = (int, float)
_MOST = 8  # seeds read in place
_SEEDS = "seeds are {Duplicated: array or number}, as in tape.reverse({loss: 1.0}), or {BatchDuplicated: a tuple of such}"


class Seeds:
    """Takes the seeds of a `recording`'s reversals. `last`: those of the reversal before, by the shadow that each went to."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self.last: dict[Where, Callable[[], Any]] = {}
        self._placed: set[tuple[Where, int, int]] = set()

    def resolved(self, seeds: Mapping[Any, Any], *, lasting: bool = False) -> list[Seed]:
        """The shadow views that seeds go to, by memory, and the seeds, copied where they have to be; the allocation of each and its
        elements. Nothing is written yet. `lasting`: the seeds will be read again later."""
        if not isinstance(seeds, Mapping):
            raise TapeError(_SEEDS)
        found: list[Seed] = []
        for key, seed in seeds.items():
            if not isinstance(key, Duplicated | BatchDuplicated):
                raise TapeError(_SEEDS)
            primal = key.primal
            if primal.size == 0:
                continue
            if primal.dtype.names:
                raise TapeError("seeds of structs are put into their shadow, before reverse() without seeds. No shadow was touched.")
            if repeats(primal):
                raise TapeError(
                    "elements of a seed's array share memory: its key is the array that they are a view of. No shadow was touched."
                )
            shadows = self._seeded(key)
            several = isinstance(seed, tuple | list) and isinstance(key, BatchDuplicated)
            if several and len(seed) != len(shadows):
                raise TapeError(f"{len(seed)} seeds for an array with {len(shadows)} shadows. No shadow was touched.")
            for (shadow, root, touched), part in zip(shadows, seed if several else [seed] * len(shadows), strict=True):
                part = part if isinstance(part, Duplicated | BatchDuplicated) else as_array(part)
                _check_seed(part, shadow.dtype)
                _check_library(part, shadow)
                if np.shape(part) and np.shape(part) != shadow.shape:
                    raise TapeError(f"a seed of shape {np.shape(part)} for an array of shape {shadow.shape}. No shadow was touched.")
                kind = part.dtype if hasattr(part, "dtype") else np.asarray(part).dtype
                if isinstance(kind, np.dtype) and not np.can_cast(kind, shadow.dtype, "same_kind"):
                    raise TapeError(f"a seed of {kind} for a shadow of {shadow.dtype}. No shadow was touched.")
                if any(where_of(other) == where_of(root) and touched & region for _, _, other, region in found):
                    raise TapeError("two seeds go to one element of a shadow: add them up first. No shadow was touched.")
                found.append((shadow, self._outside_shadows(part, lasting), root, touched))
        return found

    def placements(self, resolved: Sequence[Seed], lasting: bool) -> Placements:
        """Which of the seeds are read where they are: arrays that were the seeds the last time too, or that are `lasting`, apart from all
        shadows."""
        found: dict[Where, Placed] = {}
        before, self.last = self.last, {}
        roots = [where_of(root) for _, _, root, _ in resolved]
        for shadow, seed, root, region in resolved:
            where = where_of(root)
            self.last[where] = _weakly(seed)
            kept = lasting or (is_array(seed) and before.get(where, _nothing)() is seed)
            alone = roots.count(where) == 1 and len({p.root.dtype for p in self._recording.shadows.by_shadow.get(address(root), ())}) == 1
            free = kept and alone and address(root) not in self._recording.made.shadows
            one = placed(shadow, seed, root, region) if free else None
            if one is not None and not self._is_shadow(seed, one.memory):
                found[where] = one
        return Placements(found if lasting or self._few(found) else {})

    def _few(self, found: Mapping[Where, Placed]) -> bool:
        """Whether plans are made for so few seeds that each is worth its own."""
        known = self._placed | {(where, address(p.memory.root), p.memory.offset) for where, p in found.items()}
        if len(known) <= _MOST:
            self._placed = known
        return len(known) <= _MOST

    def _is_shadow(self, seed: Any, memory: Memory) -> bool:
        return self._recording.shadows.is_shadow(address(memory.root), of_array(seed, memory.offset * int(memory.root.dtype.itemsize)))

    def _seeded(self, key: Any) -> list[tuple[Any, Any, Region]]:
        """The shadows that belong to a key's memory, as views like its primal, the allocation of each, and its elements in there;
        TapeError if they are not of the recording."""
        primal, memory = key.primal, leaf_memory(key.primal)
        known = self._recording.allocations.get(address(memory.root))
        region = of_array(primal, memory.offset * int(memory.root.dtype.itemsize))
        own = key.shadows if isinstance(key, BatchDuplicated) else (key._own_shadow,) if key.has_shadow else ()
        if known is not None and own:
            self._recording.judge.add_pair(known, region, memory, tuple(map(leaf_memory, own)), "the seed's array")
            self._recording.judge.note_array(key)
        pairings = self._recording.shadows.all_of(known, region) if known is not None else ()
        if not pairings:
            raise TapeError("a seed for memory that was not part of the recording. No shadow was touched.")
        if len(pairings) > 1 and not isinstance(key, BatchDuplicated):
            raise TapeError(f"the memory of a seed has {len(pairings)} shadows: its key is the BatchDuplicated. No shadow was touched.")
        views = (view_like(Memory(p.root, memory.offset + p.shift), primal) for p in pairings)  # of a complex array in complex numbers
        return [(view, p.root, Region(region.spans // p.size + p.shift)) for view, p in zip(views, pairings, strict=True)]

    def _outside_shadows(self, seed: Any, lasting: bool) -> Any:
        """The seed, or a copy of it where it lies in a shadow, which is cleared before the seeds are put in. TapeError if it is to last."""
        seed = as_array(seed)
        if not hasattr(seed, "strides") or isinstance(seed, np.generic):
            return seed
        low, high = hull(seed)
        if not any(low < end and begin < high for begin, end in map(hull, self._recording.shadows.roots)):
            return seed
        if lasting:
            raise TapeError("a seed of a graph lies in a shadow, which is cleared before the seed is read: pass an array of its own.")
        copy = self._recording.room(seed.shape, seed.dtype)
        copy[...] = seed
        return copy


@dataclass(frozen=True, eq=False)
class SeedKey:
    """A reversal with seeds, for those that follow with the same arrays: what was `found` for them by `Seeds`, and its plan. Seeds are
    not kept alive; of a Python number the type is known, since what is done does not depend on its value. `premises`: what it all depends
    on besides."""

    keys: tuple[Any, ...]
    seeds: tuple[Callable[[], Any], ...]
    arrays: tuple[Any, ...]
    premises: tuple[Any, ...]
    found: tuple[tuple[Any, Any, Region], ...]
    plan: Plan

    @classmethod
    def of(cls, seeds: Mapping[Any, Any], resolved: Sequence[Seed], premises: tuple[Any, ...], plan: Plan) -> SeedKey:
        """Seeds that were resolved as they are."""
        found = tuple((shadow, root, region) for shadow, _, root, region in resolved)
        known = tuple(type(seed) if type(seed) in _PLAIN_NUMBERS else _weakly(seed) for seed in seeds.values())
        return cls(tuple(seeds), known, _signed(seeds), premises, found, plan)

    def matches(self, seeds: Any, premises: tuple[Any, ...]) -> bool:
        """Whether these are the same seeds for the same arrays."""
        if type(seeds) is not dict or len(seeds) != len(self.keys):
            return False
        same = all(map(is_, seeds, self.keys)) and all(
            type(seed) is known if isinstance(known, type) else known() is seed
            for known, seed in zip(self.seeds, seeds.values(), strict=True)
        )
        return same and all(map(_is_same, premises, self.premises)) and _signed(seeds) == self.arrays

    def resolved(self, seeds: Mapping[Any, Any]) -> list[Seed]:
        """The seeds as `Seeds.resolved` would find them."""
        return [(shadow, seed, root, region) for (shadow, root, region), seed in zip(self.found, seeds.values(), strict=True)]


def as_before(seeds: Mapping[Any, Any], resolved: Sequence[Seed], last: Mapping[Where, Callable[[], Any]]) -> bool:
    """True if all seeds are numbers, or arrays that were the `last` ones too, each for the array of one shadow, and are read where they are
    or copied from there: then the next reversal with them will be this one."""
    if len(seeds) != len(resolved) or type(seeds) is not dict:
        return False
    given = zip(resolved, seeds.values(), strict=True)
    return all(
        type(seed) in _PLAIN_NUMBERS or (is_array(seed) and found is seed and last.get(where_of(root), _nothing)() is seed)
        for (_, found, root, _), seed in given
    )


def _signed(seeds: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(signature(a) for pair in seeds.items() for x in pair for a in arrays_of(x))


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, int | tuple) and bool(a == b))


def _nothing() -> None:
    """What is left of an array that is gone."""


def _weakly(seed: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(seed)
    except TypeError:  # a number
        return _nothing


def _check_library(seed: Any, shadow: NdArray) -> None:
    """Refuses an array on another side than its shadow: there is no copy from the host to a device, or back, unless it is asked for."""
    on_device = hasattr(seed, "__cuda_array_interface__")
    if namespace(shadow) is np and on_device:
        raise TapeError("a seed for a NumPy array is a NumPy array or a number, not an array of a GPU. No shadow was touched.")
    if namespace(shadow) is not np and not on_device and np.shape(seed):
        raise TapeError("a seed for a CuPy array is a CuPy array or a number: pass cupy.asarray(seed). No shadow was touched.")


def _check_seed(seed: Any, dtype: np.dtype[Any]) -> None:
    """A seed is an array or a number; TapeError if it is something else, or complex where the shadow is not."""
    if isinstance(seed, Duplicated | BatchDuplicated):
        raise TapeError("a seed is an array or a number, not an annotation: pass `.primal`. No shadow was touched.")
    if not is_array(seed) and not isinstance(seed, _NUMBERS) and not hasattr(seed, "__cuda_array_interface__"):
        raise TapeError(f"a seed is an array or a number, not {show(seed)}. No shadow was touched.")
    given = seed.dtype if hasattr(seed, "dtype") else np.asarray(seed).dtype
    if given != dtype and not is_real(given) and given.kind not in ("biuc" if dtype.kind == "c" else "biu"):
        raise TapeError(f"a seed of type {given} for a shadow of {dtype}. No shadow was touched.")


def view_like(memory: Memory, array: NdArray) -> Any:
    """A view of the memory with the shape and strides of `array`, in complex numbers if it has such."""
    strided = namespace(memory.root).lib.stride_tricks.as_strided
    begin, numbers = memory.root[memory.offset :], 1 if array.dtype.kind != "c" else 2
    if numbers == 2:
        begin = begin[: begin.size // 2 * 2].view(f"c{begin.dtype.itemsize * 2}")
    each = array.dtype.itemsize // numbers  # of halves the shadow is wider
    return strided(begin, array.shape, tuple(s // each * memory.itemsize for s in array.strides))

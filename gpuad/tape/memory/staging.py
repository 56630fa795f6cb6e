"""Staging buffers: memory of a tape that stands for arrays which its caller makes anew in each round.

A known program works at fixed addresses (`replay`). Where an array is another one than in the last round, though laid out like it, the
program is recorded once more, on a buffer in its place. From then on the array that comes there is copied into the buffer before each
operation that works on it, and back after each operation that writes it: operation and caller see the bytes that they would see if there
were no buffer. Shadows are copied into theirs before a reversal, and back after it.

In: arguments as the caller passes them, and what the program met in their places before (`Outline`). Out: arguments on buffers. Assumed: an
array is reached through its allocation alone; one that the program itself works on is never staged, and no two that overlap.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...arguments.annotations import Active, BatchDuplicated, Const, Duplicated
from ...arguments.arrays import address, is_array, leaf_memory, resolve
from ...arguments.deferred_clearing import deferred_at
from ...arguments.layouts import layout, signature
from ...errors import ShadowError
from ...ir.dtypes import shadow_dtype
from ...program.ir.region import Region
from ...runtime.actions import Action, copying
from ...runtime.tensor_versions import count_writes
from .buffers import CONTAINERS, Buffer, KnownArray, Outline, Part, Spans, bytes_of, can_be_staged, homes, outline


@dataclass(frozen=True, eq=False, slots=True)
class _StagedShadow:
    """`inside` stands for the shadow `array`, or for that of a `pair` which may have none yet, and which the caller may let go of."""

    inside: Any
    array: Any = None
    pair: Callable[[], Duplicated | None] = lambda: None

    def load(self) -> None:
        """Copies it in; zeros where there is none."""
        shadow = self._found(made=False)
        if shadow is None:
            self.inside.fill(0)
            return
        deferred = deferred_at(address(leaf_memory(shadow).root))
        if deferred is not None:
            deferred.clear_owed()
        self.inside[...] = shadow

    def store(self) -> None:
        """Copies it out, if anybody can look at it."""
        shadow = self._found(made=True)
        if shadow is not None:
            shadow[...] = self.inside
            count_writes((shadow,))

    def captured(self, load: bool) -> list[Action]:
        """The same with the shadow of this round, whichever comes later."""
        shadow = self._found(made=True)
        if shadow is None:
            return [copying(self.inside, 0)] if load else []
        return [copying(self.inside, shadow) if load else copying(shadow, self.inside)]

    def _found(self, made: bool) -> Any:
        pair = self.pair()
        return self.array if pair is None else pair._own_shadow if made or pair.has_shadow else None


class Staging:
    """The `buffers` of a tape, by their addresses. `new`: makes flat bytes; `direct`: the ranges of addresses that the program works on
    itself; `admits`: whether there is room for so many bytes."""

    def __init__(self, new: Callable[[int], Any], direct: Callable[[], Iterable[tuple[int, int]]], admits: Callable[[int], bool]) -> None:
        self._new, self._direct, self._admits = new, direct, admits
        self.buffers: dict[int, Buffer] = {}
        self._pairs: dict[Any, Duplicated] = {}
        self._batches: dict[Any, BatchDuplicated] = {}
        self.written: dict[Any, Part] = {}
        self._known: Mapping[int, Any] | None = None  # allocations that the program met before, where buffers may be made for others
        self._fixed: Spans | None = None  # what the program works on, as long as that is the same
        self.begin()

    def forget(self) -> None:
        """Another program is recorded, which works on other memory."""
        self._fixed = None

    def begin(self) -> None:
        """A round begins: no array has come."""
        for buffer in self.buffers.values():
            buffer.outside = None
        self._bound: dict[int, Buffer] = {}  # by the address of what each stands for
        self._spans = Spans()
        self._unmade: dict[int, tuple[Callable[[], Any], Buffer]] = {}  # for pairs without a shadow, by their ids
        self.shadows: dict[Any, _StagedShadow] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers that the tape has made."""
        return sum(int(buffer.root.nbytes) for buffer in self.buffers.values())

    @property
    def holds_any(self) -> bool:
        """True if any array has come in this round for which a buffer stands."""
        return bool(self._bound or self._unmade)

    @property
    def names(self) -> Iterator[tuple[int, int]]:
        """What each buffer stands for: its address, and that of the caller's array."""
        return ((address(buffer.root), where) for where, buffer in self._bound.items())

    def drop_unused(self) -> None:
        """Lets go of buffers to which nothing has come in a recording that is complete."""
        self._fixed = None
        gone = {where for where, buffer in self.buffers.items() if buffer.outside is None and buffer not in self._lazily}
        if gone:
            self.buffers = {where: buffer for where, buffer in self.buffers.items() if where not in gone}
            for pairs in (self._pairs, self._batches):
                for key in [key for key, pair in pairs.items() if not gone.isdisjoint(homes([outline(pair)]))]:
                    del pairs[key]

    @property
    def _lazily(self) -> list[Buffer]:
        return [buffer for _, buffer in self._unmade.values()]

    def bind(self, buffer: Buffer, where: int, root: Any) -> None:
        """An allocation has come in whose place a buffer stands."""
        if buffer.outside is not None:  # what others were given before is gone
            self._bound.pop(address(buffer.outside), None)
            self._spans.remove(address(buffer.outside))
        buffer.outside = root
        self._bound[where] = buffer
        self._spans.add(where, where + int(root.nbytes))

    def place_of(self, where: int) -> int:
        """The address of the buffer that stands for an allocation, or of that itself."""
        buffer = self._bound.get(where)
        return where if buffer is None else address(buffer.root)

    def outside(self, where: int) -> int:
        """The address of what the buffer at an address stands for in this round, or the address itself."""
        buffer = self.buffers.get(where)
        return where if buffer is None or buffer.outside is None else address(buffer.outside)

    def stand_for(self, buffer: Buffer, array: Any) -> None:
        """Others have been given an array in whose place a buffer stands."""
        root = bytes_of(array)[0]
        self.bind(buffer, address(root), root)

    def refuse_overlap(self, where: int, size: int) -> None:
        """ShadowError for an allocation of the program that overlaps one which a buffer stands for."""
        if self._bound and size and self._spans.overlaps(where, where + size):
            raise ShadowError(
                "an array shares memory with another one of this round without being a view of the same array (foreign memory?); slice one "
                "array instead. Nothing was launched."
            )

    # --- arguments -----------------------------------------------------------------------------------------------------------------------

    def arguments(self, args: Sequence[Any], like: Sequence[Outline], known: Mapping[int, Any] | None) -> list[Any]:
        """A call's arguments on buffers, where the arrays in the places of `like` were on buffers; `known`: where new ones may be made,
        for arrays whose allocations are not among these."""
        self._known = known
        try:
            alike = like if len(like) == len(args) else [None] * len(args)
            return [self._argument(x, each) for x, each in zip(args, alike, strict=True)]
        finally:
            self._known = None

    def _argument(self, x: Any, like: Outline) -> Any:
        if isinstance(x, Duplicated):
            return self._pair(x, like)
        if isinstance(x, BatchDuplicated):
            return self._batch(x, like)
        if isinstance(x, Active):
            shadow = self._noted_shadow(x.shadow, like) if is_array(x.shadow) else x.shadow
            return x if shadow is x.shadow else Active(x.value, shadow)
        if isinstance(x, Const):
            primal = self._argument(x.primal, like)
            return x if primal is x.primal else type(x)(primal)
        if type(x) in CONTAINERS or type(x) is dict:
            return self._container(x, like)
        return self._array(x, like)

    def takes_alone(self, x: Any, inside: Any, like: Outline) -> bool:
        """True if an array that is all of its memory, laid out like all of the buffer in `like`, which is `inside`, has come there, or
        comes there now: as `arguments` finds it, in fewer looks, or not at all."""
        if x.base is not None or not isinstance(like, KnownArray) or self._unmade or x.shape != inside.shape or x.strides != inside.strides:
            return False
        buffer = self.buffers.get(like.home)
        if buffer is None or x.dtype is not inside.dtype or buffer.root.nbytes != x.nbytes or not x.flags.c_contiguous:
            return False
        where = address(x)
        bound = self._bound.get(where)
        if bound is not None or buffer.outside is not None:
            return bound is buffer and buffer.outside.nbytes == x.nbytes
        end = where + x.nbytes
        if self._is_direct(where, end) or self._spans.overlaps(where, end):
            return False
        self.bind(buffer, where, bytes_of(x)[0])
        return True

    def _container(self, x: Any, like: Outline) -> Any:
        values = list(x.values()) if type(x) is dict else x
        alike = like if isinstance(like, tuple) and len(like) == len(values) else [None] * len(values)
        found = [self._argument(part, each) for part, each in zip(values, alike, strict=True)]
        if all(a is b for a, b in zip(found, values, strict=True)):
            return x
        return dict(zip(x, found, strict=True)) if type(x) is dict else type(x)(found)

    def _array(self, x: Any, like: Outline) -> Any:
        if not can_be_staged(x):
            return x
        root, offset = bytes_of(x)
        where = address(root)
        buffer = self._bound.get(where)
        if buffer is None:
            buffer = self._standing(x, root, where, like) if isinstance(like, KnownArray) else None
            if buffer is None:
                return x
        elif buffer.outside.nbytes != root.nbytes:
            self.refuse_overlap(where, int(root.nbytes))
        return buffer.inside(x, offset)

    def _standing(self, x: Any, root: Any, where: int, like: KnownArray) -> Buffer | None:
        """The buffer that stands for an array which has come for the first time in this round."""
        if like.layout != layout(x):
            return None
        buffer, end = self.buffers.get(like.home), where + int(root.nbytes)
        if buffer is not None and (buffer.outside is not None or buffer in self._lazily or buffer.root.nbytes != root.nbytes):
            buffer = None
        if buffer is None and (self._known is None or where in self._known or not self._admits(int(root.nbytes))):
            return None
        if self._is_direct(where, end) or self._spans.overlaps(where, end):
            return None
        buffer = buffer or self._made(int(root.nbytes))
        self.bind(buffer, where, root)
        if self._known is not None:
            buffer.open[...] = root  # what is found out about a call that is recorded may hang on it
        return buffer

    def _is_direct(self, begin: int, end: int) -> bool:
        """True if the program itself works on memory; while it is recorded it grows."""
        if self._fixed is None or self._known is not None:
            self._fixed = Spans(self._direct())
        return self._fixed.overlaps(begin, end)

    def _made(self, nbytes: int) -> Buffer:
        buffer = Buffer(self._new(nbytes))
        self.buffers[address(buffer.root)] = buffer
        return buffer

    def _pair(self, x: Duplicated, like: Outline) -> Duplicated:
        if (x if x._of is None else x._of)._make is not None:  # the tape made it
            return x
        alike = like if isinstance(like, tuple) else (None, None)
        primal = self._array(x.primal, alike[0])
        shadow = self._shadow(x, primal is not x.primal, alike[1])
        if primal is x.primal and (shadow is None or shadow is x._shadow):
            return x
        whole = None if x._of is None else self._pair(x._of, None)
        key = signature(primal), None if shadow is None else signature(shadow), x.keep, x._plain, id(whole)
        if key not in self._pairs:
            made = x._plain(primal, shadow, keep=x.keep)
            made._of = whole
            self._pairs[key] = made
        return self._pairs[key]

    def _shadow(self, x: Duplicated, staged: bool, like: Outline) -> Any:
        """The shadow of a pair; where it has none yet, a buffer stands for that which it may get."""
        whole = x if x._of is None else x._of
        known, buffer = self._unmade.get(id(whole)), None
        if known is not None and known[0]() is whole:
            buffer = known[1]
        elif x.has_shadow:
            shadow = self._array(x._own_shadow, like)
            if shadow is not x._own_shadow:
                self._noted_shadow(whole._own_shadow, None)
            return shadow
        elif isinstance(like, KnownArray) or (staged and self._known is not None):
            buffer = self._standing_unmade(whole, like)
        return None if buffer is None else buffer.shadow(x.primal, bytes_of(x.primal)[1], whole.primal)

    def _standing_unmade(self, whole: Duplicated, like: Outline) -> Buffer | None:
        primal = whole.primal
        nbytes = int(resolve(primal).root.size) * shadow_dtype(primal.dtype).itemsize
        buffer = self.buffers.get(like.home) if isinstance(like, KnownArray) else None
        if buffer is not None and (buffer.outside is not None or buffer in self._lazily or buffer.root.nbytes != nbytes):
            buffer = None
        if buffer is None:
            if self._known is None or not self._admits(nbytes):
                return None
            buffer = self._made(nbytes)
        pair = weakref.ref(whole)
        self._unmade[id(whole)] = pair, buffer
        self.shadows[id(buffer)] = _StagedShadow(buffer.shadow(primal, bytes_of(primal)[1], primal), pair=pair)
        return buffer

    def _noted_shadow(self, array: Any, like: Outline) -> Any:
        """An array that serves as a shadow, copied in and out with each reversal if a buffer stands for it."""
        inside = self._array(array, like)
        if inside is not array:
            self.shadows.setdefault(signature(inside), _StagedShadow(inside, array))
        return inside

    def _batch(self, x: BatchDuplicated, like: Outline) -> BatchDuplicated:
        alike = like if isinstance(like, tuple) and len(like) == 1 + len(x.shadows) else [None] * (1 + len(x.shadows))
        primal = self._array(x.primal, alike[0])
        shadows = tuple(self._array(shadow, each) for shadow, each in zip(x.shadows, alike[1:], strict=True))
        whole = None if x._of is None else self._batch(x._of, None)
        if primal is x.primal and all(a is b for a, b in zip(shadows, x.shadows, strict=True)):
            return x
        for shadow in (x if x._of is None else x._of).shadows:
            self._noted_shadow(shadow, None)
        key = signature(primal), *map(signature, shadows), id(whole)
        if key not in self._batches:
            self._batches[key] = BatchDuplicated(primal, shadows)
            self._batches[key]._of = whole
        return self._batches[key]

    # --- copies --------------------------------------------------------------------------------------------------------------------------

    def parts(self, uses: Iterable[tuple[int, Region, Any]]) -> tuple[Part, ...]:
        """The parts of buffers in some regions, each once; of a region the address of its allocation and an array through which it is
        reached."""
        found: dict[Any, Part] = {}
        for where, region, array in uses:
            buffer = self.buffers.get(where)
            if buffer is not None and region:
                part = buffer.part(region, array)
                found.setdefault(part.key, part)
        return tuple(found.values())

    def load_shadows(self) -> None:
        """A reversal begins."""
        for shadow in self.shadows.values():
            shadow.load()

    def store_shadows(self) -> None:
        """A reversal has ended."""
        for shadow in self.shadows.values():
            shadow.store()

    def captured(self, load: bool, restored: bool) -> list[Action]:
        """What copies shadows in, or out, for a reversal on the arrays of this round; `restored`: and the arrays."""
        found = [action for shadow in self.shadows.values() for action in shadow.captured(load)]
        return [*found, *(action for part in self.written.values() if restored and not load for action in part.captured(False))]

    def note_written(self, parts: Iterable[Part]) -> None:
        """The program writes these."""
        for part in parts:
            self.written.setdefault(part.key, part)

    def store_written(self) -> None:
        """Copies all that the program has written, and a reversal restored, back to where it came from."""
        for part in self.written.values():
            part.store()


__all__ = ["Staging"]

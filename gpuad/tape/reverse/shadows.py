"""The shadows of a program, by memory: which primal bytes have which shadow.

Over a whole recording primals overlap if and only if their shadows do, at the same offsets. Whatever reaches memory that has a shadow is
treated by that memory, whatever name it comes under (rule 4 of the contract).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arguments.arrays import address, leaf_memory, reinterpreted
from ...arguments.deferred_clearing import DeferredClearing, deferred_at
from ...arguments.layouts import float_views
from ...errors import ShadowError
from ...program.ir.region import EMPTY, Region, of_array, span, touched_elements
from ...runtime.array_types import NdArray
from ...runtime.base import Memory
from ..memory.versions import Allocation
from .in_place_seeds import Where, where_of

_LOOKED_AT = 1 << 16  # elements of a shadow at once


@dataclass(eq=False)
class Pairing:
    """`region` of a primal allocation has its shadow in `root` (flat, at address `where`), `shift` elements further on. `size` bytes an
    element of the primal. It grows while views of one pair turn up; `mirrored`: the bytes of the same elements of the shadow. The floats of
    a struct are a pairing for each type of them. `deferred`: what is known of a shadow that the caller did not give."""

    allocation: Allocation
    region: Region
    root: NdArray
    where: int
    shift: int
    size: int
    name: str
    mirrored: Region
    deferred: DeferredClearing | None = None


class Shadows:
    """All pairings of a recording: one for each primal allocation, shadow allocation and distance between the two. Where arrays have
    several shadows each, all have as many: `layers` has the pairings of the first shadows, of the second ones, and so on."""

    def __init__(self) -> None:
        self.layers: list[dict[int, list[Pairing]]] = [{}]
        self.by_shadow: dict[int, list[Pairing]] = {}
        self.numbers: dict[int, Region] = {}  # the shadows of numbers: bytes, by the address of the allocation
        self.arrays: dict[int, list[Region]] = {}  # the shadows of arrays, whole: bytes, by the address; those that overlap are one
        self.floats: dict[tuple[int, int], Region] = {}  # what of these arrays is floats: bytes, by the address and the size of a float
        self._noted: dict[int, NdArray] = {}  # the shadows of arrays, as objects
        self.count = 0

    def copy(self) -> Shadows:
        """A copy of the pairings, which grows on its own."""
        other = Shadows()
        mine = {id(p): replace(p) for pairs in self.by_shadow.values() for p in pairs}
        other.layers = [{where: [mine[id(p)] for p in pairs] for where, pairs in layer.items()} for layer in self.layers]
        other.by_shadow = {where: [mine[id(p)] for p in pairs] for where, pairs in self.by_shadow.items()}
        other.numbers, other.floats, other.count = dict(self.numbers), dict(self.floats), self.count
        other._noted = dict(self._noted)
        other.arrays = {where: list(known) for where, known in self.arrays.items()}
        return other

    @property
    def pairs(self) -> tuple[Any, ...]:
        """What is paired with what, to be compared."""
        each = (p for layer in self.layers for pairs in layer.values() for p in pairs)
        pairs = tuple((p.allocation.address, p.region, p.where, p.shift, p.size) for p in each)
        return (*pairs, *((where, region) for where, known in self.arrays.items() for region in known))

    @property
    def by_primal(self) -> dict[int, list[Pairing]]:
        """The pairings of the first shadows, by the address of the primal allocation."""
        return self.layers[0]

    @property
    def width(self) -> int:
        """How many shadows an array has; 0 if none has been noted."""
        return len(self.layers) if self.count else 0

    def add_all(self, allocation: Allocation, region: Region, primal: Memory, shadows: Sequence[Memory], name: str) -> None:
        """Notes an array and its shadows; ShadowError if they contradict what was noted."""
        if self.count and len(shadows) != self.width:
            raise ShadowError(
                f"`{name}` has {_shadows(len(shadows))}, but the arrays before it in this recording have {_shadows(self.width)} each: one "
                "recording is reversed for one number of seeds. Nothing was launched."
            )
        while len(self.layers) < len(shadows):
            self.layers.append({})
        for layer, shadow in enumerate(shadows):
            self.add(allocation, region, primal, shadow, name, layer)

    def add(self, allocation: Allocation, region: Region, primal: Memory, shadow: Memory, name: str, layer: int = 0) -> None:
        """Notes a pair; ShadowError if it contradicts an earlier one."""
        shift = shadow.offset - primal.offset
        size = int(primal.root.dtype.itemsize)
        where = shadow.address
        known = self.layers[layer].setdefault(allocation.address, [])
        same = next((p for p in known if p.shift == shift and p.size == size and p.where == where), None)
        if same is not None and region <= same.region:
            return
        mirrored = Region((region.spans // size + shift) * int(shadow.root.dtype.itemsize))
        self._check(allocation, region, shadow, mirrored, same, name, known)
        self.count += 1
        if same is not None:
            same.region, same.mirrored = same.region | region, same.mirrored | mirrored
            return
        pairing = Pairing(allocation, region, shadow.root, where, shift, size, name, mirrored, deferred_at(where))
        known.append(pairing)
        self.by_shadow.setdefault(where, []).append(pairing)

    def _check(
        self,
        allocation: Allocation,
        region: Region,
        shadow: Memory,
        mirrored: Region,
        same: Pairing | None,
        name: str,
        known: Sequence[Pairing],
    ) -> None:
        where = shadow.address
        if self.is_shadow(allocation.address, region):
            raise ShadowError(f"`{name}` is memory that serves as a shadow in this recording. Nothing was launched.")
        if self.numbers.get(where, EMPTY) & mirrored:
            raise ShadowError(f"the shadow of `{name}` is also that of a number in this recording. Nothing was launched.")
        if any(p.region & mirrored for p in self.by_primal.get(where, ())):
            raise ShadowError(f"the shadow of `{name}` is primal memory elsewhere in this recording. Nothing was launched.")
        for other in known:
            if other is not same and other.region & region:
                raise ShadowError(
                    f"`{name}` overlaps `{other.name}`, which was recorded with another shadow; make the shadow once and slice the pair "
                    "(U = Duplicated(u, du); V = U[512:]). Nothing was launched."
                )
        for other in self.by_shadow.get(where, ()):
            if other is not same and other.mirrored & mirrored:
                raise ShadowError(
                    f"the shadow of `{name}` is also that of `{other.name}`, other memory or another seed. Nothing was launched."
                )

    def add_number(self, shadow: Memory, name: str) -> bool:
        """Notes the shadow of a number, and says whether it is new; ShadowError if its memory serves for something else."""
        where, size = shadow.address, int(shadow.root.dtype.itemsize)
        known, own = self.numbers.get(where, EMPTY), span(shadow.offset * size, (shadow.offset + 1) * size)
        if own <= known:
            return False
        for other in self.by_shadow.get(where, ()):
            if other.mirrored & own:
                raise ShadowError(f"the shadow of `{name}` is also that of `{other.name}`. Nothing was launched.")
        if any(p.region & own for p in self.by_primal.get(where, ())):
            raise ShadowError(f"the shadow of `{name}` is primal memory elsewhere in this recording. Nothing was launched.")
        self.numbers[where] = known | own
        return True

    def add_array(self, shadow: NdArray) -> None:
        """Notes all of an array's shadow, of which operations may meet views."""
        if not shadow.size or id(shadow) in self._noted:
            return
        self._noted[id(shadow)] = shadow
        memory = leaf_memory(shadow)
        where = memory.address
        changed = self._add_floats(where, shadow)
        known = self.arrays.setdefault(where, [])
        region = of_array(shadow, memory.offset * int(memory.root.dtype.itemsize))
        if any(region <= other for other in known):
            self.count += changed
            return
        meeting = [other for other in known if other & region]
        for other in meeting:
            known.remove(other)
            region = region | other
        known.append(region)
        self.count += 1

    def _add_floats(self, where: int, shadow: NdArray) -> bool:
        """Notes which bytes of an array's shadow are floats, by their size: of a struct only these are a shadow. Whether any is new."""
        changed = False
        for view in float_views(shadow):
            key = where, int(view.dtype.itemsize) // (2 if view.dtype.kind == "c" else 1)
            known, floats = self.floats.get(key, EMPTY), of_array(view, address(view) - where)
            if not floats <= known:
                self.floats[key], changed = known | floats, True
        return changed

    def cleared(self, allocations: Mapping[int, Allocation], seeds: Iterable[tuple[Any, Region]] = ()) -> dict[Where, tuple[Any, Region]]:
        """The shadows' elements that are zero when a reversal with seeds begins, by their allocation: those of all arrays of which the
        program writes, or a seed has, any element."""
        found: dict[Where, tuple[Any, Region]] = {}
        written = (part for a in allocations.values() for part in self.parts(a, a.cleared))
        for root, part in (*written, *seeds):
            found[where_of(root)] = root, found.get(where_of(root), (root, EMPTY))[1] | part
        for root, part in tuple(found.values()):
            for other, around in self._around(root, part, allocations.get(address(root))):
                known, before = found.get(where_of(other), (other, EMPTY))
                found[where_of(other)] = known, before | around
        return found

    def _around(self, root: NdArray, part: Region, primal: Allocation | None) -> Iterator[tuple[Any, Region]]:
        """The elements of the arrays to which elements of an allocation belong, floats of each size with the allocation as such floats.
        `primal`: that allocation, if it has primals beside its shadows, which are left alone."""
        where = address(root)
        touched, around = Region(part.spans * int(root.dtype.itemsize)), EMPTY
        for array in self.arrays.get(where, ()):
            around = around | array if array & touched else around
        around = around - self.numbers.get(where, EMPTY)
        if primal is not None:
            around = around - (primal.accessed | self.with_shadow(primal, around))
        for size in (2, 4, 8):
            if floats := around & self.floats.get((where, size), EMPTY):
                yield reinterpreted(root, np.dtype(f"f{size}")), touched_elements(floats, size, 0)

    def is_shadow(self, where: int, region: Region) -> bool:
        """Whether any of the region's bytes, of the allocation at address `where`, belong to a shadow."""
        if where in self.numbers and self.numbers[where] & region:
            return True
        return where in self.by_shadow and any(p.mirrored & region for p in self.by_shadow[where])

    def all_of(self, allocation: Allocation, region: Region) -> tuple[Pairing, ...]:
        """As `of`, for each of the shadows."""
        found = tuple(p for layer in range(len(self.layers)) if (p := self.of(allocation, region, layer)) is not None)
        if found and len(found) < len(self.layers):
            raise ShadowError(f"`{found[0].name}` was refused with other shadows before; pass the BatchDuplicated. Nothing was launched.")
        return found

    def of(self, allocation: Allocation, region: Region, layer: int = 0) -> Pairing | None:
        """The pairing for a region, or None if no byte of it has a shadow; ShadowError where only a part has, or parts have shadows
        apart."""
        found = [p for p in self.layers[layer].get(allocation.address, ()) if p.region & region]
        if not found:
            return None
        first, covered = found[0], EMPTY
        for p in found:
            covered = covered | p.region
            if p.where != first.where or p.shift != first.shift or p.size != first.size:
                raise ShadowError(f"`{p.name}` and `{first.name}` lie in one argument but have shadows apart. Nothing was launched.")
        if not region <= covered:
            raise ShadowError(
                f"memory of which only a part has a shadow (`{first.name}`) is passed bare; pass Duplicated with a shadow for all of it. "
                "Nothing was launched."
            )
        return first

    def parts(self, allocation: Allocation, region: Region) -> list[tuple[Any, Region]]:
        """The shadow roots of the shadowed parts of a region, and the elements there; those of which a byte is in the region count."""
        pairings = (p for layer in self.layers for p in layer.get(allocation.address, ()))
        return [(p.root, touched_elements(part, p.size, p.shift)) for p in pairings if (part := p.region & region)]

    def are_empty(self, allocations: Iterable[Allocation]) -> bool:
        """Whether the shadows of all that the program writes any of hold zeros alone. Looked at in pieces, up to the first that holds
        more, the arrays that were met last before others, since seeds lie there."""
        for deferred in self.deferred.values():
            deferred.clear_owed()
        roots = (p.root for a in reversed([*allocations]) if a.written for layer in self.layers for p in layer.get(a.address, ()))
        return not any(bool(root[k : k + _LOOKED_AT].any()) for root in roots for k in range(0, int(root.size), _LOOKED_AT))

    def with_shadow(self, allocation: Allocation, region: Region) -> Region:
        """The bytes of a region that have a shadow."""
        found = EMPTY
        for pairing in self.by_primal.get(allocation.address, ()):
            found = found | (pairing.region & region)
        return found

    def written(self, allocation: Allocation, region: Region) -> list[tuple[Any, int, int]]:
        """(shadow root, first, end) in elements for the shadowed parts of a region."""
        return [(root, first, end) for root, part in self.parts(allocation, region) for first, end in part.spans.tolist()]

    @property
    def deferred(self) -> dict[int, DeferredClearing]:
        """The shadows that the caller did not give, by the address of their allocation."""
        return {where: p.deferred for where, pairs in self.by_shadow.items() for p in pairs if p.deferred is not None}

    @property
    def nbytes(self) -> int:
        """Bytes of all shadow roots."""
        return sum(int(r.nbytes) for r in self.roots)

    @property
    def roots(self) -> list[Any]:
        """All allocations of shadows, flat."""
        return list({p.where: p.root for layer in self.layers for pairs in layer.values() for p in pairs}.values())


def _shadows(count: int) -> str:
    return "one shadow" if count == 1 else f"{count} shadows"

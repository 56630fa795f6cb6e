"""Judges arguments by the memory behind them, not by the name under which they come (rule 4 of the contract).

Bare memory that has a shadow takes it if it is only written, and is refused if it is read; active data that goes into memory without a
shadow must not come out again; and where a shadow turns up late, what was done to its memory before is judged again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ...api import Kernel
from ...arguments import BoundArgument
from ...arguments.annotations import BatchDuplicated, Duplicated, shadows_of_array
from ...arguments.arrays import address
from ...errors import ShadowError
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...program.ir.region import EMPTY, Region, span
from ...runtime.base import Memory
from ..memory.effects import bytes_of
from ..memory.made_arrays import MadeArrays
from ..memory.versions import Allocation
from ..reverse.shadows import Shadows
from .checkpoints import Traced
from .footprints import Footprints
from .known_calls import KnownLaunch
from .launch_kind import Allocations, Touched, touched
from .operations import Foreign, Operation
from .recorded_launch import Launched
from .recorded_rule import Ruled
from .rule_calls import with_new_shadows
from .trace import Op


class Judge:
    """Knows which memory of a `recording` has which of the `shadows`, and what was used without one. `values`: of numbers, by the address
    of their shadow; `is_tainted`: whether active data went into memory without a shadow."""

    def __init__(self, recording: Traced, footprints: Footprints, made: MadeArrays) -> None:
        self._recording, self._footprints, self._made = recording, footprints, made
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self.shadows = Shadows()
        self.values: dict[int, Any] = {}
        self.is_tainted = False

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """Within it shadows may turn up of which nothing is known after it."""
        shadows, trace = self.shadows, self._recording.trace
        bare = [(a, a.written_bare) for a in self._footprints.allocations.values()]
        self.shadows = shadows.copy()
        try:
            yield
        finally:
            self.shadows, self._recording.trace = shadows, trace
            for allocation, region in bare:
                allocation.written_bare = region

    def note_uses(self, op: Op) -> None:
        """Notes what an op has read and written without a shadow: of interest if one turns up later."""
        operation = op.came
        if isinstance(operation, Launched):
            assert isinstance(op.known, KnownLaunch)
            if not op.known.kind.paired:
                self._note_bare_launch(operation)
        elif isinstance(operation, Ruled):
            for a, region in operation.read_bare():
                a.read_bare = a.read_bare | region
            for a, region, tainted in operation.written_bare():
                if tainted:
                    self.is_tainted = True
                    a.tainted = a.tainted | region
                else:
                    a.written_bare = a.written_bare | region
        elif operation is not None:
            for use in operation.effects.writes:
                a = use.allocation
                if op.key.what is Foreign:
                    a.written_bare = a.written_bare | use.region
                else:
                    a.read_bare = a.read_bare - use.region

    def with_known_shadows(self, kernel: Kernel, call: Call, found: Touched, allocations: Allocations) -> Call:
        """Bare arguments on memory that has a shadow take it if they are only written; to read it bare would drop a gradient."""
        arguments = call.bound.arguments
        given: dict[int, BoundArgument] = {}
        for i, region in {**found.reads, **found.writes}.items():
            a, allocation = arguments[i], allocations[i]
            assert a.memory is not None and allocation is not None
            if self.shadows.is_shadow(allocation.address, region):
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` is a shadow of this recording; what happens to shadows belongs "
                    "outside of the tape. Nothing was launched."
                )
            if a.kind == "stopped" and i in found.writes and self.shadows.all_of(allocation, region):
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` is stopped, but written too, and its memory has a shadow: pass the "
                    "Duplicated, or a stopped copy where the kernel reads it. Nothing was launched."
                )
            if a.shadows or a.kind == "stopped":
                continue
            region = region | found.reads.get(i, EMPTY)
            if a.pieces or not a.memory.is_float:
                region = _inside(a, region)
            pairings = self.shadows.all_of(allocation, region)
            if not pairings:
                continue
            if i in found.reads:
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` is read bare, but its memory has a shadow (`{pairings[0].name}`): the "
                    f"gradient would be dropped. Pass the Duplicated, or stop_gradient({a.name}). Nothing was launched."
                )
            if not a.memory.is_float or a.memory.itemsize != pairings[0].size:
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` is written as {a.memory.root.dtype}, but its memory has a shadow "
                    f"as elements of {pairings[0].size} bytes (`{pairings[0].name}`); write it in its own type, or by code "
                    "that the tape does not see, after tape.overwrites(array). Nothing was launched."
                )
            shadows = tuple(Memory(p.root, a.memory.offset + p.shift) for p in pairings)
            given[i] = replace(a, kind="duplicated", shadows=shadows)
        if not given:
            return call
        made = tuple(given.get(i, a) for i, a in enumerate(arguments))
        return replace(call, bound=replace(call.bound, arguments=made, width=max(call.bound.width, *(len(a.shadows) for a in made))))

    def note_shadows(self, call: Call, found: Touched, allocations: Allocations) -> None:
        """Notes the shadows with which a call's arrays and numbers come."""
        for a, allocation, region in zip(call.bound.arguments, allocations, found.passed, strict=True):
            if a.keep and a.shadows:
                raise ShadowError(
                    f"`{a.name}`: keep=True has no meaning inside a tape: seeds are given to reverse(). Nothing was launched."
                )
            if a.memory is not None and allocation is not None:
                allocation.name = a.name
                if a.shadow_arrays and region is not None:
                    self.add_pair(allocation, region, a.memory, a.shadows, a.name)
            elif a.kind == "active":
                self._note_active(a)

    def adopt(self, allocation: Allocation, region: Region, primal: Memory, shadow: Memory, name: str) -> None:
        """Notes that an array of an operation has a shadow; ShadowError if it has another one already."""
        self.add_pair(allocation, region, primal, (shadow,), name)

    def note_array(self, x: Any) -> None:
        """Notes which array an argument is a view of, if that has a shadow."""
        if isinstance(x, Duplicated | BatchDuplicated):
            for shadow in shadows_of_array(x):
                self.shadows.add_array(shadow)

    def add_pair(self, allocation: Allocation, region: Region, primal: Memory, shadows: Sequence[Memory], name: str) -> None:
        """Notes a pair; what was done to the memory before it was known to have a shadow is judged again. ShadowError for a temporary of an
        earlier recording."""
        for shadow in shadows if region else ():
            self._made.refuse_reused(primal, shadow, name)
        count = self.shadows.count
        self.shadows.add_all(allocation, region, primal, shadows, name)
        if self.shadows.count == count:
            return
        for shadow in shadows:
            self._refuse_used(shadow, Region(region.spans // int(primal.root.dtype.itemsize) + (shadow.offset - primal.offset)), name)
        if allocation.read_bare & region or allocation.tainted & region:
            raise ShadowError(
                f"`{name}` has a shadow here, but its memory was used without one earlier in this recording: the gradient of that use "
                "would be dropped. Pass the Duplicated there too. Nothing was launched."
            )
        if allocation.written_bare & region:
            late = partial(self._with_late_shadow, allocation=allocation, region=region, name=name)
            self._recording.trace = self._recording.trace.changed(late)
            allocation.written_bare = allocation.written_bare - region

    def _refuse_used(self, shadow: Memory, elements: Region, name: str) -> None:
        """What an operation read or wrote as an array cannot serve as a shadow: the reverse changes it."""
        used = self._footprints.allocations.get(shadow.address)
        if used is None:
            return
        if (used.read_bare | used.written_bare | used.written | used.needed) & Region(elements.spans * int(shadow.root.dtype.itemsize)):
            raise ShadowError(
                f"the shadow of `{name}` was an argument of an operation earlier in this recording, and the reverse changes it: pass a "
                "copy of it there. Nothing was launched."
            )

    def _with_late_shadow(self, operation: Operation, allocation: Allocation, region: Region, name: str) -> Operation:
        """An earlier operation that wrote memory now known to have a shadow: its adjoint clears it."""
        arguments = operation.call.bound.arguments if isinstance(operation, Launched) else None
        bare = [u for u in operation.effects.writes if arguments is None or not arguments[u.position].shadows]
        if not any(u.allocation is allocation and u.region & region for u in bare):
            return operation
        if isinstance(operation, Foreign):
            parts = [region & use.region for use in operation.effects.writes if use.allocation is allocation]
            more = [root[a:z] for part in parts for root, a, z in self.shadows.written(allocation, part)]
            return replace(operation, cleared=(*operation.cleared, *more))
        if isinstance(operation, Ruled):
            return with_new_shadows(operation, self.shadows)
        assert isinstance(operation, Launched)
        kernel, allocations = operation.kernel, self._footprints.behind(operation.call)
        found = touched(kernel, operation.call)
        call = self.with_known_shadows(kernel, operation.call, found, allocations)
        new = self._footprints.operation(kernel, found.kind(kernel, call), call, allocations, operation.where)
        if new.uses or new.adjoint is None or new.adjoint.logs:
            raise ShadowError(
                f"`{name}` has a shadow here, but was written bare by `{operation.name}` ({operation.where}); pass the Duplicated there "
                "too. Nothing was launched."
            )
        return new

    def adopt_number(self, shadow: Memory, name: str) -> None:
        """Notes the shadow of a number; ShadowError if its memory serves, or served, for something else."""
        if self.shadows.add_number(shadow, name):
            self._refuse_used(shadow, span(shadow.offset, shadow.offset + 1), name)

    def _note_active(self, a: Any) -> None:
        """One shadow for two values would hide that host arithmetic lies between them."""
        for shadow in a.shadows:
            self.adopt_number(shadow, a.name)
        for key in map(address, a.shadow_arrays):
            if self.values.setdefault(key, a.value).tobytes() != a.value.tobytes():
                raise ShadowError(
                    f"`{a.name}`: one shadow for two values ({self.values[key]} and {a.value}): host arithmetic on a scalar is not "
                    "recorded; give each value its own shadow"
                )

    def refuse_taint(self, kernel: Kernel, adjoint: Adjoint | None, call: Call, found: Touched, allocations: Allocations) -> None:
        """Active data that went into an array without a shadow must not come out again (rule 4 of the contract)."""
        if not self.is_tainted:
            return
        for i, region in found.reads.items():
            a, allocation = call.bound.arguments[i], allocations[i]
            if allocation is None or a.shadows or a.kind == "stopped" or not allocation.tainted & region:
                continue
            if adjoint is None or adjoint.primal.params[i] in adjoint.activity.useful:
                raise ShadowError(
                    f"argument {i + 1} `{a.name}` of `{kernel.name}` holds values that depend on active data, but has no "
                    f"shadow: give it one, Duplicated({a.name}), or stop_gradient({a.name}). Nothing was launched."
                )

    def _note_bare_launch(self, operation: Launched) -> None:
        """Notes what the launch read and wrote without a shadow: of interest if one turns up later."""
        arguments = operation.call.bound.arguments
        seen = [use for use in operation.reads if not arguments[use.position].shadows]
        escaped = {e.buffer for e in operation.adjoint.escapes} if operation.adjoint is not None else set()
        spread = any(u.allocation.tainted & u.region and arguments[u.position].kind != "stopped" for u in seen)
        for use in seen:
            a = arguments[use.position]
            if a.kind != "stopped" and a.memory is not None:
                read = use.region if a.memory.is_float else _inside(a, use.region)
                use.allocation.read_bare = use.allocation.read_bare | read
        for use in operation.effects.writes:
            memory = use.allocation
            if arguments[use.position].shadows:
                continue
            if spread or (operation.adjoint is not None and operation.adjoint.primal.params[use.position] in escaped):
                self.is_tainted = True
                memory.tainted = memory.tainted | use.region
            else:
                memory.written_bare = memory.written_bare | use.region


def _inside(a: Any, region: Region) -> Region:
    """The part of a region that lies inside of an argument's view: of a struct, the numbers of the pointer's type. Integers that share an
    allocation with floats are no business of theirs where it is not known how far a kernel reaches."""
    return region & bytes_of(a).moved(a.memory.offset * a.memory.itemsize)

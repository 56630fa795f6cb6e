"""Kinds of launches: those of one kind differ only in where their arrays lie and in real numbers. They reach the same, by one adjoint.

In: a bound call. Out: its kind, found out once for all calls that are alike (`api.once`), with regions counted from the beginning of each
allocation; for a launch these become uses of its own allocations (`Footprint.at`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ... import pipeline
from ...api import Kernel, check_flow, once, pattern_of
from ...arguments.layouts import layout
from ...ir.nodes import Kernel as Primal
from ...memo import Memo, Same
from ...pipeline import Call
from ...pipeline.derived_kernels import Adjoint
from ...program.ir.region import Region
from ..memory.effects import absolute, bytes_of, dense
from ..memory.versions import Allocation
from .checkpoint_kernels import Cutting
from .operations import Effects, Use
from .recorded_launch import Reach, Reaches, absolutely, reaches_of, reads, reads_again, writes

Uses = dict[tuple[str, int], Use]
Allocations = Sequence[Allocation | None]  # behind the arguments of a call
_MOST = 1024  # places that are remembered: a program may go through all views of an array


@dataclass(frozen=True, eq=False)
class Footprint:
    """Regions, each with the position of its argument, and what of it was passed where that alone is known (`Use.passed`). `parts`: lists
    of these by their numbers; `uses`: those of the reverse kernel's parameters."""

    regions: tuple[tuple[Region, int, Region | None], ...]
    parts: tuple[tuple[int, ...], ...]
    uses: Mapping[tuple[str, int], int]

    def at(self, allocations: Allocations) -> tuple[list[tuple[Use, ...]], Uses]:
        """The uses of these allocations."""
        made = [Use(a, region, p, passed) for region, p, passed in self.regions if (a := allocations[p]) is not None]
        return [tuple([made[i] for i in part]) for part in self.parts], {key: made[i] for key, i in self.uses.items()}


def footprint(call: Call, parts: Iterable[Iterable[Reach]], uses: Mapping[tuple[str, int], Reach]) -> Footprint:
    """The footprint of reaches in a call."""
    numbers: dict[tuple[Region, int, Region | None], int] = {}

    def number(reach: Reach) -> int:
        argument = call.bound.arguments[reach.position]
        assert argument.memory is not None
        passed = absolute(dense(argument), argument.memory) if reach.region is None else None
        return numbers.setdefault((absolutely(reach, call), reach.position, passed), len(numbers))

    found = tuple(tuple(map(number, part)) for part in parts)
    of_parameters = {key: number(reach) for key, reach in uses.items()}
    return Footprint(tuple(numbers), found, of_parameters)


@dataclass(frozen=True, eq=False)
class Touched:
    """What a primal reads and writes, by position, and the bytes of each array that was passed (None: no array). `kinds`: of its launches,
    by the types of their shadows."""

    reads: Mapping[int, Region]
    writes: Mapping[int, Region]
    passed: tuple[Region | None, ...]
    kinds: dict[Hashable, LaunchKind] = field(default_factory=dict)

    def kind(self, kernel: Kernel, call: Call) -> LaunchKind:
        """The kind of such a launch, whose shadows are known. Raises ShadowError, LaunchError and UnsupportedError for what has no
        adjoint."""
        shadows = tuple([tuple([s.root.dtype for s in a.shadows]) for a in call.bound.arguments])
        if shadows not in self.kinds:
            with kernel.room():
                self.kinds[shadows] = _kind(kernel, call)
        return self.kinds[shadows]


def touched(kernel: Kernel, call: Call) -> Touched:
    """The bytes that the primal touches in a call, whatever has a shadow."""
    found: Touched = _known(call).get(_places(call), lambda: _touched(kernel, call))
    return found


def _known(call: Call) -> Memo:
    """The facts about calls that are alike, by their places."""
    return once(call, "launch kinds", partial(Memo, _MOST))


def _touched(kernel: Kernel, call: Call) -> Touched:
    with kernel.room():
        read, written = _reached(kernel, kernel.primal(call.aliases()), call)
    passed = (bytes_of(a).moved(a.memory.offset * a.memory.itemsize) if a.memory is not None else None for a in call.bound.arguments)
    found = ({r.position: absolutely(r, call) for r in part} for part in (read, written))
    return Touched(next(found), next(found), tuple(passed))


def _reached(kernel: Kernel, primal: Primal, call: Call) -> tuple[tuple[Reach, ...], tuple[Reach, ...]]:
    return call.fact(kernel.facts, ("touched",), primal, lambda n: (reads(primal, call, n), writes(primal, call, n)))


def _places(call: Call) -> Hashable:
    """Where arrays begin in their allocations, and how large these are."""
    return tuple([None if a.memory is None else (a.memory.offset, a.memory.root.nbytes) for a in call.bound.arguments])


@dataclass(frozen=True, eq=False)
class LaunchKind:
    """`footprint`: its parts are what the launch writes, what its adjoint reads, before it and after it, what is surely written, and what
    the primal reads and writes. `sizes`: the bytes that its adjoint reads as they were, by argument, and the values that may be kept in
    their place (`found`). `reads`: of them those without a shadow; `bare`: there are floats without a shadow; `paired`: it touches nothing
    without one; `doubtful`: its stores may have to be checked before each launch; `layouts`: of its arrays."""

    primal: Primal
    adjoint: Adjoint | None
    footprint: Footprint
    sizes: Mapping[int, int]
    found: dict[frozenset[int], Cutting | None]
    bare: bool
    paired: bool
    doubtful: bool
    layouts: tuple[Any, ...]


def _kind(kernel: Kernel, call: Call) -> LaunchKind:
    adjoint, primal = None, kernel.primal(call.aliases())
    if pipeline.active_positions(call):
        adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
        check_flow(kernel, call, adjoint.escapes, True)
        call = call.but(exact=adjoint.exact)
    reaches, (read, written) = _reaches(kernel, primal, adjoint, call), _reached(kernel, primal, call)
    sizes: dict[int, int] = {}
    for reach in reaches.before:
        sizes[reach.position] = sizes.get(reach.position, 0) + absolutely(reach, call).nbytes
    reverse = [] if adjoint is None else [pipeline.counting(adjoint, call), *(k for s in pipeline.stages(adjoint, call) for k in s.kernels)]
    call.prepare([(adjoint.augmented if adjoint is not None else None) or primal, *reverse])
    arguments = call.bound.arguments
    return LaunchKind(
        primal,
        adjoint,
        footprint(call, (reaches.writes, reaches.before, reaches.after, reaches.must, read, written), reaches.uses),
        sizes,
        {},
        any(a.memory is not None and not a.shadows and a.memory.is_float for a in arguments),
        all(arguments[r.position].shadows for r in (*read, *reaches.writes)),
        adjoint is not None and bool(pipeline.stores_in_doubt(adjoint, call)),
        tuple(layout(x) for a in arguments for x in (a.array, *a.shadow_arrays) if x is not None),
    )


def _reaches(kernel: Kernel, primal: Primal, adjoint: Adjoint | None, call: Call) -> Reaches:
    source = adjoint.primal if adjoint is not None else primal
    return call.fact(kernel.facts, ("reaches", adjoint), source, partial(reaches_of, source, adjoint, call))


def reach(kernel: Kernel, adjoint: Adjoint, call: Call, allocations: Allocations) -> tuple[Effects, Uses]:
    """The effects of a launch with another adjoint, and what that reads, by its parameters."""

    def find() -> Footprint:
        found = _reaches(kernel, adjoint.primal, adjoint, call)
        return footprint(call, (found.writes, found.before, found.after, found.must), found.uses)

    made: Footprint = _known(call).get((_places(call), Same(adjoint)), find)
    parts, uses = made.at(allocations)
    return Effects(*parts), uses


def read_again(kernel: Kernel, primal: Primal, call: Call, allocations: Allocations) -> tuple[Use, ...]:
    """The regions that decide what a launch writes, what it adds to included."""
    found = call.fact(kernel.facts, ("read again",), primal, partial(reads_again, primal, call))
    return footprint(call, (found,), {}).at(allocations)[0][0]

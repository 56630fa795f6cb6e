"""A recorded kernel launch: its effects on memory, what its adjoint reads, and how that adjoint runs.

In: a bound call and its adjoint. Out: `Launched`, an operation of the tape. What a launch reaches (`Reaches`) is found once for launches
that are alike, counted from where pointers point, and becomes regions of allocations for each (`Effects`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ... import pipeline
from ...analysis.affine_forms import Launch as Numbers
from ...api import Kernel as UserKernel
from ...ir.dtypes import dtype_of
from ...ir.nodes import Accumulate, Atomic, Buffer, Kernel, Load, Store, Take
from ...ir.rewrite import walk_stmts
from ...pipeline import Call, Stage, State
from ...pipeline.derived_kernels import Adjoint
from ...pipeline.pattern import Parameter
from ...program.ir.region import Region
from ...progress import doing
from ...runtime.actions import Action, ByPython
from ...runtime.base import Memory
from ..memory.arena import Pooled
from ..memory.effects import absolute, surely_written, touched
from ..memory.version_finder import VersionFinder
from .checkpoint_kernels import Cutting, cutting_for
from .operations import Effects, Use

WRITES = (Store, Accumulate, Atomic)


@dataclass(frozen=True)
class Kept:
    """Values kept in place of memory, `nbytes` in all, because operation number `overwriter` wrote there; None: none did, but they are
    read faster (`light`)."""

    names: str
    nbytes: int
    overwriter: int | None


@dataclass(eq=False, slots=True)
class Launched:
    """A launch and its adjoint; `uses` says for each parameter of the reverse kernel that reads primal memory what it reads."""

    name: str
    where: str
    call: Call
    effects: Effects
    adjoint: Adjoint | None
    uses: dict[tuple[str, int], Use]
    logs: list[Any]
    kernel: UserKernel  # the user's, to be judged again if memory turns out to have a shadow
    reads: tuple[Use, ...]  # by the primal
    writes: tuple[Use, ...]
    cuts: Cuts | None = None
    kept: Kept | None = None
    shadowed: Any = field(default=None, init=False)  # what is known of its shadows, and of its reverse, by what was zero before
    plans: dict[Any, Any] = field(default_factory=dict, init=False)

    def reverse(
        self, finder: VersionFinder, stages: Sequence[Stage], moved: Mapping[int, Memory], pool: Pooled, known: dict[Any, list[Action]]
    ) -> list[Action]:
        """What runs the kernels of the reverse pass on the versions that they need, which `finder` puts together before; `moved`: shadows
        that live elsewhere, `pool`: the executor, with memory of the tape that is free again after this operation. `known`: the launches of
        this reversal by what they are given, since turns of a loop have versions in the same places again."""
        assert self.adjoint is not None
        own = bool(self.adjoint.layout.scratch) or any(stage.fixed is not None for stage in stages)
        partials = [array for stage in stages for array in stage.partials]
        states = [self.state(finder, moved) for _ in range(self.call.bound.width)]
        key = None
        if not (moved or self.logs or own or partials or len(states) > 1):
            memories = [m for part in (states[0].primals, states[0].entries) for m in part.values() if isinstance(m, Memory)]
            key = id(self), *map(id, stages), *((m.address, m.offset) for m in memories)
            if key in known:
                return known[key]
        if own:
            return [self._by_python(stages, state, pool, width) for width, state in enumerate(states)]
        for array in dict.fromkeys(partials):
            memory = Memory(pool.zeros(self.call.threads, dtype_of(array.element)))
            for state in states:  # one after the other
                state.scratch[array] = memory
        found = [self._prepared(stage, state, width) for width, state in enumerate(states) for stage in stages]
        if key is not None:
            known[key] = found
        return found

    def _prepared(self, stage: Stage, state: State, width: int) -> Action:
        return self.call.prepared(stage.kernel, pipeline.stage_arguments(stage, self.call, state, width), stage.grid)

    def _by_python(self, stages: Sequence[Stage], state: State, pool: Pooled, width: int) -> Action:
        """The reverse of a kernel with stacks, whose size is found out when it runs, or of one with sums in fixed point."""
        call, place = replace(self.call, pool=pool, stream=None), pool.arena.here()

        def run() -> None:
            assert self.adjoint is not None
            pool.arena.back_to(place)
            pipeline.run_stages(self.adjoint, stages, call, replace(state, scratch={}, overflow=None), width)

        assert self.adjoint is not None
        why = (
            "its adjoint has stacks whose depth is counted first"
            if self.adjoint.layout.scratch
            else "its sums are scaled by their size first"
        )
        return ByPython(run, self.name, self.where, why)

    def state(self, resolver: VersionFinder, moved: Mapping[int, Memory]) -> State:
        arguments = self.call.bound.arguments
        state = State({i: (a.memory if a.is_pointer else a.value) for i, a in enumerate(arguments)}, logs=self.logs, shadows=moved)
        for (role, position), use in self.uses.items():
            memory = resolver.memory(use, arguments[position].memory, own=role == "working")
            if role == "primal":
                state.primals[position] = memory
            else:
                state.entries[position] = memory
        return state

    def line(self) -> str:
        if self.adjoint is None:
            return f"pass  # {self.where}: {self.name} carries no gradient"
        launches = (_launch(s, self.call) for s in pipeline.stages(self.adjoint, self.call))
        return f"{'; '.join(launches)}  # {self.where}"


def _launch(stage: Stage, call: Call) -> str:
    given = ", ".join(_shown(p, call, stage) for p in stage.parameters)
    return f"{stage.kernel.name}[{stage.grid or call.grid}, {call.block}]({given})"


def _shown(p: Parameter, call: Call, stage: Stage) -> str:
    if (p.role, p.position) in stage.numbers:
        return str(stage.numbers[p.role, p.position])
    value = call.bound.arguments[p.position].value if p.role == "primal" and p.position < len(call.bound.arguments) else None
    return str(value) if value is not None else p.item.name


@dataclass(frozen=True, eq=False)
class Reach:
    """A region counted from where the pointer argument at `position` points (None: all of its allocation): what can be remembered of a
    launch for others that differ only in where their arrays lie."""

    position: int
    region: Region | None


@dataclass(frozen=True)
class Reaches:
    """A launch's writes, and what its adjoint reads, before or after it, by the role and position of the reverse kernel's parameter."""

    writes: tuple[Reach, ...]
    before: tuple[Reach, ...] = ()
    after: tuple[Reach, ...] = ()
    uses: Mapping[tuple[str, int], Reach] = field(default_factory=dict)
    must: tuple[Reach, ...] = ()


def reaches_of(kernel: Kernel, adjoint: Adjoint | None, call: Call, numbers: Numbers) -> Reaches:
    """The reaches of a launch with these numbers and of its adjoint."""
    written = writes(kernel, call, numbers)
    must = _must(kernel, call, written, numbers)
    if adjoint is None:
        return Reaches(written, must=must)
    uses: dict[tuple[str, int], Reach] = {}
    before: list[Reach] = []
    after: list[Reach] = []
    overwritten = {u.position for u in written}
    for p in adjoint.parameters:
        if p.role not in ("primal", "entry", "working") or not isinstance(p.item, Buffer):
            continue
        use = _read_by_reverse(adjoint, p, call, numbers)
        if use is None:
            continue
        uses[p.role, p.position] = use
        (after if p.role == "primal" and p.position in overwritten else before).append(use)
    return Reaches(written, tuple(before), tuple(after), uses, must)


@dataclass(frozen=True, eq=False)
class Cuts:
    """What may be kept instead of the memory that the adjoint of a launch reads as it was before, by the arguments whose memory that is;
    `sizes`: its bytes, by argument; `found`: what launches of this kind have asked for."""

    adjoint: Adjoint
    call: Call
    sizes: Mapping[int, int]
    found: dict[frozenset[int], Cutting | None]

    def get(self, positions: frozenset[int]) -> Cutting | None:
        """The fewest values for the memory of some arguments; None where these take more than it, or as much and spare nothing else."""
        if positions not in self.found:
            self.found[positions] = self._cut(positions)
        return self.found[positions]

    def best(self, positions: frozenset[int]) -> Cutting | None:
        """The same for these arguments at least: for all that the adjoint reads as it was, where that takes no more."""
        whole, some = self.whole, self.get(positions)
        return whole if whole is not None and (some is None or whole.total <= some.total) else some

    @cached_property
    def worthwhile(self) -> bool:
        """Whether there is a cut for all arguments, or for one of them."""
        return self.whole is not None or any(self.get(frozenset({p})) is not None for p in self.sizes)

    @property
    def whole(self) -> Cutting | None:
        """The cut for all arguments."""
        return self.get(frozenset(self.sizes))

    def _cut(self, positions: frozenset[int]) -> Cutting | None:
        with doing(f"looking for the fewest bytes that `{self.adjoint.primal.name}` needs"):
            cut, memory = cutting_for(self.adjoint, positions, self.call), sum(self.sizes[p] for p in positions)
        spares = cut is not None and any(cut.spares(p) for p in self.sizes if p not in positions)
        return cut if cut is not None and (cut.total < memory or (spares and cut.total == memory)) else None


def _must(kernel: Kernel, call: Call, written: tuple[Reach, ...], numbers: Numbers) -> tuple[Reach, ...]:
    found = []
    for reach in written:
        buffer, memory = kernel.params[reach.position], call.bound.arguments[reach.position].memory
        if isinstance(buffer, Buffer) and memory is not None:
            found.append(Reach(reach.position, surely_written(kernel, buffer, numbers, memory.itemsize)))
    return tuple(found)


def _read_by_reverse(adjoint: Adjoint, p: Parameter, call: Call, numbers: Numbers) -> Reach | None:
    assert isinstance(p.item, Buffer)
    body = (*adjoint.layout.body, *adjoint.layout.counting)
    if not any(isinstance(s, Load) and s.buffer == p.item for s in walk_stmts(body)):
        return None
    kinds = (Load, *(WRITES if p.role != "primal" else ()))  # the kernel that counts may overwrite what the reverse only reads
    return _reach(body, p.item, p.position, call, numbers, kinds)


def _reaches(kernel: Kernel, call: Call, kinds: tuple[Any, ...], numbers: Numbers) -> tuple[Reach, ...]:
    found = []
    for position, item in enumerate(kernel.params[: len(call.bound.arguments)]):
        if not isinstance(item, Buffer) or position in call.overlaps:
            continue
        if any(isinstance(s, kinds) and s.buffer == item for s in walk_stmts(kernel.body)):
            found.append(_reach(kernel.body, item, position, call, numbers, kinds))
    return tuple(r for r in found if r is not None)


def reads(kernel: Kernel, call: Call, numbers: Numbers) -> tuple[Reach, ...]:
    """The regions that the primal reads in a launch with these numbers."""
    return _reaches(kernel, call, (Load, Atomic), numbers)


def reads_again(kernel: Kernel, call: Call, numbers: Numbers) -> tuple[Reach, ...]:
    """What the primal reads, and what it adds to."""
    return _reaches(kernel, call, (Load, Atomic, Accumulate, Take), numbers)


def writes(kernel: Kernel, call: Call, numbers: Numbers) -> tuple[Reach, ...]:
    """What the primal may write."""
    return _reaches(kernel, call, WRITES, numbers)


def _reach(body: Any, item: Buffer, position: int, call: Call, numbers: Numbers, kinds: tuple[Any, ...]) -> Reach | None:
    argument = call.bound.arguments[position]
    if argument.memory is None:
        return None
    shared = position in {base for base, _ in call.overlaps.values()}  # then more than this view is reached through it
    inside = position not in call.loose and not shared
    return Reach(position, touched(body, item, numbers, kinds, argument, inside))


def absolutely(reach: Reach, call: Call) -> Region:
    """The bytes of the allocation that a reach means in this call."""
    memory = call.bound.arguments[reach.position].memory
    assert memory is not None
    return absolute(reach.region, memory)

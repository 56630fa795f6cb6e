"""Adjoints and tangents as objects: what was derived once for all launches, and the kernels derived from it for some of them.

In: what `passes.reverse_of` or `tangent_of` has derived. Out, each made once and kept: the reverse kernel of a `Variant`, kernels that
materialise, gather, sum over blocks or do the rest of a pass, and inspectors. Guarantees that each is verified IR; which of them make the
reverse pass of a launch is decided in `schedule`, and whether they may is for `certificates`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..accumulate.block_reduce import BlockSums, block_sums, block_sums_kernel
from ..accumulate.gather import Axes, Gather, Sides, gather, rest
from ..accumulate.gather_kernel import gather_kernel
from ..accumulate.materialise import Materialisation, materialise
from ..accumulate.reduce import choose_accumulation, reduce_repeated_additions, undecided
from ..ad.recording import Recording
from ..ad.stack_layout import Layout
from ..affine.accumulation_certificate import marked
from ..analysis.activity import Activity, Escape
from ..analysis.atomic_extrema import mixed
from ..inspect.barrier_order import BarrierOrderInspector, barrier_order_inspector
from ..inspect.barrier_phase import BarrierPhaseInspector, barrier_phase_inspector
from ..inspect.injectivity import InjectivityInspector, injectivity_inspector
from ..inspect.shared_races import SharedRaceInspector, shared_race_inspector
from ..inspect.store_conflicts import StoreConflictInspector, store_conflict_inspector
from ..ir.nodes import Atomic, Block, Buffer, Expr, For, Kernel, Load, Var
from ..ir.rewrite import Names, edit, holds, used_vars, walk_stmts
from ..ir.types import Space
from ..ir.verify import made
from ..memo import Memo, Same, specialized
from ..optimize.dead_code import eliminate_dead_code, waits
from ..optimize.scalar_replacement import unroll_local_arrays
from ..optimize.simplify import unwrap_single_iterations
from .pattern import Parameter, Pattern, Variant, partial_parameters


@dataclass(frozen=True, eq=False, kw_only=True)
class Inspected:
    """What the checks of a launch need: the primal, what is active, and a memory for what was proved."""

    primal: Kernel
    activity: Activity
    logs: tuple[Buffer, ...] = ()  # what the launch writes down
    log_loops: dict[Buffer, tuple[For, ...]] = field(default_factory=dict)  # the loops that a log has an element for each iteration of
    facts: Memo = field(default_factory=Memo, init=False)
    specializations: dict[Hashable, Any] = field(default_factory=dict, init=False)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "mixed"}  # ids of statements, found again

    @cached_property
    def mixed(self) -> dict[int, int]:
        """Atomic operations that must not meet in one element (`analysis.atomic_extrema`)."""
        return mixed(self.primal, self.activity) if holds(self.primal.body, Atomic) else {}

    @specialized
    def store_conflicts(self, buffers: frozenset[Buffer]) -> StoreConflictInspector:
        """The kernel that checks whether stores to the buffers collide."""
        found = store_conflict_inspector(self.primal, buffers, self.mixed)
        made("store_conflicts", found.kernel)
        return found

    @specialized
    def barrier_order(self, buffers: frozenset[Buffer]) -> BarrierOrderInspector:
        """The kernel that checks whether barriers order the accesses of different threads to an element of the buffers."""
        found = barrier_order_inspector(self.primal, buffers)
        made("barrier_order", found.kernel)
        return found

    @specialized
    def shared_races(self) -> SharedRaceInspector | None:
        """The kernel that does to arrays in shared memory what the primal surely does."""
        found = shared_race_inspector(self.primal)
        if found is not None:
            made("shared_races", found.kernel)
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Adjoint(Inspected):
    """The reverse of a kernel for one pattern."""

    pattern: Pattern
    recording: Recording
    layout: Layout
    parameters: tuple[Parameter, ...]
    augmented: Kernel | None
    escapes: tuple[Escape, ...]
    connected: bool
    exact: bool
    unlaid: Block
    first_own: int  # uids from here on are not of the user's variables
    logged: dict[int, tuple[Buffer, Expr]]  # logs by the id of their statement, and where it writes in them
    log_numbers: tuple[int, ...]  # which of all that could be written down the `logs` are
    name: str
    _partials: dict[Gather, Materialisation] = field(default_factory=dict, init=False)

    def __getstate__(self) -> dict[str, Any]:
        places = {id(s): k for k, s in enumerate(walk_stmts(self.recording.primal.body))}
        logged = {places[key]: log for key, log in self.logged.items() if key in places}
        return {**super().__getstate__(), "logged": logged}

    def __setstate__(self, state: dict[str, Any]) -> None:
        stmts = list(walk_stmts(state["recording"].primal.body)) if state["logged"] else []
        self.__dict__.update(state, logged={id(stmts[k]): log for k, log in state["logged"].items()})

    def kernel(self, plain: frozenset[Buffer] = frozenset(), header: str = "") -> Kernel:
        """The reverse kernel in which the shadows `plain` are accumulated plainly and all others atomically."""
        chosen = Variant(plain)
        return self._kernel(chosen, header) if header else self.variant(chosen)

    @specialized
    def variant(self, chosen: Variant) -> Kernel:
        """The reverse kernel for shadows of which something is known."""
        return self._kernel(chosen, "")

    def _kernel(self, chosen: Variant, header: str) -> Kernel:
        kernel = self._accumulated(self.layout.body, chosen, header)
        if not self.layout.scratch:
            return kernel
        rows = frozenset(field for scratch in self.layout.scratch for field in scratch.fields)
        return replace(kernel, in_rows=replace(self._accumulated(self.layout.in_rows(waits(kernel.body)), chosen, ""), rows=rows))

    def _accumulated(self, body: Block, chosen: Variant, header: str) -> Kernel:
        kernel = Kernel(self.name, self.params, self._reduced(self._decided(body, chosen), chosen), self.primal.span, header)
        made("accumulate", kernel)
        return kernel

    def marked(self, chosen: Variant, *, in_rows: bool = False) -> Block:
        """The text of a variant's kernel as it would be if all that is known of its shadows were which of them no two threads meet in."""
        body = self.layout.in_rows(waits(self.variant(chosen).body)) if in_rows else self.layout.body
        return self._reduced(unwrap_single_iterations(marked(body, chosen.plain)), chosen)

    def gather(self, shadows: Mapping[Buffer, int], *, keeping: bool = False, by_digits: bool = False) -> Gather | None:
        """What of the accumulations into the shadows can be gathered, as far as the text says; of each, which of several ways to do so.
        `keeping`: where threads may keep what their loops come to (`materialise`); `by_digits`: where a thread takes its index apart."""
        return self._gather(frozenset(shadows.items()), keeping, by_digits) if self.is_divisible else None

    @specialized
    def _gather(self, shadows: frozenset[tuple[Buffer, int]], keeping: bool, by_digits: bool) -> Gather | None:
        ways = dict(shadows)
        ordered = {b: ways[b] for b in self.undecided if b in ways}
        find = self._gathered_by_digits if by_digits else self._gathered_with_partials if keeping else self._gathered
        return find(ordered)

    def gatherable(self, shadows: Collection[Buffer], *, by_digits: bool) -> frozenset[Buffer]:
        """Those of the shadows that can be gathered."""
        found = self.gather(dict.fromkeys(shadows, 0), by_digits=by_digits) if shadows else None
        return found.buffers if found is not None else frozenset()

    def _gathered_by_digits(self, shadows: Mapping[Buffer, int]) -> Gather | None:
        """What can be gathered by threads that are known by the digits of their index."""
        return gather(self.layout.body, shadows, self.params, self._names(), by_digits=True)

    def _gathered_with_partials(self, shadows: Mapping[Buffer, int]) -> Gather | None:
        """What can be gathered if threads keep what their loops come to, where that is more than without."""
        plainly = self.gather(shadows)
        left = set(shadows) - (plainly.buffers if plainly is not None else set())
        names = self._names()
        numbers = materialise(self.layout.body, left, names) if left else None
        found = gather(numbers.reading, shadows, self.params, names, numbers.threads) if numbers is not None else None
        if numbers is None or found is None or len(found.buffers) <= len(set(shadows) - left):
            return plainly
        self._partials[found] = numbers
        return found

    def partials(self, gathered: Gather) -> Materialisation | None:
        """What threads keep for those that gather."""
        return self._partials.get(gathered)

    @specialized
    def keeping(self, numbers: Materialisation) -> tuple[Kernel, tuple[Parameter, ...]]:
        """The kernel in which threads keep what their loops come to, and its parameters."""
        body = unwrap_single_iterations(choose_accumulation(numbers.filling, {}))
        parameters = self._used(body, partial_parameters(numbers))
        kernel = Kernel(f"{self.primal.name}_partials", tuple(p.item for p in parameters), body, self.primal.span)
        made("materialise", kernel)
        return kernel, parameters

    def _used(self, body: Block, more: Sequence[Parameter]) -> tuple[Parameter, ...]:
        """The parameters that a body uses."""
        used: set[object] = set(used_vars(body))
        used.update(getattr(s, "buffer", None) for s in walk_stmts(body))
        return tuple(p for p in (*self.parameters, *more) if p.item in used)

    def _gathered(self, shadows: Mapping[Buffer, int]) -> Gather | None:
        """What can be gathered plainly. Where an index is found in a table (`u[i + dx[k]]`), the loops over it are written out."""
        found = gather(self.layout.body, shadows, self.params, self._names())
        if found is not None and found.buffers == set(shadows):
            return found
        written_out = unroll_local_arrays(Kernel(self.name, self.params, self.layout.body))
        if written_out.body is self.layout.body:
            return found
        other = gather(written_out.body, shadows, self.params, Names(written_out))
        return found if other is None or (found is not None and len(found.buffers) >= len(other.buffers)) else other

    @specialized
    def gathering(
        self, gathered: Gather, sides: Sides, assigned: frozenset[Buffer], boxed: frozenset[tuple[Buffer, Axes]] = frozenset()
    ) -> tuple[Kernel, tuple[Parameter, ...]]:
        """The kernel that gathers, and its parameters; `assigned`: which of its shadows are zero, `boxed`: those that are zero in a box of
        threads, and along which axes a thread compares its index with that box."""
        collected, sums = gather_kernel(gathered, sides, assigned, dict(boxed), self._names(gathered), self.first_own)
        body = choose_accumulation(collected, {})
        numbers = [Parameter(r, i, v) for r, vs in (("first", gathered.first), ("threads", gathered.threads)) for i, v in enumerate(vs)]
        numbers += [
            Parameter(role, 3 * k + axis, ends[axis][side])
            for k, ends in enumerate(gathered.boxes.values())
            for side, role in enumerate(("from", "to"))
            for axis in range(3)
        ]
        arrays = [p for p in partial_parameters(self.partials(gathered)) if p.role == "partial"]
        parameters = self._used(body, [*arrays, *numbers])
        kernel = Kernel(f"{self.primal.name}_gather", tuple(p.item for p in parameters), body, self.primal.span, unordered=sums)
        made("gather", kernel)
        return kernel, parameters

    @specialized
    def block_sums(self, shadows: frozenset[Buffer], numbers: Materialisation | None = None) -> BlockSums | None:
        """What of the accumulations into the shadows can be summed over blocks in loops; `numbers`: what threads have kept."""
        return block_sums(self.reading(numbers), shadows, self._with(numbers)) if self.is_divisible else None

    @specialized
    def summing(self, sums: BlockSums, numbers: Materialisation | None = None) -> tuple[Kernel, tuple[Parameter, ...]]:
        """The kernel that adds them, and its parameters."""
        names = Names(Kernel(self.name, self._with(numbers), self.reading(numbers)))
        body = choose_accumulation(block_sums_kernel(sums, names, self.first_own), {})
        return self._besides(f"{self.primal.name}_sums", body, numbers)

    def reading(self, numbers: Materialisation | None) -> Block:
        """The adjoint, with what threads have kept."""
        return self.layout.body if numbers is None else numbers.reading

    def _with(self, numbers: Materialisation | None) -> tuple[Var | Buffer, ...]:
        """The reverse kernel's parameters, and those of what threads have kept."""
        return (*self.params, *(p.item for p in partial_parameters(numbers)))

    def _besides(self, name: str, body: Block, numbers: Materialisation | None) -> tuple[Kernel, tuple[Parameter, ...]]:
        """A kernel that is launched as the reverse kernel is, with those of the arrays of what threads have kept that it touches."""
        arrays = partial_parameters(numbers)
        there = {p.item for p in self._used(body, arrays)}
        parameters = (*self.parameters, *(p for p in arrays if p.item in there))
        kernel = Kernel(name, tuple(p.item for p in parameters), body, self.primal.span)
        made("rest", kernel)
        return kernel, parameters

    @specialized
    def injectivity(self, shadow: Buffer) -> InjectivityInspector | None:
        """The kernel that finds out which threads touch which elements of a shadow, where their numbers alone decide that."""
        if not self.pattern.analyse:
            return None
        found = injectivity_inspector(Kernel(self.name, self.params, self.layout.body, self.primal.span), shadow)
        if found is not None:
            made("injectivity", found.kernel)
        return found

    @specialized
    def barrier_phases(self) -> BarrierPhaseInspector | None:
        """The kernel that finds out which threads of a block touch which elements of shadows in shared memory between barriers."""
        shared = [x for x in self.undecided if x.space is Space.SHARED] if self.pattern.analyse else []
        found = barrier_phase_inspector(Kernel(self.name, self.params, self.unlaid, self.primal.span), shared) if shared else None
        if found is not None:
            made("barrier_phase", found.kernel)
        return found

    @property
    def is_divisible(self) -> bool:
        """True if a part of the adjoint may run before the rest."""
        return self.pattern.analyse and not self.layout.scratch and not any(p.role == "working" for p in self.parameters)

    @specialized
    def rest(
        self, gathered: frozenset[Buffer], chosen: Variant, moved: frozenset[Same] = frozenset(), numbers: Materialisation | None = None
    ) -> tuple[Kernel, tuple[Parameter, ...]] | None:
        """The reverse kernel without what is gathered, and without the additions that are `moved`, and its parameters; None if nothing is
        left. `numbers`: what threads have kept."""
        kept = edit(self.reading(numbers), lambda s: () if Same(s) in moved else None)
        body = rest(kept, gathered | chosen.aliased, chosen.plain, chosen.left, self.first_own)
        body = self._reduced(eliminate_dead_code(self._decided(body, chosen)), chosen)
        return self._besides(self.name, body, numbers) if body else None

    def _decided(self, body: Block, chosen: Variant) -> Block:
        """The body with every accumulation decided."""
        plain = {b: b in chosen.plain for b in self.undecided}
        return unwrap_single_iterations(choose_accumulation(body, plain, chosen.assigned, chosen.left, chosen.aliased))

    def _reduced(self, body: Block, chosen: Variant) -> Block:
        if not self.pattern.analyse:
            return body
        return reduce_repeated_additions(body, Names(Kernel(self.name, self.params, body)), in_blocks=chosen.in_blocks)

    def _names(self, gathered: Gather | None = None) -> Names:
        own: tuple[Var | Buffer, ...] = gathered.variables if gathered is not None else ()
        numbers = self.partials(gathered) if gathered is not None else None
        own = (*own, *numbers.buffers) if numbers is not None else own
        return Names(Kernel(self.name, (*self.params, *own), self.layout.body))

    @property
    def params(self) -> tuple[Var | Buffer, ...]:
        """The reverse kernel's parameters."""
        return tuple(p.item for p in self.parameters)

    @cached_property
    def undecided(self) -> tuple[Buffer, ...]:
        """The shadows about which a launch decides."""
        return undecided(self.layout.body)

    @cached_property
    def reads(self) -> frozenset[Buffer]:
        """The memory that the reverse and the counting kernel read."""
        body = (*self.layout.body, *self.layout.counting)
        return frozenset(s.buffer for s in walk_stmts(body) if isinstance(s, Load))

    @cached_property
    def counting_parameters(self) -> tuple[Parameter, ...]:
        """The counting kernel's parameters: the reverse kernel's without shadows and scratch, and the depths."""
        kept = [p for p in self.parameters if p.role in ("primal", "offset", "entry", "working", "log")]
        depths = [Parameter("depth", i, s.depths) for i, s in enumerate(self.layout.scratch)]
        return (*kept, *depths)

    @cached_property
    def counting(self) -> Kernel | None:
        """The kernel that finds how deep each scratch stack must be, or None."""
        if not self.layout.counting:
            return None
        params = tuple(p.item for p in self.counting_parameters)
        kernel = Kernel(f"{self.primal.name}_count", params, self.layout.counting, self.primal.span)
        made("counting", kernel)
        return kernel


@dataclass(frozen=True, eq=False, kw_only=True)
class Tangent(Inspected):
    """The forward-mode kernel for one pattern: primal and tangents in one launch."""

    kernel: Kernel
    parameters: tuple[Parameter, ...]
    escapes: tuple[Escape, ...]
    connected: bool
    exact: bool
    resolve: Kernel | None = None  # launched after it, if there is one
    resolve_parameters: tuple[Parameter, ...] = ()

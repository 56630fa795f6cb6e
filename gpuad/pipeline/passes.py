"""The way of a kernel, on one page: from the surface tree to its primal, reverse and forward kernels.

    surface --normalize--> primal --forward_stores, name_results--> --analyses, reverse, prune--> adjoint body
            --simplify--> --(forward)--> --stack_layout--> --accumulate--> kernel

Each step takes valid IR and gives valid IR. What depends on a launch's numbers (which shadows may be accumulated plainly) is asked last,
as a set of truth values, so that few texts serve all launches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..accumulate.block_reduce import BlockSums, block_sums, block_sums_kernel, without
from ..accumulate.gather import Axes, Gather, Sides, gather, gather_kernel, rest
from ..accumulate.materialise import Partials, partials
from ..accumulate.policy import accumulate, undecided
from ..accumulate.reduce import broadcast, reduced
from ..ad.absent_pointers import without_arrays
from ..ad.argmax_marks import name_operands, winners
from ..ad.argmax_recording import chosen
from ..ad.forward import forward
from ..ad.forward_extrema import Kept, kept_of, settling
from ..ad.logs import Log, augmented, logs_of, written
from ..ad.recording import Recording, record
from ..ad.reorder import reorder
from ..ad.reverse import name_results
from ..ad.silence import quiet
from ..ad.single_iteration_loops import direct
from ..ad.stack_layout import Layout, stack_layout
from ..analysis.activity import Activity, Escape, activity, connected, escapes, reinterpretations, truncations
from ..analysis.atomic_extrema import check as check_atomics
from ..analysis.atomic_extrema import check_tangents, mixed
from ..errors import UnsupportedError
from ..inspect.barrier_order import Turns, turns
from ..inspect.barrier_phase import Intervals, intervals
from ..inspect.injectivity import Census, census
from ..inspect.store_conflicts import Claims, claims
from ..ir import surface
from ..ir.aliases import NONE, Aliases
from ..ir.names import Names
from ..ir.nodes import Alloc, Atomic, Block, Buffer, Expr, For, Kernel, Load, Var, children, variables, walk
from ..ir.rewrite import expressions, walk_stmts
from ..ir.types import I64, Scalar, Space, value_type
from ..ir.verify import verify
from ..lower.normalize import normalize
from ..memo import Facts
from ..optimize.barriers import waits
from ..optimize.dead_code import prune
from ..optimize.local_array_unrolling import unroll
from ..optimize.privatisation import sink
from ..optimize.simplify import forward_stores, simplify
from ..optimize.tile_privatisation import split

__all__ = ["Adjoint", "Parameter", "Pattern", "Tangent", "primal_of", "reverse_of", "tangent_of"]


@dataclass(frozen=True)
class Pattern:
    """What a derivative depends on besides the source: for each parameter (by position) the element type of its shadow, or None; which
    parameters overlap; through which nothing is to flow; for tests, whether recording is analysed or everything is recorded; and whether
    strides that are parameters may be taken to be non-zero."""

    shadows: tuple[Scalar | None, ...]
    aliases: Aliases = NONE
    stopped: frozenset[int] = frozenset()
    analyse: bool = True
    optimistic: bool = True


@dataclass(frozen=True)
class Parameter:
    """What a generated kernel's parameter stands for. `role`: 'primal' (as it is after the launch), 'shadow', 'entry' (a copy from before
    the launch), 'working' (the same, which the kernel overwrites), 'offset' (of an overlapping parameter), 'log', 'base', 'field',
    'depth', 'overflow', 'partial' (what threads keep for those that gather), 'first', 'threads', 'from' and 'to' (of a gather), or
    'tangent...'. `position`: the user's parameter, or the number of the log, scratch or axis."""

    role: str
    position: int
    item: Var | Buffer


_NONE: frozenset[Buffer] = frozenset()


@dataclass(frozen=True)
class Variant:
    """What is known of a launch. Shadows that are accumulated `plain`ly; that are zero, so `assigned` to; whose taken elements nobody
    will look at (`left`); that share the memory of another (`lent`). `in_blocks`: whether the threads of a block, where they all add to one
    element, had better form its sum first."""

    plain: frozenset[Buffer] = _NONE
    assigned: frozenset[Buffer] = _NONE
    left: frozenset[Buffer] = _NONE
    lent: frozenset[Buffer] = _NONE
    in_blocks: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Judged:
    """What the checks of a launch need: the primal, what is active, and a memory for what was proved."""

    primal: Kernel
    activity: Activity
    logs: tuple[Buffer, ...] = ()  # what the launch writes down
    log_loops: dict[Buffer, tuple[For, ...]] = field(default_factory=dict)  # the loops that a log has an element for each iteration of
    facts: Facts = field(default_factory=Facts, init=False)
    _claims: dict[frozenset[Buffer], Claims] = field(default_factory=dict, init=False)
    _turns: dict[frozenset[Buffer], Turns] = field(default_factory=dict, init=False)

    @cached_property
    def mixed(self) -> dict[int, int]:
        """Atomic operations that must not meet in one element (`analysis.atomic_extrema`)."""
        return mixed(self.primal, self.activity)

    def claims(self, buffers: frozenset[Buffer]) -> Claims:
        """The kernel that checks whether stores to the buffers collide."""
        if buffers not in self._claims:
            self._claims[buffers] = claims(self.primal, buffers, self.mixed)
            verify(self._claims[buffers].kernel)
        return self._claims[buffers]

    def turns(self, buffers: frozenset[Buffer]) -> Turns:
        """The kernel that checks whether threads take turns in the buffers' elements."""
        if buffers not in self._turns:
            self._turns[buffers] = turns(self.primal, buffers)
            verify(self._turns[buffers].kernel)
        return self._turns[buffers]


@dataclass(frozen=True, eq=False, kw_only=True)
class Adjoint(Judged):
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
    _variants: dict[Variant, Kernel] = field(default_factory=dict, init=False)
    _gathers: dict[Any, Any] = field(default_factory=dict, init=False)
    _partials: dict[Gather, Partials] = field(default_factory=dict, init=False)

    def kernel(self, plain: frozenset[Buffer] = frozenset(), header: str = "") -> Kernel:
        """The reverse kernel in which the shadows `plain` are accumulated plainly and all others atomically."""
        chosen = Variant(plain)
        return self._kernel(chosen, header) if header else self.variant(chosen)

    def variant(self, chosen: Variant) -> Kernel:
        """The reverse kernel for shadows of which something is known."""
        if chosen not in self._variants:
            self._variants.setdefault(chosen, self._kernel(chosen, ""))
        return self._variants[chosen]

    def _kernel(self, chosen: Variant, header: str) -> Kernel:
        kernel = self._accumulated(self.layout.body, chosen, header)
        if not self.layout.scratch:
            return kernel
        rows = frozenset(field for scratch in self.layout.scratch for field in scratch.fields)
        return replace(kernel, in_rows=replace(self._accumulated(self.layout.in_rows(waits(kernel.body)), chosen, ""), rows=rows))

    def _accumulated(self, body: Block, chosen: Variant, header: str) -> Kernel:
        kernel = Kernel(self.name, self.params, self._reduced(self._decided(body, chosen), chosen), self.primal.span, header)
        verify(kernel)
        return kernel

    def gather(self, shadows: Mapping[Buffer, int], *, keeping: bool = False) -> Gather | None:
        """What of the accumulations into the shadows can be gathered, as far as the text says; of each, which of several ways to do so.
        `keeping`: where threads may keep what their loops come to (`partials`)."""
        key = frozenset(shadows.items()), keeping
        if key not in self._gathers:
            ordered = {b: shadows[b] for b in self.undecided if b in shadows}
            find = self._gathered_with_partials if keeping else self._gathered
            self._gathers[key] = find(ordered) if self.is_divisible else None
        found: Gather | None = self._gathers[key]
        return found

    def _gathered_with_partials(self, shadows: Mapping[Buffer, int]) -> Gather | None:
        """The same, if more can be gathered where threads keep something."""
        plainly = self.gather(shadows)
        left = set(shadows) - (plainly.buffers if plainly is not None else set())
        names = self._names()
        numbers = partials(self.layout.body, left, names) if left else None
        found = gather(numbers.reading, shadows, self.params, names, numbers.threads) if numbers is not None else None
        if numbers is None or found is None or len(found.buffers) <= len(set(shadows) - left):
            return plainly
        self._partials[found] = numbers
        return found

    def partials(self, gathered: Gather) -> Partials | None:
        """What threads keep for those that gather."""
        return self._partials.get(gathered)

    def keeping(self, numbers: Partials) -> tuple[Kernel, tuple[Parameter, ...]]:
        """The kernel in which threads keep what their loops come to, and its parameters."""
        if numbers not in self._gathers:
            body = direct(accumulate(numbers.filling, {}))
            parameters = self._used(body, _partial_parameters(numbers))
            kernel = Kernel(f"{self.primal.name}_partials", tuple(p.item for p in parameters), body, self.primal.span)
            verify(kernel)
            self._gathers[numbers] = kernel, parameters
        found: tuple[Kernel, tuple[Parameter, ...]] = self._gathers[numbers]
        return found

    def _used(self, body: Block, more: Sequence[Parameter]) -> tuple[Parameter, ...]:
        """The parameters that a body uses."""
        used: set[Any] = {v for s in walk_stmts(body) for e in expressions(s) for v in variables(e)}
        used.update(getattr(s, "buffer", None) for s in walk_stmts(body))
        return tuple(p for p in (*self.parameters, *more) if p.item in used)

    def _gathered(self, shadows: Mapping[Buffer, int]) -> Gather | None:
        """The same. Where an index is found in a table (`u[i + dx[k]]`), the loops over it are written out."""
        found = gather(self.layout.body, shadows, self.params, self._names())
        if found is not None and found.buffers == set(shadows):
            return found
        written_out = unroll(Kernel(self.name, self.params, self.layout.body))
        if written_out.body is self.layout.body:
            return found
        other = gather(written_out.body, shadows, self.params, Names(written_out))
        return found if other is None or (found is not None and len(found.buffers) >= len(other.buffers)) else other

    def gathering(
        self, gathered: Gather, sides: Sides, assigned: frozenset[Buffer], boxed: frozenset[tuple[Buffer, Axes]] = frozenset()
    ) -> tuple[Kernel, tuple[Parameter, ...]]:
        """The kernel that gathers, and its parameters; `boxed`: shadows that are zero in a box of threads, and along which axes that box is
        asked for."""
        key = gathered, sides, assigned & gathered.buffers, boxed
        if key not in self._gathers:
            collected, sums = gather_kernel(gathered, sides, key[2], dict(boxed), self._names(gathered), self.first_own)
            body = accumulate(collected, {})
            numbers = [Parameter(r, i, v) for r, vs in (("first", gathered.first), ("threads", gathered.threads)) for i, v in enumerate(vs)]
            numbers += [
                Parameter(role, 3 * k + axis, ends[axis][side])
                for k, ends in enumerate(gathered.boxes.values())
                for side, role in enumerate(("from", "to"))
                for axis in range(3)
            ]
            arrays = [p for p in _partial_parameters(self.partials(gathered)) if p.role == "partial"]
            parameters = self._used(body, [*arrays, *numbers])
            kernel = Kernel(f"{self.primal.name}_gather", tuple(p.item for p in parameters), body, self.primal.span, unordered=sums)
            verify(kernel)
            self._gathers[key] = kernel, parameters
        found: tuple[Kernel, tuple[Parameter, ...]] = self._gathers[key]
        return found

    def block_sums(self, shadows: frozenset[Buffer], numbers: Partials | None = None) -> BlockSums | None:
        """What of the accumulations into the shadows can be summed over blocks in loops; `numbers`: what threads have kept."""
        key = "sums", shadows, numbers
        if key not in self._gathers:
            self._gathers[key] = block_sums(self.reading(numbers), shadows, self._with(numbers)) if self.is_divisible else None
        found: BlockSums | None = self._gathers[key]
        return found

    def summing(self, sums: BlockSums, numbers: Partials | None = None) -> tuple[Kernel, tuple[Parameter, ...]]:
        """The kernel that adds them, and its parameters."""
        if sums not in self._gathers:
            names = Names(Kernel(self.name, self._with(numbers), self.reading(numbers)))
            body = accumulate(block_sums_kernel(sums, names, self.first_own), {})
            self._gathers[sums] = self._besides(f"{self.primal.name}_sums", body, numbers)
        found: tuple[Kernel, tuple[Parameter, ...]] = self._gathers[sums]
        return found

    def reading(self, numbers: Partials | None) -> Block:
        """The adjoint, with what threads have kept."""
        return self.layout.body if numbers is None else numbers.reading

    def _with(self, numbers: Partials | None) -> tuple[Var | Buffer, ...]:
        """The reverse kernel's parameters, and those of what threads have kept."""
        return (*self.params, *(p.item for p in _partial_parameters(numbers)))

    def _besides(self, name: str, body: Block, numbers: Partials | None) -> tuple[Kernel, tuple[Parameter, ...]]:
        """A kernel that is launched as the reverse kernel is, with those of the arrays of what threads have kept that it touches."""
        arrays = _partial_parameters(numbers)
        there = {p.item for p in self._used(body, arrays)}
        parameters = (*self.parameters, *(p for p in arrays if p.item in there))
        kernel = Kernel(name, tuple(p.item for p in parameters), body, self.primal.span)
        verify(kernel)
        return kernel, parameters

    def census(self, shadow: Buffer) -> Census | None:
        """The kernel that finds out which threads touch which elements of a shadow, where their numbers alone decide that."""
        key = "census", shadow
        if key not in self._gathers:
            found = census(Kernel(self.name, self.params, self.layout.body, self.primal.span), shadow) if self.pattern.analyse else None
            if found is not None:
                verify(found.kernel)
            self._gathers[key] = found
        made: Census | None = self._gathers[key]
        return made

    def intervals(self) -> Intervals | None:
        """The kernel that finds out which threads of a block touch which elements of shadows in shared memory between barriers."""
        key = "intervals"
        if key not in self._gathers:
            shared = [x for x in self.undecided if x.space is Space.SHARED] if self.pattern.analyse else []
            found = intervals(Kernel(self.name, self.params, self.unlaid, self.primal.span), shared) if shared else None
            if found is not None:
                verify(found.kernel)
            self._gathers[key] = found
        made: Intervals | None = self._gathers[key]
        return made

    @property
    def is_divisible(self) -> bool:
        """Whether a part of the adjoint may run before the rest."""
        return self.pattern.analyse and not self.layout.scratch and not any(p.role == "working" for p in self.parameters)

    def rest(
        self, gathered: frozenset[Buffer], chosen: Variant, moved: frozenset[int] = frozenset(), numbers: Partials | None = None
    ) -> tuple[Kernel, tuple[Parameter, ...]] | None:
        """The reverse kernel without what is gathered, and without the additions that are `moved`, and its parameters; None if nothing is
        left. `numbers`: what threads have kept."""
        key = gathered, chosen, moved, numbers
        if key not in self._gathers:
            body = rest(without(self.reading(numbers), moved), gathered | chosen.lent, chosen.plain, chosen.left, self.first_own)
            body = self._reduced(prune(self._decided(body, chosen)), chosen)
            self._gathers[key] = self._besides(self.name, body, numbers) if body else None
        found: tuple[Kernel, tuple[Parameter, ...]] | None = self._gathers[key]
        return found

    def _decided(self, body: Block, chosen: Variant) -> Block:
        """The body with every accumulation decided."""
        plain = {b: b in chosen.plain for b in self.undecided}
        return direct(accumulate(body, plain, chosen.assigned, chosen.left, chosen.lent))

    def _reduced(self, body: Block, chosen: Variant) -> Block:
        if not self.pattern.analyse:
            return body
        return reduced(body, Names(Kernel(self.name, self.params, body)), in_blocks=chosen.in_blocks)

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
        verify(kernel)
        return kernel


@dataclass(frozen=True, eq=False, kw_only=True)
class Tangent(Judged):
    """The forward-mode kernel for one pattern: primal and tangents in one launch."""

    kernel: Kernel
    parameters: tuple[Parameter, ...]
    escapes: tuple[Escape, ...]
    connected: bool
    exact: bool
    settle: Kernel | None = None  # launched after it, if there is one
    settle_parameters: tuple[Parameter, ...] = ()


def primal_of(function: surface.Function, aliases: Aliases = NONE) -> Kernel:
    """The kernel as core IR, to be run as it is."""
    kernel = normalize(function, aliases)
    kernel = without_arrays(kernel, [p for i, p in enumerate(kernel.params) if i in aliases.absent and isinstance(p, Buffer)])
    verify(kernel)
    return kernel


def prepared(function: surface.Function, aliases: Aliases, *, refilled: bool = False, loud: bool = False) -> Kernel:
    """The primal in the form that the derivative passes expect. `refilled`: shared arrays that one loop uses are taken to be filled anew
    by each of its iterations, which a launch has to check. `loud`: with what it prints and asserts."""
    kernel = primal_of(function, aliases)
    kernel = kernel if loud else quiet(kernel)
    kernel = sink(forward_stores(name_results(kernel, Names(kernel))))
    names = Names(kernel)
    kernel = name_operands(split(kernel) if refilled else kernel, names)
    verify(kernel)
    return kernel


def reverse_of(function: surface.Function, pattern: Pattern) -> Adjoint:
    """The adjoint of a kernel. Raises UnsupportedError where no sound one can be given."""
    kernel = prepared(function, pattern.aliases, refilled=pattern.optimistic and pattern.analyse)
    names = Names(kernel)
    first_own = names.uid()
    shadows = _shadows(kernel, pattern, names, "d")
    facts = activity(kernel, shadows, stopped=_stopped(kernel, pattern))
    _refuse_lost_bits(kernel, facts)
    check_atomics(kernel, facts)
    rounding = exact(kernel)
    kernel, marks = winners(kernel, facts, names)
    kernel, logs = logs_of(kernel, marks, names)
    logged = {key: (log.buffer, log.index) for key, log in logs.items()}
    wide = replace(kernel, params=(*kernel.params, *shadows.values(), *(log.buffer for log in logs.values())))
    recording = record(wide, facts, shadows, logged, marks=marks, analyse=pattern.analyse, optimistic=pattern.optimistic)
    body = reorder(_without_choices(simplify(recording.body, first_own), recording, wide, first_own))
    body = broadcast(replace(wide, body=body)) if pattern.analyse else body
    layout = stack_layout(body, recording.primal, recording.entry, recording.stacks, logged, Names(replace(wide, body=body)))
    used = _read_logs(layout, logs)
    kept = tuple(log.buffer for log in used.values())
    _refuse_unasked(kernel, pattern, kept)
    parameters = _parameters(kernel, pattern, shadows, recording, layout, kept)
    return Adjoint(
        primal=kernel,
        pattern=pattern,
        activity=facts,
        recording=recording,
        layout=layout,
        parameters=parameters,
        augmented=augmented(kernel, used) if used else None,
        logs=kept,
        log_loops={log.buffer: log.loops for log in used.values() if log.loops},
        escapes=escapes(kernel, facts),
        connected=connected(kernel, facts),
        exact=rounding,
        unlaid=body,
        first_own=first_own,
        logged=logged,
        log_numbers=tuple(k for k, key in enumerate(logs) if key in used),
        name=f"{kernel.name}_reverse",
    )


def _refuse_unasked(kernel: Kernel, pattern: Pattern, logs: Collection[Buffer]) -> None:
    """A launch that writes something down for its adjoint is quiet: it would not say that it has come to an array that is not there."""
    if logs and pattern.aliases.absent:
        names = ", ".join(f"`{kernel.params[i].name}`" for i in sorted(pattern.aliases.absent))
        raise UnsupportedError(
            f"`{kernel.name}`: {names} is None, and data may lead to it; pass an array, of one element if need be", kernel.span
        )


def _without_choices(body: Block, recording: Recording, kernel: Kernel, first_own: int) -> Block:
    """The body with iterations noted where a stack of choices would say the same."""
    noted = chosen(body, Names(replace(kernel, body=body)))
    return body if noted is body else simplify(prune(noted, private=list(recording.entry.values())), first_own)


def second_of(function: surface.Function, pattern: Pattern) -> Adjoint:
    """The adjoint with tangents beside everything, forward over reverse: it gives products with the Hessian. Parameters whose role ends
    in `_dot` are the tangents of the ones that they follow."""
    first = reverse_of(function, pattern)
    kernel = first.primal
    memory = {p.item: _element_type(p.item) for p in first.parameters if p.role in ("primal", "shadow", "entry", "working")}
    active = {p.item for p in first.parameters if p.item in memory and pattern.shadows[p.position] is not None}
    wide = replace(kernel, params=first.params, body=first.unlaid)
    names = Names(wide)
    first_own = names.uid()
    own = [p.item for p in first.parameters if p.item in active]
    dots = {item: names.buffer(f"{item.name}_dot", value_type(memory[item])) for item in own}
    body = forward(first.unlaid, activity(wide, dots), dots, names, suffix="_dot")
    entry = {**first.recording.entry, **{dots[b]: dots[c] for b, c in first.recording.entry.items() if c in dots}}
    body = reorder(simplify(prune(body, private=list(entry.values())), first_own))
    whole = replace(wide, params=(*wide.params, *dots.values()), body=body)
    layout = stack_layout(body, first.recording.primal, first.recording.entry, first.recording.stacks, first.logged, Names(whole))
    kept = [p for p in first.parameters if p.role not in ("base", "field", "overflow")]
    pairs = [q for p in kept for q in (p, *([Parameter(f"{p.role}_dot", p.position, dots[p.item])] if p.item in dots else []))]
    return replace(first, layout=layout, parameters=(*pairs, *stack_parameters(layout)), unlaid=body, name=f"{kernel.name}_reverse_forward")


def _element_type(item: Var | Buffer) -> Scalar:
    return item.element if isinstance(item, Buffer) else item.type


def tangent_of(function: surface.Function, pattern: Pattern, recorded: tuple[int, ...] = ()) -> Tangent:
    """The forward-mode kernel. `recorded`: the logs of an adjoint, by `Adjoint.log_numbers`, that it writes too, before its own."""
    kernel = prepared(function, pattern.aliases, loud=not recorded)  # the logs are numbered as in the adjoint's, which is quiet
    names = Names(kernel)
    first_own = names.uid()
    tangents = _shadows(kernel, pattern, names, "d")
    facts = activity(kernel, tangents, stopped=_stopped(kernel, pattern))
    _refuse_lost_bits(kernel, facts)
    leaks = escapes(kernel, facts)
    check_atomics(kernel, facts, forward=True)
    check_tangents(kernel, facts)
    rounding = exact(kernel)
    marked, marks = winners(kernel, facts, names)
    marked, kept = kept_of(marked, marks, tangents, names)
    marked, writes = logs_of(marked, marks, names) if recorded else (marked, {})
    chosen = {key: log for k, (key, log) in enumerate(writes.items()) if k in recorded}
    logs = [*chosen.values(), *(log for one in kept.values() for log in one.logs)]
    body = simplify(
        forward(written(marked.body, chosen), facts, tangents, names, escaped=frozenset(e.buffer for e in leaks), kept=kept), first_own
    )
    parameters = (*_primal_and_shadow(kernel, tangents, pattern), *(Parameter("log", i, log.buffer) for i, log in enumerate(logs)))
    params = tuple(p.item for p in parameters)
    result = Kernel(f"{kernel.name}_forward", params, body, kernel.span)
    verify(result)
    settle, settle_parameters = _settling(kernel, [k for k in kept.values() if k.logs], tangents, parameters, names)
    return Tangent(
        primal=marked,
        activity=facts,
        kernel=result,
        parameters=parameters,
        escapes=leaks,
        connected=connected(kernel, facts),
        exact=rounding,
        logs=tuple(log.buffer for log in logs),
        log_loops={log.buffer: log.loops for log in logs if log.loops},
        settle=settle,
        settle_parameters=settle_parameters,
    )


def _settling(
    kernel: Kernel, kept: list[Kept], tangents: Mapping[Var | Buffer, Buffer], parameters: tuple[Parameter, ...], names: Names
) -> tuple[Kernel | None, tuple[Parameter, ...]]:
    """The kernel that gives memory the tangents of the numbers that it has kept, and its parameters."""
    if not kept:
        return None, ()
    counts = [names.var("count", I64) for _ in kept]
    body = settling(kept, tangents, counts, names)
    touched = {getattr(s, "buffer", None) for s in walk_stmts(body)}
    first = {p.item: p.position for p in parameters if p.role == "log"}
    lengths = [Parameter("count", first[one.logs[0].buffer], count) for one, count in zip(kept, counts, strict=True)]
    used = (*(p for p in parameters if p.item in touched), *lengths)
    result = Kernel(f"{kernel.name}_settle", tuple(p.item for p in used), body, kernel.span)
    verify(result)
    return result, used


def _refuse_lost_bits(kernel: Kernel, facts: Activity) -> None:
    for stmt in truncations(kernel, facts):
        raise UnsupportedError(
            "a value that carries a gradient becomes an integer here without a cast; write the cast if that is meant: its derivative is 0. "
            "Or pass what it comes from without a shadow",
            stmt.span,
        )
    swaps = any(isinstance(s, Atomic) and s.op == "cas" for s in walk_stmts(kernel.body))
    hint = " (a loop around atomicCAS is understood where it is a function of an address and a value)" if swaps else ""
    shared = any(isinstance(s, Alloc) and s.buffer.space is Space.SHARED for s in walk_stmts(kernel.body))
    hint += "; to shared memory that holds integers beside floats let a pointer variable lead, `int* k = (int*)(s + n);`" if shared else ""
    for stmt in reinterpretations(kernel, facts):
        raise UnsupportedError(
            f"the bits of a value that carries a gradient are read here as an integer: a derivative cannot follow reinterpreted bits{hint}",
            stmt.span,
        )


# --- parameters ----------------------------------------------------------------------------------------------------------------------


def _shadows(kernel: Kernel, pattern: Pattern, names: Names, prefix: str) -> dict[Var | Buffer, Buffer]:
    """A shadow for each active parameter; parameters that overlap share that of their base."""
    return {
        p: names.buffer(f"{prefix}{p.name}", element)
        for position, (p, element) in enumerate(zip(kernel.params, pattern.shadows, strict=False))
        if element is not None and pattern.aliases.get(position) is None
    }


def _stopped(kernel: Kernel, pattern: Pattern) -> list[Buffer]:
    return [p for i, p in enumerate(kernel.params) if i in pattern.stopped and isinstance(p, Buffer)]


def _primal_and_shadow(kernel: Kernel, shadows: Mapping[Var | Buffer, Buffer], pattern: Pattern) -> tuple[Parameter, ...]:
    """Primal and shadow side by side, then the offsets of overlapping parameters."""
    out: list[Parameter] = []
    count = len(pattern.shadows)
    for position, item in enumerate(kernel.params):
        out.append(Parameter("primal" if position < count else "offset", _offset_position(pattern, position, count), item))
        if item in shadows and pattern.aliases.get(position) is None:
            out.append(Parameter("shadow", position, shadows[item]))
    return tuple(out)


def _offset_position(pattern: Pattern, position: int, count: int) -> int:
    """An offset parameter is numbered by the overlapping parameter that it belongs to."""
    if position < count:
        return position
    shifted = [o.position for o in pattern.aliases.overlaps if not o.equal]
    return shifted[position - count]


def _parameters(
    kernel: Kernel, pattern: Pattern, shadows: Mapping[Var | Buffer, Buffer], recording: Recording, layout: Layout, logs: tuple[Buffer, ...]
) -> tuple[Parameter, ...]:
    positions = {item: i for i, item in enumerate(kernel.params) if pattern.aliases.get(i) is None}
    entries = [Parameter("working" if b in recording.working else "entry", positions[b], copy) for b, copy in recording.entry.items()]
    recorded = [Parameter("log", i, log) for i, log in enumerate(logs)]
    return (*_primal_and_shadow(kernel, shadows, pattern), *entries, *recorded, *stack_parameters(layout))


def _partial_parameters(numbers: Partials | None) -> tuple[Parameter, ...]:
    """The arrays that threads keep numbers in, and how many threads there are."""
    if numbers is None:
        return ()
    arrays = (Parameter("partial", k, array) for k, array in enumerate(numbers.buffers))
    return (*arrays, *(Parameter("threads", k, v) for k, v in enumerate(numbers.threads)))


def stack_parameters(layout: Layout) -> tuple[Parameter, ...]:
    """Scratch memory for the stacks that do not lie in local arrays, and the flag that says that one overflowed."""
    found: list[Parameter] = []
    for number, scratch in enumerate(layout.scratch):
        found += [Parameter("base", number, scratch.base), *(Parameter("field", number, f) for f in scratch.fields)]
    return (*found, Parameter("overflow", 0, layout.overflow)) if layout.overflow else tuple(found)


# --- what the primal writes down ----------------------------------------------------------------------------------------------------------


def _read_logs(layout: Layout, logs: Mapping[int, Log]) -> dict[int, Log]:
    read = {s.buffer for s in walk_stmts((*layout.body, *layout.counting)) if isinstance(s, Load)}
    return {key: log for key, log in logs.items() if log.buffer in read}


# --- exactness --------------------------------------------------------------------------------------------------------------------------


def exact(kernel: Kernel) -> bool:
    """Whether something is decided by floating-point values, so that primal and reverse must round alike (no contraction, RULES 12)."""
    return any(_decides(e) for s in walk_stmts(kernel.body) for top in expressions(s) for e in walk(top))


def _decides(expr: Expr) -> bool:
    """Whether the expression is a bool or an integer that is made of a float."""
    return not expr.type.is_float and any(c.type.is_float for c in children(expr))

"""Kernels as users hold them, and what has been derived from each.

A `Kernel` keeps what has been derived from its source: primals by pattern of overlap, adjoints by pattern of activity. Calls differ in
their numbers only, and those decide between a few prepared variants.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np

from .. import pipeline
from ..analysis.moving_numbers import Moves, moving_numbers, numbers_as_values
from ..analysis.races import sure_extents, sure_reads
from ..arguments import activities, bind, check_count, check_form, check_launch, geometry, split_options
from ..arguments.annotations import Active, BatchDuplicated, Const, Duplicated
from ..arguments.conversions import is_null
from ..arguments.recorder import current as recording
from ..errors import ArgumentTypeError, GpuadError, LaunchError, ShadowError, UnsupportedError
from ..ir.aliases import NONE, Aliases, nulls
from ..ir.nodes import Accumulate, Atomic, Store
from ..ir.nodes import Kernel as IrKernel
from ..ir.printer import expr_text
from ..ir.records import is_record, numbers, split_parameter, tangent_parameter
from ..ir.rewrite import walk_stmts
from ..ir.surface import Declaration, Function, Global, uses_dynamic
from ..ir.types import Pointer, Scalar, value_type
from ..memo import specialized
from ..optimize.decided_conditions import conditions, outcomes
from ..pipeline import Call, executor_of
from ..pipeline.derived_kernels import Adjoint, Tangent
from ..pipeline.passes import primal_of, reverse_of, second_of, tangent_of
from ..pipeline.pattern import Pattern
from ..progress import doing
from ..public_calls import fits, how_called, public
from ..recursion_limit import room
from ..runtime.array_types import Extents, NdArray
from ..source import SourceFile
from .adjoint_text import AdjointText, adjoint_text
from .argument_flattening import FlatArguments, Flattening, ModuleMemory, library_of, on_stream
from .call_replay import CallKey, Launch, Past, call_key, note, plain, replay_call
from .kept_kernels import Kept, of_function, of_text
from .moved_arguments import moved_arguments, moving_values
from .specialization_key import Ready, ready, rounding, specialization_key
from .varying_numbers import VaryingNumbers


class Planned(NamedTuple):
    """A call in full: one kernel, its geometry, its arguments."""

    kernel: Kernel
    grid: Any
    block: Any
    args: Sequence[Any]
    shared_mem: int = 0
    stream: Any = None


class Family:
    """What is called like one kernel and becomes one by the types of its arguments. `name`: for messages."""

    name: str
    in_parts = False  # a call is several launches

    def planned(self, *call: Any, **keywords: Any) -> Planned | None:
        """The kernel and the launch that a call means, outputs included; None if there is nothing to do. Raises as the call would."""
        raise NotImplementedError

    def words(self, what: str, *call: Any, **keywords: Any) -> CallKey | None:
        """A call, and what is to be done with it, as an earlier one is looked up by; None if none is. Raises as the call would."""
        return None

    def launches(self, *call: Any, **keywords: Any) -> Iterator[Planned]:
        """The launches of a call, in order."""
        plan = self.planned(*call, **keywords)
        return iter(() if plan is None else (plan,))

    def in_parts_of(self, *call: Any, **keywords: Any) -> tuple[Any, Planned]:
        """The kernel with `grid.sync()` that a call is one of, and the call as that of it (whose `kernel` is the kernel as it stands)."""
        raise NotImplementedError

    def directions(self, given: Sequence[Any], chosen: Any) -> list[Any]:
        """Tangents of a call's arguments as those of the launch of the kernel that it becomes."""
        return list(given)

    def annotated(self, chosen: Kernel, positional: Sequence[Any], by_name: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Annotations of the parameters as those of the kernel that a call becomes."""
        return positional, by_name


class TextKernel(Family):
    """Of CUDA text, and called by grid and block."""

    file: SourceFile

    @property
    def parameters(self) -> tuple[Declaration, ...]:
        """Declarations of the parameters, in order of the call."""
        raise NotImplementedError

    @property
    def source(self) -> str:
        """The CUDA text."""
        return self.file.text

    def __call__(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Launches it."""
        raise NotImplementedError

    def __getitem__(self, geometry: Any) -> BoundLaunch:
        """`kernel[grid, block](*args)`."""
        return bound_launch(self, geometry)

    def adjoint(self, /, *annotations: Any, **keywords: Any) -> AdjointText:
        """The reverse kernel before any launch."""
        raise NotImplementedError

    def get_global(self, name: str) -> Any:
        """A variable of the module that the kernel reaches."""
        raise NotImplementedError

    def with_shadow(self, name: str, shadow: NdArray) -> TextKernel:
        """The kernel with a shadow for a variable of its module."""
        raise NotImplementedError


class Kernel(TextKernel):
    """A CUDA kernel of which a call is one launch: what is known of it, and what has been derived."""

    _inside: frozenset[str] = frozenset()  # parameters through which it stays inside of the view by construction
    _strided = False  # it is told the strides of its arrays

    def __init__(
        self,
        file: SourceFile,
        name: str,
        options: Sequence[str] = (),
        raw: Any = None,
        module: ModuleMemory | None = None,
        kept: Kept | None = None,
    ) -> None:
        self.file = file
        self.options = tuple(options)
        self.raw = raw
        self.module = module or ModuleMemory(raw)
        self.shadows: dict[str, Any] = {}  # of variables of the module
        self._kept = kept or self._recalled(name)
        self.function: Function = self._kept.function
        self.name = self.function.name
        self.room = partial(room, self.name, self.function.span)
        self.specializations = self._kept.specializations
        self._suited: dict[tuple[int | None, frozenset[str]], Kernel] = {}
        self._ready: dict[Hashable, Ready] = {}
        self._first_numbers: dict[int, int] | None = None  # those that move arrays, in the first call
        self._alike: dict[Hashable, Ready] = {}  # but for whole numbers
        self._again: Past = {}
        self._varying = VaryingNumbers()
        self.facts = self._kept.facts
        with self.room():
            asked = nulls(self.function).asked
            self._optional = tuple((i, d.name) for i, d in enumerate(self.parameters) if d in asked)
            self.written = _written_names(self.primal())
            self._dynamic = uses_dynamic(self.function)
        self._varies = self._dynamic or bool(self._optional)

    def _recalled(self, name: str) -> Kept:
        """What is known of it."""
        return of_text(self._kind, self.file, name, self.options)

    @property
    def _kind(self) -> str:
        """What facts depend on beside the text."""
        return f"{type(self).__qualname__} {sorted(self._inside)} {self._strided}"

    def __repr__(self) -> str:
        return f"<gpuad kernel {self.name} of {self.file.where}>"

    @property
    def parameters(self) -> tuple[Declaration, ...]:
        """Declarations of the parameters, in order."""
        return self.declared[: len(self.declared) - len(self.function.globals)]

    @property
    def declared(self) -> tuple[Declaration, ...]:
        """The parameters, followed by pointers to the variables of the module that the kernel reaches."""
        return self.function.parameters

    def get_global(self, name: str) -> Any:
        """A variable of the module that the kernel reaches, as an array on its memory. Raises LaunchError for any other name."""
        return self.module.get(self.name, global_of(self.function, self.name, name))

    def with_shadow(self, name: str, shadow: NdArray) -> Self:
        """The kernel, of this module, with a shadow for one of its variables."""
        other = copy.copy(self)
        other.shadows = {**self.shadows, global_of(self.function, self.name, name).pointer.name: shadow}
        other._suited = {}
        return other

    @cached_property
    def records(self) -> tuple[int, ...]:
        """Positions of the parameters that are vectors, complex numbers or structs by value."""
        return tuple(i for i, d in enumerate(self.parameters) if is_record(d.type))

    @cached_property
    def leaves(self) -> tuple[Declaration, ...]:
        """The parameters with records by value split into their numbers, and pointers to structs into one for each type of number."""
        return tuple(leaf for d in self.declared for leaf in split_parameter(d))

    @property
    def flat(self) -> tuple[Declaration, ...]:
        """What `FlatArguments` are: the parameters with records by value split into their numbers, followed by pointers to the variables
        of the module."""
        return self._completing.declared

    @property
    def optional(self) -> tuple[str, ...]:
        """The parameters that it compares with null, which may be None."""
        return tuple(name for _, name in self._optional)

    def leaf_shadow_types(self, kinds: Sequence[str]) -> tuple[Scalar | None, ...]:
        """For each of the `leaves` the type of its shadow, by its kind."""
        return tuple(_element(d) if kind in SHADOWED else None for d, kind in zip(self.leaves, kinds, strict=True))

    def shadow_types(self, kinds: Sequence[str]) -> tuple[Scalar | None, ...]:
        """For each of the `leaves` the type of its shadow, by the kinds of the parameters."""
        own = [kind for d, kind in zip(self.declared, kinds, strict=True) for _ in split_parameter(d)]
        return self.leaf_shadow_types(own)

    def __call__(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Launches the kernel as it is; inside of a tape it is recorded."""
        recorder = recording.get()
        if recorder is not None:
            check_launch(self.name, shared_mem, stream)
            check_form(self.name, args)
            if not (plain(grid) and plain(block)):
                grid, block = geometry(grid, block)
            own = self.suited(args, shared_mem) if self._varies else self
            recorder.launch(own, grid, block, own.whole(args), shared_mem, stream)
            return
        said = self.words("launch", grid, block, args, shared_mem=shared_mem, stream=stream)
        if said is None or not replay_call(said):
            self.launch(Planned(self, grid, block, args, shared_mem, stream), said)

    def words(
        self, what: str, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None
    ) -> CallKey | None:
        """A call by its arguments."""
        own = self.suited(args, shared_mem) if self._varies else self
        return call_key(own._again, what, own.whole(args), grid, block, shared_mem) if stream is None else None

    def launch(self, plan: Planned, said: CallKey | None = None) -> None:
        """Makes or records a launch that is not known, or not by the words of the call that meant it."""
        own, recorder = self.suited(plan.args, plan.shared_mem), recording.get()
        plan = own.completed(plan)
        if recorder is not None:
            recorder.launch(own, plan.grid, plan.block, plan.args, plan.shared_mem, plan.stream)
        elif plan.stream is None:
            own._launched(plan, said)
        else:
            with on_stream(plan.stream, plan.args):
                own._launched(plan, said)

    def _launched(self, plan: Planned, said: CallKey | None) -> None:
        """Makes a launch on the current stream, which is that of the call."""
        _, grid, block, args, shared_mem, stream = plan
        known = self.known(specialization_key(grid, block, args, shared_mem))
        made = known.launch(self.primal(Aliases(absent=known.absent)), args) if known is not None else None
        if known is not None and made is not None:
            note(said, args, (), executor_of(known.library), known.makes, lambda: [made])
            return
        with self.room():
            call = self.bind(grid, block, args, shared_mem, stream)
            primal = self.primal(call.aliases())
            pipeline.run_primal(primal, None, call)
            self.note_call(said, args, call, (), lambda: [primal_launch(primal, call)])

    def note_call(
        self, said: CallKey | None, args: Sequence[Any], call: Call, switches: tuple[bool, ...],
        launches: Callable[[], Sequence[Launch] | None],
    ) -> None:  # fmt: skip
        """Keeps a call that was bound for calls in the same words; not one whose arguments are not whole."""
        if type(args) is FlatArguments or not self._completing.needed:
            makes = [rounding(a) for a in call.bound.arguments]
            note(said, args, switches, call.executor, makes, launches, self.origins)

    def known(self, like: Hashable) -> Ready | None:
        """What was bound for an earlier call that this one is like."""
        return self._ready.get(like)

    def whole(self, args: Sequence[Any]) -> Sequence[Any]:
        """A call's arguments as the kernel takes them, if they are not that."""
        if not self._completing.needed or type(args) is FlatArguments:
            return args
        return self._completing.whole(args, self.module.arrays, self.shadows)

    def completed(self, plan: Planned) -> Planned:
        """A call of this kernel with such arguments."""
        return plan._replace(args=self.whole(plan.args)) if self._completing.needed else plan

    def whole_directions(self, directions: Sequence[Any]) -> FlatArguments:
        """Tangents of a call's arguments as those of the same call when it is whole."""
        return self._completing.directions(directions)

    @property
    def composed(self) -> bool:
        """True if a call's arguments are not the kernel's own."""
        return self._completing.needed or self._completing.halves

    @property
    def origins(self) -> Sequence[int]:
        """For each argument that is bound, which one of a whole call it comes from."""
        return self._completing.origins

    @cached_property
    def _completing(self) -> Flattening:
        return Flattening(self.name, self.parameters, self.function.globals)

    def suited(self, args: Sequence[Any] | None, shared_mem: int) -> Kernel:
        """The kernel for launches with so many bytes of dynamic shared memory, whose arrays then have a length, and without arrays where
        `args` has None, or 0, for one that the kernel compares with null; itself if it is that already. Raises LaunchError where it uses
        dynamic shared memory and gets none."""
        if not self._varies:
            return self
        if self._dynamic:
            check_launch(self.name, shared_mem, None)
            if shared_mem == 0:
                raise LaunchError(f"`{self.name}` uses dynamic shared memory: pass its bytes as shared_mem=")
        key = shared_mem if self._dynamic else None, self._absent(args)
        if key == (self.function.dynamic, self.function.absent):
            return self
        if key not in self._suited:
            own = copy.copy(self)
            own.function = replace(self.function, dynamic=key[0], absent=key[1])
            own.specializations, own.facts = self._kept.part(key)
            own._suited, own._ready, own._alike, own._again, own._varying = {}, {}, {}, {}, VaryingNumbers()
            own._first_numbers = None
            self._suited.setdefault(key, own)
        return self._suited[key]

    def _absent(self, args: Sequence[Any] | None) -> frozenset[str]:
        """The parameters compared with null for which a call has no array."""
        if not isinstance(args, tuple | list):
            return frozenset()
        return frozenset(name for i, name in self._optional if i < len(args) and is_null(getattr(args[i], "primal", args[i])))

    def _given(self) -> set[str]:
        """Those for which it must have one."""
        return {name for _, name in self._optional} - self.function.absent

    def planned(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> Planned:
        """The call as it is."""
        return Planned(self, grid, block, args, shared_mem, stream)

    def adjoint(
        self, /, *annotations: Any, grid: Any = None, block: Any = None, args: Any = None, shared_mem: int = 0, **by_name: Any
    ) -> AdjointText:
        """The reverse kernel for every launch, or for this one, as `gpuad.Kernel.adjoint` gives it."""
        options = {"grid": grid, "block": block, "args": args, "shared_mem": shared_mem}
        positional, named, launch = split_options(annotations, by_name, options)
        kinds = self.activities(positional, named)
        with self.room():
            own = self.suited(launch["args"], launch["shared_mem"] or 0)
            return adjoint_text(own.function, *own.derived(kinds, launch["grid"], launch["block"], launch["args"]))

    def derived(self, kinds: Sequence[str], grid: Any, block: Any, args: Any) -> tuple[Adjoint, Call | None]:
        """The adjoint for arguments of such kinds, and the call that it is for; without `args` that which holds for every call."""
        if args is None:
            return self._for_every_call(Pattern(self.shadow_types(kinds), optimistic=False, distances=False)), None
        check_count(self.name, self.parameters, args)
        call = self.bind(grid, block, annotated(args, kinds), 0, None, kinds)
        return self.reverse_for(pattern_of(self, call), call), call

    def _for_every_call(self, pattern: Pattern) -> Adjoint:
        try:
            return self.reverse(pattern)
        except UnsupportedError as error:
            deciding = ", ".join(f"`{expr_text(e)}`" for e in conditions(self.primal(pattern.aliases)))
            if not deciding:
                raise
            more = f"; it may be supported for what {deciding} is in a launch: pass grid=, block= and args="
            raise UnsupportedError(error.message + more, error.span) from None

    # --- what is derived, kept by pattern ----------------------------------------------------------------------------------------

    @specialized
    def primal(self, aliases: Aliases = NONE) -> IrKernel:
        """The kernel as IR."""
        return primal_of(self.function, aliases)

    @specialized
    def reverse(self, pattern: Pattern) -> Adjoint:
        """The adjoint for a pattern of activity and overlap."""
        with doing(f"deriving the adjoint of `{self.name}`"):
            return reverse_of(self.function, pattern)

    def reverse_for(self, pattern: Pattern, call: Call) -> Adjoint:
        """The adjoint whose premises hold in this launch. Raises LaunchError if it would surely leave a shadow."""
        pattern = self.decided(pattern, call)
        adjoint = self.reverse(pattern)
        if adjoint.recording.distances and not pipeline.premises_hold(adjoint, call):
            adjoint = self.reverse(replace(pattern, distances=False))
        adjoint = adjoint if pipeline.premises_hold(adjoint, call) else self.reverse(replace(pattern, optimistic=False, distances=False))
        pipeline.check_adjoint_bounds(adjoint, call)
        return adjoint

    def decided(self, pattern: Pattern, call: Call) -> Pattern:
        """The pattern, with what this launch's whole numbers decide where there is no adjoint for all of them."""
        if self._has_adjoint(pattern):
            return pattern
        plain = self.primal(pattern.aliases)
        known = replace(pattern, decided=outcomes(plain, call.numbers(plain).scalars))
        return known if self._has_adjoint(known) else pattern

    @specialized
    def _has_adjoint(self, pattern: Pattern) -> bool:
        try:
            self.reverse(pattern)
        except UnsupportedError:
            return False
        return True

    @specialized
    def tangent(self, pattern: Pattern, recorded: tuple[int, ...] = ()) -> Tangent:
        """The forward-mode kernel for a pattern. `recorded`: what it writes down for an adjoint."""
        with doing(f"deriving the tangent of `{self.name}`"):
            return tangent_of(self.function, pattern, recorded)

    @specialized
    def second(self, pattern: Pattern) -> Adjoint:
        """The adjoint with tangents, for a pattern."""
        with doing(f"deriving the second derivative of `{self.name}`"):
            return second_of(self.function, replace(pattern, optimistic=False, distances=False))

    def activities(self, positional: Sequence[Any], by_name: Mapping[str, Any]) -> tuple[str, ...]:
        """The kind of each parameter, from annotations, the module's variables included."""
        return activities(self.name, self.declared, positional, {**dict.fromkeys(self.shadows, Duplicated), **by_name})

    def _complete(self, args: Sequence[Any], kinds: Sequence[str]) -> Sequence[Any]:
        """The arguments, followed by the variables of the module."""
        check_count(self.name, self.parameters, args)
        library = library_of(args)
        made = []
        for variable, kind in zip(self.function.globals, kinds[len(args) :] or ["bare"] * len(self.function.globals), strict=True):
            name = variable.pointer.name
            array = self.module.for_launch(self.name, variable, name in self.written, library)
            made.append(Duplicated(array, self.shadows[name]) if name in self.shadows else _annotated(array, kind))
        return [*args, *made]

    def bind(
        self,
        grid: Extents,
        block: Extents,
        args: Sequence[Any],
        shared_mem: int,
        stream: Any,
        kinds: Sequence[str] = (),
        tangents: Collection[int] = (),
    ) -> Call:
        """Binds and checks a call, unless it is like an earlier one. `tangents`: where tangents are passed, of halves as float32."""
        like = self._like(grid, block, args, shared_mem) if not tangents else None
        known = self._ready.get(like)
        call = known.call(args, stream, self._varying.of(known.frame)) if known is not None else None
        if call is not None:
            return call
        apart = specialization_key(grid, block, args, shared_mem, False) if like is not None and known is None else None
        made, call = self._renumbered(self._alike.get(apart), args, stream)
        if call is None:
            call = self._bound(grid, block, args, shared_mem, stream, kinds, tangents)
            call = call.but(varying=self._varying.including(call))
            made = ready(call, args) if apart is not None else None
        if made is not None:
            for known_calls, key in ((self._ready, like), (self._alike, apart)):
                if len(known_calls) >= _MANY:
                    known_calls.clear()
                known_calls[key] = made
            call = call.but(shared=made.shared)
        return call

    def _like(self, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int) -> Hashable:
        """The specialization key of a call; None for one that is not whole."""
        whole = type(args) is FlatArguments or not self._completing.needed
        return specialization_key(grid, block, args, shared_mem) if whole else None

    def recalled(self, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> Call | None:
        """Gives what `bind_moved` does for a call that is like an earlier one; None for others."""
        moved = self._moved(args)
        args = args if moved is None else moved
        known = self._ready.get(self._like(grid, block, args, shared_mem))
        return known.call(args, stream, self._varying.of(known.frame)) if known is not None else None

    def _renumbered(self, model: Ready | None, args: Sequence[Any], stream: Any) -> tuple[Ready | None, Call | None]:
        """A call that is like an earlier one but for its whole numbers, which is checked as a new one; None if it has to be bound."""
        made = model.renumbered(args) if model is not None else None
        call = made.call(args, stream, self._varying.of(made.frame)) if made is not None else None
        if made is None or call is None:
            return None, None
        call = call.but(varying=self._varying.including(call))
        plain = self.primal()
        if self._loose(call, self._inside_of(plain, call)) != call.loose or self._absent_in(plain, call) != call.absent:
            return None, None
        self._check(plain, call)
        return replace(made, key=call.key), call

    def bind_moved(self, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> Call:
        """As `bind`; a call whose numbers move arrays elsewhere than those of the first call is bound with views that begin there: what
        was found out about one such call holds for all. If that is refused, the errors are those of the call as it is."""
        moved = self._moved(args)
        if moved is not None:
            with suppress(GpuadError):
                return self.bind(grid, block, moved, shared_mem, stream)
        return self.bind(grid, block, args, shared_mem, stream)

    @specialized
    def _moves(self) -> Moves:
        """The numbers that only move arrays."""
        return moving_numbers(self.primal())

    @specialized
    def _values(self) -> frozenset[int]:
        """The whole numbers that only become floating-point values."""
        return numbers_as_values(self.primal())

    def _moved(self, args: Sequence[Any]) -> Sequence[Any] | None:
        """The arguments with moved arrays; None for numbers like those of the first call, which keeps its own."""
        if type(args) is FlatArguments or len(self.leaves) != len(args):
            return None
        moves = self._moves()
        values = moving_values(moves, args) if moves.arrays else None
        if self._first_numbers is None:
            self._first_numbers = values
        if values is None or values == self._first_numbers:
            return None
        return moved_arguments(moves, args, values)

    def _bound(
        self,
        grid: Extents,
        block: Extents,
        args: Sequence[Any],
        shared_mem: int,
        stream: Any,
        kinds: Sequence[str],
        tangents: Collection[int],
    ) -> Call:
        """Binds a call that is new: once to have numbers, and with what these prove about the kernel's reach once more."""
        check_launch(self.name, shared_mem, stream)
        numbering, geo = None, geometry(grid, block)
        declared = self.declared
        if type(args) is FlatArguments:
            declared, numbering = self._completing.declared, self._completing.numbering
        elif self.function.globals:
            args = self._complete(args, kinds)
        declared = tuple(tangent_parameter(d) if i in tangents else d for i, d in enumerate(declared)) if tangents else declared
        plain = self.primal()
        written = self.written
        leaves = self.leaves
        binds = partial(bind, self.name, declared, args, written=written, strided=self._strided, numbering=numbering)
        first = binds(inside=[d.name for d in leaves], given=self._given())
        values = self._values()
        call = Call(first, *geo, values=values)
        varying = self._varying.including(call)
        call = replace(call, varying=varying)
        inside = self._inside_of(plain, call)
        loose = self._loose(call, inside)
        bound = binds(inside=inside) if loose else first
        call = Call(bound, *geo, 0 if self._dynamic else shared_mem, stream, loose, values=values, varying=varying)
        call = replace(call, absent=self._absent_in(plain, call))
        self._check(plain, call)
        return call

    def _inside_of(self, plain: IrKernel, call: Call) -> frozenset[str]:
        """Names of the parameters through which a launch stays inside of the views."""
        found = call.fact(self.facts, ("inside",), plain, partial(pipeline.stays_inside, plain, call))
        return self._inside | found

    def _loose(self, call: Call, inside: frozenset[str]) -> frozenset[int]:
        """Positions of the other ones."""
        arguments = call.bound.arguments
        return frozenset(i for i, d in enumerate(self.leaves) if d.name not in inside and arguments[i].memory is not None)

    def _absent_in(self, plain: IrKernel, call: Call) -> frozenset[int]:
        """Positions of the parameters without an array to which a launch may come."""
        return call.fact(self.facts, ("absent",), plain, partial(pipeline.absent, plain, call))

    def _check(self, plain: IrKernel, call: Call) -> None:
        """Refuses a launch that leaves its memory."""
        pipeline.check_device(call)
        pipeline.check_bounds(plain, call, call.fact(self.facts, ("extents",), plain, partial(sure_extents, plain)))
        pipeline.check_reads(plain, call, call.fact(self.facts, ("reads",), plain, partial(sure_reads, plain)))


class OfFunction(Kernel):
    """A kernel whose tree is there already: what a call has expanded, or a part of a kernel."""

    def __init__(self, function: Function, *where: Any) -> None:
        self._function = function
        super().__init__(*where)

    def _recalled(self, name: str) -> Kept:
        return of_function(self._kind, self._function)


class Held:
    """The object that users hold of a family of kernels: its names are those of the interface."""

    __slots__ = ("__weakref__", "_family")

    def __init__(self, family: Family) -> None:
        self._family = family

    def __repr__(self) -> str:
        return repr(self._family)


def inside(kernel: Any) -> Any:
    """The family of what users hold; anything else as it is."""
    return kernel._family if isinstance(kernel, Held) else kernel


@dataclass(frozen=True)
class BoundLaunch:
    """`kernel[grid, block]`, to be called with the arguments."""

    kernel: Kernel | Callable[..., None]
    grid: Any
    block: Any

    @public
    def __call__(self, *args: Any, shared_mem: int = 0, stream: Any = None) -> None:
        self.kernel(self.grid, self.block, args, shared_mem=shared_mem, stream=stream)


def bound_launch(kernel: Any, geometry: Any) -> BoundLaunch:
    """`kernel[grid, block]`. LaunchError for another index."""
    if not isinstance(geometry, tuple) or len(geometry) != 2:
        raise LaunchError(f"`{kernel.name}`: write kernel[grid, block](*args), with shared_mem=bytes as a keyword if it needs any")
    return BoundLaunch(kernel, *geometry)


def refuse_call(family: Family, error: TypeError, call: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Raises ArgumentTypeError where a call does not fit the form that kernels of this kind are called in; gives nothing for an error of
    another kind."""
    if not fits(type(family).__call__, (family, *call), keywords):
        what = str(error).partition("() ")[2]
        tuple_ = "; the arguments come as one tuple, (x, n)" if isinstance(family, TextKernel) else ""
        raise ArgumentTypeError(f"`{family.name}`: the call {what}. {how_called(type(family).__call__)[:-1]}{tuple_}.") from None


def primal_launch(kernel: IrKernel, call: Call) -> Launch:
    """The launch of a call's primal, prepared."""
    own = call.bound.primals()
    args = [*own, *call.offset_values()]
    return Launch(call.executor.prepared(kernel, call.grid, call.block, args, shared_mem=call.shared_mem), range(len(own)))


_MANY = 256  # launches that are remembered as ready
SHADOWED = ("duplicated", "noneed", "batch", "active")


def annotated(args: Sequence[Any], kinds: Sequence[str]) -> list[Any]:
    """A call's arguments, with shadows where their kinds say so and they have none."""
    return [_annotated(a, kind) for a, kind in zip(args, kinds, strict=False)]


def _annotated(arg: Any, kind: str) -> Any:
    """A bare argument as its annotation by name says."""
    if kind not in SHADOWED or isinstance(arg, Duplicated | BatchDuplicated | Active | Const):
        return arg
    return Active(arg, np.zeros((), np.float64)) if kind == "active" else Duplicated(arg)


def global_of(function: Function, kernel: str, name: str) -> Global:
    """The variable of the module that a kernel's function calls `name`; LaunchError if it reaches none."""
    known = function.globals
    found = [g for g in known if g.name == name] or [g for g in known if g.name.rpartition("::")[2] == name]
    if not found:
        raise LaunchError(f"`{kernel}` reaches no variable `{name}`; of its module it reaches {_listed(g.name for g in known)}.")
    return found[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _element(declaration: Declaration) -> Scalar | None:
    type_ = declaration.type.element if isinstance(declaration.type, Pointer) else declaration.type
    return next((value_type(number) for number in numbers(type_) if number.is_float), None)


def _written_names(kernel: IrKernel) -> list[str]:
    written = {s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Store | Accumulate | Atomic)}
    return [b.name for b in kernel.buffers if b in written]


def pattern_of(chosen: Kernel, call: Call) -> Pattern:
    active = pipeline.active_positions(call)
    stopped = frozenset(i for i, a in enumerate(call.bound.arguments) if a.kind == "stopped")
    shadows = [pipeline.shadow_type(active[i]) if i in active else None for i in range(len(call.bound.arguments))]
    pipeline.check_stopped(call)
    if not active:
        raise ShadowError(f"`{chosen.name}`: no argument is active; pass Duplicated(array, shadow) or Active(number, shadow)")
    return Pattern(tuple(shadows), call.aliases(), stopped, pipeline.analysing())

"""`autodiff_thunk`: the split pair of an augmented forward and its reverse.

In: a kernel and the activity of its parameters. Out: two functions. The first runs the kernel and keeps what the second reads and the
caller could overwrite (`Saved`, used once); the second accumulates into shadows, which may be others each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from .. import pipeline
from ..arguments import split_options
from ..errors import ArgumentTypeError, GpuadError, LaunchError, ShadowError
from ..ir.aliases import Aliases
from ..ir.nodes import Kernel as IrKernel
from ..ir.records import split_parameter
from ..ir.surface import Function
from ..ir.types import Scalar
from ..pipeline import Call, State
from ..pipeline.derived_kernels import Adjoint
from ..pipeline.pattern import Pattern
from ..public_calls import flag, public, show, texts
from ..runtime.array_types import Extents
from ..runtime.base import Memory
from .argument_flattening import on_stream
from .dropped_gradients import dropped, kept_seeds, outside_of_tapes, refuse_unseeded, unseeded
from .kernels import SHADOWED, Family, Kernel, Planned, pattern_of, refuse_call
from .launch_plan import exactly, once
from .making import kernel


@dataclass(eq=False)
class Saved:
    """What one augmented forward has saved for its reverse. Used once."""

    _function: Function
    _adjoint: Adjoint
    _state: State
    _call: Call
    _marks: dict[str, int]
    _used: bool = False

    def __repr__(self) -> str:
        return f"<what {self._function.name} saved, {self.nbytes} bytes{', used' if self._used else ''}>"

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        state = self._state
        copies = (*state.entries.values(), *state.logs, *(state.primals[i] for i in state.owned))
        return sum(int(m.root.nbytes) for m in copies if isinstance(m, Memory))


@public
def autodiff_thunk(
    k: Any, /, *annotations: Any, not_overwritten: Sequence[str] = (), **by_name: Any
) -> tuple[Callable[..., Saved], Callable[..., None]]:
    """The split pair `(augmented, reverse)` of a kernel `k`, for fixed activities: `annotations` by position, `by_name` by parameter name,
    or one mapping from names (classes or instances; the rest is Const).

    `saved = augmented(grid, block, args)` runs the kernel and keeps every value that the reverse will read and the caller could
    overwrite, but those of the parameters in `not_overwritten`; arguments may be bare. `reverse(grid, block, args, saved)` accumulates
    into the shadows of `args`; each `saved` serves once. Where no shadow holds a seed it says so, as `autodiff` does, or takes
    `allow_unused=True`.

        augmented, reverse = gpuad.autodiff_thunk(square, x=Duplicated)
        saved = augmented(grid, block, (x, n))
        reverse(grid, block, (Duplicated(x, dx), n), saved)
    """
    family: Family = kernel(k)
    positional, named, options = split_options(annotations, by_name, {"not_overwritten": not_overwritten})
    left = () if options["not_overwritten"] is None else texts("not_overwritten", options["not_overwritten"])
    if not isinstance(family, Kernel):
        return _thunk_of_family(family, positional, left, named)
    pair = _Pair(family, family.activities(positional, named), frozenset(left))
    return pair.augmented, pair.reverse


class _Pair:
    """The two halves for one kernel; `kinds`: the activity of each parameter."""

    def __init__(self, whole: Kernel, kinds: Sequence[str], not_overwritten: frozenset[str]) -> None:
        unknown = not_overwritten - {d.name for d in whole.declared}
        if unknown:
            raise LaunchError(f"`{whole.name}` has no parameter `{min(unknown)}`")
        self.whole, self.kinds, self.not_overwritten = whole, kinds, not_overwritten
        self.shadows = whole.shadow_types(kinds)

    @public
    def augmented(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> Saved:
        """Runs the kernel and keeps what the reverse will need."""
        outside_of_tapes(self.whole.name, "a split pair")
        with self.whole.room(), on_stream(stream, args):
            return self._augmented(self.whole.suited(args, shared_mem), grid, block, args, shared_mem, stream)

    def _augmented(self, chosen: Kernel, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> Saved:
        call = chosen.bind(grid, block, args, shared_mem, stream)
        adjoint, primal = once(call, ("augmented", self.kinds), lambda: self._forward(chosen, call))
        call = exactly(call, adjoint.exact)
        pipeline.check_stores(adjoint, call)
        state = pipeline.before(adjoint, call)
        pipeline.run_primal(primal, adjoint, call, state)
        marks = pipeline.keep_live(adjoint, call, state, self.not_overwritten)
        return Saved(chosen.function, adjoint, state, call, marks)

    def _forward(self, chosen: Kernel, call: Call) -> tuple[Adjoint, IrKernel]:
        """The adjoint of a forward pass and its primal, compiled."""
        aliases = call.aliases()
        classes = tuple(None if aliases.get(i) else _class_shadow(self.shadows, aliases, i) for i in range(len(self.shadows)))
        adjoint = chosen.reverse_for(Pattern(classes, aliases, analyse=pipeline.analysing()), call)
        check_flow_bare(chosen, adjoint, self.kinds, adjoint.connected)
        primal = chosen.primal(aliases)
        exactly(call, adjoint.exact).prepare([adjoint.augmented or primal, pipeline.counting(adjoint, call)])
        return adjoint, primal

    @public
    def reverse(
        self, grid: Extents, block: Extents, args: Sequence[Any], saved: Saved, *, shared_mem: int = 0, stream: Any = None,
        allow_unused: bool = False,
    ) -> None:  # fmt: skip
        """Accumulates into the shadows of `args`."""
        flag("allow_unused", allow_unused)
        if not isinstance(saved, Saved):
            raise ArgumentTypeError(f"`{self.whole.name}`: `saved` is what `augmented` gave, not {show(saved)}. No shadow was touched.")
        if saved._used:
            raise GpuadError(f"`{self.whole.name}`: a saved state serves one reverse; run the augmented forward again")
        with self.whole.room(), on_stream(stream, args):
            chosen = self.whole.suited(args, shared_mem)
            call = chosen.bind(grid, block, args, shared_mem, stream)
            self._check_shadows(call)
            if saved._function is not chosen.function:
                raise LaunchError(f"`{self.whole.name}`: the saved state is that of another kernel. No shadow was touched.")
            was = saved._adjoint.pattern
            taken = was.optimistic, was.distances, was.decided
            pattern, adjoint, stages = once(call, ("reversed", *taken), lambda: _backward(chosen, call, *taken))
            call = exactly(call, adjoint.exact)
            pipeline.check_same(saved._call, call, saved._marks)
            self._check_active(saved, chosen, pattern)
            refuse_unseeded(chosen.name, () if allow_unused else unseeded(chosen, args))
            saved._used = True
            call = kept_seeds(call, adjoint)
            for width in range(call.bound.width):
                pipeline.run_stages(adjoint, stages, call, saved._state.again(adjoint, call), width)

    def _check_shadows(self, call: Call) -> None:
        for i, (argument, element) in enumerate(zip(call.bound.arguments, self.shadows, strict=True)):
            if element is not None and not argument.shadows and i not in call.overlaps:
                raise ShadowError(
                    f"`{self.whole.name}`: argument `{argument.name}` was declared active; pass Duplicated or Active with its shadow"
                )

    def _check_active(self, saved: Saved, chosen: Kernel, pattern: Pattern) -> None:
        """A state serves the activities that it was saved for: others may read what it has not."""
        for leaf, was, now in zip(chosen.leaves, saved._adjoint.pattern.shadows, pattern.shadows, strict=True):
            if (was is None) is not (now is None):
                raise ShadowError(
                    f"`{self.whole.name}`: argument `{leaf.name}` has {'a' if was is None else 'no'} shadow here, but was declared "
                    f"{'Const' if was is None else 'active'} for the forward that saved this state: the same annotations are needed for "
                    "both. No shadow was touched."
                )


def _backward(
    chosen: Kernel, call: Call, optimistic: bool, distances: bool, decided: tuple[int | None, ...] | None
) -> tuple[Pattern, Adjoint, tuple[pipeline.Stage, ...]]:
    """The pattern of a reverse pass, its adjoint and its kernels, compiled."""
    pattern = replace(pattern_of(chosen, call), optimistic=optimistic, distances=distances, decided=decided)
    adjoint = chosen.reverse(pattern)
    call = exactly(call, adjoint.exact)
    stages = pipeline.stages(adjoint, call)
    call.prepare([pipeline.counting(adjoint, call), *(k for s in stages for k in s.kernels)])
    return pattern, adjoint, stages


def _thunk_of_family(
    family: Family, annotations: Sequence[Any], not_overwritten: Sequence[str], by_name: Mapping[str, Any]
) -> tuple[Callable[..., Saved], Callable[..., None]]:
    """Split pairs of the kernels that calls become, one for each; a state goes back to the kernel that made it."""
    pairs: dict[Kernel, tuple[Callable[..., Saved], Callable[..., None]]] = {}
    makers: WeakKeyDictionary[Saved, Kernel] = WeakKeyDictionary()

    def planned(call: Sequence[Any], keywords: Mapping[str, Any]) -> Planned:
        outside_of_tapes(family.name, "a split pair")
        try:
            plan = family.planned(*call, **keywords)
        except TypeError as error:
            refuse_call(family, error, call, keywords)
            raise
        if plan is None:
            raise LaunchError(f"`{family.name}`: no element, so there is nothing to differentiate")
        if plan.kernel not in pairs:
            positional, named = family.annotated(plan.kernel, annotations, by_name)
            named = {**{d.name: a for d, a in zip(plan.kernel.declared, positional, strict=False)}, **named}
            pairs[plan.kernel] = autodiff_thunk(plan.kernel, named, not_overwritten=not_overwritten)
        return plan

    def augmented(*call: Any, **keywords: Any) -> Saved:
        plan = planned(call, keywords)
        saved = pairs[plan.kernel][0](plan.grid, plan.block, plan.args, shared_mem=plan.shared_mem, stream=plan.stream)
        makers[saved] = plan.kernel
        return saved

    def reverse(*call: Any, allow_unused: bool = False, **keywords: Any) -> None:
        *own, saved = call or (None,)
        if not isinstance(saved, Saved):
            raise ArgumentTypeError(f"`{family.name}`: the last argument is what `augmented` gave, not {show(saved)}.")
        plan = planned(own, keywords)
        if makers.get(saved) is not plan.kernel:
            raise GpuadError(f"`{family.name}`: the last argument is no state that a call with arguments of these types has saved")
        run = pairs[plan.kernel][1]
        run(plan.grid, plan.block, plan.args, saved, shared_mem=plan.shared_mem, stream=plan.stream, allow_unused=allow_unused)

    return augmented, reverse


def _class_shadow(shadows: Sequence[Scalar | None], aliases: Aliases, position: int) -> Scalar | None:
    own = shadows[position]
    others = (shadows[o.position] for o in aliases.overlaps if o.base == position)
    return own or next((s for s in others if s is not None), None)


def check_flow_bare(chosen: Kernel, adjoint: Adjoint, kinds: Sequence[str], connected: bool) -> None:
    """The dropped-gradient check for a call whose shadows are not there yet; `kinds`: the activity of each parameter, or of each leaf."""
    for escape in adjoint.escapes:
        position = next(i for i, d in enumerate(chosen.leaves) if d.name == escape.buffer.name)
        if escape.returns or position >= len([leaf for d in chosen.parameters for leaf in split_parameter(d)]):
            own = chosen.declared if len(kinds) == len(chosen.declared) else chosen.leaves
            actives = ", ".join(f"`{d.name}`" for d, k in zip(own, kinds, strict=True) if k in SHADOWED)
            raise ShadowError(dropped(chosen, position, escape, actives, "const"))
    if not connected:
        raise ShadowError(f"`{chosen.name}`: no path from an active input to an active output")

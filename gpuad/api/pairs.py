"""`autodiff_thunk`: the split pair of an augmented forward and its reverse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from .. import launching
from ..differentiate import Adjoint, Pattern
from ..errors import GpuadError, LaunchError, ShadowError
from ..ir.records import split_parameter
from ..ir.types import Scalar
from ..launching import Call, State
from ..transform.aliases import Aliases
from .flow import dropped, kept_seeds, outside_of_tapes
from .kernels import SHADOWED, Family, Kernel, Planned, kernel, pattern_of


@dataclass(eq=False)
class Saved:
    """What one augmented forward has saved for its reverse. Used once."""

    adjoint: Adjoint
    state: State
    call: Call
    marks: dict[str, int]
    used: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        copies = [m for m in self.state.entries.values()] + [m for m in self.state.logs]
        copies += [m for i, m in self.state.primals.items() if i in self.state.owned]
        return sum(int(m.root.nbytes) for m in copies)


def autodiff_thunk(
    k: Any, *annotations: Any, not_overwritten: Sequence[str] = (), **by_name: Any
) -> tuple[Callable[..., Saved], Callable[..., None]]:
    """The split pair `(augmented, reverse)` for fixed activities, given by position or by parameter name (classes or instances; the rest
    is Const).

    `saved = augmented(grid, block, args)` runs the kernel and keeps every value that the reverse will read and the caller could
    overwrite, but those of the parameters in `not_overwritten`; arguments may be bare. `reverse(grid, block, args, saved)` accumulates
    into the shadows of `args`; each `saved` serves once.
    """
    family: Family = kernel(k)
    if not isinstance(family, Kernel):
        return _thunk_of_family(family, annotations, not_overwritten, by_name)
    whole = family
    kinds = whole.activities(annotations, by_name)
    unknown = set(not_overwritten) - {d.name for d in whole.declared}
    if unknown:
        raise LaunchError(f"`{whole.name}` has no parameter `{sorted(unknown)[0]}`")
    shadows = whole.shadow_types(kinds)

    @whole.room()
    def augmented(grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> Saved:
        outside_of_tapes(whole.name, "a split pair")
        chosen = whole.sized(shared_mem)
        call = chosen.bind(grid, block, args, shared_mem, stream)
        aliases = call.aliases()
        classes = tuple(None if aliases.get(i) else _class_shadow(shadows, aliases, i) for i in range(len(shadows)))
        adjoint = chosen.reverse_for(Pattern(classes, aliases, analyse=launching.analysing()), call)
        _check_flow_bare(chosen, adjoint, kinds)
        primal = chosen.primal(aliases)
        call = replace(call, exact=adjoint.exact)
        call.prepare([adjoint.augmented or primal, adjoint.counting])
        with call.executor.on(stream):
            launching.check_stores(adjoint, call)
            state = launching.before(adjoint, call)
            launching.run_primal(primal, adjoint, call, state)
            marks = launching.keep_live(adjoint, call, state, frozenset(not_overwritten))
        return Saved(adjoint, state, call, marks)

    @whole.room()
    def reverse(grid: Any, block: Any, args: Sequence[Any], saved: Saved, *, shared_mem: int = 0, stream: Any = None) -> None:
        if not isinstance(saved, Saved) or saved.used:
            raise GpuadError(f"`{whole.name}`: a saved state serves one reverse; run the augmented forward again")
        chosen = whole.sized(shared_mem)
        call = chosen.bind(grid, block, args, shared_mem, stream)
        for i, (argument, element) in enumerate(zip(call.bound.arguments, shadows, strict=True)):
            if element is not None and not argument.shadows and i not in call.overlaps:
                raise ShadowError(
                    f"`{chosen.name}`: argument `{argument.name}` was declared active; pass Duplicated or Active with its shadow"
                )
        adjoint = chosen.reverse(replace(pattern_of(chosen, call), optimistic=saved.adjoint.pattern.optimistic))
        call = replace(call, exact=adjoint.exact)
        stages = launching.stages(adjoint, call)
        call.prepare([adjoint.counting, *(k for s in stages for k in s.kernels)])
        with call.executor.on(stream):
            launching.check_same(saved.call, call, saved.marks)
            saved.used = True
            call = kept_seeds(call, adjoint)
            for width in range(call.bound.width):
                launching.run_stages(adjoint, stages, call, saved.state.again(adjoint, call), width)

    return augmented, reverse


def _thunk_of_family(
    family: Family, annotations: Sequence[Any], not_overwritten: Sequence[str], by_name: Mapping[str, Any]
) -> tuple[Callable[..., Saved], Callable[..., None]]:
    """Split pairs of the kernels that calls become, one for each; a state goes back to the kernel that made it."""
    pairs: dict[Kernel, tuple[Callable[..., Saved], Callable[..., None]]] = {}
    makers: WeakKeyDictionary[Saved, Kernel] = WeakKeyDictionary()

    def planned(call: Sequence[Any], keywords: Mapping[str, Any]) -> Planned:
        outside_of_tapes(family.name, "a split pair")
        plan = family.planned(*call, **keywords)
        if plan is None:
            raise LaunchError(f"`{family.name}`: no element, so there is nothing to differentiate")
        if plan.kernel not in pairs:
            pairs[plan.kernel] = autodiff_thunk(plan.kernel, *annotations, not_overwritten=not_overwritten, **by_name)
        return plan

    def augmented(*call: Any, **keywords: Any) -> Saved:
        plan = planned(call, keywords)
        saved = pairs[plan.kernel][0](plan.grid, plan.block, plan.args, shared_mem=plan.shared_mem, stream=plan.stream)
        makers[saved] = plan.kernel
        return saved

    def reverse(*call: Any, **keywords: Any) -> None:
        *own, saved = call
        plan = planned(own, keywords)
        if not isinstance(saved, Saved) or makers.get(saved) is not plan.kernel:
            raise GpuadError(f"`{family.name}`: the last argument is no state that a call with arguments of these types has saved")
        pairs[plan.kernel][1](plan.grid, plan.block, plan.args, saved, shared_mem=plan.shared_mem, stream=plan.stream)

    return augmented, reverse


def _class_shadow(shadows: Sequence[Scalar | None], aliases: Aliases, position: int) -> Scalar | None:
    own = shadows[position]
    others = (shadows[o.position] for o in aliases.overlaps if o.base == position)
    return own or next((s for s in others if s is not None), None)


def _check_flow_bare(chosen: Kernel, adjoint: Adjoint, kinds: Sequence[str]) -> None:
    for escape in adjoint.escapes:
        position = next(i for i, d in enumerate(chosen.leaves) if d.name == escape.buffer.name)
        if escape.returns or position >= len([leaf for d in chosen.parameters for leaf in split_parameter(d)]):
            actives = ", ".join(f"`{d.name}`" for d, k in zip(chosen.declared, kinds, strict=True) if k in SHADOWED)
            raise ShadowError(dropped(chosen, position, escape, actives, "const"))
    if not adjoint.connected:
        raise ShadowError(f"`{chosen.name}`: no path from an active input to an active output")

"""`autodiff`, `hvp`: a launch and its derivative in one call.

In: a kernel, or what `gpuad.kernel` takes, and its call, with shadows. Out: primals as the kernel leaves them, shadows as the derivative
leaves them. A call in the words of an earlier one is replayed (`call_replay`); else it is bound, its adjoint is found and compiled
(`launch_plan`), and only then is anything launched: what is refused is refused before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, overload

from .. import pipeline
from ..errors import LaunchError
from ..pipeline import Call
from ..pipeline.derived_kernels import Tangent
from ..public_calls import flag, public, show
from ..runtime.array_types import Extents
from .argument_flattening import FlatArguments, on_stream
from .call_replay import CallKey, replay_call
from .dropped_gradients import check_flow, kept_seeds, outside_of_tapes, refuse_unseeded, unseeded
from .forward_over_reverse import check_count, second_of
from .grid_kernels import GridKernel
from .grid_launches import forward_all, reverse_all, second_all
from .interpreted import interpret
from .kernels import Family, Kernel, Planned, pattern_of, refuse_call
from .launch_plan import LaunchPlan, exactly, launch_plan_of, once, reverse_launches, run_again, tangent_launches
from .making import kernel


class Mode(Enum):
    """Which derivative `autodiff` computes: `Reverse`, adjoints pulled back after the primal, or `Forward`, tangents pushed with it."""

    REVERSE = "reverse"
    FORWARD = "forward"


Reverse, Forward = Mode.REVERSE, Mode.FORWARD


@overload
def autodiff(
    k: Any,
    grid: Extents,
    block: Extents,
    args: Sequence[object],
    *,
    mode: Mode = Reverse,
    allow_unused: bool = False,
    shared_mem: int = 0,
    stream: Any = None,
) -> None: ...
@overload
def autodiff(k: Any, *call: Any, mode: Mode = Reverse, allow_unused: bool = False, **keywords: Any) -> None: ...
@public
def autodiff(k: Any, *call: Any, mode: Mode = Reverse, allow_unused: bool = False, **keywords: Any) -> None:
    """Runs a kernel and its derivative: with `mode=Reverse` forward, then the adjoint into the shadows; with `mode=Forward` primal and
    tangents (the shadows hold tangents, and are pushed through).

    `k`: what `gpuad.kernel` makes or takes. `call`, `keywords`: the kernel's own call: `grid, block, args, shared_mem=0, stream=None` for a
    raw kernel, the arguments, outputs included, for an elementwise or reduction kernel. `allow_unused`: whether it is all right that no
    shadow holds a seed, since gpuad made all that could (of zeros), so that all gradients are 0, or with `mode=Forward` all tangents.

        gpuad.autodiff(square, grid, block, (Duplicated(x, dx), n))

    On exit primals hold what the kernel left in them. Raises before anything is written: LaunchError, ShadowError (shadows that do not
    fit, a gradient that would be dropped, seeds that are not in any shadow), UnsupportedError.
    """
    family: Family = kernel(k)
    flag("allow_unused", allow_unused)
    if not isinstance(mode, Mode):
        raise LaunchError(f"`{family.name}`: mode is gpuad.Reverse or gpuad.Forward, not {show(mode)}. Nothing was launched.")
    outside_of_tapes(family.name, "autodiff")
    if family.in_parts:
        try:
            whole = family.in_parts_of(*call, **keywords)
        except TypeError as error:
            refuse_call(family, error, call, keywords)
            raise
        if not allow_unused:
            forward, what = (True, "tangents") if mode is Forward else (False, "gradients")
            refuse_unseeded(family.name, unseeded(whole[1].kernel, whole[1].args, forward), what)
        plans, known = _launches(*whole)
        if mode is Reverse:
            reverse_all(plans, known)
        else:
            forward_all(plans, lambda chosen, call: _forward(chosen, call, unconnected=True))
        return
    try:
        said = family.words(f"{mode.value}, unused" if allow_unused else mode.value, *call, **keywords)
    except TypeError as error:
        refuse_call(family, error, call, keywords)
        raise
    if said is not None and replay_call(said, pipeline.switches()):
        return
    plan = family.planned(*call, **keywords)
    if plan is not None:
        with plan.kernel.room(), on_stream(plan.stream, plan.args):
            chosen = plan.kernel.suited(plan.args, plan.shared_mem)
            _autodiff(chosen, chosen.completed(plan), mode, allow_unused, said)


def _autodiff(chosen: Kernel, plan: Planned, mode: Mode, allow_unused: bool, said: CallKey | None) -> None:
    missing = () if allow_unused else unseeded(chosen, plan.args, mode is Forward)
    if mode is Reverse and not missing and run_again(chosen, plan, said):
        return
    call = chosen.bind(plan.grid, plan.block, plan.args, plan.shared_mem, plan.stream)
    if mode is Forward:
        once(call, ("tangent", False), lambda: _tangent(chosen, call, False))
        refuse_unseeded(chosen.name, missing, "tangents")
        tangent = _forward(chosen, call)
        exact = exactly(call, tangent.exact)
        chosen.note_call(said, plan.args, exact, pipeline.switches(), lambda: tangent_launches(tangent, exact))
        return
    launch_plan = launch_plan_of(chosen, call)
    refuse_unseeded(chosen.name, missing)
    call = exactly(call, launch_plan.adjoint.exact)
    _reverse(launch_plan, call)
    chosen.note_call(said, plan.args, call, pipeline.switches(), lambda: reverse_launches(launch_plan, call))


def _reverse(launch_plan: LaunchPlan, call: Call) -> None:
    adjoint, stages, both = launch_plan.adjoint, launch_plan.stages, launch_plan.both
    pipeline.check_stores(adjoint, call)
    call = kept_seeds(call, adjoint)
    if both is not None:
        call.run(both.kernel, pipeline.arguments(both.parameters, call, pipeline.live(call)))
        return
    state = pipeline.before(adjoint, call)
    pipeline.run_primal(launch_plan.primal, adjoint, call, state)
    for width in range(call.bound.width):
        pipeline.run_stages(adjoint, stages, call, state.again(adjoint, call), width)


def push_forward(k: Kernel, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int = 0) -> None:
    """As `autodiff` with `mode=Forward`, for one who has given shadows to all that is written: where no output depends on an active input,
    tangents are 0."""
    outside_of_tapes(k.name, "a tangent")
    with k.room():
        chosen = k.suited(args, shared_mem)
        _forward(chosen, chosen.bind(grid, block, args, shared_mem, None), unconnected=True)


def _forward(chosen: Kernel, call: Call, unconnected: bool = False) -> Tangent:
    tangent = once(call, ("tangent", unconnected), lambda: _tangent(chosen, call, unconnected))
    call = exactly(call, tangent.exact)
    pipeline.check_stores(tangent, call)
    states = pipeline.batch_states(call, chosen.written)
    for width, state in enumerate(states):
        state.logs = pipeline.new_logs(tangent, call)
        call.run(tangent.kernel, pipeline.arguments(tangent.parameters, call, state, width))
        if tangent.resolve is not None:
            call.run(tangent.resolve, pipeline.arguments(tangent.resolve_parameters, call, state, width))
    return tangent


def _tangent(chosen: Kernel, call: Call, unconnected: bool) -> Tangent:
    """The forward-mode kernel of a call, compiled."""
    tangent = chosen.tangent(pattern_of(chosen, call))
    check_flow(chosen, call, tangent.escapes, tangent.connected or unconnected)
    exactly(call, tangent.exact).prepare([tangent.kernel, tangent.resolve])
    return tangent


@overload
def hvp(
    k: Any,
    grid: Extents,
    block: Extents,
    args: Sequence[object],
    directions: Sequence[object],
    *,
    allow_unused: bool = False,
    shared_mem: int = 0,
    stream: Any = None,
) -> None: ...
@overload
def hvp(k: Any, *call: Any, allow_unused: bool = False, **keywords: Any) -> None: ...
@public
def hvp(k: Any, *call: Any, allow_unused: bool = False, **keywords: Any) -> None:
    """`hvp(k, *call, directions)`: runs a kernel, its adjoint, and the derivative of both along a direction (forward over reverse).

    `call`, `keywords`: as in `autodiff`. `directions` has an entry for each argument: for `Duplicated(x, dx)` a `Duplicated(x_dot, dx_dot)`
    with the tangents of primal and shadow, for `Active(a, da)` an `Active(a_dot, da_dot)`, for anything else None. On exit `x`, `x_dot` are
    the state after the launch and its tangent, `dx` holds the adjoint as after `autodiff`, and `dx_dot` its derivative along the direction:
    with `dx_dot` zero on entry, the product of the Hessian of `<dx, F(x)>` with `x_dot`, added. `allow_unused`: as of `autodiff`. Raises as
    `autodiff` does.

        gpuad.hvp(square, grid, block, (Duplicated(x, dx), n), (Duplicated(x_dot, dx_dot), None))
    """
    family: Family = kernel(k)
    flag("allow_unused", allow_unused)
    outside_of_tapes(family.name, "hvp")
    *own, directions = call or (None,)
    if not isinstance(directions, tuple | list):
        raise LaunchError(
            f"`{family.name}`: the last argument of hvp are the `directions`, a tuple with a pair or None for each argument, not "
            f"{show(directions)}. Nothing was launched."
        )
    try:
        whole = family.in_parts_of(*own, **keywords) if family.in_parts else None
        plan = family.planned(*own, **keywords) if whole is None else whole[1]
    except TypeError as error:
        refuse_call(family, error, own, keywords)
        raise
    if plan is None:
        return
    if whole is not None:
        _hvp_in_parts(family, directions, *whole, allow_unused)
        return
    given = directions if type(directions) is FlatArguments else family.directions(directions, plan.kernel)
    with plan.kernel.room(), on_stream(plan.stream, plan.args):
        made = [*given, *[None] * (len(plan.args) - len(given))] if plan.kernel is not family else given
        chosen = plan.kernel.suited(plan.args, plan.shared_mem)
        second = second_of(chosen, plan, made)
        _refuse_unseeded(chosen, plan.args, made, allow_unused)
        second.run()


def _refuse_unseeded(chosen: Kernel, args: Sequence[Any], directions: Sequence[Any], allow_unused: bool) -> None:
    """A second derivative is 0 where neither a shadow nor a tangent of one holds anything."""
    if not allow_unused and unseeded(chosen, directions):
        refuse_unseeded(chosen.name, unseeded(chosen, args))


def _hvp_in_parts(family: Family, directions: Any, kernel: GridKernel, whole: Planned, allow_unused: bool) -> None:
    given = family.directions(directions, kernel)
    check_count(kernel.name, len(whole.args), given)
    _refuse_unseeded(whole.kernel, whole.args, given, allow_unused)
    plans, known = _launches(kernel, whole)
    second_all(plans, given, known)


def _launches(kernel: GridKernel, whole: Planned) -> tuple[Iterator[Planned], bool]:
    """The launches of a call that is several, and whether it is known before the first of them which these are."""
    call, keywords = whole[1:4], {"shared_mem": whole.shared_mem, "stream": whole.stream}
    return kernel.launches(*call, **keywords), not kernel.is_decided_by_data(*call, **keywords)


def array_module() -> Any:
    """CuPy if it is installed and finds a device, else NumPy."""
    from ..runtime import cuda

    return cuda.array_module()


def check_races(k: Any, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
    """Runs the primal on the reference executor on NumPy arrays, which raises for data races and bad indices."""
    interpret(kernel(k), grid, block, args, shared_mem=shared_mem, stream=stream)

"""Forward over reverse: directions beside arguments, and tangents beside the memory of an adjoint.

In: a bound call and its directions, one for each argument of the user: for an active one a tangent with a shadow of its own, else None.
Out: the directions bound as a call of their own, and a `State` with tangents of primals, shadows and saved copies for the kernel that
differentiates the adjoint forward. Its result is a Hessian-vector product at a constant multiple of the gradient's cost (Griewank and
Walther, Evaluating Derivatives, 2nd edition, 2008).

Assumes one direction at a time. Raises ShadowError, before anything is launched, for a direction that is missing, superfluous, laid out
otherwise than its argument, of another dtype, or in memory of the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arguments import BoundArgument
from ..arguments.aliasing import overlap, region
from ..errors import ShadowError
from ..ir.dtypes import dtype_of
from ..ir.types import HALVES
from ..runtime.base import Argument, Memory
from .adjoint_memory import State, argument_of, before, copied, shadow_of, shadow_type
from .calls import Call
from .derived_kernels import Adjoint
from .pattern import Parameter


def paired(name: str, call: Call, directions: Sequence[Any], origins: Sequence[int]) -> list[Any]:
    """The directions as the arguments of a call of their own, so that they are bound and checked like one: what has no tangent is the
    primal itself, not active. `origins`: to which of them each argument that was bound belongs."""
    out = []
    for i, direction in enumerate(directions):
        own = [a for a, origin in zip(call.bound.arguments, origins, strict=True) if origin == i]
        if any(a.shadows for a in own) != (direction is not None):
            what = "needs a direction: Duplicated(x_dot, dx_dot)" if direction is None else "is not active: its direction is None"
            raise ShadowError(f"`{name}`: argument `{own[0].name}` {what}")
        out.append(direction if direction is not None else _bare(own[0]))
    return out


def check_directions(name: str, call: Call, dots: Call) -> None:
    """A direction is laid out like its argument, in memory of its own. Raises ShadowError."""
    if call.bound.width > 1 or dots.bound.width > 1:
        raise ShadowError(
            f"`{name}`: hvp takes one direction at a time; call it for each shadow of a BatchDuplicated. Nothing was launched."
        )
    bare = next((a for a, d in zip(call.bound.arguments, dots.bound.arguments, strict=True) if a.shadows and not d.shadows), None)
    if bare is not None:
        what = "Duplicated(x_dot, dx_dot)" if bare.is_pointer else "Active(a_dot, da_dot)"
        raise ShadowError(f"`{name}`: the direction of `{bare.name}` is a tangent with a shadow of its own: {what}. Nothing was launched.")
    kept = next((a.name for a in call.bound.arguments if a.keep), None)
    if kept is not None:
        raise ShadowError(f"`{kept}`: keep=True has no meaning in hvp, which takes the seed; pass a copy of it. Nothing was launched.")
    for a, d in zip(call.bound.arguments, dots.bound.arguments, strict=True):
        own, given = (x.shadow.root.dtype if x.shadow is not None else None for x in (a, d))
        if own != given:
            raise ShadowError(
                f"`{name}`: the shadow of `{a.name}` has the dtype {own}, that of its direction {given}; pass two of one dtype. "
                "Nothing was launched."
            )
    if _laid_out(call) != _laid_out(dots):
        raise ShadowError(
            f"`{name}`: directions have the shapes and strides of their arguments, and overlap where these do, at the same offsets. "
            "Nothing was launched."
        )
    used = [region(x) for a in call.bound.arguments for x in (a.array, *a.shadow_arrays) if x is not None]
    for a in dots.bound.arguments:
        if a.shadows and any(overlap(region(x), u) for x in (a.array, *a.shadow_arrays) if x is not None for u in used):
            raise ShadowError(
                f"`{name}`: the direction of `{a.name}` lies in an argument or in a shadow of this call; pass a copy of it, x.copy(). "
                "Nothing was launched."
            )


def _laid_out(call: Call) -> tuple[Any, ...]:
    """How the arrays of a call lie and overlap, counted in elements: the tangents of halves are wider than they."""
    arrays = [a.array for a in call.bound.arguments]
    layouts = [None if x is None else (x.shape, tuple(s // x.dtype.itemsize for s in x.strides)) for x in arrays]
    return tuple(call.overlaps.items()), tuple(layouts)


def _bare(argument: BoundArgument) -> Any:
    """An argument as its caller may have passed it; a half by value is bound as a float32."""
    if argument.is_pointer:
        return argument.array
    return dtype_of(argument.declaration.type).type(argument.value) if argument.declaration.type in HALVES else argument.value


def before_second(adjoint: Adjoint, call: Call, dots: Call) -> State:
    """The state of a second-order reverse: copies of primals and of their tangents, and the tangents themselves."""
    state = before(adjoint, call)
    for p in adjoint.parameters:
        if not p.role.endswith("_dot"):
            continue
        argument = dots.bound.arguments[p.position]
        if p.role in ("entry_dot", "working_dot") and argument.memory is not None:
            state.dots[p.role, p.position] = copied(call, argument.memory)
        elif p.role == "shadow_dot":
            state.dots[p.role, p.position] = shadow_of(dots, p.position, 0)
        elif p.role == "primal_dot":
            state.dots[p.role, p.position] = argument.memory if argument.is_pointer else _one(call, p.position, argument.value)
    return state


def _one(call: Call, position: int, value: Any) -> Memory:
    """A number's tangent, as wide as its shadow."""
    array = call.executor.zeros(1, dtype_of(shadow_type(call.bound.arguments[position])))
    array[0] = value
    return Memory(array)


def tangent_arguments(parameters: tuple[Parameter, ...], call: Call, state: State) -> list[Argument]:
    """Arguments of the forward kernel where tangents are not in the shadows but in `state.dots`."""
    return [state.dots["primal_dot", p.position] if p.role == "shadow" else argument_of(p, call, state, 0) for p in parameters]

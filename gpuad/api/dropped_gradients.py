"""The dropped-gradient check (rule 4 of the contract): a call in which a gradient would flow to an argument without a shadow is refused.

In: a bound call, and from its activity analysis the escapes (`analysis.activity.Escape`: varied values written into memory without a
shadow) and whether any active input reaches an active output. Out: nothing, or a ShadowError with the place of the store, the argument, and
what to pass. An escape into `Const` is allowed, unless the values come out of it again; one through a null pointer does not count.

`outside_of_tapes` raises TapeError while the thread records. `kept_seeds` returns the call with copies for the seeds that `keep=True`
preserves, and raises ShadowError where the kernel also reads such an output, or where it overlaps another argument. All of this comes
before the kernel is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import pipeline
from ..analysis.activity import Escape
from ..arguments.annotations import Active, BatchDuplicated, Duplicated
from ..arguments.recorder import current as recording
from ..errors import ShadowError, TapeError
from ..ir.records import split_parameter
from ..pipeline import Call
from ..pipeline.derived_kernels import Adjoint
from .argument_flattening import FlatArguments
from .kernels import Kernel


def check_flow(chosen: Kernel, call: Call, escapes: Sequence[Escape], connected: bool) -> None:
    """Nothing may be dropped by forgetting (rule 4 of the contract)."""
    by_name = call.bound.by_name
    actives = ", ".join(f"`{a.name}`" for a in call.bound.arguments if a.shadows)
    for escape in escapes:
        argument = by_name[escape.buffer.name]
        if argument.memory is None:
            continue  # nothing goes through a null pointer
        if argument.kind == "bare" or escape.returns:
            raise ShadowError(dropped(chosen, argument.position, escape, actives, argument.kind))
    if not connected:
        outputs = ", ".join(f"`{n}`" for n in chosen.written) or "nothing"
        raise ShadowError(
            f"`{chosen.name}`: no path from an active input ({actives}) to an active output: the kernel writes {outputs}, and none of "
            "it that has a shadow depends on them. Give a shadow to what is missing, the input or the output: Duplicated(array, shadow). "
            "Nothing was launched."
        )


def dropped(chosen: Kernel, position: int, escape: Escape, actives: str, kind: str) -> str:
    where = f"{escape.span}: " if escape.span else ""
    caret = f"\n{escape.span.caret()}" if escape.span else ""
    why = "and they come out of it again" if kind == "const" else "but it has no shadow"
    offer = "stop_gradient({0}) to cut it on purpose" if escape.returns else "Const({0}) to drop it on purpose"
    name = escape.buffer.name
    if position >= len(chosen.parameters):
        return (
            f"{where}error: the variable `{name}` of the module of kernel `{chosen.name}` gets values that depend on {actives}, but it has "
            f"no shadow{caret}\n  give it one: kernel.with_shadow('{name}', shadow). Nothing was launched."
        )
    return (
        f"{where}error: argument {position + 1} `{name}` of kernel `{chosen.name}` gets values that depend on {actives}, {why}{caret}\n"
        f"  pass Duplicated({name}) to keep its gradient, or {offer.format(name)}. Nothing was launched."
    )


def unseeded(chosen: Kernel, args: Sequence[Any], forward: bool = False) -> tuple[str, ...]:
    """The arguments that seeds would be in, if none of them has one: those with a shadow that the kernel writes, or with `forward` reads.
    None where one of them has, or may have: a shadow of the caller's own, one that he has asked for, one that a call has added to."""
    if not isinstance(args, tuple | list):
        return ()
    declared = chosen.flat if type(args) is FlatArguments else chosen.declared
    primal = chosen.primal()
    ends = {b.name for b in primal.buffers if pipeline.loads(primal, b)} if forward else set(chosen.written)
    pairs = {d.name: x for d, x in zip(declared, args, strict=False) if any(leaf.name in ends for leaf in split_parameter(d))}
    numbers = [x for x in args if isinstance(x, Active)] if forward else []
    active = {name: x for name, x in pairs.items() if isinstance(x, Duplicated | BatchDuplicated)}
    return tuple(active) if not numbers and all(isinstance(x, Duplicated) and x._is_unseeded for x in active.values()) else ()


def refuse_unseeded(name: str, found: Sequence[str], what: str = "gradients") -> None:
    """ShadowError for a call whose derivative is 0 for want of a seed (rule 29 of the contract)."""
    if found:
        shadows = ", ".join(f"`{n}`" for n in found)
        seed = "seed dL/d" if what == "gradients" else "direction d"
        raise ShadowError(
            f"`{name}`: all {what} are 0: the shadow of {shadows} was made by gpuad, of zeros, and nothing has been put into it. Put the "
            f"{seed}{found[0]} there before the call: Duplicated({found[0]}, d{found[0]}), or `.shadow[...] = ...`. If zeros are what you "
            "want, say so: allow_unused=True. Nothing was launched."
        )


def outside_of_tapes(name: str, what: str) -> None:
    if recording.get() is not None:
        raise TapeError(
            f"`{name}`: {what} inside a tape would be recorded as launches of its own; launch kernel[grid, block](*args) instead"
        )


def kept_seeds(call: Call, adjoint: Adjoint) -> Call:
    """`keep=True`: the reverse takes a copy of the seed, so that the user's stays."""
    kept = {i: a for i, a in enumerate(call.bound.arguments) if a.keep and a.shadows}
    if not kept:
        return call
    read = {b.name for b in adjoint.recording.live} | {b.name for b in adjoint.primal.buffers if pipeline.loads(adjoint.primal, b)}
    for position, argument in kept.items():
        base = call.overlaps.get(position, (position, 0))[0]
        if call.bound.arguments[base].name in read or base != position:
            raise ShadowError(f"`{argument.name}`: keep=True is for what the kernel only writes, but it also reads it; pass a copy as seed")
    copies = {i: replace(a, shadows=tuple(pipeline.copied(call, s) for s in a.shadows)) for i, a in kept.items()}
    arguments = tuple(copies.get(i, a) for i, a in enumerate(call.bound.arguments))
    return replace(call, bound=replace(call.bound, arguments=arguments))

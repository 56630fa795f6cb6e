"""`gpuad.jax.function`: a kernel as a function of JAX, in operations of its own.

    launch     arguments -> outputs, and what the launch writes down for its reverse
    tangent    tangents of the arguments -> those of the outputs, linear
    reverse    cotangents of the outputs -> those of the arguments, linear: its transpose
    second     tangents of the arguments and of the cotangents -> those of what `reverse` gives, linear
    back       cotangents of what `reverse` gives -> those of arguments and cotangents: its transpose

JAX derives everything from the launch's rule for tangents: forward mode runs `tangent`, reverse mode transposes it, and what is done to
that once more is `second`. All but the last two are given the arguments, the outputs and what was written down; of these XLA keeps what a
callback reads, which is what an adjoint needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from ..api import outside_of_tapes
from ..errors import LaunchError, UnsupportedError
from ..interop import Signature, read_signature
from .callbacks import callback, conjugate, differentiated_once, is_zero, no_tangent, number, primitive, shape, transposable
from .launches import Launch


def function(
    kernel: Any, *, grid: Any, block: Any, outputs: Sequence[str] | Mapping[str, Any] | None = None, shared_mem: Any = 0
) -> Callable[..., Any]:
    """A kernel as a function of JAX's arrays: it takes the kernel's arguments in order and returns its outputs, one array or a tuple.

        square = gpuad.jax.function(kernel, outputs=["x"], grid=lambda n: (n + 255) // 256, block=256)
        y = square(x, n)

    `kernel`, `grid`, `block`, `shared_mem`, `outputs`: as of `gpuad.torch.function`. What the kernel overwrites and is passed comes back as
    a result; under `jax.jit` with `donate_argnums` in the operand's own memory. Whole numbers decide about the launch and are Python's
    (`static_argnums`); floats by value may be traced, and have gradients. jit, grad, jvp, vmap (one launch for each element) and second
    derivatives that begin with a reverse pass (hessian, jvp of grad, grad of grad) work. Raises LaunchError for what cannot be launched,
    while it is traced, and as `gpuad.autodiff` does."""
    signature = read_signature(kernel, grid, block, shared_mem, outputs, "gpuad.jax")

    def called(*args: Any, **variables: Any) -> Any:
        outside_of_tapes(signature.name, "a function of JAX")
        given = signature.whole(signature.flattened(args, variables) if signature.given or variables else args)
        words = [_word(signature.word(k), x) if k in signature.words else None for k, x in enumerate(given)]
        operands = {k: jnp.asarray(given[k]) for k in (*signature.pointers, *signature.reals) if given[k] is not None}
        layouts = {k: (tuple(x.shape), str(x.dtype)) for k, x in operands.items() if k in signature.pointers}
        like = [jax.ShapeDtypeStruct(*layouts[k]) if k in layouts else words[k] for k in range(len(given))]
        for k in signature.fresh:
            operands[k] = jnp.zeros(signature.shape_of(k, like), signature.dtype_of(k))
            layouts[k] = tuple(operands[k].shape), str(operands[k].dtype)
        order = tuple(sorted(operands))
        launch = Launch(signature, tuple(map(layouts.get, range(len(given)))), tuple(words), order, (False,) * len(given), said=repr(words))
        found = _launch.bind(*(operands[k] for k in order), launch=launch)
        made = [found[launch.written.index(k)] for k in signature.outputs]
        return made[0] if len(made) == 1 else tuple(made)

    called.__name__ = called.__qualname__ = signature.name
    called.__doc__ = (
        f"The kernel `{signature.name}`: {', '.join(g.name for g in signature.given) or ', '.join(map(signature.word, signature.passed))}."
    )
    return called


def _word(name: str, x: Any) -> Any:
    if isinstance(x, jax.core.Tracer) or (hasattr(x, "ndim") and x.ndim):
        raise LaunchError(f"`{name}` is a number by value that decides about the launch: pass Python's (under jit by static_argnums)")
    return x.item() if hasattr(x, "item") else x


# --- the launch -------------------------------------------------------------------------------------------------------------------------


def _launch_results(*_: Any, launch: Launch) -> list[Any]:
    logs = launch.split().logs  # which refuses now what cannot be launched
    return [*(shape(*launch.layout(k)) for k in launch.written), *(shape((size,), dtype) for size, dtype in logs)]


def _launch_work(*operands: Any, launch: Launch) -> list[Any]:
    def work(out: list[Any], given: list[Any]) -> None:
        launch.run(launch.placed(given), out)

    aliases = {launch.order.index(k): j for j, k in enumerate(launch.written)}
    return callback(work, _launch_results(launch=launch), operands, aliases)


def _launch_jvp(primals: Sequence[Any], dots: Sequence[Any], *, launch: Launch) -> Any:
    dotted = _moving(launch, dots)
    if not dotted:
        found = _launch.bind(*primals, launch=launch)
        return found, list(map(no_tangent, found))
    launch = replace(launch, active=_active(launch.signature, dotted, launch.count), dotted=dotted)
    found = _launch.bind(*primals, launch=launch)
    after = [found[launch.written.index(k)] for k in launch.after]
    own = [ad.instantiate_zeros(dot) for k, dot in zip(launch.order, dots, strict=True) if k in dotted]
    pushed = iter(_tangent.bind(*primals, *after, *found[len(launch.written) :], *own, launch=launch))
    tangents = [next(pushed) if launch.active[k] else no_tangent(x) for k, x in zip(launch.written, found, strict=False)]
    return found, [*tangents, *map(no_tangent, found[len(launch.written) :])]


def _moving(launch: Launch, dots: Sequence[Any]) -> tuple[int, ...]:
    """The operands that can have a tangent and have one."""
    able = (*launch.signature.floats, *launch.signature.reals)
    return tuple(k for k, dot in zip(launch.order, dots, strict=False) if k in able and not is_zero(dot))


def _active(signature: Signature, dotted: Sequence[int], count: int) -> tuple[bool, ...]:
    return signature.active([k in dotted for k in range(count)])


# --- tangents and gradients: both are given the arguments, those outputs that the reverse reads, and what was written down ----------------


def _held(launch: Launch) -> int:
    return len(launch.order) + len(launch.after) + len(launch.split().logs)


def _begun(launch: Launch, own: Mapping[int, Any]) -> list[Any]:
    """Shadows, or tangents, of all that has one: what is given, zeros elsewhere."""
    made = []
    for k in launch.shadowed:
        size, dtype = launch.shadow(k)
        made.append(own[k].astype(dtype) if k in own else jnp.zeros(size, dtype))
    return made


def _by_position(launch: Launch, arrays: Sequence[Any]) -> list[Any]:
    found: list[Any] = [None] * launch.count
    for k, x in zip(launch.shadowed, arrays, strict=True):
        found[k] = x
    return found


def _changing(launch: Launch, primals: Sequence[Any], groups: Sequence[Sequence[Any]], run: Callable[..., None]) -> list[list[Any]]:
    """Runs what overwrites the state and groups of shadows: `run(args, *groups)`, by position. Gives the groups afterwards."""
    states = [primals[launch.order.index(k)] for k in launch.written]
    changed = [*states, *(x for group in groups for x in group)]
    width = len(launch.shadowed)

    def work(out: list[Any], given: list[Any]) -> None:
        args = launch.placed(given[len(changed) :])
        for k, x in zip(launch.written, out, strict=False):
            args[k] = x
        run(args, *(_by_position(launch, out[at : at + width]) for at in range(len(states), len(out), width)))

    results = [shape(x.shape, x.dtype) for x in changed]
    found = callback(work, results, [*changed, *primals], {j: j for j in range(len(changed))})
    return [found[at : at + width] for at in range(len(states), len(found), width)]


def _in_type(launch: Launch, found: Sequence[Any], wanted: Sequence[int], primals: Sequence[Any]) -> list[Any]:
    """Of shadows, or tangents, those of `wanted`, in the types of their operands."""
    return [found[launch.shadowed.index(k)].astype(primals[launch.order.index(k)].dtype) for k in wanted]


def _tangent_results(*operands: Any, launch: Launch) -> list[Any]:
    return [shape(*launch.layout(k)) for k in launch.results]


def _tangent_work(*operands: Any, launch: Launch) -> list[Any]:
    primals, dots = operands[: len(launch.order)], dict(zip(launch.dotted, operands[_held(launch) :], strict=True))
    (found,) = _changing(launch, primals, [_begun(launch, dots)], launch.tangents)
    return _in_type(launch, found, launch.results, primals)


def _like(launch: Launch, operands: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
    return [shape(x.shape, x.dtype) for x in (operands[launch.order.index(k)] for k in wanted)]


def _reverse_results(*operands: Any, launch: Launch) -> list[Any]:
    return _like(launch, operands, launch.dotted)


def _reverse_work(*operands: Any, launch: Launch) -> list[Any]:
    split, signature, primals = launch.split(), launch.signature, operands[: len(launch.order)]
    seeds = dict(zip(launch.results, map(conjugate, operands[_held(launch) :]), strict=True))
    begun = _begun(launch, seeds)
    needed = [k for k in launch.order if k in signature.reals or k in split.before or (k in split.reads and k not in launch.after)]
    rest = operands[len(launch.order) : _held(launch)]
    still = [*(primals[launch.order.index(k)] for k in needed), *rest]

    def work(out: list[Any], given: list[Any]) -> None:
        held = given[len(begun) :]
        args: list[Any] = list(launch.words)
        for k, x in zip(needed, held, strict=False):
            args[k] = number(x) if k in signature.reals else x
        after, logs = held[len(needed) :][: len(launch.after)], held[len(needed) + len(launch.after) :]
        launch.reverse(args, dict(zip(launch.after, after, strict=True)), logs, _by_position(launch, out))

    found = callback(work, [shape(x.shape, x.dtype) for x in begun], [*begun, *still], {j: j for j in range(len(begun))})
    return [conjugate(x) for x in _in_type(launch, found, launch.dotted, primals)]


def _reverse_jvp(operands: Sequence[Any], dots: Sequence[Any], *, launch: Launch) -> Any:
    """The tangents of gradients: what hangs on the arguments hangs on them alone, outputs and what was written down among it."""
    held, found = _held(launch), _reverse.bind(*operands, launch=launch)
    seeds = [ad.instantiate_zeros(d) for d in dots[held:]]
    moved = _moving(launch, dots)
    if not moved:
        return found, _reverse.bind(*operands[:held], *seeds, launch=launch)
    own = replace(launch, active=_active(launch.signature, (*launch.dotted, *moved), launch.count), moved=moved)
    directions = [ad.instantiate_zeros(dots[launch.order.index(k)]) for k in moved]
    return found, _second.bind(*operands[: len(launch.order)], *operands[held:], *directions, *seeds, launch=own)


# --- second derivatives: both are given the arguments and the seeds -----------------------------------------------------------------------


def _second_held(launch: Launch) -> int:
    return len(launch.order) + len(launch.results)


def _twice(launch: Launch, operands: Sequence[Any], dots: Mapping[int, Any], grown: Mapping[int, Any]) -> tuple[list[Any], list[Any]]:
    """Tangents of the outputs, and of the gradient: by the arguments' tangents and those of the seeds."""
    primals, seeds = operands[: len(launch.order)], operands[len(launch.order) : _second_held(launch)]
    shadows = dict(zip(launch.results, map(conjugate, seeds), strict=True))
    groups = [_begun(launch, own) for own in (shadows, dots, grown)]
    _, pushed, found = _changing(launch, primals, groups, launch.second)
    return pushed, found


def _second_results(*operands: Any, launch: Launch) -> list[Any]:
    return _like(launch, operands, launch.dotted)


def _second_work(*operands: Any, launch: Launch) -> list[Any]:
    rest = operands[_second_held(launch) :]
    directions = dict(zip(launch.moved, rest, strict=False))
    grown = dict(zip(launch.results, map(conjugate, rest[len(directions) :]), strict=True))
    _, found = _twice(launch, operands, directions, grown)
    return [conjugate(x) for x in _in_type(launch, found, launch.dotted, operands)]


def _back_results(*operands: Any, launch: Launch) -> list[Any]:
    return [*_like(launch, operands, launch.moved), *_tangent_results(launch=launch)]


def _back_work(*operands: Any, launch: Launch) -> list[Any]:
    directions = dict(zip(launch.dotted, operands[_second_held(launch) :], strict=True))
    pushed, found = _twice(launch, operands, directions, {})
    of_arguments = [conjugate(x) for x in _in_type(launch, found, launch.moved, operands)]
    return [*of_arguments, *_in_type(launch, pushed, launch.results, operands)]


# --- what JAX knows of them -------------------------------------------------------------------------------------------------------------

_launch = primitive("gpuad_launch", _launch_work, _launch_results)
_tangent = primitive("gpuad_tangent", _tangent_work, _tangent_results)
_reverse = primitive("gpuad_reverse", _reverse_work, _reverse_results)
_second = primitive("gpuad_second", _second_work, _second_results)
_back = primitive("gpuad_back", _back_work, _back_results)
ad.primitive_jvps[_launch] = _launch_jvp
ad.primitive_jvps[_reverse] = _reverse_jvp
transposable(_tangent, _held, lambda seeds, held, launch: _reverse.bind(*held, *seeds, launch=launch))
transposable(_reverse, _held, lambda dots, held, launch: _tangent.bind(*held, *dots, launch=launch))
transposable(_second, _second_held, lambda directions, held, launch: _back.bind(*held, *directions, launch=launch))


for _operation, _first in ((_tangent, _held), (_second, _second_held), (_back, _second_held)):
    differentiated_once(
        _operation, _first,
        lambda launch: UnsupportedError(
            f"`{launch.signature.name}` is differentiated twice at most, the second time a reverse pass: jax.hessian, jax.jvp of jax.grad"
        ),
    )  # fmt: skip

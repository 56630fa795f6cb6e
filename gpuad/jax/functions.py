"""`gpuad.jax.function`: a kernel as a function of JAX, in three operations of its own.

    launch     arguments -> outputs, and what the launch writes down for its reverse
    tangent    tangents of the arguments -> those of the outputs, linear; its transpose is
    reverse    cotangents of the outputs -> those of the arguments

JAX derives everything from the launch's rule for tangents: forward mode runs `tangent`, reverse mode transposes it, and of what `tangent`
is given its transpose takes what an adjoint reads. Each is `jax.experimental.buffer_callback`: Python on XLA's buffers, in XLA's stream, on
CPUs and GPUs. What a kernel overwrites, and each gradient, is an operand that aliases a result, so that a donated one is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..errors import LaunchError
from ..interop import read_signature
from ..runtime import cuda
from .launches import Call, Launches


def function(
    kernel: Any, *, grid: Any, block: Any, outputs: Sequence[str] | Mapping[str, Any] | None = None, shared_mem: Any = 0
) -> Callable[..., Any]:
    """A kernel as a function of JAX's arrays: it takes the kernel's arguments in order and returns its outputs, one array or a tuple.

        square = gpuad.jax.function(kernel, outputs=["x"], grid=lambda n: (n + 255) // 256, block=256)
        y = square(x, n)

    `kernel`, `grid`, `block`, `shared_mem`, `outputs`: as of `gpuad.torch.function`. What the kernel overwrites and is passed comes back as
    a result; under `jax.jit` with `donate_argnums` in the operand's own memory. Whole numbers decide about the launch and are Python's
    (`static_argnums`); floats by value may be traced, and have gradients. jit, grad, jvp and vmap (one launch for each element) work;
    second derivatives JAX refuses. Raises LaunchError for what cannot be launched, while it is traced, and as `gpuad.autodiff` does."""
    signature = read_signature(kernel, grid, block, shared_mem, outputs, "gpuad.jax")
    launches = Launches(signature)

    def called(*args: Any) -> Any:
        given = signature.whole(args)
        words = tuple(_word(signature.word(k), given[k]) if k in signature.words else None for k in range(launches.count))
        operands = {k: jnp.asarray(given[k]) for k in (*signature.pointers, *signature.reals) if given[k] is not None}
        operands |= {k: jnp.zeros(*launches.layout(_call(operands, words, launches), k)) for k in signature.fresh}
        call = _call(operands, words, launches)
        order = tuple(sorted(operands))
        found = _launch.bind(*(operands[k] for k in order), launches=launches, call=call, order=order)
        made = [found[_written(launches, call).index(k)] for k in signature.outputs]
        return made[0] if len(made) == 1 else tuple(made)

    called.__name__ = called.__qualname__ = signature.name
    called.__doc__ = f"The kernel `{signature.name}`: {', '.join(signature.word(k) for k in signature.passed)}."
    return called


def _word(name: str, x: Any) -> Any:
    if isinstance(x, jax.core.Tracer) or (hasattr(x, "ndim") and x.ndim):
        raise LaunchError(f"`{name}` is a number by value that decides about the launch: pass Python's (under jit by static_argnums)")
    return x.item() if hasattr(x, "item") else x


def _call(operands: Mapping[int, Any], words: tuple[Any, ...], launches: Launches) -> Call:
    pointers = launches.signature.pointers
    layouts = tuple(
        (tuple(operands[k].shape), str(operands[k].dtype)) if k in operands and k in pointers else None for k in range(launches.count)
    )
    return Call(layouts, words, (False,) * launches.count)


def _written(launches: Launches, call: Call) -> list[int]:
    """Positions of what a launch gives: all that it writes."""
    return [k for k in sorted(launches.signature.written) if call.layouts[k] is not None]


def _active(call: Call) -> list[int]:
    return [k for k, on in enumerate(call.active) if on]


# --- arrays of XLA ----------------------------------------------------------------------------------------------------------------------


def _array(buffer: Any) -> Any:
    """A buffer as an array of NumPy or CuPy: the same memory."""
    return np.asarray(buffer) if buffer.__dlpack_device__()[0] == 1 else cuda.from_interface(buffer)


def _stream(context: Any, buffers: Sequence[Any]) -> AbstractContextManager[Any]:
    """XLA's stream, if the buffers live on a GPU."""
    kind, device = buffers[0].__dlpack_device__()
    return nullcontext() if kind == 1 else cuda.on_foreign_stream(context.stream, device)


def _callback(work: Callable[..., None], results: Sequence[Any], operands: Sequence[Any], aliases: Mapping[int, int]) -> list[Any]:
    """An operation in Python on XLA's buffers: `work(results, operands)`, of which results alias operands."""

    def run(context: Any, out: Any, *given: Any) -> None:
        with _stream(context, (*out, *given)):
            work([_array(b) for b in out], [_array(b) for b in given])

    return list(buffer_callback(run, tuple(results), input_output_aliases=dict(aliases))(*operands))


def _shape(shape: Sequence[int], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


# --- the operations ---------------------------------------------------------------------------------------------------------------------


def _launch_results(launches: Launches, call: Call) -> list[Any]:
    made = [_shape(*launches.layout(call, k)) for k in _written(launches, call)]
    logs = launches.split(call).logs if any(call.active) else ()
    return [*made, *(_shape((size,), dtype) for size, dtype in logs)]


def _launch_work(*operands: Any, launches: Launches, call: Call, order: tuple[int, ...]) -> list[Any]:
    written = _written(launches, call)

    def work(out: list[Any], given: list[Any]) -> None:
        args = _placed(launches, call, order, given)
        for k, x in zip(written, out, strict=False):
            args[k] = x
        launches.forward(call, args, out[len(written) :])

    aliases = {order.index(k): j for j, k in enumerate(written)}
    return _callback(work, _launch_results(launches, call), operands, aliases)


def _placed(launches: Launches, call: Call, order: Sequence[int], given: Sequence[Any]) -> list[Any]:
    """Operands by position, floats by value as Python's."""
    args: list[Any] = list(call.words)
    for k, x in zip(order, given, strict=True):
        args[k] = float(x) if k in launches.signature.reals else x
    return args


def _launch_abstract(*_: Any, launches: Launches, call: Call, order: tuple[int, ...]) -> list[Any]:
    launches.split(call)  # which refuses now what cannot be launched
    return [jax.core.ShapedArray(r.shape, r.dtype) for r in _launch_results(launches, call)]


def _launch_jvp(primals: Sequence[Any], dots: Sequence[Any], *, launches: Launches, call: Call, order: tuple[int, ...]) -> Any:
    signature = launches.signature
    able = (*signature.floats, *signature.reals)
    wanted = [False] * launches.count
    for k, dot in zip(order, dots, strict=True):
        wanted[k] = k in able and type(dot) is not ad.Zero
    call = call._replace(active=signature.active(wanted))
    found = _launch.bind(*primals, launches=launches, call=call, order=order)
    written = _written(launches, call)
    own = [(k, dot) for k, dot in zip(order, dots, strict=True) if wanted[k]]
    dotted = tuple(k for k, _ in own)
    split = launches.split(call)
    after = [found[written.index(k)] for k in split.reads if k in written]
    logs = found[len(written) :]
    pushed = iter(_tangent.bind(
        *primals, *after, *logs, *(ad.instantiate_zeros(d) for _, d in own), launches=launches, call=call, order=order, dotted=dotted,
        holds=len(after) + len(logs),
    ))  # fmt: skip
    tangents = [next(pushed) if call.active[k] else _zero(x) for k, x in zip(written, found, strict=False)]
    return found, [*tangents, *(_zero(log) for log in logs)]


def _zero(x: Any) -> Any:
    """The tangent of what does not move."""
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def _tangent_results(launches: Launches, call: Call) -> list[int]:
    return [k for k in _written(launches, call) if call.active[k]]


def _tangent_abstract(*_: Any, launches: Launches, call: Call, **__: Any) -> list[Any]:
    return [jax.core.ShapedArray(*launches.layout(call, k)) for k in _tangent_results(launches, call)]


def _tangent_work(*operands: Any, launches: Launches, call: Call, order: tuple[int, ...], dotted: tuple[int, ...], holds: int) -> list[Any]:
    count, active, results = len(order), _active(call), _tangent_results(launches, call)
    state = {k: x for k, x in zip(order, operands, strict=False) if k in launches.signature.written}
    dots = dict(zip(dotted, operands[count + holds :], strict=True))
    kinds = {k: launches.shadow_dtype(call, k) for k in active}
    shapes = {k: () if k in launches.signature.reals else launches.layout(call, k)[0] for k in active}
    # what is overwritten, states and tangents, is given as operands that alias results
    changed = [*state.values(), *(dots[k].astype(kinds[k]) if k in dots else jnp.zeros(shapes[k], kinds[k]) for k in active)]
    still = operands[:count]

    def work(out: list[Any], given: list[Any]) -> None:
        args = _placed(launches, call, order, given[len(changed) :])
        for k, x in zip(state, out, strict=False):
            args[k] = x
        shadows: list[Any] = [None] * launches.count
        for k, x in zip(active, out[len(state) :], strict=True):
            shadows[k] = x
        launches.tangents(call, args, shadows)

    made = [*(_shape(x.shape, x.dtype) for x in state.values()), *(_shape(shapes[k], kinds[k]) for k in active)]
    found = _callback(work, made, [*changed, *still], {j: j for j in range(len(changed))})[len(state) :]
    return [found[active.index(k)].astype(launches.layout(call, k)[1]) for k in results]


def _tangent_transpose(
    seeds: Sequence[Any], *operands: Any, launches: Launches, call: Call, order: tuple[int, ...], dotted: tuple[int, ...], holds: int
) -> Any:
    if any(ad.is_undefined_primal(x) for x in operands[: len(order) + holds]):
        raise NotImplementedError("a tangent is linear in tangents alone")
    results, split = _tangent_results(launches, call), launches.split(call)
    nothing = [None] * (len(order) + holds)
    if all(type(s) is ad.Zero for s in seeds):
        return [*nothing, *(ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in operands[len(order) + holds :])]
    primals = dict(zip(order, operands, strict=False))
    written = _written(launches, call)
    after = dict(zip((k for k in split.reads if k in written), operands[len(order) :], strict=False))
    reads = [after[k] if k in after else primals[k] for k in split.reads]
    before = [primals[k] for k in split.before]
    logs = operands[len(order) + holds - len(split.logs) : len(order) + holds]
    reals = [primals[k] for k in launches.signature.reals]
    given = [ad.instantiate_zeros(s) for s in seeds]
    found = _reverse.bind(*reads, *before, *logs, *reals, *given, launches=launches, call=call, dotted=dotted)
    assert len(given) == len(results)
    pulled = dict(zip(dotted, found, strict=True))
    return [
        *nothing,
        *(pulled[k] if ad.is_undefined_primal(x) else None for k, x in zip(dotted, operands[len(order) + holds :], strict=True)),
    ]


def _reverse_abstract(*operands: Any, launches: Launches, call: Call, dotted: tuple[int, ...]) -> list[Any]:
    found = []
    split, reals = launches.split(call), launches.signature.reals
    skip = len(split.reads) + len(split.before) + len(split.logs)
    for k in dotted:
        if k in reals:
            x = operands[skip + reals.index(k)]
            found.append(jax.core.ShapedArray((), x.dtype))
        else:
            found.append(jax.core.ShapedArray(*launches.layout(call, k)))
    return found


def _reverse_work(*operands: Any, launches: Launches, call: Call, dotted: tuple[int, ...]) -> list[Any]:
    split, signature, active = launches.split(call), launches.signature, _active(call)
    cuts = np.cumsum([len(split.reads), len(split.before), len(split.logs), len(signature.reals)])
    seeds = dict(zip(_tangent_results(launches, call), operands[cuts[3] :], strict=True))
    kinds = {k: launches.shadow_dtype(call, k) for k in active}
    shapes = {k: () if k in signature.reals else launches.layout(call, k)[0] for k in active}
    # JAX pulls back by the transpose, gpuad (as PyTorch) by its conjugate: one is the other between two conjugations
    begun = [_conjugate(seeds[k]).astype(kinds[k]) if k in seeds else jnp.zeros(shapes[k], kinds[k]) for k in active]
    still = operands[: cuts[3]]

    def work(out: list[Any], given: list[Any]) -> None:
        held = given[len(begun) :]
        shadows: list[Any] = [None] * launches.count
        for k, x in zip(active, out, strict=True):
            shadows[k] = x
        reads, before = held[: cuts[0]], held[cuts[0] : cuts[1]]
        reals = dict(zip(signature.reals, map(float, held[cuts[2] : cuts[3]]), strict=True))
        launches.reverse(
            call,
            dict(zip(split.reads, reads, strict=True)),
            dict(zip(split.before, before, strict=True)),
            held[cuts[1] : cuts[2]],
            reals,
            shadows,
        )

    found = _callback(work, [_shape(x.shape, x.dtype) for x in begun], [*begun, *still], {j: j for j in range(len(begun))})
    types = [r.dtype for r in _reverse_abstract(*operands, launches=launches, call=call, dotted=dotted)]
    return [_conjugate(found[active.index(k)]).astype(t) for k, t in zip(dotted, types, strict=True)]


def _conjugate(x: Any) -> Any:
    return jnp.conj(x) if jnp.iscomplexobj(x) else x


# --- what JAX knows of them -------------------------------------------------------------------------------------------------------------


def _one_by_one(primitive: Any, operands: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> Any:
    """vmap: one after the other."""
    many = [jnp.moveaxis(x, d, 0) for x, d in zip(operands, dims, strict=True) if d is not None]

    def one(elements: Sequence[Any]) -> Any:
        rest = iter(elements)
        return tuple(primitive.bind(*(x if d is None else next(rest) for x, d in zip(operands, dims, strict=True)), **parameters))

    found = jax.lax.map(one, tuple(many))
    return list(found), [0] * len(found)


@lru_cache(maxsize=512)
def _compiled(primitive: Any, parameters: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    made: Callable[..., Any] = jax.jit(partial(primitive.bind, **dict(parameters)))
    return made


def _primitive(name: str, work: Callable[..., Any], abstract: Callable[..., Any]) -> Any:
    made = Primitive(name)
    made.multiple_results = True
    made.def_abstract_eval(abstract)
    made.def_impl(lambda *operands, **parameters: _compiled(made, tuple(sorted(parameters.items())))(*operands))
    mlir.register_lowering(made, mlir.lower_fun(work, multiple_results=True))
    batching.primitive_batchers[made] = partial(_one_by_one, made)
    return made


_launch = _primitive("gpuad_launch", _launch_work, _launch_abstract)
_tangent = _primitive("gpuad_tangent", _tangent_work, _tangent_abstract)
_reverse = _primitive("gpuad_reverse", _reverse_work, _reverse_abstract)
ad.primitive_jvps[_launch] = _launch_jvp
ad.primitive_transposes[_tangent] = _tangent_transpose

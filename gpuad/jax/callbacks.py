"""Operations of JAX that are Python on XLA's buffers, and what JAX has to know of each.

An operation is a primitive whose work is `jax.experimental.buffer_callback`: it runs on CPUs and GPUs, in XLA's stream. What is overwritten
is an operand that aliases a result, so XLA has put it there before, by donation or by a copy.

Within `jax.shard_map` a type says over which axes of the mesh a value varies. All operands of an operation are brought to the axes of all
of them, and so are its results: the transpose of that is the sum over devices, which is the gradient of what they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from ..arguments.recorder import unrecorded
from ..errors import LaunchError
from ..runtime import cuda


def on_device(buffer: Any) -> bool:
    """True if a buffer lives on a GPU."""
    return bool(buffer.__dlpack_device__()[0] != 1)


def stream_of(context: Any) -> int:
    """The address of XLA's stream, within a callback."""
    return int(context.stream)


def _array(buffer: Any) -> Any:
    """A buffer as an array of NumPy or CuPy: the same memory."""
    return cuda.from_interface(buffer) if on_device(buffer) else np.asarray(buffer)


def _stream(context: Any, buffers: Sequence[Any]) -> AbstractContextManager[Any]:
    """XLA's stream, if the buffers live on a GPU."""
    if not buffers or not on_device(buffers[0]):
        return nullcontext()
    return cuda.on_foreign_stream(stream_of(context), buffers[0].__dlpack_device__()[1])


def callback(work: Callable[..., None], results: Sequence[Any], operands: Sequence[Any], aliases: Mapping[int, int]) -> list[Any]:
    """An operation in Python: `work(results, operands)` on arrays. `aliases`: operands to results. A tape does not see it."""

    def run(context: Any, out: Any, *given: Any) -> None:
        with unrecorded(), _stream(context, (*out, *given)):
            work([_array(b) for b in out], [_array(b) for b in given])

    return list(buffer_callback(run, tuple(results), input_output_aliases=dict(aliases))(*operands))


def shape(x: Sequence[int], dtype: Any) -> Any:
    """What a result is."""
    return jax.ShapeDtypeStruct(tuple(x), dtype)


def number(x: Any) -> Any:
    """The number in an array of shape (). On a GPU it waits for the stream."""
    return (x if isinstance(x, np.ndarray) else x.get()).item()


def no_tangent(x: Any) -> Any:
    """The tangent of what does not move."""
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def is_zero(dot: Any) -> bool:
    """True if a tangent or cotangent is known to be none."""
    return type(dot) is ad.Zero


def conjugate(x: Any) -> Any:
    """JAX pulls back by the transpose, gpuad (as PyTorch) by its conjugate: one is the other between two conjugations."""
    return jnp.conj(x) if jnp.iscomplexobj(x) else x


class _Operation(Primitive):  # type: ignore[misc]
    """An operation whose operands are whole, and vary along the same axes of a mesh."""

    def bind(self, *operands: Any, **parameters: Any) -> Any:
        """Binds it: operands that are the same along an axis of others are cast to vary along it, those that are divided by their type are
        gathered. LaunchError for sums over devices that are still to be made."""
        types = [jax.typeof(x) for x in operands]
        open_sums = sorted(map(str, set().union(*(_axes(t, "unreduced") for t in types))))
        if open_sums:
            raise LaunchError(
                f"an operand is a sum over the axis {', '.join(open_sums)} that is not made yet: jax.lax.psum it, or reshard it"
            )
        axes = set().union(*(_axes(t, "varying", "reduced") for t in types))
        given = [_cast(x, axes - _axes(t, "varying")) for x, t in zip(operands, types, strict=True)]
        return super().bind(*given, **parameters)


def _axes(type_: Any, *kinds: str) -> set[Any]:
    """The axes of a mesh along which a value varies, is a sum still to be made (`unreduced`), or the gradient of one (`reduced`)."""
    said = getattr(type_, "manual_axis_type", None)
    if said is not None:
        return set().union(*(getattr(said, kind) for kind in kinds))
    return set(getattr(type_, "vma", ())) if "varying" in kinds else set()  # JAX 0.9


def _cast(x: Any, axes: Iterable[Any]) -> Any:
    if any(part is not None for part in jax.typeof(x).sharding.spec):
        x = jax.sharding.reshard(x, PartitionSpec())
    for axis in sorted(axes, key=str):
        x = jax.lax.pcast(x, axis, to="varying")
    return x


def _result(one: Any, types: Sequence[Any]) -> Any:
    """The type of a result: it varies along the axes along which the operands do."""
    like = next((t for t in types if _axes(t, "varying")), None)
    if like is None:
        return jax.core.ShapedArray(one.shape, one.dtype)
    whole = NamedSharding(like.sharding.mesh, PartitionSpec(*[None] * len(one.shape)))
    return like.update(shape=one.shape, dtype=one.dtype, weak_type=False, sharding=whole)


def primitive(name: str, work: Callable[..., Any], results: Callable[..., Sequence[Any]]) -> Any:
    """An operation with several results. `work`: in operations of JAX; `results`: their shapes and dtypes. Both get the operands and the
    parameters. vmap runs it once for each element."""
    made = _Operation(name)
    made.multiple_results = True
    made.def_abstract_eval(lambda *a, **p: [_result(r, a) for r in results(*a, **p)])
    made.def_impl(lambda *operands, **parameters: _compiled(made, tuple(sorted(parameters.items())))(*operands))
    mlir.register_lowering(made, mlir.lower_fun(work, multiple_results=True))
    batching.primitive_batchers[made] = partial(_one_by_one, made)
    return made


@lru_cache(maxsize=512)
def _compiled(made: Any, parameters: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    return jax.jit(partial(made.bind, **dict(parameters)))  # type: ignore[no-any-return]


def _one_by_one(made: Any, operands: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> Any:
    many = [jnp.moveaxis(x, d, 0) for x, d in zip(operands, dims, strict=True) if d is not None]

    def one(elements: Sequence[Any]) -> Any:
        rest = iter(elements)
        return tuple(made.bind(*(x if d is None else next(rest) for x, d in zip(operands, dims, strict=True)), **parameters))

    found = jax.lax.map(one, tuple(many))
    return list(found), [0] * len(found)


def transposable(made: Any, held: Callable[[Any], int], transpose: Callable[..., Sequence[Any]]) -> None:
    """Says how an operation is transposed that is linear in all but its first operands, of which there are `held(launch)`:
    `transpose(cotangents, first operands, launch)` gives the cotangents of the others."""

    def rule(cotangents: Sequence[Any], *operands: Any, launch: Any) -> Any:
        first = held(launch)
        if any(ad.is_undefined_primal(x) for x in operands[:first]):
            raise NotImplementedError(f"{made} is not linear in all of its operands")
        if all(map(is_zero, cotangents)):
            return [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in operands]
        found = transpose(list(map(ad.instantiate_zeros, cotangents)), operands[:first], launch)
        return [*[None] * first, *(x if ad.is_undefined_primal(o) else None for x, o in zip(found, operands[first:], strict=True))]

    ad.primitive_transposes[made] = rule


def differentiated_once(made: Any, held: Callable[[Any], int], error: Callable[[Any], Exception]) -> None:
    """Says that such an operation has tangents of what it is linear in, and of its first operands none: `error(launch)`."""

    def rule(operands: Sequence[Any], dots: Sequence[Any], *, launch: Any) -> Any:
        first = held(launch)
        if not all(map(is_zero, dots[:first])):
            raise error(launch)
        moved = map(ad.instantiate_zeros, dots[first:])
        return made.bind(*operands, launch=launch), made.bind(*operands[:first], *moved, launch=launch)

    ad.primitive_jvps[made] = rule

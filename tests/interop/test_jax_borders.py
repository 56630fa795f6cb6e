"""What JAX may hand over, in every way that it may ask: operands x types x ways, each cell beside JAX's gradient of plain code, or refused.

Two devices are asked for before JAX starts, for `jax.shard_map`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'gpuad[jax]'")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from test_jax import doubles  # noqa: E402, F401

import gpuad  # noqa: E402
import gpuad.jax  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)

N = 6
TYPES = {
    "float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double", "complex64": "complex<float>",
    "complex128": "complex<double>",
}  # fmt: skip
HEAD = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cupy/complex.cuh>\n"


@cache
def square(dtype: str) -> Any:
    """y = w x x, and in place x = w x x."""
    text = "{{ int i = threadIdx.x; if (i < n) {} = w[i] * x[i] * x[i]; }}"
    t = TYPES[dtype]
    made = f'extern "C" __global__ void made(const {t}* x, const {t}* w, {t}* y, int n) {text.format("y[i]")}'
    changed = f'extern "C" __global__ void changed({t}* x, const {t}* w, int n) {text.format("x[i]")}'
    return gpuad.kernel(HEAD + made, "made"), gpuad.kernel(HEAD + changed, "changed")


@cache
def forms(dtype: str) -> dict[str, Callable[..., Any]]:
    """The same function of x and w, of an even number of elements: by gpuad in three ways."""
    made, changed = square(dtype)
    new = gpuad.jax.function(made, grid=1, block=32, outputs={"y": "x"})
    over = gpuad.jax.function(changed, grid=1, block=32)

    @gpuad.jax.program(outputs="x")
    def recorded(x: Any, w: Any) -> Any:
        changed[1, 32](x, w, x.size)
        return x

    return {
        "function": lambda x, w: new(x, w, x.size),
        "overwriting": lambda x, w: over(x, w, x.size),
        "program": recorded,
    }


def plain(x: Any, w: Any) -> Any:
    return w * x * x


def numbers(dtype: str, size: int = N, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=size) + (1j * rng.normal(size=size) if "complex" in dtype else 0)
    return jnp.asarray(values).astype(dtype)


def loss(y: Any) -> Any:
    """A real number that tells an output from its conjugate, its negative and its permutations."""
    ways = jnp.arange(1, y.size + 1).astype(y.dtype).reshape(y.shape) * (1 + 2j if jnp.iscomplexobj(y) else 1)
    return jnp.real(jnp.conj(y) * y * 0.25 + ways.astype(y.dtype) * y).sum()


def pulled(f: Any, operand: Any = lambda x: x) -> Any:
    return jax.grad(lambda x, w: loss(f(operand(x), w)), argnums=(0, 1))


def over_two(f: Any, check: bool, w_spec: Any) -> Any:
    """Each of two devices has half of x, and all of w or half of it."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("s",))
    return jax.shard_map(f, mesh=mesh, in_specs=(P("s"), w_spec), out_specs=P("s"), check_vma=check)


WAYS: dict[str, Callable[..., Any]] = {
    "eager": lambda f, g, x, w: pulled(f, g)(x, w),
    "compile": lambda f, g, x, w: jax.jit(pulled(f, g))(x, w),
    "vmap": lambda f, g, x, w: jax.vmap(pulled(f, g))(jnp.stack([x, 2 * x]), jnp.stack([w, -w])),
    "checkpoint": lambda f, g, x, w: pulled(jax.checkpoint(f), g)(x, w),
    "forward": lambda f, g, x, w: jax.jvp(lambda x, w: f(g(x), w), (x, w), (w, x))[1],
}
OPERANDS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "slice": lambda x: jnp.concatenate([x, x])[2 : N + 2],
    "strided": lambda x: jnp.stack([x, 3 * x], axis=1)[:, 0],
    "reversed": lambda x: x[::-1],
    "transposed": lambda x: x.reshape(2, -1).T.reshape(-1),
    "broadcast": lambda x: jnp.broadcast_to(x[:1], x.shape),
    "conjugate": jnp.conj,
    "negative": lambda x: -x,
}


def close(found: Any, expected: Any, dtype: str) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        digits = float(jnp.finfo(dtype).eps) * 16
        wide = np.complex128 if "complex" in dtype else np.float64
        np.testing.assert_allclose(np.asarray(a).astype(wide), np.asarray(b).astype(wide), rtol=digits, atol=digits * 8)


@pytest.mark.one_of(20)
@pytest.mark.parametrize("form", ["function", "overwriting", "program"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype: str, way: str, form: str) -> None:
    x, w = numbers(dtype), numbers(dtype, seed=1)
    own, theirs = (WAYS[way](f, OPERANDS["whole"], x, w) for f in (forms(dtype)[form], plain))
    close(own, theirs, dtype)


@pytest.mark.one_of(20)
@pytest.mark.parametrize("form", ["function", "overwriting", "program"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("operand", list(OPERANDS)[1:])
def test_operands(operand: str, way: str, form: str) -> None:
    x, w = numbers("complex128"), numbers("complex128", seed=1)
    own, theirs = (WAYS[way](f, OPERANDS[operand], x, w) for f in (forms("complex128")[form], plain))
    close(own, theirs, "complex128")


# --- jax.shard_map ------------------------------------------------------------------------------------------------------------------------


def doubled(f: Any) -> Any:
    """What two devices with halves of x and all of w do, on one."""
    return lambda x, w: jnp.concatenate([f(part, w) for part in jnp.split(x, 2)])


@pytest.mark.one_of(6)
@pytest.mark.parametrize("form", ["function", "overwriting", "program"])
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_replicated_weight_gets_the_gradients_of_all_devices(way: str, check: bool, form: str) -> None:
    x, w = numbers("float64", 2 * N), numbers("float64", seed=1)
    if way == "forward":
        dots = numbers("float64", 2 * N, 2), numbers("float64", seed=3)
        derive = lambda f: jax.jvp(f, (x, w), dots)  # noqa: E731
    else:
        derive = lambda f: WAYS[way](f, OPERANDS["whole"], x, w)  # noqa: E731
    close(derive(over_two(forms("float64")[form], check, P())), derive(doubled(plain)), "float64")


@pytest.mark.one_of(6)
@pytest.mark.parametrize("form", ["function", "overwriting", "program"])
@pytest.mark.parametrize("check", [True, False])
def test_sums_over_devices(check: bool, form: str) -> None:
    """Derivatives inside of the map and outside, of sums over devices; of a weight that both share, and of one that each has."""
    f = forms("float64")[form]
    x, w = numbers("float64", 2 * N), numbers("float64", seed=1)
    mesh = Mesh(np.array(jax.devices()[:2]), ("s",))

    def mapped(f: Any, out: Any) -> Any:
        return jax.shard_map(f, mesh=mesh, in_specs=(P("s"), P()), out_specs=out, check_vma=check)

    def total(f: Any) -> Any:
        return mapped(lambda x, w: jax.lax.psum(f(x, w).sum(), "s"), P())

    def inside(f: Any) -> Any:
        return mapped(lambda x, w: jax.grad(lambda x: f(x, w).sum())(x), P("s"))

    def scanned(f: Any) -> Any:
        step = lambda w: lambda c, _: (f(c, w) * 0.5, None)  # noqa: E731
        return mapped(lambda x, w: jax.lax.scan(step(w), x, length=3)[0], P("s"))

    for derive in (
        lambda f: jax.grad(total(f), (0, 1))(x, w),
        lambda f: jax.jit(jax.grad(lambda x, w: inside(f)(x, w).sum(), (0, 1)))(x, w) if form != "program" else (),
        lambda f: jax.grad(lambda x, w: scanned(f)(x, w).sum(), (0, 1))(x, w),
    ):
        close(derive(f), derive(plain), "float64")


def test_a_mesh_of_two_axes_and_one_left_to_jax() -> None:
    f = forms("float64")["function"]
    x, w = numbers("float64", 2 * N), numbers("float64", seed=1)
    mesh = Mesh(np.array(jax.devices()[:2]).reshape(2, 1), ("s", "t"))
    for names in ({"s"}, {"s", "t"}):
        sharded = jax.shard_map(f, mesh=mesh, in_specs=(P("s"), P()), out_specs=P("s"), axis_names=names)
        derive = jax.jit(pulled(sharded))
        close(derive(x, w), pulled(doubled(plain))(x, w), "float64")


def test_results_that_differ_by_device_are_not_taken_for_replicated() -> None:
    x, w = numbers("float64", 2 * N), numbers("float64", seed=1)
    mesh = Mesh(np.array(jax.devices()[:2]), ("s",))
    for f in forms("float64").values():
        with pytest.raises(ValueError, match="out_specs which require replication"):
            jax.shard_map(f, mesh=mesh, in_specs=(P("s"), P()), out_specs=P())(x, w)
        same = jax.shard_map(f, mesh=mesh, in_specs=(P(), P()), out_specs=P())
        close(pulled(same)(x[:N], w), pulled(plain)(x[:N], w), "float64")


def test_arrays_that_lie_on_two_devices() -> None:
    """Without `jax.shard_map`, of a mesh that the compiler divides by itself, and of one that is part of the types."""
    f = forms("float64")["function"]
    x, w = numbers("float64"), numbers("float64", seed=1)
    expected = pulled(plain)(x, w)
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((2,), ("s",), axis_types=(kind,))
        with jax.set_mesh(mesh):
            own = jax.device_put(x, NamedSharding(mesh, P("s"))), jax.device_put(w, NamedSharding(mesh, P()))
            for derive in (pulled(f), jax.jit(pulled(f))):
                close(derive(*own), expected, "float64")


def test_sums_over_devices_that_are_still_to_be_made_are_refused() -> None:
    f = forms("float64")["function"]
    mesh = jax.make_mesh((2,), ("s",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x, w = jax.device_put(numbers("float64", 2 * N), P("s")), jax.device_put(numbers("float64"), P())
        open_sum = lambda x, w: jax.lax.psum(f(jax.lax.pcast(x, "s", to="unreduced"), w), "s")  # noqa: E731
        with pytest.raises(gpuad.LaunchError, match=r"sum over the axis s that is not made yet"):
            jax.jit(jax.shard_map(open_sum, mesh=mesh, in_specs=(P("s"), P()), out_specs=P()))(x, w)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("made", [lambda x: x[::-1], lambda x: x[::2], lambda x: np.asfortranarray(x.reshape(2, -1)), lambda x: -x.conj()])
def test_numpy_s_arrays_however_they_lie(made: Any) -> None:
    x = made(np.asarray(numbers("complex128", 4 * N)))
    w = made(np.asarray(numbers("complex128", 4 * N, 1)))
    for f in forms("complex128").values():
        close(pulled(f)(x, w), pulled(plain)(x, w), "complex128")
        close(jax.jit(pulled(f))(x, w), pulled(plain)(x, w), "complex128")

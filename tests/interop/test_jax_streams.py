"""Buffers of XLA on a GPU: what is launched goes into XLA's stream, on the buffers' own memory.

Without a GPU buffers on the host stand for those on a device, and a stand-in for CuPy keeps what comes on which stream; it raises where
memory is used on two streams without an event between. Tests marked `gpu` do the same on one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'gpuad[jax]'")

import fake_cupy  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import gpuad  # noqa: E402
import gpuad.jax  # noqa: E402
from gpuad.jax import callbacks  # noqa: E402
from gpuad.runtime import cuda  # noqa: E402

N = 300
TEXT = r"""
extern "C" __global__ void k(float* x, const float* a, float c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = c * a[i] * x[i] * x[i];
}"""
KERNEL = gpuad.kernel(TEXT, "k")


def _function() -> Any:
    return gpuad.jax.function(KERNEL, grid=3, block=128)


@pytest.fixture
def streams(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Streams of the stand-in; the first is XLA's."""
    made = [fake_cupy.Stream(non_blocking=True), fake_cupy.Stream(non_blocking=True)]
    jax.clear_caches()  # what was traced has its arrays on the host
    callbacks._compiled.cache_clear()
    monkeypatch.setattr(callbacks, "on_device", lambda buffer: True)
    monkeypatch.setattr(callbacks, "stream_of", lambda context: made[0].ptr)
    monkeypatch.setattr(cuda, "from_interface", _lent)
    fake_cupy.NULL.launches.clear()
    return made


def _lent(buffer: Any) -> Any:
    content = np.asarray(buffer)
    return fake_cupy.ndarray._of(content, fake_cupy._Foreign(content.ravel(order="K")))


@pytest.mark.parametrize("compiled", [False, True])
def test_everything_is_put_into_xla_s_stream(streams: list[Any], compiled: bool) -> None:
    f = _function()
    x, a = jnp.arange(1.0, N + 1), jnp.full(N, 0.5)
    loss = lambda x, a, c: f(x, a, c, N).sum()  # noqa: E731
    derive = lambda x, a, c: jax.value_and_grad(loss, argnums=(0, 1, 2))(x, a, c)  # noqa: E731
    value, (dx, da, dc) = (jax.jit(derive) if compiled else derive)(x, a, 2.0)
    assert np.array_equal(dx, 2 * x) and np.array_equal(da, 2 * x**2)
    np.testing.assert_allclose([value, dc], [(x**2).sum(), (0.5 * x**2).sum()], rtol=1e-5)
    assert streams[0].launches == ["k", "k_reverse"] and not streams[1].launches
    assert not fake_cupy.NULL.launches, "nothing on the default stream"
    assert fake_cupy.Stream.current is fake_cupy.NULL, "CuPy's own current stream is as it was"


def test_tangents_and_second_derivatives_too(streams: list[Any]) -> None:
    f = _function()
    x, a = jnp.arange(1.0, N + 1), jnp.full(N, 0.5)
    assert np.array_equal(jax.jvp(lambda x: f(x, a, 2.0, N), (x,), (jnp.ones(N),))[1], 2 * x)
    assert np.array_equal(jax.jvp(jax.grad(lambda x: f(x, a, 2.0, N).sum()), (x,), (x,))[1], 2 * x)
    assert streams[0].launches and not streams[1].launches and not fake_cupy.NULL.launches


def test_another_stream_of_the_reverse_is_seen(streams: list[Any]) -> None:
    """Whoever changes streams orders them, else the stand-in raises."""
    text = 'extern "C" __global__ void e(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = expf(x[i]); }'
    f = gpuad.jax.function(gpuad.kernel(text, "e"), grid=3, block=128)
    x = jnp.linspace(0.0, 1.0, N)
    y, pull = jax.vjp(lambda x: f(x, N), x)
    streams.reverse()
    with pytest.raises(Exception, match="two streams"):
        jax.block_until_ready(pull(jnp.ones(N)))
    y, pull = jax.vjp(lambda x: f(x, N), x)  # on what is the first stream now
    event = streams[0].record()
    streams.reverse()
    streams[0].wait_event(event)
    assert np.array_equal(pull(jnp.ones(N))[0], y)


def test_a_donated_buffer_is_what_is_launched_on(streams: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    own = fake_cupy._argument

    def argument(parameter: Any, x: Any, *rest: Any) -> Any:
        if hasattr(parameter, "element"):
            seen.append(x.data.ptr if isinstance(x, fake_cupy.ndarray) else int(x))
        return own(parameter, x, *rest)

    monkeypatch.setattr(fake_cupy, "_argument", argument)
    f = _function()
    x, a = jnp.arange(1.0, N + 1) + 0, jnp.full(N, 0.5)
    at = [x.unsafe_buffer_pointer(), a.unsafe_buffer_pointer()]
    y = jax.block_until_ready(jax.jit(lambda x, a: f(x, a, 2.0, N), donate_argnums=0)(x, a))
    assert seen == at and y.unsafe_buffer_pointer() == at[0]


def test_programs(streams: list[Any]) -> None:
    @gpuad.jax.program(outputs="x")
    def twice(x: Any, a: Any) -> Any:
        for _ in range(2):
            KERNEL[3, 128](x, a, np.float32(2.0), N)
        return x

    x, a = jnp.arange(1.0, N + 1), jnp.full(N, 0.5)
    assert np.array_equal(twice(x, a), x**4)
    for _ in range(2):
        dx, da = jax.jit(jax.grad(lambda x, a: twice(x, a).sum(), argnums=(0, 1)))(x, a)
        np.testing.assert_allclose(dx, 4 * x**3, rtol=1e-6)
        np.testing.assert_allclose(da, 6 * x**4, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(lambda x: twice(x, a), (x,), (jnp.ones(N),))[1], 4 * x**3, rtol=1e-6)
    assert streams[0].launches and not streams[1].launches and not fake_cupy.NULL.launches


@pytest.mark.gpu
@pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX finds no GPU")
def test_on_a_device() -> None:
    f = _function()
    x, a = jnp.arange(1.0, N + 1), jnp.full(N, 0.5)
    value, (dx, da) = jax.jit(jax.value_and_grad(lambda x, a: f(x, a, 2.0, N).sum(), argnums=(0, 1)))(x, a)
    np.testing.assert_allclose(value, (x**2).sum(), rtol=1e-5)
    assert np.array_equal(dx, 2 * x) and np.array_equal(da, 2 * x**2)
    np.testing.assert_allclose(jax.jvp(jax.grad(lambda x: f(x, a, 2.0, N).sum()), (x,), (x,))[1], 2 * x)

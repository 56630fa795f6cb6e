"""`gpuad.jax.function`: kernels of `kernels/` before JAX's own checker, donation by address, transforms, what is held and what is
refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from nightly import NIGHTLY, share

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'gpuad[jax]'")

import jax.numpy as jnp  # noqa: E402
from framework_cases import TWENTY, described  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import gpuad  # noqa: E402
import gpuad.jax  # noqa: E402

N = 300


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    """Double precision within a test."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def body(parameters: str, statement: str) -> Any:
    guard = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { "
    head = "#include <cuda_fp16.h>\n#include <cupy/complex.cuh>\n"
    return gpuad.kernel(f'{head}extern "C" __global__ void k({parameters}, int n) {{ {guard}{statement} }} }}', "k")


def function(k: Any, **more: Any) -> Any:
    return gpuad.jax.function(k, grid=lambda n: (n + 127) // 128, block=128, **more)


SQUARE = body("double* x", "x[i] = x[i] * x[i];")
SCALE = body("const double* x, double* y, double a", "y[i] = a * x[i];")
PRODUCT = body("const double* a, const double* b, double* y", "y[i] = a[i] * b[i];")


def values(n: int = N, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=n))


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", share(list(TWENTY), 2))
def test_check_grads_in_both_modes_under_jit(name: str) -> None:
    d = described(name)
    f = gpuad.jax.function(d.kernel, grid=d.grid, block=d.block, shared_mem=d.shared_mem)

    @jax.jit
    def call(*free: Any) -> Any:
        return f(*{**d.arguments, **dict(zip(d.active, free, strict=True))}.values())

    check_grads(call, tuple(jnp.asarray(d.arguments[n]) for n in d.active), order=1, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


def test_a_donated_input_is_changed_in_place() -> None:
    f = function(SQUARE)
    donating, keeping = jax.jit(lambda x: f(x, N), donate_argnums=0), jax.jit(lambda x: f(x, N))
    x = values() + 0
    at, before = x.unsafe_buffer_pointer(), np.array(x)
    y = keeping(x)
    assert y.unsafe_buffer_pointer() != at and np.array_equal(x, before)
    y = donating(x)
    assert y.unsafe_buffer_pointer() == at and x.is_deleted() and np.array_equal(y, before**2)


def test_what_lies_between_is_what_an_adjoint_reads() -> None:
    """What a pullback's callback is given beside the seed, which aliases its result: of `a * b` what it multiplies with, of a scaling by a
    constant the constant."""
    a, b = values(), values(seed=1)
    product, scale = function(PRODUCT, outputs={"y": "a"}), function(SCALE, outputs={"y": "x"})

    def read(f: Any, *args: Any) -> list[str]:
        text = jax.jit(lambda seed, *args: jax.vjp(f, *args)[1](seed)).lower(jnp.ones(N), *args).as_text()
        (reverse,) = [line for line in text.splitlines() if "custom_call" in line][-1:]
        return re.findall(r"tensor<([^>]*)>", reverse.rpartition("} : (")[2].partition("->")[0])

    array = f"{N}xf64"
    assert sorted(read(lambda a, b: product(a, b, N), a, b)) == [array] * 5, "three shadows, both factors"
    assert sorted(read(lambda a: product(a, b, N), a)) == [array] * 3, "two shadows; the gradient of `a` reads `b` alone"
    assert sorted(read(lambda x: scale(x, 2.0, N), a)) == [array] * 2 + ["f64"]


def test_saved_bytes_are_outputs() -> None:
    counted = gpuad.kernel(
        'extern "C" __global__ void k(const double* x, double* y, int* count, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; '
        "if (i < n && x[i] > 0) { int at = atomicAdd(count, 1); y[at] = x[i] * x[i]; } }",
        "k",
    )
    f = function(counted, outputs={"y": "x", "count": 1})
    x = values()
    loss = lambda x: f(x, N)[0].sum()  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), np.where(x > 0, 2 * x, 0))
    launches = [e for e in jax.make_jaxpr(jax.grad(loss))(x).eqns if e.primitive.name == "gpuad_launch"]
    assert [str(v.aval) for v in launches[0].outvars] == ["float64[300]", "int32[1]", f"int32[{3 * 128}]"]


def test_transforms() -> None:
    f = function(PRODUCT, outputs={"y": "a"})
    a, b = values(5), values(5, 1)
    of_a = lambda a: f(a, b, 5)  # noqa: E731
    np.testing.assert_allclose(jax.jacrev(of_a)(a), np.diag(b))
    np.testing.assert_allclose(jax.jacfwd(of_a)(a), np.diag(b))
    many = jnp.stack([a, 2 * a, 3 * a])
    np.testing.assert_allclose(jax.vmap(of_a)(many), many * b)
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda a: (of_a(a) ** 2).sum()))(many), 2 * many * b * b)
    np.testing.assert_allclose(jax.grad(lambda m: (jax.vmap(of_a)(m) ** 2).sum())(many), 2 * many * b * b)
    np.testing.assert_allclose(jax.grad(lambda m: (jax.vmap(of_a, in_axes=1)(m) ** 2).sum())(many.T), (2 * many * b * b).T)
    np.testing.assert_allclose(jax.grad(jax.checkpoint(lambda a: (of_a(of_a(a)) ** 2).sum()))(a), 2 * a * b**4)
    np.testing.assert_allclose(f(a, a, 5), a * a)
    np.testing.assert_allclose(jax.grad(lambda a: f(a, a, 5).sum())(a), 2 * a)


def test_second_derivatives() -> None:
    """Each way to take them, of a kernel in place that reads what it overwrites, beside JAX's own operations."""
    f = function(body("double* x, const double* w, double a", "x[i] = a * x[i] * x[i] * w[i] + exp(x[i] * w[(i + 1) % n]);"))
    own = lambda x, w, a: f(x, w, a, 5)  # noqa: E731
    theirs = lambda x, w, a: a * x * x * w + jnp.exp(x * jnp.roll(w, -1))  # noqa: E731
    args, ways = (values(5), values(5, 1), jnp.asarray(0.7)), (values(5, 2), values(5, 3), jnp.asarray(0.3))
    loss = lambda f: lambda *args: (f(*args) ** 2).sum()  # noqa: E731
    every = (0, 1, 2)
    ways_to_derive = (
        lambda f: jax.hessian(loss(f), argnums=every)(*args),
        lambda f: jax.jvp(jax.grad(loss(f), argnums=every), args, ways)[1],
        lambda f: jax.jit(
            jax.grad(lambda *args: sum((g * w).sum() for g, w in zip(jax.grad(loss(f), every)(*args), ways, strict=True)), every)
        )(*args),
        lambda f: jax.jvp(jax.jit(jax.grad(loss(f))), args, ways)[1],
        lambda f: jax.grad(lambda w: (jax.grad(loss(f))(args[0], w, args[2]) * ways[0]).sum())(args[1]),  # of a gradient of another
        lambda f: jax.grad(lambda v: (jax.vjp(f, *args)[1](v)[1] ** 2).sum())(ways[0]),  # by the seed alone
        lambda f: jax.jacfwd(lambda v: jax.jvp(jax.grad(loss(f)), args, (v, *ways[1:]))[1])(ways[0]),  # by the direction alone
        lambda f: jax.vmap(jax.hessian(lambda x: loss(f)(x, *args[1:])))(jnp.stack([args[0], ways[0]])),
    )
    for derive in share(ways_to_derive, 3):
        for a, b in zip(jax.tree.leaves(derive(own)), jax.tree.leaves(derive(theirs)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    check_grads(own, args, order=2 if NIGHTLY else 1, modes=("rev",), rtol=1e-4)
    third = (
        jax.jacfwd(jax.jacfwd(loss(own))),
        jax.jacfwd(jax.hessian(loss(own))),
        jax.grad(lambda *a: jax.hessian(loss(own))(*a)[0, 0]),
    )
    for derive in share(third, 3):
        with pytest.raises(gpuad.UnsupportedError, match=r"twice at most, the second time a reverse pass: .*jax\.jvp of jax\.grad"):
            derive(*args)


def test_second_derivatives_of_complex_numbers() -> None:
    k = body("const complex<double>* z, const complex<double>* w, complex<double>* y", "y[i] = z[i] * z[i] * conj(w[i]);")
    f = function(k, outputs={"y": "z"})
    z, w, u, v = (values(5, s) + 1j * values(5, s + 4) for s in range(4))
    loss = lambda f: lambda z, w: (jnp.abs(f(z, w)) ** 2).sum() + f(z, w).imag[0]  # noqa: E731
    pulled = lambda f: lambda z, w: jax.grad(loss(f), argnums=(0, 1))(z, w)  # noqa: E731
    twice = lambda f: jax.grad(lambda z, w: sum(jnp.real(g * x).sum() for g, x in zip(pulled(f)(z, w), (u, v), strict=True)), (0, 1))(z, w)  # noqa: E731
    own, theirs = (lambda z, w: f(z, w, 5)), (lambda z, w: z * z * w.conj())
    for derive in (lambda f: jax.jvp(pulled(f), (z, w), (u, v))[1], twice):
        for a, b in zip(derive(own), derive(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)


def test_scan() -> None:
    f = function(SQUARE)
    x = values(4) * 0.5
    loss = lambda x: jax.lax.scan(lambda x, _: (f(x, 4), None), x, length=3)[0].sum()  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), 8 * x**7, rtol=1e-12)


def test_numbers_by_value() -> None:
    f = function(SCALE, outputs={"y": "x"})
    x = values()
    assert jnp.allclose(jax.jit(jax.grad(lambda a: f(x, a, N).sum()))(2.0), x.sum())
    assert jax.grad(lambda a: f(x, a, N).sum())(jnp.float32(2.0)).dtype == jnp.float32
    with pytest.raises(gpuad.LaunchError, match="static_argnums"):
        jax.jit(lambda x, n: f(x, 1.0, n))(x, N)
    assert jnp.allclose(jax.jit(lambda x, n: f(x, 3.0, n), static_argnums=1)(x, N), 3 * x)


def test_complex_conventions_are_jax_s() -> None:
    k = body("const complex<double>* z, const complex<double>* w, complex<double>* y", "y[i] = z[i] * z[i] * conj(w[i]);")
    f = function(k, outputs={"y": "z"})
    z, w = values() + 1j * values(seed=1), values(seed=2) + 1j * values(seed=3)
    loss = lambda y: (jnp.abs(y) ** 2).sum() + y.real[0]  # noqa: E731
    ours = jax.grad(lambda z, w: loss(f(z, w, N)), argnums=(0, 1))(z, w)
    theirs = jax.grad(lambda z, w: loss(z * z * w.conj()), argnums=(0, 1))(z, w)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b)
    dot = (values(seed=4) + 1j, values(seed=5) + 2j)
    ours, theirs = (jax.jvp(g, (z, w), dot)[1] for g in (lambda z, w: f(z, w, N), lambda z, w: z * z * w.conj()))
    np.testing.assert_allclose(ours, theirs)


def test_halves_and_integers() -> None:
    k = body("const __half* x, __half* y, int* bin", "y[i] = x[i] * x[i]; bin[i] = i;")
    f = function(k, outputs={"y": "x", "bin": "x"})
    x = jnp.arange(8, dtype=jnp.float16)
    y, bin_ = f(x, 8)
    assert y.dtype == jnp.float16 and bin_.dtype == jnp.int32 and np.array_equal(bin_, np.arange(8))
    dx = jax.grad(lambda x: f(x, 8)[0].sum())(x)
    assert dx.dtype == jnp.float16 and np.array_equal(dx, 2 * x)
    assert np.array_equal(jax.jvp(lambda x: f(x, 8)[0], (x,), (jnp.ones_like(x),))[1], 2 * x)


def test_refusals_come_while_it_is_traced() -> None:
    with pytest.raises(gpuad.LaunchError, match="its elements are not double"):
        function(SQUARE)(jnp.ones(N, jnp.float32), N)
    with pytest.raises(gpuad.LaunchError, match="takes 2 arguments"):
        function(SQUARE)(values())
    race = body("double* x", "if (i > 0) x[i] = 0.5 * x[i - 1];")
    with pytest.raises(gpuad.UnsupportedError, match="data race"):
        jax.jit(jax.grad(lambda x: function(race)(x, N).sum()))(values())
    at = body("const double* x, const int* at, double* y", "y[at[i]] = x[i] * x[i];")
    f = function(at, outputs={"y": "x"})
    order = jnp.asarray(np.random.default_rng(0).permutation(N).astype(np.int32))
    np.testing.assert_allclose(jax.grad(lambda x: f(x, order, N).sum())(values()), 2 * values())
    derived = jax.grad(lambda x, at: f(x, at, N).sum())
    for derive in (
        derived,
        jax.jit(derived),
        jax.jit(lambda x, at: jax.jvp(derived, (x, at), (x, np.zeros(at.shape, jax.dtypes.float0)))[1]),
    ):
        with pytest.raises(Exception, match="two threads write"):  # which only the data say, and also where nobody uses the output
            jax.block_until_ready(derive(values(), jnp.zeros(N, jnp.int32)))
        derive(values(), order)

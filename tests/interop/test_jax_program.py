"""`gpuad.jax.program`: a recorded program as one function, beside the same program in JAX's own operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nightly import NIGHTLY

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'gpuad[jax]'")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402
from test_jax import doubles  # noqa: E402, F401

import gpuad  # noqa: E402
import gpuad.jax  # noqa: E402

N, STEPS = 64, 21
STEP = gpuad.kernel(
    r"""
extern "C" __global__ void step(double* older, const double* now, const double* k, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) older[i] = 2.0 * now[i] - older[i] + k[i] * (now[i - 1] - 2.0 * now[i] + now[i + 1]) - 0.01 * now[i] * now[i];
}""",
    "step",
)


def leapfrog(u: Any, v: Any, k: Any, steps: int = STEPS) -> Any:
    """In place."""
    for _ in range(steps):
        STEP[1, 64](v, u, k, N)
        u, v = v, u
    return u, v


wave = gpuad.jax.program(leapfrog, outputs=("u", "v"))


def by_jax(u: Any, v: Any, k: Any, steps: int = STEPS) -> Any:
    """The same, each state an array of its own."""
    for _ in range(steps):
        inner = 2 * u[1:-1] - v[1:-1] + k[1:-1] * (u[:-2] - 2 * u[1:-1] + u[2:]) - 0.01 * u[1:-1] ** 2
        u, v = v.at[1:-1].set(inner), u
    return u, v


def inputs(seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    return jnp.asarray(0.1 * rng.normal(size=N)), jnp.asarray(0.1 * rng.normal(size=N)), jnp.full(N, 0.2)


def loss(found: Any) -> Any:
    return (found[0] ** 2).sum() + (found[1] * jnp.arange(N)).sum()


def gradient(f: Any, *args: Any) -> Any:
    return jax.grad(lambda *args: loss(f(*args)), argnums=(0, 1, 2))(*args)


def same(found: Any, expected: Any, rtol: float = 1e-11) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each program that is recorded on a tape."""
    seen: list[int] = []
    enter = gpuad.Tape.__enter__
    monkeypatch.setattr(gpuad.Tape, "__enter__", lambda tape: (seen.append(1), enter(tape))[1])
    return seen


def test_values_and_gradients_are_those_of_jax(recordings: list[int]) -> None:
    for seed in range(3 if NIGHTLY else 2):  # from the second time on the program is known
        same(wave(*inputs(seed)), by_jax(*inputs(seed)))
        same(gradient(wave, *inputs(seed)), gradient(by_jax, *inputs(seed)))
        same(jax.jit(lambda *a: gradient(wave, *a))(*inputs(seed)), gradient(by_jax, *inputs(seed)))
    assert len(recordings) == (6 if NIGHTLY else 4), "once for each gradient; without one there is no tape"


def test_check_grads_in_both_modes_under_jit() -> None:
    check_grads(jax.jit(lambda *a: wave(*a, 3)), inputs(), order=1, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


def test_transforms() -> None:
    args, ways = inputs(), inputs(5)
    one = lambda f: lambda u: f(u, *args[1:], 3)[0]  # noqa: E731

    def scanned(f: Any) -> Any:
        return lambda u, k: loss(jax.lax.scan(lambda c, _: (f(*c, k, 3), None), (u, args[1]), length=4)[0])

    same(jax.jvp(wave, args, ways), jax.jvp(by_jax, args, ways))
    many = tuple(jnp.stack([x, 0.5 * x, x + 0.1]) for x in args)
    same(jax.vmap(lambda *a: gradient(wave, *a))(*many), jax.vmap(lambda *a: gradient(by_jax, *a))(*many))
    same(jax.jacrev(one(wave))(args[0]), jax.jacrev(one(by_jax))(args[0]))
    same(jax.jit(jax.grad(scanned(wave), (0, 1)))(args[0], args[2]), jax.grad(scanned(by_jax), (0, 1))(args[0], args[2]))


@pytest.mark.nightly
def test_more_transforms() -> None:
    args = inputs()
    many = tuple(jnp.stack([x, 0.5 * x, x + 0.1]) for x in args)
    same(jax.vmap(wave)(*many), jax.vmap(by_jax)(*many))
    same(
        jax.vmap(lambda u: gradient(wave, u, *args[1:]), in_axes=1)(many[0].T), jax.vmap(lambda u: gradient(by_jax, u, *args[1:]))(many[0])
    )
    one = lambda f: lambda u: f(u, *args[1:], 3)[0]  # noqa: E731
    same(jax.jacfwd(one(wave))(args[0]), jax.jacfwd(one(by_jax))(args[0]))
    again = lambda f: lambda u: loss(f(f(u, *args[1:])[0] * 0.1, *args[1:]))  # noqa: E731
    same(jax.grad(jax.checkpoint(again(wave)))(args[0]), jax.grad(again(by_jax))(args[0]))


def test_a_donated_input_is_changed_in_place() -> None:
    donating = jax.jit(wave, donate_argnums=(0, 1))
    for steps in (STEPS, STEPS + 1):  # after an odd number of steps each field is where the other was
        u, v, k = inputs()
        u, v = u + 0, v + 0
        at, expected = [x.unsafe_buffer_pointer() for x in (u, v)], wave(u, v, k, steps)
        found = jax.jit(lambda *a, steps=steps: wave(*a, steps), donate_argnums=(0, 1))(u, v, k)
        assert [x.unsafe_buffer_pointer() for x in found] == at and u.is_deleted() and v.is_deleted()
        same(found, expected, rtol=0)
    u, v, k = inputs()
    before = [np.array(x) for x in (u, v, k)]
    jax.block_until_ready(jax.jit(wave)(u, v, k))
    same((u, v, k), before, rtol=0)
    same(donating(u, v, k), by_jax(*map(jnp.asarray, before)))


def test_a_pullback_is_called_several_times_and_late(recordings: list[int]) -> None:
    """A tape spares a run; where it is gone, there is another."""
    fresh = gpuad.jax.program(leapfrog, outputs=("u", "v"), tapes=2)
    pulls = [jax.vjp(fresh, *inputs(seed))[1] for seed in range(3)]
    ones = (jnp.ones(N), jnp.arange(float(N)))
    theirs = [jax.vjp(by_jax, *inputs(seed))[1](ones) for seed in range(3)]
    assert len(recordings) == 3 and len(fresh.sessions._waiting) == 2
    for seed in (2, 0, 1, 2):
        same(pulls[seed](ones), theirs[seed])
    assert len(recordings) == 5, "the tape of the first is gone, that of the last is used"
    assert not fresh.sessions._waiting and sum(map(len, fresh.sessions._free.values())) <= 3


def test_a_program_that_fails_is_said_and_does_no_harm() -> None:
    broken = [True]

    def fails(u: Any) -> Any:
        u *= 2.0
        if broken:
            raise ValueError("half way")
        return u

    f = gpuad.jax.program(fails, outputs="u")
    x = jnp.arange(4.0)
    for call in (f, jax.grad(lambda x: f(x).sum())):
        with pytest.raises(Exception, match="half way"):
            jax.block_until_ready(call(x))
    assert np.array_equal(x, np.arange(4.0))
    broken.clear()
    same(jax.grad(lambda x: (f(x) ** 2).sum())(x), 8 * x)


def test_operations_numbers_and_arrays_of_other_types() -> None:
    @gpuad.jax.program(outputs=lambda u: jax.ShapeDtypeStruct((), u.dtype))
    def energy(u: Any, times: int, index: Any) -> Any:
        for _ in range(times):
            u = u * u
        return gpuad.ops.sum(u[index])

    u, index = jnp.linspace(0.5, 1.0, 8), jnp.asarray([1, 3, 3])
    theirs = lambda u: (u[index] ** 4).sum()  # noqa: E731
    same(energy(u, 2, index), theirs(u))
    same(jax.jit(jax.grad(lambda u: energy(u, 2, index)))(u), jax.grad(theirs)(u))
    same(jax.jvp(lambda u: energy(u, 2, index), (u,), (u,))[1], jax.jvp(theirs, (u,), (u,))[1])

    @gpuad.jax.program(outputs="u")
    def ordered(u: Any) -> Any:
        return gpuad.ops.sort(u)

    with pytest.raises(Exception, match="reverse alone is stated"):
        jax.block_until_ready(jax.jvp(ordered, (u,), (u,)))

    @gpuad.jax.program(outputs="u", constant=("c",))
    def scaled(u: Any, c: Any, power: Any) -> Any:
        return u**power * c

    c = jnp.arange(8.0)
    for power in (2, 2.0, 3):
        for f in (
            jax.grad(lambda u, p=power: scaled(u, c, p).sum()),
            lambda u, p=power: jax.jvp(lambda u: scaled(u, c, p), (u,), (u / u,))[1],
        ):
            same(f(u), power * u ** (power - 1) * c)
    half = gpuad.kernel(
        '#include <cuda_fp16.h>\nextern "C" __global__ void k(__half* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }',
        "k",
    )

    @gpuad.jax.program(outputs="x")
    def square(x: Any) -> Any:
        half[1, 32](x, 8)
        return x

    x = jnp.arange(8, dtype=jnp.float16)
    for found in (jax.grad(lambda x: square(x).sum())(x), jax.jvp(square, (x,), (jnp.ones_like(x),))[1]):
        assert found.dtype == jnp.float16 and np.array_equal(found, 2 * x)


def test_complex_conventions_are_jax_s() -> None:
    k = gpuad.kernel(
        '#include <cupy/complex.cuh>\nextern "C" __global__ void k(complex<double>* z, const complex<double>* w, int n) '
        "{ int i = threadIdx.x; if (i < n) z[i] = z[i] * z[i] * conj(w[i]); }",
        "k",
    )

    @gpuad.jax.program(outputs="z")
    def ours(z: Any, w: Any) -> Any:
        k[1, 32](z, w, 8)
        k[1, 32](z, w, 8)
        return z

    def theirs(z: Any, w: Any) -> Any:
        for _ in range(2):
            z = z * z * w.conj()
        return z

    rng = np.random.default_rng(0)
    z, w, u, v = (jnp.asarray(rng.normal(size=8) + 1j * rng.normal(size=8)) for _ in range(4))
    total = lambda f: lambda z, w: (jnp.abs(f(z, w)) ** 2).sum() + f(z, w).imag[0]  # noqa: E731
    same(jax.grad(total(ours), (0, 1))(z, w), jax.grad(total(theirs), (0, 1))(z, w))
    same(jax.jvp(ours, (z, w), (u, v)), jax.jvp(theirs, (z, w), (u, v)))


def test_what_a_program_does_not_touch_is_given_on() -> None:
    @gpuad.jax.program(outputs=("u", "v", lambda v: jax.ShapeDtypeStruct((2,), v.dtype), "v"))
    def ours(u: Any, v: Any) -> Any:
        u *= u
        return u, v, v[2:4], v

    theirs = lambda u, v: (u * u, v, v[2:4], v)  # noqa: E731
    total = lambda f: lambda u, v: sum(((j + 1.0) * x**2).sum() for j, x in enumerate(f(u, v)))  # noqa: E731
    u, v, _ = inputs()
    for _ in range(2):
        same(jax.grad(total(ours), (0, 1))(u, v), jax.grad(total(theirs), (0, 1))(u, v))
    swap = gpuad.jax.program(lambda u, v: (v, u), outputs=("u", "v"))
    same(jax.jit(swap, donate_argnums=(0, 1))(u + 0, v + 0), (v, u), rtol=0)
    same(jax.grad(lambda u: swap(u, v)[1].sum())(u), jnp.ones(N))


def test_a_budget() -> None:
    small = gpuad.jax.program(leapfrog, outputs=("u", "v"), budget="8 kB")
    same(gradient(small, *inputs()), gradient(wave, *inputs()), rtol=0)


def test_refusals() -> None:
    with pytest.raises(gpuad.LaunchError, match="has no parameter `q`"):
        gpuad.jax.program(leapfrog, outputs="q")
    with pytest.raises(gpuad.LaunchError, match="any number of arguments"):
        gpuad.jax.program(lambda *fields: fields[0], outputs=())
    with pytest.raises(gpuad.LaunchError, match="an output is said by"):
        gpuad.jax.program(leapfrog, outputs=("steps",))(*inputs())
    with pytest.raises(gpuad.LaunchError, match="at least one array"):
        gpuad.jax.program(lambda n: n, outputs="n")(3)
    with pytest.raises(gpuad.LaunchError, match=r"`fields` is neither an array nor hashable \(list\)"):
        gpuad.jax.program(lambda u, fields: u, outputs="u")(jnp.ones(3), [jnp.ones(3)])
    for returned, word in (
        (lambda u: u.primal, "returned ndarray"),
        (lambda u: (u, u), "returned 2 pairs"),
        (lambda u: u[1:], "output 0 is"),
    ):
        with pytest.raises(Exception, match=word):
            jax.block_until_ready(gpuad.jax.program(returned, outputs="u")(jnp.ones(3)))
    with pytest.raises(gpuad.UnsupportedError, match="differentiated once"):
        jax.hessian(lambda u: loss(wave(u, *inputs()[1:])))(inputs()[0])
    with gpuad.Tape(), pytest.raises(gpuad.TapeError, match="inside a tape"):
        wave(*inputs())

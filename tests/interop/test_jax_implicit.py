"""An implicit time stepper, a kernel that solves a tridiagonal system in place, called from `jax.grad`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'gpuad[jax]'")

import jax.numpy as jnp  # noqa: E402
from framework_cases import CASES  # noqa: E402
from test_jax import doubles  # noqa: E402, F401

import gpuad  # noqa: E402
import gpuad.jax  # noqa: E402

N, STEPS, DT = 12, 6, 0.05
THOMAS = gpuad.kernel(CASES["tridiagonal"].file.text, "tridiagonal")
solve = gpuad.jax.function(THOMAS, grid=1, block=16, outputs={"x": None, "scratch": "x"})


def bands(conductivity: Any) -> tuple[Any, Any, Any]:
    """I - dt times the diffusion with a conductivity between each two cells, which no heat leaves: lower, diagonal, upper, of (cells,
    1)."""
    flux = DT * conductivity
    below, above = jnp.concatenate([jnp.zeros(1), flux]), jnp.concatenate([flux, jnp.zeros(1)])
    return -below[:, None], (1 + below + above)[:, None], -above[:, None]


def by_kernel(conductivity: Any, u: Any) -> Any:
    """Backward Euler: each step overwrites the state with the solution."""
    lower, diagonal, upper = bands(conductivity)

    def step(u: Any, _: Any) -> Any:
        return solve(lower, diagonal, upper, u, N, 1)[0], None

    return jax.lax.scan(step, u[:, None], length=STEPS)[0][:, 0]


def by_jax(conductivity: Any, u: Any) -> Any:
    """The same by dense matrices."""
    lower, diagonal, upper = (band[:, 0] for band in bands(conductivity))
    matrix = jnp.diag(diagonal) + jnp.diag(lower[1:], -1) + jnp.diag(upper[:-1], 1)
    for _ in range(STEPS):
        u = jnp.linalg.solve(matrix, u)
    return u


def test_the_gradient_through_an_implicit_stepper() -> None:
    conductivity = jnp.asarray(1.0 + np.random.default_rng(0).random(N - 1))
    u, target = jnp.asarray(np.eye(N)[3]), jnp.linspace(0.0, 0.2, N)
    loss = lambda way: lambda c, u: ((way(c, u) - target) ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(by_kernel(conductivity, u), by_jax(conductivity, u))
    ours = jax.jit(jax.grad(loss(by_kernel), argnums=(0, 1)))(conductivity, u)
    theirs = jax.grad(loss(by_jax), argnums=(0, 1))(conductivity, u)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.nightly
def test_a_fit() -> None:
    """The conductivity from what is left of the heat, by the gradient alone."""
    truth = jnp.asarray(1.0 + np.random.default_rng(1).random(N - 1))
    starts = [jnp.asarray(np.eye(N)[k]) for k in (2, 6, 9)]
    seen = [by_jax(truth, u) for u in starts]

    @jax.jit
    def slope(c: Any) -> Any:
        return jax.value_and_grad(lambda c: sum(((by_kernel(c, u) - s) ** 2).sum() for u, s in zip(starts, seen, strict=True)))(c)

    c = jnp.full(N - 1, 1.5)
    first = slope(c)[0]
    for _ in range(100):
        c = c - 20.0 * slope(c)[1]
    assert slope(c)[0] < 0.05 * first

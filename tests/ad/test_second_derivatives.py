"""Second derivatives where an element that carries a gradient is overwritten by a value that depends on active data and has derivative 0:
`hvp` beside differences of `autodiff`'s gradient, and beside figures by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated

N = 8
STEP = 1e-5


@pytest.fixture(autouse=True, params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Iterator[None]:
    with running(request.param):
        yield


def kernel(body: str) -> str:
    return f'extern "C" __global__ void k(double* y, const double* a, const int* n) {{ int t = threadIdx.x; {body} }}'


BODIES = {
    "rint": "y[t] = rint(y[t]); __syncthreads(); y[t] = y[t] * a[t];",
    "floor in a branch": "y[t] = y[t] * y[t]; if (a[t] > 0) y[t] = floor(a[t]); y[t] = y[t] * a[t];",
    "a local array": "double s[2] = {y[t], y[t] * a[t]}; s[n[t]] = rint(s[n[t]]); y[t] = s[0] * s[1] * a[t];",
    "a local array in a loop": "for (int j = 0; j < 3; j++) { double s[2] = {y[t], a[t]}; s[n[t]] = ceil(s[1 - n[t]]);"
    " y[t] = s[0] * s[1] * sin(y[t]); }",
    "copysign": "double v = y[t] * a[t]; y[t] = v * v; y[t] = copysign(2.0, a[t]); y[t] *= a[t] * a[t];",
    "0 times": "y[t] = y[t] * y[t]; y[t] = 2.0 + 0.0 * a[t]; y[t] = y[t] * a[t] * a[t];",
    "a select": "y[t] = y[t] * a[t]; y[t] = n[t] ? trunc(y[t]) : sin(a[t]); y[t] = y[t] * a[t];",
    "a loop": "for (int j = 0; j < 3; j++) { y[t] = y[t] * a[t] + sin(y[t]); if (j == n[t]) y[t] = round(y[t]); }",
    "a while loop": "while (y[t] < 7.0) { y[t] = y[t] * a[t]; if (y[t] > 4.0) y[t] = nearbyint(y[t]); } y[t] *= y[t];",
    "shared memory": f"__shared__ double s[{N}]; s[t] = y[t] * a[t]; __syncthreads(); y[t] = s[{N - 1} - t] * s[t]; __syncthreads();"
    " s[t] = floor(y[t]); __syncthreads(); y[t] = s[t] * s[t / 2] * a[t] * y[t];",
    "shared memory in a loop": f"for (int j = 0; j < 2; j++) {{ __shared__ double s[{N}]; s[t] = y[t] * a[t]; __syncthreads();"
    f" y[t] = s[{N - 1} - t] * sin(a[t]); __syncthreads(); s[t] = rint(s[t]); __syncthreads();"
    " y[t] += s[t / 2] * a[t]; __syncthreads(); }",
    "a struct": "struct P { double u, v; } p = {y[t], a[t]}; p.u = p.u * p.v; p.v = rint(p.u); y[t] = p.u * p.v * p.v;",
    "an integer": "y[t] = y[t] * y[t]; y[t] = (double)(int)y[t] + 0.0 * a[t]; y[t] = y[t] * a[t];",
}


def start() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.uniform(1.2, 3.4, N), rng.uniform(1.1, 2.4, N) * np.where(np.arange(N) % 3, 1, -1), np.arange(N, dtype=np.int32) % 2


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", BODIES)
def test_beside_differences_of_gradients(name: str) -> None:
    y, a, n = start()
    rng = np.random.default_rng(4)
    dot = {k: rng.standard_normal(N) for k in ("y", "a", "dy", "da")}
    seeds = {"dy": rng.standard_normal(N), "da": rng.standard_normal(N)}
    k = compiled(kernel(BODIES[name]), "k")

    def gradient(step: float) -> tuple[np.ndarray, ...]:
        state = [y + step * dot["y"], seeds["dy"] + step * dot["dy"], a + step * dot["a"], seeds["da"] + step * dot["da"]]
        gpuad.autodiff(k, 1, N, (Duplicated(*state[:2]), Duplicated(*state[2:]), n))
        return state[0], state[1], state[3]

    ahead, behind = gradient(STEP), gradient(-STEP)
    pairs = Duplicated(y.copy(), seeds["dy"].copy()), Duplicated(a.copy(), seeds["da"].copy()), n
    dots = Duplicated(dot["y"].copy(), dot["dy"].copy()), Duplicated(dot["a"].copy(), dot["da"].copy()), None
    gpuad.hvp(k, 1, N, pairs, dots)
    for got, plus, minus in zip((dots[0].primal, dots[0].shadow, dots[1].shadow), ahead, behind, strict=True):
        np.testing.assert_allclose(got, (plus - minus) / (2 * STEP), rtol=1e-6, atol=1e-6)


def test_the_tangent_of_a_shadow_that_is_taken_is_cleared() -> None:
    y, a = np.array([3.0, 5.0]), np.array([1.5, 2.5])
    pairs = Duplicated(y, np.ones(2)), Duplicated(a, np.zeros(2)), np.zeros(2, np.int32)
    dots = Duplicated(np.zeros(2), np.zeros(2)), Duplicated(np.ones(2), np.zeros(2)), None
    gpuad.hvp(compiled(kernel(BODIES["rint"]), "k"), 1, 2, pairs, dots)
    assert dots[0].shadow.tolist() == [0.0, 0.0]
    assert dots[1].shadow.tolist() == [0.0, 0.0] and pairs[1].shadow.tolist() == [3.0, 5.0]

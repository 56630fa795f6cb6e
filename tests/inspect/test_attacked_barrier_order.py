"""What an attack on threads that take turns has found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import running

import gpuad
from gpuad import Duplicated
from gpuad.errors import LaunchError

START = np.linspace(0.5, 1.5, 8)


def _gradient(body: str, to: list[int], grid: int = 1) -> Any:
    text = f"""extern "C" __global__ void k(double* x, const int* to) {{ int t = threadIdx.x; {body} }}"""
    x = Duplicated(START.copy(), np.ones(8))
    gpuad.autodiff(gpuad.kernel(text, "k"), grid, 4, (x, np.array(to, np.int32)))
    return x


MEETING = {
    "indirect": ("x[to[t]] *= 1.5;", 1),
    "blocks": ("x[t] *= 1.5;", 2),
    "block": ("x[blockIdx.x] *= 1.5;", 2),
    "pairs": ("double v = x[t / 2] + 1.0; x[t / 2] = v * v;", 1),
    "branches": ("if (t < 3) x[to[t]] = sin(x[to[t]]) * x[7];", 1),
    "loop": ("for (int k = 0; k < 2; k++) { x[to[t] + k] *= 1.5; __syncthreads(); }", 1),
    "later": ("x[to[t]] *= 1.5; __syncthreads(); x[7 - t] *= x[7 - t];", 1),
}


@pytest.mark.parametrize("executor", ["host", "reference"])
@pytest.mark.parametrize("name", MEETING)
def test_threads_that_update_one_element_do_not_store_one_value(name: str, executor: str) -> None:
    """Each may find there what another one has left: that all do the same with it does not make it the same."""
    body, grid = MEETING[name]
    with running(executor), pytest.raises(LaunchError, match="`x`"):
        _gradient(body, [0, 1, 1, 3], grid)


@pytest.mark.parametrize("executor", ["host", "reference"])
@pytest.mark.parametrize("name", ["indirect", "branches", "loop"])
def test_the_same_where_each_has_its_own_element(name: str, executor: str) -> None:
    with running(executor):
        if name == "branches":
            x = _gradient(MEETING[name][0], [0, 2, 1, 3])
            np.testing.assert_allclose(x.shadow[:3], np.cos(START[:3]) * START[7])
            np.testing.assert_allclose(x.shadow[7], 1 + np.sin(START[:3]).sum())
            return
        times = 1.5 ** np.array([1, 1, 1, 1, 0, 0, 0, 0]) if name == "indirect" else 1.5 ** np.array([1, 2, 2, 2, 1, 0, 0, 0])
        np.testing.assert_allclose(_gradient(MEETING[name][0], [0, 2, 1, 3]).shadow, times)


@pytest.mark.parametrize("executor", ["host", "reference"])
def test_threads_that_all_store_what_they_found_before_a_barrier(executor: str) -> None:
    """They have found one value, and store one value."""
    with running(executor):
        x = _gradient("double v = x[to[t]]; __syncthreads(); x[to[t]] = v * v;", [0, 1, 1, 3])
    np.testing.assert_allclose(x.shadow, [2 * START[0], 2 * START[1], 1, 2 * START[3], 1, 1, 1, 1])

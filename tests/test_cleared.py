"""Which shadows a reversal with seeds clears: those of what the program writes, not what lies beside it in the same allocation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running

import gpuad
from gpuad import Duplicated

HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
READ = f'extern "C" __global__ void r(const double* u, double* y, int n) {{ {HEAD} if (i < n) y[i] = 2 * u[i]; }}'


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with running("reference"):
        yield


def reversed_beside(write: Any, args: Any, first: int, last: int) -> Any:
    """The shadow of a buffer of 32, accumulated to 5 before; a launch reads all of it, then another writes to a view."""
    u, du, y = np.ones(32), np.full(32, 5.0), Duplicated(np.zeros(32))
    tape = gpuad.Tape()
    with tape:
        gpuad.kernel(READ, "r")(4, 8, (Duplicated(u, du), y, 32))
        write(4, 8, (Duplicated(u[first:last], du[first:last]), *args))
    tape.reverse({y: np.ones(32)})
    return du


@pytest.mark.parametrize(
    "guard", ["if (i < n && c[i] > 0)", "if (i < n) if (c[i] > 0)", "if (!(i >= n || c[i] <= 0))", "if (i >= n || c[i] <= 0) return;"]
)
def test_what_a_guard_leaves_out(guard: str) -> None:
    """A guard that looks at memory needs a branch of its own for its right side; its left side bounds what is written all the same."""
    k = gpuad.kernel(f'extern "C" __global__ void g(double* u, const double* c, int n) {{ {HEAD} {guard} u[i] = u[i] * c[i]; }}', "g")
    found = reversed_beside(k, (np.full(12, 3.0), 12), 8, 32)
    assert np.array_equal(found, np.where((np.arange(32) < 8) | (np.arange(32) >= 20), 7.0, 2.0))


@pytest.mark.parametrize("body", ["if (i < n) u[at[i]] = 3 * c[i];", "for (int k = i; k < n && at[k] >= 0; k += 7) u[k] = 3 * c[k];"])
def test_what_lies_beside_a_view_that_is_written_by_data(body: str) -> None:
    k = gpuad.kernel(f'extern "C" __global__ void s(double* u, const int* at, const double* c, int n) {{ {HEAD} {body} }}', "s")
    at = np.array([1, 3, 5, 7, 0, 2, 4, 6], np.int32)
    found = reversed_beside(k, (at, np.ones(8), 8), 16, 24)
    assert np.array_equal(found, np.where((np.arange(32) < 16) | (np.arange(32) >= 24), 7.0, 2.0))


@pytest.mark.parametrize(
    "loop",
    [
        "for (int k = i; k < n; k += 32) u[k + 1]",
        "for (int k = n - 1 - i; k >= 0; k -= 32) u[k + 1]",
        "for (int k = i; k < n; k += 32) u[1 + k]",
    ],
)
def test_the_last_iterations_that_few_threads_make(loop: str) -> None:
    k = gpuad.kernel(f'extern "C" __global__ void g(double* u, const double* c, int n) {{ {HEAD} {loop} = 3 * c[k]; }}', "g")
    found = reversed_beside(k, (np.ones(12), 12), 8, 32)
    assert np.array_equal(found, np.where((np.arange(32) < 9) | (np.arange(32) >= 21), 7.0, 2.0))

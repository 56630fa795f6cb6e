"""Barriers in loops whose bounds differ between threads while the number of iterations does not, and pointers that are null where a
parameter is: both were refused once. Gradients and second derivatives are those of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS

import gpuad
from gpuad import Duplicated, UnsupportedError, pipeline
from gpuad.testing import check_gradient

N, M = 16, 3
TILE = """extern "C" __global__ void k(double* y, const double* x, int n, int m) {
    __shared__ double s[16]; int i = threadIdx.x;
    for (%s) { s[i] = x[t] * x[t]; __syncthreads(); y[t] = s[n - 1 - i] * x[t]; __syncthreads(); }
}"""
LOOPS = [
    "int t = i; t < m * n + i; t += n",
    "int t = threadIdx.x; t < (int)threadIdx.x + n * m; t += blockDim.x",
    "int t = i; t <= m * n - n + i; t += n",
    "int t = i + (m - 1) * n; t >= i; t -= 16",
    "long long t = i; t < (long long)m * n + i; t += n",
]
POINTERS = [
    "const double* p = b ? b + i : NULL; if (p == NULL || *p < 0.5) y[i] = x[i] * x[i]; else y[i] = x[i] * *p * *p;",
    "const double* p = b == nullptr ? nullptr : b + i; y[i] = p ? x[i] * *p : x[i] * x[i];",
    "const double* p = b != 0 ? &b[i] : 0; y[i] = x[i] * x[i]; if (!p) return; y[i] *= *p;",
    "const double* p = b ? (n > 3 ? b + i : b) : NULL; y[i] = x[i] * (p ? p[0] : 2.0);",
]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("loop", LOOPS)
def test_barriers_that_all_threads_reach_as_often(loop: str) -> None:
    check(TILE % loop, lambda: (*pairs(N * M, N * M), N, M), N)


@pytest.mark.parametrize("loop", ["int t = i; t < m * n + 2 * i; t += n", "int t = i; t < m * n; t += n", "int t = 0; t < i; t += 1"])
def test_barriers_that_they_do_not_are_refused(loop: str) -> None:
    with pytest.raises(UnsupportedError, match="not known to be the same for all threads"):
        gpuad.kernel(TILE % loop, "k")


@pytest.mark.one_of(2)
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("body", POINTERS)
def test_a_pointer_that_is_null_where_a_parameter_is(body: str, there: bool) -> None:
    text = f'extern "C" __global__ void k(double* y, const double* x, const double* b, int n) {{ int i = threadIdx.x; {body} }}'
    check(text, lambda: (*pairs(N, N), pairs(N)[0] if there else None, N), N)


def pairs(*sizes: int) -> list[Duplicated]:
    rng = np.random.default_rng(0)
    return [Duplicated(rng.uniform(0.3, 0.9, size), np.ones(size)) for size in sizes]


def check(text: str, arguments: Any, block: int) -> None:
    kernel = gpuad.kernel(text, "k")
    for executor in EXECUTORS.values():
        with pipeline.executor_for_tests(executor):
            check_gradient(kernel, arguments(), grid=1, block=block)

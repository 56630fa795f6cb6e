"""Kernels whose gradient was wrong: the smallest that shows each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated

# --- more than the stack of a thread ----------------------------------------------------------------------------------------------------

LARGE = """extern "C" __global__ void k(const double* x, double* y) {
    double a[1000]; __shared__ double s[1024];
    int t = threadIdx.x; s[t] = x[t];
    for (int k = 0; k < 1000; k++) a[k] = x[t] * k;
    __syncthreads();
    double r = 0;
    for (int k = 0; k < 1000; k++) r += a[k] * s[(t + k) % 1024];
    y[t] = r;
}"""


def test_arrays_of_a_block_that_are_larger_than_a_stack() -> None:
    """Each thread has 8,000 bytes, as on a GPU it may; a block of them has 8 MB."""
    x, y = (Duplicated(v, d) for v, d in ((np.linspace(0, 1, 1024), np.zeros(1024)), (np.zeros(1024), np.ones(1024))))
    gpuad.autodiff(compiled(LARGE, "k"), (1,), (1024,), (x, y))
    after = np.array([np.roll(x.primal, -k) for k in range(1000)])  # x[t + k]
    before = np.array([np.roll(x.primal, k) for k in range(1000)])
    np.testing.assert_allclose(y.primal, x.primal * (np.arange(1000) @ after), rtol=1e-12)
    np.testing.assert_allclose(x.shadow, np.arange(1000) @ after + np.arange(1000) @ before, rtol=1e-12)


# --- numbers of 8 and 16 bits, which wrap before an index is made of them -----------------------------------------------------------------

NARROW = {
    "unsigned of signed": ("signed char", "x[(unsigned char)k] = y[i] * y[i]; y[i] = x[k + 256] * y[i];", [-1, -2, -3, -4]),
    "signed of unsigned": ("unsigned char", "x[(signed char)k + 256] = y[i] * y[i]; y[i] = x[k] * y[i];", [255, 254, 253, 252]),
    "of another width": ("signed char", "x[(unsigned short)k & 255] = y[i] * y[i]; y[i] = x[(unsigned char)k] * y[i];", [-1, -2, 3, 4]),
    "narrower": ("int", "x[(unsigned char)k] = y[i] * y[i]; y[i] = x[k - 256] * y[i];", [256, 257, 258, 259]),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", NARROW)
def test_conversions_that_change_the_number(name: str, executor: str) -> None:
    kind, body, numbers = NARROW[name]
    head = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    text = f'extern "C" __global__ void k(double* x, double* y, const {kind}* c, int n) {{ {head} {kind} k = c[i]; {body} }}'
    check(compiled(text, "k"), np.array(numbers, {"signed char": np.int8, "unsigned char": np.uint8}.get(kind, np.int32)), executor)


@gpuad.jit
def wraps(x: Any, y: Any, c: Any, n: Any) -> None:
    i = gpuad.jit.grid(1)
    if i < n:
        k = c[i]
        m = k + np.uint8(200)
        x[m] = y[i] * y[i]
        y[i] = x[k - 56] * y[i]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_sums_of_8_bits_wrap(executor: str) -> None:
    check(wraps, np.array([60, 61, 62, 63], np.uint8), executor)


def check(kernel: Any, c: Any, executor: str) -> None:
    """The kernel makes y * y * y of y."""
    given = np.arange(1.0, 5.0)
    x, y = Duplicated(np.zeros(512), np.zeros(512)), Duplicated(given.copy(), np.ones(4))
    with running(executor):
        gpuad.autodiff(kernel, (1,), (32,), (x, y, c, np.int32(4)))
    np.testing.assert_allclose(y.primal, given**3, rtol=1e-14)
    np.testing.assert_allclose(y.shadow, 3 * given**2, rtol=1e-14)

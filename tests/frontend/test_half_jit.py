"""jit functions on arrays of float16: CuPy's rules know the type, its kernels compute with floats, and an array takes what is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import running

from gpuad import Duplicated, LaunchError, jit
from gpuad.testing import check_gradient

ONE_THIRD = np.float16(1 / 3)


@jit(device=True)
def product_and_first(a, b):
    return a * b + a


@jit
def chained(x, y, z, n):
    i = jit.grid(1)
    if i < n:
        t = x[i] * y[i]
        t += x[i] / 3
        y[i] = product_and_first(t, x[i]) + ONE_THIRD
        z[i] += t * 0.5
        y[i] += x[n - 1 - i]


@jit
def atomic(x, y, z, n):
    i = jit.grid(1)
    jit.atomic_add(y, i % 2, x[i] * x[i])
    s = x[0]
    for k in range(4):
        s = s * x[i] + k
    z[i] = s


@jit
def functions(x, y, z, n):
    i = jit.grid(1)
    y[i] = np.exp(x[i]) if x[i] > 1 else np.sqrt(x[i])
    z[i] = max(x[i], np.float32(0.9)) * np.float16(z[i]) + x[i] ** 2
    y[i] *= z[i]


@jit
def shared(x, y, z, n):
    i = jit.grid(1)
    s = jit.shared_memory(np.float32, 8)
    s[i] = x[i]
    jit.syncthreads()
    y[i] = s[7 - i] * x[i]
    z[i] = int(x[i]) + x[i] // 2 + x[i] % 1


@pytest.mark.parametrize(
    ("kernel", "executor"), [(k, "reference") for k in (chained, atomic, functions, shared)] + [(atomic, "host")], ids=str
)
def test_gradient(kernel: Any, executor: str) -> None:
    rng = np.random.default_rng(0)
    with running(executor):
        check_gradient(kernel, [*(Duplicated(rng.uniform(0.6, 1.4, 8).astype(t)) for t in "eef"), 8], grid=1, block=8)


@pytest.mark.parametrize("executor", ["reference", "host"])
def test_variables_are_floats_and_arrays_round(executor: str) -> None:
    x, y, z = (np.random.default_rng(1).normal(size=1000).astype(t) for t in "eef")
    wide = x.astype(np.float32), y.astype(np.float32)
    t = wide[0] * wide[1] + wide[0] / np.float32(3)
    third = np.float32(str(ONE_THIRD))  # CuPy writes the digits of a half into its text
    first = (t * wide[0] + t + third).astype(np.float16)
    expected = (first.astype(np.float32) + wide[0][::-1]).astype(np.float16), z + t * np.float32(0.5)
    with running(executor):
        chained(8, 125, (x, y, z, 1000))
    assert np.array_equal(y, expected[0])
    assert np.allclose(z, expected[1], rtol=1e-6, atol=0)


def test_a_half_as_an_argument() -> None:
    with pytest.raises(LaunchError, match="argument 4 is a float16, which CuPy hands over as 2 bytes where its kernel reads a float"):
        chained(1, 8, (*(np.ones(8, t) for t in "eef"), np.float16(8)))

"""Floats to integers narrower than 32 bits, in CUDA C++ and elementwise texts (a jit function has none).

PTX goes by way of 32 bits with the target's sign (`cvt.rzi.u32.f32`, then the low bits): what has no sign cannot be less than 0.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad

TYPES = {"unsigned char": np.uint8, "unsigned short": np.uint16, "signed char": np.int8, "short": np.int16, "bool": np.bool_}
VALUES = [-1.0, -0.5, -1.9, 0.0, 127.9, 200.0, 255.9, 256.5, -129.0, 4e4, 65535.9, 7e4, -7e4, 3e9, -3e9, 5e9, np.inf, -np.inf, np.nan]


def converted(value: float, dtype: type[np.generic]) -> int | bool:
    """The conversion by Python's whole numbers. NaN is 0, or of a double the highest bit alone, which is cut off."""
    if dtype is np.bool_:
        return value != 0
    if math.isnan(value):
        return 0
    signed, bits = np.dtype(dtype).kind == "i", 8 * np.dtype(dtype).itemsize
    low, high = (-(2**31), 2**31 - 1) if signed else (0, 2**32 - 1)
    whole = max(low, min(high, math.trunc(max(-1e18, min(1e18, value)))))
    cut = whole & (2**bits - 1)
    return cut - 2**bits if signed and cut >> (bits - 1) else cut


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("real", ["float", "double"])
@pytest.mark.parametrize("target", TYPES)
def test_in_cuda(target: str, real: str, executor: str) -> None:
    text = f"""extern "C" __global__ void k(const {real}* x, {target}* a, {target}* b, int n) {{
        int i = threadIdx.x; if (i >= n) return; a[i] = ({target})x[i]; {target} c = x[i]; b[i] = c; }}"""
    x = np.array(VALUES, np.float32 if real == "float" else np.float64)
    a, b = np.zeros(x.size, TYPES[target]), np.zeros(x.size, TYPES[target])
    with running(executor):
        gpuad.kernel(text, "k")(1, 32, (x, a, b, x.size))
    wanted = [converted(float(v), TYPES[target]) for v in x]
    np.testing.assert_array_equal(a, wanted)
    np.testing.assert_array_equal(b, wanted)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("target", TYPES)
def test_of_constants(target: str, executor: str) -> None:
    values = [v for v in VALUES if math.isfinite(v)]
    stores = " ".join(f"a[{i}] = ({target}){v!r};" for i, v in enumerate(values))
    a = np.zeros(len(values), TYPES[target])
    with running(executor):
        gpuad.kernel(f'extern "C" __global__ void k({target}* a) {{ {stores} }}', "k")(1, 1, (a,))
    np.testing.assert_array_equal(a, [converted(v, TYPES[target]) for v in values])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("target", TYPES)
def test_in_an_elementwise_kernel(target: str, executor: str) -> None:
    x, a = np.array(VALUES, np.float32), np.zeros(len(VALUES), TYPES[target])
    k = gpuad.ElementwiseKernel("float32 x", f"{np.dtype(TYPES[target]).name} a", f"a = ({target})x", "k")
    with running(executor):
        k(x, a)
    np.testing.assert_array_equal(a, [converted(float(v), TYPES[target]) for v in x])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_gradient_that_is_steered_by_it(executor: str) -> None:
    """A mask that is 0 for what is negative."""
    text = """extern "C" __global__ void k(const float* x, float* y) {
        int i = threadIdx.x; unsigned char level = (unsigned char)x[i]; y[i] = level * x[i]; }"""
    x, dx = np.array([-1.0, -300.0, 3.5, 260.0], np.float32), np.zeros(4, np.float32)
    with running(executor):
        k = gpuad.kernel(text, "k")
        gpuad.autodiff(k, 1, 4, (gpuad.Duplicated(x, dx), gpuad.Duplicated(np.zeros(4, np.float32), np.ones(4, np.float32))))
    np.testing.assert_array_equal(dx, [0, 0, 3, 4])

"""Kernels that only stream through memory are compiled for vectors of 512 bits where the processor is good at that: the same to the last
bit."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from launch_tools import compiled

from gpuad.codegen.cpu.source import host_source
from gpuad.runtime.host import load

HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
STREAMING = f"""extern "C" __global__ void k(const float* x, float* y, float a, int n) {{
    {HEAD} if (i > 0 && i < n - 1) y[i] = a * x[i - 1] / (x[i + 1] + 1.5f) - sqrtf(x[i]) * y[i]; }}"""
LOOPING = f"""extern "C" __global__ void k(const float* x, float* y, float a, int n) {{
    {HEAD} if (i < n) {{ float s = 0; for (int j = 0; j < i % 7; ++j) s += a * x[j]; y[i] = s; }} }}"""
WIDE = "GPUAD_WIDE static void gpuad_rows_k("


def launched(text: str, n: int) -> Any:
    r = np.random.default_rng(n)
    x, y = r.uniform(0, 1, n).astype(np.float32), r.uniform(0, 1, n).astype(np.float32)
    (entry,) = load(text, ["gpuad_launch_k"], ("-DGPUAD_RESTRICT=__restrict__",))
    where = (array.__array_interface__["data"][0] for array in (x, y))
    assert entry(struct.pack("=7q", -(-n // 32), 1, 1, 32, 1, 1, 1), struct.pack("=2Qf4xi4x", *where, 0.7, n)) == 0
    return y


@pytest.mark.parametrize("n", [3, 17, 40, 1000])
def test_the_same_to_the_last_bit(n: int) -> None:
    text = host_source([compiled(STREAMING, "k").primal()])
    assert WIDE in text
    np.testing.assert_array_equal(launched(text, n), launched(text.replace(WIDE, WIDE.removeprefix("GPUAD_WIDE ")), n))


def test_loops_are_left_as_they_are() -> None:
    assert WIDE not in host_source([compiled(LOOPING, "k").primal()])

"""Blocks whose threads wait for one another, on the CPU: loops over the threads, in which these run at once where none adds to what others
add to; what a block does together stays outside."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from gpuad.codegen import host_source
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Kernel
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory
from gpuad.runtime.block_serialisation import serialise_blocks
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.source import SourceFile

S = """__shared__ float s[40], t[40]; int j = threadIdx.y * 10 + threadIdx.x, i = blockIdx.x * 40 + j;
    s[j] = x[i]; t[j] = 0; __syncthreads();"""
# what the kernel does, how many of its loops over threads are announced as independent, whether it runs one in step
CASES = {
    "a tile": (f"{S} float a = 0; for (int k = 0; k < 10; ++k) a += s[threadIdx.y * 10 + k]; __syncthreads(); y[i] = a;", 2, False),
    "a long loop": (f"{S} float a = 0; for (int k = 0; k < m; ++k) a += s[k] * s[j]; y[i] = a;", 4, True),
    "a long loop with an index": (f"{S} float a = 0; for (int k = 0; k < m; ++k) a += x[i * 3 + k] * s[(j + k) % 40]; y[i] = a;", 4, True),
    "a guarded long loop": (f"{S} float a = 1; if (s[j] > 0.4f) for (int k = 0; k < m; ++k) a += s[k] * x[k + i]; y[i] = a;", 6, True),
    "an addition to one place": (f"{S} atomicAdd(&t[j / 5], 1.0f + threadIdx.x); __syncthreads(); y[i] = t[j];", 2, False),
    "an array of its own": (f"{S} float a[3]; for (int k = 0; k < 3; ++k) a[k] = s[j] * k; y[i] = a[1] + a[2];", 1, False),
    "loops around barriers": (
        f"{S} for (int k = 1; k < m; k *= 2) {{ float a = s[(j + k) % 40]; __syncthreads(); s[j] += a; __syncthreads(); }} y[i] = s[j];",
        11,
        False,
    ),
    "a counted loop around barriers": (
        f"{S} float a = 0; for (int k = n - 40; k < m; ++k) {{ t[j] = s[(j + k) % 40]; __syncthreads(); a += t[39 - j]; __syncthreads(); }}"
        " y[i] = a;",
        7,
        False,
    ),
    "a branch around barriers": (
        f"{S} if (m > 5) {{ t[j] = s[39 - j]; __syncthreads(); s[j] += t[(j + 1) % 40]; }} y[i] = s[j];",
        3,
        False,
    ),
    "one that writes for all": (f"{S} if (j == 0) s[0] = 7; __syncthreads(); y[i] = s[0] * s[j];", 2, False),
}
HOST = Host(workers=1)


def made(body: str, name: str) -> Kernel:
    text = f'extern "C" __global__ void {name}(const float* x, float* y, int n, int m) {{\n{body}\n}}'
    return primal_of(parse(SourceFile("blocks.cu", text)).kernel(name))


def result(executor: Any, kernel: Kernel) -> Any:
    x, y = np.random.default_rng(1).uniform(0, 1, 400).astype(np.float32), np.zeros(80, np.float32)
    executor.launch(kernel, (2, 1, 1), (10, 4, 1), [Memory(x), Memory(y), np.int32(42), np.int32(9)])
    return y


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", CASES)
def test_threads_of_a_block_that_run_at_once(name: str) -> None:
    body, announced, in_step = CASES[name]
    kernel = made(body, "k")
    text = host_source([serialise_blocks(kernel, (10, 4, 1))])
    assert len(re.findall(r"  GPUAD_(?:INDEPENDENT|LANES|FLOATS|DOUBLES)\n", text)) == announced
    assert ("[10];" in text) == in_step
    assert "live" not in text or name == "loops around barriers"
    np.testing.assert_array_equal(result(HOST, kernel), result(Reference(), kernel))

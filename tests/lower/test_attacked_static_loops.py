"""Loops that go by constants or by numbers of the launch, in many shapes; and what was met on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import pipeline
from gpuad.runtime.reference import Reference
from gpuad.testing import check_gradient

BODY = "v = 0.8 * v * v + 0.01 * (double)(d & 31) * v;"


def kernel(body: str, before: str = "") -> gpuad.Kernel:
    return gpuad.kernel(
        f"""{before}
        extern "C" __global__ void k(const double* x, double* y, double* z, int m, int n) {{
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            double v = i < n ? x[i] : 0.5;
            {body}
            if (i < n) y[i] = v;
        }}""",
        "k",
    )


def check(k: gpuad.Kernel, executor: Any, grid: int = 3, block: int = 8, m: int = 3, n: int = 20) -> None:
    x = np.random.default_rng(2).uniform(0.4, 1.0, n)
    with pipeline.executor_for_tests(executor):
        check_gradient(k, (x, np.zeros(n), np.full(32, 0.5), m, n), grid=(grid,), block=(block,), directions=1)


@pytest.mark.parametrize(
    "body", ["v = v * v * n;", "int d = 16, c = 0; while (d) { d >>= 1; c++; } v = v * v * c;", "v = v * v; v += sin(v);"]
)
def test_a_value_that_one_guard_leaves_to_the_next(body: str, executor: Any) -> None:
    """Forward and reverse in one kernel, where guards that follow each other become one: what the first leaves is used inside it."""
    check(kernel(body), executor)


HELPER = """__device__ double NAME(double v, int q) {
    for (int d = q; d > 0; d >>= 1) { FIRST v = 0.9 * v * v + 0.01 * (d & 7) * v; }
    return v;
}
"""
THROUGH = HELPER.replace("NAME", "h").replace("FIRST", "")
LEAVES = HELPER.replace("NAME", "g").replace("FIRST", "if (v < 0.3) return v * v;")
BY_CONSTANTS = [
    f"int d = 16; for (; d > 3; d /= 2) {{ {BODY} }} for (; d > 0; d--) {{ {BODY} }} v += 0.1 * d;",
    "double a[32]; for (int d = 0; d < 32; ++d) a[d] = v * d * 0.01; for (int d = 16; d > 0; d >>= 1) { v += a[d] * v; a[d - 1] = v; }",
    "for (int d = 4; d > 0; d >>= 1) { atomicMax((long long*)&z[d], __double_as_longlong(v * d)); v = 0.9 * v; }",
    "double w = -1.0; for (int d = 8; d > 0; d >>= 1) { double q = x[(i + d) % n] * d; if (q > w) w = q + 0.1 * d; } v = w * w;",
    "for (long long d = -9223372036854775807ll - 1; d < -2; d /= 4096) v = 0.9 * v * v + 0.1;",
    "for (unsigned long long d = 18446744073709551615ull; d; d >>= 16) v = 0.9 * v * v + 0.1 + 1e-20 * d;",
    "for (int d = -2147483647 - 1; d; d /= 1024) v = 0.9 * v * v + 0.1 + 1e-11 * d;",
    "for (unsigned d = 4294967295u; d; d <<= 8) v = 0.9 * v * v + 0.1 + 1e-11 * d;",
    "for (int d = -3; d < 3u; ++d) v = v * v; for (unsigned d = 0; d - 1 > 3u; d += 1) v = v * v * 0.9 + 0.1;",
    "for (unsigned char d = 3; d < 200; d -= 1) v = v * v; for (signed char d = 100; d > 0; d += 9) v = v * v * 0.9 + 0.1;",
    "int d = 16; int* p = &d; while (*p > 0) { v = 0.9 * v * v + 0.01 * d * v; *p /= 2; }",
    "int c = 0; for (int d = 100; d > 1; d /= 3, ++c) { if (d & 1) continue; v *= 0.9 * v + 0.1 * c; } v += c * 0.1 * v;",
    "for (int d = 8; d > 0;) { int e = d / 2; { int f = e; v = 0.9 * v * v + 0.01 * (f + 1) * v; d = f; } }",
]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("body", BY_CONSTANTS)
def test_loops_by_constants(body: str) -> None:
    check(kernel(body), Reference())


BY_NUMBERS = [
    f"for (int d = threadIdx.x; d > 0; d >>= 1) {{ {BODY} }}",
    f"for (int d = 1; d <= threadIdx.x + m; d *= 2) {{ {BODY} }}",
    f"for (int e = 0; e < m; ++e) for (int d = blockDim.x * blockDim.y >> 1; d > 0; d /= 2) {{ {BODY} }}",
    f"for (int d = m; d > 0; d /= 2) for (int e = d; e > 0; e /= 2) {{ {BODY} }}",
    f"for (unsigned char d = (unsigned char)(m * 90); d > 0; d >>= 1) {{ {BODY} }}",
    f"for (int d = -m; d != 0; d /= 2) {{ {BODY} }} for (unsigned d = m - 5u; d != 0; d >>= 4) {{ {BODY} }}",
    f"for (long long d = 1ll << (m * 6); d > 0; d >>= 3) {{ {BODY} }}",
    f"int a = m, b = 40; while (a < b) {{ int d = a; {BODY} int t = a; a = t + 3; b = b - t / 2; }}",
    f"if (i & 1) {{ for (int d = m * 4; d > 0; d >>= 1) {{ {BODY} }} }} else for (int d = n; d > 0; d -= 3) {{ {BODY} }}",
    f"for (int j = i; j < n; j += gridDim.x * blockDim.x) for (int d = gridDim.x * 8; d > 0; d >>= 1) {{ {BODY} }}",
    "v = h(v, m * 4); v = h(v, n);",
    "v = g(v, m * 4); v = g(v, n);",
]


@pytest.mark.one_of(6)
@pytest.mark.parametrize("body", BY_NUMBERS)
def test_one_kernel_with_many_numbers(body: str) -> None:
    """The depth of a stack that served one launch is not that of the next."""
    k = kernel(body, THROUGH + LEAVES)
    for grid, block, m, n in [(3, 8, 3, 20), (20, 1, 1, 20), (1, 16, 4, 16), (2, 16, 9, 30), (3, 8, 1, 20)]:
        check(k, Reference(), grid, block, m, n)

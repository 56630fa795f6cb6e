"""`for (double v : values)` over arrays: local, shared, of arrays, by copy, by reference and converted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad.testing import check_gradient

N = 8
Field = Any
LOOPS: dict[str, tuple[str, Callable[[Field, Field], Field]]] = {
    "by copy": ("double w[3] = {1, 2, 3}; double s = 0; for (double v : w) s += v * x[i]; y[i] = s;", lambda x, y: 6 * x),
    "by reference": (
        "double w[3] = {x[i], 2, 3}; for (double& v : w) { if (v == 2) continue; v *= v; } y[i] = w[0] + w[2] * w[1] * y[i];",
        lambda x, y: x * x + 18 * y,
    ),
    "left early, constant, converted": (
        "float w[3] = {1, 2, 3}; double s = 1; for (auto v : w) { if (v > 2) break; s *= v * x[i]; } for (const auto& v : w) s += v; "
        "for (int v : w) s += v; y[i] = s;",
        lambda x, y: 2 * x * x + 12,
    ),
    "rows": (
        "double w[2][3] = {{1, 2, x[i]}, {4, y[i], 6}}; double s = 1; for (auto& row : w) for (double v : row) s += v * v; y[i] = s;",
        lambda x, y: 58 + x * x + y * y,
    ),
    "a table of the file": (
        "double s = 1; for (int k : OFFSETS) s += k * x[(i + k) % n]; y[i] = s;",
        lambda x, y: 1 + sum(k * np.roll(x, -k) for k in (1, 3, 2)),
    ),
    "shared memory": (
        "__shared__ double s[4]; s[threadIdx.x] = x[i]; __syncthreads(); double q = 0; for (double v : s) q += v * v; y[i] = q;",
        lambda x, y: np.repeat((x.reshape(2, 4) ** 2).sum(1), 4),
    ),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", LOOPS)
def test_range_for(name: str) -> None:
    body, wanted = LOOPS[name]
    kernel = gpuad.kernel(
        f"""__constant__ int OFFSETS[3] = {{1, 3, 2}};
        extern "C" __global__ void k(const double* x, double* y, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}""",
        "k",
    )
    rng = np.random.default_rng(3)
    x, y = rng.uniform(1, 2, N), rng.uniform(1, 2, N)
    check_gradient(kernel, (x, y.copy(), N), grid=(2,), block=(4,))
    expected = wanted(x, y)
    kernel((2,), (4,), (x, y, N))
    np.testing.assert_allclose(y, expected, rtol=1e-13)

"""What whole applications met: kernels and programs as people write them, cut down to what was wrong."""

from __future__ import annotations

import numpy as np
import pytest

from gpuad import Duplicated, Kernel, kernel
from gpuad.testing import check_gradient

SUM = "template <int M> __device__ double f(const double (&a)[M]) { double s = 0; for (int k = 0; k < M; ++k) s += a[k] * a[0]; return s; }"
CROSS = "template <int M> __device__ double f(const double (&a)[M][M]) { return a[0][M - 1] * a[M - 1][0]; }"
BOTH = "__device__ double f(const double (&a)[2], double (&b)[2]) { b[0] = 2.0 * a[1]; b[1] = a[0]; return a[0] * b[0]; }"
INSIDE = """struct Pair { double m[2]; __device__ double f() const { return g(m); }
    static __device__ double g(const double (&a)[2]) { return a[0] * a[1]; } };"""
CONST_ARRAYS = {
    "of one row": (SUM, "double b[3] = {x[i], x[i] * x[i], 2.0}; x[i] = f(b);"),
    "of rows": (CROSS, "double b[2][2] = {{x[i], x[i] * x[i]}, {3.0 * x[i], 1.0}}; x[i] = f(b);"),
    "a row": (SUM, "double b[3][2] = {{x[i], x[i] * x[i]}, {3.0 * x[i], 1.0}, {1.0, x[i]}}; x[i] = f(b[i % 3]) + f(b[1]);"),
    "what another one changes": (BOTH, "double b[2] = {x[i], x[i] * x[i]}; double r = f(b, b); x[i] = r * b[1];"),
    "a member": (INSIDE, "Pair b = {{x[i], x[i] * x[i]}}; x[i] = b.f() + Pair::g(b.m);"),
    "shared": (SUM, "__shared__ double s[4]; s[i] = x[i]; __syncthreads(); x[i] = f(s);"),
    "a variable": ("", "double b[2] = {x[i], x[i] * x[i]}; const double (&r)[2] = b; b[0] = 2.0 * b[0]; x[i] = r[0] * r[1];"),
}


@pytest.mark.parametrize("name", CONST_ARRAYS)
def test_references_to_arrays_that_are_const(name: str) -> None:
    """It is the array that the function gets, not a pointer to its first row."""
    before, body = CONST_ARRAYS[name]
    k = kernel(f'{before} extern "C" __global__ void k(double* x, int n) {{ int i = threadIdx.x; if (n != 4) return; {body} }}', "k")
    check_gradient(k, (np.linspace(0.5, 1.5, 4), 4), grid=(1,), block=(4,))


# --- tiles whose last one is filled in part ----------------------------------------------------------------------------------------------

FILL = "int j = b + threadIdx.x; if (j < n) tile[threadIdx.x] = x[j];"
FILLED = {
    "as far as it is": (FILL, "for (int k = 0; k < min(8, n - b); ++k)", True),
    "by a guard": ("if (b + threadIdx.x < n) tile[threadIdx.x] = x[b + threadIdx.x];", "for (int k = 0; k < 8 && b + k < n; ++k)", True),
    "further than it is": (FILL, "for (int k = 0; k < 8; ++k)", False),
    "one too many": (FILL, "for (int k = 0; k < min(8, n - b + 1); ++k)", False),
    "backwards": ("if (n - 1 - b >= threadIdx.x) tile[threadIdx.x] = x[b + threadIdx.x];", "for (int k = min(8, n - b); k-- > 0;)", True),
    "until data say": (FILL, "for (int k = 0; k < 8 && (x[k] > 9.0 || b + k < n); ++k)", False),
}


def pairs(fill: str, loop: str) -> Kernel:
    return kernel(
        f"""extern "C" __global__ void k(const double* x, double* y, int n) {{
            __shared__ double tile[8];
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            double p = x[min(i, n - 1)], a = 0.0;
            for (int b = 0; b < n; b += 8) {{
                {fill}
                __syncthreads();
                {loop} {{ double d = tile[k] - p; a += d / (1.0 + d * d); }}
                __syncthreads();
            }}
            if (i < n) y[i] = a;
        }}""",
        "k",
    )


@pytest.mark.parametrize("name", FILLED)
@pytest.mark.parametrize("n", [8, 16, 21])
def test_last_tile(name: str, n: int) -> None:
    """What the last iteration reads is told from what it stores, not from what any iteration might."""
    fill, loop, _ = FILLED[name]
    check_gradient(pairs(fill, loop), (np.linspace(0.5, 1.5, n), np.zeros(n), n), grid=(-(-n // 8),), block=(8,))


@pytest.mark.parametrize("name", FILLED)
def test_last_tile_is_filled_again(name: str) -> None:
    """Nothing is recorded of tiles that each iteration fills as far as it reads them: all pairs would be a lot."""
    fill, loop, filled = FILLED[name]
    k = pairs(fill, loop).adjoint(grid=(3,), block=(8,), args=(Duplicated(np.zeros(21)), Duplicated(np.zeros(21)), 21))
    assert ("stack" not in str(k.explain())) == filled

"""Parameters that point to arrays, as C programs write matrices (`float (*x)[3]`, `float u[][N]`): a call passes an array of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline, testing
from gpuad.errors import LaunchError, UnsupportedError

STEP = """extern "C" __global__ void k(double (*x)[3], const double (*v)[3], double dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int d = 0; d < 3; d++) x[i][d] += dt * v[i][d] * x[i][d];
}"""
STENCIL = """
#define N 9
__device__ double laplace(const double (*u)[N], int i, int j) { return u[i-1][j] + u[i+1][j] + u[i][j-1] + u[i][j+1] - 4 * u[i][j]; }
extern "C" __global__ void k(double u[][N], double (*v)[N]) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < 1 || j < 1 || i >= N - 1 || j >= N - 1) return;
    v[i][j] = u[i][j] + 0.1 * laplace(u, i, j) * u[i][j];
}"""
THREE = """extern "C" __global__ void k(double x[4][2][3], const double w[3]) {
    int i = threadIdx.x;
    double (*row)[3] = x[i];
    for (int a = 0; a < 2; a++, row++)
        for (int b = 0; b < 3; b++) (*row)[b] = sin((*row)[b]) * w[b] + x[i][a][(b + 1) % 3];
}"""
WALK = """extern "C" __global__ void k(double (*x)[2], int n) {
    x += threadIdx.x;
    (*x)[0] *= x[0][1];
    x[0][1] = exp(x[0][0]);
}"""
VECTORS = """extern "C" __global__ void k(double2 (*x)[2], const double* y, int n) {
    int i = threadIdx.x;
    if (i < n) { double2 a = x[i][0]; x[i][1].x += a.x * y[i]; x[i][0].y = a.y * x[i][1].y; }
}"""
TEMPLATE = """template <typename T, int M> __global__ void k(T (*x)[M], int n) {
    int i = threadIdx.x;
    T s = 0;
    for (int m = 0; m < M; m++) s += x[i][m] * x[i][m];
    for (int m = 0; m < M; m++) x[i][m] /= s;
}"""


def _some(*shape: int) -> Any:
    return np.random.default_rng(0).uniform(0.6, 1.4, shape)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("text", "name", "grid", "block", "args"),
    [
        (STEP, "k", 2, 4, (_some(6, 3), _some(6, 3), 0.3, 6)),
        (STENCIL, "k", (2, 3), (5, 3), (_some(9, 9), _some(9, 9))),
        (THREE, "k", 1, 4, (_some(4, 2, 3), _some(3))),
        (WALK, "k", 1, 4, (_some(4, 2), 4)),
        (VECTORS, "k", 1, 4, (_some(4, 2, 2), _some(4), 4)),
        (TEMPLATE, "k<double, 5>", 1, 3, (_some(3, 5), 3)),
    ],
)  # fmt: skip
def test_gradients(executor: Any, text: str, name: str, grid: Any, block: Any, args: tuple[Any, ...]) -> None:
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(gpuad.kernel(text, name), args, grid=grid, block=block)


def test_a_stencil_gathers() -> None:
    u = Duplicated(_some(9, 9), np.zeros((9, 9)))
    text = gpuad.kernel(STENCIL, "k").adjoint(Duplicated, Duplicated, grid=(1, 1), block=(9, 9), args=(u.primal, _some(9, 9))).source
    assert "atomic" not in text
    assert "u[i * 9LL + j]" in text


def test_it_is_called_by_its_name() -> None:
    with pytest.raises(LaunchError, match=r"parameter 1 `double\* x` of `k`"):
        gpuad.kernel(STEP, "k")(1, 1, (np.zeros((6, 3), np.float32), _some(6, 3), 0.3, 6))


@pytest.mark.parametrize("declared", ["double* (*x)[3]", "double** x[3]", "double (**x)[3]"])
def test_pointers_within_are_refused_there(declared: str) -> None:
    with pytest.raises(UnsupportedError, match=r"pointers|a kernel's pointer must point to numbers") as found:
        gpuad.kernel(f'extern "C" __global__ void k({declared}) {{ }}', "k")
    assert found.value.line == 1

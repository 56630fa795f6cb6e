"""Gathered accumulations in loops: taps and windows, all pairs, products of matrices, several numbers an element."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, gradients, is_gathered, pairs, reverse
from launch_tools import compiled
from nightly import NIGHTLY, cases
from test_golden import adjoint, body

from gpuad import Duplicated
from gpuad.ir.nodes import Accumulate, How
from gpuad.ir.rewrite import walk_stmts

HEAD = "int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;"
TEXT = 'extern "C" __global__ void k(const double* u, const double* w, double* v, int nx, int ny, int m) {{ {} {} }}'
SUM = "{guard} {{ double s = 0; {loops} v[{out}] = s; }}"

# name: text, whether u is gathered
LOOPS = {
    "taps": ("if (x < nx && y == 0) { double s = 0; for (int k = 0; k < m; k++) s += w[k] * u[x + k]; v[x] = s; }", True),
    "centred": (
        "if (x < nx && y == 0) { double s = 0; for (int k = 0; k < m; k++) { int j = x + k - m / 2; if (j < 0 || j >= nx) continue; "
        "s += w[k] * u[j]; } v[x] = s; }",
        True,
    ),
    "backward": ("if (x < nx && y == 0) { double s = 0; for (int k = m; k > 0; k--) s += w[k] * u[x + k]; v[x] = s; }", True),
    "dilated": ("if (x < nx && y == 0) { double s = 0; for (int k = 0; k < m; k++) s += w[k] * u[x + 2 * k]; v[x] = s; }", True),
    "every other": ("if (x < nx && y == 0) { double s = 0; for (int k = 0; k < m; k += 2) s += w[k] * u[x + k]; v[x] = s; }", True),
    "periodic": ("if (x < nx && y == 0) { double s = 0; for (int k = 0; k < 3; k++) s += w[k] * u[(x + k) % nx]; v[x] = s; }", None),
    "periodic, on both sides": (
        "if (x < nx && y == 0) { double s = 0; for (int k = -1; k < 2; k++) s += w[k + 1] * u[(x + k + nx) % nx]; v[x] = s; }",
        True,
    ),
    "periodic window": (
        "if (x < nx && y < ny) { double s = 0; for (int i = -1; i < 2; i++) for (int j = -1; j < 2; j++) "
        "s += w[3 * i + j + 4] * sin(u[(y + i + ny) % ny * nx + (x + j + nx) % nx]); v[y * nx + x] = s; }",
        True,
    ),
    "periodic, by additions": (
        "if (x < nx && y == 0) { double s = 0; for (int k = -1; k < 2; k++) { int j = x + k; if (j < 0) j += nx; if (j >= nx) j -= nx; "
        "s += w[k + 1] * u[j]; } v[x] = s; }",
        True,
    ),
    "nonlinear": ("if (x < nx && y == 0) { double s = 0; for (int k = 0; k < m; k++) s += sin(u[x + k] * u[x]); v[x] = s; }", True),
    "window": (
        "if (x < nx && y < ny) { double s = 0; for (int i = -1; i <= 1; i++) for (int j = -1; j <= 1; j++) { "
        "int row = y + i, column = x + j; s += row >= 0 && row < ny && column >= 0 && column < nx ? "
        "u[row * nx + column] * w[3 * i + j + 4] : 0.0; } v[y * nx + x] = s; }",
        True,
    ),
    "pairs": ("if (x < nx && y == 0) { double s = 0; for (int j = 0; j < nx; j++) s += sin(u[j] - u[x]) * w[j]; v[x] = s; }", True),
    "others": ("if (x < nx && y == 0) { double s = 0; for (int j = 0; j < nx; j++) if (j != x) s += 1 / (u[j] - u[x]); v[x] = s; }", True),
    "three each": (
        "if (x < nx && y == 0) { double s = 0; for (int j = 0; j < nx; j++) s += u[3 * j] * u[3 * j + 2] * u[3 * x + 1]; v[x] = s; }",
        True,
    ),
    "product": (
        "if (x < nx && y < ny) { double s = 0; for (int k = 0; k < m; k++) s += u[y * m + k] * w[k * nx + x]; v[y * nx + x] = s; }",
        True,
    ),
    "rows": ("if (x < nx && y < ny) { v[y * nx + x] = u[x] * w[y * nx + x]; }", None),
    "window held inside": (
        "if (x < nx && y < ny) { int a = x - m / 2; if (a < 0) a = 0; if (a > nx - m) a = nx - m; double s = 0; "
        "for (int k = 0; k < m; k++) s += u[y * nx + a + k] * w[y * m + k]; v[y * nx + x] = s; }",
        True,
    ),
    "window of rows": (
        "if (x < nx && y < m) { int a = min(max(x - m / 2, 0), nx - m); double s = 0; "
        "for (int d = 0; d < ny; d++) s += w[x * ny + d] * u[(a + y) * ny + d]; v[x * m + y] = s; }",
        True,
    ),
    "window behind": (
        "if (x < nx && y < ny) { int a = max(x - m + 1, 0); double s = 0; "
        "for (int k = 0; k < m; k++) s += u[(y * nx + a + k) * 2] * w[k * nx + x]; v[y * nx + x] = s; }",
        True,
    ),
    "window of its own": (
        "if (x < nx && y < ny) { int a = min(x, m); double s = 0; "
        "for (int k = 0; k < m; k++) s += u[a * 3 + k] * w[k]; v[y * nx + x] = s; }",
        None,
    ),
    "triangle": ("if (x < nx && y == 0) { double s = 0; for (int j = x; j < nx; j++) s += u[j]; v[x] = s; }", False),
    "found": ("if (x < nx && y == 0) { double s = 0; for (int k = 0; u[k] > -9 && k < m; k++) s += u[x + k]; v[x] = s; }", False),
    "of itself": ("if (x < nx && y == 0) { double s = u[x]; for (int k = 0; k < m; k++) s += sin(s) * u[x + k]; v[x] = s; }", False),
}
SHAPES = [
    ((3, 2), (4, 3), (12, 6, 5)),
    ((2, 1), (4, 3), (12, 6, 5)),
    ((4, 3), (4, 3), (11, 5, 1)),
    ((2, 2), (8, 2), (9, 3, 4)),
    ((1, 1), (2, 1), (1, 1, 3)),
]


def arguments(extents: tuple[int, ...]) -> tuple[Any, ...]:
    arrays = (np.random.default_rng(k).standard_normal(440) for k in range(6))
    return (*(Duplicated(next(arrays), next(arrays))[200:] for _ in range(3)), *extents)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", LOOPS)
def test_loop(name: str) -> None:
    text, gathered = LOOPS[name]
    text = TEXT.format(HEAD, text)
    kernels = reverse(compiled(text, "k"), (3, 2), (4, 3), arguments((12, 6, 5)))
    if gathered is not None:
        du = [s for k in kernels for s in walk_stmts(k.body) if isinstance(s, Accumulate) and s.buffer.name == "du"]
        assert all(s.how is How.PLAIN for s in du) == gathered
    for grid, block, extents in SHAPES:
        agree(text, grid, block, lambda: arguments(extents), executors=("reference",))  # noqa: B023


def test_on_the_host() -> None:
    text = TEXT.format(HEAD, LOOPS["centred"][0])
    agree(text, (3, 2), (4, 3), lambda: arguments((12, 6, 5)))


INDICES = ["x + {k}", "x - {k}", "x + {k} - m / 2", "{k}", "2 * {k} + 1", "3 * {k} + 2", "x", "x * m + {k}", "{k} * nx + x"]


def test_random_loops() -> None:
    """What the proofs say of random launches, the reference executor confirms, which sees every collision."""
    rng = random.Random(11)
    gathered = 0
    many = cases(6, 100)
    for _ in range(many):
        start, stop, step = rng.choice(["0", "1", "-m / 2"]), rng.choice(["m", "nx", "m / 2 + 1"]), rng.choice(["k++", "k++", "k += 2"])
        a, b = (rng.choice(INDICES).format(k="k") for _ in range(2))
        value = rng.choice(["u[{}] * w[{}]", "sin(u[{}]) * w[{}]", "u[{}] * u[{}]", "(k + x < nx ? u[{}] * w[{}] : 0.0)"]).format(a, b)
        skip = rng.choice(["", "", "int j = x + k - m / 2; if (j < 0 || j >= nx) continue;"])
        guard = rng.choice(["x < nx", "x >= 1 && x < nx", "x < nx && u[x] > 0"])
        end = rng.choice(["v[x] = s;", "v[x] = s * u[x];", "v[x] += sin(s);"])
        inner = f"for (int k = {start}; k < {stop}; {step}) {{ {skip} s += {value}; }}"
        text = TEXT.format(HEAD, f"if ({guard}) {{ double s = 0; {inner} {end} }}")
        for _ in range(2):
            extents, width = (rng.randint(1, 9), 1, rng.randint(1, 5)), rng.choice([1, 2, 3, 4, 8])
            grid = max(1, -(-extents[0] // width) + rng.choice([-1, 0, 0, 1]))

            def make(extents: tuple[int, ...] = extents) -> tuple[Any, ...]:
                return arguments(extents)

            kernels = reverse(compiled(text, "k"), grid, width, make())
            if is_gathered(kernels):
                gathered += 1
                expected = gradients(text, grid, width, make, executor="reference", plain=False)
                for found, right in zip(gradients(text, grid, width, make, executor="reference"), expected, strict=True):
                    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    assert (0.6 if NIGHTLY else 0.2) * many < gathered < 2 * many


COMPLEX = """
#include <cupy/complex.cuh>
extern "C" __global__ void k(const complex<double>* u, complex<double>* v, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < nx && y < ny) v[y * nx + x] = u[y * nx + (x + 1) % nx] * u[y * nx + x] + u[y > 0 ? (y - 1) * nx + x : x];
}
"""
VECTOR = """
extern "C" __global__ void k(const float4* u, float4* v, float2* t, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1 || i >= n - 1) return;
    float4 a = u[i - 1], b = u[i + 1];
    v[i] = make_float4(a.x * b.x, a.y + u[i].w, b.z, a.w * b.y);
    t[i] = make_float2(a.x - b.w, u[i].z * b.z);
}
"""


def test_complex_stencil() -> None:
    def make() -> tuple[Any, ...]:
        rng = np.random.default_rng(5)
        field = [rng.standard_normal((5, 7)) + 1j * rng.standard_normal((5, 7)) for _ in range(4)]
        return Duplicated(field[0], field[1]), Duplicated(field[2], field[3]), 7, 5

    kernels = reverse(compiled(COMPLEX, "k"), (2, 3), (4, 2), make())
    assert is_gathered(kernels) and not atomics(kernels)
    agree(COMPLEX, (2, 3), (4, 2), make, executors=("reference",))


def test_vectors_to_several_outputs() -> None:
    def make() -> tuple[Any, ...]:
        rng = np.random.default_rng(6)
        arrays = [rng.standard_normal(s).astype(np.float32) for s in ((20, 4), (20, 4), (20, 4), (20, 4), (20, 2), (20, 2))]
        return *(Duplicated(a, d) for a, d in zip(arrays[::2], arrays[1::2], strict=True)), 20

    kernels = reverse(compiled(VECTOR, "k"), 5, 4, make())
    assert is_gathered(kernels) and not atomics(kernels)
    expected = gradients(VECTOR, 5, 4, make, executor="reference", plain=False)
    for found, right in zip(gradients(VECTOR, 5, 4, make, executor="reference"), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("name", "kernels"), [("nbody-forces", 2), ("bodies-attract", 2), ("gemm", 2)])
def test_shipped_without_atomics(name: str, kernels: int) -> None:
    source = adjoint(name).source
    assert "atomicAdd(&" not in source
    assert source.count("__global__") == kernels


def test_pairs_share_a_loop() -> None:
    """What a body gets as the one and as the other of a pair is formed side by side."""
    lines = body(str(adjoint("nbody-forces").source), "forces_gather")
    assert sum("for (" in line for line in lines) == 1
    assert sum("rsqrtf" in line for line in lines) == 1


def test_few_collect_from_many() -> None:
    """A thread for each of three weights would go through all threads: the reverse stays parallel."""
    text = (
        'extern "C" __global__ void k(const double* u, const double* w, double* v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; '
    )
    text += "if (i < n) { double s = 0; for (int k = 0; k < 3; k++) s += w[k] * u[i + k]; v[i] = s; } }"

    def make() -> tuple[Any, ...]:
        return (*pairs(1, 520, 3, 512), 512)

    kernels = reverse(compiled(text, "k"), 8, 64, make())
    assert not any(isinstance(s, Accumulate) and s.buffer.name == "dw" for s in walk_stmts(kernels[0].body))
    agree(text, 8, 64, make, executors=("reference",))

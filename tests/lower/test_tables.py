"""Arrays of constants, which stencils have their weights and directions in: gathers take them along, and a text gives them at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, is_gathered, pairs, reverse
from launch_tools import compiled, running

import gpuad
from gpuad.codegen.cuda import cuda_source
from gpuad.ir.nodes import Alloc, Load, Store
from gpuad.ir.rewrite import walk_stmts
from gpuad.optimize.privatisation import inline_constant_tables, making
from gpuad.runtime import nvrtc

HEAD = """extern "C" __global__ void k(const double* u, double* v, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 2 || y < 2 || x >= n - 2 || y >= n - 2) return;
"""
STENCILS = {
    "weights": "const double c[3] = {-3.0, 1.5, -0.25}; double s = 2 * c[0] * u[y * n + x]; for (int k = 1; k <= 2; k++) "
    "s += c[k] * (u[y * n + x - k] + u[y * n + x + k] + u[(y - k) * n + x] + u[(y + k) * n + x]); v[y * n + x] = s * s;",
    "directions": "const int dx[4] = {1, -1, 0, 0}, dy[4] = {0, 0, 1, -1}; double s = 0; "
    "for (int d = 0; d < 4; d++) s += (d + 1) * u[(y + dy[d]) * n + x + dx[d]]; v[y * n + x] = s * s;",
    "both": "const int at[3] = {-2, 0, 1}; const double w[3] = {0.5, 2.0, 0.25}; double s = 0; "
    "for (int r = 0; r < 3; r++) for (int q = 0; q < 3; q++) s += w[r] * w[q] * u[(y + at[r]) * n + x + at[q]]; v[y * n + x] += sin(s);",
    "sums of both": "const double g[3] = {1, 2, 1}; double a = 0, b = 0; for (int k = -1; k <= 1; k++) { "
    "a += g[k + 1] * (u[(y + k) * n + x + 1] - u[(y + k) * n + x - 1]); "
    "b += g[k + 1] * (u[(y + 1) * n + x + k] - u[(y - 1) * n + x + k]); } "
    "v[y * n + x] = sqrt(a * a + b * b + 1);",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", STENCILS)
def test_stencils_with_tables_are_gathered(name: str) -> None:
    text = HEAD + STENCILS[name] + "\n}"

    def make() -> tuple[Any, ...]:
        return (*pairs(3, (11, 11), (11, 11)), 11)

    with running("reference"):
        kernels = reverse(compiled(text, "k"), (2, 3), (8, 4), make())
    assert is_gathered(kernels) and atomics(kernels) == 0
    agree(text, (2, 3), (8, 4), make)


def test_a_gather_makes_the_tables_that_it_reads() -> None:
    k = compiled(HEAD + STENCILS["weights"].replace("s * s", "s") + "\n}", "k")
    text = k.adjoint(grid=(2, 3), block=(8, 4), args=(*pairs(3, (11, 11), (11, 11)), 11)).source
    assert text.count("const double c[3] = {-3.0, 1.5, -0.25};") == 1  # the other kernel does not read it


@pytest.mark.parametrize(
    ("body", "tables"),
    [
        ("const double c[2] = {1, 2}; v[x] = c[y % 2] * u[x];", 1),
        ("double c[2] = {1, 2}; if (y > 3) c[1] = 3; v[x] = c[y % 2] * u[x];", 0),
        ("double c[2] = {1, u[y]}; v[x] = c[y % 2] * u[x];", 0),
        ("double c[2] = {1, 2}; c[0] = 5; v[x] = c[y % 2] * u[x];", 0),
        ("for (int t = 0; t < n; t++) { const double c[2] = {1, 2}; v[x] += c[t % 2] * u[x]; }", 1),
    ],
)
def test_what_a_table_is(body: str, tables: int) -> None:
    primal = compiled(HEAD + body + "\n}", "k").primal()
    made, rest = inline_constant_tables(primal.body)
    assert sum(isinstance(s, Alloc) for s in made) == tables
    assert not any(isinstance(s, Alloc | Store) and s.buffer.name == "c" for s in walk_stmts(rest)) or not tables
    assert making(made, rest) == made and making(made, tuple(s for s in rest if isinstance(s, Load) and False)) == ()


GIVEN = """extern "C" __global__ void k(const float* u, float* v, const short* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    BODY
}"""


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("float c[2] = {u[i], 2.0f * u[i]}; v[i] = c[i % 2];", "const float c[2] = {u[i], 2.0f * u[i]};"),
        (
            "float c[2] = {(float)i, u[i] * a[i]}; for (int k = 0; k < 3; k++) c[k % 2] *= u[i]; v[i] = c[i % 2];",
            "float c[2] = {(float)i, ",
        ),
        ("short c[2] = {(short)(a[i] + 1), 2}; v[i] = u[c[i % 2] & 1];", "short c[2];"),  # a sum of shorts is an int
        ("int c[2] = {i, n}; v[i] = u[i] * c[i % 2];", "int c[2];"),
        ("double c[2] = {u[i], 1 + u[i]}; v[i] = c[i % 2];", "const double c[2] = {(double)u[i], "),
        ("bool c[2] = {true, false}; v[i] = c[i % 2] ? u[i] : 0;", "const bool c[2] = {true, false};"),
        ("unsigned char c[3] = {255, 0, 7}; v[i] = c[i % 3] * u[i];", "const unsigned char c[3] = {255"),
    ],
)
def test_arrays_are_given_at_once_where_nothing_is_narrowed(body: str, text: str) -> None:
    k = compiled(GIVEN.replace("BODY", body), "k")
    source = cuda_source([k.primal()])
    assert text in source
    assert not nvrtc.available() or nvrtc.compile_cuda(source, "sm_75")
    u = np.linspace(0.5, 1.5, 9, dtype=np.float32)
    assert gpuad.testing.check_gradient(k, (u, np.zeros(9, np.float32), np.arange(9, dtype=np.int16), 9), grid=2, block=8).passed

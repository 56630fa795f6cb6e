"""Kernels that take lists of arrays, `const float** rows`: values and gradients, arrays that overlap or come twice, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS

import gpuad
from gpuad import Const, Duplicated, pipeline
from gpuad.errors import LaunchError, ShadowError, UnsupportedError
from gpuad.testing import check_gradient

SQUARES = """extern "C" __global__ void k(const double** rows, double* y, int m) {
  int i = threadIdx.x;
  for (int k = 0; k < m; k++) y[i] += rows[k][i] * rows[k][i] * (k + 1);
}"""
SCALED = """extern "C" __global__ void k(double** rows, double* y, int m) {
  int i = threadIdx.x;
  for (int k = 0; k < m; k++) rows[k][i] *= y[i];
}"""
PARAMETERS = {
    "the array behind": ("double** rows", "for (int k = 1; k < m; k++) rows[k][i] *= rows[k - 1][i] * y[i];"),
    "variables": ("double* const* rows", "const double* a = rows[i % m]; double* b = rows[(i + 1) % m]; y[i] = a[i]; b[i] *= 2;"),
    "numbers that are known": ("const double* const rows[]", "y[i] = rows[0][i] * rows[1][0] + *rows[m - 2] + (*(rows + 1))[i];"),
    "helpers": ("double** rows", "y[i] = entry(rows, i % m, i) * entry(rows + 1, 0, i);"),
    "null": ("double** rows", "if (rows[i % m] != nullptr) y[i] = rows[i % m][i]; if (!rows[0]) y[i] = 0;"),
    "pointers into the list": (
        "double** rows",
        "double** p = i > 2 ? rows + 1 : rows; y[i] = p[0][i]; for (p = rows; p < rows + m; p++) y[i] *= **p; "
        "--p; y[i] *= (*p)[i] * (p - rows);",
    ),
    "pointers that are swapped": (
        "double** rows",
        "double* a = rows[0]; double* b = rows[1]; for (int s = 0; s < 3; s++) { b[i] = a[i] * y[i]; double* t = a; a = b; b = t; } "
        "y[i] = a[i];",
    ),
    "atomics": ("double** rows", "atomicAdd(&rows[i % m][i / 4], y[i] * y[i]);"),
    "arrays of pointers": (
        "double** rows",
        "double* t[] = {rows[0] + 1, y, rows[m - 1]}; double u[1] = {y[i]}, v[1] = {2}; double* const w[2] = {u, v}; "
        "for (int k = 0; k < 2; k++) w[k][0] *= w[1 - k][0]; if (i < 7) t[2][i] = w[1][0] * t[0][i] + w[0][0] * t[m - 2][i];",
    ),
}


def text(parameter: str, body: str) -> str:
    helper = "__device__ double entry(double** t, int k, int i) { double* p = t[k]; return p[i]; }\n"
    return f'{helper}extern "C" __global__ void k({parameter}, double* y, int m) {{ int i = threadIdx.x; {body} }}'


def arrays(count: int, *, length: int = 8) -> list[Any]:
    return [np.random.default_rng(k).uniform(0.5, 1.5, length) for k in range(count)]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_values(executor: str) -> None:
    """Lists of one length and another in turn, by both ways to launch."""
    kernel = gpuad.kernel(SQUARES, "k")
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        for count in (1, 3, 1, 2):
            rows, y = arrays(count), np.zeros(8)
            kernel[1, 8](rows, y, count)
            kernel(1, 8, (tuple(rows), y, count))
            np.testing.assert_allclose(y, 2 * sum((k + 1) * x * x for k, x in enumerate(rows)), rtol=1e-14)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", PARAMETERS)
def test_gradients(name: str) -> None:
    check_gradient(gpuad.kernel(text(*PARAMETERS[name]), "k"), (arrays(3), np.ones(8), 3), grid=(1,), block=(8,), directions=1)


def test_two_lists_and_structs() -> None:
    body = """extern "C" __global__ void k(const double3** u, double** v, const int** which, const double* y) {
      int b = blockIdx.x, i = threadIdx.x; v[b][i] = u[b][i].x * y[i] + u[1][i].z * which[b][i]; }"""
    u, v = [a.reshape(8, 3) for a in arrays(2, length=24)], arrays(2)
    which = [np.arange(8, dtype=np.int32), np.ones(8, np.int32)]
    check_gradient(gpuad.kernel(body, "k"), (u, v, which, np.ones(8)), grid=(2,), block=(8,), directions=1)


def test_lengths_of_their_own() -> None:
    body = "for (int k = 0; k < m; k++) if (i < 2 * k + 1) y[i] += rows[k][i] * k * rows[k][0];"
    rows = [np.arange(1.0, 2 * k + 2) for k in range(4)]
    check_gradient(gpuad.kernel(text("const double** rows", body), "k"), (rows, np.ones(8), 4), grid=(1,), block=(8,), directions=1)


def test_an_array_that_comes_twice() -> None:
    """One shadow for it; two for one array are refused."""
    kernel, (a, b) = gpuad.kernel(SQUARES, "k"), arrays(2)
    da, db = np.zeros(8), np.zeros(8)
    rows = [Duplicated(a, da), Duplicated(b, db), Duplicated(a, da)]
    gpuad.autodiff(kernel, 1, 8, (rows, Duplicated(np.zeros(8), np.ones(8)), 3))
    np.testing.assert_allclose(da, 8 * a)
    np.testing.assert_allclose(db, 4 * b)
    with pytest.raises(ShadowError, match=r"double\* rows_1` of `k` .* and `rows_0` overlap, but their shadows do not"):
        rows = [Duplicated(a, np.zeros(8)), Duplicated(a, np.zeros(8))]
        gpuad.autodiff(kernel, 1, 8, (rows, Duplicated(np.zeros(8), np.ones(8)), 2))
    check_gradient(gpuad.kernel(SCALED, "k"), ([a, a, b], np.full(8, 1.5), 3), grid=(1,), block=(8,), directions=1)
    check_gradient(gpuad.kernel(SCALED, "k"), ([b, a], a, 2), grid=(1,), block=(8,), directions=1)


def test_arrays_that_overlap() -> None:
    base = arrays(1, length=12)[0]
    check_gradient(gpuad.kernel(SQUARES, "k"), ([base[:8], base[2:10], base[4:]], np.zeros(8), 3), grid=(1,), block=(8,), directions=1)


def test_some_without_a_shadow() -> None:
    a, b = arrays(2)
    da = np.zeros(8)
    gpuad.autodiff(gpuad.kernel(SQUARES, "k"), 1, 8, ([Duplicated(a, da), Const(b)], Duplicated(np.zeros(8), np.ones(8)), 2))
    np.testing.assert_allclose(da, 2 * a)


def test_in_a_tape() -> None:
    a, b, y = (Duplicated(x, np.zeros(8)) for x in (*arrays(2), np.zeros(8)))
    start, factor = [a.primal.copy(), b.primal.copy()], Duplicated(np.full(8, 2.0), np.zeros(8))
    scaled, squares = gpuad.kernel(SCALED, "k"), gpuad.kernel(SQUARES, "k")
    with gpuad.Tape() as tape:
        for _ in range(2):
            scaled[1, 8]([a, b], factor, 2)
            squares[1, 8]([a, b, a], y, 3)
    tape.reverse({y: 1.0})
    np.testing.assert_allclose(a.shadow, 8 * start[0] * (4 + 16))
    np.testing.assert_allclose(b.shadow, 4 * start[1] * (4 + 16))
    np.testing.assert_allclose(factor.shadow, (4 * start[0] ** 2 + 2 * start[1] ** 2) * (2 * 2 + 4 * 2**3))


def test_the_text() -> None:
    """What annotates a list annotates each of its arrays."""
    kernel = gpuad.kernel(SCALED, "k")
    by_name = kernel.adjoint(rows=Duplicated, y=Duplicated, args=(arrays(2), np.ones(8), 2))
    assert by_name.source == kernel.adjoint(Duplicated, Duplicated, args=(arrays(2), np.ones(8), 2)).source
    assert "for Duplicated rows_0, rows_1, y; Const m." in by_name.source
    with pytest.raises(LaunchError, match="takes lists of arrays: pass args="):
        kernel.adjoint(rows=Duplicated)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.array([1, 2], np.uint64), "takes a list of arrays, got an array of uint64: pass the arrays themselves, not their addresses"),
        ([np.ones(8), None], "of which number 1 is None: a list has no gaps"),
        ([], "from 1 to 64 of them, got 0"),
        ([np.ones(8), np.ones(8, np.float32)], "`const double\\* rows_1` .* its elements are not double"),
        ([np.ones(8), np.ones(4)], "reads `rows_1` from element 0 to 7 .* but its memory ends at 3"),
    ],
)
def test_refused_arguments(rows: Any, message: str) -> None:
    own = [Duplicated(x, np.zeros_like(x)) if isinstance(x, np.ndarray) else x for x in rows] if isinstance(rows, list) else rows
    with pytest.raises(LaunchError, match=message):
        gpuad.autodiff(gpuad.kernel(SQUARES, "k"), 1, 8, (own, Duplicated(np.zeros(8), np.ones(8)), 2))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("^rows[0] = y;", "an entry of a table of pointers cannot be changed or referred to"),
        ("double*& p = ^rows[0]; p[i] = y[i];", "an entry of a table of pointers cannot be changed or referred to"),
        ("y[i] = ^rows[3][i];", "entry 3 of 3 pointers"),
        ("double* t[1] = {y}; double** p = ^m > 1 ? rows : t; y[i] = p[0][i];", "'p' is used before it has a value"),
    ],
)
def test_refused_bodies(body: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        gpuad.kernel(text("double** rows", body.replace("^", "")), "k")(1, 8, (arrays(3), np.ones(8), 3))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("parameter", "entry", "number"),
    [
        ("int w", "rows[w]", np.int32(2)),
        ("int w", "rows[w]", np.int32(-1)),
        ("long long w", "rows[w]", np.int64(2**32)),
        ("unsigned w", "rows[w]", np.uint32(2**32 - 1)),
        ("int w", "*(rows + w)", np.int32(-1)),
        ("int w", "(rows + 1)[w]", np.int32(1)),
        ("const int* w", "rows[w[i]]", np.array([0, 1, 1, -7], np.int32)),
    ],
)
def test_numbers_outside_of_a_list_end_the_launch(parameter: str, entry: str, number: Any, executor: str) -> None:
    """No array is there that could be read past its end: the launch ends at that place, in a gradient and on a tape as well."""
    k = gpuad.kernel(
        f'extern "C" __global__ void k(double** rows, double* y, {parameter}) {{ int i = threadIdx.x; y[i] *= ({entry})[i]; }}', "k"
    )
    rows, y = [Duplicated(np.ones(4), np.zeros(4)) for _ in range(2)], Duplicated(np.ones(4), np.ones(4))
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        for launch in (
            lambda: k(1, 4, ([row.primal for row in rows], y.primal, number)),
            lambda: gpuad.autodiff(k, 1, 4, (rows, y, number)),
            lambda: gpuad.autodiff(k, 1, 4, (rows, y, number), mode=gpuad.Forward),
        ):
            with pytest.raises(LaunchError, match=r"<source>:1:\d+: the number of an entry is outside of the 2 pointers that there are"):
                launch()
        with pytest.raises(LaunchError, match="outside of the 2 pointers"), gpuad.Tape():
            k[1, 4](rows, y, number)

"""Kernels with which random ones, compared with a model in plain C++, found what was wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, api
from gpuad.codegen.cpu.vectorisation_legality import is_vectorisable
from gpuad.codegen.cpu.widen import wrapping

pytestmark = pytest.mark.optimised  # what C++ compilers made wrong is among them

HASHED = r"""
extern "C" __global__ void f(const double* u, double* v, unsigned m, int n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned q = %s;
    if (q < n) v[i] += u[q] * u[q];
}"""


@pytest.mark.parametrize(
    ("index", "factors"),
    [("i * 32768u * 32768u * 4u + i", (32768, 32768, 4)), ("i * 43691u * m", (43691, 3 << 16)), ("i * i * 65535u", ("i", 65535))],
)
def test_an_unsigned_product_that_wraps_into_an_array(index: str, factors: tuple[int | str, ...]) -> None:
    """The subscript is what is left of it in 32 bits."""
    n, m = 100_000, 3 << 16
    i = np.arange(n, dtype=np.uint32)
    q = i.copy()
    for factor in factors:
        q = q * (i if factor == "i" else np.uint32(factor))
    q = q + i if "+ i" in index else q
    inside = q < n
    u, v, du, dv = np.linspace(1, 2, n), np.zeros(n), np.zeros(n), np.linspace(-1, 1, n)
    expected = np.zeros(n)
    np.add.at(expected, q[inside], (2 * u[q % n] * dv)[inside])
    gpuad.autodiff(gpuad.kernel(HASHED % index, "f"), (-(-n // 256),), (256,), (Duplicated(u, du), Duplicated(v, dv), m, n))
    np.testing.assert_array_equal(v, np.where(inside, u[q % n] ** 2, 0))
    np.testing.assert_allclose(du, expected)


def test_an_unsigned_product_that_wraps_in_a_saved_program(tmp_path: Path) -> None:
    """A program on disk chooses its text as a launch does."""
    n = 1000
    u, v = np.linspace(1, 2, n), np.zeros(n)
    x, y = Duplicated(u), Duplicated(v)
    tape = gpuad.Tape()
    with tape:
        gpuad.kernel(HASHED % "i * 32768u * 32768u * 4u + i", "f")[(4,), (256,)](x, y, np.uint32(0), n)
    tape.save(tmp_path)
    spec = importlib.util.spec_from_file_location("saved_program", tmp_path / "program.py")
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    du, dv = np.zeros(n), np.ones(n)
    program.reverse({"u": u, "v": v}, {"u": du, "v": dv})
    np.testing.assert_allclose(du, 2 * u)


WAITING = r"""
extern "C" __global__ void f(const double* u, double* v, int n) {
    __shared__ double s[32];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned q = i * 32768u * 32768u * 4u + i;
    s[threadIdx.x] = q < n ? u[q] : 0.0;
    __syncthreads();
    if (i < n) v[i] = s[31 - threadIdx.x] * s[31 - threadIdx.x];
}"""


def test_an_unsigned_product_that_wraps_where_threads_wait() -> None:
    n = 64
    u, v, du, dv = np.linspace(1, 2, n), np.zeros(n), np.zeros(n), np.ones(n)
    gpuad.autodiff(gpuad.kernel(WAITING, "f"), (2,), (32,), (Duplicated(u, du), Duplicated(v, dv), n))
    np.testing.assert_allclose(v, u.reshape(2, 32)[:, ::-1].ravel() ** 2)
    np.testing.assert_allclose(du, 2 * u)


def test_a_chain_of_unsigned_products_is_asked_at_once() -> None:
    """Each uses the one before it twice: gone through without a memory there would be 2^60 ways."""
    chain = " ".join("h = h * h;" for _ in range(60))
    text = f'extern "C" __global__ void f(double* x, unsigned n) {{ unsigned h = n; {chain} x[threadIdx.x * h] *= 3.0; }}'
    primal = api.kernel(text, "f").primal()
    (n,) = primal.scalars
    assert [wrapping(primal).wraps((1, 1, 1), (8, 1, 1), {n: number}) for number in (1, 2)] == [False, True]
    assert is_vectorisable(primal.body, True)  # which looks at the same chain

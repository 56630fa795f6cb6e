"""Volatile shared memory as warps were programmed that are in step by themselves: each assignment waits for the others of its warp.

What the launch computes against NumPy, gradients against differences (both executors, the reference one with its search for races).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS

import gpuad
from gpuad import pipeline
from gpuad.errors import UnsupportedError
from gpuad.testing import check_gradient

LAST_WARP = """
template <class T, int SIZE> __device__ void last_warp(volatile T* part, int t) {
  if (SIZE >= 64) part[t] += part[t + 32];
  part[t] += part[t + 16]; part[t] += part[t + 8]; part[t] += part[t + 4]; part[t] += part[t + 2]; part[t] += part[t + 1];
}
extern "C" __global__ void k(const double* x, double* y, int n) {
  __shared__ double part[128];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  part[t] = i < n ? x[i] * x[i] : 0.0;
  __syncthreads();
  if (t < 64) part[t] += part[t + 64];
  __syncthreads();
  if (t < 32) last_warp<double, 128>(part, t);
  if (t == 0) y[blockIdx.x] = part[0] * part[0];
}"""

IN_A_REGISTER = """
extern "C" __global__ void k(const double* x, double* y, int n) {
  extern __shared__ double part[];
  int t = threadIdx.y * blockDim.x + threadIdx.x;
  double sum = t < n ? x[t] : 0.0;
  part[t] = sum;
  __syncthreads();
  if (t < 32) {
    volatile double* v = part;
    v[t] = sum = sum + v[t + 32];
    for (int m = 16; m > 0; m >>= 1) v[t] = sum = sum + v[t + m];
  }
  if (t == 0) y[0] *= sum;
}"""

SCAN = """
extern "C" __global__ void k(double* x, int n) {
  __shared__ volatile double s[64];
  int t = threadIdx.x, lane = t & 31;
  s[t] = x[t];
  if (lane >= 1) s[t] = s[t - 1] + s[t];
  if (lane >= 2) s[t] = s[t - 2] + s[t];
  for (int m = 4; m < n; m *= 2) {
    if (lane < m) continue;
    s[t] += s[t - m];
  }
  x[t] = s[t];
}"""

STEPS = """
__device__ void early(volatile double* s, int t) {{ if (t % 32 >= 16) return; s[t] += s[t + 16]; s[t] *= s[t ^ 1]; }}
extern "C" __global__ void k(double* x, int n) {{
  volatile __shared__ double s[64];
  volatile __shared__ int c[64];
  int t = threadIdx.x;
  s[t] = x[t]; c[t] = t;
  {}
  __syncthreads();
  x[t] = s[t] * s[63 - t];
}}"""

STATEMENTS = {
    "a return in a helper": "early(s, t); s[t] += s[t ^ 1];",
    "a condition's effect": "t % 32 < 16 && (s[t] = s[t + 16] * 2) > 0;",
    "conditions that data decides": "for (int m = 3; m > 0; m--) if (x[t] > m * 0.3) s[t] += s[t ^ m];",
    "integers": "if (t % 32 < 16) c[t] += c[t + 16]; s[t] *= c[t]; c[t]++; s[t] += c[t ^ 3];",
    "an element of two": "(n > 2 ? s[t] : s[t ^ 1]) *= x[t];",
    "an address": "volatile double* p = &s[t]; *p += s[t ^ 1]; p[0] *= 2; ++c[t ^ 1]; s[t] *= c[t];",
    "an array of a thread": "volatile double a[2] = {1, 2}; a[0] = s[t]; a[1] *= s[t]; s[t] = a[t & 1] * a[0];",
    "two sides that write": "if (t % 3) s[t] = x[t] * x[t]; else s[t] = 2; s[t] += s[t ^ 1];",
    "a loop that writes": "for (int i = t; i < 64; i += 40) s[i] = x[i] * 3; __syncthreads();",
    "a return": "s[t] += s[t ^ 8]; if (t >= 60) return; s[t] *= 2;",
    "a shuffle": "if (t < 32) s[t] += s[t ^ 1]; s[t] = __shfl_down_sync(0xffffffff, s[t], 4) * s[t ^ 2];",
    "copies of all": "__syncthreads(); double q = 0; for (double v : s) q += v; __syncthreads(); s[t] = q * x[t];",
}


def check(text: str, arguments: tuple[Any, ...], grid: int, block: tuple[int, ...], shared_mem: int = 0) -> None:
    check_gradient(gpuad.kernel(text, "k"), arguments, grid=(grid,), block=block, shared_mem=shared_mem, directions=1)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_a_warp_computes(executor: str) -> None:
    rng = np.random.default_rng(0)
    x, y, z, w = rng.normal(size=200), np.zeros(2), rng.normal(size=64), np.array([2.0])
    running = np.cumsum(z.reshape(2, 32), axis=1).ravel()
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        gpuad.kernel(LAST_WARP, "k")((2,), (128,), (x, y, np.int32(200)))
        gpuad.kernel(IN_A_REGISTER, "k")((1,), (8, 8), (x, w, np.int32(50)), shared_mem=512)
        gpuad.kernel(SCAN, "k")((1,), (64,), (z, np.int32(32)))
    np.testing.assert_allclose(y, [(x[:128] ** 2).sum() ** 2, (x[128:] ** 2).sum() ** 2], rtol=1e-13)
    np.testing.assert_allclose(w, [2 * x[:50].sum()], rtol=1e-12)
    np.testing.assert_allclose(z, running, rtol=1e-12)


def test_gradients_of_the_idioms() -> None:
    rng = np.random.default_rng(1)
    check(LAST_WARP, (rng.normal(size=200), np.zeros(2), np.int32(200)), 2, (128,))
    check(IN_A_REGISTER, (rng.normal(size=64), np.array([2.0]), np.int32(50)), 1, (8, 8), 512)
    check(SCAN, (rng.normal(size=64), np.int32(32)), 1, (64,))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_gradients_of_steps(statement: str) -> None:
    check(STEPS.format(statement), (np.random.default_rng(2).uniform(0.2, 1.2, 64), np.int32(3)), 1, (64,))


APART = (
    "volatile shared memory is written inside a {} that is not known to be the same for all threads of the block, so it is not known which "
    "of them are in step; leave volatile away and write __syncwarp() where what others have written is read"
)
GLOBAL = (
    "volatile memory of the launch is not supported: threads of other blocks may change it, which a reverse pass cannot follow; if none "
    "does, leave volatile away"
)
REFUSED = {
    "a loop that threads leave one by one": ("for (int m = 0; m < (t & 7); m++) s[t] += s[t ^ 1];", "loop (at <source>:8:3)", "s[t] +="),
    "a break of some threads": (
        "for (int m = 1; m < 32; m *= 2) { if (t < m) break; s[t] += s[t - m]; }",
        "loop (at <source>:8:3)",
        "s[t] +=",
    ),
    "two sides that read": ("if (t & 1) s[t] += s[t - 1]; else s[t] += s[t + 1];", "condition (at <source>:8:3)", "s[t] += s[t - 1]"),
    "cases": ("switch (t & 3) { case 0: s[t] = s[t + 1]; break; case 1: s[t] *= 2; }", "condition (at <source>:8:25)", "s[t] = s[t + 1]"),
}


@pytest.mark.parametrize("statement, what, place", REFUSED.values(), ids=REFUSED)
def test_threads_that_part(statement: str, what: str, place: str) -> None:
    text = STEPS.format(statement)
    with pytest.raises(UnsupportedError) as error:
        gpuad.kernel(text, "k").adjoint()
    assert error.value.message == APART.format(what)
    assert error.value.span is not None
    assert (error.value.span.line, error.value.span.column) == (8, text.splitlines()[7].index(place) + 1)


@pytest.mark.parametrize("statement", ["^x[0] = 1;", "volatile double* v = j; j[1] = ^v[0];", "double a = *^x;"])
def test_memory_of_the_launch(statement: str) -> None:
    text = f'extern "C" __global__ void k(volatile double* x, double* j) {{ {statement} }}'
    with pytest.raises(UnsupportedError) as error:
        gpuad.kernel(text.replace("^", ""), "k").adjoint()
    assert error.value.message == GLOBAL
    assert error.value.span is not None
    assert error.value.span.column == text.index("^") + 1


DECLARED = {
    "an array of unknown length": "__device__ void step(volatile double s[], int t)",
    "an array": "__device__ void step(double volatile s[64], int t)",
    "a type's name": "typedef double V[64]; __device__ void step(volatile V s, int t)",
    "of a template": "template <class T> __device__ void step(T s[], int t)",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("declared", DECLARED.values(), ids=DECLARED)
def test_parameters_that_are_declared_as_arrays(declared: str, executor: str) -> None:
    """Such a parameter is a pointer, of whose declared type only the elements are volatile."""
    statements, t = "s[t] *= s[t ^ 1]; s[t] += s[t ^ 2];", np.arange(64)
    text = f"{declared} {{ {statements} }}" + STEPS.format("step(s, t);")
    x = np.linspace(0.5, 1.5, 64)
    product = x * x[t ^ 1]
    total = product + product[t ^ 2]
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        gpuad.kernel(text, "k")((1,), (64,), (x, np.int32(3)))
        check(text, (np.random.default_rng(2).uniform(0.2, 1.2, 64), np.int32(3)), 1, (64,))
    np.testing.assert_allclose(x, total * total[::-1], rtol=1e-14)


def test_one_of_two_arrays() -> None:
    text = STEPS.format("volatile __shared__ double r[64]; volatile double* p = t & 1 ? s : r; *p = 1;")
    with pytest.raises(UnsupportedError, match="a pointer to volatile memory that may be one of several arrays is not supported"):
        gpuad.kernel(text, "k").adjoint()


CASTS = {
    "a pointer": ("double s[]", "volatile double* v = (volatile double*)s; step(v, t);"),
    "at a call": ("double s[]", "step((volatile double*)s, t);"),
    "bytes": ("unsigned char s[]", "volatile double* v = reinterpret_cast<volatile double*>(s); step(v, t);"),
    "bytes at two places": ("unsigned char s[]", "double* w = (double*)s; w[t] *= 2; __syncwarp(); step((volatile double*)s, t);"),
    "away": ("volatile double s[]", "step(const_cast<double*>(s), t);"),
    "behind another array": (
        "double s[]",
        "volatile int* c = (volatile int*)(s + 64); c[t] = t; step((volatile double*)s, t + 0 * c[t ^ 1]);",
    ),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("declared", "statement"), CASTS.values(), ids=CASTS)
def test_casts_of_dynamic_memory(declared: str, statement: str) -> None:
    """The way of the last warp: memory that is declared without volatile is given to it as volatile."""
    text = f"""__device__ void step(volatile double* s, int t) {{ s[t] *= s[t ^ 1]; s[t] += s[t ^ 2]; }}
    extern "C" __global__ void k(double* x, const double* y) {{
      extern __shared__ {declared};
      int t = threadIdx.x;
      ((double*)s)[t] = x[t] * y[t];
      __syncthreads();
      {statement}
      x[t] = ((double*)s)[t];
    }}"""
    rng, t = np.random.default_rng(3), np.arange(64)
    x, y = rng.uniform(0.5, 1.5, 64), rng.uniform(0.5, 1.5, 64)
    own = x * y * (2 if "*= 2" in statement else 1)
    product = own * own[t ^ 1]
    found = x.copy()
    gpuad.kernel(text, "k")((1,), (64,), (found, y), shared_mem=1024)
    np.testing.assert_allclose(found, product + product[t ^ 2], rtol=1e-14)
    check(text, (x, y), 1, (64,), 1024)

"""Memory as public kernels write it: arrays of pointers that are filled, bytes of shared memory, memcpy and memset, loops around atomicCAS
in place. Each beside the same written out; NVRTC reads the text as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nightly import share
from ptx import nvrtc
from ptx_tools import cuda

import gpuad
from gpuad import Duplicated, UnsupportedError, pipeline
from gpuad.frontend.cuda.fence import FUNCTIONS
from gpuad.frontend.cuda.pointer_arrays import ENTRY
from gpuad.testing import check_gradient

N = 8
BEFORE = """#include <cstring>
struct Pair { double a, b; };
__device__ double rows(const double* const* p, int m, int i) { double s = 0; for (int j = 0; j < m; j++) s += p[j][i] * p[j][0]; return s; }
template <int M> __device__ void turned(double* shared, double v[M]) {
  double* s[M]; for (int i = 0; i < M; ++i) { s[i] = shared + i * 8; s[i][threadIdx.x] = v[i]; }
  __syncthreads(); for (int i = 0; i < M; ++i) v[i] = s[i][7 - threadIdx.x];
}
extern "C" __global__ void k(const double* x, double* y, int n) { int t = threadIdx.x, i = t; if (i >= n) return;
"""
BYTES = "__shared__ char raw[64]; {} s[t] = x[i] * x[i]; __syncthreads(); y[i] = s[7 - t] * x[t];"
TURNED = "y[i] = x[7 - i] * x[7 - i] * x[i];"
BODIES: dict[str, tuple[str, str]] = {
    "pointers by a loop": (
        "const double* p[3]; for (int j = 0; j < 3; j++) p[j] = x + j * n; double s = 0; for (int j = 0; j < 3; j++) s += p[j][i] * "
        "p[(j + 1) % 3][i]; y[i] = s;",
        "double a = x[i], b = x[i + n], c = x[i + 2 * n]; y[i] = a * b + b * c + c * a;",
    ),
    "pointers one by one": ("const double* p[2]; p[0] = x; p[1] = x + n; y[i] = p[i % 2][i] * p[1][0];", "y[i] = x[i + i % 2 * n] * x[n];"),
    "pointers by two loops": (
        "const double* p[4];\n#pragma unroll\nfor (int a = 1; a >= 0; --a) for (int b = 0; b <= 2; b += 2) p[a + b] = x + (a * 3 + b); "
        "y[i] = p[3][i] * p[1][i] + p[2][i] * p[0][i];",
        "y[i] = x[i + 5] * x[i + 3] + x[i + 2] * x[i];",
    ),
    "pointers that move": (
        "const double* p[2] = {x, x + n}; for (int q = 0; q < 3; q++) { const double* o = p[0]; p[0] = p[1]; p[1] = o; } "
        "for (int j = 0; j < 2; j++) p[j] += j; if (x[i] > 1.0) p[1]++; y[i] = p[0][i] * p[1][i];",
        "y[i] = x[n + i] * x[i + 1 + (x[i] > 1.0)];",
    ),
    "pointers by a loop of a template": (
        "double v[2] = {x[i] * x[i], 3 * x[i]}; __shared__ double s[16]; turned<2>(s, v); y[i] = v[0] * v[1];",
        "y[i] = x[7 - i] * x[7 - i] * 3 * x[7 - i];",
    ),
    "pointers passed on": (
        "const double* p[2]; for (int j = 0; j < 2; j++) p[j] = x + j; y[i] = rows(p, 2, i);",
        "y[i] = x[i] * x[0] + x[i + 1] * x[1];",
    ),
    "pointers to results": (
        "double* p[2]; p[0] = y; p[1] = y + 4; if (i < 4) { p[0][i] = x[i]; p[1][i] = x[i] * x[i]; }",
        "if (i < 4) { y[i] = x[i]; y[i + 4] = x[i] * x[i]; }",
    ),
    "bytes": (BYTES.format("double* s = (double*)raw;"), TURNED),
    "bytes by address": (BYTES.format("auto* s = reinterpret_cast<double*>(&raw[0]);"), TURNED),
    "bytes by void": (BYTES.format("double* s = static_cast<double*>(static_cast<void*>(raw));"), TURNED),
    "bytes of complex numbers": (
        "__shared__ __align__(16) unsigned char raw[8 * sizeof(complex<double>)]; auto s = (complex<double>*)raw; "
        "s[t] = complex<double>(x[i], x[t] * x[t]); __syncthreads(); y[i] = s[7 - t].real() * s[t].imag();",
        "y[i] = x[7 - i] * x[i] * x[i];",
    ),
    "bytes of structs": (
        "__shared__ char raw[8 * sizeof(Pair)]; Pair* s = (Pair*)raw; s[t].a = x[i]; s[t].b = x[i] * x[i]; __syncthreads(); "
        "y[i] = s[7 - t].a * s[t].b;",
        "y[i] = x[7 - i] * x[i] * x[i];",
    ),
    "bytes of several types": (
        "__shared__ char raw[64 + 32]; double* s = (double*)raw; int* k = (int*)(raw + 64); k[t] = 7 - t; s[t] = x[i] * x[i]; "
        "__syncthreads(); y[i] = s[k[t]] * x[i];",
        TURNED,
    ),
    "memcpy": (
        "double a[3], b; memcpy(a, x + i, 3 * sizeof(double)); std::memcpy(&b, &a[1], sizeof(b)); y[i] = a[0] * a[2] + b;",
        "y[i] = x[i] * x[i + 2] + x[i + 1];",
    ),
    "memcpy to global memory": (
        "__shared__ double s[8]; if (t == 0) memcpy(s, x, n * sizeof(double)); __syncthreads(); double v = s[7 - t] * s[7 - t] * s[t]; "
        "memcpy(&y[i], &v, sizeof v);",
        TURNED,
    ),
    "memcpy of structs and matrices": (
        "Pair v = {x[i], 2 * x[i]}, w; memcpy(&w, &v, sizeof(Pair)); double a[2][2] = {{x[i], 1}, {2, w.b}}, b[2][2], c[4]; "
        "memcpy(b, a, sizeof(a)); memcpy(c, b, sizeof(c)); y[i] = c[0] * b[1][1] * c[2] + w.a;",
        "y[i] = x[i] * (2 * x[i]) * 2 + x[i];",
    ),
    "memset": (
        "double a[8], b[2][2] = {{x[i], 1}, {2, 3}}; Pair v = {x[i], 1}; int j[2]; unsigned char c[4]; memset(a, 0, n * sizeof(double)); "
        "for (int m = 0; m < n; m++) a[m] += x[m]; memset(b, 0, sizeof(b)); memset(&v, 0, sizeof(v)); memset(j, -1, sizeof(j)); "
        "memset(c, 7, 4); "
        "y[i] = a[i] * a[0] + b[0][0] + v.a + j[1] * c[3] * x[i];",
        "y[i] = x[i] * x[0] - 7 * x[i];",
    ),
    "bits by memcpy": ("long long b; double two = 2; memcpy(&b, &two, sizeof(b)); y[i] = x[i] * (b >> 52);", "y[i] = x[i] * 1024;"),
}


def _text(body: str) -> str:
    return f"{'#include <cupy/complex.cuh>' if 'complex<' in body else ''}\n{BEFORE}{body}\n}}"


def _fields() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    return rng.uniform(0.6, 1.4, 3 * N), rng.uniform(0.6, 1.4, N)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", share(list(BODIES), 2))
def test_same_as_written_out(name: str, executor: Any) -> None:
    found = []
    for body in BODIES[name]:
        (x, y), dx, dy = _fields(), np.zeros(3 * N), np.linspace(1, 2, N)
        with pipeline.executor_for_tests(executor):
            gpuad.autodiff(gpuad.kernel(_text(body), "k"), 1, N, (Duplicated(x, dx), Duplicated(y, dy), N))
        found.append((y, dx, dy))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", BODIES)
def test_derivatives(name: str) -> None:
    check_gradient(gpuad.kernel(_text(BODIES[name][0]), "k"), (*_fields(), N), grid=1, block=N)


@pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", share([name for name in BODIES if "complex" not in name], 3))
def test_as_nvrtc_reads_it(name: str) -> None:
    (x, y), (_, expected) = _fields(), _fields()
    gpuad.kernel(_text(BODIES[name][0]), "k")[1, N](x, expected, N)
    cuda(_text(BODIES[name][0]).replace("#include <cstring>", "namespace std { using ::memcpy; }"), "k", 1, N, (x, y, np.int32(N)))
    np.testing.assert_allclose(y, expected, rtol=1e-13)


REFUSED = {
    "an entry by data": ("const double* p[2]; ^p[i % 2] = x; y[i] = p[i % 2][i];", ENTRY),
    "an entry in an unknown loop": ("const double* p[9]; for (int j = 0; j < n; j++) ^p[j] = x + j; y[i] = p[0][i];", ENTRY),
    "a loop that leaves": ("const double* p[2]; for (int j = 0; j < 2; j++) { ^p[j] = x; if (i) break; } y[i] = p[0][i];", ENTRY),
    "an entry without a value": ("const double* p[2]; p[0] = x; y[i] = ^p[1][i];", "'p_1' is used before it has a value"),
    "bytes and numbers": ("__shared__ char raw[64]; double* s = ^(double*)raw; raw[t] = 0; y[i] = s[t];", "reinterprets memory"),
    "too few bytes": ("__shared__ char ^raw[4]; y[i] = ((double*)raw)[0];", "shared memory of 4 bytes has no room for the type"),
    "bytes cut by data": (
        "__shared__ char raw[96]; double* s = (double*)raw; int* k = ^(int*)(s + t); y[i] = s[k[0]];",
        "shared memory can be",
    ),
    "other sizes": ("float a[2] = {1, 2}; double b; ^memcpy(&b, a, 8); y[i] = b * x[i];", FUNCTIONS["memcpy"]),
    "overlaps": ("double a[3] = {1, 2, 3}; ^memmove(a + 1, a, 16); y[i] = a[2];", FUNCTIONS["memmove"]),
    "bits of a gradient": (
        "long long b; double v = x[0]; ^memcpy(&b, &v, sizeof(b)); y[i] = x[i] * (b >> 52);",
        "the bits of a value that carries a gradient",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, message = REFUSED[name]
    x, y = _fields()
    with pytest.raises(UnsupportedError) as caught:
        gpuad.autodiff(gpuad.kernel(_text(body.replace("^", "")), "k"), 1, N, (Duplicated(x), Duplicated(y, np.ones(N)), N))
    assert message in str(caught.value) and caught.value.column == body.index("^") + 1


def test_memset_of_another_byte() -> None:
    x, y = _fields()
    with pytest.raises(gpuad.LaunchError, match=r"assert\(value == 0\)"):
        gpuad.kernel(_text("double a[2]; memset(a, i, sizeof(a)); y[i] = a[0];"), "k")[1, N](x, y, N)


# --- loops around atomicCAS ------------------------------------------------------------------------------------------------------------

DO = "do { assumed = old; old = atomicCAS(p, assumed, __double_as_longlong(%s)); } while (assumed != old);"
ADD = DO % "x[i] * x[i] * 2 + __longlong_as_double(assumed)"
U = "unsigned long long"
SUMS = {
    "as in the guide": f"double v = 2 * x[i] * x[i]; {U}* p = ({U}*)&y[i % 3]; {U} old = *p, assumed; "
    + DO % "v + __longlong_as_double(assumed)",
    "an expression": f"{U}* p = ({U}*)(y + i % 3), old = p[0], assumed; {ADD}",
    "volatile": f"{U}* p = ({U}*)&y[i % 3]; {U} old = *(volatile {U}*)p, assumed; {ADD}",
    "without a pointer": f"{U} old = __double_as_longlong(y[i % 3]), assumed; " + ADD.replace("CAS(p", f"CAS(({U}*)&y[i % 3]"),
    "numbers": f"double old = y[i % 3], assumed; do {{ assumed = old; old = __longlong_as_double(atomicCAS(({U}*)(y + i % 3), "
    "__double_as_longlong(assumed), __double_as_longlong(2 * x[i] * x[i] + assumed))); } while (assumed != old);",
    "a pointer to numbers": f"double* q = y + i % 3; {U}* p = ({U}*)q, old = *p, assumed; {ADD}",
    "a name for the sum": f"if (i >= 0) {{ {U}* p = ({U}*)&y[i % 3], old = *p, assumed; do {{ assumed = old; double s = 2 * x[i] * x[i] + "
    "__longlong_as_double(assumed); old = atomicCAS(p, assumed, __double_as_longlong(s)); } while (assumed != old); }",
    "twice": "for (int j = 0; j < 2; j++) { " + f"{U}* p = ({U}*)&y[i % 3], old = *p, assumed; {ADD.replace('* 2 +', '+')} }}",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", SUMS)
def test_sums_in_place(name: str, executor: Any) -> None:
    (x, y), dx, dy = _fields(), np.zeros(3 * N), np.arange(1.0, N + 1)
    expected = y.copy()
    np.add.at(expected, np.arange(N) % 3, 2 * x[:N] ** 2)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(_text(SUMS[name]), "k"), 1, N, (Duplicated(x, dx), Duplicated(y, dy), N))
    np.testing.assert_allclose(y, expected)
    np.testing.assert_allclose(dx[:N], 4 * x[:N] * dy[np.arange(N) % 3])


EXTREMA = {
    "greatest": DO % "fmax(x[i], __longlong_as_double(assumed))",
    "greatest by a test": "while (x[i] > __longlong_as_double(old)) { assumed = old; "
    "if ((old = atomicCAS(p, assumed, __double_as_longlong(x[i]))) == assumed) break; }",
}


@pytest.mark.parametrize("name", EXTREMA)
def test_extrema_in_place(name: str, executor: Any) -> None:
    (x, y), dx, dy = _fields(), np.zeros(3 * N), np.ones(N)
    y[0] = 0
    kernel = gpuad.kernel(_text(f"{U}* p = ({U}*)y; {U} old = *p, assumed; {EXTREMA[name]}"), "k")
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 1, N, (Duplicated(x, dx), Duplicated(y, dy), N))
    assert y[0] == x[:N].max()
    np.testing.assert_array_equal(dx[:N], x[:N] == x[:N].max())


def test_what_was_there_before_the_sum() -> None:
    """Used as a number that carries no gradient: the place that a thread has taken."""
    counted = DO % "1.0 + __longlong_as_double(assumed)"
    body = f"{U}* p = ({U}*)&y[7]; {U} old = *p, assumed; {counted} y[(int)__longlong_as_double(old)] = x[i];"
    x, y = _fields()
    y[7] = 0
    kernel = gpuad.kernel(_text(body).replace("if (i >= n)", "if (i >= 5)"), "k")
    kernel[1, N](x, y, N)
    np.testing.assert_allclose(sorted(y[:5]), sorted(x[:5]))


def test_a_product_in_place_is_refused() -> None:
    x, y = _fields()
    kernel = gpuad.kernel(_text(f"{U}* p = ({U}*)y; {U} old = *p, assumed; {DO % 'x[i] * __longlong_as_double(assumed)'}"), "k")
    with pytest.raises(UnsupportedError, match="a loop around atomicCAS is understood where it adds"):
        gpuad.autodiff(kernel, 1, N, (Duplicated(x), Duplicated(y, np.ones(N)), N))

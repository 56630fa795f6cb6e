"""Vectors of CUDA (float2 to float4 and their kin) in kernels: the gradient against forward mode and differences, on every executor."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Duplicated, LaunchError, UnsupportedError, pipeline, testing

OPERATORS = """
__device__ double3 operator+(double3 a, double3 b) { return make_double3(a.x + b.x, a.y + b.y, a.z + b.z); }
__device__ double3 operator-(const double3& a, const double3& b) { return make_double3(a.x - b.x, a.y - b.y, a.z - b.z); }
__device__ double3 operator*(double s, const double3 a) { return {s * a.x, s * a.y, s * a.z}; }
__device__ double3& operator+=(double3& a, const double3& b) { a.x += b.x; a.y += b.y; a.z += b.z; return a; }
__device__ void operator*=(double3& a, double s) { a.x *= s; a.y *= s; a.z *= s; }
__device__ double dot(double3 a, double3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__device__ double3 cross(double3 a, double3 b) {
    return make_double3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
__device__ double length(double3 a) { return sqrt(dot(a, a)); }
__device__ double3 unit(double3 a) { double l = length(a); if (l == 0.0) return a; return (1.0 / l) * a; }
"""

# Bodies of a kernel with the parameters (double4* p, const double2* q, double* y, int n) and an index i below n.
BODIES: dict[str, str] = {
    "members": "p[i].x = p[i].y * p[i].z; p[i].w *= q[i].x; y[i] = q[i].y * p[i].x;",
    "whole": "double4 a = p[i]; double4 b; b = a; b.x = sin(a.y); p[i] = make_double4(b.w, b.x * a.z, a.x, b.x); y[i] = b.z;",
    "swap": "double4 a = p[i], b = p[n + i]; p[i] = b; p[n + i] = a; y[i] = a.x * b.y;",
    "braces": "double2 u = {1, 2}, v{q[i].x, q[i].y}, w{}; u.x += v.y * v.x; y[i] = u.x * u.y + w.x; p[i] = {v.x, v.x * v.y};",
    "temporary member": "y[i] = make_double2(q[i].x * q[i].y, 1.0).x + double2{q[i].y, 2.0}.x;",
    "added": "p[i].x += q[i].x * q[i].y; p[i].y -= 3 * q[i].x; y[i] += p[n + i].z * q[i].x;",
    "chosen": "double4 a = p[i].x > 0.9 ? p[i] : p[n + i]; y[i] = a.x * a.y; p[i] = q[i].x > q[i].y ? a : p[n + i];",
    "branches": "double2 a = q[i]; if (a.x > 0.9) { a.y = a.x * a.x; } else { double2 b = a; a = {b.y, sin(b.x)}; } y[i] = a.x * a.y;",
    "loop": "double2 a = {1.0, q[i].x}; for (int k = 0; k < 4; k++) { a = {a.y * q[i].y, a.x + sin(a.y)}; } y[i] = a.x - a.y * a.y;",
    "while": "double2 a = q[i]; int k = 0; while (a.x < 6.0 && k < 20) { a.x += a.y * a.y; a.y *= 1.1; k++; } y[i] = a.x * a.y;",
    "local array": """double2 a[3] = {q[i], {q[i].y, 2.0}}; for (int k = 0; k < 3; k++) { a[k].x += a[(k + 1) % 3].y;
        a[(k + 2) % 3].y *= q[i].x; }
        for (int k = 0; k < 3; k++) y[i] += a[k].x * a[k].y;""",
    "array of arrays": """double2 a[2][2] = {{q[i], q[i]}, {{1.0, 2.0}, {q[i].x, 3.0}}}; a[1][i % 2].y *= a[0][1].x; double2* r = a[1];
        y[i] = r[1].y + r[0].y * (*r).x;""",
    "pointer": "const double2* r = q + i; double4* s = &p[i]; s->x = r->y * (*r).x; s += n; y[i] = s->x * r[0].x; s--; s++; s->y *= 2.0;",
    "pointer to a variable": "double2 a = q[i]; double2* r = &a; r->x *= a.y; double* s = &a.y; *s = *s * a.x; y[i] = a.x + 2 * a.y;",
    "reference": "double4& s = p[i]; const double2& r = q[i]; s.x = r.x * s.y; s.y = r.y * s.x; double& z = s.z; z = z * z; y[i] = z;",
    "chosen pointer": "const double2* r = i % 2 ? q : q + n; y[i] = r[i].x * r[i].y; double2 a, b = {1.0, 2.0}; a = q[i]; "
    "double2* s = i % 3 ? &a : &b; s->x *= 3.0; y[i] += s->x + a.x * b.x;",
    "atomics": "atomicAdd(&p[i / 2].x, q[i].x * q[i].y); atomicAdd(&p[0].w, q[i].x);",
    "index": "uint3 t = threadIdx; dim3 b = blockDim; y[blockIdx.x * b.x + t.x] = q[i].x * q[i].y;",
    "integers": "int2 k = make_int2(i, n - 1 - i); uchar4 c = {1, 2, 3, 4}; y[k.x] = q[k.y].x * q[k.x].y * c.z;",
    "an array as a vector": "double t[4]; *(double4*)(&t) = p[i]; t[1] *= t[0]; *reinterpret_cast<double4*>(&(t)) = *(double4*)t; "
    "p[i] = *(double4*)&t; y[i] = t[1] * t[3]; ",
    "float4 as scalars": "double* r = reinterpret_cast<double*>(p); y[i] = r[4 * i + 2] * r[4 * i]; "
    "((double2*)r)[2 * i].y = q[i].x * q[i].x;",
    "cast reference": "reinterpret_cast<double2&>(y[0]) ; double2 a = *(double2*)&p[i].z; p[i].x = a.x * a.y; y[i] = a.x;",
    "chain": "double2 a, b; a = b = q[i]; (a = b).x *= 2.0; y[i] = a.x * b.x + a.y;",
    "comma and nested": "double2 a = q[i], b = (a.x *= 2.0, a); y[i] = b.x * a.y * (a = b).x;",
    "one lane": "double1 a = make_double1(q[i].x); y[i] = a.x * a.x;",
}  # fmt: skip

HELPERS: dict[str, str] = {
    "operators": "double3 a = {p[i].x, p[i].y, p[i].z}; double3 b = unit(a + 2.0 * cross(a, make_double3(q[i].x, q[i].y, 1.0))); "
    "b += a - b; b += b; b *= q[i].x; y[i] = dot(a, b) + length(b);",
    "returned reference": "double3 a = {p[i].x, p[i].y, 1.0}, b = {q[i].x, q[i].y, 0.5}; (a += b).x *= 3.0; "
    "(a += a) += b; y[i] = dot(a, a);",
    "in loop": "double3 v = {0, 0, 0}, g = {q[i].x, q[i].y, 1.0}; "
    "for (int k = 0; k < 3; k++) { v += 0.1 * cross(v, g) + g; } y[i] = dot(v, v);",
}


def kernel_of(body: str) -> Any:
    text = f"""{OPERATORS}
    extern "C" __global__ void k(double4* p, const double2* q, double* y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        {body}
    }}"""
    return gpuad.kernel(text, "k")


def some(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.6, 1.4, shape)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("recorded", [False, True], ids=["analysed", "all recorded"])
@pytest.mark.parametrize("name", [*BODIES, *HELPERS])
def test_gradient(executor: Any, name: str, recorded: bool) -> None:
    n = 10
    kernel = kernel_of({**BODIES, **HELPERS}[name])
    args = [Duplicated(some(2 * n + 1, 4)), Duplicated(some(2 * n, 2, seed=1)), Duplicated(some(n, seed=2)), n]
    with contextlib.ExitStack() as stack:
        stack.enter_context(pipeline.executor_for_tests(executor))
        if recorded:
            stack.enter_context(pipeline.everything_recorded_for_tests())
        testing.check_gradient(kernel, args, grid=3, block=4)


def test_closed_form(executor: Any) -> None:
    """y = |r|^-3 of a float4: single precision, a flat array as float4*."""
    text = """extern "C" __global__ void k(const float4* p, float* y) {
        int i = threadIdx.x; float4 a = p[i]; float r2 = a.x * a.x + a.y * a.y + a.z * a.z; y[i] = a.w * rsqrtf(r2) / r2; }"""
    p = some(8 * 4).astype(np.float32)
    dp, dy = np.zeros_like(p), np.ones(8, np.float32)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 8, (Duplicated(p, dp), Duplicated(np.zeros(8, np.float32), dy)))
    a = p.reshape(8, 4).astype(float)
    r2 = (a[:, :3] ** 2).sum(1)
    want = np.concatenate([-3 * a[:, 3:] * a[:, :3] / r2[:, None] ** 2.5, r2[:, None] ** -1.5], 1)
    assert np.allclose(dp.reshape(8, 4), want, rtol=1e-5)
    assert not dy.any()


def test_plain_accumulation_is_proved() -> None:
    text = """extern "C" __global__ void k(float4* p, float4* q, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
        float4 a = p[i]; q[i] = make_float4(a.x * a.y, a.z, a.w * a.w, a.x); p[i].y = 2 * a.y; }"""
    p, q = (Duplicated(some(100, 4).astype(np.float32)) for _ in range(2))
    source = gpuad.kernel(text, "k").adjoint(p=Duplicated, q=Duplicated, grid=4, block=32, args=(p, q, 100)).source
    assert "atomic" not in source
    assert "a_x" in source


def test_a_component_that_nobody_wrote_is_not_stored() -> None:
    text = """extern "C" __global__ void k(float4* p, float* y) { float4 a; a.x = y[0]; a.y = 2; a.z = 3;\n  p[0] = a; }"""
    with pytest.raises(UnsupportedError, match="a part of this value is used before it has a value") as caught:
        gpuad.kernel(text, "k")
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 3), np.float32), "a float4 is 4 numbers that lie side by side"),
        (np.zeros((4, 4), np.float64), "its elements are not float"),
        (np.zeros((4, 4), np.int32), "its elements are not float"),
        (np.zeros((4, 8), np.float32)[:, ::2], "a float4 is 4 numbers that lie side by side"),
        (np.zeros((4, 2), np.float32), "a float4 is 4 numbers that lie side by side"),
        (np.zeros((4, 2, 4), np.float32)[:, :, :2], "a float4 is 4 numbers that lie side by side"),
    ],
)
def test_arrays_that_hold_no_vectors(array: Any, message: str) -> None:
    kernel = gpuad.kernel('extern "C" __global__ void k(float4* p) { p[0].x = 1; }', "k")
    with pytest.raises(LaunchError, match=message):
        kernel(1, 1, (array,))


def test_complex_and_flat_arrays_are_vectors_too(executor: Any) -> None:
    kernel = gpuad.kernel('extern "C" __global__ void k(float2* p, float* y) { y[0] = p[1].x * p[1].y; }', "k")
    z = np.array([0, 3 + 4j], np.complex64)
    for primal in (z, z.view(np.float32), z.view(np.float32).reshape(2, 2)):
        dp, dy = np.zeros_like(primal), np.ones(1, np.float32)
        with pipeline.executor_for_tests(executor):
            gpuad.autodiff(kernel, 1, 1, (Duplicated(primal, dp), Duplicated(np.zeros(1, np.float32), dy)))
        assert dp.view(np.float32).ravel().tolist() == [0, 0, 4, 3]


def test_views_of_vectors_keep_their_room(executor: Any) -> None:
    """A slice of a float4 array starts in the middle of its allocation; so does its shadow."""
    kernel = gpuad.kernel('extern "C" __global__ void k(float4* p) { int i = threadIdx.x; p[i].x = p[i].y * p[i].z; }', "k")
    whole = Duplicated(some(6, 4).astype(np.float32), np.ones((6, 4), np.float32))
    before = whole.primal.copy()
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 1, 2, (whole[2:4],))
    want = np.ones((6, 4), np.float32)
    want[2:4, 0] = 0
    want[2:4, 1:3] += before[2:4, [2, 1]]
    assert np.array_equal(whole.shadow, want)


def test_tape(executor: Any) -> None:
    kernel = gpuad.kernel('extern "C" __global__ void k(float2* p) { int i = threadIdx.x; float2 a = p[i]; p[i] = {a.x * a.y, a.x}; }', "k")
    x = np.array([[2, 3], [4, 5]], np.float32)
    p = Duplicated(x.copy())
    tape = gpuad.Tape()
    with pipeline.executor_for_tests(executor):
        with tape:
            kernel[1, 2](p)
            kernel[1, 2](p)
        tape.reverse({p: np.array([[1, 0], [0, 1]], np.float32)})
    a, b = x[:, 0].astype(float), x[:, 1].astype(float)
    # (a, b) -> (a b, a) -> (a^2 b, a b)
    want = np.array([[2 * a[0] * b[0], a[0] ** 2], [b[1], a[1]]])
    assert np.allclose(p.shadow, want)


def test_active_numbers_beside_vectors(executor: Any) -> None:
    kernel = gpuad.kernel(
        'extern "C" __global__ void k(double2* p, double s) { int i = threadIdx.x; p[i] = {p[i].x * s, p[i].y - s * s}; }', "k"
    )
    args = [Duplicated(some(4, 2)), Active(0.7, np.zeros(()))]
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(kernel, args, grid=1, block=4)


def squares(body: str, before: str = "") -> str:
    """A kernel whose result is the sum of the squares of four floats of a row, which `body` adds to `s`."""
    start = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float s = 0;"
    return f'{before} extern "C" __global__ void k(float* y, const float* x, int n) {{ {start} {body} y[i] = s; }}'


ADD = "for (int j = 0; j < 4; ++j) s += p[j] * p[j];"
APART = {
    "vector": squares(f"float4 v = ((const float4*)x)[i]; float* p = (float*)&v; {ADD}"),
    "without a name": squares(
        "float4 v = *(float4*)&x[4 * i]; for (int j = 0; j < 4; ++j) s += *((float*)(&v) + j) * *((float*)(&v) + j);"
    ),
    "integers": squares("uint4 v = *(uint4*)&x[4 * i]; for (int j = 0; j < 4; ++j) s += *((float*)(&v) + j) * *((float*)(&v) + j);"),
    "from the first": squares("float4 v = ((const float4*)x)[i]; for (int j = 0; j < 4; ++j) s += (&v.x)[j] * *(&v.x + j);"),
    "pairs of integers": squares(f"uint2 v[2]; for (int h = 0; h < 2; ++h) v[h] = ((uint2*)x)[2 * i + h]; float* p = (float*)v; {ADD}"),
    "into an array": squares(f"float p[4]; *(int4*)p = ((const int4*)x)[i]; {ADD}"),
    "numbers beside it": squares(
        "uint4 v = ((const uint4*)x)[i]; s = __uint_as_float(v.x) * __uint_as_float(v.x); for (int j = 1; j < 4; ++j) "
        "s += reinterpret_cast<float*>(&v)[j] * reinterpret_cast<const float*>(&v)[j];"
    ),
    "array of integers": squares(
        "unsigned v[4] = {0}; *(uint4*)v = *(uint4*)(x + 4 * i); for (int j = 0; j < 4; ++j) s += __uint_as_float(v[j]) * ((float*)v)[j];"
    ),
    "changed": squares(
        "float4 v = ((float4*)x)[i]; float* p = (float*)&v; for (int j = 0; j < 4; ++j) p[j] *= p[j]; s = v.x + v.y + v.z + v.w;"
    ),
    "by value": squares(
        "s = sum(((float4*)x)[i]);", f"__device__ float sum(float4 v) {{ float s = 0; float* p = (float*)&v; {ADD} return s; }}"
    ),
    "by reference": squares(
        "uint4 v = ((uint4*)x)[i]; s = sum(v);",
        f"__device__ float sum(const uint4& v) {{ float s = 0; const float* p = (const float*)&v; {ADD} return s; }}",
    ),
    "by pointer": squares(
        "uint4 v = ((uint4*)x)[i]; s = sum(&v);",
        f"__device__ float sum(const uint4* v) {{ float s = 0; const float* p = (const float*)v; {ADD} return s; }}",
    ),
    "returned": squares(
        "float4 v = load(x + 4 * i); s = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;",
        "__device__ float4 load(const float* x) { uint4 v = *(const uint4*)x; return *(float4*)&v; }",
    ),
    "struct": squares(f"Row v = ((Row*)x)[i]; float* p = (float*)&v; {ADD}", "struct Row { float a, b[2], c; };"),
}


@pytest.mark.parametrize("way", APART)
def test_vectors_taken_apart(way: str, executor: Any) -> None:
    kernel = gpuad.kernel(APART[way], "k")
    x, y = Duplicated(some(37, 4).astype(np.float32)), Duplicated(np.zeros(37, np.float32), np.ones(37, np.float32))
    before = x.primal.copy()
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 3, 16, (y, x, 37))
    np.testing.assert_allclose(y.primal, (before**2).sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(x.shadow, 2 * before, rtol=1e-6)
    plain = kernel.adjoint(grid=3, block=16, args=(y, x, 37))
    assert "atomicAdd" not in plain.source


REFUSED: dict[str, tuple[str, str]] = {
    "element beside a variable": (
        "double a = q[i].x; ^(&a)[1] = 2;",
        "an element beside the variable 'a'; for more than one element declare an array",
    ),
    "variable or memory": (
        "double2 a = q[i]; const double2* r = i ? &a : q; y[i] = ^r->x;",
        "a pointer that may point to a variable or into memory comes in a later release",
    ),
    "reinterpreted": (
        "y[i] = (^(float4*)p)[0].x;",
        "a cast from float64x4* to float32x4* reinterprets memory, which a derivative cannot follow",
    ),
    "undefined": ("double2 a; y[i] = ^a.x;", "'a_x' is used before it has a value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(UnsupportedError) as caught:
        kernel_of(body.replace("^", ""))
    assert caught.value.message == message
    assert caught.value.column == 9 + body.index("^")

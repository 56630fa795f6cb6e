"""Unions, anonymous structs and bit-fields: what launches compute against g++'s own, gradients against differences, and what is refused."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_oracle import FLAGS, SHIM
from launch_tools import EXECUTORS

import gpuad
from gpuad import Const, Duplicated, pipeline
from gpuad.errors import LaunchError, UnsupportedError
from gpuad.runtime.compiler import find_compiler
from gpuad.runtime.reference.errors import BoundsError
from gpuad.testing import check_gradient

TYPES = """
struct Vec {
  union { struct { double x, y, z; }; double v[3]; struct { double low[2], high; }; };
  __device__ Vec() {}
  __device__ Vec(double a, double b) : x(a), y(b), z(a * b) {}
  __device__ double& operator[](int k) { return v[k]; }
  __device__ double dot(const Vec& o) const { double s = 0; for (int k = 0; k < 3; k++) s += v[k] * o.v[k]; return s + x * this->z; }
};
struct P {
  Vec at;
  union { double f; long long n; } t;
  union { struct { int lo; }; unsigned bits; };
  unsigned a : 3; int b : 7; bool c : 1; unsigned : 5; unsigned d : 16;
};
struct Plain { union { struct { double x, y; }; double v[2]; }; double w; };
struct Narrow { unsigned char t; unsigned a : 3; short b : 9; };
union Two { double2 pair; double each[2]; };
__device__ Vec scaled(Vec a, double s) { for (int k = 0; k < 3; k++) a.v[k] *= s; a.z += s; return a; }
"""
DTYPE = np.dtype([("x", "f8"), ("y", "f8"), ("z", "f8"), ("f", "f8"), ("lo", "i4"), ("a", "u4")])
STATEMENTS = {
    "names of one number": "p[i].at.v[1] *= p[i].at.x; q[i] += p[i].at.y * p[i].at.high * p[i].at.v[i % 3]; p[i].at.low[0] = q[i];",
    "variables": "Vec a = p[i].at, b; a.v[0] = a.y * a.z; b = a; b.z = b.v[0] * q[i]; q[i] = b.v[2] * a.x; p[i].at = b;",
    "constructors": "Vec a(q[i], 2.0), b = p[i].at; a[1] *= b[2]; q[i] = a.dot(b) * b.x; p[i].at = Vec(a.z, b.y);",
    "helpers": "Vec a = scaled(p[i].at, q[i]); p[i].at = a.x > 0 ? a : scaled(a, 2); q[i] = a.v[0] * scaled(a, 3).y;",
    "lists": "Plain a = {q[i], 2, p[i].at.y}, b = {{{q[i], 1}}, 3}, c = {}; c.v[1] = a.v[0]; q[i] = a.w * b.x + b.w * c.y + b.y * a.v[1];",
    "pairs": "Two t; t.pair = make_double2(q[i], 1); t.each[1] = q[i] * t.pair.x; Two s = t; q[i] = s.pair.y * s.each[0];",
    "a number by its bits": "long long e = p[i].t.n; p[i].t.f = p[i].lo; p[i].t.n ^= 1ll << 63; p[i].lo = e != 0; q[i] *= p[i].t.f;",
    "integers by their bits": "p[i].bits = 0xfffffff0u + i; q[i] *= p[i].lo; p[i].lo /= 3; q[i] += q[i] * (p[i].bits >> 28);",
    "bit-fields": "p[i].a = i; p[i].b = 70 - 20 * i; p[i].c = i & 2; p[i].d += 70000; q[i] *= p[i].a + 2 * p[i].b + 3 * p[i].c + p[i].d;",
    "bit-fields in place": "q[i] *= p[i].b++; p[i].b -= 60; q[i] += q[i] * (--p[i].a) + p[i].d--; "
    "p[i].d /= -3; p[i].a *= 2.5; p[i].b >>= 1;",
    "assigned bit-fields": "double r = p[i].a = 9 + i; p[i].d = p[i].b = 300 + i; q[i] = q[i] * r + (p[i].a < -1) * q[i] + p[i].b;",
    "narrow bit-fields": "Narrow m, k = {7, 2, -3}; m = k; m.a += i; m.b = -m.a * 40; m.t++; q[i] *= m.a + m.b + m.t + k.b; p[i].lo = m.b;",
    "pointers": "Plain s, *r = &s; r->x = q[i]; s.v[1] = p[i].at.y; double* h = s.v; h[0] *= h[1]; "
    "double* y = &r->y; *y *= s.x; q[i] = s.x * s.y;",
    "arrays": "Plain s[2]; s[0].x = q[i]; s[1].v[0] = 2; s[1].y = s[0].y = s[0].v[0]; for (int k = 0; k < i; k++) s[k & 1].v[1] *= 1.1; "
    "q[i] = s[i & 1].x * s[1].y * s[0].v[1];",
    "members in branches": "Vec a = p[i].at; if (i & 1) a.v[0] = q[i]; else a.y *= a.x; while (a.x * a.x > 4) a.v[0] *= 0.5; "
    "q[i] *= a.x * a.v[1];",
}


def text(name: str) -> str:
    return f'{TYPES}extern "C" __global__ void k(P* p, double* q) {{ int i = threadIdx.x; {STATEMENTS[name]} }}'


def state() -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    p = np.zeros(8, DTYPE)
    for name in "xyzf":
        p[name] = rng.uniform(0.5, 1.5, 8)
    p["lo"], p["a"] = rng.integers(-99, 99, 8), rng.integers(0, 2**32, 8)
    return p, rng.uniform(0.5, 1.5, 8)


@functools.cache
def compiled() -> ctypes.CDLL:
    """All kernels in one library of g++, each a function of its number and the thread's index."""
    folder = Path(tempfile.mkdtemp())
    made = "".join(f"if (which == {k}) {{ {s} }}\n" for k, s in enumerate(STATEMENTS.values()))
    source = f"{SHIM}static double2 make_double2(double x, double y) {{ return {{x, y}}; }}\n{TYPES}"
    (folder / "unions.cpp").write_text(f'{source}extern "C" void run(P* p, double* q, int which, int i) {{ {made} }}')
    subprocess.run([*find_compiler().command, *FLAGS, str(folder / "unions.cpp"), "-o", str(folder / "unions.so")], check=True)
    return ctypes.CDLL(str(folder / "unions.so"))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", STATEMENTS)
def test_as_the_compiler_has_it(name: str, executor: str) -> None:
    (p, q), (own_p, own_q) = state(), state()
    for i in range(8):
        compiled().run(p.ctypes.data_as(ctypes.c_void_p), q.ctypes.data_as(ctypes.c_void_p), list(STATEMENTS).index(name), i)
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        gpuad.kernel(text(name), "k")((1,), (8,), (own_p, own_q))
    np.testing.assert_allclose(own_q, q, rtol=1e-13)
    for field in DTYPE.names or ():
        np.testing.assert_allclose(own_p[field], p[field], rtol=1e-13, err_msg=field)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", [name for name in STATEMENTS if name != "a number by its bits"])
def test_gradients(name: str) -> None:
    check_gradient(gpuad.kernel(text(name), "k"), state(), grid=(1,), block=(8,), directions=1)


def test_a_number_by_its_bits() -> None:
    """Bits of what carries a gradient are refused, of what carries none not: and what they overwrite has none any more."""
    kernel, (p, q) = gpuad.kernel(text("a number by its bits"), "k"), state()
    with pytest.raises(UnsupportedError, match="the bits of a value that carries a gradient are read here as an integer"):
        gpuad.autodiff(kernel, 1, 8, (Duplicated(p, np.zeros_like(p)), Duplicated(q, np.ones(8))))
    dq = np.ones(8)
    gpuad.autodiff(kernel, 1, 8, (Const(p), Duplicated(q, dq)))
    np.testing.assert_array_equal(dq, -state()[0]["lo"])
    written = TYPES + 'extern "C" __global__ void k(P* p, double* q) { int i = threadIdx.x; q[i] *= p[i].t.f; p[i].t.n = 3; }'
    p, q = state()
    dp = np.ones_like(p)
    gpuad.autodiff(gpuad.kernel(written, "k"), 1, 8, (Duplicated(p, dp), Duplicated(q, np.ones(8))))
    np.testing.assert_allclose(dp["f"], state()[1])  # what was in it before, as the shadow of what is written, is gone
    np.testing.assert_array_equal(dp["x"], 1)


def test_by_value_and_in_shared_memory() -> None:
    by_value = (
        TYPES + 'extern "C" __global__ void k(Plain a, double* q) { int i = threadIdx.x; a.v[i % 2] *= q[i]; q[i] = a.x * a.v[1] + a.w; }'
    )
    plain = np.array([(1.5, 2.5, 3.5)], np.dtype([("x", "f8"), ("y", "f8"), ("w", "f8")]))[0]
    check_gradient(gpuad.kernel(by_value, "k"), (plain, np.arange(1.0, 9.0)), grid=(1,), block=(8,), directions=1)
    shared = """extern "C" __global__ void k(P* p, double* q) { int i = threadIdx.x; __shared__ Plain s[8];
      s[i].v[0] = p[7 - i].at.x; s[i].v[1] = q[i]; s[i].w = i;
      __syncthreads();
      q[i] = s[(i + 1) % 8].v[1] * s[i].w; p[i].at.v[0] = s[i].x * s[i].y; atomicAdd(&p[0].at.v[2], q[i]); }"""
    check_gradient(gpuad.kernel(TYPES + shared, "k"), state(), grid=(1,), block=(8,), directions=1)


def test_what_is_no_place() -> None:
    body = "P u = p[i]; long long* e = &u.t.n; *e = 3; q[i] = u.t.f;"
    text = f'{TYPES}extern "C" __global__ void k(P* p, double* q) {{ int i = 0; {body} }}'
    with pytest.raises(UnsupportedError, match="a pointer or reference to a member that is bits of a number of another type"):
        gpuad.kernel(text, "k").adjoint()


def test_an_array_of_other_numbers() -> None:
    """The array that is passed has the numbers that the memory has."""
    p = np.zeros(8, np.dtype([("x", "f8"), ("y", "f8"), ("z", "f8"), ("n", "i8"), ("lo", "i4"), ("a", "u4")]))
    with pytest.raises(LaunchError, match=r"a P is numpy\.dtype"):
        gpuad.kernel(text("variables"), "k")((1,), (8,), (p, np.zeros(8)))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("body", "expected"),
    {
        "U u; u.i = -1 - i; U v = u; y[i] *= v.i;": lambda i: -1 - i,
        "T t = p[i]; t.u.n = 0x7f800001u + i; p[i] = t; T s = p[i]; y[i] *= s.u.n & 255;": lambda i: 1 + i,
        "U u[2]; u[i & 1].i = -5; u[1 - (i & 1)].n = 7; y[i] *= u[0].i + 2 * u[1].i;": lambda i: (-5 + 14, 7 - 10)[i & 1],
    }.items(),
)
def test_integers_that_are_no_numbers_as_floats(body: str, expected: Any, executor: str) -> None:
    """Bits of NaNs, also of signalling ones, go through memory and variables of floats as they are, in the launch and in its adjoint."""
    types = "union U { float f; int i; unsigned n; }; struct T { int tag; U u; };\n"
    text = f'{types}extern "C" __global__ void k(T* p, float* y) {{ int i = threadIdx.x; {body} }}'
    p, y, dy = np.zeros(4, np.dtype([("tag", "i4"), ("u", "f4")])), np.ones(4, np.float32), np.ones(4, np.float32)
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 4, (Const(p), Duplicated(y, dy)))
    np.testing.assert_array_equal(y, [expected(i) for i in range(4)])
    np.testing.assert_array_equal(dy, [expected(i) for i in range(4)])


FIELDS = """struct Flags { unsigned low : 3; int middle : 7; unsigned : 5; unsigned high : 16; };
extern "C" __global__ void k(double* q) { __shared__ Flags s[8]; int t = threadIdx.x; %s }"""
FILLED = {
    "all": "s[t].low = t; s[t].middle = 3 - t; s[t].high = t * t; __syncthreads(); q[t] *= s[7 - t].low + s[t].middle + s[t].high;",
    "the one that is read": "s[t].middle = -t; __syncthreads(); q[t] *= s[7 - t].middle;",
    "one under a condition": "s[t].low = t; if (t & 1) s[t].middle = 3; __syncthreads(); q[t] *= t & 1 ? s[t].middle : 2;",
    "a variable": "Flags f; f.low = t; f.middle = 3; s[t] = f; __syncthreads(); q[t] *= s[7 - t].middle * s[t].low;",
}
UNFILLED = {
    "another": "s[t].low = t; __syncthreads(); q[t] *= s[t].low + s[t].middle;",
    "changed in place": "s[t].middle += t; __syncthreads(); q[t] *= s[t].middle;",
    "under another condition": "s[t].low = t; if (t & 1) s[t].middle = 3; __syncthreads(); q[t] *= t & 2 ? s[t].middle : 2;",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("body", FILLED.values(), ids=FILLED)
def test_bit_fields_are_filled_one_by_one(body: str) -> None:
    """The first one of a number in shared memory is written beside bits that nothing has initialised and nothing reads."""
    check_gradient(gpuad.kernel(FIELDS % body, "k"), (np.linspace(1, 2, 8),), grid=(1,), block=(8,), directions=1)


@pytest.mark.parametrize("body", UNFILLED.values(), ids=UNFILLED)
def test_bit_fields_that_are_read_unfilled(body: str) -> None:
    with pytest.raises(BoundsError, match=r"depends on uninitialised `s`"):
        check_gradient(gpuad.kernel(FIELDS % body, "k"), (np.linspace(1, 2, 8),), grid=(1,), block=(8,), directions=1)

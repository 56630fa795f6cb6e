"""Structs of users in kernels: behind pointers, by value, nested, with arrays, integers, methods and operators. Integers in a shadow are
never read and never written."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from nightly import share

import gpuad
from gpuad import Active, Const, Duplicated, LaunchError, ShadowError, UnsupportedError, pipeline, testing

TYPES = """
struct Particle { double x, y; int cell; float charge; double w[2]; };
struct Pair { double2 a; double b; };
struct Nested { Pair first; Pair more[2]; short kind; };
struct Mixed { float u; int n; float v; };
struct Vec {
    double x, y;
    __device__ Vec() : x(), y{} {}
    __device__ Vec(double s) : x(s), y(s) {}
    __device__ Vec(double x, double y) : x(x), y(y) {}
    __device__ Vec& operator*=(double s) { x *= s; this->y *= s; return *this; }
    __device__ Vec operator*(double s) const { Vec r = *this; r *= s; return r; }
    __device__ Vec operator+(const Vec& o) const { return Vec(x + o.x, y + o.y); }
    __device__ Vec operator-() const { return {-x, -y}; }
    __device__ bool operator<(const Vec& o) const { return norm() < o.norm(); }
    __device__ double operator[](int i) const { return i == 0 ? x : y; }
    __device__ double& at(int i) { if (i == 0) return x; return x; }
    __device__ double operator()(double s) const { return x * s + y; }
    __device__ double norm() const { return sqrt(x * x + y * y); }
    __device__ Vec scaled(double s = 2.0) const { return *this * s; }
    __device__ void swap() { double t = x; x = y; y = t; }
    __device__ static Vec unit() { return Vec(1.0, 0.5); }
    __device__ explicit operator double() const { return x; }
};
__device__ Vec operator*(double s, const Vec& v) { return v * s; }
struct Sine { double frequency = 2.0; __device__ double operator()(double t) const { return sin(frequency * t); } };
template <class F> struct Twice { F f; };
struct View { double* p; int n; __device__ double& operator()(int i) const { return p[i]; } };
struct Cursor {
    double* p;
    __device__ double& operator*() { return *p; }
    __device__ Cursor& operator++() { ++p; return *this; }
};
template <int N> struct Stack {
    double v[N];
    int size;
    __device__ Stack(double first = 0.5) : v{first}, size(1) {}
    __device__ void push(double a) { v[size++] = a; }
    __device__ double pop() { return v[--size]; }
};
struct State { Vec position; Vec velocity; int steps; __device__ State(Vec p) : position(p), velocity(0.5), steps(3) {} };
"""

# Bodies of a kernel (Particle* p, Nested* q, Vec* v, Mixed* m, double* y, int n) and an index i below n.
BODIES: dict[str, str] = {
    "members": "p[i].x = p[i].y * p[i].charge; p[i].cell += 1; y[i] = p[i].x * p[i].cell;",
    "whole": "Particle a = p[i]; a.x = a.y * a.w[1]; a.w[0] *= a.charge; a.cell = 3; p[i] = a; y[i] = a.w[0] * a.x;",
    "stored whole": "Particle a = {}; a.x = y[i]; a.cell = i; p[i] = a;",
    "copied": "p[i] = p[n + i]; y[i] = p[i].x * p[i].charge;",
    "nested": "Nested& a = q[i]; a.first.a.x *= a.more[1].b; a.more[0].a = a.first.a; Pair c = a.more[1]; c.b = c.a.x * c.a.y; "
    "a.more[0] = c; y[i] = a.more[0].b * a.first.a.x;",
    "nested local": "Nested a = q[i]; for (int k = 0; k < 2; k++) { a.more[k].b *= a.more[1 - k].a.y; a.first.b += a.more[k].b; } "
    "a.kind = 2; q[i] = a; y[i] = a.first.b;",
    "lists": "Pair a = {{y[i], 2.0}, 3.0}, b{make_double2(1.0, y[i]), y[i]}; Nested c = {a, {b, {{1.0, 2.0}, 4.0}}, 1}; Nested d = {}; "
    "d.first = c.more[0]; q[i] = d; y[i] = c.first.a.x * c.more[0].b * c.more[1].b;",
    "pointers": "Particle* r = p + i; Particle& s = *r; r++; r += n - 1; s.x = r->x * (*r).y; double* w = r->w; "
    "w[1] *= w[0]; y[i] = r->w[1];",
    "chosen pointer": "const Particle* r = i % 2 ? p + n : p + n + 1; y[i] = r[i].x * r[i].charge;",
    "moved": "Particle* r = p; for (int k = 0; k < i; k++) r++; r->x *= r->charge; double* s = &p[i].w[0]; s[1] *= s[0]; y[i] = r->x;",
    "to a variable": "Pair a = q[i].first; Pair* r = &a; r->a.x *= r->b; double2* s = &r->a; s->y = s->x * y[i]; y[i] = a.a.x * a.a.y;",
    "local array": "Mixed a[3]; for (int k = 0; k < 3; k++) { a[k].u = m[i].v * k; a[k].n = k; a[k].v = 1.0f; } a[i % 3].v *= m[i].u; "
    "for (int k = 0; k < 3; k++) y[i] += a[k].u * a[k].v * a[k].n;",
    "loop": "Mixed a = m[i]; for (int k = 0; k < 4; k++) { a.u = a.u * a.v + 0.1f; a.n += k; } m[i] = a; y[i] = a.n * a.u;",
    "chosen": "Vec a = v[i] < v[n + i] ? v[i] : v[n + i]; Pair b = i % 2 ? q[i].first : q[i].more[1]; y[i] = a.norm() * b.b;",
    "operators": "Vec a = v[i] + v[n + i] * 2.0; a *= a.norm(); v[i] = -a + 3.0 * a; y[i] = a[0] * a[1] + a(2.0) + (double)a;",
    "methods": "Vec a = v[i]; a.swap(); (a *= 2.0) *= 0.7; a = a.scaled().scaled(0.5) + Vec::unit() + Vec(y[i]); v[i].swap(); v[i] *= 2.0; "
    "y[i] = a.norm() * v[i].norm();",
    "constructed": "Vec a, b(2.0), c = Vec(y[i], 3.0), d = 4.0; a = 2.0; State s(c), t = State(d + a); s.velocity *= 2.0; "
    "s.position = s.position + s.velocity * t.position.x; y[i] = s.position.norm() * s.steps + b.x;",
    "functor": "Sine f; Twice<Sine> g = {f}; g.f.frequency = y[i]; y[i] = f(y[i]) + g.f(v[i].x);",
    "view": "View w = {y, n}; w(i) *= v[i].x; View u = w; u(i) += w(i) * w(i);",
    "cursor": "Cursor c{i % 2 ? &v[i].x : &p[i].x}; *c *= y[i]; Cursor d = {&v[i].x}; double first = *d; c = d; y[i] = first * *c;",
    "stack": "Stack<4> s; Stack<4> t(y[i]); for (int k = 0; k < 3; k++) { s.push(v[i].x * k); t.push(s.v[k]); } "
    "while (s.size > 0) y[i] += s.pop() * t.pop();",
    "constructed array": "Vec a[3] = {Vec(1.0), Vec(y[i], 2.0), v[i]}; a[i % 3] *= a[2].x; y[i] = a[0].norm() + a[1].x * a[2].y;",
    "returned reference": "v[i].at(0) *= y[i]; double& z = v[i].at(1); z += 1.0; y[i] = z * z;",
    "atomics": "atomicAdd(&p[i / 2].x, y[i] * y[i]); atomicAdd(&p[0].charge, (float)y[i]); atomicAdd(&p[0].cell, 1);",
    "indirect": "int c = p[i].cell; atomicAdd(&y[c], p[i].x * m[c].u);",
}  # fmt: skip

PARTICLE = np.dtype(
    {
        "names": ["x", "y", "cell", "charge", "w"],
        "formats": ["f8", "f8", "i4", "f4", "(2,)f8"],
        "offsets": [0, 8, 16, 20, 24],
        "itemsize": 40,
    }
)
PAIR = np.dtype({"names": ["a", "b"], "formats": ["(2,)f8", "f8"], "offsets": [0, 16], "itemsize": 32})
NESTED = np.dtype({"names": ["first", "more", "kind"], "formats": [PAIR, (PAIR, 2), "i2"], "offsets": [0, 32, 96], "itemsize": 112})
MIXED = np.dtype([("u", "f4"), ("n", "i4"), ("v", "f4")])
VEC = np.dtype([("x", "f8"), ("y", "f8")])


def kernel_of(body: str, types: str = TYPES) -> Any:
    text = f"""{types}
    extern "C" __global__ void k(Particle* p, Nested* q, Vec* v, Mixed* m, double* y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        {body}
    }}"""
    return gpuad.kernel(text, "k")


def filled(dtype: np.dtype[Any], count: int, seed: int) -> Any:
    """Random floats, and integers from 0 to 4."""
    rng = np.random.default_rng(seed)
    array = np.zeros(count, dtype)

    def fill(part: Any) -> None:
        if part.dtype.names:
            for name in part.dtype.names:
                fill(part[name])
        else:
            part[...] = rng.uniform(0.6, 1.4, part.shape) if part.dtype.kind == "f" else rng.integers(0, 5, part.shape)

    fill(array)
    return array


def arguments(n: int = 6) -> list[Any]:
    made = [filled(dtype, 2 * n + 1, seed) for seed, dtype in enumerate((PARTICLE, NESTED, VEC, MIXED))]
    return [*map(Duplicated, made), Duplicated(np.random.default_rng(9).uniform(0.6, 1.4, n)), n]


SINGLE = ("local array", "loop", "members", "whole", "copied", "chosen pointer", "atomics", "indirect")  # float members take part


EVERY = [*((name, False) for name in BODIES), *((name, True) for name in share(list(BODIES), 4))]


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("name", "recorded"), EVERY, ids=[f"{name}-{'all recorded' if all_ else 'analysed'}" for name, all_ in EVERY])
def test_gradient(executor: Any, name: str, recorded: bool) -> None:
    kernel = kernel_of(BODIES[name])
    with contextlib.ExitStack() as stack:
        stack.enter_context(pipeline.executor_for_tests(executor))
        if recorded:
            stack.enter_context(pipeline.everything_recorded_for_tests())
        testing.check_gradient(kernel, arguments(), grid=2, block=4)


def test_integers_of_a_shadow_are_left_alone(executor: Any) -> None:
    kernel = kernel_of(
        "Particle a = p[i]; a.x = a.charge * a.y; a.cell = 4; p[i] = a; q[i].kind = 1; m[i] = m[n + i]; y[i] = q[i].first.b;"
    )
    args = arguments()
    for arg in args[:-1]:
        arg.shadow.view(np.uint8)[...] = 0x3F  # integers and floats alike
    before = [arg.shadow.copy() for arg in args[:-1]]
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 2, 4, args)
    p, q, _, m, _ = (arg.shadow for arg in args[:-1])
    assert np.array_equal(p["cell"], before[0]["cell"])
    assert np.array_equal(q["kind"], before[1]["kind"])
    assert np.array_equal(m["n"], before[3]["n"])
    assert not p["x"][:6].any()
    assert not m["u"][:6].any()
    padding = q.view(np.uint8).reshape(13, 112)
    assert (padding[:, 24:32] == 0x3F).all()
    assert (padding[:, 98:] == 0x3F).all()


def test_raw_bytes_are_structs(executor: Any) -> None:
    """As CuPy, which has no structured arrays, would pass them."""
    kernel = kernel_of(BODIES["whole"])
    structured, raw = arguments(), arguments()
    raw[0] = Duplicated(raw[0].primal.view(np.uint8), np.zeros(raw[0].nbytes, np.uint8))
    with pipeline.executor_for_tests(executor):
        for args in (structured, raw):
            args[0].shadow.view(PARTICLE)["x"] = 1.0
            gpuad.autodiff(kernel, 2, 4, args)
    assert np.array_equal(structured[0].shadow.view(np.uint8), raw[0].shadow)
    assert np.array_equal(structured[0].primal.view(np.uint8), raw[0].primal)


def test_plain_accumulation_is_proved() -> None:
    kernel = kernel_of(BODIES["whole"])
    args = arguments()
    source = kernel.adjoint(p=Duplicated, y=Duplicated, grid=2, block=4, args=[args[0], *(a.primal for a in args[1:4]), *args[4:]]).source
    assert "atomic" not in source


# --- by value ---

BY_VALUE = """
#include <cupy/complex.cuh>
struct Params { double dt; int n; double2 b; float w[3]; };
extern "C" __global__ void params(Params c, double* y) { int i = threadIdx.x;
    if (i < c.n) y[i] = c.dt * y[i] * c.b.x + c.w[i % 3] * c.b.y; }
extern "C" __global__ void vector(double3 v, int2 k, double* y) { int i = threadIdx.x; y[i] = v.x * y[i] + v.y * v.z * k.x + k.y; }
extern "C" __global__ void number(complex<double> a, cuDoubleComplex_ b, double* y) {
    int i = threadIdx.x; y[i] = norm(a * y[i] + complex<double>(b.x, b.y)); }
""".replace("cuDoubleComplex_", "double2")
PARAMS = np.dtype({"names": ["dt", "n", "b", "w"], "formats": ["f8", "i4", "(2,)f8", "(3,)f4"], "offsets": [0, 8, 16, 32], "itemsize": 48})


def test_struct_by_value(executor: Any) -> None:
    c, dc = np.zeros((), PARAMS), np.zeros((), PARAMS)
    c["dt"], c["n"], c["b"], c["w"] = 0.5, 3, [2.0, 3.0], [1.0, 2.0, 4.0]
    dc["n"] = 77
    x = np.array([1.0, 2.0, 3.0, 4.0])
    y = Duplicated(x.copy(), np.array([1.0, 10.0, 100.0, 5.0]))
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(BY_VALUE, "params"), 1, 4, (Active(c[()], dc), y))
    assert np.allclose(y.primal, [4, 8, 15, 4])
    assert np.allclose(y.shadow, [1, 10, 100, 5])
    assert dc["n"] == 77
    assert np.isclose(dc["dt"], 2 * 321)
    assert np.allclose(dc["b"], [0.5 * 321, 1 + 20 + 400])
    assert np.allclose(dc["w"], [3, 30, 300])


@pytest.mark.parametrize("shadow", [np.zeros(3), np.zeros(3, np.longdouble)[:3].astype(np.float64)], ids=["array", "copy"])
def test_vector_by_value(executor: Any, shadow: Any) -> None:
    y = Duplicated(np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(BY_VALUE, "vector"), 1, 2, (Active((2.0, 3.0, 5.0), shadow), (7, 1), y))
    assert np.allclose(y.primal, [108, 110])
    assert np.allclose(shadow, [21, 11 * 35, 11 * 21])
    shadow.fill(0)


def test_complex_by_value(executor: Any) -> None:
    """norm(a y + b): the shadow of a is 2 (a y + b) y."""
    a, b, x, seed = 1 + 2j, 0.5 - 1j, np.array([1.0, 2.0]), np.array([1.0, 10.0])
    y, da = Duplicated(x.copy(), seed.copy()), np.zeros((), complex)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(BY_VALUE, "number"), 1, 2, (Active(a, da), b, y))
    assert np.isclose(da, (2 * (a * x + b) * x * seed).sum())
    assert np.allclose(y.shadow, 2 * ((a * x + b) * np.conj(a)).real * seed)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("vector", ((1.0, 2.0), (1, 2), np.zeros(2)), r"got tuple \(1.0, 2.0\); pass a tuple of its 3 numbers"),
        ("vector", ((1.0, 2.0, 3.0), (1, 2.5), np.zeros(2)), "got float 2.5, which is no whole number"),
        ("vector", (1.0, (1, 2), np.zeros(2)), "pass a tuple of its 3 numbers"),
        ("number", ("1", 1j, np.zeros(2)), "pass a complex number"),
        ("params", (1.0, np.zeros(2)), "pass a NumPy scalar of numpy.dtype"),
        ("params", (np.zeros((), MIXED)[()], np.zeros(2)), "'itemsize': 48"),
    ],
)
def test_values_that_do_not_fit(name: str, args: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        gpuad.kernel(BY_VALUE, name)(1, 2, args)


@pytest.mark.parametrize("shadow", [np.zeros(2), 1.0, np.zeros(3, np.float32), (np.zeros(3), np.zeros(3))])
def test_shadows_of_values_that_do_not_fit(shadow: Any) -> None:
    with pytest.raises(ShadowError, match=r"has (as shadow|several shadows)|`shadow` takes an array"):
        args = (Active((1.0, 2.0, 3.0), shadow), (1, 2), Duplicated(np.zeros(2)))
        gpuad.autodiff(gpuad.kernel(BY_VALUE, "vector"), 1, 2, args)


def test_arrays_that_do_not_fit() -> None:
    kernel = kernel_of(BODIES["whole"])
    good = [getattr(a, "primal", a) for a in arguments()]
    packed = np.zeros(13, np.dtype([("x", "f8"), ("y", "f8"), ("cell", "i4"), ("charge", "f4")]))
    for position, bad in (
        (0, packed),
        (0, np.zeros((13, 5))),
        (0, np.zeros(39, np.uint8)),
        (3, np.zeros((13, 3), np.float32)),
        (2, packed),
    ):
        args = list(good)
        args[position] = bad
        with pytest.raises(LaunchError, match=r"numpy\.dtype"):
            kernel(2, 4, args)


def test_overlapping_structs(executor: Any) -> None:
    """Two views of one array of structs, with numbers of one size, at a distance and at the same place."""
    text = f"""{TYPES}
    extern "C" __global__ void k(const Mixed* a, const Mixed* b, float* y) {{ int i = threadIdx.x; y[i] = a[i].u * b[i].v * b[i].n; }}"""
    kernel = gpuad.kernel(text, "k")
    for shift in (0, 1):
        whole = Duplicated(filled(MIXED, 6, 3))
        with pipeline.executor_for_tests(executor):
            testing.check_gradient(kernel, [whole, whole[shift:], Duplicated(np.zeros(5, np.float32))], grid=1, block=5)


def test_overlapping_structs_of_numbers_of_several_sizes(executor: Any) -> None:
    text = f"""{TYPES}
    extern "C" __global__ void k(const Particle* a, const Particle* b, double* y) {{
        int i = threadIdx.x; y[i] = a[i].x * b[i].charge * b[i].cell + a[i].w[1]; }}"""
    whole = Duplicated(filled(PARTICLE, 6, 3))
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(gpuad.kernel(text, "k"), [whole, whole[1:], Duplicated(np.zeros(5))], grid=1, block=5)


def test_different_structs_in_one_memory_are_refused() -> None:
    text = f"""{TYPES}
    extern "C" __global__ void k(const Mixed* a, float* y) {{ int i = threadIdx.x; y[i] = a[i].u; }}"""
    raw = filled(MIXED, 6, 3)
    with pytest.raises(LaunchError, match="overlap"):
        gpuad.kernel(text, "k")(1, 5, (raw, raw.view(np.float32)))


REFUSED: dict[str, tuple[str, str]] = {
    "reinterpreted": (
        "y[i] = (^(double*)p)[0];",
        "a cast from struct Particle* to float64* reinterprets memory, which a derivative cannot follow",
    ),
    "a member as bits": (
        "int* r = ^(int*)&m[i].u; y[i] = m[i].v; r[0] = 1;",
        "memory of structs is used as int32, which a derivative cannot follow",
    ),
    "undefined": ("Vec a = v[i]; Pair b; b.b = a.x; ^q[i].first = b;", "a part of this value is used before it has a value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(UnsupportedError) as caught:
        kernel_of(body.replace("^", ""))
    assert caught.value.message == message
    assert caught.value.column == 9 + body.index("^")


def test_pointer_in_a_struct_by_value_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="parameter 'v' of type struct View holds pointers; pass them as parameters"):
        gpuad.kernel('struct View { float* x; int n; }; extern "C" __global__ void k(View v) { v.x[0] = v.n; }', "k")


def test_bare_struct_that_gets_active_values_is_refused() -> None:
    kernel = kernel_of(BODIES["stored whole"] + " y[i] *= 2.0;")
    args = arguments()
    with pytest.raises(ShadowError, match="`p` of kernel `k` gets values that depend on `y`"):
        gpuad.autodiff(kernel, 2, 4, [*(a.primal for a in args[:4]), *args[4:]])
    gpuad.autodiff(kernel, 2, 4, [Const(args[0].primal), *args[1:]], allow_unused=True)


# --- tapes ---

PUSH = (
    TYPES
    + """
extern "C" __global__ void push(Particle* p, const double* field, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    Particle a = p[i];
    double e = field[a.cell] * a.charge;
    a.x += a.y * a.y;
    a.y *= e;
    a.cell = (a.cell + 1) % 5;
    a.charge *= 1.5f;
    p[i] = a;
}
extern "C" __global__ void reset(Particle* p, int n) { int i = threadIdx.x; if (i < n) { Particle a = {}; a.cell = i; p[i] = a; } }
extern "C" __global__ void total(const Particle* p, double* y) { int i = threadIdx.x; y[i] = p[i].x * p[i].charge + p[i].y; }
"""
)


def _steps(executor: Any, seeded: bool) -> tuple[Any, Any, Any]:
    """Three steps, a partial reset of bare memory, and an output; integers, floats and doubles of one array are overwritten."""
    push, reset, total = (gpuad.kernel(PUSH, name) for name in ("push", "reset", "total"))
    p, field, y = Duplicated(filled(PARTICLE, 6, 3)), Duplicated(np.linspace(0.5, 1.5, 5)), Duplicated(np.zeros(6))
    tape = gpuad.Tape()
    with pipeline.executor_for_tests(executor):
        with tape:
            push[1, 8](p, field, 6)
            push[1, 8](p[1:], field, 4)
            reset[1, 8](p.primal, 2)
            push[1, 8](p, field, 6)
            total[1, 6](p, y)
        if seeded:
            tape.reverse({y: np.ones(6)})
        else:
            p.shadow.view(np.uint8)[...] = 0
            y.shadow.fill(1)
            tape.reverse()
    return p, field, y


def _model(p: Any, field: Any) -> float:
    x, y, charge, cell = p["x"].copy(), p["y"].copy(), p["charge"].astype(float), p["cell"].copy()

    def push(part: slice) -> None:
        e = field[cell[part]] * charge[part]
        x[part] += y[part] ** 2
        y[part] *= e
        cell[part] = (cell[part] + 1) % 5
        charge[part] *= 1.5

    push(slice(0, 6))
    push(slice(1, 5))
    for array in (x, y, charge):
        array[:2] = 0
    cell[:2] = [0, 1]
    push(slice(0, 6))
    return float((x * charge + y).sum())


@pytest.mark.parametrize("seeded", [True, False])
def test_tape(executor: Any, seeded: bool) -> None:
    p, field, _ = _steps(executor, seeded)
    start, grid, step = filled(PARTICLE, 6, 3), np.linspace(0.5, 1.5, 5), 1e-6
    for k in range(5):
        up, down = (grid + s * step * (np.arange(5) == k) for s in (1, -1))
        assert np.isclose(field.shadow[k], (_model(start, up) - _model(start, down)) / (2 * step), rtol=1e-5, atol=1e-6)
    for name in ("x", "y"):
        for k in range(6):
            up, down = start.copy(), start.copy()
            up[name][k] += step
            down[name][k] -= step
            assert np.isclose(p.shadow[name][k], (_model(up, grid) - _model(down, grid)) / (2 * step), rtol=1e-5, atol=1e-6)
    assert not p.shadow["cell"].any()


def test_integers_of_a_shadow_are_left_alone_by_a_tape(executor: Any) -> None:
    push, reset = (gpuad.kernel(PUSH, name) for name in ("push", "reset"))
    p, field = Duplicated(filled(PARTICLE, 6, 3)), Duplicated(np.linspace(0.5, 1.5, 5))
    p.shadow["cell"] = 77
    tape = gpuad.Tape()
    with pipeline.executor_for_tests(executor):
        with tape:
            push[1, 8](p, field, 6)
            reset[1, 8](p.primal, 3)
            push[1, 8](p, field, 6)
            tape.overwrites(p)
        p.shadow["x"] = 1
        tape.reverse()
    assert (p.shadow["cell"] == 77).all()
    assert not p.shadow["x"].any()


def test_what_tapes_refuse_of_structs(tmp_path: Any) -> None:
    push = gpuad.kernel(PUSH, "push")
    p, field = Duplicated(filled(PARTICLE, 6, 3)), Duplicated(np.linspace(0.5, 1.5, 5))
    tape = gpuad.Tape()
    with tape:
        push[1, 8](p, field, 6)
    with pytest.raises(gpuad.TapeError, match="seeds of structs are put into their shadow"):
        tape.reverse({p: filled(PARTICLE, 6, 1)})
    with pytest.raises(gpuad.TapeError, match="it takes structs"):
        tape.save(tmp_path / "saved")
    bare = gpuad.Tape()
    with bare, pytest.raises(ShadowError, match="read bare"):
        push[1, 8](p, field, 6)
        push[1, 8](p.primal, field, 6)

"""Complex numbers: CuPy's complex<float> and complex<double>, and cuComplex.h. The shadow of z is dL/dRe + i dL/dIm, as PyTorch has it:
that of an analytic function's argument is conj(f'(z)) times that of its value, here from closed forms that NumPy computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nightly import share

import gpuad
from gpuad import Duplicated, UnsupportedError, pipeline, testing

Function = Callable[[Any], Any]
W = 0.3 - 0.7j

# The expression of z, its value, its derivative.
ANALYTIC: dict[str, tuple[Function, Function]] = {
    "exp(z)": (np.exp, np.exp),
    "log(z)": (np.log, lambda z: 1 / z),
    "log10(z)": (np.log10, lambda z: 1 / (z * np.log(10))),
    "log2(z)": (np.log2, lambda z: 1 / (z * np.log(2))),
    "log1p(z)": (np.log1p, lambda z: 1 / (1 + z)),
    "expm1(z)": (np.expm1, np.exp),
    "sqrt(z)": (np.sqrt, lambda z: 0.5 / np.sqrt(z)),
    "sin(z)": (np.sin, np.cos),
    "cos(z)": (np.cos, lambda z: -np.sin(z)),
    "tan(z)": (np.tan, lambda z: 1 / np.cos(z) ** 2),
    "sinh(z)": (np.sinh, np.cosh),
    "cosh(z)": (np.cosh, np.sinh),
    "tanh(z)": (np.tanh, lambda z: 1 / np.cosh(z) ** 2),
    "asin(z)": (np.arcsin, lambda z: 1 / np.sqrt(1 - z * z)),
    "acos(z)": (np.arccos, lambda z: -1 / np.sqrt(1 - z * z)),
    "atan(z)": (np.arctan, lambda z: 1 / (1 + z * z)),
    "asinh(z)": (np.arcsinh, lambda z: 1 / np.sqrt(1 + z * z)),
    "acosh(z)": (np.arccosh, lambda z: 1 / (np.sqrt(z - 1) * np.sqrt(z + 1))),
    "atanh(z)": (np.arctanh, lambda z: 1 / (1 - z * z)),
    "z * z * w": (lambda z: z * z * W, lambda z: 2 * z * W),
    "w / z": (lambda z: W / z, lambda z: -W / z**2),
    "z / w - z": (lambda z: z / W - z, lambda z: 1 / W - 1 + 0 * z),
    "T(2) / z + T(3) * z - T(1)": (lambda z: 2 / z + 3 * z - 1, lambda z: 3 - 2 / z**2),
    "(T(1) - z) / T(4) + (z - T(2)) * T(0.5)": (lambda z: (1 - z) / 4 + (z - 2) / 2, lambda z: 0.25 + 0 * z),
    "-z + (+z) * T(2)": (lambda z: z, lambda z: 1 + 0 * z),
    "pow(z, w)": (lambda z: z**W, lambda z: W * z ** (W - 1)),
    "pow(z, T(2.5))": (lambda z: z**2.5, lambda z: 2.5 * z**1.5),
    "pow(T(1.5), z)": (lambda z: 1.5**z, lambda z: np.log(1.5) * 1.5**z),
}

# The same for what is not analytic: value, and the shadow of z for the shadow g of the value.
OTHERS: dict[str, tuple[Function, Callable[[Any, Any], Any]]] = {
    "abs(z)": (np.abs, lambda z, g: g.real * z / np.abs(z)),
    "norm(z)": (lambda z: np.abs(z) ** 2, lambda z, g: 2 * g.real * z),
    "arg(z)": (np.angle, lambda z, g: 1j * g.real * z / np.abs(z) ** 2),
    "real(z)": (np.real, lambda z, g: g.real + 0j),
    "imag(z)": (np.imag, lambda z, g: 1j * g.real),
    "conj(z)": (np.conj, lambda z, g: np.conj(g)),
    "z.real() * z.imag()": (lambda z: z.real * z.imag, lambda z, g: g.real * (z.imag + 1j * z.real)),
    "thrust::polar(z.real(), z.imag())": (
        lambda z: z.real * np.exp(1j * z.imag),
        lambda z, g: (np.exp(-1j * z.imag) * g).real + 1j * (np.conj(1j * z.real * np.exp(1j * z.imag)) * g).real,
    ),
    "z == w ? z : complex<T>(conj(z) * T(2))": (lambda z: 2 * np.conj(z), lambda z, g: 2 * np.conj(g)),
}

# cuComplex.h; `f` is the letter that its single precision has.
NAMED: dict[str, tuple[Function, Callable[[Any, Any], Any]]] = {
    "cuCadd@(z, w)": (lambda z: z + W, lambda z, g: g),
    "cuCsub@(w, z)": (lambda z: W - z, lambda z, g: -g),
    "cuCmul@(z, w)": (lambda z: z * W, lambda z, g: np.conj(W) * g),
    "cuCdiv@(w, z)": (lambda z: W / z, lambda z, g: np.conj(-W / z**2) * g),
    "cuConj@(z)": (np.conj, lambda z, g: np.conj(g)),
    "cuCfma@(z, z, w)": (lambda z: z * z + W, lambda z, g: np.conj(2 * z) * g),
    "make(cuCabs@(z), cuCreal@(z) * cuCimag@(z))": (
        lambda z: np.abs(z) + 1j * z.real * z.imag,
        lambda z, g: g.real * z / np.abs(z) + g.imag * (z.imag + 1j * z.real),
    ),
}


def points(dtype: Any) -> Any:
    """Complex numbers in all quadrants, away from poles and branch cuts."""
    rng = np.random.default_rng(3)
    angle = np.concatenate([rng.uniform(0.2, 1.3, 4) + k * np.pi / 2 for k in range(4)])
    return (rng.uniform(0.3, 1.8, 16) * np.exp(1j * angle)).astype(dtype)


def gradient(executor: Any, text: str, dtype: Any) -> tuple[Any, Any, Any, Any]:
    """z, f(z), the seed, and the shadow of z, of a kernel (z, f)."""
    rng = np.random.default_rng(4)
    z, f = points(dtype), np.zeros(16, dtype)
    seed = (rng.normal(size=16) + 1j * rng.normal(size=16)).astype(dtype)
    dz, df = np.zeros_like(z), seed.copy()
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 16, (Duplicated(z, dz), Duplicated(f, df)))
    assert not df.any()
    return z.astype(complex), f.astype(complex), seed.astype(complex), dz


def close(found: Any, expected: Any, dtype: Any) -> None:
    tolerance = 2e-5 if dtype == np.complex64 else 1e-12
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


EVERY = [(e, dtype) for k, e in enumerate([*ANALYTIC, *OTHERS]) for dtype in (np.complex64, np.complex128)[:: 1 - k % 2 * 2]]


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("expression", "dtype"), share(EVERY, 2))  # on a push each in one of the precisions, in turns
def test_function(executor: Any, expression: str, dtype: Any) -> None:
    kind = "float" if dtype == np.complex64 else "double"
    text = f"""#include <cupy/complex.cuh>
    typedef {kind} T;
    extern "C" __global__ void k(const complex<T>* z_, complex<T>* f) {{
        const complex<T> z = z_[threadIdx.x], w(0.3, -0.7);
        f[threadIdx.x] = {expression};
    }}"""
    z, f, seed, dz = gradient(executor, text, dtype)
    if expression in ANALYTIC:
        value, derivative = ANALYTIC[expression]
        expected = np.conj(derivative(z)) * seed
    else:
        value, adjoint = OTHERS[expression]
        expected = adjoint(z, seed)
    close(f, value(z), dtype)
    close(dz, expected, dtype)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("expression", NAMED)
def test_cu_complex(executor: Any, expression: str, dtype: Any) -> None:
    name, letter = ("cuFloatComplex", "f") if dtype == np.complex64 else ("cuDoubleComplex", "")
    text = f"""#include <cuComplex.h>
    #define make make_{name}
    extern "C" __global__ void k(const {name}* z_, {name}* f) {{
        {name} z = z_[threadIdx.x], w = make(0.3, -0.7);
        f[threadIdx.x] = {expression.replace("@", letter)};
    }}"""
    z, f, seed, dz = gradient(executor, text, dtype)
    value, adjoint = NAMED[expression]
    close(f, value(z), dtype)
    close(dz, adjoint(z, seed), dtype)


# Bodies of a kernel (complex<double>* a, const complex<double>* b, double* y, int n).
BODIES: dict[str, str] = {
    "in place": "a[i] *= b[i]; a[i] += b[i + 1] * 2.0; a[i] -= 1.0; a[i] /= b[i]; y[i] = norm(a[i]);",
    "accumulated": "a[i] += b[i] * b[i]; a[i] = a[i] - b[i];",
    "state": "complex<double> z = a[i]; for (int k = 0; k < 4; k++) z = z * z + b[i]; a[i] = z; y[i] = abs(z);",
    "uninitialised": "complex<double> z; if (i % 2) z = b[i]; else z = 2.0; z *= z; y[i] = z.real();",
    "members": "complex<double> z = b[i]; z.real(z.imag() * 2.0); z.imag(z.real() * z.imag()); y[i] = z.real() + z.imag(); "
    "a[i].real(y[i]);",
    "local array": "complex<double> z[3] = {b[i], {1.0, 2.0}, complex<double>(3.0)}; z[i % 3] *= z[2]; y[i] = norm(z[0] + z[1] * z[2]);",
    "as numbers": "const double2* r = reinterpret_cast<const double2*>(b); double* q = (double*)a; q[2 * i + 1] = r[i].x * r[i].y;",
    "order": "y[i] = a[i] < b[i] || b[i] == b[i + 1] ? norm(a[i]) : abs(b[i]); if (isnan(a[i]) || a[i] != b[i]) a[i] = min(a[i], b[i]);",
    "atomic": "atomicAdd(&reinterpret_cast<double*>(a)[0], (b[i] * b[i]).real());",
    "zero": "complex<double> z = b[i] - b[i]; y[i] = abs(z) + norm(sqrt(z * z)) + norm(b[i]);",
    "negative axis": "complex<double> z(-1.0 - norm(b[i]), 0.0); y[i] = sqrt(z).imag() + log(z).real() + tanh(z * 20.0).real();",
}  # fmt: skip


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", BODIES)
def test_gradient(executor: Any, name: str) -> None:
    text = f"""#include <cupy/complex.cuh>
    extern "C" __global__ void k(complex<double>* a, const complex<double>* b, double* y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ {BODIES[name]} }}
    }}"""
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=9) + 1j * rng.normal(size=9) for _ in range(2))
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(gpuad.kernel(text, "k"), [a / 2, b / 2, np.ones(9), 8], grid=2, block=4)


@pytest.mark.parametrize("zero", [0j, complex(-0.0, 0.0), complex(0.0, -0.0)])
def test_the_root_of_zero_is_infinitely_steep(executor: Any, zero: complex) -> None:
    """But nothing comes from a seed of 0, as for real numbers."""
    text = """#include <cupy/complex.cuh>
    extern "C" __global__ void k(complex<double>* a, const complex<double>* b) { a[threadIdx.x] = sqrt(b[threadIdx.x]); }"""
    a, b = np.zeros(3, complex), np.array([zero, zero, 4.0])
    da, db = np.array([1.0, 0.0, 1.0], complex), np.zeros(3, complex)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 3, (gpuad.Duplicated(a, da), gpuad.Duplicated(b, db)))
    assert a.tobytes() == np.array([zero, zero, 2.0]).tobytes()
    assert not np.isfinite(db[0]) and db[1] == 0 and db[2] == 0.25


def test_both_precisions(executor: Any) -> None:
    text = """#include <thrust/complex.h>
    extern "C" __global__ void k(thrust::complex<float>* a, const thrust::complex<float>* b) {
        int i = threadIdx.x;
        thrust::complex<double> z = b[i], w = a[i];
        w = z * thrust::complex<double>(a[i]);
        a[i] = w + z;
        a[i] += thrust::complex<float>(pow(b[i], 2.0) * z);
    }"""
    rng = np.random.default_rng(5)
    a, b = ((rng.normal(size=4) + 1j * rng.normal(size=4)).astype(np.complex64) for _ in range(2))
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(gpuad.kernel(text, "k"), [a, b], grid=1, block=4)


def test_errors_in_a_header_are_at_the_call() -> None:
    text = """#include <cupy/complex.cuh>
extern "C" __global__ void k(complex<float>* z) {
  complex<float> w;
  z[0] = exp(w);
}"""
    with pytest.raises(UnsupportedError) as caught:
        gpuad.kernel(text, "k")
    assert (caught.value.line, caught.value.column) == (4, 10)


def test_explained_at_the_users_lines() -> None:
    text = """#include <cupy/complex.cuh>
extern "C" __global__ void k(complex<float>* z, const complex<float>* w) {
  int i = threadIdx.x;
  z[i] *= w[i];
}"""
    adjoint = gpuad.kernel(text, "k").adjoint(z=Duplicated, w=Duplicated)
    said = f"{adjoint.explain()} {adjoint.source}"
    assert "<source>:4" in said
    assert "complex.h" not in said


SQUARE = """#include <cupy/complex.cuh>
extern "C" __global__ void square(complex<double>* z, int n) { int i = threadIdx.x; if (i < n) z[i] *= z[i]; }
extern "C" __global__ void times(const complex<double>* a, const complex<double>* b, complex<double>* y, int n) {
    int i = threadIdx.x; if (i < n) y[i] = a[i] * b[i]; }
"""


def test_overlapping_views(executor: Any) -> None:
    """Neighbours: two views of one array, and an array passed twice. The shadows lie alike."""
    times = gpuad.kernel(SQUARE, "times")
    rng = np.random.default_rng(6)
    u, seed = (rng.normal(size=6) + 1j * rng.normal(size=6) for _ in range(2))
    for shift in (0, 1):
        whole, y = Duplicated(u.copy()), Duplicated(np.zeros(6, complex), seed.copy())
        with pipeline.executor_for_tests(executor):
            gpuad.autodiff(times, 1, 8, (whole, whole[shift:], y, 6 - shift))
        want = np.zeros(6, complex)
        want[: 6 - shift] += np.conj(u[shift:]) * seed[: 6 - shift]
        want[shift:] += np.conj(u[: 6 - shift]) * seed[: 6 - shift]
        assert np.allclose(whole.shadow, want, rtol=1e-12)


def test_tape(executor: Any) -> None:
    """A partial overwrite, twice, and bare memory: regions of complex arrays count in bytes of their numbers."""
    square, times = gpuad.kernel(SQUARE, "square"), gpuad.kernel(SQUARE, "times")
    rng = np.random.default_rng(7)
    z, w = (rng.normal(size=8) + 1j * rng.normal(size=8) for _ in range(2))
    a, b, y = Duplicated(z.copy()), Duplicated(w.copy()), Duplicated(np.zeros(8, complex))
    tape = gpuad.Tape()
    with pipeline.executor_for_tests(executor):
        with tape:
            times[1, 8](a, b, y, 8)
            square[1, 8](a[:4], 4)
            square[1, 8](a[2:], 3)
            times[1, 8](y, a, y, 8)
        seed = rng.normal(size=8) + 1j * rng.normal(size=8)
        tape.reverse({y: seed})
    power = np.array([2, 2, 4, 4, 2, 1, 1, 1])
    # y = z w z^power
    assert np.allclose(a.shadow, np.conj((power + 1) * z**power * w) * seed, rtol=1e-12)
    assert np.allclose(b.shadow, np.conj(z ** (power + 1)) * seed, rtol=1e-12)


def test_a_tape_refuses_bare_complex_memory(executor: Any) -> None:
    square, times = gpuad.kernel(SQUARE, "square"), gpuad.kernel(SQUARE, "times")
    a, b, y = (Duplicated(np.ones(4, complex)) for _ in range(3))
    with pipeline.executor_for_tests(executor), gpuad.Tape():
        square[1, 4](a, 4)
        with pytest.raises(gpuad.ShadowError, match="read bare"):
            times[1, 4](a.primal, b, y, 4)

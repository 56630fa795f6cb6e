"""Arrays that a call may leave out: the kernel compares their pointers with null, and computes something else without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline, testing
from gpuad.errors import UnsupportedError

rng = np.random.default_rng(5)
N = 12
HELPERS = """
__device__ double at(const double* p, int i) { return p == nullptr ? 1.0 : p[i]; }
__device__ double twice(const double* p, int i) { return at(p, i) * at(p + 1, i - 1) + at(nullptr, i); }
struct Scaled { double by; __device__ double of(const double* p, int i) const { return p ? by * p[i] : by; } };
template <typename T> __device__ void scale(T* y, const T* b, int i) { if (b) y[i] *= b[i]; else y[i] *= T(0.5); }
"""
BODIES = [
    "y[i] += x[i] * (b ? b[i] : 1.0);",
    "double f = x[i]; if (b != nullptr) { f *= b[i]; } y[i] = f;",
    "double f = x[i]; if (!b || n < 0) f *= f; else f *= b[i]; y[i] = f;",
    "if (b && n > 0) { b += i; y[i] += x[i] * *b; } if (b == NULL) y[i] = x[i] * x[i];",
    "const double* c = b; y[i] += x[i] * (c ? c[i] : 2.0);",
    "const double* c = b + i; const double* d = &c[0]; y[i] *= x[i]; if (d != NULL && b) y[i] += x[i] * *d;",
    "y[i] += x[i] * at(b, i);",
    "y[i] += x[i] * twice(b, i) + at(x, i) * at(&x[i], 0);",
    "Scaled s{1.5}; y[i] = x[i] * s.of(b, i);",
    "y[i] += x[i]; scale(y, b, i);",
    "double t[1] = {x[i]}; y[i] = at(t, 0) * (b ? b[i] : x[i]); if (t == nullptr) y[i] = 0;",
    "y[i] *= x[i]; if (b) for (int k = 0; k < 3; ++k) y[i] += b[i] * x[i] * (b ? k : 1);",
]


def _kernel(body: str, more: str = "") -> gpuad.Kernel:
    text = f"""{HELPERS}{more}
    extern "C" __global__ void k(const double* x, const double* b, double* y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ {body} }}
    }}"""
    return gpuad.kernel(text, "k")


def _fields() -> tuple[Any, Any, Any]:
    return rng.uniform(0.5, 1.5, N), rng.uniform(0.5, 1.5, N), rng.uniform(0.5, 1.5, N)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("body", BODIES)
def test_with_and_without(executor: Any, body: str) -> None:
    kernel, (x, b, y) = _kernel(body), _fields()
    with pipeline.executor_for_tests(executor):
        for given in (b, None):
            testing.check_gradient(kernel, (x, given, y, N), grid=2, block=8)


def test_zero_is_null_as_in_a_raw_launch(executor: Any) -> None:
    """CuPy passes Python's 0 in the eight bytes of a pointer; any other number is an address, also where the call is known."""
    kernel, (x, b, y) = _kernel(BODIES[0]), _fields()
    grads = []
    with pipeline.executor_for_tests(executor):
        for given in (None, 0, 0, Duplicated(b), 0, None):
            pairs = Duplicated(x), Duplicated(y.copy())
            pairs[1].shadow[...] = 1
            kernel_args = (pairs[0], given, pairs[1], N)
            gpuad.autodiff(kernel, 2, 8, kernel_args)
            grads.append(pairs[0].shadow)
        for address in (8, True, np.int64(0)):
            with pytest.raises(gpuad.LaunchError, match="not its address"):
                gpuad.autodiff(kernel, 2, 8, (Duplicated(x), address, Duplicated(y), N))
    for found, given in zip(grads, (None, 0, 0, b, 0, None), strict=True):
        np.testing.assert_array_equal(found, np.ones(N) if given is not b else b)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("body", BODIES[:4])
def test_without_it_is_the_kernel_with_false_in_place_of_the_pointer(body: str) -> None:
    x, _, y = _fields()
    other = gpuad.kernel(
        f"""extern "C" __global__ void k(const double* x, const bool there, double* y, int n) {{
            const double* b = x;
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) {{ {_asking(body)} }}
        }}""",
        "k",
    )
    found = []
    for kernel, given in ((_kernel(body), None), (other, False)):
        pairs = Duplicated(x.copy(), np.zeros(N)), Duplicated(y.copy(), np.linspace(1, 2, N))
        gpuad.autodiff(kernel, 2, 8, (pairs[0], given, pairs[1], N))
        found.append([pairs[0].shadow, pairs[1].primal, pairs[1].shadow])
    np.testing.assert_array_equal(*found)


def _asking(body: str) -> str:
    for pointer, truth in (
        ("b != nullptr", "there"),
        ("b == NULL", "!there"),
        ("(b ?", "(there ?"),
        ("!b", "!there"),
        ("(b &&", "(there &&"),
    ):
        body = body.replace(pointer, truth)
    return body


def test_one_program_with_it_and_without() -> None:
    """A tape, and a known call, tell the two apart."""
    kernel, (x, b, y) = _kernel(BODIES[0]), _fields()
    for _ in range(4):
        px, pb, py = (Duplicated(a.copy(), np.zeros(N)) for a in (x, b, y))
        with gpuad.Tape() as tape:
            kernel(2, 8, (px, pb, py, N))
            kernel(2, 8, (px, None, py, N))
            kernel(2, 8, (px, pb, py, N))
        py.shadow.fill(1)
        tape.reverse()
        np.testing.assert_allclose(py.primal, y + x + 2 * x * b)
        np.testing.assert_allclose(px.shadow, 1 + 2 * b)
        np.testing.assert_allclose(pb.shadow, 2 * x)
    for given in (pb, None, pb, None, None, pb):
        py = Duplicated(y.copy(), np.ones(N))
        px.shadow.fill(0)
        gpuad.autodiff(kernel, 2, 8, (px, given, py, N))
        np.testing.assert_allclose(px.shadow, 1.0 if given is None else b)
        plain = y.copy()
        kernel(2, 8, (x, None if given is None else b, plain, N))
        np.testing.assert_allclose(plain, py.primal)


def test_text_for_a_launch_without_it() -> None:
    kernel, (x, b, y) = _kernel(BODIES[0]), _fields()
    kinds = (Duplicated, gpuad.Const, Duplicated, gpuad.Const)
    assert "b[i]" in kernel.adjoint(*kinds).source
    assert "Holds where b is an array." in kernel.adjoint(*kinds).source
    assert "b[i]" in kernel.adjoint(*kinds, grid=2, block=8, args=(x, b, y, N)).source
    without = kernel.adjoint(*kinds, grid=2, block=8, args=(x, None, y, N)).source
    assert "b[i]" not in without
    assert "Holds where b is null." in without


def test_split_pair_and_hvp_without_it() -> None:
    kernel, (x, _, y) = _kernel("y[i] += x[i] * x[i] * (b ? b[i] : 3.0);"), _fields()
    px, py = Duplicated(x, np.zeros(N)), Duplicated(y, np.ones(N))
    augmented, reverse = gpuad.autodiff_thunk(kernel, Duplicated, gpuad.Const, Duplicated, gpuad.Const)
    reverse(2, 8, (px, None, py, N), augmented(2, 8, (px, None, py, N)))
    np.testing.assert_allclose(px.shadow, 6 * x)


def test_an_array_without_elements_is_neither() -> None:
    kernel, (x, _, y) = _kernel(BODIES[0]), _fields()
    before = y.copy()
    for run in (kernel, lambda *call: gpuad.autodiff(kernel, *call)):
        pair = Duplicated(y, np.ones(N)) if run is not kernel else y
        with pytest.raises(gpuad.LaunchError, match=r"parameter 2 .*compared with null"):
            run((2,), (8,), (x, np.zeros(0), pair, N))
    assert np.array_equal(y, before)


@pytest.mark.parametrize(
    "body",
    [
        "if (n < 0) b = nullptr; y[i] += x[i] * (b ? b[i] : 1.0);",
        "b = n < 0 ? nullptr : b; y[i] += x[i] * (b ? b[i] : 1.0);",
        "const double*& c = b; if (n < 0) c = nullptr; y[i] += x[i] * (b ? b[i] : 1.0);",
        "drop(b, n); y[i] += x[i] * (b ? b[i] : 1.0);",
        "const double* c = n < 0 ? nullptr : b; y[i] += x[i] * (c ? c[i] : 1.0);",
        "const double* c; c = b; y[i] += x[i] * (c ? c[i] : 1.0);",
        "y[i] += x[i] * at(n < 0 ? nullptr : b, i);",
        "y[i] += lost(b, n, i);",
        "(n < 0 ? x : b) = nullptr; y[i] += x[i] * (b ? b[i] : 1.0);",
    ],
)
def test_other_pointers_compared_with_null_are_refused(body: str) -> None:
    helpers = """
    __device__ void drop(const double*& p, int n) { if (n < 0) p = nullptr; }
    __device__ double lost(const double* p, int n, int i) { if (n < 0) p = nullptr; return p ? p[i] : 1.0; }
    """
    with pytest.raises(UnsupportedError, match=r"comparison of a pointer with null is supported for|only a variable, an element or"):
        _kernel(body, helpers)

"""Kernels whose gradient was wrong or refused with an internal error: the smallest that shows each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running
from test_extrema import GREATEST

import gpuad
from gpuad import Duplicated, UnsupportedError

HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"


def kernel(params: str, body: str) -> Any:
    """The kernel of one thread an element."""
    return compiled(f'extern "C" __global__ void k({params}, int n) {{ {HEAD} {body} }}', "k")


# --- asking a launch which threads meet ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_launch_is_not_asked_where_the_adjoint_itself_decides(executor: str) -> None:
    """Whether `v` was used hangs on the shadow that is asked about."""
    loop = "for (int j = 0; j < 3; j++) { v = 0.5 * v + y[b + 2] * y[b + 2]; if (i > 2) { int k = j * j; v = sin(y[b + (k & 1)]); } }"
    k = kernel("double* y, const double* a", f"int b = i * 4; double v = a[i]; {loop} y[b + 3] += v;")
    given = np.linspace(-1, 1, 16)
    y, a = Duplicated(given.copy(), np.ones(16)), Duplicated(np.linspace(0, 1, 4), np.zeros(4))
    with running(executor):
        gpuad.autodiff(k, (1,), (8,), (y, a, 4))
    want = np.ones(16)
    want[2:12:4] += 1.75 * 2 * given[2:12:4]
    want[12] += np.cos(given[12])
    np.testing.assert_allclose(y.shadow, want, rtol=1e-14)
    np.testing.assert_allclose(a.shadow, [0.125, 0.125, 0.125, 0], rtol=1e-14)


def test_few_threads_are_not_asked_about_a_large_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking takes three numbers for each element of the array, more than anything that the launch itself takes."""
    n, far = 4, (1 << 24) + 8
    k = kernel("const float* x, float* y, size_t o", "float t = 0; for (size_t j = o + 3; j > o; j--) t += x[j + i] * x[j]; y[i] = t;")

    def refuse(*args: Any) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr("gpuad.pipeline.inspectors._counted", refuse)
    x, dx = np.zeros(far + 16, np.float32), np.zeros(far + 16, np.float32)
    x[far:] = np.arange(16)
    gpuad.autodiff(k, (1,), (n,), (Duplicated(x, dx), Duplicated(np.zeros(n, np.float32), np.ones(n, np.float32)), np.uint64(far), n))
    np.testing.assert_array_equal(dx[far:], [0, 11, 17, 24, 6, 5, 3, *9 * [0]])
    assert not dx[:far].any()


# --- derivatives near the ends of a type's range ------------------------------------------------------------------------------------------

FAR: dict[str, Any] = {
    "asinh": (lambda x: 1 / np.hypot(1, x), [-1e30, -2e19, 0.5, 1e3, 2e19, 1e30]),
    "acosh": (lambda x: 1 / np.sqrt((x - 1) * (x + 1)), [1.5, 1e3, 2e19, 1e30]),
    "erfcx": (lambda x: -1 / (np.sqrt(np.pi) * x**2) * (1 - 1.5 / x**2 + 3.75 / x**4 - 13.125 / x**6), [50.0, 1e3, 1e5, 1e15]),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("type_", ["float", "double"])
@pytest.mark.parametrize("function", FAR)
def test_derivatives_of_large_arguments(function: str, type_: str, executor: str) -> None:
    """The square of the argument is beyond the range of the type, or all digits of a difference are lost."""
    slope, points = FAR[function]
    dtype = np.float32 if type_ == "float" else np.float64
    k = kernel(f"const {type_}* x, {type_}* y", f"y[i] = {function}(x[i]);")
    n = len(points)
    x, y = Duplicated(np.array(points, dtype), np.zeros(n, dtype)), Duplicated(np.zeros(n, dtype), np.ones(n, dtype))
    with running(executor):
        gpuad.autodiff(k, (1,), (n,), (x, y, n))
    np.testing.assert_allclose(x.shadow, slope(x.primal.astype(np.float64)), rtol=1e-6 if type_ == "float" else 1e-11)


# --- atomic maxima in loops within branches -----------------------------------------------------------------------------------------------

BRANCHES = {
    "around a loop": "if (t % 2) for (int j = 0; j < few; j++) fmaxkeep(&s[0], x[t] * (j + 1));",
    "around and in a loop": "if (t > 0) { if (x[t] > 0) for (int j = 0; j < few; j++) if (j > 0) fmaxkeep(&s[0], x[t] * (j + 1)); }",
    "on the other side": "if (t == 0) v = 0.2; else for (int j = 0; j < few; j++) fmaxkeep(&s[0], x[t] * (j + 1));",
    "in a loop": "for (int l = 0; l < 2; l++) if (t % 2 == l) for (int j = 0; j < few; j++) fmaxkeep(&s[0], x[t] * (j + 1 - 0.1 * l));",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", BRANCHES)
def test_tangents_of_maxima_in_loops_within_branches(name: str, executor: str) -> None:
    """Thread 1 has the greatest number in the last iteration, of which the tangent is that of `2 x`."""
    start, end = "__shared__ double s[4]; int t = threadIdx.x; double v = 0.1; s[t] = 0.1; __syncthreads();", "y[t] = s[0] * s[t] + 0 * v;"
    text = (
        f'{GREATEST}extern "C" __global__ void k(const double* x, double* y, int few) {{ {start} {BRANCHES[name]} __syncthreads(); {end} }}'
    )
    k = compiled(text, "k")
    given, factor = np.array([0.3, 1.2, 0.7, 0.9]), 1.9 if name == "in a loop" else 2.0
    slope = factor * np.array([2 * factor * given[1], 0.1, 0.1, 0.1])
    with running(executor):
        x, y = Duplicated(given.copy(), np.array([5.0, 1.0, 7.0, 3.0])), Duplicated(np.zeros(4), np.zeros(4))
        gpuad.autodiff(k, (1,), (4,), (x, y, 2), mode=gpuad.Forward)
        np.testing.assert_allclose(y.shadow, slope, rtol=1e-14)
        x, y = Duplicated(given.copy(), np.zeros(4)), Duplicated(np.zeros(4), np.array([1.0, 2.0, 3.0, 4.0]))
        gpuad.autodiff(k, (1,), (4,), (x, y, 2))
        np.testing.assert_allclose(x.shadow, [0, slope @ [1.0, 2.0, 3.0, 4.0], 0, 0], rtol=1e-14)


# --- sums in fixed point ------------------------------------------------------------------------------------------------------------------


def test_a_deterministic_sum_may_overflow_whatever_numpy_is_asked_to_do() -> None:
    """The sum is infinite as that of a kernel is; an exception would leave the shadow half added to."""
    k = kernel("const double* x, double* y, const int* q", "y[i] = x[q[i]];")
    x, y = Duplicated(np.ones(3), np.array([0.5, 0.5, 0.5])), Duplicated(np.zeros(5), np.array([1e308, 1e308, 2.0, 5e-324, 5e-324]))
    with np.errstate(all="raise"), gpuad.deterministic():
        gpuad.autodiff(k, (1,), (5,), (x, y, np.array([0, 0, 1, 2, 2], np.int32), 5))
    np.testing.assert_array_equal(x.shadow, [np.inf, 2.5, 0.5])


# --- roots of complex numbers on the axes -------------------------------------------------------------------------------------------------

AXES: dict[str, Any] = {
    "sqrt": (lambda z: 0.5 / np.sqrt(z), [4j, -4j, 0.3j, -3 + 0j, complex(-3, -0.0), 4 + 0j, 1e-30j]),
    "asin": (lambda z: 1 / (np.sqrt(1 - z) * np.sqrt(1 + z)), [4 + 0j, complex(4, -0.0), -3 + 0j, 2j, 0.5 + 0j]),
    "acos": (lambda z: -1 / (np.sqrt(1 - z) * np.sqrt(1 + z)), [4 + 0j, complex(4, -0.0), -3 + 0j, 2j, 0.5 + 0j]),
    "acosh": (lambda z: 1 / (np.sqrt(z - 1) * np.sqrt(z + 1)), [0.5 + 0j, complex(0.5, -0.0), -3 + 0j, 3 + 0j, 2j]),
    "asinh": (lambda z: 1 / (np.sqrt(1 + 1j * z) * np.sqrt(1 - 1j * z)), [4j, complex(-0.0, 4), -2j, 0.5j, 3 + 0j]),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("function", AXES)
def test_roots_of_complex_numbers_on_the_axes(function: str, executor: str) -> None:
    """Where a part is 0 both parts of the derivative are there; on a cut it is that of the side on which the value is."""
    slope, points = AXES[function]
    n, kind = len(points), "complex<double>"
    head = f'#include <cupy/complex.cuh>\nextern "C" __global__ void k(const {kind}* x, {kind}* y, int n) {{ {HEAD}'
    k = compiled(f"{head} y[i] = {function}(x[i]); }}", "k")
    given = np.array(points, np.complex128)
    beside = given.real + np.copysign(1e-200, given.real) + 1j * (given.imag + np.copysign(1e-200, given.imag))
    x, y = Duplicated(given.copy(), np.zeros(n, np.complex128)), Duplicated(np.zeros(n, np.complex128), np.full(n, 1 + 0.5j))
    with running(executor):
        gpuad.autodiff(k, (1,), (8,), (x, y, n))
    np.testing.assert_allclose(x.shadow, (1 + 0.5j) * np.conj(slope(beside)), rtol=1e-12)


# --- tails of odd functions --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_inverse_of_erf_is_odd_up_to_its_tails(executor: str) -> None:
    """Near -1 the value was that of 1 - x, which rounds: 1e-5 off, and the slope 1e-4."""
    x = np.array([sign * (1 - 10.0**-k) for k in (1, 3, 9, 12, 15) for sign in (1, -1)])
    dx, y = np.zeros_like(x), np.zeros_like(x)
    with running(executor):
        k = kernel("double* x, double* y", "y[i] = erfinv(x[i]);")
        gpuad.autodiff(k, (1,), (16,), (Duplicated(x, dx), Duplicated(y, np.ones_like(x)), len(x)))
    np.testing.assert_array_equal(y[1::2], -y[::2])
    np.testing.assert_allclose([math.erfc(value) for value in y[::2]], 1 - x[::2], rtol=1e-12)
    np.testing.assert_allclose(dx, math.sqrt(math.pi) / 2 * np.exp(y * y), rtol=1e-12)


# --- reads of what other threads change --------------------------------------------------------------------------------------------------

RACES = {
    "one element": "atomicAdd(&x[0], x[i] * x[i]);",
    "the neighbour's": "if (i + 1 < n) atomicAdd(&x[i + 1], x[i] * x[i]);",
    "mirrored": "double t = x[i]; atomicAdd(&x[n - 1 - i], t * t);",
    "read by all": "atomicAdd(&x[i], y[i] * x[2]);",
}


@pytest.mark.parametrize("body", RACES.values(), ids=RACES)
def test_a_read_of_what_other_threads_add_to_depends_on_chance(body: str) -> None:
    """The gradient was that of one order of the threads."""
    k = kernel("double* x, const double* y", body)
    x, y = (Duplicated(np.linspace(0.5, 1, 5), np.ones(5)) for _ in range(2))
    with pytest.raises(UnsupportedError, match="that another thread changes by an atomic operation") as caught:
        gpuad.autodiff(k, (1,), (8,), (x, y, 5))
    assert caught.value.line == 1 and (x.shadow == 1).all()


BEHIND = (
    "x[i] = sin(x[i]); y[i] = x[n - 1 - i];",
    "x[i] = sin(x[i]); y[i] = x[0];",
    "x[i] += y[i]; for (int k = 0; k < n; k++) y[i] += x[k];",
)


@pytest.mark.parametrize("body", BEHIND)
def test_a_read_behind_a_store_of_its_own_may_see_that_of_another_thread(body: str) -> None:
    """Only reads of what was there before the launch were looked at."""
    x, y = (Duplicated(np.linspace(0.5, 1, 5), np.ones(5)) for _ in range(2))
    with pytest.raises(
        UnsupportedError, match="a data race: in this launch a thread reads an element of `x` here that another thread writes"
    ):
        gpuad.autodiff(kernel("double* x, double* y", body), (1,), (8,), (x, y, 5))
    assert (x.shadow == 1).all()


def test_one_value_that_all_threads_store_and_read_is_no_race() -> None:
    y = Duplicated(np.linspace(0.5, 1, 5), np.ones(5))
    k = kernel("double* x, double* y", "x[0] = 1.5; y[i] = x[0] * y[i];")
    gpuad.autodiff(k, (1,), (8,), (Duplicated(np.zeros(1), np.ones(1)), y, 5))
    np.testing.assert_array_equal(y.shadow, np.full(5, 1.5))


def test_reads_that_race_with_no_atomics_are_taken() -> None:
    """Each thread reads its own element before it adds there; what is only compared carries no gradient."""
    k = kernel("double* x, double* top", "double t = x[i]; atomicAdd(&x[i], t * t); if (x[i] > top[0]) atomicAdd(&top[0], 0.0);")
    x, top = Duplicated(np.linspace(0.5, 1, 5), np.ones(5)), Duplicated(np.full(1, 9.0), np.ones(1))
    gpuad.autodiff(k, (1,), (8,), (x, top, 5))
    np.testing.assert_allclose(x.shadow, 1 + 2 * np.linspace(0.5, 1, 5), rtol=1e-14)


# --- places that are chosen --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_pointer_to_a_variable_or_an_element(executor: str) -> None:
    """It was refused as leading beside the variable."""
    k = kernel("double* x, double* y", "double t = 2 * x[i]; double* p = i % 2 ? &y[i] : &t; *p = *p * 0.5 * x[i]; x[i] = t * y[i];")
    given = np.linspace(0.5, 1, 4), np.linspace(1, 2, 4)
    x, y = (Duplicated(v.copy(), np.zeros(4)) for v in given)
    x.shadow[:] = 1
    with running(executor):
        gpuad.autodiff(k, (1,), (8,), (x, y, 4))
    u, v = given
    np.testing.assert_allclose(x.shadow, 2 * u * v, rtol=1e-14)
    np.testing.assert_allclose(y.shadow, u * u, rtol=1e-14)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_function_returns_one_of_two_places(executor: str) -> None:
    """As the subscript of a vector of the user's own; it was refused as a target."""
    struct = "struct V { double a, b; __device__ double& operator[](int k) { return k ? b : a; } };\n"
    body = "V v{x[i], 2}; v[i & 1] *= v[1]; v[0] += v[i & 1]; x[i] = v[0];"
    k = compiled(f'{struct}extern "C" __global__ void k(double* x, int n) {{ {HEAD} {body} }}', "k")
    x = Duplicated(np.linspace(0.5, 1, 4), np.ones(4))
    with running(executor):
        gpuad.autodiff(k, (1,), (8,), (x, 4))
    np.testing.assert_array_equal(x.shadow, [4, 1, 4, 1])

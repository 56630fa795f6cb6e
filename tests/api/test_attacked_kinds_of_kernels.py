"""What an attack on jit functions, elementwise kernels, modules and programs has found. What integers, bools and constants are in a jit
function is what they are in the CUDA text that CuPy 14 makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad
from gpuad import Active, Duplicated, ShadowError, UnsupportedError, jit
from gpuad.testing import check_gradient

# --- constants -----------------------------------------------------------------------------------------------------------------------


@jit.rawkernel()
def _stored(x: Any, y: Any) -> None:
    i = jit.grid(1)
    y[i, 0] = 0.1
    y[i, 1] += 0.1
    y[i, 2] *= 0.1
    y[i, 3] = x[i] * 0.1
    y[i, 4], y[i, 5] = 0.1, np.float64(0.1)
    y[i, 6] **= 2


@pytest.mark.parametrize("executor", EXECUTORS)
def test_constants_are_floats_where_they_are_assigned_or_change_in_place(executor: str) -> None:
    """As in CuPy: `y[i] = 0.1` is `(double)0.1f`, but `x * 0.1` multiplies by the double."""
    x, y, tenth = Duplicated(np.array([1.5]), np.zeros(1)), Duplicated(np.full((1, 7), 2.0), np.ones((1, 7))), float(np.float32(0.1))
    with running(executor):
        gpuad.autodiff(_stored, 1, 1, (x, y))
    np.testing.assert_array_equal(y.primal[0], [tenth, 2 + tenth, 2 * tenth, 1.5 * 0.1, tenth, 0.1, 4])
    np.testing.assert_allclose(y.shadow[0], [0, 1, tenth, 0, 0, 0, 4], rtol=1e-15)
    np.testing.assert_array_equal(x.shadow, [0.1])


# --- integers and bools --------------------------------------------------------------------------------------------------------------


@jit.rawkernel()
def _compared(x: Any, y: Any, first: Any, small: Any) -> None:
    i = jit.grid(1)
    if i > first:  # of uint32 and int32: as whole numbers, so all threads are beyond -1
        y[i] += x[i]
    if i > -1:
        y[i] += 2 * x[i]
    if small[i] - small[3 - i] > i:
        y[i] += 4 * x[i]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_negative_numbers_are_less_than_unsigned_ones(executor: str) -> None:
    x, y = Duplicated(np.ones(4), np.zeros(4)), Duplicated(np.zeros(4), np.ones(4))
    with running(executor):
        gpuad.autodiff(_compared, 1, 4, (x, y, -1, np.array([5, 6, 7, 8], np.uint8)))
    np.testing.assert_array_equal(x.shadow, [3, 3, 3, 3])
    x, y = Duplicated(np.ones(4), np.zeros(4)), Duplicated(np.zeros(4), np.ones(4))
    with running(executor):
        gpuad.autodiff(_compared, 1, 4, (x, y, 1, np.array([8, 6, 4, 5], np.uint8)))
    np.testing.assert_array_equal(x.shadow, [6, 6, 3, 3])


@jit.rawkernel()
def _pixels(image: Any, w: Any, out: Any) -> None:
    i = jit.grid(1)
    out[i, 0] = w[i] * (image[i + 1] - image[i])
    difference = image[i + 1] - image[i]
    out[i, 1] = w[i] * difference
    out[i, 2] = w[i] * max(-image[i], image[i + 1] - 100)
    out[i, 3] = w[i] * (image[i] / image[i + 1])
    out[i, 5] = w[i] * abs(image[i] - image[i + 1])
    out[i, 4] = w[i] * (image[i] + (image[i + 1] - image[i] if image[i] > 1 else image[i]))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_small_integers_are_ints_until_they_are_stored(executor: str) -> None:
    """A difference of two bytes may be negative, as C++ has it; a variable that takes it is a byte. Quotients are doubles."""
    image = np.array([1, 3, 255, 2], np.uint8)
    w, out = Duplicated(np.ones(3), np.zeros(3)), Duplicated(np.zeros((3, 6)), np.ones((3, 6)))
    with running(executor):
        gpuad.autodiff(_pixels, 1, 3, (image, w, out))
    a, b = image[:-1].astype(int), image[1:].astype(int)
    expected = np.stack([b - a, (b - a) % 256, np.maximum(-a, b - 100), a / b, a + np.where(a > 1, b - a, a), a - b], 1)
    np.testing.assert_allclose(out.primal, expected, rtol=1e-15)
    np.testing.assert_allclose(w.shadow, expected.sum(1), rtol=1e-15)


@jit.rawkernel()
def _bools(x: Any, y: Any, flags: Any) -> None:
    i = jit.grid(1)
    if (x[i] > 0.25) & (i < 3):
        y[i] += x[i]
    if (x[i] > 0.75) | flags[i]:
        y[i] += 2 * x[i]
    if (x[i] > 0.75) ^ flags[i]:
        y[i] += 4 * x[i]
    flags[i] &= x[i] > 0.5


@pytest.mark.parametrize("executor", EXECUTORS)
def test_bools_are_combined_without_words(executor: str) -> None:
    flags = np.array([True, False, True, True])
    x, y = Duplicated(np.array([0, 0.5, 1, 0.6]), np.zeros(4)), Duplicated(np.zeros(4), np.ones(4))
    with running(executor):
        gpuad.autodiff(_bools, 1, 4, (x, y, flags))
    np.testing.assert_array_equal(x.shadow, [6, 1, 3, 6])
    np.testing.assert_array_equal(flags, [False, False, True, True])


@jit.rawkernel()
def _by_nothing(k: Any, out: Any) -> None:
    i = jit.grid(1)
    out[i, 0] = k[i] // (k[i] - k[i])
    out[i, 1] = k[i] % (k[i] - k[i])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_integers_divided_by_0_leave_no_rest(executor: str) -> None:
    out = np.full((2, 2), 9.0)
    with running(executor):
        _by_nothing[1, 2](np.array([5, -7]), out)
    np.testing.assert_array_equal(out, 0)


@jit.rawkernel()
def _functions(k: Any, x: Any, out: Any) -> None:
    i = jit.grid(1)
    out[i, 0] = x[i] * (np.floor(k[i]) // 2 + np.ceil(k[i]) + np.trunc(k[i]))
    out[i, 1] = x[i] * (np.fmax(k[i], 3) + np.fmin(k[i], 3) / 3)
    out[i, 2] = x[i] * (np.fmod(k[i], 4) + np.fmod(k[i], 0))
    out[i, 3] = np.float_power(np.float32(x[i]), 2)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_functions_of_integers_are_integers(executor: str) -> None:
    """Beyond 2 ** 24 a float32 would be another number."""
    k = np.array([2**25 + 1, -(2**25) - 3], np.int32)
    x, out = Duplicated(np.ones(2), np.zeros(2)), Duplicated(np.zeros((2, 4)), np.ones((2, 4)))
    with running(executor):
        gpuad.autodiff(_functions, 1, 2, (k, x, out))
    whole = k.astype(np.int64)
    expected = np.stack([whole // 2 + 2 * whole, np.maximum(whole, 3) + np.minimum(whole, 3) / 3, np.fmod(whole, 4)], 1)
    np.testing.assert_allclose(out.primal[:, :3], expected, rtol=1e-15)
    np.testing.assert_allclose(x.shadow, expected.sum(1) + 2, rtol=1e-15)


# --- targets and functions -----------------------------------------------------------------------------------------------------------


@jit.rawkernel()
def _appended(x: Any, count: Any) -> None:
    x[jit.atomic_add(count, 0, 1)] //= 2.0


def test_an_index_that_counts_is_not_evaluated_twice() -> None:
    with pytest.raises(UnsupportedError, match="assign the index to a variable first"):
        _appended[1, 1](np.ones(2), np.zeros(1, np.int32))


class _Ufunc:
    """As a function of cupy: nothing that can be called where there is no GPU."""

    __module__ = "cupy._core._kernel"
    __name__ = "sqrt"

    def __call__(self, *_: Any) -> Any:
        raise RuntimeError("no GPU")


_sqrt = _Ufunc()


@jit.rawkernel()
def _root(x: Any, y: Any) -> None:
    i = jit.grid(1)
    y[i] = x[i] * _sqrt(2.0)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_functions_of_cupy_of_constants_are_computed_in_the_kernel(executor: str) -> None:
    x, y = Duplicated(np.ones(2), np.zeros(2)), Duplicated(np.zeros(2), np.ones(2))
    with running(executor):
        gpuad.autodiff(_root, 1, 2, (x, y))
    np.testing.assert_array_equal(x.shadow, np.sqrt(np.float32(2)))


# --- checking ------------------------------------------------------------------------------------------------------------------------


@jit.rawkernel()
def _turned(z: Any, c: Any, x: Any) -> None:
    i = jit.grid(1)
    z[i] = z[i] * c + 2.0
    x[i] *= abs(z[i] * c)


def test_complex_numbers_by_value_are_checked() -> None:
    z, x = np.array([1 + 2j, 0.5 - 1j]), np.array([1.0, 2.0])
    for c, shadow in ((0.7 + 0.2j, np.zeros((), complex)), (np.complex128(0.7 - 0.3j), np.zeros(1, complex))):
        args = (Duplicated(z.copy()), Active(c, shadow), Duplicated(x.copy()))
        assert check_gradient(_turned, args, grid=1, block=2).passed


@jit.rawkernel()
def _summed(x: Any, y: Any) -> None:
    i = jit.grid(1)
    s = 0.0
    s += x[i] * 1.1
    y[i] = s * x[i]


def test_a_float_that_sums_doubles_is_checked_as_a_float() -> None:
    report = check_gradient(_summed, (Duplicated(np.array([0.5, 1.5])), Duplicated(np.zeros(2))), grid=1, block=2)
    assert "the kernel computes in float32" in str(report)


# --- second derivatives --------------------------------------------------------------------------------------------------------------


@jit.rawkernel()
def _scaled(x: Any, c: Any) -> None:
    i = jit.grid(1)
    x[i] = x[i] * x[i] * c


KINDS = {
    "jit": _scaled,
    "raw": gpuad.kernel('extern "C" __global__ void k(double* x, double c) { x[threadIdx.x] *= x[threadIdx.x] * c; }', "k"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", ["x", "c", "const"])
def test_a_direction_without_a_shadow_is_refused(kind: str, wrong: str) -> None:
    args = Duplicated(np.ones(2), np.ones(2)), Active(np.float64(2.0), np.zeros(()))
    x: Any = {"x": np.ones(2), "const": gpuad.Const(np.ones(2))}.get(wrong, Duplicated(np.ones(2), np.zeros(2)))
    c: Any = np.float64(1.0) if wrong == "c" else Active(np.float64(1.0), np.zeros(()))
    with pytest.raises(ShadowError, match=f"the direction of `{'c' if wrong == 'c' else 'x'}` is a tangent with a shadow of its own"):
        gpuad.hvp(KINDS[kind], 1, 2, args, (x, c))
    assert args[0].primal.tolist() == [1, 1]


def test_a_direction_of_an_elementwise_kernel_without_a_shadow_is_refused() -> None:
    square, pair = gpuad.ElementwiseKernel("T x", "T y", "y = x * x", "square"), Duplicated(np.ones(2), np.ones(2))
    with pytest.raises(ShadowError, match="is a tangent with a shadow of its own"):
        gpuad.hvp(square, pair, Duplicated(np.ones(2), np.ones(2)), (np.ones(2), Duplicated(np.ones(2), np.zeros(2))))


# --- annotations ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shadow", [[0.0, 0.0], 0.0, np.float64(0.0), "dx"], ids=["list", "number", "0-d", "text"])
def test_a_shadow_that_is_no_array_is_refused(shadow: Any) -> None:
    with pytest.raises(ShadowError, match=r"`dx` takes an array, got .*a shadow is an array like its primal"):
        Duplicated(np.zeros(2), shadow)
    with pytest.raises(ShadowError, match=r"`shadows\[1\]` takes an array, got .*a shadow is an array like its primal"):
        gpuad.BatchDuplicated(np.zeros(2), (np.zeros(2), shadow))

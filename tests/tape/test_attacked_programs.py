"""Programs and kernels that were once answered wrongly, each with its own answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, Tape, ops


def test_a_reduction_over_an_axis_that_there_is_not_is_an_error() -> None:
    x = Duplicated(np.array([1.0, 2.0, 3.0]))
    with Tape():
        for reduce in (ops.sum, ops.mean):
            with pytest.raises(np.exceptions.AxisError):
                reduce(x, axis=1)
            with pytest.raises(np.exceptions.AxisError):
                reduce(x, axis=-2)
            with pytest.raises(ValueError, match="occurs twice"):
                reduce(x, axis=(0, -1))


def test_an_axis_may_be_any_integer() -> None:
    x = Duplicated(np.array([1.0, 2.0, 3.0]))
    with Tape() as tape:
        s = ops.mean(x, axis=np.int64(0))  # type: ignore[arg-type]
    tape.reverse({s: 3.0})
    np.testing.assert_allclose(x.shadow, [1, 1, 1])


def test_a_number_is_summed_over_its_axis_as_in_numpy() -> None:
    x = Duplicated(np.array([1.0, 2.0]))
    with Tape() as tape:
        s = ops.sum(ops.sum(x), axis=0)
    tape.reverse({s: 3.0})
    assert s.shape == np.sum(np.sum(x.primal), axis=0).shape == ()
    np.testing.assert_allclose(x.shadow, [3, 3])


def test_a_sum_in_integers_has_no_gradient_to_drop() -> None:
    """Each element is truncated first: the derivative is 0, not 1."""
    x = Duplicated(np.array([1.5, 2.0]))
    with Tape():
        with pytest.raises(TypeError, match="drop the gradient"):
            ops.sum(x, dtype=int)
        with pytest.raises(TypeError, match="drop the gradient"):
            ops.prod(x, dtype=int)
        with pytest.raises(TypeError, match="drop the gradient"):
            ops.cumsum(x, dtype=int)
        with pytest.raises(TypeError, match="cannot cast"):
            ops.sum(x, out=np.zeros((), int))


def test_nothing_is_sorted() -> None:
    x = Duplicated(np.zeros((0, 3)))
    with Tape() as tape:
        y = ops.sort(x)
    tape.reverse({y: 1.0})
    assert y.shape == x.shadow.shape == (0, 3)


# --- memory under another type --------------------------------------------------------------------------------------------------------


def kernel_of(parameters: str, body: str) -> gpuad.Kernel:
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return gpuad.kernel(f'extern "C" __global__ void k({parameters}) {{ {index} {body} }}', "k")


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.uint8])
def test_memory_with_a_shadow_is_not_written_as_another_type(dtype: type) -> None:
    """The shadow would be cleared at the wrong elements, or not at all."""
    name = {np.float32: "float", np.int32: "int", np.int64: "long long", np.uint8: "unsigned char"}[dtype]
    set_bits = kernel_of(f"{name}* d, int n", "if (i < n) d[i] = 1;")
    x, y = Duplicated(np.array([1.0, 2.0, 3.0])), Duplicated(np.zeros(3))
    bits = x.primal.view(dtype)[: 8 // np.dtype(dtype).itemsize]
    with Tape():
        y += x
        with pytest.raises(gpuad.ShadowError, match=f"written as {np.dtype(dtype)}"):
            set_bits[1, 32](bits, bits.size)
        if dtype == np.float32:
            with pytest.raises(gpuad.ShadowError, match="written as float32"):
                ops.fill(bits, 0)
            with pytest.raises(gpuad.ShadowError, match="written as float32"):
                ops.put(bits, [0], np.zeros(1, np.float32))


def test_memory_with_a_shadow_is_not_written_as_integers_before_it_is_known() -> None:
    set_bits = kernel_of("long long* d, int n", "if (i < n) d[i] = 0x4000000000000000;")
    x, y = Duplicated(np.array([1.0, 2.0, 3.0])), Duplicated(np.zeros(3))
    with Tape():
        set_bits[1, 4](x.primal.view(np.int64), 2)
        with pytest.raises(gpuad.ShadowError, match="written as int64"):
            y += x


def test_bits_with_a_gradient_are_not_copied_as_integers() -> None:
    """A copy in words of 8 bytes would drop the gradient: y = x^4 had 2 x^3."""
    copy = kernel_of("const long long* a, long long* b, int n", "if (i < n) b[i] = a[i];")
    x, y, b = Duplicated(np.array([1.0, 2.0, 3.0])), Duplicated(np.zeros(3)), np.zeros(3)
    with Tape():
        x *= x
        with pytest.raises(gpuad.ShadowError, match="read bare"):
            copy[1, 4](x.primal.view(np.int64), b.view(np.int64), 3)
    with Tape():
        copy[1, 4](x.primal.view(np.int64), b.view(np.int64), 3)
        with pytest.raises(gpuad.ShadowError, match="without one earlier"):
            y += x


def test_a_shadow_is_no_argument_under_another_type_either() -> None:
    clear = kernel_of("float* d, int n", "if (i < n) d[i] = 0;")
    x = Duplicated(np.array([1.0, 2.0, 3.0]))
    with Tape():
        x *= x
        with pytest.raises(gpuad.ShadowError, match="is a shadow of this recording"):
            clear[1, 4](x.shadow.view(np.float32)[4:], 2)


def test_foreign_code_that_overwrites_a_part_of_an_element_overwrites_the_element() -> None:
    x, y = Duplicated(np.array([1.0, 2.0, 3.0])), Duplicated(np.zeros(3))
    with Tape() as tape:
        half = x.primal.view(np.float32)[2:3]
        y += x
        tape.overwrites(half)
        half[...] = 0
        y += x * 3
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, [4, 1, 4])


# --- second derivatives ---------------------------------------------------------------------------------------------------------------


def square() -> gpuad.Kernel:
    return kernel_of("const double* x, double* y, int n", "if (i < n) y[i] = x[i] * x[i];")


def pair(*values: float) -> Duplicated:
    return Duplicated(np.array(values, float), np.zeros(len(values)))


def test_a_direction_lies_in_memory_of_its_own() -> None:
    """With x as its own direction an in-place kernel left 2 x^2 in x, and the product had the gradient in it."""
    in_place = kernel_of("double* x, int n", "if (i < n) x[i] *= x[i];")
    x, y = pair(1, 2), Duplicated(np.zeros(2), np.array([1.0, 10.0]))
    for direction in (Duplicated(x.primal, np.zeros(2)), Duplicated(np.ones(2), x.shadow), Duplicated(x.shadow, np.zeros(2)), x):
        with pytest.raises(gpuad.ShadowError, match="the direction of `x` lies in"):
            gpuad.hvp(in_place, 1, 4, (x, 2), (direction, None))
        with pytest.raises(gpuad.ShadowError, match="the direction of `x` lies in"):
            gpuad.hvp(square(), 1, 4, (x, y, 2), (direction, pair(0, 0), None))
    np.testing.assert_array_equal(x.primal, [1, 2])
    direction = pair(1, 1)
    gpuad.hvp(square(), 1, 4, (x, y, 2), (direction, pair(0, 0), None))
    np.testing.assert_array_equal(direction.shadow, [2, 20])


def test_directions_are_laid_out_like_the_arguments() -> None:
    x, y = pair(1, 2), pair(0, 0)
    with pytest.raises(gpuad.ShadowError, match="shapes and strides"):
        gpuad.hvp(square(), 1, 4, (x, y, 2), (pair(1), pair(0, 0), None))
    with pytest.raises(gpuad.ShadowError, match="overlap where these do"):
        gpuad.hvp(square(), 1, 4, (x, x, 2), (pair(1, 1), pair(1, 1), None))
    direction, x = pair(1, 1), Duplicated(np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    gpuad.hvp(square(), 1, 4, (x, x, 2), (direction, direction, None))
    np.testing.assert_array_equal(direction.shadow, [2, 20])


def test_second_derivatives_have_one_seed_which_they_take() -> None:
    """The second of two shadows was left out, and a seed to be kept was taken."""
    x, y = (gpuad.BatchDuplicated(np.ones(2), (np.zeros(2), np.zeros(2))) for _ in range(2))
    dots = tuple(gpuad.BatchDuplicated(np.ones(2), (np.zeros(2), np.zeros(2))) for _ in range(2))
    with pytest.raises(gpuad.ShadowError, match="one direction at a time"):
        gpuad.hvp(square(), 1, 4, (x, y, 2), (*dots, None))
    kept = Duplicated(np.zeros(2), np.ones(2), keep=True)
    with pytest.raises(gpuad.ShadowError, match="keep=True has no meaning"):
        gpuad.hvp(square(), 1, 4, (pair(1, 2), kept, 2), (pair(1, 1), pair(0, 0), None))
    np.testing.assert_array_equal(kept.shadow, [1, 1])


# --- shadows and seeds of a tape ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [lambda w, y: ops.multiply(y, w, out=y), lambda w, y: ops.fill(w, 0.0), lambda w, y: ops.matmul(w, y)],
    ids=["read", "set", "rule"],
)
def test_what_an_operation_used_is_no_shadow_later(use: Callable[[Any, Duplicated], Any]) -> None:
    """The reverse of `y *= w` would read w after `y += x` has added to it, as the shadow of x."""
    x, y = Duplicated(np.array([1.0, 2.0]), np.array([3.0, 4.0])), pair(1, 2)
    with Tape():
        use(x.shadow, y)
        with pytest.raises(gpuad.ShadowError, match="was an argument of an operation earlier"):
            y += x


@pytest.mark.parametrize("seed", [None, "1", 1j, pair(1, 2), np.array([None, None])])
def test_a_seed_is_an_array_or_a_number(seed: object) -> None:
    """None was taken for NaN."""
    x = pair(1, 2)
    with Tape() as tape:
        x *= x
    with pytest.raises(gpuad.TapeError, match="No shadow was touched"):
        tape.reverse({x: seed})
    tape.reverse({x: [1, 2]})
    np.testing.assert_array_equal(x.shadow, [2, 8])


def test_seeds_are_a_mapping_and_announced_arrays_are_arguments() -> None:
    x = pair(1, 2)
    with Tape() as tape:
        x *= x
        with pytest.raises(gpuad.TapeError, match="each as an argument"):
            tape.overwrites([x])
    with pytest.raises(gpuad.TapeError, match="seeds are"):
        tape.reverse([(x, 1.0)])  # type: ignore[arg-type]


def test_an_assignment_drops_leading_axes_of_one_element() -> None:
    x, s = pair(1, 2), pair(3)
    with Tape() as tape:
        x[0] = s
        x[1] = np.array([[[5.0]]])
        x *= x
    tape.reverse({x: 1.0})
    np.testing.assert_array_equal(x.primal, [9, 25])
    np.testing.assert_array_equal(x.shadow, [0, 0])
    np.testing.assert_array_equal(s.shadow, [6])


def scaled() -> gpuad.Kernel:
    return kernel_of("double a, const double* x, double* y, int n", "if (i < n) y[i] += a * x[i];")


def test_the_shadow_of_a_number_is_no_argument() -> None:
    """The reverse of `x *= da` read da after a later operation had added to it: 24, not 6."""
    x, da = pair(1, 2), np.array(3.0)
    with Tape():
        x *= da
        with pytest.raises(gpuad.ShadowError, match="was an argument of an operation earlier"):
            x *= gpuad.Active(2.0, da)
    with Tape():
        x *= gpuad.Active(2.0, da)
        with pytest.raises(gpuad.ShadowError, match="is a shadow of this recording"):
            x *= da


@pytest.mark.parametrize("memory", ["primal", "shadow"])
@pytest.mark.parametrize("rule", [False, True])
def test_the_shadow_of_a_number_is_memory_of_its_own_in_all_of_a_recording(memory: str, rule: bool) -> None:
    """A gradient would be added to the primal, or to the gradient of another array."""
    x, y, z = pair(1, 2), pair(5, 6), pair(0, 0)
    square, others = Duplicated(np.ones((2, 2))), Duplicated(np.ones((2, 2)))
    number = gpuad.Active(2.0, getattr(x, memory)[:1].reshape(()))

    def use() -> None:
        if rule:
            ops.gemm(number, square, square, 1.0, others)
        else:
            scaled()[1, 4](number, y, z, 2)

    with Tape():
        x *= x
        with pytest.raises(gpuad.ShadowError, match=r"the shadow of `(a|alpha)` is (primal memory elsewhere|also that of)"):
            use()
    with Tape():
        use()
        with pytest.raises(gpuad.ShadowError, match=r"serves as a shadow|that of a number"):
            x *= x


def test_stopped_memory_is_not_written_where_it_has_a_shadow() -> None:
    """What was in it before reaches the output no longer, but its shadow was not cleared: 15 instead of 1."""
    fill = kernel_of("double* x, int n", "if (i < n) x[i] = 7;")
    x, y = pair(1, 2), pair(0, 0)
    a, b = Duplicated(np.ones((2, 2))), Duplicated(np.ones((2, 2)))
    with Tape() as tape:
        y += x
        b += a
        with pytest.raises(gpuad.ShadowError, match="stopped, but written too"):
            fill[1, 4](gpuad.stop_gradient(x), 2)
        with pytest.raises(gpuad.ShadowError, match="stopped, but written too"):
            ops.fill(gpuad.stop_gradient(x.primal[:1]), 7.0)
        with pytest.raises(gpuad.ShadowError, match="stopped, but written too"):
            ops.matmul(np.ones((2, 2)), np.ones((2, 2)), out=gpuad.stop_gradient(a))
        fill[1, 4](x.primal, 2)
        y += x * x
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, [1, 1])


def test_a_number_of_numpy_is_no_output() -> None:
    x, s = pair(1, 2), pair(3)
    with Tape():
        for number in (np.float64(1), 1.0):
            with pytest.raises(TypeError, match=r"axpy: out is no array|axpy takes arrays, not float"):
                ops.axpy(2.0, s[0], number)
            with pytest.raises(TypeError, match="out is no array"):
                ops.matmul(x, x, out=number)

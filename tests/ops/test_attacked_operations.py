"""Array operations where they were attacked last: what is said of an operand that is the output too, slopes that are infinite, indices and
shapes as NumPy means them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Const, Duplicated, ElementwiseKernel, ReductionKernel, ShadowError, Tape, ops, pipeline, stop_gradient
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.testing import check_gradient

HOST, REFERENCE = Host(), Reference()
RNG = np.random.default_rng(15)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


def pair(array: Any) -> Duplicated:
    return Duplicated(array, np.zeros_like(array))


IN_PLACE: list[Callable[..., Any]] = [
    ops.multiply, ops.add, ops.subtract, ops.divide, lambda x, y, out: ops.copyto(out, x), lambda x, y, out: ops.axpy(y, x, out),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(IN_PLACE)))
def test_a_complex_operand_that_is_stopped_is_not_the_output(number: int) -> None:
    """The operand and the output are the same numbers; what comes through the operand is dropped, as it is from a copy of it."""
    start, factor = normal(3), normal(3)
    found = []
    for apart in (False, True):
        z, y = pair(start.copy()), pair(factor.copy())
        tape = Tape()
        with tape:
            IN_PLACE[number](stop_gradient(start.copy() if apart else z), y, out=z)
        tape.reverse({z: 1.0}, allow_unused=True)  # a copy of what is stopped is nobody's
        found.append((z.primal, z.shadow, y.shadow))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


@pytest.mark.parametrize("said", [lambda z: z.primal, Const, lambda z: Duplicated(z.primal, np.zeros_like(z.primal))])
def test_a_complex_operand_that_is_the_output_by_another_name_is_refused(said: Any) -> None:
    z, y = pair(normal(3)), pair(normal(3))
    before = z.primal.copy()
    with pytest.raises(ShadowError), Tape():
        ops.multiply(said(z), y, out=z)
    np.testing.assert_array_equal(z.primal, before)


@pytest.mark.parametrize("name", ["sqrt", "log", "reciprocal", "divide"])
@pytest.mark.parametrize("dtype", [float, complex])
def test_an_infinite_slope_gives_nothing_for_a_seed_of_zero(name: str, dtype: Any) -> None:
    z, one = pair(np.array([0, 4], dtype)), pair(np.ones(2, dtype))
    tape = Tape()
    with tape, np.errstate(all="ignore"):
        y = ops.divide(one, z) if name == "divide" else getattr(ops, name)(z)
    with np.errstate(all="ignore"):
        tape.reverse({y: np.array([0, 1], dtype)})
    want = {"sqrt": 0.25, "log": 0.25, "reciprocal": -1 / 16, "divide": -1 / 16}[name]
    np.testing.assert_allclose(z.shadow, [0, want])
    np.testing.assert_allclose(one.shadow, [0, 0.25 if name == "divide" else 0])


def test_a_complex_number_is_not_put_into_a_real_array() -> None:
    x = pair(np.ones(3))
    with pytest.raises(TypeError, match="cannot cast"), Tape():
        ops.fill(x, 1j)


def test_truths_as_indices_are_numbers() -> None:
    truths = np.array([True, False, True])
    for axis in (None, 0):
        x = pair(np.arange(3.0) + 1)
        tape = Tape()
        with tape:
            y = ops.take(x, truths, axis=axis)
        tape.reverse({y: np.array([1.0, 10, 100])})
        np.testing.assert_array_equal(y.primal, np.take(x.primal, truths, axis=axis))
        np.testing.assert_array_equal(x.shadow, [10, 101, 0])


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2,), (1,), (), (4, 1), (2, 2)])
def test_values_are_put_in_flat_order(shape: tuple[int, ...]) -> None:
    where, values = np.array([[3, 0], [1, 5]]), np.asarray(RNG.normal(size=shape))
    expected = np.arange(6.0)
    np.put(expected, where, values)
    x, v = pair(np.arange(6.0)), pair(values[::-1].copy() if values.ndim else values)
    seed = RNG.normal(size=6)
    tape = Tape()
    with tape:
        ops.put(x, where, v[::-1] if values.ndim else v)
    tape.reverse({x: seed})
    np.testing.assert_array_equal(x.primal, expected)
    np.testing.assert_array_equal(x.shadow, np.where(np.isin(np.arange(6), where), 0, seed))
    wanted = np.zeros(values.size)
    np.add.at(wanted, np.arange(4) % values.size, seed[where.ravel()])
    found = v.shadow[::-1] if values.ndim else v.shadow
    np.testing.assert_allclose(found, wanted.reshape(values.shape))


def test_a_broadcast_array_without_elements_has_the_shape() -> None:
    x = pair(np.zeros((0, 1)))
    assert ops.broadcast_to(x, (2, 0, 5)).shape == ops.broadcast_to(x, (2, 0, 5)).shadow.shape == (2, 0, 5)


def test_a_product_in_a_wider_type_has_a_gradient_in_it() -> None:
    x = pair(np.array([1e30, 1e30, 1e-10], np.float32))
    tape = Tape()
    with tape:
        y = ops.prod(x, dtype=np.float64)
    tape.reverse({y: 1e-40})
    np.testing.assert_allclose(x.shadow, [1e-20, 1e-20, 1e20], rtol=1e-6)


def test_a_seed_is_not_kept_by_a_rule() -> None:
    x, y = Duplicated(np.ones(3), keep=True), pair(np.ones(3))
    for program in (lambda: ops.cumsum(y, out=x), lambda: ops.cumsum(x, out=y)):
        with pytest.raises(ShadowError, match="keep=True"), Tape():
            program()


def test_checking_a_reduction_of_no_elements() -> None:
    kernel = ReductionKernel("T x", "T y", "x * x", "a + b", "y = y * a", "2", "nothing_to_reduce")
    assert check_gradient(kernel, (Duplicated(np.ones((3, 0))), Duplicated(np.ones(3))), axis=1).passed


def test_checking_a_number_of_fewer_digits() -> None:
    kernel = ElementwiseKernel("T x, float32 a", "T y", "y = x * a * a", "scaled_by_a_single")
    report = check_gradient(kernel, (Duplicated(np.ones(5)), Active(1.3, np.zeros((), np.float32)), Duplicated(np.ones(5))))
    assert report.passed
    assert any("float32" in note for note in report.notes)


@pytest.mark.parametrize("high", [np.ones(4), 1j, "1", np.ones((2, 3))])
def test_a_clip_that_is_refused_has_written_nothing(high: Any) -> None:
    x = pair(np.array([-2.0, 0.0, 2.0]))
    with pytest.raises((TypeError, ValueError, gpuad.UnsupportedError)), Tape():
        ops.clip(x, -1.0, high, out=x)
    np.testing.assert_array_equal(x.primal, [-2, 0, 2])


def test_the_mean_of_halves_that_have_no_sum() -> None:
    assert ops.mean(np.full(10, 60000, np.float16)) == np.mean(np.full(10, 60000, np.float16))


# --- races of indices that go at different paces ------------------------------------------------------------------------------------------


def launched(body: str, n: int = 8, threads: int = 8) -> tuple[Any, Any]:
    text = 'extern "C" __global__ void k(double* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n' + body + "}"
    x = Duplicated(np.arange(1.0, 33), np.ones(32))
    with pipeline.executor_for_tests(HOST):
        gpuad.autodiff(gpuad.kernel(text, "k"), (-(-threads // 4),), (4,), (x, n))
    return x.primal, x.shadow


@pytest.mark.parametrize(
    "body",
    [
        "if (i < n) x[i] = x[n - 1 - i] * 2;", "if (i < n) x[n - 1 - i] = x[i] * 2;", "if (i < n) x[i] = x[2 * i];",
        "if (i < n) x[3 * i] = x[2 * i + 1];", "if (i <= n / 2) x[i] += x[n - 1 - i];",
        "double s = 0; for (int j = 0; j < n; ++j) s += x[j]; if (i < n) x[i] = s;",
        "double s = 0; for (int j = n - 1; j >= 0; j -= 3) s = s * x[j]; if (i < n) x[i] = s;",
    ],
)  # fmt: skip
def test_a_race_of_indices_at_different_paces_is_refused(body: str) -> None:
    with pytest.raises(gpuad.UnsupportedError, match="a data race"):
        launched(body)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("body", "n", "threads"),
    [
        ("if (i < n / 2) { double t = x[i]; x[i] = x[n - 1 - i]; x[n - 1 - i] = t * t; }", 9, 8),
        ("if (i <= n / 2) x[i] += x[n - 1 - i];", 9, 8),
        ("if (i < n / 2) x[i] = x[n - 1 - i];", 8, 8),
        ("if (i < n) x[2 * i + 1] = x[4 * i];", 8, 8),
        ("if (i < n) x[i] = x[2 * i + n];", 8, 8),
        ("double s = 0; for (int j = n; j < 2 * n; ++j) s += x[j] * x[j]; if (i < n) x[i] *= s;", 8, 8),
        ("if (i < 1) { double s = 0; for (int j = 0; j < n; ++j) s += x[j]; x[i] = s; }", 8, 8),
    ],
)
def test_indices_at_different_paces_that_do_not_meet(body: str, n: int, threads: int) -> None:
    before = np.arange(1.0, 33)
    primal, shadow = launched(body, n, threads)
    for place in range(32):
        moved = []
        for h in (1e-6, -1e-6):
            text = 'extern "C" __global__ void k(double* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n' + body + "}"
            x = before.copy()
            x[place] += h
            with pipeline.executor_for_tests(REFERENCE):
                gpuad.kernel(text, "k")((-(-threads // 4),), (4,), (x, n))
            moved.append(x.sum())
        assert (moved[0] - moved[1]) / 2e-6 == pytest.approx(shadow[place], rel=1e-6, abs=1e-6)
    assert np.isfinite(primal).all()


def test_checking_what_is_read_only_says_so() -> None:
    x = np.ones(4)
    x.setflags(write=False)
    kernel = ElementwiseKernel("T x", "T y", "y = x * x", "squared_of_read_only")
    with pytest.raises(TypeError, match="read-only"):
        check_gradient(kernel, (Duplicated(x), Duplicated(np.ones(4))))

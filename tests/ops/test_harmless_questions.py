"""A pair answers what plain code asks of an array and what loses no gradient; what would lose one is refused. A number with a gradient is
an array of shape () wherever an operation takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_ops_numpy import check, numbers

import gpuad
from gpuad import Active, Duplicated, ShadowError, Tape, TapeError

X, Z = numbers(3, 4), numbers(3, 4, dtype=complex)

SCALE = gpuad.kernel(
    'extern "C" __global__ void scale(double* y, const double* x, int n) { int i = threadIdx.x; if (i < n) y[i] = 3.0 * x[i] * x[i]; }',
    "scale",
)


def pair(array: Any) -> Duplicated:
    return Duplicated(array.copy(), np.zeros_like(array))


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "flags": lambda x: (x.flags.c_contiguous, x.flags["F_CONTIGUOUS"], x.T.flags.f_contiguous),
    "strides": lambda x: (x.strides, x.itemsize, x.nbytes, x.mT.shape),
    "shape": lambda x: (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1)),
    "argmax": lambda x: (np.argmax(x), x.argmin(axis=1).tolist(), np.argsort(x, axis=0).tolist(), np.nonzero(x > 0)[0].tolist()),
    "truths": lambda x: (np.isnan(x).any(), np.isfinite(x).all(), x.any(), x.all(axis=0).tolist(), np.count_nonzero(x), bool(x[0, 0])),
    "comparisons": lambda x: (np.logical_and(x > 0, x < 0.5).tolist(), np.logical_not(x).tolist(), np.isclose(x, X).all(), X[1, 2] in x),
    "equal": lambda x: (np.allclose(x, x), np.array_equal(x, X), np.array_equiv(x, X + 1)),
    "types": lambda x: (np.iscomplexobj(x), np.result_type(x, np.float32), np.can_cast(x.dtype, int), np.isreal(x).all()),
    "whole numbers": lambda x: (x.astype(np.int32).tolist(), x.astype(bool).sum(), int(x[0, 0])),
    "quotients": lambda x: ((x // 0.3).tolist(), np.floor_divide(2.0, x).tolist()),
    "places": lambda x: (np.searchsorted(np.sort(X[0]), x[1]).tolist(), np.digitize(x, [0.0, 0.5]).tolist()),
    "parts": lambda x: (x.imag.tolist(), np.imag(x).tolist()),
    "shown": lambda x: (np.array_str(x), np.array_repr(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions(name: str) -> None:
    ask = QUESTIONS[name]
    expected = ask(X.copy())
    assert str(ask(pair(X))) == str(expected)
    with Tape():
        assert str(ask(pair(X))) == str(expected)


@pytest.mark.parametrize(
    "use", [float, complex, lambda x: x.item(), lambda x: x.tolist(), lambda x: x.get(), np.asarray, lambda x: np.array([x])]
)
def test_what_would_lose_the_gradient_is_refused(use: Any) -> None:
    for x in (pair(np.array(X[0, 0])), pair(X[0, :1])):
        with Tape(), pytest.raises((TypeError, AttributeError), match=r"\.primal"):
            use(x)
    with Tape(), pytest.raises((TypeError, AttributeError)):
        np.ones(3)[1:2] = pair(X[0, :1])


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (lambda x: sum(row * row[::-1] for row in x), (X,)),
    "unpacked": (lambda x: x[0] * [*x][2] + max(x[0]), (X,)),
    "reshape that copies": (lambda x: x.T.reshape(2, 6) * np.arange(6.0), (X,)),
    "reshape in Fortran's order": (lambda x: x.reshape(2, 6, order="F") * np.arange(6.0), (X,)),
    "np.reshape": (lambda x: np.reshape(x, (2, -1), order="F") * np.arange(6.0), (X,)),
    "ravel": (lambda x: x.ravel(order="F") * np.arange(12.0) + np.ravel(x.T) + x.flatten("F"), (X,)),
    "copy": (lambda x: np.copy(x.T) * x.T.copy(order="F"), (X,)),
    "astype": (lambda x: x.astype(float, copy=False, order="C") * x.astype(np.float64, order="F"), (X,)),
    "view": (lambda z: z.view(float) * np.arange(8.0), (Z,)),
    "view back": (lambda x: x.view(complex) ** 2, (X,)),
    "parts": (lambda z: z.real * z.imag + np.real(z * z), (Z,)),
    "conjugate product": (lambda z: (z.conj() * z).real, (Z,)),
    "ufunc methods": (lambda x: np.add.reduce(x) * np.multiply.reduce(x, axis=0) + np.maximum.reduce(x), (X,)),
    "accumulate": (lambda x: np.add.accumulate(x, axis=1) * np.multiply.outer(x[:, 0], x[0]), (X,)),
    "keywords of NumPy": (lambda x: np.clip(x, a_min=-0.3, a_max=0.4) + np.sum(a=x, axis=0), (X,)),
}  # fmt: skip


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_answers_have_gradients(name: str) -> None:
    program, arrays = PROGRAMS[name]
    check(program, lambda *a: np.asarray(program(*a)), *arrays)


def test_complex_to_real_warns_and_takes_the_real_part() -> None:
    z, x, tape = pair(Z), pair(X), Tape()
    with tape, pytest.warns(np.exceptions.ComplexWarning):
        y = (z * 1j).astype(float)
    tape.reverse({y: X})
    np.testing.assert_allclose(z.shadow, -1j * X)
    with tape, pytest.warns(np.exceptions.ComplexWarning):
        x[...] = z * 2
    tape.reverse({x: X})
    np.testing.assert_array_equal(x.primal, 2 * Z.real)
    np.testing.assert_allclose(z.shadow, 2 * X - 1j * X)
    with tape, pytest.raises(TypeError, match="cannot cast"):
        np.copyto(x, z)


def test_a_complex_array_is_handed_to_a_kernel_as_real_numbers() -> None:
    z, tape = pair(Z[0]), Tape()
    w = pair(np.zeros(4, complex))
    with tape:
        SCALE[1, 32](w.view(np.float64), z.view(np.float64), 8)
    tape.reverse({w: 1 + 2j})
    np.testing.assert_allclose(z.shadow, 6 * Z[0].real + 12j * Z[0].imag)
    with pytest.raises(ShadowError, match="bits"):
        z.view(np.float32)


def value(v: Any) -> Any:
    x = np.arange(3.0)
    total = (v * v - v / 3 + 2**v) * np.exp(-v) + v**3 + abs(-v)
    total = total + (x * v).sum() + np.sum(np.stack([v * x, x])) * np.sin(v) + (x @ (v * x)) + (np.hypot(v, 1.0) if v > 0 else 0 * v)
    return total + np.sum(x * v + (1j * x * v).imag) + np.outer(x, x).sum() * v + np.tile(v, 3).sum() + np.diff(v * x).sum()


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_number_as_parameter(shape: tuple[int, ...]) -> None:
    gradient, tape, h = np.zeros(shape), Tape(), 1e-6
    for _ in range(2):
        gradient[...] = 0
        v = Active(0.7, gradient)
        with tape:
            loss = value(v)
        tape.reverse({loss: 2.0})
        assert float(loss.primal) == pytest.approx(value(0.7), rel=1e-13)
        assert float(gradient.reshape(())) == pytest.approx((value(0.7 + h) - value(0.7 - h)) / h, rel=1e-8)
    with pytest.raises(TapeError, match="outside of a tape"):
        v * v
    with Tape(), pytest.raises(TypeError, match=r"Active\.many"):
        Active((1.0, 2.0), np.zeros(2)) * 2.0


def test_a_number_keeps_its_type() -> None:
    with Tape():
        v = Active(np.float32(2.0), np.zeros((), np.float32))
        assert (v * v).dtype == np.float32 and (v * np.ones(2, np.float32)).dtype == np.float32 and np.shape(v) == ()


def test_lists_are_assigned() -> None:
    x, tape = pair(X), Tape()
    with tape:
        x[0] = [1, 2, 3, 4]
        y = x * x
    tape.reverse({y: 1.0})
    np.testing.assert_allclose(x.shadow[1:], 2 * X[1:])
    assert not x.shadow[0].any()

"""Programs and kernels that were once answered wrongly, each with its own answer."""

from __future__ import annotations

import numpy as np
import pytest

from gpuad import Duplicated, Tape, ops


def test_a_reduction_over_an_axis_that_there_is_not_is_an_error() -> None:
    x = Duplicated(np.array([1.0, 2.0, 3.0]))
    with Tape():
        for reduce in (ops.sum, ops.mean):
            with pytest.raises(np.exceptions.AxisError):
                reduce(x, axis=1)
            with pytest.raises(np.exceptions.AxisError):
                reduce(x, axis=-2)
            with pytest.raises(ValueError, match="twice"):
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
            ops.sum(x, out=np.zeros((), int))


def test_nothing_is_sorted() -> None:
    x = Duplicated(np.zeros((0, 3)))
    with Tape() as tape:
        y = ops.sort(x)
    tape.reverse({y: 1.0})
    assert y.shape == x.shadow.shape == (0, 3)

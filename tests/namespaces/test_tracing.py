"""`gpuad.trace` and `gpuad.value_and_grad`: names are put back, whatever happens; arguments and results of every kind."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy
import numpy as np
import pytest
from numpy import zeros

import gpuad
from gpuad import Duplicated, GpuadError, Tape


def accumulated(x: Any, n: int) -> Any:
    y = zeros(x.shape)
    for k in range(n):
        y[k] = np.sum(x[: k + 1] ** 2)
    return np.asarray(y)


def loss(x: Any, scale: float, n: int = 3) -> Any:
    return accumulated(x, n).sum() * scale


def failing(x: Any) -> Any:
    assert np.__name__ == "gpuad.numpy"
    raise KeyError("in the middle")


class Model:
    """Holds what it works with."""

    def __init__(self, width: int) -> None:
        self.weights = np.arange(1.0, width + 1)

    def loss(self, x: Any) -> Any:
        hidden = np.empty((2, len(x)))
        hidden[0] = x * self.weights
        hidden[1] = np.tanh(hidden[0])
        return (hidden[0] * hidden[1]).sum()


def test_names_are_there_for_the_time_of_a_call() -> None:
    x, tape = Duplicated(np.array([1.0, 2.0, 3.0])), Tape()
    with tape:
        with pytest.raises((GpuadError, ValueError)):  # NumPy puts an error of its own before ours
            accumulated(x, 3)
        y = gpuad.trace(accumulated)(x, 3)
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, [6, 8, 6])
    assert np is numpy and zeros is numpy.zeros


def test_names_are_put_back_by_an_exception_and_after_a_call_inside_a_call() -> None:
    with pytest.raises(KeyError):
        gpuad.trace(failing)(1.0)
    assert np is numpy
    inner = gpuad.trace(lambda x: np.zeros(2) + x)

    def outer(x: Any) -> Any:
        found = inner(x)
        assert np.__name__ == "gpuad.numpy"
        return found

    with Tape():
        assert gpuad.trace(outer)(1.0).shape == (2,)
    assert np is numpy


def test_modules_of_a_program_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    helper: Any = types.ModuleType("helper_of_a_program")
    helper.__file__ = "helper_of_a_program.py"
    monkeypatch.setitem(sys.modules, helper.__name__, helper)
    exec(
        "import numpy\nfrom numpy import linalg as la\ndef filled(x):\n    y = numpy.zeros(2)\n    y[0] = la.norm(x)\n    return y",
        vars(helper),
    )
    program: Any = types.ModuleType("program_of_a_user")
    program.__file__ = "program_of_a_user.py"
    exec("import helper_of_a_program as h\ndef loss(x):\n    return h.filled(x).sum()", vars(program))
    value, gradient = gpuad.value_and_grad(program.loss)(np.array([3.0, 4.0]))
    assert value == 5.0 and helper.numpy is numpy
    np.testing.assert_allclose(gradient, [0.6, 0.8])


def test_value_and_gradients() -> None:
    x = np.array([1.0, 2.0, 3.0])
    value, gradient = gpuad.value_and_grad(loss)(x, 2.0)
    assert value == 2 * (1 + 5 + 14) and type(value) is float
    np.testing.assert_array_equal(gradient, 2 * np.array([6, 8, 6]))
    both = gpuad.value_and_grad(loss, (0, 1))
    for _ in range(2):
        value, (dx, ds) = both(x, 2.0, n=2)
        np.testing.assert_array_equal(dx, 2 * np.array([4, 4, 0]))
        assert ds == 6.0 and type(ds) is float
    assert gpuad.value_and_grad(loss, 1)(x, 2.0)[1] == 20.0
    assert gpuad.value_and_grad(loss, [1])(x, 2.0)[1] == (20.0,)


def test_other_values_shapes_and_pairs() -> None:
    function = gpuad.value_and_grad(loss, 0)
    for x in (np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0, 1.0]), np.ones(5), np.ones(3, np.float32)):
        gradient = function(x, 1.0)[1]
        assert gradient.dtype == x.dtype and gradient.shape == x.shape
        np.testing.assert_allclose(gradient[:3], x[:3] * [6, 4, 2])
    kept = np.zeros(3)
    x = np.array([1.0, 2.0, 3.0])
    assert function(Duplicated(x, kept), 1.0)[1] is kept
    np.testing.assert_array_equal(kept, [6, 8, 6])
    function(Duplicated(x, kept), 1.0)
    np.testing.assert_array_equal(kept, [12, 16, 12])


def test_a_method_and_an_object_that_was_made_before() -> None:
    model, x = Model(3), np.array([0.1, 0.2, 0.3])
    gradient = gpuad.value_and_grad(model.loss)(x)[1]
    h = x * model.weights
    np.testing.assert_allclose(gradient, model.weights * (np.tanh(h) + h / np.cosh(h) ** 2))


def test_within_a_budget() -> None:
    function = gpuad.value_and_grad(loss, 0, budget="1 MiB")
    np.testing.assert_array_equal(function(np.array([1.0, 2.0, 3.0]), 1.0)[1], [6, 8, 6])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gpuad.trace(3), "takes a function"),
        (lambda: gpuad.value_and_grad(3), "takes a function"),
        (lambda: gpuad.value_and_grad(loss, "x"), "argnums"),
        (lambda: gpuad.value_and_grad(loss, 5)(np.ones(3), 1.0), "argnums"),
        (lambda: gpuad.value_and_grad(loss)([1.0, 2.0], 1.0), "no argument is an array"),
        (lambda: gpuad.value_and_grad(loss, 0)(np.arange(3), 1.0), "no array of floats"),
        (lambda: gpuad.value_and_grad(accumulated)(np.ones(3), 3), "one real number"),
        (lambda: gpuad.value_and_grad(lambda x: 3.0)(np.ones(3)), "one real number"),
        (lambda: gpuad.value_and_grad(lambda x: x.primal.sum())(np.ones(3)), "one real number"),
    ],
)
def test_what_is_refused(call: Any, words: str) -> None:
    with pytest.raises(GpuadError, match=words):
        call()


def test_inside_of_a_tape_it_is_refused() -> None:
    with Tape(), pytest.raises(gpuad.TapeError, match="inside of a tape"):
        gpuad.value_and_grad(loss)(np.ones(3), 1.0)

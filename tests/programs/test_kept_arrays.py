"""Programs that keep arrays: from before the tape, from constructors, from other rounds; programs that end in an exception in the middle of
a round. Gradients are those of central differences, or the program is refused in words; from the round after the last change on nothing is
recorded anew."""

from __future__ import annotations

import types
from typing import Any

import numpy
import pytest
from tape_tools import nothing_is_analysed

from gpuad import Duplicated, GpuadError, Tape

PROGRAM = """
import numpy as np

class Solver:
    def __init__(self, n, early):
        self.guess, self.work, self.fails = None, np.zeros(n) if early else None, False
        self.history = []

    def smooth(self, x):
        if self.work is None:
            self.work = np.zeros(len(x))
        self.work[1:-1] = 0.5 * x[1:-1] + 0.25 * (x[2:] + x[:-2])
        self.work[0], self.work[-1] = x[0], x[-1]
        if self.fails:
            raise KeyError("in the middle")
        return self.work * x

    def relax(self, x, times):
        u = np.zeros(len(x)) if self.guess is None else self.guess
        for _ in range(times):
            u = u - 0.3 * (u * u * u + u - x)
        self.guess = u.copy()
        return u

def smoothed(x, solver):
    return np.sum(solver.smooth(x)) + np.sum(np.square(solver.work))

def warm(x, solver):
    return np.sum(np.square(solver.relax(x, 3)))

def logged(x, solver):
    y = solver.smooth(x)
    solver.history.append(y)
    return np.sum(y * x) + 0.0 * len(solver.history)
"""
X = numpy.linspace(0.2, 1.1, 7)


def program(library: str = "gpuad.numpy") -> Any:
    module: Any = types.ModuleType("program")
    exec(PROGRAM.replace("import numpy", f"import {library}"), vars(module))
    return module


def differences(function: Any, h: float = 1e-6) -> Any:
    return numpy.array([(function(X + h * e) - function(X - h * e)) / (2 * h) for e in numpy.eye(len(X))])


def gradient(tape: Tape, loss: Any, solver: Any, known: bool) -> Any:
    x = Duplicated(X.copy())

    def run() -> None:
        with tape:
            value = loss(x, solver)
        tape.reverse({value: 1.0})

    if known:
        with nothing_is_analysed():
            run()
    else:
        run()
    return x.shadow


@pytest.mark.parametrize("loss", ["smoothed", "logged"])
def test_an_array_that_is_made_once_and_kept(loss: str) -> None:
    """It is made by the first round alone, so the second one is another program."""
    module, plain, tape = program(), program("numpy"), Tape()
    solver = module.Solver(7, early=False)
    expected = differences(lambda x: getattr(plain, loss)(x, plain.Solver(7, early=False)))
    for number in range(5):
        numpy.testing.assert_allclose(gradient(tape, getattr(module, loss), solver, number > 2), expected, rtol=1e-8)
    if loss == "logged":
        for kept in solver.history:  # each round's own
            numpy.testing.assert_allclose(kept.primal, plain.Solver(7, early=False).smooth(X))


def test_a_state_of_the_last_round_is_refused_in_words_and_may_be_handed_over() -> None:
    """Its gradient belongs to a round that is over. As an array the state is where the next round begins, and the gradient is that of the
    program with the state as it is then."""
    module, plain, tape = program(), program("numpy"), Tape()
    solver, other = module.Solver(7, early=True), plain.Solver(7, early=True)
    for number in range(6):

        def from_there(x: Any, guess: Any = other.guess) -> Any:
            fresh = plain.Solver(7, early=True)
            fresh.guess = guess
            return plain.warm(x, fresh)

        expected = differences(from_there)
        plain.warm(X, other)
        if number:
            kept = solver.guess
            with pytest.raises(GpuadError, match=r"a temporary of an earlier recording.*which begins anew"):
                gradient(tape, module.warm, solver, False)
            solver.guess = kept.primal
        numpy.testing.assert_allclose(gradient(tape, module.warm, solver, False), expected, rtol=1e-7, atol=1e-9)
        numpy.testing.assert_allclose(solver.guess.primal, other.guess)


def test_an_array_from_before_the_tape_is_refused_in_words() -> None:
    module = program()
    solver, x = module.Solver(7, early=True), Duplicated(X.copy())
    with pytest.raises((GpuadError, ValueError), match=r"(?s)shadow|gradient|Duplicated|pair"), Tape():
        module.smoothed(x, solver)
    assert not x.shadow.any() and isinstance(solver.work, numpy.ndarray)


@pytest.mark.parametrize("budget", [None, "1 MiB"])
def test_an_exception_in_the_middle(budget: str | None) -> None:
    module, plain, tape = program(), program("numpy"), Tape(budget=budget)
    expected = differences(lambda x: plain.smoothed(x, plain.Solver(7, early=False)))
    solver = module.Solver(7, early=False)
    for number in range(7):
        solver.fails = number in (1, 4)
        if solver.fails:
            x = Duplicated(X.copy())
            with pytest.raises(KeyError), tape:
                module.smoothed(x, solver)
            assert not x.shadow.any()
        else:
            numpy.testing.assert_allclose(gradient(tape, module.smoothed, solver, number > 4), expected, rtol=1e-8)

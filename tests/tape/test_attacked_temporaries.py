"""What a program's operations make, and what others still have of it: other tapes, the caller's own code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running

import gpuad
from gpuad import Duplicated, Tape, ops

N = 6


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with running("host"):
        yield


def pair(start: float = 0.0) -> Duplicated:
    return Duplicated(start + np.arange(N) / 8, np.zeros(N))


# --- arrays that operations made ---------------------------------------------------------------------------------------------------------


def test_another_tape_has_what_a_tape_made() -> None:
    """What the first tape made is an operand of the second, which makes arrays itself: it stays until that one is reversed."""
    one, two, x, w = Tape(), Tape(), pair(), pair(1.0)
    for turn in range(6):
        x.primal[...], w.shadow[...] = turn + np.arange(N) / 8, 0.0
        with one:
            y = ops.sin(x * 3.0)
        with two:
            loss = ops.sum(w * y * w)
        x.primal[...] += 1.0
        with one:
            ops.sin(x * 3.0)
        two.reverse({loss: 1.0})
        expected = np.sin(3.0 * (turn + np.arange(N) / 8))
        assert np.allclose(y.primal, expected, rtol=1e-15)  # sines of two libraries
        assert np.allclose(w.shadow, 2 * w.primal * expected, rtol=1e-14)
        assert np.allclose(y.shadow, w.primal**2, rtol=1e-14)


KEPT: list[Any] = []


def double_adjoint(dx: Any, dy: Any) -> None:
    if dx is not None:
        dx += 2 * dy


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=double_adjoint)
def double(x: Any, y: Any) -> None:
    KEPT.append(x)
    y[...] = 2 * x


@pytest.mark.parametrize("view", [False, True])
def test_a_rule_keeps_what_it_was_given(view: bool) -> None:
    KEPT.clear()
    tape, x, y = Tape(), pair(), pair()
    for turn in range(5):
        x.primal[...], x.shadow[...] = turn + np.arange(N) / 8, 0.0
        with tape:
            made = x * 3.0
            double(made[::-1] if view else made, y)
            loss = ops.sum(y * y)
        tape.reverse({loss: 1.0})
        assert np.allclose(x.shadow, 72 * x.primal, rtol=1e-14)
        del made, loss
    for turn, kept in enumerate(KEPT):
        expected = 3.0 * (turn + np.arange(N) / 8)
        assert np.array_equal(kept, expected[::-1] if view else expected)

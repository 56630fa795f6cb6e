"""What a program's operations make, and what others still have of it: other tapes, the caller's own code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from launch_tools import running

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
        assert np.array_equal(y.primal, expected)
        assert np.allclose(w.shadow, 2 * w.primal * expected, rtol=1e-14)
        assert np.allclose(y.shadow, w.primal**2, rtol=1e-14)

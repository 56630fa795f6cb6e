"""A launch in the words of an earlier one is made at once; whatever could make a difference is noticed each time."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from test_specialization_key import SOURCE

import gpuad
from gpuad import LaunchError, api
from gpuad.api.call_replay import CallReplay
from gpuad.api.specialization_key import Ready

pytestmark = pytest.mark.cpu  # another executor's calls are not replayed

N = 6


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with running("host"):
        yield


def warm(name: str, *args: Any) -> Any:
    """A kernel that knows a launch in these words."""
    launch = gpuad.kernel(SOURCE, name)[1, 8]
    for _ in range(4):
        launch(*args)
    return launch


def test_the_same_words_are_not_looked_at_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    y, x = np.zeros(N), np.arange(N, dtype=float)
    launch = warm("shift", y, x, 2.0, N)
    monkeypatch.setattr(Ready, "memory", lambda *_: pytest.fail("it was looked at closer"))
    y[...] = 0
    launch(y, x, 2.0, N)
    for a in (2.0, float("2.5"), -0.0, 1e300):
        before = y.copy()
        launch(y, x, a, N)
        assert np.array_equal(y, a * x + before)


def test_numbers() -> None:
    y = np.zeros(N, np.float32)
    launch = warm("narrow", y, 1.0, N)
    launch(y, float("-0.0"), N)
    assert np.signbit(y).all()
    with pytest.raises(LaunchError, match="cannot hold"):
        launch(y, 1e39, N)
    with pytest.raises(LaunchError, match="8 bytes"):
        launch(y, np.float64(1.0), N)
    launch(y, np.float32(0.1), N)
    assert (y == np.float32(0.1)).all()
    launch(y, 3, N)
    assert (y == 3).all()
    launch(y, 2.0, 4)
    assert y.tolist() == [2, 2, 2, 2, 3, 3]
    with pytest.raises(LaunchError, match="no whole number"):
        launch(y, 1.0, 6.5)


def test_geometry() -> None:
    y, launch = np.zeros(N), gpuad.kernel(SOURCE, "whole")
    for _ in range(4):
        launch(1, 8, (y, N))
    y[...] = 0
    launch(1, 3, (y, N))
    assert np.flatnonzero(y).tolist() == [0, 1, 2]
    launch((1,), (4, 1), (y, N))
    assert np.flatnonzero(y).tolist() == [0, 1, 2, 3]
    for grid, block in ((-1, 8), (1, 1025), ((1, -2), 8), (1.0, 8)):
        with pytest.raises((LaunchError, TypeError)):
            launch(grid, block, (y, N))


def test_an_array_that_becomes_another_one() -> None:
    y = np.zeros(2 * N)
    launch = warm("whole", y, N)
    y.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        launch(y, N)
    y.flags.writeable = True
    launch(y, N)
    y.resize(4 * N, refcheck=False)
    y[...] = 0
    launch(y, N)
    assert y[:N].all() and not y[N:].any()
    y.resize(3, refcheck=False)
    with pytest.raises(LaunchError, match="its memory ends"):
        launch(y, N)


def test_a_view_of_memory_that_becomes_another_one() -> None:
    """How far a kernel may go beyond its view is a matter of the allocation."""
    room = np.zeros(2 * N)
    y = room[:N]
    launch = gpuad.kernel(SOURCE, "beyond")[1, 4]
    for _ in range(4):
        launch(y, 8)  # to element 11
    assert np.flatnonzero(room).tolist() == [8, 9, 10, 11]
    with pytest.raises(LaunchError, match="its memory ends"):
        launch(y, 9)
    with pytest.raises(LaunchError, match="its memory ends"):
        launch(room[1 : N + 1], 8)


def test_no_array_is_kept_alive() -> None:
    y, x = np.zeros(N), np.ones(N)
    seen = [weakref.ref(a) for a in (y, x)]
    launch = warm("shift", y, x, 1.0, N)
    del y, x
    gc.collect()
    assert all(ref() is None for ref in seen) and launch is not None


def test_another_executor() -> None:
    """The compiled code of one executor is not that of another."""
    y, x = np.zeros(N), np.ones(N)
    launch = warm("shift", y, x, 1.0, N)
    with running("reference"):
        launch(y, x, 1.0, N)
    assert np.array_equal(y, np.full(N, 5.0))


def views(r: random.Random, bases: list[Any]) -> Any:
    """An array that is there all along, a view of one, or a new one, which will get the place of another before long."""
    base = r.choice(bases)
    return r.choice([
        *[lambda: base] * 6, lambda: base[:12], lambda: base[12:], lambda: base[::2], lambda: np.full(24, 0.5),
        lambda: np.full(12, 0.25), lambda: np.full(12, 0.25, np.float32), lambda: np.full(24, 0.5)[6:],
    ])()  # fmt: skip


def outcome(launch: Any, r: random.Random, bases: list[Any]) -> list[Any]:
    number, count = r.choice([0.5, 0.5, -0.0, 2, np.float64(0.25)]), r.choice([8, 8, 8, 5, 13, 30])
    args = {"shift": lambda: (views(r, bases), views(r, bases), number, count), "beyond": lambda: (views(r, bases), count)}[
        launch.kernel.name
    ]()
    if r.random() < 0.1:
        args[0].flags.writeable = False
    try:
        launch(*args)
    except LaunchError as error:
        found = [type(error), str(error)]
    else:
        found = [a.tobytes() for a in args if isinstance(a, np.ndarray)]
    args[0].flags.writeable = True
    return [*found, *(a.tobytes() for a in bases)]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["shift", "beyond"])
def test_random_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    warm, cold, hits = gpuad.kernel(SOURCE, name), gpuad.kernel(SOURCE, name), []
    made = CallReplay.made
    monkeypatch.setattr(CallReplay, "made", lambda *args: hits.append(made(*args)) or hits[-1])
    bases = [[np.arange(24.0) + k for k in range(3)] for _ in range(2)]
    ran = 0
    for seed in range(1500):
        api.kernel(cold)._ready.clear()
        api.kernel(cold)._again.clear()
        grid, block = random.Random(seed).choice([(1, 8), (1, 8), (1, 4), (2, 4)])
        expected, found = (outcome(k[grid, block], random.Random(seed), b) for k, b in zip((cold, warm), bases, strict=True))
        assert expected == found, seed
        ran += isinstance(expected[0], bytes)
    assert ran > 300 and sum(hits) > 20 and sum(hits) < len(hits)

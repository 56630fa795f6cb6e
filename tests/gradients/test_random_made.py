"""Random programs in which operations make arrays and that change a little each time, beside a tape that knows nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from nightly import cases
from tape_tools import edited
from test_temporaries import KERNELS, N

from gpuad import Duplicated, Tape, ops

Step = tuple[Any, ...]


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with running("host"):
        yield


def random_step(r: random.Random) -> Step:
    return r.choice(
        [
            ("op", r.choice(["sin", "tanh", "square"])), ("binary", r.choice(["add", "multiply", "subtract"])), ("view", r.randrange(4)),
            ("kernel", r.choice(["square", "blend"])), ("matmul",), ("cumsum",), ("mean",), ("in place", r.choice(["add", "multiply"])),
            ("out", r.choice(["add", "multiply"])), ("write",), ("plain",), ("peek",), ("forget",),
        ]
    )  # fmt: skip


class Player:
    """Runs programs on three arrays of its own; `hold`: what it keeps of what is made, and what that held."""

    def __init__(self) -> None:
        self.arrays = [np.zeros(N) for _ in range(3)]
        self.shadows = [np.zeros(N) for _ in range(3)]
        self.pairs = [Duplicated(a, d) for a, d in zip(self.arrays, self.shadows, strict=True)]
        self.held: list[Any] = []

    def play(self, tape: Tape, steps: list[Step], start: int, hold: random.Random) -> list[bytes]:
        rng = np.random.default_rng(start)
        for a, d in zip(self.arrays, self.shadows, strict=True):
            a[...], d[...] = rng.uniform(-1, 1, N), 0.0
        pool: list[Any] = list(self.pairs)
        pick = random.Random(1)
        with tape:
            for step in steps:
                self.step(step, pool, pick)
            total = ops.sum(pool[-1] * pool[0]) + ops.sum(pool[len(pool) // 2])
        tape.reverse({total: 1.0})
        found = [x.primal.tobytes() for x in (total, *pool)] + [d.tobytes() for d in self.shadows]
        for x in (*pool[3:], total):
            match hold.randrange(12):
                case 0:
                    self.held.append((x, x.primal.copy()))
                case 1:
                    self.held.append((x.primal, x.primal.copy()))
                case 2:
                    self.held.append((x[...], x.primal.copy()))
        if hold.random() < 0.5:
            self.held = self.held[-2:]
        return found

    def step(self, step: Step, pool: list[Any], pick: random.Random) -> None:
        x, y = pool[pick.randrange(len(pool))], pool[pick.randrange(len(pool))]
        fresh = [p for p in pool[3:] if p is not x and p is not y]
        made = self.made(step, x, y)
        if made is not None:
            pool.append(made)
        match step:
            case ("in place", name) if fresh:
                getattr(ops, name)(fresh[-1], x, out=fresh[-1])
            case ("out", name):
                getattr(ops, name)(x, 0.5, out=self.pairs[2])
            case ("write",) if fresh:
                fresh[-1][1:3] = x[2:4]
            case ("peek",):
                assert x.primal.shape == (N,)
            case ("forget",) if len(pool) > 4:
                del pool[pick.randrange(3, len(pool))]

    def made(self, step: Step, x: Any, y: Any) -> Any:
        """What a step makes of two pairs, if it makes something."""
        match step:
            case ("op", name):
                return getattr(ops, name)(x)
            case ("binary", name):
                return getattr(ops, name)(x, y)
            case ("view", which):
                half = x * 0.5
                return [half.reshape(2, 3).reshape(N), half[::-1], half.reshape(2, 3).T.copy().reshape(N), half[...]][which]
            case ("kernel", name):
                made = x + 0.25
                before = (made,) if name == "square" else (self.pairs[0], self.pairs[1], made)
                KERNELS[name](1, 8, (*before, N))
                return made
            case ("matmul",):
                return ops.matmul(x.reshape(2, 3), y.reshape(3, 2)).reshape(4)[:1] * self.pairs[2]
            case ("cumsum",):
                return ops.cumsum(x)
            case ("mean",):
                return ops.mean(x) * y
            case ("plain",):
                return x * ops.exp(np.linspace(0, 1, N))
        return None


@pytest.mark.parametrize("seed", range(cases(2, 40)))
def test_random_programs(seed: int) -> None:
    """Bit by bit; and whatever was kept of earlier recordings holds what it held."""
    r, hold = random.Random(seed), random.Random(seed + 1000)
    steps = [random_step(r) for _ in range(r.randrange(2, 9))]
    one, two, tape = Player(), Player(), Tape()
    for turn in range(10):
        steps = edited(steps, r, random_step) if turn > 2 else steps
        found = one.play(tape, steps, turn, hold)
        assert found == two.play(Tape(), steps, turn, random.Random(0)), (turn, steps)
        two.held.clear()
        for x, was in one.held:
            assert getattr(x, "primal", x).tobytes() == was.tobytes(), (turn, steps)

"""More bytes never mean more runs, and fewer bytes never a higher peak: over 30 budgets, for ten programs that have little in common; and
what is planned is what happens."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nightly import share
from tape_tools import launch, pair

import gpuad
from gpuad import Duplicated, ops
from gpuad.tape.facade import recording_of

N = 96
Arrays = dict[str, Any]
RNG = np.random.default_rng(5)
VALUES = {name: RNG.uniform(0.2, 0.9, N) for name in "uvw"}
COUNTS, INDEX = (np.arange(N) % 3).astype(np.int32), RNG.permutation(N).astype(np.int32)


pytestmark = pytest.mark.usefixtures("on_host_unjoined")


def reverse_damp(x: Any, dx: Any, dx_before: Any, rate: Any) -> None:
    dx_before += rate * (1.0 - 2.0 * x) * dx


@gpuad.rule(reads=("x",), overwrites=("x",), needs={"x": "before"}, reverse=reverse_damp, pure=True)
def damp(x: Any, rate: Any) -> None:
    """Logistic, in place."""
    x[...] = rate * x * (1.0 - x)


def sampled_loop(s: Arrays) -> None:
    """A stencil, and at every fifth step something of the state is added up."""
    u, v = s["u"], s["v"]
    for t in range(30):
        launch("stencil", v, u)
        if t % 5 == 4:
            launch("blend", s["w"], v, u)
        u, v = v, u


def straight_code(s: Arrays) -> None:
    """No launch comes twice."""
    u, v, w = s["u"], s["v"], s["w"]
    launch("square", u)
    launch("times", v, u)
    launch("blend", w, u, v)
    launch("sine", u)
    launch("product", v, u, w)
    launch("decay", w)
    launch("exchange", u, w)
    launch("stencil", v, u)
    launch("blend", u, v, w)
    launch("iterate", w, COUNTS)
    launch("times", u, w)
    launch("gather", v, u, INDEX)


def nested_loops(s: Arrays) -> None:
    """Inner steps of one kernel, outer ones of another."""
    u, v, w = s["u"], s["v"], s["w"]
    for _ in range(6):
        for _ in range(4):
            launch("stencil", v, u)
            launch("blend", u, v, w)
        launch("sine", w)


def rules(s: Arrays) -> None:
    """Functions of NumPy with a reverse of their own, between launches."""
    for _ in range(12):
        damp(s["u"], 1.3)
        launch("blend", s["v"], s["u"], s["w"])


def temporaries(s: Arrays) -> None:
    """Array operations that make arrays."""
    for _ in range(8):
        x = ops.sin(s["u"]) * s["v"]
        for _ in range(4):
            launch("square", s["w"])
        ops.copyto(s["u"], x + 0.1 * s["w"])


def swaps(s: Arrays) -> None:
    """Kernels that exchange, and names that do."""
    u, v, w = s["u"], s["v"], s["w"]
    for _ in range(10):
        launch("exchange", u, v)
        launch("square", u)
        u, v, w = v, w, u


def views(s: Arrays) -> None:
    """Parts of arrays, which overlap."""
    u, v = s["u"], s["v"]
    for k in (0, 20) * 12:
        launch("blend", u[k : k + 60], v[30:90], v[20:80])
        launch("sine", v[k : k + 70])


def stacks(s: Arrays) -> None:
    """Loops in kernels whose lengths are data."""
    for _ in range(8):
        launch("iterate", s["u"], COUNTS)
        launch("blend", s["v"], s["u"], s["w"])


def atomics(s: Arrays) -> None:
    """Sums into places that data say."""
    for _ in range(10):
        launch("scatter", s["w"], s["u"], INDEX)
        launch("sine", s["w"])
        launch("blend", s["u"], s["w"], s["v"])


def two_loops(s: Arrays) -> None:
    """One after the other."""
    u, v, w = s["u"], s["v"], s["w"]
    for _ in range(14):
        launch("stencil", v, u)
        u, v = v, u
    for _ in range(9):
        launch("blend", w, u, v)
        launch("square", u)


PROGRAMS: list[Callable[[Arrays], None]] = [
    sampled_loop, straight_code, nested_loops, rules, temporaries, swaps, views, stacks, atomics, two_loops,
]  # fmt: skip


class Played:
    """A program on arrays of its own."""

    def __init__(self, program: Callable[[Arrays], None], budget: Any = None) -> None:
        self.program, self.tape = program, gpuad.Tape(budget=budget)
        self.arrays: dict[str, Duplicated] = {name: pair(VALUES[name]) for name in VALUES}

    def run(self) -> list[bytes]:
        """Records and reverses; all that a user sees."""
        for name, p in self.arrays.items():
            p.primal[...], p.shadow[...] = VALUES[name], 0.5
        with self.tape:
            self.program(self.arrays)
        self.tape.reverse()
        return [a.tobytes() for p in self.arrays.values() for a in (p.primal, p.shadow)]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("program", share(PROGRAMS, 4), ids=lambda program: program.__name__)
def test_fewer_bytes_are_never_faster_and_never_higher(program: Callable[[Arrays], None]) -> None:
    whole, free = Played(program, "1 GiB"), Played(program)
    wanted = [free.run() for _ in range(3)]
    assert [whole.run() for _ in range(3)] == wanted
    points = whole.tape.tradeoff().points
    with pytest.raises(gpuad.BudgetError) as refused:
        whole.tape.plan(0)
    least, most = refused.value.smallest, max(p.peak for p in points)
    budgets = [int(b) for b in np.linspace(least, most + 1024, 30)]
    plans = [whole.tape.plan(b) for b in budgets]
    assert plans[-1].reruns == 0 and all(p.peak <= b for p, b in zip(plans, budgets, strict=True))
    for one, two in itertools.pairwise(plans):
        assert two.reruns <= one.reruns and two.seconds <= one.seconds and one.peak <= two.peak, (one, two)
    assert len({p.reruns for p in plans}) >= 3, "budgets make a difference"
    taken = []
    for budget in budgets[::7]:
        played = Played(program, budget)
        assert [played.run() for _ in range(3)] == wanted, budget
        assert recording_of(played.tape).memory.most <= budget
        taken.append((played.tape.plan().reruns, recording_of(played.tape).memory.total))
    assert taken == sorted(taken, key=lambda one: -one[0])

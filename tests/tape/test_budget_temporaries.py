"""Loops that make arrays in each step, within a budget: the memory of those that nobody has any more is used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tape_tools import launch, pair

import gpuad
from gpuad import BatchDuplicated, Duplicated, ops
from gpuad.tape.facade import recording_of
from gpuad.tape.record.operations import Renewed

N, STEPS = 200, 24
BYTES = 2048  # of an array, as a pool rounds them
Body = Callable[[Duplicated, Duplicated, list[Any]], None]


pytestmark = pytest.mark.usefixtures("on_host_unjoined")


def one(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
    ops.copyto(x, ops.sin(x) * 0.9 + w)


def named(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
    t = ops.sin(x)
    s = t * w
    ops.copyto(x, s * t + 0.3)


def launched(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
    t = x * w
    launch("sine", t)
    launch("axpy", x, t, 0.1)


def inactive(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
    c = ops.sin(w.primal) * 0.5
    ops.copyto(x, ops.cos(x) * c)


def parts(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
    t = x * w
    half = t[: N // 2]
    del t
    launch("sine", x)
    ops.copyto(x[: N // 2], half * 0.7)


def sums(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
    ops.copyto(x, ops.sin(x) * ops.mean(x * w) + 0.1)


def mixed(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
    """What one line makes has a shadow and has none by turns."""
    for given in (x, w.primal):
        t = ops.sin(given)
        launch("axpy", x, t, 0.1)


BODIES = [one, named, launched, parts, sums]


class Program:
    def __init__(self, body: Body, budget: Any = None, **options: Any) -> None:
        rng = np.random.default_rng(0)
        self.body, self.start = body, rng.uniform(0.2, 0.8, N)
        self.x, self.w = pair(self.start), pair(rng.uniform(0.2, 0.8, N))
        self.tape = gpuad.Tape(budget=budget, **options)
        self.kept: list[Any] = []

    def run(self) -> list[bytes]:
        self.x.primal[...] = self.start
        self.w.shadow.fill(0)
        with self.tape:
            for _ in range(STEPS):
                self.body(self.x, self.w, self.kept)
        self.tape.reverse({self.x: 1.0})
        return [a.tobytes() for p in (self.x, self.w) for a in (p.primal, p.shadow)]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("body", BODIES)
def test_a_loop_that_makes_arrays_keeps_within_what_one_without_does(body: Body) -> None:
    """A few arrays and their shadows, and a few checkpoints, where each step made arrays that stayed; the same bits."""
    free, tight = Program(body), Program(body, BYTES * 20)
    for _ in range(3):
        assert tight.run() == free.run()
        assert max(recording_of(tight.tape).most, recording_of(tight.tape).memory.most) <= BYTES * 20
    assert recording_of(free.tape).made.nbytes > BYTES * STEPS > 2.5 * recording_of(tight.tape).made.nbytes
    assert tight.tape.plan().reruns > 0
    roomy = Program(body, "16 MiB")
    for _ in range(2):
        assert roomy.run() == free.run()
    assert roomy.tape.plan().reruns == 0


@pytest.mark.parametrize("body", [inactive, mixed])
def test_arrays_without_a_gradient_stay(body: Body) -> None:
    """They are the caller's own arrays, no handles: the tape has them itself until it forgets the program."""
    free, tight = Program(body), Program(body, BYTES * 120)
    for _ in range(3):
        assert tight.run() == free.run()
        assert max(recording_of(tight.tape).most, recording_of(tight.tape).memory.most) <= BYTES * 120


def test_arrays_that_somebody_has_stay_as_they_are() -> None:
    """Handles, views, arrays: each keeps what it held, and the memory of the others is used again."""

    def body(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
        t = ops.sin(x) * w
        if len(kept) % 3 == 0:
            kept.append((t, t.primal.copy()))
        elif len(kept) % 3 == 1:
            kept.append((t[3:50], t.primal[3:50].copy()))
        else:
            kept.append((t.primal, t.primal.copy()))
        ops.copyto(x, t)

    free, tight = Program(body), Program(body, BYTES * 100)
    for _ in range(3):
        tight.kept, free.kept = [], []
        assert tight.run() == free.run()
        for held, was in tight.kept:
            assert np.array_equal(getattr(held, "primal", held), was)
    assert any(isinstance(op, Renewed) for op in recording_of(tight.tape).operations)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("how", ["handle", "view", "array"])
def test_who_has_an_array_only_when_the_program_comes_again(how: str) -> None:
    """A handle gets a copy; where somebody has the memory itself the program is recorded anew."""

    def body(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
        t = ops.sin(x) * w
        if turn:
            kept.append(({"handle": lambda: t, "view": lambda: t[3:], "array": lambda: t.primal}[how](), t.primal.copy()))
        ops.copyto(x, t)

    free, tight = Program(body), Program(body, BYTES * 200)
    for turn in range(4):  # noqa: B007
        tight.kept, free.kept = [], []
        assert tight.run() == free.run()
        for held, was in tight.kept:
            assert np.array_equal(getattr(held, "primal", held), was if how != "view" else was[3:])


def test_a_seed_of_an_array_that_was_made_last() -> None:
    results = []
    for budget in (None, BYTES * 20):
        x, tape = pair(np.linspace(0.1, 1, N)), gpuad.Tape(budget=budget)
        for _ in range(3):
            x.shadow.fill(0)
            with tape:
                y = x
                for _ in range(20):
                    y = ops.sin(y) * 1.1
                loss = ops.sum(y * y)
            tape.reverse({loss: 1.0, y: np.full(N, 0.5)})
            results.append([x.shadow.tobytes(), y.primal.tobytes(), loss.primal.tobytes()])
            del y, loss
    assert results[:3] == results[3:]


def test_several_shadows_have_memory_of_their_own() -> None:
    results = []
    for budget in (None, "4 MiB"):
        x, shadows = np.linspace(0.1, 1, N), (np.zeros(N), np.zeros(N))
        both, tape = BatchDuplicated(x, shadows), gpuad.Tape(budget=budget)
        with tape:
            for _ in range(5):
                ops.copyto(both, ops.multiply(ops.sin(both), 0.9))
        tape.reverse({both: (1.0, 2.0)})
        results.append([x.tobytes(), *(s.tobytes() for s in shadows)])
    assert results[0] == results[1]


def test_what_may_be_infinite_of_an_earlier_array_reaches_nothing() -> None:
    """The gradient of a new array does not flow on to what its memory held before."""

    def body(x: Duplicated, w: Duplicated, kept: list[Any]) -> None:
        t = ops.log(x * 0.0)  # -inf, whose derivative is infinite; nobody uses it
        del t
        ops.copyto(x, ops.sin(x) * w)

    with np.errstate(all="ignore"):
        free, tight = Program(body), Program(body, BYTES * 20)
        for _ in range(2):
            found = tight.run()
            assert found == free.run()
            assert all(np.isfinite(np.frombuffer(f)).all() for f in found)


def test_restored_and_graphs_and_the_account() -> None:
    free, tight = Program(named, restore=True), Program(named, BYTES * 40, restore=True)
    for _ in range(2):
        assert tight.run() == free.run()
        assert tight.x.primal.tobytes() == tight.start.tobytes()
    roomy = Program(named, "16 MiB")
    wanted = roomy.run()
    assert "temporary of" in str(roomy.tape.explain())
    graph = roomy.tape.graph({roomy.x: 1.0})
    roomy.x.primal[...] = roomy.start
    roomy.w.shadow.fill(0)
    graph.launch()
    assert [a.tobytes() for p in (roomy.x, roomy.w) for a in (p.primal, p.shadow)] == wanted

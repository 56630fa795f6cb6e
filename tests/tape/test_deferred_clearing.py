"""Shadows that gpuad made and nobody has seen: what a reversal leaves there need not be zero, until somebody looks or counts on it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from nightly import cases
from tape_tools import SOURCE, compiled

import gpuad
from gpuad import Duplicated
from gpuad.tape.facade import recording_of

N = 12


@pytest.fixture(autouse=True, params=["reference", "host"])
def _executor(request: pytest.FixtureRequest) -> Iterator[None]:
    with running(request.param):
        yield


def launch(name: str, *args: Any) -> None:
    compiled(SOURCE, name)(2, 8, (*args, N))


class Program:
    """v = u^2 / 2, w = v^2 / 2, all of which have shadows of gpuad's; and how `u` was."""

    def __init__(self) -> None:
        self.x = np.linspace(0.5, 1.5, N)
        self.u, self.v, self.w = Duplicated(self.x.copy()), Duplicated(np.zeros(N)), Duplicated(np.zeros(N))
        self.tape = gpuad.Tape()

    def run(self, seed: Any = 1.0, tape: gpuad.Tape | None = None) -> None:
        tape = tape or self.tape
        with tape:
            launch("half_square", self.v, self.u)
            launch("half_square", self.w, self.v)
        tape.reverse({self.w: seed})

    @property
    def wanted(self) -> Any:
        return self.x**3 / 2

    def raw(self, pair: Duplicated) -> Any:
        """What memory holds."""
        return pair._own_shadow


def test_owed_until_somebody_looks() -> None:
    p = Program()
    for times in range(1, 5):
        p.run()
        assert p.raw(p.v).any() and p.raw(p.w).any()
        assert np.allclose(p.raw(p.u), times * p.wanted)
    assert not p.v.shadow.any() and p.raw(p.w).any()
    assert not p.w.shadow.any()
    assert np.allclose(p.u.shadow, 4 * p.wanted)


def test_what_was_seen_is_always_cleared() -> None:
    p = Program()
    p.run()
    dv = p.v.shadow
    for _ in range(3):
        dv.fill(7)
        p.run()
        assert not dv.any() and p.raw(p.w).any()


def test_a_view_shows_the_whole() -> None:
    p = Program()
    before = p.v[2:5]
    p.run()
    assert not before.shadow.any() and not p.raw(p.v).any()
    p.run()
    assert not p.raw(p.v).any()


def test_a_shadow_that_the_caller_gave_is_seen() -> None:
    p = Program()
    p.v = Duplicated(np.zeros(N), np.full(N, 3.0))
    p.run()
    assert not p.raw(p.v).any() and p.raw(p.w).any()


def test_a_reverse_that_counts_on_it() -> None:
    """The raw rule takes shadows as they are: what is owed there is zero."""
    p = Program()
    p.run()
    with p.tape:
        launch("half_square", p.v, p.u)
    p.u.shadow.fill(0)
    with pytest.raises(gpuad.TapeError, match="nothing is seeded"):
        p.tape.reverse()
    p.tape.reverse(allow_unused=True)
    assert not p.u.shadow.any()


def test_another_tape_that_reads() -> None:
    """To a shadow of what another program only reads it adds."""
    p, y = Program(), Duplicated(np.zeros(N))
    for _ in range(3):
        p.run()
        assert p.raw(p.v).any()
        other = gpuad.Tape()
        with other:
            launch("half_square", y, p.v)
        other.reverse({y: 1.0})
        assert np.allclose(p.raw(p.v), p.v.primal)
        p.v._own_shadow.fill(0)  # as its owner would have found it


def test_two_tapes_in_turn() -> None:
    p, other = Program(), gpuad.Tape()
    for times in range(1, 4):
        p.run()
        p.run(tape=other)
        assert np.allclose(p.raw(p.u), 2 * times * p.wanted)
    assert not p.v.shadow.any() and not p.w.shadow.any()


def test_a_part_that_begins_as_it_is() -> None:
    """A program that overwrites a part only: the rest of what another owes is cleared first, since it adds to that."""
    p, y = Program(), Duplicated(np.zeros(N))
    p.run()
    other = gpuad.Tape()
    with other:
        launch("half_square_inside", p.v, p.u)
        launch("half_square", y, p.v)
    p.u._own_shadow.fill(0)
    other.reverse({y: 1.0})
    edges = np.r_[0, N - 1]
    assert np.allclose(p.v.shadow[edges], p.v.primal[edges]) and not p.v.shadow[1:-1].any()
    wanted = p.wanted.copy()
    wanted[edges] = 0
    assert np.allclose(p.u.shadow, wanted)


def test_autodiff_sees() -> None:
    p, y = Program(), Duplicated(np.zeros(N), np.ones(N))
    p.run()
    gpuad.autodiff(compiled(SOURCE, "half_square"), 2, 8, (y, p.v, N))
    assert np.allclose(p.raw(p.v), p.v.primal)
    p.run()
    assert not p.raw(p.v).any()


def test_a_seed_for_what_is_owed() -> None:
    """A seed goes to memory that is about to be cleared no more."""
    p = Program()
    p.run()
    for _ in range(3):
        with p.tape:
            launch("half_square", p.v, p.u)
            launch("half_square", p.w, p.v)
        p.u._own_shadow.fill(0)
        p.tape.reverse({p.v: 2.0, p.w: np.ones(N)})
        assert np.allclose(p.raw(p.u), 2 * p.x + p.wanted)
    assert not p.v.shadow.any() and not p.w.shadow.any()


def test_new_pairs_each_time() -> None:
    """Views are new objects in each recording: they are known by their memory, without being looked at."""
    p = Program()
    for times in range(1, 4):
        with p.tape:
            launch("half_square", p.v[:], p.u[:])
            launch("half_square", p.w[:], p.v[:])
        p.tape.reverse({p.w[:]: 1.0})
        assert p.raw(p.v).any()
        assert np.allclose(p.raw(p.u), times * p.wanted)
    assert not p.v.shadow.any()


def test_a_graph_owes_as_well() -> None:
    """Until somebody looks; and what it owes, and what is owed to it, is the same for the tape."""
    p = Program()
    p.run()
    graph = p.tape.graph({p.w: 1.0})
    for _ in range(2):
        graph.launch()
        assert p.raw(p.v).any() and p.raw(p.w).any()
    p.run()
    assert not p.v.shadow.any()
    for _ in range(2):
        graph.launch()
        assert not p.raw(p.v).any() and p.raw(p.w).any()
    graph.forward()
    assert not p.w.shadow.any()
    graph.reverse()
    assert not p.raw(p.v).any() and not p.raw(p.w).any()
    p.run()
    assert not p.raw(p.v).any() and not p.raw(p.w).any()
    assert np.allclose(p.u.shadow, 8 * p.wanted)


def test_a_graph_of_what_is_owed_by_another() -> None:
    """It adds to the shadow of what it only reads."""
    p, y = Program(), Duplicated(np.zeros(N))
    other = gpuad.Tape()
    with other:
        launch("half_square", p.w, p.u)
        launch("half_square", y, p.v)
    graph = other.graph({y: 1.0, p.w: 1.0})
    p.run()
    graph.launch()
    assert np.allclose(p.v.shadow, p.v.primal) and np.allclose(p.u.shadow, p.wanted + p.x)
    assert p.raw(p.w).any() and not p.w.shadow.any()


def test_a_saved_program_owes_nothing(tmp_path: Path) -> None:
    p = Program()
    p.run()
    with p.tape:
        launch("half_square", p.v, p.u)
        launch("half_square", p.w, p.v)
    p.tape.save(tmp_path / "saved")
    assert not p.raw(p.v).any() and not p.raw(p.w).any()


def test_restoring() -> None:
    p = Program()
    p.tape = gpuad.Tape(restore=True)
    p.run()
    p.run()
    assert not p.v.primal.any() and not p.v.shadow.any() and np.allclose(p.u.shadow, 2 * p.wanted)


def test_copies_of_a_pair() -> None:
    p = Program()
    p.run()
    twin = copy.copy(p.v)
    assert not twin.shadow.any() and twin.shadow is p.v.shadow
    p.run()
    assert not p.raw(p.v).any()
    deep = copy.deepcopy(p.w)
    assert not deep.shadow.any() and not np.shares_memory(deep.shadow, p.w.shadow)


def test_operations_of_ours_do_not_let_anybody_see() -> None:
    p = Program()
    for times in range(1, 4):
        with p.tape:
            p.v.fill(0)
            gpuad.ops.copyto(p.w, p.v)
            launch("half_square", p.v, p.u)
            launch("half_square", p.w, p.v)
        p.tape.reverse({p.w: 1.0})
        assert p.raw(p.v).any() and p.raw(p.w).any()
        assert np.allclose(p.raw(p.u), times * p.wanted)
    assert not p.v.shadow.any() and not p.w.shadow.any()


KEPT: list[Any] = []


def _accumulate_reverse(dx: Any, dy: Any) -> None:
    dx += dy
    KEPT.append(dy)


@gpuad.rule(reads=("x",), adds=("y",), reverse=_accumulate_reverse)
def accumulate(x: Any, y: Any) -> None:
    y += x


def test_the_reverse_of_a_rule_sees() -> None:
    """It may keep the array that it is given."""
    p = Program()
    for _ in range(3):
        with p.tape:
            launch("half_square", p.v, p.u)
            accumulate(p.u, p.v)
            launch("half_square", p.w, p.v)
        p.tape.reverse({p.w: 1.0})
        assert not p.raw(p.v).any() and not KEPT.pop().any() and p.raw(p.w).any()


def test_a_program_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reverse that failed shadows are undefined; the next one is right."""
    p = Program()
    p.run()
    with p.tape:
        launch("half_square", p.v, p.u)
        launch("half_square", p.w, p.v)
    plan = next(iter(recording_of(p.tape).reversals.plans.values()))

    def fails() -> None:
        raise MemoryError

    plan.actions, plan.again, plan.runs, plan.joined = (fails, *plan.actions), (), 5, True
    with pytest.raises(MemoryError):
        p.tape.reverse({p.w: 1.0})
    p.u._own_shadow.fill(0)
    p.tape = gpuad.Tape()
    p.run()
    assert np.allclose(p.u.shadow, p.wanted) and not p.v.shadow.any()


LAUNCHES = {"half_square": 2, "half_square_inside": 2, "sine": 1, "add": 3, "product": 3, "copy": 2, "linear": 2, "stencil": 2}


class Played:
    """A random game of two tapes on four arrays, with shadows of gpuad's or with the caller's."""

    def __init__(self, seed: int, given: bool) -> None:
        r = np.random.default_rng(seed)
        start = {name: r.uniform(0.3, 1.2, N) for name in "abcd"}
        self.pairs = {n: Duplicated(x.copy(), np.zeros(N) if given else None) for n, x in start.items()}
        self.tapes = gpuad.Tape(), gpuad.Tape()
        self.seen: list[Any] = []
        programs = [self.program(r) for _ in range(3)]
        for _ in range(int(r.integers(3, 10))):
            for name, x in start.items():
                self.pairs[name].primal[...] = x
            self.turn(r, programs[r.integers(3)], self.tapes[r.integers(2)])
            for name in r.permutation(list("abcd")) if r.random() < 0.4 else ():
                if r.random() < 0.5:
                    self.seen.append(self.pairs[name].shadow.copy())
            if r.random() < 0.1:
                self.pairs[str(r.choice(list("abcd")))].shadow.fill(0.5)
        self.seen += [p.shadow.copy() for p in self.pairs.values()]

    def program(self, r: np.random.Generator) -> list[tuple[str, list[str]]]:
        names = [str(n) for n in r.choice([*LAUNCHES, "fill"], int(r.integers(1, 6)))]
        return [(n, [str(x) for x in r.choice(list("abcd"), LAUNCHES.get(n, 1), replace=False)]) for n in names]

    def turn(self, r: np.random.Generator, program: list[tuple[str, list[str]]], tape: gpuad.Tape) -> None:
        views = r.random() < 0.3
        pairs = {n: p[:] if views else p for n, p in self.pairs.items()}
        used = sorted({x for _, names in program for x in names})
        with tape:
            for name, names in program:
                if name == "fill":
                    pairs[names[0]].fill(0.7)
                else:
                    launch(name, *(pairs[x] for x in names))
        seeds = {pairs[x]: float(r.uniform(0.5, 1.5)) for x in used if r.random() < 0.6} if r.random() < 0.85 else None
        if r.random() < 0.8:
            tape.reverse(seeds, allow_unused=True)
            return
        graph = tape.graph(seeds, allow_unused=True)
        for _ in range(int(r.integers(1, 3))):
            graph.launch()
            if r.random() < 0.3:
                self.seen.append(self.pairs[str(r.choice(list("abcd")))].shadow.copy())


@pytest.mark.one_of(4)
@pytest.mark.parametrize("seed", range(cases(8, 25)))
def test_whoever_made_the_shadows(seed: int) -> None:
    """What can be seen is the same to the last bit."""
    for one, other in zip(Played(seed, False).seen, Played(seed, True).seen, strict=True):
        np.testing.assert_array_equal(one, other)

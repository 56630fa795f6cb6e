"""A graph does what recording and reversing again would do, without the Python in between, and refuses what it could not repeat."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from nightly import cases
from tape_tools import launch, pair
from test_trace_replay import TWICE, N, _by_reverse, content, fill, fresh, play, random_step

import gpuad
from gpuad import Active, BatchDuplicated, Duplicated, LaunchError, TapeError, pipeline
from gpuad.api import Kernel
from gpuad.runtime.host import Host
from gpuad.tape.facade import recording_of


def _never(*_: Any, **__: Any) -> None:
    raise AssertionError("Python has no part in this")


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("restore", [False, True])
def test_a_graph_is_the_program_and_its_reverse(executor: str, restore: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(executor):
        u, v, k, d, seed = pair(np.zeros(N)), pair(np.zeros(N)), pair(np.linspace(1, 2, N)), np.zeros(()), np.linspace(0.1, 1, N)
        tape, results = gpuad.Tape(restore=restore), []

        def start(run: int) -> None:
            u.primal[...], v.primal[...], d[...], k.shadow[...] = np.linspace(0.3, 0.9, N) + 0.05 * run, 0.1 * run, 0, 0
            seed[...] = np.linspace(0.1, 1, N) + run

        def record() -> None:
            with tape:
                for _ in range(3):
                    launch("half_square", v, u)
                    launch("scale", v, Active(0.9, d))
                    launch("times", v[2:9], k[2:9])
                    launch("square", u)
                    launch("exchange", u, v)

        for run in range(3):
            start(run)
            record()
            tape.reverse({v: seed, u: 0.5})
            results.append([a.copy() for a in (u.primal, v.primal, k.shadow, u.shadow, v.shadow, d)])
        graph = tape.graph({v: seed, u: 0.5})
        monkeypatch.setattr(Kernel, "bind", _never)
        for run in (1, 0, 2, 2):
            start(run)
            graph.launch()
            for a, b in zip(results[run], (u.primal, v.primal, k.shadow, u.shadow, v.shadow, d), strict=True):
                assert np.array_equal(a, b)
        with pytest.raises(TapeError, match="used up by a graph"):
            tape.reverse({v: seed})
        monkeypatch.undo()
        start(1)
        record()  # the tape goes on as ever
        tape.reverse({v: seed, u: 0.5})
        assert np.array_equal(results[1][3], u.shadow)


@pytest.mark.parametrize("seed", range(cases(5, 10)))
def test_random_programs(seed: int) -> None:
    r = random.Random(seed)
    steps = [s for s in (random_step(r) for _ in range(8)) if s[0] != "overwrites"]
    with running("reference"):
        held, other, tape = fresh(seed), fresh(seed + 50), gpuad.Tape()
        seeds = {held["a"]: 1.0, held["b"]: 0.5}
        _record(tape, steps, held)
        graph = tape.graph(seeds)  # before any reverse
        fill(held, other)
        for name in "abc":
            held[name].shadow[...] = 0
        graph.launch()
        new = gpuad.Tape()
        _record(new, steps, other)
        new.reverse({other["a"]: 1.0, other["b"]: 0.5})
        assert content(held) == content(other), steps


def _record(tape: gpuad.Tape, steps: list[Any], held: dict[str, Any]) -> None:
    with tape:
        launch("add", held["a"], held["b"], held["c"])
        play(tape, steps, held)


def test_operations_temporaries_and_rules() -> None:
    @gpuad.rule(reads=("x",), overwrites=("x",), reverse=_by_reverse)
    def by(x: Any, factors: Any, room: Any = None) -> None:
        copy = room(x.shape, x.dtype)
        copy[...] = x
        x[...] = factors[0] * copy

    with running("reference"):
        x, w, tape = pair(np.full(N, 0.5)), pair(np.full(N, 2.0)), gpuad.Tape()
        with tape:
            z = gpuad.ops.exp(x * w) + x
            launch("square", z)
            by(z, (3.0,))
        graph = tape.graph({z: 1.0})
        for start in (0.3, 0.4, 0.5):
            x.primal[...], x.shadow[...], w.shadow[...] = start, 0, 0
            graph.launch()
            e = np.exp(2 * start)
            assert np.allclose(x.shadow, 3 * 2 * (e + start) * (2 * e + 1)) and np.allclose(w.shadow, 3 * 2 * (e + start) * start * e)
            assert np.allclose(z.primal, 3 * (e + start) ** 2)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_stacks_that_are_counted_and_atomics_that_are_recorded(executor: str) -> None:
    with running(executor):
        x, out, counts, counter = pair(np.linspace(0.2, 0.9, N)), pair(np.zeros(N)), np.zeros(N, np.int32), np.zeros(1, np.int32)
        tape = gpuad.Tape()
        for run in range(3):
            x.primal[...], x.shadow[...], out.primal[...] = np.linspace(0.2, 0.9, N), 0, 0
            counts[...], counter[...] = run + 1, 0
            if run < 2:
                with tape:
                    launch("iterate", x, counts)
                    launch("compact", out, x, counter)
                tape.reverse({out: np.linspace(1, 2, N)})
            else:
                tape.graph({out: np.linspace(1, 2, N)}).launch()
        found = x.shadow.copy()
        x.primal[...], x.shadow[...], out.primal[...], counter[...] = np.linspace(0.2, 0.9, N), 0, 0, 0
        with gpuad.Tape() as new:
            launch("iterate", x, counts)
            launch("compact", out, x, counter)
        new.reverse({out: np.linspace(1, 2, N)})
        assert np.array_equal(found, x.shadow) and np.any(found)


def test_values_that_are_kept_in_place_of_memory() -> None:
    """A lattice-Boltzmann step keeps density and velocity when its populations are overwritten: known, and in a graph."""
    rows, columns, omega = 6, 32, np.float32(1.2)
    with running("reference"):
        step = gpuad.kernel(str(Path(__file__).parents[2] / "kernels" / "lattice_boltzmann.cu"), "lattice_boltzmann")
        start = np.random.default_rng(0).uniform(0.09, 0.13, (9, rows, columns)).astype(np.float32)
        f, g = (Duplicated(a, np.zeros_like(a)) for a in (start.copy(), np.zeros_like(start)))
        seed, tape, results = np.random.default_rng(1).standard_normal(start.shape).astype(np.float32), gpuad.Tape(), []
        graph = None
        for run in range(4):
            f.primal[...], g.primal[...] = start[::-1] if run == 3 else start, 0
            if run < 2:
                with tape:
                    for a, b in ((f, g), (g, f), (f, g), (g, f)):
                        step[(1, rows), (32,)](a, b, omega, rows, columns)
                assert tape.stats.saved_bytes == (3 + run) * 12 * rows * columns  # the second time what survives is read so, too
                tape.reverse({f: seed})
            else:
                graph = graph or tape.graph({f: seed})
                graph.launch()
            results.append(f.shadow.copy())
        assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])
        f.primal[...], g.primal[...] = start[::-1], 0
        with gpuad.Tape(save="all") as new:
            for a, b in ((f, g), (g, f), (f, g), (g, f)):
                step[(1, rows), (32,)](a, b, omega, rows, columns)
        new.reverse({f: seed})
        assert np.array_equal(results[3], f.shadow) and not np.array_equal(results[3], results[0])


def test_several_shadows() -> None:
    with running("reference"):
        x, y = (BatchDuplicated(np.full(N, 0.5), (np.zeros(N), np.zeros(N))) for _ in range(2))
        tape, results = gpuad.Tape(), []
        for run in range(4):
            x.primal[...], y.primal[...] = 0.5, 0
            for shadow in (*x.shadows, *y.shadows):
                shadow[...] = 0
            if run < 2:
                with tape:
                    launch("half_square", y, x)
                    launch("sine", y)
                    launch("square", x)
                tape.reverse({y: (1.0, 2.0)})
            else:
                tape.graph({y: (1.0, 2.0)}).launch()
            results.append([s.copy() for s in x.shadows])
        assert all(np.array_equal(results[0], r) for r in results) and np.allclose(results[0][1], 2 * results[0][0]) and results[0][0].all()


def test_temporaries_and_the_raw_rule() -> None:
    with running("reference"):
        x, y, tape = pair(np.full(N, 0.5)), pair(np.zeros(N)), gpuad.Tape()
        with tape:
            z = x * x + x
            w = z + x
            launch("product", y, z, w)
        graph = tape.graph()
        for start in (0.5, 0.6, 0.7):
            x.primal[...], x.shadow[...], y.shadow[...] = start, 0, 1
            graph.launch()
            assert np.allclose(x.shadow, (2 * start + 1) * (start**2 + 2 * start) + (start**2 + start) * (2 * start + 2))


def test_seeds_that_depend_on_the_result() -> None:
    with running("reference"):
        x, y, residual, tape = pair(np.full(N, 0.5)), pair(np.zeros(N)), np.zeros(N), gpuad.Tape()
        with tape:
            launch("half_square", y, x)
        graph = tape.graph({y: residual})
        with pytest.raises(TapeError, match=r"after graph.forward"):
            graph.reverse()
        for start in (0.5, 1.5):
            x.primal[...], x.shadow[...] = start, 0
            graph.forward()
            residual[...] = y.primal - 1.0
            graph.reverse()
            assert np.allclose(x.shadow, (0.5 * start**2 - 1.0) * start)
        graph.forward()
        x.primal[0] = 9.0
        with pytest.raises(TapeError, match="was changed"):
            graph.reverse()
        graph.forward()
        with tape:
            launch("square", y)
        with pytest.raises(TapeError, match=r"after graph.forward"):
            graph.reverse()
        graph.forward()
        tape.graph().launch() if recording_of(tape).state.is_recorded else graph.launch()
        with pytest.raises(TapeError, match=r"after graph.forward"):
            graph.reverse()


def test_the_raw_rule() -> None:
    with running("reference"):
        x, y, tape = pair(np.full(N, 0.5)), pair(np.zeros(N)), gpuad.Tape()
        with tape:
            launch("half_square", y, x)
        graph = tape.graph()
        for _ in range(2):
            y.shadow[...] = 2.0
            graph.launch()
        assert np.allclose(x.shadow, 2.0) and not y.shadow.any()


def test_what_a_graph_does_not_repeat_is_refused() -> None:
    with running("reference"):
        x, tape = pair(np.full(N, 0.5)), gpuad.Tape()
        with pytest.raises(TapeError, match="complete recording"):
            tape.graph()
        with tape:
            launch("square", x)
            with pytest.raises(TapeError, match="complete recording"):
                tape.graph()
        with pytest.raises(TapeError, match="lies in a shadow"):
            tape.graph({x: x.shadow})
        graph = tape.graph({x: 1.0})
        with tape, pytest.raises(TapeError, match="inside of a tape"):
            graph.launch()
        with tape:
            launch("square", x)
            tape.overwrites(x)
            x.primal[...] = np.random.default_rng(0).uniform(size=N)
        with pytest.raises(TapeError, match=r"tape.overwrites \(test_graph.py:\d+\) cannot be part of a graph"):
            tape.graph({x: 1.0}, allow_unused=True)
        tape.reverse({x: 1.0}, allow_unused=True)
        with pytest.raises(RuntimeError), tape:
            launch("square", x)
            raise RuntimeError
        with pytest.raises(TapeError, match="interrupted"):
            tape.graph()


def test_colliding_stores_are_refused_by_a_launch() -> None:
    with running("reference"):
        put, x, y, index, tape = (
            gpuad.kernel(TWICE, "put"),
            pair(np.full(N, 0.5)),
            pair(np.ones(N)),
            np.arange(N, dtype=np.int32),
            gpuad.Tape(),
        )
        with tape:
            put[1, N](y, x, index, N)
        graph = tape.graph({y: 1.0})
        graph.launch()
        assert np.allclose(x.shadow, 1.0)
        index[...] = 0
        with pytest.raises(LaunchError, match="two threads write"):
            graph.launch()
        assert np.allclose(x.shadow, 1.0)


def test_a_graph_keeps_its_memory_alive() -> None:
    with running("host"):
        tape, x = gpuad.Tape(), pair(np.full(N, 0.5))

        def made(tape: gpuad.Tape) -> Any:
            y = pair(np.zeros(N))
            with tape:
                launch("half_square", y, x)
                launch("square", y)
            return tape.graph({y: 1.0})

        graph = made(tape)
        with tape:  # the tape lets its memory go
            launch("square", x)
        del tape
        noise = [np.full(N, float(k)) for k in range(200)]
        x.primal[...], x.shadow[...] = 0.5, 0
        graph.launch()
        assert np.allclose(x.shadow, 2 * 0.125 * 0.5) and all((a == k).all() for k, a in enumerate(noise))


def test_a_graph_allocates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with running("host"):
        x, y, tape = pair(np.full(N, 0.5)), Duplicated(np.zeros(N)), gpuad.Tape()
        with tape:
            for _ in range(5):
                launch("square", x)
                launch("half_square", y, x)
        graph = tape.graph({y: 1.0})
        monkeypatch.setattr(Host, "zeros", _never)
        monkeypatch.setattr(Host, "copy", _never)
        graph.launch()
        with pipeline.nothing_chained_for_tests():
            assert len(tape.graph({y: 1.0})) > 10 > len(graph)


def test_a_number_of_numpy_is_a_seed_of_a_graph() -> None:
    k = gpuad.kernel(
        'extern "C" __global__ void sq(const double* u, double* v, int n) { int i = threadIdx.x; if (i < n) v[i] = u[i] * u[i]; }', "sq"
    )
    u, v = gpuad.Duplicated(np.arange(8.0)), gpuad.Duplicated(np.zeros(8))
    tape = gpuad.Tape()
    with tape:
        k(1, 8, (u, v, 8))
    tape.graph({v: np.float64(2)}).launch()
    assert np.array_equal(u.shadow, 4 * np.arange(8.0))


ASSERTS = r"""
#include <assert.h>
extern "C" __global__ void sq(double* y, int n) { int i = threadIdx.x; if (i < n) y[i] = y[i] * y[i]; }
extern "C" __global__ void chk(const double* f, double* g, int n) { int i = threadIdx.x; if (i < n) { assert(f[i] >= 0); g[i] = f[i]; } }
"""


@pytest.mark.cpu
def test_a_forward_that_failed_cannot_be_reversed() -> None:
    """Its launches before the failure have replaced what an earlier forward left."""
    square, check = gpuad.kernel(ASSERTS, "sq"), gpuad.kernel(ASSERTS, "chk")
    y, f, g = gpuad.Duplicated(np.full(8, 2.0)), np.ones(8), np.zeros(8)
    tape = gpuad.Tape()
    with tape:
        square(1, 8, (y, 8))
        check(1, 8, (f, g, 8))
        square(1, 8, (y, 8))
    graph = tape.graph({y: 1.0})
    y.primal[:] = 2
    graph.forward()
    y.primal[:], f[3] = 5, -1
    with pytest.raises(LaunchError, match="assertion failed"):
        graph.forward()
    with pytest.raises(TapeError, match="comes after"):
        graph.reverse()

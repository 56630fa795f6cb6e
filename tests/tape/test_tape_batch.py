"""Several shadows in one sweep of a tape: each is what a recording with that shadow alone gives, and adds to what was in it before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from tape_tools import launch

import gpuad
from gpuad import Active, BatchDuplicated, Const, Duplicated, GpuadError, ShadowError, Tape, TapeError

BOTH = pytest.mark.parametrize("executor", list(EXECUTORS))
N = 12
SEEDS = (1.0, 3.0, -0.5)
Program = Callable[[Any, Mapping[str, Any]], None]


def swapped(tape: Any, a: Mapping[str, Any]) -> None:
    u, v = a["u"], a["v"]
    for _ in range(4):
        launch("stencil", v, u)
        u, v = v, u


def in_place(tape: Any, a: Mapping[str, Any]) -> None:
    for _ in range(3):
        launch("sine", a["u"])
        launch("times", a["u"], a["v"])
        launch("decay", a["v"])


def scattered(tape: Any, a: Mapping[str, Any]) -> None:
    index = np.array([3, 3, 0, 7, 5, 1, 1, 11, 8, 2, 4, 6], np.int32)
    for _ in range(2):
        launch("gather", a["v"], a["u"], index)
        launch("scatter", a["u"], a["v"], index)


def sliced(tape: Any, a: Mapping[str, Any]) -> None:
    launch("product", a["v"][1:7], a["u"][0:6], a["u"][5:11])
    launch("times", a["u"][::1][2:9], a["v"][0:7])
    launch("exchange", a["u"][0:4], a["v"][6:10])


def reset_bare(tape: Any, a: Mapping[str, Any]) -> None:
    launch("square_to", a["u"], a["v"])
    launch("fill", a["u"].primal, 2.0)
    launch("product", a["v"], a["u"], a["v"])
    launch("fill", a["u"].primal[3:6], 1.0)
    launch("axpy", a["u"], a["v"], 0.5)


def reset_before_it_is_known(tape: Any, a: Mapping[str, Any]) -> None:
    launch("fill", a["u"].primal, 2.0)
    tape.overwrites(a["v"].primal[:3])
    a["v"].primal[:3] = 0.25
    launch("product", a["v"], a["u"], a["v"])


def announced(tape: Any, a: Mapping[str, Any]) -> None:
    launch("square", a["u"])
    tape.overwrites(a["u"][2:5])
    a["u"].primal[2:5] = 0.5
    launch("times", a["v"], a["u"])


def counted(tape: Any, a: Mapping[str, Any]) -> None:
    counts = np.arange(N, dtype=np.int32) % 4
    launch("iterate", a["u"], counts)
    launch("powers", a["v"], 3)
    launch("compact", a["v"], a["u"], np.zeros(1, np.int32))


def with_operations(tape: Any, a: Mapping[str, Any]) -> None:
    ops, u, v = gpuad.ops, a["u"], a["v"]
    ops.multiply(u[1:], u[:-1], out=u[1:])
    between = ops.add(ops.exp(ops.negative(v)), u)
    launch("times", v, between)
    ops.axpy(0.5, between, u)
    ops.divide(u, ops.add(ops.square(v), 1.0), out=u)
    ops.fill(v[2:4], 0.3)
    ops.copyto(v[6:], ops.where(np.arange(6) % 2 == 0, u[6:], v[0]))
    ops.subtract(v, u[0:1], out=v)


PROGRAMS: list[Program] = [with_operations, swapped, in_place, scattered, sliced, reset_bare, reset_before_it_is_known, announced, counted]


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(37)
    return {name: rng.uniform(0.5, 1.5, N) for name in ("u", "v")}


def alone(program: Program, seed: float, prior: float, raw: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The primals, and the shadows of a recording with one shadow an array."""
    pairs = {name: Duplicated(a, np.full(N, prior)) for name, a in arrays().items()}
    tape = Tape(save="all")
    with tape:
        program(tape, pairs)
    if raw:
        pairs["v"].shadow[...] += seed
    tape.reverse(None if raw else {pairs["v"]: seed})
    return {n: p.primal for n, p in pairs.items()}, {n: p.shadow for n, p in pairs.items()}


@pytest.mark.one_of(4)
@BOTH
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_case_37_each_shadow_is_as_if_it_were_alone(executor: str, program: Program, raw: bool) -> None:
    with running(executor):
        wanted = [alone(program, seed, 0.1 * k, raw) for k, seed in enumerate(SEEDS)]
        for restore in (False, True):
            start = arrays()
            pairs = {n: BatchDuplicated(a.copy(), tuple(np.full(N, 0.1 * k) for k in range(len(SEEDS)))) for n, a in start.items()}
            tape = Tape(restore=restore)
            for again in range(2):
                for name, a in start.items():
                    pairs[name].primal[...] = a
                    for k, shadow in enumerate(pairs[name].shadows):
                        shadow.fill(0.1 * k)
                with tape:
                    program(tape, pairs)
                finals = {n: p.primal.copy() for n, p in pairs.items()}
                if raw:
                    for k, seed in enumerate(SEEDS):
                        pairs["v"].shadows[k][...] += seed
                tape.reverse(None if raw else {pairs["v"]: SEEDS})
                for name, p in pairs.items():
                    np.testing.assert_array_equal(finals[name], wanted[0][0][name])
                    np.testing.assert_array_equal(p.primal, start[name] if restore else finals[name])
                    for k, shadow in enumerate(p.shadows):
                        np.testing.assert_allclose(shadow, wanted[k][1][name], rtol=1e-12, atol=1e-13, err_msg=f"{name} {k}")
                assert not again or tape.stats.allocations == 0


@BOTH
def test_active_numbers_with_a_shadow_a_seed(executor: str) -> None:
    x, y = np.arange(1.0, N + 1), np.zeros(N)
    slopes = np.zeros(2)
    x_batch, y_batch = (BatchDuplicated(a, (np.zeros(N), np.zeros(N))) for a in (x, y))
    tape = Tape()
    with running(executor):
        with tape:
            launch("axpy", y_batch, x_batch, Active(0.5, (slopes[0:1], slopes[1:2])))
            launch("scale", x_batch, Active(2.0, np.zeros(2)))
        tape.reverse({y_batch: (1.0, np.full(N, 3.0))})
    np.testing.assert_allclose(slopes, [78.0, 234.0])
    np.testing.assert_allclose(x_batch.shadows, [np.full(N, 0.5), np.full(N, 1.5)])


@BOTH
def test_seeds_of_a_batch(executor: str) -> None:
    def recorded() -> tuple[Tape, BatchDuplicated]:
        x, tape = BatchDuplicated(np.ones(N), (np.full(N, 5.0), np.full(N, 7.0))), Tape()
        with tape:
            launch("square", x)
        return tape, x

    with running(executor):
        tape, x = recorded()
        tape.reverse({x: 2.0})
        np.testing.assert_array_equal(x.shadows, np.full((2, N), 4.0))
        tape, x = recorded()
        tape.reverse({x[2:4]: (1.0, np.array([2.0, 3.0]))})
        np.testing.assert_array_equal(x.shadows[0], 2.0 * np.isin(np.arange(N), [2, 3]))
        np.testing.assert_array_equal(x.shadows[1][1:5], [0.0, 4.0, 6.0, 0.0])
        tape, x = recorded()
        for bad, error in (
            ({x: (1.0, 2.0, 3.0)}, "3 seeds"),
            ({Duplicated(x.primal): 1.0}, "BatchDuplicated"),
            ({x: (1.0, np.ones(3))}, "shape"),
            ({BatchDuplicated(np.ones(N), (np.ones(N), np.ones(N))): 1.0}, "not part"),
        ):
            with pytest.raises(TapeError, match=error):
                tape.reverse(bad)
        with pytest.raises(ShadowError, match="with another shadow"):
            tape.reverse({BatchDuplicated(x.primal, (x.shadows[0], np.ones(N))): 1.0})
        with pytest.raises(ShadowError, match="with another shadow"):
            tape.reverse({BatchDuplicated(x.primal, (x.shadows[1], x.shadows[0])): 1.0})
        np.testing.assert_array_equal(x.shadows, [np.full(N, 5.0), np.full(N, 7.0)])
        tape.reverse({x: 1.0})


@BOTH
def test_one_number_of_shadows_in_a_recording(executor: str) -> None:
    x, y = np.ones(N), np.ones(N)
    two = BatchDuplicated(x, (np.zeros(N), np.zeros(N)))
    with running(executor), Tape():
        launch("square", two)
        for other in (Duplicated(y), BatchDuplicated(y, tuple(np.zeros(N) for _ in range(3))), Duplicated(x, two.shadows[0])):
            with pytest.raises(ShadowError, match="2 shadows each"):
                launch("sine", other)
        with pytest.raises(ShadowError, match="one shadow"):
            gpuad.ops.exp(Duplicated(y), out=Duplicated(np.ones(N)))
        with pytest.raises(ShadowError, match="is read bare"):
            launch("copy", BatchDuplicated(y, (np.zeros(N), np.zeros(N))), x)
    np.testing.assert_array_equal(x, 1.0)
    np.testing.assert_array_equal(y, 1.0)


def test_rules_take_one_shadow() -> None:
    two = BatchDuplicated(np.ones((3, 3)), (np.zeros((3, 3)), np.zeros((3, 3))))
    with Tape():
        for call in (lambda: gpuad.ops.matmul(two, two), lambda: gpuad.ops.sum(two), lambda: gpuad.ops.fft(two)):
            with pytest.raises(GpuadError, match="one shadow an array"):
                call()
        with pytest.raises(ShadowError, match="different shadows"):
            gpuad.ops.add(two, Duplicated(two.primal, two.shadows[0]), out=Duplicated(np.zeros((3, 3))))
    with pytest.raises(TapeError, match="outside of a tape"):
        gpuad.ops.add(two, 1.0)


@BOTH
def test_two_seeds_do_not_share_a_shadow(executor: str) -> None:
    shadow = np.zeros(2 * N)
    with running(executor), Tape(), pytest.raises(ShadowError):
        launch("square", BatchDuplicated(np.ones(N), (shadow[:N], shadow[:N])))
    with running(executor), Tape():
        launch("square", BatchDuplicated(np.ones(N), (shadow[:N], shadow[N:])))
        with pytest.raises(ShadowError, match="another seed"):
            launch("square", BatchDuplicated(np.ones(N), (shadow[N:], np.zeros(N))))


@BOTH
def test_a_batch_dropped_on_purpose(executor: str) -> None:
    x, y = BatchDuplicated(np.full(N, 2.0), (np.zeros(N), np.zeros(N))), BatchDuplicated(np.zeros(N), (np.zeros(N), np.zeros(N)))
    hidden, tape = np.zeros(N), Tape()
    with running(executor):
        with tape:
            launch("square_to", x, Const(hidden))
            launch("square_to", x, y)
            with pytest.raises(ShadowError, match="depend on active data"):
                launch("copy", y, hidden)
        tape.reverse({y: (1.0, 2.0)})
    np.testing.assert_array_equal(x.shadows, [np.full(N, 4.0), np.full(N, 8.0)])

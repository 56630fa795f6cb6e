"""Launches, copies and clearings that one call of compiled code makes are what they are one by one, on any number of threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Duplicated, LaunchError, api, pipeline
from gpuad.runtime.actions import Copying, clearing, copying, perform
from gpuad.runtime.base import Memory, Prepared, prepared
from gpuad.runtime.host import Host
from gpuad.runtime.thread_pool import Native
from gpuad.tape.facade import recording_of
from gpuad.tape.memory import versions
from gpuad.tape.replay.batching import Batched, batched

SOURCE = r"""
#define I const int i = blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void near(double* y, const double* x, double a, int n) { I; if (i < n) y[i] += a * x[i] * x[(i + 1) % n]; }
extern "C" __global__ void scale(double* y, const double* x, double a, int n) { I; if (i < n) y[i] = a * x[i] + 0.5 * y[i]; }
extern "C" __global__ void count(int* seen, int* order, int n) { I; if (i < n) { order[i] = order[i] * 3 + 1; seen[i] += 1; } }
extern "C" __global__ void slow(double* y, int n) { I; if (i < n) for (int k = 0; k < 20000; ++k) y[i] = y[i] * 0.999 + 1.0; }
"""
N, BLOCK = 5000, 64
GRID = -(-N // BLOCK)
WORKERS = [1, 2, 3, 17]


def launch(host: Host, name: str, *args: Any) -> Prepared:
    given = [Memory(a) if isinstance(a, np.ndarray) else a for a in args]
    return prepared(host, api.kernel(SOURCE, name).primal(), (GRID, 1, 1), (BLOCK, 1, 1), given)


def one(actions: Any) -> Batched:
    (found,) = batched(actions)
    assert isinstance(found, Batched)
    return found


@pytest.mark.one_of(2)
@pytest.mark.parametrize("workers", WORKERS)
def test_each_part_of_each_launch_is_run_once_and_in_order(workers: int) -> None:
    """300 launches are several portions; 3 a + 1 shows what came before what."""
    host, seen, order = Host(workers), np.zeros(N, np.int32), np.zeros(N, np.int32)
    call = one([launch(host, "count", seen, order, np.int32(N))] * 300)
    expected = np.zeros(N, np.int32)
    for run in range(1, 21):
        call()
        for _ in range(300):
            expected = expected * np.int32(3) + np.int32(1)
        assert (seen == 300 * run).all() and np.array_equal(order, expected)


def test_what_is_small_calls_no_other_thread() -> None:
    host, small, large = Host(None), np.zeros(N), np.zeros(1 << 15)
    few = launch(host, "near", small, np.ones(N), np.float64(1), np.int32(N))
    assert one([few, clearing(small)]).batch.workers == 1
    assert one([few, clearing(large)]).batch.workers == few.func.workers  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", WORKERS)
def test_neighbours_see_what_the_launch_before_wrote(workers: int) -> None:
    host, random = Host(workers), np.random.default_rng(0)
    x, y, kept = random.uniform(-1, 1, N), random.uniform(-1, 1, N), np.full((3, N), 7.0)

    def actions(x: Any, y: Any, kept: Any) -> list[Any]:
        a, n = np.float64(0.3), np.int32(N)
        return [
            launch(host, "near", y, x, a, n), copying(kept[0], y), launch(host, "near", x, y, a, n), clearing(y),
            launch(host, "near", y, x, a, n), copying(kept[1], x), copying(x, kept[0]), launch(host, "near", x, y, a, n), clearing(kept[2]),
        ] * 7  # fmt: skip

    others = [a.copy() for a in (x, y, kept)]
    with pipeline.executor_for_tests(host):
        perform(actions(*others))
        one(actions(x, y, kept))()
    assert all(np.array_equal(a, b) for a, b in zip((x, y, kept), others, strict=True))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("shape", [(3, 70001), (3000, 60), (2, 2), (1, 9)])
@pytest.mark.parametrize("far", [False, True])
def test_copies_and_clearings_of_rows(workers: int, shape: tuple[int, int], far: bool) -> None:
    random, first = np.random.default_rng(2), launch(Host(workers), "near", np.zeros(N), np.ones(N), np.float64(1), np.int32(N))
    x, y, z = (random.integers(1, 200, shape).astype(np.uint8) for _ in range(3))
    expected = [a.copy() for a in (x, y, z)]
    actions = [
        [first, copying(x[1:, 1:-1], y[1:, :-2]), clearing(y[:, :1]), copying(z, x), clearing(x[1:]), copying(y[:, 1:], z[:, :-1])]
        for x, y, z in ((x, y, z), expected)
    ]
    for action in actions[0]:
        if isinstance(action, Copying):
            action.far = far
    one([a for a in actions[0] if a is first or a.target.size])()
    perform(actions[1])
    assert all(np.array_equal(a, b) for a, b in zip((x, y, z), expected, strict=True))


@pytest.mark.parametrize("size", [1, 15, 63, 64, 65, 127, 200, 1000])
def test_a_copy_past_the_caches_writes_what_it_is_to_write(size: int) -> None:
    """From and to any place of a line, and nothing beside it."""
    first = launch(Host(1), "near", np.zeros(N), np.ones(N), np.float64(1), np.int32(N))
    source = np.random.default_rng(0).integers(1, 256, 2048).astype(np.uint8)
    for at in range(0, 64, 7):
        for to in range(0, 64, 5):
            target, wanted = np.zeros(2048, np.uint8), np.zeros(2048, np.uint8)
            wanted[to : to + size] = source[at : at + size]
            action = copying(target[to : to + size], source[at : at + size])
            action.far = True
            one([first, action])()
            assert np.array_equal(target, wanted)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("workers", WORKERS)
def test_what_is_saved_long_before_it_is_read_goes_past_the_caches(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that saves 40 kB nine times: all but the last four of them, from the second recording on."""
    found = {}
    for near in (versions.NEAR, 4 * 8 * N):
        monkeypatch.setattr(versions, "NEAR", near)
        with pipeline.executor_for_tests(Host(workers)):
            tape, run, arrays, seeds = program(9)
            start = {name: a.copy() for name, a in arrays.items()}
            for way in range(3):
                for name, a in arrays.items():
                    a[...] = start[name]
                run()
                pieces = [p for a in recording_of(tape).allocations.values() for p in a.pieces]
                copies = [action for p in pieces for action in p.saving if isinstance(action, Copying)]
                tape.reverse(seeds)
                found[near, way] = {name: a.copy() for name, a in arrays.items()}
            assert len(copies) == 9 and sum(c.far for c in copies) == (0 if near > 9 * 8 * N else 5)
    first, *others = found.values()
    assert all(np.allclose(a, each[name], rtol=1e-12, atol=0) for each in others for name, a in first.items())


def program(steps: int) -> tuple[gpuad.Tape, Callable[[], None], dict[str, Any], Any]:
    """One with sums, in which each step saves a state."""
    random = np.random.default_rng(1)
    u, v = (Duplicated(random.uniform(0.5, 1.0, N)) for _ in range(2))
    da, seed = np.zeros(()), random.uniform(size=N)
    near, scale, tape = gpuad.kernel(SOURCE, "near"), gpuad.kernel(SOURCE, "scale"), gpuad.Tape()

    def run() -> None:
        a, b = u, v
        with tape:
            for _ in range(steps):
                near[GRID, BLOCK](a, b, Active(0.1, da), N)
                scale[GRID, BLOCK](b, a, 0.2, N)
                a, b = b, a

    return tape, run, {"u": u.primal, "v": v.primal, "du": u.shadow, "dv": v.shadow, "da": da, "seed": seed}, {u: seed}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("workers", WORKERS)
def test_a_program_with_sums(workers: int) -> None:
    found = []
    for threads in (1, workers):
        with pipeline.executor_for_tests(Host(threads)):
            tape, run, arrays, seeds = program(9)
            start = {name: a.copy() for name, a in arrays.items()}
            graph = None
            for way in range(6):
                for name, a in arrays.items():
                    a[...] = start[name]
                if way < 3:  # recorded, known, in batches
                    run()
                    tape.reverse(seeds)
                else:
                    graph = graph or tape.graph(seeds)
                    graph.launch()
                found.append({name: a.copy() for name, a in arrays.items()})
    for each in found[1:]:
        assert all(np.allclose(a, each[name], rtol=1e-12, atol=0) for name, a in found[0].items())
    assert float(found[0]["da"]) != 0


def test_several_callers() -> None:
    """One has the crew, the others do without."""
    host, wrong = Host(3), []

    def call() -> None:
        seen, order = np.zeros(N, np.int32), np.zeros(N, np.int32)
        batch, alone = one([launch(host, "count", seen, order, np.int32(N))] * 40), launch(host, "count", seen, order, np.int32(N))
        for _ in range(30):
            batch()
            alone()
        if not (seen == 30 * 41).all():
            wrong.append(seen)

    launch(host, "count", np.zeros(N, np.int32), np.zeros(N, np.int32), np.int32(N))()
    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_of_a_fork() -> None:
    seen, order = np.zeros(N, np.int32), np.zeros(N, np.int32)
    call = one([launch(Host(2), "count", seen, order, np.int32(N))] * 50)
    call()
    child = os.fork()
    if child == 0:
        call()
        os._exit(0 if (seen == 100).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    call()
    assert (seen == 100).all()


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("at", [0, 3, 30])
def test_a_launch_that_fails_ends_the_batch(workers: int, at: int) -> None:
    host, seen, order = Host(workers), np.zeros(N, np.int32), np.zeros(N, np.int32)
    good = launch(host, "count", seen, order, np.int32(N))
    geometry = np.frombuffer(good.func.geometry, np.int64).__or__([1 << 40, 0, 0, 0, 0, 0, 0]).tobytes()
    native = Native(good.func.entry, geometry, good.func.slots, (), workers, False)
    bad = Prepared(native, good.kernel, good.grid, good.block, ())
    with pytest.raises(LaunchError, match="count: out of memory"):
        one([*[good] * at, bad, *[good] * 10])()
    assert (seen == at).all()
    one([good, good])()
    assert (seen == at + 2).all()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
def test_a_long_batch_can_be_interrupted() -> None:
    host, y = Host(2), np.zeros(N)
    slow = launch(host, "slow", y, np.int32(N))
    begin = time.perf_counter()
    slow()
    count = int(3.0 / (time.perf_counter() - begin)) + 10  # seconds of them
    call = one([slow] * count)

    def heard(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, heard)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_takes_python_stays_python() -> None:
    host, x, y = Host(2), np.zeros((4, 6)), np.zeros((4, 6))
    first = launch(host, "near", np.zeros(N), np.ones(N), np.float64(1), np.int32(N))
    for action in (
        copying(x, 1.0),  # a number
        copying(x, y.astype(np.float32)),  # converts
        copying(x[:, ::2], y[:, ::2]),  # has gaps between elements
        copying(x[:, None, 2:], y[:, None, 2:]),  # has gaps, and is no matrix
        copying(x[::-1, 1:], y[::-1, 1:]),  # goes back
        copying(x, y[0]),  # broadcasts
        copying(x.T, y.T[:, ::-1]),  # another order
        copying(x.reshape(-1)[1:], x.reshape(-1)[:-1]),  # overlaps
        clearing(x[:, ::2]),
        lambda: None,
    ):
        assert batched([first, action, first]) == (first, action, first)
    assert len(batched([first, copying(x, y), clearing(x.T), copying(x[:, 2:], y[::2].repeat(2, 0)[:, :4]), first])) == 1
    moves = copying(x, y), clearing(x)
    assert batched(moves) == moves  # there is nothing compiled that could do them

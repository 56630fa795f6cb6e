"""A tape that records the same program again knows it and only does it again; whatever differs is recorded as if it were new."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from nightly import cases
from tape_tools import cuda, edited, launch, never, nothing_is_analysed, pair

import gpuad
from gpuad import Active, Duplicated, LaunchError, ShadowError, TapeError, api
from gpuad.tape.facade import recording_of
from gpuad.tape.replay.trace_replay import Repeating

N = 12


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with running("reference"):
        yield


# --- random programs that change a little from one recording to the next ---------------------------------------------------------------

Step = tuple[Any, ...]


def random_step(r: random.Random) -> Step:
    x, y, z = r.sample("abc", 3)
    view = r.choice([None, None, (0, 8), (3, 11)])
    return r.choice(
        [
            ("square", x, view), ("sine", x, view), ("scale", x, r.choice([0.5, -0.0, 0.0, 1.25]), view), ("times", x, "p", view),
            ("blend", z, x, y, view), ("copy", y, x, view), ("exchange", x, y, view), ("stencil", y, x, None),
            ("gather", y, x, "index", None),
            ("next_index", "index", None), ("add in place", x, y, view), ("overwrites", x, view), ("iterate", x, "counts", view),
        ]
    )  # fmt: skip


def play(tape: gpuad.Tape, steps: list[Step], held: dict[str, Any]) -> None:
    """Records the steps. Views are made anew each time."""
    for name, *operands, view in steps:
        cut = slice(None) if view is None else slice(*view)
        given = [held[o][cut] if isinstance(o, str) else o for o in operands]
        if name == "overwrites":
            tape.overwrites(given[0])
            given[0].primal[...] = 0.25
        elif name == "add in place":
            given[0] += given[1]
        else:
            launch(name, *given)


def fresh(seed: int) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    held: dict[str, Any] = {name: pair(numbers.uniform(0.2, 0.9, N)) for name in "abc"}
    held.update(p=numbers.uniform(0.5, 1.5, N), index=numbers.integers(0, 8, N).astype(np.int32), counts=np.full(N, 2, np.int32))
    return held


def fill(held: dict[str, Any], like: dict[str, Any]) -> None:
    for name, value in like.items():
        getattr(held[name], "primal", held[name])[...] = getattr(value, "primal", value)


def content(held: dict[str, Any]) -> list[Any]:
    return [array.tobytes() for x in held.values() for array in ((x.primal, x.shadow) if isinstance(x, Duplicated) else (x,))]


def outcome(tape: gpuad.Tape, steps: list[Step], held: dict[str, Any], plain: bool) -> list[Any]:
    """All that a user sees of a recording and its reverse: arrays, shadows, bytes, or the error."""
    for name in "abc":
        held[name].shadow[...] = 0.5 if plain else 0.0
    try:
        with tape:
            launch("add", held["a"], held["b"], held["c"])
            play(tape, steps, held)
        tape.reverse(None if plain else {held["a"]: 1.0, held["b"]: held["c"].primal.copy()})
    except gpuad.GpuadError as error:
        return [type(error), re.sub(r"test_trace_replay.py:\d+", "", str(error)), *content(held)]
    stats = tape.stats
    return [*content(held), stats.saved_bytes, stats.assembled_bytes, tape.source.count("\n"), len(tape.explain().rows)]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("seed", range(cases(6, 12)))
def test_a_tape_used_again_does_what_a_new_one_does(seed: int, restore: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    r = random.Random(seed)
    tape, held, steps = gpuad.Tape(restore=restore), fresh(seed), [random_step(r) for _ in range(r.randrange(1, 9))]
    monkeypatch.setattr("gpuad.tape.replay.cursor.MAX_MISSES", 99)
    for run in range(9):
        start, other, new = fresh(100 * seed + run), fresh(100 * seed + run), gpuad.Tape(restore=restore)
        fill(held, start)
        plain = r.random() < 0.3
        results = [outcome(which, steps, arrays, plain) for which, arrays in ((tape, held), (new, other))]
        assert results[0] == results[1], f"run {run}: {steps}"
        steps = edited(steps, r, random_step)


# --- the same program --------------------------------------------------------------------------------------------------------------------


def program(u: Any, v: Any, k: Any, dt: Any) -> None:
    for _ in range(3):
        launch("half_square", v, u)
        launch("scale", v, dt)
        launch("times", v[2:9], k[2:9])
        u, v = v, u


def test_what_is_known_is_not_analysed_again() -> None:
    u, v, k, d = pair(np.linspace(0.5, 1, N)), pair(np.zeros(N)), pair(np.linspace(1, 2, N)), np.zeros(())
    tape, results = gpuad.Tape(), []
    for run in range(3):
        u.primal[...], v.primal[...], d[...], k.shadow[...] = np.linspace(0.5, 1, N), 0, 0, 0
        if run < 2:
            with tape:
                program(u, v, k, Active(0.9, d))
            tape.reverse({v: 1.0})
        else:
            with nothing_is_analysed():
                with tape:
                    program(u, v, k, Active(0.9, d))
                tape.reverse({v: 1.0})
        results.append([a.copy() for a in (u.primal, v.primal, k.shadow, u.shadow, d)])
    for result in results[1:]:
        for a, b in zip(results[0], result, strict=True):
            assert np.array_equal(a, b)


def test_other_content_in_the_same_arrays() -> None:
    x, p, tape = pair(np.ones(N)), np.ones(N), gpuad.Tape()
    for start, factor in ((0.5, 2.0), (0.7, 3.0), (0.9, -1.0)):
        x.primal[...], p[...] = start, factor
        with tape:
            launch("square", x)
            launch("times", x, p)
            launch("square", x)
        tape.reverse({x: 1.0})
        assert np.allclose(x.shadow, 4 * start**3 * factor**2)


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.25), (0.0, -0.0), (1, 1.0), (np.float64(0.5), 0.5), (True, 1)])
def test_another_number_is_another_call(first: Any, second: Any) -> None:
    x, tape = pair(np.ones(N)), gpuad.Tape()
    for a in (first, first, second):
        x.primal[...] = 1.0
        with tape:
            launch("scale", x, a)
        tape.reverse({x: 1.0})
        assert np.array_equal(x.shadow, np.full(N, float(a))) and np.array_equal(np.signbit(x.primal), np.full(N, np.signbit(float(a))))


def test_seeds_of_their_own_for_each_reverse() -> None:
    x, y, tape = pair(np.full(N, 0.5)), pair(np.zeros(N)), gpuad.Tape()
    for seeds, dx in (
        ({y: 1.0}, 1.0),
        ({x: 1.0}, 1.0),
        ({y: 2.0, x: 3.0}, 5.0),
        ({y: np.full(N, 4.0)}, 4.0),
        ({x[3:]: 1.0}, None),
        ({y: 1.0}, 1.0),
    ):
        x.shadow[...] = 0
        with tape:
            launch("half_square", y, x)
        tape.reverse(seeds)
        expected = 0.5 * dx if y in seeds and x not in seeds and dx else None
        if expected is not None:
            assert np.allclose(x.shadow, expected)
        elif len(seeds) == 2:
            assert np.allclose(x.shadow, 3.0 + 0.5 * 2.0)


def test_a_seed_that_shows_a_new_shadow_is_no_part_of_the_next_recording() -> None:
    x, y = pair(np.full(N, 0.5)), pair(np.full(N, 2.0))
    tape = gpuad.Tape()
    for seeds, left in (({x: 1.0, y: 1.0}, 0.0), ({x: 1.0}, 7.0), ({x: 1.0, y: 1.0}, 0.0)):
        y.shadow[...] = 7.0
        with tape:
            launch("square", x)
            launch("fill", y.primal, 2.0)  # bare: only the seed says that it has a shadow
        tape.reverse(seeds)
        assert np.array_equal(y.shadow, np.full(N, left)), seeds


# --- what is not the same -----------------------------------------------------------------------------------------------------


def test_memory_that_was_made_read_only_is_refused() -> None:
    x, tape = pair(np.ones(N)), gpuad.Tape()
    for _ in range(2):
        with tape:
            launch("square", x)
        tape.reverse({x: 1.0})
    x.primal.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"), tape:
        launch("square", x)


def test_other_memory_is_another_program() -> None:
    tape = gpuad.Tape()
    for start in (0.5, 0.6, 0.7):
        x = pair(np.full(N, start))
        with tape:
            launch("square", x)
        tape.reverse({x: 1.0})
        assert np.allclose(x.shadow, 2 * start)


def test_another_shadow_is_another_program() -> None:
    x, one, two, tape = np.full(N, 0.5), np.zeros(N), np.zeros(N), gpuad.Tape()
    for shadow in (one, one, two):
        x[...], shadow[...] = 0.5, 0
        with tape:
            launch("square", Duplicated(x, shadow))
        tape.reverse({Duplicated(x, shadow): 1.0})
        assert np.allclose(shadow, 1.0)


def test_what_is_refused_once_is_refused_again() -> None:
    x, y, index, tape = pair(np.ones(N)), pair(np.ones(N)), np.zeros(N, np.int32), gpuad.Tape()
    for _ in range(3):
        with tape:
            launch("gather", y, x, index)
            with pytest.raises(ShadowError):
                launch("square", x.primal)
            launch("square", y)
        tape.reverse({y: 1.0})


TWICE = """extern "C" __global__ void put(double* y, const double* x, const int* index, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[index[i]] = x[i] * x[i]; }
"""


def test_stores_are_checked_each_time() -> None:
    put, x, y, index, tape = gpuad.kernel(TWICE, "put"), pair(np.ones(N)), pair(np.ones(N)), np.arange(N, dtype=np.int32), gpuad.Tape()
    for run in range(4):
        index[...] = 0 if run == 2 else np.arange(N)
        y.primal[...], x.primal[...] = 1, 0.5
        with tape:
            launch("square", x)
            if run == 2:
                with pytest.raises(LaunchError, match="two threads write"):
                    put[1, N](y, x, index, N)
            else:
                put[1, N](y, x, index, N)
            launch("square", x)
        tape.reverse({y: 1.0, x: 1.0})
        outer = 0.0 if run == 2 else 4 * 0.125
        assert np.allclose(x.shadow, 4 * 0.125 + outer), run


def test_a_failure_in_the_middle_spoils_the_recording_and_not_the_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    x, tape = pair(np.full(N, 0.5)), gpuad.Tape()

    def record() -> None:
        x.primal[...] = 0.5
        with tape:
            launch("square", x)
            launch("sine", x)

    record()
    record()
    executor = EXECUTORS["reference"]
    kernel_of = executor._program
    monkeypatch.setattr(executor, "_program", lambda k: never() if k.name == "sine" else kernel_of(k))
    with pytest.raises(AssertionError):
        record()
    with pytest.raises(TapeError, match=r"interrupted"):
        tape.reverse({x: 1.0})
    monkeypatch.undo()
    record()
    tape.reverse({x: 1.0})
    assert np.allclose(x.shadow, (np.cos(0.25) + 0.5) * 2 * 0.5)


def test_an_exception_of_the_user_in_the_middle() -> None:
    x, tape = pair(np.full(N, 0.5)), gpuad.Tape()
    for run in range(4):
        x.primal[...] = 0.5
        try:
            with tape:
                launch("square", x)
                if run == 1:
                    raise KeyError
                launch("square", x)
        except KeyError:
            with pytest.raises(TapeError, match="interrupted by KeyError"):
                tape.reverse({x: 1.0})
            continue
        tape.reverse({x: 1.0})
        assert np.allclose(x.shadow, 4 * 0.125)


def test_what_is_saved_last_time_is_not_needed_this_time() -> None:
    x, tape, taken = pair(np.full(N, 0.5)), gpuad.Tape(), []
    for steps in (3, 3, 1, 3):
        x.primal[...] = 0.5
        with tape:
            for _ in range(steps):
                launch("square", x)
        taken.append(tape.stats.saved_bytes)
        tape.reverse({x: 1.0})
        assert np.allclose(x.shadow, 2**steps * 0.5 ** (2**steps - 1))
    assert taken[0] == taken[1] == taken[3] == 3 * taken[2]


def test_another_executor_is_another_program() -> None:
    x, tape = pair(np.full(N, 0.5)), gpuad.Tape()
    for name in ("reference", "reference", "host", "reference"):
        with running(name):
            x.primal[...] = 0.5
            with tape:
                launch("square", x)
            tape.reverse({x: 1.0})
            assert np.allclose(x.shadow, 1.0)


def test_arguments_that_can_change_are_not_compared() -> None:
    seen = []

    @gpuad.rule(reads=("x",), overwrites=("x",), reverse=_by_reverse)
    def by(x: Any, factors: list[float]) -> None:
        seen.append(list(factors))
        x *= factors[0]

    x, tape, factors = pair(np.ones(N)), gpuad.Tape(), [2.0]
    for factor in (2.0, 3.0, 4.0):
        factors[0], x.primal[...] = factor, 1.0
        with tape:
            by(x, factors)
        tape.reverse({x: 1.0})
        assert np.allclose(x.shadow, factor)


def _by_reverse(dx: Any, dx_before: Any, factors: Any) -> None:
    dx_before += factors[0] * dx


def test_temporaries_are_made_anew() -> None:
    x, tape = pair(np.full(N, 0.5)), gpuad.Tape()
    for start in (0.5, 0.6, 0.7):
        x.primal[...], x.shadow[...] = start, 0
        with tape:
            z = x * x
            launch("square", z)
        tape.reverse({z: 1.0})
        assert np.allclose(x.shadow, 4 * start**3)


def test_constants_of_a_module() -> None:
    text = """__constant__ double c[2];
    extern "C" __global__ void times_c(double* x, int n) { int i = threadIdx.x; if (i < n) x[i] = c[0] * x[i] * x[i]; }"""
    kernel, x, tape = gpuad.kernel(text, "times_c"), pair(np.full(N, 0.5)), gpuad.Tape()
    for value in (1.0, 2.0, 3.0):
        kernel.get_global("c")[...] = value
        x.primal[...] = 0.5
        with tape:
            kernel[1, N](x, N)
        tape.reverse({x: 1.0})
        assert np.allclose(x.shadow, value)


def test_changes_behind_a_known_recording_are_noticed() -> None:
    x, y, tape = pair(np.full(N, 0.5)), pair(np.zeros(N)), gpuad.Tape()
    for run in range(3):
        x.primal[...] = 0.5
        with tape:
            launch("half_square", y, x)
        if run == 2:
            x.primal[0] = 7.0
            with pytest.raises(TapeError, match="was changed"):
                tape.reverse({y: 1.0})
        else:
            tape.reverse({y: 1.0})


def test_an_exact_tape_compares_bytes_and_not_calls() -> None:
    x, tape = pair(np.full(N, 0.5)), gpuad.Tape(check="exact")
    for run in range(3):
        x.primal[...] = 0.5
        other = x.primal.view()  # which no lock sees
        with pytest.raises(TapeError, match="was changed") if run == 2 else _fine(), tape:
            launch("half_square", pair(np.zeros(N)), x)
            if run == 2:
                other[0] = 7.0
            launch("square", x)


@contextmanager
def _fine() -> Iterator[None]:
    yield


def test_programs_that_always_differ_are_not_compared_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    differed: list[int] = []
    differ: Callable[..., None] = Repeating.differ

    def counted(self: Any, why: str) -> None:
        differed.append(1) if self.cursor.expected is not None else None
        differ(self, why)

    monkeypatch.setattr(Repeating, "differ", counted)
    x, tape = pair(np.full(N, 0.5)), gpuad.Tape()
    for run in range(9):
        with tape:
            launch("scale", x, 0.5 + run)
        tape.reverse({x: 1.0})
    assert len(differed) == 3
    assert cuda("scale") is not None


# --- a program that differs is taken over, not bound again ------------------------------------------------------------------------------


def test_what_has_passed_is_not_bound_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls before the one that differs keep what is known of them: nothing of theirs is bound, judged or made again."""
    tape, held = gpuad.Tape(), fresh(1)

    def rounds(more: bool) -> None:
        with tape:
            for _ in range(4):
                launch("sine", held["a"])
                launch("times", held["b"], held["p"])
            if more:
                launch("square", held["a"])
        tape.reverse({held["a"]: 1.0, held["b"]: 1.0})

    rounds(False)
    rounds(False)
    before = [op.known for op in recording_of(tape).trace.ops]
    bound: list[str] = []
    bind = api.Kernel.recalled
    monkeypatch.setattr(api.Kernel, "recalled", lambda self, *given: bound.append(self.name) or bind(self, *given))  # type: ignore[func-returns-value]
    rounds(True)
    after = recording_of(tape).trace.ops
    assert bound == ["square"] and [op.known for op in after[:8]] == before and len(after) == 9
    other, wanted = gpuad.Tape(), fresh(1)
    fill(held, wanted)
    held["a"].shadow[...] = held["b"].shadow[...] = 0
    rounds(True)
    with other:
        for _ in range(4):
            launch("sine", wanted["a"])
            launch("times", wanted["b"], wanted["p"])
        launch("square", wanted["a"])
    other.reverse({wanted["a"]: 1.0, wanted["b"]: 1.0})
    assert content(held) == content(wanted) and tape.stats.saved_bytes == other.stats.saved_bytes


def test_an_op_whose_end_was_interrupted_is_no_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a launch and its entry in the recording an interrupt leaves no gap that a reverse would not see."""
    tape, held = gpuad.Tape(), fresh(2)

    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    with tape:
        launch("sine", held["a"])
        monkeypatch.setattr(recording_of(tape).judge, "note_uses", interrupted)
        with pytest.raises(KeyboardInterrupt):
            launch("square", held["a"])
        monkeypatch.undo()
    with pytest.raises(TapeError, match=r"interrupted at operation 1 \(square\) by KeyboardInterrupt"):
        tape.reverse({held["a"]: 1.0})

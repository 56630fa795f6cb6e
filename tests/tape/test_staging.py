"""A program that makes arrays anew in each round is known from the third on; gradients are right, and the caller's arrays his."""

from __future__ import annotations

import itertools
import random
import runpy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from nightly import cases
from tape_tools import edited, launch, nothing_is_analysed
from test_trace_replay import fresh, play, random_step

import gpuad
from gpuad import Active, Const, Duplicated, ShadowError, Tape, TapeError, ops
from gpuad.interop.sessions import Session
from gpuad.runtime.array_types import NdArray
from gpuad.tape.facade import recording_of
from gpuad.tape.record.call_keys import arrays_of

N, ROUNDS = 6, 6
START = np.linspace(0.5, 1.5, N)


@pytest.fixture(autouse=True, params=["host", "reference"])
def executor(request: pytest.FixtureRequest) -> Iterator[None]:
    with running(request.param):
        yield


def known_from_the_third_on(number: int) -> Any:
    return nothing_is_analysed() if number > 1 else contextmanager(lambda: iter([None]))()


# --- each kind of call ------------------------------------------------------------------------------------------------------------------

Loss = Callable[[Any, int], Any]  # of the pair x**2 and the number of the round
Expected = Callable[[NdArray, int], tuple[Any, Any]]  # the loss and its derivative with respect to x**2


def some(number: int) -> NdArray:
    return np.random.default_rng(number).integers(0, N, 9)


def where(number: int) -> NdArray:
    return np.arange(N) % 3 == number % 3


def filled(array: NdArray, key: Any, value: float) -> NdArray:
    array = array.copy()
    array[key] = value
    return array


def in_fresh_pair(y: Any, number: int) -> Any:
    z = Duplicated(np.empty(N))
    launch("half_square", z, y)
    return ops.sum(z * z)


def of_fresh_pair(y: Any, number: int) -> Any:
    z = Duplicated(np.full(N, 2.0 + number))
    launch("times", y, z)
    return ops.sum(y)


def in_part_of_fresh_pair(y: Any, number: int) -> Any:
    z = Duplicated(np.zeros((3, N)))
    launch("half_square", z[1], y)
    z[2] = z[1] * np.full(N, 1.0 + number)
    return ops.sum(z)


def by_fresh_array(y: Any, number: int) -> Any:
    launch("times", y, np.full(N, 2.0 + number))
    return ops.sum(y)


def by_written_array(y: Any, number: int) -> Any:
    factors = np.zeros(2 * N)
    launch("fill", factors[N:], 2.0)
    factors[-1] = 3.0 + number  # nothing depends on it yet
    launch("times", y, factors[N:])
    return ops.sum(y)


def in_place_of_some(y: Any, number: int) -> Any:
    y[permuted(number)] = np.full(2, 2.0 + number)
    return ops.sum(y * y)


def added_at(y: Any, number: int) -> Any:
    ops.scatter_add(y, some(number), np.full(9, 0.5))
    return ops.sum(y * y)


def added(y: NdArray, number: int) -> NdArray:
    y = y.copy()
    np.add.at(y, some(number), 0.5)
    return y


def permuted(number: int) -> NdArray:
    return np.random.default_rng(number).permutation(N)[:2]


KINDS: dict[str, tuple[Loss, Expected]] = {
    "a transform": (
        lambda y, k: ops.sum(ops.absolute(ops.fft(y * 1.0)) ** 2),
        lambda y, k: (N * (y * y).sum(), 2 * N * y),
    ),
    "a product of complex numbers": (
        lambda y, k: ops.sum((ops.astype(y, complex) * (1 + 2j)).imag * 1.0),
        lambda y, k: (2 * y.sum(), np.full(N, 2.0)),
    ),
    "an index array": (
        lambda y, k: ops.sum(y[some(k)]),
        lambda y, k: (y[some(k)].sum(), np.bincount(some(k), minlength=N)),
    ),
    "take": (
        lambda y, k: ops.sum(ops.take(y, some(k)) ** 2),
        lambda y, k: ((y[some(k)] ** 2).sum(), 2 * y * np.bincount(some(k), minlength=N)),
    ),
    "a mask": (lambda y, k: ops.sum(y[where(k)]), lambda y, k: (y[where(k)].sum(), where(k))),
    "a choice": (
        lambda y, k: ops.sum(ops.where(y > 1.0 + k / 10, y, 0.0)),
        lambda y, k: (y[y > 1.0 + k / 10].sum(), y > 1.0 + k / 10),
    ),
    "put": (in_place_of_some, lambda y, k: ((filled(y, permuted(k), 2.0 + k) ** 2).sum(), filled(2 * y, permuted(k), 0.0))),
    "scatter_add": (added_at, lambda y, k: ((added(y, k) ** 2).sum(), 2 * added(y, k))),
    "a plain temporary": (
        lambda y, k: ops.sum(y * ops.multiply(np.full(N, 1.0 + k), 2.0)),
        lambda y, k: (2 * (1 + k) * y.sum(), np.full(N, 2.0 * (1 + k))),
    ),
    "a pair to write": (in_fresh_pair, lambda y, k: ((y**4).sum() / 4, y**3)),
    "a pair to read": (of_fresh_pair, lambda y, k: ((2 + k) * y.sum(), np.full(N, 2.0 + k))),
    "parts of a pair": (in_part_of_fresh_pair, lambda y, k: ((2 + k) * (y**2).sum() / 2, (2 + k) * y)),
    "an array to read": (by_fresh_array, lambda y, k: ((2 + k) * y.sum(), np.full(N, 2.0 + k))),
    "an array to write": (
        by_written_array,
        lambda y, k: ((filled(np.full(N, 2.0), -1, 3.0 + k) * y).sum(), filled(np.full(N, 2.0), -1, 3.0 + k)),
    ),
}


@pytest.mark.one_of(4)
@pytest.mark.parametrize("budget", [None, "1 MiB"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_known_from_the_third_round_on(kind: str, budget: str | None) -> None:
    tape, x, dx, losses = Tape(budget=budget), np.zeros(N), np.zeros(N), []
    X = Duplicated(x, dx)
    loss, expected = KINDS[kind]
    for number in range(ROUNDS):
        x[...], dx[...] = START + number / 10, 0.0
        with known_from_the_third_on(number):
            with tape:
                y = X * X
                found = loss(y, number)
            tape.reverse({found: 1.0})
        assert not tape.explain().anew or number == 1
        value, slope = expected(x * x, number)
        losses.append((found, value))
        np.testing.assert_allclose(dx, 2 * x * slope, rtol=1e-13, err_msg=f"round {number}")
        fresh = Tape()
        dx[...] = 0.0
        with fresh:
            again = loss(X * X, number)
        fresh.reverse({again: 1.0})
        np.testing.assert_allclose(dx, 2 * x * slope, rtol=1e-13)
    for found, value in losses:
        np.testing.assert_allclose(float(found.primal), value, rtol=1e-13)


def test_what_a_program_can_do_again_within_a_small_budget() -> None:
    """It runs again in its reverse what it has not kept, with pairs and arrays that are others in each round."""

    def play(tape: Tape, number: int) -> tuple[NdArray, NdArray]:
        X = Duplicated(START + number / 10)
        p = np.full(N, 1.0 + number / 8)
        with tape:
            for _ in range(30):
                launch("sine", X)
                launch("times", X, p)
        tape.reverse({X: 1.0})
        return X.primal, X.shadow

    wanted = [play(Tape(), number) for number in range(ROUNDS)]
    tape = Tape(budget=6000)
    for number, (y, dx) in enumerate(wanted):
        with known_from_the_third_on(number - 1):  # the second round that is known is the first by its schedule
            found = play(tape, number)
        np.testing.assert_array_equal(found[0], y)
        np.testing.assert_array_equal(found[1], dx)
        assert recording_of(tape).most <= 6000
    assert tape.stats.saved_bytes < 30 * N * 8


# --- what the caller has is his -----------------------------------------------------------------------------------------------------------


def test_arrays_of_earlier_rounds_keep_what_they_held() -> None:
    tape, x, kept = Tape(), np.zeros(N), []
    X = Duplicated(x, np.zeros(N))
    for number in range(ROUNDS):
        x[...], X.shadow[...] = START + number, 0.0
        with known_from_the_third_on(number), tape:
            out, plain = np.zeros(N), np.full(N, 2.0)
            Y = Duplicated(out)
            launch("half_square", Y, X)
            np.testing.assert_array_equal(out, x * x / 2)  # in the middle of the block
            double = ops.multiply(plain, np.full(N, 1.0 + number))
            launch("times", Y, double)
            np.testing.assert_array_equal(out, x * x * (1 + number))
        tape.reverse({Y: np.full(N, 3.0)})
        kept.append((out, Y, plain, double, x.copy()))
    for number, (out, Y, plain, double, x) in enumerate(kept):
        np.testing.assert_array_equal(out, x * x * (1 + number))
        assert Y.primal is out
        np.testing.assert_array_equal(Y.shadow, 0.0)  # it was taken
        np.testing.assert_array_equal((plain[0], double[-1]), (2.0, 2.0 * (1 + number)))


@pytest.mark.parametrize("given", ["a shadow", "none", "a view"])
def test_gradients_of_pairs_of_earlier_rounds(given: str) -> None:
    """Gradients are added to what a shadow held."""
    tape, kept = Tape(), []
    for number in range(ROUNDS):
        u = START + number
        U = Duplicated(np.stack([u, u]))[1] if given == "a view" else Duplicated(u, np.full(N, 0.25) if given == "a shadow" else None)
        y = Duplicated(np.zeros(N))
        with known_from_the_third_on(number):
            with tape:
                launch("half_square", y, U)
            tape.reverse({y: 1.0})
        kept.append((u, U))
    for u, U in kept:
        np.testing.assert_allclose(U.shadow, u + (0.25 if given == "a shadow" else 0.0), rtol=1e-15)


def test_the_raw_rule_reads_shadows_of_this_round() -> None:
    tape = Tape()
    for number in range(ROUNDS):
        U, y = Duplicated(START + number), Duplicated(np.zeros(N))
        with tape:
            launch("half_square", y, U)
        y.shadow[...] = 1.0 + number
        tape.reverse()
        np.testing.assert_allclose(U.shadow, (1 + number) * (START + number), rtol=1e-15)
        np.testing.assert_array_equal(y.shadow, 0.0)


def test_restored_arrays_of_this_round() -> None:
    tape = Tape(restore=True)
    for number in range(ROUNDS):
        U = Duplicated(START + number)
        with tape:
            launch("square", U)
        np.testing.assert_array_equal(U.primal, (START + number) ** 2)
        tape.reverse({U: 1.0})
        np.testing.assert_array_equal(U.primal, START + number)
        np.testing.assert_allclose(U.shadow, 2 * (START + number), rtol=1e-15)


def test_a_number_with_a_shadow_of_this_round() -> None:
    tape = Tape()
    for number in range(ROUNDS):
        x, slope = Duplicated(START + number), np.zeros(())
        with known_from_the_third_on(number):
            with tape:
                launch("scale", x, Active(0.5, slope))
            tape.reverse({x: 1.0})
        np.testing.assert_allclose(slope, (START + number).sum(), rtol=1e-14)


def test_lists_of_a_rule_are_compared_by_what_is_in_them() -> None:
    tape, x = Tape(), np.ones(N)
    X = Duplicated(x, np.zeros(N))
    for number in range(ROUNDS):
        x[...], X.shadow[...] = 1.0, 0.0
        with known_from_the_third_on(number):
            with tape:
                times_all(X, [2.0, np.full(N, 3.0 + number)], {"more": 0.5})
            tape.reverse({X: 1.0})
        np.testing.assert_array_equal(x, 3.0 + number)
        np.testing.assert_array_equal(X.shadow, 3.0 + number)


def _times_all_reverse(dx: Any, dx_before: Any, factors: Any, more: Any) -> None:
    dx_before += dx * factors[0] * factors[1] * more["more"]


@gpuad.rule(reads=("x",), overwrites=("x",), reverse=_times_all_reverse)
def times_all(x: Any, factors: Any, more: Any) -> None:
    x *= factors[0] * factors[1] * more["more"]


# --- who is whose -------------------------------------------------------------------------------------------------------------------------


def test_arrays_that_were_one_and_are_two() -> None:
    """And the other way round: it is another program then, and right."""
    tape = Tape()
    for number, one in enumerate(itertools.islice(itertools.cycle([True, True, True, False, False]), 11)):
        u = Duplicated(START + number)
        v = u if one else Duplicated(START + number)
        z = Duplicated(np.zeros(N))
        with tape:
            launch("product", z, u, v)
        tape.reverse({z: 1.0})
        np.testing.assert_allclose(u.shadow, (2 if one else 1) * (START + number), rtol=1e-15)
        np.testing.assert_allclose(v.shadow, u.shadow)


def test_overlapping_views_of_one_array_of_this_round() -> None:
    tape = Tape()
    for number in range(ROUNDS):
        base = np.zeros(2 * N)
        base[:N] = START + number
        U = Duplicated(base)
        with known_from_the_third_on(number):
            with tape:
                launch("half_square", U[N:], U[:N])
                launch("times", U[3 : 3 + N], np.full(N, 2.0))
            tape.reverse({U: 1.0})
        u = START + number
        factors = np.where((np.arange(2 * N) >= 3) & (np.arange(2 * N) < 3 + N), 2.0, 1.0)
        np.testing.assert_array_equal(base, factors * np.concatenate([u, u * u / 2]))
        np.testing.assert_array_equal(U.shadow, [*(factors[:N] + factors[N:] * u), *np.zeros(N)])


def test_an_array_that_the_program_has_is_not_staged_beside_itself() -> None:
    """A pair that was met in its own memory comes where another one came."""
    tape, x = Tape(), np.zeros(N)
    X = Duplicated(x, np.zeros(N))
    for number in range(ROUNDS):
        x[...], X.shadow[...] = START, 0.0
        other = Duplicated(START + number, np.zeros(N)) if number % 3 else X
        with tape:
            launch("square", X)
            z = X * other
        tape.reverse({z: 1.0})
        if other is X:
            np.testing.assert_allclose(X.shadow, 4 * START**3, rtol=1e-14)
        else:
            np.testing.assert_allclose(X.shadow, 2 * START * (START + number), rtol=1e-14)
            np.testing.assert_allclose(other.shadow, START**2, rtol=1e-14)


def test_memory_that_others_share_is_refused() -> None:
    tape, buffers = Tape(), [bytearray(16 * N) for _ in range(4)]
    for number, buffer in enumerate(buffers):
        one, two = np.frombuffer(buffer, count=N), np.frombuffer(buffer, count=N, offset=8 * (N - 1 if number > 2 else N))
        with pytest.raises(ShadowError, match="shares memory") if number == 3 else contextmanager(lambda: iter([None]))(), tape:
            launch("square", Duplicated(one))
            launch("square", Duplicated(two))


def test_read_only_arrays_are_refused_as_outputs_in_each_round() -> None:
    tape = Tape()
    for _ in range(4):
        y = np.zeros(N)
        with tape:
            launch("fill", y, 2.0)
        y = np.zeros(N)
        y.flags.writeable = False
        with pytest.raises(gpuad.GpuadError, match="read-only"), tape:
            launch("fill", y, 2.0)
        np.testing.assert_array_equal(y, 0.0)


def test_an_array_of_this_round_is_locked_as_any() -> None:
    tape = Tape()
    for number in range(4):
        u = START + number
        U, z = Duplicated(u), Duplicated(np.zeros(N))
        with pytest.raises(ValueError, match="read-only"), tape:
            launch("half_square", z, U)
            u[0] = 7.0
        u[0] = 7.0
        with tape:
            launch("half_square", z, U)
            tape.overwrites(U)
            u[...] = 2.0
            launch("half_square", z, U)
            with pytest.raises(ValueError, match="read-only"):
                u[0] = 1.0
        np.testing.assert_array_equal(z.primal, 2.0)


def test_what_stands_still_is_used_as_it_is() -> None:
    """Arrays that are the same in each round are worked on where they are, beside those that are not."""
    tape, x = Tape(), START.copy()
    X = Duplicated(x, np.zeros(N))
    for number in range(ROUNDS):
        X.shadow[...] = 0.0
        with tape:
            launch("times", X, np.ones(N))
        tape.reverse({X: 1.0})
        assert gpuad.tape.program_recording.address(x) in recording_of(tape).allocations, number


def test_a_late_shadow_of_a_seed_in_each_round() -> None:
    tape, x, y = Tape(), START.copy(), np.zeros(N)
    X = Duplicated(x, np.zeros(N))
    for number in range(ROUNDS):
        x[...], dy = START, np.full(N, 7.0)
        with known_from_the_third_on(number), tape:
            launch("square", X)
            launch("fill", y, 2.0)
        tape.reverse({X: 1.0, Duplicated(y, dy): 1.0})
        np.testing.assert_array_equal(dy, 0.0)


def test_a_graph_of_a_program_on_arrays_of_this_round() -> None:
    tape = Tape()
    for number in range(4):
        U, z = Duplicated(START + number, np.zeros(N)), Duplicated(np.zeros(N), np.zeros(N))
        with tape:
            launch("half_square", z, U)
            launch("times", z, np.full(N, 2.0))
        tape.reverse({z: 1.0})
    graph = tape.graph({z: 1.0})
    for start in (2.0, 3.0):
        U.primal[...], U.shadow[...] = start, 0.0
        graph.launch()
        np.testing.assert_array_equal(z.primal, start**2)
        np.testing.assert_array_equal(U.shadow, 2 * start)


# --- what is said ------------------------------------------------------------------------------------------------------------------------


def test_a_round_that_was_recorded_anew_says_why() -> None:
    tape, x = Tape(), START.copy()
    X = Duplicated(x, np.zeros(N))

    def play(body: Callable[[], Any]) -> str:
        with tape:
            launch("square", X)
            body()
        return tape.explain().anew

    assert play(lambda: launch("scale", X, 0.5)) == ""
    assert play(lambda: launch("scale", X, 0.5)) == "" and "anew" not in str(tape.explain())
    assert play(lambda: launch("scale", X, 0.25)).endswith("argument 2 is float 0.25, and was float 0.5")
    assert "recorded anew: operation 1, scale (tape_tools.py:" in str(tape.explain())
    assert play(lambda: launch("sine", X)).endswith("sine came in its place")
    assert play(lambda: launch("sine", X)) == ""
    assert play(lambda: None).endswith("the program ended before it")
    assert play(lambda: launch("sine", X)).endswith("the program had ended, and sine came")


def test_a_held_array_and_settings_are_reasons() -> None:
    tape, kept = Tape(), []
    X = Duplicated(START.copy(), np.zeros(N))
    for number in range(3):
        with tape:
            kept.append((X * 2.0).primal)
        assert ("is still held" in tape.explain().anew) is (number == 1)
    exact = Tape(check="exact")
    for number in range(2):
        with exact:
            launch("square", X)
        assert "check='exact'" in exact.explain().anew, number


def test_constants_of_this_round() -> None:
    tape = Tape()
    X = Duplicated(START.copy(), np.zeros(N))
    for number in range(ROUNDS):
        X.primal[...], X.shadow[...] = START, 0.0
        with known_from_the_third_on(number):
            with tape:
                launch("times", X, Const(np.full(N, 2.0 + number)))
            tape.reverse({X: 1.0})
        np.testing.assert_array_equal(X.shadow, 2.0 + number)


def test_two_seeds_for_one_array_of_this_round() -> None:
    tape = Tape()
    for _ in range(4):
        z = np.zeros(N)
        with tape:
            launch("half_square", Duplicated(z, np.zeros(N)), Duplicated(START.copy()))
        with pytest.raises(TapeError, match="two seeds"):
            tape.reverse({Duplicated(z): 1.0, Duplicated(z[...]): 1.0})


def test_names_and_files_of_a_program_on_arrays_of_this_round(tmp_path: Path) -> None:
    tape = Tape()
    for number in range(3):
        u, y = START + number, np.zeros(N)
        U, Y = Duplicated(u), Duplicated(y)
        with tape:
            launch("half_square", Y, U)
            launch("square", U)
    assert {row.name for row in tape.explain().rows} == {"u"} and "u" in {h.name for h in tape.held().held}
    tape.save(tmp_path, {"velocity": U, "energy": Y})
    program: Any = runpy.run_path(str(tmp_path / "program.py"))
    shadows = {"velocity": np.zeros(N), "energy": np.ones(N)}
    program["reverse"]({"velocity": u, "energy": y}, shadows)
    np.testing.assert_allclose(shadows["velocity"], START + 2, rtol=1e-15)


def test_a_session_of_a_bridge_whose_program_makes_its_outputs() -> None:
    """The tape has met a pair that a program returns, also where a buffer stands for it."""
    X = Duplicated(np.zeros(N), np.zeros(N))

    def program(x: Any) -> Any:
        out = Duplicated(np.empty(N))
        launch("half_square", out, x)
        return out

    session = Session([X], None)
    for number in range(ROUNDS):
        X.primal[...] = START + number
        (out,) = session.record(program, [None])
        np.testing.assert_array_equal(out.primal, X.primal**2 / 2)
        session.reverse([np.ones(N)])
        np.testing.assert_array_equal(X.shadow, START + number)


# --- random programs ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(6)
@pytest.mark.parametrize("options", [{}, {"restore": True}, {"budget": "1 MiB"}], ids=str)
@pytest.mark.parametrize("seed", range(cases(6, 12)))
def test_random_programs_on_arrays_of_their_round(seed: int, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round some of the arrays are others, and now and then the program is; it does what a new tape does, and leaves alone what is
    left of earlier rounds."""
    r = random.Random(seed)
    monkeypatch.setattr("gpuad.tape.replay.cursor.MAX_MISSES", 99)
    tape, steps = Tape(**options), [random_step(r) for _ in range(r.randrange(1, 9))]
    changing = [name for name in HELD if r.random() < 0.6]
    held, left = fresh(seed), {}
    for number in range(9):
        start, whole = fresh(100 * seed + number), r.random() < 0.3
        for name in HELD:
            held[name] = of_this_round(held[name], start[name], r) if name in changing else filled_like(held[name], start[name])
        plain, cut = r.random() < 0.3, slice(None) if whole else slice(2, 9)
        other = {name: copied(x) for name, x in held.items()}
        results = [outcome(which, steps, arrays, plain, cut) for which, arrays in ((tape, held), (Tape(**options), other))]
        assert results[0] == results[1], f"round {number}: {steps}"
        left |= {id(array): (array, array.tobytes()) for x in held.values() for array in arrays_of(x)}
        assert all(array.tobytes() == content for array, content in left.values())
        if r.random() < 0.15:
            steps = edited(steps, r, random_step)


HELD = ("a", "b", "c", "p", "index", "counts")


def of_this_round(x: Any, like: Any, r: random.Random) -> Any:
    """A new array, or pair, of this content: of its own, with or without a shadow, in a larger one, or in one with its shadow."""
    content, way = getattr(like, "primal", like), r.randrange(5)
    if way == 0:
        return filled_like(x, like)
    if way == 1:
        whole = np.zeros(3 * content.size, content.dtype)
        part = (Duplicated(whole) if isinstance(like, Duplicated) else whole)[content.size : 2 * content.size]
        return filled_like(part, like)
    if not isinstance(like, Duplicated):
        return content.copy()
    both = np.stack([content, np.zeros(content.shape)])
    return Duplicated(both[0], both[1]) if way == 2 else Duplicated(content.copy(), np.zeros(content.shape) if way == 3 else None)


def filled_like(x: Any, like: Any) -> Any:
    getattr(x, "primal", x)[...] = getattr(like, "primal", like)
    return x


def copied(x: Any) -> Any:
    """A copy that lies in its allocation as the original does."""
    if not isinstance(x, Duplicated):
        return x.copy() if x.base is None else x.base.copy()[x.size : 2 * x.size]
    if x._of is not None:
        return Duplicated(x._of.primal.copy())[x.size : 2 * x.size]
    both = None if x.primal.base is None else x.primal.base.copy()
    return Duplicated(x.primal.copy(), np.zeros(x.shape)) if both is None else Duplicated(both[0], both[1])


def outcome(tape: Tape, steps: Any, held: dict[str, Any], plain: bool, cut: slice) -> Any:
    for name in "abc":
        held[name].shadow[...] = 0.5 if plain else 0.0
    try:
        with tape:
            launch("add", held["a"], held["b"], held["c"])
            play(tape, steps, held)
        tape.reverse(None if plain else {held["a"][cut]: 1.0, held["b"]: np.linspace(0, 1, held["b"].size)}, allow_unused=True)
    except gpuad.GpuadError as error:
        return type(error), str(error)[:40]
    return [array.tobytes() for x in held.values() for array in arrays_of(x)]

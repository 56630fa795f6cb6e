"""Calls of operations that are bound as a whole: where one call of a program that is known is another one, in any round and at any place,
values and gradients are those of a tape that has never seen the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
import pytest
from nightly import cases

import gpuad
import gpuad.numpy as np
from gpuad import Duplicated, Tape
from gpuad.ops.layout import primal_of as recorded_values
from gpuad.ops.trace_cache import by_arguments
from gpuad.tape.facade import recording_of

N, ROUNDS = 6, 6
Pool = list[Any]


@dataclass(frozen=True)
class Call:
    """An instruction of a program: what it does to the pool, with two operands, a number, and places."""

    name: str
    a: int
    b: int
    number: float
    low: int
    places: tuple[int, ...]
    varied: bool = False  # whether its plain arrays are others in each round

    def __call__(self, pool: Pool, turn: int) -> None:
        a, b = pool[self.a % len(pool)], pool[self.b % len(pool)]
        ACTIONS[self.name](self, pool, a, b, turn if self.varied else 0)


class Stop(Exception):
    """In the middle of a program."""


def _assigned(call: Call, pool: Pool, a: Any, b: Any, turn: int) -> None:
    out = np.zeros(N)
    out[call.low :] = b[call.low :]
    out[: call.low] += a[: call.low] * call.number
    pool.append(out)


def _grown(call: Call, pool: Pool, a: Any, b: Any, turn: int) -> None:
    kept = np.array(a)
    kept += b
    kept[call.low :] *= call.number
    pool.append(kept)


def _placed(call: Call, pool: Pool, a: Any, b: Any, turn: int) -> None:
    places = numpy.array(call.places) if not turn else numpy.roll(numpy.array(call.places), turn)
    out = np.copy(a)
    out[places[:3]] = b[places[3:]]
    pool.append(out)


def _weighted(call: Call, pool: Pool, a: Any, b: Any, turn: int) -> None:
    places = (numpy.array(call.places) + turn) % N
    pool.append(np.bincount(places, weights=a, minlength=N)[:N] * 0.1)


def _overlapping(call: Call, pool: Pool, a: Any, b: Any, turn: int) -> None:
    out = np.array(a)
    np.multiply(out[1:], out[:-1] if call.low % 2 else b[1:], out=out[1:])
    pool.append(out)


def _stop(call: Call, pool: Pool, a: Any, b: Any, turn: int) -> None:
    raise Stop


ACTIONS: dict[str, Callable[[Call, Pool, Any, Any, int], None]] = {
    "add": lambda call, pool, a, b, turn: pool.append(a + b * call.number),
    "product": lambda call, pool, a, b, turn: pool.append(np.tanh(a * b)),
    "number": lambda call, pool, a, b, turn: pool.append(np.sin(a * call.number)),
    "strong": lambda call, pool, a, b, turn: pool.append(numpy.float64(call.number) * a),
    "plain": lambda call, pool, a, b, turn: pool.append(a * (numpy.arange(N) * 0.1 + turn * 0.01 + call.number)),
    "view": lambda call, pool, a, b, turn: pool.append(np.concatenate([a[call.low :], b[: call.low]])),
    "turned": lambda call, pool, a, b, turn: pool.append((a.reshape(2, 3).T @ b.reshape(2, 3)).reshape(-1)[:N] * 0.3),
    "rolled": lambda call, pool, a, b, turn: pool.append(np.roll(a, call.low)),
    "taken": lambda call, pool, a, b, turn: pool.append(a[(numpy.array(call.places) + turn) % N]),
    "chosen": lambda call, pool, a, b, turn: pool.append(np.where(numpy.arange(N) > call.low, a, b)),
    "clipped": lambda call, pool, a, b, turn: pool.append(np.clip(a, -abs(call.number), None) + np.diff(b, append=0.0)),
    "mean": lambda call, pool, a, b, turn: pool.append(a - np.mean(b, keepdims=True)),
    "narrow": lambda call, pool, a, b, turn: pool.append(a.astype("f4").astype("f8") if call.low % 2 else a + 0.5),
    "assigned": _assigned, "grown": _grown, "placed": _placed, "weighted": _weighted, "overlapping": _overlapping, "stop": _stop,
}  # fmt: skip
NAMES = [name for name in ACTIONS if name != "stop"]


def random_call(rng: Any) -> Call:
    a, b = (int(k) for k in rng.integers(0, 40, 2))
    places = tuple(int(k) for k in rng.permutation(N))
    number = float(numpy.round(rng.uniform(-1, 1), 2))
    return Call(str(rng.choice(NAMES)), a, b, number, int(rng.integers(1, N)), places, bool(rng.integers(0, 2)))


def other(rng: Any, call: Call) -> Call:
    """The call with something else of it."""
    return [
        lambda: replace(call, number=call.number + 0.25),
        lambda: replace(call, number=-0.0 if call.number == 0 else 0.0),
        lambda: replace(call, a=call.a + 1),
        lambda: replace(call, b=call.b + 1),
        lambda: replace(call, low=call.low % (N - 1) + 1),
        lambda: replace(call, places=call.places[::-1]),
        lambda: replace(call, name=str(rng.choice(NAMES))),
        lambda: replace(call, name="stop"),
    ][int(rng.integers(0, 8))]()


def differing(rng: Any, program: Sequence[Call]) -> list[Call]:
    """The program with one call another one, two in the other order, one less or one more."""
    at, found = int(rng.integers(0, len(program))), list(program)
    how = int(rng.integers(0, 6))
    if how == 0:
        del found[at]
    elif how == 1:
        found.insert(at, random_call(rng))
    elif how == 2 and at:
        found[at - 1], found[at] = found[at], found[at - 1]
    else:
        found[at] = other(rng, found[at])
    return found


def run(tape: Tape, pairs: Sequence[Duplicated], program: Sequence[Call], turn: int) -> Any:
    """The value, and the gradients of the pairs; None where the program was stopped."""
    for pair in pairs:
        pair.shadow[...] = 0
    try:
        with tape:
            pool: Pool = [pairs[0], pairs[1], pairs[2][:N], pairs[2][N:]]
            for call in program:
                call(pool, turn)
            loss = np.sum(pool[-1] * pool[-2]) + np.sum(pool[len(pool) // 2] ** 2)
    except Stop:
        return None
    tape.reverse({loss: 1.0}, allow_unused=True)
    return float(loss.primal), *(pair.shadow.copy() for pair in pairs)


def compared(seed: int, make: Callable[..., Tape] = Tape) -> tuple[int, int]:
    """Runs a program and others that differ from it, and compares each round with a new tape. How many calls were bound at most, and how
    many rounds after the first two were recorded anew."""
    rng = numpy.random.default_rng(seed)
    program = [random_call(rng) for _ in range(int(rng.integers(4, 12)))]
    tape, pairs = make(), [Duplicated(numpy.empty(n)) for n in (N, N, 2 * N)]
    odd, most, anew, varied = int(rng.integers(3, ROUNDS + 1)), 0, 0, bool(rng.integers(0, 2))
    for turn in range(ROUNDS + 2):
        now = differing(rng, program) if turn == odd else program
        data = [rng.uniform(-1, 1, pair.shape) for pair in pairs]
        for pair, values in zip(pairs, data, strict=True):
            pair.primal[...] = values
        found = run(tape, pairs, now, turn if varied else 0)
        expected = run(Tape(), [Duplicated(values.copy()) for values in data], now, turn if varied else 0)
        assert (found is None) == (expected is None)
        most = max(most, sum(bound is not None for bound in recording_of(tape).bound._calls.values()))
        anew += turn > 2 and bool(recording_of(tape).cursor.why)
        for one, two in zip(found or (), expected or (), strict=True):
            numpy.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-14, err_msg=f"seed {seed}, round {turn} (odd: {odd})")
    return most, anew


@pytest.mark.parametrize("part", range(2))
def test_a_call_that_differs_in_a_round(part: int) -> None:
    count, begin = cases(1, 200), 1000 * part
    assert sum(compared(begin + k)[0] for k in range(count)) > count


def test_what_is_bound_is_not_looked_at_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, tape, places = Duplicated(numpy.linspace(0.1, 0.9, N)), Tape(), numpy.array([0, 2, 2])

    def loss() -> Any:
        out = np.zeros(N)
        out[1:] = np.diff(pair) * numpy.linspace(0, 1, N - 1)
        out[0] += np.sum(pair[places] ** 2)
        return np.var(np.concatenate([out, np.roll(pair, 2)]))

    for turn in range(6):
        pair.primal[...] = numpy.linspace(0.1, 0.9 + turn, N)
        if turn == 4:
            monkeypatch.setattr(recording_of(tape), "_repeat", lambda step: pytest.fail("a step was looked at by itself"))
        with tape:
            value = loss()
        pair.shadow[...] = 0
        tape.reverse({value: 1.0})
        fresh = Duplicated(pair.primal.copy())
        pair, kept = fresh, pair
        with Tape() as other:
            expected = loss()
        other.reverse({expected: 1.0})
        pair = kept
        numpy.testing.assert_allclose(pair.shadow, fresh.shadow, rtol=1e-12)


def test_an_array_of_places_that_holds_others() -> None:
    """The buffer of places holds those of the round before, if these are not known by their bytes."""
    pair, tape = Duplicated(numpy.arange(1.0, 7.0)), Tape()
    for places in ([0, 1], [0, 1], [0, 1], [4, 5], [0, 1], [2, 3], [4, 5], [0, 1]):
        with tape:
            loss = np.sum(pair[numpy.array(places)] ** 2)
        pair.shadow[...] = 0
        tape.reverse({loss: 1.0})
        expected = numpy.zeros(N)
        expected[places] = 2 * pair.primal[places]
        numpy.testing.assert_array_equal(pair.shadow, expected)


def test_a_plain_operand_that_is_written_between_two_calls_is_locked() -> None:
    """It was copied into a buffer, which the reverse of both reads."""
    pair, tape = Duplicated(numpy.arange(1.0, 7.0)), Tape()

    def loss(turn: int, grown: float) -> Any:
        factor = numpy.full(N, 1.0 + turn)
        y = pair * factor
        if grown:
            factor += grown
        return np.sum(y * factor)

    for turn in range(5):
        with tape:
            value = loss(turn, 0)
        pair.shadow[...] = 0
        tape.reverse({value: 1.0})
        numpy.testing.assert_allclose(pair.shadow, (1.0 + turn) ** 2)
    assert not recording_of(tape).cursor.why
    with pytest.raises(ValueError, match="read-only"), tape:
        loss(6, 1.0)


def test_a_function_that_makes_an_array_of_what_it_has_looked_at_is_called_again() -> None:
    """Also one that says of itself that it never looks."""

    @by_arguments
    def above_mean(x: Any) -> Any:
        return x * (recorded_values(x) > recorded_values(x).mean())

    pair, tape = Duplicated(numpy.arange(1.0, 7.0)), Tape()
    for turn in range(6):
        pair.primal[...] = numpy.roll(numpy.arange(1.0, 7.0), turn)
        pair.shadow[...] = 0
        with tape:
            loss = np.sum(above_mean(pair * 1.0))
        tape.reverse({loss: 1.0})
        numpy.testing.assert_array_equal(pair.shadow, pair.primal > pair.primal.mean())


def test_a_softmax_of_other_numbers_does_not_overflow() -> None:
    """The greatest element, which is subtracted, is that of this round."""
    special = gpuad.ops.softmax
    pair, tape = Duplicated(numpy.zeros(N)), Tape()
    for turn in range(5):
        pair.primal[...] = numpy.linspace(0, 1, N) + 1000.0 * (turn == 4)
        with tape:
            found = special(pair)
            loss = np.sum(found * found)
        pair.shadow[...] = 0
        tape.reverse({loss: 1.0})
        assert numpy.isfinite(pair.shadow).all() and numpy.isfinite(loss.primal)


def test_only_listed_operations_are_taken_by_their_arguments() -> None:
    """One that looks at what arrays hold, and says of itself nothing, is called in each round; those of the list never look."""
    from gpuad.ops import _BLIND, _OFFERED, _offered

    called: list[int] = []

    def positive_part(x: Any) -> Any:
        called.append(1)
        return x * (recorded_values(x) > 0)

    look, pair, tape = _offered(positive_part, "positive_part"), Duplicated(numpy.arange(-2.0, 3.0)), Tape()
    for turn in range(5):
        pair.primal[...] = numpy.roll(numpy.arange(-2.0, 3.0), turn)
        pair.shadow[...] = 0
        with tape:
            loss = np.sum(look(pair * 1.0))
        tape.reverse({loss: 1.0})
        numpy.testing.assert_array_equal(pair.shadow, pair.primal > 0)
    assert len(called) == 5 and {"bincount", "take", "median", "max", "interp"} & _BLIND == {"max", "interp"}
    assert all(any(room + name in _OFFERED for room in ("", "fft.", "linalg.")) for name in _BLIND)


def test_places_that_move_do_not_make_a_program_new() -> None:
    """The sums by place and the interpolation of a known program come at other places in each round."""
    pair, tape = Duplicated(numpy.linspace(0.1, 0.9, N)), Tape()
    edges, levels = numpy.linspace(0, 1, 5), numpy.array([1.0, 3.0, 2.0, 5.0, 4.0])
    for turn in range(5):
        pair.primal[...] = numpy.linspace(0.1, 0.9, N) + 0.04 * turn
        pair.shadow[...] = 0
        places = (numpy.arange(N) + turn) % 4
        with tape:
            loss = np.sum(np.bincount(places, weights=pair * pair, minlength=5) * numpy.arange(5.0)) + np.sum(
                np.interp(pair, edges, levels)
            )
        tape.reverse({loss: 1.0})
        slopes = numpy.diff(levels) / numpy.diff(edges)
        at = numpy.searchsorted(edges, pair.primal, side="right") - 1
        found = numpy.where(pair.primal < 1, slopes[numpy.minimum(at, 3)], 0) + 2 * pair.primal * places
        numpy.testing.assert_allclose(pair.shadow, found)
        assert turn < 3 or not recording_of(tape).cursor.why

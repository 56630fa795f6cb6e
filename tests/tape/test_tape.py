"""A tape as an object: what it accepts, what it refuses, what it keeps, and what is left after a failure at any launch or allocation."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tape_tools import EXECUTORS, Fault, counted, cuda, failing, launch, pair, running

import gpuad
from gpuad import Active, Const, Duplicated, GpuadError, LaunchError, ShadowError, TapeError
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference

BOTH = pytest.mark.parametrize("executor", list(EXECUTORS))
N = 12


def values(n: int = N) -> Any:
    return np.linspace(0.5, 1.5, n)


def squared(executor: str = "reference", **options: Any) -> tuple[gpuad.Tape, Duplicated, Duplicated]:
    """A tape on which `y = x^2` was recorded."""
    x, y = pair(values()), pair(np.zeros(N))
    tape = gpuad.Tape(**options)
    with running(executor), tape:
        launch("square_to", x, y)
    return tape, x, y


# --- states ----------------------------------------------------------------------------------------------------------------------------


def test_a_tape_is_reversed_once() -> None:
    tape, x, y = squared()
    with pytest.raises(TapeError):
        gpuad.Tape().reverse()
    tape.reverse({y: 1.0})
    before = x.shadow.copy()
    with pytest.raises(TapeError, match="already"):
        tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, before)


def test_a_tape_is_not_reversed_while_it_records() -> None:
    x = pair(values())
    tape = gpuad.Tape()
    with running("reference"), tape:
        launch("sine", x)
        with pytest.raises(TapeError, match="recording"):
            tape.reverse({x: 1.0})


def test_tapes_do_not_nest() -> None:
    tape = gpuad.Tape()
    with tape:
        for inner in (gpuad.Tape(), tape):
            with pytest.raises(TapeError), inner:
                pass
    with tape:
        pass


def test_a_launch_outside_is_not_recorded() -> None:
    tape, _, _ = squared()
    with running("reference"):
        launch("sine", pair(values()))
    assert tape.stats.saved_bytes == 0 and len(tape.source.splitlines()) == 1


def test_another_thread_does_not_record() -> None:
    tape, x, y = gpuad.Tape(), pair(values()), pair(np.zeros(N))
    z = pair(values())

    def elsewhere() -> None:
        with running("reference"):
            launch("sine", z)

    with running("reference"), tape:
        launch("square_to", x, y)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert len(tape.source.splitlines()) == 1
    np.testing.assert_allclose(z.primal, np.sin(values()) + 0.5 * values())


def test_options_are_checked() -> None:
    for options in ({"check": "fast"}, {"save": "some"}):
        with pytest.raises(TapeError):
            gpuad.Tape(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["autodiff", "forward", "augmented", "hvp"])
def test_other_derivatives_inside_a_tape_are_refused(call: str) -> None:
    """They launch behind its back."""
    x = pair(values())
    square = cuda("square")
    augmented, _ = gpuad.autodiff_thunk(square, Duplicated)
    with running("reference"):
        start = x.primal.copy()
        calls: dict[str, Callable[[], Any]] = {
            "autodiff": lambda: gpuad.autodiff(square, 2, 8, (x, N)),
            "forward": lambda: gpuad.autodiff(square, 2, 8, (x, N), mode=gpuad.Forward),
            "augmented": lambda: augmented(2, 8, (x, N)),
            "hvp": lambda: gpuad.hvp(square, 2, 8, (x, N), (pair(values()), None)),
        }
        with gpuad.Tape(), pytest.raises(TapeError, match="tape"):
            calls[call]()
    np.testing.assert_array_equal(x.primal, start)


# --- seeds -----------------------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("key", ["itself", "new pair", "new pair without shadow", "view", "two views"])
def test_a_seed_is_known_by_its_memory(executor: str, key: str) -> None:
    tape, x, y = squared(executor)
    half = N // 2
    with running(executor):
        if key == "two views":
            tape.reverse({y[:half]: 1.0, y[half:]: np.ones(N - half)})
        else:
            made = {
                "itself": lambda: y,
                "new pair": lambda: Duplicated(y.primal, y.shadow),
                "new pair without shadow": lambda: Duplicated(y.primal),
                "view": lambda: y[half:],
            }[key]()
            tape.reverse({made: 1.0})
    wanted = 2 * values()
    if key == "view":
        wanted[:half] = 0
    np.testing.assert_allclose(x.shadow, wanted)


@BOTH
@pytest.mark.parametrize("source", ["shadow", "a view of the shadow", "another's shadow"])
def test_a_seed_may_lie_in_a_shadow_that_is_cleared(executor: str, source: str) -> None:
    x, y, z = pair(values()), pair(np.zeros(N)), pair(np.zeros(N))
    tape = gpuad.Tape()
    with running(executor), tape:
        launch("square_to", x, y)
        launch("square_to", x, z)
    y.shadow[...] = 3
    z.shadow[...] = 5
    seed = {"shadow": y.shadow, "a view of the shadow": y.shadow[::-1], "another's shadow": z.shadow}[source]
    wanted = (5 if source == "another's shadow" else 3) * 2 * values()
    with running(executor):
        tape.reverse({y: seed})
    np.testing.assert_allclose(x.shadow, wanted)


@pytest.mark.parametrize("seeds", ["shape", "key", "stranger", "array as key", "shadow contradicts", "complex", "complex number", "text"])
def test_bad_seeds_touch_nothing(seeds: str) -> None:
    tape, x, y = squared()
    x.shadow[...], y.shadow[...] = 3, 5
    given: Any = {
        "shape": lambda: {y: np.ones(N + 1)},
        "key": lambda: {y: 1.0, "x": 1.0},
        "stranger": lambda: {y: 1.0, Duplicated(np.ones(3)): 1.0},
        "array as key": lambda: {Active(1.0, np.zeros(())): 1.0},
        "shadow contradicts": lambda: {Duplicated(y.primal, np.zeros(N)): 1.0},
        "complex": lambda: {y: np.ones(N, complex)},
        "complex number": lambda: {x: 2.0, y: 1j},
        "text": lambda: {x: 2.0, y: "one"},
    }[seeds]()
    with pytest.raises(GpuadError):
        tape.reverse(given)
    np.testing.assert_array_equal(x.shadow, 3)
    np.testing.assert_array_equal(y.shadow, 5)
    with running("reference"):
        tape.reverse({y: 1.0})
    np.testing.assert_allclose(x.shadow, 3 + 2 * values())


@BOTH
def test_a_key_of_which_the_program_met_a_part(executor: str) -> None:
    x = pair(values())
    tape = gpuad.Tape()
    with running(executor):
        with tape:
            launch("square", x[2:5])
        tape.reverse({x: 2.0})
    wanted = np.full(N, 2.0)
    wanted[2:5] *= 2 * values()[2:5]
    np.testing.assert_allclose(x.shadow, wanted)


@BOTH
def test_seeds_clear_what_is_written_and_add_to_what_is_read(executor: str) -> None:
    tape, x, y = squared(executor)
    x.shadow[...], y.shadow[...] = 10, 77
    with running(executor):
        tape.reverse({y: 1.0})
    np.testing.assert_allclose(x.shadow, 10 + 2 * values())
    np.testing.assert_array_equal(y.shadow, 0)


@BOTH
def test_without_seeds_shadows_are_taken_as_they_are(executor: str) -> None:
    tape, x, y = squared(executor)
    x.shadow[...], y.shadow[...] = 10, 7
    with running(executor):
        tape.reverse()
    np.testing.assert_allclose(x.shadow, 10 + 14 * values())
    np.testing.assert_array_equal(y.shadow, 0)


@BOTH
def test_a_second_evaluation_is_not_seeded_by_the_first(executor: str) -> None:
    """The trap of every optimisation loop: shadows that hold adjoints of the initial state are seeds of the next run."""
    u, v, k = pair(values()), pair(np.zeros(N)), pair(values())
    tape, found = gpuad.Tape(), []
    for _ in range(2):
        k.shadow.fill(0)
        with running(executor):
            with tape:
                launch("fill", u, 1.0)
                launch("times", u, k)
                launch("square_to", u, v)
                launch("times", u, k)
            tape.reverse({v: 1.0, u: 1.0})
        found.append(k.shadow.copy())
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], 4 * values())
    np.testing.assert_array_equal(u.shadow, 0)


# --- memory ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [Host, Reference])
def test_the_same_program_again_allocates_nothing(made: Any) -> None:
    """Copies, logs, scratch, assembled versions: all of it from the arena of the first time; and bit for bit the same gradient."""
    executor = made()
    counts = (np.arange(N) % 4).astype(np.int32)
    index = np.random.default_rng(0).permutation(N).astype(np.int32)
    u, v, w = pair(values()), pair(values() + 1), pair(np.zeros(3 * N))
    counter = np.zeros(1, np.int32)
    tape, gradients = gpuad.Tape(), []

    def program() -> None:
        p, q = u, v
        for _ in range(3):
            launch("stencil", p, q)
            launch("iterate", q, counts)
            launch("gather", p, q, index)
            launch("compact", w, p, counter, n=N)
            p, q = q, p

    from gpuad import pipeline

    for number in range(3):
        u.primal[...], v.primal[...], counter[...] = values(), values() + 1, 0
        w.primal[...] = w.shadow[...] = u.shadow[...] = v.shadow[...] = 0
        with pipeline.executor_for_tests(executor), counted() as lengths:
            with tape:
                program()
                if number:
                    counter[...] = counter
            tape.reverse({u: 1.0, v: 0.5, w: 0.25})
        gradients.append((u.shadow.copy(), v.shadow.copy()))
        if number == 0:
            assert lengths
        else:
            assert not lengths, f"run {number + 1} allocates {lengths}"
            assert tape.stats.allocations == 0
    np.testing.assert_array_equal(gradients[0], gradients[1])
    np.testing.assert_array_equal(gradients[0], gradients[2])


@BOTH
def test_a_new_recording_lets_go_of_the_old_one(executor: str) -> None:
    tape, gone = gpuad.Tape(), []
    for _ in range(3):
        x = pair(values())
        gone.append(weakref.ref(x.primal))
        with running(executor):
            with tape:
                launch("sine", x)
                launch("fill", x, 0.0)
            tape.reverse({x: 1.0}, allow_unused=True)
        del x
    with tape:
        pass
    gc.collect()
    assert [ref() is None for ref in gone] == [True] * 3


def test_what_is_needed_of_arrays_as_they_are() -> None:
    x, y = pair(values()), pair(np.zeros(N))
    tape = gpuad.Tape()
    with running("reference"), tape:
        launch("square_to", x, y)
    assert (tape.stats.saved_bytes, tape.stats.needed_bytes) == (0, 8 * N)


def test_stats_explain_and_source() -> None:
    x, y = pair(values()), pair(np.zeros(N))
    tape = gpuad.Tape()
    with running("reference"), tape:
        launch("square_to", x, y)
        launch("sine", x)
        launch("next_index", np.arange(N, dtype=np.int32))
    account = tape.explain()
    assert tape.stats.saved_bytes == account.saved_bytes == 8 * N
    assert [row.bytes for row in account.rows] == [8 * N]
    text = str(account)
    assert "sine" in text and "tape_tools.py" in text and f"{8 * N}" in text
    lines = tape.source.splitlines()
    assert len(lines) == 3 and "sine" in lines[1] and "square_to" in lines[2]
    stats = tape.stats
    assert stats.needed_bytes == 0 and stats.shadow_bytes == 2 * 8 * N
    assert stats.retained_bytes == 2 * 8 * N + 4 * N
    assert stats.arena_bytes >= stats.saved_bytes and tape.peak_bytes >= stats.arena_bytes
    with running("reference"):
        tape.reverse({x: 1.0, y: 1.0})


@BOTH
def test_restore_gives_everything_back(executor: str) -> None:
    x, y, index = pair(values()), pair(values() + 1), np.arange(N, dtype=np.int32)
    start = x.primal.copy(), y.primal.copy(), index.copy()
    tape = gpuad.Tape(restore=True)
    with running(executor):
        with tape:
            launch("next_index", index)
            launch("gather", x[2:], y, index, n=N - 2)
            launch("fill", y.primal, 0.0)
            launch("sine", x)
            tape.overwrites(index)
            index[...] = 0
        assert not y.primal.any() and not index.any()
        tape.reverse({x: 1.0})
    for now, then in zip((x.primal, y.primal, index), start, strict=True):
        np.testing.assert_array_equal(now, then)
    np.testing.assert_array_equal(y.shadow[:1] == 0, index[:1] == index[:1])


@BOTH
def test_foreign_memory_that_overlaps(executor: str) -> None:
    """Two arrays over one buffer that is no array: the overlap is seen, or refused."""
    buffer = bytearray(4 * 12)
    first, second = np.frombuffer(buffer, np.int32, 8), np.frombuffer(buffer, np.int32, 8, 16)
    first[...], second[4:] = np.arange(8)[::-1], 1
    start = first.copy()
    x, y = pair(values(8)), pair(np.zeros(8))
    tape = gpuad.Tape()
    try:
        with running(executor):
            with tape:
                launch("gather", y, x, first, n=8)
                launch("next_index", second)
            tape.reverse({y: np.arange(8.0)})
    except GpuadError:
        return
    np.testing.assert_allclose(x.shadow[start], 1.4 * values(8)[start] * np.arange(8.0))


@BOTH
def test_one_allocation_in_two_types(executor: str) -> None:
    text = (
        "#define I int i = blockIdx.x * blockDim.x + threadIdx.x\n"
        'extern "C" __global__ void narrow(const float* w, const double* x, double* y, int n) { I; if (i < n) y[i] = w[i] * x[i]; }\n'
        'extern "C" __global__ void wide(const double* w, const double* x, double* y, int n) { I; if (i < n) y[i] = w[i] * x[i]; }\n'
        'extern "C" __global__ void wipe(float* w, int n) { I; if (i < n) w[i] = 0; }\n'
    )
    narrow, wide, wipe = (gpuad.kernel(text, name) for name in ("narrow", "wide", "wipe"))
    memory = np.zeros(64, np.uint8)
    floats, doubles = memory.view(np.float32), memory.view(np.float64)
    floats[1], doubles[1] = 2, 3
    x, y, z = pair([1.0]), pair([0.0]), pair([0.0])
    for count in (4, 5, 6):
        memory[...] = 0
        floats[1], doubles[1] = 2, 3
        x.shadow[...] = 0
        tape = gpuad.Tape()
        with running(executor):
            with tape:
                narrow[1, 8](floats[1:2], x, y, 1)
                wide[1, 8](doubles[1:2], x, z, 1)
                wipe[1, 8](floats[1:], count)
            tape.reverse({y: 1.0, z: 1.0})
        np.testing.assert_allclose(x.shadow, 5.0)


@BOTH
def test_overwrites_of_two_arrays_before_their_pairs(executor: str) -> None:
    x, y, z = pair(values()), pair(values(N + 2)), pair(np.zeros(N))
    tape = gpuad.Tape()
    with running(executor):
        with tape:
            tape.overwrites(x.primal[:4], y.primal[3:])
            x.primal[:4] = y.primal[3:] = 2
            launch("square_to", x, z)
            launch("times", z, y[:N])
        tape.reverse({z: 1.0})
    np.testing.assert_array_equal(x.shadow[:4], 0)
    assert x.shadow[4:].all()
    np.testing.assert_array_equal(y.shadow[3:], 0)
    assert y.shadow[:3].all()


@BOTH
def test_zeros_of_both_signs_are_two_calls(executor: str) -> None:
    """What is remembered of a call is of that call: numbers that compare equal are not always the same."""
    x, seen = pair(values()), []
    with running(executor), gpuad.Tape():
        for value in (0.0, -0.0, 0.0):
            launch("fill", x, value)
            seen.append(bool(np.signbit(x.primal[0])))
    assert seen == [False, True, False]


@BOTH
def test_one_line_with_changing_arguments(executor: str) -> None:
    """The same kernel at the same line: other sizes, other arrays, other numbers, another shadow."""
    x, y = pair(values()), pair(np.zeros(N))
    shadows = [np.zeros(()) for _ in range(4)]
    tape = gpuad.Tape()
    with running(executor):
        with tape:
            for t in range(4):
                cuda("axpy")[2, 8](y if t % 2 else y[:6], x[t:] if t < 3 else x, Active(float(t % 3), shadows[t]), 6 - t)
        tape.reverse({y: 1.0})
    wanted, sums = np.zeros(N), []
    for t in range(4):
        low = t if t < 3 else 0
        wanted[low : low + 6 - t] += t % 3
        sums.append(values()[low : low + 6 - t].sum())
    np.testing.assert_allclose(x.shadow, wanted)
    np.testing.assert_allclose(np.array(shadows), sums)


# --- failures --------------------------------------------------------------------------------------------------------------------------


def test_what_is_refused_before_the_launch_does_not_spoil_the_tape() -> None:
    x = pair(values())
    tape = gpuad.Tape()
    with running("reference"), tape:
        launch("sine", x)
        state = x.primal.copy()
        with pytest.raises(LaunchError):
            cuda("sine")[1, 8](x, "12")
        with pytest.raises(ShadowError):
            launch("sine", Duplicated(x.primal, np.zeros(N)))
        np.testing.assert_array_equal(x.primal, state)
    with running("reference"):
        tape.reverse({x: 1.0})
    np.testing.assert_allclose(x.shadow, np.cos(values()) + 0.5)


def test_an_error_of_the_user_spoils_the_recording() -> None:
    x = pair(values())
    tape = gpuad.Tape()
    with running("reference"), pytest.raises(ZeroDivisionError), tape:
        launch("sine", x)
        raise ZeroDivisionError
    with pytest.raises(TapeError, match="ZeroDivisionError"):
        tape.reverse({x: 1.0})
    with running("reference"):
        with tape:
            launch("sine", x)
        tape.reverse({x: 1.0})
    assert x.shadow.all()


class Attempt:
    """One program on new memory, with a tape: five launches, of which one keeps a log and one counts its stacks."""

    def __init__(self, executor: Any, *, restore: bool = False) -> None:
        self.executor = executor
        self.x, self.y, self.out = pair(values()), pair(values() + 1), pair(np.zeros(2 * N))
        self.counts, self.counter = (np.arange(N) % 3).astype(np.int32), np.zeros(1, np.int32)
        self.tape = gpuad.Tape(restore=restore)

    def record(self, swallow: bool = False) -> None:
        with self.tape:
            try:
                launch("stencil", self.y, self.x)
                launch("iterate", self.x, self.counts)
                launch("times", self.y, self.x)
                launch("compact", self.out, self.y, self.counter, n=N)
                launch("sine", self.y)
            except Fault:
                if not swallow:
                    raise

    def reverse(self) -> None:
        self.tape.reverse({self.out: 1.0, self.y: 2.0})

    def renew(self) -> None:
        self.x.primal[...], self.y.primal[...], self.out.primal[...], self.counter[...] = values(), values() + 1, 0, 0
        for p in (self.x, self.y, self.out):
            p.shadow[...] = 0

    def primals(self) -> list[Any]:
        return [a.copy() for a in (self.x.primal, self.y.primal, self.out.primal, self.counts, self.counter)]

    def shadows(self) -> list[Any]:
        return [p.shadow.copy() for p in (self.x, self.y, self.out)]


def _within(executor: Any) -> Any:
    from gpuad import pipeline

    return pipeline.executor_for_tests(executor)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("made", [Host, Reference])
@pytest.mark.parametrize("method", ["launch", "zeros", "copy", "prepare"])
def test_case_59_a_fault_at_every_call(made: Any, method: str) -> None:
    """After a fault while recording, and after one while reversing: TapeError, primals as they were, and the tape serves the next
    recording."""
    executor = made()
    with _within(executor):
        for _ in range(2):  # what comes again is launched as it will be below
            known = Attempt(executor)
            known.record()
            known.reverse()
        good = Attempt(executor)
        with failing(executor, -1, method) as recorded:
            good.record()
        final = good.primals()
        with failing(executor, -1, method) as reversed_:
            good.reverse()
        wanted = good.shadows()
        for after in (False, True):
            for at in range(len(recorded)):
                _fault_in_recording(executor, at, method, after, wanted)
            for at in range(len(reversed_)):
                _fault_in_reverse(executor, at, method, after, final, wanted)


def _fault_in_recording(executor: Any, at: int, method: str, after: bool, wanted: list[Any]) -> None:
    for swallow in (False, True):
        attempt = Attempt(executor)
        with failing(executor, at, method, after) as calls:
            if swallow:
                attempt.record(swallow=True)
            else:
                with pytest.raises(Fault):
                    attempt.record()
        before = attempt.shadows()
        spoilt = method == "launch" and not calls[at].endswith("_store_conflicts")
        if not swallow or spoilt:  # else the fault came before anything was written: the launch was not made, and is not on the tape
            with pytest.raises(TapeError):
                attempt.reverse()
            _same(attempt.shadows(), before)
        _again(attempt, wanted)


def _fault_in_reverse(executor: Any, at: int, method: str, after: bool, final: list[Any], wanted: list[Any]) -> None:
    attempt = Attempt(executor)
    attempt.record()
    before = attempt.shadows()
    with failing(executor, at, method, after), pytest.raises(Fault):
        attempt.reverse()
    _same(attempt.primals(), final)
    if method == "prepare":  # all is compiled before the first launch: nothing has happened yet
        _same(attempt.shadows(), before)
        attempt.reverse()
        _same(attempt.shadows(), wanted)
    else:
        with pytest.raises(TapeError, match="undefined"):
            attempt.reverse()
    _again(attempt, wanted)


def _again(attempt: Attempt, wanted: list[Any]) -> None:
    attempt.renew()
    attempt.record()
    attempt.reverse()
    _same(attempt.shadows(), wanted)


def _same(now: list[Any], then: list[Any]) -> None:
    for a, b in zip(now, then, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_shadow_is_not_a_primal() -> None:
    """A shadow that a recorded launch writes is no shadow of this recording."""
    x, y = pair(values()), pair(np.zeros(N))
    with running("reference"), gpuad.Tape():
        launch("square_to", x, y)
        with pytest.raises(ShadowError):
            launch("fill", Const(x.shadow), 1.0)

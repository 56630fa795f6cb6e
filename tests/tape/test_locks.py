"""Arrays that a recording depends on are read-only to others until its block ends (RULES 28): a raw write fails at its own line,
wherever it stands and in every round; what no lock reaches is compared. And blocks: threads, interrupts, what is left writable."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, running
from nightly import NIGHTLY

import gpuad
from gpuad import Duplicated, LaunchError, Tape, TapeError, ops
from gpuad.arguments.recorder import current
from gpuad.runtime import array_locks
from gpuad.tape import blocks
from gpuad.tape.blocks import Entry
from gpuad.tape.program_recording import ProgramRecording

N = 8
SOURCE = """
extern "C" __global__ void square(double* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }
extern "C" __global__ void times(double* x, const double* w, int n) { int i = threadIdx.x; if (i < n) x[i] *= w[i]; }
extern "C" __global__ void plus(double* x, const double* w, int n) { int i = threadIdx.x; if (i < n) x[i] += w[i]; }
"""
SQUARE, TIMES, PLUS = (gpuad.kernel(SOURCE, name) for name in ("square", "times", "plus"))


@pytest.fixture(autouse=True, params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Iterator[None]:
    with running(request.param):
        yield
    assert current.get() is None and not array_locks.held


def numbers(n: int = N) -> Any:
    return np.arange(1.0, n + 1)


def refused() -> Any:
    return pytest.raises(ValueError, match="read-only")


# --- where the write stands ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [None, "exact"])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_a_write_after_the_last_operation(rounds: int, check: str | None) -> None:
    """`X *= X; x[0] = 0` gave [2, 4, 6] for [0, 4, 6]."""
    x = np.array([1.0, 2.0, 3.0])
    X, tape = Duplicated(x), Tape(check=check)
    for k in range(rounds):
        x[...] = [1, 2, 3]
        with refused() if k == rounds - 1 else contextlib.nullcontext(), tape:
            X *= X
            if k == rounds - 1:
                x[0] = 0.0
    with pytest.raises(TapeError, match="interrupted by ValueError"):
        tape.reverse({X: 1.0})
    assert not X.shadow.any() and x.flags.writeable
    x[...] = [1, 2, 3]
    with tape:
        X *= X
        X[0] = 0.0
    tape.reverse({X: 1.0})
    np.testing.assert_array_equal(X.shadow, [0, 4, 6])


@pytest.mark.parametrize("rounds", [1, 3])
def test_halves_opened_in_turn(rounds: int) -> None:
    """The owner was locked again for one half after the other half was: that could not be opened any more."""
    x, w, tape = numbers(), np.full(4, 2.0), Tape()
    X, first, second = Duplicated(x), x[:4], x[4:]
    for _ in range(rounds):
        x[...] = numbers()
        with tape:
            TIMES[1, 4](X[:4], w, 4)
            for half in (first, second, first):
                tape.overwrites(half)
                half[...] = 1.0
                SQUARE[1, 4](X[4:] if half is second else X[:4], 4)
        X.shadow[...] = 0
        tape.reverse({X: np.ones(N)}, allow_unused=True)
        assert x.tolist() == [1.0] * N and x.flags.writeable and first.flags.writeable and second.flags.writeable


@pytest.mark.parametrize("check", [None, "exact"])
def test_a_view_of_before_writes_after_the_last_operation(check: str | None) -> None:
    """Of which the array knows nothing; small arrays are compared in a first recording."""
    x = np.array([1.0, 2.0, 3.0])
    X, first = Duplicated(x), x[:1]
    tape = Tape(check=check)
    with pytest.raises(TapeError, match="the end of the recording"), tape:
        X *= X
        first[...] = 0.0
    with pytest.raises(TapeError, match="the end of the recording"):
        tape.reverse({X: 1.0})
    assert not X.shadow.any()


def test_late_in_a_long_recording_and_in_the_middle_of_what_is_large() -> None:
    x, n = np.ones(N), 200_000
    large = np.ones(n)
    with refused(), Tape():
        X = Duplicated(x)
        for _ in range(205):
            SQUARE(1, N, (X, N))
        x[3] = 2.0
    with refused(), Tape():
        L = Duplicated(large)
        L *= 2.0
        large[n // 2] = 2.0


@pytest.mark.parametrize("of", ["launch", "operation"])
def test_what_an_adjoint_needs_in_each_round(of: str) -> None:
    """`X *= w; w *= 2; X *= w` gave [4, 16, 36, 64] for [2, 8, 18, 32] from the second round on."""
    x, w, tape = numbers(), numbers(), Tape()
    X = Duplicated(x)

    def times() -> None:
        if of == "launch":
            TIMES(1, N, (X, w, N))
        else:
            ops.multiply(X, w, out=X)

    for round_ in range(4):
        x[...], w[...] = numbers(), numbers()
        with refused() if round_ in (0, 2) else contextlib.nullcontext(), tape:
            times()
            if round_ in (0, 2):
                w *= 2
            else:
                tape.overwrites(w)
                w *= 2
            times()
        if round_ in (1, 3):
            tape.reverse({X: 1.0})
            np.testing.assert_array_equal(X.shadow, 2 * numbers() ** 2)


def test_what_nothing_depends_on_may_be_written() -> None:
    """No shadow, and no adjoint that needs it: sources that a program reads once, index arrays of what was never met."""
    x, source, tape = np.zeros(N), np.zeros(N), Tape()
    X = Duplicated(x)
    for _ in range(3):
        x[...] = 0
        with tape:
            for t in range(3):
                source[...] = t
                PLUS(1, N, (X, source, N))
        tape.reverse({X: 1.0})
        np.testing.assert_array_equal(x, 3.0)
        np.testing.assert_array_equal(X.shadow, 1.0)


def test_what_is_needed_later_is_locked_later() -> None:
    """By another view of the same memory than that which was met first."""
    x, w = np.ones(N), np.ones(N)
    one, two = w[:], w[:4]
    with refused(), Tape():
        X = Duplicated(x)
        PLUS(1, N, (X, one, N))
        one[0] = 2.0
        TIMES(1, 4, (X, two, 4))
        one[0] = 3.0
    assert one.flags.writeable and two.flags.writeable and w.flags.writeable


@pytest.mark.parametrize("write", ["item", "fill", "copyto", "out", "view", "ravel", "in place", "iterator"])
def test_every_way_that_numpy_has(write: str) -> None:
    x = numbers()
    X = Duplicated(x)
    with refused(), Tape():
        SQUARE(1, N, (X, N))
        {
            "item": lambda: x.__setitem__(0, 1.0),
            "fill": lambda: x.fill(0),
            "copyto": lambda: np.copyto(x, 1.0),
            "out": lambda: np.add(x, 1.0, out=x),
            "view": lambda: x[2:4].__setitem__(0, 1.0),
            "ravel": lambda: X.primal.ravel().__setitem__(0, 1.0),
            "in place": lambda: x.__iadd__(1.0),
            "iterator": lambda: x.flat.__setitem__(0, 1.0),
        }[write]()


def test_temporaries() -> None:
    """Whoever has asked for the array that an operation made may read it."""
    x, tape = numbers(), Tape()
    X = Duplicated(x)
    for _ in range(2):
        with refused(), tape:
            T = X * X
            ops.sum(T * T)
            T.primal[0] = 0.0
        with tape:
            T = X * X
            half = T[2:].primal
            total = ops.sum(T * T)
        half[...] = 0.0
        T.primal[...] = 1.0
    with tape:
        T = X * X
        total = ops.sum(T * T)
    tape.reverse({total: 1.0})
    np.testing.assert_allclose(X.shadow, 4 * numbers() ** 3)


# --- what is announced -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["pair", "array", "view of the pair"])
def test_announced_code_writes_until_the_next_operation(given: str) -> None:
    x, tape = np.ones(N), Tape()
    X = Duplicated(x)
    for round_ in range(3):
        x[...] = 1.0
        with refused() if round_ == 2 else contextlib.nullcontext(), tape:
            X *= 2.0
            tape.overwrites({"pair": X, "array": x, "view of the pair": X[:4]}[given])
            x[:2] = 5.0
            X.primal[2:4] = 6.0
            X *= X
            if round_ == 2:
                x[0] = 1.0
        if round_ < 2:
            tape.reverse({X: 1.0}, allow_unused=True)  # what is announced may be all of the array
            np.testing.assert_array_equal(X.shadow, [0] * 4 + [8] * 4 if given == "view of the pair" else 0.0)
            np.testing.assert_array_equal(x, [25, 25, 36, 36, 4, 4, 4, 4])


@pytest.mark.parametrize("met", ["view of a pair", "pair of a view", "two pairs of views"])
@pytest.mark.parametrize("given", ["owner", "another view of all", "an overlapping view", "all as bytes"])
def test_announced_is_an_array_of_which_only_a_view_was_met(met: str, given: str) -> None:
    x, tape = np.ones(N), Tape()
    if met == "view of a pair":
        parts = [Duplicated(x)[2:6]]
    else:
        parts = [Duplicated(x[2:6])] if met == "pair of a view" else [Duplicated(x[2:4]), Duplicated(x[4:6])]
    announced = {"owner": x, "another view of all": x[::-1], "an overlapping view": x[:5], "all as bytes": x.view(np.uint8)}[given]
    end = 5 if given == "an overlapping view" else N
    for _ in range(2):
        x[...] = 1.0
        with tape:
            for part in parts:
                part *= 3.0
            tape.overwrites(announced)
            x[:end] = 5.0
            for part in parts:
                part *= part
        tape.reverse(dict.fromkeys(parts, 1.0), allow_unused=True)
        np.testing.assert_array_equal(np.concatenate([part.shadow for part in parts]), [0, 0, 0, 18 if end == 5 else 0])
        np.testing.assert_array_equal(x, [*[5] * 2, *[25] * 3, 9, 1, 1] if end == 5 else [5, 5, 25, 25, 25, 25, 5, 5])


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("own", ["the announced view", "another view", "a fill"])
def test_a_bare_view_taken_in_the_block(own: str, made: bool) -> None:
    """Of an array that is locked: what is announced may be written by it and by its like, until the next operation that works on it."""
    tape = Tape()
    X, Z = Duplicated(np.ones((2, N))), Duplicated(np.ones((2, N)))
    for round_ in range(3):
        X.primal[...], X.shadow[...] = 1.0, 0.0
        with refused() if round_ == 2 else contextlib.nullcontext(), tape:
            Y = X * 2.0 if made else X
            Y *= 3.0
            view = Y.primal[0]
            if own == "a fill":
                ops.fill(view, 5.0)
            else:
                tape.overwrites(view)
                (view if own == "the announced view" else Y.primal[0])[...] = 5.0
            Y *= Y
            Z[...] = Y
            if round_ == 2:
                view[0] = 1.0
        if round_ < 2:
            tape.reverse({Z: 1.0})
            np.testing.assert_array_equal(X.shadow, np.outer([0, 72 if made else 18], np.ones(N)))


# --- what gpuad itself writes ------------------------------------------------------------------------------------------------------------


def double_reverse(dx: Any, dy: Any) -> None:
    dx += 2 * dy


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=double_reverse)
def double(x: Any, y: Any) -> None:
    y[...] = 2 * x
    view = y[1:]
    view *= 1.0


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=double_reverse)
def careless(x: Any, y: Any) -> None:
    y[...] = 2 * x
    x[0] = 0.0


def test_rules_write_what_they_say_and_nothing_else() -> None:
    x, y, tape = numbers(), np.zeros(N), Tape()
    X, Y = Duplicated(x), Duplicated(y)
    for _ in range(3):
        x[...] = numbers()
        with tape:
            double(X, Y)
            double(X, Y)
            with refused():
                y[0] = 1.0
            X += Y
            double(X, Y)
        tape.reverse({Y: 1.0})
        np.testing.assert_array_equal(X.shadow, 6.0)
        np.testing.assert_array_equal(y, 6 * numbers())
        X.shadow[...] = 0
    with pytest.raises(TapeError, match="read-only"), tape:
        careless(X, Y)
    assert x.flags.writeable and y.flags.writeable


def test_operations_of_every_kind_go_on() -> None:
    """Fills, slices, index arrays, reductions into arrays of the user, sorts, numbers of no dimensions; in each round."""
    x, total, kept, tape = numbers(), np.zeros(()), np.zeros(N), Tape()
    X, S, K = Duplicated(x), Duplicated(total), Duplicated(kept)
    for _ in range(3):
        x[...] = numbers()
        with tape:
            K.fill(1.0)
            K[2:5] = X[2:5] * 2.0
            K[[0, 1]] = X[[6, 7]]
            X[1:] *= X[:-1].primal.copy() * 0 + 1.0
            SQUARE(1, N, (X, N))
            ops.cumsum(X, out=K)
            ops.sum(K, out=S)
            with refused():
                total[...] = 1.0
            with refused():
                kept[0] = 1.0
        tape.reverse({S: 1.0})
        np.testing.assert_allclose(X.shadow, 2 * numbers() * np.arange(N, 0, -1))
    total[...] = kept[...] = x[...] = 0.0


# --- what is writable afterwards ---------------------------------------------------------------------------------------------------------


class Own(np.ndarray[Any, Any]):
    """A subclass, behind views of which NumPy keeps them all. A pair takes a plain view."""


def lasting(kind: str) -> tuple[Any, Any]:
    """An array of N numbers, and what it is a view of."""
    base: Any = np.ones((2, 3, N))
    if kind == "subclass":
        base = base.view(Own)
    return {
        "owner": lambda: (np.ones(N),) * 2,
        "view": lambda: (base[0, 1], base),
        "subclass": lambda: (base[0, 1].view(np.ndarray), base),
    }[kind]()


@pytest.mark.parametrize("how", ["end", "error", "interrupt", "in a generator", "thread"])
@pytest.mark.parametrize("kind", ["owner", "view", "subclass"])
def test_all_are_writable_again(kind: str, how: str) -> None:
    x, base = lasting(kind)
    X, made = Duplicated(x, np.zeros(N)), []

    def program() -> Iterator[None]:
        with Tape():
            SQUARE(1, N, (X, N))
            made.append(X[2:])
            made.append(Duplicated(x[1:3], X.shadow[1:3]))
            ops.multiply(made[1], 2.0, out=made[1])
            assert not x.flags.writeable and not base.flags.writeable
            with refused():
                base.reshape(-1)[:] = 0
            yield
            if how in ("error", "interrupt"):
                raise KeyError if how == "error" else KeyboardInterrupt

    def run() -> None:
        with contextlib.suppress(KeyError, KeyboardInterrupt):
            going = program()
            next(going)
            if how != "in a generator":
                list(going)

    if how == "thread":
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    gc.collect()
    x[...] = base[...] = 1.0
    for pair in made:
        pair.primal[...] = 2.0


def test_what_was_read_only_stays_so() -> None:
    fixed, x, w = np.ones(N), np.ones(N), np.ones(N)
    view = w[:]
    fixed.flags.writeable = view.flags.writeable = False
    broad = np.broadcast_to(np.ones(1), (N,))
    X, tape = Duplicated(x), Tape()
    for _ in range(2):
        with tape:
            TIMES(1, N, (X, fixed, N))
            TIMES(1, N, (X, view, N))
            TIMES(1, N, (X, w, N))
            ops.multiply(X, broad, out=X)
            with pytest.raises(LaunchError, match="read-only"):
                SQUARE(1, N, (view, N))
        assert not (fixed.flags.writeable or view.flags.writeable or broad.flags.writeable)
        assert x.flags.writeable and w.flags.writeable


def test_memory_of_others_is_compared() -> None:
    """It cannot be locked for them, or not made writable again: in a first recording it is looked at, whatever its size."""
    memory = bytearray(8 * 200_000)
    x = np.frombuffer(memory)
    other = np.frombuffer(memory)
    X = Duplicated(x)
    with pytest.raises(TapeError, match="changed between operation 0"), Tape():
        X += 1.0
        other[100_000] = 7.0
        X *= 2.0
    assert x.flags.writeable
    lent = np.from_dlpack(np.ones(N))
    with Tape() as tape:
        L = Duplicated(lent)
        SQUARE(1, N, (L, N))
    tape.reverse({L: 1.0})
    lent[...] = 1.0


def test_who_unlocks_an_array_is_told() -> None:
    x, tape = numbers(), Tape()
    X = Duplicated(x)
    with pytest.raises(TapeError, match="made writable"), tape:
        SQUARE(1, N, (X, N))
        x.flags.writeable = True
        x[0] = 0.0
    with pytest.raises(TapeError, match="made writable"):
        tape.reverse({X: 1.0})


# --- threads and tasks ---------------------------------------------------------------------------------------------------------------


def elsewhere(run: Callable[[], Any]) -> Any:
    """What it gives, or raises, in another thread."""
    found: list[Any] = []

    def caught() -> None:
        try:
            found.append(run())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    return found[0]


def entered(tape: Tape) -> None:
    with tape:
        pass


def test_a_second_thread_does_not_get_the_tape() -> None:
    x, tape = numbers(), Tape()
    X = Duplicated(x)
    for _ in range(2):
        x[...] = numbers()
        with tape:
            SQUARE(1, N, (X, N))
            for context in (contextvars.Context(), contextvars.copy_context()):
                error = elsewhere(lambda context=context: context.run(entered, tape))
                assert isinstance(error, TapeError) and "another" in str(error)
            SQUARE(1, N, (X, N))
        tape.reverse({X: 1.0})
        np.testing.assert_array_equal(X.shadow, 4 * numbers() ** 3)
    assert elsewhere(lambda: entered(tape)) is None


def test_a_second_task_does_not_get_the_tape() -> None:
    x, tape = numbers(), Tape()
    X = Duplicated(x)

    async def first() -> None:
        with tape:
            SQUARE(1, N, (X, N))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            SQUARE(1, N, (X, N))

    async def second() -> None:
        with pytest.raises(TapeError, match="another thread or task"):
            entered(tape)

    async def both() -> None:
        await asyncio.gather(first(), second())

    asyncio.run(both())
    tape.reverse({X: 1.0})
    np.testing.assert_array_equal(X.shadow, 4 * numbers() ** 3)


def test_two_tapes_in_two_threads_lock_one_array() -> None:
    """It is writable again when both have let it go; neither thread writes it behind the other's back, by a launch neither."""
    x, w, go, done = np.ones(N), numbers(), threading.Event(), threading.Event()
    Y = Duplicated(np.ones(N))

    def other() -> None:
        with Tape():
            TIMES(1, N, (Y, w, N))
            go.set()
            done.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    go.wait(60)
    X, tape = Duplicated(x), Tape()
    with tape:
        TIMES(1, N, (X, w, N))
    with refused():
        w[0] = 2.0
    with pytest.raises(LaunchError, match="read-only"):
        SQUARE(1, N, (w, N))
    done.set()
    thread.join()
    w[0] = w[0]
    tape.reverse({X: 1.0})
    np.testing.assert_array_equal(X.shadow, numbers())


# --- the block -----------------------------------------------------------------------------------------------------------------------


def test_a_tape_inside_its_own_block() -> None:
    """Is refused at once where that is known, and at the outer end where it is not."""
    X, tape = Duplicated(numbers()), Tape()
    with tape:
        SQUARE(1, N, (X, N))
        with pytest.raises(TapeError, match="its own block"), tape:
            pass
        SQUARE(1, N, (X, N))
    tape.reverse({X: 1.0})
    np.testing.assert_array_equal(X.shadow, 4 * numbers() ** 3)
    with contextlib.ExitStack() as stack:
        stack.enter_context(tape)
        SQUARE(1, N, (X, N))
    assert tape.stats.saved_bytes == 8 * N
    with pytest.raises(TapeError, match="entered again"), contextlib.ExitStack() as stack:
        stack.enter_context(tape)
        SQUARE(1, N, (X, N))
        with tape:
            SQUARE(1, N, (X, N))
    with pytest.raises(TapeError, match="entered again"):
        tape.reverse({X: 1.0})


class Interrupt(BaseException):
    """An interrupt."""


def interrupted(run: Callable[[], None], at: int) -> tuple[Interrupt | None, bool]:
    """Runs it, with an interrupt before instruction number `at` of what the package does on the way into a block and out of it. What came
    out of it, and whether there was one: what comes while an object goes reaches nobody."""
    left, fired = iter(range(at)), []

    def local(frame: Any, event: str, _: Any) -> Any:
        if event in ("call", "opcode") and next(left, None) is None:
            sys.settrace(None)
            fired.append(True)
            raise Interrupt
        return local

    def begin(frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_name not in ("lost", "_lost") and (code in WAYS or code.co_filename in FILES):
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return local(frame, event, None)
        return None

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        run()
    except Interrupt as error:
        return error, True
    finally:
        sys.settrace(before)
        while GUARD._is_owned():  # it came behind a `with` block and before the lock's __exit__, where CPython hears no signal
            GUARD.release()
    return None, bool(fired)


GUARD: Any = array_locks._GUARD
FILES = {blocks.__file__, array_locks.__file__}
INSIDE = [getattr(ProgramRecording, name) for name in ("enter", "_enter", "_leave", "left", "_exit")]
WAYS = {way.__code__ for way in (Tape.__enter__, *INSIDE, Entry.refuse_open)}


@pytest.mark.one_of(2)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # where it comes while what is left of a block goes
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_an_interrupt_anywhere_on_the_way_in_and_out(known: bool, keep: bool) -> None:
    """Where it is dealt with all arrays are writable, and the tape is as good as new. `keep`: somebody has the traceback, as an `except`
    has, and a notebook afterwards."""
    base = np.ones((2, N))
    x, tape, times = base[1], Tape(), 0
    X = Duplicated(x, np.zeros(N))

    def program() -> None:
        with tape:
            SQUARE(1, N, (X, N))

    while True:
        x[...] = 3.0
        if not known:
            tape = Tape()
        hit, more = interrupted(program, times)
        if not keep:
            del hit  # with its traceback go the frames that it holds
        assert x.flags.writeable and base.flags.writeable and current.get() is None and not array_locks.held, times
        if more:
            with contextlib.suppress(TapeError):  # as most say; what came when all was done has changed nothing
                tape.reverse({X: 1.0})
                np.testing.assert_array_equal(X.shadow, 6.0)
        if keep:
            program()
        base[...] = 3.0
        program()
        tape.reverse({X: 1.0})
        np.testing.assert_array_equal(X.shadow, 6.0)
        if not more:
            break
        times += 1 if NIGHTLY else 7
    assert times > 100

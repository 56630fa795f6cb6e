"""Programs that are interrupted (Ctrl-C in a notebook) between any two lines of the package, and programs that change their arrays in place
while they run: what comes later is right, or refused."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import NIGHTLY

import gpuad
from gpuad import Duplicated, LaunchError, TapeError, recursion_limit
from gpuad.arguments.recorder import current
from gpuad.source import SourceFile, Span

PACKAGE = str(Path(gpuad.__file__).parent)
N = 16
TEXT = r"""
extern "C" __global__ void sine(double* x, const double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = sin(x[i]) + 0.5 * y[i];
}

extern "C" __global__ void square(double* x, const double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 1.5 * y[i] * y[i];
}

extern "C" __global__ void mean(double* g, const double* f, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, m = n / 8;
    if (i < m) {
        double r = 0.0;
        for (int k = 0; k < 8; k++) r += f[i + k * m];
        g[i] = sin(r) * r;
    }
}
"""
SINE, SQUARE, MEAN = (gpuad.kernel(TEXT, name) for name in ("sine", "square", "mean"))
Wanted = Callable[[Any], bool]  # of a frame


@contextmanager
def interrupt(wanted: Wanted) -> Iterator[list[str]]:
    """Ctrl-C before the first line of the package that is wanted; gives where it came. Where a `with` block ends in compiled code no signal
    is heard, so lines that begin with that word are left out."""
    hit: list[str] = []

    def local(frame: Any, event: str, _: Any) -> Any:
        file, line = frame.f_code.co_filename, frame.f_lineno
        ours = frame.f_code.co_name != "address_of"  # CPython 3.11 itself crashes if a trace function raises there, below generators
        if event == "line" and ours and not linecache.getline(file, line).strip().startswith("with ") and wanted(frame):
            sys.settrace(None)
            hit.append(f"{Path(file).name}:{line}")
            raise KeyboardInterrupt
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: local if frame.f_code.co_filename.startswith(PACKAGE) else None)
    try:
        yield hit
    except KeyboardInterrupt:
        assert hit
    finally:
        sys.settrace(before)


def at(function: str, text: str, where: Callable[[Any], bool] = lambda _: True) -> Wanted:
    """Lines of a function that begin so."""

    def wanted(frame: Any) -> bool:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        return frame.f_code.co_name == function and line.startswith(text) and where(frame)

    return wanted


def after(count: int) -> Wanted:
    """The line after so many."""
    left = iter(range(count))
    return lambda _: next(left, None) is None


class Program:
    """Three arrays, whose shadows nobody has seen unless they are `given`, and what is known of two programs of them."""

    def __init__(self, given: bool = False) -> None:
        rng = np.random.default_rng(0)
        self.start = rng.normal(size=(3, N))
        self.seed = rng.normal(size=N)
        self.pairs = [Duplicated(a.copy(), np.zeros(N) if given else None) for a in self.start]

    def run(self, more: int = 0) -> None:
        x, y, z = self.pairs
        for pair, start in zip(self.pairs, self.start, strict=True):
            pair.primal[...] = start
        for _ in range(2):
            SINE[1, N](x, y, N)
            SQUARE[1, N](z, x, N)
            SINE[1, N](y, z, N)
        for _ in range(more):
            SQUARE[1, N](z, y, N)

    def reversed(self, tape: gpuad.Tape, more: int = 0) -> None:
        with tape:
            self.run(more)
        tape.reverse({self.pairs[1]: self.seed})

    def raw(self, tape: gpuad.Tape, more: int = 0) -> list[Any]:
        """The gradients by the raw rule."""
        for pair in self.pairs:
            pair.shadow[...] = self.seed
        with tape:
            self.run(more)
        tape.reverse()
        return [pair.shadow.copy() for pair in self.pairs]


def expected(more: int = 0) -> list[Any]:
    program = Program(given=True)
    program.reversed(gpuad.Tape(), more)
    return [pair.shadow for pair in program.pairs]


def test_shadows_are_seen_after_an_interrupt() -> None:
    """It comes while the package itself has looked at shadows, and leaves that block half."""
    program, tape = Program(), gpuad.Tape()
    quiet = at("scoped", "variable.reset", lambda frame: frame.f_locals["variable"].name == "internal reads")
    with interrupt(quiet) as hit, tape:
        program.run()
    assert hit
    program.reversed(tape)
    for pair, want in zip(program.pairs, expected(), strict=True):
        np.testing.assert_allclose(pair.shadow, want, rtol=1e-12)


def test_what_is_owed_is_owed_after_an_interrupt() -> None:
    program, tape = Program(), gpuad.Tape()
    program.reversed(tape)
    with interrupt(at("clear_owed", "action()")) as hit:
        for pair in program.pairs:
            _ = pair.shadow
    assert hit
    for pair, want in zip(program.pairs, expected(), strict=True):
        np.testing.assert_allclose(pair.shadow, want, rtol=1e-12)


def test_a_program_that_is_half_forgotten_is_not_known() -> None:
    """Its steps would be done again, and have no operations to be reversed."""
    program, tape = Program(given=True), gpuad.Tape()
    program.reversed(tape)
    with interrupt(at("forget", "self.allocations")) as hit, tape:
        program.run(1)
    assert hit
    for got, want in zip(program.raw(tape), Program(given=True).raw(gpuad.Tape()), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_recording_that_was_not_begun_is_not_reversed() -> None:
    """The tape is about to keep light values in place of memory, which the recording before did not."""
    rng = np.random.default_rng(1)
    f, g = Duplicated(rng.normal(size=64), np.zeros(64)), Duplicated(np.zeros(8), np.ones(8))
    tape = gpuad.Tape()
    with tape:
        MEAN[1, 8](g, f, 64)
    with interrupt(at("_enter", "self.streams.begin()")) as hit, tape:
        MEAN[1, 8](g, f, 64)
    assert hit
    with pytest.raises(TapeError, match="interrupted before the recording began"):
        tape.reverse()
    assert not f.shadow.any()
    with tape:
        MEAN[1, 8](g, f, 64)
    tape.reverse()
    r = f.primal.reshape(8, 8).sum(axis=0)
    np.testing.assert_allclose(f.shadow.reshape(8, 8), np.tile(np.cos(r) * r + np.sin(r), (8, 1)), rtol=1e-12)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("given", [False, True])
def test_anywhere_in_a_program_that_is_known(more: int, given: bool) -> None:
    """At many lines: of the program, of another one that begins like it, and of the reverse."""
    wants, raw, times = (expected(0), expected(1)), Program(given=True).raw(gpuad.Tape()), 0
    while True:
        program, tape = Program(given), gpuad.Tape()
        for _ in range(2):
            program.reversed(tape)
        with interrupt(after(times)) as hit:
            program.reversed(tape, more)
        if not hit:
            break
        current.set(None)  # an interrupt that comes in the way out of the block, before the tape hears of that, leaves it there
        program.reversed(tape, times % 2)
        for pair, want in zip(program.pairs, wants[times % 2], strict=True):
            np.testing.assert_allclose(pair.shadow, want, rtol=1e-12, err_msg=hit[0])
        for got, want in zip(program.raw(tape), raw, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=hit[0])
        times += 1 if times < 10 else 29 if NIGHTLY else 223
    assert times > 100


def squared(x: Any, last: Callable[[], None]) -> None:
    """Three launches from one line; `last` comes before the last of them."""
    for k in range(3):
        if k == 2:
            last()
        SQUARE[1, N](x, x, N)


def lock(array: Any) -> None:
    """By the user; what the tape depends on it has locked already, so this is of an array without a shadow."""
    array.flags.writeable = False


def test_an_array_that_becomes_read_only_within_a_recording() -> None:
    """The third launch is in the very words of the second."""
    x = np.full(N, 0.5)
    with pytest.raises(LaunchError, match="read-only"), gpuad.Tape():
        squared(x, lambda: lock(x))
    np.testing.assert_allclose(x, 1.5 * (1.5 * 0.25) ** 2)
    assert not x.flags.writeable


@gpuad.rule(overwrites=("x",))
def clear(x: Any) -> None:
    x.flags.writeable = True
    x[...] = 0


def test_an_array_of_a_rule_that_becomes_read_only() -> None:
    x = np.ones(N)
    with pytest.raises(LaunchError, match="read-only"), gpuad.Tape():
        for k in range(3):
            if k == 2:
                x[...] = 1
                lock(x)
            clear(x)
    np.testing.assert_allclose(x, 1)


def test_an_array_that_becomes_read_only_within_a_known_program() -> None:
    """A known call is made without another look; the tape then says so, and begins anew."""
    x, k, tape = Duplicated(np.full(N, 0.5), np.ones(N)), np.full(N, 0.5), gpuad.Tape()

    def program(last: Callable[[], None]) -> None:
        x.primal[...] = 0.5
        squared(x, lambda: None)
        squared(k, last)

    for _ in range(2):
        with tape:
            program(lambda: None)
    with pytest.raises(TapeError, match="made read-only"), tape:
        program(lambda: lock(k))
    with pytest.raises(TapeError, match="made read-only"):
        tape.reverse()
    np.testing.assert_allclose(x.shadow, 1.0)
    k.flags.writeable = True
    with tape:
        program(lambda: None)
    tape.reverse()
    np.testing.assert_allclose(x.shadow, 8 * 1.5**7 * 0.5**7)


def test_the_recursion_limit_outlives_an_interrupt() -> None:
    """Wherever in the room it comes, nobody who is gone holds the limit up."""
    room = partial(recursion_limit.room, "k", Span(SourceFile("k.cu", ""), 1, 1))
    before, lines, hit = sys.getrecursionlimit(), 0, ["at first"]
    while hit:
        late = after(lines)
        with interrupt(lambda frame, late=late: frame.f_code.co_filename == recursion_limit.__file__ and late(frame)) as hit, room():
            pass
        with room():
            assert sys.getrecursionlimit() >= recursion_limit.DEEP
        assert sys.getrecursionlimit() == before
        lines += 1
    assert lines > 10

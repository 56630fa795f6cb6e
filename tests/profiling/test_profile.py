"""What a profile finds: levels, rounds, reasons and advice, against what the tape itself has."""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
import pytest
from profiled import BYTES, STEPS, N, play, profiled

import gpuad
from gpuad import Duplicated
from gpuad.profiling import device, sampler
from gpuad.profiling.bands import bands
from gpuad.tape.facade import recording_of
from gpuad.tape.memory.memory_log import Kind, listeners


def test_rounds_and_programs() -> None:
    p = profiled()
    assert len(p.rounds) == 3 and p.programs
    for r in p.rounds:
        assert r.reversing is not None and r.reversed is not None
        assert p.seconds[0] <= r.began <= r.recorded <= r.reversing <= r.reversed <= p.seconds[1]
        assert r.seconds(0) == r.began and r.seconds(STEPS) == r.reversing and r.seconds(2 * STEPS) == r.reversed
    assert p.programs[-1].title.startswith(f"tape 1: {STEPS} operations from react (profiled.py:")
    assert p.programs[-1].holding.peak == (STEPS - 1) * BYTES


def test_what_is_unknown_is_read_off_once() -> None:
    """The first recording and those that repeat it may keep values in other places; the rest is the same program."""
    assert len({id(r.program) for r in profiled().rounds[1:]}) == 1


def test_the_peak_is_that_of_the_memory() -> None:
    budget = 6 * BYTES
    with gpuad.profile() as p:
        tape = gpuad.Tape(budget=budget)
        play(tape)
    assert p.peak == recording_of(tape).most == sum(p.peak_by_kind().values()) <= budget
    assert p.programs[-1].holding.peak == recording_of(tape).memory.total
    assert p.peak_resident is None or p.peak_resident > 1 << 20


def test_memory_from_before_counts() -> None:
    tape = gpuad.Tape()
    play(tape, 1)
    with gpuad.profile() as p:
        play(tape, 1)
    assert p.peak >= recording_of(tape).memory.total > 0


def test_bands_sum_what_is_held() -> None:
    holding = profiled().programs[-1].holding
    found = bands(holding)
    for kind in Kind:
        assert sum(b.nbytes for b in found if b.kind is kind) == sum(h.nbytes for h in holding.held if h.kind is kind)
    saved = [b for b in found if b.kind is Kind.saved]
    assert {b.name for b in saved} == {"density", "other"} and sum(b.count for b in saved) == STEPS - 1
    assert all("needed by react" in b.reason and "overwritten by react" in b.reason for b in saved)


def test_advice_says_what_a_budget_costs() -> None:
    first = profiled().advice[0]
    assert sum("a budget of" in hint for hint in profiled().advice) == 1 and "a budget of" in first
    assert first.startswith("`density` is saved 12 times (48 KiB (49152 B)) because react (profiled.py:")
    supposed = profiled().programs[-1].supposed
    assert supposed and supposed[-1].outlook.reruns == 0 and supposed[0].holding is not None
    for s in supposed:
        assert s.holding is not None and s.holding.peak == s.outlook.peak
    peaks = [s.outlook.peak for s in supposed]
    assert peaks == sorted(peaks)


def test_advice_on_what_is_overwritten_once() -> None:
    square = gpuad.kernel(
        'extern "C" __global__ void square(double* v, int n) { int i = threadIdx.x; if (i < n) v[i] = v[i] * v[i]; }', "square"
    )
    with gpuad.profile() as p:
        v, tape = Duplicated(np.ones(N), np.zeros(N)), gpuad.Tape()
        with tape:
            square[1, 512](v, N)
        tape.reverse({v: 1.0})
    (hint,) = p.advice
    assert hint.startswith("`v` is saved once (4096 B) because square (test_profile.py:") and "a ping-pong of two arrays" in hint


def test_advice_on_arrays_that_are_held() -> None:
    with gpuad.profile() as p:
        x, tape, kept = Duplicated(np.ones(N), np.zeros(N)), gpuad.Tape(), []
        with tape:
            y = gpuad.ops.sin(x)
            kept.append(y.primal)
            z = y * y
        tape.reverse({z: 1.0})
    hints = [h for h in p.advice if "held by `kept[0]`, made" in h or "held by `y`, made" in h]
    assert hints and "at test_profile.py:" in hints[0], p.advice


def test_a_recording_that_is_not_reversed_is_a_round() -> None:
    with gpuad.profile() as p:
        tape = gpuad.Tape()
        x = Duplicated(np.ones(N), np.zeros(N))
        for _ in range(2):
            with tape:
                x *= 2.0
    assert [r.reversed for r in p.rounds] == [None, None]
    assert p.rounds[0].seconds(5) == p.rounds[0].recorded
    str(p)


def test_a_failure_leaves_the_rest() -> None:
    with gpuad.profile() as p:
        tape = gpuad.Tape()
        with pytest.raises(ZeroDivisionError), tape:
            raise ZeroDivisionError
        play(tape, 1)
    assert len(p.rounds) == 1 and not listeners


def test_an_error_in_the_block_leaves_a_profile() -> None:
    with pytest.raises(ZeroDivisionError), gpuad.profile() as p:
        play(gpuad.Tape(), 1)
        raise ZeroDivisionError
    assert len(p.rounds) == 1 and not listeners


def test_within_the_block_there_is_no_profile() -> None:
    with gpuad.profile() as p:
        with pytest.raises(AttributeError, match="when its block has ended"):
            _ = p.rounds
        assert str(p) == "a profile that is going on"
    assert "the tapes added 0 B" in str(p)


def test_a_profile_keeps_nothing_alive() -> None:
    with gpuad.profile() as p:
        tape = gpuad.Tape()
        x = play(tape)
        gone = weakref.ref(tape), weakref.ref(x.primal)
        del tape, x
        gc.collect()
        assert [ref() for ref in gone] == [None, None]
    assert p.rounds


def test_the_table() -> None:
    text = str(profiled())
    assert "peak: the tapes added" in text and "density" in text and "* `density` is saved" in text
    assert "looking took" in text


# --- looking ---------------------------------------------------------------------------------------------------------------------------


class Slow:
    """A neighbourhood that takes its time."""

    def read(self, seconds: float) -> device.Reading:
        time.sleep(0.004)
        return device.Reading(seconds, None)


def test_looking_takes_its_share_and_no_more() -> None:
    """A slow look makes the pauses longer: after one of 4 ms nobody looks for 250 ms."""
    slow = sampler.Sampler(Slow(), 0.001)  # type: ignore[arg-type]
    slow.start()
    time.sleep(0.3)
    slow.stop()
    assert len(slow.readings) <= 4  # the first, the last, one after the interval, one after its pause
    assert sampler.SHARE <= 0.02

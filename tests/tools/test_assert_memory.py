"""Limits for what a tape takes, as a test says them."""

from __future__ import annotations

import numpy as np
import pytest
from profiled import BYTES, STEPS, N, play

import gpuad
from gpuad import TapeError
from gpuad.testing import assert_memory


@pytest.fixture
def tape() -> gpuad.Tape:
    made = gpuad.Tape(budget="1 GiB")
    play(made)
    return made


def test_limits_that_hold(tape: gpuad.Tape) -> None:
    saved = (STEPS - 1) * 8 * N
    assert_memory(tape, peak=STEPS * BYTES, saved=saved)  # with a copy of the state at the beginning, for which there is room
    assert_memory(tape, peak="1 MiB", saved=f"{saved} B")
    assert_memory(tape)


def test_what_is_beyond_a_limit_is_said(tape: gpuad.Tape) -> None:
    with pytest.raises(AssertionError) as found:
        assert_memory(tape, peak=STEPS * BYTES - 1, saved=(STEPS - 1) * 8 * N - 1)
    text = str(found.value)
    assert "peak: 96 KiB (98304 B), of 96 KiB (98303 B) allowed (98303)" in text and "saved: 89.8 KiB (92000 B)" in text
    assert "needed by react (profiled.py:" in text and "at the peak (" in text and "(saved)" in text


@pytest.mark.parametrize("name", ["a", "kept[0]"])
def test_bytes_per_cell(name: str) -> None:
    """Of an array by the caller's name, or by the kernel's, where no variable holds it."""
    tape, kept = gpuad.Tape(), []
    result = play(tape)
    if name != "a":
        kept.append(result)
    del result
    assert_memory(tape, saved=f"8 B per cell of {name} per operation")
    assert_memory(tape, saved=f"{8 * (STEPS - 1)} B per cell of {name}")
    with pytest.raises(AssertionError, match="7 B per cell"):
        assert_memory(tape, saved=f"7 B per cell of {name} per operation")
    assert len(kept) == (name != "a")


def test_single_precision_has_cells_of_four_bytes() -> None:
    kernel = gpuad.kernel('extern "C" __global__ void f(float* u, int n) { int i = threadIdx.x; if (i < n) u[i] *= u[i]; }', "f")
    u, tape = gpuad.Duplicated(np.ones(100, np.float32)), gpuad.Tape()
    with tape:
        kernel[1, 128](u, 100)
    assert_memory(tape, saved="4 B per cell of u")
    with pytest.raises(AssertionError):
        assert_memory(tape, saved="3 B per element of u")


def test_what_is_no_limit(tape: gpuad.Tape) -> None:
    with pytest.raises(ValueError, match="knows no array `w`; it knows"):
        assert_memory(tape, saved="12 B per cell of w")
    with pytest.raises(ValueError, match="write bytes"):
        assert_memory(tape, peak="50%")
    with pytest.raises(TapeError, match="`budget` is a number of bytes"):
        assert_memory(tape, peak="much")

"""Clearing large arrays by compiled code: all of them and nothing beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuad.program.ir.region import Region, span
from gpuad.runtime import actions as clear
from gpuad.runtime.actions import LARGE, clear_together, clearing
from gpuad.tape.memory.versions import clearing_of


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "c8", "c16", "i4", "u1", "?"])
@pytest.mark.parametrize("more", [0, 1, 4097])
@pytest.mark.parametrize("workers", ["1", "2", "3"])
def test_all_and_nothing_beside(dtype: str, more: int, workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAD_THREADS", workers)
    count = LARGE // np.dtype(dtype).itemsize + more
    room = np.ones(count + 14, dtype)
    assert clear_together(room[7:-7])
    assert not room[7:-7].any() and room[:7].all() and room[-7:].all()


@pytest.mark.parametrize("rows", [1, 2, 3000])
def test_rows_and_nothing_between(rows: int) -> None:
    room = np.ones((rows, LARGE // 4 // rows + 14))
    assert clear_together(room[:, 7:-7])
    assert not room[:, 7:-7].any() and room[:, :7].all() and room[:, -7:].all()


def test_columns_first() -> None:
    array = np.ones((3, LARGE // 8)).T
    assert clear_together(array) and not array.any()


@pytest.mark.parametrize(
    "array",
    [np.ones(8), np.ones((2, LARGE // 4))[:, ::2], np.ones(LARGE // 8)[::-1], np.ones((3, LARGE // 8))[:, 1:].T, np.full(LARGE // 8, None)],
)
def test_what_is_left_to_numpy(array: Any) -> None:
    assert not clear_together(array)
    action = clearing(array)
    assert action.target is array and not action()
    assert not array.any()


def test_read_only_arrays_stay_refused() -> None:
    array = np.ones(LARGE // 8)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        clearing(array)()
    assert array.all()


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clear, "_compiles", lambda: False)
    array = np.ones(LARGE // 8)
    assert not clearing(array)() and not array.any()


def test_elements_of_a_large_array() -> None:
    room = np.ones(LARGE, np.float32)
    for region in (span(5, LARGE - 3), Region(np.array([[0, 4], [8, 12]]))):
        room.fill(1)
        for action in clearing_of(room, region):
            action()
        wanted = np.ones_like(room)
        for low, high in region.spans:
            wanted[low:high] = 0
        assert np.array_equal(room, wanted)

"""Schedules of the library checkpoint_schedules (Dolci, Maddison, Ham and others; LGPL), as an oracle: imported, where it is installed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest


def library() -> Any:
    """The library; the test is skipped where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it would be faster with Numba
        return pytest.importorskip("checkpoint_schedules", reason="checkpoint_schedules, the oracle of schedules, is not installed")


def advances(name: str, steps: int, checkpoints: int) -> tuple[int, int]:
    """Steps that one of its schedules runs without and with what their adjoints need."""
    found = library()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule = getattr(found, name)(steps, *((checkpoints, 0) if name == "MultistageCheckpointSchedule" else (checkpoints,)))
        moves = [a for a in schedule if isinstance(a, found.Forward)]
    plain = sum(a.n1 - a.n0 for a in moves if not a.write_adj_deps)
    return plain, sum(a.n1 - a.n0 for a in moves if a.write_adj_deps)

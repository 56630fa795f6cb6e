"""What loops leave for their reverse: how little it is, where it lies, and that it is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import CASES, arguments, shipped

import gpuad
from gpuad import Duplicated, launching
from gpuad.executors.host import Host
from gpuad.executors.reference import Reference


def gradient(name: str, executor: Any) -> list[Any]:
    """The shadows that a case leaves, seeded with ones."""
    args = arguments(name)
    grid, block, shared_mem = CASES[name].geometry({})
    with launching.executor_for_tests(executor):
        pairs = [a for a in args if isinstance(a, Duplicated)]
        for pair in pairs:
            pair.shadow.fill(1)
        gpuad.autodiff(shipped(name), grid, block, args, shared_mem=shared_mem)
    return [pair.shadow for pair in pairs]


# --- rows ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "projection", "block_scan-scan", "insertion_sort"])
def test_workers_have_rows_of_their_own(name: str) -> None:
    """Also where the threads of a block run together, and where the depth hangs on data."""
    launched: list[Any] = []

    class Watched(Host):
        def launch(self, kernel: Any, *args: Any, **keywords: Any) -> None:
            launched.append(kernel)
            super().launch(kernel, *args, **keywords)

    host = Watched(workers=3)
    for found, wanted in zip(gradient(name, host), gradient(name, Reference()), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert any(kernel.in_rows is not None and kernel.in_rows.rows for kernel in launched)


@pytest.mark.parametrize("name", ["projection", "tridiagonal"])
def test_stacks_take_no_memory_of_the_launch(name: str) -> None:
    """On the CPU threads run one after the other and leave their values in one place; nothing is counted first."""
    made: list[int] = []

    class Watched(Host):
        def zeros(self, length: int, dtype: Any) -> Any:
            made.append(length)
            return super().zeros(length, dtype)

    gradient(name, Watched())
    assert made == []

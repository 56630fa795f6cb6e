"""Memory that gpuad maps itself is seen where the memory of arrays is measured."""

from __future__ import annotations

import numpy as np
import pytest

from gpuad.runtime import allocation
from gpuad.testing.memory import memory


@pytest.mark.parametrize("nbytes", [1 << 12, 1 << 18, 1 << 23])
def test_arrays_of_any_size_count_while_they_are_there(nbytes: int) -> None:
    with memory() as used:
        first = allocation.mapped(nbytes, np.uint8)
        del first
        second = allocation.mapped(nbytes, np.uint8)
    assert nbytes <= used.peak < 1.5 * nbytes
    assert used.left == second.nbytes


def test_objects_of_python_s_do_not_count() -> None:
    with memory() as used:
        kept = [str(k) for k in range(100_000)]
        array = np.zeros(1000)
    assert len(kept) == 100_000 and array.nbytes <= used.peak < 2 * array.nbytes

"""Memory of a tape goes back to the system when it is let go, whatever was made after it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks import resident
from gpuad.runtime import allocation

MB = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, to see what is resident")
def test_what_is_let_go_is_not_resident() -> None:
    """Of arrays that come and go the C library's heap kept most, once it had raised its threshold."""
    before = resident.now()
    arrays = [allocation.mapped(MB, np.uint8) for _ in range(64)]
    for array in arrays:
        array.fill(1)
    assert resident.now() - before > 60 * MB
    del array, arrays[::2]
    assert resident.now() - before < 36 * MB


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.complex128])
@pytest.mark.parametrize("length", [0, 5, 1 << 14, 1 << 19])
def test_zeros_that_can_be_written(length: int, dtype: type) -> None:
    array = allocation.mapped(length, dtype)
    assert array.shape == (length,) and array.dtype == dtype and not array.any() and array.flags.writeable
    array[...] = 1
    assert array.all() and array[length // 2 :].base is not None


def test_no_memory_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MemoryError, match="bytes"):
        allocation.mapped(1 << 60, np.uint8)
    seen: list[int] = []
    monkeypatch.setattr(allocation, "gates", [seen.append])
    allocation.mapped(1 << 18, np.float32)
    assert seen == [1 << 20]

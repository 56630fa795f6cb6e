"""From a view to its allocation: always a view of the same bytes, with the offset of the first element."""

from __future__ import annotations

import numpy as np
import pytest

from gpuad.errors import LaunchError
from gpuad.runtime.base import address_of as address
from gpuad.runtime.base import resolve


def check(array: np.ndarray, root_size: int, offset: int) -> None:
    memory = resolve(array)
    assert memory.root.dtype == array.dtype
    assert memory.root.ndim == 1
    assert (memory.root.size, memory.offset) == (root_size, offset)
    if array.size:
        assert memory.root.ctypes.data + offset * array.itemsize == array.ctypes.data
        assert np.shares_memory(memory.root, array)


def test_views_are_found_in_their_owner() -> None:
    u = np.arange(20.0)
    check(u, 20, 0)
    check(u[3:8], 20, 3)
    check(u[3:8][1:][::2], 20, 4)
    check(u[::-1], 20, 19)
    check(u.reshape(4, 5)[2, 1:], 20, 11)
    check(u.reshape(4, 5).T, 20, 0)
    check(u[7:7], 20, 0)
    check(np.array(3.0), 1, 0)


def test_fortran_order_and_three_dimensions() -> None:
    a = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
    check(a, 24, 0)
    check(a[1, 2], 24, 1 + 2 * 2)
    memory = resolve(a)
    assert memory.root[1 + 2 * 2 + 6 * 3] == a[1, 2, 3]
    check(np.zeros((3, 4)).transpose(1, 0)[1:], 12, 1)


def test_owners_of_another_dtype() -> None:
    z = np.zeros(6, np.complex128)
    check(z.real, 12, 0)
    check(z.imag, 12, 1)
    check(z.view(np.float64)[3:], 12, 3)
    raw = np.zeros(27, np.uint8)
    check(raw[8:24].view(np.float64), 3, 1)
    records = np.zeros(4, [("a", "f4"), ("b", "i4")])
    check(records["b"], 8, 1)
    with pytest.raises(LaunchError, match="multiple of 8"):
        resolve(raw[4:12].view(np.float64))


def test_foreign_memory_ends_at_the_outermost_array() -> None:
    data = bytearray(64)
    whole = np.frombuffer(data, np.float32)
    check(whole[4:], 16, 4)
    check(np.frombuffer(data, np.float32, offset=16)[1:], 12, 1)
    with pytest.raises(LaunchError, match="Python objects"):
        resolve(np.zeros(3, object))


def test_broadcast_and_subclasses() -> None:
    check(np.broadcast_to(np.arange(3.0), (5, 3)), 3, 0)
    memory = resolve(np.zeros((2, 2)).view(np.matrix))
    assert type(memory.root) is np.ndarray


def test_writing_through_the_root() -> None:
    u = np.zeros((3, 4), order="F")
    memory = resolve(u[1:, 2])
    memory.root[memory.offset] = 7
    assert u[1, 2] == 7


def test_same_allocation() -> None:
    u, v = np.zeros(8), np.zeros(8)
    assert address(resolve(u[1:]).root) == address(resolve(u[:3]).root)
    assert address(resolve(u).root) == address(resolve(u.view(np.int32)).root)
    assert address(resolve(u).root) != address(resolve(v).root)

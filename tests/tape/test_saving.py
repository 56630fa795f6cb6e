"""How a tape copies what it saves and looks at what it reads live: few copies, in as large units as there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuad.program.ir.region import Region, lattice
from gpuad.runtime.actions import perform
from gpuad.tape.memory.arena import GROWTH, LARGE, Arena
from gpuad.tape.memory.versions import MANY, Allocation, few_rows, gather, portions, rows, scattering


def scattered(count: int, unit: int, seed: int = 0) -> Region:
    """Runs of `unit` bytes at places that no few rows describe."""
    places = np.sort(np.random.default_rng(seed).choice(count * 8, count, replace=False)) * unit * 2
    return Region(np.stack([places, places + unit], axis=1).astype(np.int64))


@pytest.mark.parametrize("unit", [1, 3, 8, 24, 64, 192])
def test_many_runs_are_copied_in_units(unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuad.tape.memory.versions.PORTION", 64 * 7)
    region = scattered(300, unit)
    assert few_rows(region) is None and len(rows(region)) > MANY
    source = np.random.default_rng(1).integers(0, 256, region.high + 5, np.uint8)
    packed, back = np.zeros(region.nbytes, np.uint8), np.zeros_like(source)
    gather(source, region, packed)
    np.testing.assert_array_equal(packed, np.concatenate([source[a:z] for a, z in region.spans]))
    found = b"".join(portion.tobytes() for portion in portions(source, region, lambda n: np.zeros(n, np.uint8)))
    assert found == packed.tobytes()
    perform(scattering(packed, region, back))
    inside = np.zeros(len(source), bool)
    for a, z in region.spans:
        inside[a:z] = True
    np.testing.assert_array_equal(back, np.where(inside, source, 0))


def test_what_lies_between_short_rows_is_saved_with_them() -> None:
    """One copy instead of many; what it brings along is nobody's."""
    root = np.arange(64 * 64, dtype=np.float32).view(np.uint8)
    region = lattice(65 * 4, 62 * 4, [(256, 62)])
    allocation = Allocation(root, 0, "u")
    done: list[Any] = []
    allocation.save(region, 3, lambda n: np.zeros(n, np.uint8), done.append)
    assert len(done) == 1
    perform(done)
    (piece,) = allocation.pieces
    assert piece.region is region
    np.testing.assert_array_equal(piece.packed, np.concatenate([root[a:z] for a, z in region.spans]))


def test_chunks_of_an_arena_grow_to_a_limit() -> None:
    sizes: list[int] = []
    arena = Arena(lambda n: (sizes.append(n), np.broadcast_to(np.uint8(0), n))[1])
    for _ in range(3000):
        arena.take(3 << 20)
    arena.take(LARGE + 256)
    assert max(sizes[:-1]) <= LARGE and sizes[-1] == LARGE + 256
    assert len(sizes) < 400
    assert sum(sizes[:-1]) < 3000 * (1 + 1 / GROWTH) * (3 << 20) and not any(size % (3 << 20) for size in sizes[:-1]), (
        "nothing is left over"
    )

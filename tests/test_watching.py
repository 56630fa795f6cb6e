"""Marks of memory that a reverse reads live: what changes in a sample is seen, by whichever code takes the mark."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from gpuad import watching
from gpuad.executors import digest as digests
from gpuad.executors.digest import BLOCK, digest
from gpuad.program.memory import Allocation
from gpuad.program.region import Region, lattice, span
from gpuad.watching import SMALL, mark, sample

SIZE = 5 * SMALL + 1234


def memory(first: int = 0) -> Any:
    """Bytes whose first cache line begins with byte `first`."""
    room = np.random.default_rng(0).integers(0, 256, SIZE + 2 * BLOCK, np.uint8)
    begin = (-room.__array_interface__["data"][0] - first) % BLOCK
    return room[begin : begin + SIZE]


@pytest.mark.parametrize("first", [0, 16, 48, 63])
def test_a_sample_is_of_cache_lines(first: int) -> None:
    root = memory(first)
    for whole in (span(0, SIZE), span(77, SIZE - 5), lattice(40, 4000, [(4096, 1100)])):
        found = sample(whole, watching._shift(root))
        assert found <= whole
        assert not ((found.spans - first) % BLOCK).any()
        assert whole.nbytes / 45 < found.nbytes < whole.nbytes / 25
        blocks, places = watching._blocks(root, found) or (None, None)
        assert blocks is not None and len(places) * BLOCK == found.nbytes
        taken = blocks[: blocks.size // BLOCK * BLOCK].reshape(-1, BLOCK)[places].ravel()
        np.testing.assert_array_equal(taken, np.concatenate([root[a:z] for a, z in found.spans]))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("first", [0, 16])
def test_each_bit_of_a_sample_counts(compiled: bool, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(watching, "digest", lambda *_: None)
    root = memory(first)
    a = Allocation(root, 0, "u")
    region = sample(span(0, SIZE), watching._shift(root))
    before = mark(a, region)
    assert mark(a, region) == before
    r = np.random.default_rng(1)
    seen = {before}
    for low, high in region.spans[r.choice(len(region.spans), 25, replace=False)]:
        for at in r.integers(low, high, 3):
            bit = np.uint8(1 << r.integers(8))
            root[at] ^= bit
            seen.add(mark(a, region))
            root[at] ^= bit
    assert len(seen) == 76
    outside = np.ones(SIZE, bool)
    for low, high in region.spans:
        outside[low:high] = False
    root[outside] += 1
    assert mark(a, region) == before


def test_changes_of_all_that_there_is() -> None:
    """Signs of all numbers, an exchange of two blocks, a shift by a block, zeros."""
    blocks, places = memory()[: SIZE // BLOCK * BLOCK], np.arange(SIZE // BLOCK)
    numbers = blocks.view(np.float64).reshape(-1, BLOCK // 8)
    changed = [blocks, *(np.ascontiguousarray(x).view(np.uint8) for x in (-numbers, np.roll(numbers, 1, 0), np.zeros_like(numbers)))]
    swapped = numbers.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    within = numbers.copy()
    within[7, [0, 1]] = within[7, [1, 0]]
    two = numbers.copy()
    two[[1, 2]] *= -1
    changed += [x.view(np.uint8) for x in (swapped, within, two)]
    changed += [np.ones(blocks.size, np.uint8), np.full(blocks.size, 255, np.uint8)]
    found = [digest(x.ravel(), places) for x in changed]
    assert None not in found and len(set(found)) == len(found)


def test_a_digest_does_not_depend_on_the_workers() -> None:
    text = (
        "import numpy as np; from gpuad.executors.digest import digest; x = np.random.default_rng(0).integers(0, 256, 1 << 22, np.uint8); "
        "print(digest(x, np.arange(0, 1 << 16, 3)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", text], env={**os.environ, "GPUAD_THREADS": n}, capture_output=True, text=True, check=True
        ).stdout
        for n in ("1", "2", "3", "7")
    }
    assert len(found) == 1


def test_blocks_outside_are_refused() -> None:
    for places in ([0, 16], [-1], []):
        with pytest.raises(ValueError, match="outside"):
            digest(np.zeros(1024, np.uint8), np.array(places, np.int64))


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    digests._entry.cache_clear()
    try:
        assert digest(np.zeros(1024, np.uint8), np.array([0], np.int64)) is None
    finally:
        digests._entry.cache_clear()


def test_little_is_looked_at_as_before() -> None:
    root = memory()
    assert watching._blocks(root, Region(np.array([[0, 64], [128, 192]]))) is None

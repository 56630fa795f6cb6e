"""Marks of memory that a reverse reads live: every byte counts, by whichever code takes the mark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuad.program.ir.region import Region, lattice, span
from gpuad.runtime import digest as digests
from gpuad.runtime.digest import PIECE, digest
from gpuad.tape.memory import change_detection
from gpuad.tape.memory.change_detection import mark, pieces
from gpuad.tape.memory.versions import Allocation

SIZE = 5 * PIECE + 1234
REGIONS = {
    "all": span(0, SIZE),
    "from anywhere to anywhere": span(77, SIZE - 5),
    "rows": lattice(40, 4000, [(4096, 40)]),
    "many": Region(np.stack([np.arange(3, SIZE - 40, 32), np.arange(3, SIZE - 40, 32) + 13], axis=1)),
}


def memory() -> Any:
    return np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)


@pytest.mark.parametrize("name", REGIONS)
def test_pieces_are_the_region(name: str) -> None:
    region, found = REGIONS[name], np.zeros(SIZE, np.int64)
    for low, high in pieces(region):
        assert 0 < high - low <= PIECE
        found[low:high] += 1
    inside = np.zeros(SIZE, np.int64)
    for low, high in region.spans:
        inside[low:high] = 1
    np.testing.assert_array_equal(found, inside)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", REGIONS)
def test_each_bit_counts(compiled: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(change_detection, "digest", lambda *_: None)
    root, region = memory(), REGIONS[name]
    a = Allocation(root, 0, "u")
    before = mark(a, region)
    assert mark(a, region) == before
    r, seen = np.random.default_rng(1), {before}
    inside = np.zeros(SIZE, bool)
    for low, high in region.spans:
        inside[low:high] = True
    places = np.flatnonzero(inside)
    for at in (places[0], places[-1], *r.choice(places, 75, replace=False)):
        bit = np.uint8(1 << r.integers(8))
        root[at] ^= bit
        seen.add(mark(a, region))
        root[at] ^= bit
    assert len(seen) == 78
    root[~inside] += 1
    assert mark(a, region) == before


def test_changes_of_all_that_there_is() -> None:
    """Signs of all numbers, an exchange of two blocks, of two numbers, a shift by a block, zeros."""
    bytes_ = memory()[: SIZE // 64 * 64]
    numbers, spans = bytes_.view(np.float64).reshape(-1, 8), pieces(span(0, bytes_.size))
    changed = [bytes_, *(np.ascontiguousarray(x).view(np.uint8) for x in (-numbers, np.roll(numbers, 1, 0), np.zeros_like(numbers)))]
    swapped, within, two = numbers.copy(), numbers.copy(), numbers.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    within[7, [0, 1]] = within[7, [1, 0]]
    two[[1, 2]] *= -1
    changed += [x.view(np.uint8) for x in (swapped, within, two)]
    changed += [np.ones(bytes_.size, np.uint8), np.full(bytes_.size, 255, np.uint8)]
    found = [digest(x.ravel(), spans) for x in changed]
    assert None not in found and len(set(found)) == len(found)


def test_a_digest_does_not_depend_on_the_workers() -> None:
    text = (
        "import numpy as np; from gpuad.runtime.digest import digest; x = np.random.default_rng(0).integers(0, 256, 1 << 22, np.uint8); "
        "low = np.arange(0, 1 << 22, 1 << 15); print(digest(x, np.stack([low, low + 30_001], axis=1)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", text], env={**os.environ, "GPUAD_THREADS": n}, capture_output=True, text=True, check=True
        ).stdout
        for n in ("1", "2", "3", "7")
    }
    assert len(found) == 1


def test_spans_outside_are_refused() -> None:
    for spans in ([[0, 1025]], [[-1, 5]], np.zeros((0, 2))):
        with pytest.raises(ValueError, match="outside"):
            digest(np.zeros(1024, np.uint8), np.array(spans, np.int64))


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    digests._entry.cache_clear()
    try:
        assert digest(np.zeros(1024, np.uint8), np.array([[0, 64]], np.int64)) is None
    finally:
        digests._entry.cache_clear()

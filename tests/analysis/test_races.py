"""The tracker's codes against sets: random accesses of a few blocks, with barriers, judged by comparing all pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest
from nightly import cases

from gpuad.ir.nodes import Barrier, Buffer
from gpuad.ir.types import F64
from gpuad.runtime.reference.races import Batch, Conflict, Kind, Site, Tracker

BLOCKS, THREADS, CELLS = 3, 4, 9
SITE = Site(Barrier(), Buffer("x", F64))


@dataclass(frozen=True)
class Touch:
    kind: Kind
    cell: int
    thread: int
    interval: int

    @property
    def value(self) -> int:
        """What the thread writes, always: threads of one parity agree."""
        return self.thread % 2


def hostile(a: Touch, b: Touch) -> bool:
    if a.cell != b.cell or a.thread == b.thread:
        return False
    if a.thread // THREADS == b.thread // THREADS and a.interval != b.interval:
        return False
    if a.kind is Kind.WRITE and b.kind is Kind.WRITE:
        return a.value != b.value
    return a.kind is not b.kind


def random_statements(random: np.random.Generator, barriers: bool) -> list[list[Touch]]:
    intervals = np.zeros(BLOCKS, int)
    statements = []
    for _ in range(random.integers(1, 7)):
        kind = Kind(random.choice([0, 0, 1, 1, 2]))
        spread = int(random.integers(0, 3))
        active = random.random(BLOCKS * THREADS) < random.choice([0.2, 0.6, 1.0])
        threads = random.permutation(np.flatnonzero(active))
        touches = []
        for t in threads.tolist():
            cell = int(random.integers(CELLS)) if spread == 0 else (t * 7 + spread) % 12 % CELLS if spread == 1 else t // 4 * 3 + t % 2
            touches.append(Touch(kind, cell, t, int(intervals[t // THREADS])))
        statements.append(touches)
        if barriers:
            intervals += random.random(BLOCKS) < 0.4
    return statements


def play(statements: list[list[Touch]], barriers: bool, watch: int | None = None) -> Tracker:
    tracker = Tracker("x", CELLS, THREADS, watch)
    content = np.full(CELLS, -1)
    for touches in statements:
        if not touches:
            continue
        cells, threads, intervals = (np.array([getattr(t, name) for t in touches], np.int32) for name in ("cell", "thread", "interval"))
        batch = Batch(SITE, cells, threads, intervals if barriers else None, cells)
        values = threads % 2
        if touches[0].kind is Kind.WRITE:
            batch = replace(batch, contents=values)
            tracker.access(Kind.WRITE, batch, content[cells] != values)
            content[cells] = values
            tracker.clash(batch, content[cells] != values)
        else:
            tracker.access(touches[0].kind, batch)
    return tracker


@pytest.mark.parametrize("barriers", [False, True])
def test_codes_find_what_sets_find(barriers: bool) -> None:
    random, found = np.random.default_rng(7), 0
    for _ in range(many := cases(400, 1500)):
        statements = random_statements(random, barriers)
        touches = [t for s in statements for t in s]
        expected = {a.cell for a, b in combinations(touches, 2) if hostile(a, b)}
        try:
            play(statements, barriers)
            assert not expected
        except Conflict as conflict:
            assert conflict.cell in expected
            found += 1
            with pytest.raises(Conflict) as again:
                play(statements, barriers, conflict.cell)
            a, b = again.value.tracker.culprits()
            assert hostile(Touch(a.kind, a.index, a.thread, a.interval), Touch(b.kind, b.index, b.thread, b.interval))
    assert many // 8 < found < many * 14 // 15

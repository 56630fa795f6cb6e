"""Marks in a program that goes on: what was copied for them makes up the states that they stand for, whichever of them are dropped."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpuad.program.ir.region import span
from gpuad.program.ir.regions import Regions, common, united, without
from gpuad.runtime.actions import perform
from gpuad.tape.budget.online_checkpoints import Copied, Marks
from gpuad.tape.memory.versions import Allocation, piece_of, placing

SIZE = 12
Step = tuple[Regions, Regions, Regions]  # reads, may write, surely writes


def some(r: random.Random) -> Regions:
    """Some bytes of some of three allocations."""
    found: Regions = {}
    for where in r.sample(range(3), r.randrange(3)):
        low = r.randrange(SIZE)
        found[where] = span(low, r.randint(low + 1, SIZE))
    return found


def program(r: random.Random) -> list[Step]:
    steps = []
    for _ in range(r.randrange(4, 30)):
        reads, writes, must = some(r), some(r), some(r)
        must = common(must, writes)
        steps.append((united(reads, without(writes, must)), writes, must))
    return steps


def states_of(steps: list[Step]) -> list[Regions]:
    """What is live before each step, and overwritten later."""
    live: Regions = {}
    later: Regions = {}
    found: list[Regions] = []
    for reads, writes, must in reversed(steps):
        live, later = united(without(live, must), reads), united(later, writes)
        found.append(common(live, later))
    return found[::-1]


def run(marks: Marks, allocations: list[Allocation], reads: Regions, writes: Regions, time: int, *, borrowed: bool = False) -> None:
    """What a tape does before a step."""
    for where, region in marks.to_copy(reads, writes).items():
        piece = piece_of(allocations[where].root, region, time, np.zeros(region.nbytes, np.uint8), None)
        perform(piece.saving)
        marks.add(Copied(allocations[where], piece, 0), borrowed=borrowed)
    marks.wrote(writes)


@pytest.mark.parametrize("seed", range(60))
def test_states_can_be_had_again(seed: int) -> None:
    r = random.Random(seed)
    rng = np.random.default_rng(seed)
    allocations = [Allocation(rng.integers(0, 255, SIZE).astype(np.uint8), k, "") for k in range(3)]
    steps, marks, before, most = program(r), Marks(), {}, r.choice([1, 2, 4, 40])
    for t, (reads, writes, _) in enumerate(steps):
        before[t] = [a.root.copy() for a in allocations]
        if t and r.random() < 0.6:
            marks.set(t)
            while len(marks) > most:
                marks.drop(r.randrange(len(marks)))
        run(marks, allocations, reads, writes, t, borrowed=r.random() < 0.3)  # some copies are made for others
        for where, region in writes.items():
            for low, high in region.spans:
                allocations[where].root[low:high] = rng.integers(0, 255, high - low)
    left = [a.root.copy() for a in allocations]
    states = states_of(steps)
    found = dict(marks.states({m.time: states[m.time] for m in marks.marks}))
    assert list(found) == [m.time for m in reversed(marks.marks)], "none lacks anything"
    for time, copies in found.items():
        for a, end in zip(allocations, left, strict=True):
            a.root[...] = end
        perform(a for copied, parts in copies for p in parts.values() for a in placing(copied.piece, p, copied.allocation.root, 0))
        for where, region in states[time].items():
            wanted, here = before[time][where], allocations[where].root
            assert all((here[low:high] == wanted[low:high]).all() for low, high in region.spans), (time, where)


def test_a_mark_alone_holds_no_more_than_its_state() -> None:
    """Two arrays that take turns: one is dead at each mark, and copies that a dropped mark needed go with it."""
    r = np.zeros(1024, np.uint8)
    a, b = Allocation(r, 0, "a"), Allocation(r.copy(), 1, "b")
    marks, whole = Marks(), span(0, 1024)
    for t in range(20):
        source, target = (a, b) if t % 2 == 0 else (b, a)
        marks.set(t)
        while len(marks) > 3:
            marks.drop(1)
        reads, writes = {source.address: whole}, {target.address: whole}
        run(marks, [a, b], reads, writes, t)
        assert marks.nbytes <= 2 * 1024  # the newest has overwritten nothing that it needs

"""Schedules for units that cost differently, against a search through all that can be done."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from test_schedules import played

from gpuad.budget import Chain, Keep, Move, Run, Weighted, moves_of

State = tuple[int, frozenset[int], int]  # where the state is, what is stored, how many units are left


def cheapest(weights: Sequence[int], slots: int, kept: int) -> int:
    """What is run at least, found by trying all: run a unit, store, drop or load a state, or run some units, keep what their adjoints need
    and reverse them. `kept`: how many units can be kept in the memory of the slots that are free, beside the one that always can."""

    def steps(state: State) -> Iterator[tuple[int, State]]:
        at, stored, left = state
        if at < left - 1:
            yield weights[at], (at + 1, stored, left)
        if at and at not in stored and len(stored) < slots:
            yield 0, (at, stored | {at}, left)
        yield from ((0, (at, stored - {s}, left)) for s in stored)
        yield from ((0, (s, stored, left)) for s in (0, *stored) if s < left)
        if left - at <= 1 + kept * (slots - len(stored)):
            yield sum(weights[at:left]), (0, stored, at)

    start: State = (0, frozenset(), len(weights))
    waiting, best, count = [(0, 0, start)], {start: 0}, 0
    while waiting:
        cost, _, state = heapq.heappop(waiting)
        if state[2] == 0:
            return cost
        if cost > best[state]:
            continue
        for more, found in steps(state):
            if cost + more < best.get(found, 1 << 60):
                best[found] = cost + more
                count += 1
                heapq.heappush(waiting, (cost + more, count, found))
    raise AssertionError("there is a way")


def run(moves: Sequence[Move], weights: Sequence[int]) -> int:
    return sum(sum(weights[m.begin : m.end]) for m in moves if isinstance(m, Run | Keep))


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("slots", range(4))
def test_the_optimum_against_a_search_through_all(slots: int, kept: int) -> None:
    rng = np.random.default_rng(slots)
    for units in range(1, 8):
        for _ in range(3):
            weights = [int(w) for w in rng.choice([1, 2, 5, 30, 100], units)]
            chain = Weighted(weights, lambda free: 1 + kept * free, False)
            least = cheapest(weights, slots, kept)
            if kept:  # to let a checkpoint go so as to keep units on both sides of it is no move of these schedules
                assert least <= chain.cost(slots) <= 1.25 * least, weights
            else:
                assert chain.cost(slots) == least, weights
            moves = moves_of(chain, slots)
            assert run(moves, weights) == chain.cost(slots)
            assert played(moves, units)[1] <= slots


@pytest.mark.parametrize("spared", [False, True])
def test_equal_units_cost_what_a_chain_of_them_does(spared: bool) -> None:
    for units in (1, 2, 7, 30):
        equal, weighted = Chain(units, lambda s: 1 + s // 2, spared), Weighted([7] * units, lambda s: 1 + s // 2, spared)
        for slots in range(8):
            assert weighted.cost(slots) <= 7 * equal.cost(slots, units) <= 1.05 * weighted.cost(slots)


def test_more_slots_never_cost_more() -> None:
    rng = np.random.default_rng(5)
    for _ in range(5):
        chain = Weighted([int(w) for w in rng.integers(1, 1000, 60)], lambda s: 1 + s // 3, True)
        costs = [chain.cost(slots) for slots in range(40)]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] < costs[0]


def test_the_state_after_what_is_dear_is_stored() -> None:
    weights = [1000, 1, 1, 1, 1, 1]
    moves = moves_of(Weighted(weights, lambda _: 1, False), 1)
    assert sum(m.begin == 0 for m in moves if isinstance(m, Run | Keep)) == 2  # once to come to what follows, once for its adjoint
    equal = moves_of(Chain(6, lambda _: 1, False), 1)
    assert run(moves, weights) < run(equal, weights)

"""Schedules for chains of known length: against closed forms, and against another library."""

from __future__ import annotations

import pytest
from checkpoint_oracle import advances

from gpuad.budget import Chain, Drop, Keep, Load, Move, Reverse, Run, Save, extra_steps, moves_from, moves_of


def played(moves: tuple[Move, ...], units: int, *, ran: bool = False) -> tuple[int, int]:
    """Follows moves as a chain of numbers would: units that run without and with what their adjoints need, if all of them are reversed in
    order, each from the state that it needs; and the most states that are stored at once, the first left out. `ran`: the chain has been run
    and states were stored on the way."""
    state, stored, kept, left, runs, most = -1 if ran else 0, {0}, [0, 0], units, [0, 0], 0
    for move in moves:
        match move:
            case Save(at):
                assert state in (at, -1)  # or it was stored while the chain was run
                stored.add(at)
            case Load(at, last):
                assert at in stored
                state = at
                if last:
                    stored.discard(at)
            case Run(begin, end):
                assert state == begin
                state, runs[0] = end, runs[0] + end - begin
            case Keep(begin, end):
                assert state == begin
                state, kept, runs[1] = end, [begin, end], runs[1] + end - begin
            case Reverse(begin, end):
                assert kept == [begin, end] and end == left
                left = begin
            case Drop(at):
                stored.discard(at)
        most = max(most, len(stored - {0}))
    assert left == 0, "all are reversed"
    return runs[0], most


@pytest.mark.parametrize("checkpoints", range(1, 7))
def test_short_chains_take_the_fewest_steps(checkpoints: int) -> None:
    for steps in range(1, 13):
        moves = moves_of(Chain(steps, lambda _: 1, False), checkpoints - 1)
        plain, most = played(moves, steps)
        assert plain == extra_steps(steps, checkpoints)
        assert most <= checkpoints - 1


@pytest.mark.parametrize("checkpoints", range(1, 7))
def test_short_chains_against_another_library(checkpoints: int) -> None:
    for steps in range(1, 13):
        assert advances("MultistageCheckpointSchedule", steps, checkpoints) == (extra_steps(steps, checkpoints), steps)


def test_a_thousand_steps_with_twenty_checkpoints() -> None:
    moves = moves_of(Chain(1000, lambda _: 1, False), 19)
    assert played(moves, 1000)[0] == extra_steps(1000, 20) == 2747
    assert advances("MultistageCheckpointSchedule", 1000, 20) == (2747, 1000)


def test_what_is_kept_in_the_place_of_checkpoints_saves_steps() -> None:
    """A unit that is kept takes as much as a checkpoint: no more steps than without (722), and near to what mixes both freely (553)."""
    assert sum(advances("MixedCheckpointSchedule", 200, 10)) == 553
    moves = moves_of(Chain(200, lambda slots: 1 + slots, False), 9)
    runs = sum(m.end - m.begin for m in moves if isinstance(m, Run | Keep))
    assert runs == 604
    assert runs < 200 + extra_steps(200, 10) == 722


@pytest.mark.parametrize("steps", range(1, 13))
def test_chains_that_have_been_run(steps: int) -> None:
    """Whatever was stored on the way, all are reversed, and more slots never cost more."""
    for chosen in range(1 << min(steps - 1, 6)):
        stored = {0: False, **{t + 1: True for t in range(steps - 1) if chosen >> t & 1}}
        before = None
        for slots in range(5):
            moves = moves_from(Chain(steps, lambda _: 1, False), stored, slots)
            first = next(m for m in moves if not isinstance(m, Save))
            assert isinstance(first, Load) and first.at == max(stored)
            plain, _ = played(moves, steps, ran=True)
            assert before is None or plain <= before
            before = plain

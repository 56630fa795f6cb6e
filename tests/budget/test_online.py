"""Checkpoints while nobody knows how long a chain gets, against the optimum of who does."""

from __future__ import annotations

import pytest

from gpuad.budget import expendable, extra_steps, stride


def played(steps: int, checkpoints: int) -> tuple[list[int], int]:
    """What is stored when a chain ends, and how many states were copied on the way."""
    stored, copied = [0], 0
    for t in range(1, steps):
        if t - stored[-1] < (stride(t, checkpoints) if len(stored) == checkpoints else 1):
            continue
        if len(stored) == checkpoints:
            del stored[expendable([*stored, t], t, checkpoints)]
        stored.append(t)
        copied += 1
    return stored, copied


def advances(stored: list[int], steps: int, checkpoints: int) -> int:
    """The chain itself, and each segment with what is free when the reversal comes to it."""
    ends = [*stored[1:], steps]
    return steps - 1 + sum(extra_steps(end - begin, checkpoints - k) for k, (begin, end) in enumerate(zip(stored, ends, strict=True)))


@pytest.mark.parametrize(("steps", "checkpoints", "percent"), [(100, 5, 4), (300, 10, 5), (1000, 20, 2), (1000, 50, 1), (3000, 10, 5)])
def test_the_optimum_is_nearly_reached_without_knowing_the_length(steps: int, checkpoints: int, percent: int) -> None:
    stored, copied = played(steps, checkpoints)
    assert advances(stored, steps, checkpoints) <= extra_steps(steps, checkpoints) * (1 + percent / 100)
    assert copied < steps * 0.7


def test_short_chains_and_few_checkpoints() -> None:
    for checkpoints in range(2, 7):
        for steps in range(1, 40):
            stored, _ = played(steps, checkpoints)
            assert len(stored) <= checkpoints and stored == sorted(set(stored)) and stored[0] == 0
            assert advances(stored, steps, checkpoints) <= 1.5 * extra_steps(steps, checkpoints) + 2, (steps, checkpoints)


def test_the_loss_is_the_least() -> None:
    """By trying them all."""
    stored, steps, checkpoints = [0, 3, 9, 11, 20, 26, 31], 33, 6
    losses = {k: advances([*stored[:k], *stored[k + 1 :]], steps, checkpoints) for k in range(1, len(stored) - 1)}
    assert losses[expendable(stored, steps, checkpoints)] == min(losses.values())

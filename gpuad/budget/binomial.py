"""Griewank and Walther's optimal checkpointing of a chain of equal steps (Algorithm 799: revolve, ACM TOMS 26, 2000).

With `s` checkpoints, the initial state among them, and each step run at most `r` times, chains of `C(s + r, s)` steps can be reversed; the
fewest steps that have to be run beside the one taped run of each is `r * n - C(s + r, s + 1)`.
"""

from __future__ import annotations

from math import comb


def repetitions(steps: int, checkpoints: int) -> int:
    """The least `r` for which so many checkpoints reverse a chain of `steps` steps."""
    r = 0
    while comb(checkpoints + r, checkpoints) < steps:
        r += 1
    return r


def extra_steps(steps: int, checkpoints: int) -> int:
    """How many steps are advanced, at least, to reverse a chain of `steps` steps with so many checkpoints (the initial state is one)."""
    if steps <= 1:
        return 0
    r = repetitions(steps, checkpoints)
    return r * steps - comb(checkpoints + r, checkpoints + 1)

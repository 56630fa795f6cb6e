"""How long random searches are: in CI a part of each; in the nightly set, `GPUAD_NIGHTLY=N pytest`, all of it, or N cases if that is more.

A search that only widens what other tests check by construction takes its length from `cases`, so that no push waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
NIGHTLY = int(os.environ.get("GPUAD_NIGHTLY") or 0)


def cases(usual: int, every: int) -> int:
    """`usual` of them in CI; nightly `every` one, or as many as are asked for."""
    return max(every, NIGHTLY) if NIGHTLY else usual


def share(everything: Sequence[T], one_of: int) -> list[T]:
    """Of combinations of what is tried one by one elsewhere every third, say, in CI; nightly all."""
    return list(everything if NIGHTLY else everything[::one_of])

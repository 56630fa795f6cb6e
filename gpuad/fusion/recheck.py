"""Checks by running it, under GPUAD_CHECK=1, that launches which became one do what they did apart.

The reference executor, which sees every element that two threads touch, makes the launches one after the other and as one, on copies of
what memory holds now: both must leave the same bytes. That is done once for each joint kernel and its numbers, before it is launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import LaunchError
from ..ir.nodes import Buffer
from ..runtime.base import Argument, Memory
from .link import Link, Where, where_of


def check_joined(apart: Sequence[Link], joined: Link) -> bool:
    """Raises LaunchError if threads meet in the joint launch, or if it leaves anything else."""
    from ..runtime.reference import RaceError, Reference

    one, other, reference = _Copies(), _Copies(), Reference()
    name = joined.kernel.name
    for link in apart:
        reference.launch(link.kernel, *link.geometry, one.arguments(link))
    try:
        reference.launch(joined.kernel, *joined.geometry, other.arguments(joined))
    except RaceError as error:
        what = f"GPUAD_CHECK: `{name}`: two threads meet in launches that were joined. Please report this program."
        raise LaunchError(f"{what}\n{error}") from error
    for where, found in other.made.items():
        if where in one.made and one.made[where].tobytes() != found.tobytes():
            raise LaunchError(
                f"GPUAD_CHECK: `{name}`: launches that were joined leave other numbers than apart. Please report this program."
            )
    return True


class _Copies:
    """Copies of the memory that launches touch, one of each allocation."""

    def __init__(self) -> None:
        self.made: dict[Where, Any] = {}

    def arguments(self, link: Link) -> list[Argument]:
        """What a launch on the copies is given."""
        return [
            self.of(p, a) if isinstance(p, Buffer) and isinstance(a, Memory) else a
            for p, a in zip(link.kernel.params, link.arguments, strict=True)
        ]

    def of(self, param: Buffer, memory: Memory) -> Memory:
        where = where_of(param, memory)
        known = self.made.get(where)
        if known is None or known.size < memory.root.size:
            whole = memory.root.get() if hasattr(memory.root, "get") else np.array(memory.root)
            if known is not None:
                whole[: known.size] = known
            self.made[where] = whole
        return replace(memory, root=self.made[where])

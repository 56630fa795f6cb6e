"""The cache of bound calls: a call in a program is made again and again, by the same line with the same objects, and is bound once.

In: kernel, geometry and the very objects passed, with the line of the call. Out: what binding and judging such a call has found
(`KnownLaunch`). It holds as long as arrays are laid out as they were, and no shadow has been noted since that could matter.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

from ...arguments.layouts import identity, layout
from ...runtime.actions import Action
from ...runtime.base import Executor, prepared
from ..reverse.shadows import Shadows
from .call_keys import lasting
from .launch_kind import LaunchKind
from .recorded_launch import Launched

_PACKAGE = str(Path(__file__).parents[2])


@dataclass(frozen=True, eq=False)
class KnownCall:
    """A call that has been bound and judged, to be run again as it is. `args` keeps the caller's objects alive, whose ids are in the key.
    `bare`: it has float arrays without a shadow, whose treatment depends on the `pairs` noted so far in the `recording`. `arrays`: whose
    memory it works on, `layouts`: how they were laid out (their owner may change that, or make them read-only)."""

    args: tuple[Any, ...]
    bare: bool
    recording: Shadows
    pairs: int
    arrays: tuple[Any, ...]
    layouts: tuple[Any, ...]

    def holds(self, recording: Shadows) -> bool:
        """Whether what was found out is true of this moment of a recording."""
        if self.recording is not recording or (self.bare and self.pairs != recording.count):
            return False
        return tuple(map(layout, self.arrays)) == self.layouts


@dataclass(frozen=True, eq=False)
class KnownLaunch(KnownCall):
    """A launch. `given`: what the primal is launched with."""

    operation: Launched
    kind: LaunchKind
    given: list[Any]
    launches: dict[Executor, Action] = field(default_factory=dict)  # the primal's, by who makes it

    @cached_property
    def lasts(self) -> bool:
        """Whether the call is known by its arguments: none of them can be changed into something else."""
        return all(map(lasting, self.args))

    def launch(self, executor: Executor) -> Action:
        """The primal's launch, which is always the same."""
        if executor not in self.launches:
            call = self.operation.call
            self.launches[executor] = prepared(executor, self.kind.primal, call.grid, call.block, self.given, call.shared_mem)
        return self.launches[executor]


def call_key(kernel: Any, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any, line: Any) -> Any:
    """What makes two calls the same: kernel, geometry, the very objects passed (numbers by value), and the line of the call."""
    key = (id(kernel), grid, block, shared_mem, id(stream), line, *[identity(a) for a in args])
    try:
        hash(key)
    except TypeError:
        return None
    return key


def user_frame() -> FrameType | None:
    """The frame of the user's code that called into the package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def line_of(frame: FrameType | None) -> tuple[int, int] | None:
    """What tells lines of code apart."""
    return (id(frame.f_code), frame.f_lineno) if frame is not None else None


def place_of(frame: FrameType | None) -> str:
    """File and line."""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else "?"

"""A call in a program is made again and again in the same words: what was found out about it is kept."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from .launch import Launched
from .operation import Use
from .shadows import Shadows

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True, eq=False)
class Recipe:
    """A call that has been bound and judged, to be run again as it is. `args` keeps the caller's objects alive, whose ids are in the key.
    `bare`: it has float arrays without a shadow, whose treatment depends on the `pairs` noted so far in the `recording`. `given`: what the
    primal is launched with. `doubtful`: its stores have to be checked before each launch. `paired`: it touches nothing without a
    shadow."""

    operation: Launched
    primal: Any
    args: tuple[Any, ...]
    bare: bool
    recording: Shadows
    pairs: int
    reads: tuple[Use, ...]  # of memory without a shadow
    given: list[Any]
    doubtful: bool
    paired: bool


def call_key(kernel: Any, grid: Any, block: Any, args: Sequence[Any], shared_mem: int, stream: Any, frame: FrameType | None) -> Any:
    """What makes two calls the same: kernel, geometry, the very objects passed (numbers by value), and the line of the call."""
    line = (id(frame.f_code), frame.f_lineno) if frame is not None else None
    key = (id(kernel), grid, block, shared_mem, id(stream), line, *[_identity(a) for a in args])
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _identity(arg: Any) -> Any:
    if isinstance(arg, float | np.floating):
        return type(arg), arg, math.copysign(1.0, arg)  # 0.0 and -0.0 are equal, but not the same
    return (type(arg), arg) if isinstance(arg, int | np.generic) else id(arg)


def user_frame() -> FrameType | None:
    """The frame of the user's code that called into the package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def place_of(frame: FrameType | None) -> str:
    """File and line."""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else "?"

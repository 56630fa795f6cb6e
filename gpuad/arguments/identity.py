"""The identity of an argument in caches: a number's value; an array's address, type and layout.

Nothing here looks at what an array holds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..runtime.array_locks import writeable
from .annotations import address


def identity(arg: Any) -> Any:
    """What an argument is known by: a number by its value, anything else as the object that it is."""
    if isinstance(arg, np.generic):
        return type(arg), arg.dtype, arg.tobytes()  # 0.0 and -0.0 are equal, but not the same
    if isinstance(arg, float):
        return type(arg), arg, math.copysign(1.0, arg)
    return (type(arg), arg) if isinstance(arg, int) else id(arg)


def signature(array: Any) -> tuple[Any, ...]:
    """What makes an array what it is for a launch, but for its content."""
    return address(array), *layout(array)


def layout(array: Any) -> tuple[Any, ...]:
    """What an array's owner may change about it in place: its signature but for where it lies."""
    return array.shape, array.strides, array.dtype, writeable(array)

"""How a call differs from the one that was expected in its place, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arguments.annotations import Duplicated
from ...arguments.arrays import address, is_array
from ...arguments.layouts import layout
from ...public_calls import show
from ..record.call_keys import CallKey, LaunchKey, arrays_of, same


def difference(key: CallKey, what: Any, args: Sequence[Any], *geometry: Any) -> str:
    """Why a call is not the expected key."""
    if key.what is not what:
        came = f"{getattr(what, 'name', 'foreign code')} came"
        return f"{came} in its place" if key.what is not None else f"the program had ended, and {came}"
    if isinstance(key, LaunchKey) and geometry and (key.grid, key.block) != geometry:
        return f"grid and block are {geometry[0]}, {geometry[1]}, and were {key.grid}, {key.block}"
    if len(key.args) != len(args):
        return f"it has {len(args)} arguments, and had {len(key.args)}"
    for number, (old, new) in enumerate(zip(key.args, args, strict=True), 1):
        if old is not new and not same(old, new):
            return f"argument {number} {_changed(old, new)}"
    return "its stream, shared memory or the elements that it writes are others"


def _changed(old: Any, new: Any) -> str:
    if type(old) is not type(new):
        return f"is a {type(new).__name__}, and was a {type(old).__name__}"
    before, now = list(arrays_of(old)), list(arrays_of(new))
    if not before or not now:
        return f"is {show(new)}, and was {show(old)}"
    if isinstance(new, Duplicated) and not new.has_shadow and address(before[0]) == address(now[0]):
        return "is a new pair: its shadow is another array than before"
    for a, b in zip(before, now, strict=False):
        if layout(a) != layout(b):
            return (
                f"is an array of {b.dtype} {b.shape}, and was one of {a.dtype} {a.shape}"
                if _shown(a) != _shown(b)
                else ("is an array laid out, or locked, in another way than before")
            )
    return "is another array than before, laid out alike"


def _shown(array: Any) -> Any:
    return (array.dtype, array.shape) if is_array(array) else None


__all__ = ["difference"]

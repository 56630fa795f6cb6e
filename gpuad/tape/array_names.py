"""What the user calls the arrays of a program: the variables, entries and attributes of his frames that hold them.

Nothing is changed and nothing is kept: a name is a text, found by the address of the allocation behind what a variable holds. Of several
names for one allocation that counts which holds all of it, and of these the one that was defined first.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FrameType, GetSetDescriptorType, ModuleType
from typing import Any

import numpy as np

from ..arguments.annotations import Active, BatchDuplicated, Const, Duplicated
from ..arguments.arrays import address, is_array, resolve
from ..errors import GpuadError
from ..runtime.array_types import NdArray

_MANY = 64  # entries of a container that are looked at
_DEEP = 3  # frames

Found = tuple[int, bool, str]  # the address of an allocation, whether all of it is held, and a name


def array_names(frame: FrameType | None) -> dict[int, str]:
    """Names by the address of an allocation, as the frame and those that called it have them."""
    whole: dict[int, str] = {}
    part: dict[int, str] = {}
    for names in _scopes(frame):
        for name, value in names.items():
            if isinstance(name, str) and not name.startswith("_"):
                for where, all_of_it, path in _within(name, value, 2):
                    (whole if all_of_it else part).setdefault(where, path)
    return {**part, **whole}


def _scopes(frame: FrameType | None) -> Iterator[Mapping[str, Any]]:
    globals_seen: set[int] = set()
    for _ in range(_DEEP):
        if frame is None:
            return
        if _is_function(frame):
            yield _variables(frame)
        if id(frame.f_globals) not in globals_seen:
            globals_seen.add(id(frame.f_globals))
            yield dict(frame.f_globals)
        frame = frame.f_back


def _variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a function's frame. Before Python 3.13 the frame keeps what it shows: it must not keep arrays alive."""
    shown = frame.f_locals
    found = dict(shown)
    if sys.version_info < (3, 13):
        shown.clear()
    return found


def _is_function(frame: FrameType) -> bool:
    return bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)


def _within(name: str, value: Any, deep: int) -> Iterator[Found]:
    """The arrays of a value: itself, its entries, or its attributes. Its type is asked, never the value: what a proxy stands for may be
    missing, and a class may say something else of its objects."""
    kind = type(value)
    if issubclass(kind, Duplicated | BatchDuplicated):
        yield from _pair(name, value)
    elif issubclass(kind, Const):
        yield from _array(name, value.primal)
    elif issubclass(kind, Active):
        yield from _array(f"d{name}", value.shadow)
    elif issubclass(kind, np.ndarray) or _library(kind) == "cupy":
        yield from _array(name, value)
    elif deep and kind in (tuple, list):
        for k, part in enumerate(value[:_MANY]):
            yield from _within(f"{name}[{k}]", part, deep - 1)
    elif deep and kind is dict:
        for key in list(value)[:_MANY]:
            if isinstance(key, str | int):
                yield from _within(f"{name}[{key!r}]", value[key], deep - 1)
    elif deep and not issubclass(kind, type | ModuleType) and _library(kind) not in ("gpuad", "builtins"):
        for key, part in list(_attributes(value).items())[:_MANY]:
            yield from _within(f"{name}.{key}", part, deep - 1)


def _library(kind: type) -> str:
    """The first part of the name of a class's module."""
    return str(kind.__module__).partition(".")[0]


def _attributes(value: Any) -> dict[str, Any]:
    """An object's own attributes, without running code of its class. None of one whose class hides them, as that of a `TypeVar` does from
    Python 3.12 on."""
    for owner in type(value).__mro__:
        found = owner.__dict__.get("__dict__")
        if found is not None:
            return dict(found.__get__(value)) if isinstance(found, GetSetDescriptorType) else {}
    return {}


def _pair(name: str, pair: Any) -> Iterator[Found]:
    if isinstance(pair, BatchDuplicated):
        yield from _array(name, pair.primal)
        for k, shadow in enumerate(pair.shadows):
            yield from _array(f"{name}.shadows[{k}]", shadow)
        return
    yield from _array(name, pair._primal)  # of a handle the property would be a view for the caller to have
    if pair.has_shadow:
        yield from _array(f"{name}.shadow", pair._own_shadow)


def _array(name: str, array: NdArray) -> Iterator[Found]:
    try:
        if not is_array(array) or not array.size:
            return
        root = resolve(array).root
        yield address(root), int(root.nbytes) == int(array.nbytes), name
    except (GpuadError, TypeError, ValueError):  # what gpuad could not use has no name either
        return


__all__ = ["array_names"]

"""Numbers with a gradient (`Active`) among the operands of an operation: as pairs of shape () where it takes arrays only.

The elementwise operations hand them to their kernels by value, and so do `gemm` and `axpy`. For any other operation a recorded copy puts
the number into an array first, whose gradient goes back to the number's shadow."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..arguments.annotations import Active
from .elementwise import as_pair
from .text import TABLE

_BY_VALUE = frozenset((*TABLE, "abs", "amax", "axpy", "clip", "conj", "copyto", "fill", "gemm", "mod", "true_divide"))


def taking_numbers(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The operation, which takes an Active where it takes an array."""
    if name in _BY_VALUE:
        return function

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        if any(type(x) in _LOOKED_INTO for x in args):
            args = tuple(map(_as_pairs, args))
        return function(*args, **keywords)

    call.__name__ = call.__qualname__ = name
    return call


_LOOKED_INTO = (Active, list, tuple)


def _as_pairs(x: Any) -> Any:
    if type(x) in (list, tuple):
        return type(x)(map(_as_pairs, x)) if any(type(part) in _LOOKED_INTO for part in x) else x
    return as_pair(x)

"""Arithmetic on whole numbers as a kernel computes it: they wrap, and a division rounds towards zero."""

from __future__ import annotations

import operator
from collections.abc import Callable

from .types import BOOL, Scalar

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_SIMPLE: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
}


def wrapped(value: int, kind: Scalar) -> int:
    """The value in an integer type, or as a truth."""
    if kind == BOOL:
        return int(value != 0)
    low = value & ((1 << kind.bits) - 1)
    return low - (1 << kind.bits) if kind.is_signed and low >> (kind.bits - 1) else low


def computed(op: str, left: int, right: int, kind: Scalar) -> int | None:
    """`left op right` in the type `kind` of both; of a comparison 0 or 1. None where C does not define it."""
    if op in COMPARE:
        return int(COMPARE[op](left, right))
    if op in _SIMPLE:
        return wrapped(_SIMPLE[op](left, right), kind)
    if op in ("<<", ">>"):
        in_range = 0 <= right < kind.bits
        return wrapped(left << right if op == "<<" else left >> right, kind) if in_range else None
    if op not in ("/", "%") or right == 0:
        return None
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return wrapped(quotient if op == "/" else left - quotient * right, kind)

"""Where a loop over lanes is cut because of a slow operation.

A root or a quotient takes a processor as long as dozens of sums and products. What waits for it waits in a queue of some hundred
operations, so if much does, the queue holds too few lanes to be busy. With the slow operation in a loop of its own, over all lanes, nothing
waits in the next; what both use is written to the first cache, and read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...ir.nodes import Binary, Call, Constant, Expr, Let, Stmt, walk
from ..structure import operands

_SLOW = frozenset({"sqrt", "rsqrt", "cbrt", "rcbrt", "hypot", "rhypot", "__fsqrt_rn", "__frsqrt_rn", "__dsqrt_rn"})
_LONG = 24  # operations that wait


def is_cut(stmt: Stmt, after: Iterable[Expr], is_same: Callable[[Expr], bool]) -> bool:
    """Whether a loop over lanes ends after this statement; `after`: what else it would compute; `is_same`: what all lanes compute alike,
    which is computed before."""
    if not isinstance(stmt, Let) or not any(_is_slow(e) and not is_same(e) for e in walk(stmt.value)):
        return False
    return sum(_operations(e) for e in after) >= _LONG


def computed(block: Iterable[Stmt]) -> Iterable[Expr]:
    """What statements compute."""
    return (e for stmt in block for e in operands(stmt))


def _is_slow(expr: Expr) -> bool:
    match expr:
        case Binary(op="/", left=left, right=right):
            return expr.type.is_float and not (isinstance(left, Constant) and isinstance(right, Constant))
        case Call(function=function):
            return function in _SLOW
    return False


def _operations(expr: Expr) -> int:
    return sum(1 for e in walk(expr) if isinstance(e, Binary | Call) and e.type.is_float)

"""How often a loop runs whose condition hangs on nothing but numbers that are known: `for (int d = 16; d > 0; d /= 2)`.

Such numbers begin as known ones and go on by known ones, whatever the data are. So they are computed here, iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ..ir.nodes import COMPARISONS, Binary, Cast, Constant, Expr, LaunchIndex, Let, Select, Unary, Var, While, variables, walk
from ..ir.rewrite import is_short, map_expr
from ..ir.types import BOOL, Scalar

Known: TypeAlias = "Callable[[Expr], int | None]"  # the value of a Var from before the loop, or of an index of the launch
Values: TypeAlias = "Mapping[Expr, int]"

_MOST = 64  # iterations; a loop that has more takes too long to go through


def passed(loop: While, known: Known) -> list[Values] | None:
    """What the loop's known numbers are at the start of each iteration, and after the last; None where it does not hang on them alone, or
    runs for long."""
    before = {leaf: value for leaf in _leaves(loop) if (value := known(leaf)) is not None}
    first = {c.var: value for c in loop.carried if c.var.type.is_integer and (value := _value(c.init, before)) is not None}
    following = _following(loop, first, before)
    found: list[Values] = [{v: first[v] for v in following}]
    while not loop.header and len(found) <= _MOST:
        now = found[-1]
        here = {**before, **now}
        goes_on = _value(loop.condition, here)
        if not goes_on:
            return found if goes_on is not None else None
        then: dict[Expr, int] = {v: value for v, e in following.items() if (value := _value(e, here)) is not None}
        if len(then) < len(now):
            return None
        found.append(then)
    return None


def wrapped(value: int, kind: Scalar) -> int:
    """The value in an integer type."""
    if kind == BOOL:
        return int(value != 0)
    low = value & ((1 << kind.bits) - 1)
    return low - (1 << kind.bits) if kind.is_signed and low >> (kind.bits - 1) else low


def _leaves(loop: While) -> set[Expr]:
    """The Vars and indices that its condition, its carried numbers, and what the body makes of them, speak of."""
    exprs = [loop.condition, *(e for c in loop.carried for e in (c.init, c.next)), *(s.value for s in loop.body if isinstance(s, Let))]
    own = {*(c.var for c in loop.carried), *(s.var for s in loop.body if isinstance(s, Let))}
    return {e for expr in exprs for e in walk(expr) if isinstance(e, Var | LaunchIndex) and e not in own}


def _following(loop: While, first: Mapping[Var, int], before: Values) -> dict[Var, Expr]:
    """The carried numbers that hang on nothing but each other and what was known before, with what they are in the next iteration."""
    lets = {s.var: s.value for s in loop.body if isinstance(s, Let)}
    found = {c.var: _resolved(c.next, lets) for c in loop.carried if c.var in first}
    while loose := [v for v, e in found.items() if any(u not in found and u not in before for u in variables(e))]:
        found = {v: e for v, e in found.items() if v not in loose}
    return found


def _resolved(expr: Expr, lets: Mapping[Var, Expr]) -> Expr:
    """The expression without names that stand for others, unless it would get long."""
    while is_short(expr) and any(v in lets for v in variables(expr)):
        expr = map_expr(expr, lambda e: lets.get(e, e) if isinstance(e, Var) else e)
    return expr


def _value(expr: Expr, values: Values) -> int | None:
    """The value of an integer, or of a truth, as the kernel computes it; None where that is not known, or not defined."""
    match expr:
        case Constant(value=v) if not expr.type.is_float:
            return int(v)
        case Var() | LaunchIndex():
            return values.get(expr)
        case Cast(operand=a) if not a.type.is_float and not expr.type.is_float:
            value = _value(a, values)
            return None if value is None else wrapped(value, expr.type)
        case Unary(op=op, operand=a) if not a.type.is_float:
            return _of_one(op, _value(a, values), expr.type)
        case Binary(op=op, left=a, right=z) if not a.type.is_float:
            return _of_two(op, _value(a, values), _value(z, values), expr.type)
        case Select(condition=c, then=a, otherwise=z):
            holds = _value(c, values)
            return None if holds is None else _value(a if holds else z, values)
    return None


def _of_one(op: str, value: int | None, kind: Scalar) -> int | None:
    if value is None or op not in ("-", "~", "!"):
        return None
    return int(not value) if op == "!" else wrapped(-value if op == "-" else ~value, kind)


def _of_two(op: str, a: int | None, b: int | None, kind: Scalar) -> int | None:
    if a is None or b is None:
        return None
    if op in COMPARISONS:
        return int({"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "==": a == b, "!=": a != b}[op])
    if op in ("<<", ">>"):
        return wrapped(a << b if op == "<<" else a >> b, kind) if 0 <= b < kind.bits else None
    if op in ("/", "%"):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0  # C rounds towards zero
        return wrapped(quotient if op == "/" else a - quotient * b, kind) if b else None
    simple = {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b, "&&": int(a and b != 0), "||": int(a or b) and 1}
    return wrapped(int(simple[op]), kind) if op in simple else None

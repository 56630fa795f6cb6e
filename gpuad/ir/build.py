"""Smart constructors: expressions as a person would write them, without `0 +`, `1 *` or double negation.

They simplify only what is exact for every float value that a derivative can meet: a term with a constant zero factor is dropped because the
derivative is identically zero there, not because a product happened to vanish.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce

from . import folding
from .folding import COMPARE
from .nodes import Binary, Call, Constant, Expr, Select, Unary, walk
from .types import BOOL, Scalar


def const(value: bool | int | float, type_: Scalar) -> Constant:
    return Constant(value, type_)


def zero(type_: Scalar) -> Constant:
    return Constant(0, type_)


def is_const(expr: Expr, value: float) -> bool:
    """Whether the expression is the literal `value` (of either sign of zero)."""
    return isinstance(expr, Constant) and expr.value == value


def neg(a: Expr) -> Expr:
    match a:
        case Constant(value=v):
            return Constant(-v, a.type)
        case Unary(op="-", operand=inner):
            return inner
        case Binary(op="*", left=Constant() as c, right=b):
            return Binary("*", neg(c), b, a.type)
        case Binary(op="-", left=left, right=right):
            return Binary("-", right, left, a.type)
    return Unary("-", a, a.type)


def add(a: Expr, b: Expr) -> Expr:
    if is_const(a, 0):
        return b
    if is_const(b, 0):
        return a
    if isinstance(a, Constant) and isinstance(b, Constant):
        return Constant(a.value + b.value, a.type)
    if a == b and a.type.is_float:
        return mul(Constant(2, a.type), a)
    match a, b:
        case _, Unary(op="-", operand=inner):
            return Binary("-", a, inner, a.type)
        case _, Binary(op="*", left=Constant(value=v) as c, right=inner) if v < 0:
            return Binary("-", a, mul(neg(c), inner), a.type)
        case Unary(op="-", operand=inner), _:
            return Binary("-", b, inner, a.type)
    return Binary("+", a, b, a.type)


def sub(a: Expr, b: Expr) -> Expr:
    return add(a, neg(b))


def mul(a: Expr, b: Expr) -> Expr:
    for x, y in ((a, b), (b, a)):
        if is_const(x, 0):
            return zero(a.type)
        if is_const(x, 1):
            return y
        if is_const(x, -1):
            return neg(y)
    if isinstance(a, Constant) and isinstance(b, Constant):
        return Constant(a.value * b.value, a.type)
    match a, b:
        case Unary(op="-", operand=inner), _:
            return neg(mul(inner, b))
        case _, Unary(op="-", operand=inner):
            return neg(mul(a, inner))
        case _, Constant() if not isinstance(a, Constant):
            return mul(b, a)
        case Constant(value=v), Binary(op="*", left=Constant(value=w), right=inner) if a.type.is_float and _exact(v, w):
            return mul(Constant(v * w, a.type), inner)
        case Binary(op="*", left=Constant() as c, right=inner), _ if not isinstance(b, Constant):
            return mul(c, mul(inner, b))
        case _, Binary(op="*", left=Constant() as c, right=inner) if not isinstance(a, Constant):
            return mul(c, mul(a, inner))
    return Binary("*", a, b, a.type)


def _exact(v: float, w: float) -> bool:
    """Whether one factor is a power of two, so that the product of the constants rounds nothing."""
    return any(x != 0 and math.isfinite(x) and abs(math.frexp(x)[0]) == 0.5 for x in (v, w))


def div(a: Expr, b: Expr) -> Expr:
    if is_const(a, 0):
        return zero(a.type)
    if is_const(b, 1):
        return a
    if isinstance(a, Unary):
        return neg(div(a.operand, b))
    return Binary("/", a, b, a.type)


def chain(seed: Expr, partial: Expr) -> Expr:
    """`seed * partial`, and 0 where the seed is exactly 0 (the partial may be infinite there)."""
    if isinstance(seed, Constant) or isinstance(partial, Constant):
        return mul(seed, partial)
    if isinstance(seed, Unary):
        return neg(chain(seed.operand, partial))
    if isinstance(partial, Unary):
        return neg(chain(seed, partial.operand))
    return Call("gpuad_chain", (seed, partial), seed.type)


def call(function: str, *args: Expr) -> Expr:
    return Call(function, args, args[0].type)


def cast(a: Expr, type_: Scalar) -> Expr:
    return folding.cast(a, type_)


def used(seed: Expr) -> Expr:
    """Whether a seed is not 0."""
    return Call("gpuad_used", (seed,), BOOL)


def collected(total: Expr) -> Expr:
    """Whether a sum is not 0."""
    return Call("gpuad_collected", (total,), BOOL)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    """`a op b`; decided where a constant is compared with itself, as in the question whether it is NaN."""
    if isinstance(a, Constant) and a == b:
        return Constant(COMPARE[op](a.value, a.value), BOOL)
    return Binary(op, a, b, BOOL)


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """The conjunction of two predicates, None meaning true."""
    if a is None or b is None or a == b:
        return a if b is None else b
    return Binary("&&", a, b, BOOL)


def every(conditions: Iterable[Expr]) -> Expr | None:
    """The conjunction of predicates, None if there are none."""
    return reduce(both, conditions, None)


def negate(a: Expr) -> Expr:
    match a:
        case Unary(op="!", operand=inner):
            return inner
        case Binary(op=op, left=x, right=y) if op in _OPPOSITE and not x.type.is_float:
            return Binary(_OPPOSITE[op], x, y, BOOL)
        case Constant(value=v):
            return Constant(not v, BOOL)
    return Unary("!", a, BOOL)


_OPPOSITE = {"<": ">=", ">": "<=", "<=": ">", ">=": "<", "==": "!=", "!=": "=="}


def select(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    if then == otherwise:
        return then
    if isinstance(condition, Constant):
        return then if condition.value else otherwise
    if isinstance(condition, Unary) and condition.op == "!":
        return select(condition.operand, otherwise, then)
    return Select(condition, then, otherwise)


def size(expr: Expr) -> int:
    """Number of nodes."""
    return sum(1 for _ in walk(expr))

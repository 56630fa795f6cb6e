"""Integer arithmetic on constants, so that `x + ex[k]` is `x - 1` where k and the table are known."""

from __future__ import annotations

from collections.abc import Mapping

from .arithmetic import computed, wrapped
from .nodes import COMPARISONS, Binary, Cast, Constant, Expr, Select, Unary, Var
from .rewrite import map_expr
from .types import BOOL, Scalar

_OPERATIONS = COMPARISONS | {"+", "-", "*", "&", "|", "^", "&&", "||", "/", "%"}


def evaluated(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """The expression with Vars replaced, and with what is then made of whole constants computed, as the kernel would."""
    return map_expr(expr, lambda e: values.get(e, e) if isinstance(e, Var) else _simpler(e))


def whole(expr: Expr) -> int | None:
    """The value of a constant that is a whole number or a truth value."""
    return int(expr.value) if isinstance(expr, Constant) and not expr.type.is_float else None


def _simpler(expr: Expr) -> Expr:
    match expr:
        case Binary(left=a, right=b) if not a.type.is_float:
            return _binary(expr, a, b)
        case Unary(op="-", operand=Constant(value=v), type=t) if t.is_integer:
            return _constant(-int(v), t)
        case Unary(op="!", operand=Constant(value=v)):
            return Constant(not v, BOOL)
        case Cast(operand=Constant(value=v) as a, type=t) if not a.type.is_float and not t.is_float:
            return _constant(int(v), t)
        case Select(condition=Constant(value=v), then=a, otherwise=b):
            return a if v else b
    return expr


def _binary(expr: Binary, a: Expr, b: Expr) -> Expr:
    left, right = whole(a), whole(b)
    if left is not None and right is not None and expr.op in _OPERATIONS and not (expr.op in "/%" and right in (0, -1)):
        value = computed(expr.op, left, right, expr.type)
        return expr if value is None else _constant(value, expr.type if expr.op not in COMPARISONS else BOOL)
    if expr.type.is_integer and a.type == b.type == expr.type:
        if right == 0 and expr.op in ("+", "-"):
            return a
        if left == 0 and expr.op == "+":
            return b
        if expr.op == "*" and (left in (0, 1) or right in (0, 1)):
            return a if left == 0 or right == 1 else b
    return expr


def _constant(value: int, t: Scalar) -> Constant:
    """The number in the type, in which it wraps."""
    return Constant(wrapped(value, t) if t.is_integer else bool(value), t)

"""Constant folding: constructors of core expressions that drop neutral operands on the fly with C's semantics, and the evaluation of index
expressions over known integers (`evaluated`).

Integers and bools fold fully (integers wrap; a division by zero stays); of floats only what is exact is touched: negation and conversion of
constants. No float arithmetic is evaluated or reordered, so that the generated code rounds as the user's does.

Arithmetic on whole numbers as a kernel computes it: they wrap, and a division rounds towards zero.

Derivatives are put together as a person would write them, without `0 +`, `1 *` or double negation. That simplifies only what is exact for
every float value that a derivative can meet: a term with a constant zero factor is dropped because the derivative is identically zero
there, not because a product happened to vanish.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import reduce

from ..source import Span
from .nodes import (
    COMPARISONS,
    NEGATED,
    Binary,
    Block,
    Call,
    Cast,
    Constant,
    Expr,
    If,
    LaunchIndex,
    Let,
    Merge,
    Select,
    Stmt,
    Unary,
    Var,
    variables,
    walk,
)
from .rewrite import map_expr
from .types import BOOL, I64, Scalar

_PACK = {16: "e", 32: "f", 64: "d"}

TRUE = Constant(True, BOOL)
FALSE = Constant(False, BOOL)


def integer(value: int, kind: Scalar) -> Constant:
    """The constant of integer type `kind` that `value` wraps to."""
    return Constant(wrapped(value, kind), kind)


def zero(kind: Scalar) -> Constant:
    """Zero, 0.0 or false."""
    return Constant(0, kind)


def is_trivial(expr: Expr) -> bool:
    """True if naming the expression would gain nothing: a Var or a constant."""
    return isinstance(expr, (Var, Constant))


def can_trap(expr: Expr) -> bool:
    """True if evaluating the expression where the program would not might misbehave: an integer division by something unknown."""
    return any(
        isinstance(e, Binary) and e.op in ("/", "%") and e.type.is_integer and not (isinstance(e.right, Constant) and e.right.value != 0)
        for e in walk(expr)
    )


# --- unary and conversions -----------------------------------------------------------------------------------------------------------


def unary(op: str, operand: Expr) -> Expr:
    """`op operand`, of the operand's type."""
    kind = operand.type
    if op == "!":
        return negate(operand)
    if isinstance(operand, Constant):
        if kind.is_integer:
            return integer(-int(operand.value) if op == "-" else ~int(operand.value), kind)
        if op == "-" and kind.is_float:
            return Constant(-operand.value, kind)
    return Unary(op, operand, kind)


def negate(condition: Expr) -> Expr:
    """The logical opposite; comparisons of integers are turned round (not of floats: a NaN makes both false), `&&` and `||` by De Morgan
    if that frees both sides from their `!`."""
    match condition:
        case Constant(value=value):
            return Constant(not value, BOOL)
        case Unary(op="!", operand=inner):
            return inner
        case Binary(op=op, left=a, right=b) if op in COMPARISONS and (a.type.is_integer or op in ("==", "!=")):
            return Binary(NEGATED[op], a, b, BOOL)
        case Binary(op="&&" | "||" as op, left=a, right=b):
            sides = negate(a), negate(b)
            if not any(isinstance(side, Unary) for side in sides):
                return Binary("||" if op == "&&" else "&&", *sides, BOOL)
    return Unary("!", condition, BOOL)


def cast(operand: Expr, kind: Scalar, implicit: bool = False) -> Expr:
    """The operand converted to `kind`; a conversion there and back that loses nothing disappears."""
    if operand.type == kind:
        return operand
    if isinstance(operand, Constant):
        return _cast_constant(operand, kind)
    if isinstance(operand, Cast) and _lossless(operand.operand.type, operand.type) and _same_kind(operand.operand.type, kind):
        return cast(operand.operand, kind, implicit)
    return Cast(operand, kind, implicit)


def same_bits(expr: Expr) -> Expr:
    """The expression without conversions between integers of one size."""
    while isinstance(expr, Cast) and expr.type.is_integer and expr.operand.type.is_integer and expr.type.bits == expr.operand.type.bits:
        expr = expr.operand
    return expr


def bits(operand: Expr, kind: Scalar) -> Expr:
    """The bits of a float as an integer `kind` of its size, or of an integer as a float; there and back is the value itself."""
    if isinstance(operand, Cast) and operand.operand.type.is_integer and operand.operand.type.bits == kind.bits and kind.is_float:
        return bits(operand.operand, kind)
    if isinstance(operand, Call) and operand.function == "bits" and operand.arguments[0].type == kind:
        return operand.arguments[0]
    if kind.kind == "uint" and kind.bits == 64:
        return cast(bits(operand, I64), kind)
    if operand.type.kind == "uint" and operand.type.bits == 64:
        operand = cast(operand, I64)
    return Call("bits", (operand,), kind)


def _lossless(source: Scalar, through: Scalar) -> bool:
    if source == BOOL:
        return True
    return source.is_integer and through.is_integer and through.bits >= source.bits


def _same_kind(source: Scalar, target: Scalar) -> bool:
    """True if the detour source -> wider -> target equals source -> target."""
    return source == target or (source.is_integer and target.is_integer and target.bits <= source.bits)


def _cast_constant(constant: Constant, kind: Scalar) -> Expr:
    value = constant.value
    if kind == BOOL:
        return Constant(value != 0, BOOL)
    if kind.is_integer:
        if not constant.type.is_float:
            return integer(int(value), kind)
        fits = value == value and abs(value) < 2.0**31 and integer(int(value), kind).value == int(value)
        return Constant(int(value), kind) if fits else Cast(constant, kind)
    rounded = _rounded(value, kind)
    return Cast(constant, kind) if rounded is None else Constant(rounded, kind)


def _rounded(value: bool | int | float, kind: Scalar) -> float | None:
    """The value in a float type, rounded to nearest once; None if Python cannot say."""
    if kind.kind != "float" or (isinstance(value, int) and abs(value) > 2**53):
        return None
    try:
        return float(struct.unpack(_PACK[kind.bits], struct.pack(_PACK[kind.bits], float(value)))[0])
    except OverflowError:
        return None


# --- binary --------------------------------------------------------------------------------------------------------------------------


def binary(op: str, left: Expr, right: Expr, kind: Scalar) -> Expr:
    """`left op right` of type `kind`."""
    if op in ("&&", "||"):
        return logical(op, left, right)
    if op in COMPARISONS:
        return _compare(op, left, right)
    if kind.is_integer:
        return _integer(op, left, right, kind)
    return Binary(op, left, right, kind)


def logical(op: str, left: Expr, right: Expr) -> Expr:
    """`left && right` or `left || right`, of pure bools."""
    neutral = op == "&&"
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Constant):
            return other if side.value == neutral else side
    return Binary(op, left, right, BOOL)


def _compare(op: str, left: Expr, right: Expr) -> Expr:
    if isinstance(left, Constant) and isinstance(right, Constant) and not left.type.is_float:
        return Constant(COMPARE[op](int(left.value), int(right.value)), BOOL)
    if isinstance(left, Cast) and left.operand.type == BOOL and isinstance(right, Constant) and right.value == 0 and op in ("!=", "=="):
        return left.operand if op == "!=" else negate(left.operand)
    return Binary(op, left, right, BOOL)


def _integer(op: str, left: Expr, right: Expr, kind: Scalar) -> Expr:
    if isinstance(left, Constant) and isinstance(right, Constant):
        folded = computed(op, int(left.value), int(right.value), kind)
        return Binary(op, left, right, kind) if folded is None else Constant(folded, kind)
    if isinstance(right, Constant) and (op, right.value) in _RIGHT_NEUTRAL:
        return left
    if isinstance(left, Constant) and (op, left.value) in _LEFT_NEUTRAL:
        return right
    if op in ("+", "-") and isinstance(right, Constant) and (merged := _shifted(op, left, int(right.value), kind)) is not None:
        return merged
    if op == "*" and any(isinstance(side, Constant) and side.value == 0 for side in (left, right)):
        return zero(kind)
    return Binary(op, left, right, kind)


def _shifted(op: str, left: Expr, amount: int, kind: Scalar) -> Expr | None:
    """`(x + c) + d` as `x + (c + d)`: integers wrap, so it is the same."""
    if not isinstance(left, Binary) or left.op not in ("+", "-") or not isinstance(left.right, Constant):
        return None
    total = (amount if op == "+" else -amount) + int(left.right.value) * (1 if left.op == "+" else -1)
    return _integer("+" if total >= 0 else "-", left.left, integer(abs(total), kind), kind)


_RIGHT_NEUTRAL = {("+", 0), ("-", 0), ("*", 1), ("/", 1), ("<<", 0), (">>", 0), ("|", 0), ("^", 0)}
_LEFT_NEUTRAL = {("+", 0), ("*", 1), ("|", 0), ("^", 0)}


def select(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """`condition ? then : otherwise`, both sides evaluated."""
    if isinstance(condition, Constant):
        return then if condition.value else otherwise
    if then == otherwise:
        return then
    if then.type == BOOL and isinstance(then, Constant):
        return logical("||", condition, otherwise) if then.value else logical("&&", negate(condition), otherwise)
    if then.type == BOOL and isinstance(otherwise, Constant):
        return logical("||", negate(condition), then) if otherwise.value else logical("&&", condition, then)
    if isinstance(condition, Unary) and condition.op == "!":
        return select(condition.operand, otherwise, then)
    return Select(condition, then, otherwise)


def make_if(condition: Expr, then: Block, otherwise: Block, merges: tuple[Merge, ...], span: Span | None) -> list[Stmt]:
    """An If, turned round if only its second side has statements; Lets of selects if neither has any."""
    if not then and not otherwise:
        return [Let(m.var, select(condition, m.then, m.otherwise), span=span) for m in merges]
    if otherwise and not then:
        turned = tuple(Merge(m.var, m.otherwise, m.then) for m in merges)
        return [If(negate(condition), otherwise, (), turned, span=span)]
    return [If(condition, then, otherwise, merges, span=span)]


def evaluated(expr: Expr, values: Mapping[Var, Expr] | Mapping[Expr, Expr]) -> Expr:
    """The expression with Vars and launch indices replaced, and with what is then made of whole constants computed, as the kernel would."""
    return map_expr(expr, lambda e: values.get(e, e) if isinstance(e, Var | LaunchIndex) else _simpler(e))  # type: ignore[arg-type]


def whole(expr: Expr) -> int | None:
    """The value of a constant that is a whole number or a truth value."""
    return int(expr.value) if isinstance(expr, Constant) and not expr.type.is_float else None


def _simpler(expr: Expr) -> Expr:
    match expr:
        case Unary(op=op, operand=a) if not a.type.is_float:
            return unary(op, a)
        case Binary(op=op, left=a, right=b, type=kind) if not a.type.is_float:
            return binary(op, a, b, kind)
        case Cast(operand=a, type=kind, implicit=implicit) if not (a.type.is_float or kind.is_float):
            return cast(a, kind, implicit)
        case Select(condition=condition, then=a, otherwise=b):
            return select(condition, a, b)
    return expr


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


# --- sums and products of derivatives -------------------------------------------------------------------------------------------------


def const(value: bool | int | float, type_: Scalar) -> Constant:
    return Constant(value, type_)


def is_const(expr: Expr, value: float) -> bool:
    """True if the expression is the literal `value` (of either sign of zero)."""
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


def positive(a: Expr) -> Expr:
    """The expression without its sign."""
    return a.operand if isinstance(a, Unary) and a.op == "-" else a


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
    """True if one factor is a power of two, so that the product of the constants rounds nothing."""
    return any(x != 0 and math.isfinite(x) and abs(math.frexp(x)[0]) == 0.5 for x in (v, w))


def div(a: Expr, b: Expr) -> Expr:
    if is_const(a, 0):
        return zero(a.type)
    if is_const(b, 1):
        return a
    if isinstance(a, Unary):
        return neg(div(a.operand, b))
    return Binary("/", a, b, a.type)


def is_reciprocal(expr: Expr) -> bool:
    """True if the expression is one over another that is no number, of floating point."""
    return isinstance(expr, Binary) and expr.op == "/" and expr.type.is_float and is_const(expr.left, 1) and any(variables(expr.right))


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


def size(expr: Expr) -> int:
    """Number of nodes."""
    return sum(1 for _ in walk(expr))


def conjuncts(expr: Expr) -> list[Expr]:
    """The terms of a conjunction."""
    if isinstance(expr, Binary) and expr.op == "&&":
        return [*conjuncts(expr.left), *conjuncts(expr.right)]
    return [expr]

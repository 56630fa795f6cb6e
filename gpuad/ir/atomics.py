"""Atomic operations that keep the greatest or the least number.

CUDA has them for integers. For floats users compare the numbers in a loop around atomicCAS, or let the integer operation compare their
bits: as signed integers (right for numbers that are not negative), or as unsigned ones (with the order reversed, for negative numbers).
Each is an operation of its own here, since they differ for NaN, for zeros, and where the bits' order is not the numbers'.
"""

from __future__ import annotations

from . import build as b
from .nodes import Binary, Call, Cast, Expr, Unary
from .types import BOOL, F64, I32, I64, U32, U64, Scalar

EXTREMA = frozenset({"max", "min", "fmax", "fmin", "nmax", "nmin", "imax", "imin", "umax", "umin"})
"""On memory of floats: `max`, `min` replace the content where the new number is greater (less); `fmax`, `fmin` also where the content is
NaN and the new number is not; `nmax`, `nmin` where one of them is NaN; `imax`, `umax` and kin compare bits as signed or unsigned integers.
On memory of integers only `max` and `min`."""


def bits_type(kind: Scalar, *, signed: bool = True) -> Scalar:
    """The integer type that holds the bits of a float; of 64 bits there is only the signed one."""
    return I64 if kind == F64 else I32 if signed else U32


def bits(value: Expr, *, signed: bool = True) -> Expr:
    """The bits of a float as an integer."""
    return Call("bits", (value,), bits_type(value.type, signed=signed))


def replaces(op: str, old: Expr, value: Expr) -> Expr:
    """Whether the operation changes a float `old` to `value`: at most one of equal values does, the first."""
    greater = ">" if op.endswith("max") else "<"
    if op in ("max", "min"):
        return b.compare(greater, value, old)
    if op in ("fmax", "fmin"):
        number = Binary("&&", b.compare("!=", old, old), b.compare("==", value, value), BOOL)
        return Binary("||", b.compare(greater, value, old), number, BOOL)
    if op in ("nmax", "nmin"):
        return Unary("!", b.compare(">=" if op == "nmax" else "<=", old, value), BOOL)
    first, second = _ordered(op, value), _ordered(op, old)
    return b.compare(greater, first, second)


def _ordered(op: str, value: Expr) -> Expr:
    """The bits of a float as the operation compares them."""
    if op[0] == "i" or value.type != F64:
        return bits(value, signed=op[0] == "i")
    return Cast(bits(value), U64)

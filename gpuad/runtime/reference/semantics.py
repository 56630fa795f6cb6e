"""What operators and conversions compute, on arrays: C's integers that wrap at their width, PTX's results where C has none.

Every operand is an array of one or more dimensions (a uniform value has shape `(1,)`), never a NumPy scalar: arrays wrap silently and keep
their dtype under every version of NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import GpuadError
from ...ir.dtypes import Array, dtype_of
from ...ir.nodes import COMPARISONS
from ...ir.types import Scalar

Function = Callable[..., Array]


def constant(value: bool | int | float, type: Scalar) -> Array:
    """A value as an array of shape (1,); integers wrap to the width."""
    if type.is_integer:
        return np.array([int(value) & (2**type.bits - 1)], f"uint{type.bits}").view(dtype_of(type))
    return np.array([value]).astype(dtype_of(type))


# --- operators -----------------------------------------------------------------------------------------------------------------------

_COMPARE: dict[str, Function] = {
    "<": np.less, ">": np.greater, "<=": np.less_equal, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_LOGIC: dict[str, Function] = {"&&": np.logical_and, "||": np.logical_or}
_ARITHMETIC: dict[str, Function] = {"+": np.add, "-": np.subtract, "*": np.multiply}
_BITS: dict[str, Function] = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}
_UNARY: dict[str, Function] = {"-": np.negative, "~": np.invert, "!": np.logical_not}


def binary(op: str, type: Scalar) -> Function:
    """The operator on operands of `type` (of the left operand, for a shift)."""
    if op in COMPARISONS:
        return _COMPARE[op]
    if type.is_float:
        table: dict[str, Function] = {**_ARITHMETIC, "/": np.divide}
    elif type.is_integer:
        table = {**_ARITHMETIC, **_BITS, "/": quotient, "%": remainder, "<<": shift_left, ">>": shift_right}
    else:
        table = {**_LOGIC, **_BITS}
    if op not in table:
        raise GpuadError(f"malformed IR: operator `{op}` on {type}")
    return table[op]


def unary(op: str, type: Scalar) -> Function:
    """The operator on an operand of `type`."""
    allowed = "-" if type.is_float else "-~" if type.is_integer else "!"
    if op not in allowed:
        raise GpuadError(f"malformed IR: operator `{op}` on {type}")
    return _UNARY[op]


def quotient(a: Array, b: Array) -> Array:
    """Truncates toward zero; all ones by zero; the dividend, wrapped, by -1."""
    rest = np.fmod(a, _safe(b))
    result = (a - rest) // _safe(b)
    if a.dtype.kind == "i":
        result = np.where(b == -1, np.negative(a), result)
    return np.where(b == 0, np.invert(np.zeros_like(a)), result)


def remainder(a: Array, b: Array) -> Array:
    """With the dividend's sign; the dividend by zero, 0 by -1."""
    return np.where(b == 0, a, np.fmod(a, _safe(b)))


def _safe(b: Array) -> Array:
    """Divisors with those that trap or overflow replaced by 1."""
    bad = (b == 0) | (b == -1) if b.dtype.kind == "i" else b == 0
    return np.where(bad, b.dtype.type(1), b) if bad.any() else b


def shift_left(a: Array, amount: Array) -> Array:
    """0 where the amount (unsigned) reaches the width."""
    wide = _reaches_width(a, amount)
    within = np.where(wide, 0, amount) if wide.any() else amount
    shifted: Array = np.left_shift(a, within.astype(a.dtype))
    return np.where(wide, a.dtype.type(0), shifted) if within is not amount else shifted


def shift_right(a: Array, amount: Array) -> Array:
    """0 where the amount (unsigned) reaches the width, or all sign bits if signed."""
    wide = _reaches_width(a, amount)
    within = np.where(wide, a.dtype.itemsize * 8 - 1, amount) if wide.any() else amount
    shifted: Array = np.right_shift(a, within.astype(a.dtype))
    return shifted if within is amount or a.dtype.kind == "i" else np.where(wide, a.dtype.type(0), shifted)


def _reaches_width(a: Array, amount: Array) -> Array:
    bits = a.dtype.itemsize * 8
    return np.asarray((amount < 0) | (amount >= bits))


# --- conversions ---------------------------------------------------------------------------------------------------------------------


def cast(source: Scalar, target: Scalar) -> Function:
    """C's conversion; out of range, PTX's."""
    dtype = dtype_of(target)
    if source == target:
        return lambda a: a
    if target.kind == "bool":
        return lambda a: np.not_equal(a, a.dtype.type(0))
    if source.is_float and target.is_integer:
        return lambda a: saturate(a, dtype)
    return lambda a: a.astype(dtype)


def saturate(a: Array, dtype: np.dtype[Any]) -> Array:
    """Float to integer as PTX's cvt.rzi does: saturated at 32 or 64 bits (compilers convert to narrower types by way of 32). NaN gives 0,
    or the highest bit alone if a float64 or a 64-bit integer is involved (PTX ISA 9.0, cvt, notes on integers)."""
    width = max(32, 8 * dtype.itemsize)
    wide = np.dtype(f"{'int' if dtype.kind == 'i' else 'uint'}{width}")
    info = np.iinfo(wide)
    whole = np.trunc(a.astype(np.float64))
    above, below, nan = whole >= float(info.max) + (width < 64), whole < float(info.min), np.isnan(whole)
    result = np.where(above | below | nan, 0.0, whole).astype(wide)
    result[above] = info.max
    result[below] = info.min
    if width == 64 or a.dtype == np.float64:
        result[nan] = info.min if dtype.kind == "i" else 1 << (width - 1)
    return result.astype(dtype, copy=False)

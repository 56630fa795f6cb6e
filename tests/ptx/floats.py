"""Floating-point arithmetic with one rounding: fused multiply-add and directed rounding, by error-free transformations.

Round to odd: where a sum of doubles is inexact, of its two neighbours the one whose last bit is 1. A second rounding to fewer digits (two
less at least) then gives what one rounding of the exact sum gives. [S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums:
proved algorithms using rounding to odd", IEEE Trans. Computers 57 (2008)]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

_SPLIT = 134217729.0  # 2^27 + 1
_SMALL, _LARGE = 2.0**-900, 2.0**900
_TINY = {np.dtype("f4"): np.float32(2.0**-126), np.dtype("f8"): 2.0**-1022}


def flushed(x: Any) -> Any:
    """Subnormal float32 as zeros of their sign: `.ftz`."""
    if x.dtype != np.float32:
        return x
    small = np.abs(x) < _TINY[x.dtype]
    return np.where(small, np.copysign(np.float32(0), x), x) if small.any() else x


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b = s + e exactly (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _halves(a: Any) -> tuple[Any, Any]:
    t = _SPLIT * a
    high = t - (t - a)
    return high, a - high


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b = p + e exactly where nothing over- or underflows (Dekker, Veltkamp)."""
    p = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def odd_sum(a: Any, b: Any) -> Any:
    """a + b of doubles, rounded to odd."""
    s, e = two_sum(a, b)
    s = np.atleast_1d(s)
    bits = s.view(np.int64)
    inexact = (e != 0) & np.isfinite(s) & np.isfinite(e) & ((bits & 1) == 0)
    if not inexact.any():
        return s
    step = np.where((e > 0) == (s > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64)


def directed(exact: Any, wanted: Any, rounding: str) -> Any:
    """Doubles (rounded to odd, or exact) to a narrower type, or to double itself where they are exact."""
    near = exact.astype(wanted)
    if rounding == "rn":
        return near
    back = near.astype(np.float64)
    info = np.dtype(wanted).type(np.inf)
    up, down = rounding == "rp", rounding == "rm"
    if rounding == "rz":
        return np.where(np.abs(back) > np.abs(exact), np.nextafter(near, np.dtype(wanted).type(0)), near)
    if up:
        return np.where(back < exact, np.nextafter(near, info), near)
    return np.where((back > exact) & down, np.nextafter(near, -info), near)


def fma32(a: Any, b: Any, c: Any, rounding: str = "rn") -> Any:
    """a * b + c of float32 with one rounding: the product is exact in double."""
    product = a.astype(np.float64) * b.astype(np.float64)
    return directed(odd_sum(product, c.astype(np.float64)), np.float32, rounding)


def fma64(a: Any, b: Any, c: Any, rounding: str = "rn") -> Any:
    """a * b + c of doubles with one rounding."""
    a, b, c = (np.atleast_1d(x) for x in np.broadcast_arrays(a, b, c))
    if rounding != "rn":
        finite = np.isfinite(a) & np.isfinite(b)  # so is their product, however large
        return by_fractions(lambda x, y, z: x * y + z, (a, b, c), rounding, np.where(np.isinf(c) & finite, c, a * b + c))
    p, low = two_product(a, b)
    uh, ul = two_sum(c, low)
    th, tl = two_sum(p, uh)
    result = th + odd_sum(tl, ul)
    plain = np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, p + c)
    size = np.abs(p)
    sure = (size > _SMALL) & (size < _LARGE) & (np.abs(a) < _LARGE) & (np.abs(b) < _LARGE) & (np.abs(c) < _LARGE)
    sure &= (np.abs(result) > _SMALL) | (result == 0) & (plain == 0)
    if sure.all():
        return np.where(result == 0, plain, result)
    result = np.where(sure & (result != 0), result, plain)
    doubtful = ~sure & np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    if doubtful.any():
        exact = by_fractions(lambda x, y, z: x * y + z, (a[doubtful], b[doubtful], c[doubtful]), "rn", plain[doubtful])
        result[doubtful] = exact
    return result


def by_fractions(operation: Callable[..., Fraction], operands: tuple[Any, ...], rounding: str, special: Any) -> Any:
    """The operation on doubles, exactly and then rounded, lane by lane; `special` where an operand or the result is no number, and for the
    sign of a zero that is exact."""
    lanes = [x.ravel() for x in np.broadcast_arrays(*operands, special)]
    return np.array([_rounded(operation, values[:-1], rounding, values[-1]) for values in zip(*lanes, strict=True)], np.float64)


def _rounded(operation: Callable[..., Fraction], values: tuple[Any, ...], rounding: str, special: Any) -> float:
    if not all(map(math.isfinite, values)):
        return float(special)
    exact = operation(*map(Fraction, map(float, values)))
    return float(special) if exact == 0 else rounded_fraction(exact, rounding)


def rounded_fraction(
    exact: Fraction, rounding: str = "rn", digits: int = 53, low: int = -1074, high: float = float(np.finfo("f8").max)
) -> float:
    """A rational number that is not 0 in a binary format: with so many digits, units of at least 2^low, and a greatest number."""
    size, sign = abs(exact), 1.0 if exact > 0 else -1.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - digits + 1, low)
    scaled = exact / unit
    down = math.floor(scaled)
    match rounding:
        case "rn":
            whole = round(scaled)  # to even
        case "rm":
            whole = down
        case "rp":
            whole = -math.floor(-scaled)
        case _:
            whole = down if exact > 0 else -math.floor(-scaled)
    result = whole * unit
    if abs(result) > Fraction(high):
        away = rounding == "rn" or (rounding == "rp" and exact > 0) or (rounding == "rm" and exact < 0)
        return math.copysign(math.inf if away else high, sign)
    return math.copysign(float(result), sign)


# --- halves --------------------------------------------------------------------------------------------------------------------------


def from_bfloat(bits: Any) -> Any:
    """bfloat16's bits as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat(x: Any, rounding: str = "rn") -> Any:
    """float32, or doubles rounded to odd, as bfloat16's bits."""
    if x.dtype == np.float64:
        near = x.astype(np.float32)
        wide = near.astype(np.float64)
        bits = near.view(np.int32)
        away = np.where(np.abs(wide) < np.abs(x), 1, -1)
        fix = (wide != x) & np.isfinite(x) & np.isfinite(near) & ((bits & 1) == 0)
        x = np.where(fix, bits + away, bits).astype(np.int32).view(np.float32)  # rounded to odd once more
    bits = x.view(np.uint32)
    rest = np.uint32(0) if rounding == "rz" else np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    made = ((bits + rest) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), made)


def extremum(a: Any, b: Any, largest: bool, keeps_nan: bool = False) -> Any:
    """The greater or lesser of two: of a number and a NaN the number, of two zeros +0 or -0."""
    bigger = (a > b) | ((a == b) & np.signbit(b))
    chosen = np.where(bigger == largest, a, b)
    if keeps_nan:
        return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), chosen)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, chosen))

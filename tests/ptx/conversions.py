"""cvt: between all types, with rounding, saturation, and flushing of subnormals."""

from __future__ import annotations

from typing import Any

import numpy as np

from .faults import Unknown
from .floating import ROUNDINGS, clipped
from .floats import directed, flushed, from_bfloat, odd_sum, to_bfloat
from .lanes import Coded, Lanes, Step, handler
from .types import DTYPES, dtype

_TO_WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_FLOAT = ("f16", "bf16", "f32", "f64")


@handler("cvt")
def _convert(coded: Coded) -> Step:
    ftz, sat, positive = coded.flag("ftz"), coded.flag("sat"), coded.flag("relu")
    whole, rounding = coded.flag(*_TO_WHOLE), coded.flag(*ROUNDINGS)
    types = [m for m in coded.rest if m in DTYPES]
    if len(types) != 2 or len(coded.rest) != 2 or positive:
        raise Unknown(coded.text)
    made, given = types
    if made in ("f16x2", "bf16x2"):
        return _pack_halves(coded, made, rounding)
    put, source = coded.target(), coded.source(1, given)

    def step(lanes: Lanes) -> None:
        put(lanes, converted(source(lanes), made, given, whole, rounding, bool(ftz), bool(sat)))

    return step


def _pack_halves(coded: Coded, made: str, rounding: str) -> Step:
    """`cvt.rn.f16x2.f32 d, a, b`: a above, b below."""
    if coded.rest[1] != "f32" or len(coded.operands) != 3:
        raise Unknown(coded.text)
    high, low, put = coded.source(1, "f32"), coded.source(2, "f32"), coded.target()
    half = made.removesuffix("x2")

    def step(lanes: Lanes) -> None:
        parts = [converted(source(lanes), half, "f32", "", rounding, False, False).view(np.uint16) for source in (high, low)]
        put(lanes, parts[0].astype(np.uint32) << np.uint32(16) | parts[1].astype(np.uint32))

    return step


def converted(x: Any, made: str, given: str, whole: str, rounding: str, ftz: bool, sat: bool) -> Any:
    """A value of type `given` as one of type `made`."""
    x = from_bfloat(x) if given == "bf16" else flushed(x) if ftz else x
    if given not in _FLOAT:
        return _from_integer(x, made, rounding, sat)
    if made not in _FLOAT:
        return _to_integer(x, made, given, whole)
    if whole:
        x = _TO_WHOLE[whole](x)
    x = clipped(x) if sat else x
    x = _to_float(x, made, rounding or "rn")
    return flushed(x) if ftz else x


def _to_float(x: Any, made: str, rounding: str) -> Any:
    if made == "bf16":
        return to_bfloat(x, rounding)
    wanted = dtype(made)
    if wanted.itemsize >= x.dtype.itemsize:
        return x.astype(wanted)
    return directed(x.astype(np.float64), wanted, rounding)


def _from_integer(x: Any, made: str, rounding: str, sat: bool) -> Any:
    wanted = dtype(made)
    if made not in _FLOAT:
        if sat:
            x = clamped(x, wanted)
        return x.astype(wanted)  # wraps, or extends by the sign of its own type
    if (wanted.itemsize == 8 and rounding in ("rn", "")) or (x.dtype.itemsize <= 4 and wanted.itemsize == 8):
        return x.astype(np.float64)
    if rounding == "rn" and made == "f32":
        return x.astype(np.float32)
    exact = _odd(x)
    return (
        to_bfloat(exact, rounding) if made == "bf16" else directed(exact, wanted, rounding) if wanted.itemsize < 8 else _no(made, rounding)
    )


def _no(made: str, rounding: str) -> Any:
    raise Unknown(f"cvt.{rounding}.{made} from 64 bits")


def _odd(x: Any) -> Any:
    """Integers as doubles, rounded to odd."""
    if x.dtype.itemsize <= 4:
        return x.astype(np.float64)
    low = x & x.dtype.type(0xFFFFFFFF)
    return odd_sum((x - low).astype(np.float64), low.astype(np.float64))


def clamped(x: Any, wanted: Any) -> Any:
    """Integers into the range of another integer type."""
    bounds, own = np.iinfo(wanted), np.iinfo(x.dtype)
    return np.clip(x, x.dtype.type(max(int(bounds.min), int(own.min))), x.dtype.type(min(int(bounds.max), int(own.max))))


def _to_integer(x: Any, made: str, given: str, whole: str) -> Any:
    """Rounded and clamped into the range of the type. NaN becomes 0, or for 64 bits on either side the number with the first bit alone."""
    if not whole:
        raise Unknown(f"cvt.{made}.{given} without a rounding")
    wanted = dtype(made)
    value = _TO_WHOLE[whole](x.astype(np.float64))
    bounds = np.iinfo(wanted)
    nan = (
        np.array([1 << 8 * wanted.itemsize - 1], f"u{wanted.itemsize}").view(wanted)
        if given == "f64" or wanted.itemsize == 8
        else wanted.type(0)
    )
    high, low = value >= float(bounds.max) + (0 if wanted.itemsize == 8 else 1), value < float(bounds.min)
    safe = np.where(high | low | np.isnan(value), 0.0, value)
    result = safe.astype(wanted)
    result = np.where(high, wanted.type(bounds.max), np.where(low, wanted.type(bounds.min), result))
    return np.where(np.isnan(value), nan, result)

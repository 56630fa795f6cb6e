"""Floating-point arithmetic: float32 and float64 as NumPy has them, halves through double, approximate functions by their true values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from . import integers
from .faults import Unknown
from .floats import by_fractions, directed, extremum, flushed, fma32, fma64, from_bfloat, odd_sum, to_bfloat
from .lanes import Coded, Lanes, Step, handler
from .types import FLOATS, HALVES, dtype

_EXACT: dict[str, Callable[..., Any]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}
ROUNDINGS = ("rn", "rz", "rm", "rp")


def kind(coded: Coded) -> str:
    return coded.instruction.modifiers[-1]


# --- two operands --------------------------------------------------------------------------------------------------------------------


@handler("add", "sub", "mul", "div", "min", "max", "rem")
def _pair(coded: Coded) -> Step:
    opcode, last = coded.instruction.opcode, kind(coded)
    if last not in (*FLOATS, *HALVES):
        return integers.multiply(coded) if opcode == "mul" else integers.pair(coded)
    if opcode == "rem":
        raise Unknown(coded.text)
    if opcode in ("min", "max"):
        keeps = bool(coded.flag("NaN"))
        return _float_step(coded, lambda _: lambda a, b: extremum(a, b, opcode == "max", keeps), 2)
    if opcode == "div" and last == "f32" and (how := coded.flag("approx", "full")):
        return _float_step(coded, lambda _: np.divide if how == "full" else approximate_quotient, 2)
    return _float_step(coded, lambda rounding: rounded(opcode, rounding), 2)


def approximate_quotient(a: Any, b: Any) -> Any:
    """`div.approx.f32`, by the inverse of the divisor: 0 or NaN where that is too small to be normal."""
    result, far = a / b, (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    return np.where(far, np.where(np.isinf(a), np.float32(np.nan), np.copysign(np.float32(0), result)), result)


def rounded(opcode: str, rounding: str) -> Callable[[Any, Any], Any]:
    """add, sub, mul or div, rounded as asked."""
    plain: dict[str, Callable[..., Any]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    if rounding == "rn":
        return plain[opcode]
    if rounding == "rm" and opcode in ("add", "sub"):  # a sum that cancels is -0
        upwards = rounded(opcode, "rp")
        return lambda a, b: -upwards(-a, -b)

    def otherwise(a: Any, b: Any) -> Any:
        special = plain[opcode](a, b)
        if a.dtype == np.float32 and opcode != "div":
            x, y = a.astype(np.float64), b.astype(np.float64)
            exact = x * y if opcode == "mul" else odd_sum(x, y if opcode == "add" else -y)
            return np.where(np.isfinite(exact), directed(exact, np.float32, rounding), special)
        exact = by_fractions(_EXACT[opcode], (a, b), "rn" if a.dtype == np.float32 else rounding, special)
        if a.dtype == np.float32:
            raise Unknown(f"div.{rounding}.f32")
        return exact

    return otherwise


def _float_step(coded: Coded, operation_of: Callable[[str], Callable[..., Any]], count: int) -> Step:
    """An operation with `.ftz`, `.sat` and a rounding on `count` sources."""
    ftz, sat, rounding = coded.flag("ftz"), coded.flag("sat"), coded.flag(*ROUNDINGS) or "rn"
    coded.flag("noftz")
    type_ = coded.need(*FLOATS, *HALVES)
    coded.done(count + 1)
    operation = operation_of(rounding)
    if type_ in HALVES:
        operation = in_halves(operation, type_)
    sources = [coded.source(at + 1, type_) for at in range(count)]
    put = coded.target()

    def step(lanes: Lanes) -> None:
        values = [flushed(source(lanes)) if ftz else source(lanes) for source in sources]
        result = operation(*values)
        result = clipped(result) if sat else result
        put(lanes, flushed(result) if ftz else result)

    return step


def clipped(x: Any) -> Any:
    """`.sat`: into 0 to 1; NaN becomes 0."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


# --- halves --------------------------------------------------------------------------------------------------------------------------


def in_halves(operation: Callable[..., Any], type_: str) -> Callable[..., Any]:
    """An operation on doubles (whose results are exact or rounded to odd) for halves, alone or in pairs."""
    if type_.endswith("x2"):
        return lambda *values: _packed(in_halves(operation, type_.removesuffix("x2")), type_.removesuffix("x2"), values)
    if type_ == "f16":
        return lambda *values: operation(*(v.astype(np.float64) for v in values)).astype(np.float16)
    return lambda *values: to_bfloat(operation(*(from_bfloat(v).astype(np.float64) for v in values)))


def _packed(operation: Callable[..., Any], type_: str, values: tuple[Any, ...]) -> Any:
    word = dtype(type_)
    low, high = (operation(*((v >> np.uint32(s)).astype(np.uint16).view(word) for v in values)).view(np.uint16) for s in (0, 16))
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


# --- fma -----------------------------------------------------------------------------------------------------------------------------


@handler("fma")
def _fma(coded: Coded) -> Step:
    last = kind(coded)
    if last in FLOATS:
        fused = fma32 if last == "f32" else fma64
        return _float_step(
            coded, lambda way: lambda a, b, c: -fused(-a, b, -c, "rp") if way == "rm" else fused(a, b, c, way), 3
        )  # downwards a sum that cancels is -0
    positive = coded.flag("relu")

    def half(a: Any, b: Any, c: Any) -> Any:
        result = odd_sum(a * b, c)
        return extremum(result, np.zeros(1), True, True) if positive else result

    return _float_step(coded, lambda _: half, 3)


# --- one operand ---------------------------------------------------------------------------------------------------------------------


@handler("neg", "abs")
def _sign(coded: Coded) -> Step:
    last = kind(coded)
    if last not in (*FLOATS, *HALVES):
        return integers.single(coded)
    if last in ("bf16", "bf16x2", "f16x2"):
        mask = {"bf16": 0x8000}.get(last, 0x80008000)
        word = dtype(last).type
        change = (lambda x: x ^ word(mask)) if coded.instruction.opcode == "neg" else (lambda x: x & ~word(mask))
        coded.flag("ftz")
        coded.need(last)
        put, source = coded.target(), coded.source(1, last)
        return lambda lanes: put(lanes, change(source(lanes)))
    operation = np.negative if coded.instruction.opcode == "neg" else np.abs
    ftz = coded.flag("ftz")
    coded.need("f16", *FLOATS)
    coded.done(2)
    put, source = coded.target(), coded.source(1, last)
    return lambda lanes: put(lanes, operation(flushed(source(lanes)) if ftz else source(lanes)))


@handler("copysign")
def _copysign(coded: Coded) -> Step:
    return _float_step(coded, lambda _: lambda sign, size: np.copysign(size, sign), 2)


@handler("testp")
def _test(coded: Coded) -> Step:
    what = coded.need("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    tests: dict[str, Callable[[Any], Any]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & ((np.abs(x) >= np.finfo(x.dtype).tiny) | (x == 0)),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny),
    }
    type_ = coded.need(*FLOATS)
    coded.done(2)
    put, source = coded.target(), coded.source(1, type_)
    return lambda lanes: put(lanes, tests[what](source(lanes)))


def _in_double(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of float32 by its value in double."""
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


def _coarse(x: Any) -> Any:
    """The upper 32 bits of a double, which is what `.approx.ftz.f64` gives."""
    return (x.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@handler(*FUNCTIONS)
def _function(coded: Coded) -> Step:
    opcode, last = coded.instruction.opcode, kind(coded)
    function = FUNCTIONS[opcode]
    if coded.flag("approx"):
        if last == "f64":
            coarse = bool(coded.flag("ftz"))
            if opcode not in ("rcp", "rsqrt") or (opcode == "rcp" and not coarse):
                raise Unknown(coded.text)
            return _float_step(coded, lambda _: (lambda x: _coarse(function(x))) if coarse else function, 1)
        return _float_step(coded, lambda _: _in_double(function) if last == "f32" else function, 1)
    if opcode not in ("rcp", "sqrt") or last not in FLOATS:
        raise Unknown(coded.text)
    return _float_step(coded, lambda rounding: _accurate(opcode, rounding, last, coded), 1)


def _accurate(opcode: str, rounding: str, type_: str, coded: Coded) -> Callable[[Any], Any]:
    one = dtype(type_).type(1)
    if rounding == "rn":
        return np.sqrt if opcode == "sqrt" else lambda x: one / x
    if opcode == "rcp" and type_ == "f64":
        return lambda x: by_fractions(operator.truediv, (np.ones(1), x), rounding, one / x)
    raise Unknown(coded.text)

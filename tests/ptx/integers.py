"""Integer arithmetic, logic, shifts, bit fields and carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .faults import Undefined, Unknown
from .lanes import Coded, Lanes, Step, applied, handler
from .types import DTYPES, dtype, unsigned

INTEGERS = {name for name in DTYPES if name[0] in "us"}
_WIDE = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}


def low(a: Any, b: Any, operation: Callable[[Any, Any], Any]) -> Any:
    """An operation modulo 2^bits."""
    word = unsigned(a.dtype.itemsize)
    return operation(a.view(word), b.view(word)).view(a.dtype)


def product(a: Any, b: Any) -> Any:
    return low(a, b, np.multiply)


def total(a: Any, b: Any) -> Any:
    return low(a, b, np.add)


def difference(a: Any, b: Any) -> Any:
    return low(a, b, np.subtract)


def high_product(a: Any, b: Any) -> Any:
    """The upper half of the product."""
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        return (a.astype(wide) * b.astype(wide) >> 8 * a.dtype.itemsize).astype(a.dtype)
    if a.dtype.kind == "i":
        high = high_product(a.view(np.uint64), b.view(np.uint64))
        high = high - np.where(a < 0, b.view(np.uint64), np.uint64(0)) - np.where(b < 0, a.view(np.uint64), np.uint64(0))
        return high.view(np.int64)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    (a0, a1), (b0, b1) = ((x & mask, x >> half) for x in (a, b))
    middle = (a0 * b0 >> half) + (a1 * b0 & mask) + (a0 * b1 & mask)
    return a1 * b1 + (a1 * b0 >> half) + (a0 * b1 >> half) + (middle >> half)


def wide_product(a: Any, b: Any) -> Any:
    wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
    return a.astype(wide) * b.astype(wide)


def _divided(a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient towards zero and remainder; the least number by -1 wraps."""
    a, b = np.broadcast_arrays(a, b)
    if (b == 0).any():
        raise Undefined("an integer divided by zero")
    word = unsigned(a.dtype.itemsize)
    size_a, size_b = (np.abs(x).view(word) if x.dtype.kind == "i" else x for x in (a, b))
    quotient, rest = size_a // size_b, size_a % size_b
    if a.dtype.kind == "u":
        return quotient, rest
    quotient, rest = quotient.view(a.dtype), rest.view(a.dtype)
    return np.where((a < 0) != (b < 0), -quotient, quotient), np.where(a < 0, -rest, rest)


def quotient(a: Any, b: Any) -> Any:
    return _divided(a, b)[0]


def remainder(a: Any, b: Any) -> Any:
    return _divided(a, b)[1]


def saturated(a: Any, b: Any, operation: Callable[[Any, Any], Any]) -> Any:
    return np.clip(operation(a.astype(np.int64), b.astype(np.int64)), -(2**31), 2**31 - 1).astype(np.int32)


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "add": total,
    "sub": difference,
    "div": quotient,
    "rem": remainder,
    "min": np.minimum,
    "max": np.maximum,
}
MULTIPLY = {"lo": product, "hi": high_product, "wide": wide_product}


def pair(coded: Coded) -> Step:
    """add, sub, div, rem, min, max."""
    opcode = coded.instruction.opcode
    if coded.flag("cc"):
        return _with_carry(coded, False, True)
    clip = coded.flag("sat")
    type_ = coded.type()
    if clip and (type_ != "s32" or opcode not in ("add", "sub")):
        raise Unknown(coded.text)
    if clip:
        exact = np.add if opcode == "add" else np.subtract
        return applied(coded, lambda a, b: saturated(a, b, exact), (type_, type_))
    return applied(coded, PAIRS[opcode], (type_, type_))


def multiply(coded: Coded) -> Step:
    how, type_ = coded.need("lo", "hi", "wide"), coded.type()
    return applied(coded, MULTIPLY[how], (type_, type_))


@handler("mad")
def _mad(coded: Coded) -> Step:
    if coded.instruction.modifiers[-1] in ("f32", "f64"):
        raise Unknown(coded.text)
    if coded.flag("cc"):
        return _with_carry(coded, False, True)
    how, type_ = coded.need("lo", "hi", "wide"), coded.type()
    last = _WIDE[type_] if how == "wide" else type_
    return applied(coded, lambda a, b, c: total(MULTIPLY[how](a, b), c), (type_, type_, last))


# --- carries -------------------------------------------------------------------------------------------------------------------------


@handler("addc", "subc", "madc")
def _takes_carry(coded: Coded) -> Step:
    return _with_carry(coded, True, bool(coded.flag("cc")))


def _with_carry(coded: Coded, takes: bool, gives: bool) -> Step:
    """Sums of numbers with a carry (of differences: a borrow) into and out of them."""
    opcode = coded.instruction.opcode.removesuffix("c")
    how = coded.need("lo", "hi") if opcode == "mad" else ""
    type_ = coded.type()
    word = unsigned(dtype(type_).itemsize)
    sources = [coded.source(at, type_) for at in range(1, len(coded.operands))]
    coded.done(4 if how else 3)
    put = coded.target()

    def step(lanes: Lanes) -> None:
        values = [source(lanes) for source in sources]
        a = MULTIPLY[how](values[0], values[1]).view(word) if how else values[0].view(word)
        b = values[-1].view(word)
        result, carry = _carried(a, b, _carry(lanes, coded) if takes else np.array([False]), opcode == "sub")
        put(lanes, result)
        lanes.carry = carry if gives else lanes.carry

    return step


def _carry(lanes: Lanes, coded: Coded) -> Any:
    if lanes.carry is None:
        raise Unknown(f"{coded.text}: a carry from another block")
    return lanes.carry


def _carried(a: Any, b: Any, carry: Any, borrows: bool) -> tuple[Any, Any]:
    one = carry.astype(a.dtype)
    if borrows:
        first = a - b
        return first - one, (a < b) | (first < one)
    first = a + b
    result = first + one
    return result, (first < a) | (result < first)


# --- one operand, and others ---------------------------------------------------------------------------------------------------------


def single(coded: Coded) -> Step:
    """abs, neg."""
    type_ = coded.type()
    operation = np.abs if coded.instruction.opcode == "abs" else lambda a: np.zeros(1, a.dtype) - a
    return applied(coded, operation, (type_,))


@handler("sad")
def _sad(coded: Coded) -> Step:
    type_ = coded.type()
    return applied(coded, lambda a, b, c: total(np.maximum(a, b) - np.minimum(a, b), c), (type_, type_, type_))


@handler("and", "or", "xor")
def _logic(coded: Coded) -> Step:
    operation = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[coded.instruction.opcode]
    type_ = coded.need("pred", "b16", "b32", "b64")
    return applied(coded, operation, (type_, type_))


@handler("not")
def _not(coded: Coded) -> Step:
    return applied(coded, np.invert, (coded.need("pred", "b16", "b32", "b64"),))


@handler("cnot")
def _cnot(coded: Coded) -> Step:
    return applied(coded, lambda a: (a == 0).astype(a.dtype), (coded.need("b16", "b32", "b64"),))


@handler("shl", "shr")
def _shift(coded: Coded) -> Step:
    type_ = coded.type()
    bits = 8 * dtype(type_).itemsize
    left = coded.instruction.opcode == "shl"

    def shifted(a: Any, b: Any) -> Any:
        amount = np.minimum(b, np.uint32(bits - 1)).astype(a.dtype)
        if left:
            return np.where(b < bits, a << amount, a.dtype.type(0))
        return np.where(b < bits, a >> amount, (a >> a.dtype.type(bits - 1)) if a.dtype.kind == "i" else a.dtype.type(0))

    return applied(coded, shifted, (type_, "u32"))


@handler("shf")
def _funnel(coded: Coded) -> Step:
    left, clamp = coded.need("l", "r") == "l", coded.need("clamp", "wrap") == "clamp"
    coded.need("b32")

    def shifted(a: Any, b: Any, c: Any) -> Any:
        amount = (np.minimum(c, np.uint32(32)) if clamp else c & np.uint32(31)).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
        if left:
            return ((both >> (np.uint64(32) - amount)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        return ((both >> amount) & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    return applied(coded, shifted, ("u32", "u32", "u32"))


def bit_count(a: Any) -> Any:
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: Any) -> Any:
    """From the exponents of halves as doubles, which hold 32 bits exactly."""
    if a.dtype.itemsize == 8:
        top = leading_zeros((a >> np.uint64(32)).astype(np.uint32))
        return np.where(top < 32, top, np.uint32(32) + leading_zeros(a.astype(np.uint32)))
    return (np.uint32(32) - np.frexp(a.astype(np.float64))[1].astype(np.uint32)).astype(np.uint32)


@handler("popc", "clz", "brev")
def _bits(coded: Coded) -> Step:
    type_ = coded.need("b32", "b64")
    return applied(coded, {"popc": bit_count, "clz": leading_zeros, "brev": reversed_bits}[coded.instruction.opcode], (type_,))


def reversed_bits(a: Any) -> Any:
    size = a.dtype.itemsize
    rows = np.unpackbits(np.ascontiguousarray(a).view(np.uint8).reshape(-1, size), axis=1, bitorder="little")
    return np.packbits(rows[:, ::-1], axis=1, bitorder="little").view(a.dtype).ravel()


@handler("bfind")
def _find(coded: Coded) -> Step:
    amount, type_ = coded.flag("shiftamt"), coded.type()

    def found(a: Any) -> Any:
        word = unsigned(a.dtype.itemsize)
        seen = np.where(a < 0, ~a, a).view(word) if a.dtype.kind == "i" else a
        zeros = leading_zeros(seen)
        none = np.uint32(0xFFFFFFFF)
        return np.where(seen == 0, none, zeros if amount else np.uint32(8 * a.dtype.itemsize - 1) - zeros)

    return applied(coded, found, (type_,))


@handler("bfe")
def _extract(coded: Coded) -> Step:
    type_ = coded.need("u32", "s32", "u64", "s64")
    bits = 8 * dtype(type_).itemsize
    word = unsigned(bits // 8)
    none = word.type(0)

    def extracted(a: Any, b: Any, c: Any) -> Any:
        a, b, c = np.broadcast_arrays(a, b & np.uint32(255), c & np.uint32(255))
        position = np.minimum(b, np.uint32(bits)).astype(word)
        length = np.minimum(c, np.uint32(bits) - position.astype(np.uint32)).astype(word)  # of the field that there is
        ones = np.where(length == 0, none, ~none >> np.minimum(word.type(bits) - length, word.type(bits - 1)))
        value = a.view(word) >> np.minimum(position, word.type(bits - 1)) & ones
        if a.dtype.kind == "u":
            return value
        last = np.minimum(b.astype(np.int64) + c - 1, bits - 1).astype(word)
        negative = (c > 0) & (a.view(word) >> np.where(c > 0, last, none) & word.type(1) == 1)
        return np.where(negative, value | ~ones, value).view(a.dtype)

    return applied(coded, extracted, (type_, "u32", "u32"))


@handler("bfi")
def _insert(coded: Coded) -> Step:
    type_ = coded.need("b32", "b64")
    bits = 8 * dtype(type_).itemsize
    word = dtype(type_)

    def inserted(a: Any, b: Any, c: Any, d: Any) -> Any:
        position, length = (np.minimum(x & np.uint32(255), np.uint32(bits)).astype(word) for x in (c, d))
        ones = np.where(length == 0, word.type(0), ~word.type(0) >> np.minimum(word.type(bits) - length, word.type(bits - 1)))
        moved = np.minimum(position, word.type(bits - 1))
        mask = np.where(position < bits, ones << moved, word.type(0))
        return (a << moved & mask) | (b & ~mask)

    return applied(coded, inserted, (type_, type_, "u32", "u32"))

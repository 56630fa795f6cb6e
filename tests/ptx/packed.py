"""Integers of 24 bits, dot products of bytes, masks, extensions from any bit, the n-th bit that is set, permuted bytes, logic of three."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .faults import Undefined, Unknown
from .lanes import Coded, Lanes, Step, applied, handler
from .moves import COMBINED

_MASK, _ONE = np.uint32(31), np.uint32(1)


def _whole(x: Any, begin: int, bits: int, signed: bool) -> Any:
    """A field of 32 bits as a number of 64."""
    left = 64 - begin - bits
    wide = x.astype(np.uint64) << np.uint64(left)
    return wide.view(np.int64) >> np.int64(64 - bits) if signed else (wide >> np.uint64(64 - bits)).view(np.int64)


def _lowest(x: Any) -> Any:
    """The lower 32 bits."""
    return (x & np.int64(0xFFFFFFFF)).astype(np.uint32)


@handler("mul24", "mad24")
def _of_24_bits(coded: Coded) -> Step:
    """Of each factor the lower 24 bits count, of the product those from bit 0 or 16 on."""
    above = np.int64(16 if coded.need("lo", "hi") == "hi" else 0)
    signed = coded.need("u32", "s32") == "s32"

    def product(a: Any, b: Any) -> Any:
        return _lowest(_whole(a, 0, 24, signed) * _whole(b, 0, 24, signed) >> above)

    if coded.instruction.opcode == "mul24":
        return applied(coded, product, ("u32", "u32"))
    return applied(coded, lambda a, b, c: product(a, b) + c, ("u32", "u32", "u32"))


@handler("dp4a", "dp2a")
def _dot(coded: Coded) -> Step:
    """Four bytes with four, or two halves with two bytes, each extended as its type says, added to a sum."""
    four = coded.instruction.opcode == "dp4a"
    first = 16 if not four and coded.need("lo", "hi") == "hi" else 0
    if not {*coded.rest} <= {"u32", "s32"} or len(coded.rest) != 2:
        raise Unknown(coded.text)
    left, right = (coded.rest.pop(0) == "s32" for _ in range(2))

    def sum_(a: Any, b: Any, c: Any) -> Any:
        count, bits = (4, 8) if four else (2, 16)
        parts = [_whole(a, bits * k, bits, left) * _whole(b, first + 8 * k, 8, right) for k in range(count)]
        return _lowest(np.add.reduce(np.broadcast_arrays(*parts, c.astype(np.int64))))

    return applied(coded, sum_, ("u32", "u32", "u32"))


@handler("bmsk")
def _mask(coded: Coded) -> Step:
    """So many ones from a bit on; clamped, nothing from beyond the last one, and all of the rest where there are 32 or more."""
    clamp = coded.need("clamp", "wrap") == "clamp"
    coded.need("b32")

    def masked(a: Any, b: Any) -> Any:
        begin, width = (np.minimum(x, np.uint32(32)) if clamp else x & _MASK for x in (a, b))
        ones = (_ONE.astype(np.uint64) << width.astype(np.uint64)) - np.uint64(1)
        return (ones << begin.astype(np.uint64) & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    return applied(coded, masked, ("u32", "u32"))


@handler("szext")
def _extended(coded: Coded) -> Step:
    """A number of so many bits; of none it is 0, of 32 or more (clamped) the register itself."""
    clamp = coded.need("clamp", "wrap") == "clamp"
    signed = coded.need("u32", "s32") == "s32"

    def extended(a: Any, b: Any) -> Any:
        bits = np.minimum(b, np.uint32(32)) if clamp else b & _MASK
        away = (np.uint32(64) - bits).astype(np.uint64)
        wide = np.where(bits == 0, np.uint64(0), a.astype(np.uint64) << np.minimum(away, np.uint64(63)))
        near = np.minimum(away, np.uint64(63))
        return _lowest(wide.view(np.int64) >> near.astype(np.int64) if signed else (wide >> near).view(np.int64))

    return applied(coded, extended, ("u32", "u32"))


@handler("fns")
def _nth_set(coded: Coded) -> Step:
    """The place of the n-th bit that is set, up or down from a place that counts itself; of the 0-th, that place if its bit is set."""
    coded.need("b32")

    def place(mask: int, base: int, offset: int) -> int:
        if base > 31:
            raise Undefined(f"{coded.text}: from bit {base} on")
        way = range(base, 32) if offset > 0 else range(base, -1, -1) if offset < 0 else range(base, base + 1)
        found = [k for k in way if mask >> k & 1]
        return found[max(abs(offset) - 1, 0)] if len(found) >= max(abs(offset), 1) else 0xFFFFFFFF

    def places(mask: Any, base: Any, offset: Any) -> Any:
        lanes = zip(*(x.tolist() for x in np.broadcast_arrays(mask, base, offset)), strict=True)
        return np.array([place(*lane) for lane in lanes], np.uint32)

    return applied(coded, places, ("u32", "u32", "s32"))


# --- bytes and logic -----------------------------------------------------------------------------------------------------------------

_BYTES: dict[str, Callable[[int], tuple[int, ...]]] = {  # by mode, which of the eight bytes go to each place, the lowest first
    "f4e": lambda c: (c, c + 1, c + 2, c + 3),
    "b4e": lambda c: (c, (c - 1) % 8, (c - 2) % 8, (c - 3) % 8),
    "rc8": lambda c: (c, c, c, c),
    "ecl": lambda c: tuple(max(k, c) for k in range(4)),
    "ecr": lambda c: tuple(min(k, c) for k in range(4)),
    "rc16": lambda c: (0, 1, 0, 1) if c % 2 == 0 else (2, 3, 2, 3),
}


@handler("prmt")
def _permute(coded: Coded) -> Step:
    """By four selectors of four bits, the last of which spreads the byte's sign; or by a mode, as two bits say."""
    coded.need("b32")
    mode = coded.flag(*_BYTES)

    def selectors(c: Any) -> Any:
        if not mode:
            return c & np.uint32(0xFFFF)
        table = np.array([sum(byte << 4 * k for k, byte in enumerate(_BYTES[mode](place))) for place in range(4)], np.uint32)
        return table[c & np.uint32(3)]

    def permuted(a: Any, b: Any, c: Any) -> Any:
        both, control = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64), selectors(c)
        result = np.zeros(1, np.uint64)
        for k in range(4):
            one = (control >> np.uint32(4 * k)).astype(np.uint64)
            byte = both >> (one & np.uint64(7)) * np.uint64(8) & np.uint64(255)
            byte = np.where(one & np.uint64(8), np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0)), byte)
            result = result | byte << np.uint64(8 * k)
        return result.astype(np.uint32)

    return applied(coded, permuted, ("u32", "u32", "u32"))


@handler("lop3")
def _lop3(coded: Coded) -> Step:
    """By a table of eight bits; with `.and` or `.or` also a predicate: whether the result is not 0, combined with another one."""
    combine = coded.flag("and", "or")
    coded.need("b32")

    def combined(a: Any, b: Any, c: Any, table: Any) -> Any:
        result = np.zeros(1, np.uint32)
        for k in range(8):
            if int(table[0]) >> k & 1:
                result = result | (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
        return result

    if not combine:
        return applied(coded, combined, ("u32", "u32", "u32", "u32"))
    coded.done(6)
    put, into = coded.pair(0)
    assert into is not None, coded.text
    sources, given = [coded.source(at, "u32") for at in range(1, 5)], coded.source(5, "pred")

    def step(lanes: Lanes) -> None:
        result = combined(*(source(lanes) for source in sources))
        put(lanes, result)
        into(lanes, COMBINED[combine](result != 0, given(lanes)))

    return step

"""The instructions of NVIDIA's PTX ISA manual, by its sections (9.7, "Instructions"): the forms that its examples have, each computed anew
from what the manual defines, in Python's integers, rational numbers and bits, on corners of every operand.

Nothing of the interpreter is used for what is expected. Forms that the interpreter does not know (matrices, asynchronous copies, clusters)
have no place here: it refuses them by name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from ptx_tools import evaluate

WORDS = {f"{k}{b}": np.dtype(f"{'i' if k == 's' else 'u'}{b // 8}") for k in "sub" for b in (8, 16, 32, 64)}
WORDS |= {"f16": np.dtype("f2"), "f32": np.dtype("f4"), "f64": np.dtype("f8"), "f16x2": np.dtype("u4"), "pred": np.dtype("?")}
PLACES = [0, 1, 5, 8, 16, 31, 32, 33, 63, 64, 200, 255, 256, 259]


def corners(type_: str) -> list[Any]:
    """Of a type; `at` are places and lengths of bits, `sel` selectors of bytes."""
    word = WORDS.get(type_)
    if type_ == "at":
        return PLACES
    if type_ == "sel":
        return [0x3210, 0x7654, 0x0123, 0xFEDC, 0xB8C4, 0x0000, 0xFFFF, 0x14725]
    assert word is not None
    if word.kind == "f":
        info = np.finfo(word)
        tiny = float(info.tiny)
        return [0.0, -0.0, 1.0, -1.5, 3.0, 0.1, -7.25, 1e3 + 1 / 3, tiny, -tiny / 2, float(info.max), math.inf, -math.inf, math.nan]
    info_ = np.iinfo(word)
    low, high = int(info_.min), int(info_.max)
    found = [0, 1, 2, 7, low, low + 1, high, high - 1, high // 3, 0x37, -1 if low else high // 2, -5 if low else high // 2 + 1]
    return [*dict.fromkeys(found)]


class Example(NamedTuple):
    """`code` with d for its result and a, b, c, e for its operands, whose types are `given`; `meaning` is of one lane."""

    section: str
    code: str
    made: str
    given: str
    meaning: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.section}: {self.code.split(';')[0]}"


def bits(value: int, type_: str) -> int:
    """The number modulo 2^bits, as one of the type."""
    word = WORDS[type_]
    low = value & ((1 << 8 * word.itemsize) - 1)
    return low - (1 << 8 * word.itemsize) if word.kind == "i" and low >> 8 * word.itemsize - 1 else low


def as_unsigned(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


# --- what the manual defines, for integers -------------------------------------------------------------------------------------------


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def clamp(x: int, type_: str) -> int:
    info = np.iinfo(WORDS[type_])
    return min(max(x, int(info.min)), int(info.max))


def sign_extended(x: int, width: int) -> int:
    x = as_unsigned(x, width)
    return x - (1 << width) if width and x >> width - 1 else x


def low24(x: int, signed: bool) -> int:
    return sign_extended(x, 24) if signed else as_unsigned(x, 24)


def first_bit(a: int, width: int, amount: bool) -> int:
    seen = ~a if a < 0 else a
    for k in range(width - 1, -1, -1):
        if seen >> k & 1:
            return width - 1 - k if amount else k
    return 0xFFFFFFFF


def field(type_: str) -> Callable[[int, int, int], int]:
    last = 8 * WORDS[type_].itemsize - 1

    def extracted(a: int, b: int, c: int) -> int:
        at, length = b & 255, c & 255
        sign = 0 if type_[0] == "u" or not length else a >> min(at + length - 1, last) & 1
        return sum((a >> at + k & 1 if k < length and at + k <= last else sign) << k for k in range(last + 1))

    return extracted


def inserted(width: int) -> Callable[[int, int, int, int], int]:
    def of(a: int, b: int, c: int, e: int) -> int:
        result, at, length = b, c & 255, e & 255
        for k in range(length):
            if at + k < width:
                result = result & ~(1 << at + k) | (a >> k & 1) << at + k
        return result

    return of


def nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    at, left, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= at < 32:
        if mask >> at & 1:
            if left == 0:
                return at
            left -= 1
        at += step
    return 0xFFFFFFFF


def mask_of(mode: str) -> Callable[[int, int], int]:
    def made(a: int, b: int) -> int:
        if mode == "wrap":
            a, b = a & 31, b & 31
        return as_unsigned(sum(1 << k for k in range(a, min(a + b, 32))), 32)

    return made


def extended(mode: str, signed: bool) -> Callable[[int, int], int]:
    def made(a: int, b: int) -> int:
        width = min(b, 32) if mode == "clamp" else b & 31
        return sign_extended(a, width) if signed else as_unsigned(a, width)

    return made


def dot(count: int, width: int, first: int, left: bool, right: bool) -> Callable[[int, int, int], int]:
    def part(x: int, at: int, size: int, signed: bool) -> int:
        return sign_extended(x >> at, size) if signed else as_unsigned(x >> at, size)

    return lambda a, b, c: c + sum(part(a, width * k, width, left) * part(b, first + 8 * k, 8, right) for k in range(count))


ALL = ("s16", "u16", "s32", "u32", "s64", "u64")
WIDE = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}


def integers() -> list[Example]:
    found = []
    for t in ALL:
        width = 8 * WORDS[t].itemsize
        found += [
            Example("integer add", f"add.{t} d, a, b;", t, f"{t} {t}", lambda a, b: a + b),
            Example("integer sub", f"sub.{t} d, a, b;", t, f"{t} {t}", lambda a, b: a - b),
            Example("integer mul", f"mul.lo.{t} d, a, b;", t, f"{t} {t}", lambda a, b: a * b),
            Example("integer mul", f"mul.hi.{t} d, a, b;", t, f"{t} {t}", lambda a, b, w=width: a * b >> w),
            Example("integer mad", f"mad.lo.{t} d, a, b, c;", t, f"{t} {t} {t}", lambda a, b, c: a * b + c),
            Example("integer mad", f"mad.hi.{t} d, a, b, c;", t, f"{t} {t} {t}", lambda a, b, c, w=width: (a * b >> w) + c),
            Example("integer sad", f"sad.{t} d, a, b, c;", t, f"{t} {t} {t}", lambda a, b, c: c + (b - a if a < b else a - b)),
            Example("integer div", f"div.{t} d, a, b;", t, f"{t} {t}", lambda a, b: quotient(a, b) if b else None),
            Example("integer rem", f"rem.{t} d, a, b;", t, f"{t} {t}", lambda a, b: a - quotient(a, b) * b if b else None),
            Example("integer min", f"min.{t} d, a, b;", t, f"{t} {t}", min),
            Example("integer max", f"max.{t} d, a, b;", t, f"{t} {t}", max),
            Example("comparison slct", f"slct.{t}.s32 d, a, b, c;", t, f"{t} {t} s32", lambda a, b, c: a if c >= 0 else b),
        ]
        if t in WIDE:
            w = WIDE[t]
            found += [
                Example("integer mul", f"mul.wide.{t} d, a, b;", w, f"{t} {t}", lambda a, b: a * b),
                Example("integer mad", f"mad.wide.{t} d, a, b, c;", w, f"{t} {t} {w}", lambda a, b, c: a * b + c),
            ]
        if t[0] == "s":
            found += [
                Example("integer abs", f"abs.{t} d, a;", t, t, abs),
                Example("integer neg", f"neg.{t} d, a;", t, t, lambda a: -a),
            ]
        if width > 16:
            b = f"b{width}"
            found += [
                Example("integer bfind", f"bfind.{t} d, a;", "u32", t, lambda a, w=width: first_bit(a, w, False)),
                Example("integer bfind", f"bfind.shiftamt.{t} d, a;", "u32", t, lambda a, w=width: first_bit(a, w, True)),
                Example("integer bfe", f"bfe.{t} d, a, b, c;", t, f"{t} at at", field(t)),
            ]
            if t[0] == "u":
                found += [
                    Example("integer popc", f"popc.{b} d, a;", "u32", t, lambda a: bin(a).count("1")),
                    Example("integer clz", f"clz.{b} d, a;", "u32", t, lambda a, w=width: w - a.bit_length()),
                    Example("integer brev", f"brev.{b} d, a;", t, t, lambda a, w=width: int(f"{a:0{w}b}"[::-1], 2)),
                    Example("integer bfi", f"bfi.{b} d, a, b, c, e;", t, f"{t} {t} at at", inserted(width)),
                ]
    found += [
        Example("integer add", "add.sat.s32 d, a, b;", "s32", "s32 s32", lambda a, b: clamp(a + b, "s32")),
        Example("integer sub", "sub.sat.s32 d, a, b;", "s32", "s32 s32", lambda a, b: clamp(a - b, "s32")),
        Example("integer dp4a", "dp4a.u32.u32 d, a, b, c;", "u32", "u32 u32 u32", dot(4, 8, 0, False, False)),
        Example("integer dp4a", "dp4a.u32.s32 d, a, b, c;", "s32", "u32 u32 s32", dot(4, 8, 0, False, True)),
        Example("integer dp4a", "dp4a.s32.s32 d, a, b, c;", "s32", "s32 s32 s32", dot(4, 8, 0, True, True)),
        Example("integer dp2a", "dp2a.lo.u32.u32 d, a, b, c;", "u32", "u32 u32 u32", dot(2, 16, 0, False, False)),
        Example("integer dp2a", "dp2a.hi.u32.s32 d, a, b, c;", "s32", "u32 u32 s32", dot(2, 16, 16, False, True)),
        Example("integer fns", "fns.b32 d, a, b, c;", "u32", "u32 five s32", nth_set),
    ]
    for s in ("s32", "u32"):
        signed = s == "s32"
        for how, shift in (("lo", 0), ("hi", 16)):
            found += [
                Example("integer mul24", f"mul24.{how}.{s} d, a, b;", s, f"{s} {s}",
                        lambda a, b, g=signed, n=shift: low24(a, g) * low24(b, g) >> n),
                Example("integer mad24", f"mad24.{how}.{s} d, a, b, c;", s, f"{s} {s} {s}",
                        lambda a, b, c, g=signed, n=shift: (low24(a, g) * low24(b, g) >> n) + c),
            ]  # fmt: skip
        found += [Example("integer szext", f"szext.{m}.{s} d, a, b;", s, f"{s} at", extended(m, signed)) for m in ("clamp", "wrap")]
    return found + [Example("integer bmsk", f"bmsk.{m}.b32 d, a, b;", "u32", "at at", mask_of(m)) for m in ("clamp", "wrap")]


# --- logic and shifts ----------------------------------------------------------------------------------------------------------------


def funnel(way: str, mode: str) -> Callable[[int, int, int], int]:
    def shifted(a: int, b: int, c: int) -> int:
        n = min(c, 32) if mode == "clamp" else c & 31
        return b << n | a >> 32 - n if way == "l" else b << 32 - n | a >> n

    return shifted


def shifted_right(t: str) -> Callable[[int, int], int]:
    width = 8 * WORDS[t].itemsize
    return lambda a, b: a >> min(b, width) if t[0] == "s" else as_unsigned(a, width) >> min(b, width)


def logic() -> list[Example]:
    found = []
    for w in (16, 32, 64):
        u = f"u{w}"
        found += [
            Example("logic and", f"and.b{w} d, a, b;", u, f"{u} {u}", lambda a, b: a & b),
            Example("logic or", f"or.b{w} d, a, b;", u, f"{u} {u}", lambda a, b: a | b),
            Example("logic xor", f"xor.b{w} d, a, b;", u, f"{u} {u}", lambda a, b: a ^ b),
            Example("logic not", f"not.b{w} d, a;", u, u, lambda a: ~a),
            Example("logic cnot", f"cnot.b{w} d, a;", u, u, lambda a: int(a == 0)),
            Example("shift shl", f"shl.b{w} d, a, b;", u, f"{u} at", lambda a, b, w=w: a << b if b < w else 0),
            *(Example("shift shr", f"shr.{k}{w} d, a, b;", f"{k}{w}", f"{k}{w} at", shifted_right(f"{k}{w}")) for k in "bus"),
        ]
    found += [
        Example("shift shf", f"shf.{way}.{mode}.b32 d, a, b, c;", "u32", "u32 u32 at", funnel(way, mode))
        for way in "lr"
        for mode in ("clamp", "wrap")
    ]
    tables: dict[int, Callable[[int, int, int], int]] = {  # the manual's
        0x80: lambda a, b, c: a & b & c,
        0xFE: lambda a, b, c: a | b | c,
        0x40: lambda a, b, c: a & b & ~c,
        0x1A: lambda a, b, c: (a & b | c) ^ a,
    }
    found += [Example("logic lop3", f"lop3.b32 d, a, b, c, {table:#x};", "u32", "u32 u32 u32", f) for table, f in tables.items()]
    return found


# --- reals ---------------------------------------------------------------------------------------------------------------------------

ONE_ROUNDING = ("rn", "rz", "rm", "rp")
DIGITS = {"f16": (11, -24), "f32": (24, -149), "f64": (53, -1074)}  # of a number, and the exponent of the least one's


def rounded(exact: Fraction, type_: str, way: str) -> float:
    """A rational number but 0 as one of the type."""
    digits, lowest = DIGITS[type_]
    size, largest = abs(exact), Fraction(float(np.finfo(WORDS[type_]).max))
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - digits + 1, lowest)
    whole, rest = divmod(size, unit)
    away = {"rz": False, "rm": exact < 0, "rp": exact > 0, "rn": 2 * rest > unit or (2 * rest == unit and whole % 2 == 1)}[way] and rest > 0
    value = (whole + away) * unit
    beyond = math.inf if away or way == "rn" else float(largest)
    if way in ("rm", "rp") and (way == "rp") == (exact > 0):
        beyond = math.inf
    return (1 if exact > 0 else -1) * (float(value) if value <= largest else beyond)


def flush(x: float) -> float:
    """Subnormal float32 as a zero of its sign."""
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def real(operation: Callable[..., Any], type_: str, way: str = "rn", ftz: bool = False, sat: bool = False) -> Callable[..., float]:
    """An operation on rational numbers as the manual has it for reals: `.ftz`, one rounding, `.sat`. Infinities, NaN and the signs of zeros
    are IEEE 754's, which NumPy has."""

    def of(*values: float) -> float:
        values = tuple(map(flush, values)) if ftz else values
        with np.errstate(all="ignore"):
            result = float(operation(*map(np.float64, values)))
        if operation is fused and all(map(math.isfinite, values[:2])) and math.isinf(values[2]):
            result = values[2]  # whatever the product
        if all(map(math.isfinite, values)) and not (operation is over and values[1] == 0):
            exact = operation(*map(Fraction, values))
            if exact:
                result = rounded(exact, type_, way)
            elif way == "rm" and operation in (plus, minus, fused) and cancels(operation, values):
                result = -0.0
        if sat:
            result = min(result, 1.0) if result > 0 else 0.0
        return flush(result) if ftz else result

    return of


def cancels(operation: Any, values: tuple[float, ...]) -> bool:
    """Whether a sum that is 0 has terms of both signs: rounded downwards, that is -0."""
    first = values[0] * values[1] if operation is fused else values[0]
    return math.copysign(1, first) != math.copysign(1, -values[1] if operation is minus else values[-1])


def plus(a: Any, b: Any) -> Any:
    return a + b


def minus(a: Any, b: Any) -> Any:
    return a - b


def times(a: Any, b: Any) -> Any:
    return a * b


def over(a: Any, b: Any) -> Any:
    return a / b


def fused(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def least(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return min(a, b, key=lambda x: (x, math.copysign(1, x)))


def most(a: float, b: float) -> float:
    return -least(-a, -b)


TESTS: dict[str, Callable[[float, float], bool]] = {
    "finite": lambda x, tiny: math.isfinite(x),
    "infinite": lambda x, tiny: math.isinf(x),
    "number": lambda x, tiny: not math.isnan(x),
    "notanumber": lambda x, tiny: math.isnan(x),
    "normal": lambda x, tiny: math.isfinite(x) and (x == 0 or abs(x) >= tiny),  # zeros are normal
    "subnormal": lambda x, tiny: 0 < abs(x) < tiny,
}


def reals() -> list[Example]:
    found = []
    for t in ("f32", "f64"):
        tiny = float(np.finfo(WORDS[t]).tiny)
        two, three = f"{t} {t}", f"{t} {t} {t}"
        found += [Example("float testp", f"testp.{n}.{t} d, a;", "pred", t, lambda x, f=f, tiny=tiny: f(x, tiny)) for n, f in TESTS.items()]
        for name, operation in (("add", plus), ("sub", minus), ("mul", times)):
            for way in ONE_ROUNDING:
                found.append(Example(f"float {name}", f"{name}.{way}.{t} d, a, b;", t, two, real(operation, t, way)))
                if t == "f32":
                    found.append(Example(f"float {name}", f"{name}.{way}.ftz.{t} d, a, b;", t, two, real(operation, t, way, ftz=True)))
            if t == "f32":
                found.append(Example(f"float {name}", f"{name}.ftz.sat.{t} d, a, b;", t, two, real(operation, t, ftz=True, sat=True)))
        for way in ONE_ROUNDING:
            found.append(Example("float fma", f"fma.{way}.{t} d, a, b, c;", t, three, real(fused, t, way)))
        found += [
            Example("float fma", "fma.rn.ftz.f32 d, a, b, c;", "f32", "f32 f32 f32", real(fused, "f32", ftz=True)),
            Example("float div", f"div.rn.{t} d, a, b;", t, two, real(over, t)),
            Example("float rcp", f"rcp.rn.{t} d, a;", t, t, lambda a, t=t: real(over, t)(1.0, a)),
            Example("float abs", f"abs.{t} d, a;", t, t, abs),
            Example("float neg", f"neg.{t} d, a;", t, t, lambda a: -a),
            Example("float copysign", f"copysign.{t} d, a, b;", t, two, lambda a, b: math.copysign(b, a)),
            Example("float min", f"min.{t} d, a, b;", t, two, least),
            Example("float max", f"max.{t} d, a, b;", t, two, most),
            Example(
                "float min",
                f"min.NaN.{t} d, a, b;",
                t,
                two,
                lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else least(a, b),
            ),
            Example("comparison slct", f"slct.{t}.f32 d, a, b, c;", t, f"{t} {t} f32", lambda a, b, c: a if c >= 0 else b),
        ]
    found += [
        Example("float div", "div.rn.ftz.f32 d, a, b;", "f32", "f32 f32", real(over, "f32", ftz=True)),
        Example("float min", "min.ftz.f32 d, a, b;", "f32", "f32 f32", lambda a, b: least(flush(a), flush(b))),
        Example("float max", "max.ftz.f32 d, a, b;", "f32", "f32 f32", lambda a, b: most(flush(a), flush(b))),
        Example("float abs", "abs.ftz.f32 d, a;", "f32", "f32", lambda a: abs(flush(a))),
        Example("float neg", "neg.ftz.f32 d, a;", "f32", "f32", lambda a: -flush(a)),
    ]
    return found


def halves() -> list[Example]:
    found = []
    for name, operation in (("add", plus), ("sub", minus), ("mul", times)):
        found.append(Example(f"half {name}", f"{name}.rn.f16 d, a, b;", "f16", "f16 f16", real(operation, "f16")))
    found += [
        Example("half fma", "fma.rn.f16 d, a, b, c;", "f16", "f16 f16 f16", real(fused, "f16")),
        Example("half neg", "neg.f16 d, a;", "f16", "f16", lambda a: -a),
        Example("half abs", "abs.f16 d, a;", "f16", "f16", abs),
        Example("half min", "min.f16 d, a, b;", "f16", "f16 f16", least),
        Example("half max", "max.f16 d, a, b;", "f16", "f16 f16", most),
    ]
    return found


# --- comparisons ---------------------------------------------------------------------------------------------------------------------

ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a == a and b == b and a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
BOOLS: dict[str, Callable[[bool, bool], bool]] = {"and": lambda t, c: t and c, "or": lambda t, c: t or c, "xor": lambda t, c: t != c}


def unordered(f: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: a != a or b != b or f(a, b)


def compared(type_: str) -> dict[str, Callable[[Any, Any], bool]]:
    found = dict(ORDERED)
    if type_[0] == "f":
        found |= {f"{n}u": unordered(f) for n, f in ORDERED.items()}
        found |= {"num": lambda a, b: a == a and b == b, "nan": lambda a, b: a != a or b != b}
    elif type_[0] == "u":
        found |= {"lo": ORDERED["lt"], "ls": ORDERED["le"], "hi": ORDERED["gt"], "hs": ORDERED["ge"]}
    return found


def comparisons() -> list[Example]:
    found = []
    for t in (*ALL, "f32", "f64"):
        for name, f in compared(t).items():
            found += [
                Example("comparison setp", f"setp.{name}.{t} d, a, b;", "pred", f"{t} {t}", f),
                Example("comparison set", f"set.{name}.u32.{t} d, a, b;", "u32", f"{t} {t}", lambda a, b, f=f: -int(f(a, b))),
                Example("comparison set", f"set.{name}.f32.{t} d, a, b;", "f32", f"{t} {t}", lambda a, b, f=f: float(f(a, b))),
            ]
    for t in ("s32", "f32", "u64"):
        for name, g in BOOLS.items():
            given = f"{t} {t} u32"
            found += [
                Example("comparison set", "setp.ne.u32 %p1, c, 0; " + f"set.lt.{name}.f32.{t} d, a, b, %p1;", "f32", given,
                        lambda a, b, c, g=g: float(g(a < b, c != 0))),
                Example("comparison setp", "setp.ne.u32 %p1, c, 0; " + f"setp.lt.{name}.{t} d, a, b, !%p1;", "pred", given,
                        lambda a, b, c, g=g: g(a < b, c == 0)),
                Example("comparison setp", "setp.ne.u32 %p1, c, 0; " + f"setp.lt.{name}.{t} %p2 | d, a, b, %p1;", "pred", given,
                        lambda a, b, c, g=g: g(not a < b, c != 0)),
            ]  # fmt: skip
    return found


# --- conversions ---------------------------------------------------------------------------------------------------------------------

WHOLE: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def to_integer(made: str, given: str, way: str) -> Callable[[float], int]:
    """Saturated. NaN is 0, but for 64 bits on either side the highest bit alone."""

    def of(x: float) -> int:
        if math.isnan(x):
            width = 8 * WORDS[made].itemsize
            return bits(1 << width - 1, made) if given == "f64" or width == 64 else 0
        if math.isinf(x):
            return clamp(1 << 70 if x > 0 else -(1 << 70), made)
        return clamp(WHOLE[way](Fraction(x)), made)

    return of


def conversions() -> list[Example]:
    found = []
    for given, made in itertools.product(("f16", "f32", "f64"), ("s32", "u32", "s64", "u64")):
        found += [Example("conversion cvt", f"cvt.{way}.{made}.{given} d, a;", made, given, to_integer(made, given, way)) for way in WHOLE]
    for given, made in itertools.product(("s32", "u32", "s64", "u64"), ("f16", "f32", "f64")):
        for way in ONE_ROUNDING if made != "f64" or given[1:] == "32" else ("rn",):
            found.append(Example("conversion cvt", f"cvt.{way}.{made}.{given} d, a;", made, given,
                                 lambda a, made=made, way=way: rounded(Fraction(a), made, way) if a else 0.0))  # fmt: skip
    for given, made in (("f64", "f32"), ("f64", "f16"), ("f32", "f16")):
        found += [
            Example("conversion cvt", f"cvt.{way}.{made}.{given} d, a;", made, given, real(lambda a: a, made, way)) for way in ONE_ROUNDING
        ]
    found += [
        Example("conversion cvt", f"cvt.{made}.{given} d, a;", made, given, lambda a: a)
        for given, made in (("f16", "f32"), ("f16", "f64"), ("f32", "f64"))
    ]
    for t in ("f32", "f64"):
        for way in WHOLE:
            found.append(Example("conversion cvt", f"cvt.{way}.{t}.{t} d, a;", t, t,
                                 lambda a, way=way: math.copysign(WHOLE[way](Fraction(a)), a) if math.isfinite(a) else a))  # fmt: skip
        found.append(Example("conversion cvt", f"cvt.sat.{t}.{t} d, a;", t, t, lambda a: min(a, 1.0) if a > 0 else 0.0))
    for given, made in itertools.product(("s16", "u16"), ("f16", "f32", "f64")):
        found.append(
            Example(
                "conversion cvt",
                f"cvt.rn.{made}.{given} d, a;",
                made,
                given,
                lambda a, made=made: rounded(Fraction(a), made, "rn") if a else 0.0,
            )
        )
    for given, made in itertools.product(("s8", "u8", *ALL), ALL):
        found += [
            Example("conversion cvt", f"cvt.{made}.{given} d, a;", made, given, lambda a: a),
            Example("conversion cvt", f"cvt.sat.{made}.{given} d, a;", made, given, lambda a, made=made: clamp(a, made)),
        ]
    return found


PERMUTED = {  # by mode and the lowest two bits of the control, the bytes from the highest place to the lowest
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def permuted(a: int, b: int, control: list[int]) -> int:
    """Bytes of (b, a), the lowest place first; from 8 on the sign of a byte, eight times."""
    both, result = b << 32 | a, 0
    for place, chosen in enumerate(control):
        byte = both >> 8 * (chosen & 7) & 255
        result |= (255 * (byte >> 7) if chosen & 8 else byte) << 8 * place
    return result


def moves() -> list[Example]:
    found = [
        Example("data movement prmt", "prmt.b32 d, a, b, c;", "u32", "u32 u32 sel",
                lambda a, b, c: permuted(a, b, [c >> 4 * k & 15 for k in range(4)])),
    ]  # fmt: skip
    for mode, table in PERMUTED.items():
        found.append(Example("data movement prmt", f"prmt.b32.{mode} d, a, b, c;", "u32", "u32 u32 at",
                             lambda a, b, c, table=table: permuted(a, b, [int(k) for k in reversed(table[c & 3])])))  # fmt: skip
    for t in ("u16", "s32", "u64", "f32", "f64"):
        found += [
            Example("data movement mov", f"mov.{t} d, a;", t, t, lambda a: a),
            Example("comparison selp", f"setp.ne.u32 %p1, c, 0; selp.{t} d, a, b, %p1;", t, f"{t} {t} u32", lambda a, b, c: a if c else b),
        ]
    return found


EXAMPLES = [*integers(), *logic(), *reals(), *halves(), *comparisons(), *conversions(), *moves()]
SECTIONS = sorted({e.section for e in EXAMPLES})


@pytest.mark.one_of(4)
@pytest.mark.parametrize("section", SECTIONS)
def test_examples_of(section: str) -> None:
    """Each on all corners of its operands with one another."""
    for example in EXAMPLES:
        if example.section == section:
            compare(example)


def compare(example: Example) -> None:
    types = example.given.split()
    spaces = [[*range(32)] if t == "five" else corners(t) for t in types]
    columns: list[list[Any]] = [list(c) for c in zip(*itertools.product(*spaces), strict=True)]
    stored = ["u32" if t in ("at", "sel", "five") else t for t in types]
    given = [np.array(c, WORDS[t]) for c, t in zip(columns, stored, strict=True)]
    expected = [example.meaning(*(x.item() for x in lane)) for lane in zip(*given, strict=True)]
    kept = [k for k, value in enumerate(expected) if value is not None]
    given, expected = [x[kept] for x in given], [expected[k] for k in kept]
    found = evaluate(example.code, example.made, *zip(stored, given, strict=True))
    word = WORDS[example.made]
    if word.kind == "f":
        with np.errstate(over="ignore"):
            wanted = np.array(expected, np.float64).astype(word)
        np.testing.assert_array_equal(found, wanted, err_msg=str(example))
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers], err_msg=f"{example}: signs")
    elif word.kind == "b":
        np.testing.assert_array_equal(found.astype(bool), expected, err_msg=str(example))
    else:
        np.testing.assert_array_equal(found, np.array([bits(x, example.made) for x in expected], word), err_msg=str(example))


# --- of approximate functions, the values that the manual lists ----------------------------------------------------------------------

TINY, NEXT = 2.0**-130, 2.0**-126
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "rcp.approx.f32": [(-math.inf, -0.0), (-0.0, -math.inf), (0.0, math.inf), (math.inf, 0.0), (math.nan, math.nan), (NEXT, 2.0**126)],
    "rcp.approx.ftz.f32": [(-TINY, -math.inf), (TINY, math.inf), (math.inf, 0.0)],
    "rcp.approx.ftz.f64": [(-math.inf, -0.0), (-0.0, -math.inf), (0.0, math.inf), (math.inf, 0.0), (math.nan, math.nan)],
    "sqrt.approx.f32": [(-math.inf, math.nan), (-2.0, math.nan), (-0.0, -0.0), (0.0, 0.0), (math.inf, math.inf), (math.nan, math.nan)],
    "sqrt.approx.ftz.f32": [(-TINY, -0.0), (TINY, 0.0)],
    "rsqrt.approx.f32": [(-math.inf, math.nan), (-2.0, math.nan), (-0.0, -math.inf), (0.0, math.inf), (math.inf, 0.0), (4.0, 0.5)],
    "rsqrt.approx.ftz.f32": [(-TINY, -math.inf), (TINY, math.inf)],
    "rsqrt.approx.f64": [(-math.inf, math.nan), (-0.0, -math.inf), (0.0, math.inf), (math.inf, 0.0), (math.nan, math.nan)],
    "sin.approx.f32": [(-math.inf, math.nan), (-0.0, -0.0), (0.0, 0.0), (math.inf, math.nan), (math.nan, math.nan)],
    "sin.approx.ftz.f32": [(-TINY, -0.0), (TINY, 0.0)],
    "cos.approx.f32": [(-math.inf, math.nan), (-0.0, 1.0), (0.0, 1.0), (TINY, 1.0), (math.inf, math.nan), (math.nan, math.nan)],
    "lg2.approx.f32": [(-math.inf, math.nan), (-2.0, math.nan), (-0.0, -math.inf), (0.0, -math.inf), (math.inf, math.inf), (8.0, 3.0)],
    "lg2.approx.ftz.f32": [(-TINY, -math.inf), (TINY, -math.inf)],
    "ex2.approx.f32": [(-math.inf, 0.0), (-0.0, 1.0), (0.0, 1.0), (TINY, 1.0), (math.inf, math.inf), (math.nan, math.nan), (-3.0, 0.125)],
    "tanh.approx.f32": [(-math.inf, -1.0), (-0.0, -0.0), (0.0, 0.0), (TINY, TINY), (math.inf, 1.0), (math.nan, math.nan)],
}


@pytest.mark.parametrize("form", SPECIAL)
def test_special_values_of(form: str) -> None:
    word = WORDS[form[-3:]]
    given, expected = (np.array(column, word) for column in zip(*SPECIAL[form], strict=True))
    found = evaluate(f"{form} d, a;", form[-3:], (form[-3:], given))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found)[expected == 0], np.signbit(expected)[expected == 0])


def test_a_quotient_by_the_inverse() -> None:
    """`div.approx`: within 2 units of the last place for divisors of ordinary size; beyond 2^126 it is 0, or of infinity NaN. `div.full` is
    scaled, and right for all."""
    a = np.array([3.14159, -3.14159, math.inf, 6.0, 1.0], "f4")
    b = np.array([2.0**127, 2.0**127, 2.0**127, 3.0, math.inf], "f4")
    found = evaluate("div.approx.f32 d, a, b;", "f32", ("f32", a), ("f32", b))
    np.testing.assert_array_equal(found, np.array([0, -0.0, math.nan, 2, 0], "f4"))
    full = evaluate("div.full.f32 d, a, b;", "f32", ("f32", a), ("f32", b))
    np.testing.assert_allclose(full.astype("f8"), a.astype("f8") / b.astype("f8"), rtol=2.0**-22)

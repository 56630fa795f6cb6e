"""The interpreter's integers, against Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ptx.faults import Undefined, Unknown
from ptx.types import dtype
from ptx_tools import evaluate, run

TYPES = ("s16", "u16", "s32", "u32", "s64", "u64")


def numbers(type_: str, count: int = 60, seed: int = 0) -> Any:
    """Corner cases and random ones, of all sizes."""
    word, rng = dtype(type_), np.random.default_rng([seed, *type_.encode()])
    bits = 8 * word.itemsize
    corners = [0, 1, 2, 3, (1 << bits) - 1, (1 << bits) - 2, 1 << bits - 1, (1 << bits - 1) - 1, (1 << bits - 1) + 1, 0x5555 % (1 << bits)]
    drawn = [
        int(rng.integers(0, 1 << 62)) * 4 + int(rng.integers(0, 4)) >> int(rng.integers(64 - bits, 63)) for _ in range(count - len(corners))
    ]
    return np.array([c & ((1 << bits) - 1) for c in corners + drawn], f"u{word.itemsize}").view(word)


def pairs(type_: str) -> tuple[Any, Any]:
    """All corners with each other, and random ones."""
    a, b = numbers(type_), numbers(type_, seed=1)
    first, second = np.repeat(a[:10], 10), np.tile(a[:10], 10)
    return np.concatenate([first, a]), np.concatenate([second, b])


def wrapped(values: list[int], type_: str) -> Any:
    word = dtype(type_)
    return np.array([v & ((1 << 8 * word.itemsize) - 1) for v in values], f"u{word.itemsize}").view(word)


def towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


PAIRS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str, type_: str) -> None:
    a, b = pairs(type_)
    expected = wrapped([PAIRS[name](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], type_)
    np.testing.assert_array_equal(evaluate(f"{name}.{type_} d, a, b;", type_, (type_, a), (type_, b)), expected)


@pytest.mark.parametrize("type_", TYPES)
def test_upper_half_of_a_product(type_: str) -> None:
    a, b = pairs(type_)
    bits = 8 * a.dtype.itemsize
    expected = wrapped([x * y >> bits for x, y in zip(a.tolist(), b.tolist(), strict=True)], type_)
    np.testing.assert_array_equal(evaluate(f"mul.hi.{type_} d, a, b;", type_, (type_, a), (type_, b)), expected)


@pytest.mark.parametrize(("type_", "wide"), [("s16", "s32"), ("u16", "u32"), ("s32", "s64"), ("u32", "u64")])
def test_wide_products(type_: str, wide: str) -> None:
    a, b = pairs(type_)
    c = np.resize(numbers(wide), a.size)
    lists = [x.tolist() for x in (a, b, c)]
    np.testing.assert_array_equal(
        evaluate(f"mul.wide.{type_} d, a, b;", wide, (type_, a), (type_, b)), wrapped([x * y for x, y, _ in zip(*lists, strict=True)], wide)
    )
    np.testing.assert_array_equal(
        evaluate(f"mad.wide.{type_} d, a, b, c;", wide, (type_, a), (type_, b), (wide, c)),
        wrapped([x * y + z for x, y, z in zip(*lists, strict=True)], wide),
    )


@pytest.mark.parametrize("type_", TYPES)
def test_division_is_towards_zero(type_: str) -> None:
    a, b = pairs(type_)
    a, b = a[b != 0], b[b != 0]
    both = list(zip(a.tolist(), b.tolist(), strict=True))
    np.testing.assert_array_equal(
        evaluate(f"div.{type_} d, a, b;", type_, (type_, a), (type_, b)), wrapped([towards_zero(x, y) for x, y in both], type_)
    )
    rest = wrapped([x - y * towards_zero(x, y) for x, y in both], type_)
    np.testing.assert_array_equal(evaluate(f"rem.{type_} d, a, b;", type_, (type_, a), (type_, b)), rest)


def test_division_by_zero_is_left_open() -> None:
    with pytest.raises(Undefined, match="divided by zero"):
        evaluate("div.s32 d, a, b;", "s32", ("s32", [1, 2]), ("s32", [3, 0]))


@pytest.mark.parametrize("type_", ["s32", "s64"])
def test_signs(type_: str) -> None:
    a = numbers(type_)
    np.testing.assert_array_equal(evaluate(f"neg.{type_} d, a;", type_, (type_, a)), wrapped([-x for x in a.tolist()], type_))
    np.testing.assert_array_equal(evaluate(f"abs.{type_} d, a;", type_, (type_, a)), wrapped([abs(x) for x in a.tolist()], type_))


def test_saturating_sums() -> None:
    a, b = pairs("s32")
    expected = [min(max(x + y, -(2**31)), 2**31 - 1) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_array_equal(evaluate("add.sat.s32 d, a, b;", "s32", ("s32", a), ("s32", b)), expected)


@pytest.mark.parametrize("type_", ["b16", "b32", "b64", "u32", "s16", "s32", "s64", "u64"])
def test_shifts_stop_at_the_width(type_: str) -> None:
    word, bits = type_.replace("b", "u"), 8 * dtype(type_).itemsize
    a, amounts = np.repeat(numbers(word, 14), 8), np.tile(np.array([0, 1, 5, 15, 16, 31, 64, 0xFFFFFFFF], np.uint32), 14)
    lists = list(zip(a.tolist(), amounts.tolist(), strict=True))
    if type_[0] == "b":
        expected = wrapped([x << n if n < bits else 0 for x, n in lists], word)
        np.testing.assert_array_equal(evaluate(f"shl.{type_} d, a, b;", word, (word, a), ("u32", amounts)), expected)
    expected = wrapped([x >> min(n, bits) for x, n in lists], word)
    np.testing.assert_array_equal(evaluate(f"shr.{type_} d, a, b;", word, (word, a), ("u32", amounts)), expected)


@pytest.mark.parametrize("mode", ["l.clamp", "l.wrap", "r.clamp", "r.wrap"])
def test_funnel_shift(mode: str) -> None:
    a, b = np.repeat(numbers("u32", 12), 6), np.repeat(numbers("u32", 12, seed=1), 6)
    c = np.tile(np.array([0, 1, 13, 31, 32, 45], np.uint32), 12)
    expected = []
    for low, high, n in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        n = min(n, 32) if "clamp" in mode else n & 31
        expected.append((high << n | low >> 32 - n if mode[0] == "l" else high << 32 - n | low >> n) & 0xFFFFFFFF)
    np.testing.assert_array_equal(evaluate(f"shf.{mode}.b32 d, a, b, c;", "u32", ("u32", a), ("u32", b), ("u32", c)), expected)


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_bits(bits: int) -> None:
    a = numbers(f"u{bits}")
    texts = [f"{x:0{bits}b}" for x in a.tolist()]
    for name, made, expected in (
        ("popc", "u32", [t.count("1") for t in texts]),
        ("clz", "u32", [len(t) - len(t.lstrip("0")) for t in texts]),
        ("brev", f"u{bits}", [int(t[::-1], 2) for t in texts]),
    ):
        np.testing.assert_array_equal(evaluate(f"{name}.b{bits} d, a;", made, (f"u{bits}", a)), np.array(expected, f"u{bits // 8}"))


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_first_bit(type_: str) -> None:
    a = numbers(type_)
    found = [((~x if x < 0 else x).bit_length() - 1) & 0xFFFFFFFF for x in a.tolist()]
    np.testing.assert_array_equal(evaluate(f"bfind.{type_} d, a;", "u32", (type_, a)), found)
    bits = 8 * a.dtype.itemsize
    amounts = [f if f == 0xFFFFFFFF else bits - 1 - f for f in found]
    np.testing.assert_array_equal(evaluate(f"bfind.shiftamt.{type_} d, a;", "u32", (type_, a)), amounts)


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_bit_fields(type_: str) -> None:
    """bfe: beyond the width come zeros, or copies of the sign: of the field's last bit, if need be of the number's."""
    bits = int(type_[1:])
    places = [(0, 0), (0, 1), (3, 7), (bits - 1, 1), (bits - 4, 9), (bits, 3), (0, bits), (5, 255), (200, 9), (256, 4)]
    a = np.repeat(numbers(type_, 14), len(places))
    b, c = (np.tile(np.array([p[k] for p in places], np.uint32), 14) for k in (0, 1))
    expected = []
    for x, position, length in zip(a.tolist(), (b & 255).tolist(), (c & 255).tolist(), strict=True):
        sign = x >> min(position + length - 1, bits - 1) & 1 if type_[0] == "s" and length else 0
        digits = [(x >> position + k & 1) if k < length and position + k < bits else sign for k in range(bits)]
        expected.append(sum(d << k for k, d in enumerate(digits)))
    np.testing.assert_array_equal(evaluate(f"bfe.{type_} d, a, b, c;", type_, (type_, a), ("u32", b), ("u32", c)), wrapped(expected, type_))


@pytest.mark.parametrize("bits", [32, 64])
def test_inserted_fields(bits: int) -> None:
    word = f"u{bits}"
    places = [(0, 0), (0, 1), (3, 7), (bits - 1, 1), (bits - 4, 9), (bits, 3), (0, bits), (5, 200)]
    a, b = (np.repeat(numbers(word, 14, seed), len(places)) for seed in (0, 1))
    c, e = (np.tile(np.array([p[k] for p in places], np.uint32), 14) for k in (0, 1))
    expected = []
    for x, y, position, length in zip(a.tolist(), b.tolist(), c.tolist(), e.tolist(), strict=True):
        mask = ((1 << length) - 1 << position) & ((1 << bits) - 1)
        expected.append((x << position & mask) | (y & ~mask))
    found = evaluate(f"bfi.b{bits} d, a, b, c, e;", word, (word, a), (word, b), ("u32", c), ("u32", e))
    np.testing.assert_array_equal(found, wrapped(expected, word))


def test_permuted_bytes() -> None:
    """A selector's last bit spreads the sign of the byte."""
    found = evaluate(
        "prmt.b32 d, a, b, c;", "u32", ("u32", 0x83828180), ("u32", 0x07060504), ("u32", [0x3210, 0x7654, 0x0123, 0xB8C4, 0x5140])
    )
    np.testing.assert_array_equal(found, [0x83828180, 0x07060504, 0x80818283, 0xFFFF0004, 0x05810480])


def test_logic_of_three() -> None:
    """The table is what the operation makes of 0xF0, 0xCC, 0xAA."""
    a, b, c = (numbers("u32", seed=s) for s in range(3))
    for table, expected in ((0xF0 & 0xCC ^ 0xAA, a & b ^ c), ((0xF0 | 0xCC) & ~0xAA & 0xFF, (a | b) & ~c), (0x96, a ^ b ^ c)):
        np.testing.assert_array_equal(evaluate(f"lop3.b32 d, a, b, c, {table};", "u32", ("u32", a), ("u32", b), ("u32", c)), expected)


@pytest.mark.parametrize(("first", "second"), [("add.cc", "addc"), ("sub.cc", "subc")])
def test_carries(first: str, second: str) -> None:
    """64 bits in halves."""
    a, b = pairs("u64")
    made = np.zeros(a.size, np.uint64)
    body = f"""
    setp.ge.u32 %p0, %r0, {a.size};
    @%p0 bra END;
    mul.wide.u32 %d10, %r0, 8;
    add.s64 %d11, %d0, %d10; add.s64 %d12, %d1, %d10; add.s64 %d13, %d2, %d10;
    ld.global.v2.u32 {{%r10, %r11}}, [%d11];
    ld.global.v2.u32 {{%r12, %r13}}, [%d12];
    {first}.u32 %r14, %r10, %r12;
    {second}.u32 %r15, %r11, %r13;
    st.global.v2.u32 [%d13], {{%r14, %r15}};
END:"""
    run(body, [a, b, made], 256)
    np.testing.assert_array_equal(made, a + b if first == "add.cc" else a - b)


def test_products_with_carries() -> None:
    """128 bits from halves: mad.lo.cc, madc.hi."""
    a, b = pairs("u32")
    c = np.resize(numbers("u64"), a.size)
    low = evaluate("{ .reg .u32 %x, %y; mov.b64 {%x, %y} , c ; mad.lo.cc.u32 d, a, b, %x; }", "u32", ("u32", a), ("u32", b), ("u64", c))
    np.testing.assert_array_equal(low, (a.astype(np.uint64) * b + c & np.uint64(0xFFFFFFFF)).astype(np.uint32))
    high = evaluate(
        "{ .reg .u32 %x, %y, %z; mov.b64 {%x, %y} , c ; mad.lo.cc.u32 %z, a, b, %x; madc.hi.u32 d, a, b, %y; }",
        "u32", ("u32", a), ("u32", b), ("u64", c),
    )  # fmt: skip
    expected = [(x * y + z) >> 32 & 0xFFFFFFFF for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    np.testing.assert_array_equal(high, expected)


@pytest.mark.parametrize("type_", ["s32", "u32", "s64", "u64"])
def test_comparisons(type_: str) -> None:
    a, b = pairs(type_)
    for name, expected in (("eq", a == b), ("ne", a != b), ("lt", a < b), ("le", a <= b), ("gt", a > b), ("ge", a >= b)):
        np.testing.assert_array_equal(evaluate(f"setp.{name}.{type_} d, a, b;", "pred", (type_, a), (type_, b)), expected)


@pytest.mark.parametrize(
    "instruction",
    ["add.unheard.s32 d, a, b;", "frobnicate.s32 d, a, b;", "add.s32 d, a, b, a;", "add.s128 d, a, b;", "mad.s32 d, a, b, a;"],
)
def test_what_is_not_known_is_named(instruction: str) -> None:
    with pytest.raises(Unknown, match=instruction.split(".")[0]):
        evaluate(instruction, "s32", ("s32", [1]), ("s32", [2]))


@pytest.mark.parametrize(("first", "middle", "last"), [("add.cc", "addc.cc", "addc"), ("sub.cc", "subc.cc", "subc")])
def test_long_carries(first: str, middle: str, last: str) -> None:
    """128 bits in four parts."""
    words = [np.concatenate([numbers("u64", seed=s), np.array([0, 2**64 - 1, 2**32, 0], np.uint64)]) for s in range(4)]
    a, b = (np.stack(pair, 1).reshape(-1) for pair in (words[:2], words[2:]))
    made, parts = np.zeros_like(a), ("first", "middle", "middle", "last")
    lines = [f"    {dict(first=first, middle=middle, last=last)[p]}.u32 %r{30 + k}, %r{10 + k}, %r{20 + k};" for k, p in enumerate(parts)]
    run(BOTH + "\n".join(lines) + RESULT, [a, b, made], a.size // 2)
    sign = 1 if first == "add.cc" else -1
    assert whole(made) == [(x + sign * y) % 2**128 for x, y in zip(whole(a), whole(b), strict=True)]


def test_a_long_product() -> None:
    """Two times 64 bits from products of 32, whose carries go on."""
    a, b = (np.stack([numbers("u64", seed=s), np.zeros_like(numbers("u64"))], 1).reshape(-1) for s in range(2))
    made = np.zeros_like(a)
    lines = """
    mul.lo.u32 %r30, %r10, %r20; mul.hi.u32 %r31, %r10, %r20;
    mad.lo.cc.u32 %r31, %r11, %r20, %r31; madc.lo.cc.u32 %r32, %r11, %r21, 0; madc.hi.u32 %r33, %r11, %r21, 0;
    mad.hi.cc.u32 %r32, %r11, %r20, %r32; addc.u32 %r33, %r33, 0;
    mad.lo.cc.u32 %r31, %r10, %r21, %r31; madc.hi.cc.u32 %r32, %r10, %r21, %r32; addc.u32 %r33, %r33, 0;"""
    run(BOTH + lines + RESULT, [a, b, made], a.size // 2)
    assert whole(made) == [x * y for x, y in zip(whole(a), whole(b), strict=True)]


BOTH = """
    mul.wide.u32 %d10, %r0, 16; add.s64 %d11, %d0, %d10; add.s64 %d12, %d1, %d10; add.s64 %d13, %d2, %d10;
    ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d11]; ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%d12];
"""
RESULT = "\n    st.global.v4.u32 [%d13], {%r30, %r31, %r32, %r33};"


def whole(words: np.ndarray) -> list[int]:
    """Pairs of words of 64 bits, the lower one first, as numbers."""
    return [int(low) + (int(high) << 64) for low, high in words.reshape(-1, 2)]

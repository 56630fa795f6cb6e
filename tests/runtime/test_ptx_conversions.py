"""The interpreter's conversions, against rational numbers that are rounded once."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx.floats import rounded_fraction
from ptx.types import dtype
from ptx_tools import evaluate
from test_ptx_floats import FORMATS
from test_ptx_floats import numbers as reals
from test_ptx_integers import numbers as wholes

WHOLE = {"rni": lambda x: round(x), "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def halfway(type_: str) -> Any:
    """Numbers of all sizes, and those between two integers."""
    middle = np.arange(-9, 9) + 0.5
    edges = np.array(
        [2.0**31, 2.0**31 - 1, -(2.0**31), -(2.0**31) - 1, 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 65535.5, 255.5, 127.5, -128.5]
    )
    word = {"f32": "f4", "f64": "f8"}[type_]
    return np.concatenate([reals(type_), middle.astype(word), edges.astype(word), np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], word)])


@pytest.mark.parametrize("way", WHOLE)
@pytest.mark.parametrize("made", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("given", ["f32", "f64"])
def test_reals_to_integers_are_clamped(given: str, made: str, way: str) -> None:
    a = halfway(given)
    info = np.iinfo(dtype(made))
    nan = 0 if given == "f32" and info.bits < 64 else int(info.min) if made[0] == "s" else 1 << info.bits - 1

    def expected(x: float) -> int:
        if math.isnan(x):
            return nan
        if math.isinf(x):
            return int(info.max if x > 0 else info.min)
        return min(max(WHOLE[way](Fraction(x)), int(info.min)), int(info.max))

    register = {"s8": "s16", "u8": "u16"}.get(made, made)
    found = evaluate(f"cvt.{way}.{made}.{given} d, a;", register, (given, a))
    np.testing.assert_array_equal(found, np.array([expected(float(x)) for x in a], dtype(made)).astype(dtype(register)))


@pytest.mark.parametrize("way", WHOLE)
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_reals_to_whole_reals(type_: str, way: str) -> None:
    a = halfway(type_)
    function = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[way]
    np.testing.assert_array_equal(evaluate(f"cvt.{way}.{type_}.{type_} d, a;", type_, (type_, a)), function(a))


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("made", ["f16", "f32"])
@pytest.mark.parametrize("given", ["s32", "u32", "s64", "u64"])
def test_integers_to_reals(given: str, made: str, rounding: str) -> None:
    a = wholes(given, 200)
    digits, low, high = FORMATS[made]
    expected = [rounded_fraction(Fraction(x), rounding, digits, low, high) if x else 0.0 for x in a.tolist()]
    found = evaluate(f"cvt.{rounding}.{made}.{given} d, a;", made, (given, a))
    np.testing.assert_array_equal(found.astype("f8"), expected)


@pytest.mark.parametrize("given", ["s32", "u32", "s64", "u64"])
def test_integers_to_doubles(given: str) -> None:
    a = wholes(given, 200)
    np.testing.assert_array_equal(evaluate(f"cvt.rn.f64.{given} d, a;", "f64", (given, a)), [float(x) for x in a.tolist()])


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("given", "made"), [("f64", "f32"), ("f64", "f16"), ("f32", "f16")])
def test_narrower_reals(given: str, made: str, rounding: str) -> None:
    a = reals(given)
    scale = {"f32": 2.0**120, "f16": 2.0**12}[made]
    a = np.concatenate(
        [
            a,
            (np.random.default_rng(0).normal(size=300) * scale).astype(a.dtype),
            (np.random.default_rng(1).normal(size=300) / scale).astype(a.dtype),
        ]
    )
    digits, low, high = FORMATS[made]
    expected = np.array([rounded_fraction(Fraction(float(x)), rounding, digits, low, high) for x in a]).astype(dtype(made))
    np.testing.assert_array_equal(evaluate(f"cvt.{rounding}.{made}.{given} d, a;", made, (given, a)), expected)


def test_halves_to_float() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    np.testing.assert_array_equal(evaluate("cvt.f32.f16 d, a;", "f32", ("f16", bits.view("f2"))), bits.view("f2").astype("f4"))
    np.testing.assert_array_equal(evaluate("cvt.f32.bf16 d, a;", "f32", ("bf16", bits)), bits.view(ml_dtypes.bfloat16).astype("f4"))


def test_float_to_bfloat() -> None:
    a = np.concatenate(
        [reals("f32"), np.array([np.inf, -np.inf, 0.0, -0.0], "f4"), (np.arange(0x3F7F0000, 0x3F840000, 997)).astype("u4").view("f4")]
    )
    found = evaluate("cvt.rn.bf16.f32 d, a;", "bf16", ("f32", a))
    np.testing.assert_array_equal(found, a.astype(ml_dtypes.bfloat16).view("u2"))
    assert np.isnan(evaluate("cvt.rn.bf16.f32 d, a;", "bf16", ("f32", [np.nan])).view(ml_dtypes.bfloat16)).all()
    below = evaluate("cvt.rz.bf16.f32 d, a;", "bf16", ("f32", a))
    np.testing.assert_array_equal(below, (a.view("u4") >> 16).astype("u2"))


def test_pairs_of_halves() -> None:
    """The first operand comes to the upper half."""
    a, b = reals("f32"), reals("f32", seed=1)
    with np.errstate(over="ignore"):
        expected = b.astype("f2").view("u2").astype("u4") | a.astype("f2").view("u2").astype("u4") << 16
    np.testing.assert_array_equal(evaluate("cvt.rn.f16x2.f32 d, a, b;", "f16x2", ("f32", a), ("f32", b)), expected)


@pytest.mark.parametrize("given", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("made", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_integers_to_integers(given: str, made: str) -> None:
    """Wrapped, or extended by the sign of what was given; with .sat clamped."""
    a = wholes(given)
    info, bits = np.iinfo(dtype(made)), 8 * dtype(made).itemsize
    wrapped = np.array([x & ((1 << bits) - 1) for x in a.tolist()], f"u{bits // 8}").view(dtype(made))
    np.testing.assert_array_equal(evaluate(f"cvt.{made}.{given} d, a;", made, (given, a)), wrapped)
    clamped = np.array([min(max(x, int(info.min)), int(info.max)) for x in a.tolist()], dtype(made))
    np.testing.assert_array_equal(evaluate(f"cvt.sat.{made}.{given} d, a;", made, (given, a)), clamped)


def test_a_byte_of_a_wider_register() -> None:
    a = np.array([0x1FF, 0x80, 0x7F, 0xFF80], np.uint16)
    np.testing.assert_array_equal(evaluate("cvt.s32.s8 d, a;", "s32", ("u16", a)), [-1, -128, 127, -128])
    np.testing.assert_array_equal(evaluate("cvt.u32.u8 d, a;", "u32", ("u16", a)), [255, 128, 127, 128])


def test_saturation_and_flushing() -> None:
    a = np.array([-1.0, 0.25, 2.0, np.nan, np.inf], "f4")
    np.testing.assert_array_equal(evaluate("cvt.sat.f32.f32 d, a;", "f32", ("f32", a)), [0, 0.25, 1, 0, 1])
    tiny = np.array([2.0**-130], "f4")
    assert evaluate("cvt.ftz.f64.f32 d, a;", "f64", ("f32", tiny)) == 0
    assert evaluate("cvt.f64.f32 d, a;", "f64", ("f32", tiny)) == 2.0**-130
    assert evaluate("cvt.rn.ftz.f32.f64 d, a;", "f32", ("f64", [2.0**-130])) == 0
    assert evaluate("cvt.rpi.ftz.s32.f32 d, a;", "s32", ("f32", tiny)) == 0
    assert evaluate("cvt.rpi.s32.f32 d, a;", "s32", ("f32", tiny)) == 1


def test_moves_of_bits() -> None:
    a = np.array([1.5, -0.0, np.inf])
    found = evaluate("{ .reg .b32 %x, %y; mov.b64 {%x, %y} , a ; mov.b64 d, {%y, %x}; }", "u64", ("f64", a))
    bits = a.view("u8")
    np.testing.assert_array_equal(found, bits >> np.uint64(32) | bits << np.uint64(32))
    np.testing.assert_array_equal(evaluate("mov.b32 d, a;", "f32", ("u32", np.array([0x3F800000], "u4"))), [1.0])
    np.testing.assert_array_equal(evaluate("add.f32 d, a, 0f3F800000;", "f32", ("f32", [2.0])), [3.0])

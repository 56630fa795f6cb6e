"""The interpreter's floating-point arithmetic, against rational numbers that are rounded once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from ptx.faults import Unknown
from ptx.floats import rounded_fraction
from ptx_tools import evaluate

FORMATS = {"f32": (24, -149, float(np.finfo("f4").max)), "f64": (53, -1074, float(np.finfo("f8").max)), "f16": (11, -24, 65504.0)}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, np.inf, -np.inf, np.nan]


def exact(value: Fraction, type_: str, rounding: str = "rn") -> float:
    digits, low, high = FORMATS[type_]
    return rounded_fraction(value, rounding, digits, low, high) if value else 0.0


def numbers(type_: str, count: int = 200, seed: int = 0) -> Any:
    """Of all sizes, subnormal ones and the greatest among them."""
    rng = np.random.default_rng([seed, *type_.encode()])
    word = np.dtype({"f32": "f4", "f64": "f8"}[type_])
    info = np.finfo(word)
    edges = [
        info.max,
        -info.max,
        info.tiny,
        -info.tiny,
        info.smallest_subnormal,
        3 * info.smallest_subnormal,
        1 + info.eps,
        1 - info.epsneg,
    ]
    near = rng.normal(size=count // 2)
    drawn = rng.normal(size=count // 2) * 2.0 ** rng.uniform(info.minexp - 20, info.maxexp - 2, count // 2)
    with np.errstate(all="ignore"):
        return np.concatenate([np.array(edges, word), near.astype(word), drawn.astype(word)])


def triples(type_: str) -> tuple[Any, Any, Any]:
    """Also sums that nearly cancel, and those that are halfway between two numbers but for a little."""
    a, b, c = (numbers(type_, seed=s) for s in range(3))
    with np.errstate(all="ignore"):
        cancelling = np.nextafter(-(a * b), a.dtype.type(1))
        tiny = a * b * a.dtype.type(np.finfo(a.dtype).eps / 4)
    return np.tile(a, 3), np.tile(b, 3), np.concatenate([c, cancelling, tiny])


def agree(found: Any, expected: list[float], rest: Any) -> None:
    """Bit for bit where the exact result is not 0, `rest` where it is none."""
    word = found.dtype
    expected_ = np.array(expected, np.float64).astype(word)
    unlike = (found.view(f"u{word.itemsize}") != expected_.view(f"u{word.itemsize}")) & (expected_ != 0)
    unlike |= (expected_ == 0) & (found != 0)
    assert not (unlike & rest).any(), list(zip(found[unlike & rest], expected_[unlike & rest], strict=True))[:4]


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_fma_rounds_once(type_: str, rounding: str) -> None:
    a, b, c = triples(type_)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    values = zip(a.astype("f8").tolist(), b.astype("f8").tolist(), c.astype("f8").tolist(), finite, strict=True)
    expected = [exact(Fraction(x) * Fraction(y) + Fraction(z), type_, rounding) if ok else 0.0 for x, y, z, ok in values]
    agree(evaluate(f"fma.{rounding}.{type_} d, a, b, c;", type_, (type_, a), (type_, b), (type_, c)), expected, finite)


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_fma_without_subnormals(rounding: str) -> None:
    """`.ftz`: zeros of their sign in the place of subnormal operands, and of a subnormal result."""
    least = np.float32(2.0**-126)
    given = triples("f32")
    flushed = [np.where(np.abs(x) < least, np.copysign(np.float32(0), x), x) for x in given]
    finite = np.logical_and.reduce([np.isfinite(x) for x in given])
    values = zip(*(x.astype("f8").tolist() for x in flushed), finite, strict=True)
    expected = [exact(Fraction(x) * Fraction(y) + Fraction(z), "f32", rounding) if ok else 0.0 for x, y, z, ok in values]
    expected = [0.0 if abs(x) < least else x for x in expected]
    agree(evaluate(f"fma.{rounding}.ftz.f32 d, a, b, c;", "f32", *(("f32", x) for x in given)), expected, finite)


def test_fma_of_what_is_no_number() -> None:
    cases = [
        (np.inf, 0.0, 1.0),
        (np.inf, 1.0, -np.inf),
        (np.inf, -1.0, 5.0),
        (2.0, 3.0, np.inf),
        (-0.0, 1.0, -0.0),
        (-0.0, 1.0, 0.0),
        (1e300, 1e300, -np.inf),
    ]
    a, b, c = np.array(cases).T
    found = evaluate("fma.rn.f64 d, a, b, c;", "f64", ("f64", a), ("f64", b), ("f64", c))
    np.testing.assert_array_equal(found, [np.nan, np.nan, -np.inf, np.inf, -0.0, 0.0, -np.inf])
    np.testing.assert_array_equal(np.signbit(found[4:6]), [True, False])


@pytest.mark.one_of(3)
@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_directed_rounding(type_: str, name: str, rounding: str) -> None:
    a, b = numbers(type_), numbers(type_, seed=1)
    with np.errstate(all="ignore"):
        b = np.concatenate([b, a * a.dtype.type(-1 + 2.0**-20)])
    a = np.tile(a, 2)
    operation = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}[name]
    expected = [
        exact(operation(Fraction(x), Fraction(y)), type_, rounding)
        for x, y in zip(a.astype("f8").tolist(), b.astype("f8").tolist(), strict=True)
    ]
    agree(evaluate(f"{name}.{rounding}.{type_} d, a, b;", type_, (type_, a), (type_, b)), expected, np.ones(a.size, bool))


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_division_and_roots(type_: str) -> None:
    a, b = numbers(type_), numbers(type_, seed=1)
    pairs = list(zip(a.astype("f8").tolist(), b.astype("f8").tolist(), strict=True))
    quotients = [exact(Fraction(x) / Fraction(y), type_) for x, y in pairs]
    agree(evaluate(f"div.rn.{type_} d, a, b;", type_, (type_, a), (type_, b)), quotients, np.ones(a.size, bool))
    inverse = [exact(1 / Fraction(y), type_) for _, y in pairs]
    agree(evaluate(f"rcp.rn.{type_} d, a;", type_, (type_, b)), inverse, np.ones(a.size, bool))
    root = evaluate(f"sqrt.rn.{type_} d, a;", type_, (type_, np.abs(a)))
    for x, r in zip(np.abs(a), root, strict=True):
        below, above = (Fraction(float(np.nextafter(r, r.dtype.type(way)))) for way in (0, np.inf))
        middle = Fraction(float(r))
        assert ((below + middle) / 2) ** 2 <= Fraction(float(x)) <= ((above + middle) / 2) ** 2


def test_what_only_the_first_digits_are_of() -> None:
    """rcp.approx.ftz.f64 gives the upper half of a double."""
    a = np.array([3.0, -7.0, 0.1])
    found = evaluate("rcp.approx.ftz.f64 d, a;", "f64", ("f64", a))
    assert (found.view("u8") & 0xFFFFFFFF == 0).all()
    np.testing.assert_allclose(found, 1 / a, rtol=2.0**-19)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ex2", np.exp2),
        ("lg2", np.log2),
        ("sin", np.sin),
        ("cos", np.cos),
        ("tanh", np.tanh),
        ("rcp", np.reciprocal),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("sqrt", np.sqrt),
    ],
)
def test_approximate_functions_have_their_true_values(name: str, function: Any) -> None:
    a = np.linspace(0.1, 6, 500, dtype=np.float32)
    np.testing.assert_array_max_ulp(evaluate(f"{name}.approx.f32 d, a;", "f32", ("f32", a)), function(a.astype("f8")).astype("f4"), 1)


def test_special_values_of_approximate_functions() -> None:
    a = np.array(SPECIAL, "f4")
    expected = {
        "ex2": [1, 1, 2, 0.5, 8, np.inf, 0, np.nan], "lg2": [-np.inf, -np.inf, 0, np.nan, np.log2(np.float32(3)), np.inf, np.nan, np.nan],
        "rcp": [np.inf, -np.inf, 1, -1, np.float32(1) / np.float32(3), 0, -0.0, np.nan],
        "rsqrt": [np.inf, -np.inf, 1, np.nan, 1 / np.sqrt(3), 0, np.nan, np.nan],
    }  # fmt: skip
    for name, values in expected.items():
        np.testing.assert_array_equal(evaluate(f"{name}.approx.f32 d, a;", "f32", ("f32", a)), np.array(values).astype("f4"), err_msg=name)


def test_subnormal_numbers_are_flushed_where_it_says_so() -> None:
    tiny, half = np.float32(2.0**-130), np.float32(0.5)
    least = np.float32(2.0**-126)
    assert evaluate("add.f32 d, a, b;", "f32", ("f32", [tiny]), ("f32", [0])) == tiny
    assert evaluate("add.ftz.f32 d, a, b;", "f32", ("f32", [tiny]), ("f32", [0])) == 0
    found = evaluate("mul.ftz.f32 d, a, b;", "f32", ("f32", [-least, -tiny]), ("f32", [half, half]))
    np.testing.assert_array_equal(np.signbit(found) & (found == 0), [True, True])
    assert evaluate("fma.rn.ftz.f32 d, a, b, c;", "f32", ("f32", [least]), ("f32", [half]), ("f32", [least])) == least * np.float32(1.5)
    assert evaluate("setp.gt.ftz.f32 d, a, b;", "pred", ("f32", [tiny]), ("f32", [0])) == 0
    assert evaluate("setp.gt.f32 d, a, b;", "pred", ("f32", [tiny]), ("f32", [0])) == 1


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_extrema(type_: str) -> None:
    """Of a number and a NaN the number; -0 is less than +0."""
    values = np.array(SPECIAL, {"f32": "f4", "f64": "f8"}[type_])
    a, b = np.repeat(values, 8), np.tile(values, 8)
    least, most = (evaluate(f"{n}.{type_} d, a, b;", type_, (type_, a), (type_, b)) for n in ("min", "max"))
    np.testing.assert_array_equal(least, np.fmin(a, b))
    np.testing.assert_array_equal(most, np.fmax(a, b))
    zeros = (a == 0) & (b == 0)
    np.testing.assert_array_equal(np.signbit(least[zeros]), (np.signbit(a) | np.signbit(b))[zeros])
    np.testing.assert_array_equal(np.signbit(most[zeros]), (np.signbit(a) & np.signbit(b))[zeros])
    kept = evaluate(f"max.NaN.{type_} d, a, b;", type_, (type_, a), (type_, b))
    np.testing.assert_array_equal(np.isnan(kept), np.isnan(a) | np.isnan(b))


def test_signs() -> None:
    a = np.array(SPECIAL, "f4")
    np.testing.assert_array_equal(np.signbit(evaluate("neg.f32 d, a;", "f32", ("f32", a)))[:7], ~np.signbit(a)[:7])
    assert not np.signbit(evaluate("abs.f32 d, a;", "f32", ("f32", a)))[:7].any()
    found = evaluate("copysign.f32 d, a, b;", "f32", ("f32", [-1.0, 2.0]), ("f32", [3.0, -4.0]))
    np.testing.assert_array_equal(found, [-3.0, 4.0])  # the sign is the first operand's


def test_saturation() -> None:
    a = np.array([-1.0, 0.25, 2.0, np.nan, -0.0, np.inf], "f4")
    np.testing.assert_array_equal(evaluate("add.sat.f32 d, a, b;", "f32", ("f32", a), ("f32", [0])), [0, 0.25, 1, 0, 0, 1])


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_comparisons_with_nan(type_: str) -> None:
    """The ordered ones are false with a NaN, those with a `u` true."""
    values = np.array(SPECIAL, {"f32": "f4", "f64": "f8"}[type_])
    a, b = np.repeat(values, 8), np.tile(values, 8)
    nan = np.isnan(a) | np.isnan(b)
    for name, compare in (
        ("eq", np.equal),
        ("ne", np.not_equal),
        ("lt", np.less),
        ("le", np.less_equal),
        ("gt", np.greater),
        ("ge", np.greater_equal),
    ):
        for suffix, truth in (("", compare(a, b) & ~nan), ("u", compare(a, b) | nan)):
            found = evaluate(f"setp.{name}{suffix}.{type_} d, a, b;", "pred", (type_, a), (type_, b))
            np.testing.assert_array_equal(found, truth, err_msg=name + suffix)
    np.testing.assert_array_equal(evaluate(f"setp.nan.{type_} d, a, b;", "pred", (type_, a), (type_, b)), nan)
    np.testing.assert_array_equal(evaluate(f"setp.num.{type_} d, a, b;", "pred", (type_, a), (type_, b)), ~nan)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma.rn"])
def test_halves(name: str) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 0x7C00, 400).astype("u2") | (rng.integers(0, 2, 400) << 15).astype("u2") for _ in range(3))
    operands = [(x.view("f2")) for x in (a, b, c)][: 3 if name == "fma.rn" else 2]
    operation = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "fma.rn": lambda x, y, z: x * y + z}[name]
    expected = [exact(operation(*map(Fraction, map(float, v))), "f16") for v in zip(*operands, strict=True)]
    letters = "a, b, c" if name == "fma.rn" else "a, b"
    found = evaluate(f"{name}.f16 d, {letters};", "f16", *(("f16", o) for o in operands))
    agree(found, expected, np.ones(400, bool))
    packed = [o.view("u4") for o in operands]
    pairs = evaluate(f"{name}.f16x2 d, {letters};", "f16x2", *(("f16x2", o) for o in packed))
    np.testing.assert_array_equal(pairs.view("u2"), found.view("u2"))


@pytest.mark.parametrize("name", ["add", "mul", "fma.rn"])
def test_bfloats(name: str) -> None:
    """Bits of bfloat16 are the upper half of a float32's."""
    rng = np.random.default_rng(0)
    operands = [(rng.normal(size=400) * 2.0 ** rng.integers(-60, 60, 400)).astype("f4").view("u4") >> 16 for _ in range(3)]
    numbers_ = [(o.astype("u4") << 16).view("f4") for o in operands]
    count = 3 if name == "fma.rn" else 2
    operation = {"add": lambda x, y: x + y, "mul": lambda x, y: x * y, "fma.rn": lambda x, y, z: x * y + z}[name]
    expected = [
        rounded_fraction(operation(*map(Fraction, map(float, v))), "rn", 8, -133, 3.3895313892515355e38)
        for v in zip(*numbers_[:count], strict=True)
    ]
    found = evaluate(
        f"{name}.bf16 d, {'a, b, c' if count == 3 else 'a, b'};", "bf16", *(("bf16", o.astype("u2")) for o in operands[:count])
    )
    np.testing.assert_array_equal((found.astype("u4") << 16).view("f4"), np.array(expected, "f4"))


@pytest.mark.parametrize("instruction", ["div.rz.f32 d, a, b;", "sin.rn.f32 d, a;", "rcp.approx.f64 d, a;", "fma.f32 d, a, b;"])
def test_what_is_not_known_is_named(instruction: str) -> None:
    type_ = "f64" if "f64" in instruction else "f32"
    with pytest.raises(Unknown):
        evaluate(instruction, type_, (type_, [1.0]), (type_, [3.0]))

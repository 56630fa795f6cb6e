"""Forms of instructions that compilers emit, each against a formula in NumPy on numbers of all sizes: opcode, rounding, flushing of
subnormals, type; comparisons, selections, logic; loads and stores of every width in every space; atomic operations of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ptx.types import dtype
from ptx_tools import evaluate, run

RNG = np.random.default_rng(0)


def operands(type_: str, seed: int = 0) -> Any:
    """Numbers of a type with its corners: zeros of both signs, subnormal, least, greatest and infinite ones, NaN; or for integers the ends
    of their range."""
    rng = np.random.default_rng([seed, *type_.encode()])
    if type_ == "pred":
        return rng.integers(0, 2, 64).astype(np.bool_)
    word = dtype(type_)
    if word.kind != "f":
        info = np.iinfo(word)
        return np.concatenate([rng.integers(info.min, info.max, 60, word, endpoint=True), np.array([info.min, info.max, 0, 1], word)])
    info = np.finfo(word)
    drawn = (rng.normal(size=55) * 10.0 ** rng.integers(-6, 7, 55)).astype(word)
    edges = [0.0, -0.0, info.smallest_subnormal, -3 * info.smallest_subnormal, info.tiny, info.max, np.inf, -np.inf, np.nan]
    return rng.permutation(np.concatenate([drawn, np.array(edges, word)]))


def flushed(x: Any) -> Any:
    """Subnormal float32 as zeros."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x) if x.dtype == np.float32 else x


def least(a: Any, b: Any) -> Any:
    """Of a number and a NaN the number; -0 is less than 0."""
    return np.where(np.isnan(a), b, np.where(np.isnan(b) | (a < b) | ((a == b) & np.signbit(a)), a, b))


def in_double(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


EXACT: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "neg": np.negative, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
    "rcp": lambda x: x.dtype.type(1) / x, "min": least, "max": lambda a, b: -least(-a, -b),
    "copysign": lambda sign, size: np.copysign(size, sign),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
}  # fmt: skip
NEAR: dict[str, Callable[..., Any]] = {
    "div": np.divide, "rcp": in_double(lambda x: 1 / x), "rsqrt": in_double(lambda x: 1 / np.sqrt(x)), "sqrt": in_double(np.sqrt),
    "ex2": in_double(np.exp2), "lg2": in_double(np.log2), "sin": in_double(np.sin), "cos": in_double(np.cos), "tanh": in_double(np.tanh),
}  # fmt: skip
COUNTS = dict.fromkeys(("abs", "neg", "sqrt", "rcp", "not", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), 1)
ARITHMETIC = [
    *(f"{name}{ftz}.f32" for name in ("abs", "neg", "add", "sub", "mul", "min", "max") for ftz in ("", ".ftz")),
    *(f"{name}.rn.ftz.f32" for name in ("add", "sub", "mul")),
    *(f"{name}.f64" for name in ("abs", "neg", "add", "sub", "mul", "min", "max", "copysign")), "copysign.f32",
    *(f"{name}.rn.ftz.f32" for name in ("div", "sqrt", "rcp")),
    *(f"{name}.{type_}" for name in ("and", "or", "xor", "not") for type_ in ("pred", "b16", "b32", "b64")),
    *(f"{name}.approx.ftz.f32" for name in ("div", "rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos")),
    "div.full.ftz.f32", "rsqrt.approx.f32", "rsqrt.approx.f64", "tanh.approx.f32",
]  # fmt: skip


@pytest.mark.parametrize("form", ARITHMETIC)
def test_arithmetic(form: str) -> None:
    opcode, *modifiers = form.split(".")
    type_, ftz = modifiers[-1], "ftz" in modifiers
    given = [operands(type_, seed) for seed in range(COUNTS.get(opcode, 2))]
    with np.errstate(all="ignore"):
        values = [flushed(x) if ftz else x for x in given]
        expected = ((NEAR if {"approx", "full"} & set(modifiers) else EXACT)[opcode])(*values)
        expected = flushed(expected) if ftz else expected
    found = evaluate(f"{form} d, {', '.join('ab'[: len(given)])};", type_, *((type_, x) for x in given))
    np.testing.assert_array_equal(found.view(expected.dtype), expected)
    if expected.dtype.kind == "f":
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


def test_the_upper_half_of_an_inverse_root() -> None:
    x = np.abs(operands("f64"))
    with np.errstate(all="ignore"):
        exact = 1 / np.sqrt(x)
    found = evaluate("rsqrt.approx.ftz.f64 d, a;", "f64", ("f64", x))
    np.testing.assert_allclose(found, exact, rtol=2.0**-20)
    assert not (found.view(np.uint64)[~np.isnan(exact)] & np.uint64(0xFFFFFFFF)).any()


COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "ne": lambda a, b: (a < b) | (a > b), "num": lambda a, b: (a == a) & (b == b), "nan": lambda a, b: (a != a) | (b != b),
}  # fmt: skip
COMPARISONS = [
    *(f"setp.{c}{t}" for c in (*COMPARED, "equ", "neu", "ltu", "leu", "gtu", "geu") for t in (".f32", ".ftz.f32", ".f64")),
    *(f"setp.{c}.{t}" for c in ("eq", "ne", "lt", "le", "gt", "ge") for t in ("s16", "u16", "s32", "u32", "s64", "u64")),
    *(f"setp.{c}.{t}" for c in ("eq", "ne") for t in ("b16", "b32", "b64")),
    *(f"setp.{c}.{t}" for c in ("lo", "ls", "hi", "hs") for t in ("u16", "u32", "u64")),
]  # fmt: skip


@pytest.mark.parametrize("form", COMPARISONS)
def test_comparisons(form: str) -> None:
    _, name, *_, type_ = form.split(".")
    a = operands(type_)
    b = np.where(np.arange(a.size) % 3 == 0, a, operands(type_, 1))
    compared = [flushed(x) if ".ftz" in form else x for x in (a, b)]
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
    with np.errstate(all="ignore"):
        if name in COMPARED:
            expected = COMPARED[name](*compared)
        else:
            expected = COMPARED[name.removesuffix("u")](*compared) | COMPARED["nan"](*compared)
    np.testing.assert_array_equal(evaluate(f"{form} d, a, b;", "pred", (type_, a), (type_, b)).astype(bool), expected)


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
@pytest.mark.parametrize("type_", ["s32", "u32", "f32", "f64", "s64"])
def test_comparisons_with_a_predicate(type_: str, combine: str) -> None:
    a, b, p = operands(type_), operands(type_, 1), operands("pred")
    expected = getattr(np, f"logical_{combine}")(a < b, p)
    found = evaluate(
        f"setp.ne.u32 %p1, c, 0; setp.lt.{combine}.{type_} d, a, b, %p1;", "pred", (type_, a), (type_, b), ("u32", p.astype(np.uint32))
    )
    np.testing.assert_array_equal(found.astype(bool), expected)


@pytest.mark.parametrize("type_", ["b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"])
def test_selections_and_moves(type_: str) -> None:
    a, b, p = operands(type_), operands(type_, 1), operands("pred")
    found = evaluate(f"setp.ne.u32 %p1, c, 0; selp.{type_} d, a, b, %p1;", type_, (type_, a), (type_, b), ("u32", p.astype(np.uint32)))
    np.testing.assert_array_equal(found, np.where(p, a, b))
    np.testing.assert_array_equal(evaluate(f"mov.{type_} d, a;", type_, (type_, a)), a)


WHOLE: dict[str, Callable[[Any], Any]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@pytest.mark.parametrize("rounding", WHOLE)
@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("made", ["f32", "s32", "u32"])
def test_whole_numbers_of_float(made: str, rounding: str, ftz: str) -> None:
    """Towards all sides, into the range of the type; NaN is 0."""
    x = operands("f32")
    whole = WHOLE[rounding](flushed(x) if ftz else x)
    found = evaluate(f"cvt.{rounding}{ftz}.{made}.f32 d, a;", made, ("f32", x))
    if made == "f32":
        np.testing.assert_array_equal(found, whole)
        return
    info = np.iinfo(dtype(made))
    clamped = [0 if np.isnan(v) else int(min(max(v, info.min), info.max)) for v in whole.astype(np.float64)]
    np.testing.assert_array_equal(found, np.array(clamped, dtype(made)))


@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_saturation(ftz: str) -> None:
    """Into 0 to 1; NaN is 0."""
    x = operands("f32")
    within = np.where(np.isnan(x), np.float32(0), np.clip(x, np.float32(0), np.float32(1)))
    found = evaluate(f"cvt{ftz}.sat.f32.f32 d, a;", "f32", ("f32", x))
    np.testing.assert_array_equal(found, flushed(within) if ftz else within)


@pytest.mark.parametrize("space", ["global", "shared", "local"])
def test_addresses_of_spaces(space: str) -> None:
    """To generic addresses and back: the generic one reaches the same memory."""
    x = operands("u32")
    where = {"global": "%d20", "shared": "%d25", "local": "%d25"}[space]
    body = "    mul.wide.u32 %d22, %r0, 4; add.s64 %d20, %d0, %d22; ld.global.u32 %r8, [%d20]; add.u32 %r8, %r8, 1;\n"
    if space != "global":
        body += f"    mov.u64 %d25, room;\n{'    add.s64 %d25, %d25, %d22;' if space == 'shared' else ''}"
    body += f"""
    cvta.{space}.u64 %d26, {where}; st.u32 [%d26], %r8;
    cvta.to.{space}.u64 %d27, %d26; ld.{space}.u32 %r9, [%d27]; st.global.u32 [%d20], %r9;"""
    declared = "" if space == "global" else f".{space} .align 4 .b8 room[{256 if space == 'shared' else 4}];"
    given = x.copy()
    run(body, [x], x.size, declared=declared)
    np.testing.assert_array_equal(x, given + np.uint32(1))


def test_moves_of_predicates() -> None:
    a = operands("u32")
    found = evaluate("setp.gt.u32 %p1, a, 7; mov.pred %p2, %p1; selp.u32 d, 1, 0, %p2;", "u32", ("u32", a))
    np.testing.assert_array_equal(found, a > 7)


# --- memory --------------------------------------------------------------------------------------------------------------------------

WIDTHS = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
REGISTER = {1: "%h", 2: "%h", 4: "%r", 8: "%d"}


def register(type_: str, number: int) -> str:
    if type_ in ("f32", "f64"):
        return f"%{'f' if type_ == 'f32' else 'g'}{number}"
    return f"{REGISTER[dtype(type_).itemsize]}{number}"


@pytest.mark.parametrize("space", ["global", "global.nc", "volatile.global", "shared", "local", "param", "generic"])
@pytest.mark.parametrize(("type_", "vector"), [(t, v) for t in WIDTHS for v in ("", ".v2", ".v4") if dtype(t).itemsize < 8 or v != ".v4"])
def test_loads_and_stores(type_: str, vector: str, space: str) -> None:
    """From an array to another by way of a space: each element is what it was, however wide."""
    word, count = dtype(type_), int(vector[2:] or 1)
    x = operands(type_)
    y, at = np.zeros_like(x), word.itemsize * count
    parts = ", ".join(register(type_, 8 + k) for k in range(count))
    parts = f"{{{parts}}}" if vector else parts
    plain = "global" if "global" in space else "" if space == "generic" else space
    source = f".{space}" if plain == "global" else ".global" if plain else ""
    load = f"    ld{source}{vector}.{type_} {parts}, [%d20];\n"
    body = f"    mul.wide.u32 %d22, %r0, {at}; add.s64 %d20, %d0, %d22; add.s64 %d21, %d1, %d22;\n" + load
    declared = ""
    if plain in ("shared", "local", "param"):
        declared = f".{plain} .align 16 .b8 room[{at * 64 if plain == 'shared' else 16}];"
        where = "%r30" if plain == "shared" else "room"
        body += f"    mul.lo.u32 %r30, %r1, {at};\n" if plain == "shared" else ""
        other = ", ".join(register(type_, 12 + k) for k in range(count))
        other = f"{{{other}}}" if vector else other
        body += f"    st.{plain}{vector}.{type_} [{where}], {parts};\n    ld.{plain}{vector}.{type_} {other}, [{where}];\n"
        parts = other
    body += f"    st{'' if space == 'generic' else '.global'}{vector}.{type_} [%d21], {parts};"
    run(body, [x, y], 64 // count, declared=declared)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize(("type_", "wide"), [("u8", "u32"), ("s8", "s32"), ("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")])
def test_narrow_loads_are_extended(type_: str, wide: str) -> None:
    """By zeros or by the sign, to all of the register."""
    x, size = operands(type_), dtype(type_).itemsize
    y, into = np.zeros(x.size, dtype(wide)), f"{REGISTER[dtype(wide).itemsize]}8"
    body = f"    mul.wide.u32 %d20, %r0, {size}; add.s64 %d20, %d0, %d20; ld.global.{type_} {into}, [%d20];\n"
    body += f"    mul.wide.u32 %d21, %r0, {y.itemsize}; add.s64 %d21, %d1, %d21; st.global.{wide} [%d21], {into};"
    run(body, [x, y], x.size)
    np.testing.assert_array_equal(y, x.astype(y.dtype))


@pytest.mark.parametrize("fence", ["membar.gl", "membar.cta", "membar.sys", "fence.acq_rel.gpu", "fence.sc.cta"])
def test_fences_change_nothing(fence: str) -> None:
    x = operands("u32")
    given = x.copy()
    run(
        f"    mul.wide.u32 %d20, %r0, 4; add.s64 %d20, %d0, %d20; ld.global.u32 %r8, [%d20];\n    {fence};\n    st.global.u32 [%d20], %r8;",
        [x],
        64,
    )
    np.testing.assert_array_equal(x, given)


# --- atomics -------------------------------------------------------------------------------------------------------------------------

COMBINED: dict[str, Callable[..., Any]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "exch": lambda _, new: new,
}  # fmt: skip
ATOMICS = [
    f"{opcode}.{space}.{name}.{type_}"
    for opcode in ("atom", "red")
    for space in ("global", "shared")
    for name, types in {
        "add": ("u32", "s32", "u64", "f32", "f64"), "min": ("u32", "s32", "u64", "s64"), "max": ("u32", "s32", "u64", "s64"),
        "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"), "exch": ("b32", "b64"),
    }.items()
    for type_ in types
    if opcode == "atom" or name != "exch"
]  # fmt: skip


@pytest.mark.parametrize("form", ATOMICS)
def test_atomic_operations(form: str) -> None:
    """Two threads come to each element: one of them sees what was there, the other what the first has made of it."""
    opcode, space, name, type_ = form.split(".")
    word = dtype(type_)
    kind = {"b32": "u32", "b64": "u64"}.get(type_, type_)
    start, brought, seen = (RNG.integers(0, 1 << 20, n).astype(dtype(kind)) for n in (16, 32, 32))
    memory, size = start.copy(), word.itemsize
    value, old = register(type_, 8), register(type_, 9)
    body = f"""
    and.b32 %r20, %r1, 15; mul.wide.u32 %d20, %r20, {size}; add.s64 %d21, %d0, %d20;
    mul.lo.u32 %r21, %r20, {size};
    mul.wide.u32 %d22, %r1, {size}; add.s64 %d23, %d1, %d22; add.s64 %d24, %d2, %d22;
    ld.global.{type_} {value}, [%d23];
"""
    where = "%d21"
    if space == "shared":
        where = "%r21"
        body += f"    setp.ge.u32 %p1, %r1, 16;\n    @%p1 bra L;\n    ld.global.{type_} {old}, [%d21];\n"
        body += f"    st.shared.{type_} [%r21], {old};\nL:\n    bar.sync 0;\n"
    body += f"    {form} {old + ', ' if opcode == 'atom' else ''}[{where}], {value};\n"
    body += f"    st.global.{type_} [%d24], {old};\n" if opcode == "atom" else ""
    if space == "shared":
        body += f"    bar.sync 0;\n    @%p1 bra M;\n    ld.shared.{type_} {old}, [%r21]; st.global.{type_} [%d21], {old};\nM:\n"
    run(body, [memory, brought, seen], 32, declared=f".shared .align 8 .b8 tile[{16 * size}];")
    first, second = brought[:16], brought[16:]
    ways = [(COMBINED[name](COMBINED[name](start, a), b), COMBINED[name](start, a)) for a, b in ((first, second), (second, first))]
    if opcode == "red":
        assert all((memory == ways[0][0]) | (memory == ways[1][0]))
        return
    here, there = seen[:16], seen[16:]
    one = (memory == ways[0][0]) & (here == start) & (there == ways[0][1])
    other = (memory == ways[1][0]) & (there == start) & (here == ways[1][1])
    assert (one | other).all()

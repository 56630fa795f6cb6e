"""What NVIDIA's PTX ISA manual shows with several instructions or threads: sums and products of many words, scans by shuffles, votes,
matches, reductions, barriers, atomic operations, addressing, branches. Each against what the manual defines, in Python's integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx.faults import Unknown
from ptx_tools import evaluate, run

OWN = "    mul.wide.u32 %d20, %r0, 4; add.s64 %d20, %d0, %d20;\n"
LOAD, STORE = OWN + "    ld.global.u32 %r8, [%d20];\n", "    st.global.u32 [%d20], %r8;"


def each(body: str, values: Any, blocks: int = 1, **more: Any) -> Any:
    """Each thread's `%r8` behind the body, which begins with its element there (as a float32: `%f8`)."""
    x = np.ascontiguousarray(values).copy()
    run(LOAD + "    mov.b32 %f8, %r8;\n" + body + STORE, [x], x.size // blocks, blocks, **more)
    return x


def long_words(count: int, seed: int) -> Any:
    """Numbers of so many words of 32 bits, the corners among them."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2**32, (40, count), np.uint32)
    x[:4] = np.array([0, 0xFFFFFFFF, 1, 0x80000000], np.uint32)[:, None]
    return x


def whole(rows: Any) -> list[int]:
    return [sum(int(word) << 32 * k for k, word in enumerate(row)) for row in rows]


def on_words(lines: str, a: Any, b: Any, results: int) -> Any:
    """`lines` on the words %r10, %r11, ... of one number a lane and %r20, ... of another; the result's are %r30, ...."""
    made = np.zeros((len(a), results), np.uint32)
    body = ""
    for number, (x, first) in enumerate(((a, 10), (b, 20))):
        body += f"    mul.wide.u32 %d20, %r0, {4 * x.shape[1]}; add.s64 %d20, %d{number}, %d20;\n"
        body += "".join(f"    ld.global.u32 %r{first + k}, [%d20+{4 * k}];\n" for k in range(x.shape[1]))
    body += lines + f"    mul.wide.u32 %d20, %r0, {4 * results}; add.s64 %d20, %d2, %d20;\n"
    body += "".join(f"    st.global.u32 [%d20+{4 * k}], %r{30 + k};\n" for k in range(results))
    run(body, [a, b, made], len(a))
    return made


@pytest.mark.parametrize(("name", "sign"), [("add", 1), ("sub", -1)])
def test_extended_precision_sums_of_four_words(name: str, sign: int) -> None:
    a, b = long_words(4, 0), long_words(4, 1)
    a[4], b[4] = 0xFFFFFFFF, (1, 0, 0, 0)  # a carry that makes another one, through all words
    forms = (f"{name}.cc", f"{name}c.cc", f"{name}c.cc", f"{name}c")
    lines = "".join(f"    {form}.u32 %r{30 + k}, %r{10 + k}, %r{20 + k};\n" for k, form in enumerate(forms))
    found = whole(on_words(lines, a, b, 4))
    assert found == [(x + sign * y) % 2**128 for x, y in zip(whole(a), whole(b), strict=True)]


def test_extended_precision_products_of_two_words() -> None:
    """Four words, as the manual multiplies [r5, r4] by [r7, r6] with madc."""
    a, b = long_words(2, 2), long_words(2, 3)
    lines = """
    mul.lo.u32 %r30, %r10, %r20; mul.hi.u32 %r31, %r10, %r20;
    mad.lo.cc.u32 %r31, %r11, %r20, %r31; madc.hi.u32 %r32, %r11, %r20, 0;
    mad.lo.cc.u32 %r31, %r10, %r21, %r31; madc.hi.cc.u32 %r32, %r10, %r21, %r32; addc.u32 %r33, 0, 0;
    mad.lo.cc.u32 %r32, %r11, %r21, %r32; madc.hi.u32 %r33, %r11, %r21, %r33;
"""
    assert whole(on_words(lines, a, b, 4)) == [x * y for x, y in zip(whole(a), whole(b), strict=True)]


@pytest.mark.parametrize("amount", [0, 1, 7, 31])
def test_shifts_of_four_words(amount: int) -> None:
    """128 bits to the left, and to the right with their sign, by less than 32; and rotations of one word."""
    a = long_words(4, 4)
    left = "".join(f"    shf.l.clamp.b32 %r{30 + k}, %r{9 + k}, %r{10 + k}, {amount};\n" for k in (3, 2, 1))
    found = whole(on_words(left + f"    shl.b32 %r30, %r10, {amount};\n", a, a, 4))
    assert found == [(x << amount) % 2**128 for x in whole(a)]
    right = "".join(f"    shf.r.clamp.b32 %r{30 + k}, %r{10 + k}, %r{11 + k}, {amount};\n" for k in range(3))
    found = whole(on_words(right + f"    shr.s32 %r33, %r13, {amount};\n", a, a, 4))
    assert found == [((x - (x >> 127 << 128)) >> amount) % 2**128 for x in whole(a)]
    for way, count in (("l", amount), ("r", -amount % 32)):
        rotated = each(f"    shf.{way}.clamp.b32 %r8, %r8, %r8, {amount};\n", a[:, 0])
        assert rotated.tolist() == [(x << count | x >> (32 - count)) & 0xFFFFFFFF for x in a[:, 0].tolist()]


@pytest.mark.parametrize(
    ("mask", "base", "offset", "expected"),
    [(0xAAAAAAAA, 3, 1, 3), (0xAAAAAAAA, 3, -1, 3), (0xAAAAAAAA, 2, 1, 3), (0xAAAAAAAA, 2, -1, 1)],
)
def test_the_nth_bit_that_is_set(mask: int, base: int, offset: int, expected: int) -> None:
    """The manual's own four."""
    assert evaluate(f"fns.b32 d, a, {base}, {offset};", "u32", ("u32", [mask])) == expected


def test_masks_and_extensions_of_the_manual() -> None:
    assert evaluate("bmsk.wrap.b32 d, 1, 2;", "u32", ("u32", [0])) == 6
    assert evaluate("szext.wrap.u32 d, 0xffffffff, 0;", "u32", ("u32", [0])) == 0


@pytest.mark.parametrize("combine", ["and", "or"])
def test_logic_of_three_with_a_predicate(combine: str) -> None:
    """Whether the result is not 0, combined with another predicate; the result itself may be dropped."""
    a, b, c = (np.array(x, np.uint32) for x in ([0, 5, 0, 0xF0], [0, 3, 1, 0x0F], [0, 0, 2, 0]))
    for q in (0, 1):
        expected = [
            (int(x & y | z) != 0 and q) if combine == "and" else (int(x & y | z) != 0 or q) for x, y, z in zip(a, b, c, strict=True)
        ]
        for into in ("%r31", "_"):
            code = f"setp.eq.u32 %p1, {q}, 1; lop3.{combine}.b32 {into} | %p2, a, b, c, {0xF0 & 0xCC | 0xAA}, %p1; selp.u32 d, 1, 0, %p2;"
            assert evaluate(code, "u32", ("u32", a), ("u32", b), ("u32", c)).tolist() == expected


# --- warps ---------------------------------------------------------------------------------------------------------------------------

STEPS = (1, 2, 4, 8, 16)
VALUES = np.arange(1, 65, dtype=np.float32)


def shuffled(mode: str, amounts: tuple[int, ...], clamp: str, guarded: bool) -> str:
    """Sums with what each step of a shuffle brings: only from within the warp, where `guarded`."""
    guard = "@%p0 " if guarded else ""
    return "".join(
        f"    shfl.sync.{mode}.b32 %r9|%p0, %r8, {n}, {clamp}, 0xffffffff;\n    mov.b32 %f9, %r9;\n"
        f"    {guard}add.f32 %f8, %f9, %f8;\n    mov.b32 %r8, %f8;\n"
        for n in amounts
    )


def test_shfl_inclusive_scan_of_a_warp() -> None:
    found = each(shuffled("up", STEPS, "0x0", True), VALUES)
    np.testing.assert_array_equal(found, np.cumsum(VALUES.reshape(2, 32), axis=1).ravel())


def test_shfl_reverse_scan_of_a_warp() -> None:
    found = each(shuffled("down", STEPS, "0x1f", True), VALUES)
    np.testing.assert_array_equal(found, np.cumsum(VALUES.reshape(2, 32)[:, ::-1], axis=1)[:, ::-1].ravel())


def test_shfl_butterfly_sum_of_a_warp() -> None:
    found = each(shuffled("bfly", STEPS[::-1], "0x1f", False), VALUES)
    np.testing.assert_array_equal(found, np.repeat(VALUES.reshape(2, 32).sum(axis=1), 32))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shfl_as_defined(mode: str) -> None:
    """All lanes, offsets, clamps and segments of a few: the source lane and the predicate by the manual's formulas."""
    for offset, clamp, segment in itertools.product((0, 1, 7, 31, 40), (0, 5, 31), (0, 16, 24, 28, 31)):
        body = f"    shfl.sync.{mode}.b32 %r9|%p0, %r0, {offset}, {segment << 8 | clamp}, -1;\n    selp.u32 %r10, 100, 0, %p0;\n"
        found = each(body + "    add.u32 %r8, %r9, %r10;\n", np.zeros(32, np.uint32))
        expected = []
        for lane in range(32):
            b = offset & 31
            most, first = lane & segment | clamp & ~segment & 31, lane & segment
            j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": first | b & ~segment & 31}[mode]
            inside = j >= most if mode == "up" else j <= most
            expected.append((j if inside else lane) + 100 * inside)
        assert found.tolist() == expected, (offset, clamp, segment)


def test_votes_of_a_warp() -> None:
    odd = "    and.b32 %r9, %r0, 1; setp.eq.u32 %p0, %r9, 1;\n"
    none = np.zeros(32, np.uint32)
    for mode, expected in (("all", 0), ("any", 1), ("uni", 0)):
        found = each(odd + f"    vote.sync.{mode}.pred %p1, %p0, 0xffffffff;\n    selp.u32 %r8, 1, 0, %p1;\n", none)
        assert (found == expected).all()
    assert (each(odd + "    vote.sync.ballot.b32 %r8, %p0, 0xffffffff;\n", none) == 0xAAAAAAAA).all()
    assert (each("    activemask.b32 %r8;\n", none) == 0xFFFFFFFF).all()


LANE_MASKS: dict[str, Callable[[int], int]] = {
    "eq": lambda k: 1 << k,
    "lt": lambda k: (1 << k) - 1,
    "le": lambda k: (2 << k) - 1,
    "gt": lambda k: 0xFFFFFFFF & ~((2 << k) - 1),
    "ge": lambda k: 0xFFFFFFFF & ~((1 << k) - 1),
}


@pytest.mark.parametrize("which", LANE_MASKS)
def test_masks_of_lanes(which: str) -> None:
    found = each(f"    mov.u32 %r8, %lanemask_{which};\n", np.zeros(64, np.uint32))
    assert found.tolist() == [LANE_MASKS[which](k % 32) for k in range(64)]


@pytest.mark.parametrize(
    ("register", "expected"),
    [
        ("laneid", lambda k: k % 32), ("warpid", lambda k: k // 32), ("nwarpid", lambda k: 3), ("ntid.x", lambda k: 96),
        ("nctaid.x", lambda k: 2), ("dynamic_smem_size", lambda k: 64),
    ],
)  # fmt: skip
def test_special_registers(register: str, expected: Callable[[int], int]) -> None:
    found = each(f"    mov.u32 %r8, %{register};\n", np.zeros(192, np.uint32), blocks=2, shared_mem=64)
    assert found.tolist() == [expected(k) for k in range(96)] * 2


def test_activemask_of_a_branch() -> None:
    body = "    setp.ge.u32 %p0, %r0, 9;\n    @%p0 bra END;\n    activemask.b32 %r8;\nEND:\n"
    np.testing.assert_array_equal(each(body, np.zeros(32, np.uint32)), [0x1FF] * 9 + [0] * 23)


@pytest.mark.parametrize(
    ("form", "combine"),
    [
        ("add.s32", lambda x: sum(x)),
        ("min.s32", min),
        ("max.s32", max),
        ("add.u32", lambda x: sum(x)),
        ("min.u32", lambda x: min(k & 0xFFFFFFFF for k in x)),
        ("max.u32", lambda x: max(k & 0xFFFFFFFF for k in x)),
        ("and.b32", lambda x: np.bitwise_and.reduce(x)),
        ("or.b32", lambda x: np.bitwise_or.reduce(x)),
        ("xor.b32", lambda x: np.bitwise_xor.reduce(x)),
    ],
)
def test_redux_over_the_lanes_of_a_mask(form: str, combine: Callable[[Any], Any]) -> None:
    """The lower eight lanes by themselves, as in the manual's first example; the others by theirs."""
    values = np.random.default_rng(0).integers(-(2**31), 2**31, 32).astype(np.int32)
    body = f"    setp.lt.u32 %p0, %r0, 8; selp.u32 %r9, 0xff, 0xffffff00, %p0;\n    redux.sync.{form} %r8, %r8, %r9;\n"
    found = each(body, values)
    for part in (slice(0, 8), slice(8, 32)):
        wanted = int(combine([int(x) for x in values[part]])) & 0xFFFFFFFF
        assert (found[part].view(np.uint32) == wanted).all()


def test_match_by_value() -> None:
    keys = np.random.default_rng(1).integers(0, 4, 32).astype(np.uint32)
    found = each("    match.any.sync.b32 %r8, %r8, 0xffffffff;\n", keys)
    assert found.tolist() == [sum(1 << k for k in range(32) if keys[k] == key) for key in keys]
    for values, expected in ((np.full(32, 7, np.uint32), 1), (keys, 0)):
        body = "    match.all.sync.b32 %r9|%p0, %r8, 0xffffffff;\n    selp.u32 %r8, 1, 0, %p0;\n"
        assert (each(body, values) == expected).all()


# --- blocks and memory ---------------------------------------------------------------------------------------------------------------

TILE = ".shared .align 16 .b8 tile[1024];"


@pytest.mark.parametrize("barrier", ["bar.sync 0", "bar.sync 1", "barrier.sync 3", "bar.cta.sync 1", "barrier.cta.sync 0"])
def test_results_of_others_behind_a_barrier(barrier: str) -> None:
    """Each stores its own, and after the barrier loads another thread's."""
    body = f"""
    shl.b32 %r9, %r1, 2; mov.u32 %r10, tile; add.u32 %r9, %r9, %r10;
    st.shared.u32 [%r9], %r8;
    {barrier};
    xor.b32 %r11, %r1, 127; shl.b32 %r11, %r11, 2; add.u32 %r11, %r11, %r10;
    ld.shared.u32 %r8, [%r11];
"""
    x = np.arange(256, dtype=np.uint32)
    np.testing.assert_array_equal(each(body, x, blocks=2, declared=TILE), x.reshape(2, 128)[:, ::-1].ravel())


@pytest.mark.parametrize("prefix", ["bar.red", "bar.cta.red", "barrier.red", "barrier.cta.red"])
def test_reductions_at_a_barrier(prefix: str) -> None:
    x = np.random.default_rng(2).integers(0, 2, 192).astype(np.uint32)
    x[96:] = 1
    x[130] = 0  # of the second block all but one
    truth = "    setp.eq.u32 %p0, %r8, 1;\n"
    counts = x.reshape(2, 96).sum(axis=1)
    found = each(truth + f"    {prefix}.popc.u32 %r8, 1, %p0;\n", x, blocks=2)
    np.testing.assert_array_equal(found, np.repeat(counts, 96))
    for mode, expected in (("and", counts == 96), ("or", counts > 0)):
        body = truth + f"    {prefix}.{mode}.pred %p1, 1, %p0;\n    selp.u32 %r8, 1, 0, %p1;\n"
        np.testing.assert_array_equal(each(body, x, blocks=2), np.repeat(expected, 96))


ATOMIC: dict[str, Callable[[int, int], int]] = {
    "inc": lambda r, s: 0 if r >= s else r + 1,
    "dec": lambda r, s: s if r == 0 or r > s else r - 1,
    "add": lambda r, s: r + s,
    "min": min,
    "max": max,
    "and": lambda r, s: r & s,
    "or": lambda r, s: r | s,
    "xor": lambda r, s: r ^ s,
    "exch": lambda r, s: s,
}


@pytest.mark.parametrize("name", ATOMIC)
@pytest.mark.parametrize("scope", ["", ".gpu", ".sys", ".cta", ".relaxed.gpu", ".acq_rel.sys"])
def test_atomic_operations_of_one_thread_on_each_element(name: str, scope: str) -> None:
    """The result is what was there; what is there, the operation's."""
    given = [(r, s) for r in (0, 1, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF) for s in (0, 1, 5, 0x80000000, 0xFFFFFFFF)]
    r, s = (np.array(column, np.uint32) for column in zip(*given, strict=True))
    made = np.zeros_like(r)
    kind = "b32" if name in ("and", "or", "xor", "exch") else "u32"
    body = "".join(f"    mul.wide.u32 %d2{k}, %r0, 4; add.s64 %d2{k}, %d{k}, %d2{k};\n" for k in range(3))
    body += f"    ld.global.u32 %r8, [%d21];\n    atom{scope}.global.{name}.{kind} %r9, [%d20], %r8;\n    st.global.u32 [%d22], %r9;\n"
    memory = r.copy()
    run(body, [memory, s, made], r.size)
    np.testing.assert_array_equal(made, r)
    assert memory.tolist() == [ATOMIC[name](x, y) & 0xFFFFFFFF for x, y in given]


def test_compare_and_swap_of_each_element() -> None:
    x = np.array([1, 2, 3, 4], np.uint32)
    body = OWN + "    atom.global.cas.b32 %r8, [%d20], 3, 99;\n    add.u32 %r8, %r8, 0;\n"
    run(body, [x], 4)
    assert x.tolist() == [1, 2, 99, 4]


@pytest.mark.parametrize(("type_", "words"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_sums_of_halves_at_generic_addresses(type_: str, words: Any) -> None:
    """The result is what was there; the sum is rounded once."""
    x, y = (np.linspace(low, 3, 40).astype(words) for low in (-2, 0.1))
    made = np.zeros(40, words)
    body = "".join(f"    mul.wide.u32 %d2{k}, %r0, 2; add.s64 %d2{k}, %d{k}, %d2{k};\n" for k in range(3))
    body += f"    ld.global.b16 %h8, [%d21];\n    atom.add.noftz.{type_} %h9, [%d20], %h8;\n    st.global.b16 [%d22], %h9;\n"
    memory = x.copy()
    run(body, [memory.view(np.uint16), y.view(np.uint16), made.view(np.uint16)], 40)
    np.testing.assert_array_equal(made, x)
    np.testing.assert_array_equal(memory, (x.astype(np.float64) + y.astype(np.float64)).astype(words))


def test_compare_and_swap_of_64_bits_in_shared_memory() -> None:
    """Of all threads that offer their number in the place of 0, one is taken; the others see it."""
    body = """
    setp.ne.u32 %p0, %r1, 0; mov.u64 %d30, 0;
    @%p0 bra OFFER;
    st.shared.u64 [tile], %d30;
OFFER:
    bar.sync 0;
    add.u32 %r9, %r1, 5; cvt.u64.u32 %d31, %r9;
    atom.shared.cas.b64 %d32, [tile], %d30, %d31;
    cvt.u32.u64 %r8, %d32;
"""
    found = each(body, np.zeros(64, np.uint32), declared=TILE)
    assert (found == 0).sum() == 1
    assert (found[found != 0] == np.flatnonzero(found == 0)[0] + 5).all()


def test_sums_of_reals_keep_subnormals_in_shared_memory() -> None:
    """There they are not flushed to zero."""
    tiny = np.float32(2.0**-140)
    body = """
    setp.ne.u32 %p0, %r1, 0;
    @%p0 bra ADD;
    mov.u32 %r9, 0; st.shared.u32 [tile], %r9;
ADD:
    bar.sync 0;
    red.shared.add.f32 [tile], %f8;
    bar.sync 0;
    ld.shared.u32 %r8, [tile];
"""
    assert (each(body, np.full(8, tiny), declared=TILE) == 8 * tiny).all()


def test_addressing_modes() -> None:
    """A variable with an offset, a register with a negative one, an array's element, the address itself in a register."""
    body = """
    mov.u32 %r9, tile; st.shared.u32 [tile+8], %r8; add.u32 %r10, %r9, 16;
    ld.shared.u32 %r11, [%r10+-8];
    mov.u32 %r12, tile+8; ld.shared.u32 %r13, [%r12];
    add.u32 %r8, %r11, %r13;
"""
    assert each(body, np.array([21], np.uint32), declared=TILE) == 42


def test_vectors_in_shared_memory() -> None:
    body = """
    add.u32 %r9, %r8, 1; add.u32 %r10, %r8, 2; add.u32 %r11, %r8, 3; mov.u32 %r15, tile;
    st.shared.v4.b32 [%r15], {%r8, %r9, %r10, %r11};
    ld.shared.v2.b32 {%r12, %r13}, [%r15+8]; ld.shared.v4.b32 {%r16, %r17, %r18, %r19}, [tile];
    sub.u32 %r8, %r13, %r17;
"""
    assert each(body, np.array([5], np.uint32), declared=TILE) == 2


def test_volatile_accesses_of_64_bits() -> None:
    body = """
    shl.b32 %r9, %r1, 3; mov.u32 %r15, tile; add.u32 %r15, %r15, %r9; mov.b64 %d30, {0, %r8};
    st.volatile.shared.u64 [%r15], %d30; ld.volatile.shared.u64 %d31, [%r15]; mov.b64 {_, %r8}, %d31;
"""
    x = np.arange(64, dtype=np.uint32)
    np.testing.assert_array_equal(each(body, x, declared=TILE), x)


def test_which_space_an_address_is_of() -> None:
    for space, declared in (("shared", TILE), ("local", ".local .align 4 .b8 tile[16];")):
        body = f"    mov.u64 %d21, tile; cvta.{space}.u64 %d22, %d21;\n"
        for asked in ("shared", "local"):
            test = f"    isspacep.{asked} %p0, %d22;\n    selp.u32 %r8, 1, 0, %p0;\n"
            assert each(body + test, np.zeros(1, np.uint32), declared=declared) == (asked == space)
    assert each("    isspacep.global %p0, %d0;\n    selp.u32 %r8, 1, 0, %p0;\n", np.zeros(1, np.uint32)) == 1


# --- control -------------------------------------------------------------------------------------------------------------------------


def test_a_branch_by_index() -> None:
    body = """
    rem.u32 %r9, %r0, 3; setp.lt.u32 %p0, %r0, 12;
    @%p0 brx.idx %r9, PLACES;
    bra END;
PLACES: .branchtargets A, B, C;
A: mov.u32 %r8, 100; bra END;
B: mov.u32 %r8, 200; bra END;
C: mov.u32 %r8, 300;
END:
"""
    lane = np.arange(16)
    np.testing.assert_array_equal(each(body, lane.astype(np.uint32)), np.where(lane < 12, np.array([100, 200, 300])[lane % 3], lane))


def test_a_predicated_return() -> None:
    """`@p ret` ends a thread; `exit` all of it, in the kernel."""
    for word in ("ret", "exit"):
        found = each(f"    setp.lt.u32 %p0, %r0, 5;\n    @%p0 {word};\n    mov.u32 %r8, 7;\n", np.arange(8, dtype=np.uint32))
        assert found.tolist() == [0, 1, 2, 3, 4, 7, 7, 7]


@pytest.mark.parametrize(
    "form", ["add.f32x2", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "cp.async.ca.shared.global", "tex.2d.v4.f32.f32"]
)
def test_what_is_not_interpreted_is_named(form: str) -> None:
    with pytest.raises(Unknown, match=form.split(".")[0]):
        evaluate(f"{form} d, a, b;", "u32", ("u32", [1]), ("u32", [2]))

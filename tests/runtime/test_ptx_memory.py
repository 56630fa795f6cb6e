"""What the interpreter finds in memory: accesses that leave it, that are not aligned, that read what nobody wrote, and races; and the
atomic operations."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.faults import Misaligned, OutOfBounds, Race, Uninitialised
from ptx_tools import run

SHARED = ".shared .align 8 .b8 tile[128];"


def at(index: str, size: int = 4, base: str = "%d0", into: str = "%d20") -> str:
    return f"    mul.wide.s32 {into}, {index}, {size}; add.s64 {into}, {into}, {base};\n"


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize(
    "access",
    [
        "ld.global.u32 %r9, [%d20];",
        "st.global.u32 [%d20], 1;",
        "atom.global.add.u32 %r9, [%d20], 1;",
        "red.global.add.u32 [%d20], 1;",
        "ld.u32 %r9, [%d20];",
    ],
)
def test_one_element_out_of_bounds(access: str, shift: int) -> None:
    x, y = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    run(at("%r0") + access, [x, y])
    with pytest.raises(OutOfBounds, match="4 bytes"):
        run(f"    add.s32 %r8, %r0, {shift};\n" + at("%r8") + access, [x, y])


def test_the_last_part_of_a_vector_is_out_of_bounds() -> None:
    with pytest.raises(OutOfBounds):
        run(at("%r0", 8) + "ld.global.v2.u32 {%r8, %r9}, [%d20];", [np.zeros(63, np.uint32)])


def test_one_array_is_not_reached_from_another() -> None:
    """However far: 2^32 elements on, where an index of 32 bits wrapped."""
    with pytest.raises(OutOfBounds):
        run(
            at("%r0") + "    add.s64 %d20, %d20, 17179869184;\n    ld.global.u32 %r9, [%d20];",
            [np.zeros(32, np.uint32), np.zeros(32, np.uint32)],
        )


@pytest.mark.parametrize(
    "access",
    [
        "ld.global.u32 %r9, [%d20+2];",
        "st.global.u64 [%d20+4], %d0;",
        "ld.global.v2.u32 {%r8, %r9}, [%d20+4];",
        "ld.shared.u32 %r9, [%r8+2];",
    ],
)
def test_misaligned(access: str) -> None:
    with pytest.raises(Misaligned):
        run("    mov.u32 %r8, 0;\n" + at("%r0", 8) + access, [np.zeros(80, np.uint32)], declared=SHARED)


def test_null_is_nobodys() -> None:
    with pytest.raises(OutOfBounds):
        run("    mov.u64 %d20, 0;\n    ld.global.u32 %r9, [%d20];", [np.zeros(4, np.uint32)])


# --- shared and local memory ---------------------------------------------------------------------------------------------------------


def test_shared_memory_ends() -> None:
    body = "    shl.b32 %r8, %r1, 2;\n    st.shared.u32 [%r8], %r1;"
    run(body, [], 32, declared=SHARED)
    with pytest.raises(OutOfBounds, match="shared"):
        run(body, [], 33, declared=SHARED)


def test_one_shared_array_is_not_reached_from_another() -> None:
    with pytest.raises(OutOfBounds, match="between the variables"):
        run(
            "    mov.u32 %r8, a;\n    st.shared.u32 [%r8+64], %r1;",
            [],
            1,
            declared=".shared .align 4 .b8 a[64]; .shared .align 4 .b8 b[64];",
        )


def test_dynamic_shared_memory_has_the_size_of_the_launch() -> None:
    body, module = (
        "    mov.u32 %r8, dynamic;\n    mad.lo.s32 %r8, %r1, 4, %r8;\n    st.shared.u32 [%r8], %r1;",
        ".extern .shared .align 16 .b8 dynamic[];",
    )
    run(body, [], 32, module=module, shared_mem=128)
    with pytest.raises(OutOfBounds):
        run(body, [], 32, module=module, shared_mem=124)


UNWRITTEN = "    setp.eq.u32 %p0, %r1, 3;\n    @%p0 bra L;\n    mov.u32 %r9, 7;\nL:\n"
OWN = ".local .align 8 .b8 own[16];"
OUT = "    mul.wide.u32 %d20, %r1, 4; add.s64 %d20, %d0, %d20; st.global.u32 [%d20], %r8;\n"


def test_what_nobody_wrote() -> None:
    x = np.zeros(8, np.uint32)
    with pytest.raises(Uninitialised, match="shared"):
        run("    ld.shared.u32 %r8, [tile];", [], 1, declared=SHARED)
    with pytest.raises(Uninitialised, match="local"):
        run("    mov.u16 %h1, 3;\n    st.local.u16 [own], %h1;\n    ld.local.u32 %r8, [own];\n" + OUT, [x], 1, declared=OWN)
    with pytest.raises(Uninitialised, match="register %r9"):
        run(UNWRITTEN + "    add.u32 %r8, %r9, 1;\n" + OUT, [x], 8)
    run("    mov.u32 %r9, 0;\n" + UNWRITTEN + "    add.u32 %r8, %r9, 1;\n" + OUT, [x], 8)
    np.testing.assert_array_equal(x, [8, 8, 8, 1, 8, 8, 8, 8])


def test_what_nobody_wrote_does_not_matter_where_all_comes_out_the_same() -> None:
    """Compilers read it where another condition holds anyway: here thread 3 is the one that leaves."""
    x = np.arange(8, dtype=np.uint32)
    body = UNWRITTEN + "    setp.eq.u32 %p1, %r9, 5; or.pred %p2, %p0, %p1;\n    @%p2 bra E;\n    mov.u32 %r8, 9;\n" + OUT + "E:"
    run(body, [x], 8)
    np.testing.assert_array_equal(x, [9, 9, 9, 3, 9, 9, 9, 9])
    with pytest.raises(Uninitialised, match="register %r9"):
        run(body.replace("or.pred %p2, %p0, %p1", "mov.pred %p2, %p1").replace("%r9, 5", "%r9, 0"), [x], 8)


def test_what_is_put_aside_of_what_nobody_wrote() -> None:
    """Neither the store matters nor, where the place is written again, what is read from there; else it does."""
    x = np.zeros(8, np.uint32)
    body = UNWRITTEN + "    st.local.u32 [own], %r9;\n"
    load = "    ld.local.u32 %r8, [own];\n" + OUT
    run(body, [x], 8, declared=OWN)
    run(body + "    st.local.u32 [own], 5;\n" + load, [x], 8, declared=OWN)
    assert (x == 5).all()
    for wrong in (body + load, UNWRITTEN + OUT.replace("%r8", "%r9"), UNWRITTEN + "    st.local.u32 [%r9], 1;"):
        with pytest.raises(Uninitialised, match="register %r9"):
            run(wrong, [x], 8, declared=OWN)


def test_a_wide_load_brings_what_nobody_asked_for() -> None:
    """Of a vector's elements those count that are read."""
    body = "    st.local.u32 [own], 4;\n    ld.local.v2.u32 {%r9, %r10}, [own];\n    add.u32 %r11, %r9, 1;\n"
    run(body, [], 1, declared=OWN)
    with pytest.raises(Uninitialised, match="local memory at 4"):
        run(body + "    add.u32 %r8, %r10, 1;\n" + OUT, [np.zeros(1, np.uint32)], 1, declared=OWN)


def test_local_memory_is_a_threads_own() -> None:
    x = np.zeros(64, np.uint32)
    body = "    st.local.u32 [own+4], %r0;\n    ld.local.u32 %r8, [own+4];\n" + at("%r0") + "    st.global.u32 [%d20], %r8;"
    run(body, [x], 32, 2, declared=".local .align 4 .b8 own[8];")
    np.testing.assert_array_equal(x, np.arange(64))


def test_generic_addresses_know_their_space() -> None:
    """Odd threads to local memory, even ones to global memory, through one instruction."""
    x = np.arange(32, dtype=np.uint32)
    body = (
        at("%r0")
        + """
    mov.u64 %d21, own; cvta.local.u64 %d21, %d21;
    mov.u32 %r8, 77; st.u32 [%d21], %r8;
    and.b32 %r9, %r0, 1; setp.eq.u32 %p0, %r9, 1;
    selp.b64 %d22, %d21, %d20, %p0;
    ld.u32 %r10, [%d22];
    st.global.u32 [%d20], %r10;"""
    )
    run(body, [x], 32, declared=".local .align 4 .b8 own[8];")
    np.testing.assert_array_equal(x, np.where(np.arange(32) % 2, 77, np.arange(32)))


def test_variables_of_the_module() -> None:
    x = np.zeros(4)
    module = ".const .align 8 .f64 table[3] = {0d3FF0000000000000, 0d4000000000000000};\n.global .align 4 .b8 raw[4] = {1, 2, 3, 4};"
    body = at("%r0", 8) + at("%r0", 8, "%d9", "%d21") + "    ld.const.f64 %g0, [%d21];\n    st.global.f64 [%d20], %g0;"
    run("    mov.u64 %d9, table;\n" + body, [x], 3, module=module)
    np.testing.assert_array_equal(x, [1, 2, 0, 0])
    y = np.zeros(1, np.uint32)
    run("    ld.global.u32 %r8, [raw];\n    st.global.u32 [%d0], %r8;", [y], 1, module=module)
    assert y[0] == 0x04030201


# --- races ---------------------------------------------------------------------------------------------------------------------------

MINE = "    shl.b32 %r8, %r1, 2; mov.u32 %r9, tile; add.u32 %r8, %r9, %r8;\n"  # the address of an own element
NEXT = "    add.u32 %r10, %r1, {0}; rem.u32 %r10, %r10, %r3; shl.b32 %r10, %r10, 2; add.u32 %r10, %r9, %r10;\n"  # and of another's
STORE, LOAD = "    st.shared.u32 [%r8], %r1;\n", "    ld.shared.u32 %r11, [%r10];\n"
BARRIER, WARP_BARRIER = "    bar.sync 0;\n", "    bar.warp.sync 0xffffffff;\n"
WIDE = ".shared .align 8 .b8 tile[512];"


def passes(body: str, threads: int = 64, blocks: int = 2) -> None:
    run(MINE + body, [], threads, blocks, declared=WIDE)


def races(body: str, threads: int = 64) -> None:
    with pytest.raises(Race):
        passes(body, threads)


def test_a_barrier_is_between() -> None:
    passes(STORE + BARRIER + NEXT.format(1) + LOAD)
    passes(STORE + BARRIER + NEXT.format(1) + LOAD + BARRIER + STORE)
    races(STORE + NEXT.format(1) + LOAD)
    races(STORE + BARRIER + NEXT.format(1) + LOAD + STORE)


def test_two_write_one_place() -> None:
    """Different values; one value is no race, unless somebody then reads it."""
    races("    mov.u32 %r8, tile;\n" + STORE)
    races("    mov.u32 %r8, tile;\n    and.b32 %r12, %r1, 1;\n    st.shared.u32 [%r8], %r12;\n")
    same = "    mov.u32 %r8, tile;\n    mov.u32 %r12, 5;\n    st.shared.u32 [%r8], %r12;\n"
    passes(same)
    passes(same + BARRIER + "    ld.shared.u32 %r11, [tile];\n")
    races(same + "    ld.shared.u32 %r11, [tile];\n")


def test_a_wide_access_meets_a_narrow_one() -> None:
    wide = "    shl.b32 %r12, %r1, 3; add.u32 %r12, %r9, %r12; st.shared.u64 [%r12], %d5;\n"
    body = (
        "    mov.u64 %d5, 9;\n    setp.gt.u32 %p0, %r1, 20;\n    @%p0 bra OUT;\n" + wide + "{0}" + "    ld.shared.u8 %h1, [%r9+13];\nOUT:\n"
    )
    races(body.format(""), 20)
    passes(body.format("    bar.sync 0;\n"), 20)


@pytest.mark.parametrize(("distance", "ordered"), [(1, True), (32, False)])
def test_a_warp_barrier_orders_a_warp(distance: int, ordered: bool) -> None:
    """With two warps: threads of one with each other (their neighbours within 32), not with the other's."""
    other = f"    xor.b32 %r10, %r1, {distance}; shl.b32 %r10, %r10, 2; add.u32 %r10, %r9, %r10;\n"
    races(STORE + other + LOAD)
    (passes if ordered else races)(STORE + WARP_BARRIER + other + LOAD)


def test_atomics_do_not_race_with_each_other() -> None:
    clear = "    setp.eq.u32 %p0, %r1, 0;\n    @!%p0 bra L;\n    st.shared.u32 [tile], %r1;\nL:\n"
    add = "    atom.shared.add.u32 %r11, [tile], 1;\n"
    passes(clear + BARRIER + add + add + BARRIER + "    ld.shared.u32 %r12, [tile];\n")
    races(clear + add)
    races(clear + BARRIER + add + "    ld.shared.u32 %r12, [tile];\n")


@pytest.mark.parametrize(
    ("load", "races_"), [("ld.volatile.shared.u32", False), ("ld.relaxed.cta.shared.u32", False), ("ld.shared.u32", True)]
)
def test_a_strong_read_does_not_race_with_atomics(load: str, races_: bool) -> None:
    """But with a plain store it does, on either side of it."""
    clear = "    setp.eq.u32 %p0, %r1, 0;\n    @!%p0 bra L;\n    st.shared.u32 [tile], %r1;\nL:\n"
    look, add = f"    {load} %r12, [tile];\n", "    atom.shared.add.u32 %r11, [tile], 1;\n"
    for body in (add + look, look + add):
        (races if races_ else passes)(clear + BARRIER + body)
    store = "    st.shared.u32 [tile], %r12;\n"
    races(clear + look)
    races(clear + BARRIER + look + store.replace("%r12", "%r1"))
    alone = "    setp.ne.u32 %p1, %r1, 40;\n    @%p1 bra M;\n" + store.replace("%r12", "%r1") + "M:\n"
    races(clear + BARRIER + look + alone)
    strong = "    st.volatile.shared.u32 [tile], %r1;\n"
    passes(clear + BARRIER + strong + add)
    races(clear + BARRIER + strong + "    ld.shared.u32 %r11, [tile];\n")


def test_a_race_between_two_visits() -> None:
    """A tile that is filled again before all have read it."""
    loop = (
        "    mov.u32 %r20, 0;\nLOOP:\n{0}    st.shared.u32 [%r8], %r20;\n    bar.sync 0;\n"
        + NEXT.format(1)
        + LOAD
        + """
    add.u32 %r20, %r20, 1; setp.lt.u32 %p1, %r20, 3;
    @%p1 bra LOOP;
"""
    )
    races(loop.format(""))
    passes(loop.format("    bar.sync 0;\n"))


# --- atomics -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["global", "shared"])
def test_each_atomic_sees_what_was_before(space: str) -> None:
    """Results of additions of ones are all different."""
    x, y = np.zeros(100, np.uint32), np.zeros(1, np.uint32)
    if space == "global":
        body = "    atom.global.add.u32 %r8, [%d1], 1;\n"
    else:
        body = "    setp.ne.u32 %p0, %r1, 0;\n    @%p0 bra L;\n    st.shared.u32 [tile], %r1;\nL:\n"
        body += "    bar.sync 0;\n    atom.shared.add.u32 %r8, [tile], 1;\n"
    run(body + at("%r0") + "    st.global.u32 [%d20], %r8;", [x, y], 100, declared=SHARED)
    np.testing.assert_array_equal(np.sort(x), np.arange(100))
    assert y[0] == (100 if space == "global" else 0)


@pytest.mark.parametrize(
    ("operation", "start", "expected"),
    [
        ("min.s32", 5, -3),
        ("max.s32", -9, 28),
        ("min.u32", 5, 0),
        ("and.b32", -1, 0),
        ("or.b32", 0, -1),
        ("xor.b32", 3, 19),
        ("inc.u32", 0, None),
        ("add.s32", 7, 407),
    ],
)
def test_reductions_into_one_element(operation: str, start: int, expected: int | None) -> None:
    """With -3 ... 28, each once."""
    x = np.array([start], np.int32)
    run(f"    sub.s32 %r8, %r0, 3;\n    red.global.{operation} [%d0], %r8;", [x], 32)
    values = np.arange(-3, 29, dtype=np.int32)
    wanted = {
        "and.b32": int(np.bitwise_and.reduce(values)),
        "or.b32": int(np.bitwise_or.reduce(values)),
        "xor.b32": int(3 ^ np.bitwise_xor.reduce(values)),
        "inc.u32": _incremented(values),
    }.get(operation, expected)
    assert x[0] == wanted


def _incremented(values: np.ndarray) -> int:
    old = 0
    for most in values.astype(np.uint32).tolist():
        old = 0 if old >= most else old + 1
    return old


def test_sums_of_reals_and_of_halves() -> None:
    x, y, h = np.zeros(1, np.float32), np.zeros(1), np.zeros(2, np.float16)
    body = """
    cvt.rn.f32.u32 %f1, %r0; red.global.add.f32 [%d0], %f1;
    cvt.rn.f64.u32 %g1, %r0; atom.global.add.f64 %g2, [%d1], %g1;
    mov.u16 %h1, 0x3C00; red.global.add.noftz.f16 [%d2+2], %h1;"""
    run(body, [x, y, h], 64)
    assert (x[0], y[0], h[0], h[1]) == (2016, 2016, 0, 64)


def test_compare_and_swap_takes_the_first() -> None:
    x, y = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    run(
        "    add.u32 %r8, %r0, 1;\n    atom.global.cas.b32 %r9, [%d0], 0, %r8;\n" + at("%r0", 4, "%d1") + "    st.global.u32 [%d20], %r9;",
        [x, y],
        64,
    )
    assert (y == 0).sum() == 1 and x[0] == np.flatnonzero(y == 0)[0] + 1
    assert (y[y != 0] == x[0]).all()


def test_a_sum_by_compare_and_swap() -> None:
    """The loop that CUDA's guide gives for sums that a device lacks."""
    x = np.zeros(1)
    body = """
    ld.global.u64 %d10, [%d0];
LOOP:
    mov.b64 %g0, %d10; add.f64 %g1, %g0, 0d3FF0000000000000; mov.b64 %d11, %g1;
    atom.global.cas.b64 %d12, [%d0], %d10, %d11;
    setp.ne.u64 %p0, %d12, %d10;
    mov.u64 %d10, %d12;
    @%p0 bra LOOP;"""
    run(body, [x], 64, 2)
    assert x[0] == 128

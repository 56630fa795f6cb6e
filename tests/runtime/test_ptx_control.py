"""The interpreter's control flow: divergence and reconvergence, barriers, warp operations, calls, and the reading of texts."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptx import machine
from ptx.faults import Diverged, Endless, Undefined, Unknown
from ptx.parser import parse
from ptx_tools import HEADER, Device, cuda, run

OWN = "    mul.wide.s32 %d20, %r0, 4; add.s64 %d20, %d20, %d0;\n"
KEEP = OWN + "    st.global.u32 [%d20], %r9;"


def kept(body: str, threads: int = 64, blocks: int = 1, **more: Any) -> Any:
    """What each thread left in `%r9`."""
    x = np.zeros(threads * blocks, np.uint32)
    run(body + KEEP, [x], threads, blocks, **more)
    return x


def test_lanes_meet_again() -> None:
    """Behind a branch that half of the threads take, and loops of different lengths, all are together."""
    body = """
    and.b32 %r8, %r0, 1; setp.eq.u32 %p0, %r8, 0; mov.u32 %r9, 0;
    @%p0 bra EVEN;
    mov.u32 %r10, 0;
LOOP:
    add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, %r0;
    @%p1 bra LOOP;
EVEN:
    activemask.b32 %r9;
"""
    assert (kept(body) == 0xFFFFFFFF).all()


def test_guarded_instructions() -> None:
    found = kept("    mov.u32 %r9, 7; setp.lt.u32 %p0, %r0, 10;\n    @%p0 mov.u32 %r9, 1;\n    @!%p0 add.u32 %r9, %r9, %r0;\n")
    np.testing.assert_array_equal(found, np.where(np.arange(64) < 10, 1, 7 + np.arange(64)))


def test_a_table_of_branches() -> None:
    body = """
    rem.u32 %r8, %r0, 3;
    brx.idx %r8, TABLE;
TABLE: .branchtargets A, B, C;
A: mov.u32 %r9, 10; bra END;
B: mov.u32 %r9, 20; bra END;
C: mov.u32 %r9, 30;
END:
"""
    np.testing.assert_array_equal(kept(body), np.array([10, 20, 30])[np.arange(64) % 3])


def test_threads_that_left_are_not_waited_for() -> None:
    found = kept("    mov.u32 %r9, 1;\n    setp.gt.u32 %p0, %r1, 40;\n    @%p0 ret;\n    bar.sync 0;\n", 64, 2)
    np.testing.assert_array_equal(found, np.tile(np.arange(64) <= 40, 2))


def test_a_barrier_that_some_do_not_reach() -> None:
    """Threads of a block at two barriers; and at one that the others pass by, which then wait elsewhere for ever."""
    with pytest.raises(Diverged, match="different barriers"):
        run("    setp.gt.u32 %p0, %r1, 40;\n    @%p0 bra A;\n    bar.sync 0;\n    bra.uni END;\nA:\n    bar.sync 0;\nEND:\n", [], 64)


def test_blocks_wait_by_themselves() -> None:
    """The second block passes one barrier more."""
    body = "    setp.eq.u32 %p0, %r2, 0;\n    @%p0 bra END;\n    bar.sync 0;\nEND:\n    bar.sync 0;\n    mov.u32 %r9, %r2;\n"
    np.testing.assert_array_equal(kept(body, 32, 2), np.repeat([0, 1], 32))


def test_loops_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "STEPS", 1000)
    with pytest.raises(Endless):
        run("LOOP:\n    bra LOOP;\n", [], 1)


def test_lanes_that_wait_for_another_let_it_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thread sets a flag behind the loop in which the others look at it: with the lowest block first it never came to that."""
    monkeypatch.setattr(machine, "PATIENCE", 100)
    body = """
    mov.u32 %r9, 5; setp.eq.u32 %p0, %r0, 0;
    @%p0 bra SET;
LOOP:
    ld.volatile.global.u32 %r8, [%d0+256]; setp.eq.u32 %p1, %r8, 0;
    @%p1 bra LOOP;
    bra.uni END;
SET:
    mov.u32 %r8, 1; st.volatile.global.u32 [%d0+256], %r8;
END:
"""
    x = np.zeros(65, np.uint32)
    run(body + KEEP, [x], 64)
    assert (x[:64] == 5).all()


def test_a_trap() -> None:
    with pytest.raises(Undefined, match="trap"):
        run("    setp.eq.u32 %p0, %r0, 9;\n    @!%p0 bra END;\n    trap;\nEND:\n", [], 32)


# --- warps ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [32, 64])
@pytest.mark.parametrize("width", [32, 16, 4])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode: str, width: int, threads: int) -> None:
    """As CUDA's __shfl functions of a width, whose last operand is (32 - width) << 8, with 31 below for all but `up`."""
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    for offset in (0, 1, 3, width - 1):
        body = f"    shfl.sync.{mode}.b32 %r9|%p0, %r0, {offset}, {clamp}, -1;\n    @!%p0 add.u32 %r9, %r9, 1000;\n"
        lane, segment = np.arange(threads) % width, np.arange(threads) // width * width
        wanted = {"up": lane - offset, "down": lane + offset, "bfly": lane ^ offset, "idx": np.full(threads, offset)}[mode]
        inside = (wanted >= 0) & (wanted < width)
        np.testing.assert_array_equal(kept(body, threads), segment + np.where(inside, wanted, lane) + np.where(inside, 0, 1000))


def test_a_lane_that_its_mask_does_not_name() -> None:
    with pytest.raises(Diverged, match="mask does not name"):
        run("    shfl.sync.down.b32 %r9|%p0, %r0, 1, 31, 0x7fffffff;\n", [], 32)


def test_lanes_that_a_mask_names_are_waited_for() -> None:
    """Half of them comes later, from a branch; if they never come, nobody goes on."""
    branch = """
    setp.lt.u32 %p0, %r1, 16;
    @%p0 bra FIRST;
    mov.u32 %r8, %r0;
    bra.uni MEET;
FIRST:
    add.u32 %r8, %r0, 100;
MEET:
    shfl.sync.bfly.b32 %r9|%p1, %r8, 16, 31, -1;
"""
    lanes = np.arange(32)
    np.testing.assert_array_equal(kept(branch, 32), (lanes ^ 16) + np.where((lanes ^ 16) < 16, 100, 0))
    early = """
    setp.lt.u32 %p0, %r1, 16;
    @%p0 bra SECOND;
    vote.sync.ballot.b32 %r9, %p0, -1;
    bra.uni END;
SECOND:
    bar.sync 0;
END:
"""
    with pytest.raises(Diverged):
        run(early, [], 32)


def test_lanes_that_have_left_are_not_waited_for() -> None:
    """Whatever the mask says: of 32 lanes it names, 12 are left."""
    leave = "    mov.u32 %r9, 0;\n    setp.ge.u32 %p0, %r1, 12;\n    @%p0 bra END;\n"
    vote = "    vote.sync.ballot.b32 %r9, 1, -1;\n"
    x = np.zeros(32, np.uint32)
    run(leave + vote + KEEP + "\n    ret;\nEND:\n", [x], 32)
    np.testing.assert_array_equal(x, [0xFFF] * 12 + [0] * 20)


def test_what_a_lane_outside_gives_is_anything() -> None:
    """Threads beyond the block's end give no number that could pass for one."""
    found = kept("    shfl.sync.down.b32 %r9|%p0, %r0, 8, 31, 0xffff;\n", 16)
    np.testing.assert_array_equal(found[:8], np.arange(8, 16))
    assert np.isnan(found[8:].view(np.float32)).all()


def test_votes() -> None:
    odd = "    and.b32 %r8, %r1, 1; setp.eq.u32 %p0, %r8, 1;\n"
    assert (kept(odd + "    vote.sync.ballot.b32 %r9, %p0, -1;\n") == 0xAAAAAAAA).all()
    assert (kept(odd + "    vote.sync.ballot.b32 %r9, !%p0, -1;\n") == 0x55555555).all()
    few = "    setp.gt.u32 %p0, %r1, 35;\n"
    for mode, expected in (("any", (0, 1)), ("all", (0, 0)), ("uni", (1, 0))):
        found = kept(few + f"    vote.sync.{mode}.pred %p1, %p0, -1;\n    selp.u32 %r9, 1, 0, %p1;\n")
        np.testing.assert_array_equal(found, np.repeat(expected, 32), err_msg=mode)
    quarter = "    and.b32 %r10, %r1, 28; mov.u32 %r11, 15; shl.b32 %r11, %r11, %r10;\n"
    np.testing.assert_array_equal(
        kept(odd + quarter + "    vote.sync.ballot.b32 %r9, %p0, %r11;\n", 32), np.repeat(0b1010 << np.arange(0, 32, 4), 4)
    )


def test_matches_and_reductions_of_warps() -> None:
    third = "    rem.u32 %r8, %r1, 3;\n"
    found = kept(third + "    match.any.sync.b32 %r9, %r8, -1;\n", 32)
    np.testing.assert_array_equal(found, [sum(1 << k for k in range(32) if k % 3 == lane % 3) for lane in range(32)])
    assert (kept("    mov.u32 %r8, 4;\n    match.all.sync.b32 %r9|%p0, %r8, -1;\n", 32) == 0xFFFFFFFF).all()
    assert (kept(third + "    match.all.sync.b32 %r9|%p0, %r8, -1;\n", 32) == 0).all()
    np.testing.assert_array_equal(kept("    redux.sync.add.u32 %r9, %r0, -1;\n"), np.repeat([496, 1520], 32))
    np.testing.assert_array_equal(kept("    redux.sync.max.s32 %r9, %r0, -1;\n"), np.repeat([31, 63], 32))


def test_reductions_at_barriers() -> None:
    few = "    setp.gt.u32 %p0, %r1, 35;\n"
    assert (kept(few + "    bar.red.popc.u32 %r9, 0, %p0;\n") == 28).all()
    assert (kept(few + "    bar.red.and.pred %p1, 0, %p0;\n    selp.u32 %r9, 1, 0, %p1;\n") == 0).all()
    assert (kept(few + "    bar.red.or.pred %p1, 0, %p0;\n    selp.u32 %r9, 1, 0, %p1;\n") == 1).all()


def test_where_a_thread_is() -> None:
    x = np.zeros((2 * 3 * 4 * 2 * 3, 6), np.uint32)
    text = """extern "C" __global__ void k(unsigned* x) {
        unsigned block = blockIdx.x + gridDim.x * blockIdx.y, thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        unsigned* own = x + 6 * (block * 24 + thread);
        own[0] = threadIdx.x; own[1] = threadIdx.y; own[2] = threadIdx.z; own[3] = blockIdx.x; own[4] = blockIdx.y;
        asm("mov.u32 %0, %%laneid;" : "=r"(own[5]));
    }"""
    cuda(text, "k", (2, 3), (2, 3, 4), [x])
    expected = [
        (a, b, c, p, q, (a + 2 * (b + 3 * c)) % 32)
        for q in range(3)
        for p in range(2)
        for c in range(4)
        for b in range(3)
        for a in range(2)
    ]
    np.testing.assert_array_equal(x, expected)


# --- calls ---------------------------------------------------------------------------------------------------------------------------


def test_calls() -> None:
    """Of functions that are not inlined, by some of the threads, with addresses of their variables and results of two sizes."""
    text = """
    struct Two { double a; int b; };
    __device__ __noinline__ Two halve(const float* values, int n) {
        Two r = {0.0, n};
        for (int k = 0; k < n; ++k) r.a += values[k] / 2;
        return r;
    }
    extern "C" __global__ void k(double* x) {
        int i = threadIdx.x;
        float own[4];
        for (int k = 0; k < 4; ++k) own[k] = i + k;
        if (i % 3) { Two r = halve(own, i % 4 + 1); x[i] = r.a + r.b; }
    }"""
    x = np.zeros(32)
    cuda(text, "k", 1, 32, [x])
    expected = [sum((i + k) / 2 for k in range(i % 4 + 1)) + i % 4 + 1 if i % 3 else 0 for i in range(32)]
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("how", ["call", "call.uni"])
def test_a_call_hands_over_parameters(how: str) -> None:
    """By value, lane by lane: of the odd threads only."""
    function = """.func (.param .b32 r) twice(.param .b64 p, .param .b32 q) {
    .reg .b64 %a; .reg .b32 %b<4>;
    ld.param.u64 %a, [p]; ld.param.u32 %b0, [q];
    ld.global.u32 %b1, [%a]; mul.lo.u32 %b2, %b1, %b0;
    st.param.b32 [r], %b2;
    ret;
}"""
    x = np.arange(40, dtype=np.uint32)
    body = f"""
    and.b32 %r8, %r0, 1; setp.eq.u32 %p0, %r8, 0;
    @%p0 bra END;
    mul.wide.u32 %d20, %r0, 4; add.s64 %d20, %d0, %d20;
    {{
    .param .b64 one; .param .b32 other; .param .b32 made;
    st.param.b64 [one], %d20; st.param.b32 [other], %r0;
    {how} (made), twice, (one, other);
    ld.param.b32 %r9, [made];
    }}
    st.global.u32 [%d20], %r9;
END:"""
    run(body, [x], 40, module=function)
    number = np.arange(40)
    np.testing.assert_array_equal(x, np.where(number % 2, number * number, number))


@pytest.mark.parametrize("size", [1.0, 1e5, 1e9, 1e22, 1e300])
def test_the_compilers_own_functions(size: float) -> None:
    """Sines of large numbers call a function that reduces them, on 192 digits of 2 / pi."""
    x = np.random.default_rng(0).normal(size=200) * size
    y, z = np.zeros_like(x), np.zeros(200, np.float32)
    text = """extern "C" __global__ void k(const double* x, double* y, float* z) {
        int i = threadIdx.x;
        y[i] = sin(x[i]);
        z[i] = expf(-fabsf((float)x[i]) / 50);
    }"""
    cuda(text, "k", 1, 200, [x, y, z])
    np.testing.assert_allclose(y, np.sin(x), rtol=1e-14, atol=1e-15)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_allclose(z, np.exp(-np.abs(x.astype("f4").astype("f8")) / 50), rtol=1e-6, atol=1e-37)


# --- texts ---------------------------------------------------------------------------------------------------------------------------


def test_scopes_have_registers_of_their_own() -> None:
    found = kept("    mov.u32 %r9, 5;\n    {\n    .reg .u32 %r9;\n    mov.u32 %r9, 6;\n    }\n")
    assert (found == 5).all()


@pytest.mark.parametrize(
    "text", [".surprise;", ".visible .entry k() { .surprise 3; ret; }", ".global .b128 x;", ".visible .entry k() { mov.u32 %r1, 2; ret; }"]
)
def test_texts_that_are_not_known(text: str) -> None:
    with pytest.raises(Unknown):
        Device().launch(HEADER + text, "k", 1, 1, [])


def test_initial_values_and_linkage() -> None:
    module = parse(
        HEADER + ".visible .global .align 8 .u64 a[2] = {1, 0xFF};\n.extern .shared .align 4 .b8 s[];\n.const .f32 c = 0f3F800000;"
    )
    assert module.variables["a"].values == (1, 255) and module.variables["a"].size == 16
    assert module.variables["s"].size == 0 and module.variables["c"].space == "const"


def test_it_shares_no_code_with_what_it_checks() -> None:
    """The interpreter needs Python's library and NumPy, nothing of gpuad."""
    found = set()
    for file in Path(machine.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add((node.module or "").partition(".")[0])
    assert found - {"numpy"} <= sys.stdlib_module_names

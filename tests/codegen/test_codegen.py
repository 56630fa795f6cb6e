"""The CUDA text: what a programmer would have written, and the same program as the IR."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from ir_tools import buffer, call, const, f32, index, kernel, op, unsigned_index, var

from gpuad.codegen import cuda_source, host_source
from gpuad.codegen.folded import fold
from gpuad.codegen.scopes import wrap
from gpuad.codegen.spelling import literal
from gpuad.errors import UnsupportedError
from gpuad.ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Barrier,
    Buffer,
    Carried,
    Cast,
    Constant,
    Expr,
    For,
    How,
    If,
    Kernel,
    LaunchIndex,
    Let,
    Load,
    Merge,
    Push,
    Select,
    Shuffle,
    Stack,
    Stmt,
    Store,
    Take,
    Unary,
    Var,
    While,
)
from gpuad.ir.types import BF16, BOOL, F32, F64, I8, I32, I64, U8, U32, U64, Scalar, Space

u, v, x, dx, da = (buffer(name) for name in ("u", "v", "x", "dx", "da"))
n, i = var("n", I32), var("i", I32)
a, b = var("a"), var("b")


def body_of(*stmts: Stmt, params: tuple[Var | Buffer, ...] = (u, v, x, dx, da, n, i, a, b)) -> str:
    """The lines between the kernel's braces, without the common indentation."""
    text = cuda_source([Kernel("k", params, stmts)])
    inner = text[text.index("\n{\n", text.index("void k(")) + 3 : text.rindex("\n}")]
    return "\n".join(line[4:] for line in inner.splitlines())


def expression(expr: Expr) -> str:
    """How an expression prints."""
    t = expr.type
    out = buffer("out", t)
    text = body_of(Store(out, const(0), expr), params=(u, v, out, n, i, a, b))
    return text.removeprefix("out[0] = ").removesuffix(";")


# --- expressions ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (op("+", op("*", a, b), a), "a * b + a"),
        (op("*", op("+", a, b), a), "(a + b) * a"),
        (op("-", a, op("-", b, a)), "a - (b - a)"),
        (op("-", op("-", a, b), a), "a - b - a"),
        (op("+", a, op("+", b, a)), "a + (b + a)"),
        (op("/", a, op("*", b, a)), "a / (b * a)"),
        (op("-", a, f32(-1)), "a - (-1.0f)"),
        (Unary("-", Unary("-", a, F32), F32), "-(-a)"),
        (Unary("-", f32(-2), F32), "-(-2.0f)"),
        (Unary("-", op("*", a, b), F32), "-(a * b)"),
        (op("||", op("&&", op("<", a, b), op("<", b, a)), op("==", a, b)), "(a < b && b < a) || a == b"),
        (Unary("!", op("<", a, b), BOOL), "!(a < b)"),
        (Select(op("<", a, b), a, Select(op("<", b, a), b, f32(0))), "a < b ? a : b < a ? b : 0.0f"),
        (op("*", Select(op("<", a, b), a, b), a), "(a < b ? a : b) * a"),
        (op("+", op("<<", n, const(2)), i), "(n << 2) + i"),
        (op("<<", op("+", n, i), const(2)), "(n + i) << 2"),
        (op("&", op("+", n, i), const(3)), "n + i & 3"),
        (op("|", op("&", n, i), const(3)), "(n & i) | 3"),
        (call("sin", op("+", a, b)), "sinf(a + b)"),
        (call("sin", Cast(a, F64)), "sin((double)a)"),
        (call("max", n, i), "max(n, i)"),
        (call("popc", Cast(n, U64)), "__popcll((unsigned long long)n)"),
        (call("mulhi", Cast(n, U32), Cast(i, U32)), "__umulhi((unsigned int)n, (unsigned int)i)"),
    ],
)  # fmt: skip
def test_expressions_have_the_parentheses_they_need(expr: Expr, text: str) -> None:
    assert expression(expr) == text


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (op("*", Cast(n, F32), a), "n * a"),
        (op("*", Constant(2, F64), Cast(a, F64)), "2.0 * a"),
        (op("*", Cast(n, F64), Cast(a, F64)), "n * (double)a"),
        (op("<", Cast(n, U32), unsigned_index()), "n < blockIdx.x * blockDim.x + threadIdx.x"),
        (op("<", Cast(n, I64), Constant(3, I64)), "n < 3LL"),
        (op("<<", Cast(n, I64), Constant(3, I64)), "(long long)n << 3LL"),
        (Cast(op("*", a, b), I32), "(int)(a * b)"),
        (Cast(Constant(1.5, F64), F32), "(float)1.5"),
        (Cast(n, BOOL), "n != 0"),
        (Cast(op("<", a, b), I32), "a < b"),
        (op("+", Cast(n, I8), Cast(i, I8)), "(signed char)((signed char)n + (signed char)i)"),
        (Cast(op("+", Cast(n, U8), Constant(1, U8)), I32), "(unsigned char)((unsigned char)n + 1)"),
    ],
)  # fmt: skip
def test_conversions_that_c_makes_by_itself_are_not_printed(expr: Expr, text: str) -> None:
    assert expression(expr) == text


@pytest.mark.parametrize(
    ("value", "type", "text"),
    [
        (1.0, F32, "1.0f"), (0.1, F32, "0.1f"), (1e-7, F32, "1.0e-7f"), (-0.0, F32, "-0.0f"), (3.4028235e38, F32, "3.4028235e38f"),
        (0.1, F64, "0.1"), (1 / 3, F64, "0.3333333333333333"), (1e300, F64, "1.0e300"), (16777217.0, F64, "16777217.0"),
        (math.inf, F32, "gpuad_inff()"), (-math.inf, F64, "-gpuad_inf()"), (math.nan, F64, "gpuad_nan()"),
        (-5, I32, "-5"), (-(2**31), I32, "(-2147483647 - 1)"), (-(2**63), I64, "(-9223372036854775807LL - 1LL)"),
        (7, U32, "7u"), (-1, U32, "4294967295u"), (7, U64, "7ULL"), (-1, I8, "-1"), (True, BOOL, "true"),
    ],
)  # fmt: skip
def test_literals(value: float, type: Scalar, text: str) -> None:
    assert literal(Constant(value, type)) == text


def test_float_literals_read_back_exactly() -> None:
    random = np.random.default_rng(0)
    for bits in random.integers(0, 2**32, 300, np.uint32):
        number = np.uint32(bits).view(np.float32)
        if np.isfinite(number):
            assert np.float32(literal(Constant(float(number), F32)).rstrip("f")) == number
    for number in random.normal(size=300) * 10.0 ** random.integers(-300, 300, 300):
        assert float(literal(Constant(number, F64))) == number


# --- loads at their use --------------------------------------------------------------------------------------------------------------


def test_a_load_is_printed_at_its_use() -> None:
    t = var("t")
    assert body_of(Load(t, u, op("-", i, const(1))), Store(v, i, op("*", f32(2), t))) == "v[i] = 2.0f * u[i - 1];"


def test_an_indirect_load_too() -> None:
    j, t, index_ = var("j", I32), var("t"), buffer("idx", I32)
    text = body_of(Load(j, index_, i), Load(t, u, j), Store(v, i, t), params=(u, v, index_, i))
    assert text == "v[i] = u[idx[i]];"


def test_a_load_stays_before_a_write_that_may_change_it() -> None:
    t = var("t")
    stmts = (Load(t, u, i), Store(v, i, a), Store(x, i, t))
    assert body_of(*stmts) == "const float t = u[i];\nv[i] = a;\nx[i] = t;"


def test_a_load_stays_before_a_branch_that_may_change_it() -> None:
    t = var("t")
    stmts = (Load(t, u, i), If(op("<", a, b), (Store(v, i, a),)), Store(x, i, t))
    assert body_of(*stmts) == "const float t = u[i];\nif (a < b) {\n    v[i] = a;\n}\nx[i] = t;"


def test_a_load_moves_into_a_branch() -> None:
    t = var("t")
    assert body_of(Load(t, u, i), If(op("<", a, b), (Store(v, i, t),))) == "if (a < b) {\n    v[i] = u[i];\n}"


def test_a_load_never_moves_into_a_loop() -> None:
    t, j = var("t"), var("j", I32)
    text = body_of(Load(t, u, i), For(j, const(0), n, const(1), (Store(v, j, t),)))
    assert text == "const float t = u[i];\nfor (int j = 0; j < n; ++j) {\n    v[j] = t;\n}"


def test_a_load_that_is_used_twice_or_has_a_note_stays() -> None:
    t = var("t")
    assert "t * t" in body_of(Load(t, u, i), Store(v, i, op("*", t, t)))
    assert "t = u[i];  // why" in body_of(Load(t, u, i, note="why"), Store(v, i, t))


def test_a_load_from_an_own_array_passes_writes_elsewhere() -> None:
    t, s = var("t"), Buffer("s", F32, Space.LOCAL, 4, 77)
    stmts = (Alloc(s, zero=True), Store(s, const(0), a), Load(t, s, const(0)), Store(u, i, b), Store(v, i, t))
    assert body_of(*stmts) == "float s[4] = {};\ns[0] = a;\nu[i] = b;\nv[i] = s[0];"


def test_a_load_does_not_pass_a_barrier() -> None:
    t = var("t")
    assert body_of(Load(t, u, i), Barrier(), Store(v, i, t)) == "const float t = u[i];\n__syncthreads();\nv[i] = t;"


def test_a_copy_does_not_pass_an_assignment() -> None:
    s, t = var("s"), var("t")
    stmts = (Let(s, a), Let(t, s), Assign(s, b), Store(u, i, op("+", s, t)))
    assert body_of(*stmts) == "float s = a;\nconst float t = s;\ns = b;\nu[i] = s + t;"


def test_a_loops_bound_is_loaded_once() -> None:
    t, j = var("end", I32), var("j", I32)
    ptr = buffer("ptr", I32)
    text = body_of(Load(t, ptr, i), For(j, const(0), t, const(1), (Store(u, j, a),)), params=(ptr, u, i, a))
    assert text.startswith("int end = ptr[i];\nfor (int j = 0; j < end; ++j)")


def test_a_loops_start_is_loaded_in_its_header() -> None:
    t, j, ptr = var("t", I32), var("j", I32), buffer("ptr", I32)
    text = body_of(Load(t, ptr, i), For(j, t, n, const(1), (Store(u, j, a),)), params=(ptr, u, i, a, n))
    assert text.startswith("for (int j = ptr[i]; j < n; ++j)")


def test_what_nothing_uses_is_not_printed() -> None:
    t, s, j = var("t"), var("s"), var("j", I32)
    unused = Buffer("w", F32, Space.LOCAL, 4, 78)
    loop = For(j, const(0), n, const(1), (), (Carried(s, f32(0), op("+", s, a), var("s")),))
    assert body_of(Alloc(unused), Load(t, u, i), loop, If(op("<", a, b), ()), Store(v, i, a)) == "v[i] = a;"


# --- memory --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stmt", "text"),
    [
        (Accumulate(dx, i, a, How.PLAIN), "dx[i] += a;"),
        (Accumulate(dx, i, Unary("-", op("*", a, b), F32), How.PLAIN), "dx[i] -= a * b;"),
        (Accumulate(dx, i, a, How.ATOMIC), "atomicAdd(&dx[i], a);"),
        (Accumulate(da, const(0), op("*", a, b), How.REDUCED), "gpuad_block_sum(&da[0], a * b);"),
        (Atomic("max", None, buffer("c", I32), i, (n,)), "atomicMax(&c[i], n);"),
        (Atomic("sub", None, buffer("c", I64), i, (Constant(3, I64),)), "gpuad_add(&c[i], -3LL);"),
        (Barrier(), "__syncthreads();"),
        (Barrier("warp", Constant(0xFFFFFFFF, U32)), "__syncwarp(0xffffffffu);"),
    ],
)  # fmt: skip
def test_memory_statements(stmt: Stmt, text: str) -> None:
    buffers = (stmt.buffer,) if isinstance(stmt, Atomic) else ()
    assert body_of(stmt, params=(dx, da, n, i, a, b, *buffers)) == text


def test_takes() -> None:
    d = var("d")
    assert body_of(Take(d, dx, i, How.PLAIN), Store(u, i, d)) == "const float d = dx[i];\ndx[i] = 0.0f;\nu[i] = d;"
    assert body_of(Take(d, dx, i, How.ATOMIC), Store(u, i, d)) == "const float d = atomicExch(&dx[i], 0.0f);\nu[i] = d;"
    wide, e = buffer("w", F64), var("e", F64)
    assert "gpuad_exch(&w[i], 0.0)" in body_of(Take(e, wide, i, How.ATOMIC), Store(wide, const(0), e), params=(wide, i))


@pytest.mark.parametrize(
    ("operator", "text"), [("+", "u[i] += a;"), ("-", "u[i] -= a;"), ("*", "u[i] *= a;"), ("/", "u[i] /= a;")]
)  # fmt: skip
def test_a_store_that_continues_the_old_value_is_compound(operator: str, text: str) -> None:
    t = var("t")
    assert body_of(Load(t, u, i), Store(u, i, op(operator, t, a))) == text


def test_shuffles_and_shared_memory() -> None:
    t, tile = var("t"), Buffer("tile", F32, Space.SHARED, 32, 79)
    text = body_of(
        Alloc(tile),
        Store(tile, i, a),
        Shuffle(t, "down", Constant(0xFFFFFFFF, U32), b, const(16), const(32)),
        Store(u, i, t),
    )
    assert text == "__shared__ float tile[32];\ntile[i] = a;\nconst float t = __shfl_down_sync(0xffffffffu, b, 16);\nu[i] = t;"


# --- names and variables -------------------------------------------------------------------------------------------------------------


def test_names_are_unique_where_they_are_visible_together() -> None:
    first, second, inner, sibling = var("t"), var("t"), var("t"), var("t")
    stmts = (
        Let(first, op("+", a, b)),
        If(op("<", a, b), (Let(inner, op("*", a, first)), Store(u, i, op("*", inner, inner)))),
        If(op("<", b, a), (Let(sibling, op("-", a, first)), Store(u, i, op("*", sibling, sibling)))),
        Let(second, op("*", first, b)),
        Store(v, i, op("+", second, op("*", first, second))),
    )
    text = body_of(*stmts)
    assert re.findall(r"const float (\w+)", text) == ["t", "t_2", "t_2", "t_2"]


@pytest.mark.parametrize("name", ["double", "threadIdx", "new", "gpuad_chain", "class"])
def test_names_that_mean_something_else_are_changed(name: str) -> None:
    t = var(name)
    assert f"float {name}_2 = a + b;" in body_of(Let(t, op("+", a, b)), Store(u, i, op("*", t, t)))


def test_a_variable_does_not_hide_a_function_that_is_called() -> None:
    t = var("expf")
    assert "expf_2 = expf(a);" in body_of(Let(t, call("exp", a)), Store(u, i, op("*", t, t)))
    s = var("sinf")
    assert "float sinf = expf(a);" in body_of(Let(s, call("exp", a)), Store(u, i, op("*", s, s)))


def test_a_chain_of_values_is_one_variable() -> None:
    s = [var("s") for _ in range(3)]
    stmts = (Let(s[0], op("*", a, b)), Let(s[1], op("+", s[0], a)), Let(s[2], op("*", s[1], b)), Store(u, i, op("/", s[2], s[2])))
    assert body_of(*stmts) == "float s = a * b;\ns += a;\ns *= b;\nu[i] = s / s;"


def test_a_value_that_is_needed_again_keeps_its_variable() -> None:
    s = [var("s") for _ in range(2)]
    text = body_of(Let(s[0], op("*", a, b)), Let(s[1], op("+", s[0], a)), Store(u, i, op("*", s[0], s[1])))
    assert text == "const float s = a * b;\nconst float s_2 = s + a;\nu[i] = s * s_2;"


# --- control flow --------------------------------------------------------------------------------------------------------------------


def test_a_sum_in_a_loop() -> None:
    s, after, new, t, j = var("s"), var("s"), var("s"), var("t"), var("j", I32)
    loop = For(j, const(0), n, const(1), (Load(t, u, j), Let(new, op("+", s, op("*", t, a)))), (Carried(s, f32(0), new, after),))
    assert body_of(loop, Store(v, i, after)) == "float s = 0.0f;\nfor (int j = 0; j < n; ++j) {\n    s += u[j] * a;\n}\nv[i] = s;"


def test_carried_values_are_assigned_in_parallel() -> None:
    p, q, p_end, q_end, j = var("p"), var("q"), var("p"), var("q"), var("j", I32)
    loop = For(j, const(0), n, const(1), (), (Carried(p, a, q, p_end), Carried(q, b, op("+", p, q), q_end)))
    text = body_of(loop, Store(u, i, op("*", p_end, q_end)))
    assert "const float next_p = q;\n    q += p;\n    p = next_p;" in text


def test_an_order_without_temporaries_is_found() -> None:
    p, q, p_end, q_end, j = var("p"), var("q"), var("p"), var("q"), var("j", I32)
    loop = For(j, const(0), n, const(1), (), (Carried(p, a, op("*", p, b), p_end), Carried(q, b, op("+", p, q), q_end)))
    assert "    q += p;\n    p *= b;" in body_of(loop, Store(u, i, op("*", p_end, q_end)))


@pytest.mark.parametrize(
    ("start", "stop", "step", "backward", "header"),
    [
        (const(0), n, const(1), False, "for (int j = 0; j < n; ++j)"),
        (const(2), n, const(3), False, "for (int j = 2; j < n; j += 3)"),
        (n, const(0), const(-1), False, "for (int j = n; j > 0; --j)"),
        (const(0), n, const(1), True, "for (int j = n - 1; j >= 0; --j)"),
        (i, op("+", n, const(1)), const(1), True, "for (int j = n; j >= i; --j)"),
        (const(0), const(8), const(1), True, "for (int j = 7; j >= 0; --j)"),
        (n, const(0), const(-1), True, "for (int j = 1; j <= n; ++j)"),
        (i, n, Cast(op("*", LaunchIndex("blockDim", "x"), LaunchIndex("gridDim", "x")), I32), False,
         "for (int j = i; j < n; j += blockDim.x * gridDim.x)"),
        (i, n, i, False, "for (int j = i; j < n; j += i)"),
        (const(0), n, const(2), True, "for (long long j_count = gpuad_trips(0, n, 2) - 1; j_count >= 0; --j_count)"),
    ],
)  # fmt: skip
def test_loop_headers(start: Expr, stop: Expr, step: Expr, backward: bool, header: str) -> None:
    j = var("j", I32)
    text = body_of(For(j, start, stop, step, (Store(u, j, a),), (), backward))
    assert text.splitlines()[0] == header + " {"


def test_an_unsigned_loop_runs_backward_to_zero() -> None:
    j, m = var("j", U32), var("m", U32)
    text = body_of(For(j, Constant(0, U32), m, Constant(1, U32), (Store(u, j, a),), (), True), params=(u, m, a))
    assert text.startswith("for (unsigned int j = m; j-- > 0u;) {")


def test_iterations_of_an_unsigned_loop_of_64_bits_are_counted_as_such() -> None:
    j, m = var("j", U64), var("m", U64)
    text = body_of(For(j, m, Constant(9, U64), Constant(2, U64), (Store(u, j, a),), (), True), params=(u, m, a))
    assert text.startswith("for (long long j_count = gpuad_unsigned_trips(m, 9")


def test_a_bound_that_the_loop_changes_is_kept() -> None:
    end, new, j = var("end", I32), var("end", I32), var("j", I32)
    loop = For(j, const(0), n, const(1), (), (Carried(end, n, op("-", end, const(1)), new),))
    text = body_of(For(var("k", I32), const(0), n, const(1), (loop, Store(u, new, a))))
    assert "j < n;" in text
    s = var("s", I32)
    text = body_of(Let(s, n), For(j, const(0), s, const(1), (Assign(s, op("-", s, const(1))), Store(u, s, a))))
    assert "int j_end = s;\nfor (int j = 0; j < j_end; ++j)" in text


def test_a_while_loop_with_and_without_header() -> None:
    s, end, t = var("s"), var("s"), var("t")
    simple = While((), op("<", s, b), (), (Carried(s, a, op("*", s, f32(2)), end),))
    assert body_of(simple, Store(u, i, end)) == "float s = a;\nwhile (s < b) {\n    s *= 2.0f;\n}\nu[i] = s;"
    header = (Let(t, op("*", s, s)),)
    full = While(header, op("<", t, b), (), (Carried(s, a, op("+", t, t), end),))
    lines = body_of(full, Store(u, i, end)).splitlines()
    assert lines[1:4] == ["while (true) {", "    const float t = s * s;", "    if (!(t < b)) break;"]


def test_iterations_are_counted_only_if_wanted() -> None:
    k, count, t = var("k", I32), var("k", I32), var("t")
    loop = While((Load(t, u, k),), op("<", t, b), (), (), k, count)
    assert body_of(loop, Store(v, count, a)) == "int k = 0;\nwhile (u[k] < b) {\n    ++k;\n}\nv[k] = a;"


def test_merges() -> None:
    s, m = var("s"), var("s")
    one = If(op("<", a, b), (), (), (Merge(m, f32(1), f32(2)),))
    assert body_of(one, Store(u, i, op("*", m, m))) == "const float s = a < b ? 1.0f : 2.0f;\nu[i] = s * s;"
    changed = If(op("<", a, b), (), (), (Merge(m, op("+", s, a), s),))
    text = body_of(Let(s, op("*", a, b)), changed, Store(u, i, op("*", m, m)))
    assert text == "float s = a * b;\nif (a < b) {\n    s += a;\n}\nu[i] = s * s;"
    stored = If(op("<", a, b), (Store(v, i, a),), (), (Merge(m, a, f32(0)),))
    assert body_of(stored, Store(u, i, m)) == "float s = 0.0f;\nif (a < b) {\n    v[i] = a;\n    s = a;\n}\nu[i] = s;"
    both = If(op("<", a, b), (Store(v, i, a),), (Store(v, i, b),), (Merge(m, a, b),))
    assert body_of(both, Store(u, i, m)).startswith(
        "float s;\nif (a < b) {\n    v[i] = a;\n    s = a;\n} else {\n    v[i] = b;\n    s = b;\n}"
    )


def test_merges_that_exchange_values() -> None:
    p, q, p_new, q_new = var("p"), var("q"), var("p"), var("q")
    swap = If(op("<", p, q), (), (), (Merge(p_new, q, p), Merge(q_new, p, q)))
    text = body_of(Let(p, op("*", a, b)), Let(q, op("+", a, b)), swap, Store(u, i, op("-", p_new, q_new)))
    assert "    const float next_p = q;\n    q = p;\n    p = next_p;" in text


def test_else_if_chains_and_inverted_branches() -> None:
    inner = If(op("<", b, a), (Store(u, i, b),), (Store(u, i, f32(0)),))
    text = body_of(If(op("<", a, b), (Store(u, i, a),), (inner,)))
    assert text.splitlines()[::2] == ["if (a < b) {", "} else if (b < a) {", "} else {", "}"]
    assert body_of(If(op("<", i, n), (), (Store(u, i, a),))).startswith("if (i >= n) {")
    assert body_of(If(op("<", a, b), (), (Store(u, i, a),))).startswith("if (!(a < b)) {")


def test_notes_and_headers_are_comments() -> None:
    assert body_of(Store(u, i, a, note="read again later")) == "u[i] = a;  // read again later"
    assert body_of(If(op("<", a, b), (Store(u, i, a),), note="why")).startswith("// why\nif (a < b) {")
    text = cuda_source([kernel("k", (u, i, a), Store(u, i, a), header="Contract.\nLaunch so.")])
    assert text.startswith('// Contract.\n// Launch so.\nextern "C" __global__ void k(float* u, int i, float a)\n{\n')


def test_the_index_of_a_thread() -> None:
    t = var("i", I32)
    text = body_of(Let(t, index()), If(op("<", t, n), (Store(u, t, a),)), params=(u, n, a))
    assert text == "int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i < n) {\n    u[i] = a;\n}"


def test_pointers_that_are_not_written_are_const() -> None:
    t = var("t")
    text = cuda_source([kernel("k", (u, v, i), Load(t, u, i), Store(v, i, t))])
    assert "k(const float* u, float* v, int i)" in text


def test_only_the_helpers_in_use_are_printed_and_once() -> None:
    first = kernel("first", (u, da, i, a), Accumulate(da, const(0), a, How.REDUCED), Store(u, i, call("gpuad_chain", a, a)))
    second = kernel("second", (u, i, a), Store(u, i, call("gpuad_chain", a, a)))
    text = cuda_source([first, second])
    assert text.count("void gpuad_block_sum") == 1
    assert text.count("float gpuad_chain(") == 1
    assert "gpuad_inf" not in text
    assert "gpuad_block_sum" not in cuda_source([second])


def test_printing_is_deterministic_and_folding_reaches_a_fixed_point() -> None:
    t = var("t")
    k = kernel("k", (u, v, i), Load(t, u, i), Store(v, i, t))
    assert cuda_source([k]) == cuda_source([k])
    assert fold(fold(k)) == fold(k)


@pytest.mark.parametrize(
    ("stmt", "message"),
    [
        (Accumulate(dx, i, a), "not decided how this accumulation"),
        (Take(var("t"), dx, i), "not decided how this take"),
        (Push(Stack("s", (("a", F32),)), (a,)), "a Push has to be lowered"),
        (Atomic("inc", None, dx, i, (a,)), "CUDA has no atomic inc for float32"),
        (Let(var("h", BF16), Constant(1, BF16)), None),
        (Store(dx, i, call("__expf", Cast(a, F64))), "__expf does not exist for float64"),
    ],
)  # fmt: skip
def test_what_cannot_be_printed_is_refused(stmt: Stmt, message: str | None) -> None:
    k = kernel("k", (dx, i, a, *((stmt.buffer,) if isinstance(stmt, Store) and stmt.buffer != dx else ())), stmt)
    if message is None:
        assert "k" in cuda_source([k])  # unused, so not printed
        return
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        cuda_source([k])


# --- the CPU's text ------------------------------------------------------------------------------------------------------------------


def host_body(*stmts: Stmt, params: tuple[Var | Buffer, ...], wide: bool = True) -> str:
    text = host_source([Kernel("k", params, stmts)], wide)
    return text[text.index("gpuad_body_k(") : text.index("static void gpuad_rows_k")]


def test_guarded_integer_operations() -> None:
    out, x_ = buffer("out", I32), var("x", I32)
    far = op("/", op("*", x_, x_), i)
    text = host_body(Let(x_, index("x")), Store(out, const(0), far), Store(out, x_, op("%", n, const(4))), params=(out, n, i))
    assert "gpuad_div<int>((int)x * (int)x, i)" in text and "n % 4" in text
    text = host_body(Store(out, const(0), op("<<", n, i)), Store(out, const(1), op(">>", n, const(3))), params=(out, n, i))
    assert "gpuad_shl<int>(n, (unsigned int)i)" in text and "n >> 3" in text
    assert "gpuad_f2i<int>(a)" in host_body(Store(out, const(0), Cast(a, I32)), params=(out, a))


def test_subscripts_are_computed_in_64_bits() -> None:
    x_, y_, j, w = var("x", I32), var("y", I32), var("j", I32), var("w", I32)
    lets = (Let(x_, index("x")), Let(y_, index("y")), Let(j, op("+", op("*", y_, w), x_)))
    text = host_body(*lets, If(op("<", x_, w), (Store(u, op("-", j, w), Cast(j, F32)),)), params=(u, w), wide=True)
    assert "long long x = globalIdx.x;" in text
    assert "long long j = y * w + x;" in text
    assert "u[j - w] = (int)j;" in text
    text = host_body(*lets, If(op("<", x_, w), (Store(u, op("-", j, w), Cast(j, F32)),)), params=(u, w), wide=False)
    assert "int j = y * w + x;" in text


def test_subscripts_that_are_of_64_bits_in_part() -> None:
    """A pointer that is ahead by an int is indexed by the sum of two conversions: no step of a vectorised loop may be an int that wraps."""
    x_, y_, w, far = var("x", I32), var("y", I32), var("w", I32), var("far", I64)
    lets = (Let(x_, index("x")), Let(y_, index("y")))
    row, column = Cast(op("*", y_, w), I64), Cast(op("-", x_, const(1)), I64)
    text = host_body(*lets, Store(u, op("+", row, column), a), Store(u, op("+", far, column), a), params=(u, w, far, a))
    assert "u[y * w + (x - 1)] = a;" in text
    assert "u[far + (x - 1)] = a;" in text
    text = host_body(*lets, Let(far, op("+", op("*", Cast(y_, I64), Cast(w, I64)), Cast(x_, I64))), Store(u, far, a), params=(u, w, a))
    assert "long long far = y * (long long)w + x;" in text, "what no int holds was not computed as one"
    text = host_body(*lets, Store(u, op("+", Cast(x_, U64), Cast(w, U64)), a), params=(u, w, a))
    assert "u[(unsigned long long)x + (unsigned long long)w] = a;" in text


def test_unsigned_arithmetic_wraps_unless_it_is_an_address() -> None:
    t, m = var("i", U32), var("m", U32)
    less = op("<", op("-", t, Constant(1, U32)), m)
    text = host_body(Let(t, unsigned_index()), If(less, (Store(u, t, a),)), params=(u, m, a))
    assert "(unsigned int)i - 1u < m" in text and "u[i] = a;" in text


# --- lines and repeated values ---------------------------------------------------------------------------------------------------------


def test_a_variable_that_holds_a_constant_is_not_given_it_again() -> None:
    """Behind the guard the sum starts from the zero that it was declared with; after the loop has changed it, a zero is a new value."""
    s, again, end, merged, j, k = var("s"), var("s"), var("s"), var("s"), var("j", I32), var("k", I32)
    first = For(j, const(0), n, const(1), (), (Carried(s, f32(0), op("+", s, a), end),))
    second = For(k, const(0), n, const(1), (), (Carried(again, f32(0), op("*", again, b), merged),))
    guard = If(op("<", i, n), (first, Store(u, i, end)), (), (Merge(merged, end, f32(0)),))
    assert body_of(guard, Store(u, const(0), merged)).count("s = 0.0f") == 1
    text = body_of(first, Store(u, i, end), second, Store(u, const(0), merged))
    assert text.count("= 0.0f") == 2


def test_long_lines_break_before_operators_that_bind_least() -> None:
    total = a
    for _ in range(12):
        total = op("+", total, op("*", op("+", a, b), op("-", b, a)))
    lines = body_of(Store(u, i, total)).splitlines()
    assert len(lines) > 1 and all(len(line) <= 120 for line in lines)
    assert all(line.startswith("    + (a + b)") for line in lines[1:])
    assert "".join(line.strip() for line in lines).replace(" ", "") == f"u[i]=a{'+(a+b)*(b-a)' * 12};"


def test_a_line_without_a_place_to_break_stays() -> None:
    assert wrap("x" * 200) == ["x" * 200]
    assert wrap("    short = 1;") == ["    short = 1;"]
    assert wrap("    if (" + "a < b && " * 20 + "c) {")[1].startswith(" " * 12)

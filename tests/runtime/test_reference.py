"""The reference executor: what it computes, and that it finds every seeded race and bad index while it passes sound kernels."""

from __future__ import annotations

import itertools
import math
from functools import reduce

import numpy as np
import pytest

from gpuad.errors import GpuadError, LaunchError, UnsupportedError
from gpuad.ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Buffer,
    Call,
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
    Pop,
    Push,
    Select,
    Stack,
    Stmt,
    Store,
    Take,
    Unary,
    Var,
    While,
)
from gpuad.ir.types import BOOL, F32, F64, I8, I32, I64, U8, U32, U64, Scalar, Space
from gpuad.runtime.base import Memory, resolve
from gpuad.runtime.reference import BarrierError, BoundsError, RaceError, Reference
from gpuad.source import SourceFile, Span

COMPARE = ("<", ">", "<=", ">=", "==", "!=")
_uids = itertools.count(1)


def var(name: str, type: Scalar = I32) -> Var:
    return Var(name, type, next(_uids))


def op(symbol: str, left: Expr, right: Expr | float) -> Binary:
    other = right if isinstance(right, Expr) else Constant(right, left.type)
    return Binary(symbol, left, other, BOOL if symbol in COMPARE else left.type)


def i32(value: int) -> Constant:
    return Constant(value, I32)


def f64(value: float) -> Constant:
    return Constant(value, F64)


def total(*terms: Expr) -> Expr:
    return reduce(lambda a, b: op("+", a, b), terms)


X = Buffer("x", F64, uid=1)
Y = Buffer("y", F64, uid=2)
U = Buffer("u", F64, uid=3)
K = Buffer("k", I32, uid=4)
S = Buffer("s", F64, Space.SHARED, 64, uid=5)
N = Var("n", I32, 0)
I = Var("i", I32, -1)  # noqa: E741
T = Var("t", I32, -2)

GLOBAL_INDEX = Let(
    I,
    Cast(
        op("+", op("*", LaunchIndex("blockIdx", "x"), LaunchIndex("blockDim", "x")), LaunchIndex("threadIdx", "x")),
        I32,
    ),
)
LOCAL_INDEX = Let(T, Cast(LaunchIndex("threadIdx", "x"), I32))


def guarded(*body: Stmt) -> tuple[Stmt, ...]:
    return GLOBAL_INDEX, LOCAL_INDEX, If(op("<", I, N), body)


def kernel(*body: Stmt, params: tuple[Var | Buffer, ...] = (X, Y, N)) -> Kernel:
    return Kernel("test", params, body)


def launch(k: Kernel, arrays: list[object], *, blocks: int = 4, threads: int = 32, **options: object) -> None:
    args = [resolve(a) if isinstance(a, np.ndarray) else a for a in arrays]
    Reference(**options).launch(k, (blocks, 1, 1), (threads, 1, 1), args)  # type: ignore[arg-type]


def evaluate(expr: Expr, inputs: list[tuple[Var, object]] | None = None) -> object:
    """The value of an expression over scalar parameters, through a store."""
    out = Buffer("out", expr.type, uid=99)
    names = [v for v, _ in inputs or []]
    result = np.zeros(1, np.bool_ if expr.type == BOOL else np.dtype(str(expr.type)))
    k = Kernel("value", (out, *names), (Store(out, i32(0), expr),))
    launch(k, [result, *(v for _, v in inputs or [])], blocks=1, threads=1)
    return result[0]


def run_columns(symbol: str, type: Scalar, columns: tuple[list[object], ...], result: Scalar) -> np.ndarray:
    """A binary operator or a function over columns of operands, one thread each."""
    dtype = np.dtype(str(type))
    buffers = [Buffer(f"b{n}", type, uid=50 + n) for n in range(len(columns))]
    loaded = [var(f"v{n}", type) for n in range(len(columns))]
    out = Buffer("out", result, uid=60)
    expr: Expr = Call(symbol, tuple(loaded), result) if symbol.replace("_", "").isalnum() else Binary(symbol, loaded[0], loaded[1], result)
    loads = tuple(Load(v, b, I) for v, b in zip(loaded, buffers, strict=True))
    k = Kernel("columns", (out, *buffers), (GLOBAL_INDEX, *loads, Store(out, I, expr)))
    n = len(columns[0])
    answer = np.zeros(n, np.bool_ if result == BOOL else np.dtype(str(result)))
    launch(k, [answer, *(np.array(c, dtype) for c in columns)], blocks=n, threads=1)
    return answer


# --- what it computes ----------------------------------------------------------------------------------------------------------------


def test_integers_wrap() -> None:
    assert evaluate(op("+", i32(2**31 - 1), 1)) == -(2**31)
    assert evaluate(op("*", Constant(65536, U32), 65536)) == 0
    assert evaluate(Unary("-", Constant(1, U32), U32)) == 2**32 - 1
    assert evaluate(Unary("-", i32(-(2**31)), I32)) == -(2**31)
    assert evaluate(Constant(-1, U64)) == 2**64 - 1
    assert evaluate(Unary("~", i32(5), I32)) == -6
    assert not evaluate(Unary("!", Constant(True, BOOL), BOOL))


@pytest.mark.parametrize(
    ("symbol", "type", "left", "right", "result"),
    [
        ("/", I32, [7, -7, 7, -7, -(2**31), 5, -5], [2, 2, -2, -2, -1, 0, 0], [3, -3, -3, 3, -(2**31), -1, -1]),
        ("%", I32, [7, -7, 7, -7, -(2**31), 5, -5], [2, 2, -2, -2, -1, 0, 0], [1, -1, 1, -1, 0, 5, -5]),
        ("/", U32, [7, 2**32 - 1, 5], [2, 2**32 - 1, 0], [3, 1, 2**32 - 1]),
        ("%", U32, [7, 2**32 - 1, 5], [2, 10, 0], [1, 5, 5]),
        ("/", I64, [-(2**63), 9], [-1, -2], [-(2**63), -4]),
        ("<<", I32, [1, 1, 1, -1], [31, 32, -1, 4], [-(2**31), 0, 0, -16]),
        (">>", I32, [-8, -8, 8, 8], [1, 40, 40, -1], [-4, -1, 0, 0]),
        (">>", U32, [2**31, 2**31], [31, 32], [1, 0]),
        ("&", I32, [12], [10], [8]),
        ("|", I32, [12], [10], [14]),
        ("^", I32, [12], [10], [6]),
    ],
)
def test_integer_operators_have_ptx_results(symbol: str, type: Scalar, left: list[int], right: list[int], result: list[int]) -> None:
    assert run_columns(symbol, type, (left, right), type).tolist() == result


@pytest.mark.parametrize(
    ("value", "type", "result"),
    [
        (3e9, I32, 2**31 - 1),
        (-3e9, I32, -(2**31)),
        (math.nan, I32, -(2**31)),
        (math.nan, U64, 2**63),
        (-1.0, U32, 0),
        (1e30, I64, 2**63 - 1),
        (1e30, U64, 2**64 - 1),
        (-2.9, I32, -2),
        (2147483647.0, I32, 2**31 - 1),
        (300.0, U8, 44),
        (math.inf, I8, -1),
        (-5.0, U8, 0),
        (0.5, BOOL, True),
        (math.nan, BOOL, True),
        (0.1, F32, np.float32(0.1)),
    ],
)
def test_conversions_of_floats(value: float, type: Scalar, result: object) -> None:
    assert evaluate(Cast(f64(value), type)) == result


def test_conversions_of_single_precision() -> None:
    assert evaluate(Cast(Constant(math.nan, F32), I32)) == 0
    assert evaluate(Cast(Constant(math.nan, F32), I64)) == -(2**63)
    assert evaluate(Cast(Constant(3e9, F32), U32)) == 3_000_000_000


def test_conversions_of_integers() -> None:
    assert evaluate(Cast(i32(300), U8)) == 44
    assert evaluate(Cast(i32(-1), U64)) == 2**64 - 1
    assert evaluate(Cast(Constant(2**53 + 1, I64), F64)) == 2.0**53


def test_single_precision_stays_single() -> None:
    a, b = var("a", F32), var("b", F32)
    expr = op("-", op("+", a, b), a)
    assert evaluate(expr, [(a, np.float32(1e8)), (b, np.float32(1))]) == 0


ALIKE = "exp expm1 sin cos tan asin acos atan sinh cosh tanh asinh atanh erf erfc floor ceil trunc fabs lgamma"


@pytest.mark.parametrize("type", [F32, F64])
def test_functions_agree_with_the_math_module(type: Scalar) -> None:
    x = [-0.75, -0.3, 0.2, 0.5, 0.9]
    tolerance = 1e-14 if type == F64 else 1e-6
    for name in ALIKE.split():
        want = [float(getattr(math, name)(v)) for v in np.array(x, str(type)).tolist()]
        np.testing.assert_allclose(run_columns(name, type, (x,), type), want, rtol=tolerance, err_msg=name)
    want = [math.pow(v, 1.5) for v in np.abs(np.array(x, str(type))).tolist()]
    np.testing.assert_allclose(run_columns("pow", type, (list(map(abs, x)), [1.5] * 5), type), want, rtol=tolerance)


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("tgamma", [5.0, 0.5], [24.0, math.sqrt(math.pi)]),
        ("erfinv", [0.0, 1.0, -1.0, 0.5], [0.0, math.inf, -math.inf, 0.4769362762044699]),
        ("erfcinv", [1.0, 1e-20], [0.0, 6.601580622355143]),
        ("erfcx", [0.0, 5.0, 30.0], [1.0, 0.11070463773306863, 0.018795888861416751]),
        ("normcdf", [0.0, 1.96], [0.5, 0.9750021048517795]),
        ("normcdfinv", [0.5, 0.975], [0.0, 1.959963984540054]),
        ("j0", [1.0], [0.7651976865579666]),
        ("y1", [1.0], [-0.7812128213002887]),
        (
            "cyl_bessel_i0",
            [0.0, 1.0, -3.0, 30.0, 712.0],
            [1.0, 1.2660658777520084, 4.880792585865024, 781672297823.9775, 2.4684110577627524e307],
        ),
        ("cyl_bessel_i1", [0.0, 1.0, -3.0, 30.0], [0.0, 0.5651591039924851, -3.953370217402609, 768532038938.957]),
        ("sinpi", [0.5, 1.0, 1.25], [1.0, 0.0, -math.sqrt(0.5)]),
        ("cospi", [0.5, 1.0, 1.25], [0.0, -1.0, -math.sqrt(0.5)]),
        ("round", [0.5, -0.5, 2.5, 0.49999999999999994], [1.0, -1.0, 3.0, 0.0]),
        ("rint", [0.5, 1.5, 2.5], [0.0, 2.0, 2.0]),
        ("logb", [8.0, 0.3, 0.0], [3.0, -2.0, -math.inf]),
        ("cbrt", [27.0, -8.0], [3.0, -2.0]),
        ("rsqrt", [4.0], [0.5]),
        ("exp10", [2.0], [100.0]),
    ],
)
def test_special_functions(name: str, arguments: list[float], result: list[float]) -> None:
    np.testing.assert_allclose(run_columns(name, F64, (arguments,), F64), result, rtol=2e-15, atol=1e-16)


def test_functions_of_two_and_three() -> None:
    assert run_columns("fmin", F64, ([math.nan, 1.0], [2.0, math.nan]), F64).tolist() == [2.0, 1.0]
    assert run_columns("fdim", F64, ([3.0, 1.0], [1.0, 3.0]), F64).tolist() == [2.0, 0.0]
    assert run_columns("remainder", F64, ([5.0], [3.0]), F64).tolist() == [-1.0]
    assert run_columns("fmod", F64, ([-5.0], [3.0]), F64).tolist() == [-2.0]
    assert run_columns("gpuad_chain", F64, ([0.0, 2.0], [math.inf, 3.0]), F64).tolist() == [0.0, 6.0]
    tiny = 2.0**-30
    assert run_columns("fma", F64, ([1 + tiny], [1 - tiny], [-1.0]), F64).tolist() == [-(tiny**2)]
    assert run_columns("isnan", F64, ([1.0, math.nan],), BOOL).tolist() == [False, True]


def test_integer_functions() -> None:
    x = [0, 1, -1, 40]
    assert run_columns("popc", I32, (x,), I32).tolist() == [0, 1, 32, 2]
    assert run_columns("clz", I32, (x,), I32).tolist() == [32, 31, 0, 26]
    assert run_columns("clz", I64, (x,), I32).tolist() == [64, 63, 0, 58]
    assert run_columns("ffs", I32, (x,), I32).tolist() == [0, 1, 1, 4]
    assert run_columns("brev", U32, ([1],), U32).tolist() == [2**31]
    assert run_columns("mulhi", I32, ([-(2**31)], [4]), I32).tolist() == [-2]
    assert run_columns("min", I32, ([-1], [1]), I32).tolist() == [-1]
    assert run_columns("max", U32, ([2**32 - 1], [1]), U32).tolist() == [2**32 - 1]


# --- control flow --------------------------------------------------------------------------------------------------------------------


def test_a_guard_and_a_merge() -> None:
    v, m = var("v", F64), var("m", F64)
    body = guarded(
        Load(v, X, I),
        If(op(">", v, 0.0), (), (), (Merge(m, v, Unary("-", v, F64)),)),
        Store(Y, I, m),
    )
    x = np.linspace(-1, 1, 101)
    y = np.zeros(101)
    launch(kernel(*body), [x, y, 101])
    np.testing.assert_array_equal(y, np.abs(x))


def test_loops_over_large_integers() -> None:
    for type, first in ((I64, 2**63 - 4), (U64, 2**64 - 4), (I64, -(2**63))):
        k, acc, out = var("k", type), var("acc", type), var("out", type)
        step = Carried(acc, Constant(0, type), op("+", op("*", acc, 3), k), out)
        expected = reduce(lambda value, j: value * 3 + j, range(first, first + 3), 0) % 2**64
        loop = For(k, Constant(first, type), Constant(first + 3, type), Constant(1, type), (), (step,))
        assert evaluate_block((loop,), Cast(op("==", out, Constant(expected, type)), F64)) == 1


@pytest.mark.parametrize("backward", [False, True])
def test_loops_with_bounds_of_each_thread(backward: bool) -> None:
    j, acc, out = var("j"), var("acc", F64), var("out", F64)
    next_value = op("+", op("*", acc, 2.0), Cast(j, F64))
    loop = For(j, i32(0), I, i32(2), (), (Carried(acc, f64(1), next_value, out),), backward)
    y = np.zeros(10)
    launch(kernel(*guarded(loop, Store(Y, I, out))), [np.zeros(10), y, 10], threads=8)
    want = []
    for i in range(10):
        value = 1.0
        for step in reversed(range(0, i, 2)) if backward else range(0, i, 2):
            value = value * 2 + step
        want.append(value)
    assert y.tolist() == want


def test_a_downward_loop_and_unsigned_bounds() -> None:
    j, acc, out = var("j"), var("acc", F64), var("out", F64)
    down = For(j, i32(5), i32(0), i32(-2), (), (Carried(acc, f64(0), op("+", op("*", acc, 10.0), Cast(j, F64)), out),))
    assert evaluate_block((down,), out) == 531
    k, acc, out = var("k", U32), var("acc", F64), var("out", F64)
    far = For(
        k,
        Constant(2**32 - 3, U32),
        Constant(2**32 - 1, U32),
        Constant(1, U32),
        (),
        (Carried(acc, f64(0), op("+", acc, Cast(k, F64)), out),),
    )
    assert evaluate_block((far,), out) == 2.0 * 2**32 - 5


def evaluate_block(body: tuple[Stmt, ...], result: Expr) -> float:
    y = np.zeros(1)
    launch(kernel(*body, Store(Y, i32(0), result), params=(Y,)), [y], blocks=1, threads=1)
    return float(y[0])


def test_a_while_counts_for_each_thread() -> None:
    v, r, counter, count = var("v"), var("r"), var("counter"), var("count")
    halve = Carried(v, I, op("/", v, 2), r)
    loop = While((), op(">", v, 0), (), (halve,), counter, count)
    k = np.zeros(20, np.int32)
    launch(kernel(*guarded(loop, Store(K, I, op("+", op("*", count, 100), r))), params=(K, N)), [k, 20])
    assert (k // 100).tolist() == [i.bit_length() for i in range(20)]


def test_an_endless_while_is_refused() -> None:
    loop = While((), Constant(True, BOOL), ())
    with pytest.raises(UnsupportedError, match="not ended after 50"):
        launch(kernel(loop), [np.zeros(1), np.zeros(1), 1], limit=50)


def test_mutable_accumulators_and_local_arrays() -> None:
    a, j, v = var("a", F64), var("j"), var("v", F64)
    local = Buffer("local", F64, Space.LOCAL, 4, uid=30)
    body = guarded(
        Let(a, f64(0)),
        Alloc(local, zero=True),
        For(j, i32(0), i32(4), i32(1), (Store(local, j, Cast(op("*", I, j), F64)),)),
        Accumulate(local, i32(1), f64(0.5)),
        For(j, i32(0), i32(4), i32(1), (Load(v, local, j), If(op("<", I, 5), (Assign(a, op("+", a, v)),)))),
        Store(Y, I, a),
    )
    y = np.zeros(9)
    launch(kernel(*body), [np.zeros(9), y, 9])
    assert y.tolist() == [6.0 * i + 0.5 if i < 5 else 0 for i in range(9)]


def test_stacks_reverse_loops() -> None:
    j, a, b, out = var("j"), var("a"), var("b", F64), var("out", F64)
    stack = Stack("saved", (("j", I32), ("f", F64)))
    acc = var("acc", F64)
    body = guarded(
        For(j, i32(0), I, i32(1), (Push(stack, (j, Cast(op("*", j, j), F64))),)),
        For(j, i32(0), I, i32(1), (Pop(stack, (a, b)),), (Carried(acc, f64(0), op("+", op("*", acc, 3.0), b), out),)),
        Store(Y, I, out),
    )
    y = np.zeros(12)
    launch(kernel(*body), [np.zeros(12), y, 12])
    want = [reduce(lambda value, j: value * 3 + j * j, reversed(range(i)), 0.0) for i in range(12)]
    assert y.tolist() == want
    with pytest.raises(GpuadError, match="popped more often"):
        launch(kernel(Pop(stack, (a, b))), [y, y, 1])


def test_many_threads_come_in_chunks() -> None:
    n = 200_001
    v = var("v", F64)
    x = np.arange(float(n))
    launch(kernel(*guarded(Load(v, X, I), Store(X, I, op("*", v, v)))), [x, x, n], blocks=-(-n // 256), threads=256)
    np.testing.assert_array_equal(x, np.arange(float(n)) ** 2)


def test_three_dimensions() -> None:
    names = [Cast(LaunchIndex(name, axis), I32) for name in ("threadIdx", "blockIdx") for axis in "xyz"]
    shape = (2, 3, 2, 3, 1, 2)
    index: Expr = i32(0)
    for n, extent in zip(reversed(names), reversed(shape), strict=True):
        index = op("+", op("*", index, extent), n)
    k = np.zeros(72, np.int32)
    Reference().launch(Kernel("k", (K,), (Store(K, index, op("+", index, 1)),)), (3, 1, 2), (2, 3, 2), [resolve(k)])
    assert k.tolist() == list(range(1, 73))


# --- atomics -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [How.ATOMIC, How.UNDECIDED])
@pytest.mark.parametrize("order", ["forward", "reversed", "random"])
def test_no_addition_is_lost(how: How, order: str) -> None:
    x = np.zeros(3)
    launch(kernel(*guarded(Accumulate(X, op("%", I, 3), f64(1), how))), [x, x, 100], order=order)
    assert x.tolist() == [34, 33, 33]


def test_sums_over_blocks() -> None:
    value = Select(op("<", I, N), Cast(I, F64), f64(0))
    x = np.zeros(1)
    launch(kernel(GLOBAL_INDEX, Accumulate(X, i32(0), value, How.REDUCED)), [x, x, 100])
    assert x[0] == 4950
    with pytest.raises(BarrierError, match="a sum over its block"):
        launch(kernel(*guarded(Accumulate(X, i32(0), f64(1), How.REDUCED))), [x, x, 100])
    with pytest.raises(GpuadError, match="another element"):
        launch(kernel(GLOBAL_INDEX, Accumulate(X, op("%", I, 2), f64(1), How.REDUCED)), [np.zeros(2), x, 100])


def test_an_atomic_gives_each_thread_its_place() -> None:
    place = var("place")
    body = guarded(
        Atomic("add", place, K, i32(0), (i32(1),)),
        Store(Y, place, Cast(I, F64)),
    )
    for order in ("forward", "reversed", "random"):
        y, k = np.full(100, -1.0), np.zeros(1, np.int32)
        launch(kernel(*body, params=(Y, K, N)), [y, k, 100], order=order)
        assert k[0] == 100
        assert sorted(y.tolist()) == list(range(100))
        assert (y.tolist() == list(range(100))) == (order == "forward")


@pytest.mark.parametrize(
    ("name", "operands", "start", "end"),
    [
        ("sub", (1,), 50, 40),
        ("min", (-3,), 5, -3),
        ("max", (9,), 5, 9),
        ("exch", (7,), 5, 7),
        ("cas", (5, 6), 5, 6),
        ("and", (6,), 5, 4),
        ("or", (6,), 5, 7),
        ("xor", (6,), 5, 5),
    ],
)
def test_atomic_operations(name: str, operands: tuple[int, ...], start: int, end: int) -> None:
    k = np.array([start], np.int32)
    launch(kernel(Atomic(name, None, K, i32(0), tuple(map(i32, operands))), params=(K,)), [k], blocks=1, threads=10)
    assert k[0] == end


def test_wrapping_counters() -> None:
    counter = Buffer("c", U32, uid=40)
    c = np.array([0], np.uint32)
    for name, end in (("inc", 2), ("dec", 0)):
        launch(
            kernel(Atomic(name, None, counter, i32(0), (Constant(3, U32),)), params=(counter,)),
            [c],
            blocks=1,
            threads=10 if name == "inc" else 6,
        )
        assert c[0] == end


def test_one_thread_takes_what_several_share() -> None:
    t = var("t", F64)
    body = guarded(Take(t, X, i32(0), How.ATOMIC), Accumulate(Y, i32(0), t, How.ATOMIC))
    x, y = np.array([5.0]), np.zeros(1)
    launch(kernel(*body), [x, y, 100])
    assert (x[0], y[0]) == (0, 5)


# --- memory --------------------------------------------------------------------------------------------------------------------------


def test_pointers_reach_outside_their_views() -> None:
    a, b = var("a", F64), var("b", F64)
    body = guarded(
        Load(a, X, op("-", I, 1)),
        Load(b, X, op("+", I, 1)),
        Store(Y, I, op("+", a, b)),
    )
    u, y = np.arange(10.0), np.zeros(8)
    launch(kernel(*body), [u[1:-1], y, 8])
    np.testing.assert_array_equal(y, u[:-2] + u[2:])


def test_one_memory_of_two_types() -> None:
    bits = Buffer("bits", U32, uid=41)
    single = Buffer("single", F32, uid=42)
    v = var("v", U32)
    x = np.ones(8, np.float32)
    body = guarded(Load(v, bits, I), Store(single, op("+", I, 4), Constant(2.0, F32)))
    launch(kernel(*body, params=(single, bits, N)), [x, x.view(np.uint32), 4])
    assert x.tolist() == [1] * 4 + [2] * 4
    wide = Buffer("wide", F64, uid=43)
    body = guarded(Store(wide, I, f64(1)), Store(single, op("+", I, 8), Constant(2.0, F32)))
    launch(kernel(*body, params=(single, wide, N)), [np.zeros(12, np.float32), np.zeros(8), 4])
    shared = np.zeros(12)
    with pytest.raises(RaceError, match="single"):
        launch(kernel(*body, params=(single, wide, N)), [shared.view(np.float32), shared, 6])


def test_arguments_are_checked() -> None:
    k = kernel(*guarded(Store(Y, I, f64(1))))
    x = np.zeros(8)
    for args in ([x, x], [x, x, x], [x, 3, 8], [x.astype(np.float32), x, 8], [x, x, 2**40], [x, x, 7.5]):
        with pytest.raises(LaunchError):
            launch(k, args)
    for grid, block in (((0, 1, 1), (1, 1, 1)), ((1, 1, 1), (1025, 1, 1)), ((1, 1, 1), (64, 64, 1)), ((1, 65536, 1), (1, 1, 1))):
        with pytest.raises(LaunchError):
            Reference().launch(k, grid, block, [resolve(x), resolve(x), 8])
    frozen = np.zeros(8)
    frozen.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        launch(k, [x, frozen, 8])
    with pytest.raises(LaunchError, match="overlap in part"):
        Reference().launch(k, (1, 1, 1), (8, 1, 1), [Memory(x[:6]), Memory(x[2:]), 6])


def test_a_null_pointer_is_fine_until_it_is_used() -> None:
    k = kernel(*guarded(Store(Y, I, f64(1))))
    launch(k, [None, np.zeros(8), 8])
    with pytest.raises(BoundsError, match="null pointer"):
        launch(k, [np.zeros(8), None, 8])


def test_unknown_parts_are_refused() -> None:
    half = Buffer("h", Scalar("bfloat", 16), uid=70)
    with pytest.raises(LaunchError, match="points to bfloat16, but its memory holds uint16"):
        launch(kernel(params=(half,)), [np.zeros(1, np.uint16)])
    mixed = Binary("+", i32(1), Constant(1, U32), I32)
    with pytest.raises(GpuadError, match="malformed"):
        evaluate(mixed)


# --- ten faulty kernels --------------------------------------------------------------------------------------------------------------

A, B = var("a", F64), var("b", F64)
NEXT = op("%", op("+", I, 1), N)
NEXT_IN_BLOCK = op("%", op("+", T, 1), 32)
TILE = (Alloc(S), Load(A, X, I), Store(S, T, A))
FAULTY: dict[str, tuple[type[GpuadError], tuple[Stmt, ...]]] = {
    "stencil in place": (
        RaceError,
        guarded(Load(A, X, I), Load(B, X, NEXT), Store(X, I, op("+", A, B))),
    ),
    "write, then a neighbour reads": (RaceError, guarded(Store(X, I, f64(1)), Load(B, X, NEXT), Store(Y, I, B))),
    "one element, different values": (RaceError, guarded(Store(X, i32(3), Cast(I, F64)))),
    "collision of indices later": (RaceError, guarded(Store(X, I, Cast(I, F64)), Store(X, NEXT, f64(-1)))),
    "plain addition to one element": (RaceError, guarded(Accumulate(X, op("/", I, 2), f64(1), How.PLAIN))),
    "plain take of a shared element": (RaceError, guarded(Take(A, X, op("/", I, 2), How.PLAIN))),
    "plain against atomic": (RaceError, guarded(Accumulate(X, NEXT, f64(1), How.ATOMIC), Load(A, X, I), Store(Y, I, A))),
    "atomic after a plain take": (RaceError, guarded(Take(A, X, I, How.PLAIN), Accumulate(X, NEXT, A, How.ATOMIC))),
    "same value, but someone reads": (RaceError, guarded(Store(X, i32(0), f64(2)), Load(A, X, i32(0)), Store(Y, I, A))),
    "write out of range": (BoundsError, guarded(Store(X, op("+", I, 100), f64(1)))),
    "addition out of range": (BoundsError, guarded(Accumulate(X, op("-", I, 1), f64(1), How.ATOMIC))),
    "use of a read out of range": (BoundsError, guarded(Load(A, X, op("+", I, 1)), Store(Y, I, op("*", A, 2.0)))),
    "use of memory never initialised": (BoundsError, guarded(Alloc(S), Load(A, S, T), Store(Y, I, A))),
    "missing barrier": (RaceError, (*guarded()[:2], *TILE, Load(B, S, NEXT_IN_BLOCK), Store(Y, I, B))),
    "tile overwritten before it is read": (
        RaceError,
        (*guarded()[:2], *TILE, Barrier(), Load(B, S, NEXT_IN_BLOCK), Store(S, T, B), Barrier(), Load(A, S, T), Store(Y, I, A)),
    ),
    "a barrier orders no other block": (
        RaceError,
        (*guarded()[:2], Store(X, I, f64(1)), Barrier(), Load(B, X, op("%", op("+", I, 32), 128)), Store(Y, I, B)),
    ),
    "divergent barrier": (BarrierError, (*guarded()[:2], If(op("<", T, 5), (Barrier(),)))),
    "data out of range as a condition": (
        BoundsError,
        guarded(Load(A, X, op("+", I, 1)), If(op(">", A, 0.0), (Store(Y, I, f64(1)),))),
    ),
    "index out of range as an index": (
        BoundsError,
        guarded(Load(A, X, op("+", I, 1)), Load(B, X, Cast(A, I32)), Store(Y, I, B)),
    ),
}


@pytest.mark.parametrize("order", ["forward", "reversed", "random"])
@pytest.mark.parametrize("name", FAULTY)
def test_faults_are_found_and_nothing_is_written(name: str, order: str) -> None:
    error, body = FAULTY[name]
    n = 128 if any(isinstance(s, Barrier | Alloc) for s in body) else 100
    x, y = np.arange(1.0, n + 1), np.zeros(n)
    with pytest.raises(error):
        launch(kernel(*body), [x, y, n], order=order)
    np.testing.assert_array_equal(x, np.arange(1.0, n + 1))
    assert not y.any()


# --- as many sound ones --------------------------------------------------------------------------------------------------------------

LAST = op("<", op("+", I, 1), N)
SOUND: dict[str, tuple[tuple[Stmt, ...], object]] = {
    "square in place": (guarded(Load(A, X, I), Store(X, I, op("*", A, A)), Store(Y, I, A)), lambda x: x),
    "double-buffered stencil": (
        guarded(Load(A, X, I), Load(B, X, NEXT), Store(Y, I, op("+", A, B))),
        lambda x: x + np.roll(x, -1),
    ),
    "one element, one value": (guarded(Store(Y, i32(3), f64(7))), lambda x: np.where(np.arange(len(x)) == 3, 7.0, 0)),
    "written twice by its owner": (guarded(Store(Y, I, f64(1)), Load(A, Y, I), Store(Y, I, op("+", A, 1.0))), lambda x: x * 0 + 2),
    "atomic addition": (
        guarded(Load(A, X, I), Accumulate(Y, op("%", I, 4), A, How.ATOMIC)),
        lambda x: np.array([x[k::4].sum() if k < 4 else 0 for k in range(len(x))]),
    ),
    "plain addition to its own": (guarded(Load(A, X, I), Accumulate(Y, I, A, How.PLAIN)), lambda x: x),
    "reduction": (
        (*guarded()[:2], Load(A, X, I), Accumulate(Y, i32(1), A, How.REDUCED)),
        lambda x: np.where(np.arange(len(x)) == 1, x.sum(), 0),
    ),
    "a read out of range that nobody uses": (
        guarded(Load(A, X, I), Load(B, X, op("+", I, 1)), Store(Y, I, Select(LAST, op("+", A, B), A))),
        lambda x: x + np.append(x[1:], 0),
    ),
    "a read out of range behind an and": (
        guarded(
            Load(A, X, I),
            Load(B, X, op("+", I, 1)),
            If(Binary("&&", LAST, op(">", B, A), BOOL), (Store(Y, I, f64(1)),)),
        ),
        lambda x: np.append(np.ones(len(x) - 1), 0),
    ),
    "an adjoint of a read out of range": (
        guarded(
            Load(B, X, op("+", I, 1)),
            Store(Y, I, Call("gpuad_chain", (Select(LAST, f64(1), f64(0)), B), F64)),
        ),
        lambda x: np.append(x[1:], 0),
    ),
    "tile with a barrier": (
        (*guarded()[:2], *TILE, Barrier(), Load(B, S, NEXT_IN_BLOCK), Store(Y, I, B)),
        lambda x: np.roll(x.reshape(-1, 32), -1, axis=1).ravel(),
    ),
    "tile rotated in place": (
        (
            *guarded()[:2],
            *TILE,
            Barrier(),
            Load(B, S, NEXT_IN_BLOCK),
            Barrier(),
            Store(S, T, B),
            Barrier(),
            Load(A, S, NEXT_IN_BLOCK),
            Store(Y, I, A),
        ),
        lambda x: np.roll(x.reshape(-1, 32), -2, axis=1).ravel(),
    ),
    "global memory within a block": (
        (*guarded()[:2], Load(A, X, I), Barrier(), Store(X, I, f64(0)), Barrier(), Store(Y, I, A)),
        lambda x: x,
    ),
    "exchange between threads of a block": (
        (
            *guarded()[:2],
            Load(A, X, op("-", op("+", I, NEXT_IN_BLOCK), T)),
            Barrier(),
            Store(X, I, A),
            Barrier(),
            Load(B, X, op("-", op("+", I, NEXT_IN_BLOCK), T)),
            Store(Y, I, B),
        ),
        lambda x: np.roll(x.reshape(-1, 32), -2, axis=1).ravel(),
    ),
    "an atomic take, then nothing": (
        guarded(Store(Y, I, f64(1)), Take(A, X, i32(0), How.ATOMIC), Accumulate(X, i32(0), A, How.ATOMIC)),
        lambda x: np.ones(len(x)),
    ),
    "threads in a barrier loop": (
        (
            *guarded()[:2],
            *TILE,
            Barrier(),
            For(
                Var("d", I32, 7777),
                i32(0),
                i32(3),
                i32(1),
                (Load(B, S, NEXT_IN_BLOCK), Barrier(), Store(S, T, B), Barrier()),
            ),
            Load(A, S, T),
            Store(Y, I, A),
        ),
        lambda x: np.roll(x.reshape(-1, 32), -3, axis=1).ravel(),
    ),
    "an uninitialised shared element that nobody uses": (
        (*guarded()[:2], Alloc(S), Load(A, S, T), Load(B, X, I), Store(Y, I, Select(op("<", T, 99), B, A))),
        lambda x: x,
    ),
    "poison carried through a shared array": (
        (
            *guarded()[:2],
            Alloc(S),
            Load(A, X, op("+", I, 1)),
            Store(S, T, A),
            Barrier(),
            Load(B, S, T),
            If(LAST, (Store(Y, I, B),)),
        ),
        lambda x: np.append(x[1:], 0),
    ),
}


@pytest.mark.parametrize("order", ["forward", "reversed", "random"])
@pytest.mark.parametrize("name", SOUND)
def test_sound_kernels_pass(name: str, order: str) -> None:
    body, expected = SOUND[name]
    whole = any(isinstance(s, Barrier | Alloc) or (isinstance(s, Accumulate) and s.how is How.REDUCED) for s in body)
    n = 128 if whole else 100
    x, y = np.arange(1.0, n + 1), np.zeros(n)
    initial = x.copy()
    launch(kernel(*body), [x, y, n], order=order)
    np.testing.assert_allclose(y, expected(initial), rtol=1e-14)  # type: ignore[operator]


# --- what the errors say -------------------------------------------------------------------------------------------------------------


def test_a_race_names_both_sides() -> None:
    text = SourceFile("k.cu", "x[i] = 1;\ny[i] = x[i + 1];\n")
    first, second = Span(text, 1, 1), Span(text, 2, 8)
    body = guarded(Store(X, I, f64(1), span=first), Load(B, X, NEXT, span=second), Store(Y, I, B))
    with pytest.raises(RaceError) as caught:
        launch(kernel(*body), [np.zeros(64), np.zeros(64), 64])
    error = caught.value
    assert (error.buffer, error.spans, error.line, error.column) == ("x", (first, second), 2, 8)
    (one, two), index = error.threads, error.index
    assert 32 * one[0][0] + one[1][0] == index
    assert (32 * two[0][0] + two[1][0] + 1) % 64 == index
    assert "k.cu:1:1" in str(error)


def test_overlapping_arguments_are_one_memory() -> None:
    shift = kernel(*guarded(Load(A, X, I), Store(Y, I, A)))
    u = np.arange(101.0)
    launch(shift, [u[:100], u[:100], 100])
    with pytest.raises(RaceError):
        launch(shift, [u[1:], u[:-1], 100])
    launch(shift, [u[1:], u[:-1], 100], check=False)


def test_bounds_errors_name_the_thread_and_the_index() -> None:
    with pytest.raises(BoundsError, match=r"`x`\[98\], outside its allocation \[-2, 98\)") as caught:
        launch(kernel(*guarded(Store(X, op("+", I, 60), f64(1)))), [np.zeros(100)[2:], np.zeros(1), 41], threads=64)
    assert (caught.value.index, caught.value.buffer) == (98, "x")


def test_unused_reads_outside_are_findings() -> None:
    body, _ = SOUND["a read out of range that nobody uses"]
    executor = Reference()
    executor.launch(kernel(*body), (1, 1, 1), (32, 1, 1), [resolve(np.ones(20)), resolve(np.zeros(20)), 20])
    assert len(executor.findings) == 1
    assert "`x`" in executor.findings[0]


def test_copies_and_zeros() -> None:
    executor = Reference()
    assert executor.zeros(3, np.float32).dtype == np.float32
    x = np.ones(2)
    assert executor.copy(x) is not x

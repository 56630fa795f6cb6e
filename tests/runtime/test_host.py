"""The CPU executor: agrees with the reference, keeps PTX's integers, caches what it compiles, and says what is wrong."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ir_tools import buffer, call, const, f32, index, kernel, op, unsigned_index, var
from nightly import cases
from random_kernels import SIZE, SLOTS, RandomKernel

from gpuad.codegen.cpu.source import host_source
from gpuad.codegen.cpu.widen import wrapping
from gpuad.errors import CompileError, LaunchError
from gpuad.frontend.cuda import parse
from gpuad.ir.functions import FUNCTIONS
from gpuad.ir.nodes import (
    Accumulate,
    Atomic,
    Barrier,
    Binary,
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
    Store,
    Take,
    Var,
)
from gpuad.ir.types import BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Scalar
from gpuad.ir.verify import verify
from gpuad.pipeline.passes import primal_of
from gpuad.runtime import compiler as cache
from gpuad.runtime import disk_cache
from gpuad.runtime.base import Dim3, Memory
from gpuad.runtime.compiler import Compiler
from gpuad.runtime.host import Host, default_workers
from gpuad.runtime.reference.reference import Reference
from gpuad.runtime.thread_pool import thread_pool
from gpuad.source import SourceFile

SEEDS = range(cases(5, 24))
ONE: Dim3 = (1, 1, 1)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the module's own, empty at first."""
    path = tmp_path_factory.mktemp("cache")
    path.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(disk_cache.VARIABLE, str(path))
        yield path


@pytest.fixture(scope="module")
def host() -> Host:
    return Host()


def saxpy(name: str = "saxpy") -> Kernel:
    x, y, a, n, i, t = buffer("x"), buffer("y"), var("a"), var("n", I32), var("i", I32), var("t")
    guarded = If(op("<", i, n), (Load(t, x, i), Accumulate(y, i, op("*", a, t), How.PLAIN)))
    return kernel(name, (a, x, y, n), Let(i, index()), guarded)


# --- agreement with the reference ----------------------------------------------------------------------------------------------------


def inputs(seed: int, threads: int) -> list[Any]:
    random = np.random.default_rng(seed)
    f = random.normal(size=SIZE).astype(np.float32)
    f[:3] = 0, np.nan, -0.0
    g = random.integers(-20, 100, SIZE).astype(np.int32)
    p = random.normal(size=SLOTS * threads).astype(np.float32)
    q = random.integers(-9, 9, SLOTS * threads).astype(np.int32)
    return [f, g, p, q, random.normal(size=SLOTS * threads), np.zeros(4, np.int32), np.zeros(4)]


def outcome(executor: Any, k: Kernel, seed: int) -> list[Any]:
    arrays = inputs(seed, 32)
    executor.launch(k, (2, 1, 1), (16, 1, 1), [*map(Memory, arrays), np.int32(37)])
    return arrays


def test_random_kernels_agree_bit_for_bit(host: Host) -> None:
    """With one worker and with several: their text is the same, so the second finds it compiled."""
    kernels = [RandomKernel(seed).kernel for seed in SEEDS]
    several = Host(workers=3)
    for k in kernels:
        verify(k)
    for executor in (host, several):
        executor.prepare(kernels)
    for seed, k in zip(SEEDS, kernels, strict=True):
        expected = outcome(Reference(check=False), k, seed)
        for executor in (host, several):
            for param, a, b in zip(k.params, expected, outcome(executor, k, seed), strict=False):
                np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}: {param.name}")


def test_every_function_agrees(host: Host) -> None:
    kernels = {t: kernel_of(functions_of(t), t) for t in (F32, F64, I32, U32, I64, U64)}
    host.prepare(kernels.values())
    for t, k in kernels.items():
        check_functions(k, functions_of(t), t, host)


def check_functions(k: Kernel, names: list[str], t: Scalar, host: Host) -> None:
    results = []
    for executor in (Reference(check=False), host):
        out = np.zeros(32 * len(names), str(t))
        executor.launch(k, ONE, (32, 1, 1), [*(Memory(x) for x in values_of(t)), Memory(out)])
        results.append(out.reshape(len(names), 32))
    for name, expected, found in zip(names, *results, strict=True):
        tolerance = {F32: 1e-5, F64: 1e-12}.get(t, 0)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def functions_of(t: Scalar) -> list[str]:
    """The functions that exist at the type; `abs` is not for unsigned integers."""
    if t.is_integer:
        return [n for n, f in FUNCTIONS.items() if f.domain == "int" and (n != "abs" or t.is_signed)]
    return [n for n, f in FUNCTIONS.items() if f.domain != "int" and (f.single if t == F32 else f.double)]


def kernel_of(names: list[str], t: Scalar) -> Kernel:
    """Stores what the functions make of elements i of x0, x1, x2, one row of 32 after the other."""
    inputs, values = [buffer(f"x{k}", t) for k in range(3)], [var(f"v{k}", t) for k in range(3)]
    i, out = var("i", I32), buffer("out", t)
    stores = [Store(out, op("+", i, const(32 * row)), applied(name, values, t)) for row, name in enumerate(names)]
    return kernel(f"functions_{t}", (*inputs, out), Let(i, index()), *(Load(v, x, i) for v, x in zip(values, inputs, strict=True)), *stores)


def applied(name: str, values: list[Var], t: Scalar) -> Expr:
    arguments: list[Expr] = list(values[: FUNCTIONS[name].arity])
    if name == "acosh":
        arguments[0] = op("+", arguments[0], Constant(1, t))
    if (whole := FUNCTIONS[name].whole) is not None:
        arguments[whole] = Cast(op("*", arguments[whole], Constant(9, t)), I32)
    result = BOOL if FUNCTIONS[name].domain == "predicate" else I32 if name in ("popc", "clz", "ffs") else t
    value = Call(name, tuple(arguments), result)
    return value if result == t else Cast(value, t)


def values_of(t: Scalar) -> list[Any]:
    """Three times 32 values at which every function is defined, in (0, 1), some exact; integers of every size."""
    random = np.random.default_rng(1)
    if t.is_integer:
        wide = random.integers(0, 2**63, (3, 32), np.uint64) >> random.integers(0, 63, (3, 32)).astype(np.uint64)
        values = wide.astype(str(t))
        values[:, 0] = 0
    else:
        values = random.uniform(0.02, 0.98, (3, 32)).astype(str(t))
        values[:, :2] = 0.5, 0.25
    return list(values)


def integers(t: Scalar) -> Kernel:
    a, b, x, y, i, out = buffer("a", t), buffer("b", t), var("x", t), var("y", t), var("i", I32), buffer("out", t)
    stores = [Store(out, op("+", op("*", i, const(5)), const(k)), Binary(o, x, y, t)) for k, o in enumerate(("/", "%", "<<", ">>", "*"))]
    return kernel(f"ints_{t}", (a, b, out), Let(i, index()), Load(x, a, i), Load(y, b, i), *stores)


def test_integers_as_ptx_has_them(host: Host) -> None:
    kernels = {t: integers(t) for t in (I32, U32, I64, U64)}
    host.prepare(kernels.values())
    for t, k in kernels.items():
        low = -(2 ** (t.bits - 1)) if t.is_signed else 0
        values = np.array([0, 1, 2, 31, 32, 33, 63, 64, 65, 100, low, low + 1, *((-1, -7) if t.is_signed else (5, 9))], str(t))
        left, right = (g.ravel().copy() for g in np.meshgrid(values, values))
        results = []
        for executor in (Reference(), host):
            result = np.zeros(5 * left.size, str(t))
            executor.launch(k, (left.size, 1, 1), ONE, [Memory(left), Memory(right), Memory(result)])
            results.append(result)
        np.testing.assert_array_equal(*results, err_msg=k.name)


def conversion(source: Scalar, target: Scalar) -> Kernel:
    x, out, i, v = buffer("x", source), buffer("out", target), var("i", I32), var("v", source)
    return kernel(f"cast_{source}_{target}", (x, out), Let(i, index()), Load(v, x, i), Store(out, i, Cast(v, target)))


def test_floats_to_integers_saturate(host: Host) -> None:
    kernels = {(source, target): conversion(source, target) for source in (F32, F64) for target in (I8, U8, I16, U16, I32, U32, I64, U64)}
    host.prepare(kernels.values())
    values = [
        0.0,
        -0.5,
        1.9,
        -1.0,
        -1.9,
        127.9,
        200.0,
        255.9,
        256.5,
        -129.0,
        4e4,
        65535.9,
        7e4,
        -7e4,
        3e9,
        -3e9,
        1e19,
        -1e19,
        1e30,
        np.inf,
        -np.inf,
        np.nan,
        2.0**31,
        -(2.0**31),
        2.0**32,
        2.0**63,
        2.0**64,
    ]
    for (source, target), k in kernels.items():
        given = np.array(values, str(source))
        results = []
        for executor in (Reference(), host):
            results.append(np.zeros(given.size, str(target)))
            executor.launch(k, (given.size, 1, 1), ONE, [Memory(given), Memory(results[-1])])
        np.testing.assert_array_equal(*results, err_msg=k.name)


# --- launches ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [None, 1, 3])
@pytest.mark.parametrize("n", [1, 31, 1000, 100_001])
def test_saxpy(n: int, workers: int | None) -> None:
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    Host(workers).launch(saxpy(), (-(-n // 128), 1, 1), (128, 1, 1), [np.float32(2), Memory(x), Memory(y), np.int32(n)])
    np.testing.assert_array_equal(y, 1 + 2 * x)


def heat(t: Scalar) -> Kernel:
    """A stencil in two dimensions, its indices of type `t`, on the interior."""
    u, v, n, m, x, y, i = buffer("u"), buffer("v"), var("n", t), var("m", t), var("x", t), var("y", t), var("i", t)
    one, values = Constant(1, t), [var("t") for _ in range(4)]
    places = [op("-", i, one), op("+", i, one), op("-", i, n), op("+", i, n)]
    inside = [op(">=", x, one), op("<", x, op("-", n, one)), op(">", y, Constant(0, t)), op("<=", y, op("-", m, Constant(2, t)))]
    condition = op("&&", op("&&", inside[0], inside[1]), op("&&", inside[2], inside[3]))
    total = op("+", op("+", values[0], values[1]), op("+", values[2], values[3]))
    loads = [Load(v_, u, p) for v_, p in zip(values, places, strict=True)]
    lets = [Let(w, Cast(unsigned_index(a), t) if t != U32 else unsigned_index(a)) for w, a in ((x, "x"), (y, "y"))]
    body = (Let(i, op("+", op("*", y, n), x)), *loads, Store(v, i, total))
    return kernel(f"heat_{t}", (u, v, n, m), *lets, If(condition, body))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("t", [I32, U32, I64], ids=str)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("block", [(32, 8, 1), (5, 3, 1), (1, 1, 1)])
def test_heat(t: Scalar, workers: int, block: Dim3) -> None:
    n, m = 37, 21
    u, v = np.random.default_rng(0).random((m, n)).astype(np.float32), np.zeros((m, n), np.float32)
    expected = v.copy()
    expected[1:-1, 1:-1] = (u[1:-1, :-2] + u[1:-1, 2:]) + (u[:-2, 1:-1] + u[2:, 1:-1])
    number = np.dtype(str(t)).type
    grid = (-(-n // block[0]), -(-m // block[1]), 1)
    Host(workers).launch(heat(t), grid, block, [Memory(u.ravel()), Memory(v.ravel()), number(n), number(m)])
    np.testing.assert_array_equal(v, expected)


def test_indices_reach_outside_the_view_but_not_outside_the_allocation(host: Host) -> None:
    p, out, i, t = buffer("p"), buffer("out"), var("i", I32), var("t")
    k = kernel("back", (p, out), Let(i, index()), Load(t, p, op("-", i, const(3))), Store(out, i, t))
    root, out_array = np.arange(10, dtype=np.float32), np.zeros(4, np.float32)
    host.launch(k, ONE, (4, 1, 1), [Memory(root, 5), Memory(out_array)])
    np.testing.assert_array_equal(out_array, [2, 3, 4, 5])


def test_arguments_that_overlap(host: Host) -> None:
    """Each thread reads what it wrote through the other pointer."""
    x, y, i, t = buffer("x"), buffer("y"), var("i", I32), var("t")
    k = kernel("overlap", (x, y), Let(i, index()), Store(x, i, f32(3)), Load(t, y, i), Store(y, i, op("*", t, t)))
    memory = np.ones(64, np.float32)
    host.launch(k, ONE, (64, 1, 1), [Memory(memory), Memory(memory)])
    np.testing.assert_array_equal(memory, 9)


def test_all_launch_indices(host: Host) -> None:
    names = [(name, axis) for name in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"]
    slot, out = var("slot", I32), buffer("out", I32)

    def linear(name: str, extent: str, inner: Any) -> Any:
        for axis in "zyx":
            inner = op("+", op("*", inner, LaunchIndex(extent, axis)), LaunchIndex(name, axis))
        return inner

    place = linear("threadIdx", "blockDim", linear("blockIdx", "gridDim", Constant(0, U32)))
    stores = [Store(out, op("+", op("*", slot, const(12)), const(k)), Cast(LaunchIndex(*name), I32)) for k, name in enumerate(names)]
    k = kernel("where", (out,), Let(slot, Cast(place, I32)), *stores)
    grid, block = (3, 2, 2), (4, 3, 2)
    results = []
    for executor in (Reference(), host, Host(workers=2)):
        results.append(np.zeros(12 * 288, np.int32))
        executor.launch(k, grid, block, [Memory(results[-1])])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def scatter() -> Kernel:
    h, at, i, j = buffer("h"), buffer("at", I32), var("i", I32), var("j", I32)
    return kernel("scatter", (h, at), Let(i, index()), Load(j, at, i), Accumulate(h, j, f32(1), How.ATOMIC))


@pytest.mark.parametrize("workers", [None, 1, 4])
def test_atomics(workers: int | None) -> None:
    n = 1 << 16
    at, h = (np.arange(n) % 7).astype(np.int32), np.zeros(7, np.float32)
    Host(workers).launch(scatter(), (n // 256, 1, 1), (256, 1, 1), [Memory(h), Memory(at)])
    np.testing.assert_array_equal(h, np.bincount(at).astype(np.float32))


@pytest.mark.parametrize("workers", [1, 2])
def test_atomic_operations(workers: int) -> None:
    kernels, several = [], Host(workers)
    for operation in ("add", "sub", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec"):
        c, i, old, out = buffer("c", U32), var("i", I32), var("old", U32), buffer("out", U32)
        operands = (Constant(5, U32), Constant(9, U32)) if operation == "cas" else (Constant(5, U32),)
        atomic = Atomic(operation, old, c, i, operands)
        kernels.append(kernel(f"atomic_{operation}", (c, out), Let(i, index()), atomic, Store(out, i, old)))
    several.prepare(kernels)
    for k in kernels:
        results = []
        for executor in (Reference(), several):
            given, seen = np.array([0, 3, 5, 6, 2**31, 2**32 - 1], np.uint32), np.zeros(6, np.uint32)
            executor.launch(k, ONE, (6, 1, 1), [Memory(given), Memory(seen)])
            results.append((given, seen))
        np.testing.assert_array_equal(results[0], results[1], err_msg=k.name)


def test_an_adjoint_is_taken_once() -> None:
    """Every thread takes the same element: one of them gets it."""
    dm, da, i, d = buffer("dm"), buffer("da"), var("i", I32), var("d")
    k = kernel("once", (dm, da), Let(i, index()), Take(d, dm, const(0), How.ATOMIC), Accumulate(da, const(0), d, How.ATOMIC))
    for workers in (1, 3):
        m, a = np.array([5], np.float32), np.zeros(1, np.float32)
        Host(workers).launch(k, (64, 1, 1), (64, 1, 1), [Memory(m), Memory(a)])
        assert (m[0], a[0]) == (0, 5)


def total(t: Scalar) -> Kernel:
    x, s, i, v = buffer("x", t), buffer("s", t), var("i", I32), var("v", t)
    row = op("&", LaunchIndex("blockIdx", "x"), Constant(1, U32))
    return kernel(f"total_{t}", (x, s), Let(i, index()), Load(v, x, i), Accumulate(s, Cast(row, I32), v, How.REDUCED))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("t", [F32, F64], ids=str)
@pytest.mark.parametrize("workers", [None, 1, 3])
def test_sums_over_blocks(t: Scalar, workers: int | None) -> None:
    x = np.random.default_rng(0).random(96 * 1000).astype(str(t))
    runs = []
    for _ in range(2):
        s = np.ones(2, str(t))
        Host(workers).launch(total(t), (1000, 1, 1), (96, 1, 1), [Memory(x), Memory(s)])
        runs.append(s)
    expected = 1 + x.reshape(500, 2, 96).astype(np.float64).sum(axis=(0, 2))
    np.testing.assert_allclose(runs[0], expected, rtol=1e-6 if t == F32 else 1e-13)
    np.testing.assert_array_equal(*runs)


def test_a_float_sum_of_very_many_terms_keeps_its_digits(host: Host) -> None:
    n = 1 << 22
    s = np.zeros(2, np.float32)
    host.launch(total(F32), (n // 256, 1, 1), (256, 1, 1), [Memory(np.full(n, 0.1, np.float32)), Memory(s)])
    np.testing.assert_allclose(s.astype(np.float64).sum(), n * float(np.float32(0.1)), rtol=1e-7)


def test_a_grid_stride_loop(host: Host) -> None:
    y, n, start, i = buffer("y"), var("n", I32), var("i", I32), var("i", I32)
    step = Cast(op("*", LaunchIndex("blockDim", "x"), LaunchIndex("gridDim", "x")), I32)
    body = (Accumulate(y, i, Cast(i, F32), How.PLAIN),)
    k = kernel("stride", (y, n), Let(start, index()), For(i, start, n, step, body))
    array = np.ones(1000, np.float32)
    host.launch(k, (3, 1, 1), (32, 1, 1), [Memory(array), np.int32(999)])
    np.testing.assert_array_equal(array[:-1], 1 + np.arange(999))
    assert array[-1] == 1


def test_unsigned_indices_wrap_where_c_says_so(host: Host) -> None:
    """`u - 1 < 7u` holds for 1 to 7, not for 0."""
    out, i = buffer("out"), var("i", U32)
    inside = op("<", op("-", i, Constant(1, U32)), Constant(7, U32))
    k = kernel("wrap", (out,), Let(i, unsigned_index()), If(inside, (Store(out, i, f32(1)),)))
    array = np.zeros(16, np.float32)
    host.launch(k, ONE, (16, 1, 1), [Memory(array)])
    np.testing.assert_array_equal(np.flatnonzero(array), np.arange(1, 8))


def test_an_unsigned_offset_that_stands_for_a_negative_one(host: Host) -> None:
    """x[i + offset] with offset = 2^32 - 1 is x[i - 1]: defined behaviour of unsigned numbers."""
    x, out, i, offset, t = buffer("x"), buffer("out"), var("i", U32), var("offset", U32), var("t")
    body = (Load(t, x, op("+", i, offset)), Store(out, i, t))
    k = kernel("offset", (x, out, offset), Let(i, unsigned_index()), If(op(">", i, Constant(0, U32)), body))
    source, array = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    host.launch(k, ONE, (16, 1, 1), [Memory(source), Memory(array), np.uint32(2**32 - 1)])
    np.testing.assert_array_equal(array[1:], np.arange(15))


def test_a_loop_that_begins_below_zero_by_unsigned_arithmetic(host: Host) -> None:
    """`for (int i = m - 9 + threadIdx.x; ...)`: the sum is an unsigned number, its conversion to int is negative."""
    out, m, i = buffer("out"), var("m", I32), var("i", I32)
    start = Cast(op("+", Cast(op("-", m, const(9)), U32), LaunchIndex("threadIdx", "x")), I32)
    body = (If(op(">=", i, const(0)), (Accumulate(out, i, f32(1), How.PLAIN),)),)
    k = kernel("below", (out, m), For(i, start, const(16), const(4), body))
    array = np.zeros(16, np.float32)
    host.launch(k, ONE, (4, 1, 1), [Memory(array), np.int32(3)])
    np.testing.assert_array_equal(array, 1)


@pytest.mark.parametrize("first", [3, (1 << 64) - 1])
def test_an_unsigned_loop_of_64_bits_runs_backward(host: Host, first: int) -> None:
    """`for (size_t i = k - 1; i < 9; i += 2)` with k = 0 has no iteration."""
    out, m, i = buffer("out"), var("m", U64), var("i", U64)
    body = (Accumulate(out, op("&", i, const(15, U64)), f32(1), How.PLAIN),)
    k = kernel("far_trips", (out, m), For(i, m, const(9, U64), const(2, U64), body, (), True))
    results = []
    for executor in (Reference(), host):
        results.append(np.zeros(16, np.float32))
        executor.launch(k, ONE, ONE, [Memory(results[-1]), np.uint64(first)])
    np.testing.assert_array_equal(*results)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("sign", "numbers"), [("+", (65537, 65535)), ("-", (65537, 65535)), ("+", (65536, 65536)), ("+", (3, 1))])
def test_unsigned_sums_that_wrap_into_the_array(host: Host, sign: str, numbers: tuple[int, int]) -> None:
    """65537 * 65535 is 2^32 - 1: the product does not wrap, the sum and the difference do."""
    out, m, p = buffer("out"), var("m", U32), var("p", U32)
    x = LaunchIndex("threadIdx", "x")
    k = kernel("far", (out, m, p), Accumulate(out, op(sign, op("+", x, const(1, U32)), op("*", m, p)), f32(1), How.PLAIN))
    assert wrapping(k).wraps(ONE, (8, 1, 1), dict(zip((m, p), numbers, strict=True))) == (numbers != (3, 1))
    results = []
    for executor in (Reference(), host):
        results.append(np.zeros(16, np.float32))
        executor.launch(k, ONE, (8, 1, 1), [Memory(results[-1]), *map(np.uint32, numbers)])
    np.testing.assert_array_equal(*results)


def test_hashes_of_indices_wrap(host: Host) -> None:
    out, i, h = buffer("out", I32), var("i", I32), var("h", I32)
    mixed = op("^", op("*", i, const(73856093)), op("*", op("+", i, const(1)), const(19349663)))
    k = kernel("hash", (out,), Let(i, index()), Let(h, mixed), Store(out, i, op("%", h, const(1000))))
    results = []
    for executor in (Reference(), host):
        results.append(np.zeros(4096, np.int32))
        executor.launch(k, (16, 1, 1), (256, 1, 1), [Memory(results[-1])])
    np.testing.assert_array_equal(*results)


def test_names_that_the_c_library_has(host: Host) -> None:
    kernels = []
    for name in ("y1", "j0", "gamma", "index", "main", "exp", "std", "printf", "isnan"):
        parameter, out = var(name), buffer(f"{name}_out")
        kernels.append(kernel(name, (parameter, out), Store(out, const(0), op("+", call("exp", parameter), parameter))))
    host.prepare(kernels)
    for k in kernels:
        array = np.zeros(1, np.float32)
        host.launch(k, ONE, ONE, [np.float32(1), Memory(array)])
        assert array[0] == pytest.approx(np.e + 1, rel=1e-6), k.name


def test_a_null_pointer_that_is_not_followed(host: Host) -> None:
    x, y, n = buffer("x"), buffer("y"), var("n", I32)
    k = kernel("null", (x, y, n), Store(y, const(0), f32(1)), If(op(">", n, const(0)), (Store(x, const(0), f32(1)),)))
    array = np.zeros(1, np.float32)
    host.launch(k, ONE, ONE, [None, Memory(array), np.int32(0)])
    assert array[0] == 1


# --- errors --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: np.float64(2)}, "a is a float32"),
        ({0: 2.0}, "a is a float32"),
        ({0: None}, "a is a float32"),
        ({1: np.ones(4, np.float32)}, "x is a pointer"),
        ({1: Memory(np.ones(4))}, "x points to float32, not to float64"),
        ({3: np.int64(4)}, "n is a int32"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(change: dict[int, Any], message: str, host: Host) -> None:
    x, y = np.ones(4, np.float32), np.ones(4, np.float32)
    args = [np.float32(2), Memory(x), Memory(y), np.int32(4)]
    with pytest.raises(LaunchError, match=message):
        host.launch(saxpy(), ONE, (4, 1, 1), [change.get(k, a) for k, a in enumerate(args)])
    np.testing.assert_array_equal(y, 1)


@pytest.mark.parametrize(
    ("grid", "block"), [((0, 1, 1), ONE), (ONE, (1025, 1, 1)), (ONE, (1, 1, 65)), ((1, 1 << 16, 1), ONE), ((1, 1), ONE)]
)  # fmt: skip
def test_geometries_that_a_gpu_refuses(grid: Any, block: Dim3, host: Host) -> None:
    y = np.ones(4, np.float32)
    with pytest.raises(LaunchError, match=r"grid|block"):
        host.launch(saxpy(), grid, block, [np.float32(2), Memory(y), Memory(y), np.int32(4)])


def test_a_wrong_number_of_arguments(host: Host) -> None:
    with pytest.raises(LaunchError, match="saxpy takes 4 arguments, not 1"):
        host.launch(saxpy(), ONE, ONE, [np.float32(2)])


def test_more_threads_along_an_axis_than_an_int_holds(host: Host) -> None:
    y = np.ones(4, np.float32)
    with pytest.raises(LaunchError, match="threads along an axis"):
        host.launch(saxpy(), ((1 << 31) - 1, 1, 1), (32, 1, 1), [np.float32(2), Memory(y), Memory(y), np.int32(4)])


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_a_wrong_number_of_threads(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAD_THREADS", text)
    with pytest.raises(LaunchError, match="GPUAD_THREADS"):
        default_workers()
    with pytest.raises(LaunchError, match="0 workers"):
        Host(workers=0)


# --- the compiler and the cache ------------------------------------------------------------------------------------------------------


def run_saxpy(name: str) -> None:
    y = np.ones(4, np.float32)
    Host().launch(saxpy(name), ONE, (4, 1, 1), [np.float32(2), Memory(np.ones(4, np.float32)), Memory(y), np.int32(4)])
    np.testing.assert_array_equal(y, 3)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CompileError, match="pip install ziglang"):
        run_saxpy("no_compiler")


def test_a_compiler_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -x")
    with pytest.raises(CompileError, match="CXX, 'no-such-compiler -x', does not run"):
        run_saxpy("bad_compiler")


def test_a_compiler_that_rejects_the_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "cxx"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && echo fake && exit 0\necho "cannot do that" >&2\nexit 3\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(CompileError, match=r"exit status 3[\s\S]*cannot do that"):
        run_saxpy("rejected")


def test_the_level_of_optimisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library for each: one that was compiled in a hurry is no one's later."""
    flags = {}
    for level in ("0", "1", "2", "3", ""):
        monkeypatch.setenv(cache.LEVEL, level)
        flags[level] = [f for f in cache.find_compiler().flags if f.startswith("-O")]
        run_saxpy("levels")
    assert flags == {"0": ["-O0"], "1": ["-O1"], "2": ["-O2"], "3": ["-O3"], "": ["-O3"]}
    monkeypatch.setenv(cache.LEVEL, "fast")
    with pytest.raises(CompileError, match="GPUAD_OPTIMIZE is 'fast': it has to be 0, 1, 2 or 3"):
        run_saxpy("levels")


_ODD = {  # what a compiler may do instead of its work, as a shell script, and what is said of it
    "rejects in no encoding": (r"printf '\\377\\376 rejected' >&2; exit 1", r"exit status 1[\s\S]* rejected"),
    "writes nothing": ("exit 0", "wrote no library: try it by hand, or name another compiler"),
    "writes junk": ('while [ "$1" != -o ]; do shift; done; echo junk > "$2"', "made a library that cannot be used .*not kept"),
    "is killed": ("kill -9 $$", r"was killed \(signal 9\)"),
    "writes another library": (
        'while [ "$1" != -o ]; do shift; done; echo "" | c++ -xc++ -shared -fPIC - -o "$2"',
        "cannot be used .*not kept",
    ),
}


@pytest.mark.skipif(os.name == "nt", reason="shell scripts")
@pytest.mark.parametrize("what", _ODD)
def test_a_compiler_that_fails_oddly(what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is a CompileError, and nothing that cannot be used stays in the cache."""
    does, said = _ODD[what]
    script = tmp_path / "cxx"
    script.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && printf '\\377fake' && exit 0\n{does}\n")
    script.chmod(0o755)
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(script))
    for _ in range(2):
        with pytest.raises(CompileError, match=said):
            run_saxpy(what.replace(" ", "_"))
    assert [p.name for p in (tmp_path / "cache").iterdir()] == []


def test_a_compiler_without_permission_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "cxx"
    script.write_text("#!/nowhere/sh\n")
    script.chmod(0o755)
    with pytest.raises(CompileError, match=r"cannot be run .*name another compiler"):
        Compiler((str(script),), "").build(tmp_path / "x.cpp", tmp_path / "x.so", ())


def test_a_compiler_named_in_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", 'g++ "')
    with pytest.raises(CompileError, match="CXX, 'g\\+\\+ \"', is no command"):
        run_saxpy("bad_command")


def test_the_compiler_that_the_user_names_is_not_passed_over(tmp_path: Path) -> None:
    """A CXX that does not run is no reason for the slow executor."""
    program = """
import numpy as np, gpuad
k = gpuad.kernel('extern "C" __global__ void square(double* x) { x[threadIdx.x] *= x[threadIdx.x]; }', "square")
k(1, 8, (np.ones(8),))
"""
    environment = os.environ | {"CXX": str(tmp_path / "nothing++")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "CompileError: the compiler in the environment variable CXX" in done.stderr
    assert "does not run: unset CXX" in done.stderr


def run_elsewhere(name: str, folder: Path) -> None:
    """The same in a process of its own, with a cache of its own."""
    folders = [str(folder) for folder in Path(__file__).parents[:3]]
    program = f"import sys; sys.path[:0] = {folders}; import test_host; test_host.run_saxpy({name!r})"
    subprocess.run([sys.executable, "-c", program], env=os.environ | {disk_cache.VARIABLE: str(folder)}, check=True)


def test_junk_that_an_earlier_process_has_kept_is_built_anew(tmp_path: Path) -> None:
    run_elsewhere("left", tmp_path / "cache")
    libraries = list((tmp_path / "cache").glob("*.so"))
    for library in libraries:
        library.write_bytes(b"junk")
        library.with_suffix(".sha256").write_text(hashlib.sha256(b"junk").hexdigest())
    run_elsewhere("left", tmp_path / "cache")
    assert min(library.stat().st_size for library in libraries) > 1000


def test_compiled_code_is_found_again_and_damage_is_repaired(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    thread_pool()  # is in the old cache
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "new" / "cache"))
    run_saxpy("kept")
    (library,) = (tmp_path / "new" / "cache").glob("*.so")
    assert (tmp_path / "new" / "cache").stat().st_mode & 0o777 == 0o700
    before = library.stat().st_mtime_ns
    run_saxpy("kept")
    assert library.stat().st_mtime_ns == before
    damaged = library.read_bytes()[:1000]
    library.unlink()
    library.write_bytes(damaged)
    run_saxpy("kept")
    assert library.stat().st_size > 1000
    assert not list(library.parent.glob("building-*"))


def test_a_cache_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "file"))
    with pytest.raises(CompileError, match="set GPUAD_CACHE_DIR"):
        run_saxpy("unwritable")


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no permission bits here")
def test_a_cache_that_others_can_write_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    monkeypatch.setenv(disk_cache.VARIABLE, str(open_folder))
    with pytest.raises(CompileError, match="written by other users"):
        run_saxpy("shared")


def test_several_processes_fill_one_cache(tmp_path: Path) -> None:
    folders = [str(folder) for folder in Path(__file__).parents[:3]]
    program = f"import sys; sys.path[:0] = {folders}; import test_host; test_host.run_saxpy('raced')"
    environment = os.environ | {disk_cache.VARIABLE: str(tmp_path / "cache")}
    running = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert len(list((tmp_path / "cache").glob("*.so"))) == 2  # the kernel's library and the crew's


def test_programs_do_not_outlive_their_kernels() -> None:
    executor = Host()
    for number in range(5):
        executor.program(saxpy(f"short_lived_{number}"))
    assert len(executor.by_id) <= 2


def test_carried_state_of_one_thread_is_not_that_of_another(host: Host) -> None:
    """A loop that carries values through the vectorised loop over threads."""
    x, i, s, end, j, t = buffer("x"), var("i", I32), var("s"), var("s"), var("j", I32), var("t")
    loop = For(j, const(0), i, const(1), (), (Carried(s, t, op("+", s, f32(1)), end),))
    k = kernel("carried", (x,), Let(i, index()), Load(t, x, i), loop, Store(x, i, end))
    array = np.zeros(100, np.float32)
    host.launch(k, (10, 1, 1), (10, 1, 1), [Memory(array)])
    np.testing.assert_array_equal(array, np.arange(100))


def test_a_kernel_that_waits_needs_a_block_that_a_gpu_takes(host: Host) -> None:
    host.launch(kernel("sync", (), Barrier()), ONE, ONE, [])
    with pytest.raises(LaunchError, match="more than 1024 threads"):
        host.launch(kernel("sync", (), Barrier()), ONE, (1025, 1, 1), [])


@pytest.mark.parametrize("index", ["int i = blockIdx.x * blockDim.x + threadIdx.x", "unsigned i = blockIdx.x * blockDim.x + threadIdx.x"])
def test_a_guard_that_leaves_out_an_index(index: str, host: Host) -> None:
    """`i != 0` is a bound of the loop, since no index is below 0; that `i - 1 != 2` leaves out another is not."""
    text = f'extern "C" __global__ void f(float* y, int n) {{ {index}; if (i != 0 && i - 1 != 2 && i < n) y[i] += i; }}'
    made = primal_of(parse(SourceFile("f.cu", text)).kernel("f"))
    assert re.search(r"\(0u?\) \+ 1 > gpuad_from", host_source([made]))
    found = []
    for executor in (host, Reference()):
        y = np.zeros(50, np.float32)
        executor.launch(made, (4, 1, 1), (16, 1, 1), [Memory(y), np.int32(47)])
        found.append(y)
    np.testing.assert_array_equal(found[0], found[1])
    assert list(np.flatnonzero(found[0] == 0)) == [0, 3, 47, 48, 49]

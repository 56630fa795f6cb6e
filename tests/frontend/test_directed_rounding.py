"""Arithmetic and conversions that round up, down or towards zero: against exact fractions, and as NVRTC compiles them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from ptx import nvrtc
from ptx_tools import cuda

import gpuad
from gpuad import Duplicated, pipeline

Exact = Callable[..., Fraction]
ARITHMETIC: dict[str, Exact] = {
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "div": lambda a, b, c: a / b,
    "rcp": lambda a, b, c: 1 / b,
    "fma": lambda a, b, c: a * b + c,
}
PARTIALS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: (1, 1),
    "sub": lambda a, b: (1, -1),
    "mul": lambda a, b: (b, a),
    "div": lambda a, b: (1 / b, -a / b / b),
    "rcp": lambda a, b: (0, -1 / b / b),
    "fma": lambda a, b: (b, a),
}
DIRECTIONS = ("rn", "rz", "ru", "rd")


def directed(exact: Fraction, direction: str, kind: Any) -> Any:
    """The number of a type that a fraction is rounded to."""
    greatest = Fraction(float(np.finfo(kind).max))
    if abs(exact) > greatest:
        inward = direction == "rz" or (direction == "rd") == (exact > 0)
        return np.copysign(kind(greatest) if inward and direction != "rn" else kind(math.inf), float(np.sign(exact)))
    near = kind(float(exact)) if kind is np.float64 else _float32(exact)
    if Fraction(float(near)) == exact or direction == "rn":
        return near
    upwards = direction == "ru" or (direction == "rz" and exact < 0)
    if (Fraction(float(near)) < exact) == upwards:
        return np.nextafter(near, kind(math.inf if upwards else -math.inf))
    return near


def _float32(exact: Fraction) -> Any:
    below = np.float32(float(exact))
    choices = (below, np.nextafter(below, np.float32(math.inf)), np.nextafter(below, np.float32(-math.inf)))
    return min(choices, key=lambda f: abs(Fraction(float(f)) - exact))


def _text(kind: str, ops: tuple[str, ...] = tuple(ARITHMETIC)) -> str:
    letter, fused = ("f", "__fmaf") if kind == "float" else ("d", "__fma")
    calls = [
        f"{fused if op == 'fma' else f'__{letter}{op}'}_{d}({'b' if op == 'rcp' else 'a, b, c' if op == 'fma' else 'a, b'})"
        for op in ops
        for d in DIRECTIONS
    ]
    body = "".join(f"y[{k} * n + i] = {c};\n" for k, c in enumerate(calls))
    return (
        f'extern "C" __global__ void k(const {kind}* p, const {kind}* q, const {kind}* r, {kind}* y, int n) '
        f"{{ int i = threadIdx.x; if (i >= n) return; {kind} a = p[i], b = q[i], c = r[i];\n{body} }}"
    )


def _operands(kind: Any) -> list[Any]:
    rng = np.random.default_rng(3)
    tiny, great = (1e-30, 1e30) if kind is np.float32 else (1e-100, 1e200)
    a = np.concatenate([rng.normal(size=20) * 10.0 ** rng.integers(-6, 7, 20), [1, 1, -1, great, -great, 3, tiny, 1 / 3]])
    b = np.concatenate([rng.normal(size=20) * 10.0 ** rng.integers(-6, 7, 20), [tiny, -tiny, tiny, great, great, 3, great, -1 / 3]])
    c = np.concatenate([rng.normal(size=20) * 10.0 ** rng.integers(-6, 7, 20), [1, -1, tiny, -1, great, -9, 1, 1 / 9]])
    return [v.astype(kind) for v in (a, b, c)]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_arithmetic(kind: str, executor: Any) -> None:
    dtype = np.float32 if kind == "float" else np.float64
    a, b, c = _operands(dtype)
    n, rows = len(a), len(ARITHMETIC) * len(DIRECTIONS)
    y, dy = np.zeros(rows * n, dtype), np.zeros(rows * n, dtype)
    kernel = gpuad.kernel(_text(kind), "k")
    with pipeline.executor_for_tests(executor):
        kernel[1, 32](a, b, c, y, n)
    results = y.reshape(len(ARITHMETIC), len(DIRECTIONS), n)
    for op, row in zip(ARITHMETIC, results, strict=True):
        exact = [ARITHMETIC[op](*(Fraction(float(v)) for v in of)) for of in zip(a, b, c, strict=True)]
        for direction, found in zip(DIRECTIONS, row, strict=True):
            expected = np.array([directed(e, direction, dtype) for e in exact])
            np.testing.assert_array_equal(found, expected, err_msg=f"{op}_{direction}")
    ordinary = slice(0, 20)
    for k, op in enumerate(ARITHMETIC):
        for d in range(len(DIRECTIONS)):
            dy[...] = 0
            dy.reshape(results.shape)[k, d, ordinary] = 1
            da, db = np.zeros(n, dtype), np.zeros(n, dtype)
            with pipeline.executor_for_tests(executor):
                gpuad.autodiff(kernel, 1, 32, (Duplicated(a, da), Duplicated(b, db), c, Duplicated(y, dy), n))
            for found, wanted in zip((da, db), PARTIALS[op](a.astype(float), b.astype(float)), strict=True):
                np.testing.assert_allclose(found[ordinary], np.broadcast_to(wanted, n)[ordinary], rtol=1e-5 if kind == "float" else 1e-13)


NUMBERS = [0, 1, -1, 2**24 + 1, -(2**24) - 1, 2**31 - 1, -(2**31), 33554433, 123456789, -987654321]
LONG = [*NUMBERS, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**62 + 2**37 - 1]


def test_conversions(executor: Any) -> None:
    directions = DIRECTIONS[1:]
    narrow = "".join(f"y[{k} * n + i] = __double2float_{d}(x[i]);\n" for k, d in enumerate(directions))
    whole = "".join(
        f"z[{k} * n + i] = __int2float_{d}((int)j[i]); z[{3 + k} * n + i] = __ll2float_{d}(j[i]); "
        f"z[{6 + k} * n + i] = __ull2float_{d}(j[i]); z[{9 + k} * n + i] = __uint2float_{d}((unsigned)j[i]);\n"
        f"w[{k} * n + i] = __ll2double_{d}(j[i]); w[{3 + k} * n + i] = __ull2double_{d}(j[i]);\n"
        for k, d in enumerate(directions)
    )
    text = (
        'extern "C" __global__ void k(const double* x, const long long* j, float* y, float* z, double* w, int n) '
        f"{{ int i = threadIdx.x; if (i >= n) return;\n{narrow}{whole} }}"
    )
    n = len(LONG)
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.normal(size=n - 4), [1e300, -1e300, 0.5, 1 + 2.0**-30]])
    j = np.array(LONG, np.int64)
    y, z, w = np.zeros(3 * n, np.float32), np.zeros(12 * n, np.float32), np.zeros(6 * n)
    dx, dy = np.zeros(n), np.repeat([1, 10, 100], n).astype(np.float32)
    kernel = gpuad.kernel(text, "k")
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 1, 32, (Duplicated(x, dx), j, Duplicated(y, dy), z, w, n))
    np.testing.assert_allclose(dx, 111)
    kinds = [j.astype(np.int32), j, j.astype(np.uint64), j.astype(np.uint32)]
    for k, d in enumerate(directions):
        np.testing.assert_array_equal(y[k * n : (k + 1) * n], [directed(Fraction(v), d, np.float32) for v in x])
        for m, whole_numbers in enumerate(kinds):
            row = slice((3 * m + k) * n, (3 * m + k + 1) * n)
            np.testing.assert_array_equal(z[row], [directed(Fraction(int(v)), d, np.float32) for v in whole_numbers])
        for m, whole_numbers in enumerate(kinds[1:3]):
            row = slice((3 * m + k) * n, (3 * m + k + 1) * n)
            np.testing.assert_array_equal(w[row], [directed(Fraction(int(v)), d, np.float64) for v in whole_numbers])


@pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("kind", ["float", "double"])
def test_arithmetic_as_nvrtc_compiles_it(kind: str) -> None:
    """But for what the interpreter of PTX does not round: quotients of floats."""
    a, b, c = _operands(np.float32 if kind == "float" else np.float64)
    text = _text(kind, tuple(op for op in ARITHMETIC if kind == "double" or op not in ("div", "rcp")))
    made = [np.zeros(len(ARITHMETIC) * len(DIRECTIONS) * len(a), a.dtype) for _ in range(2)]
    gpuad.kernel(text, "k")[1, 32](a, b, c, made[0], len(a))
    cuda(text, "k", 1, 32, (a, b, c, made[1], np.int32(len(a))))
    np.testing.assert_array_equal(made[0], made[1])

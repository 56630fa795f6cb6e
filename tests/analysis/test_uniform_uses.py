"""What kernels make of the whole numbers of their launches: where that is the same, the launches are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gpuad import api
from gpuad.analysis.uniform_uses import uniform_uses
from gpuad.ir.folding import evaluated, integer, whole
from gpuad.ir.nodes import Assign, Constant, Expr, Kernel, Let, Store, Var
from gpuad.ir.rewrite import walk_stmts
from gpuad.ir.types import F64

HEAD = """extern "C" __global__ void k(double* y, const double* x, int a, int b, bool flag, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;"""
A, B, FLAG, COUNT = 2, 3, 4, 5  # positions
USUAL = {A: 3, B: 2, FLAG: 1, COUNT: 40}


def kernel(body: str) -> Kernel:
    return api.kernel(f"{HEAD} {body} }}", "k").primal()


def values(of: Kernel, given: dict[int, int]) -> tuple[int | None, ...]:
    """What the uses come to for numbers by position."""
    constants: dict[Var, Expr] = {p: integer(given[k], p.type) for k, p in enumerate(of.params) if isinstance(p, Var)}
    return tuple(whole(evaluated(e, constants)) for e in uniform_uses(of))


def classes(of: Kernel, position: int = A) -> int:
    """How many of eight launches with different values of a number are told apart."""
    return len({values(of, {**USUAL, position: value}) for value in range(8)})


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("body", "position", "count"),
    [
        ("if (a % 3 == 0) y[i] = x[i];", A, 2),
        ("if (a % 3 == 0 && i < n) y[i] = x[i];", A, 2),
        ("y[i] = x[i + a % 3];", A, 3),
        ("int t = a / 4, s = t + 1; if (i < n) y[i + s] = x[t];", A, 2),
        ("y[i] = x[i + a];", A, 8),
        ("y[i] = x[i] * a;", A, 1),
        ("y[i] = x[i] * (a % 2 ? 2.0 : 1.0);", A, 2),
        ("for (int j = 0; j < (a > 5 ? 5 : a); ++j) y[i] += x[j];", A, 6),
        ("for (int j = 0; j < a % 2 + 1; ++j) y[i] += x[j];", A, 2),
        ("y[i + a / 8 * n] = x[i];", A, 1),
        ("y[i + a / 2 * n] = x[i];", COUNT, 8),
        ("if (flag) y[i] = x[i];", FLAG, 2),
        ("if (a < b) y[i] = x[i];", B, 2),
        ("int j = i; if (a > 4) j = i + 1; y[j] = x[i];", A, 2),
        ("int j = 0; for (int s = 0; s < 2; ++s) j += a % 2; y[i + j] = x[i];", A, 2),
        ("y[i] = x[i];", A, 1),
    ],
)
def test_launches_that_are_told_apart(body: str, position: int, count: int) -> None:
    assert classes(kernel(body), position) == count


@pytest.mark.parametrize(
    "body",
    [
        "if (a % 3 == 0) y[i + b % 2] = x[i + a / 4];",
        "int t = a & b; if (t < 2) for (int j = 0; j < t; ++j) y[i + j] += x[t + j];",
    ],
)
def test_equal_uses_are_equal_launches(body: str) -> None:
    """What is written, and where, is the same for all numbers of a class."""
    k = api.kernel(f"{HEAD} if (i < n) {{ {body} }} }}", "k")
    seen: dict[Any, Any] = {}
    for a, b in itertools.product(range(7), range(4)):
        y = np.zeros(40)
        k(1, 8, (y, np.arange(40.0), a, b, True, 8))
        assert np.array_equal(seen.setdefault(values(k.primal(), {A: a, B: b, FLAG: 1, COUNT: 8}), y), y)
    assert 1 < len(seen) < 28


def test_a_variable_with_several_values_stands_for_none_of_them() -> None:
    plain = kernel("int t = a % 2; y[i] = x[t] * x[t + 1];")
    number = plain.params[A]
    assert isinstance(number, Var)
    let = next(s for s in walk_stmts(plain.body) if isinstance(s, Let) and "%" in str(s.value))
    changed = Kernel("k", plain.params, (*plain.body, Assign(let.var, number)))
    again = Kernel("k", plain.params, (*plain.body, Let(let.var, number), Store(plain.buffers[0], let.var, Constant(0.0, F64))))
    assert (classes(plain), classes(changed), classes(again)) == (2, 8, 8)

"""Expressions of thousands of terms: each part is looked at once, and no level of a tree is a level of recursion."""

from __future__ import annotations

from gpuad.analysis.flows import differentiable
from gpuad.codegen.scopes import _breaks, wrap_rest
from gpuad.ir.nodes import Binary, Call, Cast, Select, Var
from gpuad.ir.types import BOOL, F64, I32


def test_variables_of_a_deep_sum_in_their_order() -> None:
    x = [Var(f"x{k}", F64, k) for k in range(20_000)]
    total = x[0]
    for one in x[1:]:
        total = Binary("+", total, one, F64)
    assert list(differentiable(total)) == x


def test_what_carries_no_derivative_is_left_out() -> None:
    x, y, n, c = Var("x", F64, 0), Var("y", F64, 1), Var("n", I32, 2), Var("c", BOOL, 3)
    assert list(differentiable(Select(c, x, Binary("*", y, Cast(n, F64), F64)))) == [x, y]
    rounded = Call("floor", (x,), F64)
    assert list(differentiable(rounded)) == [x]
    assert list(differentiable(Binary("+", rounded, y, F64), steps=False)) == [y]


def test_only_the_first_part_of_a_long_line_is_looked_at() -> None:
    line = "y = " + " + ".join(f"x{k}" for k in range(5000))
    assert max(b.at for b in _breaks(line, 110)) <= 110
    lines = wrap_rest("    ", " ".join(line.split()[:400]), 110)
    assert all(len(one) <= 110 for one in lines)
    assert " ".join(one.strip() for one in lines) == " ".join(line.split()[:400])

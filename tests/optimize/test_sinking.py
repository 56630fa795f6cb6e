"""Numbers that one branch alone uses: computed there, with their adjoints, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gather_tools import gradients
from launch_tools import EXECUTORS, compiled

from gpuad import Duplicated
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import If, Kernel, Let
from gpuad.ir.rewrite import walk_stmts
from gpuad.ir.verify import verify
from gpuad.optimize.sinking import sink_values
from gpuad.pipeline.passes import primal_of
from gpuad.source import SourceFile

HEAD = """extern "C" __global__ void k(const double* x, const double* y, double* v, double* w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double a = x[i], b = y[i];
"""


def kernel(body: str) -> Kernel:
    return primal_of(parse(SourceFile("k.cu", f"{HEAD} {body} }}")).kernel("k"))


def inside(given: Kernel) -> set[str]:
    """The variables that are defined in a branch of a branch, the first being who is there at all."""
    branches = [s for outer in walk_stmts(given.body) if isinstance(outer, If) for s in walk_stmts(outer.then) if isinstance(s, If)]
    return {s.var.name for branch in branches for s in walk_stmts((*branch.then, *branch.otherwise)) if isinstance(s, Let)}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("double c = a * b; if (b > 0) v[i] = c;", {"c"}),
        ("double c = a / b; if (b > 0) v[i] = 1; else v[i] = c;", {"c"}),
        ("double c = sin(a), d = c * b; if (b > 0) v[i] = d;", {"c", "d"}),
        ("double c = a * b; if (b > 0) if (a > 0) v[i] = c;", {"c"}),
        ("double c = a * b; if (b > 0) for (int k = 0; k < n; k++) v[i] += c * k;", {"c"}),
        ("double c = a * b; if (b > 0) v[i] = c; else w[i] = c;", set()),
        ("double c = a * b; if (b > 0) v[i] = c; w[i] = c;", set()),
        ("double c = a * b; if (c > 0) v[i] = c;", set()),
        ("double c = a * b; for (int k = 0; k < n; k++) if (k > i) v[k] += c;", set()),
        ("double c = a + b; if (b > 0) v[i] = c;", set()),
        ("double c = 2.5 * i; if (b > 0) v[i] = c;", set()),
        ("double c = a * b; c += 1; if (b > 0) v[i] = c;", set()),
    ],
)
def test_what_is_sunk(body: str, names: set[str]) -> None:
    before = kernel(body)
    after = replace(before, body=sink_values(before.body))
    verify(after)
    found = {name.split(".")[0] for name in inside(after)} - {name.split(".")[0] for name in inside(before)}
    assert found == names


POLE = f"""{HEAD} double pole = a / b;
    if (b > 0) v[i] = pole * pole;
}}"""


def points() -> tuple[Any, ...]:
    x, y = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 0.0, -2.0, np.nan])
    return *(Duplicated(p, np.zeros(4)) for p in (x, y)), Duplicated(np.zeros(4), np.full(4, 1.0)), np.zeros(4), 4


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_infinite_partial_of_what_was_not_used_comes_to_nothing(executor: str) -> None:
    dx, dy, _ = gradients(POLE, 1, 4, points, executor=executor)
    np.testing.assert_allclose(dx, [8.0, 0, 0, 0])
    np.testing.assert_allclose(dy, [-16.0, 0, 0, 0])


def test_what_is_formed_where_it_was_used_does_not_ask() -> None:
    body = "double c = a * b, d = a * a * b; if (b > 0) v[i] = c; if (a > 0) w[i] = d;"
    source = compiled(f"{HEAD} {body} }}", "k").adjoint(Duplicated, Duplicated, Duplicated, Duplicated).source
    assert " ? " not in source[source.index("k_reverse(") :]

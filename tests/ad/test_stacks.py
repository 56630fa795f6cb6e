"""What loops leave for their reverse: how little it is, where it lies, and that it is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import CASES, arguments, compiled, running, shipped

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.ir.nodes import Push
from gpuad.ir.rewrite import walk_stmts
from gpuad.ir.types import F64
from gpuad.pipeline.pattern import Pattern
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.testing import check_gradient


def gradient(name: str, executor: Any) -> list[Any]:
    """The shadows that a case leaves, seeded with ones."""
    args = arguments(name)
    grid, block, shared_mem = CASES[name].geometry({})
    with pipeline.executor_for_tests(executor):
        pairs = [a for a in args if isinstance(a, Duplicated)]
        for pair in pairs:
            pair.shadow.fill(1)
        gpuad.autodiff(shipped(name), grid, block, args, shared_mem=shared_mem)
    return [pair.shadow for pair in pairs]


# --- rows ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["projection", "block_scan-scan", "insertion_sort"])
def test_workers_have_rows_of_their_own(name: str) -> None:
    """Also where the threads of a block run together, and where the depth hangs on data."""
    launched: list[Any] = []

    class Watched(Host):
        def launch(self, kernel: Any, *args: Any, **keywords: Any) -> None:
            launched.append(kernel)
            super().launch(kernel, *args, **keywords)

    host = Watched(workers=3)
    for found, wanted in zip(gradient(name, host), gradient(name, Reference()), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert any(kernel.in_rows is not None and kernel.in_rows.rows for kernel in launched)


@pytest.mark.parametrize("name", ["projection", "tridiagonal"])
def test_stacks_take_no_memory_of_the_launch(name: str) -> None:
    """On the CPU threads run one after the other and leave their values in one place; nothing is counted first."""
    made: list[int] = []

    class Watched(Host):
        def zeros(self, length: int, dtype: Any) -> Any:
            made.append(length)
            return super().zeros(length, dtype)

    gradient(name, Watched())
    assert made == []


# --- how little ----------------------------------------------------------------------------------------------------------------------

TEXT = """extern "C" __global__ void k(double* x, double* y, const int* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 5) return;
    double *r = x + 8 * i, *s = y + 8 * i, z = 0;
    %s
}"""
EXP = "for (int k = 0; k < n; k++) { r[k] = exp(r[k]); z += r[k]; }"
STATE = "double v[4]; for (int d = 0; d < 4; d++) v[d] = r[d]; for (int t = 0; t < n; t++) { %s } for (int d = 0; d < 4; d++) r[d] = v[d];"
STEP = (
    "double a[4]; a[0] = v[1] * v[2]; a[1] = -v[0]; a[2] = sin(v[3]); a[3] = v[0] * v[0]; for (int d = 0; d < 4; d++) a[d] += 0.1 * v[d];"
)
LEFT: dict[str, tuple[str, int]] = {  # the kernel, and the bytes that its loops push
    "the result is still there": (EXP + "for (int k = 0; k < n; k++) s[k] = r[k] * z;", 0),
    "what nobody reads is not stored": (EXP + "for (int k = 0; k < n; k++) { s[k] = r[k] * z; r[k] = z * k; }", 0),
    "nor in a branch": (EXP + "for (int k = 0; k < n; k++) { s[k] = r[k] * z; if (p[k] > 1) r[k] = sin(r[k]); }", 0),
    "what is read is": (
        EXP + "for (int k = 0; k < n; k++) { s[k] = r[k] * z; r[k] = sin(z * k * r[k]); } for (int k = 0; k < n; k++) s[k] += r[k] * r[k];",
        16,
    ),
    "memory that is added to": (EXP + "for (int k = 0; k < n; k++) { s[k] = sin(r[k] * z); r[k] += z; }", 16),
    "the next element is overwritten": (EXP + "for (int k = 0; k < n - 1; k++) { s[k] = sin(r[k] * z); r[k + 1] = z * r[k + 1]; }", 16),
    "elements that data chooses": ("for (int k = 0; k < n; k++) { int j = p[k]; r[j] = exp(r[j]); z += r[j] * r[j]; } s[0] = z;", 8),
    "one element": ("for (int k = 0; k < n; k++) { r[2] = exp(r[2] * 0.1 + s[k] * 0.1); z += r[2] * r[2]; } s[0] = z;", 8),
    "another iteration of a loop around it": (
        "for (int t = 0; t < 2; t++) { for (int k = 0; k < n; k++) { r[k] = exp(r[k] * 0.2); z += r[k] * r[k]; } s[t] *= z * r[t]; }",
        24,
    ),
    "a choice": ("z = r[0]; for (int k = 1; k < n; k++) z = fmax(z, r[k]); for (int k = 0; k < n; k++) r[k] *= z;", 1),
    "a division that may be by zero": (
        "int c = 7; for (int k = 0; k < n; k++) { int d = p[k]; if (d > 0) { z += r[c / d % 8] * (z + 0.3); c = 3 * c + d; } } s[0] = z;",
        12,
    ),
    "the state of a step": (
        STATE % (STEP + "z = a[0] * a[1] + a[2] * a[3]; for (int d = 0; d < 4; d++) v[d] += 0.01 * a[d] * sin(z);"),
        32,
    ),
    "a state that data chooses from": (
        STATE % "int j = p[t] & 3; double a = v[j] * v[(j + 1) & 3]; v[(j + 2) & 3] = sin(a) + v[j]; v[j] = cos(v[(j + 2) & 3] * a);",
        24,
    ),
    "a state changed in a branch": (
        STATE % "double a = v[0] * v[1]; if (p[t] > 1) { v[0] = sin(v[2] * a); v[3] += v[0] * a; } else v[1] = sin(a); v[2] += a * v[0];",
        32,
    ),
    "a state left early": (
        STATE % "double a = v[0] * v[1]; v[0] = sin(a) + 0.5; z = v[0] * a; if (z > 1.2) break; v[1] = z * z + s[t];",
        24,
    ),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", LEFT)
def test_what_a_loop_leaves(name: str) -> None:
    text, left = LEFT[name]
    kernel = compiled(TEXT % text, "k")
    made = kernel.reverse(Pattern((F64, F64, None, None)))
    assert sum(v.type.size for s in walk_stmts(made.recording.body) if isinstance(s, Push) for v in s.values) == left
    rng = np.random.default_rng(3)
    x, y = (Duplicated(rng.uniform(0.3, 1.2, (5, 8))) for _ in range(2))
    with running("reference"):
        check_gradient(kernel, (x, y, np.array([2, 0, 1, 2, 3, 5, 1, 7], np.int32), np.int32(8)), grid=(1,), block=(8,), directions=1)


def test_a_maximum_of_numbers_that_are_none() -> None:
    """The choice between a number and none is recorded as it was made."""
    kernel = compiled(TEXT % LEFT["a choice"][0], "k")
    values = np.random.default_rng(3).uniform(0.3, 1.2, (5, 8))
    values[1, 0] = values[2, 3] = np.nan
    found = []
    for analysis in (True, False):
        x, y = Duplicated(values.copy(), np.ones((5, 8))), Duplicated(np.ones((5, 8)))
        with running("reference", analysis):
            gpuad.autodiff(kernel, (1,), (8,), (x, y, np.zeros(8, np.int32), np.int32(8)))
        found.append(x.shadow)
    np.testing.assert_allclose(*found, rtol=1e-14)
    assert np.isnan(found[0]).any()

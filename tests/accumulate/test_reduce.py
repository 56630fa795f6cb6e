"""Additions that need not go to memory one by one: summed in a register, and over the block, before one atomic addition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import atomics, gradients, reverse
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated
from gpuad.ir.nodes import Accumulate, For, How
from gpuad.ir.rewrite import walk_stmts
from gpuad.runtime import nvrtc

TEXT = 'extern "C" __global__ void k(const double* w, const double* x, double* y, int n, int m) {{ {} {} }}'
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
# name: text, sums over blocks, atomic additions that are left
BODIES = {
    "line": ("if (i < n) y[i] = w[0] * x[i] + w[1];", 2, 0),
    "by a parameter": ("if (i < n) y[i] = w[m] * x[i] * w[2 * m + 1];", 2, 0),
    "through a name": ("const int k = 3 * m; if (i < n) { int l = k + 1; y[i] = w[l] * x[i]; }", 1, 0),
    "in a loop": ("if (i < n) { double s = 0; for (int k = 0; k < m; k++) s += sin(w[1] * x[i] * k); y[i] = s; }", 1, 0),
    "in a search": ("if (i < n) { double s = 0; int k = 0; while (k * k < i) { s += w[1] * x[i]; k++; } y[i] = s; }", 1, 0),
    "behind data": ("if (i < n && x[i] > 0) y[i] = w[0] * x[i];", 1, 0),
    "of the block": ("if (i < n) y[i] = w[blockIdx.x] * x[i];", 0, 1),
    "of the iteration, gathered": ("if (i < n) { double s = 0; for (int k = 0; k < m; k++) s += w[k] * x[i]; y[i] = s; }", 0, 0),
    "of the thread, in a loop": ("if (i < n) { double s = 0; for (int k = 0; k < m; k++) s += w[i * i % 3] * x[i] * k; y[i] = s; }", 0, 1),
    "both": ("if (i < n) y[i] = w[0] * x[i] + w[i % 3];", 1, 1),
}


def make(n: int = 37) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    return (*(Duplicated(rng.standard_normal(40), rng.standard_normal(40)) for _ in range(3)), n, 4)


@pytest.mark.one_of(3)
@pytest.mark.cpu
@pytest.mark.parametrize("name", BODIES)
def test_sums(name: str) -> None:
    body, sums, left = BODIES[name]
    text = TEXT.format(HEAD, body)
    kernels = reverse(compiled(text, "k"), 5, 8, make())
    assert sum(isinstance(s, Accumulate) and s.how is How.REDUCED for k in kernels for s in walk_stmts(k.body)) == sums
    assert atomics(kernels) == left
    for n in (37, 0):
        expected = gradients(text, 5, 8, lambda: make(n), executor="reference", analysis=False)  # noqa: B023
        for executor in EXECUTORS if name in ("line", "in a loop") else ("reference",):
            for found, right in zip(gradients(text, 5, 8, lambda: make(n), executor=executor), expected, strict=True):  # noqa: B023
                np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


def test_one_element_for_a_block() -> None:
    """Of executors that had better sum over blocks: one atomic addition a block, and none by a block that uses no element."""
    text = TEXT.format(HEAD, "const int c = blockIdx.x; if (c < m && i < n) y[i] = w[c + 1] * x[i] + w[2];")
    with running("reference"):
        kernels = reverse(compiled(text, "k"), 5, 8, make())
    assert sum(isinstance(s, Accumulate) and s.how is How.REDUCED for k in kernels for s in walk_stmts(k.body)) == 2
    for executor in EXECUTORS:
        rng = np.random.default_rng(1)
        w, x, y = (Duplicated(rng.standard_normal(size), rng.standard_normal(size)) for size in (5, 37, 37))
        expected = w.shadow.copy()
        expected[1:] += (x.primal[:32] * y.shadow[:32]).reshape(4, 8).sum(axis=1)
        expected[2] += np.sum(y.shadow[:32])
        with running(executor):
            gpuad.autodiff(compiled(text, "k"), 5, 8, (w, x, y, 37, 4))
        np.testing.assert_allclose(w.shadow, expected, rtol=1e-12)


def test_after_the_loop() -> None:
    """What an iteration leaves as it is, is added to once."""
    kernels = reverse(compiled(TEXT.format(HEAD, BODIES["of the thread, in a loop"][0]), "k"), 5, 8, make())
    inside = [s for k in kernels for loop in walk_stmts(k.body) if isinstance(loop, For) for s in walk_stmts(loop.body)]
    assert not any(isinstance(s, Accumulate) and s.how is How.ATOMIC for s in inside)


def test_element_that_is_read_too() -> None:
    """What is written and taken in the launch is no sum."""
    text = TEXT.format(HEAD, "if (i == 0) y[0] = x[0] * w[0]; if (i < n && i > 0) y[i] = x[i] * y[35 + m];").replace(
        "const double* w", "double* w"
    )
    kernels = reverse(compiled(text, "k"), 5, 8, make(5))
    assert all(s.how is not How.REDUCED for k in kernels for s in walk_stmts(k.body) if isinstance(s, Accumulate) and s.buffer.name == "dy")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_no_element(executor: str) -> None:
    """An array without elements is not added to by those that use none."""
    empty, shadow = np.zeros(0), np.zeros(0)
    for text, n in (("if (i < n) y[i] = w[0] * x[i];", 0), ("if (i < n) y[i] = m > 9 ? w[0] * x[i] : x[i];", 8)):
        x, y = (Duplicated(np.ones(8), np.ones(8)) for _ in range(2))
        with running(executor):
            gpuad.autodiff(compiled(TEXT.format(HEAD, text), "k"), 1, 8, (Duplicated(empty, shadow), x, y, n, 4))
        np.testing.assert_array_equal(x.shadow, np.ones(8) if n == 0 else 2 * np.ones(8))


# --- in loops that all threads go through -------------------------------------------------------------------------------------------------

WIDE = 'extern "C" __global__ void k(const double* w, const double* x, double* y, int n, int m) {{ {} {} }}'
NESTS = {
    "taps": ("if (i < n) { double s = 0; for (int k = 0; k < m; k++) s += w[k] * x[i + k]; y[i] = s; }", True),
    "window": (
        "if (i < n) { double s = 0; for (int k = 0; k < 2; k++) for (int l = -1; l < 1; l++) "
        "s += w[2 * k + l + 1] * x[i + l + 1]; y[i] = s; }",
        True,
    ),
    "of the block": ("if (i < n) { double s = 0; for (int k = 0; k < m; k++) s += w[blockIdx.x * m + k] * x[i + k]; y[i] = s; }", True),
    "guarded": ("if (i < n) { double s = 0; for (int k = 0; k < m; k++) if (i + k < n) s += w[m - k] * sin(x[i + k]); y[i] += s; }", True),
    "data decide": ("if (i < n) { double s = 0; for (int k = 0; k < m; k++) if (x[i] > k) s += w[k]; y[i] = s; }", False),
    "carried": ("if (i < n) { double s = 1; for (int k = 0; k < m; k++) s = s * w[k] + x[i]; y[i] = s; }", False),
    "of its own length": ("if (i < n) { double s = 0; for (int k = 0; k < i; k++) s += w[k] * x[i]; y[i] = s; }", False),
    "two lengths": (
        "if (i < n) { double s = 0; for (int k = 0; k < m; k++) s += w[k] * x[i]; "
        "for (int k = 0; k < 2; k++) s += w[k] * x[i + k]; y[i] = s; }",
        True,
    ),
}


def many(n: int = 300) -> tuple[Any, ...]:
    rng = np.random.default_rng(2)
    sizes = 400, 400, 400
    return (*(Duplicated(rng.standard_normal(s), rng.standard_normal(s)) for s in sizes), n, 4)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", NESTS)
def test_nest(name: str) -> None:
    body, summed = NESTS[name]
    text = WIDE.format(HEAD, body)
    with running("reference"):
        kernels = reverse(compiled(text, "k"), 5, 64, many())
    assert [k.name for k in kernels].count("k_sums") == summed
    dw = [s for k in kernels for s in walk_stmts(k.body) if isinstance(s, Accumulate) and s.buffer.name == "dw"]
    assert dw
    assert all((s.how is How.REDUCED) == summed for s in dw)
    for n in (300, 317, 0):
        expected = gradients(text, 5, 64, lambda: many(n), executor="reference", analysis=False)  # noqa: B023
        for found, right in zip(gradients(text, 5, 64, lambda: many(n), executor="reference"), expected, strict=True):  # noqa: B023
            np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-11)


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
def test_nest_compiles() -> None:
    with running("reference"):
        source = compiled(WIDE.format(HEAD, NESTS["taps"][0]), "k").adjoint(grid=5, block=64, args=many()).source
    assert "launch k_sums with the same grid and block." in source
    assert "atomicAdd(&" not in source
    assert set(nvrtc.resources(nvrtc.compile_cuda(source))) == {"k_gather", "k_sums", "k_reverse"}


def test_nest_on_a_tape() -> None:
    """Twice in a program, with two seeds: as each by itself."""
    kernel = compiled(WIDE.format(HEAD, NESTS["taps"][0]), "k")
    found = []
    for tape in (True, False):
        w, x, y, n, m = many()
        with running("reference"):
            if tape:
                recorded = gpuad.Tape()
                with recorded:
                    kernel[5, 64](w, x, y, n, m)
                    kernel[5, 64](w, y, x, n, m)
                recorded.reverse()
            else:
                first, second = (y, x, n, m), (x, y, n, m)
                with running("reference", plain=False):
                    kernel(5, 64, (w.primal, x.primal, y.primal, n, m))
                    before = x.primal.copy()
                    gpuad.autodiff(kernel, 5, 64, (w, *first))
                    x.primal[...] = before
                    gpuad.autodiff(kernel, 5, 64, (w, *second))
        found.append((w.shadow, x.shadow, y.shadow))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)

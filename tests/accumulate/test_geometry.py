"""Gathering for kernels that know their thread otherwise than by its index among all: by its block or place, by loops over the grid."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from gather_tools import agree, atomics, is_gathered, pairs, reverse
from launch_tools import compiled, running

import gpuad
from gpuad import api
from gpuad.accumulate.gather_launch import Declined, Gathering, gather_launch
from gpuad.analysis.affine_forms import Digit, Form, Launch, narrowed

HEAD = 'extern "C" __global__ void k(const double* u, double* v, int m, int n) {'
ROWS = "v[r * n + c] = u[r * n + c] * u[(r - 1) * n + c] + u[(r + 1) * n + c] * u[r * n + c - 1];"
INSIDE = "if (r > 0 && r < m - 1 && c > 0 && c < n - 1)"
# the kernel's body, grid, block; whether its launch is one that can be gathered for
CASES: dict[str, tuple[str, Any, Any, bool]] = {
    "a block for each row": (f"int r = blockIdx.x, c = threadIdx.x; {INSIDE} {ROWS}", (12,), (20,), True),
    "more rows than there are": (f"int r = blockIdx.x, c = threadIdx.x; {INSIDE} {ROWS}", (15,), (32,), True),
    "fewer rows than there are": (f"int r = blockIdx.x, c = threadIdx.x; {INSIDE} {ROWS}", (7,), (16,), True),
    "rows as the grid has them": (
        f"int r = blockIdx.x, c = threadIdx.x; if (r > 0 && r < gridDim.x - 1 && c > 0 && c < blockDim.x - 1) {ROWS}",
        (12,),
        (20,),
        True,
    ),
    "rows along y": (f"int r = blockIdx.y, c = threadIdx.y; {INSIDE} {ROWS}", (1, 12), (1, 20), True),
    "rows of blocks of two": (f"int r = blockIdx.x, c = threadIdx.x; {INSIDE} {ROWS}", (12, 1), (10, 2), False),
    "a plane's row in a block": (f"int r = blockIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x; {INSIDE} {ROWS}", (3, 12), (8,), True),
    "a row by a block's thread": (
        f"int r = threadIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x; {INSIDE} {ROWS}",
        (5, 1),
        (4, 12),
        True,
    ),
    "blocks alone": (f"int r = blockIdx.y, c = blockIdx.x; {INSIDE} {ROWS}", (20, 12), (1,), True),
    "threads alone": (f"int r = threadIdx.y, c = threadIdx.x; {INSIDE} {ROWS}", (1,), (20, 12), True),
    "threads of two blocks": (f"int r = threadIdx.y + 6 * blockIdx.y, c = threadIdx.x; {INSIDE} {ROWS}", (1, 2), (20, 6), True),
    "strides of one block": (
        f"int r = blockIdx.x; for (int c = threadIdx.x; c < n; c += blockDim.x) {{ {INSIDE} {ROWS} }}",
        (12,),
        (8,),
        True,
    ),
}


X = "blockIdx.x * blockDim.x + threadIdx.x"
T = "blockDim.x * gridDim.x"
LINE = "v[i] = u[i - 1] * u[i] + u[i + 1];"
STRIDES: dict[str, tuple[str, Any, Any, bool]] = {
    "over the grid": (f"for (int i = {X}; i < m * n; i += {T}) if (i > 0 && i < m * n - 1) {LINE}", (3,), (16,), True),
    "once": (f"for (int i = {X}; i < m * n; i += {T}) if (i > 0 && i < m * n - 1) {LINE}", (15,), (16,), True),
    "too wide a grid": (f"for (int i = {X}; i < m * n; i += {T}) if (i > 0 && i < m * n - 1) {LINE}", (20,), (16,), True),
    "inner elements": (f"for (int i = {X} + 1; i < m * n - 1; i += {T}) {LINE}", (3,), (16,), True),
    "elements from a number on": (f"for (int i = {X} + n; i < m * n - 1; i += {T}) {LINE}", (3,), (16,), True),
    "names": (f"int t = {X}, all = {T}; for (int i = t + 1; i < m * n - 1; i += all) {LINE}", (3,), (16,), True),
    "a while": (f"int i = {X} + 1; while (i < m * n - 1) {{ {LINE} i += {T}; }}", (3,), (16,), True),
    "wide numbers": (f"for (size_t i = {X}; i < m * n; i += {T}) if (i > 0 && i < m * n - 1) {LINE}", (3,), (16,), True),
    "unsigned": (f"for (unsigned i = {X}; i < m * n; i += {T}) if (i > 0 && i < m * n - 1) {LINE}", (3,), (16,), True),
    "from below zero, by a great number": (
        f"for (int i = {X} + 4294967295u; i < m * n - 2; i += {T}) v[i + 1] = u[i + 1] * u[i + 2];",
        (3,),
        (16,),
        True,
    ),
    "from below zero": (f"for (int i = {X} - 1; i < m * n - 2; i += {T}) v[i + 1] = u[i + 1] * u[i + 2];", (3,), (16,), True),
    "unsigned, from below zero": (f"for (unsigned i = {X} + (m - n); i < m * n - 1; i += {T}) if (i > 0) {LINE}", (3,), (16,), False),
    "one block": (f"for (int i = threadIdx.x + 1; i < m * n - 1; i += blockDim.x) {LINE}", (1,), (32,), True),
    "blocks alone": (f"for (int i = blockIdx.x + 1; i < m * n - 1; i += gridDim.x) {LINE}", (12,), (1,), True),
    "one block of two": (f"for (int i = threadIdx.x + 1; i < m * n - 1; i += blockDim.x) {LINE}", (2,), (32,), False),
    "along both axes": (
        f"for (int r = blockIdx.y; r < m; r += gridDim.y) for (int c = {X}; c < n; c += {T}) {INSIDE} {ROWS}",
        (2, 5),
        (4,),
        True,
    ),
    "two loops": (
        f"for (int i = {X} + 1; i < m * n - 1; i += {T}) {LINE} for (int i = {X} + 1; i < n; i += {T}) v[i] += u[i] * u[i + 3];",
        (3,),
        (16,),
        True,
    ),
    "two loops that meet": (
        f"for (int i = {X}; i < m * n; i += {T}) v[i] = u[i] * v[i];"
        f"for (int i = {X} + 48; i < m * n - 1; i += {T}) v[i] = v[i - 48] * {LINE[7:]}",
        (3,),
        (16,),
        False,  # the second loop reads what the thread has written
    ),
    "taps": (f"for (int i = {X}; i < m * n - 4; i += {T}) for (int j = 0; j < 4; ++j) v[i] += u[i + j] * (j + 1);", (3,), (16,), True),
    "the thread besides": (f"int t = {X}; for (int i = t + 1; i < m * n - 1; i += {T}) v[i] = u[i] * u[i - 1] * t;", (3,), (16,), False),
    "the number of threads besides": (f"for (int i = {X} + 1; i < m * n - 1; i += {T}) v[i] = u[i] * u[i - 1] * {T};", (3,), (16,), False),
    "elements met again": (
        f"for (int i = {X}; i < m * n - 48; i += {T}) {{ double old = v[i]; v[i + 48] = old * u[i] * u[i + 1]; }}",
        (3,),
        (16,),
        False,
    ),
    "a sum over iterations": (
        f"double s = 0; for (int i = {X} + 1; i < m * n - 1; i += {T}) {{ s = sin(s + u[i] * u[i - 1]); v[i] = s; }}",
        (3,),
        (16,),
        False,
    ),
}


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", [*CASES, *STRIDES])
def test_gathered(name: str) -> None:
    body, grid, block, can = {**CASES, **STRIDES}[name]
    text = f"{HEAD} {body} }}"
    kernels = reverse(compiled(text, "k"), grid, block, (*pairs(1, 240, 240), 12, 20))
    assert is_gathered(kernels) == can
    assert bool(atomics(kernels)) != can
    agree(text, grid, block, lambda: (*pairs(2, 240, 240), 12, 20))


@pytest.mark.parametrize("kind, bound", [("unsigned", "(unsigned)(m - n)"), ("long long", "(unsigned)(m - n)"), ("size_t", "m - n")])
def test_loops_as_far_as_numbers_go(kind: str, bound: str) -> None:
    """A bound of 12 - 20 is far away where it is unsigned, and there are no threads for all of these iterations."""
    kernel = compiled(f"{HEAD} for ({kind} i = {X}; i < {bound}; i += {T}) if (i > 0 && i < 239) {LINE} }}", "k")
    for m, n, found in ((12, 20, Declined), (240, 0, Gathering)):
        call = kernel.bind((3,), (16,), (*pairs(1, 240, 240), m, n), 0, None)
        adjoint = kernel.reverse_for(api.pattern_of(kernel, call), call)
        (du,) = (b for b in adjoint.undecided if b.name == "du")
        gathered = adjoint.gather({du: 0})
        assert gathered is not None
        assert isinstance(gather_launch(gathered, call.numbers(adjoint.primal), 240), found)


CHANNELS = """extern "C" __global__ void k(const double* x, const double* w, double* y, int C, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y;
    if (i >= n - 2) return;
    double s = 0;
    for (int c = 0; c < C; ++c)
        for (int a = 0; a < 3; ++a) s += w[(o * C + c) * 3 + a] * x[c * n + i + a];
    y[o * n + i] = s; }"""


def test_channels() -> None:
    """Of a convolution over channels, each thread collects from all channels of the output."""
    make = lambda: (*pairs(3, 3 * 40, 5 * 3 * 3, 5 * 40), 3, 40)  # noqa: E731
    kernels = reverse(compiled(CHANNELS, "k"), (5, 5), (8,), make())
    assert is_gathered(kernels)
    agree(CHANNELS, (5, 5), (8,), make)


LAYER = CHANNELS.replace("y[o * n + i] = s;", "y[o * n + i] = tanh(s);")


@pytest.mark.cpu
@pytest.mark.parametrize("executor", ["host", "reference"])
def test_channels_with_an_activation(executor: str) -> None:
    """What a thread's loops came to is kept, by the block's number along y, and what all threads of a block add to is summed by it."""
    make = lambda: (*pairs(4, 3 * 300, 7 * 3 * 3, 7 * 300), 3, 300)  # noqa: E731
    with running(executor):
        kernels = reverse(compiled(LAYER, "k"), (10, 7), (32,), make())
    names = ["k_partials", "k_gather", "k_sums", "k_reverse"]
    assert [k.name for k in kernels] == (names if executor == "reference" else ["k_partials", "k_gather", "k_reverse"])
    assert atomics(kernels) == (executor == "host")
    agree(LAYER, (10, 7), (32,), make, executors=[executor])


def test_blocks_of_several_threads_keep_nothing() -> None:
    """Threads that differ along y alone are one for the kernel: two would keep what they have in one place."""
    text = LAYER.replace("y[o * n + i] = tanh(s);", "if (threadIdx.y == 0) y[o * n + i] = tanh(s);")
    kernels = reverse(compiled(text, "k"), (10, 7), (32, 2), (*pairs(4, 8 * 300, 7 * 8 * 3, 7 * 300), 8, 300))
    assert [k.name for k in kernels] == ["k_reverse"]


def test_conditions_narrow_each_digit() -> None:
    """What is left of the ranges has every point in it that satisfies the conditions, and nothing is left only if there is none."""
    rng = random.Random(4)
    launch = Launch((3, 1, 1), (4, 1, 1), {})
    digits = [Digit("global", "x"), Digit("global", "y"), Digit("loop", "", 1)]
    for _ in range(500):
        ranges = {d: (low := rng.randint(-4, 3), low + rng.randint(0, 5)) for d in digits}
        conditions = [
            (Form(rng.randint(-9, 9), tuple((d, c) for d in digits if (c := rng.randint(-3, 3)))), rng.choice(["<=", "<=", "=="]))
            for _ in range(rng.randint(1, 3))
        ]
        points = [
            point
            for point in itertools.product(*(range(low, high + 1) for low, high in ranges.values()))
            if all(_holds(form, kind, dict(zip(digits, point, strict=True))) for form, kind in conditions)
        ]
        found = narrowed(ranges, conditions, launch)
        assert found is not None or not points
        for point in points:
            assert found is not None
            assert all(found[d][0] <= n <= found[d][1] for d, n in zip(digits, point, strict=True))


def _holds(form: Form, kind: str, point: dict[Digit, int]) -> bool:
    value = form.constant + sum(c * point[d] for d, c in form.terms)
    return value == 0 if kind == "==" else value <= 0


BESIDE = """extern "C" __global__ void k(const double* u, double* v, const double* c, double* y, int n, int m) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v[i] = 2.0 * u[i];
  for (int j = 0; j < m; j++) atomicAdd(&y[j], c[j]);
}"""


@pytest.mark.parametrize("name", ["reference", "host"])
@pytest.mark.parametrize("n", [0, 3, 6, 7, 13])
def test_what_stands_beside_a_loop_over_the_grid_is_counted_once_a_thread(n: int, name: str) -> None:
    u, v, c, y = pairs(0, n, n, 4, 4)
    c.shadow[...], y.shadow[...] = 0, 1
    with running(name):
        gpuad.autodiff(compiled(BESIDE, "k"), (2,), (3,), (u, v, c, y, n, 4))
    np.testing.assert_array_equal(c.shadow, 6)  # the launch has six threads, whatever n is


@pytest.mark.parametrize("name", ["reference", "host"])
@pytest.mark.parametrize(("grid", "block"), [((1,), (2,)), ((3,), (1,)), ((1, 2), (2, 3)), ((1, 1, 2), (1, 1, 2))])
def test_every_thread_that_does_the_same_is_counted(grid: Any, block: Any, name: str) -> None:
    text = (
        """extern "C" __global__ void k(const double* c, double* y, int m) { for (int h = 0; h < m; h++) atomicAdd(&y[h], 2.0 * c[h]); }"""
    )
    c, y = pairs(0, 5, 5)
    c.shadow[...], y.shadow[...] = 0, 1
    with running(name):
        gpuad.autodiff(compiled(text, "k"), grid, block, (c, y, 5))
    np.testing.assert_array_equal(c.shadow, 2.0 * np.prod(grid) * np.prod(block))

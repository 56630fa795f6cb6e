"""Kernels whose gradient was wrong: the smallest that shows each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Const, Duplicated, Tape, ops
from gpuad.errors import ShadowError, TapeError
from gpuad.runtime.compiler import Compiler

pytestmark = pytest.mark.optimised  # what C++ compilers made wrong is among them

# --- more than the stack of a thread ----------------------------------------------------------------------------------------------------

LARGE = """extern "C" __global__ void k(const double* x, double* y) {
    double a[1000]; __shared__ double s[1024];
    int t = threadIdx.x; s[t] = x[t];
    for (int k = 0; k < 1000; k++) a[k] = x[t] * k;
    __syncthreads();
    double r = 0;
    for (int k = 0; k < 1000; k++) r += a[k] * s[(t + k) % 1024];
    y[t] = r;
}"""


def test_arrays_of_a_block_that_are_larger_than_a_stack() -> None:
    """Each thread has 8,000 bytes, as on a GPU it may; a block of them has 8 MB."""
    x, y = (Duplicated(v, d) for v, d in ((np.linspace(0, 1, 1024), np.zeros(1024)), (np.zeros(1024), np.ones(1024))))
    gpuad.autodiff(compiled(LARGE, "k"), (1,), (1024,), (x, y))
    after = np.array([np.roll(x.primal, -k) for k in range(1000)])  # x[t + k]
    before = np.array([np.roll(x.primal, k) for k in range(1000)])
    np.testing.assert_allclose(y.primal, x.primal * (np.arange(1000) @ after), rtol=1e-12)
    np.testing.assert_allclose(x.shadow, np.arange(1000) @ after + np.arange(1000) @ before, rtol=1e-12)


# --- numbers of 8 and 16 bits, which wrap before an index is made of them -----------------------------------------------------------------

NARROW = {
    "unsigned of signed": ("signed char", "x[(unsigned char)k] = y[i] * y[i]; y[i] = x[k + 256] * y[i];", [-1, -2, -3, -4]),
    "signed of unsigned": ("unsigned char", "x[(signed char)k + 256] = y[i] * y[i]; y[i] = x[k] * y[i];", [255, 254, 253, 252]),
    "of another width": ("signed char", "x[(unsigned short)k & 255] = y[i] * y[i]; y[i] = x[(unsigned char)k] * y[i];", [-1, -2, 3, 4]),
    "narrower": ("int", "x[(unsigned char)k] = y[i] * y[i]; y[i] = x[k - 256] * y[i];", [256, 257, 258, 259]),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", NARROW)
def test_conversions_that_change_the_number(name: str, executor: str) -> None:
    kind, body, numbers = NARROW[name]
    head = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    text = f'extern "C" __global__ void k(double* x, double* y, const {kind}* c, int n) {{ {head} {kind} k = c[i]; {body} }}'
    check(compiled(text, "k"), np.array(numbers, {"signed char": np.int8, "unsigned char": np.uint8}.get(kind, np.int32)), executor)


@gpuad.jit
def wraps(x: Any, y: Any, c: Any, n: Any) -> None:
    i = gpuad.jit.grid(1)
    if i < n:
        k = c[i]
        m = k + np.uint8(200)
        x[m] = y[i] * y[i]
        y[i] = x[k - 56] * y[i]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_sums_of_8_bits_wrap(executor: str) -> None:
    check(wraps, np.array([60, 61, 62, 63], np.uint8), executor)


def check(kernel: Any, c: Any, executor: str) -> None:
    """The kernel makes y * y * y of y."""
    given = np.arange(1.0, 5.0)
    x, y = Duplicated(np.zeros(512), np.zeros(512)), Duplicated(given.copy(), np.ones(4))
    with running(executor):
        gpuad.autodiff(kernel, (1,), (32,), (x, y, c, np.int32(4)))
    np.testing.assert_allclose(y.primal, given**3, rtol=1e-14)
    np.testing.assert_allclose(y.shadow, 3 * given**2, rtol=1e-14)


# --- stores that look idle, guards that become one ----------------------------------------------------------------------------------------

HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
SAVED = {
    "a branch": "double old = x[i]; if (y[i] > 0) x[i] = 3.0; double c = x[i]; x[i] = old;",
    "a loop": "double old = x[i]; for (int j = 0; j < n; ++j) if (y[i] > 0) x[i] = 3.0; double c = x[i]; x[i] = old;",
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", SAVED)
def test_what_a_nested_block_overwrites_is_restored(name: str, executor: str) -> None:
    body = f"{SAVED[name]} y[i] = y[i] * x[i] + c; y[i] = y[i] * x[i] + c;"
    text = f'extern "C" __global__ void k(double* x, double* y, int n) {{ {HEAD} {body} }}'
    x0, y0 = np.array([1.0, 2.0, 5.0, 7.0]), np.array([1.0, 1.0, -1.0, 2.0])
    x, y = Duplicated(x0.copy(), np.zeros(4)), Duplicated(y0.copy(), np.ones(4))
    with running(executor):
        gpuad.autodiff(compiled(text, "k"), (1,), (32,), (x, y, 4))
    c, dc = np.where(y0 > 0, 3.0, x0), np.where(y0 > 0, 0.0, 1.0)
    np.testing.assert_array_equal(y.primal, (y0 * x0 + c) * x0 + c)
    np.testing.assert_array_equal(x.shadow, 2 * y0 * x0 + c + dc * (x0 + 1))
    np.testing.assert_array_equal(y.shadow, x0**2)


GUARDS = {
    "two of the user's": (
        "double a = x[i]; if (i < n / 2) y[i] = a + 1.0; if (i < n / 2) x[i] = -a; y[i] += 2.0 * x[i];",
        [0, -1, 6, 8],
        [-1, -1, 2, 2],
    ),
    "with more in between": (
        "double a = x[i]; if (i < n / 2) y[i] = a; double b = 2.0; if (i < n / 2) x[i] = b * a; y[i] += x[i];",
        [3, 6, 3, 4],
        [3, 3, 1, 1],
    ),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", GUARDS)
def test_what_a_joined_guard_writes_is_loaded_again(name: str, executor: str) -> None:
    body, after, gradient = GUARDS[name]
    text = f'extern "C" __global__ void k(double* x, double* y, int n) {{ {HEAD} {body} }}'
    x, y = Duplicated(np.arange(1.0, 5.0), np.zeros(4)), Duplicated(np.zeros(4), np.ones(4))
    with running(executor):
        gpuad.autodiff(compiled(text, "k"), (1,), (32,), (x, y, 4))
    np.testing.assert_array_equal(y.primal, after)
    np.testing.assert_array_equal(x.shadow, gradient)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_indices_of_a_launch_are_told_apart(executor: str) -> None:
    body = "double a = threadIdx.x, b = blockIdx.x, c = x[i]; x[i] = a * c; y[i] += b * c * c + (blockDim.x - gridDim.x);"
    text = f'extern "C" __global__ void k(double* x, double* y, int n) {{ {HEAD} {body} }}'
    x0 = np.arange(1.0, 9.0)
    x, y = Duplicated(x0.copy(), np.ones(8)), Duplicated(np.zeros(8), np.ones(8))
    with running(executor):
        gpuad.autodiff(compiled(text, "k"), (2,), (4,), (x, y, 8))
    thread, block = np.arange(8) % 4, np.arange(8) // 4
    np.testing.assert_array_equal(x.primal, thread * x0)
    np.testing.assert_array_equal(y.primal, block * x0 * x0 + 2)
    np.testing.assert_array_equal(x.shadow, thread + 2 * block * x0)


# --- arguments in one allocation ----------------------------------------------------------------------------------------------------------

LOOKED_UP = f'extern "C" __global__ void k(double* x, const double* y, const int* c, int n) {{ {HEAD} x[i] = x[i] * y[c[i]]; }}'


@pytest.mark.parametrize("mode", [gpuad.Reverse, gpuad.Forward])
@pytest.mark.parametrize("bare", [Const, lambda y: y])
def test_beside_a_shadow_nothing_is_reached_without_one(bare: Any, mode: Any) -> None:
    """What `y` is read at is not known, so it may lie in `x`; and where it does not, it has no shadow."""
    x, y = np.array([np.arange(1.0, 7.0), np.arange(9.0, 15.0)])
    given = x.copy()
    with pytest.raises(ShadowError, match="lies in one array with `x`"):
        gpuad.autodiff(
            compiled(LOOKED_UP, "k"), (1,), (8,), (Duplicated(x, np.ones(6)), bare(y), np.arange(6, dtype=np.int32), 6), mode=mode
        )
    np.testing.assert_array_equal(x, given)


def test_a_tape_refuses_the_same() -> None:
    x, y = np.array([np.arange(1.0, 7.0), np.arange(9.0, 15.0)])
    with Tape(), pytest.raises(ShadowError, match="lies in one array with `x`"):
        compiled(LOOKED_UP, "k")[(1,), (8,)](Duplicated(x, np.ones(6)), Const(y), np.arange(6, dtype=np.int32), 6)


def test_a_copy_and_a_shadow_beside_are_taken() -> None:
    c = np.array([5, 0, 0, 3, 2, 1], np.int32)
    for beside in (False, True):
        state, shadows = np.array([np.arange(1.0, 7.0), np.arange(9.0, 15.0)]), np.array([np.ones(6), np.zeros(6)])
        x, y = state
        other = Duplicated(y, shadows[1]) if beside else Const(y.copy())
        given, factors = x.copy(), y[c]
        gpuad.autodiff(compiled(LOOKED_UP, "k"), (1,), (8,), (Duplicated(x, shadows[0]), other, c, 6))
        np.testing.assert_array_equal(shadows[0], factors)
        np.testing.assert_array_equal(shadows[1], np.bincount(c, given, 6) if beside else 0)


# --- text that would double with each line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["double", "int"])
def test_lines_that_use_the_line_before_twice(kind: str) -> None:
    first, step = ("x[i]", "0.5 * t{0} - 0.3 * t{0} * t{0}") if kind == "double" else ("i", "(t{0} * 3 - t{0}) % 97 + t{0} % 5")
    lines = [f"{kind} t0 = {first};", *(f"{kind} t{k + 1} = {step.format(k)};" for k in range(40))]
    last = "y[i] = t40;" if kind == "double" else "y[i] = x[t40 % n] * x[i];"
    text = f'extern "C" __global__ void k(const double* x, double* y, int n) {{ {HEAD} {" ".join(lines)} {last} }}'
    x, y = Duplicated(np.linspace(0.1, 0.9, 20), np.zeros(20)), Duplicated(np.zeros(20), np.ones(20))
    t, slope = (x.primal, 1.0) if kind == "double" else (np.arange(20), 0)
    for _ in range(40):
        t, slope = (0.5 * t - 0.3 * t * t, slope * (0.5 - 0.6 * t)) if kind == "double" else ((t * 3 - t) % 97 + t % 5, 0)
    gpuad.autodiff(compiled(text, "k"), (1,), (32,), (x, y, 20))
    if kind == "double":
        np.testing.assert_allclose(x.shadow, slope, rtol=1e-12)
    else:
        at = t % 20
        np.testing.assert_allclose(x.shadow, x.primal[at] + np.bincount(at, x.primal, 20), rtol=1e-12)


# --- the compiler -------------------------------------------------------------------------------------------------------------------------


def test_an_element_is_not_read_anew_after_it_is_written() -> None:
    """g++ 12 makes a memcpy of the copies in this loop, and takes `a` from where they went."""
    body = "double a = x[i + h], b = y[i]; x[i + h] = b; y[i] = a; double c = z[i]; v[i] = x[i]; x[i] = c; z[i] = c + a;"
    text = f'extern "C" __global__ void k(double* x, double* y, double* z, double* v, int h, int n) {{ {HEAD} {body} }}'
    x, y, z, v = np.arange(16.0) + 1, np.arange(8.0) + 100, np.zeros(8), np.zeros(8)
    compiled(text, "k")[(1,), (8,)](x, y, z, v, 8, 8)
    np.testing.assert_array_equal(z, np.arange(9.0, 17.0))


# --- seeds --------------------------------------------------------------------------------------------------------------------------------


def test_two_seeds_of_one_element_are_refused() -> None:
    x, tape = Duplicated(np.ones(3), np.full(3, 7.0)), Tape()
    with tape:
        x *= 1.0
    for seeds in ({x: 2.0, x[:2]: 1.0}, {x[:2]: 1.0, x: 2.0}, {x[1:]: np.ones(2), x[:2]: 1.0}):
        with pytest.raises(TapeError, match="two seeds go to one element"):
            tape.reverse(seeds)
    np.testing.assert_array_equal(x.shadow, 7.0)
    tape.reverse({x[2:]: 3.0, x[:2]: 1.0})
    np.testing.assert_array_equal(x.shadow, [1, 1, 3])


def test_a_seed_between_elements_of_its_allocation_is_taken_again_and_again() -> None:
    seed = np.zeros(28, np.uint8)[4:].view(np.float64)
    seed[...] = [1, 2, 3]
    x, tape = Duplicated(np.ones(3)), Tape()
    for _ in range(3):
        with tape:
            y = x * 2.0
        tape.reverse({y: seed})
        np.testing.assert_array_equal(x.shadow, 2 * seed)
        x.shadow[...] = 0


def test_a_seed_of_elements_that_share_memory_is_refused() -> None:
    x, tape = Duplicated(np.array([1.5])), Tape()
    with tape:
        x *= 2.0
        wide = ops.broadcast_to(x, (3,))
    with pytest.raises(TapeError, match="share memory"):
        tape.reverse({wide: np.array([1.0, 2.0, 3.0])})


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 3)])
def test_a_complex_array_that_was_broadcast(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    z, factors = Duplicated(rng.standard_normal(shape) + 1j), rng.standard_normal((2, 3)) - 2j
    tape = Tape()
    with tape:
        wide = ops.broadcast_to(z, (2, 3))
        y = wide * wide * factors
    tape.reverse({y: 1.0})
    axes = tuple(k for k, n in enumerate(shape) if n == 1)
    np.testing.assert_allclose(z.shadow, np.conj(2 * z.primal * factors).sum(axes, keepdims=True), rtol=1e-12)


def test_options_of_one_compiler_are_not_given_to_another() -> None:
    option = "-fno-tree-loop-distribute-patterns"
    assert option in Compiler(("g++",), "g++ 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.").flags
    assert option not in Compiler(("clang++",), "clang version 22.1.8").flags

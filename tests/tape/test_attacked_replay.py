"""Programs that come again, nearly the same, and were once taken for the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Const, Duplicated, Tape
from gpuad.pipeline import schedule

SOURCE = r"""
#include <cupy/complex.cuh>
struct One { double a; };
struct Two { double a; double b; };
extern "C" __global__ void one(double* x, One p) { int i = threadIdx.x; x[i] = x[i] * p.a; }
extern "C" __global__ void two(double* x, Two p) { int i = threadIdx.x; x[i] = x[i] * p.a + p.b; }
extern "C" __global__ void lanes(double* x, double2 p) { int i = threadIdx.x; x[i] = x[i] * p.x + p.y; }
extern "C" __global__ void turn(complex<double>* z, complex<double> a) { int i = threadIdx.x; z[i] = z[i] * log(a); }
extern "C" __global__ void scale(double* x, double a) { int i = blockIdx.x * blockDim.x + threadIdx.x; x[i] = x[i] * a; }
extern "C" __global__ void copy(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
extern "C" __global__ void spread(const double* x, double* y, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) y[i] = a * (x[i - 1] - 2.0 * x[i] + x[i + 1]) + x[i] * x[i];
}
extern "C" __global__ void put(const double* x, const int* at, double* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[at[i]] = x[i] * x[i];
}
extern "C" __global__ void gather(const double* x, const int* at, double* y) { int i = threadIdx.x; y[i] += x[at[i]] * x[at[i]]; }
"""
ONE = np.dtype([("a", "f8")])
TWO = np.dtype([("a", "f8"), ("b", "f8")])


def kernel(name: str) -> Any:
    return gpuad.kernel(SOURCE, name)


def set_field(value: Any, number: float) -> None:
    value["a"] = number


def set_item(value: Any, number: float) -> None:
    value[0] = number


@pytest.mark.parametrize(
    ("name", "make", "change"),
    [
        ("one", lambda: np.zeros((), ONE), set_field),
        ("two", lambda: np.zeros(1, TWO), set_field),
        ("two", lambda: np.zeros(1, TWO)[0], set_field),
        ("lanes", lambda: [0.0, 0.0], set_item),
    ],
)
@pytest.mark.parametrize("wrap", [lambda value: value, Const])
def test_what_is_passed_by_value_may_change_between_two_calls(
    name: str, make: Callable[[], Any], change: Callable[[Any, float], None], wrap: Callable[[Any], Any]
) -> None:
    k, x, value = kernel(name), Duplicated(np.ones(3)), make()
    passed, tape = wrap(value), Tape()
    for first in (2.0, 5.0):
        x.primal[...] = 1
        with tape:
            for t in range(3):
                change(value, first + t)
                k[1, 3](x, passed)
        tape.reverse({x: 1.0})
        wanted = first * (first + 1) * (first + 2)
        np.testing.assert_array_equal(x.primal, wanted)
        np.testing.assert_array_equal(x.shadow, wanted)


def test_an_active_struct_that_changes_is_not_the_one_that_was_passed() -> None:
    k, x, value = kernel("two"), Duplicated(np.ones(3)), np.zeros(1, TWO)[0]
    p = Active(value, np.zeros(1, TWO))
    with Tape():
        value["a"] = 2.0
        for _ in range(2):
            k[1, 3](x, p)
        value["a"] = 3.0
        with pytest.raises(gpuad.ShadowError, match="one shadow for two values"):
            k[1, 3](x, p)


def test_a_complex_number_has_signed_zeros() -> None:
    k, z = kernel("turn"), Duplicated(np.ones(2, complex))
    numbers = [np.complex128(complex(-1.0, 0.0)), np.complex128(complex(-1.0, -0.0))]
    tape = Tape()
    with tape:
        for a in numbers:
            k[1, 2](z, a)
    tape.reverse({z: 1.0})
    np.testing.assert_allclose(z.primal, np.log(numbers[0]) * np.log(numbers[1]))
    np.testing.assert_allclose(z.shadow, np.conj(np.log(numbers[0]) * np.log(numbers[1])))


def test_an_array_of_one_struct_is_passed_by_value_again() -> None:
    k, x, value = kernel("one"), np.ones(3), np.zeros((), ONE)
    for number in (2.0, 3.0, 4.0):
        value["a"] = number
        k[1, 3](x, value)
    np.testing.assert_array_equal(x, 24.0)


def test_a_list_that_is_the_grid_may_change() -> None:
    k, x, grid = kernel("scale"), Duplicated(np.ones(8)), [1]
    tape = Tape()
    for blocks in (1, 2, 1):
        x.primal[...], grid[0] = 1, blocks
        with tape:
            k[grid, 4](x, 3.0)
        tape.reverse({x: 1.0})
        wanted = np.where(np.arange(8) < 4 * blocks, 3.0, 1.0)
        np.testing.assert_array_equal(x.primal, wanted)
        np.testing.assert_array_equal(x.shadow, wanted)


@pytest.mark.parametrize("first", [False, True])
def test_each_reverse_is_as_deterministic_as_it_is_asked_to_be(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    plain = schedule.run_fixed
    monkeypatch.setattr(schedule, "run_fixed", lambda *args: (runs.append(args), plain(*args)))
    k, x, y = kernel("gather"), Duplicated(np.arange(4.0)), Duplicated(np.zeros(4))
    at = np.array([1, 1, 2, 1], np.int32)
    tape = Tape()
    for wanted in (first, not first, first):
        runs.clear()
        x.shadow[...] = 0
        with tape:
            k[1, 4](x, at, y)
        with gpuad.deterministic(wanted):
            tape.reverse({y: 1.0})
        assert len(runs) == wanted
        np.testing.assert_array_equal(x.shadow, [0, 6, 4, 0])


@pytest.mark.parametrize("a", [0.0, 0.5])
def test_a_gathered_sum_that_is_zero_is_a_gradient_too(a: float) -> None:
    """At the ends of the array, where not every neighbour is, as well as inside; whatever the last reverse has left there."""
    n = 12
    x, y, z = (Duplicated(np.linspace(-1, 1, n) + k, np.zeros(n)) for k in range(3))
    copy, spread, tape = kernel("copy"), kernel("spread"), Tape()
    for at in (1, 2, 5, 9, 10, 1):
        seed, wanted = np.zeros(n), np.zeros(n)
        seed[at] = 1.0
        wanted[at - 1 : at + 2] = a, 2 * z.primal[at] - 2 * a, a
        z.shadow[...] = 0
        with tape:
            copy[1, n](z, x, n)
            spread[1, n](x, y, a, n)
        tape.reverse({y: seed})
        np.testing.assert_allclose(z.shadow, wanted)
        with tape:
            spread[1, n](x, y, a, n)
            copy[1, n](z, x, n)
        tape.reverse({y: seed})
        np.testing.assert_allclose(x.shadow, wanted)


def test_seeds_show_shadows_for_one_reversal_only() -> None:
    """The same program again, with fewer seeds: what only the earlier ones named is none of its shadows."""
    n = 6
    all_y, dy = np.zeros(2 * n), np.zeros(2 * n)
    at = np.arange(n, dtype=np.int32)
    x, y = Duplicated(np.linspace(0, 1, n)), Duplicated(all_y, dy)
    k, part = kernel("put"), y[n:]
    tape, fresh = Tape(), Tape()
    for recorder, seeds in ((tape, {y: 1.0}), (tape, {part: 1.0}), (fresh, {part: 1.0})):
        dy[...] = 3.0
        x.shadow[...] = 0
        with recorder:
            k[1, n](x, at, part, n)
        recorder.reverse(seeds)
        np.testing.assert_allclose(x.shadow, 2 * x.primal)
        np.testing.assert_array_equal(dy, [1.0 if y in seeds else 0.0] * n + [0.0] * n)  # the program writes to y: all of dy is cleared

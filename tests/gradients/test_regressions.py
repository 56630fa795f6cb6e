"""Kernels that once had a wrong gradient, each cut down to what made it wrong; most were found by random kernels."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import pytest
from clang import cindex

import gpuad
from gpuad import pipeline, testing


def _agrees(executor: Any, text: str, *args: Any) -> None:
    """Forward, reverse and differences agree; 4 threads."""
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(gpuad.kernel(text, "k"), args, grid=1, block=4)


def _some(*shape: int) -> Any:
    return np.random.default_rng(0).uniform(0.6, 1.4, shape)


def test_counting_how_deep_stacks_are_leaves_saved_memory_alone(executor: Any) -> None:
    """The loop's count depends on data, so its depth is counted by a kernel that repeats the primal's stores: on memory of its own."""
    text = """
    extern "C" __global__ void k(double* x, int n) {
        int i = threadIdx.x;
        if (i >= n) return;
        double c = x[i];
        for (int k = 0; k < 3 && 5 > c * c; k++) c = c * c + 0.1;
        x[i] = c;
    }
    """
    _agrees(executor, text, _some(4), 4)


def test_a_merged_value_is_there_for_the_partials_around_it(executor: Any) -> None:
    """The inner If ends its scope; what it merges goes into a function outside, whose partial needs the inner forward part first."""
    text = """
    __device__ double value(double u, double v) {
        if (u != 1) u -= v;
        v = u;
        u = 0.5;
        return exp(-0.5 * v);
    }
    extern "C" __global__ void k(double* x, double* y, int m, int n) {
        int i = threadIdx.x;
        if (i >= n) return;
        double c = x[i];
        c *= m != 1 ? value(c, y[i]) : c;
        x[i] += 1.3 * c;
    }
    """
    _agrees(executor, text, _some(4), _some(4), 3, 4)


def test_an_array_in_a_branch_is_recorded_if_it_cannot_be_filled_again(executor: Any) -> None:
    """The array is filled from memory that is overwritten later, and the branch is come back to by the reverse sweep."""
    text = """
    extern "C" __global__ void k(double* x, double* y, double c, int n) {
        int i = threadIdx.x;
        if (i >= n) return;
        double r = c;
        y[i] = c * y[i];
        if (c > -100) {
            double w[5];
            for (int k = 0; k < 5; k++) w[k] = y[i];
            if (0.5 <= w[1]) r = 1.2 * c;
        }
        y[i] -= 0.5;
        x[i] += x[i] * r;
    }
    """
    _agrees(executor, text, _some(4), _some(4), 0.7, 4)


@pytest.mark.parametrize(("source", "refused"), [("0", False), ("i", True)])
def test_a_value_that_is_far_larger_as_a_tree_is_compared_with_another_threads(executor: Any, source: str, refused: bool) -> None:
    """Two threads store to one element; whether their values are the same is told from what they are made of, each thing once."""
    text = f"""
    extern "C" __global__ void k(const double* x, double* y, int n) {{
        int i = threadIdx.x;
        if (i >= n) return;
        double c = x[{source}];
        c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c;
        c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c;
        c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c;
        c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c; c = 0.5 * c + 0.1 * c * c;
        y[i / 2] = c;
    }}
    """
    if not refused:
        return _agrees(executor, text, _some(4), _some(2), 4)
    y = gpuad.Duplicated(_some(2), np.ones(2))
    with pipeline.executor_for_tests(executor), pytest.raises(gpuad.errors.LaunchError, match="two threads write"):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 4, (gpuad.Duplicated(_some(4), np.zeros(4)), y, 4), mode=gpuad.Reverse)
    return None


def _sum(terms: int) -> str:
    total = " + ".join(f"{k + 1}.0 * x[(i + {k}) % n]" for k in range(terms))
    return f'extern "C" __global__ void k(const double* x, double* y, int n) {{ int i = threadIdx.x; if (i < n) y[i] = {total}; }}'


def test_an_expression_of_hundreds_of_terms(executor: Any) -> None:
    """More levels than Python's recursion limit lets a pass descend."""
    _agrees(executor, _sum(180), _some(4), _some(4), 4)


def test_an_expression_beyond_all_measure_is_refused_at_its_kernel() -> None:
    """Reading it ends in the middle of libclang's callbacks, whose exceptions ctypes drops, and a term with them."""
    with pytest.raises(gpuad.errors.UnsupportedError, match="nested too deeply") as found:
        gpuad.kernel(_sum(7000), "k")
    assert (found.value.line, found.value.column) == (1, 28)
    assert sys.getrecursionlimit() < 10_000


def test_children_that_cannot_be_visited_are_an_error() -> None:
    """The bindings would give those that came before."""
    from gpuad.frontend.cuda import clang_c

    unit = cindex.Index.create().parse("k.cu", ["-x", "c++"], unsaved_files=[("k.cu", "int a; int b;")])

    def descend() -> None:
        assert len(clang_c.children(unit.cursor)) == 2
        descend()

    with pytest.raises((RecursionError, ctypes.ArgumentError)):
        descend()


def test_counters_at_an_index_from_data(executor: Any) -> None:
    """An atomic on integers whose place nothing is known of says nothing about races."""
    text = """extern "C" __global__ void k(const double* x, double* y, int* bins, const int* which, int n) {
        int i = threadIdx.x;
        if (i >= n) return;
        atomicMax(&bins[which[i]], i);
        y[i] = x[i] * x[i];
    }"""
    bins = np.zeros(3, np.int32)
    x, y = gpuad.Duplicated(_some(4), np.ones(4)), gpuad.Duplicated(_some(4), np.zeros(4))
    with pipeline.executor_for_tests(executor):
        for mode in (gpuad.Forward, gpuad.Reverse):
            gpuad.autodiff(gpuad.kernel(text, "k"), 1, 4, (x, y, bins, np.array([2, 0, 2, 1], np.int32), 4), mode=mode)
    assert bins.tolist() == [1, 3, 2]
    np.testing.assert_allclose(x.shadow, 1 + 4 * _some(4) ** 2)


@pytest.mark.parametrize("mode", [gpuad.Forward, gpuad.Reverse])
def test_a_value_that_escapes_and_comes_back_is_refused_in_both_modes(executor: Any, mode: Any) -> None:
    text = 'extern "C" __global__ void k(double* x, double* p, double c) { int i = threadIdx.x; p[i] = 0.5 + c; x[i] = p[i]; }'
    args = (gpuad.Duplicated(_some(4), np.ones(4)), _some(4), gpuad.Active(1.0, np.ones(())))
    with pipeline.executor_for_tests(executor), pytest.raises(gpuad.ShadowError, match="it has no shadow"):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 4, args, mode=mode)

"""Found by random kernels of near-idioms: loops whose carried numbers change places, arrays in place, neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, api, pipeline, testing
from gpuad.ir.nodes import For, While
from gpuad.ir.rewrite import bound_in, walk_stmts
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.reference import Reference

# --- the text's own temporaries ----------------------------------------------------------------------------------------------------------


def test_numbers_that_change_places_in_a_loop_in_a_loop(executor: Any) -> None:
    """The temporary of the inner exchange was taken for that of the outer one, which is a constant: no compiler took the text."""
    text = """extern "C" __global__ void k(double* y, const int* go, int m) {
        double a = y[0], b = y[1];
        for (int j = 0; j < m && *go; j++) {
            { double t = b; b = a; a = t; }
            for (int l = 0; l < j; l++) { double t = a; a = b; b = t; }
        }
        y[0] = a; y[1] = 0.5 * b;
    }"""
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(gpuad.kernel(text, "k"), (np.array([3.0, 5.0]), np.ones(1, np.int32), 6), grid=1, block=1)


# --- reads past the end that nobody uses -------------------------------------------------------------------------------------------------

_UNUSED = {
    "a sum": "double r = u[i + 1]; double t = 0.5 * u[i] + r; if (i + 1 < n) v[i] = t * t;",
    "a sum of a sum": "double r = u[i + 1]; double t = r - u[i], s = c + t; if (i + 1 < n) v[i] = s * u[i];",
    "a choice": "double t = 0; if (c > 0) { double r = u[i + 1]; t = r - 2 * u[i]; } if (i + 1 < n) v[i] = t * u[i];",
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", _UNUSED)
def test_what_only_goes_into_a_sum_that_nobody_uses(name: str) -> None:
    """The adjoint of `r` was added, a zero, past the end of `du` (RULES 18): the sum between them had forgotten that it was not used."""
    text = f"""extern "C" __global__ void k(const double* x, double* v, double c, int n) {{
        __shared__ double u[8];
        int i = threadIdx.x;
        u[i] = x[i];
        __syncthreads();
        {_UNUSED[name]}
    }}"""
    rng = np.random.default_rng(3)
    with pipeline.executor_for_tests(Reference()):
        testing.check_gradient(gpuad.kernel(text, "k"), (rng.normal(size=8), np.zeros(8), 0.7, 8), grid=1, block=8)


# --- what changes from iteration to iteration --------------------------------------------------------------------------------------------


def test_the_counter_of_a_loop_in_a_loop_changes_in_the_outer_one() -> None:
    """Of an inner `while` only what it carries was known to change, not its counter."""
    text = """extern "C" __global__ void k(double* x, int n) {
        for (int j = 0; j < n; j++) { double e = x[j]; while (e > 0.1) e *= 0.5; x[j] = e; }
    }"""
    body = primal_of(api.kernel(text, "k").function).body
    outer = next(s for s in walk_stmts(body) if isinstance(s, For))
    inner = next(s for s in walk_stmts(outer.body) if isinstance(s, While))
    assert inner.counter in bound_in(outer)


# --- threads that take turns -------------------------------------------------------------------------------------------------------------


def test_turns_in_global_memory_are_no_race(executor: Any) -> None:
    """The step of an FFT in place: two threads write to one element, one after the other."""
    text = """extern "C" __global__ void k(double* x, int n) {
        int t = threadIdx.x;
        x[t] *= x[t]; __syncthreads(); x[(t + 1) % n] *= 2.0;
    }"""
    x, dx = np.arange(1.0, 5.0), np.ones(4)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 4, (Duplicated(x, dx), 4))
    assert (x == 2 * np.arange(1.0, 5.0) ** 2).all() and (dx == 4 * np.arange(1.0, 5.0)).all()

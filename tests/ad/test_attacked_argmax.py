"""Found by attacks on loops that keep one of many numbers, and on calls in the words of earlier ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Duplicated, pipeline, testing

# --- sums that other sums look at --------------------------------------------------------------------------------------------------------

_SUMS = {
    "slope": "a += t * j;",
    "slope of data": "a += t * x[r * 6 + j];",
    "two": "a += t * j; b += a * u; u += t;",
    "chain": "b += u * j; u += a; a += t;",
}


@pytest.mark.parametrize("name", _SUMS)
def test_adjoints_that_another_adjoint_adds_up(executor: Any, name: str) -> None:
    """`dt += j * da` in a loop that adds to `da` too ran forward: what an iteration's new `dt` was made of did not count as looked at."""
    text = f"""extern "C" __global__ void k(const double* x, double* y, double t, double u, int n) {{
        int r = threadIdx.x;
        double a = 0.3, b = 0;
        for (int j = 0; j < 3; j++) {{
            for (int i = r; i < n; i++) b += a;
            {_SUMS[name]}
        }}
        y[r] = b;
    }}"""
    x = np.random.default_rng(1).normal(size=24)
    with pipeline.executor_for_tests(executor):
        testing.check_gradient(gpuad.kernel(text, "k"), (x, np.zeros(4), 0.7, -0.4, 6), grid=1, block=4)


def test_the_adjoint_of_a_slope() -> None:
    """In closed form: b is the sum over j of a_j, and a_j is t times 0 + 1 + ... + (j - 1)."""
    text = """extern "C" __global__ void k(double* y, double t) {
        double a = 0, b = 0;
        for (int j = 0; j < 4; j++) { for (int i = 0; i < 2; i++) b += a; a += t * j; }
        y[0] = b;
    }"""
    dy, dt = np.ones(1), np.zeros(())
    gpuad.autodiff(gpuad.kernel(text, "k"), 1, 1, (Duplicated(np.zeros(1), dy), Active(0.5, dt)))
    assert dt == 2 * (0 + 0 + 1 + 3)

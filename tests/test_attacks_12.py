"""Found by random kernels of near-idioms: loops whose carried numbers change places, arrays in place, neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuad
from gpuad import launching, testing

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
    with launching.executor_for_tests(executor):
        testing.check_gradient(gpuad.kernel(text, "k"), (np.array([3.0, 5.0]), np.ones(1, np.int32), 6), grid=1, block=1)

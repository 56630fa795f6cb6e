"""Attacks on additions to shadows in shared memory: on the proofs that threads meet in no element, and on sums over a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import agree, pairs

import gpuad
from gpuad import Duplicated

NOBODY = """extern "C" __global__ void k(const double* x, double* y, int m, int q, int c) {
  __shared__ double s[64];
  int t = threadIdx.x, i = blockIdx.x*blockDim.x + t;
  s[t] = x[i];
  __syncthreads();
  double w = 0;
  m += q*blockIdx.x;
  if (t < c && m < 64) w += s[m]*x[t];
  y[i] = w + s[t];
}
"""


@pytest.mark.parametrize("m, q", [(3, 1), (300_000_000, 0), (1, 300_000_000)])
def test_a_sum_of_zeros_over_a_block_is_added_nowhere(m: int, q: int) -> None:
    """The element that all threads would come to is none, for all blocks or for some."""

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(0)
        return Duplicated(r.normal(size=128)), Duplicated(r.normal(size=128), r.normal(size=128)), m, q, 7

    agree(NOBODY, 2, 64, make)


TRUTHS = """extern "C" __global__ void k(const double* x, double* y, int p) {
  __shared__ double s[8];
  int t = threadIdx.x;
  bool e = t > p;
  double v = x[t], a[2] = {v, v*v};
  if (t < 8) s[t] = v;
  __syncthreads();
  y[t] = s[e]*v + x[!e] + a[t == 3];
}
"""


@pytest.mark.parametrize("p", [-1, 2, 9])
def test_truth_values_are_indices(p: int) -> None:
    agree(TRUTHS, 1, 8, lambda: (*pairs(3, 8, 8), p))
    x, y = pairs(3, 8, 8)
    seed, e = np.array(y.shadow), (np.arange(8) > p).astype(int)
    v, expected = x.primal, np.array(x.shadow)
    np.add.at(expected, e, seed * v)
    np.add.at(expected, 1 - e, seed)
    expected += seed * np.where(np.arange(8) == 3, 2 * v, 1) + seed * v[e]
    gpuad.autodiff(gpuad.kernel(TRUTHS, "k"), 1, 8, (x, y, p))
    np.testing.assert_allclose(x.shadow, expected, rtol=1e-13)

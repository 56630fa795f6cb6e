"""Attacks on additions to shadows in shared memory: on the proofs that threads meet in no element, and on sums over a block."""

from __future__ import annotations

import numpy as np
import pytest
from gather_tools import agree

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

    def make() -> tuple[object, ...]:
        r = np.random.default_rng(0)
        return Duplicated(r.normal(size=128)), Duplicated(r.normal(size=128), r.normal(size=128)), m, q, 7

    agree(NOBODY, 2, 64, make)

"""Attacks on additions to shadows in shared memory: on the proofs that threads meet in no element, and on sums over a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import agree, gradients, pairs
from test_deterministic_shared import HEAD, geometry, judged

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


KERNELS = {
    "votes": "for (int m=0; m<3; m++) { w += s[(t+m)%b]*v; if (__syncthreads_and(w < 2)) { z[t] = w; } w += z[t]; }",
    "barriers of warps": "w += s[t]*v; __syncwarp(); w += s[b-1-t]*v;",
    "barriers in some blocks": "if (blockIdx.x == p) __syncthreads(); w += s[t]*v; if (blockIdx.x == q) __syncthreads(); w += s[b-1-t]*v;",
    "barriers by an argument": "w += s[t]*v; if (p > 2) __syncthreads(); w += s[b-1-t]*v;",
    "barriers by data": "w += s[t]*v; if (at[0] % 2) __syncthreads(); w += s[b-1-t]*v;",
    "butterflies": "w += s[(t ^ 1) < b ? (t ^ 1) : t]*v; __syncthreads(); s[t] = w; __syncthreads(); w += s[(t ^ p) % b];",
    "halves": "w += s[t/2]*v; __syncthreads(); w += z[(2*t) % b]*v;",
    "indices in shared memory": "__shared__ int ix[256]; ix[t] = b-1-t; __syncthreads(); w += s[ix[t]]*v; __syncthreads(); w += "
    "z[ix[(t+p)%b]];",
    "unsigned": "unsigned u = t; u -= p; u += b; u += p; w += s[u % b]*v; __syncthreads(); u = (unsigned)t - 5u; if "
    "(u < b) w += z[u]*v; __syncthreads(); w += z[0u - 1u - (0u - 1u - t)];",
    "narrow": "char c = t*64; unsigned char d = t*3; w += s[d % b]*v; __syncthreads(); w += s[(c & 127) % b]; "
    "__syncthreads(); short h = t*1000; w += z[(h & 255) % b];",
    "a step too short": "for (int k = t; k < b; k += blockDim.x*blockDim.y - (b > 1)) w += s[k]*v;",
    "rows along axes": "for (int k = threadIdx.y; k < b; k += blockDim.y) w += s[k]*v; __syncthreads(); for (int k = "
    "threadIdx.x; k < b; k += blockDim.x) w += z[(k + threadIdx.y*blockDim.x)%b]*v;",
    "unsigned, down": "for (unsigned k = b-1-t; k < b; k -= b) w += s[k]*v; __syncthreads(); for (unsigned k = b - 1; k < "
    "b; k--) w += z[(k+t)%b]*v;",
    "two rows": "for (int k = threadIdx.y; k < blockDim.y; k += blockDim.y) for (int j = threadIdx.x; j < blockDim.x; "
    "j += blockDim.x) w += s[k*blockDim.x+j]*v; __syncthreads(); for (int k = threadIdx.y; k < p; k += "
    "blockDim.y) for (int j = threadIdx.x; j < q; j += blockDim.x) w += z[k*5+j]*v;",
    "returns": "if (t >= p + 2) return; w += s[t]*v; w += z[(t+1)%b]*v;",
    "returns before barriers": "if (i >= n) return; __syncthreads(); w += s[t]*v; __syncthreads(); w += s[(t+1)%b]*v;",
    "a branch in a loop": "for (int m=0;m<p;m++) { if (w*m < 1.0 + v) { w += s[m]*v; v = sin(w*v)+z[0]; } }",
    "carried through branches": "double u=1; for (int m=0;m<p;m++) { if (v > 0.1*m) { u = u*s[m%b] + z[m%b]*v; w += u; } else u = "
    "s[0]*v; } w += u;",
    "one thread's": "if (t == 0) { s[0] = v*s[0]; s[1] = s[0]*z[0]; } __syncthreads(); w += s[1]*v + s[0]; if (t > p) w += s[0]*w;",
    "returned by data": "if (v > 0.5) return; w += s[0]*v; __syncthreads(); s[t] = w; __syncthreads(); w += s[0];",
    "cleared": "w += s[t]*v; __syncthreads(); s[t] = 0; __syncthreads(); w += s[(t+p)%b]*v;",
    "a step from an argument": "for (int m=p; m<b; m+=q+1) { if (t+m<b) w += s[t+m]*v; __syncthreads(); s[t] = w; __syncthreads(); }",
    "lanes": "if (t % 32 == 0) s[t/32] = w + v; __syncthreads(); if (t < 32 && t < (b+31)/32) w += s[t]*v; "
    "__syncthreads(); w += s[t/32]*v;",
    "turns": "for (int m=0;m<p;m++) { double* a = (m & 1) ? s : z; double* c = (m & 1) ? z : s; c[t] = "
    "a[(t+1)%b]*v; __syncthreads(); } w += s[t]+z[t];",
    "an odd tree": "for (int l = b; l > 1; l = (l+1)/2) { int h = (l+1)/2; if (t + h < l) s[t] += s[t+h]*v; __syncthreads(); } w += s[0];",
    "scan": "for (int d = 1; d < b; d *= 2) { double u = t >= d ? s[t-d] : 0; __syncthreads(); s[t] += u*v; __syncthreads(); } w += s[t];",
    "scan in one interval": "for (int d = 1; d < b; d *= 2) { double u = s[t]; if (t >= d) u += s[t-d]*v; __syncthreads(); s[t] = "
    "u; __syncthreads(); } w += s[t];",
}


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", KERNELS)
def test_what_is_proved_of_intervals_is_so(name: str) -> None:
    """27 kernels on 5 geometries; and sums over a block are what adding one by one gives."""
    text = HEAD.format(KERNELS[name])
    for seed in range(5):
        grid, block, args = geometry(seed)
        assert all(right for proved, right in judged(text, grid, block, args) if proved), (seed, grid, block)
    grid, block, _ = geometry(3)
    found = gradients(text, grid, block, lambda: geometry(3)[2], executor="reference")
    expected = gradients(text, grid, block, lambda: geometry(3)[2], executor="reference", analysis=False, plain=False)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11 * float(np.abs(other).max()))

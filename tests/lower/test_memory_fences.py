"""The last block sums up, which it knows by a memory fence and a counter: two launches, of which the second begins at the fence. Values and
gradients are closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, UnsupportedError, pipeline

HEAD = """#include <cooperative_groups.h>
__device__ unsigned int done = 0;
__shared__ double tile[32];
__device__ double block_sum(double v) {
  int t = threadIdx.x;
  tile[t] = v; __syncthreads();
  for (int o = 16; o > 0; o >>= 1) { if (t < o) tile[t] += tile[t + o]; __syncthreads(); }
  double all = tile[0]; __syncthreads();
  return all;
}
__device__ bool is_last(unsigned int* counter) {
  __shared__ bool last;
  __threadfence();
  if (threadIdx.x == 0) last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  return last;
}
extern "C" __global__ void k(const double* x, double* part, double* out, unsigned int* counter, int n) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  %s
}"""
SUM = "double v = 0; for (; i < n; i += blockDim.x * gridDim.x) v += x[i] * x[i]; v = block_sum(v);"
REST = "double w = 0; for (int j = t; j < gridDim.x; j += blockDim.x) w += part[j] * part[j]; w = block_sum(w); if (t == 0) *out = w;"
WORDS = {
    "thread 0 takes a ticket": f"""__shared__ bool last; {SUM}
      if (t == 0) {{ part[blockIdx.x] = v; __threadfence(); unsigned int ticket = atomicInc(&done, gridDim.x);
        last = ticket == gridDim.x - 1; }}
      __syncthreads();
      if (last) {{ {REST} if (t == 0) done = 0; }}""",
    "all threads reach the fence": f"""__shared__ unsigned ticket; {SUM} if (t == 0) part[blockIdx.x] = v;
      __threadfence(); __syncthreads();
      if (t == 0) ticket = atomicAdd(counter, 1u);
      __syncthreads();
      if (ticket == gridDim.x - 1) {{ {REST} if (t == 0) counter[0] = 0; }}""",
    "an early return": f"""__shared__ int last[1]; {SUM} if (t == 0) {{ part[blockIdx.x] = v; __threadfence_system();
      last[0] = atomicAdd(counter, 1) + 1 == gridDim.x; }}
      cooperative_groups::sync(cooperative_groups::this_thread_block());
      if (!last[0]) return;
      {REST}""",
    "a helper": f"{SUM} if (t == 0) part[blockIdx.x] = v; if (is_last(counter)) {{ {REST} }}",
    "one thread for all": f"""{SUM} if (t == 0) {{ part[blockIdx.x] = v; __threadfence();
      if (atomicAdd(counter, 1) == gridDim.x - 1) {{ double w = 0; for (int j = 0; j < gridDim.x; j++) w += part[j] * part[j];
        *out = w; }} }}""",
    "several blocks or one": f"""{SUM} if (t == 0) part[blockIdx.x] = v;
      if (gridDim.x > 1) {{ if (is_last(counter)) {{ int j = t; double w = 0; while (j < gridDim.x) {{ w += part[j] * part[j];
        j += 32; }} w = block_sum(w); if (t == 0) *out = w; }} }}
      else if (t == 0) *out = v * v;""",
}  # fmt: skip


@pytest.mark.parametrize("grid", [1, 5])
@pytest.mark.parametrize("words", WORDS)
def test_the_last_block_sums_up(words: str, grid: int, executor: Any) -> None:
    n = 200
    kernel = gpuad.kernel(HEAD % WORDS[words], "k")
    x = np.random.default_rng(0).uniform(0.5, 1.5, n)
    part, out, counter = np.zeros(grid), np.zeros(1), np.zeros(1, np.uint32)
    dx, dpart, dout = np.zeros(n), np.full(grid, 0.5), np.full(1, 2.0)
    blocks = np.arange(n) // 32 % grid
    sums = np.bincount(blocks, x * x)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, grid, 32, (Duplicated(x, dx), Duplicated(part, dpart), Duplicated(out, dout), counter, n))
    np.testing.assert_allclose(part, sums, rtol=1e-12)
    np.testing.assert_allclose(out, (sums**2).sum(), rtol=1e-12)
    np.testing.assert_allclose(dx, ((4 * sums + 0.5)[blocks]) * 2 * x, rtol=1e-12)
    assert not dpart.any()
    assert not dout.any()


def test_which_launches_it_is() -> None:
    kernel = gpuad.kernel(HEAD % WORDS["a helper"], "k")
    args = np.ones(64), np.zeros(2), np.zeros(1), np.zeros(1, np.uint32), 64
    assert [part.name for part, *_ in kernel.launches(2, 32, args)] == ["k_part0", "k_part1"]
    assert "each part of it is a launch" in kernel.adjoint(Duplicated, Duplicated, Duplicated).source


SPINNING = {
    "a flag": """if (t == 0) { part[blockIdx.x] = x[i]; __threadfence(); atomicAdd(counter, 1);
      while (^counter[0] < gridDim.x) {} } *out = part[0];""",
    "an atomic": """if (t == 0) { __threadfence();
      while (^atomicAdd(counter, 0u) < blockIdx.x) {} part[0] += x[i]; __threadfence(); atomicAdd(counter, 1u); }""",
    "a lock": """bool open = false; do { open =
      ^atomicCAS(counter, 0u, 1u) == 0; if (open) { *out += x[i]; __threadfence(); atomicExch(counter, 0u); } } while (!open);""",
}


@pytest.mark.parametrize("words", SPINNING)
def test_threads_that_wait_for_one_another_are_refused(words: str) -> None:
    text = HEAD % SPINNING[words]
    line = next(k for k, one in enumerate(text.split("\n"), 1) if "^" in one)
    with pytest.raises(UnsupportedError, match="threads that wait for one another by memory") as error:
        gpuad.kernel(text.replace("^", ""), "k")
    assert error.value.line == line


@pytest.mark.parametrize(
    "body",
    [
        "__shared__ double s[32]; s[t] = x[i] * x[i]; __threadfence_block(); __syncthreads(); part[i] = s[31 - t] * x[i];",
        "__shared__ double s[32]; s[t] = x[i] * x[i]; __threadfence_block(); part[i] = s[31 - t] * x[i];",
        "__shared__ double s[32]; if (i < n) { s[t] = x[i] * x[i]; __threadfence_block(); part[i] = s[31 - t] * x[i]; }",
        "__shared__ double s[32]; if (i >= n) return; s[t] = x[i] * x[i]; __threadfence_block(); __syncwarp(); part[i] = s[31 - t] * x[i];",
    ],
)
def test_a_fence_of_the_block_keeps_the_threads_of_a_warp_in_step(body: str, executor: Any) -> None:
    kernel = gpuad.kernel(HEAD % body, "k")
    x, part, out, counter = np.random.default_rng(0).uniform(0.5, 1.5, 64), np.zeros(64), np.zeros(1), np.zeros(1, np.uint32)
    dx, dpart = np.zeros(64), np.arange(64.0) + 1
    seed, y = dpart.reshape(2, 32).copy(), x.reshape(2, 32)
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 2, 32, (Duplicated(x, dx), Duplicated(part, dpart), out, counter, 64))
    np.testing.assert_allclose(part.reshape(2, 32), y[:, ::-1] ** 2 * y, rtol=1e-12)
    np.testing.assert_allclose(dx.reshape(2, 32), y[:, ::-1] ** 2 * seed + 2 * y * (seed * y)[:, ::-1], rtol=1e-12)

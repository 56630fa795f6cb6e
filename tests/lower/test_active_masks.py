"""Groups of the threads that have come to a place (`coalesced_threads`, `__activemask`): who is in them, what they tell each other, and
gradients through positions that a group takes with one atomic addition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, UnsupportedError, pipeline

N, BLOCK = 87, 48
HEAD = """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const double* x, double* out, int* counter, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
  %s
}"""
GROUP = """cg::coalesced_group g = cg::coalesced_threads(); int base; if (g.thread_rank() == 0) base = atomicAdd(counter, (int)g.size());
  base = g.shfl(base, 0); out[base + g.thread_rank()] = x[i] * x[i];"""
MASK = """unsigned m = __activemask(); int leader = __ffs(m) - 1, base = 0; if (lane == leader) base = atomicAdd(counter, __popc(m));
  base = __shfl_sync(m, base, leader); out[base + __popc(m & ((1u << lane) - 1))] = x[i] * x[i];"""
PLACED = {
    "a group in a branch": f"if (i < n && x[i] > 1) {{ {GROUP} }}",
    "a mask in a branch": f"if (i < n) {{ if (x[i] > 1) {{ {MASK} }} }}",
    "after a return": f"if (i >= n) return; if (x[i] > 1) {{ {GROUP} }}",
    "after a return for data": f"if (i >= n || x[i] <= 1) return; {MASK}",
    "over the grid": f"for (; i < n; i += blockDim.x * gridDim.x) {{ if (x[i] > 1) {{ {GROUP} }} }}",
    "in a helper": "auto place = [&](int j) { auto g = cg::coalesced_threads(); int at = 0; if (g.thread_rank() == 0) "
    "at = atomicAdd(counter, (int)g.num_threads()); return g.shfl(at, 0) + (int)g.thread_rank(); };"
    " if (i < n && x[i] > 1) out[place(i)] = x[i] * x[i];",
    "a ballot of all": """bool keep = i < n && x[i] > 1; unsigned m = __ballot_sync(0xffffffffu, keep); int leader = __ffs(m) - 1, base = 0;
      if (m && lane == leader) base = atomicAdd(counter, __popc(m)); base = __shfl_sync(0xffffffffu, base, m ? leader : 0);
      if (keep) out[base + __popc(m & ((1u << lane) - 1))] = x[i] * x[i];""",
}


@pytest.mark.parametrize("words", PLACED)
def test_places_that_a_group_takes_together(words: str, executor: Any) -> None:
    kernel = gpuad.kernel(HEAD % PLACED[words], "k")
    x = np.random.default_rng(0).uniform(0.5, 1.5, N)
    out, counter, dx, dout = np.zeros(N), np.zeros(1, np.int32), np.zeros(N), np.arange(1.0, N + 1)
    seed = dout.copy()
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 2, BLOCK, (Duplicated(x, dx), Duplicated(out, dout), counter, N))
    kept = np.flatnonzero(x > 1)
    assert counter[0] == len(kept)
    places = [int(np.flatnonzero(out == x[i] * x[i])[0]) for i in kept]
    assert sorted(places) == list(range(len(kept)))
    expected = np.zeros(N)
    expected[kept] = 2 * x[kept] * seed[places]
    np.testing.assert_allclose(dx, expected, rtol=1e-14)
    assert not dout[: len(kept)].any()


def warps(i: np.ndarray) -> np.ndarray:
    return i // BLOCK * 2 + i % BLOCK // 32


TOLD = "auto g = cg::coalesced_threads(); "
ASKED = {
    "at the top": (f"{TOLD} if (i < n) out[i] = g.size() * 100 + g.thread_rank();", lambda i: i >= 0),
    "in both sides": (f"if (i % 3 == 1) {{ {TOLD} if (i < n) out[i] = g.size() * 100 + g.thread_rank(); }}"
                      f" else {{ {TOLD} if (i < n) out[i] = g.size() * 100 + g.thread_rank(); }}", lambda i: i % 3 == 1),
    "inside of a branch": (f"if (i % 2) {{ if (i % 5 < 3) {{ {TOLD} if (i < n) out[i] = g.size() * 100 + g.thread_rank(); }} }}",
                           lambda i: (i % 2 == 1) & (i % 5 < 3)),
    "in a loop": (f"for (int j = 0; j < i % 4; j++) {{ {TOLD} if (i < n && j == 2) out[i] = g.size() * 100 + g.thread_rank(); }}",
                  lambda i: i % 4 == 3),
    "in a branch of a loop": (f"for (int j = i % 4; j >= 0; j--) {{ if (j == 1) {{ {TOLD} if (i < n) out[i] = g.size() * 100 + "
                              "g.thread_rank(); } }", lambda i: i % 4 == 1),
    "in a loop of all": (f"for (int j = 0; j < 3; j++) if (i % 7 > j) {{ {TOLD} if (i < n && j == 2) out[i] = g.size() * 100 + "
                         "g.thread_rank(); }", lambda i: i % 7 > 2),
}  # fmt: skip


@pytest.mark.parametrize("words", ASKED)
def test_who_is_in_a_group(words: str, executor: Any) -> None:
    body, inside = ASKED[words]
    i = np.arange(2 * BLOCK)
    out, counter = np.zeros(2 * BLOCK), np.zeros(1, np.int32)
    with pipeline.executor_for_tests(executor):
        gpuad.kernel(HEAD % body, "k")(2, BLOCK, (np.zeros(1), out, counter, 2 * BLOCK))
    expected = np.zeros(2 * BLOCK)
    sets = [inside(i), ~inside(i)] if words == "in both sides" else [inside(i)]
    for own in sets:
        for warp in range(4):
            group = np.flatnonzero(own & (warps(i) == warp))
            expected[group] = len(group) * 100 + np.arange(len(group))
    shown = expected > 0 if words != "in a branch of a loop" else inside(i)
    np.testing.assert_array_equal(out[shown], expected[shown])


def test_what_a_group_tells(executor: Any) -> None:
    """out = 2 x(first) + 3 x(next) + 5 x(one before), of a group of every third thread; a ballot and its kin."""
    body = """if (i % 3 == 1) { auto g = cg::coalesced_threads(); double v = x[i] * x[i];
      out[i] = 2 * g.shfl(v, 0) + 3 * g.shfl_down(v, 1) + 5 * g.shfl_up(v, 1); g.sync();
      unsigned odd = g.ballot(g.thread_rank() % 2 == 1), all = (1u << g.size()) - 1;
      if (odd == (0xaaaaaaaau & all) && g.any(i % 2) && !g.all(i % 2)) atomicAdd(counter, 1);
      out[i] += 7 * cg::reduce(g, v, cg::plus<double>());
    }"""
    kernel = gpuad.kernel(HEAD % body, "k")
    x = np.random.default_rng(0).uniform(0.5, 1.5, 2 * BLOCK)
    out, counter, dx, dout = np.zeros(2 * BLOCK), np.zeros(1, np.int32), np.zeros(2 * BLOCK), np.arange(1.0, 2 * BLOCK + 1)
    i, matrix = np.arange(2 * BLOCK), np.zeros((2 * BLOCK, 2 * BLOCK))
    for warp in range(4):
        group = np.flatnonzero((i % 3 == 1) & (warps(i) == warp))
        for rank, j in enumerate(group):
            for factor, other in ((2, 0), (3, min(rank + 1, len(group) - 1)), (5, max(rank - 1, 0))):
                matrix[j, group[other]] += factor
            matrix[j, group] += 7
    expected = matrix.T @ dout * 2 * x
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 2, BLOCK, (Duplicated(x, dx), Duplicated(out, dout), counter, 2 * BLOCK))
    np.testing.assert_allclose(out, matrix @ (x * x), rtol=1e-13)
    np.testing.assert_allclose(dx, expected, rtol=1e-13)
    assert counter[0] == (i % 3 == 1).sum()


def test_a_while_that_threads_leave_at_different_times_is_refused() -> None:
    body = "double v = i < n ? x[i] : 0; while (v > 1) { unsigned m = __activemask(); v *= 0.5; out[i] = __popc(m); }"
    with pytest.raises(UnsupportedError, match="which threads are active is not known in a `while`"):
        gpuad.kernel(HEAD % body, "k")

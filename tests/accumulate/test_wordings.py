"""What a gradient costs hangs on what a kernel computes, not on how it is written: loops that are left early, local arrays that loops carry
on, and others, each in several wordings, all without an atomic operation; gradients and second derivatives are those of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import atomics, reverse
from launch_tools import EXECUTORS

from gpuad import Duplicated, api, pipeline
from gpuad.ir.nodes import Pop
from gpuad.ir.rewrite import walk_stmts
from gpuad.testing import check_gradient

N, M = 70, 6
SOURCE = r"""
#define K extern "C" __global__ void
#define I int i = blockIdx.x * blockDim.x + threadIdx.x
#define H I; if (i >= n) return
#define G(T) for (T i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
#define P p *= 1 - x[i * m + t]
#define LOW p < 0.3
typedef double* out; typedef const double* in;

// a product along a row, which is left early
K by_counter(out y, in x, int n, int m) { H; double p = 1; for (int t = 0; t < m; ++t) { P; if (t >= 3) break; } y[i] = p; }
K by_data(out y, in x, int n, int m) { H; double p = 1; for (int t = 0; t < m; ++t) { P; if (LOW) break; } y[i] = p; }
K condition(out y, in x, int n, int m) { H; double p = 1; for (int t = 0; t < m && !(LOW); ++t) P; y[i] = p; }
K while_loop(out y, in x, int n, int m) { H; double p = 1; int t = 0; while (!(LOW) && t < m) { P; t++; } y[i] = p; }
K downwards(out y, in x, int n, int m) { H; double p = 1; for (int t = m - 1; t >= 0; --t) { P; if (LOW) break; } y[i] = p; }
K in_twos(out y, in x, size_t n, size_t m) {
    G(size_t) { double p = 1; for (size_t t = 0; t < m; t += 2) { P; if (LOW) break; } y[i] = p; }
}
K two_exits(out y, in x, int n, int m) {
    H; double p = 1; for (int t = 0; t < m; ++t) { if (x[i * m + t] > 0.8) break; P; if (LOW) break; } y[i] = p;
}
K columns(out y, in x, int n, int m) {
    H; double p = 1; for (int t = 0; t < m; ++t) { p *= 1 - x[t * n + i]; if (LOW) break; } y[i] = p;
}

// a return in a loop over the grid
K returned(out y, in x, int n) { G(int) { if (x[i] > 0.8) return; y[i] = x[i] * x[i]; } }
K returned_all(out y, in x, int n, int stop) { G(int) { if (stop > 3) return; y[i] = x[i] * x[i]; } }
K returned_size(out y, in x, size_t n) { G(size_t) { if (x[i] > 0.8) return; y[i] = x[i] * x[i]; } }
K returned_late(out y, in x, int n) { G(int) { y[i] = x[i] * x[i]; if (y[i] > 0.6) return; } }
K returned_while(out y, in x, int n) {
    I; while (i < n) { if (x[i] > 0.8) return; y[i] = x[i] * x[i]; i += gridDim.x * blockDim.x; }
}
K forever(out y, in x, int n) {
    for (I;; i += blockDim.x * gridDim.x) { if (i >= n) return; if (x[i] > 0.8) continue; y[i] = x[i] * x[i]; }
}
K forever_inner(out y, in x, int n) {
    I;
    for (;;) {
        if (n <= i) return;
        double p = 1; for (int t = 0; t < 5; ++t) { p *= x[i]; if (p < 0.3) break; }
        y[i] = p; i += blockDim.x * gridDim.x;
    }
}
K forever_broken(out y, in x, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    while (true) { if (i >= n) { break; } y[i] = x[i] * x[i]; i += blockDim.x * gridDim.x; }
}
K walking(out y, in x, int n) {
    I; const double* p = x + i; double* q = y + i;
    for (; i < n; i += blockDim.x * gridDim.x, p += blockDim.x * gridDim.x, q += blockDim.x * gridDim.x) if (*p < 0.8) *q = *p * *p;
}
K walking_three(out y, in x, int n) {
    I; const double* p = x + 3 * i; int stride = blockDim.x * gridDim.x;
    for (; i < n / 3; i += stride, p += 3 * stride) y[i] = p[0] * p[1] * p[2];
}
K broken_off(out y, in x, unsigned n) { G(unsigned) { if (x[i] > 0.8) break; y[i] = x[i] * x[i]; } }
K continued(out y, in x, int n) { G(int) { if (x[i] > 0.8) continue; y[i] = x[i] * x[i]; } }

// a local array that a loop carries on
K states(out y, in x, int n, int m) {
    double S[4] = {0}; H;
    for (int t = 0; t < m; ++t) { for (int j = 0; j < 4; ++j) S[j] = S[j] * x[t * n + i] + j; y[t * n + i] = S[0] * S[3]; }
}
K states_rows(out y, in x, int n, int m) {
    H; double S[4]; for (int j = 0; j < 4; ++j) S[j] = 1;
    for (int t = 0; t < m; ++t) { for (int j = 0; j < 4; ++j) S[j] = S[j] * x[i * m + t] + j; y[i * m + t] = S[0] * S[3]; }
}
K states_grid(out y, in x, int n, int m) {
    G(int) {
        double S[3] = {1, 2, 3};
        for (int t = 0; t < m; ++t) { for (int j = 0; j < 3; ++j) S[j] = S[j] * x[t * n + i] + j; y[t * n + i] = S[1] * S[2]; }
    }
}
K states_pairs(out y, in x, int n, int m) {
    H; double S[2][2] = {{1, 2}, {3, 4}};
    for (int t = 0; t < m; ++t) {
        for (int j = 0; j < 2; ++j) for (int k = 0; k < 2; ++k) S[j][k] = S[j][k] * x[t * n + i] + k;
        y[t * n + i] = S[0][1] * S[1][0];
    }
}
K states_kept(out y, in x, int n, int m) {
    H; double S[4]; for (int j = 0; j < 4; ++j) S[j] = x[j * n + i];
    for (int t = 0; t < m; ++t) { for (int j = 0; j < 4; ++j) S[j] = S[j] * y[t * n + i]; y[t * n + i] = S[t % 4]; }
}

// an index that is data, but stays in the thread's own row
K guarded(out y, in x, const int* at, int n, int m) { H; int c = at[i]; if (c >= 0 && c < m) y[i] = x[i * m + c] * x[i * m + c]; }
K guarded_early(out y, in x, const int* at, int n, int m) {
    H; int c = at[i]; if (y[i] < 0.1 || c < 0 || c >= m) return; y[i] = x[i * m + c] * x[i * m + c];
}
K guarded_size(out y, in x, const int* at, size_t n, size_t m) {
    G(size_t) { size_t c = at[i]; if (c < m) y[i] = x[i * m + c] * x[c + i * m]; }
}
K clamped(out y, in x, const int* at, int n, int m) { H; int c = min(max(at[i], 0), m - 1); y[i] = x[i * m + c] * x[i * m + c]; }
K two_ends(out y, in x, const int* at, int n, int m) {
    H; int c = at[i]; double s = 0; if (c >= 0) for (int t = c; t < m; ++t) s += x[i * m + t] * x[i * m + t]; y[i] = s;
}
K floored(out y, in x, in p, int n, int m) { H; int c = (int)floor(p[i] * 6); if (c >= 0 && c < m) y[i] = x[i * m + c] * x[i * m + c]; }
K place(out y, in x, int n, int m) {
    H; int b = 0; for (int t = 1; t < m; ++t) if (x[i * m + t] > x[i * m + b]) b = t; y[i] = x[i * m + b];
}
K place_down(out y, in x, int n, int m) {
    H; int b = m - 1; for (int t = m - 2; t >= 0; --t) b = x[i * m + t] > x[i * m + b] ? t : b; y[i] = x[i * m + b] * x[i * m + b];
}
K counter(out y, in x, int n, int m) {
    H; int q = 0; for (int t = 0; t < m; ++t) { double d = x[i * m + t] - 0.5; if (d > 0 && q < 4) { y[i * 4 + q] = d * d; q++; } }
}
K counter_down(out y, in x, int n, int m) {
    H; int q = 3; for (int t = 0; t < m; ++t) { double d = x[i * m + t] - 0.5; if (d > 0 && q >= 0) { y[i * 4 + q] = d * d; --q; } }
}

// pointers and places that are advanced
#define A double c = 0
#define C(p) c = c * p[0] + p[1] * p[2]
K by_index(out y, in x, int n, int m) { H; A; for (int t = 0; t < m; ++t) { int k = 3 * (t * n + i); C((x + k)); y[t * n + i] = c; } }
K by_pointers(out y, in x, int n, int m) {
    H; A; const double* p = x + 3 * i; double* q = y + i; for (int t = 0; t < m; ++t) { C(p); *q = c; p += 3 * n; q += n; }
}
K by_commas(out y, in x, int n, int m) {
    H; A; const double* p = x + 3 * i; double* q = y + i; for (int t = 0; t < m; ++t, p += 3 * n, q += n) { C(p); *q = c; }
}
K by_commas_skipping(out y, in x, int n, int m) {
    H; A; const double* p = x + 3 * i; double* q = y + i;
    for (int t = 0; t < m; p += 3 * n, q += n, t++) { if (*p > 0.8) continue; C(p); *q = c; }
}
K by_places(out y, in x, int n, int m) {
    H; A; int at = 3 * i, to = i; for (int t = 0; t < m; ++t) { C((x + at)); y[to] = c; at += 3 * n; to += n; }
}
K by_sizes(out y, in x, size_t n, int m) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
    A; size_t at = 3 * i, to = i; for (int t = 0; t < m; ++t) { C((x + at)); y[to] = c; at += 3 * n; to += n; }
}
K counted_down(out y, in x, int n, int m) {
    H; A; const double* p = x + 3 * i; double* q = y + i; int t = m; while (t > 0) { C(p); *q = c; p += 3 * n; q += n; --t; }
}
K one_by_one(out y, in x, int n, int m) {
    H; A; const double* p = x + 3 * m * i; double* q = y + i * m;
    for (int t = 0; t < m; ++t) { double a = *p++, b = *p++; c = c * a + b * *p++; *q++ = c; }
}
K nested(out y, in x, int n, int m) {
    H; A; const double* p = x + 3 * m * i;
    for (int t = 0; t < m; ++t) { for (int k = 0; k < 3; ++k) { c = c * 0.5 + *p * *p; ++p; } y[t * n + i] = c; }
}

// sums with what their rounding lost
#define W for (int a = -3; a <= 3; ++a) if (i + a >= 0 && i + a < n)
#define S2 double s = 0, c = 0
K kahan(out y, in x, int n) { H; S2; W { double p = x[i + a] - c, q = s + p; c = (q - s) - p; s = q; } y[i] = s; }
K kahan_plus(out y, in x, int n) { H; S2; W { double p = x[i + a] * x[i + a] + c, q = s + p; c = p - (q - s); s = q; } y[i] = s + c; }
K neumaier(out y, in x, int n) {
    H; S2;
    W { double p = x[i + a], q = s + p; if (fabs(s) >= fabs(p)) c += (s - q) + p; else c += (p - q) + s; s = q; }
    y[i] = s + c;
}
K knuth(out y, in x, int n) { H; S2; W { double p = x[i + a], q = s + p, z = q - s; c += (s - (q - z)) + (p - z); s = q; } y[i] = s + c; }
K lost(out y, in x, int n) { H; double s = x[i], p = x[i] * x[i], q = s + p; double e = (q - s) - p; y[i] = e; }
K uncompensated(out y, in x, int n) { H; S2; W { double p = x[i + a] - c, q = s + p; c = (q - s) - 2 * p; s = q; } y[i] = s + c; }

// the same, where it does not stay there
K beyond(out y, in x, const int* at, int n, int m) { H; int c = at[i]; if (c >= 0 && c <= m) y[i] = x[i * m + c] * x[i * m + c]; }
K no_floor(out y, in x, const int* at, int n, int m) { H; int c = at[i]; if (c < m) y[i] = x[i * m + c] * x[i * m + c]; }
K another(out y, in x, int* at, int n, int m) {
    H; int c = at[i]; if (c >= 0 && c < m) { at[i] = c + m; y[i] = x[i * m + at[i]] * x[i * m + at[i]]; }
}
K both_ways(out y, in x, int n, int m) {
    H; int q = 2;
    for (int t = 0; t < m; ++t) { double d = x[i * m + t] - 0.5; if (q < 4) y[i * 4 + q] = d * d; if (d > 0) q++; else q -= 2; }
}
K two_places(out y, in x, int n, int m) {
    H; int q = 0;
    for (int t = 0; t < m; ++t) { double d = x[i * m + t]; if (d > 0.5 && q < 4) { y[i * 4 + q + 1] = d; y[i * 4 + q] = d; q++; } }
}

// rows that overlap, since a loop goes beyond the start of the next one; a step that hangs on data
K overlapping(out y, in x, int n, int m) {
    H; double p = 1; for (int t = 0; t < m; ++t) { p *= 1 - x[i * 4 + t]; if (p < 0.1) break; } y[i] = p;
}
K uneven(out y, in x, int n, int m) {
    H; double p = 1; int t = 0; while (t < m && p > 0.1) { P; if (p < 0.5) t += 2; else t += 1; } y[i] = p;
}
"""
ROWS = ["by_counter", "by_data", "condition", "while_loop", "downwards", "in_twos", "two_exits", "columns"]
SUMS = ["kahan", "kahan_plus", "neumaier", "knuth", "lost"]
FLAT = [
    "forever",
    "forever_inner",
    "forever_broken",
    "walking",
    "walking_three",
    "returned",
    "returned_all",
    "returned_size",
    "returned_late",
    "returned_while",
    "broken_off",
    "continued",
]
STATES = ["states", "states_rows", "states_grid", "states_pairs", "states_kept"]
PLACES = ["guarded", "guarded_early", "guarded_size", "clamped", "two_ends", "floored", "place", "place_down", "counter", "counter_down"]
MEETING = ["uncompensated", "beyond", "no_floor", "another", "overlapping", "uneven"]
POINTERS = ["by_index", "by_pointers", "by_commas", "by_commas_skipping", "by_places", "by_sizes", "counted_down", "one_by_one", "nested"]
# what the reverse of a product, of a state, or of a place that is counted, has to pop
KEPT = {
    **{name: {"p"} for name in ROWS},
    **{name: {"S"} for name in STATES},
    "counter": {"q"},
    "counter_down": {"q"},
    "by_commas_skipping": {"c"},
    "forever_inner": {"p"},
}


def launch(name: str) -> tuple[api.Kernel, int, int, tuple[Any, ...]]:
    """A kernel, its geometry and its arguments."""
    rng, text = np.random.default_rng(0), SOURCE.split(f"K {name}(")[1].split("\nK ")[0]
    out, row = (
        ((M, N) if name in STATES else 4 * N + 4 if "i * 4 + q" in text else N),
        N if name in [*FLAT, *SUMS, "uncompensated"] else (N + 2, M),
    )
    out, row = (M * N, 3 * M * N) if name in POINTERS else (out, row)
    given = {
        "y": Duplicated(rng.uniform(0.2, 0.9, out), np.ones(out)),
        "x": Duplicated(rng.uniform(0.05, 0.9, (M, N) if name in STATES else row)),
        "at": rng.integers(0, M, N).astype(np.int32),
        "p": rng.uniform(0.05, 0.9, N),
        "n": N,
        "m": M,
        "stop": 0,
    }
    names = [part.split()[-1].lstrip("*") for part in text.split(")")[0].split(",")]
    grid = 2 if "G(" in text or "while (i < n)" in text or "gridDim" in text else 5
    return api.kernel(SOURCE, name), grid, 16, tuple(given[each] for each in names)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", ROWS + FLAT + SUMS + STATES + PLACES + POINTERS)
def test_no_atomics(name: str) -> None:
    kernel, grid, block, args = launch(name)
    assert atomics(reverse(kernel, grid, block, args)) == 0
    call = kernel.bind(grid, block, args, 0, None)
    body = kernel.reverse_for(api.pattern_of(kernel, call), call).unlaid
    assert {v.name for s in walk_stmts(body) if isinstance(s, Pop) for v in s.vars} <= KEPT.get(name, set())
    check(name)


@pytest.mark.parametrize("name", [*MEETING, "both_ways", "two_places"])
def test_atomics_where_threads_may_meet(name: str) -> None:
    assert atomics(reverse(*launch(name))) >= 1
    if name in MEETING:
        check(name)


def check(name: str) -> None:
    kernel, grid, block, args = launch(name)
    for executor in EXECUTORS.values():
        with pipeline.executor_for_tests(executor):
            check_gradient(kernel, args, grid=grid, block=block, race_check=False)

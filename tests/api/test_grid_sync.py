"""Kernels with `grid.sync()`: against differences and forward mode, and against the same text with `__syncthreads()` in a grid of one
block; on tapes; what is refused, and where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS
from nightly import share

import gpuad
from gpuad import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed, api, pipeline
from gpuad.errors import LaunchError, ShadowError, TapeError, UnsupportedError
from gpuad.testing import check_gradient

N = 24
HEADER = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
struct Pair { double left, right; };
__constant__ double weights[4];
__device__ double beside(const double* x, int i, int n) { return (i > 0 ? x[i - 1] : 0.0) + (i < n - 1 ? x[i + 1] : 0.0); }
__device__ void all(cg::grid_group& grid) { grid.sync(); }
"""
PARAMETERS = "const double* c, double* a, double* b, int n, int steps, double r"
INDEX = "auto grid = cg::this_grid(); int i = blockIdx.x * blockDim.x + threadIdx.x;"

BODIES = {
    "two sides": "b[i] += a[i] * a[i]; grid.sync(); a[i] = b[n - 1 - i] * c[i];",
    "a number of a thread": "double p = a[i] * r; b[i] *= p; grid.sync(); a[n - 1 - i] = b[i] * p + a[n - 1 - i];",
    "numbers that are made again": "double p = c[i] * r; int j = n - 1 - i; double q = j > 3 ? c[j] * p : r; b[i] *= q; grid.sync(); "
    "a[j] += b[j] * q;",
    "a whole number and a truth value": "int j = i * 7 % 3 + (int)(a[i] * 3); bool up = a[i] > 0.8; b[i] *= j + 1; grid.sync(); a[i] *= "
    "b[n - 1 - i] * (up ? j + 0.5 : r);",
    "a loop": "for (int s = 0; s < steps; s++) { b[i] = r * beside(a, i, n) + a[i] * c[i]; grid.sync(); a[i] = b[i] * (1 + 0.1 * s); "
    "grid.sync(); }",
    "pointers that change places": "double *u = a, *v = b; for (int s = 0; s < steps; s++) { v[i] = u[i] * beside(u, i, n); grid.sync(); "
    "double* t = u; u = v; v = t; } u[i] *= c[i];",
    "what a loop carries": "double sum = r; int k = 1; for (int s = 0; s < steps; s++) { a[i] *= sum; all(grid); sum += a[n - 1 - i] * k; "
    "k = 3 * k - s; } b[i] *= sum * k;",
    "a carried value that is used before and after": "double p = c[i], q = a[i]; for (int s = 1; s <= steps; s++) { b[i] = b[i] + p * "
    "q; cg::sync(grid); "
    "double t = p; p = q * b[n - 1 - i]; q = t; grid.sync(); } a[i] = p * q;",
    "a loop that doubles": "for (int d = 1; d < n; d *= 2) { double v = i >= d ? a[i - d] : 0.0; grid.sync(); a[i] += v * c[i]; "
    "grid.sync(); }",
    "a loop that counts down": "int k = steps; while (k-- > 0) { b[i] = beside(a, i, n) * r; grid.sync(); a[i] += b[i] * k; grid.sync(); }",
    "a loop in a loop": "for (int s = 0; s < 2; s++) { double sum = a[i]; for (int j = 0; j <= s; j++) { b[i] += sum * r; grid.sync(); "
    "sum = sum * b[n - 1 - i] + j; grid.sync(); } a[i] = sum; }",
    "no iteration": "double sum = a[i]; for (int s = steps; s < 1; s++) { b[i] *= sum; grid.sync(); sum *= 2; } a[i] = sum * b[i];",
    "a condition": "double p = a[i]; int k = 2; if (steps > 2) { b[i] *= p; grid.sync(); p *= b[n - 1 - i]; k = 3; } else p += r; a[i] "
    "= p * k;",
    "the other side": "double p = a[i]; if (steps > 5) p *= 2; else { b[i] = p * c[i]; grid.sync(); p = b[n - 1 - i]; grid.sync(); } "
    "a[i] *= p;",
    "an early return": "if (i >= n - 5) return; double p = a[i]; for (int s = 0; s < steps; s++) { b[i] += p * a[i]; grid.sync(); "
    "if (i > 0) p = p * b[i - 1]; grid.sync(); } a[i] += p;",
    "barriers of blocks": "__shared__ double s[24]; double p = 0; for (int k = 0; k < steps; k++) { int t = threadIdx.x; s[t] = a[i] * "
    "c[i]; __syncthreads(); "
    "p += s[blockDim.x - 1 - t] * s[t]; __syncthreads(); b[i] = p; grid.sync(); a[i] = b[n - 1 - i] * r; grid.sync(); }",
    "shared memory of the threads that are there": "__shared__ double s[24]; if (i >= n - 3) return; for (int k = 0; k < 2; k++) { "
    "s[threadIdx.x] = a[i] * c[i]; "
    "__syncthreads(); b[i] *= s[threadIdx.x] * s[0]; grid.sync(); a[i] += b[n - 4 - i]; grid.sync(); }",
    "sums of blocks": "__shared__ double s[32]; int t = threadIdx.x; for (int k = 0; k < 2; k++) { s[t] = a[i] * a[i]; __syncthreads(); "
    "for (int h = 16; h > 0; h >>= 1) { if (t < h && t + h < blockDim.x) s[t] += s[t + h]; __syncthreads(); } "
    "if (t == 0) b[blockIdx.x] = s[0]; grid.sync(); double all = 0; for (int j = 0; j < gridDim.x; j++) all += b[j]; "
    "a[i] *= r / all; grid.sync(); }",
    "additions": "atomicAdd(&b[0], a[i] * a[i]); grid.sync(); a[i] *= b[0] * r; grid.sync(); atomicAdd(&b[i / 2], a[i]);",
    "memory of the module": "b[i] *= weights[i % 4]; grid.sync(); a[i] += b[n - 1 - i] * weights[1];",
    "a struct": "Pair p = {a[i], b[i]}; a[i] = p.left * p.right; grid.sync(); p.left *= a[n - 1 - i]; grid.sync(); b[i] = p.left + "
    "p.right * r;",
    "until memory says so": "double s = 0; while (b[0] > 0.1) { a[i] *= 1.1; s += b[0]; grid.sync(); b[i] *= 0.5 * c[i]; grid.sync(); } "
    "a[i] *= s;",
    "until a sum is small": "double s = 9; int k = 0; while (s > 5 && k < 20) { if (i == 0) { double t = 0; for (int j = 0; j < n; j++) "
    "t += a[j] * a[j]; "
    "b[0] = t; } grid.sync(); s = b[0]; grid.sync(); a[i] *= 0.8 + 0.001 * s; k++; } if (i > 0) b[i] *= s * k; grid.sync(); a[i] += b[n "
    "- 1 - i];",
    "a break": "for (int k = 0; k < 6; k++) { b[i] *= c[i] * 0.9; grid.sync(); if (b[1] < 0.5) break; a[i] += b[n - 1 - i] * k; "
    "grid.sync(); }",
    "a float that is counted": "for (double x = 0.05; x < 0.7; x += 0.1) { b[i] += a[n - 1 - i] * x; grid.sync(); a[i] *= b[i]; "
    "grid.sync(); }",
    "data": "double p = a[i]; grid.sync(); if (a[0] > 0.1) { b[i] *= p; grid.sync(); p = b[n - 1 - i]; } else p = 0; b[i] = p * c[i];",
    "as many as data say": "int m = (int)(c[0] * 4); for (int k = m - 1; k < 2 * m; k += 1 + (c[1] > 5)) { a[i] *= r * k; grid.sync(); "
    "b[i] += a[n - 1 - i]; "
    "grid.sync(); }",
    "a row of the grid": "for (int j = grid.thread_rank(); j < n; j += grid.num_threads()) b[j] += a[j] * c[j]; grid.sync(); "
    "for (int j = grid.thread_rank(); j < n; j += grid.num_threads()) a[j] *= b[n - 1 - j];",
}


def text(body: str, barrier: str = "grid.sync()") -> str:
    made = f'{HEADER}extern "C" __global__ void k({PARAMETERS}) {{ {INDEX} {body} }}'
    return made.replace("grid.sync()", barrier).replace("cg::sync(grid)", barrier)


def state(seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    return *(rng.uniform(0.5, 1.2, N) for _ in "cab"), np.int32(N), np.int32(3), 0.7


def gradients(kernel: Any, grid: int, block: int, seed: int = 0) -> list[Any]:
    """What a call leaves in its arrays, and the gradient of random numbers."""
    *arrays, n, steps, r = state(seed)
    rng = np.random.default_rng(seed + 1)
    shadows, dr = [rng.normal(size=N) for _ in arrays], np.zeros(())
    shadows[0][:] = 0
    if "* weights" in kernel.source:
        kernel.get_global("weights")[:] = [1.5, 2, 0.5, 3]
    gpuad.autodiff(kernel, grid, block, (*map(Duplicated, arrays, shadows), n, steps, Active(r, dr)))
    return [*arrays, *shadows, dr]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", share(list(BODIES), 3))
def test_against_differences(name: str) -> None:
    body = BODIES[name]
    kernel = gpuad.kernel(text(body), "k")
    if "weights" in body:
        kernel.get_global("weights")[:] = [1.5, 2, 0.5, 3]
    check_gradient(kernel, state(), grid=(3,), block=(8,), directions=1)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", share(list(BODIES), 2))
def test_against_barriers_of_one_block(name: str) -> None:
    """In a grid of one block its barriers are barriers of the grid, which gpuad differentiates in one launch."""
    body = BODIES[name]
    own, other = (gpuad.kernel(text(body, barrier), "k") for barrier in ("grid.sync()", "__syncthreads()"))
    if "atomicAdd" in body:
        with pytest.raises(UnsupportedError, match="to which threads add atomically in one launch"):
            gradients(other, 1, N)
        return
    for found, expected in zip(gradients(own, 1, N), gradients(other, 1, N), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


RECORDED = ["a loop", "what a loop carries", "pointers that change places", "sums of blocks", "additions", "until a sum is small"]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str) -> None:
    """On a tape, in another order of the blocks' work, a second time, and within a budget."""
    kernel = gpuad.kernel(text(BODIES[name]), "k")
    expected = gradients(kernel, 3, 8)
    *arrays, n, steps, r = state()
    rng = np.random.default_rng(1)
    seeds = [rng.normal(size=N) for _ in arrays]
    seeds[0][:] = 0
    first, pairs, tape = [x.copy() for x in arrays], [Duplicated(x, np.zeros(N)) for x in arrays], gpuad.Tape()
    for executor in (*EXECUTORS, "host"):
        for pair, start, seed in zip(pairs, first, seeds, strict=True):
            pair.primal[:], pair.shadow[:] = start, seed
        dr = np.zeros(())
        with pipeline.executor_for_tests(EXECUTORS[executor]):
            with tape:
                kernel[3, 8](*pairs, n, steps, Active(r, dr))
            tape.reverse()
        found = [*(pair.primal for pair in pairs), *(pair.shadow for pair in pairs), dr]
        for own, other in zip(found[3:], expected[3:], strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-11, atol=1e-12)


def second(kernel: Any, grid: int, block: int, start: tuple[Any, ...], seeds: Any, dots: Any, dot: float) -> list[Any]:
    """What `hvp` leaves: tangents of the arrays, derivatives of their shadows and of that of the number; then primals and shadows."""
    *arrays, n, steps, r = start
    x, dx, x_dot, dx_dot = ([v.copy() for v in some] for some in (arrays, seeds, dots, np.zeros((3, N))))
    dr, dr_dot = np.zeros(()), np.zeros(())
    own, directions = [*map(Duplicated, x, dx)], [*map(Duplicated, x_dot, dx_dot)]
    gpuad.hvp(kernel, grid, block, (*own, n, steps, Active(r, dr)), (*directions, None, None, Active(dot, dr_dot)))
    return [*x_dot, *dx_dot, dr_dot, *x, *dx, dr]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", share(list(BODIES), 4))
def test_second_derivatives(name: str) -> None:
    """Against differences of primals and gradients, extrapolated; and what `autodiff` leaves besides."""
    kernel = gpuad.kernel(text(BODIES[name]), "k")
    if "weights" in BODIES[name]:
        kernel.get_global("weights")[:] = [1.5, 2, 0.5, 3]
    *arrays, n, steps, r = state()
    (seeds, dots), dot, h = np.random.default_rng(5).normal(size=(2, 3, N)), 0.3, 1e-5

    def moved(by: float) -> list[Any]:
        own = [x + by * d for x, d in zip(arrays, dots, strict=True)]
        shadows, dr = [s.copy() for s in seeds], np.zeros(())
        gpuad.autodiff(kernel, 3, 8, (*map(Duplicated, own, shadows), n, steps, Active(r + by * dot, dr)))
        return [*own, *shadows, dr]

    found = second(kernel, 3, 8, (*arrays, n, steps, r), seeds, dots, dot)
    wide, narrow = ([(a - b) / (2 * s) for a, b in zip(moved(s), moved(-s), strict=True)] for s in (h, h / 2))
    for own, at_h, at_half in zip(found[:7], wide, narrow, strict=True):
        np.testing.assert_allclose(own, (4 * at_half - at_h) / 3, rtol=1e-7, atol=1e-7)
    for own, other in zip(found[7:], moved(0), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-13)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", ["a loop", "what a loop carries", "barriers of blocks"])
def test_second_derivatives_against_barriers_of_one_block(name: str) -> None:
    start, rng = state(), np.random.default_rng(6)
    given = rng.normal(size=(2, 3, N))
    own, other = (
        second(gpuad.kernel(text(BODIES[name], barrier), "k"), 1, N, start, *given, 0.4) for barrier in ("grid.sync()", "__syncthreads()")
    )
    for found, expected in zip(own, other, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_data_that_decide() -> None:
    """Another path is recorded when data say so; a graph and a stored program, which would repeat the first one, are refused."""
    kernel, tape = gpuad.kernel(text(BODIES["until memory says so"]), "k"), gpuad.Tape()
    arrays = [Duplicated(x, np.zeros(N)) for x in state()[:3]]
    for first, seed in ((0.9, 1.0), (0.2, 2.0), (0.9, 1.0)):
        c, a, b = (x.copy() for x in state()[:3])
        b[0], c[0] = first, 1.0
        expected = [np.zeros(N), np.full(N, seed), np.zeros(N)]
        for pair, start in zip(arrays, (c, a, b), strict=True):
            pair.primal[:], pair.shadow[:] = start, 0
        gpuad.autodiff(kernel, 3, 8, (*map(Duplicated, (c, a, b), expected), np.int32(N), np.int32(3), 0.7))
        with tape:
            kernel[3, 8](*arrays, np.int32(N), np.int32(3), 0.7)
        with pytest.raises(TapeError, match=r"data decide which launches `k` is, between its grid.sync.*: a graph would"):
            tape.graph({arrays[1]: 1.0})
        with pytest.raises(TapeError, match="a stored program would always make the same"):
            tape.save("nowhere")
        tape.reverse({arrays[1]: np.full(N, seed)})
        for pair, own in zip(arrays, expected, strict=True):
            np.testing.assert_allclose(pair.shadow, own, rtol=1e-12)


SOLVER = """#include <cooperative_groups.h>
__device__ double times(const double* k, const double* p, int i, int n) {
  return (2 + k[i]) * p[i] - (i > 0 ? p[i - 1] : 0.0) - (i < n - 1 ? p[i + 1] : 0.0);
}
__device__ double dot(const double* a, const double* b, int n) {
  double s = 0;
  for (int j = 0; j < n; j++) s += a[j] * b[j];
  return s;
}
extern "C" __global__ void solve(const double* k, const double* b, double* x, double* r, double* p, double* q, int n) {
  auto grid = cooperative_groups::this_grid();
  int i = grid.thread_rank();
  r[i] = b[i] - times(k, x, i, n);
  p[i] = r[i];
  grid.sync();
  double now = dot(r, r, n);
  for (int step = 0; now > 1e-22 && step < 200; step++) {
    q[i] = times(k, p, i, n);
    grid.sync();
    double a = now / dot(p, q, n);
    x[i] += a * p[i];
    r[i] -= a * q[i];
    grid.sync();
    double last = now;
    now = dot(r, r, n);
    p[i] = r[i] + now / last * p[i];
    grid.sync();
  }
}"""


def test_conjugate_gradients() -> None:
    """A solver in one kernel, until its residual is small: its gradient is that of the solution of the system."""
    rng, n = np.random.default_rng(6), 16
    k, b, w = rng.uniform(0.1, 1, n), rng.normal(size=n), rng.normal(size=n)
    system = np.diag(2 + k) - np.eye(n, k=1) - np.eye(n, k=-1)
    solution, adjoint = np.linalg.solve(system, b), np.linalg.solve(system, w)
    kernel, arrays = gpuad.kernel(SOLVER, "solve"), [Duplicated(v) for v in (k, b, *(np.zeros(n) for _ in range(4)))]
    with gpuad.Tape() as tape:
        kernel[2, 8](*arrays, np.int32(n))
    assert tape.explain().operations > 40
    tape.reverse({arrays[2]: w})
    np.testing.assert_allclose(arrays[2].primal, solution, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(arrays[1].shadow, adjoint, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(arrays[0].shadow, -adjoint * solution, rtol=1e-6, atol=1e-7)


def test_only_what_is_needed_is_saved() -> None:
    """Between two launches: of a linear step nothing, of a step with a square what it overwrites."""
    for body, saved in (("a[i] * 2", 0), ("a[i] * a[i]", 3 * N * 8)):
        kernel = gpuad.kernel(text(f"for (int s = 0; s < steps; s++) {{ a[i] = {body}; grid.sync(); }}"), "k")
        arrays = [Duplicated(x, np.zeros(N)) for x in state()[:3]]
        with gpuad.Tape() as tape:
            kernel[3, 8](*arrays, np.int32(N), np.int32(3), 0.7)
        assert tape.explain().saved_bytes == saved
        arrays[1].shadow[:] = 1
        tape.reverse()


def test_geometry_types_and_widths() -> None:
    """Threads in three axes, floats, a template, dynamic shared memory, and several shadows in one call."""
    body = """template <class T> __global__ void k(T* a, T* b, int n) {
      extern __shared__ char bytes[]; T* s = (T*)bytes;
      cg::grid_group grid = cg::this_grid();
      int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      int i = grid.thread_rank();
      T p = a[i] * a[i]; bool odd = b[i] > 1; long long place = n - 1 - i;
      b[i] *= p;
      grid.sync();
      s[t] = b[place] * (odd ? p : p * p);
      __syncthreads();
      a[i] = s[t ^ 1] * p;
    }"""
    rng = np.random.default_rng(3)
    a, b = rng.uniform(0.5, 1.2, 96).astype(np.float32), rng.uniform(0.5, 1.2, 96).astype(np.float32)
    kernel = gpuad.kernel(HEADER + body, "k<float>")
    check_gradient(kernel, (a, b, np.int32(96)), grid=(2, 1, 3), block=(2, 4, 2), shared_mem=64, directions=1)
    seeds = rng.normal(size=(2, 96)).astype(np.float32)
    found = []
    for da in (tuple(s.copy() for s in seeds), *((s.copy(),) for s in seeds)):
        db = tuple(np.zeros(96, np.float32) for _ in da)
        gpuad.autodiff(
            kernel, (2, 1, 3), (2, 4, 2), (BatchDuplicated(a.copy(), da), BatchDuplicated(b.copy(), db), np.int32(96)), shared_mem=64
        )
        found.append((*da, *db))
    np.testing.assert_array_equal(found[0], [x for pair in zip(*found[1:], strict=True) for x in pair])


def test_what_is_printed_is_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    kernel = gpuad.kernel(text('if (i == 3) printf("%d ", 1); b[i] *= a[i]; grid.sync(); if (i == 5) printf("%d ", 2); a[i] *= b[i];'), "k")
    gradients(kernel, 3, 8)
    assert capfd.readouterr().out == "1 2 "


def test_an_array_that_is_left_out() -> None:
    body = "double p = c ? c[i] : r; b[i] *= p * a[i]; grid.sync(); a[i] = b[n - 1 - i] * (c ? c[i] : 2.0);"
    kernel = gpuad.kernel(text(body), "k")
    c, a, b, n, steps, r = state()
    da, db = np.ones(N), np.zeros(N)
    gpuad.autodiff(kernel, 3, 8, (None, Duplicated(a.copy(), da), Duplicated(b.copy(), db), n, steps, r))
    np.testing.assert_allclose(da, (b * r * 2.0), rtol=1e-13)
    check_gradient(kernel, (c, a, b, n, steps, r), grid=(3,), block=(8,), directions=1)


# --- refused ----------------------------------------------------------------------------------------------------------------------------

OUTSIDE = (
    "grid.sync() inside a {} (at <source>:{}) that is not known to be the same for all threads of the grid: each of them has to reach it; "
    "decide by parameters, gridDim and what all threads read alike from memory, or split the kernel there into two launches"
)
LOCAL = (
    "the array `u` of each thread is used on both sides of grid.sync(), where gpuad ends one launch and begins another; keep it in an "
    "array "
    "of the launch, or declare one on each side"
)
REFUSED = {
    "a thread's data": ("@if (a[i] > 1) { b[i] *= 2; ^grid.sync(); a[i] *= b[i]; }", "condition"),
    "a block's place": ("@if (blockIdx.x < 2) { b[i] *= 2; ^grid.sync(); a[i] *= b[i]; }", "condition"),
    "a thread's place": ("@if (threadIdx.x < 2) { b[i] *= 2; ^grid.sync(); a[i] *= b[i]; }", "condition"),
    "a row of its own": ("@for (int k = 0; k < i; k++) { b[i] *= 2; ^grid.sync(); }", "loop"),
    "until a thread says so": ("@while (a[i] > r) { a[i] *= 0.5; ^grid.sync(); }", "loop"),
    "an atomic's result": ("double x = atomicAdd(&b[0], 1.0); @if (x > 3) { ^grid.sync(); a[i] *= b[i]; }", "condition"),
    "a block's memory": (
        "__shared__ double s; s = a[blockIdx.x]; __syncthreads(); @if (s > 1) { ^grid.sync(); a[i] *= b[i]; }",
        "condition",
    ),
}


@pytest.mark.parametrize(("body", "what"), REFUSED.values(), ids=REFUSED)
def test_how_many_launches_is_not_known(body: str, what: str) -> None:
    made = text(body.replace("@", "").replace("^", ""))
    line, first = len(made.splitlines()), made.splitlines()[-1].index(body.replace("@", "").replace("^", "")) + 1
    start, place = first + body.index("@"), first + body.replace("@", "").index("^")
    with pytest.raises(UnsupportedError) as error:
        gpuad.kernel(made, "k")
    assert error.value.message == OUTSIDE.format(what, f"{line}:{start}")
    assert error.value.span is not None
    assert (error.value.span.line, error.value.span.column) == (line, place)


def test_arrays_of_threads() -> None:
    with pytest.raises(UnsupportedError) as error:
        gpuad.kernel(text("double u[2] = {a[i], r}; b[i] *= u[steps & 1]; grid.sync(); a[i] *= u[i & 1];"), "k")
    assert error.value.message == LOCAL


@pytest.mark.parametrize(
    "body",
    [
        "__shared__ double s[8]; s[threadIdx.x] = a[i]; __syncthreads(); grid.sync(); b[i] *= s[threadIdx.x];",
        "__shared__ double s[8]; for (int k = 0; k < 2; k++) { if (k == 0) s[threadIdx.x] = a[i]; __syncthreads(); b[i] *= "
        "s[threadIdx.x]; grid.sync(); }",
        "__shared__ double s[8]; for (int k = 0; k < 2; k++) { if (i < n - 3) s[threadIdx.x] = a[i]; __syncthreads(); b[i] *= "
        "s[threadIdx.x]; grid.sync(); }",
    ],
)
def test_shared_memory_that_lasts(body: str) -> None:
    kernel = gpuad.kernel(text(body), "k")
    with pytest.raises(UnsupportedError, match=r"shared memory `s` is read after grid.sync\(\)") as error:
        kernel[3, 8](*state())
    assert error.value.span is not None


def test_calls_that_are_refused() -> None:
    kernel = gpuad.kernel(text(BODIES["two sides"]), "k")
    c, a, b, *rest = state()
    with pytest.raises(ShadowError, match="DuplicatedNoNeed"):
        gpuad.autodiff(kernel, 3, 8, (c, Duplicated(a), DuplicatedNoNeed(b, np.ones(N)), *rest))
    with pytest.raises(ShadowError, match="keep=True"):
        gpuad.autodiff(kernel, 3, 8, (c, Duplicated(a, np.ones(N), keep=True), Duplicated(b), *rest))
    with pytest.raises(ShadowError, match="gets values that depend on `a`, but it has no shadow"):
        gpuad.autodiff(kernel, 3, 8, (c, Duplicated(a, np.ones(N)), b, *rest))
    with pytest.raises(ShadowError, match="and they come out of it again"):  # from one part to another
        gpuad.autodiff(kernel, 3, 8, (c, Duplicated(a, np.ones(N)), Const(b), *rest))
    with pytest.raises(ShadowError, match="and they come out of it again"), gpuad.Tape():
        kernel[3, 8](c, Duplicated(a, np.ones(N)), Const(b), *rest)
    with pytest.raises(LaunchError, match="`a` overlaps `c`; in a kernel with grid"):
        kernel[3, 8](a, a, b, *rest)
    with pytest.raises(LaunchError, match="`k` takes 6 arguments"):
        kernel[3, 8](c, a, b)
    np.testing.assert_array_equal(a, state()[1])
    with pytest.raises(UnsupportedError, match=r"has grid.sync\(\) and runs as several launches"):
        gpuad.autodiff_thunk(kernel, a=Duplicated)[0](3, 8, (c, a, b, *rest))
    pairs = [c, Duplicated(a, np.ones(N)), Duplicated(b), *rest]
    with pytest.raises(LaunchError, match="hvp takes a tuple of directions, one for each of the 6 arguments"):
        gpuad.hvp(kernel, 3, 8, pairs, [None] * 5)
    with pytest.raises(ShadowError, match="argument `a` needs a direction"):
        gpuad.hvp(kernel, 3, 8, pairs, [None] * 6)
    with pytest.raises(ShadowError, match="gets values that depend on `a`, but it has no shadow"):
        gpuad.hvp(kernel, 3, 8, (c, Duplicated(a, np.ones(N)), b, *rest), [None, Duplicated(np.ones(N)), *[None] * 4])
    np.testing.assert_array_equal(a, state()[1])


def test_an_endless_call() -> None:
    kernel = gpuad.kernel(text("for (int k = 1; k < n; k += steps) { b[i] *= 2; grid.sync(); }"), "k")
    for step in (0, -1):
        with pytest.raises(LaunchError, match=f"a loop .* that counts up by {step} would not end"):
            kernel[3, 8](*state()[:3], np.int32(N), np.int32(step), 0.7)


def test_one_kernel_for_each_pointer_but_not_for_each_iteration() -> None:
    body = (
        "double *u = a, *v = b; for (int s = 0; s < n; s++) { v[i] = u[i] + (s == 3 ? r : 0.0); grid.sync(); double* t = u; u = v; v = t; }"
    )
    kernel = api.kernel(text(body), "k")
    assert len({plan.kernel for plan in kernel.launches(3, 8, state())}) == 2
    check_gradient(kernel, state(), grid=(3,), block=(8,), directions=1)


def test_stopped() -> None:
    """Nothing goes through an array between two parts that is stopped."""
    kernel = gpuad.kernel(text("b[i] = a[i] * a[i]; grid.sync(); a[i] *= b[n - 1 - i];"), "k")
    c, a, b, *rest = state()
    da = np.ones(N)
    gpuad.autodiff(kernel, 3, 8, (c, Duplicated(a.copy(), da), gpuad.stop_gradient(b), *rest))
    np.testing.assert_allclose(da, a[::-1] ** 2, rtol=1e-14)


def test_parts_are_kernels() -> None:
    kernel = api.kernel(text(BODIES["a number of a thread"]), "k")
    first, last = kernel.launches(3, 8, state())
    assert [each.kernel.name for each in (first, last)] == ["k_part0", "k_part1"]
    assert "p_kept" in first.kernel.adjoint(a=Duplicated, b=Duplicated, p_kept=Duplicated).source
    assert [d.name for d in kernel.parameters] == ["c", "a", "b", "n", "steps", "r"]

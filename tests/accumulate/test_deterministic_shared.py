"""Additions to shadows of shared memory: plain where no two threads of a block meet between two barriers, summed over the block where all
of them meet. Then a deterministic reverse pass is possible.

Whatever is proved is compared with what the reference executor finds, which goes through all threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gather_tools import pairs
from launch_tools import compiled, running
from nightly import cases, share
from random_shared import RandomShared
from shared_cases import SHARED, WARPS

import gpuad
from gpuad import Active, Duplicated, UnsupportedError, api, pipeline
from gpuad.affine.certificate import Run, meeting
from gpuad.affine.effects import Shape
from gpuad.errors import LaunchError
from gpuad.ir.nodes import Accumulate, How, Take
from gpuad.ir.rewrite import walk_stmts
from gpuad.ir.types import Space
from gpuad.pipeline import proof_checks, schedule
from gpuad.pipeline.pattern import Variant
from gpuad.runtime.host import Host
from gpuad.runtime.reference import RaceError


class Unordered(Host):
    """As a GPU, on which the threads of a block come in any order."""

    orders_blocks = False


def prepared(text: str, grid: Any, block: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The adjoint and the call of a launch."""
    kernel = compiled(text, "k")
    call = kernel.bind(grid, block, args, 0, None)
    return kernel.reverse_for(api.pattern_of(kernel, call), call), call


def judged(text: str, grid: Any, block: Any, args: tuple[Any, ...]) -> list[tuple[bool, bool]]:
    """Of each undecided shadow in shared memory whether it is proved that threads may add to it plainly, and whether they may."""
    adjoint, call = prepared(text, grid, block, args)
    plain = pipeline.plain_shadows(adjoint, call)
    assert runs_plainly(adjoint, call), "the kernel itself has a data race"
    return [(b in plain, runs_plainly(adjoint, call, b)) for b in adjoint.undecided if b.space is Space.SHARED]


def runs_plainly(adjoint: Any, call: Any, *shadows: Any) -> bool:
    kernel = adjoint.variant(Variant(frozenset(shadows)))
    try:
        stages = (schedule.Stage(kernel, adjoint.parameters),)
        proof_checks._left_by(adjoint, call, lambda again, state: schedule.run_stages(adjoint, stages, again, state))
    except RaceError:
        return False
    return True


# --- which kernels are taken -----------------------------------------------------------------------------------------------------------

PLAIN = ["rev", "early", "treesum", "treemax", "softmax", "helper", "nested", "indices", "layernorm", "dowhile", "ordered_reads"]
CASES = {name: SHARED[name] for name in PLAIN} | {"block_reduce": WARPS["block_reduce"]}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_atomic_in_shared_memory(name: str) -> None:
    case = CASES[name]
    adjoint, call = prepared(case.text, case.grid, case.block, case.make(np.random.default_rng(0)))
    stmts = [s for stage in pipeline.stages(adjoint, call) for s in walk_stmts(stage.kernel.body)]
    found = [s.how for s in stmts if isinstance(s, Accumulate | Take) and s.buffer.space is Space.SHARED]
    assert found and How.ATOMIC not in found


SUMMED = "softmax", "layernorm"


@pytest.mark.parametrize("name", SUMMED)
def test_a_row_that_a_block_shares_out_is_touched_by_one_thread_each(name: str) -> None:
    case = CASES[name]
    adjoint, call = prepared(case.text, case.grid, case.block, case.make(np.random.default_rng(0)))
    assert "dx" in {b.name for b in pipeline.plain_shadows(adjoint, call)}


# --- the same bits ---------------------------------------------------------------------------------------------------------------------

WORKERS = (Host(1), Host(2), Host(4), Host())
ROWS, WIDTH = 40, 70
NORM = SHARED["layernorm"].text
MEAN = """extern "C" __global__ void k(const float* x, const float* w, float* y, float a, int n) {
  __shared__ float s[32]; __shared__ float mean;
  int t = threadIdx.x;
  const float* row = x + blockIdx.x*n;
  float v = 0;
  for (int j = t; j < n; j += blockDim.x) v += a*row[j]*w[j];
  s[t] = v;
  __syncthreads();
  for (int d = 16; d > 0; d >>= 1) { if (t < d) s[t] += s[t+d]; __syncthreads(); }
  if (t == 0) mean = s[0]/n;
  __syncthreads();
  float sum = s[0], middle = mean;
  for (int j = t; j < n; j += blockDim.x) y[blockIdx.x*n + j] = sinf(row[j] - middle)*sum;
}
"""
TURNED = """extern "C" __global__ void k(const float* x, float* y, float a, int n) {
  __shared__ float s[16][17];
  int t = threadIdx.x, u = threadIdx.y;
  s[u][t] = a*x[(blockIdx.y*16 + u)*n + blockIdx.x*16 + t];
  __syncthreads();
  y[(blockIdx.x*16 + u)*n + blockIdx.y*16 + t] = sinf(s[t][u]);
}
"""


def scattered(*shape: int) -> Duplicated:
    """Seeds of many magnitudes, so that the order of additions shows."""
    r = np.random.default_rng(1)
    seed = r.normal(size=shape) * 10.0 ** r.integers(-5, 5, shape)
    return Duplicated(r.normal(size=shape).astype(np.float32), seed.astype(np.float32))


def clear(*shape: int) -> Duplicated:
    return Duplicated(np.random.default_rng(2).normal(size=shape).astype(np.float32), np.zeros(shape, np.float32))


def number() -> Active:
    return Active(np.float32(0.7), np.zeros((), np.float64))


LARGE: dict[str, tuple[str, Any, Any, Callable[[], tuple[Any, ...]]]] = {
    "rows and what all read": (
        MEAN,
        ROWS,
        32,
        lambda: (clear(ROWS, WIDTH), clear(WIDTH), scattered(ROWS, WIDTH), number(), np.int32(WIDTH)),
    ),
    "softmax": (SHARED["softmax"].text.replace("double", "float"), ROWS, 32, lambda: (scattered(ROWS, WIDTH), np.int32(WIDTH))),
    "tiles": (TURNED, (3, 3), (16, 16), lambda: (clear(48, 48), scattered(48, 48), number(), np.int32(48))),
    "norm": (NORM.replace("double", "float"), ROWS, 16, lambda: (scattered(ROWS, WIDTH), clear(WIDTH), np.int32(WIDTH))),
}


def gradients(text: str, grid: Any, block: Any, make: Callable[[], tuple[Any, ...]]) -> list[Any]:
    args = make()
    gpuad.autodiff(compiled(text, "k"), grid, block, args)
    return [np.array(a.shadow) for a in args if isinstance(a, Duplicated | Active)]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", LARGE)
def test_a_hundred_runs_on_any_number_of_workers(name: str) -> None:
    found = set()
    with gpuad.deterministic():
        for host in (*WORKERS, Unordered(4)):
            with pipeline.executor_for_tests(host):
                found |= {b"".join(g.tobytes() for g in gradients(*LARGE[name])) for _ in range(cases(20, 100))}
    assert len(found) == 1


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", LARGE)
def test_gradients_are_those_of_atomic_additions(name: str) -> None:
    with running("reference", plain=False):
        expected = gradients(*LARGE[name])
    for executor in ("reference", "host"):
        with running(executor), gpuad.deterministic():
            for found, right in zip(gradients(*LARGE[name]), expected, strict=True):
                np.testing.assert_allclose(found, right, rtol=2e-5, atol=2e-6 * float(np.abs(right).max()))


STENCIL = SHARED["stencil"]


@pytest.mark.parametrize("name", ["stencil", "same_value"])
def test_what_threads_do_in_any_order_is_refused(name: str) -> None:
    """Elements that several threads read between two barriers, of which not all do; what several may have stored."""
    case, message = SHARED[name], {"stencil": "in the order in which they come", "same_value": "comes first takes its adjoint"}[name]
    args = case.make(np.random.default_rng(0))
    with gpuad.deterministic(), pipeline.executor_for_tests(Unordered()), pytest.raises(UnsupportedError, match=message) as found:
        gpuad.autodiff(compiled(case.text, "k"), case.grid, case.block, args)
    assert found.value.line


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", share(list(SHARED), 2))
def test_the_threads_of_a_block_come_in_one_order_on_a_cpu(name: str) -> None:
    """What is refused elsewhere is taken here, but for what threads exchange in global memory."""
    case, found = SHARED[name], set()
    refused = "is (read|cleared) after other threads may have added"
    for host in WORKERS:
        args = case.make(np.random.default_rng(0))
        for a in args:
            if isinstance(a, Duplicated):
                a.shadow[...] = scattered(*a.shadow.shape).shadow
        with gpuad.deterministic(), pipeline.executor_for_tests(host):
            try:
                gpuad.autodiff(compiled(case.text, "k"), case.grid, case.block, args)
            except UnsupportedError as error:
                assert name in REFUSED_EVERYWHERE and re.search(refused, str(error))
                return
        found.add(b"".join(a.shadow.tobytes() for a in args if isinstance(a, Duplicated)))
    assert len(found) == 1 and name not in REFUSED_EVERYWHERE


REFUSED_EVERYWHERE = ("global_exchange",)


# --- proofs against all threads ----------------------------------------------------------------------------------------------------------

HEAD = """extern "C" __global__ void k(const double* x, double* y, const int* at, int n, int p, int q) {{
  __shared__ double s[256]; __shared__ double z[256];
  int t = threadIdx.x + blockDim.x*threadIdx.y, b = blockDim.x*blockDim.y, i = blockIdx.x*b + t;
  double v = x[i], w = 0;
  s[t] = v; z[t] = 0.5*v;
  __syncthreads();
  {}
  y[i] = v + w;
}}
"""
EXACT = {  # what hangs on numbers alone is judged as it is
    "shifted": "w += s[(t + p) % b]; __syncthreads(); w += z[(t*q) % b];",
    "two in one interval": "w += s[(t + p) % b] * s[(t + q) % b];",
    "a stride that all have": "for (int d = b/2; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]*z[t]; __syncthreads(); } w = s[t];",
    "a stride that is divided": "for (int d = b/2; d; d /= 2) { if (t < d) s[t] += s[t + d]*z[t]; __syncthreads(); } w = s[t];",
    "a stride of another kind": "for (int d = 1; d < b; d = 2*d + 1) { if (t + d < b) w += s[t + d]*z[t]; __syncthreads(); s[t] = w; "
    "__syncthreads(); } w += s[b-1-t];",
    "two that take turns": "for (int d = 1, now = 0, next = b/2; d < b/2; d *= 2) { if (t < b/2) s[next + t] = s[now + t]*z[t]; "
    "__syncthreads(); int other = now; now = next; next = other; } w += s[t];",
    "guards": "if (t < p) w += s[t]*z[t]; if (t >= q) w += s[t]*z[b-1-t]; __syncthreads(); s[t] = w; __syncthreads(); w = s[b-1-t];",
    "a loop": "for (int m = 0; m < p; ++m) { s[t] = w*v; __syncthreads(); w += sin(s[(t + m) % b]); __syncthreads(); }",
    "around the end of a loop": "for (int m = 0; m < p; ++m) { w += s[(t+1) % b]*v; __syncthreads(); z[t] = w; __syncthreads(); "
    "w += s[t]*z[b-1-t]; }",
    "from a loop into the next": "for (int m = 0; m < p; ++m) { __syncthreads(); z[t] = w*v; __syncthreads(); w += s[t]*z[b-1-t]; } "
    "for (int m = 0; m < q; ++m) { w += s[(t + m) % b]*v; }",
    "steps of the block": "for (int k = t; k < p + b; k += b) w += s[k % b]*z[b-1-t]; __syncthreads(); s[t] = w; __syncthreads(); "
    "for (int k = t; k < b - q; k += blockDim.x + 1) w += s[k]*v;",
    "steps down": "for (int k = b - 1 - t; k >= p; k -= b) w += s[k]*z[t]; __syncthreads(); w += s[(t + q) % b];",
    "no iteration": "w += s[t]*v; for (int m = 1; m < p - 2; ++m) { __syncthreads(); z[t] = w; __syncthreads(); w += z[b-1-t]; } "
    "w += s[b-1-t];",
    "axes": "w += s[threadIdx.y + blockDim.y*threadIdx.x]*v; __syncthreads(); z[t] = w; __syncthreads(); w = z[(t*p) % b];",
}
BEYOND = {  # what data or the number of the block decide is gone through on both sides
    "data": "if (v > 0) w += s[t]*v; else w += s[b-1-t]*v; __syncthreads(); z[t] = w; __syncthreads(); w = z[(t + p) % b];",
    "strides and data": "for (int d = b/2; d; d /= 2) { if (v > 0.1*d) { if (t < d) w += s[t + d]*z[t]; } else w += s[t]; __syncthreads(); "
    "s[t] = w; __syncthreads(); } w += s[b-1-t];",
    "strides from data": "int e = v > 0 ? 2 : 3; for (int d = b/2; d; d /= e) w += s[(t + d) % b]*z[t]; __syncthreads(); s[t] = w; "
    "__syncthreads(); w += s[b-1-t];",
    "the number of the block": "if (blockIdx.x < p) { w += s[t]*v; __syncthreads(); z[t] = w; __syncthreads(); w += z[b-1-t]*s[t]; } "
    "__syncthreads(); w += s[(t + q) % b];",
    "indices from memory": "w += s[at[t] % b]*z[t];",
    "ends of loops": "for (int m = blockIdx.x; m < p; ++m) { s[t] = w*v; __syncthreads(); w += sin(s[b-1-t]); __syncthreads(); }",
    "a search": "for (int m = 0; m < 9 && w < 0.3*p; ++m) { w += s[t]*s[t] + 0.1; }",
    "bounds": "if (i < n) { w += s[(t + p) % b]*v; } if (i + 1 < n) w += z[b-1-t]*v;",
}
LOST = ("ends of loops",)  # barriers in such a loop are not counted
GEOMETRIES = cases(3, 14)


def geometry(seed: int) -> tuple[Any, Any, tuple[Any, ...]]:
    r = np.random.default_rng(seed)
    block, grid = (int(r.integers(1, 9)), int(r.integers(1, 5))), int(r.integers(1, 4))
    n = grid * block[0] * block[1]
    p, q = (int(v) for v in r.integers(0, 6, 2))
    return grid, block, (*pairs(seed, n, n), r.integers(0, 99, n).astype(np.int32), int(r.integers(0, n + 2)), p, q)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", [*EXACT, *BEYOND])
def test_proofs_on_random_geometries(name: str) -> None:
    """14 kernels of numbers alone and 8 others, each on 14 geometries: 308 launches."""
    text = HEAD.format(EXACT.get(name) or BEYOND[name])
    plain = 0
    for seed in range(GEOMETRIES):
        grid, block, args = geometry(seed)
        for proved, right in judged(text, grid, block, args):
            assert not proved or right, (seed, grid, block)
            assert proved == right or name in BEYOND, (seed, grid, block)
            plain += proved
    assert plain or name in LOST


@pytest.mark.one_of(2)
@pytest.mark.parametrize("seed", range(100, 100 + cases(3, 30)))
def test_proofs_of_random_kernels(seed: int) -> None:
    made, r = RandomShared(seed, warps=seed % 6 == 0), np.random.default_rng(seed)
    n = 2 * made.block - 1
    args = (Duplicated(r.uniform(0.3, 0.9, n + 1)), Duplicated(r.normal(size=n + 1)), np.int32(n), np.int32(2))
    try:
        found = judged(made.text, 2, made.block, args)
    except UnsupportedError:
        return  # no path from an input to an output
    assert all(right for proved, right in found if proved)


def test_a_wrong_proof_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAD_CHECK", "1")
    monkeypatch.setattr(schedule, "one_by_one", lambda adjoint, call: frozenset(adjoint.undecided))
    args = STENCIL.make(np.random.default_rng(0))
    with pytest.raises(LaunchError, match="GPUAD_CHECK: `k`: two threads meet"):
        gpuad.autodiff(gpuad.kernel(STENCIL.text, "k"), STENCIL.grid, STENCIL.block, args)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", CASES)
def test_right_proofs_are_checked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAD_CHECK", "1")
    case = CASES[name]
    gpuad.autodiff(gpuad.kernel(case.text, "k"), case.grid, case.block, case.make(np.random.default_rng(0)), allow_unused=True)


# --- loops that deal out rows ------------------------------------------------------------------------------------------------------------

DEALT = """extern "C" __global__ void k(double* y, int n, int w, int a, int c) {{
  {}
}}
"""
DEALS = {
    "x": "for (int k = threadIdx.x + a; k < n; k += blockDim.x) y[blockIdx.x*w + c*k] = 1.0*k;",
    "y": "for (int k = threadIdx.x + a; k < n; k += blockDim.x) y[blockIdx.y*w + c*k + threadIdx.y] = 1.0*k;",
    "both": "for (int k = threadIdx.y + a; k < n; k += blockDim.y) y[(blockIdx.x*blockDim.x + threadIdx.x)*w + c*k] = 1.0*k;",
    "two loops": "for (int k = threadIdx.x; k < n; k += blockDim.x) y[blockIdx.x*w + k] = 1.0*k; "
    "for (int k = threadIdx.x + a; k < n; k += blockDim.x) y[blockIdx.x*w + k + c] = 2.0*k;",
    "other steps": "for (int k = threadIdx.x; k < n; k += blockDim.x) y[blockIdx.x*w + k] = 1.0*k; "
    "for (int k = threadIdx.x; k < n; k += blockDim.x + a) y[blockIdx.x*w + k] = 2.0*k;",
    "blocks": "for (int k = blockIdx.x + a; k < n; k += gridDim.x) y[k*w + c*threadIdx.x] = 1.0*k;",
    "backwards": "for (int k = n - 1 - (int)threadIdx.x; k >= a; k -= (int)blockDim.x) y[blockIdx.x*w + c*k] = 1.0*k;",
    "the grid": "for (int k = blockIdx.x*blockDim.x + threadIdx.x; k < n; k += gridDim.x*blockDim.x) y[threadIdx.y*w + c*k + a] = 1.0*k;",
    "chunks": "for (int k = c*threadIdx.x + a; k < n; k += c*blockDim.x) for (int j = 0; j < c; ++j) y[blockIdx.x*w + k + j] = 1.0*k;",
}
INEXACT = ("backwards", "chunks")
_ORDER = cases(4, 24)


def owners_meet(name: str, grid: tuple[int, int, int], block: tuple[int, int, int], numbers: tuple[int, ...]) -> bool:
    """Whether two threads come to one element, by the reference executor: each thread leaves its number, or finds another's."""
    text = DEALT.format(DEALS[name].replace("1.0*k", "MINE").replace("2.0*k", "MINE"))
    text = text.replace("MINE", "1.0*(threadIdx.x + 8*(threadIdx.y + 8*(blockIdx.x + 8*blockIdx.y))) + 1.0")
    y = np.zeros(4096)
    try:
        with running("reference"):
            compiled(text, "k")(grid, block, (y[1024:], *numbers))
    except RaceError:
        return True
    return False


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", DEALS)
def test_rows_on_random_geometries(name: str) -> None:
    """9 kernels on 24 geometries each: 216 launches. What is proved is so."""
    kernel, proved, right = compiled(DEALT.format(DEALS[name]), "k").primal(), 0, 0
    (y,) = kernel.buffers
    for seed in range(_ORDER):
        r = np.random.default_rng(seed)
        grid, block = (tuple(int(v) for v in (*r.integers(1, 5, 2), 1)) for _ in range(2))
        numbers = tuple(int(v) for v in (r.integers(1, 12), r.integers(1, 40), r.integers(0, 3), r.integers(1, 3)))
        scalars = dict(zip(kernel.scalars, numbers, strict=True))
        alone = not meeting(Run(kernel.body, Shape(grid, block, scalars), frozenset()), [y])  # type: ignore[arg-type]
        apart = not owners_meet(name, grid, block, numbers)  # type: ignore[arg-type]
        assert not alone or apart, (grid, block, numbers)
        proved, right = proved + alone, right + apart
    assert proved or name in INEXACT

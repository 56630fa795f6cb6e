"""The cases every part must get right, with barriers, warps, module memory and slots: closed forms and dense Jacobians, on both executors,
recording analysed or everything recorded. The number in a test's name is the case's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated

INDEX = "int t = threadIdx.x, B = blockDim.x, i = blockIdx.x * B + t;"


@pytest.fixture(autouse=True, params=[f"{e}-{a}" for e in EXECUTORS for a in ("analysed", "all_recorded")])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    executor, analysis = request.param.split("-")
    with running(executor, analysis == "analysed"):
        yield request.param


def kernel_of(parameters: str, body: str, before: str = "") -> Any:
    return compiled(f'{before}\nextern "C" __global__ void k({parameters})\n{{\n    {INDEX}\n    {body}\n}}\n', "k")


def random(*shape: int) -> Any:
    return np.random.default_rng(7).uniform(0.5, 1.5, shape)


def same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def pulled(k: Any, grid: int, block: int, arrays: Sequence[Any], seeds: Sequence[Any], *numbers: Any, **call: Any) -> list[Any]:
    """The shadows after the reverse pass."""
    shadows = [np.array(s, float) for s in seeds]
    pairs = [Duplicated(np.array(a), s) for a, s in zip(arrays, shadows, strict=True)]
    gpuad.autodiff(k, grid, block, (*pairs, *numbers), **call)
    return shadows


# --- barriers ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_case_28_mirrored_through_shared_memory(dynamic: bool) -> None:
    tile = "extern __shared__ double s[];" if dynamic else "__shared__ double s[8];"
    k = kernel_of("const double* x, double* y", f"{tile} s[t] = x[i]; __syncthreads(); y[i] = s[B - 1 - t];")
    dx, dy = pulled(k, 3, 8, (random(24), np.zeros(24)), (np.ones(24), np.arange(24.0)), shared_mem=64 if dynamic else 0)
    same(dx, 1 + np.arange(24.0).reshape(3, 8)[:, ::-1].ravel())
    same(dy, 0)


def test_case_29_early_return_before_a_barrier() -> None:
    body = "__shared__ double s[8]; s[t] = 0.0; if (i >= n) return; s[t] = x[i] * x[i]; __syncthreads(); y[i] = s[t ^ 1] * x[i];"
    k, x, seed = kernel_of("const double* x, double* y, int n", body), random(18), np.arange(1.0, 19.0)
    dx, _ = pulled(k, 3, 8, (x, np.zeros(18)), (np.zeros(18), seed), 18)
    other = np.arange(18) ^ 1
    same(dx, seed * x[other] ** 2 + 2 * x * (seed * x)[other])


TREE = "for (int d = B / 2; d > 0; d /= 2) {{ if (t < d) {} __syncthreads(); }}"


def test_case_31_shared_tree_sum() -> None:
    tree = TREE.format("s[t] += s[t + d];")
    body = f"__shared__ double s[16]; s[t] = x[i] * x[i]; __syncthreads(); {tree} if (t == 0) y[blockIdx.x] = s[0];"
    x = random(32)
    dx, dy = pulled(kernel_of("const double* x, double* y", body), 2, 16, (x, np.zeros(2)), (np.zeros(32), (2.0, 3.0)))
    same(dx, 2 * x * np.repeat((2.0, 3.0), 16))
    same(dy, 0)


def test_case_31_shared_tree_maximum_is_one_hot() -> None:
    """The first of ties, in the tree's order: `fmax` gives all to its first argument."""
    step = "s[t] = fmax(s[t], s[t + d]);"
    body = f"__shared__ double s[8]; s[t] = x[i]; __syncthreads(); {TREE.format(step)} if (t == 0) y[blockIdx.x] = s[0];"
    x = np.array([1.0, 5, 2, 3, 4, 5, 0, 5, 7, 1, 2, 3, 4, 5, 6, 0])
    dx, _ = pulled(kernel_of("const double* x, double* y", body), 2, 8, (x, np.zeros(2)), (np.zeros(16), (1.0, 2.0)))
    assert dx.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]


def test_case_55_a_loop_bound_overwritten_in_the_loop() -> None:
    k = kernel_of("double* x, int* m", "for (int j = 0; j < m[i]; j++) { x[i] = sin(x[i]) * x[i]; if (j == 1) m[i] = 3; }")
    x, m, dx = random(4), np.array([0, 1, 2, 9], np.int32), np.ones(4)
    value, slope = x.copy(), np.ones(4)
    for j in range(3):
        on = (m if j < 2 else np.where(m >= 2, 3, m)) > j
        slope = np.where(on, slope * (np.cos(value) * value + np.sin(value)), slope)
        value = np.where(on, np.sin(value) * value, value)
    after = x.copy()
    gpuad.autodiff(k, 1, 4, (Duplicated(after, dx), m))
    same(after, value)
    same(dx, slope)


def test_case_55_a_tile_overwritten_between_barriers() -> None:
    body = """__shared__ double s[8]; double sum = 0.0;
    for (int j = 0; j < 3; j++) {
        s[t] = x[(i + j) % n] * x[i]; __syncthreads();
        sum += s[B - 1 - t] * s[t]; __syncthreads();
        s[t] = sum; __syncthreads();
        sum = sin(s[(t + 1) % B]); __syncthreads();
    }
    y[i] = sum;"""
    k, x, seed = kernel_of("const double* x, double* y, int n", body), random(16), np.linspace(1, 2, 16)

    def model(x: Any) -> Any:
        i, total = np.arange(16), np.zeros(16, x.dtype)
        back, on = i // 8 * 8 + 7 - i % 8, i // 8 * 8 + (i + 1) % 8
        for j in range(3):
            s = x[(i + j) % 16] * x
            total = np.sin((total + s[back] * s)[on])
        return total

    dx, _ = pulled(k, 2, 8, (x, np.zeros(16)), (np.zeros(16), seed), 16)
    steps = [x + 1e-30j * (np.arange(16) == j) for j in range(16)]
    same(dx, [seed @ model(step).imag / 1e-30 for step in steps])


def test_case_60_no_thread_overwrites_what_it_reads_itself() -> None:
    k, x = kernel_of("double* x, int n", "double v = x[n - 1 - i]; __syncthreads(); x[i] = sin(v);"), random(8)
    (dx,) = pulled(k, 1, 8, (x,), (np.arange(8.0),), 8)
    same(dx, np.arange(8.0)[::-1] * np.cos(x))


# --- warps ---------------------------------------------------------------------------------------------------------------------------


def test_case_30_a_tree_of_shuffles_seeded_in_lane_0() -> None:
    tree = "double v = x[i]; for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d); y[i] = v;"
    k = kernel_of("const double* x, double* y", tree)
    dx, _ = pulled(k, 1, 32, (random(32), np.zeros(32)), (np.zeros(32), np.arange(32) == 0))
    same(dx, 1)


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("mask", "lanes"), [("0xffffffff", 32), ("0x0000ffff", 16), ("0x000000ff", 8)])
def test_case_30_every_lane_seeded_against_the_dense_jacobian(mask: str, lanes: int) -> None:
    """The Jacobian is the primal of the unit vectors: the tree is linear. Lanes out of range return their own value."""
    loop = f"for (int d = {lanes // 2}; d > 0; d /= 2) v += __shfl_down_sync({mask}, v, d, {lanes});"
    k = kernel_of("const double* x, double* y", f"double v = x[i]; if (t < {lanes}) {loop} y[i] = v;")
    jacobian = np.zeros((32, 32))
    for j in range(32):
        y = np.zeros(32)
        k(1, 32, (np.eye(32)[j].copy(), y))
        jacobian[:, j] = y
    seed = random(32)
    dx, _ = pulled(k, 1, 32, (random(32), np.zeros(32)), (np.zeros(32), seed))
    same(dx, jacobian.T @ seed)


# --- slots, module memory, in place ----------------------------------------------------------------------------------------------------


def test_case_42_compaction_by_an_atomic_counter() -> None:
    """The slots are recorded, the counter is bumped once."""
    k = kernel_of("const double* x, double* out, int* count, int n", "if (i < n && x[i] > 0.9) out[atomicAdd(count, 1)] = x[i] * x[i];")
    x, count, out = random(20), np.zeros(1, np.int32), np.zeros(20)
    dx, seed = np.zeros(20), np.arange(1.0, 21.0)
    dout = seed.copy()
    gpuad.autodiff(k, 3, 8, (Duplicated(x, dx), Duplicated(out, dout), count, 20))
    kept = np.flatnonzero(x > 0.9)
    assert count.tolist() == [len(kept)]
    slot = {value: place for place, value in enumerate(out[: len(kept)])}
    same(dx[kept], [2 * x[j] * seed[slot[x[j] * x[j]]] for j in kept])
    same(dx[x <= 0.9], 0)
    same(dout, np.where(np.arange(20) < len(kept), 0, seed))


@pytest.mark.parametrize(("grid", "block"), [(1, 32), (2, 16), (8, 4)])
def test_case_45_leapfrog_in_place(grid: int, block: int, way: str) -> None:
    body = "if (i > 0 && i < n - 1) p[i] = 2.0 * u[i] - p[i] + c[i] * (u[i - 1] - 2.0 * u[i] + u[i + 1]);"
    k = kernel_of("double* p, const double* u, const double* c, int n", body)
    p, u, c, seed = random(30), random(30) ** 2, random(30) ** 3, np.linspace(1, 2, 30)
    dp, du, dc = pulled(k, grid, block, (p, u, c), (seed, np.zeros(30), np.zeros(30)), 30)
    inner = np.arange(30) % 29 > 0
    g = np.where(inner, seed, 0)
    same(dp, np.where(inner, -seed, seed))
    same(dc[1:-1], g[1:-1] * (u[:-2] - 2 * u[1:-1] + u[2:]))
    sent = g * c
    same(du, 2 * g - 2 * sent + np.append(sent[1:], 0) + np.append(0, sent[:-1]))
    args = (*(Duplicated(a, np.zeros(30)) for a in (p, u, c)), 30)
    if way.endswith("analysed"):
        assert "atomic" not in k.adjoint(grid=grid, block=block, args=args).source


def test_case_50_constants_changed_between_two_launches() -> None:
    k = kernel_of("double* x", "x[i] = w[t] * x[i] * x[i];", before="__constant__ double w[4];")
    x = random(4)
    pair, tape, first, second = Duplicated(x.copy()), gpuad.Tape(), np.array([1.0, 2, 3, 4]), np.array([0.5, 0.25, 2, 1])
    with tape:
        k.get_global("w")[...] = first
        k[1, 4](pair)
        tape.overwrites(k.get_global("w"))
        k.get_global("w")[...] = second
        k[1, 4](pair)
    seen = pair.primal.copy()
    tape.reverse({pair: np.ones(4)})
    middle = first * x * x
    same(seen, second * middle**2)
    same(pair.shadow, 2 * second * middle * 2 * first * x)


def test_case_51_a_slice_and_its_neighbour_as_if_copied_first() -> None:
    x, seed = random(6), np.arange(1.0, 7.0)
    added, moved = Duplicated(x.copy()), Duplicated(x.copy())
    tape = gpuad.Tape()
    with tape:
        added[1:] += added[:-1]
        moved[1:] = moved[:-1]
    same(added.primal, x + np.append(0, x[:-1]))
    same(moved.primal, np.append(x[0], x[:-1]))
    tape.reverse({added: seed, moved: seed})
    same(added.shadow, seed + np.append(seed[1:], 0))
    same(moved.shadow, np.append(seed[0] + seed[1], np.append(seed[2:], 0)))

"""Cooperative groups: what groups are, tiles against a model lane by lane, and gradients against dense Jacobians."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.codegen.cuda import cuda_source
from gpuad.errors import UnsupportedError
from gpuad.runtime import nvrtc
from gpuad.runtime.reference import BarrierError, RaceError, Reference
from gpuad.testing import check_gradient

HEAD = """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
"""
INDEX = "int i = blockIdx.x * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x;"


def source(body: str, parameters: str = "const double* x, double* y", before: str = "") -> str:
    return f'{HEAD}{before}\nextern "C" __global__ void k({parameters}) {{\n  {INDEX}\n  {body}\n}}'


# --- who a thread is -------------------------------------------------------------------------------------------------------------------

RANKS = """
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    cg::thread_block_tile<2> pair = cg::tiled_partition<2>(tile);
    cg::thread_group any = cg::tiled_partition(block, 4);
    cg::thread_group all = block;
    auto grid = cg::this_grid();
    int own[] = {(int)block.thread_rank(), (int)block.size(), (int)block.num_threads(), (int)block.group_index().x,
                 (int)block.thread_index().y, (int)block.dim_threads().x, (int)tile.thread_rank(), (int)tile.size(),
                 (int)tile.meta_group_rank(), (int)tile.meta_group_size(), (int)pair.thread_rank(), (int)pair.meta_group_rank(),
                 (int)pair.meta_group_size(), (int)any.thread_rank(), (int)any.size(), (int)all.thread_rank(), (int)all.size(),
                 (int)grid.thread_rank(), (int)grid.size(), (int)cg::group_size(pair), (int)cg::thread_rank(all)};
    for (int k = 0; k < 21; ++k) out[21 * i + k] = own[k];
"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_ranks(executor: str) -> None:
    """In blocks of 12 x 4 threads: the ranks are those of the linear index, x first."""
    out = np.zeros((96, 21), np.int32)
    with running(executor):
        compiled(source(RANKS, "int* out"), "k")(2, (12, 4), (out,))
    for i in range(96):
        t = i % 48
        block = [t, 48, 48, i // 48, t // 12, 12]
        tiles = [t % 8, 8, t // 8, 6, t % 2, t % 8 // 2, 4, t % 4, 4, t, 48]
        assert out[i].tolist() == [*block, *tiles, i, 96, 2, t], i


# --- shuffles and votes ----------------------------------------------------------------------------------------------------------------


def moved(way: str, lane: int, n: int, size: int) -> int:
    """The lane that a lane of a tile gets its value from, as documented for `__shfl_sync` and its kin with the tile's width."""
    rank, first = lane % size, lane - lane % size
    if way == "shfl":
        return first + n % size
    if way == "shfl_xor":
        return lane ^ n if (lane ^ n) < first + size else lane
    other = rank + n if way == "shfl_down" else rank - n
    return first + other if 0 <= other < size else lane


@pytest.mark.one_of(4)
@pytest.mark.parametrize("way", ["shfl", "shfl_down", "shfl_up", "shfl_xor"])
@pytest.mark.parametrize("size", [1, 4, 32])
def test_every_lane_of_every_tile(way: str, size: int) -> None:
    """All lanes seeded with different numbers; a vector goes number by number."""
    for n in (0, 1, 5) if way != "shfl_xor" else {0, 1 % size, 5 % size}:  # beyond the tile is not defined
        body = f"""auto tile = cg::tiled_partition<{size}>(cg::this_thread_block());
        double2 v = tile.{way}(make_double2(x[i], 3 * x[i]), {n});
        y[i] = v.x * v.y + tile.{way}(x[i], {n});"""
        r = np.random.default_rng(n)
        x, dx, seed = r.normal(size=64), np.zeros(64), r.normal(size=64)
        y, given = np.zeros(64), seed.copy()
        with running("reference"):
            gpuad.autodiff(gpuad.kernel(source(body), "k"), 1, 64, (Duplicated(x, dx), Duplicated(y, given)))
        origin = np.array([moved(way, lane, n, size) for lane in range(64)])
        np.testing.assert_allclose(y, 3 * x[origin] ** 2 + x[origin], rtol=1e-13)
        expected = np.zeros(64)
        np.add.at(expected, origin, (6 * x[origin] + 1) * seed)
        np.testing.assert_allclose(dx, expected, rtol=1e-12, atol=1e-14)


VOTES = """
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    bool is = x[i] > 0;
    out[3 * i] = tile.any(is);
    out[3 * i + 1] = tile.all(is);
    out[3 * i + 2] = tile.ballot(is);
"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_votes_are_of_the_tile(executor: str) -> None:
    x, out = np.random.default_rng(0).normal(size=64), np.zeros((64, 3), np.int32)
    x[8:16], x[16:24] = 1, -1
    with running(executor):
        compiled(source(VOTES, "const double* x, int* out"), "k")(1, 64, (x, out))
    for tile, rows in zip((x > 0).reshape(8, 8), out.reshape(8, 8, 3), strict=True):
        assert (rows == [tile.any(), tile.all(), sum(1 << k for k in range(8) if tile[k])]).all()


# --- reductions and scans --------------------------------------------------------------------------------------------------------------

OPERATIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "plus": ("cg::reduce(tile, x[i], cg::plus<double>())", lambda v: np.full(len(v), v.sum())),
    "greater": ("cg::reduce(tile, x[i], cg::greater<double>())", lambda v: np.full(len(v), v.max())),
    "less": ("cg::reduce(tile, x[i], cg::less<double>())", lambda v: np.full(len(v), v.min())),
    "times": ("cg::reduce(tile, x[i], Times())", lambda v: np.full(len(v), v.prod())),
    "inclusive": ("cg::inclusive_scan(tile, x[i])", np.cumsum),
    "exclusive": ("cg::exclusive_scan(tile, x[i])", lambda v: np.cumsum(v) - v),
    "products": ("cg::inclusive_scan(tile, x[i], Times())", np.cumprod),
}
TIMES = "struct Times { __device__ double operator()(double a, double b) const { return a * b; } };"


def jacobian(f: Callable[[Any], Any], x: Any) -> Any:
    """By central differences."""
    columns = []
    for k in range(len(x)):
        step = np.zeros(len(x))
        step[k] = 1e-6
        columns.append((f(x + step) - f(x - step)) / 2e-6)
    return np.stack(columns, axis=1)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("size", [32, 4, 1])
def test_collectives_against_the_dense_jacobian(name: str, size: int) -> None:
    """Every lane seeded: the whole Jacobian, tile by tile."""
    expression, f = OPERATIONS[name]
    text = source(f"auto tile = cg::tiled_partition<{size}>(cg::this_thread_block()); y[i] = {expression};", before=TIMES)
    r = np.random.default_rng(size)
    x, dx, seed = r.uniform(0.5, 1.5, size=64), np.zeros(64), r.normal(size=64)
    y, given = np.zeros(64), seed.copy()
    with running("reference"):
        gpuad.autodiff(compiled(text, "k"), 1, 64, (Duplicated(x, dx), Duplicated(y, given)))
    tiles = x.reshape(-1, size)
    np.testing.assert_allclose(y.reshape(-1, size), [f(tile) for tile in tiles], rtol=1e-12, atol=1e-14)
    expected = [s @ jacobian(f, tile) for s, tile in zip(seed.reshape(-1, size), tiles, strict=True)]
    np.testing.assert_allclose(dx.reshape(-1, size), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("operation", ["greater", "less"])
def test_of_equal_values_the_first_lane_s_wins(operation: str) -> None:
    """For all lanes: what they ask for arrives in one place."""
    text = source(f"y[i] = cg::reduce(cg::tiled_partition<8>(cg::this_thread_block()), x[i], cg::{operation}<double>());")
    sign = 1.0 if operation == "greater" else -1.0
    x, dx, dy = sign * np.array([0.0, 2, 1, 2, 2, 0, 1, 2] * 2), np.zeros(16), np.arange(1.0, 17)
    with running("reference"):
        gpuad.autodiff(compiled(text, "k"), 1, 16, (Duplicated(x, dx), Duplicated(np.zeros(16), dy)))
    assert dx.tolist() == [0, 36, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0]


def test_integer_reductions() -> None:
    text = source(
        """auto tile = cg::tiled_partition<4>(cg::this_thread_block());
    int v = i * 7 % 13;
    out[4 * i] = cg::reduce(tile, v, cg::bit_and<int>());
    out[4 * i + 1] = cg::reduce(tile, v, cg::bit_or<int>());
    out[4 * i + 2] = cg::reduce(tile, v, cg::bit_xor<int>());
    out[4 * i + 3] = cg::reduce(tile, v, cg::plus<int>());""",
        "int* out",
    )
    out = np.zeros((32, 4), np.int32)
    with running("reference"):
        compiled(text, "k")(1, 32, (out,))
    values = (np.arange(32) * 7 % 13).reshape(8, 4)
    functions = (np.bitwise_and.reduce, np.bitwise_or.reduce, np.bitwise_xor.reduce, np.sum)
    for k, function in enumerate(functions):
        np.testing.assert_array_equal(out[:, k].reshape(8, 4), np.repeat(function(values, axis=1)[:, None], 4, axis=1))


# --- programs --------------------------------------------------------------------------------------------------------------------------

BLOCK_SUM = """
__device__ double sum(cg::thread_group g, double* s, double v) {
    int lane = g.thread_rank();
    for (int i = g.size() / 2; i > 0; i /= 2) {
        s[lane] = v;
        g.sync();
        if (lane < i) v *= s[lane + i];
        g.sync();
    }
    return v;
}
template <typename Group> __device__ double by_shuffles(Group g, double v) {
    for (int i = g.size() / 2; i > 0; i /= 2) v += g.shfl_down(v, i);
    return v;
}
template <int N> __device__ double of_size(cg::thread_block_tile<N> g, double v) { return by_shuffles(g, v); }
"""
PROGRAMS: dict[str, str] = {
    "group of a block, through shared memory": """__shared__ double s[64];
    cg::thread_block block = cg::this_thread_block();
    double v = sum(block, s, x[i]);
    if (block.thread_rank() == 0) y[blockIdx.x] = v;""",
    "group of a tile, through shared memory": """__shared__ double s[64];
    cg::thread_group tile = cg::tiled_partition(cg::this_thread_block(), 16);
    double v = sum(tile, s + threadIdx.x / 16 * 16, x[i]);
    if (tile.thread_rank() == 0) y[i / 16] = v;""",
    "templates by value and by reference": """auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    double v = by_shuffles(warp, sin(x[i]));
    double w = of_size<32>(warp, x[i] * x[i]);
    if (warp.thread_rank() == 0) y[i / 32] = v * w;""",
    "some tiles only": """auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    if (tile.meta_group_rank() % 3 == 1) y[i] = x[i] * cg::reduce(tile, x[i] * x[i], cg::plus<double>());
    else if (tile.any(tile.thread_rank() == tile.meta_group_rank())) y[i] = tile.shfl(x[i] * x[i], 3);""",
    "tiles of a tile": """auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto half = cg::tiled_partition<16>(warp);
    double v = cg::reduce(half, x[i] * x[i], cg::plus<double>());
    if (half.meta_group_rank() == 1) v = half.shfl(v * x[i], 2);
    y[i] = warp.shfl_xor(v, 16) * x[i];""",
    "sync of everything": """__shared__ double s[64];
    cg::thread_block g = cg::this_thread_block();
    s[g.thread_rank()] = x[i] * x[i];
    cg::sync(g);
    y[i] = s[63 - threadIdx.x] * x[i];""",
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("way", ["usual", "everything recorded"])
def test_programs(name: str, way: str) -> None:
    x = np.random.default_rng(0).uniform(0.7, 1.3, size=128)
    with running("reference", way == "usual"):
        args = (Duplicated(x, np.zeros(128)), Duplicated(np.zeros(128), np.zeros(128)))
        check_gradient(compiled(source(PROGRAMS[name], before=BLOCK_SUM), "k"), args, grid=2, block=64, race_check=True, directions=2)


@pytest.mark.one_of(2)
@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", PROGRAMS)
def test_generated_text_needs_no_header(name: str) -> None:
    kernel = compiled(source(PROGRAMS[name], before=BLOCK_SUM), "k")
    made = kernel.adjoint(Duplicated, Duplicated)
    assert "#include" not in made.source
    nvrtc.compile_cuda(made.source, "sm_90")
    nvrtc.compile_cuda(cuda_source([kernel.primal()]), "sm_75")


def test_threads_that_miss_the_sync_of_their_tile() -> None:
    text = source("auto tile = cg::tiled_partition<8>(cg::this_thread_block()); if (i % 8 < 5) tile.sync(); y[i] = x[i];")
    with running("reference"), pytest.raises(BarrierError, match="does not reach a barrier"):
        compiled(text, "k")(1, 32, (np.ones(32), np.zeros(32)))


TILES = """__shared__ double s[64];
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int t = threadIdx.x, first = t / 8 * 8;
    s[t] = x[i];
"""


@pytest.mark.one_of(2)
@pytest.mark.parametrize("order", ["forward", "reversed", "random"])
def test_a_sync_of_tiles_orders_their_lanes(order: Any) -> None:
    """All lanes of the tile and no others; also where many read one element that one then overwrites."""
    good = (
        "tile.sync(); y[i] = s[first + (t + 3) % 8];",
        "tile.sync(); double v = s[first]; tile.sync(); if (t == first) s[t] = v * v; tile.sync(); y[i] = s[first] * v;",
        "auto pair = cg::tiled_partition<2>(tile); pair.sync(); if (t % 2 == 0) s[t] += s[t + 1]; tile.sync(); y[i] = s[first + 6];",
        "auto pair = cg::tiled_partition<2>(tile); tile.sync(); pair.sync(); y[i] = s[first + (t + 3) % 8];",
    )
    bad = (
        "y[i] = s[first + (t + 3) % 8];",
        "tile.sync(); y[i] = s[(t + 8) % 64];",
        "tile.sync(); double v = s[first]; if (t == first) s[t] = v * v; tile.sync(); y[i] = s[first] * v;",
        "cg::tiled_partition<2>(tile).sync(); y[i] = s[first + (t + 3) % 8];",
        "if (t < 8) tile.sync(); y[i] = s[first + (t + 3) % 8];",
        "if (t == 0) s[9] = 1; tile.sync(); y[i] = s[t];",
    )
    executor = Reference(order=order, seed=1)
    for body in (*good, *bad):
        kernel = compiled(source(TILES + body), "k")
        with pipeline.executor_for_tests(executor), pytest.raises(RaceError) if body in bad else contextlib.nullcontext():
            kernel(1, 64, (np.ones(64), np.zeros(64)))


def test_block_sync_that_not_all_reach() -> None:
    text = source("if (i % 8 < 5) cg::this_thread_block().sync(); y[i] = x[i];")
    with pytest.raises(UnsupportedError, match="not known to be the same for all threads of the block") as caught:
        gpuad.kernel(text, "k")
    assert (caught.value.line, caught.value.column) == (8, 18)


def test_structs_without_fields() -> None:
    """As values, results, members and choices."""
    text = """struct Square { __device__ double operator()(double a) const { return a * a; } };
struct Holder { Square f; double scale; };
__device__ Square make() { return Square(); }
__device__ Square same(Square s) { Square t = s; t = s; return t; }
extern "C" __global__ void k(double* x) {
    Square chosen = threadIdx.x > 3 ? make() : Square();
    Holder h = {same(chosen), 3.0};
    x[threadIdx.x] = h.f(x[threadIdx.x]) * h.scale;
}"""
    x, dx = np.arange(1.0, 9), np.ones(8)
    with running("reference"):
        gpuad.autodiff(compiled(text, "k"), 1, 8, (Duplicated(x, dx),))
    np.testing.assert_allclose(dx, 6 * np.arange(1.0, 9))

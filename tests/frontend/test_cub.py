"""CUB's collectives of blocks and warps: values against NumPy, gradients against closed forms and differences, races, shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nightly import share

import gpuad
from gpuad import Duplicated, api, pipeline
from gpuad.codegen.cuda import cuda_source
from gpuad.runtime import nvrtc
from gpuad.runtime.reference import RaceError
from gpuad.testing import check_gradient

HEAD = """#include <cub/cub.cuh>
struct Product { template <class T> __device__ T operator()(const T& a, const T& b) const { return a * b; } };
struct Running {
  double total;
  __device__ Running(double start) { total = start; }
  __device__ double operator()(double all) { double before = total; total += all; return before; }
};
"""
OPERATORS: dict[str, Callable[..., Any]] = {
    "cub::Sum()": np.add,
    "cub::Max()": np.maximum,
    "cub::Min()": np.minimum,
    "cuda::std::plus<>()": np.add,
    "cuda::maximum<double>()": np.maximum,
    "Product()": np.multiply,
    "[](double a, double b) { return fmin(a, b); }": np.minimum,
}
SHAPES = [(8, 1, 1), (32, 1, 1), (48, 1, 1), (5, 4, 5), (16, 8, 1)]


def _kernel(body: str) -> gpuad.Kernel:
    rank = "int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);"
    size = "int m = blockDim.x * blockDim.y * blockDim.z, i = blockIdx.x * m + t;"
    return gpuad.kernel(f'{HEAD}extern "C" __global__ void k(const double* x, double* y) {{ {rank} {size} {body} }}', "k")


def _x(n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(0.7, 1.3, n)


def _run(executor: Any, body: str, x: np.ndarray, results: int, grid: int, block: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The results, their seeds, and the gradient."""
    y, dx, dy = np.zeros(results), np.zeros(len(x)), np.linspace(1, 2, results)
    seeds = dy.copy()
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(_kernel(body), grid, block, (Duplicated(x, dx), Duplicated(y, dy)))
    return y, seeds, dx


def _reduce(shape: tuple[int, int, int], call: str) -> str:
    x, y, z = shape
    kind = f"cub::BlockReduce<double, {x}, cub::BLOCK_REDUCE_WARP_REDUCTIONS, {y}, {z}>"
    return f"typedef {kind} R; __shared__ typename R::TempStorage temp; double s = R(temp).{call}; if (t == 0) y[blockIdx.x] = s;"


def _scan(shape: tuple[int, int, int], call: str) -> str:
    x, y, z = shape
    kind = f"cub::BlockScan<double, {x}, cub::BLOCK_SCAN_RAKING, {y}, {z}>"
    return f"typedef {kind} S; __shared__ typename S::TempStorage temp; double s = 0, all = 0; S(temp).{call}; y[i] = s * (1 + all);"


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("shape", "op"), share([(shape, op) for shape in SHAPES for op in OPERATORS], 5))
def test_reductions_of_blocks(shape: tuple[int, int, int], op: str, executor: Any) -> None:
    n = int(np.prod(shape))
    x = _x(2 * n)
    y, seeds, dx = _run(executor, _reduce(shape, f"Reduce(x[i], {op})"), x, 2, 2, shape)
    rows = x.reshape(2, n)
    np.testing.assert_allclose(y, OPERATORS[op].reduce(rows, axis=1), rtol=1e-13)
    partials = {np.add: np.ones_like(rows), np.multiply: y[:, None] / rows}.get(OPERATORS[op], rows == y[:, None])
    np.testing.assert_allclose(dx.reshape(2, n), seeds[:, None] * partials, rtol=1e-12)


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("shape", "op"), share([(shape, op) for shape in SHAPES for op in OPERATORS], 5))
def test_scans_of_blocks(shape: tuple[int, int, int], op: str, executor: Any) -> None:
    n = int(np.prod(shape))
    x = _x(2 * n)
    y, seeds, dx = _run(executor, _scan(shape, f"InclusiveScan(x[i], s, {op})"), x, 2 * n, 2, shape)
    expected = OPERATORS[op].accumulate(x.reshape(2, n), axis=1)
    np.testing.assert_allclose(y.reshape(2, n), expected, rtol=1e-13)
    if OPERATORS[op] in (np.add, np.multiply):  # backwards it is the scan of the seeds from the other end
        weights = seeds.reshape(2, n) * (1 if OPERATORS[op] is np.add else expected)
        back = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
        np.testing.assert_allclose(dx.reshape(2, n), back / (1 if OPERATORS[op] is np.add else x.reshape(2, n)), rtol=1e-12)
    else:
        assert dx.sum() == pytest.approx(seeds.sum())


@pytest.mark.parametrize(("lanes", "op"), share([(lanes, op) for lanes in (4, 16, 32) for op in OPERATORS], 4))
def test_reductions_and_scans_of_warps(lanes: int, op: str, executor: Any) -> None:
    """Of two blocks of 3 times 32 threads: y is the scan times the reduction of the logical warp."""
    body = f"""typedef cub::WarpReduce<double, {lanes}> R; typedef cub::WarpScan<double, {lanes}> S;
      __shared__ R::TempStorage r[{96 // lanes}]; __shared__ S::TempStorage s[{96 // lanes}]; __shared__ double whole[{96 // lanes}];
      int w = t / {lanes}; double a = R(r[w]).Reduce(x[i], {op}), b; S(s[w]).InclusiveScan(x[i], b, {op});
      if (t % {lanes} == 0) whole[w] = a; __syncthreads(); y[i] = whole[w] * b;"""
    x = _x(192)
    y, seeds, dx = _run(executor, body, x, 192, 2, 96)
    rows, each = x.reshape(-1, lanes), seeds.reshape(-1, lanes)
    whole, scan = OPERATORS[op].reduce(rows, axis=1)[:, None], OPERATORS[op].accumulate(rows, axis=1)
    np.testing.assert_allclose(y.reshape(rows.shape), whole * scan, rtol=1e-13)
    after = np.tri(lanes).T  # which results of the scan an element is in
    if OPERATORS[op] is np.add:
        expected = (each * scan).sum(1, keepdims=True) + (each * whole) @ after.T
    elif OPERATORS[op] is np.multiply:
        expected = (each * scan * whole).sum(1, keepdims=True) / rows + (each * whole * scan) @ after.T / rows
    else:
        expected = (each * scan).sum(1, keepdims=True) * (rows == whole)
        for j in range(lanes):
            expected += each[:, j : j + 1] * whole * (rows == scan[:, j : j + 1])
    np.testing.assert_allclose(dx.reshape(rows.shape), expected, rtol=1e-11)


N, SHAPE = 48, (48, 1, 1)
OTHERS: dict[str, tuple[str, Callable[[np.ndarray], Any]]] = {
    "some of a block": (_reduce(SHAPE, "Sum(x[i] * x[i], 37)"), lambda x: (x[:37] ** 2).sum()),
    "some of a block, one piece": (_reduce(SHAPE, "Reduce(x[i], cub::Max(), 1)"), lambda x: x[0]),
    "items of a thread": (
        "typedef cub::BlockReduce<double, 48> R; __shared__ R::TempStorage temp; double v[2] = {x[i], 2 * x[i] * x[i]}; "
        "double s = R(temp).Sum(v); if (t == 0) y[0] = s;",
        lambda x: (x + 2 * x * x).sum(),
    ),
    "two with one storage": (
        "typedef cub::BlockReduce<double, 48> R; __shared__ R::TempStorage temp; double s = R(temp).Sum(x[i]); __syncthreads(); "
        "double least = R(temp).Reduce(2 * x[i], cub::Min()); if (t == 0) y[0] = s * least;",
        lambda x: x.sum() * 2 * x.min(),
    ),
    "exclusive": (_scan(SHAPE, "ExclusiveSum(x[i], s, all)"), lambda x: (np.cumsum(x) - x) * (1 + x.sum())),
    "exclusive, from a value": (
        _scan(SHAPE, "ExclusiveScan(x[i], s, 1.5, Product(), all)"),
        lambda x: 1.5 * np.cumprod(x) / x * (1 + x.prod()),
    ),
    "exclusive, undefined for the first": (
        _scan(SHAPE, "ExclusiveScan(x[i], s, cub::Max())").replace("y[i] =", "if (t) y[i] ="),
        lambda x: np.concatenate([[0], np.maximum.accumulate(x)[:-1]]),
    ),
    "items and their whole": (
        "typedef cub::BlockScan<double, 48> S; __shared__ S::TempStorage temp; double v[2] = {x[i], x[i] * x[i]}, all; "
        "S(temp).InclusiveSum(v, v, all); y[i] = v[0] + v[1] * all;",
        lambda x: (c := np.cumsum(x + x * x)) - x * x + c * c[-1],
    ),
    "exclusive items": (
        "typedef cub::BlockScan<double, 48> S; __shared__ S::TempStorage temp; double v[2] = {x[i], x[i] * x[i]}, w[2]; "
        "S(temp).ExclusiveSum(v, w); y[i] = w[0] * w[1];",
        lambda x: (lambda c: c * (c + x))(np.cumsum(x + x * x) - x - x * x),
    ),
    "lanes": (
        "typedef cub::WarpReduce<double, 16> W; __shared__ W::TempStorage temp[3]; double s = W(temp[t / 16]).Sum(x[i] * x[i]); "
        "if (t % 16 == 0) y[t / 16] = s;",
        lambda x: np.concatenate([(x**2).reshape(3, 16).sum(1), np.zeros(45)]),
    ),
    "lanes, greatest of some": (
        "typedef cub::WarpReduce<double, 8> W; __shared__ W::TempStorage temp[6]; double s = W(temp[t / 8]).Reduce(x[i], cub::Max(), 5); "
        "if (t % 8 == 0) y[t / 8] = s;",
        lambda x: np.concatenate([x.reshape(6, 8)[:, :5].max(1), np.zeros(42)]),
    ),
    "scans of lanes": (
        "typedef cub::WarpScan<double, 16> W; __shared__ W::TempStorage temp[3]; double a, b, c, all; W w(temp[t / 16]); "
        "w.InclusiveScan(x[i], a, Product()); w.ExclusiveSum(x[i], b, all); w.ExclusiveScan(x[i], c, 2.0, cub::Min()); "
        "y[i] = a + b * all + c;",
        lambda x: _lanes(x.reshape(3, 16)).ravel(),
    ),
    "loads and stores": (
        "typedef cub::BlockLoad<double, 48, 2, cub::BLOCK_LOAD_TRANSPOSE> L; typedef cub::BlockStore<double, 48, 2> T; "
        "typedef cub::BlockReduce<double, 48> R; __shared__ double all; "
        "__shared__ union { typename L::TempStorage l; typename T::TempStorage s; typename R::TempStorage r; } temp; double v[2]; "
        "L(temp.l).Load(x, v, 47, 1.0); __syncthreads(); double s = R(temp.r).Sum(v); if (t == 0) all = s; __syncthreads(); "
        "v[0] *= all; v[1] *= v[0]; T(temp.s).Store(y, v, 48);",
        lambda x: _loaded(np.concatenate([x[:47], np.ones(49)])),
    ),
    "striped": (
        "typedef cub::BlockLoad<double, 48, 1, cub::BLOCK_LOAD_STRIPED> L; __shared__ L::TempStorage temp; double v[1]; "
        "L(temp).Load(x, v); y[i] = v[0] * v[0];",
        lambda x: x * x,
    ),
}


def _lanes(x: np.ndarray) -> np.ndarray:
    before = np.concatenate([np.full((3, 1), 2.0), np.minimum.accumulate(x, 1)[:, :-1]], 1)
    return np.cumprod(x, 1) + (np.cumsum(x, 1) - x) * x.sum(1, keepdims=True) + np.minimum(before, 2)


def _loaded(v: np.ndarray) -> np.ndarray:
    items = v.reshape(48, 2) * 1.0
    items[:, 0] *= v.sum()
    items[:, 1] *= items[:, 0]
    return items.ravel()[:48]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str, executor: Any) -> None:
    body, expected = OTHERS[name]
    x = _x(N)
    with pipeline.executor_for_tests(executor):
        _kernel(body)[1, N](x, y := np.zeros(N))
    found = np.broadcast_to(expected(x), np.shape(expected(x)) or (1,))
    np.testing.assert_allclose(y[: len(found)], found, rtol=1e-12, atol=1e-12)
    check_gradient(_kernel(body), (x, np.zeros(N)), grid=1, block=N)


def test_a_prefix_that_runs_on(executor: Any) -> None:
    """Tile by tile through an array that is longer than a block."""
    body = """typedef cub::BlockScan<double, 48> S; __shared__ S::TempStorage temp; Running before(0.5);
    for (int b = 0; b < 3; b++) { double s; S(temp).InclusiveSum(x[b * 48 + t], s, before); __syncthreads(); y[b * 48 + t] = s * s; }"""
    x = _x(3 * N)
    y, seeds, dx = _run(executor, body, x, 3 * N, 1, N)
    total = 0.5 + np.cumsum(x)
    np.testing.assert_allclose(y, total**2)
    np.testing.assert_allclose(dx, np.cumsum((2 * total * seeds)[::-1])[::-1])


def test_a_storage_that_is_used_again_without_a_barrier_is_a_race() -> None:
    body = OTHERS["two with one storage"][0].replace("__syncthreads(); ", "")
    with pytest.raises(RaceError, match="data race on `temp`"):
        check_gradient(_kernel(body), (_x(N), np.zeros(N)), grid=1, block=N)
    with pytest.raises(gpuad.UnsupportedError, match="a data race"):
        gpuad.autodiff(_kernel(body), 1, N, (Duplicated(_x(N)), Duplicated(np.zeros(N), np.ones(N))))


@pytest.mark.one_of(2)
@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize(
    ("name", "more"), [("two with one storage", 0), ("exclusive, undefined for the first", 0), ("lanes", 0), ("exclusive", 256)]
)
def test_shared_memory(name: str, more: int) -> None:
    """The adjoint has at most twice the primal's. What all threads make of a scan's whole is summed over the block: 32 numbers more."""
    kernel = _kernel(OTHERS[name][0])
    x, y = Duplicated(_x(N), np.zeros(N)), Duplicated(np.zeros(N), np.ones(N))
    texts = cuda_source([api.kernel(kernel).primal()]), kernel.adjoint(grid=1, block=N, args=(x, y)).source
    sizes = [max(r.shared_bytes for r in nvrtc.resources(nvrtc.compile_cuda(text)).values()) for text in texts]
    assert sizes[1] <= 2 * sizes[0] + more

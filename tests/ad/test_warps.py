"""Warp shuffles and votes: against a model that follows CUDA's documentation lane by lane, and gradients against dense Jacobians."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated
from gpuad.errors import UnsupportedError
from gpuad.runtime.reference import BarrierError, BoundsError, RaceError

OPS = ("", "_up", "_down", "_xor")


def documented(op: str, lane: int, operand: int, width: int) -> int:
    """The lane that a lane reads, in the words of the CUDA programming guide."""
    first = lane - lane % width  # of the group
    match op:
        case "_up":  # "the source lane index will not wrap around the value of width, so effectively the lower delta lanes are unchanged"
            return lane - operand if lane - operand >= first else lane
        case "_down":
            return lane + operand if lane + operand < first + width else lane
        case "_xor":  # groups "are able to access elements from earlier groups, if they attempt ... later groups their own value"
            other = lane ^ operand
            return other if other < first + width else lane
    return first + operand % width


def shuffled(op: str, operand: int, width: int) -> str:
    return f"""extern "C" __global__ void k(double* x, int* from) {{
    from[threadIdx.x] = __shfl{op}_sync(0xffffffff, (int)threadIdx.x, {operand}, {width});
    x[threadIdx.x] = __shfl{op}_sync(0xffffffff, x[threadIdx.x], {operand}, {width});
}}"""


@pytest.mark.one_of(6)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("width", [32, 16, 4, 1])
@pytest.mark.parametrize("operand", [0, 1, 3, 9, 31])
def test_every_lane_against_the_documentation(executor: str, op: str, width: int, operand: int) -> None:
    """All lanes seeded, also those that get their own value (V6)."""
    kernel = compiled(shuffled(op, operand, width), "k")
    r = np.random.default_rng(0)
    x, seed, origin = r.normal(size=64), r.normal(size=64), np.zeros(64, np.int32)
    source = np.array([t // 32 * 32 + documented(op, t % 32, operand, width) for t in range(64)])
    expected, dx = np.zeros(64), seed.copy()
    np.add.at(expected, source, seed)
    before = x.copy()
    with running(executor):
        gpuad.autodiff(kernel, 1, 64, (Duplicated(x, dx), origin))
    assert origin.tolist() == source.tolist()
    np.testing.assert_array_equal(x, before[source])
    np.testing.assert_allclose(dx, expected, rtol=0, atol=1e-13)


SUM = """extern "C" __global__ void k(const double* x, double* y) {
    double v = x[threadIdx.x];
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    y[threadIdx.x] = v;
}"""


def jacobian() -> Any:
    """Of the tree, lane by lane."""
    value = np.eye(32)
    for d in (16, 8, 4, 2, 1):
        value = value + value[[t + d if t + d < 32 else t for t in range(32)]]
    return value


@pytest.mark.parametrize("executor", EXECUTORS)
def test_tree_against_the_dense_jacobian(executor: str) -> None:
    """CASE 30: seeded in lane 0 all ones; then each lane by itself."""
    for lane in range(32):
        dx, seed = np.zeros(32), np.zeros(32)
        seed[lane] = 1
        with running(executor):
            gpuad.autodiff(compiled(SUM, "k"), 1, 32, (Duplicated(np.ones(32), dx), Duplicated(np.zeros(32), seed)))
        np.testing.assert_array_equal(dx, jacobian()[lane])
        assert lane or (dx == 1).all()


def launched(body: str, block: int = 64) -> None:
    kernel = compiled(f'extern "C" __global__ void k(double* x) {{\n  __shared__ double s[64];\n  int t = threadIdx.x;\n  {body}\n}}', "k")
    with running("reference"):
        kernel(1, block, (np.ones(64),))


def test_lanes_that_the_mask_does_not_name_or_that_do_not_come() -> None:
    with pytest.raises(BarrierError, match="is not named in the mask of a shuffle"):
        launched("x[t] = __shfl_down_sync(0xffff, x[t], 1);")
    with pytest.raises(BarrierError, match="does not reach a shuffle"):
        launched("if (t < 20) x[t] = __shfl_down_sync(0xffffffff, x[t], 1);")
    with pytest.raises(BarrierError, match="does not reach a barrier"):
        launched("if (t < 20) __syncwarp(); x[t] = 1;")


def test_a_value_of_a_lane_that_takes_no_part() -> None:
    with pytest.raises(BoundsError, match="a lane that takes no part in the shuffle"):
        launched("if ((t & 31) < 16) x[t] = __shfl_down_sync(0xffff, x[t], 1);")
    with pytest.raises(BoundsError, match="a lane that takes no part in the shuffle"):
        launched("x[t] = __shfl_down_sync(0xffffffff, x[t], 8);", block=40)


def test_barriers_of_warps_order_warps_only() -> None:
    launched("s[t] = x[t]; __syncwarp(); x[t] = s[t ^ 1];")
    with pytest.raises(RaceError):
        launched("s[t] = x[t]; __syncwarp(); x[t] = s[t ^ 32];")
    with pytest.raises(RaceError):
        launched("s[t] = x[t]; x[t] = s[t ^ 1];")
    with pytest.raises(RaceError):  # what a shuffle does is no barrier for memory
        launched("s[t] = x[t]; double v = __shfl_xor_sync(0xffffffff, x[t], 1); x[t] = s[t ^ 1] + v;")


def test_returns_in_control_flow_before_a_shuffle_are_refused() -> None:
    text = """extern "C" __global__ void k(double* x, int n) {
    for (int j = 0; j < 3; ++j) {
        if (threadIdx.x + j > n) return;
        x[threadIdx.x] += __shfl_xor_sync(0xffffffff, x[threadIdx.x], 1);
    }
}"""
    with pytest.raises(UnsupportedError, match="a return inside control flow, before a warp shuffle, is not supported") as caught:
        gpuad.kernel(text, "k")
    assert caught.value.line == 3


def test_returned_lanes_leave_the_mask() -> None:
    """Those that have returned still run in generated kernels, so no shuffle may wait for them."""
    text = """extern "C" __global__ void k(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = __shfl_xor_sync(0xffffffff, x[i], 1) * x[i];
}"""
    source = compiled(text, "k").adjoint(x=Duplicated, y=Duplicated).source
    assert "__ballot_sync(0xffffffffu, active)" in source
    assert "__shfl_xor_sync(ballot, " in source


def test_returned_lanes_leave_the_mask_of_a_barrier() -> None:
    text = """extern "C" __global__ void k(const double* x, double* y, int n) {
    __shared__ double s[64];
    if (threadIdx.x >= n) return;
    s[threadIdx.x] = x[threadIdx.x];
    if ((threadIdx.x & 31) < 16) {
        __syncwarp(0xffff);
        y[threadIdx.x] = s[threadIdx.x ^ 1] * x[threadIdx.x];
    }
}"""
    source = compiled(text, "k").adjoint(x=Duplicated, y=Duplicated).source
    assert "__syncwarp(65535u & ballot);" in source or "__syncwarp(ballot & 65535u);" in source, source

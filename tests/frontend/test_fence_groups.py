"""What of cooperative groups is refused: each construct with its exact message and its place, marked by `^`."""

from __future__ import annotations

import pytest
from test_fence import refused

from gpuad.errors import UnsupportedError

HANGS = "the groups that it makes hang on data; cut the tile that is meant by tiled_partition"
SPLIT = "barriers of which the arrival and the wait are two calls are not supported; write sync()"
STRUCT = "lanes can only give each other numbers and float2 to float4 and their kin; give a struct number by number"
MATCH = "match_any and match_all are not supported"
BODIES: dict[str, tuple[str, str]] = {
    "several devices": ("auto g = ^cg::this_multi_grid(); g.sync();", "groups of several devices are not supported"),
    "clusters": ("auto g = ^cg::this_cluster(); g.sync();", "clusters of blocks are not supported"),
    "partition by a condition": (
        "auto g = ^cg::binary_partition(cg::tiled_partition<8>(block), x[0] > 0); x[0] = g.size();",
        f"binary_partition is not supported: {HANGS}",
    ),
    "partition by labels": (
        "auto g = ^cg::labeled_partition(cg::tiled_partition<8>(block), (int)x[0]); x[0] = g.size();",
        f"labeled_partition is not supported: {HANGS}",
    ),
    "large tiles": ("auto g = ^cg::tiled_partition<64>(block); x[0] = g.size();", "tiles of more than 32 threads are not supported"),
    "arrival": ("^block.barrier_arrive();", SPLIT),
    "wait": ("^block.barrier_wait();", SPLIT),
    "wait of the grid in a helper": ("helper(cg::this_grid());", SPLIT),
    "a struct of the user's": ("S s = {x[0]}; x[0] = ^cg::tiled_partition<8>(block).shfl_xor(s, 1).a;", STRUCT),
    "reduction of structs": ("S s = {x[0]}; x[0] = ^cg::reduce(cg::tiled_partition<8>(block), s, cg::plus<S>()).a;", STRUCT),
    "matching": ("x[0] = ^cg::tiled_partition<8>(block).match_any(x[0]);", MATCH),
}
HEADERS: dict[str, str] = {
    "cooperative_groups/memcpy_async.h": "asynchronous copies are not supported; copy in a loop, then sync()",
    "cuda/barrier": "asynchronous copies are not supported; copy in a loop, then sync()",
    "cuda/pipeline": "asynchronous copies are not supported; copy in a loop, then sync()",
    "cooperative_groups/details/info.h": "this part of cooperative groups is not supported",
}


@pytest.mark.parametrize("name", BODIES)
def test_refused_in_a_body(name: str) -> None:
    body, message = BODIES[name]
    helper = "template <typename G> __device__ void helper(G g) { g.barrier_wait(); }\n"
    if "^" not in body:
        helper = helper.replace("g.barrier", "^g.barrier")
    helper += "struct S { float a; __device__ S operator+(S b) const { return S{a + b.a}; } };\n"
    head = f"#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\nnamespace cg = cooperative_groups;\n{helper}"
    error, line, column = refused(f"{head}__global__ void k(float* x) {{\n  auto block = cg::this_thread_block(); {body}\n}}\n")
    assert isinstance(error, UnsupportedError)
    assert (error.message, error.file, error.line, error.column) == (message, "user.cu", line, column)


@pytest.mark.parametrize("name", HEADERS)
def test_refused_headers(name: str) -> None:
    error, line, column = refused(f"#include ^<{name}>\n__global__ void k(float* x) {{}}")
    assert isinstance(error, UnsupportedError)
    assert (error.message, error.line, error.column) == (f"the header '{name}' cannot be used: {HEADERS[name]}", line, column)

/*gpuad
title = "softmax of each row in place, one row a tile of eight threads, with cooperative groups"
[[case]]
kernel = "tile_softmax"
sizes = {rows = 19, n = 21}
grid = ["(rows + 7) // 8"]
block = [64]
[case.arguments]
x = {shape = ["rows", "n"], init = "spread(-3.0, 3.0)", active = true}
rows = {value = "rows"}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 65536, n = 64}
bytes = "8 * rows * n"
*/
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

template <typename Group> __device__ float largest(const Group& group, const float* row, int n) {
    float result = -3.0e38f;
    for (int k = group.thread_rank(); k < n; k += group.size()) result = fmaxf(result, row[k]);
    return cg::reduce(group, result, cg::greater<float>());
}

extern "C" __global__ void tile_softmax(float* x, int rows, int n) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int i = block.group_index().x * tile.meta_group_size() + tile.meta_group_rank();
    if (i >= rows) return;
    float* row = x + i * n;
    float top = largest(tile, row, n);
    float sum = 0.0f;
    for (int k = tile.thread_rank(); k < n; k += tile.size()) sum += expf(row[k] - top);
    sum = cg::reduce(tile, sum, cg::plus<float>());
    for (int k = tile.thread_rank(); k < n; k += tile.size()) row[k] = expf(row[k] - top) / sum;
}

/*gpuad
title = "bfloat16: a residual added to, then normalised by its root mean square, both in place; sums in float, one row a warp"
[[case]]
kernel = "add_rms_norm"
sizes = {rows = 9, pairs = 40}
grid = ["(rows + 1) // 2"]
block = [64]
[case.arguments]
x = {shape = ["rows", "pairs", 2], init = "normal", active = true}
residual = {shape = ["rows", "pairs", 2], init = "normal", active = true}
weight = {shape = ["pairs", 2], init = "positive", active = true}
rows = {value = "rows"}
pairs = {value = "pairs"}
[case.benchmark]
sizes = {rows = 65536, pairs = 2048}
bytes = "16 * rows * pairs"
*/
#include <cuda_bf16.h>

__device__ float sum_of_warp(float value) {
    for (int d = 16; d > 0; d >>= 1) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

extern "C" __global__ void add_rms_norm(__nv_bfloat162* x, __nv_bfloat162* residual, const __nv_bfloat162* weight, int rows, int pairs) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = lane; k < pairs; k += 32) {
        residual[row * pairs + k] += x[row * pairs + k];
        const float2 r = __bfloat1622float2(residual[row * pairs + k]);
        sum += r.x * r.x + r.y * r.y;
    }
    float inverse = rsqrtf(sum_of_warp(sum) / (2 * pairs) + 1e-5f);
    for (int k = lane; k < pairs; k += 32) {
        const float2 r = __bfloat1622float2(residual[row * pairs + k]);
        x[row * pairs + k] = __hmul2(__floats2bfloat162_rn(r.x * inverse, r.y * inverse), weight[k]);
    }
}

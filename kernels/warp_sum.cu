/*gpuad
title = "each row divided by its length, one row a warp, with shuffles"
[[case]]
kernel = "unit_rows"
sizes = {rows = 13, n = 45}
grid = ["(rows + 1) // 2"]
block = [64]
[case.arguments]
x = {shape = ["rows", "n"], init = "normal", active = true}
length = {shape = ["rows"], init = "zeros", active = true}
rows = {value = "rows"}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 65536, n = 256}
bytes = "8 * rows * n"
*/
__device__ float sum_of_warp(float value) {
    for (int d = 16; d > 0; d >>= 1) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

extern "C" __global__ void unit_rows(float* x, float* length, int rows, int n) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = lane; k < n; k += 32) sum += x[row * n + k] * x[row * n + k];
    sum = sqrtf(sum_of_warp(sum));
    for (int k = lane; k < n; k += 32) x[row * n + k] /= sum;
    if (lane == 0) length[row] = sum;
}

/*gpuad
title = "softmax of each row in place, one row a block"
[[case]]
kernel = "block_softmax"
sizes = {rows = 5, n = 75}
grid = ["rows"]
block = [32]
[case.arguments]
x = {shape = ["rows", "n"], init = "spread(-3.0, 3.0)", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 8192, n = 1024}
bytes = "8 * rows * n"
*/
#define BLOCK 32

__device__ float sum_of_block(float value, float* s) {
    s[threadIdx.x] = value;
    __syncthreads();
    for (int d = BLOCK / 2; d > 0; d >>= 1) {
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    float result = s[0];
    __syncthreads();
    return result;
}

__device__ float largest_of_block(float value, float* s) {
    s[threadIdx.x] = value;
    __syncthreads();
    for (int d = BLOCK / 2; d > 0; d >>= 1) {
        if (threadIdx.x < d) s[threadIdx.x] = fmaxf(s[threadIdx.x], s[threadIdx.x + d]);
        __syncthreads();
    }
    float result = s[0];
    __syncthreads();
    return result;
}

extern "C" __global__ void block_softmax(float* x, int n) {
    __shared__ float s[BLOCK];
    float* row = x + blockIdx.x * n;
    float largest = -3.0e38f;
    for (int k = threadIdx.x; k < n; k += BLOCK) largest = fmaxf(largest, row[k]);
    largest = largest_of_block(largest, s);
    float sum = 0.0f;
    for (int k = threadIdx.x; k < n; k += BLOCK) sum += expf(row[k] - largest);
    sum = sum_of_block(sum, s);
    for (int k = threadIdx.x; k < n; k += BLOCK) row[k] = expf(row[k] - largest) / sum;
}

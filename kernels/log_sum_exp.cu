/*gpuad
title = "logarithm of a sum of exponentials: a partial result a block, then one of them all"
[[case]]
kernel = "block_largest"
title = "the largest of the entries that a block walks over"
sizes = {n = 1000, blocks = 3}
grid = ["blocks"]
block = [64]
[case.arguments]
x = {shape = ["n"], init = "spread(-30.0, 30.0)", active = true}
largest = {shape = ["blocks"], init = "zeros", active = true}
n = {value = "n"}

[[case]]
kernel = "block_sum_exp"
title = "sums of exponentials, shifted so that none overflows"
sizes = {n = 1000, blocks = 3}
grid = ["blocks"]
block = [64]
[case.arguments]
x = {shape = ["n"], init = "spread(-3.0, 3.0)", active = true}
shift = {shape = [1], init = "zeros", active = true}
sum = {shape = ["blocks"], init = "zeros", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216, blocks = 1024}
bytes = "8 * n"

[[case]]
kernel = "log_of_sums"
sizes = {blocks = 5}
grid = [1]
block = [1]
[case.arguments]
sum = {shape = ["blocks"], init = "positive", active = true}
shift = {shape = [1], init = "normal", active = true}
result = {shape = [1], init = "zeros", active = true}
blocks = {value = "blocks"}
*/
#define BLOCK 64

extern "C" __global__ void block_largest(const double* x, double* largest, int n) {
    __shared__ double s[BLOCK];
    double found = x[0];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) found = fmax(found, x[i]);
    s[threadIdx.x] = found;
    __syncthreads();
    for (int d = BLOCK / 2; d > 0; d >>= 1) {
        if (threadIdx.x < d) s[threadIdx.x] = fmax(s[threadIdx.x], s[threadIdx.x + d]);
        __syncthreads();
    }
    if (threadIdx.x == 0) largest[blockIdx.x] = s[0];
}

extern "C" __global__ void block_sum_exp(const double* x, const double* shift, double* sum, int n) {
    __shared__ double s[BLOCK];
    double a = shift[0], found = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) found += exp(x[i] - a);
    s[threadIdx.x] = found;
    __syncthreads();
    for (int d = BLOCK / 2; d > 0; d >>= 1) {
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) sum[blockIdx.x] = s[0];
}

extern "C" __global__ void log_of_sums(const double* sum, const double* shift, double* result, int blocks) {
    double total = 0.0;
    for (int b = 0; b < blocks; b++) total += sum[b];
    result[0] = log(total) + shift[0];
}

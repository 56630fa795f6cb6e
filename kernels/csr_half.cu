/*gpuad
title = "sparse layer in half precision: CSR matrix times vector, bias, relu; sums in float"
[[case]]
kernel = "csr_half"
sizes = {rows = 60, columns = 50, entries = 400}
grid = ["(rows / 2 + 31) // 32"]
block = [32]
[case.arguments]
row = {shape = ["rows + 1"], init = "rows(entries)"}
column = {shape = ["entries"], init = "integers(0, columns)"}
value = {shape = ["entries"], init = "normal", active = true}
x = {shape = ["columns"], init = "normal", active = true}
bias = {shape = ["rows // 2", 2], init = "normal", active = true}
y = {shape = ["rows"], init = "normal", active = true}
rows = {value = "rows"}
[case.benchmark]
sizes = {rows = 4194304, columns = 4194304, entries = 67108864}
bytes = "6 * entries + 10 * rows + 2 * columns"
flops = "2 * entries"
*/
#include <cuda_fp16.h>

__device__ float dot(const int* row, const int* column, const __half* value, const __half* x, int i) {
    float sum = 0.0f;
    for (int k = row[i]; k < row[i + 1]; k++) sum += __half2float(value[k]) * __half2float(x[column[k]]);
    return sum;
}

extern "C" __global__ void csr_half(const int* row, const int* column, const __half* value, const __half* x, const __half2* bias,
                                    float* y, int rows) {
    int pair = blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * pair >= rows) return;
    const float2 b = __half22float2(bias[pair]);
    y[2 * pair] = fmaxf(dot(row, column, value, x, 2 * pair) + b.x, 0.0f);
    y[2 * pair + 1] = fmaxf(dot(row, column, value, x, 2 * pair + 1) + b.y, 0.0f);
}

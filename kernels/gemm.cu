/*gpuad
title = "C = alpha A B + beta C, one entry a thread"
[[case]]
kernel = "gemm"
sizes = {m = 19, n = 23, k = 14}
grid = ["(n + 15) // 16", "(m + 15) // 16"]
block = [16, 16]
[case.arguments]
a = {shape = ["m", "k"], init = "normal", active = true}
b = {shape = ["k", "n"], init = "normal", active = true}
c = {shape = ["m", "n"], init = "normal", active = true}
alpha = {value = 0.8, active = true}
beta = {value = -0.5, active = true}
m = {value = "m"}
n = {value = "n"}
k = {value = "k"}
[case.benchmark]
sizes = {m = 2048, n = 2048, k = 2048}
bytes = "4 * (m * k + k * n + 2 * m * n)"
flops = "2 * m * n * k"
*/
extern "C" __global__ void gemm(const float* a, const float* b, float* c, float alpha, float beta, int m, int n, int k) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int l = 0; l < k; ++l) sum += a[row * k + l] * b[l * n + column];
        c[row * n + column] = alpha * sum + beta * c[row * n + column];
    }
}

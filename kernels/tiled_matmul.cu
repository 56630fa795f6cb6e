/*gpuad
title = "C += A B with tiles in shared memory"
[[case]]
kernel = "tiled_matmul"
sizes = {m = 21, n = 19, k = 35}
grid = ["(n + 7) // 8", "(m + 7) // 8"]
block = [8, 8]
[case.arguments]
A = {shape = ["m", "k"], init = "normal", active = true}
B = {shape = ["k", "n"], init = "normal", active = true}
C = {shape = ["m", "n"], init = "normal", active = true}
m = {value = "m"}
n = {value = "n"}
k = {value = "k"}
[case.benchmark]
sizes = {m = 512, n = 512, k = 512}
bytes = "4 * (m * k + k * n + 2 * m * n)"
flops = "2 * m * n * k"
*/
#define TILE 8

extern "C" __global__ void tiled_matmul(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    int col = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    float sum = 0.0f;
    for (int t = 0; t < (k + TILE - 1) / TILE; t++) {
        int ka = t * TILE + threadIdx.x, kb = t * TILE + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < m && ka < k ? A[row * k + ka] : 0.0f;
        b[threadIdx.y][threadIdx.x] = kb < k && col < n ? B[kb * n + col] : 0.0f;
        __syncthreads();
        for (int j = 0; j < TILE; j++) sum += a[threadIdx.y][j] * b[j][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) C[row * n + col] += sum;
}

/*gpuad
title = "running products within each block, in place, in dynamic shared memory"
[[case]]
kernel = "scan"
sizes = {n = 120}
grid = ["(n + 31) // 32"]
block = [32]
shared_mem = 256
[case.arguments]
x = {shape = ["n"], init = "uniform(0.8, 1.2)", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 1048576}
bytes = "8 * n"
*/
extern "C" __global__ void scan(float* x, int n) {
    extern __shared__ float buffer[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    int now = 0, next = blockDim.x;
    buffer[now + t] = i < n ? x[i] : 1.0f;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        buffer[next + t] = t >= d ? buffer[now + t] * buffer[now + t - d] : buffer[now + t];
        __syncthreads();
        now = blockDim.x - now;
        next = blockDim.x - next;
    }
    if (i < n) x[i] = buffer[now + t];
}

/*gpuad
title = "y += a * x, over a grid-stride loop"
[[case]]
kernel = "saxpy"
sizes = {n = 1000}
grid = ["min((n + 255) // 256, 65535)"]
block = [256]
[case.arguments]
n = {value = "n"}
a = {value = 1.5, active = true}
x = {shape = ["n"], init = "normal", active = true}
y = {shape = ["n"], init = "normal", active = true}
[case.benchmark]
sizes = {n = 67108864}
bytes = "12 * n"
flops = "2 * n"
*/
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        y[i] += a * x[i];
    }
}

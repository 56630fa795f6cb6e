/*gpuad
title = "one explicit step of the heat equation"
[[case]]
kernel = "flow"
sizes = {n = 100}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
u = {shape = ["n"], init = "normal", active = true}
next = {shape = ["n"], init = "zeros", active = true}
order = {shape = ["n"], init = "integers(0, n)"}
rate = {value = 0.2, active = true}
n = {value = "n"}
*/
extern "C" __global__ void flow(const float* u, float* next, const int* order, float rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) {
        next[i] = u[i] + rate * (u[i - 1] - 2.0f * u[i] + u[i + 1]);
    }
}

/*gpuad
title = "a field that saturates, in place"
[[case]]
kernel = "saturate"
sizes = {n = 100}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
u = {shape = ["n"], init = "normal", active = true}
n = {value = "n"}
*/
extern "C" __global__ void saturate(float* u, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        u[i] = expf(u[i]);
    }
}

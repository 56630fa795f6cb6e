/*gpuad
title = "three-point stencil"
[[case]]
kernel = "smooth"
sizes = {n = 30}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
u = {shape = ["n"], init = "spread(0.0, 1.0)", active = true}
v = {shape = ["n"], init = "zeros", active = true}
c = {value = 0.1, active = true}
n = {value = "n"}
*/
extern "C" __global__ void smooth(const float* u, float* v, float c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) {
        float s = u[i] + c * (u[i - 1] - 2.0f * u[i] + u[i + 1]);
        v[i] = s * s;
    }
}

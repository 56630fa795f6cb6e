/*gpuad
title = "one explicit step of the heat equation, 5-point stencil, u to v; the border of v is left as it was"
[[case]]
kernel = "heat"
sizes = {ny = 37, nx = 41}
grid = ["(nx + 15) // 16", "(ny + 7) // 8"]
block = [16, 8]
[case.arguments]
u = {shape = ["ny", "nx"], init = "normal", active = true}
v = {shape = ["ny", "nx"], init = "normal", active = true}
alpha = {value = 0.2, active = true}
ny = {value = "ny"}
nx = {value = "nx"}
[case.benchmark]
sizes = {ny = 8192, nx = 8192}
bytes = "8 * nx * ny"
flops = "7 * nx * ny"
*/
extern "C" __global__ void heat(const float* __restrict__ u, float* __restrict__ v, float alpha, int ny, int nx) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && x < nx - 1 && y > 0 && y < ny - 1) {
        int i = y * nx + x;
        v[i] = u[i] + alpha * (u[i - 1] + u[i + 1] + u[i - nx] + u[i + nx] - 4.0f * u[i]);
    }
}

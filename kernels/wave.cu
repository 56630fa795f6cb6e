/*gpuad
title = "acoustic wave, leapfrog in place: the old pressure becomes the new one"
[[case]]
kernel = "wave"
sizes = {ny = 30, nx = 45}
grid = ["(nx + 31) // 32", "(ny + 3) // 4"]
block = [32, 4]
[case.arguments]
old = {shape = ["ny", "nx"], init = "normal", active = true}
now = {shape = ["ny", "nx"], init = "normal", active = true}
c2 = {shape = ["ny", "nx"], init = "uniform(0.05, 0.25)", active = true}
ny = {value = "ny"}
nx = {value = "nx"}
[case.benchmark]
sizes = {ny = 8192, nx = 8192}
bytes = "16 * nx * ny"
*/
extern "C" __global__ void wave(float* old, const float* now, const float* c2, int ny, int nx) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    int i = y * nx + x;
    float lap = now[i - 1] + now[i + 1] + now[i - nx] + now[i + nx] - 4.0f * now[i];
    old[i] = 2.0f * now[i] - old[i] + c2[i] * lap;
}

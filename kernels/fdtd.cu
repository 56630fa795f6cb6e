/*gpuad
title = "Maxwell's equations in two dimensions (TM mode, Yee's scheme): two kernels, each updates fields in place"
[[case]]
kernel = "update_h"
title = "magnetic half step"
sizes = {ny = 28, nx = 33}
grid = ["(nx + 15) // 16", "(ny + 15) // 16"]
block = [16, 16]
[case.arguments]
hx = {shape = ["ny", "nx"], init = "normal", active = true}
hy = {shape = ["ny", "nx"], init = "normal", active = true}
ez = {shape = ["ny", "nx"], init = "normal", active = true}
courant = {value = 0.5, active = true}
ny = {value = "ny"}
nx = {value = "nx"}
[case.benchmark]
sizes = {ny = 8192, nx = 8192}
bytes = "20 * nx * ny"

[[case]]
kernel = "update_e"
title = "electric half step with permittivity and conductivity"
sizes = {ny = 28, nx = 33}
grid = ["(nx + 15) // 16", "(ny + 15) // 16"]
block = [16, 16]
[case.arguments]
ez = {shape = ["ny", "nx"], init = "normal", active = true}
hx = {shape = ["ny", "nx"], init = "normal", active = true}
hy = {shape = ["ny", "nx"], init = "normal", active = true}
epsilon = {shape = ["ny", "nx"], init = "uniform(1.0, 4.0)", active = true}
sigma = {shape = ["ny", "nx"], init = "uniform(0.0, 0.2)", active = true}
courant = {value = 0.5, active = true}
ny = {value = "ny"}
nx = {value = "nx"}
[case.benchmark]
sizes = {ny = 8192, nx = 8192}
bytes = "24 * nx * ny"
*/
extern "C" __global__ void update_h(float* hx, float* hy, const float* ez, float courant, int ny, int nx) {
    const int x = blockDim.x * blockIdx.x + threadIdx.x;
    const int y = blockDim.y * blockIdx.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    const int i = x + nx * y;
    if (y < ny - 1) hx[i] -= courant * (ez[i + nx] - ez[i]);
    if (x < nx - 1) hy[i] += courant * (ez[i + 1] - ez[i]);
}

extern "C" __global__ void update_e(float* ez, const float* hx, const float* hy, const float* epsilon, const float* sigma, float courant,
                                    int ny, int nx) {
    const int x = blockDim.x * blockIdx.x + threadIdx.x;
    const int y = blockDim.y * blockIdx.y + threadIdx.y;
    if (x == 0 || y == 0 || x >= nx || y >= ny) return;
    const int i = x + nx * y;
    const float loss = 0.5f * sigma[i] / epsilon[i];
    const float curl = (hy[i] - hy[i - 1]) - (hx[i] - hx[i - nx]);
    ez[i] = ((1.0f - loss) * ez[i] + courant / epsilon[i] * curl) / (1.0f + loss);
}

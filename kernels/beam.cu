/*gpuad
title = "a light beam: the paraxial wave equation with complex fields, one explicit step and a lens"
[[case]]
kernel = "propagate"
title = "diffraction and a Kerr medium"
sizes = {ny = 20, nx = 33}
grid = ["(nx + 15) // 16", "(ny + 7) // 8"]
block = [16, 8]
[case.arguments]
field = {shape = ["ny", "nx"], init = "normal", active = true}
next = {shape = ["ny", "nx"], init = "zeros", active = true}
index = {shape = ["ny", "nx"], init = "uniform(1.0, 1.5)", active = true}
dz = {value = 0.05, active = true}
kerr = {value = 0.2, active = true}
ny = {value = "ny"}
nx = {value = "nx"}
[case.benchmark]
sizes = {ny = 4096, nx = 4096}
bytes = "20 * nx * ny"

[[case]]
kernel = "lens"
title = "a thin lens with an aperture, in place"
sizes = {ny = 20, nx = 33}
grid = ["(nx + 15) // 16", "(ny + 7) // 8"]
block = [16, 8]
[case.arguments]
field = {shape = ["ny", "nx"], init = "normal", active = true}
focus = {value = 12.5, active = true}
radius = {value = 9.5}
ny = {value = "ny"}
nx = {value = "nx"}
[case.benchmark]
sizes = {ny = 8192, nx = 8192}
bytes = "16 * nx * ny"
*/
#include <cupy/complex.cuh>

extern "C" __global__ void propagate(const complex<float>* field, complex<float>* next, const float* index, float dz, float kerr, int ny,
                                     int nx) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    int i = y * nx + x;
    const complex<float> u = field[i];
    complex<float> spread = field[i - 1] + field[i + 1] + field[i - nx] + field[i + nx] - 4.0f * u;
    const complex<float> turn = exp(complex<float>(0.0f, dz * (index[i] + kerr * norm(u))));
    next[i] = (u + complex<float>(0.0f, 0.5f * dz) * spread) * turn;
}

extern "C" __global__ void lens(complex<float>* field, float focus, float radius, int ny, int nx) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    float rx = x - 0.5f * nx, ry = y - 0.5f * ny;
    float r2 = rx * rx + ry * ry;
    complex<float>& u = field[y * nx + x];
    if (r2 > radius * radius) {
        u = 0.0f;
    } else {
        u *= thrust::polar(1.0f, -r2 / (2.0f * focus));
    }
}

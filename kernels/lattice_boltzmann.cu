/*gpuad
title = "D2Q9 lattice Boltzmann, BGK collision and push streaming, periodic"
[[case]]
kernel = "lattice_boltzmann"
sizes = {ny = 20, nx = 24}
grid = ["(nx + 31) // 32", "ny"]
block = [32]
[case.arguments]
f = {shape = [9, "ny", "nx"], init = "uniform(0.09, 0.13)", active = true}
g = {shape = [9, "ny", "nx"], init = "zeros", active = true}
omega = {value = 1.2, active = true}
ny = {value = "ny"}
nx = {value = "nx"}
[case.benchmark]
sizes = {ny = 4096, nx = 4096}
bytes = "72 * nx * ny"
*/
#define Q 9

extern "C" __global__ void lattice_boltzmann(const float* __restrict__ f, float* __restrict__ g, const float omega, const int ny, const int nx) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y;
    if (x >= nx) return;
    const int ex[Q] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
    const int ey[Q] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
    const float w[Q] = {4.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 36, 1.f / 36, 1.f / 36, 1.f / 36};
    const int cells = nx * ny;

    float rho = 0.f, ux = 0.f, uy = 0.f;
    for (int k = 0; k < Q; ++k) {
        const float fk = f[k * cells + y * nx + x];
        rho += fk;
        ux += ex[k] * fk;
        uy += ey[k] * fk;
    }
    ux /= rho;
    uy /= rho;

    const float square = 1.5f * (ux * ux + uy * uy);
    for (int k = 0; k < Q; ++k) {
        const float eu = 3.f * (ex[k] * ux + ey[k] * uy);
        const float equilibrium = w[k] * rho * (1.f + eu + 0.5f * eu * eu - square);
        const float fk = f[k * cells + y * nx + x];
        const int to_x = (x + ex[k] + nx) % nx;
        const int to_y = (y + ey[k] + ny) % ny;
        g[k * cells + to_y * nx + to_x] = fk + omega * (equilibrium - fk);
    }
}

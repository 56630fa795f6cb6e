/*gpuad
title = "D2Q9 lattice Boltzmann that pulls, past obstacles, periodic: populations are read where they come from, walls keep theirs"
[[case]]
kernel = "channel"
sizes = {ny = 20, nx = 24}
grid = ["(nx + 31) // 32", "(ny + 3) // 4"]
block = [32, 4]
[case.arguments]
f = {shape = [9, "ny", "nx"], init = "uniform(0.09, 0.13)", active = true}
g = {shape = [9, "ny", "nx"], init = "uniform(0.09, 0.13)", active = true}
solid = {shape = ["ny", "nx"], init = "integers(0, 2) * integers(0, 2)"}
omega = {value = 1.2, active = true}
push = {value = 0.001, active = true}
ny = {value = "ny"}
nx = {value = "nx"}
[case.benchmark]
sizes = {ny = 4096, nx = 4096}
bytes = "76 * nx * ny"
*/
__device__ float equilibrium(float weight, float rho, float eu, float square) {
    return weight * rho * (1.0f + eu + 0.5f * eu * eu - square);
}

extern "C" __global__ void channel(const float* f, float* g, const int* solid, float omega, float push, int ny, int nx) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    int here = y * nx + x, cells = nx * ny;
    if (solid[here]) return;
    int left = (x + nx - 1) % nx, right = (x + 1) % nx, below = (y + ny - 1) % ny * nx, above = (y + 1) % ny * nx, row = y * nx;

    float p[9];
    p[0] = f[here];
    p[1] = f[cells + row + left];
    p[2] = f[2 * cells + below + x];
    p[3] = f[3 * cells + row + right];
    p[4] = f[4 * cells + above + x];
    p[5] = f[5 * cells + below + left];
    p[6] = f[6 * cells + below + right];
    p[7] = f[7 * cells + above + right];
    p[8] = f[8 * cells + above + left];
    float rho = p[0] + p[1] + p[2] + p[3] + p[4] + p[5] + p[6] + p[7] + p[8];
    float ux = 3.0f * (p[1] - p[3] + p[5] - p[6] - p[7] + p[8]) / rho + push;
    float uy = 3.0f * (p[2] - p[4] + p[5] + p[6] - p[7] - p[8]) / rho;
    float square = (ux * ux + uy * uy) / 6.0f;
    g[here] = p[0] + omega * (equilibrium(4.0f / 9.0f, rho, 0.0f, square) - p[0]);
    g[cells + here] = p[1] + omega * (equilibrium(1.0f / 9.0f, rho, ux, square) - p[1]);
    g[2 * cells + here] = p[2] + omega * (equilibrium(1.0f / 9.0f, rho, uy, square) - p[2]);
    g[3 * cells + here] = p[3] + omega * (equilibrium(1.0f / 9.0f, rho, -ux, square) - p[3]);
    g[4 * cells + here] = p[4] + omega * (equilibrium(1.0f / 9.0f, rho, -uy, square) - p[4]);
    g[5 * cells + here] = p[5] + omega * (equilibrium(1.0f / 36.0f, rho, ux + uy, square) - p[5]);
    g[6 * cells + here] = p[6] + omega * (equilibrium(1.0f / 36.0f, rho, uy - ux, square) - p[6]);
    g[7 * cells + here] = p[7] + omega * (equilibrium(1.0f / 36.0f, rho, -ux - uy, square) - p[7]);
    g[8 * cells + here] = p[8] + omega * (equilibrium(1.0f / 36.0f, rho, ux - uy, square) - p[8]);
}

/*gpuad
title = "D3Q19 lattice Boltzmann, BGK collision and push streaming, with walls that send back what arrives and a lid that moves"
[[case]]
kernel = "lattice_boltzmann_3d"
sizes = {nz = 5, ny = 6, nx = 9}
grid = ["(nx + 31) // 32", "ny", "nz"]
block = [32]
[case.arguments]
f = {shape = [19, "nz", "ny", "nx"], init = "uniform(0.04, 0.07)", active = true}
g = {shape = [19, "nz", "ny", "nx"], init = "zeros", active = true}
kind = {shape = ["nz", "ny", "nx"], init = "integers(0, 3)"}
omega = {value = 1.4, active = true}
lid = {value = 0.05, active = true}
nz = {value = "nz"}
ny = {value = "ny"}
nx = {value = "nx"}
[case.benchmark]
sizes = {nz = 100, ny = 128, nx = 128}
bytes = "156 * nx * ny * nz"
*/
// The method is that of Parboil's and SPEC's lattice Boltzmann programs: two fields in turn, one relaxation time (Qian, d'Humieres and
// Lallemand 1992). `kind` is 0 in the fluid, 1 in a wall, 2 in the fluid under the lid. Directions 2 m - 1 and 2 m are opposite.
#define Q 19
enum { FLUID, WALL, LID };

extern "C" __global__ void lattice_boltzmann_3d(const float* __restrict__ f, float* __restrict__ g, const int* kind, float omega, float lid,
                                                int nz, int ny, int nx) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
    if (x >= nx) return;
    const int ex[Q] = {0, 1, -1, 0, 0, 0, 0, 1, -1, 1, -1, 1, -1, 1, -1, 0, 0, 0, 0};
    const int ey[Q] = {0, 0, 0, 1, -1, 0, 0, 1, -1, -1, 1, 0, 0, 0, 0, 1, -1, 1, -1};
    const int ez[Q] = {0, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 1, -1, -1, 1, 1, -1, -1, 1};
    const int cells = nx * ny * nz, here = (z * ny + y) * nx + x;

    float p[Q], rho = 0.f, ux = 0.f, uy = 0.f, uz = 0.f;
    for (int k = 0; k < Q; ++k) {
        p[k] = f[k * cells + here];
        rho += p[k];
        ux += ex[k] * p[k];
        uy += ey[k] * p[k];
        uz += ez[k] * p[k];
    }
    ux = kind[here] == LID ? lid : ux / rho;
    uy = kind[here] == LID ? 0.f : uy / rho;
    uz = kind[here] == LID ? 0.f : uz / rho;

    const float square = 1.5f * (ux * ux + uy * uy + uz * uz);
    for (int k = 0; k < Q; ++k) {
        const int back = k == 0 ? 0 : k + 2 * (k % 2) - 1;
        const float weight = k == 0 ? 1.f / 3 : k < 7 ? 1.f / 18 : 1.f / 36;
        const float eu = 3.f * (ex[k] * ux + ey[k] * uy + ez[k] * uz);
        const float relaxed = p[k] + omega * (weight * rho * (1.f + eu + 0.5f * eu * eu - square) - p[k]);
        const int to_x = (x + ex[k] + nx) % nx, to_y = (y + ey[k] + ny) % ny, to_z = (z + ez[k] + nz) % nz;
        g[k * cells + (to_z * ny + to_y) * nx + to_x] = kind[here] == WALL ? p[back] : relaxed;
    }
}

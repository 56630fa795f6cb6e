// gpuad: adjoint of `lattice_boltzmann_3d` (lattice_boltzmann_3d.cu:26:28), for Duplicated f, g; Active omega, lid; Const kind, nz, ny, nx.
// 1. put the seeds into dg. df, domega, dlid are added to: clear first.
// 2. launch lattice_boltzmann_3d_reverse with the same grid and block.
// On exit dg holds the adjoint of the state before the launch; df, domega, dlid have grown by the gradient.
// Holds where no two threads touch one element of df, dg, as for grid (1, 6, 5), block (32, 1, 1), nz = 5, ny = 6, nx = 9.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

// Adds the sum of `value` over all threads of the block to *target, with one atomicAdd if it is not 0. Every thread of the block must make
// the call, with the same target; the block may have any shape. The sum is formed in double.
template <typename T>
__device__ inline void gpuad_block_sum(T* target, double value)
{
    __shared__ double partial[32];
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    const int lane = thread % 32;
    const int lanes = min(32, threads - (thread - lane));
    const unsigned int mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1u;
    for (int distance = 16; distance > 0; distance /= 2) {
        const double other = __shfl_down_sync(mask, value, distance);
        if (lane + distance < lanes) value += other;
    }
    if (lane == 0) partial[thread / 32] = value;
    __syncthreads();
    if (thread == 0) {
        for (int warp = 1; warp < (threads + 31) / 32; ++warp) value += partial[warp];
        if (value != 0.0) atomicAdd(target, (T)value);
    }
    __syncthreads();
}

extern "C" __global__ void lattice_boltzmann_3d_reverse(
    const float* f, float* df, const float* g, float* dg, const int* kind, float omega, double* domega,
    float lid, double* dlid, int nz, int ny, int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y;
    int z = blockIdx.z;
    float domega_2 = 0.0f;
    float dlid_2 = 0.0f;
    if (x < nx) {
        const int ex[19] = {0, 1, -1, 0, 0, 0, 0, 1, -1, 1, -1, 1, -1, 1, -1, 0, 0, 0, 0};
        const int ey[19] = {0, 0, 0, 1, -1, 0, 0, 1, -1, -1, 1, 0, 0, 0, 0, 1, -1, 1, -1};
        const int ez[19] = {0, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 1, -1, -1, 1, 1, -1, -1, 1};
        int cells = nx * ny * nz;
        int here = (z * ny + y) * nx + x;
        float p[19];
        float rho = 0.0f;
        float ux = 0.0f;
        float uy = 0.0f;
        float uz = 0.0f;
        for (int k = 0; k < 19; ++k) {
            const float f_2 = f[k * cells + here];
            p[k] = f_2;
            rho += f_2;
            ux += ex[k] * f_2;
            uy += ey[k] * f_2;
            uz += ez[k] * f_2;
        }
        int kind_2 = kind[here];
        const float ux_2 = kind_2 == 2 ? lid : ux / rho;
        const float uy_2 = kind_2 == 2 ? 0.0f : uy / rho;
        const float uz_2 = kind_2 == 2 ? 0.0f : uz / rho;
        const float square = 1.5f * (ux_2 * ux_2 + uy_2 * uy_2 + uz_2 * uz_2);
        float dp[19] = {};
        float drho = 0.0f;
        float dsquare = 0.0f;
        float dux = 0.0f;
        float duy = 0.0f;
        float duz = 0.0f;
        for (int k = 18; k >= 0; --k) {
            const float weight = k == 0 ? 1.0f / 3.0f : k < 7 ? 1.0f / 18.0f : 1.0f / 36.0f;
            int ex_2 = ex[k];
            int ey_2 = ey[k];
            int ez_2 = ez[k];
            int kind_3 = kind[here];
            const float dg_2 = dg[k * cells + ((z + ez_2 + nz) % nz * ny + (y + ey_2 + ny) % ny) * nx
                + (x + ex_2 + nx) % nx];
            dg[k * cells + ((z + ez_2 + nz) % nz * ny + (y + ey_2 + ny) % ny) * nx + (x + ex_2 + nx) % nx] = 0.0f;
            float dp_2;
            float domega_3;
            float drho_2;
            float dsquare_2;
            float dux_2;
            float duy_2;
            float duz_2;
            if (kind_3 == 1) {
                dp[k == 0 ? 0 : k + 2 * (k % 2) - 1] += dg_2;
                dp_2 = 0.0f;
                domega_3 = 0.0f;
                drho_2 = 0.0f;
                dsquare_2 = 0.0f;
                dux_2 = 0.0f;
                duy_2 = 0.0f;
                duz_2 = 0.0f;
            } else {
                const float eu = 3.0f * (ex_2 * ux_2 + ey_2 * uy_2 + ez_2 * uz_2);
                const float drelaxed = omega * dg_2;
                const float drelaxed_2 = weight * rho * drelaxed;
                const float deu = 3.0f * (drelaxed_2 + eu * drelaxed_2);
                dp_2 = dg_2 - drelaxed;
                domega_3 = (weight * rho * (1.0f + eu + 0.5f * eu * eu - square) - p[k]) * dg_2;
                drho_2 = weight * ((1.0f + eu + 0.5f * eu * eu - square) * drelaxed);
                dsquare_2 = -drelaxed_2;
                dux_2 = ex_2 * deu;
                duy_2 = ey_2 * deu;
                duz_2 = ez_2 * deu;
            }
            if (dp_2 != 0.0f) {
                dp[k] += dp_2;
            }
            domega_2 += domega_3;
            drho += drho_2;
            dsquare += dsquare_2;
            dux += dux_2;
            duy += duy_2;
            duz += duz_2;
        }
        const float dsquare_2 = 1.5f * dsquare;
        duz = gpuad_chain(duz + (dsquare != 0.0f ? 2.0f * (uz_2 * dsquare_2) : 0.0f), 1.0f / rho);
        duy = gpuad_chain(duy + (dsquare != 0.0f ? 2.0f * (uy_2 * dsquare_2) : 0.0f), 1.0f / rho);
        dux += dsquare != 0.0f ? 2.0f * (ux_2 * dsquare_2) : 0.0f;
        float dux_2 = gpuad_chain(dux, 1.0f / rho);
        drho += kind_2 != 2 ? -gpuad_chain(duz, uz / rho) - gpuad_chain(duy, uy / rho) - gpuad_chain(dux_2, ux / rho)
            : 0.0f;
        dux_2 = kind_2 != 2 ? dux_2 : 0.0f;
        duy = kind_2 != 2 ? duy : 0.0f;
        duz = kind_2 != 2 ? duz : 0.0f;
        for (int k = 0; k < 19; ++k) {
            const float dp_2 = dp[k];
            dp[k] = 0.0f;
            df[k * cells + here] += ez[k] * duz + ey[k] * duy + ex[k] * dux_2 + drho + dp_2;
        }
        dlid_2 = kind_2 == 2 ? dux : 0.0f;
    }
    gpuad_block_sum(&domega[0], (double)domega_2);
    gpuad_block_sum(&dlid[0], (double)dlid_2);
}

// adjoint of `lattice_boltzmann_3d`
//   not saved  f                             never overwritten by this launch
//   not saved  g                             no derivative needs what was overwritten
//   not saved  kind                          never overwritten by this launch
//   shadow     df                   plain    no two threads touch one element (lattice_boltzmann_3d.cu:37:16)
//   shadow     dg                   plain    no two threads touch one element (lattice_boltzmann_3d.cu:54:9)
//   shadow     domega               reduced  summed over each block, then one atomic addition a block (lattice_boltzmann_3d.cu:26:28)
//   shadow     dlid                 reduced  summed over each block, then one atomic addition a block (lattice_boltzmann_3d.cu:26:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    lattice_boltzmann_3d.cu:54:9: an index of `g` is data, taken to be in bounds and stored to by one thread, which is checked before each launch

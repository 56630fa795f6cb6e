// gpuad: adjoint of `lattice_boltzmann` (lattice_boltzmann.cu:20:28), for Duplicated f, g; Active omega; Const ny, nx.
// 1. put the seeds into dg. df, domega are added to: clear first.
// 2. launch lattice_boltzmann_reverse with the same grid and block.
// On exit dg holds the adjoint of the state before the launch; df, domega have grown by the gradient.
// Holds where no two threads touch one element of df, dg, as for grid (1, 20, 1), block (32, 1, 1), ny = 20, nx = 24.

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

extern "C" __global__ void lattice_boltzmann_reverse(
    const float* f, float* df, const float* g, float* dg, float omega, double* domega, int ny, int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y;
    float domega_2 = 0.0f;
    if (x < nx) {
        const int ex[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
        const int ey[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
        const float w[9] = {4.0f / 9.0f, 1.0f / 9.0f, 1.0f / 9.0f, 1.0f / 9.0f, 1.0f / 9.0f, 1.0f / 36.0f,
            1.0f / 36.0f, 1.0f / 36.0f, 1.0f / 36.0f};
        int cells = nx * ny;
        float rho = 0.0f;
        float ux = 0.0f;
        float uy = 0.0f;
        for (int k = 0; k < 9; ++k) {
            const float fk = f[k * cells + y * nx + x];
            rho += fk;
            ux += ex[k] * fk;
            uy += ey[k] * fk;
        }
        ux /= rho;
        uy /= rho;
        const float square = 1.5f * (ux * ux + uy * uy);
        float drho = 0.0f;
        float dsquare = 0.0f;
        float dux = 0.0f;
        float duy = 0.0f;
        for (int k = 8; k >= 0; --k) {
            int ex_2 = ex[k];
            int ey_2 = ey[k];
            const float eu = 3.0f * (ex_2 * ux + ey_2 * uy);
            const float w_2 = w[k];
            const float fk = f[k * cells + y * nx + x];
            const float dg_2 = dg[k * cells + (y + ey_2 + ny) % ny * nx + (x + ex_2 + nx) % nx];
            dg[k * cells + (y + ey_2 + ny) % ny * nx + (x + ex_2 + nx) % nx] = 0.0f;
            const float dg_3 = omega * dg_2;
            df[k * cells + y * nx + x] += dg_2 - dg_3;
            const float dequilibrium = w_2 * rho * dg_3;
            const float deu = 3.0f * (dequilibrium + eu * dequilibrium);
            const float equilibrium = w_2 * rho * (1.0f + eu + 0.5f * eu * eu - square);
            domega_2 += (equilibrium - fk) * dg_2;
            drho += w_2 * ((1.0f + eu + 0.5f * eu * eu - square) * dg_3);
            dsquare -= dequilibrium;
            dux += ex_2 * deu;
            duy += ey_2 * deu;
        }
        const float dsquare_2 = 1.5f * dsquare;
        duy = gpuad_chain(duy + (dsquare != 0.0f ? 2.0f * (uy * dsquare_2) : 0.0f), 1.0f / rho);
        dux = gpuad_chain(dux + (dsquare != 0.0f ? 2.0f * (ux * dsquare_2) : 0.0f), 1.0f / rho);
        drho = drho - gpuad_chain(duy, uy) - gpuad_chain(dux, ux);
        for (int k = 0; k < 9; ++k) {
            df[k * cells + y * nx + x] += ey[k] * duy + ex[k] * dux + drho;
        }
    }
    gpuad_block_sum(&domega[0], (double)domega_2);
}

// adjoint of `lattice_boltzmann`
//   not saved  f                             never overwritten by this launch
//   not saved  g                             no derivative needs what was overwritten
//   shadow     df                   plain    no two threads touch one element (lattice_boltzmann.cu:43:26)
//   shadow     dg                   plain    no two threads touch one element (lattice_boltzmann.cu:46:9)
//   shadow     domega               reduced  summed over each block, then one atomic addition a block (lattice_boltzmann.cu:20:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    lattice_boltzmann.cu:46:9: an index of `g` is data, taken to be in bounds and stored to by one thread, which is checked before each launch

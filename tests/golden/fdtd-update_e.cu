// gpuad: adjoint of `update_e` (fdtd.cu:48:28), for Duplicated ez, hx, hy, epsilon, sigma; Active courant; Const ny, nx.
// 1. before update_e runs, copy ez to ez_saved (all that it may touch).
// 2. put the seeds into dez. dhx, dhy, depsilon, dsigma, dcourant are added to: clear first.
// 3. launch update_e_gather with grid (3, 2, 1) and the block of update_e.
// 4. launch update_e_reverse with the same grid and block.
// On exit dez holds the adjoint of the state before the launch; dhx, dhy, depsilon, dsigma, dcourant have grown by the gradient.
// Holds where no two threads touch one element of depsilon, dez, dsigma
// and the gather's threads do not meet in dhx, dhy, as for grid (3, 2, 1), block (16, 16, 1), ny = 28, nx = 33.

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

extern "C" __global__ void update_e_gather(
    const float* dez, float* dhx, float* dhy, const float* epsilon, const float* sigma, float courant,
    int ny, int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int i = x + nx * y;
    float dhx_2 = 0.0f;
    float dhy_2 = 0.0f;
    if (x != 0 && y != 0 && x < nx && y < ny) {
        const float epsilon_2 = epsilon[i];
        const float loss = 0.5f * sigma[i] / epsilon_2;
        const float dcurl = courant / epsilon_2 * gpuad_chain(dez[i], 1.0f / (1.0f + loss));
        dhx_2 -= dcurl;
        dhy_2 += dcurl;
    }
    if (x != 0 && x < nx && y < ny - 1) {
        const float epsilon_2 = epsilon[i + nx];
        dhx_2 += courant / epsilon_2 * gpuad_chain(dez[i + nx], 1.0f / (1.0f + 0.5f * sigma[i + nx] / epsilon_2));
    }
    if (y != 0 && x < nx - 1 && y < ny) {
        const float epsilon_2 = epsilon[i + 1];
        dhy_2 -= courant / epsilon_2 * gpuad_chain(dez[i + 1], 1.0f / (1.0f + 0.5f * sigma[i + 1] / epsilon_2));
    }
    if (dhx_2 != 0.0f) {
        dhx[i] += dhx_2;
    }
    if (dhy_2 != 0.0f) {
        dhy[i] += dhy_2;
    }
}

extern "C" __global__ void update_e_reverse(
    const float* ez, float* dez, const float* hx, const float* dhx, const float* hy, const float* dhy,
    const float* epsilon, float* depsilon, const float* sigma, float* dsigma, float courant,
    double* dcourant, int ny, int nx, const float* ez_saved)
{
    int x = blockDim.x * blockIdx.x + threadIdx.x;
    int y = blockDim.y * blockIdx.y + threadIdx.y;
    float dcourant_2 = 0.0f;
    if (x != 0 && y != 0 && x < nx && y < ny) {
        int i = x + nx * y;
        const float epsilon_2 = epsilon[i];
        const float loss = 0.5f * sigma[i] / epsilon_2;
        const float curl = hy[i] - hy[i - 1] - (hx[i] - hx[i - nx]);
        const float ez_2 = ez_saved[i];
        const float dez_2 = gpuad_chain(dez[i], 1.0f / (1.0f + loss));
        const float dez_3 = gpuad_chain(curl * dez_2, 1.0f / epsilon_2);
        dez[i] = (1.0f - loss) * dez_2;
        const float dloss = gpuad_chain(-(ez_2 * dez_2)
            - gpuad_chain(dez_2, ((1.0f - loss) * ez_2 + courant / epsilon_2 * curl) / (1.0f + loss)),
            1.0f / epsilon_2);
        depsilon[i] += -gpuad_chain(dez_3, courant / epsilon_2) - gpuad_chain(dloss, loss);
        dsigma[i] += 0.5f * dloss;
        dcourant_2 = dez_3;
    }
    gpuad_block_sum(&dcourant[0], (double)dcourant_2);
}

// adjoint of `update_e`
//   saved      ez                   copy     needed by fdtd.cu:56:30, overwritten by fdtd.cu:56:5
//   not saved  hx                            never overwritten by this launch
//   not saved  hy                            never overwritten by this launch
//   not saved  epsilon                       never overwritten by this launch
//   not saved  sigma                         never overwritten by this launch
//   shadow     dez                  plain    no two threads touch one element (fdtd.cu:56:5)
//   shadow     dhx                  gather   each thread of update_e_gather collects for an element of its own (fdtd.cu:55:55)
//   shadow     dhy                  gather   each thread of update_e_gather collects for an element of its own (fdtd.cu:55:33)
//   shadow     depsilon             plain    no two threads touch one element (fdtd.cu:54:42)
//   shadow     dsigma               plain    no two threads touch one element (fdtd.cu:54:31)
//   shadow     dcourant             reduced  summed over each block, then one atomic addition a block (fdtd.cu:48:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it

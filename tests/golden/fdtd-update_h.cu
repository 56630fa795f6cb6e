// gpuad: adjoint of `update_h` (fdtd.cu:39:28), for Duplicated hx, hy, ez; Active courant; Const ny, nx.
// 1. put the seeds into dhx, dhy. dez, dcourant are added to: clear first.
// 2. launch update_h_gather with grid (3, 2, 1) and the block of update_h.
// 3. launch update_h_reverse with the same grid and block.
// On exit dhx, dhy hold the adjoint of the state before the launch; dez, dcourant have grown by the gradient.
// Holds where the gather's threads do not meet in dez, as for grid (3, 2, 1), block (16, 16, 1), ny = 28, nx = 33.

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

extern "C" __global__ void update_h_gather(
    const float* dhx, const float* dhy, float* dez, float courant, int ny, int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int i = x + nx * y;
    float dez_2 = 0.0f;
    if (x < nx && y < ny) {
        if (x < nx - 1) {
            dez_2 -= courant * dhy[i];
        }
        if (y < ny - 1) {
            dez_2 += courant * dhx[i];
        }
    }
    if (x >= 1 && x < nx + 1 && y < ny && x < nx) {
        dez_2 += courant * dhy[i - 1];
    }
    if (y >= 1 && x < nx && y < ny + 1 && y < ny) {
        dez_2 -= courant * dhx[i - nx];
    }
    if (dez_2 != 0.0f) {
        dez[i] += dez_2;
    }
}

extern "C" __global__ void update_h_reverse(
    const float* hx, const float* dhx, const float* hy, const float* dhy, const float* ez, const float* dez,
    float courant, double* dcourant, int ny, int nx)
{
    int x = blockDim.x * blockIdx.x + threadIdx.x;
    int y = blockDim.y * blockIdx.y + threadIdx.y;
    float dcourant_2 = 0.0f;
    if (x < nx && y < ny) {
        int i = x + nx * y;
        dcourant_2 = x < nx - 1 ? (ez[i + 1] - ez[i]) * dhy[i] : 0.0f;
        const float dcourant_3 = y < ny - 1 ? -((ez[i + nx] - ez[i]) * dhx[i]) : 0.0f;
        dcourant_2 += dcourant_3;
    }
    gpuad_block_sum(&dcourant[0], (double)dcourant_2);
}

// adjoint of `update_h`
//   not saved  hx                            no derivative needs what was overwritten
//   not saved  hy                            no derivative needs what was overwritten
//   not saved  ez                            never overwritten by this launch
//   shadow     dhx                  plain    it is only read (fdtd.cu:44:21)
//   shadow     dhy                  plain    it is only read (fdtd.cu:45:21)
//   shadow     dez                  gather   each thread of update_h_gather collects for an element of its own (fdtd.cu:45:53)
//   shadow     dcourant             reduced  summed over each block, then one atomic addition a block (fdtd.cu:39:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it

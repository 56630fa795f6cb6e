// gpuad: adjoint of `update_h` (fdtd.cu:39:28), for Duplicated hx, hy, ez; Active courant; Const ny, nx.
// 1. put the seeds into dhx, dhy. dez, dcourant are added to: clear first.
// 2. launch update_h_reverse with the same grid and block.
// On exit dhx, dhy hold the adjoint of the state before the launch; dez, dcourant have grown by the gradient.
// Holds for every grid and block.

// Adds the sum of `value` over all threads of the block to *target, with one atomicAdd. Every thread of the block must make the call,
// with the same target; the block may have any shape. The sum is formed in double.
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
        atomicAdd(target, (T)value);
    }
    __syncthreads();
}

extern "C" __global__ void update_h_reverse(
    const float* hx, const float* dhx, const float* hy, const float* dhy, const float* ez, float* dez,
    float courant, double* dcourant, int ny, int nx)
{
    int x = blockDim.x * blockIdx.x + threadIdx.x;
    int y = blockDim.y * blockIdx.y + threadIdx.y;
    float dcourant_2 = 0.0f;
    if (x < nx && y < ny) {
        int i = x + nx * y;
        if (x < nx - 1) {
            const float ez_2 = ez[i + 1];
            const float ez_3 = ez[i];
            const float dhy_2 = dhy[i];
            const float dhy_3 = courant * dhy_2;
            atomicAdd(&dez[i], -dhy_3);
            atomicAdd(&dez[i + 1], dhy_3);
            dcourant_2 = (ez_2 - ez_3) * dhy_2;
        }
        float dcourant_3 = 0.0f;
        if (y < ny - 1) {
            const float ez_2 = ez[i + nx];
            const float ez_3 = ez[i];
            const float dhx_2 = dhx[i];
            const float dhx_3 = -(courant * dhx_2);
            atomicAdd(&dez[i], -dhx_3);
            atomicAdd(&dez[i + nx], dhx_3);
            dcourant_3 = -((ez_2 - ez_3) * dhx_2);
        }
        dcourant_2 += dcourant_3;
    }
    gpuad_block_sum(&dcourant[0], (double)dcourant_2);
}

// adjoint of `update_h`
//   not saved  hx                            no derivative needs what was overwritten
//   not saved  hy                            no derivative needs what was overwritten
//   not saved  ez                            never overwritten by this launch
//   shadow     dhx                  plain    no two threads touch one element (fdtd.cu:44:21)
//   shadow     dhy                  plain    no two threads touch one element (fdtd.cu:45:21)
//   shadow     dez                  atomic   it is not proved that no two threads meet in one element (fdtd.cu:45:53)
//   shadow     dcourant             reduced  summed over each block, then one atomic addition a block (fdtd.cu:39:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it

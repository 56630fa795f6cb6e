// gpuad: adjoint of `red_black` (red_black.cu:18:28), for Duplicated u, f; Active relaxation; Const colour, n.
// 1. before red_black runs, copy u to u_saved (all that it may touch).
// 2. put the seeds into du. df, drelaxation are added to: clear first.
// 3. launch red_black_reverse with the same grid and block.
// On exit du holds the adjoint of the state before the launch; df, drelaxation have grown by the gradient.
// Holds where no two threads touch one element of df, as for grid (2, 2, 1), block (16, 16, 1), colour = 1, n = 22.

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

extern "C" __global__ void red_black_reverse(
    const double* u, double* du, const double* f, double* df, double relaxation, double* drelaxation,
    int colour, int n, const double* u_saved)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    double drelaxation_2 = 0.0;
    if (x >= 1 && y >= 1 && x <= n - 2 && y <= n - 2) {
        if ((x + y) % 2 == colour) {
            int i = y * n + x;
            const double residual = 0.25 * (u_saved[i - 1] + u_saved[i + 1] + u_saved[i - n] + u_saved[i + n] - f[i])
                - u_saved[i];
            const double du_2 = du[i];
            const double dresidual = relaxation * du_2;
            const double dresidual_2 = 0.25 * dresidual;
            atomicAdd(&du[i], -dresidual);
            df[i] -= dresidual_2;
            atomicAdd(&du[i + n], dresidual_2);
            atomicAdd(&du[i - n], dresidual_2);
            atomicAdd(&du[i + 1], dresidual_2);
            atomicAdd(&du[i - 1], dresidual_2);
            drelaxation_2 = residual * du_2;
        }
    }
    gpuad_block_sum(&drelaxation[0], drelaxation_2);
}

// adjoint of `red_black`
//   saved      u                    copy     needed by red_black.cu:24:31, overwritten by red_black.cu:25:5
//   not saved  f                             never overwritten by this launch
//   shadow     du                   atomic   it is not proved that no two threads meet in one element (red_black.cu:25:5)
//   shadow     df                   plain    no two threads touch one element (red_black.cu:24:75)
//   shadow     drelaxation          reduced  summed over each block, then one atomic addition a block (red_black.cu:18:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it

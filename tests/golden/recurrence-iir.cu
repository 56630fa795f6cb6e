// gpuad: adjoint of `iir` (recurrence.cu:48:28), for Duplicated x; Active a1, a2, b0; Const rows, n.
// 1. before iir runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx. da1, da2, db0 are added to: clear first.
// 3. launch iir_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch; da1, da2, db0 have grown by the gradient.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (8, 1, 1), rows = 12, n = 40.

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

extern "C" __global__ void iir_reverse(
    const double* x, double* dx, double a1, double* da1, double a2, double* da2, double b0, double* db0,
    int rows, int n, const double* x_saved)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    double db0_2 = 0.0;
    double da1_2 = 0.0;
    double da2_2 = 0.0;
    if (r < rows) {
        double dy2 = 0.0;
        double dy1 = 0.0;
        for (int t = n - 1; t >= 0; --t) {
            double y2 = 0.0;
            if (t != 0) {
                if (t - 1 != 0) {
                    y2 = x[r * n + (long long)(t - 1 - 1)];  // the result is still there
                }
            }
            double y1 = 0.0;
            if (t != 0) {
                y1 = x[r * n + (long long)(t - 1)];  // the result is still there
            }
            const double x_2 = x_saved[r * n + (long long)t];
            const double dy = dy1 + dx[r * n + (long long)t];
            dx[r * n + (long long)t] = b0 * dy;
            dy1 = dy2 + a1 * dy;
            dy2 = a2 * dy;
            db0_2 += x_2 * dy;
            da1_2 += y1 * dy;
            da2_2 += y2 * dy;
        }
    }
    gpuad_block_sum(&da1[0], da1_2);
    gpuad_block_sum(&da2[0], da2_2);
    gpuad_block_sum(&db0[0], db0_2);
}

// adjoint of `iir`
//   saved      x                    copy     needed by recurrence.cu:54:25, overwritten by recurrence.cu:55:9
//   shadow     dx                   plain    no two threads touch one element (recurrence.cu:55:9)
//   shadow     da1                  reduced  summed over each block, then one atomic addition a block (recurrence.cu:48:28)
//   shadow     da2                  reduced  summed over each block, then one atomic addition a block (recurrence.cu:48:28)
//   shadow     db0                  reduced  summed over each block, then one atomic addition a block (recurrence.cu:48:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it

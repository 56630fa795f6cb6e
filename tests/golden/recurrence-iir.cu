// gpuad: adjoint of `iir` (recurrence.cu:48:28), for Duplicated x; Active a1, a2, b0; Const rows, n.
// 1. before iir runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx. da1, da2, db0 are added to: clear first.
// 3. launch iir_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 4. y2_saved_base[0] = 0; y2_saved_base[g + 1] = y2_saved_base[g] + 32 * (greatest y2_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of y2_saved, y1_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch iir_reverse with the same grid and block.
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

extern "C" __global__ void iir_count(
    const double* x, double a1, double a2, double b0, int rows, int n, const double* x_saved,
    int* y2_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        for (int t = 0; t < n; ++t) {
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    y2_saved_depth[thread] = deepest;
}

extern "C" __global__ void iir_reverse(
    const double* x, double* dx, double a1, double* da1, double a2, double* da2, double b0, double* db0,
    int rows, int n, const double* x_saved, const long long* y2_saved_base, double* y2_saved,
    double* y1_saved, int* gpuad_overflow)
{
    int y2_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long y2_saved_base_end = y2_saved_base[thread / 32LL + 1LL];
    long long y2_saved_base_lane = y2_saved_base[thread / 32LL] + thread % 32LL;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    double db0_2 = 0.0;
    double da1_2 = 0.0;
    double da2_2 = 0.0;
    if (r < rows) {
        double y2 = 0.0;
        double y1 = 0.0;
        for (int t = 0; t < n; ++t) {
            const double y = b0 * x_saved[r * n + (long long)t] + a1 * y1 + a2 * y2;
            long long y2_at = y2_saved_base_lane + y2_top * 32LL;
            if (y2_at < y2_saved_base_end) {
                y2_saved[y2_at] = y2;
                y1_saved[y2_at] = y1;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++y2_top;
            y2 = y1;
            y1 = y;
        }
        double dy2 = 0.0;
        double dy1 = 0.0;
        for (int t = n - 1; t >= 0; --t) {
            --y2_top;
            const double y2_2 = y2_saved[y2_saved_base_lane + y2_top * 32LL];
            const double y1_2 = y1_saved[y2_saved_base_lane + y2_top * 32LL];
            const double x_2 = x_saved[r * n + (long long)t];
            const double dy = dy1 + dx[r * n + (long long)t];
            dx[r * n + (long long)t] = b0 * dy;
            dy1 = dy2 + a1 * dy;
            dy2 = a2 * dy;
            db0_2 += x_2 * dy;
            da1_2 += y1_2 * dy;
            da2_2 += y2_2 * dy;
        }
    }
    gpuad_block_sum(&da1[0], da1_2);
    gpuad_block_sum(&da2[0], da2_2);
    gpuad_block_sum(&db0[0], db0_2);
}

// adjoint of `iir`
//   saved      x                    copy     needed by recurrence.cu:54:25, overwritten by recurrence.cu:55:9
//   stack      y2_saved             scratch  an entry an iteration, needed by recurrence.cu:53:5
//   stack      y1_saved             scratch  an entry an iteration, needed by recurrence.cu:53:5
//   shadow     dx                   plain    no two threads touch one element (recurrence.cu:55:9)
//   shadow     da1                  reduced  summed over each block, then one atomic addition a block (recurrence.cu:48:28)
//   shadow     da2                  reduced  summed over each block, then one atomic addition a block (recurrence.cu:48:28)
//   shadow     db0                  reduced  summed over each block, then one atomic addition a block (recurrence.cu:48:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it

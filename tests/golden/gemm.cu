// gpuad: adjoint of `gemm` (gemm.cu:22:28), for Duplicated a, b, c; Active alpha, beta; Const m, n, k.
// 1. before gemm runs, copy c to c_saved (all that it may touch).
// 2. put the seeds into dc. da, db, dalpha, dbeta are added to: clear first.
// 3. launch gemm_gather with grid (2, 2, 1) and the block of gemm.
// 4. launch gemm_reverse with the same grid and block.
// On exit dc holds the adjoint of the state before the launch; da, db, dalpha, dbeta have grown by the gradient.
// Holds where no two threads touch one element of dc
// and the gather's threads do not meet in da, db, as for grid (2, 2, 1), block (16, 16, 1), m = 19, n = 23, k = 14.

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

extern "C" __global__ void gemm_gather(
    const float* a, float* da, const float* b, float* db, const float* dc, float alpha, int m, int n, int k)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float db_2 = 0.0f;
    float da_2 = 0.0f;
    if (y < k && x < n) {
        for (int row = 0; row < m; ++row) {
            db_2 += a[row * k + y] * (alpha * dc[row * n + x]);
        }
    }
    if (x < k && y < m) {
        for (int column = 0; column < n; ++column) {
            da_2 += b[x * n + column] * (alpha * dc[y * n + column]);
        }
    }
    if (db_2 != 0.0f) {
        db[y * n + x] += db_2;
    }
    if (da_2 != 0.0f) {
        da[k * y + x] += da_2;
    }
}

extern "C" __global__ void gemm_reverse(
    const float* a, const float* da, const float* b, const float* db, const float* c, float* dc, float alpha,
    double* dalpha, float beta, double* dbeta, int m, int n, int k, const float* c_saved)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    float dalpha_2 = 0.0f;
    float dbeta_2 = 0.0f;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int l = 0; l < k; ++l) {
            sum += a[row * k + l] * b[l * n + column];
        }
        const float c_2 = c_saved[row * n + column];
        const float dc_2 = dc[row * n + column];
        dc[row * n + column] = beta * dc_2;
        dalpha_2 = sum * dc_2;
        dbeta_2 = c_2 * dc_2;
    }
    gpuad_block_sum(&dalpha[0], (double)dalpha_2);
    gpuad_block_sum(&dbeta[0], (double)dbeta_2);
}

// adjoint of `gemm`
//   not saved  a                             never overwritten by this launch
//   not saved  b                             never overwritten by this launch
//   saved      c                    copy     needed by gemm.cu:28:52, overwritten by gemm.cu:28:9
//   shadow     da                   gather   each thread of gemm_gather collects for an element of its own (gemm.cu:27:44)
//   shadow     db                   gather   each thread of gemm_gather collects for an element of its own (gemm.cu:27:61)
//   shadow     dc                   plain    no two threads touch one element (gemm.cu:28:9)
//   shadow     dalpha               reduced  summed over each block, then one atomic addition a block (gemm.cu:22:28)
//   shadow     dbeta                reduced  summed over each block, then one atomic addition a block (gemm.cu:22:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
